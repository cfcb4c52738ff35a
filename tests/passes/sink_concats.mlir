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
