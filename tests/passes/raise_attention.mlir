// RUN: kiln-raise-attention,kiln-simplify,canonicalize

// A soft cap of the scaled score, a bool mask, and the softmax in f32.
// CASE: soft_cap_and_mask
// CHECK: kiln.attention %{{.*}} unsafe_softmax
// CHECK: kiln.tanh
// CHECK: scale = 0.00833
// IMPLICIT-CHECK-NOT: kiln.matmul
// IMPLICIT-CHECK-NOT: kiln.softmax
func.func @f(%q: tensor<2x3x8x16xbf16>, %k: tensor<2x3x9x16xbf16>, %v: tensor<2x3x9x16xbf16>, %m: tensor<2x1x8x9xi1>) -> tensor<2x3x8x16xbf16> {
  %kt = kiln.transpose %k permutation = [0, 1, 3, 2] : tensor<2x3x9x16xbf16>
  %s = kiln.matmul %q, %kt : tensor<2x3x8x16xbf16>, tensor<2x3x16x9xbf16>
  %f = kiln.splat [2, 3, 8, 9], 0.25 : bf16
  %scaled = kiln.mul %s, %f : tensor<2x3x8x9xbf16>
  %c = kiln.splat [2, 3, 8, 9], 30.0 : bf16
  %0 = kiln.div %scaled, %c : tensor<2x3x8x9xbf16>
  %1 = kiln.tanh %0 : tensor<2x3x8x9xbf16>
  %2 = kiln.mul %1, %c : tensor<2x3x8x9xbf16>
  %hidden = kiln.not %m : tensor<2x1x8x9xi1>
  %all = kiln.broadcast_in_dim %hidden dims = [0, 1, 2, 3] sizes = [2, 3, 8, 9] : tensor<2x1x8x9xi1>
  %low = kiln.splat [2, 3, 8, 9], 0xFF80 : bf16
  %3 = kiln.select %all, %low, %2 : tensor<2x3x8x9xi1>, tensor<2x3x8x9xbf16>
  %4 = kiln.convert %3 : tensor<2x3x8x9xbf16> to f32
  %5 = kiln.softmax %4 axis = 3 : tensor<2x3x8x9xf32>
  %6 = kiln.convert %5 : tensor<2x3x8x9xf32> to bf16
  %r = kiln.matmul %6, %v : tensor<2x3x8x9xbf16>, tensor<2x3x9x16xbf16>
  return %r : tensor<2x3x8x16xbf16>
}

// -----
// Only scaled: no region.
// CASE: plain
// CHECK: unsafe_softmax : tensor<2x1x8x4xf32>, tensor<2x1x8x4xf32>, tensor<2x1x8x4xf32> {scale = 5.000000e-01 : f64}
func.func @f(%q: tensor<2x8x4xf32>, %k: tensor<2x8x4xf32>, %v: tensor<2x8x4xf32>) -> tensor<2x8x4xf32> {
  %kt = kiln.transpose %k permutation = [0, 2, 1] : tensor<2x8x4xf32>
  %s = kiln.matmul %q, %kt : tensor<2x8x4xf32>, tensor<2x4x8xf32>
  %d = kiln.splat [2, 8, 8], 2.0 : f32
  %0 = kiln.div %s, %d : tensor<2x8x8xf32>
  %1 = kiln.softmax %0 axis = 2 : tensor<2x8x8xf32>
  %r = kiln.matmul %1, %v : tensor<2x8x8xf32>, tensor<2x8x4xf32>
  return %r : tensor<2x8x4xf32>
}

