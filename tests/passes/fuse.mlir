// RUN: kiln-fuse

// CASE: epilogue
// CHECK: kiln.launch @dot_general_add_max
// IMPLICIT-CHECK-NOT: kiln.launch @add
func.func @f(%x: tensor<4x8xf32>, %w: tensor<8x6xf32>, %b: tensor<6xf32>) -> tensor<4x6xf32> {
  %0 = kiln.dot_general %x, %w batch = [] x [] contract = [1] x [0] : tensor<4x8xf32>, tensor<8x6xf32>
  %1 = kiln.broadcast_in_dim %b dims = [1] sizes = [4, 6] : tensor<6xf32>
  %2 = kiln.add %0, %1 : tensor<4x6xf32>
  %zero = kiln.splat [4, 6], 0.0 : f32
  %3 = kiln.max %2, %zero : tensor<4x6xf32>
  return %3 : tensor<4x6xf32>
}

// -----
// Reductions along the last dimension fuse with their producers, consumers and each other.
// CASE: softmax_of_any_number_of_rows
// CHECK: kind = "rows"
func.func @f(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %s = kiln.sym @s {min = 1 : i64}
  kiln.bind_shape %x, [%s, 8] : tensor<?x8xf32>
  %0 = kiln.reduce max %x dims = [1] : tensor<?x8xf32>
  %1 = kiln.broadcast_in_dim %0 dims = [0] sizes = [%s, 8] : tensor<?xf32>
  %2 = kiln.sub %x, %1 : tensor<?x8xf32>
  %3 = kiln.exp %2 : tensor<?x8xf32>
  %4 = kiln.reduce sum %3 dims = [1] : tensor<?x8xf32>
  %5 = kiln.broadcast_in_dim %4 dims = [0] sizes = [%s, 8] : tensor<?xf32>
  %6 = kiln.div %3, %5 : tensor<?x8xf32>
  return %6 : tensor<?x8xf32>
}

// -----
// The second matmul needs whole rows of the first: two kernels, which are identical and share a
// module.
// CASE: identical_kernels_are_one
// CHECK: kiln.launch @dot_general ins(%arg0, %arg1
// IMPLICIT-CHECK-NOT: @dot_general_1
func.func @f(%x: tensor<4x4xf32>, %w: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %0 = kiln.dot_general %x, %w batch = [] x [] contract = [1] x [0] : tensor<4x4xf32>, tensor<4x4xf32>
  %1 = kiln.dot_general %0, %w batch = [] x [] contract = [1] x [0] : tensor<4x4xf32>, tensor<4x4xf32>
  return %1 : tensor<4x4xf32>
}

// -----
// A value with a user outside of the kernel becomes a result.
// CASE: several_results
// CHECK: :2 = kiln.launch @exp_add
func.func @f(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %0 = kiln.exp %x : tensor<4xf32>
  %1 = kiln.add %0, %x : tensor<4xf32>
  return %0, %1 : tensor<4xf32>, tensor<4xf32>
}

// -----
// Kernels that read one tensor are one, so that it is read once.
// CASE: siblings
// CHECK: kiln.launch @exp_sin ins(
// IMPLICIT-CHECK-NOT: kiln.launch @sin
func.func @f(%x: tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>) {
  %0 = kiln.exp %x : tensor<4x8xf32>
  %1 = kiln.sin %x : tensor<4x8xf32>
  return %0, %1 : tensor<4x8xf32>, tensor<4x8xf32>
}

// -----
// A reduction's kernel takes what reads the same rows, before it and after it.
// CASE: siblings_of_reductions
// CHECK: kind = "rows"
func.func @f(%x: tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4x8xf32>) {
  %0 = kiln.exp %x : tensor<4x8xf32>
  %1 = kiln.reduce sum %x dims = [1] : tensor<4x8xf32>
  %2 = kiln.reduce max %x dims = [1] : tensor<4x8xf32>
  %3 = kiln.sin %x : tensor<4x8xf32>
  return %0, %1, %2, %3 : tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4x8xf32>
}

// -----
// Not merged: reads at other indices, and a merged kernel that would wait for itself.
// CASE: no_siblings
// CHECK: kiln.launch @exp
// CHECK: kiln.launch @sin
func.func @f(%x: tensor<8x8xf32>, %w: tensor<8x8xf32>) -> (tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>) {
  %0 = kiln.exp %x : tensor<8x8xf32>
  %1 = kiln.dot_general %0, %w batch = [] x [] contract = [1] x [0] : tensor<8x8xf32>, tensor<8x8xf32>
  %2 = kiln.reduce max %1 dims = [1] : tensor<8x8xf32>
  %3 = kiln.broadcast_in_dim %2 dims = [0] sizes = [8, 8] : tensor<8xf32>
  %4 = kiln.sin %x : tensor<8x8xf32>
  %5 = kiln.mul %4, %3 : tensor<8x8xf32>
  %6 = kiln.transpose %x permutation = [1, 0] : tensor<8x8xf32>
  %7 = kiln.cos %6 : tensor<8x8xf32>
  return %0, %5, %7 : tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>
}

// -----
// A transposed read needs other threads' elements, so the second op is a kernel of its own, with a
// remark.
// CASE: transposed_read
// CHECK: not_fused = ["add not with exp: it reads exp at other indices"]
func.func @f(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %0 = kiln.exp %x : tensor<4x4xf32>
  %1 = kiln.transpose %0 permutation = [1, 0] : tensor<4x4xf32>
  %2 = kiln.add %1, %x : tensor<4x4xf32>
  return %2 : tensor<4x4xf32>
}

// -----
// exp feeds the matmul and the sum; fusing exp with the sum would create a cycle through the
// matmul.
// CASE: no_cycle_between_kernels
// CHECK: kiln.launch @dot_general_add
func.func @f(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %0 = kiln.exp %x : tensor<4x4xf32>
  %1 = kiln.dot_general %0, %0 batch = [] x [] contract = [1] x [0] : tensor<4x4xf32>, tensor<4x4xf32>
  %2 = kiln.add %1, %0 : tensor<4x4xf32>
  return %2 : tensor<4x4xf32>
}

// -----
// Masks and iotas are rematerialised in every user: their inputs are much smaller than they are.
// CASE: rematerialised_masks
// CHECK-COUNT-2: kiln.compare ge
// IMPLICIT-CHECK-NOT: tensor.empty() : tensor<64x64xi1>
func.func @f(%x: tensor<64x64xf32>) -> (tensor<64x64xf32>, tensor<64x64xf32>) {
  %i = kiln.iota [64] axis = 0 : i64
  %rows = kiln.broadcast_in_dim %i dims = [0] sizes = [64, 64] : tensor<64xi64>
  %columns = kiln.broadcast_in_dim %i dims = [1] sizes = [64, 64] : tensor<64xi64>
  %mask = kiln.compare ge %rows, %columns : tensor<64x64xi64>
  %zero = kiln.splat [64, 64], 0.0 : f32
  %0 = kiln.select %mask, %x, %zero : tensor<64x64xi1>, tensor<64x64xf32>
  %1 = kiln.reduce sum %0 dims = [0] : tensor<64x64xf32>
  %row = kiln.broadcast_in_dim %1 dims = [1] sizes = [64, 64] : tensor<64xf32>
  %2 = kiln.select %mask, %row, %zero : tensor<64x64xi1>, tensor<64x64xf32>
  return %0, %2 : tensor<64x64xf32>, tensor<64x64xf32>
}

// -----
// A reshape that merges dimensions is a view; values returned twice and returned arguments are
// copied.
// CASE: views_and_copies
// CHECK: kiln.reshape
// CHECK: @copy
func.func @f(%x: tensor<2x3xf32>) -> (tensor<6xf32>, tensor<2x3xf32>) {
  %0 = kiln.neg %x : tensor<2x3xf32>
  %1 = kiln.reshape %0 sizes = [6] : tensor<2x3xf32>
  return %1, %x : tensor<6xf32>, tensor<2x3xf32>
}

// -----
// CASE: data_dependent_control_flow
func.func @f(%c: tensor<i1>, %x: tensor<2xf32>) -> tensor<2xf32> {
  // expected-error @below {{'kiln.if' op has no compiled form yet}}
  %0 = kiln.if %c : tensor<i1> -> tensor<2xf32> {
    kiln.yield %x : tensor<2xf32>
  } else {
    kiln.yield %x : tensor<2xf32>
  }
  return %0 : tensor<2xf32>
}

// -----
// Attention writes its result transposed.
// CASE: attention_with_transposes
// CHECK: kind = "attention", ops = ["attention"]
func.func @f(%q: tensor<1x4x2x8xf32>, %k: tensor<1x2x4x8xf32>, %v: tensor<1x2x4x8xf32>, %m: tensor<1x1x4x4xf32>) -> tensor<1x4x16xf32> {
  %0 = kiln.transpose %q permutation = [0, 2, 1, 3] : tensor<1x4x2x8xf32>
  %1 = kiln.attention %0, %k, %v bias %m : tensor<1x1x4x4xf32> causal : tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>
  %2 = kiln.transpose %1 permutation = [0, 2, 1, 3] : tensor<1x2x4x8xf32>
  %3 = kiln.reshape %2 sizes = [1, 4, 16] : tensor<1x4x2x8xf32>
  return %3 : tensor<1x4x16xf32>
}

// -----
// The log-sum-exp is a result of the same kernel, whose other result is stored transposed.
// CASE: attention_with_transpose_and_lse
// CHECK-COUNT-1: ops = ["attention"]
// IMPLICIT-CHECK-NOT: ops = ["transpose"]
func.func @main(%q: tensor<1x2x4x16xbf16>, %k: tensor<1x2x4x16xbf16>, %v: tensor<1x2x4x16xbf16>) -> (tensor<1x4x2x16xbf16>, tensor<1x2x4xf32>) {
  %0, %1 = kiln.attention %q, %k, %v with_lse : tensor<1x2x4x16xbf16>, tensor<1x2x4x16xbf16>, tensor<1x2x4x16xbf16>
  %2 = kiln.transpose %0 permutation = [0, 2, 1, 3] : tensor<1x2x4x16xbf16>
  return %2, %1 : tensor<1x4x2x16xbf16>, tensor<1x2x4xf32>
}

