// RUN: kiln-simplify

// CASE: identity_elements
// CHECK: return %arg0, %arg0, %arg0, %arg0, %arg1, %arg1
func.func @f(%x: tensor<4xf32>, %i: tensor<4xi32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xi32>, tensor<4xi32>) {
  %minus_zero = kiln.splat [4], -0.0 : f32
  %zero = kiln.splat [4], 0.0 : f32
  %one = kiln.splat [4], 1.0 : f32
  %izero = kiln.splat [4], 0 : i32
  %ones = kiln.splat [4], -1 : i32
  %0 = kiln.add %x, %minus_zero : tensor<4xf32>
  %1 = kiln.sub %x, %zero : tensor<4xf32>
  %2 = kiln.mul %one, %x : tensor<4xf32>
  %3 = kiln.div %x, %one : tensor<4xf32>
  %4 = kiln.add %i, %izero : tensor<4xi32>
  %5 = kiln.and %i, %ones : tensor<4xi32>
  return %0, %1, %2, %3, %4, %5 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xi32>, tensor<4xi32>
}

// -----
// CASE: not_identities_for_every_float
// x + 0.0 turns -0.0 into 0.0, x * 0.0 may be NaN, x - x may be NaN.
// CHECK: kiln.add
// CHECK: kiln.mul
// CHECK: kiln.sub
func.func @f(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  %zero = kiln.splat [4], 0.0 : f32
  %0 = kiln.add %x, %zero : tensor<4xf32>
  %1 = kiln.mul %x, %zero : tensor<4xf32>
  %2 = kiln.sub %x, %x : tensor<4xf32>
  return %0, %1, %2 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}

// -----
// CASE: integers_cancel
// CHECK-NOT: kiln.sub
// CHECK-NOT: kiln.mul
func.func @f(%i: tensor<?xi32>) -> (tensor<?xi32>, tensor<?xi32>) {
  %d = kiln.dim %i, 0 : tensor<?xi32>
  %zero = kiln.splat [%d], 0 : i32
  %0 = kiln.sub %i, %i : tensor<?xi32>
  %1 = kiln.mul %i, %zero : tensor<?xi32>
  return %0, %1 : tensor<?xi32>, tensor<?xi32>
}

// -----
// CASE: involutions_and_idempotents
// CHECK: return %arg0, %0, %arg1
func.func @f(%x: tensor<4xf32>, %b: tensor<4xi1>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xi1>) {
  %0 = kiln.neg %x : tensor<4xf32>
  %1 = kiln.neg %0 : tensor<4xf32>
  %2 = kiln.floor %x : tensor<4xf32>
  %3 = kiln.floor %2 : tensor<4xf32>
  %4 = kiln.not %b : tensor<4xi1>
  %5 = kiln.not %4 : tensor<4xi1>
  return %1, %3, %5 : tensor<4xf32>, tensor<4xf32>, tensor<4xi1>
}

// -----
// CASE: select_of_constants
// CHECK: kiln.select %arg0, %arg2, %arg1
// CHECK: return %arg1, %0
func.func @f(%c: tensor<4xi1>, %x: tensor<4xf32>, %y: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %true = kiln.splat [4], true
  %0 = kiln.select %true, %x, %y : tensor<4xi1>, tensor<4xf32>
  %n = kiln.not %c : tensor<4xi1>
  %1 = kiln.select %n, %x, %y : tensor<4xi1>, tensor<4xf32>
  return %0, %1 : tensor<4xf32>, tensor<4xf32>
}

// -----
// CASE: lossless_conversions_merge
// bf16 to f32 and back cancels; f32 to bf16 rounds and stays; i32 does not fit into f32.
// CHECK: return %arg0, %1, %3
func.func @f(%h: tensor<4xbf16>, %x: tensor<4xf32>, %i: tensor<4xi32>) -> (tensor<4xbf16>, tensor<4xf32>, tensor<4xi32>) {
  %0 = kiln.convert %h : tensor<4xbf16> to f32
  %1 = kiln.convert %0 : tensor<4xf32> to bf16
  %2 = kiln.convert %x : tensor<4xf32> to bf16
  %3 = kiln.convert %2 : tensor<4xbf16> to f32
  %4 = kiln.convert %i : tensor<4xi32> to f32
  %5 = kiln.convert %4 : tensor<4xf32> to i32
  return %1, %3, %5 : tensor<4xbf16>, tensor<4xf32>, tensor<4xi32>
}

