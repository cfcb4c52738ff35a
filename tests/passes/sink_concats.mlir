// RUN: kiln-sink-concats,canonicalize,cse

// Rotary embedding: all operands split into halves, which are multiplied and added separately.
// CASE: rotary_embedding
// CHECK: kiln.add
// CHECK: kiln.concat
func.func @f(%x: tensor<2x?x8x64xbf16>, %cos: tensor<?x64xbf16>, %sin: tensor<?x64xbf16>) -> tensor<2x?x8x64xbf16> {
  %n = kiln.sym @n {min = 1}
  kiln.bind_shape %x, [2, %n, 8, 64] : tensor<2x?x8x64xbf16>
  kiln.bind_shape %cos, [%n, 64] : tensor<?x64xbf16>
  kiln.bind_shape %sin, [%n, 64] : tensor<?x64xbf16>
  %c = kiln.broadcast_in_dim %cos dims = [1, 3] sizes = [2, %n, 8, 64] : tensor<?x64xbf16>
  %s = kiln.broadcast_in_dim %sin dims = [1, 3] sizes = [2, %n, 8, 64] : tensor<?x64xbf16>
  %a = kiln.mul %x, %c : tensor<2x?x8x64xbf16>
  %l = kiln.slice %x offsets = [0, 0, 0, 0] sizes = [2, %n, 8, 32] strides = [1, 1, 1, 1] : tensor<2x?x8x64xbf16>
  %h = kiln.slice %x offsets = [0, 0, 0, 32] sizes = [2, %n, 8, 32] strides = [1, 1, 1, 1] : tensor<2x?x8x64xbf16>
  %m = kiln.neg %h : tensor<2x?x8x32xbf16>
  %r = kiln.concat %m, %l axis = 3 : tensor<2x?x8x32xbf16>, tensor<2x?x8x32xbf16>
  %b = kiln.mul %r, %s : tensor<2x?x8x64xbf16>
  %o = kiln.add %a, %b : tensor<2x?x8x64xbf16>
  return %o : tensor<2x?x8x64xbf16>
}

// -----
// Two concatenations with the same boundaries, another dtype, and a scalar.
// CASE: two_concatenations
// CHECK: kiln.concat
// CHECK: : tensor<16xi1>, tensor<32xi1>
func.func @f(%x: tensor<16xf32>, %y: tensor<32xf32>, %z: tensor<16xf32>, %w: tensor<32xf32>) -> tensor<48xi1> {
  %a = kiln.concat %x, %y axis = 0 : tensor<16xf32>, tensor<32xf32>
  %b = kiln.concat %z, %w axis = 0 : tensor<16xf32>, tensor<32xf32>
  %s = kiln.splat [48], 2.0 : f32
  %c = kiln.mul %a, %s : tensor<48xf32>
  %r = kiln.compare lt %c, %b : tensor<48xf32>
  return %r : tensor<48xi1>
}

// -----
// The matmul would have to be stored before the addition.
// CASE: epilogue_stays
// CHECK: kiln.concat %arg2, %arg3 axis = 1
// IMPLICIT-CHECK-NOT: kiln.slice
func.func @f(%x: tensor<16x8xf32>, %w: tensor<8x64xf32>, %a: tensor<16x32xf32>, %b: tensor<16x32xf32>) -> tensor<16x64xf32> {
  %p = kiln.dot_general %x, %w batch = [] x [] contract = [1] x [0] : tensor<16x8xf32>, tensor<8x64xf32>
  %c = kiln.concat %a, %b axis = 1 : tensor<16x32xf32>, tensor<16x32xf32>
  %r = kiln.add %p, %c : tensor<16x64xf32>
  return %r : tensor<16x64xf32>
}

// -----
// Another user wants the whole tensor; inputs of three elements are not vectorisable.
// CASE: not_sunk
// CHECK: : tensor<64xf32>
// IMPLICIT-CHECK-NOT: kiln.slice
func.func @f(%x: tensor<32xf32>, %y: tensor<32xf32>, %z: tensor<64xf32>, %u: tensor<16x3xf32>, %v: tensor<16x3xf32>) -> (tensor<64xf32>, tensor<64xf32>, tensor<16x6xf32>) {
  %c = kiln.concat %x, %y axis = 0 : tensor<32xf32>, tensor<32xf32>
  %a = kiln.add %c, %z : tensor<64xf32>
  %d = kiln.concat %u, %v axis = 1 : tensor<16x3xf32>, tensor<16x3xf32>
  %n = kiln.neg %d : tensor<16x6xf32>
  return %a, %c, %n : tensor<64xf32>, tensor<64xf32>, tensor<16x6xf32>
}

