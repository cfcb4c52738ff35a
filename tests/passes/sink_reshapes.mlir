// RUN: kiln-sink-reshapes,canonicalize

// The bias of each channel and the activation go above the reshape, which is a view of the result.
// CASE: activation
// CHECK: kiln.broadcast_in_dim %arg2 dims = [3] sizes = [2, 3, 4, 8]
// CHECK: kiln.tanh %{{.*}} : tensor<2x3x4x8xf32>
// CHECK: kiln.mul {{.*}} : tensor<2x3x4x8xf32>
// CHECK: kiln.reshape %{{.*}} sizes = [2, 12, 8]
// CHECK: return
func.func @f(%x: tensor<2x8x5x6xf32>, %w: tensor<8x8x3x3xf32>, %b: tensor<8xf32>) -> tensor<2x12x8xf32> {
  %0 = kiln.convolution %x, %w strides = [1, 1] pad = [0, 0] x [0, 0] dilation = [1, 1] : tensor<2x8x5x6xf32>, tensor<8x8x3x3xf32>
  %1 = kiln.transpose %0 permutation = [0, 2, 3, 1] : tensor<2x8x3x4xf32>
  %2 = kiln.reshape %1 sizes = [2, 12, 8] : tensor<2x3x4x8xf32>
  %3 = kiln.broadcast_in_dim %b dims = [2] sizes = [2, 12, 8] : tensor<8xf32>
  %4 = kiln.add %2, %3 : tensor<2x12x8xf32>
  %5 = kiln.tanh %4 : tensor<2x12x8xf32>
  %6 = kiln.splat [2, 12, 8], 2.000000e+00 : f32
  %7 = kiln.mul %5, %6 : tensor<2x12x8xf32>
  return %7 : tensor<2x12x8xf32>
}

// -----
// Two reshapes alike; a value that another op reads too is a view of its own.
// CASE: two_images
// CHECK: kiln.add %{{.*}} : tensor<1x3x3x8xf32>
// CHECK: kiln.reshape %{{.*}} sizes = [1, 9, 8]
// CHECK: kiln.tanh %{{.*}} : tensor<1x3x3x8xf32>
// CHECK: kiln.reshape %{{.*}} sizes = [1, 9, 8]
func.func @f(%x: tensor<1x8x5x5xf32>, %w: tensor<8x8x3x3xf32>, %y: tensor<1x3x3x8xf32>) -> (tensor<1x9x8xf32>, tensor<1x9x8xf32>) {
  %0 = kiln.convolution %x, %w strides = [1, 1] pad = [0, 0] x [0, 0] dilation = [1, 1] : tensor<1x8x5x5xf32>, tensor<8x8x3x3xf32>
  %1 = kiln.transpose %0 permutation = [0, 2, 3, 1] : tensor<1x8x3x3xf32>
  %2 = kiln.reshape %1 sizes = [1, 9, 8] : tensor<1x3x3x8xf32>
  %3 = kiln.reshape %y sizes = [1, 9, 8] : tensor<1x3x3x8xf32>
  %4 = kiln.add %2, %3 : tensor<1x9x8xf32>
  %5 = kiln.tanh %4 : tensor<1x9x8xf32>
  return %4, %5 : tensor<1x9x8xf32>, tensor<1x9x8xf32>
}

// -----
// CASE: dynamic
// CHECK: kiln.tanh %{{.*}} : tensor<?x3x4x8xf32>
// CHECK: kiln.reshape %{{.*}} sizes = [%{{.*}}, 12, 8] : tensor<?x3x4x8xf32>
func.func @f(%x: tensor<?x8x5x6xf32>, %w: tensor<8x8x3x3xf32>) -> tensor<?x12x8xf32> {
  %n = kiln.sym @n {min = 1 : i64}
  kiln.bind_shape %x, [%n, 8, 5, 6] : tensor<?x8x5x6xf32>
  %0 = kiln.convolution %x, %w strides = [1, 1] pad = [0, 0] x [0, 0] dilation = [1, 1] : tensor<?x8x5x6xf32>, tensor<8x8x3x3xf32>
  %1 = kiln.transpose %0 permutation = [0, 2, 3, 1] : tensor<?x8x3x4xf32>
  %2 = kiln.reshape %1 sizes = [%n, 12, 8] : tensor<?x3x4x8xf32>
  %3 = kiln.tanh %2 : tensor<?x12x8xf32>
  return %3 : tensor<?x12x8xf32>
}