// -----
// CASE: transposes_sink_and_cancel
// CHECK-NOT: kiln.transpose
func.func @f(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %0 = kiln.transpose %x permutation = [1, 0] : tensor<4x8xf32>
  %1 = kiln.exp %0 : tensor<8x4xf32>
  %two = kiln.splat [8, 4], 2.0 : f32
  %2 = kiln.mul %1, %two : tensor<8x4xf32>
  %3 = kiln.transpose %2 permutation = [1, 0] : tensor<8x4xf32>
  return %3 : tensor<4x8xf32>
}

// -----
// CASE: a_transpose_with_two_users_stays
// CHECK: kiln.transpose %arg0 permutation = [1, 0]
// CHECK: kiln.exp %0 : tensor<8x4xf32>
func.func @f(%x: tensor<4x8xf32>) -> (tensor<8x4xf32>, tensor<8x4xf32>) {
  %0 = kiln.transpose %x permutation = [1, 0] : tensor<4x8xf32>
  %1 = kiln.exp %0 : tensor<8x4xf32>
  return %0, %1 : tensor<8x4xf32>, tensor<8x4xf32>
}

// -----
// CASE: broadcasts_sink
// The exponential runs on 4 elements instead of 32.
// CHECK: kiln.exp %arg0 : tensor<4xf32>
func.func @f(%x: tensor<4xf32>) -> tensor<8x4xf32> {
  %0 = kiln.broadcast_in_dim %x dims = [1] sizes = [8, 4] : tensor<4xf32>
  %1 = kiln.exp %0 : tensor<8x4xf32>
  return %1 : tensor<8x4xf32>
}

// -----
// A scalar that is no constant commutes as well: the two reshapes cancel.
// CASE: reshapes_sink_below_scalars
// CHECK: kiln.broadcast_in_dim %arg1 dims = [] sizes = [6, 5]
// CHECK: kiln.mul %arg0
// IMPLICIT-CHECK-NOT: kiln.reshape
func.func @f(%x: tensor<6x5xf32>, %s: tensor<f32>) -> tensor<6x5xf32> {
  %0 = kiln.reshape %x sizes = [2, 3, 5] : tensor<6x5xf32>
  %1 = kiln.broadcast_in_dim %s dims = [] sizes = [2, 3, 5] : tensor<f32>
  %2 = kiln.mul %0, %1 : tensor<2x3x5xf32>
  %3 = kiln.reshape %2 sizes = [6, 5] : tensor<2x3x5xf32>
  return %3 : tensor<6x5xf32>
}

// -----
// CASE: movement_merges
// CHECK: kiln.slice %arg0 offsets = [3, 0] sizes = [2, 8] strides = [4, 1]
// CHECK: kiln.pad %arg0, %arg1 low = [1, 2] high = [0, 3]
// CHECK: kiln.reshape %arg0 sizes = [8, 16]
// IMPLICIT-CHECK-NOT: kiln.reverse
func.func @f(%x: tensor<16x8xf32>, %v: tensor<f32>) -> (tensor<2x8xf32>, tensor<17x13xf32>, tensor<8x16xf32>, tensor<16x8xf32>) {
  %0 = kiln.slice %x offsets = [1, 0] sizes = [7, 8] strides = [2, 1] : tensor<16x8xf32>
  %1 = kiln.slice %0 offsets = [1, 0] sizes = [2, 8] strides = [2, 1] : tensor<7x8xf32>
  %2 = kiln.pad %x, %v low = [1, 0] high = [0, 1] : tensor<16x8xf32>, tensor<f32>
  %3 = kiln.pad %2, %v low = [0, 2] high = [0, 2] : tensor<17x9xf32>, tensor<f32>
  %4 = kiln.reshape %x sizes = [2, 64] : tensor<16x8xf32>
  %5 = kiln.reshape %4 sizes = [8, 16] : tensor<2x64xf32>
  %6 = kiln.reverse %x dims = [0, 1] : tensor<16x8xf32>
  %7 = kiln.reverse %6 dims = [1, 0] : tensor<16x8xf32>
  return %1, %3, %5, %7 : tensor<2x8xf32>, tensor<17x13xf32>, tensor<8x16xf32>, tensor<16x8xf32>
}

