// RUN: kiln-space-to-depth{chip=sm_90a flops=0 growth=100},cse

// Blocks of 2 by 2: one more row of zeros before the window, which then starts on a block, and a
// fourth channel.
// CASE: stem
// CHECK: low = [0, 2, 2, 0, 0, 0] high = [0, 1, 1, 1, 0, 0]
// CHECK: strides = [1, 1] pad = [0, 0] x [0, 0] dilation = [1, 1] : tensor<2x16x9x11xbf16>, tensor<4x16x4x4xbf16>
module {
  kiln.global "private" @w : tensor<4x3x7x7xbf16> from "w#w"
  func.func @main(%x: tensor<2x3x12x16xbf16>) -> tensor<2x4x6x8xbf16> {
    %w = kiln.get_global @w : tensor<4x3x7x7xbf16>
    %zero = kiln.splat [], 0.0 : bf16
    %p = kiln.pad %x, %zero low = [0, 0, 3, 3] high = [0, 0, 3, 3] : tensor<2x3x12x16xbf16>, tensor<bf16>
    %0 = kiln.convolution %p, %w strides = [2, 2] pad = [0, 0] x [0, 0] dilation = [1, 1] : tensor<2x3x18x22xbf16>, tensor<4x3x7x7xbf16>
    return %0 : tensor<2x4x6x8xbf16>
  }
}

// -----
// The window equals the stride: one block, no zeros, and the matmul's operand is written once.
// CASE: patches
// CHECK: kiln.stored
// CHECK: x48x2x2xbf16>, tensor<5x48x1x1xbf16>
// IMPLICIT-CHECK-NOT: kiln.pad
module {
  kiln.global "private" @w : tensor<5x3x4x4xbf16> from "w#w"
  func.func @main(%x: tensor<?x3x8x8xbf16>) -> tensor<?x5x2x2xbf16> {
    %w = kiln.get_global @w : tensor<5x3x4x4xbf16>
    %0 = kiln.convolution %x, %w strides = [4, 4] pad = [0, 0] x [0, 0] dilation = [1, 1] : tensor<?x3x8x8xbf16>, tensor<5x3x4x4xbf16>
    return %0 : tensor<?x5x2x2xbf16>
  }
}

// -----
// Sizes that are not multiples of the stride, and padding that is not exposed.
// CASE: partial_blocks
// CHECK: strides = [1, 1] pad = [0, 0] x [0, 0]
module {
  kiln.global "private" @w : tensor<2x3x3x3xbf16> from "w#w"
  func.func @main(%x: tensor<1x3x7x9xbf16>) -> tensor<1x2x4x5xbf16> {
    %w = kiln.get_global @w : tensor<2x3x3x3xbf16>
    %0 = kiln.convolution %x, %w strides = [2, 2] pad = [1, 1] x [1, 1] dilation = [1, 1] : tensor<1x3x7x9xbf16>, tensor<2x3x3x3xbf16>
    return %0 : tensor<1x2x4x5xbf16>
  }
}

// -----
// Two rows and one column are in blocks that no window reads.
// CASE: blocks_that_no_window_reads
// CHECK: tensor<1x72x3x3xbf16>, tensor<2x72x1x1xbf16>
module {
  kiln.global "private" @w : tensor<2x3x3x3xbf16> from "w#w"
  func.func @main(%x: tensor<1x3x11x10xbf16>) -> tensor<1x2x3x3xbf16> {
    %w = kiln.get_global @w : tensor<2x3x3x3xbf16>
    %0 = kiln.convolution %x, %w strides = [3, 3] pad = [0, 0] x [0, 0] dilation = [1, 1] : tensor<1x3x11x10xbf16>, tensor<2x3x3x3xbf16>
    return %0 : tensor<1x2x3x3xbf16>
  }
}

// -----
// Windows read the third block in height in part; strides differ.
// CASE: blocks_that_windows_read_in_part
// CHECK: strides = [1, 1] pad = [0, 0] x [0, 0] dilation = [1, 1] : tensor<1x24x3x5xbf16>, tensor<2x24x2x1xbf16>
module {
  kiln.global "private" @w : tensor<2x3x5x2xbf16> from "w#w"
  func.func @main(%x: tensor<1x3x12x10xbf16>) -> tensor<1x2x2x5xbf16> {
    %w = kiln.get_global @w : tensor<2x3x5x2xbf16>
    %0 = kiln.convolution %x, %w strides = [4, 2] pad = [0, 0] x [0, 0] dilation = [1, 1] : tensor<1x3x12x10xbf16>, tensor<2x3x5x2xbf16>
    return %0 : tensor<1x2x2x5xbf16>
  }
}

// -----
// Only channels are padded.
// CASE: without_a_stride
// CHECK: tensor<4x8x3x3xbf16>
module {
  kiln.global "private" @w : tensor<4x3x3x3xbf16> from "w#w"
  func.func @main(%x: tensor<2x3x6x6xbf16>) -> tensor<2x4x6x6xbf16> {
    %w = kiln.get_global @w : tensor<4x3x3x3xbf16>
    %zero = kiln.splat [], 0.0 : bf16
    %p = kiln.pad %x, %zero low = [0, 0, 1, 1] high = [0, 0, 1, 1] : tensor<2x3x6x6xbf16>, tensor<bf16>
    %0 = kiln.convolution %p, %w strides = [1, 1] pad = [0, 0] x [0, 0] dilation = [1, 1] : tensor<2x3x8x8xbf16>, tensor<4x3x3x3xbf16>
    return %0 : tensor<2x4x6x6xbf16>
  }
}