// -----
// A causal mask that is added; no key precedes the first query, so its row is NaN.
// CASE: added_causal_mask
// CHECK: kiln.compare lt %arg7, %arg6 : tensor<i64>
// CHECK: kiln.select
func.func @f(%q: tensor<1x2x8x4xf32>, %k: tensor<1x2x8x4xf32>, %v: tensor<1x2x8x4xf32>) -> tensor<1x2x8x4xf32> {
  %kt = kiln.transpose %k permutation = [0, 1, 3, 2] : tensor<1x2x8x4xf32>
  %s = kiln.matmul %q, %kt : tensor<1x2x8x4xf32>, tensor<1x2x4x8xf32>
  %i = kiln.iota [8, 8] axis = 0 : i64
  %j = kiln.iota [8, 8] axis = 1 : i64
  %seen = kiln.compare gt %i, %j : tensor<8x8xi64>
  %zero = kiln.splat [8, 8], 0.0 : f32
  %low = kiln.splat [8, 8], 0xFF800000 : f32
  %mask = kiln.select %seen, %zero, %low : tensor<8x8xi1>, tensor<8x8xf32>
  %all = kiln.broadcast_in_dim %mask dims = [2, 3] sizes = [1, 2, 8, 8] : tensor<8x8xf32>
  %0 = kiln.add %s, %all : tensor<1x2x8x8xf32>
  %1 = kiln.softmax %0 axis = 3 : tensor<1x2x8x8xf32>
  %r = kiln.matmul %1, %v : tensor<1x2x8x8xf32>, tensor<1x2x8x4xf32>
  return %r : tensor<1x2x8x4xf32>
}

// -----
// CASE: repeated_heads
// CHECK: kiln.attention %{{.*}} : tensor<2x4x8x4xf32>, tensor<2x2x8x4xf32>, tensor<2x2x8x4xf32>
// IMPLICIT-CHECK-NOT: kiln.broadcast_in_dim
func.func @f(%q: tensor<2x4x8x4xf32>, %k: tensor<2x2x8x4xf32>, %v: tensor<2x2x8x4xf32>) -> tensor<2x4x8x4xf32> {
  %k5 = kiln.broadcast_in_dim %k dims = [0, 1, 3, 4] sizes = [2, 2, 2, 8, 4] : tensor<2x2x8x4xf32>
  %k4 = kiln.reshape %k5 sizes = [2, 4, 8, 4] : tensor<2x2x2x8x4xf32>
  %v5 = kiln.broadcast_in_dim %v dims = [0, 1, 3, 4] sizes = [2, 2, 2, 8, 4] : tensor<2x2x8x4xf32>
  %v4 = kiln.reshape %v5 sizes = [2, 4, 8, 4] : tensor<2x2x2x8x4xf32>
  %kt = kiln.transpose %k4 permutation = [0, 1, 3, 2] : tensor<2x4x8x4xf32>
  %s = kiln.matmul %q, %kt : tensor<2x4x8x4xf32>, tensor<2x4x4x8xf32>
  %1 = kiln.softmax %s axis = 3 : tensor<2x4x8x8xf32>
  %r = kiln.matmul %1, %v4 : tensor<2x4x8x8xf32>, tensor<2x4x8x4xf32>
  return %r : tensor<2x4x8x4xf32>
}

// -----
// Keys that the heads of a group share: batch, groups, heads.
// CASE: grouped_in_rank_5
// CHECK: kiln.attention %{{.*}} : tensor<2x6x8x4xf32>, tensor<2x3x8x4xf32>, tensor<2x3x8x4xf32>
func.func @f(%q: tensor<2x3x2x8x4xf32>, %k: tensor<2x3x1x8x4xf32>, %v: tensor<2x3x1x8x4xf32>) -> tensor<2x3x2x8x4xf32> {
  %kt = kiln.transpose %k permutation = [0, 1, 2, 4, 3] : tensor<2x3x1x8x4xf32>
  %s = kiln.matmul %q, %kt : tensor<2x3x2x8x4xf32>, tensor<2x3x1x4x8xf32>
  %1 = kiln.softmax %s axis = 4 : tensor<2x3x2x8x8xf32>
  %r = kiln.matmul %1, %v : tensor<2x3x2x8x8xf32>, tensor<2x3x1x8x4xf32>
  return %r : tensor<2x3x2x8x4xf32>
}