// -----
// CASE: concat_flattens
// CHECK: kiln.concat %arg0, %arg0, %arg1 axis = 0
func.func @f(%x: tensor<2xf32>, %y: tensor<3xf32>, %e: tensor<0xf32>) -> tensor<7xf32> {
  %0 = kiln.concat %x, %e, %x axis = 0 : tensor<2xf32>, tensor<0xf32>, tensor<2xf32>
  %1 = kiln.concat %0, %y axis = 0 : tensor<4xf32>, tensor<3xf32>
  return %1 : tensor<7xf32>
}

// -----
// A maximum of one element is the element, and so is a sum unless it is of -0.0.
// The shape in which all elements are reduced does not matter; that of rows does.
// CASE: reductions_of_all_elements
// CHECK: kiln.reduce sum %arg0 dims = [0, 1] : tensor<4x6xf32>
// CHECK: kiln.reduce max %{{.*}} dims = [1] : tensor<8x3xf32>
func.func @f(%x: tensor<4x6xf32>) -> (tensor<f32>, tensor<8xf32>) {
  %0 = kiln.reshape %x sizes = [2, 2, 6] : tensor<4x6xf32>
  %1 = kiln.reduce sum %0 dims = [0, 1, 2] : tensor<2x2x6xf32>
  %2 = kiln.reshape %x sizes = [8, 3] : tensor<4x6xf32>
  %3 = kiln.reduce max %2 dims = [1] : tensor<8x3xf32>
  return %1, %3 : tensor<f32>, tensor<8xf32>
}

// -----
// CASE: reductions_of_one_element
// CHECK: kiln.reshape %arg0 sizes = [4]
// IMPLICIT-CHECK-NOT: kiln.reduce
// IMPLICIT-CHECK-NOT: kiln.add
func.func @f(%x: tensor<4x1xf32>, %i: tensor<4x1xi64>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xi64>) {
  %0 = kiln.reduce max %x dims = [1] : tensor<4x1xf32>
  %1 = kiln.abs %x : tensor<4x1xf32>
  %2 = kiln.reduce sum %1 dims = [1] : tensor<4x1xf32>
  %3 = kiln.reduce sum %i dims = [1] : tensor<4x1xi64>
  return %0, %2, %3 : tensor<4xf32>, tensor<4xf32>, tensor<4xi64>
}

// -----
// 0.0 + -0.0 is 0.0; %0 has -0.0 where %x is negative.
// CASE: a_sum_of_minus_zero
// CHECK: kiln.add
func.func @f(%x: tensor<4x1xf32>) -> tensor<4xf32> {
  %zero = kiln.splat [4, 1], 0.0 : f32
  %0 = kiln.mul %x, %zero : tensor<4x1xf32>
  %1 = kiln.reduce sum %0 dims = [1] : tensor<4x1xf32>
  return %1 : tensor<4xf32>
}

// -----
// CASE: constants_fold
// ROUNDED
// CHECK: dense<[1.000000e+00, 2.718
// CHECK: dense<[0, 2, 4, 6]> : tensor<4xi64>
func.func @f() -> (tensor<4xi64>, tensor<2xf32>) {
  %i = kiln.iota [4] axis = 0 : i64
  %two = kiln.splat [4], 2 : i64
  %0 = kiln.mul %i, %two : tensor<4xi64>
  %c = kiln.constant dense<[0.0, 1.0]> : tensor<2xf32>
  %1 = kiln.exp %c : tensor<2xf32>
  return %0, %1 : tensor<4xi64>, tensor<2xf32>
}

// -----
// CASE: errors_do_not_fold
// CHECK: kiln.div
func.func @f() -> tensor<2xi64> {
  %c = kiln.constant dense<[1, 2]> : tensor<2xi64>
  %zero = kiln.splat [2], 0 : i64
  %0 = kiln.div %c, %zero : tensor<2xi64>
  return %0 : tensor<2xi64>
}

