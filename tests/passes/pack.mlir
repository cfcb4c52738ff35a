// RUN: kiln-pack{block=4 depth=2},cse,kiln-freeze

// CASE: whole_blocks
// CHECK: @frozen_0 : tensor<2x3x4xf32>
// CHECK: kiln.pack = "in blocks of 4 columns"
module {
  kiln.global "private" @w : tensor<3x8xf32> from "w#w"
  func.func @main(%x: tensor<2x3xf32>) -> tensor<2x8xf32> {
    %w = kiln.get_global @w : tensor<3x8xf32>
    %0 = kiln.dot_general %x, %w batch = [] x [] contract = [1] x [0] : tensor<2x3xf32>, tensor<3x8xf32>
    return %0 : tensor<2x8xf32>
  }
}

// -----
// The last block is padded; the user's slice drops the padding.
// CASE: partial_last_block
// CHECK: kiln.pad
// CHECK: kiln.slice
module {
  kiln.global "private" @w : tensor<3x7xf32> from "w#w"
  func.func @main(%x: tensor<2x3xf32>) -> tensor<2x7xf32> {
    %w = kiln.get_global @w : tensor<3x7xf32>
    %0 = kiln.dot_general %x, %w batch = [] x [] contract = [1] x [0] : tensor<2x3xf32>, tensor<3x7xf32>
    return %0 : tensor<2x7xf32>
  }
}

// -----
// A batched matmul's weights: the batch stays outermost.
// CASE: batch
// CHECK: @frozen_0 : tensor<2x2x3x4xf32>
// CHECK: kiln.pack = "in blocks of 4 columns"
module {
  kiln.global "private" @w : tensor<2x3x8xf32> from "w#w"
  func.func @main(%x: tensor<2x5x3xf32>) -> tensor<2x5x8xf32> {
    %w = kiln.get_global @w : tensor<2x3x8xf32>
    %0 = kiln.dot_general %x, %w batch = [0] x [0] contract = [2] x [1] : tensor<2x5x3xf32>, tensor<2x3x8xf32>
    return %0 : tensor<2x5x8xf32>
  }
}

// -----
// Tied weights: the embedding reads the table unpacked, the head packed blocks, shared by both
// heads.
// CASE: transposed_and_tied
// CHECK: kiln.gather %
// CHECK: @frozen_0 : tensor<2x3x4xf32>
// IMPLICIT-CHECK-NOT: @frozen_1
module {
  kiln.global "private" @w : tensor<8x3xf32> from "w#w"
  func.func @main(%x: tensor<2x3xf32>) -> (tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x3xf32>) {
    %w = kiln.get_global @w : tensor<8x3xf32>
    %i = kiln.convert %x : tensor<2x3xf32> to i64
    %j = kiln.reduce max %i dims = [1] : tensor<2x3xi64>
    %low = kiln.splat [2], 0 : i64
    %high = kiln.splat [2], 7 : i64
    %k = kiln.clamp %j, %low, %high : tensor<2xi64>
    %e = kiln.gather %w[%k] dims = [0] : tensor<8x3xf32> [tensor<2xi64>]
    %0 = kiln.dot_general %x, %w batch = [] x [] contract = [1] x [1] : tensor<2x3xf32>, tensor<8x3xf32>
    %1 = kiln.dot_general %e, %w batch = [] x [] contract = [1] x [1] : tensor<2x3xf32>, tensor<8x3xf32>
    return %0, %1, %e : tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x3xf32>
  }
}

// -----
// CASE: too_small_and_not_frozen
// CHECK: kiln.pack = "as it is: 2 columns are fewer than 4"
// IMPLICIT-CHECK-NOT: @prepare
module {
  kiln.global "private" @w : tensor<3x2xf32> from "w#w"
  kiln.global "private" mutable @m : tensor<3x8xf32> from "w#m"
  func.func @main(%x: tensor<2x3xf32>) -> (tensor<2x2xf32>, tensor<2x8xf32>) {
    %w = kiln.get_global @w : tensor<3x2xf32>
    %m = kiln.get_global mutable @m : tensor<3x8xf32>
    %0 = kiln.dot_general %x, %w batch = [] x [] contract = [1] x [0] : tensor<2x3xf32>, tensor<3x2xf32>
    %1 = kiln.dot_general %x, %m batch = [] x [] contract = [1] x [0] : tensor<2x3xf32>, tensor<3x8xf32>
    return %0, %1 : tensor<2x2xf32>, tensor<2x8xf32>
  }
}

