// RUN: kiln-weight-gradients{chip=sm_90a},canonicalize

// Images are split into as many parts as give all SMs a tile.
// CASE: window
// CHECK: kiln.convolution_weight_gradient
// CHECK-SAME: window = [3, 3] strides = [1, 1] pad = [1, 1] x [1, 1] dilation = [1, 1]
// CHECK: kiln.reduce sum
// IMPLICIT-CHECK-NOT: kiln.convolution %
// NO-RUN: its images are large; tests/compiled/ops.mlir has smaller ones
module {
  func.func @main(%x: tensor<64x64x28x28xbf16>, %g: tensor<64x128x28x28xbf16>) -> tensor<128x64x3x3xbf16> {
    %0 = kiln.transpose %x permutation = [1, 0, 2, 3] : tensor<64x64x28x28xbf16>
    %1 = kiln.transpose %g permutation = [1, 0, 2, 3] : tensor<64x128x28x28xbf16>
    %2 = kiln.convolution %0, %1 strides = [1, 1] pad = [1, 1] x [1, 1] dilation = [1, 1] : tensor<64x64x28x28xbf16>, tensor<128x64x28x28xbf16>
    %3 = kiln.transpose %2 permutation = [1, 0, 2, 3] : tensor<64x128x3x3xbf16>
    return %3 : tensor<128x64x3x3xbf16>
  }
}

// -----
// The stride of the convolution is the dilation of its gradient; what the stride leaves over is not
// computed. Three channels are padded to the 16 bytes that TMA reads, and the image with them, so that
// a row of the window is one row of channels.
// CASE: stride_of_few_channels
// CHECK: kiln.pad {{.*}} low = [0, 1, 1, 0] high = [0, 0, 0, 5]
// CHECK: kiln.convolution_weight_gradient
// CHECK-SAME: window = [3, 3] strides = [2, 2] pad = [0, 0] x [0, 0] dilation = [1, 1]
// CHECK: kiln.slice
// IMPLICIT-CHECK-NOT: kiln.convolution %
module {
  func.func @main(%x: tensor<2x3x18x18xf16>, %g: tensor<2x16x9x9xf16>) -> tensor<3x16x3x3xf16> {
    %2 = kiln.transpose %x permutation = [1, 0, 2, 3] : tensor<2x3x18x18xf16>
    %3 = kiln.transpose %g permutation = [1, 0, 2, 3] : tensor<2x16x9x9xf16>
    %0 = kiln.convolution %2, %3 strides = [1, 1] pad = [1, 1] x [0, 0] dilation = [2, 2] : tensor<3x2x18x18xf16>, tensor<16x2x9x9xf16>
    %1 = kiln.slice %0 offsets = [0, 0, 0, 0] sizes = [3, 16, 3, 3] strides = [1, 1, 1, 1] : tensor<3x16x3x3xf16>
    return %1 : tensor<3x16x3x3xf16>
  }
}

// -----
// A window of one pixel: the product of two matrices over all pixels.
// CASE: pixel
// CHECK: kiln.dot_general
// CHECK-SAME: contract = [0] x [0]
// IMPLICIT-CHECK-NOT: kiln.convolution
module {
  func.func @main(%x: tensor<2x3x4x5xbf16>, %g: tensor<2x8x3x4xbf16>) -> tensor<5x8x1x1xbf16> {
    %1 = kiln.transpose %x permutation = [3, 0, 1, 2] : tensor<2x3x4x5xbf16>
    %2 = kiln.transpose %g permutation = [1, 0, 2, 3] : tensor<2x8x3x4xbf16>
    %0 = kiln.convolution %1, %2 strides = [1, 1] pad = [0, 0] x [0, 0] dilation = [1, 1] : tensor<5x2x3x4xbf16>, tensor<8x2x3x4xbf16>
    return %0 : tensor<5x8x1x1xbf16>
  }
}

// -----
// Windows that do not overlap, as of an image's patches.
// CASE: patches
// CHECK: kiln.dot_general
// IMPLICIT-CHECK-NOT: kiln.convolution
module {
  func.func @main(%x: tensor<2x3x12x12xbf16>, %g: tensor<2x8x6x6xbf16>) -> tensor<3x8x2x2xbf16> {
    %2 = kiln.transpose %x permutation = [1, 0, 2, 3] : tensor<2x3x12x12xbf16>
    %3 = kiln.transpose %g permutation = [1, 0, 2, 3] : tensor<2x8x6x6xbf16>
    %0 = kiln.convolution %2, %3 strides = [1, 1] pad = [0, 0] x [0, 0] dilation = [2, 2] : tensor<3x2x12x12xbf16>, tensor<8x2x6x6xbf16>
    %1 = kiln.slice %0 offsets = [0, 0, 0, 0] sizes = [3, 8, 2, 2] strides = [1, 1, 1, 1] : tensor<3x8x2x2xbf16>
    return %1 : tensor<3x8x2x2xbf16>
  }
}