// -----
// CASE: large_results_do_not_fold
// CHECK: kiln.iota [4096] axis = 0
func.func @f() -> tensor<4096xi64> {
  %i = kiln.iota [4096] axis = 0 : i64
  return %i : tensor<4096xi64>
}

// -----
// CASE: attention-repeated-heads
// IMPLICIT-CHECK-NOT: kiln.broadcast_in_dim
// CHECK: tensor<1x4x3x8xf32>, tensor<1x2x5x8xf32>, tensor<1x2x5x8xf32>
func.func @f(%q: tensor<1x4x3x8xf32>, %k: tensor<1x2x5x8xf32>, %v: tensor<1x2x1x5x8xf32>) -> tensor<1x4x3x8xf32> {
  %0 = kiln.broadcast_in_dim %k dims = [0, 1, 3, 4] sizes = [1, 2, 2, 5, 8] : tensor<1x2x5x8xf32>
  %1 = kiln.reshape %0 sizes = [1, 4, 5, 8] : tensor<1x2x2x5x8xf32>
  %2 = kiln.broadcast_in_dim %v dims = [0, 1, 2, 3, 4] sizes = [1, 2, 2, 5, 8] : tensor<1x2x1x5x8xf32>
  %3 = kiln.reshape %2 sizes = [1, 4, 5, 8] : tensor<1x2x2x5x8xf32>
  %4 = kiln.attention %q, %1, %3 causal : tensor<1x4x3x8xf32>, tensor<1x4x5x8xf32>, tensor<1x4x5x8xf32>
  return %4 : tensor<1x4x3x8xf32>
}

// -----
// Heads in another order: 0 1 0 1 instead of 0 0 1 1.
// CASE: attention-interleaved-heads
// CHECK: kiln.broadcast_in_dim
func.func @f(%q: tensor<1x4x3x8xf32>, %k: tensor<1x2x5x8xf32>, %v: tensor<1x2x5x8xf32>) -> tensor<1x4x3x8xf32> {
  %0 = kiln.broadcast_in_dim %k dims = [0, 2, 3, 4] sizes = [1, 2, 2, 5, 8] : tensor<1x2x5x8xf32>
  %1 = kiln.reshape %0 sizes = [1, 4, 5, 8] : tensor<1x2x2x5x8xf32>
  %2 = kiln.broadcast_in_dim %v dims = [0, 2, 3, 4] sizes = [1, 2, 2, 5, 8] : tensor<1x2x5x8xf32>
  %3 = kiln.reshape %2 sizes = [1, 4, 5, 8] : tensor<1x2x2x5x8xf32>
  %4 = kiln.attention %q, %1, %3 : tensor<1x4x3x8xf32>, tensor<1x4x5x8xf32>, tensor<1x4x5x8xf32>
  return %4 : tensor<1x4x3x8xf32>
}

// -----
// CASE: attention-causal-bias
// IMPLICIT-CHECK-NOT: bias
// CHECK: causal
func.func @f(%q: tensor<1x2x3x8xf32>, %k: tensor<1x2x5x8xf32>) -> (tensor<1x2x3x8xf32>, tensor<1x2x3x8xf32>) {
  %queries = kiln.iota [3] axis = 0 : i64
  %keys = kiln.iota [5] axis = 0 : i64
  %query = kiln.reshape %queries sizes = [1, 1, 3, 1] : tensor<3xi64>
  %key = kiln.reshape %keys sizes = [1, 1, 1, 5] : tensor<5xi64>
  %i = kiln.broadcast_in_dim %query dims = [0, 1, 2, 3] sizes = [1, 1, 3, 5] : tensor<1x1x3x1xi64>
  %j = kiln.broadcast_in_dim %key dims = [0, 1, 2, 3] sizes = [1, 1, 3, 5] : tensor<1x1x1x5xi64>
  %seen = kiln.compare le %j, %i : tensor<1x1x3x5xi64>
  %zero = kiln.splat [1, 1, 3, 5], 0.0 : f32
  %low = kiln.splat [1, 1, 3, 5], 0xFF800000 : f32
  %bias = kiln.select %seen, %zero, %low : tensor<1x1x3x5xi1>, tensor<1x1x3x5xf32>
  %0 = kiln.attention %q, %k, %k bias %bias : tensor<1x1x3x5xf32> : tensor<1x2x3x8xf32>, tensor<1x2x5x8xf32>, tensor<1x2x5x8xf32>
  %later = kiln.compare lt %i, %j : tensor<1x1x3x5xi64>
  %hides = kiln.select %later, %low, %zero : tensor<1x1x3x5xi1>, tensor<1x1x3x5xf32>
  %1 = kiln.attention %q, %k, %k bias %hides : tensor<1x1x3x5xf32> : tensor<1x2x3x8xf32>, tensor<1x2x5x8xf32>, tensor<1x2x5x8xf32>
  return %0, %1 : tensor<1x2x3x8xf32>, tensor<1x2x3x8xf32>
}