// -----
// A decomposed attention says why it is not fused, on the kernel of its first matmul.
// CASE: attention_that_was_decomposed
// CHECK: module @dot_general
// CHECK-SAME: attention not fused: it has dropout or returns the log-sum-exp
func.func @f(%q: tensor<1x2x4x8xf32>, %k: tensor<1x2x4x8xf32>) -> tensor<1x2x4xf32> {
  %0 = kiln.dot_general %q, %k batch = [0, 1] x [0, 1] contract = [3] x [3] {kiln.not_fused = "attention not fused: it has dropout or returns the log-sum-exp"} : tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>
  %1 = kiln.exp %0 : tensor<1x2x4x4xf32>
  %2 = kiln.reduce sum %1 dims = [3] : tensor<1x2x4x4xf32>
  %3 = kiln.log %2 : tensor<1x2x4xf32>
  return %3 : tensor<1x2x4xf32>
}

// -----
// The kernel takes n and n + 1, and a guard that its first input has n columns.
// CASE: window_of_a_symbolic_size
// CHECK: ops = ["convolution", "reshape"]
// CHECK: kiln.bind_shape %0, [2, 2, %arg2]
func.func @f(%x: tensor<2x1x?xf32>, %w: tensor<2x1x2xf32>, %y: tensor<?xf32>) -> tensor<2x1x2x?xf32> {
  %n = kiln.sym @n
  kiln.bind_shape %y, [%n] : tensor<?xf32>
  %one = arith.constant 1 : index
  %more = kiln.sym_expr add %n, %one
  kiln.bind_shape %x, [2, 1, %more] : tensor<2x1x?xf32>
  %0 = kiln.convolution %x, %w strides = [1] pad = [0] x [0] dilation = [1] : tensor<2x1x?xf32>, tensor<2x1x2xf32>
  %1 = kiln.reshape %0 sizes = [2, 1, 2, %n] : tensor<2x2x?xf32>
  return %1 : tensor<2x1x2x?xf32>
}

// -----
// A transpose with kiln.stored is a kernel of its own: its user wants it materialised.
// CASE: stored_transpose
// CHECK: kiln.launch @transpose
func.func @f(%x: tensor<2x8x5x5xf32>, %w: tensor<4x8x3x3xf32>) -> tensor<2x3x3x4xf32> {
  %t = kiln.transpose %x permutation = [0, 2, 3, 1] {kiln.stored} : tensor<2x8x5x5xf32>
  %i = kiln.transpose %t permutation = [0, 3, 1, 2] : tensor<2x5x5x8xf32>
  %0 = kiln.convolution %i, %w strides = [1, 1] pad = [0, 0] x [0, 0] dilation = [1, 1] : tensor<2x8x5x5xf32>, tensor<4x8x3x3xf32>
  %1 = kiln.transpose %0 permutation = [0, 2, 3, 1] : tensor<2x4x3x3xf32>
  return %1 : tensor<2x3x3x4xf32>
}

// -----
// The convolution writes the interior of the padded tensor, and its result too, which has another
// user.
// CASE: padded_in_place
// CHECK: ops = ["convolution", "max", "pad"]
func.func @f(%x: tensor<1x2x6x6xf32>, %w: tensor<4x2x3x3xf32>) -> (tensor<1x6x6x4xf32>, tensor<1x4x4x4xf32>) {
  %zero = kiln.splat [], 0.0 : f32
  %zeros = kiln.splat [1, 4, 4, 4], 0.0 : f32
  %0 = kiln.convolution %x, %w strides = [1, 1] pad = [0, 0] x [0, 0] dilation = [1, 1] : tensor<1x2x6x6xf32>, tensor<4x2x3x3xf32>
  %1 = kiln.transpose %0 permutation = [0, 2, 3, 1] : tensor<1x4x4x4xf32>
  %2 = kiln.max %1, %zeros : tensor<1x4x4x4xf32>
  %3 = kiln.pad %2, %zero low = [0, 1, 1, 0] high = [0, 1, 1, 0] : tensor<1x4x4x4xf32>, tensor<f32>
  return %3, %2 : tensor<1x6x6x4xf32>, tensor<1x4x4x4xf32>
}

// -----
// The gradient of a strided convolution has zeros between its pixels.
// CASE: padding_between_pixels_is_another_kernel
// CHECK: kiln.launch @pad
func.func @f(%x: tensor<1x2x4x4xf32>, %w: tensor<4x2x1x1xf32>) -> tensor<1x4x2x4x2x4xf32> {
  %zero = kiln.splat [], 0.0 : f32
  %0 = kiln.convolution %x, %w strides = [1, 1] pad = [0, 0] x [0, 0] dilation = [1, 1] : tensor<1x2x4x4xf32>, tensor<4x2x1x1xf32>
  %1 = kiln.transpose %0 permutation = [0, 2, 3, 1] : tensor<1x4x4x4xf32>
  %2 = kiln.reshape %1 sizes = [1, 4, 1, 4, 1, 4] : tensor<1x4x4x4xf32>
  %3 = kiln.pad %2, %zero low = [0, 0, 0, 0, 0, 0] high = [0, 0, 1, 0, 1, 0] : tensor<1x4x1x4x1x4xf32>, tensor<f32>
  return %3 : tensor<1x4x2x4x2x4xf32>
}

// -----
// Short rows of a padded tensor are not contiguous; measured, that is still cheaper than a separate
// pad.
// CASE: short_rows_are_padded_in_place
// CHECK: ops = ["convolution", "pad"]
// IMPLICIT-CHECK-NOT: kiln.launch @pad
func.func @f(%x: tensor<1x2x4x4xf32>, %w: tensor<4x2x1x1xf32>) -> tensor<1x6x6x4xf32> {
  %zero = kiln.splat [], 0.0 : f32
  %0 = kiln.convolution %x, %w strides = [1, 1] pad = [0, 0] x [0, 0] dilation = [1, 1] : tensor<1x2x4x4xf32>, tensor<4x2x1x1xf32>
  %1 = kiln.transpose %0 permutation = [0, 2, 3, 1] : tensor<1x4x4x4xf32>
  %2 = kiln.pad %1, %zero low = [0, 1, 1, 0] high = [0, 1, 1, 0] : tensor<1x4x4x4xf32>, tensor<f32>
  return %2 : tensor<1x6x6x4xf32>
}

// -----
// Kernels write their slices of the concatenation, and the convolution's kernel copies the others.
// CASE: inserted_slices
// CHECK: ops = ["exp", "convolution", "concat"]
// IMPLICIT-CHECK-NOT: ops = ["exp"]
func.func @f(%x: tensor<1x2x4x4xf32>, %y: tensor<1x4x4x2xf32>, %w: tensor<4x2x1x1xf32>) -> tensor<1x4x4x6xf32> {
  %0 = kiln.exp %y : tensor<1x4x4x2xf32>
  %1 = kiln.convolution %x, %w strides = [1, 1] pad = [0, 0] x [0, 0] dilation = [1, 1] : tensor<1x2x4x4xf32>, tensor<4x2x1x1xf32>
  %2 = kiln.transpose %1 permutation = [0, 2, 3, 1] : tensor<1x4x4x4xf32>
  %3 = kiln.concat %0, %2 axis = 3 : tensor<1x4x4x2xf32>, tensor<1x4x4x4xf32>
  return %3 : tensor<1x4x4x6xf32>
}

// -----
// A value with other users is materialised; a value computed twice is not inserted in place.
// CASE: slices_with_other_users
// CHECK: kiln.launch @exp
// CHECK: kiln.launch @concat
func.func @f(%x: tensor<4xf32>, %y: tensor<4xf32>) -> (tensor<12xf32>, tensor<4xf32>) {
  %0 = kiln.exp %x : tensor<4xf32>
  %1 = kiln.tanh %y : tensor<4xf32>
  %2 = kiln.concat %0, %1, %1 axis = 0 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
  return %2, %0 : tensor<12xf32>, tensor<4xf32>
}

// -----
// n + 2 occurs twice and is one kernel argument, which proves both equal.
// CASE: equal_sizes_share_an_argument
// CHECK: func.func @dot_general_broadcast_in_dim(%arg0: tensor<2x?xf32>, %arg1: index)
func.func @f(%x: tensor<2x?xf32>, %y: tensor<?xf32>) -> tensor<?x1x?xf32> {
  %n = kiln.sym @n
  kiln.bind_shape %y, [%n] : tensor<?xf32>
  %two = arith.constant 2 : index
  %a = kiln.sym_expr add %n, %two
  %b = kiln.sym_expr add %n, %two
  kiln.bind_shape %x, [2, %a] : tensor<2x?xf32>
  %0 = kiln.dot_general %x, %x batch = [] x [] contract = [0] x [0] : tensor<2x?xf32>, tensor<2x?xf32>
  %1 = kiln.broadcast_in_dim %0 dims = [0, 2] sizes = [%b, 1, %a] : tensor<?x?xf32>
  return %1 : tensor<?x1x?xf32>
}

// -----
// A column reduction computes its input, unless that has other users.
// CASE: column_reduction_of_a_matmul
// CHECK: ops = ["mul", "reduce"]
// CHECK: ops = ["exp"]
func.func @f(%x: tensor<64x48xf32>, %y: tensor<64x48xf32>) -> (tensor<48xf32>, tensor<64x48xf32>, tensor<48xf32>) {
  %0 = kiln.mul %x, %y : tensor<64x48xf32>
  %1 = kiln.reduce sum %0 dims = [0] : tensor<64x48xf32>
  %2 = kiln.exp %x : tensor<64x48xf32>
  %3 = kiln.reduce sum %2 dims = [0] : tensor<64x48xf32>
  return %1, %2, %3 : tensor<48xf32>, tensor<64x48xf32>, tensor<48xf32>
}

// -----
// A norm's users widen its weight; no separate kernel does.
// CASE: widened_weight
// CHECK-NOT: kiln.launch @convert ins
func.func @f(%x: tensor<64x48xf32>, %w: tensor<48xbf16>) -> tensor<64x48xf32> {
  %0 = kiln.convert %w : tensor<48xbf16> to f32
  %1 = kiln.broadcast_in_dim %0 dims = [1] sizes = [64, 48] : tensor<48xf32>
  %2 = kiln.mul %x, %1 : tensor<64x48xf32>
  return %2 : tensor<64x48xf32>
}

// -----
// CASE: two_long_expressions
// CHECK-NOT: kiln.launch @tanh
func.func @f(%x: tensor<64xf32>, %y: tensor<64xf32>) -> tensor<64xf32> {
  %0 = kiln.exp %x : tensor<64xf32>
  %1 = kiln.sin %0 : tensor<64xf32>
  %2 = kiln.exp %1 : tensor<64xf32>
  %3 = kiln.sin %2 : tensor<64xf32>
  %4 = kiln.exp %3 : tensor<64xf32>
  %5 = kiln.sin %4 : tensor<64xf32>
  %6 = kiln.exp %5 : tensor<64xf32>
  %7 = kiln.sin %6 : tensor<64xf32>
  %8 = kiln.exp %7 : tensor<64xf32>
  %9 = kiln.tanh %y : tensor<64xf32>
  %10 = kiln.mul %8, %9 : tensor<64xf32>
  return %10 : tensor<64xf32>
}