// -----
// A convolution of images, f32, groups, and filters that TMA cannot read stay.
// CASE: others
// CHECK-COUNT-4: kiln.convolution %
// IMPLICIT-CHECK-NOT: kiln.convolution_weight_gradient
module {
  func.func @main(%x: tensor<2x8x9x9xbf16>, %w: tensor<8x8x3x3xbf16>, %y: tensor<2x8x9x9xf32>, %z: tensor<4x8x9x9xbf16>, %u: tensor<2x8x9x9xbf16>, %t: tensor<4x5x9x9xbf16>) -> (tensor<2x8x9x9xbf16>, tensor<8x8x3x3xf32>, tensor<8x8x3x3xbf16>, tensor<8x5x3x3xbf16>) {
    %0 = kiln.convolution %x, %w strides = [1, 1] pad = [1, 1] x [1, 1] dilation = [1, 1] : tensor<2x8x9x9xbf16>, tensor<8x8x3x3xbf16>
    %1 = kiln.transpose %y permutation = [1, 0, 2, 3] : tensor<2x8x9x9xf32>
    %2 = kiln.convolution %1, %1 strides = [1, 1] pad = [1, 1] x [1, 1] dilation = [1, 1] : tensor<8x2x9x9xf32>, tensor<8x2x9x9xf32>
    %3 = kiln.transpose %z permutation = [1, 0, 2, 3] : tensor<4x8x9x9xbf16>
    %4 = kiln.transpose %u permutation = [1, 0, 2, 3] : tensor<2x8x9x9xbf16>
    %5 = kiln.convolution %3, %4 strides = [1, 1] pad = [1, 1] x [1, 1] dilation = [1, 1] {groups = 2 : i64} : tensor<8x4x9x9xbf16>, tensor<8x2x9x9xbf16>
    %6 = kiln.transpose %t permutation = [1, 0, 2, 3] : tensor<4x5x9x9xbf16>
    %7 = kiln.convolution %3, %6 strides = [1, 1] pad = [1, 1] x [1, 1] dilation = [1, 1] : tensor<8x4x9x9xbf16>, tensor<5x4x9x9xbf16>
    return %0, %2, %5, %7 : tensor<2x8x9x9xbf16>, tensor<8x8x3x3xf32>, tensor<8x8x3x3xbf16>, tensor<8x5x3x3xbf16>
  }
}

// -----
// Of a depthwise convolution each channel has a sum of its own, on any GPU: no tensor core computes
// it. The stride leaves a row of pixels over.
// CASE: depthwise
// CHECK: kiln.convolution_weight_gradient depthwise
// CHECK-SAME: window = [3, 3] strides = [2, 2] pad = [1, 1] x [0, 0] dilation = [1, 1] {splits = 4 : i64}
// CHECK: kiln.reduce sum
// IMPLICIT-CHECK-NOT: kiln.convolution %
module {
  func.func @main(%x: tensor<4x6x11x12xbf16>, %g: tensor<4x6x5x6xbf16>) -> tensor<6x1x3x3xbf16> {
    %0 = kiln.reshape %x sizes = [4, 6, 1, 11, 12] : tensor<4x6x11x12xbf16>
    %1 = kiln.transpose %0 permutation = [2, 1, 0, 3, 4] : tensor<4x6x1x11x12xbf16>
    %2 = kiln.reshape %1 sizes = [1, 24, 11, 12] : tensor<1x6x4x11x12xbf16>
    %3 = kiln.transpose %g permutation = [1, 0, 2, 3] : tensor<4x6x5x6xbf16>
    %4 = kiln.convolution %2, %3 strides = [1, 1] pad = [1, 1] x [0, 0] dilation = [2, 2] {groups = 6 : i64} : tensor<1x24x11x12xbf16>, tensor<6x4x5x6xbf16>
    %5 = kiln.slice %4 offsets = [0, 0, 0, 0] sizes = [1, 6, 3, 3] strides = [1, 1, 1, 1] : tensor<1x6x4x3xbf16>
    %6 = kiln.transpose %5 permutation = [1, 0, 2, 3] : tensor<1x6x3x3xbf16>
    return %6 : tensor<6x1x3x3xbf16>
  }
}

// -----
// Channels that a shuffle puts beside each other are split by one reshape with it.
// CASE: depthwise_after_a_shuffle
// CHECK: kiln.reshape {{.*}} sizes = [4, 6, 11, 12]
// CHECK: kiln.convolution_weight_gradient depthwise
// IMPLICIT-CHECK-NOT: kiln.convolution %
module {
  func.func @main(%x: tensor<4x3x2x11x12xbf16>, %g: tensor<4x6x11x12xbf16>) -> tensor<1x6x3x3xbf16> {
    %0 = kiln.reshape %x sizes = [4, 6, 1, 11, 12] : tensor<4x3x2x11x12xbf16>
    %1 = kiln.transpose %0 permutation = [2, 1, 0, 3, 4] : tensor<4x6x1x11x12xbf16>
    %2 = kiln.reshape %1 sizes = [1, 24, 11, 12] : tensor<1x6x4x11x12xbf16>
    %3 = kiln.transpose %g permutation = [1, 0, 2, 3] : tensor<4x6x11x12xbf16>
    %4 = kiln.convolution %2, %3 strides = [1, 1] pad = [1, 1] x [1, 1] dilation = [1, 1] {groups = 6 : i64} : tensor<1x24x11x12xbf16>, tensor<6x4x11x12xbf16>
    return %4 : tensor<1x6x3x3xbf16>
  }
}