// -----
// [window, input channel, block of output channels]; depthwise weights have adjacent channels.
// CASE: convolutions_with_channels_last
// RUN: kiln-layout{flops=0},kiln-pack{block=4 depth=2},cse,kiln-freeze
// CHECK: @frozen_0 : tensor<2x2x2x3x4xf32>
// CHECK: @frozen_1 : tensor<2x2x1x8xf32>
module {
  kiln.global "private" @w : tensor<8x3x2x2xf32> from "w#w"
  kiln.global "private" @d : tensor<8x1x2x2xf32> from "w#d"
  func.func @main(%x: tensor<1x3x4x4xf32>) -> tensor<1x8x2x2xf32> {
    %w = kiln.get_global @w : tensor<8x3x2x2xf32>
    %d = kiln.get_global @d : tensor<8x1x2x2xf32>
    %0 = kiln.convolution %x, %w strides = [1, 1] pad = [0, 0] x [0, 0] dilation = [1, 1] : tensor<1x3x4x4xf32>, tensor<8x3x2x2xf32>
    %1 = kiln.convolution %0, %d strides = [1, 1] pad = [0, 0] x [0, 0] dilation = [1, 1] {groups = 8 : i64} : tensor<1x8x3x3xf32>, tensor<8x1x2x2xf32>
    return %1 : tensor<1x8x2x2xf32>
  }
}

// -----
// The weight of three groups: window, channels and filters of each, the filters innermost.
// CASE: groups
// CHECK: @frozen_0 : tensor<3x3x3x2x4xf32>
// CHECK: kiln.pack = "by group, filters last"
module {
  kiln.global "private" @w : tensor<12x2x3x3xf32> from "w#w"
  func.func @main(%x: tensor<1x5x5x6xf32>) -> tensor<1x3x3x12xf32> {
    %w = kiln.get_global @w : tensor<12x2x3x3xf32>
    %t = kiln.transpose %x permutation = [0, 3, 1, 2] : tensor<1x5x5x6xf32>
    %0 = kiln.convolution %t, %w strides = [1, 1] pad = [0, 0] x [0, 0] dilation = [1, 1] {groups = 3 : i64} : tensor<1x6x5x5xf32>, tensor<12x2x3x3xf32>
    %1 = kiln.transpose %0 permutation = [0, 2, 3, 1] : tensor<1x12x3x3xf32>
    return %1 : tensor<1x3x3x12xf32>
  }
}

// -----
// Instructions that multiply pairs of bf16 read two interleaved rows.
// CASE: rows_in_pairs
// RUN: kiln-pack{block=4 depth=2 pairs=true},cse,kiln-freeze
// CHECK: @frozen_0 : tensor<2x3x4x2xbf16>
// CHECK: kiln.pack = "in blocks of 4 columns, rows in pairs"
module {
  kiln.global "private" @w : tensor<6x7xbf16> from "w#w"
  func.func @main(%x: tensor<2x6xbf16>) -> tensor<2x7xbf16> {
    %w = kiln.get_global @w : tensor<6x7xbf16>
    %0 = kiln.dot_general %x, %w batch = [] x [] contract = [1] x [0] : tensor<2x6xbf16>, tensor<6x7xbf16>
    return %0 : tensor<2x7xbf16>
  }
}

// -----
// An odd number of rows has no pairs.
// CASE: odd_rows
// RUN: kiln-pack{block=4 depth=2 pairs=true},cse,kiln-freeze
// CHECK: kiln.pack = "in blocks of 4 columns"
module {
  kiln.global "private" @w : tensor<5x8xbf16> from "w#w"
  func.func @main(%x: tensor<2x5xbf16>) -> tensor<2x8xbf16> {
    %w = kiln.get_global @w : tensor<5x8xbf16>
    %0 = kiln.dot_general %x, %w batch = [] x [] contract = [1] x [0] : tensor<2x5xbf16>, tensor<5x8xbf16>
    return %0 : tensor<2x8xbf16>
  }
}

