// RUN: kiln-reciprocals,canonicalize

// CASE: softmax
// CHECK: kiln.mul
func.func @f(%x: tensor<4x16xf32>) -> tensor<4x16xf32> {
  %0 = kiln.reduce max %x dims = [1] : tensor<4x16xf32>
  %1 = kiln.broadcast_in_dim %0 dims = [0] sizes = [4, 16] : tensor<4xf32>
  %2 = kiln.sub %x, %1 : tensor<4x16xf32>
  %3 = kiln.exp %2 : tensor<4x16xf32>
  %4 = kiln.reduce sum %3 dims = [1] : tensor<4x16xf32>
  %5 = kiln.broadcast_in_dim %4 dims = [0] sizes = [4, 16] : tensor<4xf32>
  %6 = kiln.div %3, %5 : tensor<4x16xf32>
  return %6 : tensor<4x16xf32>
}

// -----
// CASE: batch_norm
// CHECK: kiln.sqrt
// CHECK: kiln.mul
func.func @f(%x: tensor<2x3x4x4xf32>, %v: tensor<3xf32>) -> tensor<2x3x4x4xf32> {
  %0 = kiln.abs %v : tensor<3xf32>
  %1 = kiln.sqrt %0 : tensor<3xf32>
  %2 = kiln.broadcast_in_dim %1 dims = [1] sizes = [2, 3, 4, 4] : tensor<3xf32>
  %3 = kiln.div %x, %2 : tensor<2x3x4x4xf32>
  return %3 : tensor<2x3x4x4xf32>
}

// -----
// The reciprocal of an arbitrary divisor may overflow where the quotient does not.
// CASE: arbitrary_divisors_stay
// CHECK-NOT: kiln.mul
func.func @f(%x: tensor<4x16xf32>, %y: tensor<4xf32>) -> tensor<4x16xf32> {
  %0 = kiln.broadcast_in_dim %y dims = [0] sizes = [4, 16] : tensor<4xf32>
  %1 = kiln.div %x, %0 : tensor<4x16xf32>
  return %1 : tensor<4x16xf32>
}