// -----
// Windows in the batch: a bias of heads, and a mask of windows in rank 5.
// CASE: windows
// CHECK: kiln.gather
// CHECK: kiln.rem
// CHECK: kiln.gather
func.func @f(%q: tensor<6x2x4x4xf32>, %k: tensor<6x2x4x4xf32>, %v: tensor<6x2x4x4xf32>, %bias: tensor<2x4x4xf32>, %mask: tensor<3x4x4xf32>) -> tensor<6x2x4x4xf32> {
  %kt = kiln.transpose %k permutation = [0, 1, 3, 2] : tensor<6x2x4x4xf32>
  %s = kiln.matmul %q, %kt : tensor<6x2x4x4xf32>, tensor<6x2x4x4xf32>
  %b = kiln.broadcast_in_dim %bias dims = [1, 2, 3] sizes = [6, 2, 4, 4] : tensor<2x4x4xf32>
  %0 = kiln.add %s, %b : tensor<6x2x4x4xf32>
  %1 = kiln.reshape %0 sizes = [2, 3, 2, 4, 4] : tensor<6x2x4x4xf32>
  %m = kiln.broadcast_in_dim %mask dims = [1, 3, 4] sizes = [2, 3, 2, 4, 4] : tensor<3x4x4xf32>
  %2 = kiln.add %1, %m : tensor<2x3x2x4x4xf32>
  %3 = kiln.reshape %2 sizes = [6, 2, 4, 4] : tensor<2x3x2x4x4xf32>
  %4 = kiln.softmax %3 axis = 3 : tensor<6x2x4x4xf32>
  %r = kiln.matmul %4, %v : tensor<6x2x4x4xf32>, tensor<6x2x4x4xf32>
  return %r : tensor<6x2x4x4xf32>
}

// -----
// Heads behind tokens, as einsum has them.
// CASE: heads_behind_tokens
// CHECK: kiln.attention
// IMPLICIT-CHECK-NOT: kiln.dot_general
func.func @f(%q: tensor<2x8x3x4xf32>, %k: tensor<2x9x3x4xf32>, %v: tensor<2x9x3x4xf32>) -> tensor<2x8x3x4xf32> {
  %s = kiln.dot_general %q, %k batch = [0, 2] x [0, 2] contract = [3] x [3] : tensor<2x8x3x4xf32>, tensor<2x9x3x4xf32>
  %1 = kiln.softmax %s axis = 3 : tensor<2x3x8x9xf32>
  %r = kiln.dot_general %1, %v batch = [0, 1] x [0, 2] contract = [3] x [1] : tensor<2x3x8x9xf32>, tensor<2x9x3x4xf32>
  %t = kiln.transpose %r permutation = [0, 2, 1, 3] : tensor<2x3x8x4xf32>
  return %t : tensor<2x8x3x4xf32>
}

// -----
// Batch and heads are one dimension in the products, and two around the softmax.
// CASE: flattened_heads
// CHECK: kiln.attention %{{.*}} : tensor<2x3x8x4xf32>
func.func @f(%q: tensor<2x3x8x4xf32>, %k: tensor<2x3x4x8xf32>, %v: tensor<2x3x8x4xf32>, %bias: tensor<2x1x1x8xf32>) -> tensor<2x3x8x4xf32> {
  %q3 = kiln.reshape %q sizes = [6, 8, 4] : tensor<2x3x8x4xf32>
  %k3 = kiln.reshape %k sizes = [6, 4, 8] : tensor<2x3x4x8xf32>
  %v3 = kiln.reshape %v sizes = [6, 8, 4] : tensor<2x3x8x4xf32>
  %s3 = kiln.matmul %q3, %k3 : tensor<6x8x4xf32>, tensor<6x4x8xf32>
  %s = kiln.reshape %s3 sizes = [2, 3, 8, 8] : tensor<6x8x8xf32>
  %b = kiln.broadcast_in_dim %bias dims = [0, 1, 2, 3] sizes = [2, 3, 8, 8] : tensor<2x1x1x8xf32>
  %0 = kiln.add %s, %b : tensor<2x3x8x8xf32>
  %1 = kiln.softmax %0 axis = 3 : tensor<2x3x8x8xf32>
  %p = kiln.reshape %1 sizes = [6, 8, 8] : tensor<2x3x8x8xf32>
  %r3 = kiln.matmul %p, %v3 : tensor<6x8x8xf32>, tensor<6x8x4xf32>
  %r = kiln.reshape %r3 sizes = [2, 3, 8, 4] : tensor<6x8x4xf32>
  return %r : tensor<2x3x8x4xf32>
}

