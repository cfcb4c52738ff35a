// RUN: kiln-layout{flops=0}

// One transpose before, one after; the residual is added channels-last.
// CASE: residual_block
// CHECK: kiln.memory_format = "channels last"
// CHECK: kiln.pad %
// CHECK: permutation = [0, 3, 1, 2]
module {
  kiln.global "private" @w : tensor<2x2x3x3xf32> from "w#w"
  kiln.global "private" @b : tensor<2xf32> from "w#b"
  func.func @main(%x: tensor<1x2x4x4xf32>) -> tensor<1x2x4x4xf32> {
    %w = kiln.get_global @w : tensor<2x2x3x3xf32>
    %b = kiln.get_global @b : tensor<2xf32>
    %zero = kiln.splat [], 0.0 : f32
    %zeros = kiln.splat [1, 2, 4, 4], 0.0 : f32
    %bias = kiln.broadcast_in_dim %b dims = [1] sizes = [1, 2, 4, 4] : tensor<2xf32>
    %p = kiln.pad %x, %zero low = [0, 0, 1, 1] high = [0, 0, 1, 1] : tensor<1x2x4x4xf32>, tensor<f32>
    %0 = kiln.convolution %p, %w strides = [1, 1] pad = [0, 0] x [0, 0] dilation = [1, 1] : tensor<1x2x6x6xf32>, tensor<2x2x3x3xf32>
    %1 = kiln.add %0, %bias : tensor<1x2x4x4xf32>
    %2 = kiln.max %1, %zeros : tensor<1x2x4x4xf32>
    %q = kiln.pad %2, %zero low = [0, 0, 1, 1] high = [0, 0, 1, 1] : tensor<1x2x4x4xf32>, tensor<f32>
    %3 = kiln.convolution %q, %w strides = [1, 1] pad = [0, 0] x [0, 0] dilation = [1, 1] : tensor<1x2x6x6xf32>, tensor<2x2x3x3xf32>
    %4 = kiln.add %3, %x : tensor<1x2x4x4xf32>
    return %4 : tensor<1x2x4x4xf32>
  }
}

// -----
// Pools, channel concatenation, and a mean over height and width need no transposes.
// CASE: pool_concat_and_mean
// CHECK: axis = 3
// CHECK: window = [1, 2, 2, 1]
// CHECK: kiln.reduce sum
module {
  kiln.global "private" @w : tensor<3x2x1x1xf32> from "w#w"
  func.func @main(%x: tensor<2x2x4x4xf32>) -> tensor<2x5xf32> {
    %w = kiln.get_global @w : tensor<3x2x1x1xf32>
    %0 = kiln.convolution %x, %w strides = [1, 1] pad = [0, 0] x [0, 0] dilation = [1, 1] : tensor<2x2x4x4xf32>, tensor<3x2x1x1xf32>
    %1 = kiln.concat %0, %x axis = 1 : tensor<2x3x4x4xf32>, tensor<2x2x4x4xf32>
    %2 = kiln.reduce_window max %1 window = [1, 1, 2, 2] strides = [1, 1, 2, 2] pad = [0, 0, 0, 0] x [0, 0, 0, 0] dilation = [1, 1, 1, 1] : tensor<2x5x4x4xf32>
    %3 = kiln.reduce sum %2 dims = [2, 3] : tensor<2x5x2x2xf32>
    return %3 : tensor<2x5xf32>
  }
}

// -----
// A gate per channel, as in squeeze-and-excitation, around a depthwise convolution.
// CASE: gate
// CHECK: kiln.reduce sum {{.*}} dims = [1, 2] : tensor<2x2x2x4xf32>
// CHECK: kiln.mul {{.*}} : tensor<2x2x2x4xf32>
module {
  kiln.global "private" @d : tensor<4x1x2x2xf32> from "w#d"
  kiln.global "private" @w : tensor<4x4x1x1xf32> from "w#w"
  func.func @main(%x: tensor<2x4x3x3xf32>) -> tensor<2x4x2x2xf32> {
    %d = kiln.get_global @d : tensor<4x1x2x2xf32>
    %w = kiln.get_global @w : tensor<4x4x1x1xf32>
    %0 = kiln.convolution %x, %d strides = [1, 1] pad = [0, 0] x [0, 0] dilation = [1, 1] {groups = 4 : i64} : tensor<2x4x3x3xf32>, tensor<4x1x2x2xf32>
    %1 = kiln.reduce sum %0 dims = [2, 3] : tensor<2x4x2x2xf32>
    %2 = kiln.reshape %1 sizes = [2, 4, 1, 1] : tensor<2x4xf32>
    %3 = kiln.convolution %2, %w strides = [1, 1] pad = [0, 0] x [0, 0] dilation = [1, 1] : tensor<2x4x1x1xf32>, tensor<4x4x1x1xf32>
    %4 = kiln.broadcast_in_dim %3 dims = [0, 1, 2, 3] sizes = [2, 4, 2, 2] : tensor<2x4x1x1xf32>
    %5 = kiln.mul %0, %4 : tensor<2x4x2x2xf32>
    return %5 : tensor<2x4x2x2xf32>
  }
}