// -----
// A residual that a norm reads in f32 is stored in 16 bits: each user widens it.
// CASE: widened_residual
// CHECK-NOT: -> tensor<8x64xbf16>, tensor<8x64xf32>
module attributes {kiln.level = "prims"} {
  func.func @main(%x: tensor<8x64xbf16>, %w: tensor<64x64xbf16>, %r: tensor<8x64xbf16>) -> (tensor<8x64xbf16>, tensor<8x64xbf16>) {
    %0 = kiln.dot_general %x, %w batch = [] x [] contract = [1] x [0] : tensor<8x64xbf16>, tensor<64x64xbf16>
    %1 = kiln.add %0, %r : tensor<8x64xbf16>
    %2 = kiln.convert %1 : tensor<8x64xbf16> to f32
    %3 = kiln.reduce sum %2 dims = [1] : tensor<8x64xf32>
    %4 = kiln.broadcast_in_dim %3 dims = [0] sizes = [8, 64] : tensor<8xf32>
    %5 = kiln.sub %2, %4 : tensor<8x64xf32>
    %6 = kiln.convert %5 : tensor<8x64xf32> to bf16
    return %1, %6 : tensor<8x64xbf16>, tensor<8x64xbf16>
  }
}

// -----
// One kernel loads the left operand once for both matmuls.
// CASE: gated_matmuls
// RUN: kiln-fuse{pairs=true}
// CHECK: kiln.launch @dot_general_tanh_dot_general_mul
// IMPLICIT-CHECK-NOT: kiln.launch @dot_general ins
func.func @f(%x: tensor<72x64xbf16>, %v: tensor<64x64xbf16>, %w: tensor<64x64xbf16>) -> tensor<72x64xbf16> {
  %0 = kiln.dot_general %x, %v batch = [] x [] contract = [1] x [1] : tensor<72x64xbf16>, tensor<64x64xbf16>
  %1 = kiln.tanh %0 : tensor<72x64xbf16>
  %2 = kiln.dot_general %x, %w batch = [] x [] contract = [1] x [1] : tensor<72x64xbf16>, tensor<64x64xbf16>
  %3 = kiln.mul %1, %2 : tensor<72x64xbf16>
  return %3 : tensor<72x64xbf16>
}

// -----
// CASE: gated_matmuls_before_hopper
// CHECK: kiln.launch @dot_general_tanh
// CHECK: kiln.launch @dot_general_mul
func.func @f(%x: tensor<72x64xbf16>, %v: tensor<64x64xbf16>, %w: tensor<64x64xbf16>) -> tensor<72x64xbf16> {
  %0 = kiln.dot_general %x, %v batch = [] x [] contract = [1] x [1] : tensor<72x64xbf16>, tensor<64x64xbf16>
  %1 = kiln.tanh %0 : tensor<72x64xbf16>
  %2 = kiln.dot_general %x, %w batch = [] x [] contract = [1] x [1] : tensor<72x64xbf16>, tensor<64x64xbf16>
  %3 = kiln.mul %1, %2 : tensor<72x64xbf16>
  return %3 : tensor<72x64xbf16>
}

// -----
// Producers of a transpose fuse with it, if the chip's transpose kernel has tiles in shared memory.
// CASE: transpose_prologue
// RUN: kiln-fuse{fold-transposes=true}
// CHECK: kiln.launch @tanh_add_mul
// IMPLICIT-CHECK-NOT: kiln.launch @tanh_add ins
func.func @f(%x: tensor<8x64xf32>, %b: tensor<64xf32>, %y: tensor<64x8xf32>) -> tensor<64x8xf32> {
  %0 = kiln.tanh %x : tensor<8x64xf32>
  %1 = kiln.broadcast_in_dim %b dims = [1] sizes = [8, 64] : tensor<64xf32>
  %2 = kiln.add %0, %1 : tensor<8x64xf32>
  %3 = kiln.transpose %2 permutation = [1, 0] : tensor<8x64xf32>
  %4 = kiln.mul %3, %y : tensor<64x8xf32>
  return %4 : tensor<64x8xf32>
}

// -----
// CASE: transpose_prologue_without_tiles
// CHECK: kiln.launch @tanh ins
// CHECK: mul not with tanh: its iteration space differs
func.func @f(%x: tensor<8x64xf32>, %y: tensor<64x8xf32>) -> tensor<64x8xf32> {
  %0 = kiln.tanh %x : tensor<8x64xf32>
  %1 = kiln.transpose %0 permutation = [1, 0] : tensor<8x64xf32>
  %2 = kiln.mul %1, %y : tensor<64x8xf32>
  return %2 : tensor<64x8xf32>
}

// -----
// A matmul keeps its epilogue, and values with other users are materialised.
// CASE: stored_before_a_transpose
// RUN: kiln-fuse{fold-transposes=true}
// CHECK: kiln.launch @dot_general_tanh
// CHECK: kiln.launch @exp
func.func @f(%x: tensor<8x64xf32>, %w: tensor<64x8xf32>) -> (tensor<8x8xf32>, tensor<64x8xf32>, tensor<8x64xf32>) {
  %0 = kiln.dot_general %x, %w batch = [] x [] contract = [1] x [0] : tensor<8x64xf32>, tensor<64x8xf32>
  %1 = kiln.tanh %0 : tensor<8x8xf32>
  %2 = kiln.transpose %1 permutation = [1, 0] : tensor<8x8xf32>
  %3 = kiln.neg %2 : tensor<8x8xf32>
  %4 = kiln.exp %x : tensor<8x64xf32>
  %5 = kiln.transpose %4 permutation = [1, 0] : tensor<8x64xf32>
  %6 = kiln.sin %5 : tensor<64x8xf32>
  %7 = kiln.sqrt %4 : tensor<8x64xf32>
  return %3, %6, %7 : tensor<8x8xf32>, tensor<64x8xf32>, tensor<8x64xf32>
}

// -----
// CASE: matmuls_with_different_left_operands
// RUN: kiln-fuse{pairs=true}
// CHECK: kiln.launch @dot_general_tanh
// CHECK: kiln.launch @dot_general_mul
func.func @f(%x: tensor<72x64xbf16>, %y: tensor<72x64xbf16>, %v: tensor<64x64xbf16>, %w: tensor<64x64xbf16>) -> tensor<72x64xbf16> {
  %0 = kiln.dot_general %x, %v batch = [] x [] contract = [1] x [1] : tensor<72x64xbf16>, tensor<64x64xbf16>
  %1 = kiln.tanh %0 : tensor<72x64xbf16>
  %2 = kiln.dot_general %y, %w batch = [] x [] contract = [1] x [1] : tensor<72x64xbf16>, tensor<64x64xbf16>
  %3 = kiln.mul %1, %2 : tensor<72x64xbf16>
  return %3 : tensor<72x64xbf16>
}

// -----
// The skinny GEMM keeps the few rows in registers and reads both weights.
// CASE: gated_skinny_gemm
// RUN: kiln-fuse{pairs=true}
// CHECK: kiln.launch @dot_general_tanh_dot_general_mul
func.func @f(%x: tensor<4x64xbf16>, %v: tensor<64x64xbf16>, %w: tensor<64x64xbf16>) -> tensor<4x64xbf16> {
  %0 = kiln.dot_general %x, %v batch = [] x [] contract = [1] x [1] : tensor<4x64xbf16>, tensor<64x64xbf16>
  %1 = kiln.tanh %0 : tensor<4x64xbf16>
  %2 = kiln.dot_general %x, %w batch = [] x [] contract = [1] x [1] : tensor<4x64xbf16>, tensor<64x64xbf16>
  %3 = kiln.mul %1, %2 : tensor<4x64xbf16>
  return %3 : tensor<4x64xbf16>
}

// -----
// It does not support weights that are MN-major.
// CASE: gated_skinny_gemm_mn_major
// RUN: kiln-fuse{pairs=true}
// CHECK: kiln.launch @dot_general_tanh
// CHECK: kiln.launch @dot_general_mul
func.func @f(%x: tensor<4x64xbf16>, %v: tensor<64x64xbf16>, %w: tensor<64x64xbf16>) -> tensor<4x64xbf16> {
  %0 = kiln.dot_general %x, %v batch = [] x [] contract = [1] x [0] : tensor<4x64xbf16>, tensor<64x64xbf16>
  %1 = kiln.tanh %0 : tensor<4x64xbf16>
  %2 = kiln.dot_general %x, %w batch = [] x [] contract = [1] x [0] : tensor<4x64xbf16>, tensor<64x64xbf16>
  %3 = kiln.mul %1, %2 : tensor<4x64xbf16>
  return %3 : tensor<4x64xbf16>
}

// -----
// Queries, keys and values of a few tokens: a kernel has the tiles of all three.
// CASE: products_of_a_few_tokens
// RUN: kiln-fuse{pairs=true}
// CHECK: kiln.launch @dot_general_dot_general_tanh_dot_general
// IMPLICIT-CHECK-NOT: kiln.launch @dot_general ins
func.func @f(%x: tensor<4x64xbf16>, %q: tensor<128x64xbf16>, %k: tensor<64x64xbf16>, %v: tensor<64x64xbf16>) -> (tensor<4x128xbf16>, tensor<4x64xbf16>, tensor<4x64xbf16>) {
  %0 = kiln.dot_general %x, %q batch = [] x [] contract = [1] x [1] : tensor<4x64xbf16>, tensor<128x64xbf16>
  %1 = kiln.dot_general %x, %k batch = [] x [] contract = [1] x [1] : tensor<4x64xbf16>, tensor<64x64xbf16>
  %2 = kiln.tanh %1 : tensor<4x64xbf16>
  %3 = kiln.dot_general %x, %v batch = [] x [] contract = [1] x [1] : tensor<4x64xbf16>, tensor<64x64xbf16>
  return %0, %2, %3 : tensor<4x128xbf16>, tensor<4x64xbf16>, tensor<4x64xbf16>
}