// -----
// CASE: written_out_softmax
// CHECK: kiln.attention
// IMPLICIT-CHECK-NOT: kiln.exp
func.func @f(%q: tensor<2x8x4xf32>, %k: tensor<2x4x8xf32>, %v: tensor<2x8x4xf32>) -> tensor<2x8x4xf32> {
  %s = kiln.matmul %q, %k : tensor<2x8x4xf32>, tensor<2x4x8xf32>
  %max = kiln.reduce max %s dims = [2] : tensor<2x8x8xf32>
  %m1 = kiln.reshape %max sizes = [2, 8, 1] : tensor<2x8xf32>
  %m = kiln.broadcast_in_dim %m1 dims = [0, 1, 2] sizes = [2, 8, 8] : tensor<2x8x1xf32>
  %d = kiln.sub %s, %m : tensor<2x8x8xf32>
  %e = kiln.exp %d : tensor<2x8x8xf32>
  %sum = kiln.reduce sum %e dims = [2] : tensor<2x8x8xf32>
  %n = kiln.broadcast_in_dim %sum dims = [0, 1] sizes = [2, 8, 8] : tensor<2x8xf32>
  %p = kiln.div %e, %n : tensor<2x8x8xf32>
  %r = kiln.matmul %p, %v : tensor<2x8x8xf32>, tensor<2x8x4xf32>
  return %r : tensor<2x8x4xf32>
}

// -----
// As core ATen has scaled_dot_product_attention: fully masked rows are 0.
// CASE: safe_softmax
// CHECK: kiln.attention
// IMPLICIT-CHECK-NOT: unsafe_softmax
// IMPLICIT-CHECK-NOT: kiln.reduce
func.func @f(%q: tensor<2x8x4xf32>, %k: tensor<2x4x8xf32>, %v: tensor<2x8x4xf32>, %m: tensor<2x8x8xi1>) -> tensor<2x8x4xf32> {
  %0 = kiln.matmul %q, %k : tensor<2x8x4xf32>, tensor<2x4x8xf32>
  %low = kiln.splat [2, 8, 8], 0xFF800000 : f32
  %s = kiln.select %m, %0, %low : tensor<2x8x8xi1>, tensor<2x8x8xf32>
  %p = kiln.softmax %s axis = 2 : tensor<2x8x8xf32>
  %e = kiln.compare eq %s, %low : tensor<2x8x8xf32>
  %n = kiln.not %e : tensor<2x8x8xi1>
  %any = kiln.reduce any %n dims = [2] : tensor<2x8x8xi1>
  %none = kiln.not %any : tensor<2x8xi1>
  %row = kiln.reshape %none sizes = [2, 8, 1] : tensor<2x8xi1>
  %all = kiln.broadcast_in_dim %row dims = [0, 1, 2] sizes = [2, 8, 8] : tensor<2x8x1xi1>
  %zero = kiln.splat [2, 8, 8], 0.0 : f32
  %w = kiln.select %all, %zero, %p : tensor<2x8x8xi1>, tensor<2x8x8xf32>
  %r = kiln.matmul %w, %v : tensor<2x8x8xf32>, tensor<2x8x4xf32>
  return %r : tensor<2x8x4xf32>
}

