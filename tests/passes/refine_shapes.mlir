// RUN: kiln-refine-shapes

// CASE: facts_become_types
// CHECK: func.func @f(%arg0: tensor<3x4xf32>) -> tensor<3x4xf32>
// CHECK: kiln.exp %arg0 : tensor<3x4xf32>
func.func @f(%x: tensor<?x?xf32>) -> tensor<?x?xf32> {
  %c3 = arith.constant 3 : index
  kiln.bind_shape %x, [%c3, 4] : tensor<?x?xf32>
  %0 = kiln.exp %x : tensor<?x?xf32>
  return %0 : tensor<?x?xf32>
}

// -----
// CASE: size_operands_become_static
// CHECK: kiln.splat [3, 2], 1.000000e+00
// IMPLICIT-CHECK-NOT: kiln.dim
func.func @f(%x: tensor<3x?xf32>) -> tensor<?x2xf32> {
  %d = kiln.dim %x, 0 : tensor<3x?xf32>
  %0 = kiln.splat [%d, 2], 1.0 : f32
  return %0 : tensor<?x2xf32>
}

// -----
// CASE: dims_become_symbols
// IMPLICIT-CHECK-NOT: kiln.dim
// CHECK: kiln.broadcast_in_dim %1 dims = [0] sizes = [%0, 8] : tensor<?xf32>
func.func @f(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %n = kiln.sym @n {min = 1, max = 64}
  kiln.bind_shape %x, [%n, 8] : tensor<?x8xf32>
  %0 = kiln.reduce sum %x dims = [1] : tensor<?x8xf32>
  %d = kiln.dim %0, 0 : tensor<?xf32>
  %e = kiln.dim %x, 1 : tensor<?x8xf32>
  %1 = kiln.broadcast_in_dim %0 dims = [0] sizes = [%d, %e] : tensor<?xf32>
  %2 = kiln.reshape %1 sizes = [%d, 8] : tensor<?x?xf32>
  return %2 : tensor<?x8xf32>
}

// -----
// CASE: computed_sizes_are_shared_and_ranges_decide
// min(1, n) is 1 since n is at least 2; 2n * 8 / 8 is 2n again; the size of %1 is 2n.
// CHECK: kiln.splat [1], 0.000000e+00
// IMPLICIT-CHECK-NOT: floordiv
// IMPLICIT-CHECK-NOT: kiln.dim
func.func @f(%x: tensor<2x?xf32>) -> (tensor<?xf32>, tensor<?xf32>, tensor<?xf32>) {
  %n = kiln.sym @n {min = 2, max = 64}
  kiln.bind_shape %x, [2, %n] : tensor<2x?xf32>
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c8 = arith.constant 8 : index
  %one = kiln.sym_expr min %c1, %n
  %0 = kiln.splat [%one], 0.0 : f32
  %n2 = kiln.sym_expr mul %c2, %n
  %1 = kiln.reshape %x sizes = [%n2] : tensor<2x?xf32>
  %n16 = kiln.sym_expr mul %n2, %c8
  %again = kiln.sym_expr floordiv %n16, %c8
  %2 = kiln.splat [%again], 1.0 : f32
  %d = kiln.dim %1, 0 : tensor<?xf32>
  %3 = kiln.splat [%d], 2.0 : f32
  return %0, %2, %3 : tensor<?xf32>, tensor<?xf32>, tensor<?xf32>
}

// -----
// CASE: facts_flow_backwards
// CHECK: func.func @f(%arg0: tensor<4xf32>, %arg1: tensor<4xf32>) -> tensor<4xf32>
func.func @f(%x: tensor<?xf32>, %y: tensor<?xf32>) -> tensor<?xf32> {
  %0 = kiln.exp %x : tensor<?xf32>
  %1 = kiln.mul %0, %y : tensor<?xf32>
  kiln.bind_shape %1, [4] : tensor<?xf32>
  return %1 : tensor<?xf32>
}

// -----
// CASE: regions_keep_their_types
// CHECK: func.func @f(%arg0: tensor<3xf32>, %arg1: tensor<i1>)
// CHECK: -> tensor<?xf32>
// CHECK: kiln.reshape
func.func @f(%x: tensor<?xf32>, %c: tensor<i1>) -> tensor<?xf32> {
  kiln.bind_shape %x, [3] : tensor<?xf32>
  %0 = kiln.if %c : tensor<i1> -> tensor<?xf32> {
    %1 = kiln.exp %x : tensor<?xf32>
    kiln.yield %1 : tensor<?xf32>
  } else {
    kiln.yield %x : tensor<?xf32>
  }
  return %0 : tensor<?xf32>
}

// -----
// CASE: called_functions_keep_their_types
// CHECK: func.func private @callee(%arg0: tensor<?xf32>) -> tensor<?xf32>
// CHECK: call @callee
func.func private @callee(%x: tensor<?xf32>) -> tensor<?xf32> {
  %0 = kiln.exp %x : tensor<?xf32>
  return %0 : tensor<?xf32>
}
func.func @f(%x: tensor<?xf32>) -> tensor<?xf32> {
  kiln.bind_shape %x, [3] : tensor<?xf32>
  %0 = func.call @callee(%x) : (tensor<?xf32>) -> tensor<?xf32>
  return %0 : tensor<?xf32>
}

// -----
// CASE: static_contradiction
func.func @f(%x: tensor<?xf32>) -> tensor<?xf32> {
  %c3 = arith.constant 3 : index
  %c4 = arith.constant 4 : index
  kiln.bind_shape %x, [%c3] : tensor<?xf32>
  // expected-error @+1 {{'kiln.bind_shape' op has contradicting sizes 3 and 4 in dimension 0}}
  kiln.bind_shape %x, [%c4] : tensor<?xf32>
  return %x : tensor<?xf32>
}

// -----
// CASE: symbolic_contradiction
func.func @f(%x: tensor<?xf32>, %y: tensor<?xf32>) -> tensor<?xf32> {
  %n = kiln.sym @n {min = 1, max = 64}
  %one = arith.constant 1 : index
  %m = kiln.sym_expr add %n, %one
  kiln.bind_shape %x, [%n] : tensor<?xf32>
  kiln.bind_shape %y, [%m] : tensor<?xf32>
  // expected-error @+1 {{'kiln.add' op has sizes n and n + 1 in dimension 0 of its operands; broadcast first}}
  %0 = kiln.add %x, %y : tensor<?xf32>
  return %0 : tensor<?xf32>
}

// -----
// Launch sizes fold to constants; operand types are free.
// CASE: launch_sizes_become_static
// NO-RUN: only a GPU computes PTX; tests/gpu/ptx.rs runs some
// CHECK: kiln.ptx_call "mine::twice"(%arg0) blocks = [4] sizes = [8, 8]
// CHECK: kiln.exp %0 : tensor<8xf32>
func.func @f(%x: tensor<?xf32>) -> tensor<?xf32> {
  %n = arith.constant 8 : index
  %two = arith.constant 2 : index
  kiln.bind_shape %x, [%n] : tensor<?xf32>
  %half = kiln.sym_expr floordiv %n, %two
  %0 = kiln.ptx_call "mine::twice"(%x) blocks = [%half] sizes = [%n, 8] entry = "twice" threads = 64 shared = 0 ptx = ".entry twice" : (tensor<?xf32>) -> tensor<?xf32>
  kiln.bind_shape %0, [%n] : tensor<?xf32>
  %1 = kiln.exp %0 : tensor<?xf32>
  return %1 : tensor<?xf32>
}
