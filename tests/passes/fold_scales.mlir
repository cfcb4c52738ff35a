// RUN: kiln-fold-scales,cse

// Batch norm: statistics and affine parameters fold into the weight and bias.
// CASE: batch_norm
// CHECK: kiln.convolution
// IMPLICIT-CHECK-NOT: kiln.sub %
module {
  kiln.global "private" @w : tensor<4x3x2x2xf32> from "w#w"
  kiln.global "private" @m : tensor<4xf32> from "w#m"
  kiln.global "private" @s : tensor<4xf32> from "w#s"
  kiln.global "private" @t : tensor<4xf32> from "w#t"
  func.func @main(%x: tensor<2x3x5x5xf32>) -> tensor<2x4x4x4xf32> {
    %w = kiln.get_global @w : tensor<4x3x2x2xf32>
    %m = kiln.get_global @m : tensor<4xf32>
    %s = kiln.get_global @s : tensor<4xf32>
    %t = kiln.get_global @t : tensor<4xf32>
    %0 = kiln.convolution %x, %w strides = [1, 1] pad = [0, 0] x [0, 0] dilation = [1, 1] : tensor<2x3x5x5xf32>, tensor<4x3x2x2xf32>
    %1 = kiln.broadcast_in_dim %m dims = [1] sizes = [2, 4, 4, 4] : tensor<4xf32>
    %2 = kiln.sub %0, %1 : tensor<2x4x4x4xf32>
    %3 = kiln.broadcast_in_dim %s dims = [1] sizes = [2, 4, 4, 4] : tensor<4xf32>
    %4 = kiln.mul %2, %3 : tensor<2x4x4x4xf32>
    %5 = kiln.broadcast_in_dim %t dims = [1] sizes = [2, 4, 4, 4] : tensor<4xf32>
    %6 = kiln.add %5, %4 : tensor<2x4x4x4xf32>
    return %6 : tensor<2x4x4x4xf32>
  }
}

// -----
// A linear layer with a transposed weight, divided by a constant; the order of operations matters.
// CASE: linear
// CHECK: kiln.mul {{.*}} : tensor<6x3xf32>
// CHECK: kiln.dot_general
// IMPLICIT-CHECK-NOT: kiln.div {{.*}} : tensor<2x6xf32>
module {
  kiln.global "private" @w : tensor<6x3xf32> from "w#w"
  kiln.global "private" @t : tensor<6xf32> from "w#t"
  func.func @main(%x: tensor<2x3xf32>) -> tensor<2x6xf32> {
    %w = kiln.get_global @w : tensor<6x3xf32>
    %t = kiln.get_global @t : tensor<6xf32>
    %0 = kiln.dot_general %x, %w batch = [] x [] contract = [1] x [1] : tensor<2x3xf32>, tensor<6x3xf32>
    %1 = kiln.broadcast_in_dim %t dims = [1] sizes = [2, 6] : tensor<6xf32>
    %2 = kiln.sub %0, %1 : tensor<2x6xf32>
    %c = kiln.splat [2, 6], 3.0 : f32
    %3 = kiln.div %2, %c : tensor<2x6xf32>
    return %3 : tensor<2x6xf32>
  }
}

// -----
// Not folded: a vector along another dimension, another user of the intermediate, a narrow weight,
// a divisor that may be 0.
// CASE: not_folded
// CHECK: %0 = kiln.get_global @w
// CHECK: %1 = kiln.get_global @n
// CHECK: kiln.dot_general %arg0, %0 batch
// CHECK: kiln.dot_general %arg1, %1 batch
// CHECK: %12 = kiln.get_global @v
// CHECK: kiln.dot_general %arg0, %12 batch
module {
  kiln.global "private" @w : tensor<3x3xf32> from "w#w"
  kiln.global "private" @v : tensor<3x3xf32> from "w#v"
  kiln.global "private" @n : tensor<3x3xbf16> from "w#n"
  kiln.global "private" @t : tensor<3xf32> from "w#t"
  kiln.global "private" @u : tensor<3xbf16> from "w#u"
  func.func @main(%x: tensor<3x3xf32>, %y: tensor<3x3xbf16>) -> (tensor<3x3xf32>, tensor<3x3xf32>, tensor<3x3xbf16>, tensor<3x3xf32>) {
    %w = kiln.get_global @w : tensor<3x3xf32>
    %n = kiln.get_global @n : tensor<3x3xbf16>
    %t = kiln.get_global @t : tensor<3xf32>
    %u = kiln.get_global @u : tensor<3xbf16>
    %0 = kiln.dot_general %x, %w batch = [] x [] contract = [1] x [0] : tensor<3x3xf32>, tensor<3x3xf32>
    %1 = kiln.broadcast_in_dim %t dims = [0] sizes = [3, 3] : tensor<3xf32>
    %2 = kiln.mul %0, %1 : tensor<3x3xf32>
    %3 = kiln.broadcast_in_dim %t dims = [1] sizes = [3, 3] : tensor<3xf32>
    %4 = kiln.mul %2, %3 : tensor<3x3xf32>
    %5 = kiln.dot_general %y, %n batch = [] x [] contract = [1] x [0] : tensor<3x3xbf16>, tensor<3x3xbf16>
    %6 = kiln.broadcast_in_dim %u dims = [1] sizes = [3, 3] : tensor<3xbf16>
    %7 = kiln.mul %5, %6 : tensor<3x3xbf16>
    %v = kiln.get_global @v : tensor<3x3xf32>
    %8 = kiln.dot_general %x, %v batch = [] x [] contract = [1] x [0] : tensor<3x3xf32>, tensor<3x3xf32>
    %9 = kiln.div %8, %3 : tensor<3x3xf32>
    return %2, %4, %7, %9 : tensor<3x3xf32>, tensor<3x3xf32>, tensor<3x3xbf16>, tensor<3x3xf32>
  }
}

