// RUN: kiln-expand-conv1d,canonicalize

// Two convolutions, with a bias, an activation and a pad between them.
// CASE: chain
// CHECK: strides = [1, 2] pad = [0, 1] x [0, 1]
// CHECK: kiln.max
// CHECK: low = [0, 0, 0, 3] high = [0, 0, 0, 0]
// CHECK: dilation = [1, 2]
module attributes {kiln.level = "prims"} {
func.func @f(%x: tensor<2x3x9xf32>, %w: tensor<8x3x3xf32>, %b: tensor<8xf32>, %v: tensor<8x2x2xf32>) -> tensor<2x8x6xf32> {
  %zero = kiln.splat [], 0.0 : f32
  %0 = kiln.convolution %x, %w strides = [2] pad = [1] x [1] dilation = [1] : tensor<2x3x9xf32>, tensor<8x3x3xf32>
  %1 = kiln.broadcast_in_dim %b dims = [1] sizes = [2, 8, 5] : tensor<8xf32>
  %2 = kiln.add %0, %1 : tensor<2x8x5xf32>
  %3 = kiln.splat [2, 8, 5], 0.0 : f32
  %4 = kiln.max %2, %3 : tensor<2x8x5xf32>
  %5 = kiln.pad %4, %zero low = [0, 0, 3] high = [0, 0, 0] : tensor<2x8x5xf32>, tensor<f32>
  %6 = kiln.convolution %5, %v strides = [1] pad = [0] x [0] dilation = [2] {groups = 4 : i64} : tensor<2x8x8xf32>, tensor<8x2x2xf32>
  return %6 : tensor<2x8x6xf32>
}
}

// -----
// A length of any size; the sum over it still reads three dimensions.
// CASE: dynamic_length
// CHECK: kiln.convolution
// CHECK: kiln.reduce sum
module attributes {kiln.level = "prims"} {
func.func @f(%x: tensor<2x3x?xf32>, %w: tensor<3x1x4xf32>) -> (tensor<2x3x?xf32>, tensor<2x3xf32>) {
  %s = kiln.sym @s {min = 4 : i64}
  kiln.bind_shape %x, [2, 3, %s] : tensor<2x3x?xf32>
  %0 = kiln.convolution %x, %w strides = [1] pad = [3] x [0] dilation = [1] {groups = 3 : i64} : tensor<2x3x?xf32>, tensor<3x1x4xf32>
  %1 = kiln.slice %0 offsets = [0, 0, 0] sizes = [2, 3, 2] strides = [1, 1, 1] : tensor<2x3x?xf32>
  %2 = kiln.exp %1 : tensor<2x3x2xf32>
  %3 = kiln.reduce sum %2 dims = [2] : tensor<2x3x2xf32>
  return %0, %3 : tensor<2x3x?xf32>, tensor<2x3xf32>
}
}

// -----
// A transposed convolution with output padding; two-dimensional ones stay as they are.
// CASE: transposed
// CHECK: transposed
// CHECK: output_padding = array<i64: 0, 1>
module attributes {kiln.level = "prims"} {
func.func @f(%x: tensor<2x4x5xf32>, %w: tensor<4x6x3xf32>, %y: tensor<1x4x5x5xf32>, %v: tensor<6x4x3x3xf32>) -> (tensor<2x6x12xf32>, tensor<1x6x3x3xf32>) {
  %0 = kiln.convolution transposed %x, %w strides = [2] pad = [0] x [0] dilation = [1] {output_padding = array<i64: 1>} : tensor<2x4x5xf32>, tensor<4x6x3xf32>
  %1 = kiln.convolution %y, %v strides = [1, 1] pad = [0, 0] x [0, 0] dilation = [1, 1] : tensor<1x4x5x5xf32>, tensor<6x4x3x3xf32>
  return %0, %1 : tensor<2x6x12xf32>, tensor<1x6x3x3xf32>
}
}