// -----
// A dynamic batch and dynamic lengths.
// CASE: dynamic_sizes
// SIZES: b = 2, s = 8
// CHECK: kiln.attention %{{.*}} : tensor<?x3x?x4xf32>
func.func @f(%q: tensor<?x3x?x4xf32>, %k: tensor<?x3x?x4xf32>, %v: tensor<?x3x?x4xf32>, %m: tensor<?x?xi1>) -> tensor<?x3x?x4xf32> {
  %b = kiln.sym @b {min = 1 : i64, max = 8 : i64}
  %s = kiln.sym @s {min = 2 : i64, max = 64 : i64}
  kiln.bind_shape %q, [%b, 3, %s, 4] : tensor<?x3x?x4xf32>
  kiln.bind_shape %k, [%b, 3, %s, 4] : tensor<?x3x?x4xf32>
  kiln.bind_shape %v, [%b, 3, %s, 4] : tensor<?x3x?x4xf32>
  kiln.bind_shape %m, [%b, %s] : tensor<?x?xi1>
  %kt = kiln.transpose %k permutation = [0, 1, 3, 2] : tensor<?x3x?x4xf32>
  %0 = kiln.matmul %q, %kt : tensor<?x3x?x4xf32>, tensor<?x3x4x?xf32>
  %seen = kiln.broadcast_in_dim %m dims = [0, 3] sizes = [%b, 3, %s, %s] : tensor<?x?xi1>
  %low = kiln.splat [%b, 3, %s, %s], -1.0e30 : f32
  %1 = kiln.select %seen, %0, %low : tensor<?x3x?x?xi1>, tensor<?x3x?x?xf32>
  %2 = kiln.softmax %1 axis = 3 : tensor<?x3x?x?xf32>
  %r = kiln.matmul %2, %v : tensor<?x3x?x?xf32>, tensor<?x3x?x4xf32>
  return %r : tensor<?x3x?x4xf32>
}

// -----
// CASE: weights_are_a_result
// CHECK: kiln.not_fused = "attention not fused: its weights have another reader"
// IMPLICIT-CHECK-NOT: kiln.attention
func.func @f(%q: tensor<2x8x4xf32>, %k: tensor<2x4x8xf32>, %v: tensor<2x8x4xf32>) -> (tensor<2x8x4xf32>, tensor<2x8x8xf32>) {
  %s = kiln.matmul %q, %k : tensor<2x8x4xf32>, tensor<2x4x8xf32>
  %p = kiln.softmax %s axis = 2 : tensor<2x8x8xf32>
  %r = kiln.matmul %p, %v : tensor<2x8x8xf32>, tensor<2x8x4xf32>
  return %r, %p : tensor<2x8x4xf32>, tensor<2x8x8xf32>
}

// -----
// CASE: dropout_of_weights
// CHECK: kiln.not_fused = "attention not fused: its weights have dropout"
func.func @f(%q: tensor<2x8x4xf32>, %k: tensor<2x4x8xf32>, %v: tensor<2x8x4xf32>, %key: tensor<2xi64>) -> tensor<2x8x4xf32> {
  %s = kiln.matmul %q, %k : tensor<2x8x4xf32>, tensor<2x4x8xf32>
  %p = kiln.softmax %s axis = 2 : tensor<2x8x8xf32>
  %d = kiln.dropout %p key %key p = 1.000000e-01 : tensor<2x8x8xf32>
  %r = kiln.matmul %d, %v : tensor<2x8x8xf32>, tensor<2x8x4xf32>
  return %r : tensor<2x8x4xf32>
}

// -----
// RUN: kiln-raise-attention{chip=sm_90a}
// CASE: no_kernel_for_f32
// CHECK: kiln.not_fused = "attention not fused: its element type is neither bf16 nor f16"
func.func @f(%q: tensor<2x8x16xf32>, %k: tensor<2x16x8xf32>, %v: tensor<2x8x16xf32>) -> tensor<2x8x16xf32> {
  %s = kiln.matmul %q, %k : tensor<2x8x16xf32>, tensor<2x16x8xf32>
  %p = kiln.softmax %s axis = 2 : tensor<2x8x8xf32>
  %r = kiln.matmul %p, %v : tensor<2x8x8xf32>, tensor<2x8x16xf32>
  return %r : tensor<2x8x16xf32>
}

// -----
// Of the queries, not of the keys.
// CASE: softmax_of_columns
// CHECK: kiln.softmax
// IMPLICIT-CHECK-NOT: kiln.attention
func.func @f(%q: tensor<2x8x4xf32>, %k: tensor<2x4x8xf32>, %v: tensor<2x8x4xf32>) -> tensor<2x8x4xf32> {
  %s = kiln.matmul %q, %k : tensor<2x8x4xf32>, tensor<2x4x8xf32>
  %p = kiln.softmax %s axis = 1 : tensor<2x8x8xf32>
  %r = kiln.matmul %p, %v : tensor<2x8x8xf32>, tensor<2x8x4xf32>
  return %r : tensor<2x8x4xf32>
}
