// RUN: kiln-expand-ffts

// CASE: lengths_of_a_kernel
// CHECK-COUNT-3: kiln.loops
// IMPLICIT-CHECK-NOT: kiln.dot_general
func.func @f(%x: tensor<?x1000xf32>, %z: tensor<3x5xf64>) -> (tensor<?x501xf32>, tensor<?x501xf32>, tensor<3x8xf64>, tensor<?x1000xf32>) {
  %0:2 = kiln.fft r2c %x length = 1000 : tensor<?x1000xf32>
  %1 = kiln.fft c2r %z, %z length = 8 inverse : tensor<3x5xf64>, tensor<3x5xf64>
  %2:2 = kiln.fft c2c %x, %x length = 1000 : tensor<?x1000xf32>, tensor<?x1000xf32>
  return %0#0, %0#1, %1, %2#0 : tensor<?x501xf32>, tensor<?x501xf32>, tensor<3x8xf64>, tensor<?x1000xf32>
}

// -----
// Two factors: a product with a matrix each, and roots of unity between them.
// CASE: factors
// RUN: kiln-expand-ffts{max-row=64},canonicalize,cse
// CHECK: kiln.dot_general
// CHECK: kiln.dot_general
// IMPLICIT-CHECK-NOT: kiln.fft
func.func @f(%x: tensor<2x36xf32>, %y: tensor<2x36xf32>) -> (tensor<2x36xf32>, tensor<2x36xf32>) {
  %0:2 = kiln.fft c2c %x, %y length = 36 : tensor<2x36xf32>, tensor<2x36xf32>
  return %0#0, %0#1 : tensor<2x36xf32>, tensor<2x36xf32>
}

// -----
// An even length is a complex one of half of it.
// CASE: real_numbers
// RUN: kiln-expand-ffts{max-row=64},canonicalize,cse
// CHECK: kiln.fft c2c {{.*}} length = 8 {kiln.loops}
func.func @f(%x: tensor<2x3x16xf32>) -> (tensor<2x3x9xf32>, tensor<2x3x9xf32>) {
  %0:2 = kiln.fft r2c %x length = 16 : tensor<2x3x16xf32>
  return %0#0, %0#1 : tensor<2x3x9xf32>, tensor<2x3x9xf32>
}

// -----
// CASE: to_real_numbers
// RUN: kiln-expand-ffts{max-row=64},canonicalize,cse
// CHECK: kiln.fft c2c {{.*}} length = 8 inverse {kiln.loops}
func.func @f(%x: tensor<?x9xf32>, %y: tensor<?x9xf32>) -> tensor<?x16xf32> {
  %s = kiln.sym @s0
  kiln.bind_shape %x, [%s, 9] : tensor<?x9xf32>
  kiln.bind_shape %y, [%s, 9] : tensor<?x9xf32>
  %0 = kiln.fft c2r %x, %y length = 16 inverse : tensor<?x9xf32>, tensor<?x9xf32>
  return %0 : tensor<?x16xf32>
}

// -----
// CASE: odd_length_to_real_numbers
// CHECK: kiln.reverse
// CHECK: kiln.dot_general
func.func @f(%x: tensor<2x9xf64>, %y: tensor<2x9xf64>) -> tensor<2x17xf64> {
  %0 = kiln.fft c2r %x, %y length = 17 : tensor<2x9xf64>, tensor<2x9xf64>
  return %0 : tensor<2x17xf64>
}

// -----
// A large prime: a cyclic convolution of a power of two, whose transforms are kernels.
// CASE: prime
// CHECK-COUNT-3: kiln.fft c2c {{.*}} length = 2048
func.func @f(%x: tensor<2x521xf32>) -> (tensor<2x261xf32>, tensor<2x261xf32>) {
  %0:2 = kiln.fft r2c %x length = 521 : tensor<2x521xf32>
  return %0#0, %0#1 : tensor<2x261xf32>, tensor<2x261xf32>
}

// -----
// CASE: pairs
// CHECK: kiln.fft c2c {{.*}}, {{.*}} length = 8 {kiln.loops}
// CHECK: kiln.concat
// IMPLICIT-CHECK-NOT: interleaved
func.func @f(%z: tensor<3x8x2xf32>) -> tensor<3x8x2xf32> {
  %0 = kiln.fft c2c %z length = 8 interleaved_input interleaved_result : tensor<3x8x2xf32>
  return %0 : tensor<3x8x2xf32>
}

// -----
// CASE: one_number
// CHECK: kiln.dot_general
func.func @f(%x: tensor<3x1xf32>) -> (tensor<3x1xf32>, tensor<3x1xf32>) {
  %0:2 = kiln.fft r2c %x length = 1 : tensor<3x1xf32>
  return %0#0, %0#1 : tensor<3x1xf32>, tensor<3x1xf32>
}