// -----
// Each CTA of the products computes the norm: a launch less.
// CASE: norm_of_a_token
// RUN: kiln-fuse{pairs=true launch=4000}
// CHECK: kiln.launch @mul_reduce_rsqrt_dot_general
// IMPLICIT-CHECK-NOT: kiln.launch @mul_reduce_rsqrt_mul
// CHECK: kiln.mul {{.*}} {kiln.staged}
func.func @f(%x: tensor<2x64xbf16>, %q: tensor<128x64xbf16>, %k: tensor<64x64xbf16>) -> (tensor<2x128xbf16>, tensor<2x64xbf16>) {
  %0 = kiln.mul %x, %x : tensor<2x64xbf16>
  %1 = kiln.reduce sum %0 dims = [1] : tensor<2x64xbf16>
  %2 = kiln.rsqrt %1 : tensor<2xbf16>
  %3 = kiln.broadcast_in_dim %2 dims = [0] sizes = [2, 64] : tensor<2xbf16>
  %4 = kiln.mul %x, %3 : tensor<2x64xbf16>
  %5 = kiln.dot_general %4, %q batch = [] x [] contract = [1] x [1] : tensor<2x64xbf16>, tensor<128x64xbf16>
  %6 = kiln.dot_general %4, %k batch = [] x [] contract = [1] x [1] : tensor<2x64xbf16>, tensor<64x64xbf16>
  return %5, %6 : tensor<2x128xbf16>, tensor<2x64xbf16>
}

// -----
// The norm is a result too.
// CASE: norm_that_is_returned
// RUN: kiln-fuse{pairs=true launch=4000}
// CHECK: kiln.launch @mul_reduce_rsqrt_mul
// CHECK: kiln.launch @dot_general ins
func.func @f(%x: tensor<2x64xbf16>, %q: tensor<128x64xbf16>) -> (tensor<2x64xbf16>, tensor<2x128xbf16>) {
  %0 = kiln.mul %x, %x : tensor<2x64xbf16>
  %1 = kiln.reduce sum %0 dims = [1] : tensor<2x64xbf16>
  %2 = kiln.rsqrt %1 : tensor<2xbf16>
  %3 = kiln.broadcast_in_dim %2 dims = [0] sizes = [2, 64] : tensor<2xbf16>
  %4 = kiln.mul %x, %3 : tensor<2x64xbf16>
  %5 = kiln.dot_general %4, %q batch = [] x [] contract = [1] x [1] : tensor<2x64xbf16>, tensor<128x64xbf16>
  return %4, %5 : tensor<2x64xbf16>, tensor<2x128xbf16>
}

// -----
// Each CTA would reduce 100352 elements: a launch is faster.
// CASE: sum_of_many_elements_before_a_product
// RUN: kiln-fuse{pairs=true launch=4000}
// CHECK: kiln.launch @reduce_neg
// CHECK: kiln.launch @dot_general ins
func.func @f(%x: tensor<1x2048x49xbf16>, %q: tensor<64x2048xbf16>) -> tensor<1x64xbf16> {
  %0 = kiln.reduce sum %x dims = [2] : tensor<1x2048x49xbf16>
  %1 = kiln.neg %0 : tensor<1x2048xbf16>
  %2 = kiln.dot_general %1, %q batch = [] x [] contract = [1] x [1] : tensor<1x2048xbf16>, tensor<64x2048xbf16>
  return %2 : tensor<1x64xbf16>
}

// -----
// The weight is not K-major in memory.
// CASE: norm_before_a_transposed_weight
// RUN: kiln-fuse{pairs=true launch=4000}
// CHECK: kiln.launch @dot_general ins
func.func @f(%x: tensor<2x64xbf16>, %q: tensor<64x128xbf16>) -> tensor<2x128xbf16> {
  %0 = kiln.neg %x : tensor<2x64xbf16>
  %1 = kiln.transpose %q permutation = [1, 0] : tensor<64x128xbf16>
  %2 = kiln.dot_general %0, %1 batch = [] x [] contract = [1] x [1] : tensor<2x64xbf16>, tensor<128x64xbf16>
  return %2 : tensor<2x128xbf16>
}

// -----
// Counters that nothing else reads are one kernel, wherever they are.
// RUN: kiln-fuse{launch=4000}
// CASE: single_elements
// CHECK-COUNT-2: kiln.launch
// IMPLICIT-CHECK-NOT: kiln.launch
func.func @f(%x: tensor<8x8xf32>, %n: tensor<i64>, %m: tensor<i64>) -> (tensor<i64>, tensor<8x8xf32>, tensor<i64>) {
  %one = kiln.splat [], 1 : i64
  %0 = kiln.add %n, %one : tensor<i64>
  %1 = kiln.exp %x : tensor<8x8xf32>
  %2 = kiln.add %m, %one : tensor<i64>
  return %0, %1, %2 : tensor<i64>, tensor<8x8xf32>, tensor<i64>
}

// -----
// Updates of tensors of any sizes are one kernel, which waits for the number of the step alone.
// RUN: kiln-fuse{launch=4000}
// CASE: updates_of_tensors
// CHECK-COUNT-3: kiln.launch
// IMPLICIT-CHECK-NOT: kiln.launch
func.func @f(%n: tensor<f32>, %w: tensor<8x4xf32>, %g: tensor<8x4xf32>, %b: tensor<16xf32>, %h: tensor<16xf32>, %q: tensor<8x4xf32>) -> (tensor<f32>, tensor<8x4xf32>, tensor<8x4xf32>, tensor<16xf32>, tensor<8xf32>) {
  %one = kiln.splat [], 1.0 : f32
  %0 = kiln.add %n, %one : tensor<f32>
  %1 = kiln.broadcast_in_dim %0 dims = [] sizes = [8, 4] : tensor<f32>
  %2 = kiln.mul %g, %1 : tensor<8x4xf32>
  %3 = kiln.broadcast_in_dim %0 dims = [] sizes = [16] : tensor<f32>
  %4 = kiln.mul %h, %3 : tensor<16xf32>
  %5 = kiln.sub %w, %2 : tensor<8x4xf32>
  %6 = kiln.sub %b, %4 : tensor<16xf32>
  %7 = kiln.reduce sum %q dims = [1] : tensor<8x4xf32>
  return %0, %2, %5, %6, %7 : tensor<f32>, tensor<8x4xf32>, tensor<8x4xf32>, tensor<16xf32>, tensor<8xf32>
}

// -----
// Both wait for the product alone: one launch, whatever their sizes.
// CASE: small_kernels_of_one_producer
// RUN: kiln-fuse{launch=4000}
// CHECK: kiln.launch @neg_exp
// IMPLICIT-CHECK-NOT: kiln.launch @exp
func.func @f(%x: tensor<24x64xf32>, %w: tensor<64x96xf32>) -> (tensor<24x32xf32>, tensor<24x64xf32>) {
  %0 = kiln.dot_general %x, %w batch = [] x [] contract = [1] x [0] : tensor<24x64xf32>, tensor<64x96xf32>
  %1 = kiln.slice %0 offsets = [0, 0] sizes = [24, 32] strides = [1, 1] : tensor<24x96xf32>
  %2 = kiln.neg %1 : tensor<24x32xf32>
  %3 = kiln.slice %0 offsets = [0, 32] sizes = [24, 64] strides = [1, 1] : tensor<24x96xf32>
  %4 = kiln.exp %3 : tensor<24x64xf32>
  return %2, %4 : tensor<24x32xf32>, tensor<24x64xf32>
}

// -----
// No launch of the program writes a weight, unless it is donated.
// CASE: constant_weights
// RUN: kiln-fuse{constants=true}
// CHECK: func.func @dot_general(%arg0: tensor<4x64xbf16>, %arg1: tensor<64x64xbf16> {kiln.constant})
// CHECK: func.func @dot_general_1(%arg0: tensor<4x64xbf16>, %arg1: tensor<64x64xbf16>)
// CHECK: func.func @dot_general_2(%arg0: tensor<72x64xbf16>, %arg1: tensor<64x64xbf16>)
func.func @f(%x: tensor<4x64xbf16>, %y: tensor<72x64xbf16>, %v: tensor<64x64xbf16>, %w: tensor<64x64xbf16> {kiln.donated}, %u: tensor<64x64xbf16>) -> (tensor<4x64xbf16>, tensor<4x64xbf16>, tensor<72x64xbf16>) {
  %0 = kiln.dot_general %x, %v batch = [] x [] contract = [1] x [1] : tensor<4x64xbf16>, tensor<64x64xbf16>
  %1 = kiln.dot_general %0, %w batch = [] x [] contract = [1] x [1] : tensor<4x64xbf16>, tensor<64x64xbf16>
  %2 = kiln.dot_general %y, %u batch = [] x [] contract = [1] x [1] : tensor<72x64xbf16>, tensor<64x64xbf16>
  return %0, %1, %2 : tensor<4x64xbf16>, tensor<4x64xbf16>, tensor<72x64xbf16>
}

// -----
// CASE: products_of_many_tokens
// RUN: kiln-fuse{pairs=true}
// CHECK-COUNT-2: kiln.launch @dot_general
func.func @f(%x: tensor<24x64xbf16>, %q: tensor<128x64xbf16>, %k: tensor<64x64xbf16>) -> (tensor<24x128xbf16>, tensor<24x64xbf16>) {
  %0 = kiln.dot_general %x, %q batch = [] x [] contract = [1] x [1] : tensor<24x64xbf16>, tensor<128x64xbf16>
  %1 = kiln.dot_general %x, %k batch = [] x [] contract = [1] x [1] : tensor<24x64xbf16>, tensor<64x64xbf16>
  return %0, %1 : tensor<24x128xbf16>, tensor<24x64xbf16>
}

// -----
// The second product reads what is computed from the first.
// CASE: dependent_products_of_a_few_tokens
// RUN: kiln-fuse{pairs=true}
// CHECK: kiln.launch @dot_general ins
// CHECK: kiln.launch @dot_general_mul
func.func @f(%x: tensor<4x64xbf16>, %q: tensor<64x64xbf16>, %k: tensor<64x64xbf16>) -> tensor<4x64xbf16> {
  %0 = kiln.dot_general %x, %q batch = [] x [] contract = [1] x [1] : tensor<4x64xbf16>, tensor<64x64xbf16>
  %1 = kiln.dot_general %0, %k batch = [] x [] contract = [1] x [1] : tensor<4x64xbf16>, tensor<64x64xbf16>
  %2 = kiln.mul %1, %0 : tensor<4x64xbf16>
  return %2 : tensor<4x64xbf16>
}