// -----
// Image patches to a sequence: the memory order is right already.
// CASE: patches
// CHECK: kiln.reshape {{.*}} sizes = [2, 4, 5] : tensor<2x2x2x5xf32>
// CHECK: kiln.reduce sum {{.*}} dims = [2] : tensor<2x2x2x5xf32>
module {
  kiln.global "private" @w : tensor<5x3x2x2xf32> from "w#w"
  func.func @main(%x: tensor<2x3x4x4xf32>) -> (tensor<2x4x5xf32>, tensor<2x5x4xf32>) {
    %w = kiln.get_global @w : tensor<5x3x2x2xf32>
    %0 = kiln.convolution %x, %w strides = [2, 2] pad = [0, 0] x [0, 0] dilation = [1, 1] : tensor<2x3x4x4xf32>, tensor<5x3x2x2xf32>
    %1 = kiln.reshape %0 sizes = [2, 5, 4] : tensor<2x5x2x2xf32>
    %2 = kiln.transpose %1 permutation = [0, 2, 1] : tensor<2x5x4xf32>
    %3 = kiln.reduce sum %0 dims = [3] : tensor<2x5x2x2xf32>
    %4 = kiln.concat %3, %3 axis = 2 : tensor<2x5x2xf32>, tensor<2x5x2xf32>
    return %2, %4 : tensor<2x4x5xf32>, tensor<2x5x4xf32>
  }
}

// -----
// CASE: not_profitable
// RUN: kiln-layout
// CHECK: kiln.memory_format = "as given: convolutions with frozen weights have 0 flops
// IMPLICIT-CHECK-NOT: kiln.transpose
module {
  kiln.global "private" mutable @w : tensor<2x2x1x1xf32> from "w#w"
  func.func @main(%x: tensor<1x2x2x2xf32>) -> tensor<1x2x2x2xf32> {
    %w = kiln.get_global mutable @w : tensor<2x2x1x1xf32>
    %0 = kiln.convolution %x, %w strides = [1, 1] pad = [0, 0] x [0, 0] dilation = [1, 1] : tensor<1x2x2x2xf32>, tensor<2x2x1x1xf32>
    return %0 : tensor<1x2x2x2xf32>
  }
}

// -----
// A GPU transposes an argument's weight in each call.
// CASE: mutable_weights
// RUN: kiln-layout{flops=0 mutable=true}
// CHECK: kiln.memory_format = "channels last"
// CHECK: kiln.transpose %{{.*}} permutation = [0, 2, 3, 1]
module {
  func.func @main(%x: tensor<1x2x2x2xf32>, %w: tensor<2x2x1x1xf32>) -> tensor<1x2x2x2xf32> {
    %0 = kiln.convolution %x, %w strides = [1, 1] pad = [0, 0] x [0, 0] dilation = [1, 1] : tensor<1x2x2x2xf32>, tensor<2x2x1x1xf32>
    return %0 : tensor<1x2x2x2xf32>
  }
}

// -----
// A volume and its mean, in NDHWC.
// CASE: volumes
// CHECK: permutation = [0, 2, 3, 4, 1]
// CHECK: kiln.reduce sum %
// CHECK: dims = [1, 2, 3]
module {
  kiln.global "private" @w : tensor<4x2x3x3x3xf32> from "w#w"
  func.func @main(%x: tensor<2x2x4x5x6xf32>) -> tensor<2x4xf32> {
    %w = kiln.get_global @w : tensor<4x2x3x3x3xf32>
    %zeros = kiln.splat [2, 4, 2, 3, 4], 0.0 : f32
    %0 = kiln.convolution %x, %w strides = [1, 1, 1] pad = [0, 0, 0] x [0, 0, 0] dilation = [1, 1, 1] : tensor<2x2x4x5x6xf32>, tensor<4x2x3x3x3xf32>
    %1 = kiln.max %0, %zeros : tensor<2x4x2x3x4xf32>
    %2 = kiln.reduce sum %1 dims = [2, 3, 4] : tensor<2x4x2x3x4xf32>
    return %2 : tensor<2x4xf32>
  }
}