// -----
// A 16-bit weight stays; the norm becomes one multiply and one add of frozen vectors.
// CASE: batch_norm_of_bf16
// RUN: kiln-fold-scales,cse,kiln-freeze
// CHECK: @frozen_0
// IMPLICIT-CHECK-NOT: @frozen_1
module {
  kiln.global "private" @w : tensor<4x3x2x2xbf16> from "w#w"
  kiln.global "private" @m : tensor<4xf32> from "w#m"
  kiln.global "private" @s : tensor<4xf32> from "w#s"
  kiln.global "private" @t : tensor<4xf32> from "w#t"
  func.func @main(%x: tensor<2x3x5x5xbf16>) -> tensor<2x4x4x4xbf16> {
    %w = kiln.get_global @w : tensor<4x3x2x2xbf16>
    %m = kiln.get_global @m : tensor<4xf32>
    %s = kiln.get_global @s : tensor<4xf32>
    %t = kiln.get_global @t : tensor<4xf32>
    %0 = kiln.convolution %x, %w strides = [1, 1] pad = [0, 0] x [0, 0] dilation = [1, 1] : tensor<2x3x5x5xbf16>, tensor<4x3x2x2xbf16>
    %wide = kiln.convert %0 : tensor<2x4x4x4xbf16> to f32
    %1 = kiln.broadcast_in_dim %m dims = [1] sizes = [2, 4, 4, 4] : tensor<4xf32>
    %2 = kiln.sub %wide, %1 : tensor<2x4x4x4xf32>
    %3 = kiln.broadcast_in_dim %s dims = [1] sizes = [2, 4, 4, 4] : tensor<4xf32>
    %4 = kiln.mul %2, %3 : tensor<2x4x4x4xf32>
    %5 = kiln.broadcast_in_dim %t dims = [1] sizes = [2, 4, 4, 4] : tensor<4xf32>
    %6 = kiln.add %5, %4 : tensor<2x4x4x4xf32>
    %7 = kiln.convert %6 : tensor<2x4x4x4xf32> to bf16
    return %7 : tensor<2x4x4x4xbf16>
  }
}

// -----
// Already one multiply and one add.
// CASE: a_scale_and_a_bias_of_bf16
// CHECK: kiln.mul %
// IMPLICIT-CHECK-NOT: kiln.neg
module {
  kiln.global "private" @w : tensor<6x3xbf16> from "w#w"
  kiln.global "private" @s : tensor<3xf32> from "w#s"
  func.func @main(%x: tensor<2x6xbf16>) -> tensor<2x3xf32> {
    %w = kiln.get_global @w : tensor<6x3xbf16>
    %s = kiln.get_global @s : tensor<3xf32>
    %0 = kiln.dot_general %x, %w batch = [] x [] contract = [1] x [0] : tensor<2x6xbf16>, tensor<6x3xbf16>
    %1 = kiln.convert %0 : tensor<2x3xbf16> to f32
    %2 = kiln.broadcast_in_dim %s dims = [1] sizes = [2, 3] : tensor<3xf32>
    %3 = kiln.mul %1, %2 : tensor<2x3xf32>
    %4 = kiln.add %3, %2 : tensor<2x3xf32>
    return %4 : tensor<2x3xf32>
  }
}