// -----
// The square would be stored next to its input; the norm that reduces it recomputes it.
// CASE: square_before_a_norm
// CHECK: kiln.launch @mul_reduce
// IMPLICIT-CHECK-NOT: @dot_general_add_mul
func.func @f(%x: tensor<8x64xf32>, %w: tensor<64x64xf32>, %r: tensor<8x64xf32>) -> (tensor<8x64xf32>, tensor<8xf32>) {
  %0 = kiln.dot_general %x, %w batch = [] x [] contract = [1] x [0] : tensor<8x64xf32>, tensor<64x64xf32>
  %1 = kiln.add %0, %r : tensor<8x64xf32>
  %2 = kiln.mul %1, %1 : tensor<8x64xf32>
  %3 = kiln.reduce sum %2 dims = [1] : tensor<8x64xf32>
  return %1, %3 : tensor<8x64xf32>, tensor<8xf32>
}

// -----
// A row reduction reads twice the bytes of what the matmul stores: all of a norm's gradient is one
// kernel.
// CASE: wide_value_before_rows
// CHECK: kiln.launch @dot_general ins
// CHECK: kiln.launch @mul_reduce
// IMPLICIT-CHECK-NOT: @reduce
func.func @f(%x: tensor<8x64xbf16>, %w: tensor<64x64xbf16>, %g: tensor<64xf32>, %n: tensor<8x64xf32>) -> tensor<8x64xbf16> {
  %0 = kiln.dot_general %x, %w batch = [] x [] contract = [1] x [0] : tensor<8x64xbf16>, tensor<64x64xbf16>
  %1 = kiln.convert %0 : tensor<8x64xbf16> to f32
  %2 = kiln.broadcast_in_dim %g dims = [1] sizes = [8, 64] : tensor<64xf32>
  %3 = kiln.mul %1, %2 : tensor<8x64xf32>
  %4 = kiln.reduce sum %3 dims = [1] : tensor<8x64xf32>
  %5 = kiln.mul %3, %n : tensor<8x64xf32>
  %6 = kiln.reduce sum %5 dims = [1] : tensor<8x64xf32>
  %7 = kiln.broadcast_in_dim %4 dims = [0] sizes = [8, 64] : tensor<8xf32>
  %8 = kiln.broadcast_in_dim %6 dims = [0] sizes = [8, 64] : tensor<8xf32>
  %9 = kiln.mul %n, %8 : tensor<8x64xf32>
  %10 = kiln.sub %3, %9 : tensor<8x64xf32>
  %11 = kiln.sub %10, %7 : tensor<8x64xf32>
  %12 = kiln.convert %11 : tensor<8x64xf32> to bf16
  return %12 : tensor<8x64xbf16>
}

// -----
// A large pointwise kernel alone reads the end of the epilogue, and the product as well.
// CASE: end_of_an_epilogue
// CHECK: kiln.launch @dot_general ins
// IMPLICIT-CHECK-NOT: @dot_general_mul
func.func @f(%x: tensor<8x64xbf16>, %w: tensor<64x64xbf16>, %y: tensor<8x64xf32>) -> tensor<8x64xf32> {
  %0 = kiln.sin %y : tensor<8x64xf32>
  %1 = kiln.cos %0 : tensor<8x64xf32>
  %2 = kiln.sin %1 : tensor<8x64xf32>
  %3 = kiln.cos %2 : tensor<8x64xf32>
  %4 = kiln.sin %3 : tensor<8x64xf32>
  %5 = kiln.cos %4 : tensor<8x64xf32>
  %6 = kiln.sin %5 : tensor<8x64xf32>
  %7 = kiln.cos %6 : tensor<8x64xf32>
  %8 = kiln.sin %7 : tensor<8x64xf32>
  %p = kiln.dot_general %x, %w batch = [] x [] contract = [1] x [0] : tensor<8x64xbf16>, tensor<64x64xbf16>
  %q = kiln.convert %p : tensor<8x64xbf16> to f32
  %a = kiln.mul %q, %y : tensor<8x64xf32>
  %b = kiln.mul %a, %8 : tensor<8x64xf32>
  %c = kiln.mul %q, %8 : tensor<8x64xf32>
  %d = kiln.add %b, %c : tensor<8x64xf32>
  return %d : tensor<8x64xf32>
}

// -----
// The product of y and w joins the first kernel, but only the one behind the sum reads it.
// CASE: end_of_a_pointwise_kernel
// CHECK: kiln.launch @sin_exp_convert ins
// CHECK: kiln.launch @reduce
// CHECK: kiln.launch @mul
func.func @f(%x: tensor<64x32xf32>, %w: tensor<32xf32>) -> (tensor<64x32xbf16>, tensor<64x32xf32>) {
  %0 = kiln.sin %x : tensor<64x32xf32>
  %1 = kiln.exp %0 : tensor<64x32xf32>
  %2 = kiln.convert %1 : tensor<64x32xf32> to bf16
  %3 = kiln.convert %2 : tensor<64x32xbf16> to f32
  %4 = kiln.broadcast_in_dim %w dims = [1] sizes = [64, 32] : tensor<32xf32>
  %5 = kiln.mul %3, %4 : tensor<64x32xf32>
  %6 = kiln.reduce sum %3 dims = [0] : tensor<64x32xf32>
  %7 = kiln.broadcast_in_dim %6 dims = [1] sizes = [64, 32] : tensor<32xf32>
  %8 = kiln.sub %5, %7 : tensor<64x32xf32>
  return %2, %8 : tensor<64x32xbf16>, tensor<64x32xf32>
}

// -----
// What is summed along rows, and what is added to them, share a factor, which no other kernel reads
// either.
// CASE: ends_of_an_epilogue
// CHECK: kiln.launch @dot_general_add ins
// IMPLICIT-CHECK-NOT: @dot_general_add_mul
func.func @f(%x: tensor<64x64xbf16>, %w: tensor<64x64xbf16>, %r: tensor<64x64xf32>, %y: tensor<64x64xf32>, %s: tensor<64xf32>) -> (tensor<64x64xf32>, tensor<64x64xf32>) {
  %p = kiln.dot_general %x, %w batch = [] x [] contract = [1] x [0] : tensor<64x64xbf16>, tensor<64x64xbf16>
  %0 = kiln.convert %p : tensor<64x64xbf16> to f32
  %1 = kiln.add %0, %r : tensor<64x64xf32>
  %b = kiln.broadcast_in_dim %s dims = [1] sizes = [64, 64] : tensor<64xf32>
  %2 = kiln.mul %1, %b : tensor<64x64xf32>
  %3 = kiln.mul %2, %y : tensor<64x64xf32>
  %4 = kiln.add %2, %1 : tensor<64x64xf32>
  %5 = kiln.reduce sum %3 dims = [1] : tensor<64x64xf32>
  %6 = kiln.broadcast_in_dim %5 dims = [0] sizes = [64, 64] : tensor<64xf32>
  %7 = kiln.add %4, %6 : tensor<64x64xf32>
  %8 = kiln.mul %7, %3 : tensor<64x64xf32>
  return %1, %8 : tensor<64x64xf32>, tensor<64x64xf32>
}

// -----
// The second sum along the rows reads what the first one does, and waits for no other kernel.
// CASE: reductions_of_the_same_rows
// CHECK-COUNT-2: kiln.launch @
// IMPLICIT-CHECK-NOT: kiln.launch @
func.func @f(%x: tensor<64x64xbf16>, %w: tensor<64x64xbf16>, %y: tensor<64x64xf32>, %m: tensor<64xf32>) -> tensor<64x64xf32> {
  %p = kiln.dot_general %x, %w batch = [] x [] contract = [1] x [0] : tensor<64x64xbf16>, tensor<64x64xbf16>
  %0 = kiln.convert %p : tensor<64x64xbf16> to f32
  %1 = kiln.reduce sum %0 dims = [1] : tensor<64x64xf32>
  %b = kiln.broadcast_in_dim %m dims = [0] sizes = [64, 64] : tensor<64xf32>
  %2 = kiln.sub %y, %b : tensor<64x64xf32>
  %3 = kiln.mul %0, %2 : tensor<64x64xf32>
  %4 = kiln.reduce sum %3 dims = [1] : tensor<64x64xf32>
  %5 = kiln.broadcast_in_dim %4 dims = [0] sizes = [64, 64] : tensor<64xf32>
  %6 = kiln.mul %2, %5 : tensor<64x64xf32>
  %7 = kiln.broadcast_in_dim %1 dims = [0] sizes = [64, 64] : tensor<64xf32>
  %8 = kiln.sub %6, %7 : tensor<64x64xf32>
  return %8 : tensor<64x64xf32>
}

// -----
// The square of y begins a kernel behind the product's, but joins its epilogue with the sum.
// CASE: small_kernel_of_an_epilogue
// CHECK: kiln.launch @dot_general
// IMPLICIT-CHECK-NOT: kiln.launch
func.func @f(%x: tensor<64x64xbf16>, %w: tensor<64x64xbf16>, %y: tensor<64x64xbf16>) -> tensor<64x64xbf16> {
  %0 = kiln.dot_general %x, %w batch = [] x [] contract = [1] x [0] : tensor<64x64xbf16>, tensor<64x64xbf16>
  %1 = kiln.mul %y, %y : tensor<64x64xbf16>
  %2 = kiln.add %0, %1 : tensor<64x64xbf16>
  return %2 : tensor<64x64xbf16>
}

// -----
// Half the bytes of its input: the matmul stores it.
// CASE: narrow_value_before_a_reduction
// CHECK: kiln.launch @dot_general_convert
func.func @f(%x: tensor<8x64xf32>, %w: tensor<64x64xf32>) -> tensor<8xbf16> {
  %0 = kiln.dot_general %x, %w batch = [] x [] contract = [1] x [0] : tensor<8x64xf32>, tensor<64x64xf32>
  %1 = kiln.convert %0 : tensor<8x64xf32> to bf16
  %2 = kiln.reduce sum %1 dims = [1] : tensor<8x64xbf16>
  return %2 : tensor<8xbf16>
}