// -----
// CASE: one_channel_and_one_stride
// CHECK: strides = [1, 1]
module {
  kiln.global "private" @w : tensor<2x1x3x3xbf16> from "w#w"
  func.func @main(%x: tensor<1x1x6x8xbf16>) -> tensor<1x2x2x6xbf16> {
    %w = kiln.get_global @w : tensor<2x1x3x3xbf16>
    %0 = kiln.convolution %x, %w strides = [2, 1] pad = [0, 0] x [0, 0] dilation = [1, 1] : tensor<1x1x6x8xbf16>, tensor<2x1x3x3xbf16>
    return %0 : tensor<1x2x2x6xbf16>
  }
}

// -----
// TMA reads these unchanged.
// CASE: channels_fill_16_bytes
// CHECK: strides = [2, 2]
module {
  kiln.global "private" @w : tensor<2x8x2x2xbf16> from "w#w"
  func.func @main(%x: tensor<1x8x6x6xbf16>) -> tensor<1x2x3x3xbf16> {
    %w = kiln.get_global @w : tensor<2x8x2x2xbf16>
    %0 = kiln.convolution %x, %w strides = [2, 2] pad = [0, 0] x [0, 0] dilation = [1, 1] : tensor<1x8x6x6xbf16>, tensor<2x8x2x2xbf16>
    return %0 : tensor<1x2x3x3xbf16>
  }
}

// -----
// CASE: f32_has_no_tensor_cores
// CHECK: strides = [2, 2]
module {
  kiln.global "private" @w : tensor<2x3x2x2xf32> from "w#w"
  func.func @main(%x: tensor<1x3x6x6xf32>) -> tensor<1x2x3x3xf32> {
    %w = kiln.get_global @w : tensor<2x3x2x2xf32>
    %0 = kiln.convolution %x, %w strides = [2, 2] pad = [0, 0] x [0, 0] dilation = [1, 1] : tensor<1x3x6x6xf32>, tensor<2x3x2x2xf32>
    return %0 : tensor<1x2x3x3xf32>
  }
}

// -----
// CASE: cpu
// RUN: kiln-space-to-depth{flops=0 growth=100},cse
// CHECK: strides = [2, 2]
module {
  kiln.global "private" @w : tensor<2x3x2x2xbf16> from "w#w"
  func.func @main(%x: tensor<1x3x6x6xbf16>) -> tensor<1x2x3x3xbf16> {
    %w = kiln.get_global @w : tensor<2x3x2x2xbf16>
    %0 = kiln.convolution %x, %w strides = [2, 2] pad = [0, 0] x [0, 0] dilation = [1, 1] : tensor<1x3x6x6xbf16>, tensor<2x3x2x2xbf16>
    return %0 : tensor<1x2x3x3xbf16>
  }
}

// -----
// CASE: too_many_zeros
// RUN: kiln-space-to-depth{chip=sm_90a flops=0 growth=3},cse
// CHECK: strides = [2, 2]
module {
  kiln.global "private" @w : tensor<2x1x2x2xbf16> from "w#w"
  func.func @main(%x: tensor<1x1x6x6xbf16>) -> tensor<1x2x3x3xbf16> {
    %w = kiln.get_global @w : tensor<2x1x2x2xbf16>
    %0 = kiln.convolution %x, %w strides = [2, 2] pad = [0, 0] x [0, 0] dilation = [1, 1] : tensor<1x1x6x6xbf16>, tensor<2x1x2x2xbf16>
    return %0 : tensor<1x2x3x3xbf16>
  }
}

// -----
// The weight of an argument is rearranged in each call; one with a larger window is the gradient of
// an output, and stays.
// CASE: mutable_weights
// CHECK: strides = [1, 1] pad = [0, 0] x [0, 0] dilation = [1, 1] : tensor<2x16x9x11xbf16>, tensor<4x16x4x4xbf16>
// CHECK: strides = [2, 2] pad = [0, 0] x [0, 0] dilation = [1, 1] : tensor<1x3x64x64xbf16>, tensor<4x3x40x40xbf16>
module {
  func.func @main(%x: tensor<2x3x18x22xbf16>, %w: tensor<4x3x7x7xbf16>, %y: tensor<1x3x64x64xbf16>, %g: tensor<4x3x40x40xbf16>) -> (tensor<2x4x6x8xbf16>, tensor<1x4x13x13xbf16>) {
    %0 = kiln.convolution %x, %w strides = [2, 2] pad = [0, 0] x [0, 0] dilation = [1, 1] : tensor<2x3x18x22xbf16>, tensor<4x3x7x7xbf16>
    %1 = kiln.convolution %y, %g strides = [2, 2] pad = [0, 0] x [0, 0] dilation = [1, 1] : tensor<1x3x64x64xbf16>, tensor<4x3x40x40xbf16>
    return %0, %1 : tensor<2x4x6x8xbf16>, tensor<1x4x13x13xbf16>
  }
}