// -----
// A sequence with a unit height: the height is dropped where the channels are last.
// CASE: sequences
// CHECK: kiln.reshape
// CHECK-SAME: tensor<?x1x6x4xf32>
module {
  kiln.global "private" @w : tensor<4x2x1x3xf32> from "w#w"
  func.func @main(%x: tensor<?x2x1x8xf32>) -> tensor<?x6x4xf32> {
    %n = kiln.sym @n
    kiln.bind_shape %x, [%n, 2, 1, 8] : tensor<?x2x1x8xf32>
    %w = kiln.get_global @w : tensor<4x2x1x3xf32>
    %0 = kiln.convolution %x, %w strides = [1, 1] pad = [0, 0] x [0, 0] dilation = [1, 1] : tensor<?x2x1x8xf32>, tensor<4x2x1x3xf32>
    %1 = kiln.reshape %0 sizes = [%n, 4, 6] : tensor<?x4x1x6xf32>
    %2 = kiln.transpose %1 permutation = [0, 2, 1] : tensor<?x4x6xf32>
    return %2 : tensor<?x6x4xf32>
  }
}

// -----
// RUN: kiln-layout
// CASE: arguments_are_channels_last
// CHECK: channels last, as arguments are
// CHECK: dims = [0, 1, 2]
// IMPLICIT-CHECK-NOT: permutation = [0, 2, 3, 1] : tensor<2x8x4x4xf32>
func.func @f(%x: tensor<2x4x4x8xf32>, %y: tensor<2x4x4x8xf32>, %s: tensor<8xf32>) -> (tensor<2x4x4x8xf32>, tensor<8xf32>) {
  %0 = kiln.transpose %x permutation = [0, 3, 1, 2] : tensor<2x4x4x8xf32>
  %1 = kiln.transpose %y permutation = [0, 3, 1, 2] : tensor<2x4x4x8xf32>
  %2 = kiln.mul %0, %1 : tensor<2x8x4x4xf32>
  %3 = kiln.reduce sum %2 dims = [0, 2, 3] : tensor<2x8x4x4xf32>
  %4 = kiln.broadcast_in_dim %s dims = [1] sizes = [2, 8, 4, 4] : tensor<8xf32>
  %5 = kiln.add %2, %4 : tensor<2x8x4x4xf32>
  %6 = kiln.transpose %5 permutation = [0, 2, 3, 1] : tensor<2x8x4x4xf32>
  return %6, %3 : tensor<2x4x4x8xf32>, tensor<8xf32>
}

// -----
// CASE: windows_that_are_gathered
// CHECK: dims = [1, 2] : tensor<2x4x4x8xf32>
// CHECK: kiln.reduce sum
// CHECK-SAME: dims = [3, 4]
func.func @f(%x: tensor<2x4x4x8xf32>, %i: tensor<3x3x2x2xi64>, %j: tensor<3x3x2x2xi64>) -> tensor<2x3x3x8xf32> {
  %0 = kiln.transpose %x permutation = [0, 3, 1, 2] : tensor<2x4x4x8xf32>
  %1 = kiln.gather %0[%i, %j] dims = [2, 3] : tensor<2x8x4x4xf32>[tensor<3x3x2x2xi64>, tensor<3x3x2x2xi64>]
  %2 = kiln.transpose %1 permutation = [4, 5, 0, 1, 2, 3] : tensor<3x3x2x2x2x8xf32>
  %3 = kiln.neg %2 : tensor<2x8x3x3x2x2xf32>
  %4 = kiln.reduce sum %3 dims = [4, 5] : tensor<2x8x3x3x2x2xf32>
  %5 = kiln.transpose %4 permutation = [0, 2, 3, 1] : tensor<2x8x3x3xf32>
  return %5 : tensor<2x3x3x8xf32>
}

// -----
// What is not gathered keeps its order, so that rows of it stay channels first.
// CASE: rows_that_are_gathered
// CHECK: kiln.gather %0[
func.func @f(%x: tensor<5x6x3x2xf32>, %i: tensor<3xi64>) -> tensor<3x2x6x3xf32> {
  %0 = kiln.transpose %x permutation = [0, 3, 1, 2] : tensor<5x6x3x2xf32>
  %1 = kiln.gather %0[%i] dims = [0] : tensor<5x2x6x3xf32>[tensor<3xi64>]
  return %1 : tensor<3x2x6x3xf32>
}