// -----
// GPU reductions want a contiguous K; a matrix is not packed.
// CASE: for_a_gpu
// RUN: kiln-layout{flops=0},kiln-pack{channels-last=true},cse,kiln-freeze
// CHECK: @frozen_0 : tensor<4x3x3x2xbf16>
// CHECK: kiln.pack = "with input channels last"
module {
  kiln.global "private" @w : tensor<4x2x3x3xbf16> from "w#w"
  kiln.global "private" @v : tensor<6x4xbf16> from "w#v"
  func.func @main(%x: tensor<1x2x5x5xbf16>, %y: tensor<2x6xbf16>) -> (tensor<1x4x3x3xbf16>, tensor<2x4xbf16>) {
    %w = kiln.get_global @w : tensor<4x2x3x3xbf16>
    %0 = kiln.convolution %x, %w strides = [1, 1] pad = [0, 0] x [0, 0] dilation = [1, 1] : tensor<1x2x5x5xbf16>, tensor<4x2x3x3xbf16>
    %v = kiln.get_global @v : tensor<6x4xbf16>
    %1 = kiln.dot_general %y, %v batch = [] x [] contract = [1] x [0] : tensor<2x6xbf16>, tensor<6x4xbf16>
    return %0, %1 : tensor<1x4x3x3xbf16>, tensor<2x4xbf16>
  }
}

// -----
// Depthwise windows: adjacent threads take adjacent channels.
// CASE: for_a_gpu_depthwise
// RUN: kiln-layout{flops=0},kiln-pack{channels-last=true},cse,kiln-freeze
// CHECK: @frozen_0 : tensor<3x3x1x4xbf16>
// CHECK: kiln.pack = "with channels last"
module {
  kiln.global "private" @w : tensor<4x1x3x3xbf16> from "w#w"
  func.func @main(%x: tensor<1x4x5x5xbf16>) -> tensor<1x4x3x3xbf16> {
    %w = kiln.get_global @w : tensor<4x1x3x3xbf16>
    %0 = kiln.convolution %x, %w strides = [1, 1] pad = [0, 0] x [0, 0] dilation = [1, 1] {groups = 4} : tensor<1x4x5x5xbf16>, tensor<4x1x3x3xbf16>
    return %0 : tensor<1x4x3x3xbf16>
  }
}

// -----
// The weight of an argument is transposed in each call.
// CASE: for_a_gpu_mutable
// RUN: kiln-layout{flops=0 mutable=true},kiln-pack{channels-last=true},cse,kiln-freeze
// CHECK: kiln.transpose %{{.*}} permutation = [0, 2, 3, 1] {kiln.stored} : tensor<4x2x3x3xbf16>
// CHECK: kiln.pack = "with input channels last"
module {
  func.func @main(%x: tensor<1x2x5x5xbf16>, %w: tensor<4x2x3x3xbf16>) -> tensor<1x4x3x3xbf16> {
    %0 = kiln.convolution %x, %w strides = [1, 1] pad = [0, 0] x [0, 0] dilation = [1, 1] : tensor<1x2x5x5xbf16>, tensor<4x2x3x3xbf16>
    return %0 : tensor<1x4x3x3xbf16>
  }
}

// -----
// The weight of a convolution is packed in each call, that of a matmul by its kernel; nothing copies
// the packed weight back.
// CASE: mutable_weights
// RUN: kiln-layout{flops=0 mutable=true},kiln-pack{block=4 depth=2 mutable=true},cse,kiln-freeze,kiln-fuse
// CHECK: kiln.launch @transpose ins(%{{.*}} : tensor<8x3x3x3xf32>) outs(%{{.*}} : tensor<2x3x3x3x4xf32>)
// CHECK: kiln.launch @convolution_tanh ins(%{{.*}} : tensor<1x3x6x6xf32>, tensor<2x3x3x3x4xf32>)
// IMPLICIT-CHECK-NOT: kiln.launch @reshape
module {
  func.func @main(%x: tensor<1x3x6x6xf32>, %w: tensor<8x3x3x3xf32>, %v: tensor<16x5xf32>) -> tensor<1x8x4x5xf32> {
    %0 = kiln.convolution %x, %w strides = [1, 1] pad = [0, 0] x [0, 0] dilation = [1, 1] : tensor<1x3x6x6xf32>, tensor<8x3x3x3xf32>
    %1 = kiln.tanh %0 : tensor<1x8x4x4xf32>
    %2 = kiln.slice %v offsets = [0, 0] sizes = [4, 5] strides = [1, 1] : tensor<16x5xf32>
    %3 = kiln.dot_general %1, %2 batch = [] x [] contract = [3] x [0] : tensor<1x8x4x4xf32>, tensor<4x5xf32>
    return %3 : tensor<1x8x4x5xf32>
  }
}