// -----
// Each convolution's kernel inserts its slice in place; the last one copies what no kernel
// computes.
// CASE: each_kernel_inserts_its_slice
// RUN: kiln-split-concats,kiln-fuse
// CHECK: outs(%2#1 : tensor<1x9x4x4xf32>)
// CHECK: pieces = [array<i64: 1, 1, 4, 4, 4>]
// CHECK: pieces = [array<i64: 0, 1, 2, 4, 4>, array<i64: 0, 1, 3, 4, 4>]
// IMPLICIT-CHECK-NOT: ops = ["exp"]
// IMPLICIT-CHECK-NOT: kiln.concat
func.func @f(%x: tensor<1x2x4x4xf32>, %y: tensor<1x2x4x4xf32>, %w: tensor<4x2x1x1xf32>, %v: tensor<3x4x1x1xf32>) -> tensor<1x9x4x4xf32> {
  %0 = kiln.exp %y : tensor<1x2x4x4xf32>
  %1 = kiln.convolution %x, %w strides = [1, 1] pad = [0, 0] x [0, 0] dilation = [1, 1] : tensor<1x2x4x4xf32>, tensor<4x2x1x1xf32>
  %2 = kiln.convolution %1, %v strides = [1, 1] pad = [0, 0] x [0, 0] dilation = [1, 1] : tensor<1x4x4x4xf32>, tensor<3x4x1x1xf32>
  %3 = kiln.concat %2, %0, %1 axis = 1 : tensor<1x3x4x4xf32>, tensor<1x2x4x4xf32>, tensor<1x4x4x4xf32>
  return %3 : tensor<1x9x4x4xf32>
}

// -----
// Pool and matmul kernels insert slices as convolutions do; one of them copies the argument.
// CASE: slices_of_a_pool_and_a_matmul
// RUN: kiln-split-concats,kiln-fuse
// CHECK: ops = ["reduce_window", "insert_slice"]
// CHECK: ops = ["dot_general", "tanh", "insert_slice", "insert_slice"]
// IMPLICIT-CHECK-NOT: ops = ["insert_slice"]
func.func @f(%x: tensor<8x6xf32>, %w: tensor<6x5xf32>) -> tensor<8x17xf32> {
  %0 = kiln.reduce_window max %x window = [1, 3] strides = [1, 1] pad = [0, 1] x [0, 1] dilation = [1, 1] : tensor<8x6xf32>
  %1 = kiln.dot_general %x, %w batch = [] x [] contract = [1] x [0] : tensor<8x6xf32>, tensor<6x5xf32>
  %2 = kiln.tanh %1 : tensor<8x5xf32>
  %3 = kiln.concat %0, %x, %2 axis = 1 : tensor<8x6xf32>, tensor<8x6xf32>, tensor<8x5xf32>
  return %3 : tensor<8x17xf32>
}

// -----
// Row kernels insert slices too but have no copy loops: a separate kernel copies the argument.
// CASE: slices_of_row_kernels
// RUN: kiln-split-concats,kiln-fuse
// CHECK: ops = ["reduce", "sub", "insert_slice"]
// CHECK: not_fused = ["insert_slice not with reduce: it has no loops for elements outside its rows"], ops = ["insert_slice"]
func.func @f(%x: tensor<8x6xf32>, %y: tensor<8x2xf32>) -> tensor<8x8xf32> {
  %0 = kiln.reduce max %x dims = [1] : tensor<8x6xf32>
  %1 = kiln.broadcast_in_dim %0 dims = [0] sizes = [8, 6] : tensor<8xf32>
  %2 = kiln.sub %x, %1 : tensor<8x6xf32>
  %3 = kiln.concat %2, %y axis = 1 : tensor<8x6xf32>, tensor<8x2xf32>
  return %3 : tensor<8x8xf32>
}

// -----
// One row is appended to many: the matmul's kernel has too few threads, so a separate kernel
// copies.
// CASE: large_copy
// RUN: kiln-split-concats,kiln-fuse
// CHECK: ops = ["dot_general", "insert_slice"]
// CHECK: not_fused = ["insert_slice not with dot_general: it would copy much more than it computes"], ops = ["insert_slice"]
func.func @f(%x: tensor<1x6xf32>, %w: tensor<6x5xf32>, %y: tensor<64x5xf32>) -> tensor<65x5xf32> {
  %0 = kiln.dot_general %x, %w batch = [] x [] contract = [1] x [0] : tensor<1x6xf32>, tensor<6x5xf32>
  %1 = kiln.concat %y, %0 axis = 0 : tensor<64x5xf32>, tensor<1x5xf32>
  return %1 : tensor<65x5xf32>
}

// -----
// Column sums insert slices of one row each.
// CASE: slices_of_column_sums
// RUN: kiln-split-concats,kiln-fuse
// CHECK-NOT: ops = ["concat"]
func.func @f(%x: tensor<8x6xf32>, %y: tensor<7x6xf32>) -> tensor<2x6xf32> {
  %0 = kiln.reduce sum %x dims = [0] : tensor<8x6xf32>
  %1 = kiln.reshape %0 sizes = [1, 6] : tensor<6xf32>
  %2 = kiln.reduce sum %y dims = [0] : tensor<7x6xf32>
  %3 = kiln.reshape %2 sizes = [1, 6] : tensor<6xf32>
  %4 = kiln.concat %1, %3 axis = 0 : tensor<1x6xf32>, tensor<1x6xf32>
  return %4 : tensor<2x6xf32>
}

// -----
// A value returned twice needs two output buffers: the second is a copy.
// CASE: concatenation_returned_twice
// RUN: kiln-split-concats,kiln-fuse
// CHECK: kiln.launch @copy
func.func @f(%x: tensor<1x2x4x4xf32>, %w: tensor<2x2x1x1xf32>) -> (tensor<1x4x4x4xf32>, tensor<1x4x4x4xf32>) {
  %0 = kiln.convolution %x, %w strides = [1, 1] pad = [0, 0] x [0, 0] dilation = [1, 1] : tensor<1x2x4x4xf32>, tensor<2x2x1x1xf32>
  %1 = kiln.convolution %0, %w strides = [1, 1] pad = [0, 0] x [0, 0] dilation = [1, 1] : tensor<1x2x4x4xf32>, tensor<2x2x1x1xf32>
  %2 = kiln.concat %0, %1 axis = 1 : tensor<1x2x4x4xf32>, tensor<1x2x4x4xf32>
  return %2, %2 : tensor<1x4x4x4xf32>, tensor<1x4x4x4xf32>
}

// -----
// One result is a slice of a concatenation and the interior of the next convolution's padded input:
// its kernel writes both, the border last.
// CASE: padded_slice
// RUN: kiln-split-concats,kiln-fuse
// CHECK: ops = ["convolution", "pad", "insert_slice"]
// IMPLICIT-CHECK-NOT: kiln.launch @insert_slice
// IMPLICIT-CHECK-NOT: kiln.launch @pad
func.func @f(%x: tensor<1x2x5x5xf32>, %w: tensor<4x2x2x2xf32>, %v: tensor<3x4x3x3xf32>) -> tensor<1x7x4x4xf32> {
  %zero = kiln.splat [], 0.0 : f32
  %0 = kiln.convolution %x, %w strides = [1, 1] pad = [0, 0] x [0, 0] dilation = [1, 1] : tensor<1x2x5x5xf32>, tensor<4x2x2x2xf32>
  %1 = kiln.pad %0, %zero low = [0, 0, 1, 1] high = [0, 0, 1, 1] : tensor<1x4x4x4xf32>, tensor<f32>
  %2 = kiln.convolution %1, %v strides = [1, 1] pad = [0, 0] x [0, 0] dilation = [1, 1] : tensor<1x4x6x6xf32>, tensor<3x4x3x3xf32>
  %3 = kiln.concat %0, %2 axis = 1 : tensor<1x4x4x4xf32>, tensor<1x3x4x4xf32>
  return %3 : tensor<1x7x4x4xf32>
}

// -----
// kiln.each_op disables fusion: no epilogues and no prologues.
// CASE: each_op
// CHECK: kiln.launch @exp
// CHECK: kiln.launch @dot_general ins
// CHECK: kiln.launch @add
// IMPLICIT-CHECK-NOT: @dot_general_add
module attributes {kiln.level = "prims", kiln.each_op} {
  func.func @main(%x: tensor<4x8xf32>, %w: tensor<8x6xf32>, %b: tensor<6xf32>) -> tensor<4x6xf32> {
    %0 = kiln.exp %x : tensor<4x8xf32>
    %1 = kiln.dot_general %0, %w batch = [] x [] contract = [1] x [0] : tensor<4x8xf32>, tensor<8x6xf32>
    %2 = kiln.broadcast_in_dim %b dims = [1] sizes = [4, 6] : tensor<6xf32>
    %3 = kiln.add %1, %2 : tensor<4x6xf32>
    return %3 : tensor<4x6xf32>
  }
}

// -----
// A PTX call is a kernel of its own; its operands and results are materialised, unused ones too.
// CASE: ptx_call
// NO-RUN: only a GPU computes PTX; tests/gpu/ptx.rs runs some
// CHECK: kiln.launch @mine__halves
// CHECK: ops = ["mine::halves"]
func.func @f(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %n = kiln.sym @n {min = 1, max = 64}
  kiln.bind_shape %x, [%n, 8] : tensor<?x8xf32>
  %eight = arith.constant 8 : index
  %all = kiln.sym_expr mul %n, %eight
  %0 = kiln.exp %x : tensor<?x8xf32>
  %1:2 = kiln.ptx_call "mine::halves"(%0, %0) blocks = [%n] sizes = [%all, 8] entry = "halves" threads = 64 shared = 0 ptx = ".entry halves" : (tensor<?x8xf32>, tensor<?x8xf32>) -> (tensor<?x8xf32>, tensor<?xf32>)
  kiln.bind_shape %1#0, [%n, 8] : tensor<?x8xf32>
  kiln.bind_shape %1#1, [%n] : tensor<?xf32>
  %2 = kiln.add %1#0, %x : tensor<?x8xf32>
  return %2 : tensor<?x8xf32>
}

// -----
// A kernel records the divisors of its sizes, of computed ones too.
// CASE: divisors
// CHECK: %arg2: index, %arg3: index {kiln.divisor = 8 : i64, kiln.least = 16 : i64}, %arg4: index {kiln.divisor = 24 : i64, kiln.least = 48 : i64}
func.func @f(%x: tensor<?x?xf32>, %y: tensor<?xf32>) -> tensor<?x?xf32> {
  %b = kiln.sym @b {min = 1 : i64}
  %n = kiln.sym @n {min = 10 : i64, divisor = 8 : i64}
  %three = arith.constant 3 : index
  %m = kiln.sym_expr mul %n, %three
  kiln.bind_shape %x, [%b, %m] : tensor<?x?xf32>
  kiln.bind_shape %y, [%n] : tensor<?xf32>
  %0 = kiln.broadcast_in_dim %y dims = [1] sizes = [%b, %n] : tensor<?xf32>
  %1 = kiln.slice %x offsets = [0, 0] sizes = [%b, %n] strides = [1, 1] : tensor<?x?xf32>
  %2 = kiln.add %0, %1 : tensor<?x?xf32>
  return %2 : tensor<?x?xf32>
}