// -----
// The pixels of windows that do not overlap: dimensions behind the channels are split and joined.
// CASE: windows_that_are_spread
// CHECK: kiln.broadcast_in_dim %arg0 dims = [0, 1, 3, 5] sizes = [2, 3, 2, 3, 2, 8]
// CHECK: kiln.reshape %{{.*}} sizes = [2, 6, 6, 8]
// CHECK: kiln.mul %{{.*}} : tensor<2x6x6x8xf32>
func.func @f(%g: tensor<2x3x3x8xf32>, %y: tensor<2x6x6x8xf32>) -> tensor<2x6x6x8xf32> {
  %0 = kiln.transpose %g permutation = [0, 3, 1, 2] : tensor<2x3x3x8xf32>
  %1 = kiln.broadcast_in_dim %0 dims = [0, 1, 2, 4] sizes = [2, 8, 3, 2, 3, 2] : tensor<2x8x3x3xf32>
  %2 = kiln.neg %1 : tensor<2x8x3x2x3x2xf32>
  %3 = kiln.reshape %2 sizes = [2, 8, 6, 6] : tensor<2x8x3x2x3x2xf32>
  %4 = kiln.transpose %y permutation = [0, 3, 1, 2] : tensor<2x6x6x8xf32>
  %5 = kiln.mul %3, %4 : tensor<2x8x6x6xf32>
  %6 = kiln.transpose %5 permutation = [0, 2, 3, 1] : tensor<2x8x6x6xf32>
  return %6 : tensor<2x6x6x8xf32>
}

// -----
// A reshape that takes from the channels reads them first.
// CASE: channels_that_are_split
// CHECK: kiln.transpose %arg0 permutation = [0, 3, 1, 2]
// CHECK: kiln.reshape %{{.*}} sizes = [4, 4, 3, 3]
func.func @f(%x: tensor<2x3x3x8xf32>) -> tensor<4x4x3x3xf32> {
  %0 = kiln.transpose %x permutation = [0, 3, 1, 2] : tensor<2x3x3x8xf32>
  %1 = kiln.reshape %0 sizes = [4, 4, 3, 3] : tensor<2x8x3x3xf32>
  %2 = kiln.neg %1 : tensor<4x4x3x3xf32>
  return %2 : tensor<4x4x3x3xf32>
}

// -----
// Rows of pixels are an image with channels last, and its result is rows again, without transposes
// of either.
// CASE: rows_of_pixels
// CHECK: kiln.reshape %arg0 sizes = [2, 3, 4, 8]
// CHECK: permutation = [0, 3, 1, 2]
// CHECK: kiln.reshape %{{.*}} sizes = [2, 12, 8] : tensor<2x3x4x8xf32>
// CHECK: kiln.tanh
module {
  kiln.global "private" @w : tensor<8x8x1x1xf32> from "w#w"
  func.func @f(%x: tensor<2x12x8xf32>) -> tensor<2x12x8xf32> {
    %w = kiln.get_global @w : tensor<8x8x1x1xf32>
    %0 = kiln.transpose %x permutation = [0, 2, 1] : tensor<2x12x8xf32>
    %1 = kiln.reshape %0 sizes = [2, 8, 3, 4] : tensor<2x8x12xf32>
    %2 = kiln.convolution %1, %w strides = [1, 1] pad = [0, 0] x [0, 0] dilation = [1, 1] : tensor<2x8x3x4xf32>, tensor<8x8x1x1xf32>
    %3 = kiln.reshape %2 sizes = [2, 8, 12] : tensor<2x8x3x4xf32>
    %4 = kiln.transpose %3 permutation = [0, 2, 1] : tensor<2x8x12xf32>
    %5 = kiln.tanh %4 : tensor<2x12x8xf32>
    return %5 : tensor<2x12x8xf32>
  }
}

// -----
// The same of an unknown number of images, whose pixels are known.
// CASE: rows_of_dynamic_images
// CHECK: kiln.reshape %arg0 sizes = [%{{.*}}, 3, 4, 8]
module {
  kiln.global "private" @w : tensor<8x8x1x1xf32> from "w#w"
  func.func @f(%x: tensor<?x12x8xf32>) -> tensor<?x12x8xf32> {
    %n = kiln.sym @n {min = 1 : i64}
    kiln.bind_shape %x, [%n, 12, 8] : tensor<?x12x8xf32>
    %w = kiln.get_global @w : tensor<8x8x1x1xf32>
    %0 = kiln.transpose %x permutation = [0, 2, 1] : tensor<?x12x8xf32>
    %1 = kiln.reshape %0 sizes = [%n, 8, 3, 4] : tensor<?x8x12xf32>
    %2 = kiln.convolution %1, %w strides = [1, 1] pad = [0, 0] x [0, 0] dilation = [1, 1] : tensor<?x8x3x4xf32>, tensor<8x8x1x1xf32>
    %3 = kiln.reshape %2 sizes = [%n, 8, 12] : tensor<?x8x3x4xf32>
    %4 = kiln.transpose %3 permutation = [0, 2, 1] : tensor<?x8x12xf32>
    return %4 : tensor<?x12x8xf32>
  }
}