// -----
// A splat is read by the op and by what only the op reads: it dies once.
// CASE: a_splat_that_dies_with_its_reader
// CHECK-COUNT-2: kiln.select
func.func @f(%p: tensor<4x512xi1>, %q: tensor<4x512xi1>, %x: tensor<8x512xf32>) -> tensor<8x512xf32> {
  %c = kiln.concat %p, %q axis = 0 : tensor<4x512xi1>, tensor<4x512xi1>
  %z = kiln.splat [8, 512], 0.0 : f32
  %w = kiln.max %x, %z : tensor<8x512xf32>
  %r = kiln.select %c, %w, %z : tensor<8x512xi1>, tensor<8x512xf32>
  return %r : tensor<8x512xf32>
}

// -----
// Derivatives by queries, keys and values of one product, whose kernels store transposed results.
// CASE: stacked_results_that_are_transposed
// CHECK-COUNT-3: kiln.transpose {{.*}} permutation = [0, 2, 1, 3]
// CHECK: kiln.concat {{.*}} axis = 2
// IMPLICIT-CHECK-NOT: permutation = [1, 3, 0, 2, 4]
func.func @f(%q: tensor<2x3x5x16xbf16>, %k: tensor<2x3x5x16xbf16>, %v: tensor<2x3x5x16xbf16>, %c: tensor<2x3x5x16xbf16>, %l: tensor<2x3x5xf32>, %d: tensor<2x3x5xf32>) -> tensor<10x144xbf16> {
  %0 = kiln.attention_gradient %q, %k, %v, %c, %l, %d : tensor<2x3x5x16xbf16>, tensor<2x3x5x16xbf16>, tensor<2x3x5x16xbf16>, tensor<2x3x5x16xbf16>, tensor<2x3x5xf32>, tensor<2x3x5xf32>
  %1, %2 = kiln.attention_gradient by_keys %q, %k, %v, %c, %l, %d : tensor<2x3x5x16xbf16>, tensor<2x3x5x16xbf16>, tensor<2x3x5x16xbf16>, tensor<2x3x5x16xbf16>, tensor<2x3x5xf32>, tensor<2x3x5xf32>
  %3 = kiln.reshape %0 sizes = [1, 2, 3, 5, 16] : tensor<2x3x5x16xbf16>
  %4 = kiln.reshape %1 sizes = [1, 2, 3, 5, 16] : tensor<2x3x5x16xbf16>
  %5 = kiln.reshape %2 sizes = [1, 2, 3, 5, 16] : tensor<2x3x5x16xbf16>
  %6 = kiln.concat %3, %4, %5 axis = 0 : tensor<1x2x3x5x16xbf16>, tensor<1x2x3x5x16xbf16>, tensor<1x2x3x5x16xbf16>
  %7 = kiln.transpose %6 permutation = [1, 3, 0, 2, 4] : tensor<3x2x3x5x16xbf16>
  %8 = kiln.reshape %7 sizes = [10, 144] : tensor<2x5x3x3x16xbf16>
  return %8 : tensor<10x144xbf16>
}

// -----
// A product is concatenated with an argument, which would be transposed by itself.
// CASE: transposes_that_nothing_stores
// CHECK: kiln.transpose {{.*}} permutation = [1, 0]
// IMPLICIT-CHECK-NOT: axis = 1
func.func @f(%x: tensor<4x8xf32>, %y: tensor<8x16xf32>, %z: tensor<4x16xf32>) -> tensor<16x8xf32> {
  %0 = kiln.dot_general %x, %y batch = [] x [] contract = [1] x [0] : tensor<4x8xf32>, tensor<8x16xf32>
  %1 = kiln.concat %0, %z axis = 0 : tensor<4x16xf32>, tensor<4x16xf32>
  %2 = kiln.transpose %1 permutation = [1, 0] : tensor<8x16xf32>
  return %2 : tensor<16x8xf32>
}
