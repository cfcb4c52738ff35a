// RUN: kiln-shifted-variances{min-elements=1024}

// Mean and variance of a batch norm: no sum waits for another.
// CASE: a_batch_norm
// CHECK: kiln.slice
// CHECK-COUNT-2: kiln.reduce
// CHECK-NOT: kiln.reduce
func.func @f(%x: tensor<8x4x4x32xbf16>) -> (tensor<32xf32>, tensor<32xf32>, tensor<8x4x4x32xf32>) {
  %0 = kiln.convert %x : tensor<8x4x4x32xbf16> to f32
  %1 = kiln.reduce sum %0 dims = [0, 1, 2] : tensor<8x4x4x32xf32>
  %n = kiln.splat [32], 128.0 : f32
  %2 = kiln.div %1, %n : tensor<32xf32>
  %3 = kiln.broadcast_in_dim %2 dims = [3] sizes = [8, 4, 4, 32] : tensor<32xf32>
  %4 = kiln.sub %0, %3 : tensor<8x4x4x32xf32>
  %5 = kiln.mul %4, %4 : tensor<8x4x4x32xf32>
  %6 = kiln.reduce sum %5 dims = [0, 1, 2] : tensor<8x4x4x32xf32>
  %7 = kiln.div %6, %n : tensor<32xf32>
  return %2, %7, %4 : tensor<32xf32>, tensor<32xf32>, tensor<8x4x4x32xf32>
}

// -----
// A kernel keeps its rows in registers.
// CASE: rows_stay
// CHECK-NOT: kiln.slice
func.func @f(%x: tensor<32x64xf32>) -> tensor<32xf32> {
  %0 = kiln.reduce sum %x dims = [1] : tensor<32x64xf32>
  %n = kiln.splat [32], 64.0 : f32
  %1 = kiln.div %0, %n : tensor<32xf32>
  %2 = kiln.broadcast_in_dim %1 dims = [0] sizes = [32, 64] : tensor<32xf32>
  %3 = kiln.sub %x, %2 : tensor<32x64xf32>
  %4 = kiln.mul %3, %3 : tensor<32x64xf32>
  %5 = kiln.reduce sum %4 dims = [1] : tensor<32x64xf32>
  return %5 : tensor<32xf32>
}

// -----
// What is subtracted is no mean of what is squared.
// CASE: other_deviations_stay
// CHECK-NOT: kiln.slice
func.func @f(%x: tensor<64x32xf32>, %y: tensor<64x32xf32>) -> tensor<32xf32> {
  %0 = kiln.reduce sum %y dims = [0] : tensor<64x32xf32>
  %n = kiln.splat [32], 64.0 : f32
  %1 = kiln.div %0, %n : tensor<32xf32>
  %2 = kiln.broadcast_in_dim %1 dims = [1] sizes = [64, 32] : tensor<32xf32>
  %3 = kiln.sub %x, %2 : tensor<64x32xf32>
  %4 = kiln.mul %3, %3 : tensor<64x32xf32>
  %5 = kiln.reduce sum %4 dims = [0] : tensor<64x32xf32>
  return %5 : tensor<32xf32>
}

// -----
// The sums compute their input, of which nothing is in memory.
// CASE: computed_values_stay
// CHECK-NOT: kiln.slice
func.func @f(%y: tensor<64x32xf32>) -> tensor<32xf32> {
  %x = kiln.exp %y : tensor<64x32xf32>
  %0 = kiln.reduce sum %x dims = [0] : tensor<64x32xf32>
  %n = kiln.splat [32], 64.0 : f32
  %1 = kiln.div %0, %n : tensor<32xf32>
  %2 = kiln.broadcast_in_dim %1 dims = [1] sizes = [64, 32] : tensor<32xf32>
  %3 = kiln.sub %x, %2 : tensor<64x32xf32>
  %4 = kiln.mul %3, %3 : tensor<64x32xf32>
  %5 = kiln.reduce sum %4 dims = [0] : tensor<64x32xf32>
  return %5 : tensor<32xf32>
}