// -----
// Packing a mutable weight in each call costs as much as so many operations for each of its bytes:
// 4 MFLOP repay 55 kB, and 28 kFLOP of one pixel do not.
// CASE: mutable_weights_that_repay_packing
// RUN: kiln-layout{flops=0 mutable=true weight-byte=20}
// CHECK: kiln.memory_format = "channels last"
// CHECK: kiln.memory_format = "as given: convolutions have 27648 flops, which are fewer than 1105920"
module {
  func.func @main(%x: tensor<1x32x14x14xf32>, %w: tensor<48x32x3x3xf32>) -> tensor<1x48x12x12xf32> {
    %0 = kiln.convolution %x, %w strides = [1, 1] pad = [0, 0] x [0, 0] dilation = [1, 1] : tensor<1x32x14x14xf32>, tensor<48x32x3x3xf32>
    return %0 : tensor<1x48x12x12xf32>
  }
  func.func @pixel(%x: tensor<1x32x3x3xf32>, %w: tensor<48x32x3x3xf32>) -> tensor<1x48x1x1xf32> {
    %0 = kiln.convolution %x, %w strides = [1, 1] pad = [0, 0] x [0, 0] dilation = [1, 1] : tensor<1x32x3x3xf32>, tensor<48x32x3x3xf32>
    return %0 : tensor<1x48x1x1xf32>
  }
}

// -----
// Phases of pixels that are put beside each other, as in the gradient of a strided convolution: the
// innermost channels stay so.
// CASE: phases_of_pixels
// RUN: kiln-layout{flops=0 mutable=true}
// CHECK: kiln.reshape %{{.*}} sizes = [2, 3, 4, 2, 2, 8] : tensor<2x3x4x32xf32>
// CHECK: kiln.transpose %{{.*}} permutation = [0, 1, 3, 2, 4, 5]
// CHECK: kiln.tanh %{{.*}} : tensor<2x6x8x8xf32>
func.func @f(%x: tensor<2x8x3x4xf32>, %w: tensor<32x8x1x1xf32>) -> tensor<2x8x6x8xf32> {
  %0 = kiln.convolution %x, %w strides = [1, 1] pad = [0, 0] x [0, 0] dilation = [1, 1] : tensor<2x8x3x4xf32>, tensor<32x8x1x1xf32>
  %1 = kiln.reshape %0 sizes = [2, 2, 2, 8, 3, 4] : tensor<2x32x3x4xf32>
  %2 = kiln.transpose %1 permutation = [0, 3, 4, 1, 5, 2] : tensor<2x2x2x8x3x4xf32>
  %3 = kiln.reshape %2 sizes = [2, 8, 6, 8] : tensor<2x8x3x2x4x2xf32>
  %4 = kiln.tanh %3 : tensor<2x8x6x8xf32>
  return %4 : tensor<2x8x6x8xf32>
}

// -----
// The same of four groups of two channels.
// CASE: phases_of_groups
// RUN: kiln-layout{flops=0 mutable=true}
// CHECK: kiln.reshape %{{.*}} sizes = [2, 3, 4, 4, 2, 2, 2] : tensor<2x3x4x32xf32>
// CHECK: kiln.transpose %{{.*}} permutation = [0, 1, 4, 2, 5, 3, 6]
// CHECK: kiln.tanh %{{.*}} : tensor<2x6x8x8xf32>
func.func @f(%x: tensor<2x8x3x4xf32>, %w: tensor<32x8x1x1xf32>) -> tensor<2x8x6x8xf32> {
  %0 = kiln.convolution %x, %w strides = [1, 1] pad = [0, 0] x [0, 0] dilation = [1, 1] : tensor<2x8x3x4xf32>, tensor<32x8x1x1xf32>
  %1 = kiln.reshape %0 sizes = [2, 4, 2, 2, 2, 3, 4] : tensor<2x32x3x4xf32>
  %2 = kiln.transpose %1 permutation = [0, 1, 4, 5, 2, 6, 3] : tensor<2x4x2x2x2x3x4xf32>
  %3 = kiln.reshape %2 sizes = [2, 8, 6, 8] : tensor<2x4x2x3x2x4x2xf32>
  %4 = kiln.tanh %3 : tensor<2x8x6x8xf32>
  return %4 : tensor<2x8x6x8xf32>
}
