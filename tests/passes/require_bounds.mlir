// RUN: kiln-require-bounds

// CASE: guards
// CHECK: kiln.require le %0, %1 "kiln.slice: the slice must lie within dimension 0"
// IMPLICIT-CHECK-NOT: "kiln.gather
func.func @f(%x: tensor<?x4xf32>, %y: tensor<?xf32>, %i: tensor<2xi64>) -> (tensor<?x4xf32>, tensor<2x?xf32>) {
  %m = kiln.sym @m
  %n = kiln.sym @n
  kiln.bind_shape %x, [%n, 4] : tensor<?x4xf32>
  kiln.bind_shape %y, [%m] : tensor<?xf32>
  %0 = kiln.slice %x offsets = [0, 0] sizes = [%m, 4] strides = [1, 1] : tensor<?x4xf32>
  %1 = kiln.transpose %x permutation = [1, 0] : tensor<?x4xf32>
  %2 = kiln.gather %1[%i] dims = [0] : tensor<4x?xf32>[tensor<2xi64>]
  return %0, %2 : tensor<?x4xf32>, tensor<2x?xf32>
}

// -----
// A gather of two elements needs at least one; a gather of none needs no guard.
// CASE: gathers_of_empty_tensors
// CHECK: "kiln.gather: dimension 0 must not be empty"
// CHECK: "kiln.dynamic_slice: the slice must lie within dimension 0"
func.func @f(%x: tensor<?xf32>, %i: tensor<2xi64>, %all: tensor<?xi64>, %at: tensor<i64>) -> (tensor<2xf32>, tensor<?xf32>, tensor<2xf32>) {
  %n = kiln.sym @n
  kiln.bind_shape %x, [%n] : tensor<?xf32>
  kiln.bind_shape %all, [%n] : tensor<?xi64>
  %0 = kiln.gather %x[%i] dims = [0] : tensor<?xf32>[tensor<2xi64>]
  %1 = kiln.gather %x[%all] dims = [0] : tensor<?xf32>[tensor<?xi64>]
  %2 = kiln.dynamic_slice %x[%at : tensor<i64>] sizes = [2] : tensor<?xf32>
  return %0, %1, %2 : tensor<2xf32>, tensor<?xf32>, tensor<2xf32>
}

// -----
// Ranges decide: a window of three fits if the size is at least three.
// CASE: decided_by_ranges
// CHECK-NOT: kiln.require
func.func @f(%x: tensor<?xf32>) -> tensor<?xf32> {
  %n = kiln.sym @n {min = 3 : i64}
  kiln.bind_shape %x, [%n] : tensor<?xf32>
  %0 = kiln.reduce_window max %x window = [3] strides = [1] pad = [0] x [0] dilation = [1] : tensor<?xf32>
  return %0 : tensor<?xf32>
}

// -----
// Operands of an addition and contracted dimensions have equal sizes; equal symbols need no guard.
// CASE: two_symbols_of_equal_size
// SIZES: s = 4, t = 4, u = 4
// CHECK: "kiln.add: operand sizes must be equal"
// CHECK: "kiln.dot_general: operand sizes must be equal"
// IMPLICIT-CHECK-NOT: "kiln.mul:
func.func @f(%x: tensor<?xf32>, %y: tensor<?xf32>, %a: tensor<3x?xf32>, %b: tensor<?x4xf32>) -> (tensor<?xf32>, tensor<?xf32>, tensor<3x4xf32>) {
  %s = kiln.sym @s
  %t = kiln.sym @t
  %u = kiln.sym @u
  kiln.bind_shape %x, [%s] : tensor<?xf32>
  kiln.bind_shape %y, [%t] : tensor<?xf32>
  kiln.bind_shape %a, [3, %s] : tensor<3x?xf32>
  kiln.bind_shape %b, [%u, 4] : tensor<?x4xf32>
  %0 = kiln.add %x, %y : tensor<?xf32>
  %1 = kiln.mul %x, %x : tensor<?xf32>
  %2 = kiln.dot_general %a, %b batch = [] x [] contract = [1] x [0] : tensor<3x?xf32>, tensor<?x4xf32>
  return %0, %1, %2 : tensor<?xf32>, tensor<?xf32>, tensor<3x4xf32>
}

// -----
// A window of three does not fit into every size of at least two; a padded one does.
// CASE: windows_larger_than_a_size
// CHECK: kiln.require le {{.*}} "kiln.reduce_window: the window must not exceed the padded dimension 1"
// CHECK: kiln.require le {{.*}} "kiln.convolution: the window must not exceed the padded input"
// IMPLICIT-CHECK-NOT: kiln.require
func.func @f(%x: tensor<?x?xf32>, %y: tensor<1x1x?xf32>, %w: tensor<1x1x4xf32>) -> (tensor<?x?xf32>, tensor<?x?xf32>, tensor<1x1x?xf32>) {
  %m = kiln.sym @m
  %n = kiln.sym @n {min = 2 : i64}
  kiln.bind_shape %x, [%m, %n] : tensor<?x?xf32>
  kiln.bind_shape %y, [1, 1, %n] : tensor<1x1x?xf32>
  %0 = kiln.reduce_window max %x window = [1, 3] strides = [1, 1] pad = [0, 0] x [0, 0] dilation = [1, 1] : tensor<?x?xf32>
  %1 = kiln.reduce_window max %x window = [1, 3] strides = [1, 1] pad = [0, 1] x [0, 0] dilation = [1, 1] : tensor<?x?xf32>
  %2 = kiln.convolution %y, %w strides = [1] pad = [0] x [1] dilation = [1] : tensor<1x1x?xf32>, tensor<1x1x4xf32>
  return %0, %1, %2 : tensor<?x?xf32>, tensor<?x?xf32>, tensor<1x1x?xf32>
}

// -----
// A computed size that an elementwise op takes for a symbol is checked.
// CASE: computed_sizes
// CHECK: kiln.require eq
// CHECK-SAME: "kiln.add: operand sizes must be equal"
func.func @f(%x: tensor<?xf32>, %y: tensor<?xf32>) -> tensor<?xf32> {
  %n = kiln.sym @n {min = 2 : i64}
  kiln.bind_shape %x, [%n] : tensor<?xf32>
  kiln.bind_shape %y, [%n] : tensor<?xf32>
  %most = arith.constant 64 : index
  %part = kiln.sym_expr min %n, %most
  %0 = kiln.slice %y offsets = [0] sizes = [%part] strides = [1] : tensor<?xf32>
  %1 = kiln.neg %0 : tensor<?xf32>
  %2 = kiln.add %x, %1 : tensor<?xf32>
  return %2 : tensor<?xf32>
}