// -----
// A conversion to wider floats stays with the reduction that reads it: the image is stored in bf16.
// CASE: widening
// CHECK: kiln.reshape %{{.*}} sizes = [1, 9, 8] : tensor<1x3x3x8xbf16>
// CHECK: kiln.convert %{{.*}} : tensor<1x9x8xbf16> to f32
// CHECK: kiln.reduce
func.func @f(%x: tensor<1x8x5x5xbf16>, %w: tensor<8x8x3x3xbf16>) -> tensor<1x9xf32> {
  %0 = kiln.convolution %x, %w strides = [1, 1] pad = [0, 0] x [0, 0] dilation = [1, 1] : tensor<1x8x5x5xbf16>, tensor<8x8x3x3xbf16>
  %1 = kiln.transpose %0 permutation = [0, 2, 3, 1] : tensor<1x8x3x3xbf16>
  %2 = kiln.reshape %1 sizes = [1, 9, 8] : tensor<1x3x3x8xbf16>
  %3 = kiln.convert %2 : tensor<1x9x8xbf16> to f32
  %4 = kiln.reduce sum %3 dims = [2] : tensor<1x9x8xf32>
  return %4 : tensor<1x9xf32>
}

// -----
// It is so below a reshape, too, once it is there.
// CASE: widening_above
// RUN: kiln-sink-conversions,kiln-sink-reshapes,canonicalize
// CHECK: kiln.reshape %{{.*}} sizes = [1, 9, 8] : tensor<1x3x3x8xbf16>
// CHECK: kiln.convert %{{.*}} : tensor<1x9x8xbf16> to f32
func.func @f(%x: tensor<1x8x5x5xbf16>, %w: tensor<8x8x3x3xbf16>, %y: tensor<1x9x8xf32>) -> tensor<1x9x8xf32> {
  %0 = kiln.convolution %x, %w strides = [1, 1] pad = [0, 0] x [0, 0] dilation = [1, 1] : tensor<1x8x5x5xbf16>, tensor<8x8x3x3xbf16>
  %1 = kiln.transpose %0 permutation = [0, 2, 3, 1] : tensor<1x8x3x3xbf16>
  %2 = kiln.convert %1 : tensor<1x3x3x8xbf16> to f32
  %3 = kiln.reshape %2 sizes = [1, 9, 8] : tensor<1x3x3x8xf32>
  %4 = kiln.add %3, %y : tensor<1x9x8xf32>
  return %4 : tensor<1x9x8xf32>
}

// -----
// The squares are computed where they are summed, and the image is stored once.
// CASE: squares_that_are_summed
// CHECK: kiln.reshape %{{.*}} sizes = [1, 9, 8] : tensor<1x3x3x8xbf16>
// CHECK: kiln.mul %{{.*}} : tensor<1x9x8xf32>
// CHECK: kiln.reduce
func.func @f(%x: tensor<1x8x5x5xbf16>, %w: tensor<8x8x3x3xbf16>) -> (tensor<1x9x8xbf16>, tensor<1x9xf32>) {
  %0 = kiln.convolution %x, %w strides = [1, 1] pad = [0, 0] x [0, 0] dilation = [1, 1] : tensor<1x8x5x5xbf16>, tensor<8x8x3x3xbf16>
  %1 = kiln.transpose %0 permutation = [0, 2, 3, 1] : tensor<1x8x3x3xbf16>
  %2 = kiln.reshape %1 sizes = [1, 9, 8] : tensor<1x3x3x8xbf16>
  %3 = kiln.convert %2 : tensor<1x9x8xbf16> to f32
  %4 = kiln.mul %3, %3 : tensor<1x9x8xf32>
  %5 = kiln.reduce sum %4 dims = [2] : tensor<1x9x8xf32>
  return %2, %5 : tensor<1x9x8xbf16>, tensor<1x9xf32>
}