// -----
// A strict mask, another axis, and a bias other than 0 do not match.
// CASE: attention-other-bias
// CHECK-NOT: causal
func.func @f(%q: tensor<1x2x5x8xf32>) -> (tensor<1x2x5x8xf32>, tensor<1x2x5x8xf32>, tensor<1x2x5x8xf32>) {
  %i = kiln.iota [5, 5] axis = 0 : i64
  %j = kiln.iota [5, 5] axis = 1 : i64
  %zero = kiln.splat [5, 5], 0.0 : f32
  %one = kiln.splat [5, 5], 1.0 : f32
  %low = kiln.splat [5, 5], 0xFF800000 : f32
  %before = kiln.compare lt %j, %i : tensor<5x5xi64>
  %strict = kiln.select %before, %zero, %low : tensor<5x5xi1>, tensor<5x5xf32>
  %0 = kiln.attention %q, %q, %q bias %strict : tensor<5x5xf32> : tensor<1x2x5x8xf32>, tensor<1x2x5x8xf32>, tensor<1x2x5x8xf32>
  %behind = kiln.compare le %i, %j : tensor<5x5xi64>
  %after = kiln.select %behind, %zero, %low : tensor<5x5xi1>, tensor<5x5xf32>
  %1 = kiln.attention %q, %q, %q bias %after : tensor<5x5xf32> : tensor<1x2x5x8xf32>, tensor<1x2x5x8xf32>, tensor<1x2x5x8xf32>
  %upto = kiln.compare le %j, %i : tensor<5x5xi64>
  %more = kiln.select %upto, %one, %low : tensor<5x5xi1>, tensor<5x5xf32>
  %2 = kiln.attention %q, %q, %q bias %more : tensor<5x5xf32> : tensor<1x2x5x8xf32>, tensor<1x2x5x8xf32>, tensor<1x2x5x8xf32>
  return %0, %1, %2 : tensor<1x2x5x8xf32>, tensor<1x2x5x8xf32>, tensor<1x2x5x8xf32>
}

// -----
// What the reshape merges and splits stays together: the transposes meet, and cancel here.
// CASE: transposes_meet_across_a_reshape
// CHECK-NOT: kiln.transpose
// CHECK: kiln.reshape %arg0 sizes = [2, 6, 4, 15]
func.func @f(%x: tensor<2x3x2x4x5x3xf32>) -> tensor<2x6x4x15xf32> {
  %0 = kiln.transpose %x permutation = [0, 3, 1, 2, 4, 5] : tensor<2x3x2x4x5x3xf32>
  %1 = kiln.reshape %0 sizes = [2, 4, 6, 15] : tensor<2x4x3x2x5x3xf32>
  %2 = kiln.transpose %1 permutation = [0, 2, 1, 3] : tensor<2x4x6x15xf32>
  return %2 : tensor<2x6x4x15xf32>
}

// -----
// A dimension that the reshape has merged is not moved apart.
// CASE: transposes_stay_around_a_reshape
// CHECK-COUNT-2: kiln.transpose
func.func @f(%x: tensor<2x3x4x5xf32>) -> tensor<20x6xf32> {
  %0 = kiln.transpose %x permutation = [1, 2, 0, 3] : tensor<2x3x4x5xf32>
  %1 = kiln.reshape %0 sizes = [6, 20] : tensor<3x4x2x5xf32>
  %2 = kiln.transpose %1 permutation = [1, 0] : tensor<6x20xf32>
  return %2 : tensor<20x6xf32>
}

