// RUN: kiln-winograd{image-byte=0 weight-byte=0 channels=1}

// Six pixels by ten are one tile of four by two of them; the weight is transformed from a constant.
// CASE: whole_tiles
// CHECK: kiln.winograd_input %arg0 tile = 4 : tensor<1x6x10x3xf32>
// CHECK: batch = [0] x [0] contract = [2] x [1] : tensor<36x2x3xf32>, tensor<36x3x2xf32>
// CHECK: kiln.winograd_output
// IMPLICIT-CHECK-NOT: kiln.convolution
// IMPLICIT-CHECK-NOT: kiln.slice
module {
  kiln.global "private" @w : tensor<2x3x3x3xf32> from "w#w"
  func.func @main(%x: tensor<1x6x10x3xf32>) -> tensor<1x4x8x2xf32> {
    %w = kiln.get_global @w : tensor<2x3x3x3xf32>
    %0 = kiln.transpose %x permutation = [0, 3, 1, 2] : tensor<1x6x10x3xf32>
    %1 = kiln.convolution %0, %w strides = [1, 1] pad = [0, 0] x [0, 0] dilation = [1, 1] : tensor<1x3x6x10xf32>, tensor<2x3x3x3xf32>
    %2 = kiln.transpose %1 permutation = [0, 2, 3, 1] : tensor<1x2x4x8xf32>
    return %2 : tensor<1x4x8x2xf32>
  }
}

// -----
// Five results by seven take two tiles of four each way: the padding grows, and a slice takes them.
// CASE: padding_grows
// CHECK: kiln.pad %arg0, {{.*}} low = [0, 1, 1, 0] high = [0, 4, 2, 0]
// CHECK: kiln.slice {{.*}} sizes = [2, 5, 7, 2]
// IMPLICIT-CHECK-NOT: kiln.convolution
module {
  kiln.global "private" @w : tensor<2x3x3x3xf32> from "w#w"
  func.func @main(%x: tensor<2x5x7x3xf32>) -> tensor<2x2x5x7xf32> {
    %w = kiln.get_global @w : tensor<2x3x3x3xf32>
    %zero = kiln.splat [], 0.0 : f32
    %p = kiln.pad %x, %zero low = [0, 1, 1, 0] high = [0, 1, 1, 0] : tensor<2x5x7x3xf32>, tensor<f32>
    %0 = kiln.transpose %p permutation = [0, 3, 1, 2] : tensor<2x7x9x3xf32>
    %1 = kiln.convolution %0, %w strides = [1, 1] pad = [0, 0] x [0, 0] dilation = [1, 1] : tensor<2x3x7x9xf32>, tensor<2x3x3x3xf32>
    return %1 : tensor<2x2x5x7xf32>
  }
}

// -----
// Two results each way are a tile of two: a tile of four would be mostly zeros.
// CASE: small_tile
// CHECK: kiln.winograd_input {{.*}} tile = 2 : tensor<1x4x4x2xf32>
module {
  kiln.global "private" @w : tensor<2x2x3x3xf32> from "w#w"
  func.func @main(%x: tensor<1x4x4x2xf32>) -> tensor<1x2x2x2xf32> {
    %w = kiln.get_global @w : tensor<2x2x3x3xf32>
    %0 = kiln.transpose %x permutation = [0, 3, 1, 2] : tensor<1x4x4x2xf32>
    %1 = kiln.convolution %0, %w strides = [1, 1] pad = [0, 0] x [0, 0] dilation = [1, 1] : tensor<1x2x4x4xf32>, tensor<2x2x3x3xf32>
    return %1 : tensor<1x2x2x2xf32>
  }
}

// -----
// A stride, a dilation, groups and an unknown number of images keep the direct form.
// CASE: other_convolutions
// CHECK-COUNT-4: kiln.convolution
// IMPLICIT-CHECK-NOT: kiln.winograd
func.func @f(%x: tensor<1x6x6x2xf32>, %y: tensor<?x6x6x2xf32>, %w: tensor<2x2x3x3xf32>, %g: tensor<2x1x3x3xf32>) -> (tensor<1x2x2x2xf32>, tensor<1x2x2x2xf32>, tensor<1x2x4x4xf32>, tensor<?x2x4x4xf32>) {
  %0 = kiln.transpose %x permutation = [0, 3, 1, 2] : tensor<1x6x6x2xf32>
  %1 = kiln.transpose %y permutation = [0, 3, 1, 2] : tensor<?x6x6x2xf32>
  %2 = kiln.convolution %0, %w strides = [2, 2] pad = [0, 0] x [0, 0] dilation = [1, 1] : tensor<1x2x6x6xf32>, tensor<2x2x3x3xf32>
  %3 = kiln.convolution %0, %w strides = [1, 1] pad = [0, 0] x [0, 0] dilation = [2, 2] : tensor<1x2x6x6xf32>, tensor<2x2x3x3xf32>
  %4 = kiln.convolution %0, %g strides = [1, 1] pad = [0, 0] x [0, 0] dilation = [1, 1] {groups = 2 : i64} : tensor<1x2x6x6xf32>, tensor<2x1x3x3xf32>
  %5 = kiln.convolution %1, %w strides = [1, 1] pad = [0, 0] x [0, 0] dilation = [1, 1] : tensor<?x2x6x6xf32>, tensor<2x2x3x3xf32>
  return %2, %3, %4, %5 : tensor<1x2x2x2xf32>, tensor<1x2x2x2xf32>, tensor<1x2x4x4xf32>, tensor<?x2x4x4xf32>
}

// -----
// With the bytes at their price, one tile does not pay for a weight of 64 by 64.
// RUN: kiln-winograd
// CASE: large_weight
// CHECK: kiln.convolution
// IMPLICIT-CHECK-NOT: kiln.winograd
func.func @f(%x: tensor<1x4x4x64xf32>, %w: tensor<64x64x3x3xf32>) -> tensor<1x64x2x2xf32> {
  %0 = kiln.transpose %x permutation = [0, 3, 1, 2] : tensor<1x4x4x64xf32>
  %1 = kiln.convolution %0, %w strides = [1, 1] pad = [0, 0] x [0, 0] dilation = [1, 1] : tensor<1x64x4x4xf32>, tensor<64x64x3x3xf32>
  return %1 : tensor<1x64x2x2xf32>
}