// -----
// Ops marked as prologue are not materialised: the matmul computes them, and so does the row
// reduction, a kernel of its own.
// CASE: matmul_prologue
// CHECK: kiln.launch @mul_reduce ins(%arg0
// CHECK: kiln.launch @convert_mul_convert_dot_general ins(%arg0, %1, %arg1
// IMPLICIT-CHECK-NOT: tensor.empty() : tensor<20x8
func.func @f(%x: tensor<20x8xbf16>, %w: tensor<6x8xbf16>) -> tensor<20x6xbf16> {
  %0 = kiln.convert %x {kiln.prologue} : tensor<20x8xbf16> to f32
  %1 = kiln.mul %0, %0 : tensor<20x8xf32>
  %2 = kiln.reduce sum %1 dims = [1] : tensor<20x8xf32>
  %3 = kiln.broadcast_in_dim %2 dims = [0] sizes = [20, 8] : tensor<20xf32>
  %4 = kiln.mul %0, %3 {kiln.prologue} : tensor<20x8xf32>
  %5 = kiln.convert %4 {kiln.prologue} : tensor<20x8xf32> to bf16
  %6 = kiln.dot_general %5, %w batch = [] x [] contract = [1] x [1] : tensor<20x8xbf16>, tensor<6x8xbf16>
  return %6 : tensor<20x6xbf16>
}

// -----
// CASE: prologue_refused
// CHECK: not_fused = ["dot_general not with neg: a contraction or a whole-tensor op starts a kernel", "it does not compute its left operand: for a reason"]
func.func @f(%x: tensor<20x8xbf16>, %w: tensor<6x8xbf16>) -> tensor<20x6xbf16> {
  %0 = kiln.neg %x : tensor<20x8xbf16>
  %1 = kiln.dot_general %0, %w batch = [] x [] contract = [1] x [1] {kiln.prologue = "it does not compute its left operand: for a reason"} : tensor<20x8xbf16>, tensor<6x8xbf16>
  return %1 : tensor<20x6xbf16>
}

// -----
// Elementwise producers and consumers fuse with a scan over the same elements.
// CASE: scan_with_prologue_and_epilogue
// CHECK: kiln.launch @exp_cumulative_sub_mul
// CHECK: kind = "scan"
func.func @f(%x: tensor<3x40xf32>, %y: tensor<3x40xf32>) -> (tensor<3x40xf32>, tensor<3x40xf32>) {
  %0 = kiln.exp %x : tensor<3x40xf32>
  %1 = kiln.cumulative sum %0 axis = 1 {kiln.loops} : tensor<3x40xf32>
  %2 = kiln.sub %1, %0 : tensor<3x40xf32>
  %3 = kiln.mul %2, %y : tensor<3x40xf32>
  return %0, %3 : tensor<3x40xf32>, tensor<3x40xf32>
}

// -----
// A softmax, a reduction of the scan and a second scan are kernels of their own: they need whole
// rows.
// CASE: scans_and_reductions
// CHECK: a scan is a loop over its rows of its own
// CHECK: the reduction would reread a row for each result of the scan
// CHECK: its kernel has a scan already
func.func @f(%x: tensor<3x40xf32>) -> (tensor<3xf32>, tensor<3x40xf32>) {
  %0 = kiln.reduce max %x dims = [1] : tensor<3x40xf32>
  %1 = kiln.broadcast_in_dim %0 dims = [0] sizes = [3, 40] : tensor<3xf32>
  %2 = kiln.sub %x, %1 : tensor<3x40xf32>
  %3 = kiln.cumulative sum %2 axis = 1 {kiln.loops} : tensor<3x40xf32>
  %4 = kiln.reduce sum %3 dims = [1] : tensor<3x40xf32>
  %5 = kiln.cumulative max %3 axis = 1 {kiln.loops} : tensor<3x40xf32>
  return %4, %5 : tensor<3xf32>, tensor<3x40xf32>
}

// -----
// Users with another access pattern or further loops are other kernels.
// CASE: scan_with_other_loops
// CHECK: kiln.launch @cumulative
func.func @f(%x: tensor<40xf32>, %y: tensor<40x40xf32>, %z: tensor<40xf32>) -> (tensor<40x40xf32>, tensor<40xf32>) {
  %0 = kiln.cumulative sum %x axis = 0 {kiln.loops} : tensor<40xf32>
  %1 = kiln.broadcast_in_dim %0 dims = [0] sizes = [40, 40] : tensor<40xf32>
  %2 = kiln.mul %1, %y : tensor<40x40xf32>
  %3 = kiln.reverse %0 dims = [0] : tensor<40xf32>
  %4 = kiln.add %3, %z : tensor<40xf32>
  return %2, %4 : tensor<40x40xf32>, tensor<40xf32>
}

// -----
// The gradient of an activation: ten ops of x are too many for the epilogue of the product, so that
// their kernel reads it, instead of storing x's derivative.
// CASE: activation_gradient_of_many_ops
// CHECK: kiln.launch @dot_general ins
// CHECK: kiln.launch @mul_mul_add
// IMPLICIT-CHECK-NOT: kiln.launch @dot_general_mul
func.func @f(%g: tensor<64x32xbf16>, %w: tensor<128x32xbf16>, %x: tensor<64x128xf32>) -> tensor<64x128xf32> {
  %0 = kiln.dot_general %g, %w batch = [] x [] contract = [1] x [1] : tensor<64x32xbf16>, tensor<128x32xbf16> to f32
  %1 = kiln.mul %x, %x : tensor<64x128xf32>
  %2 = kiln.mul %1, %x : tensor<64x128xf32>
  %3 = kiln.add %2, %x : tensor<64x128xf32>
  %4 = kiln.tanh %3 : tensor<64x128xf32>
  %5 = kiln.mul %4, %4 : tensor<64x128xf32>
  %6 = kiln.sub %1, %5 : tensor<64x128xf32>
  %7 = kiln.add %6, %4 : tensor<64x128xf32>
  %8 = kiln.mul %7, %x : tensor<64x128xf32>
  %9 = kiln.add %8, %3 : tensor<64x128xf32>
  %10 = kiln.mul %0, %9 : tensor<64x128xf32>
  %11 = kiln.mul %0, %4 : tensor<64x128xf32>
  %12 = kiln.add %10, %11 : tensor<64x128xf32>
  return %12 : tensor<64x128xf32>
}

// -----
// The size of several computed values is made once, of the arguments' sizes.
// CASE: sizes_of_computed_values
// CHECK: kiln.sym_expr add
// IMPLICIT-CHECK-NOT: kiln.sym_expr add
func.func @f(%x: tensor<?xf32>, %y: tensor<?xf32>) -> tensor<?xf32> {
  %s = kiln.sym @s
  %t = kiln.sym @t
  kiln.bind_shape %x, [%s] : tensor<?xf32>
  kiln.bind_shape %y, [%t] : tensor<?xf32>
  %0 = kiln.concat %x, %y, %y axis = 0 : tensor<?xf32>, tensor<?xf32>, tensor<?xf32>
  %n0 = kiln.dim %0, 0 : tensor<?xf32>
  %half = kiln.splat [], 0.5 : f32
  %1 = kiln.broadcast_in_dim %half dims = [] sizes = [%n0] : tensor<f32>
  %2 = kiln.add %0, %1 : tensor<?xf32>
  %n2 = kiln.dim %2, 0 : tensor<?xf32>
  %one = kiln.splat [], 1.0 : f32
  %3 = kiln.broadcast_in_dim %one dims = [] sizes = [%n2] : tensor<f32>
  %4 = kiln.div %3, %2 : tensor<?xf32>
  %n4 = kiln.dim %4, 0 : tensor<?xf32>
  %5 = kiln.broadcast_in_dim %half dims = [] sizes = [%n4] : tensor<f32>
  %6 = kiln.max %4, %5 : tensor<?xf32>
  return %6 : tensor<?xf32>
}

// -----
// CASE: sums_of_one_tensor_share_a_kernel
// CHECK-COUNT-1: kiln.launch
// IMPLICIT-CHECK-NOT: kiln.launch
func.func @f(%x: tensor<8x16x32xf32>) -> (tensor<8x32xf32>, tensor<8x32xf32>) {
  %0 = kiln.mul %x, %x : tensor<8x16x32xf32>
  %1 = kiln.reduce sum %0 dims = [1] : tensor<8x16x32xf32>
  %2 = kiln.reduce sum %x dims = [1] : tensor<8x16x32xf32>
  return %1, %2 : tensor<8x32xf32>, tensor<8x32xf32>
}

// -----
// Each derivative is one kernel, which stores its results as their readers take them.
// CASE: attention_gradients_with_transposes
// CHECK-COUNT-2: ops = ["attention_gradient"]
// IMPLICIT-CHECK-NOT: ops = ["transpose"]
func.func @main(%q: tensor<1x2x4x16xbf16>, %k: tensor<1x2x4x16xbf16>, %v: tensor<1x2x4x16xbf16>, %c: tensor<1x2x4x16xbf16>, %l: tensor<1x2x4xf32>, %d: tensor<1x2x4xf32>) -> (tensor<1x4x2x16xbf16>, tensor<1x4x2x16xbf16>, tensor<1x4x2x16xbf16>) {
  %0 = kiln.attention_gradient %q, %k, %v, %c, %l, %d causal : tensor<1x2x4x16xbf16>, tensor<1x2x4x16xbf16>, tensor<1x2x4x16xbf16>, tensor<1x2x4x16xbf16>, tensor<1x2x4xf32>, tensor<1x2x4xf32>
  %1, %2 = kiln.attention_gradient by_keys %q, %k, %v, %c, %l, %d causal : tensor<1x2x4x16xbf16>, tensor<1x2x4x16xbf16>, tensor<1x2x4x16xbf16>, tensor<1x2x4x16xbf16>, tensor<1x2x4xf32>, tensor<1x2x4xf32>
  %3 = kiln.transpose %0 permutation = [0, 2, 1, 3] : tensor<1x2x4x16xbf16>
  %4 = kiln.transpose %1 permutation = [0, 2, 1, 3] : tensor<1x2x4x16xbf16>
  %5 = kiln.transpose %2 permutation = [0, 2, 1, 3] : tensor<1x2x4x16xbf16>
  return %3, %4, %5 : tensor<1x4x2x16xbf16>, tensor<1x4x2x16xbf16>, tensor<1x4x2x16xbf16>
}

