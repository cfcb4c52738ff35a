// RUN: kiln-hoist-reshapes,canonicalize

// The flattening and the split cancel above the matmul; bias, activation and residual are 3-d.
// CASE: flattened_linear_with_epilogue
// CHECK: kiln.dot_general %arg0
// IMPLICIT-CHECK-NOT: kiln.reshape
func.func @f(%x: tensor<2x8x4xf32>, %w: tensor<4x16xf32>, %b: tensor<16xf32>, %r: tensor<2x8x16xf32>) -> tensor<2x8x16xf32> {
  %flat = kiln.reshape %x sizes = [16, 4] : tensor<2x8x4xf32>
  %0 = kiln.dot_general %flat, %w batch = [] x [] contract = [1] x [0] : tensor<16x4xf32>, tensor<4x16xf32>
  %1 = kiln.broadcast_in_dim %b dims = [1] sizes = [16, 16] : tensor<16xf32>
  %2 = kiln.add %0, %1 : tensor<16x16xf32>
  %3 = kiln.tanh %2 : tensor<16x16xf32>
  %4 = kiln.reshape %3 sizes = [2, 8, 16] : tensor<16x16xf32>
  %5 = kiln.add %4, %r : tensor<2x8x16xf32>
  return %5 : tensor<2x8x16xf32>
}

// -----
// CASE: dynamic
// CHECK: kiln.dot_general %arg0
func.func @f(%x: tensor<2x?x4xf32>, %w: tensor<16x4xf32>) -> tensor<2x?x16xf32> {
  %s = kiln.sym @s {min = 1 : i64}
  %c2 = arith.constant 2 : index
  kiln.bind_shape %x, [2, %s, 4] : tensor<2x?x4xf32>
  %n = kiln.sym_expr mul %c2, %s
  %flat = kiln.reshape %x sizes = [%n, 4] : tensor<2x?x4xf32>
  %0 = kiln.dot_general %flat, %w batch = [] x [] contract = [1] x [1] : tensor<?x4xf32>, tensor<16x4xf32>
  %1 = kiln.reshape %0 sizes = [2, %s, 16] : tensor<?x16xf32>
  return %1 : tensor<2x?x16xf32>
}

// -----
// With another user of the flat result both would be needed.
// CASE: two_users
// CHECK: kiln.dot_general %0
func.func @f(%x: tensor<2x8x4xf32>, %w: tensor<4x16xf32>) -> (tensor<2x8x16xf32>, tensor<16x16xf32>) {
  %flat = kiln.reshape %x sizes = [16, 4] : tensor<2x8x4xf32>
  %0 = kiln.dot_general %flat, %w batch = [] x [] contract = [1] x [0] : tensor<16x4xf32>, tensor<4x16xf32>
  %1 = kiln.reshape %0 sizes = [2, 8, 16] : tensor<16x16xf32>
  return %1, %0 : tensor<2x8x16xf32>, tensor<16x16xf32>
}

// -----
// M is contiguous in memory: a part of it would be too short a row for TMA.
// CASE: contiguous_m
// CHECK: kiln.dot_general %arg0
// CHECK: kiln.reshape
func.func @f(%x: tensor<8x16xf32>, %w: tensor<8x4xf32>) -> tensor<16x1x4xf32> {
  %0 = kiln.dot_general %x, %w batch = [] x [] contract = [0] x [0] : tensor<8x16xf32>, tensor<8x4xf32>
  %1 = kiln.reshape %0 sizes = [16, 1, 4] : tensor<16x4xf32>
  return %1 : tensor<16x1x4xf32>
}
