// RUN: kiln-expose-padding

// CASE: convolution
// CHECK: kiln.pad
// CHECK: pad = [0, 0] x [0, 0]
func.func @f(%x: tensor<1x2x5x5xf32>, %w: tensor<3x2x3x3xf32>) -> tensor<1x3x5x5xf32> {
  %0 = kiln.convolution %x, %w strides = [1, 1] pad = [1, 1] x [1, 1] dilation = [1, 1] : tensor<1x2x5x5xf32>, tensor<3x2x3x3xf32>
  return %0 : tensor<1x3x5x5xf32>
}

// -----
// CASE: no_padding_no_pad
// CHECK-NOT: kiln.pad
func.func @f(%x: tensor<1x2x5x5xf32>, %w: tensor<3x2x3x3xf32>) -> tensor<1x3x3x3xf32> {
  %0 = kiln.convolution %x, %w strides = [1, 1] pad = [0, 0] x [0, 0] dilation = [1, 1] : tensor<1x2x5x5xf32>, tensor<3x2x3x3xf32>
  return %0 : tensor<1x3x3x3xf32>
}

// -----
// The identity of a maximum, not 0.
// CASE: window
// CHECK: 0xFF800000
func.func @f(%x: tensor<1x4x4xf32>) -> tensor<1x3x3xf32> {
  %0 = kiln.reduce_window max %x window = [1, 2, 2] strides = [1, 2, 2] pad = [0, 1, 1] x [0, 1, 1] dilation = [1, 1, 1] : tensor<1x4x4xf32>
  return %0 : tensor<1x3x3xf32>
}

// -----
// CASE: transposed_convolution
// CHECK-NOT: transposed
// CHECK: kiln.reverse
func.func @f(%x: tensor<1x2x3x3xf32>, %w: tensor<2x3x3x3xf32>) -> tensor<1x3x6x6xf32> {
  %0 = kiln.convolution transposed %x, %w strides = [2, 2] pad = [1, 1] x [1, 1] dilation = [1, 1] {output_padding = array<i64: 1, 1>} : tensor<1x2x3x3xf32>, tensor<2x3x3x3xf32>
  return %0 : tensor<1x3x6x6xf32>
}