// -----
// The gradients of a tensor's slices: disjoint slices are concatenated, with zeros in gaps; +0.0
// stays, since -0.0 + 0.0 is +0.0. Slices of slices are flattened.
// CASE: sums_of_disjoint_pads
// CHECK: kiln.concat %arg0, %arg1 axis = 1
// CHECK: kiln.concat %arg2, %{{[0-9]+}}, %arg3 axis = 0
// CHECK: kiln.concat %arg1, %arg0, %arg4 axis = 1
// IMPLICIT-CHECK-NOT: kiln.pad
func.func @f(%a: tensor<4x8xf32>, %b: tensor<4x8xf32>, %c: tensor<2xi32>, %d: tensor<3xi32>, %e: tensor<4x6xf32>) -> (tensor<4x16xf32>, tensor<9xi32>, tensor<4x22xf32>) {
  %z = kiln.splat [], 0.0 : f32
  %i = kiln.splat [], 0 : i32
  %0 = kiln.pad %a, %z low = [0, 0] high = [0, 8] : tensor<4x8xf32>, tensor<f32>
  %1 = kiln.pad %b, %z low = [0, 8] high = [0, 0] : tensor<4x8xf32>, tensor<f32>
  %2 = kiln.add %0, %1 : tensor<4x16xf32>
  %3 = kiln.pad %c, %i low = [0] high = [7] : tensor<2xi32>, tensor<i32>
  %4 = kiln.pad %d, %i low = [6] high = [0] : tensor<3xi32>, tensor<i32>
  %5 = kiln.add %4, %3 : tensor<9xi32>
  %6 = kiln.pad %b, %z low = [0, 0] high = [0, 8] : tensor<4x8xf32>, tensor<f32>
  %7 = kiln.pad %a, %z low = [0, 8] high = [0, 0] : tensor<4x8xf32>, tensor<f32>
  %8 = kiln.add %6, %7 : tensor<4x16xf32>
  %9 = kiln.pad %8, %z low = [0, 0] high = [0, 6] : tensor<4x16xf32>, tensor<f32>
  %10 = kiln.pad %e, %z low = [0, 16] high = [0, 0] : tensor<4x6xf32>, tensor<f32>
  %11 = kiln.add %9, %10 : tensor<4x22xf32>
  return %2, %5, %11 : tensor<4x16xf32>, tensor<9xi32>, tensor<4x22xf32>
}

// -----
// Slices that overlap, another axis, another value, and a padded tensor with another reader.
// CASE: sums_of_pads_stay
// IMPLICIT-CHECK-NOT: kiln.concat
func.func @f(%a: tensor<4x4xf32>, %b: tensor<4x4xf32>) -> (tensor<4x7xf32>, tensor<8x4xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) {
  %z = kiln.splat [], 0.0 : f32
  %one = kiln.splat [], 1.0 : f32
  %0 = kiln.pad %a, %z low = [0, 0] high = [0, 3] : tensor<4x4xf32>, tensor<f32>
  %1 = kiln.pad %b, %z low = [0, 3] high = [0, 0] : tensor<4x4xf32>, tensor<f32>
  %2 = kiln.add %0, %1 : tensor<4x7xf32>
  %3 = kiln.pad %a, %z low = [4, 0] high = [0, 0] : tensor<4x4xf32>, tensor<f32>
  %4 = kiln.pad %b, %one low = [0, 0] high = [4, 0] : tensor<4x4xf32>, tensor<f32>
  %5 = kiln.add %3, %4 : tensor<8x4xf32>
  %6 = kiln.pad %a, %z low = [0, 4] high = [0, 0] : tensor<4x4xf32>, tensor<f32>
  %7 = kiln.pad %b, %z low = [0, 0] high = [0, 4] : tensor<4x4xf32>, tensor<f32>
  %8 = kiln.add %6, %7 : tensor<4x8xf32>
  return %2, %5, %8, %6, %7 : tensor<4x7xf32>, tensor<8x4xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>
}
