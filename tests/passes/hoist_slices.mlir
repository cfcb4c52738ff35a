// RUN: kiln-hoist-slices,canonicalize,cse

// The product of a rotary embedding's gradient, of which each half is read once.
// CASE: halves_of_a_product
// CHECK-COUNT-2: kiln.mul {{.*}} : tensor<2x?x8x32xbf16>
// IMPLICIT-CHECK-NOT: x64xbf16>{{$}}
func.func @f(%g: tensor<2x?x8x64xbf16>, %sin: tensor<?x64xf32>) -> (tensor<2x?x8x32xbf16>, tensor<2x?x8x32xbf16>) {
  %n = kiln.sym @n {min = 1}
  kiln.bind_shape %g, [2, %n, 8, 64] : tensor<2x?x8x64xbf16>
  kiln.bind_shape %sin, [%n, 64] : tensor<?x64xf32>
  %c = kiln.convert %sin : tensor<?x64xf32> to bf16
  %s = kiln.broadcast_in_dim %c dims = [1, 3] sizes = [2, %n, 8, 64] : tensor<?x64xbf16>
  %m = kiln.mul %g, %s : tensor<2x?x8x64xbf16>
  %l = kiln.slice %m offsets = [0, 0, 0, 0] sizes = [2, %n, 8, 32] strides = [1, 1, 1, 1] : tensor<2x?x8x64xbf16>
  %h = kiln.slice %m offsets = [0, 0, 0, 32] sizes = [2, %n, 8, 32] strides = [1, 1, 1, 1] : tensor<2x?x8x64xbf16>
  return %h, %l : tensor<2x?x8x32xbf16>, tensor<2x?x8x32xbf16>
}

// -----
// One slice rises above a chain; a scalar and a unit dimension have no slices of their own.
// CASE: one_slice_of_a_chain
// CHECK: kiln.slice %arg0 offsets = [4, 0] sizes = [4, 16]
// CHECK: kiln.add {{.*}} : tensor<4x16xf32>
func.func @f(%x: tensor<8x16xf32>, %y: tensor<1x16xf32>) -> tensor<4x16xf32> {
  %two = kiln.splat [8, 16], 2.0 : f32
  %b = kiln.broadcast_in_dim %y dims = [0, 1] sizes = [8, 16] : tensor<1x16xf32>
  %m = kiln.mul %x, %two : tensor<8x16xf32>
  %a = kiln.add %m, %b : tensor<8x16xf32>
  %s = kiln.slice %a offsets = [4, 0] sizes = [4, 16] strides = [1, 1] : tensor<8x16xf32>
  return %s : tensor<4x16xf32>
}

// -----
// Slices that overlap, another reader, narrow slices, and a matmul's epilogue.
// CASE: not_hoisted
// CHECK: kiln.exp %arg0 : tensor<16x32xf32>
// CHECK: kiln.exp %arg1 : tensor<16x32xf32>
// CHECK: kiln.exp %arg2
// CHECK: kiln.exp {{.*}} : tensor<16x32xf32>
func.func @f(%x: tensor<16x32xf32>, %y: tensor<16x32xf32>, %z: tensor<16x4xf32>, %w: tensor<32x32xf32>) -> (tensor<9x32xf32>, tensor<9x32xf32>, tensor<8x32xf32>, tensor<16x32xf32>, tensor<16x2xf32>, tensor<8x32xf32>) {
  %0 = kiln.exp %x : tensor<16x32xf32>
  %1 = kiln.slice %0 offsets = [0, 0] sizes = [9, 32] strides = [1, 1] : tensor<16x32xf32>
  %2 = kiln.slice %0 offsets = [7, 0] sizes = [9, 32] strides = [1, 1] : tensor<16x32xf32>
  %3 = kiln.exp %y : tensor<16x32xf32>
  %4 = kiln.slice %3 offsets = [0, 0] sizes = [8, 32] strides = [1, 1] : tensor<16x32xf32>
  %5 = kiln.exp %z : tensor<16x4xf32>
  %6 = kiln.slice %5 offsets = [0, 1] sizes = [16, 2] strides = [1, 1] : tensor<16x4xf32>
  %7 = kiln.dot_general %x, %w batch = [] x [] contract = [1] x [0] : tensor<16x32xf32>, tensor<32x32xf32>
  %8 = kiln.exp %7 : tensor<16x32xf32>
  %9 = kiln.slice %8 offsets = [0, 0] sizes = [8, 32] strides = [1, 1] : tensor<16x32xf32>
  return %1, %2, %4, %3, %6, %9 : tensor<9x32xf32>, tensor<9x32xf32>, tensor<8x32xf32>, tensor<16x32xf32>, tensor<16x2xf32>, tensor<8x32xf32>
}
