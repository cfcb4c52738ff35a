// RUN: kiln-expand-random

// CASE: bits_i32_and_i64
// CHECK: kiln.xor
// IMPLICIT-CHECK-NOT: kiln.random
func.func @f(%k: tensor<2xi64>) -> (tensor<3x2xi32>, tensor<5xi64>) {
  %0 = kiln.random_bits %k sizes = [3, 2] : i32
  %1 = kiln.random_bits %k sizes = [5] : i64
  return %0, %1 : tensor<3x2xi32>, tensor<5xi64>
}

// -----
// CASE: uniform_of_dynamic_size
// CHECK: kiln.iota [%0, 2] axis = 1
// IMPLICIT-CHECK-NOT: f64
func.func @f(%k: tensor<2xi64>, %x: tensor<?x2xbf16>) -> tensor<?x2xbf16> {
  %n = kiln.sym @n
  kiln.bind_shape %x, [%n, 2] : tensor<?x2xbf16>
  %0 = kiln.random_uniform %k sizes = [%n, 2] : bf16
  %1 = kiln.add %x, %0 : tensor<?x2xbf16>
  return %1 : tensor<?x2xbf16>
}

// -----
// CASE: scaled_uniform_and_normal
// CHECK: kiln.cos
func.func @f(%k: tensor<2xi64>) -> (tensor<7xf32>, tensor<7xf64>, tensor<7xf32>) {
  %0 = kiln.random_uniform %k sizes = [7] {low = -1.5 : f64, high = 4.0 : f64} : f32
  %1 = kiln.random_uniform %k sizes = [7] : f64
  %2 = kiln.random_normal %k sizes = [7] {mean = 1.0 : f64, std = 3.0 : f64} : f32
  return %0, %1, %2 : tensor<7xf32>, tensor<7xf64>, tensor<7xf32>
}

// -----
// CASE: philox_at_stated_counters
// CHECK: kiln.xor
// IMPLICIT-CHECK-NOT: kiln.philox
func.func @f(%seed: tensor<7xi64>, %block: tensor<7xi64>, %stream: tensor<7xi64>) -> (tensor<7xi32>, tensor<7xi32>) {
  %w:4 = kiln.philox %seed, %block, %stream : tensor<7xi64>
  return %w#0, %w#3 : tensor<7xi32>, tensor<7xi32>
}