// -----
// A reshape with kiln.view is a view of a stored value, where its reader could index the rows.
// CASE: view_on_purpose
// CHECK: kiln.reshape %{{.*}} sizes = [1, 4, 4, 8] {{.*}}: tensor<1x16x8xf32>
// CHECK: kiln.launch @convolution
func.func @f(%x: tensor<1x16x8xf32>, %w: tensor<8x1x3x3xf32>) -> tensor<1x4x4x8xf32> {
  %e = kiln.tanh %x : tensor<1x16x8xf32>
  %v = kiln.reshape %e sizes = [1, 4, 4, 8] {kiln.view} : tensor<1x16x8xf32>
  %t = kiln.transpose %v permutation = [0, 3, 1, 2] : tensor<1x4x4x8xf32>
  %c = kiln.convolution %t, %w strides = [1, 1] pad = [1, 1] x [1, 1] dilation = [1, 1] {groups = 8 : i64} : tensor<1x8x4x4xf32>, tensor<8x1x3x3xf32>
  %r = kiln.transpose %c permutation = [0, 2, 3, 1] : tensor<1x8x4x4xf32>
  return %r : tensor<1x4x4x8xf32>
}

// -----
// A processor's kernel would take lines of pixels, and pack the weight for each: the pad is a kernel.
// CASE: padded_pixels_of_a_matmul
// RUN: kiln-fuse{split-rows=false}
// CHECK: kiln.launch @dot_general_tanh
// CHECK: kiln.launch @pad
func.func @f(%x: tensor<2x4x4x8xf32>, %w: tensor<6x8xf32>) -> tensor<2x6x6x6xf32> {
  %zero = kiln.splat [], 0.0 : f32
  %0 = kiln.dot_general %x, %w batch = [] x [] contract = [3] x [1] : tensor<2x4x4x8xf32>, tensor<6x8xf32>
  %1 = kiln.tanh %0 : tensor<2x4x4x6xf32>
  %2 = kiln.pad %1, %zero low = [0, 1, 1, 0] high = [0, 1, 1, 0] : tensor<2x4x4x6xf32>, tensor<f32>
  return %2 : tensor<2x6x6x6xf32>
}

// -----
// A packed weight is read in place, and rows of one image are one line.
// CASE: padded_pixels_of_matmuls_that_keep_their_rows
// RUN: kiln-fuse{split-rows=false}
// CHECK: kiln.launch @dot_general_pad ins
// CHECK: kiln.launch @dot_general_pad_1 ins
// IMPLICIT-CHECK-NOT: kiln.launch @pad
func.func @f(%x: tensor<2x4x4x8xf32>, %y: tensor<1x4x8xf32>, %w: tensor<8x6xf32>) -> (tensor<2x6x6x6xf32>, tensor<1x6x6xf32>) {
  %zero = kiln.splat [], 0.0 : f32
  %0 = kiln.dot_general %x, %w batch = [] x [] contract = [3] x [0] {kiln.pack = "with columns last"} : tensor<2x4x4x8xf32>, tensor<8x6xf32>
  %1 = kiln.pad %0, %zero low = [0, 1, 1, 0] high = [0, 1, 1, 0] : tensor<2x4x4x6xf32>, tensor<f32>
  %2 = kiln.dot_general %y, %w batch = [] x [] contract = [2] x [0] : tensor<1x4x8xf32>, tensor<8x6xf32>
  %3 = kiln.pad %2, %zero low = [0, 1, 0] high = [0, 1, 0] : tensor<1x4x6xf32>, tensor<f32>
  return %1, %3 : tensor<2x6x6x6xf32>, tensor<1x6x6xf32>
}

// -----
// The conversions of 8-bit weights are part of the products, which share their left operand, a view
// of a norm.
// CASE: products_of_8_bit_weights
// RUN: kiln-fuse{pairs=true constants=true launch=4000}
// CHECK-COUNT-1: kiln.launch
// CHECK-COUNT-2: kiln.constant
func.func @f(%x: tensor<2x1x128xbf16>, %v: tensor<64x128xi8>, %w: tensor<96x128xi8>) -> (tensor<2x64xbf16>, tensor<2x96xbf16>) {
  %0 = kiln.reduce max %x dims = [2] : tensor<2x1x128xbf16>
  %1 = kiln.broadcast_in_dim %0 dims = [0, 1] sizes = [2, 1, 128] : tensor<2x1xbf16>
  %2 = kiln.sub %x, %1 : tensor<2x1x128xbf16>
  %3 = kiln.reshape %2 sizes = [2, 128] : tensor<2x1x128xbf16>
  %4 = kiln.convert %v {kiln.prologue} : tensor<64x128xi8> to bf16
  %5 = kiln.dot_general %3, %4 batch = [] x [] contract = [1] x [1] : tensor<2x128xbf16>, tensor<64x128xbf16>
  %6 = kiln.convert %w {kiln.prologue} : tensor<96x128xi8> to bf16
  %7 = kiln.transpose %6 permutation = [1, 0] : tensor<96x128xbf16>
  %8 = kiln.dot_general %3, %7 batch = [] x [] contract = [1] x [0] : tensor<2x128xbf16>, tensor<128x96xbf16>
  return %5, %8 : tensor<2x64xbf16>, tensor<2x96xbf16>
}

// -----
// What computes a row writes it into the state, whose memory is the kernel's destination.
// CASE: row_of_a_state
// RUN: kiln-update-in-place,kiln-fuse
// CHECK: outs(%arg0
// CHECK: ops = ["neg", "insert_slice"], pieces = [array<i64: 0, 1, 4>]
func.func @f(%cache: tensor<6x4xf32> {kiln.donated = "results", kiln.state = {result = 0 : i64, source = ""}}, %at: tensor<1xi64>, %x: tensor<1x4xf32>) -> (tensor<6x4xf32>, tensor<4xf32>) {
  %0 = kiln.neg %x : tensor<1x4xf32>
  %1 = kiln.scatter assign %cache[%at], %0 dims = [0] : tensor<6x4xf32>[tensor<1xi64>], tensor<1x4xf32>
  %2 = kiln.reduce max %1 dims = [0] : tensor<6x4xf32>
  return %1, %2 : tensor<6x4xf32>, tensor<4xf32>
}

// -----
// A position is computed by a kernel in front of the one that writes there.
// CASE: position_of_a_row
// RUN: kiln-update-in-place,kiln-fuse
// CHECK: ops = ["add"]
// CHECK: ops = ["neg", "insert_slice"]
func.func @f(%cache: tensor<6x4xf32> {kiln.donated = "results", kiln.state = {result = 0 : i64, source = ""}}, %at: tensor<1xi64>, %x: tensor<1x4xf32>) -> tensor<6x4xf32> {
  %one = kiln.splat [1], 1 : i64
  %0 = kiln.add %at, %one : tensor<1xi64>
  %1 = kiln.neg %x : tensor<1x4xf32>
  %2 = kiln.scatter assign %cache[%0], %1 dims = [0] : tensor<6x4xf32>[tensor<1xi64>], tensor<1x4xf32>
  return %2 : tensor<6x4xf32>
}

// -----
// A value that is returned, and that the epilogue reads too, follows the product: before it, its loops
// would be a nest of their own, and no strategy for products would have the kernel.
// CASE: returned_operand_of_an_epilogue
// CHECK: func.func @exp_dot_general_mul
// CHECK: kiln.dot_general
// CHECK: kiln.exp
// CHECK: kiln.mul
func.func @f(%g: tensor<64x32xbf16>, %w: tensor<32x128xbf16>, %x: tensor<64x128xf32>) -> (tensor<64x128xf32>, tensor<64x128xf32>) {
  %0 = kiln.exp %x : tensor<64x128xf32>
  %1 = kiln.dot_general %g, %w batch = [] x [] contract = [1] x [0] : tensor<64x32xbf16>, tensor<32x128xbf16> to f32
  %2 = kiln.mul %1, %0 : tensor<64x128xf32>
  return %2, %0 : tensor<64x128xf32>, tensor<64x128xf32>
}

// -----
// A 16-bit sum that another kernel reads from memory is rounded where its own kernel reads it; what
// one kernel alone knows is not.
// CASE: rounds_what_another_kernel_reads
// CHECK: kiln.add {{.*}} {kiln.rounded}
// IMPLICIT-CHECK-NOT: kiln.mul {{.*}} {kiln.rounded}
func.func @f(%x: tensor<8x10xbf16>, %b: tensor<10xbf16>, %i: tensor<3xi64>) -> (tensor<8xbf16>, tensor<3x10xbf16>) {
  %0 = kiln.broadcast_in_dim %b dims = [1] sizes = [8, 10] : tensor<10xbf16>
  %1 = kiln.add %x, %0 : tensor<8x10xbf16>
  %2 = kiln.mul %1, %1 : tensor<8x10xbf16>
  %3 = kiln.reduce sum %2 dims = [1] : tensor<8x10xbf16>
  %4 = kiln.gather %1[%i] dims = [0] : tensor<8x10xbf16>[tensor<3xi64>]
  return %3, %4 : tensor<8xbf16>, tensor<3x10xbf16>
}

// -----
// A running mean: what is added to a sum over leading dimensions is computed where it is added.
// CASE: meets_a_reduction
// CHECK-COUNT-1: kiln.launch
// IMPLICIT-CHECK-NOT: kiln.launch
func.func @f(%x: tensor<64x32xf32>, %mean: tensor<32xf32>) -> tensor<32xf32> {
  %0 = kiln.splat [32], 0.9 : f32
  %1 = kiln.mul %mean, %0 : tensor<32xf32>
  %2 = kiln.reduce sum %x dims = [0] : tensor<64x32xf32>
  %3 = kiln.splat [32], 0.0015625 : f32
  %4 = kiln.mul %2, %3 : tensor<32xf32>
  %5 = kiln.add %4, %1 : tensor<32xf32>
  return %5 : tensor<32xf32>
}

// -----
// Mean and variance of partial sums: the second reduction meets the first one's result.
// CASE: reductions_that_meet
// CHECK-COUNT-1: kiln.launch
// IMPLICIT-CHECK-NOT: kiln.launch
func.func @f(%s: tensor<64x32xf32>, %q: tensor<64x32xf32>) -> (tensor<32xf32>, tensor<32xf32>) {
  %n = kiln.splat [32], 4096.0 : f32
  %0 = kiln.reduce sum %s dims = [0] : tensor<64x32xf32>
  %1 = kiln.reduce sum %q dims = [0] : tensor<64x32xf32>
  %2 = kiln.div %0, %n : tensor<32xf32>
  %3 = kiln.mul %0, %2 : tensor<32xf32>
  %4 = kiln.sub %1, %3 : tensor<32xf32>
  return %2, %4 : tensor<32xf32>, tensor<32xf32>
}