// -----
// So is what reads them beside their sum: it has no form of the image's shape once they stay.
// CASE: norm_of_rows
// CHECK: kiln.reshape %{{.*}} sizes = [1, 9, 8] : tensor<1x1x9x8xbf16>
// CHECK: kiln.reduce
// CHECK: kiln.mul %{{.*}} : tensor<1x9x8xf32>
// CHECK: return
func.func @f(%x: tensor<1x8x1x11xbf16>, %w: tensor<8x8x1x3xbf16>) -> tensor<1x9x8xf32> {
  %0 = kiln.convolution %x, %w strides = [1, 1] pad = [0, 0] x [0, 0] dilation = [1, 1] : tensor<1x8x1x11xbf16>, tensor<8x8x1x3xbf16>
  %1 = kiln.transpose %0 permutation = [0, 2, 3, 1] : tensor<1x8x1x9xbf16>
  %2 = kiln.reshape %1 sizes = [1, 9, 8] : tensor<1x1x9x8xbf16>
  %3 = kiln.convert %2 : tensor<1x9x8xbf16> to f32
  %4 = kiln.mul %3, %3 : tensor<1x9x8xf32>
  %5 = kiln.reduce sum %4 dims = [2] : tensor<1x9x8xf32>
  %6 = kiln.broadcast_in_dim %5 dims = [0, 1] sizes = [1, 9, 8] : tensor<1x9xf32>
  %7 = kiln.mul %3, %6 : tensor<1x9x8xf32>
  return %7 : tensor<1x9x8xf32>
}

// -----
// A stored tensor, a broadcast along pixels, and what no convolution computes stay below.
// CASE: other_operands
// CHECK-COUNT-3: kiln.reshape %{{.*}} sizes = [1, 9, 8]
// CHECK: kiln.add %{{.*}} : tensor<1x9x8xf32>
// CHECK: kiln.mul %{{.*}} : tensor<1x9x8xf32>
// CHECK: kiln.tanh %{{.*}} : tensor<1x9x8xf32>
func.func @f(%x: tensor<1x8x5x5xf32>, %w: tensor<8x8x3x3xf32>, %y: tensor<1x9x8xf32>, %p: tensor<9xf32>, %z: tensor<1x3x3x8xf32>) -> (tensor<1x9x8xf32>, tensor<1x9x8xf32>, tensor<1x9x8xf32>) {
  %0 = kiln.convolution %x, %w strides = [1, 1] pad = [0, 0] x [0, 0] dilation = [1, 1] : tensor<1x8x5x5xf32>, tensor<8x8x3x3xf32>
  %1 = kiln.transpose %0 permutation = [0, 2, 3, 1] : tensor<1x8x3x3xf32>
  %2 = kiln.reshape %1 sizes = [1, 9, 8] : tensor<1x3x3x8xf32>
  %3 = kiln.reshape %1 sizes = [1, 9, 8] : tensor<1x3x3x8xf32>
  %4 = kiln.reshape %z sizes = [1, 9, 8] : tensor<1x3x3x8xf32>
  %5 = kiln.add %2, %y : tensor<1x9x8xf32>
  %6 = kiln.broadcast_in_dim %p dims = [1] sizes = [1, 9, 8] : tensor<9xf32>
  %7 = kiln.mul %3, %6 : tensor<1x9x8xf32>
  %8 = kiln.tanh %4 : tensor<1x9x8xf32>
  return %5, %7, %8 : tensor<1x9x8xf32>, tensor<1x9x8xf32>, tensor<1x9x8xf32>
}