// -----
// Groups of 4 channels: four become one of 16, and the blocks on the diagonal of its gradient remain.
// Of more pixels it would be one of 64, as wide as a tile; these have few CTAs.
// CASE: joined_groups
// CHECK: kiln.convolution_weight_gradient
// CHECK-SAME: pad = [1, 1] x [1, 1] dilation = [1, 1] {groups = 8 : i64}
// CHECK: kiln.select
// CHECK: kiln.reduce sum {{.*}} dims = [0, 6]
// IMPLICIT-CHECK-NOT: kiln.convolution %
module {
  func.func @main(%x: tensor<2x128x7x7xbf16>, %g: tensor<2x128x7x7xbf16>) -> tensor<128x4x3x3xbf16> {
    %0 = kiln.reshape %x sizes = [2, 32, 4, 7, 7] : tensor<2x128x7x7xbf16>
    %1 = kiln.transpose %0 permutation = [2, 1, 0, 3, 4] : tensor<2x32x4x7x7xbf16>
    %2 = kiln.reshape %1 sizes = [4, 64, 7, 7] : tensor<4x32x2x7x7xbf16>
    %3 = kiln.transpose %g permutation = [1, 0, 2, 3] : tensor<2x128x7x7xbf16>
    %4 = kiln.convolution %2, %3 strides = [1, 1] pad = [1, 1] x [1, 1] dilation = [1, 1] {groups = 32 : i64} : tensor<4x64x7x7xbf16>, tensor<128x2x7x7xbf16>
    %5 = kiln.transpose %4 permutation = [1, 0, 2, 3] : tensor<4x128x3x3xbf16>
    return %5 : tensor<128x4x3x3xbf16>
  }
}

// -----
// Groups of 64 channels fill tiles. A stride leaves a row of pixels over.
// CASE: wide_groups
// CHECK: kiln.convolution_weight_gradient
// CHECK-SAME: strides = [2, 2] pad = [1, 1] x [0, 0] dilation = [1, 1] {groups = 2 : i64}
// IMPLICIT-CHECK-NOT: kiln.select
// IMPLICIT-CHECK-NOT: kiln.convolution %
module {
  func.func @main(%x: tensor<2x128x8x8xf16>, %g: tensor<2x64x4x4xf16>) -> tensor<64x64x3x3xf16> {
    %0 = kiln.reshape %x sizes = [2, 2, 64, 8, 8] : tensor<2x128x8x8xf16>
    %1 = kiln.transpose %0 permutation = [2, 1, 0, 3, 4] : tensor<2x2x64x8x8xf16>
    %2 = kiln.reshape %1 sizes = [64, 4, 8, 8] : tensor<64x2x2x8x8xf16>
    %3 = kiln.transpose %g permutation = [1, 0, 2, 3] : tensor<2x64x4x4xf16>
    %4 = kiln.convolution %2, %3 strides = [1, 1] pad = [1, 1] x [0, 0] dilation = [2, 2] {groups = 2 : i64} : tensor<64x4x8x8xf16>, tensor<64x2x4x4xf16>
    %5 = kiln.transpose %4 permutation = [1, 0, 2, 3] : tensor<64x64x3x3xf16>
    return %5 : tensor<64x64x3x3xf16>
  }
}

// -----
// All groups become one: as of any 16 channels, a row of the window is one row of channels, and the
// padding is stored.
// CASE: groups_that_become_one
// CHECK: kiln.pad {{.*}} low = [0, 1, 1, 0] high = [0, 1, 1, 0]
// CHECK: kiln.convolution_weight_gradient
// CHECK-SAME: pad = [0, 0] x [0, 0] dilation = [1, 1] : tensor<2x7x7x16xbf16>
// CHECK: kiln.select
// IMPLICIT-CHECK-NOT: kiln.convolution %
module {
  func.func @main(%x: tensor<2x16x5x5xbf16>, %g: tensor<2x8x5x5xbf16>) -> tensor<8x8x3x3xbf16> {
    %0 = kiln.reshape %x sizes = [2, 2, 8, 5, 5] : tensor<2x16x5x5xbf16>
    %1 = kiln.transpose %0 permutation = [2, 1, 0, 3, 4] : tensor<2x2x8x5x5xbf16>
    %2 = kiln.reshape %1 sizes = [8, 4, 5, 5] : tensor<8x2x2x5x5xbf16>
    %3 = kiln.transpose %g permutation = [1, 0, 2, 3] : tensor<2x8x5x5xbf16>
    %4 = kiln.convolution %2, %3 strides = [1, 1] pad = [1, 1] x [1, 1] dilation = [1, 1] {groups = 2 : i64} : tensor<8x4x5x5xbf16>, tensor<8x2x5x5xbf16>
    %5 = kiln.transpose %4 permutation = [1, 0, 2, 3] : tensor<8x8x3x3xbf16>
    return %5 : tensor<8x8x3x3xbf16>
  }
}
