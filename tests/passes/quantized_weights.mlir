// RUN: kiln-quantized-weights

// Two halves of bytes, in groups of 32 with a scale and a zero point of the activations' type. The
// bytes are packed anew, since a byte's elements are half a row apart.
// CASE: int4_in_groups
// CHECK: kiln.convert {{.*}} {kiln.stored} : tensor<2x16xf32> to bf16
// CHECK: kiln.or {{.*}} {kiln.stored} : tensor<16x32xui8>
// CHECK: kiln.and {{.*}} {kiln.prologue} : tensor<16x32x2xui8>
module {
  kiln.global "private" @w : tensor<16x32xui8> from "w#w"
  kiln.global "private" @s : tensor<16x2xbf16> from "w#s"
  kiln.global "private" @z : tensor<16x2xbf16> from "w#z"
  func.func @main(%x: tensor<4x64xbf16>) -> tensor<4x16xf32> {
    %w = kiln.get_global @w : tensor<16x32xui8>
    %s = kiln.get_global @s : tensor<16x2xbf16>
    %z = kiln.get_global @z : tensor<16x2xbf16>
    %mask = kiln.splat [16, 32], 15 : ui8
    %four = kiln.splat [16, 32], 4 : ui8
    %low = kiln.and %w, %mask : tensor<16x32xui8>
    %high = kiln.shr %w, %four : tensor<16x32xui8>
    %q = kiln.concat %low, %high axis = 1 : tensor<16x32xui8>, tensor<16x32xui8>
    %f = kiln.convert %q : tensor<16x64xui8> to f32
    %8 = kiln.splat [16, 64], 8.0 : f32
    %c = kiln.sub %f, %8 : tensor<16x64xf32>
    %g = kiln.reshape %c sizes = [16, 2, 32] : tensor<16x64xf32>
    %sf = kiln.convert %s : tensor<16x2xbf16> to f32
    %sb = kiln.broadcast_in_dim %sf dims = [0, 1] sizes = [16, 2, 32] : tensor<16x2xf32>
    %m = kiln.mul %g, %sb : tensor<16x2x32xf32>
    %zf = kiln.convert %z : tensor<16x2xbf16> to f32
    %zb = kiln.broadcast_in_dim %zf dims = [0, 1] sizes = [16, 2, 32] : tensor<16x2xf32>
    %a = kiln.add %m, %zb : tensor<16x2x32xf32>
    %n = kiln.convert %a : tensor<16x2x32xf32> to bf16
    %r = kiln.reshape %n sizes = [16, 64] : tensor<16x2x32xbf16>
    %0 = kiln.dot_general %x, %r batch = [] x [] contract = [1] x [1] : tensor<4x64xbf16>, tensor<16x64xbf16> to f32
    return %0 : tensor<4x16xf32>
  }
}

// -----
// Weights [K, N] with int8 zero points: rows of K are stored; what is subtracted stays a table.
// CASE: int4_transposed_with_zero_points
// CHECK: kiln.convert {{.*}} {kiln.prologue} : tensor<16x64xi8> to f32
// CHECK: kiln.or {{.*}} {kiln.stored} : tensor<16x32xui8>
module {
  kiln.global "private" @w : tensor<64x16xi32> from "w#w"
  kiln.global "private" @s : tensor<2x16xf16> from "w#s"
  kiln.global "private" @z : tensor<2x16xi8> from "w#z"
  func.func @main(%x: tensor<1x64xf16>) -> tensor<1x16xf32> {
    %w = kiln.get_global @w : tensor<64x16xi32>
    %s = kiln.get_global @s : tensor<2x16xf16>
    %z = kiln.get_global @z : tensor<2x16xi8>
    %mask = kiln.splat [64, 16], 15 : i32
    %q = kiln.and %w, %mask : tensor<64x16xi32>
    %f = kiln.convert %q : tensor<64x16xi32> to f32
    %g = kiln.reshape %f sizes = [2, 32, 16] : tensor<64x16xf32>
    %zf = kiln.convert %z : tensor<2x16xi8> to f32
    %zb = kiln.broadcast_in_dim %zf dims = [0, 2] sizes = [2, 32, 16] : tensor<2x16xf32>
    %c = kiln.sub %g, %zb : tensor<2x32x16xf32>
    %sf = kiln.convert %s : tensor<2x16xf16> to f32
    %sb = kiln.broadcast_in_dim %sf dims = [0, 2] sizes = [2, 32, 16] : tensor<2x16xf32>
    %m = kiln.mul %c, %sb : tensor<2x32x16xf32>
    %n = kiln.convert %m : tensor<2x32x16xf32> to f16
    %r = kiln.reshape %n sizes = [64, 16] : tensor<2x32x16xf16>
    %0 = kiln.dot_general %x, %r batch = [] x [] contract = [1] x [0] : tensor<1x64xf16>, tensor<64x16xf16> to f32
    return %0 : tensor<1x16xf32>
  }
}

// -----
// int8 elements stay as they are; their scales become a matrix of a row a group.
// CASE: int8_in_groups
// CHECK: kiln.convert {{.*}} {kiln.stored} : tensor<2x16xf32> to bf16
// CHECK: kiln.mul {{.*}} {kiln.prologue} : tensor<16x64xf32>
module {
  kiln.global "private" @w : tensor<16x64xi8> from "w#w"
  kiln.global "private" @s : tensor<2x16xbf16> from "w#s"
  func.func @main(%x: tensor<4x64xbf16>) -> tensor<4x16xf32> {
    %w = kiln.get_global @w : tensor<16x64xi8>
    %s = kiln.get_global @s : tensor<2x16xbf16>
    %f = kiln.convert %w : tensor<16x64xi8> to f32
    %g = kiln.reshape %f sizes = [16, 2, 32] : tensor<16x64xf32>
    %sf = kiln.convert %s : tensor<2x16xbf16> to f32
    %st = kiln.transpose %sf permutation = [1, 0] : tensor<2x16xf32>
    %sb = kiln.broadcast_in_dim %st dims = [0, 1] sizes = [16, 2, 32] : tensor<16x2xf32>
    %m = kiln.mul %g, %sb : tensor<16x2x32xf32>
    %n = kiln.convert %m : tensor<16x2x32xf32> to bf16
    %r = kiln.reshape %n sizes = [16, 64] : tensor<16x2x32xbf16>
    %0 = kiln.dot_general %x, %r batch = [] x [] contract = [1] x [1] : tensor<4x64xbf16>, tensor<16x64xbf16> to f32
    return %0 : tensor<4x16xf32>
  }
}

// -----
// Masks of 5 bits leave 32 values, which are dequantised as before.
// CASE: more_than_16_values
// IMPLICIT-CHECK-NOT: kiln.prologue
module {
  kiln.global "private" @w : tensor<16x64xi32> from "w#w"
  func.func @main(%x: tensor<4x64xbf16>) -> tensor<4x16xf32> {
    %w = kiln.get_global @w : tensor<16x64xi32>
    %mask = kiln.splat [16, 64], 31 : i32
    %q = kiln.and %w, %mask : tensor<16x64xi32>
    %n = kiln.convert %q : tensor<16x64xi32> to bf16
    %0 = kiln.dot_general %x, %n batch = [] x [] contract = [1] x [1] : tensor<4x64xbf16>, tensor<16x64xbf16> to f32
    return %0 : tensor<4x16xf32>
  }
}

// -----
// An f32 scale has more bits than what tensor cores multiply.
// CASE: scales_of_f32
// IMPLICIT-CHECK-NOT: kiln.prologue
module {
  kiln.global "private" @w : tensor<16x64xi8> from "w#w"
  kiln.global "private" @s : tensor<16x2xf32> from "w#s"
  func.func @main(%x: tensor<4x64xbf16>) -> tensor<4x16xf32> {
    %w = kiln.get_global @w : tensor<16x64xi8>
    %s = kiln.get_global @s : tensor<16x2xf32>
    %f = kiln.convert %w : tensor<16x64xi8> to f32
    %g = kiln.reshape %f sizes = [16, 2, 32] : tensor<16x64xf32>
    %sb = kiln.broadcast_in_dim %s dims = [0, 1] sizes = [16, 2, 32] : tensor<16x2xf32>
    %m = kiln.mul %g, %sb : tensor<16x2x32xf32>
    %n = kiln.convert %m : tensor<16x2x32xf32> to bf16
    %r = kiln.reshape %n sizes = [16, 64] : tensor<16x2x32xbf16>
    %0 = kiln.dot_general %x, %r batch = [] x [] contract = [1] x [1] : tensor<4x64xbf16>, tensor<16x64xbf16> to f32
    return %0 : tensor<4x16xf32>
  }
}

// -----
// 64 rows are a product for wgmma, which reads dequantised weights.
// CASE: many_rows
// IMPLICIT-CHECK-NOT: kiln.prologue
module {
  kiln.global "private" @w : tensor<16x64xi32> from "w#w"
  func.func @main(%x: tensor<64x64xbf16>) -> tensor<64x16xf32> {
    %w = kiln.get_global @w : tensor<16x64xi32>
    %mask = kiln.splat [16, 64], 15 : i32
    %q = kiln.and %w, %mask : tensor<16x64xi32>
    %n = kiln.convert %q : tensor<16x64xi32> to bf16
    %0 = kiln.dot_general %x, %n batch = [] x [] contract = [1] x [1] : tensor<64x64xbf16>, tensor<16x64xbf16> to f32
    return %0 : tensor<64x16xf32>
  }
}

// -----
// No kernel scales twice.
// CASE: two_scales
// IMPLICIT-CHECK-NOT: kiln.prologue
module {
  kiln.global "private" @w : tensor<16x64xi32> from "w#w"
  kiln.global "private" @s : tensor<16xbf16> from "w#s"
  func.func @main(%x: tensor<4x64xbf16>) -> tensor<4x16xf32> {
    %w = kiln.get_global @w : tensor<16x64xi32>
    %s = kiln.get_global @s : tensor<16xbf16>
    %mask = kiln.splat [16, 64], 15 : i32
    %q = kiln.and %w, %mask : tensor<16x64xi32>
    %n = kiln.convert %q : tensor<16x64xi32> to bf16
    %b = kiln.broadcast_in_dim %s dims = [0] sizes = [16, 64] : tensor<16xbf16>
    %m = kiln.mul %n, %b : tensor<16x64xbf16>
    %r = kiln.mul %m, %b : tensor<16x64xbf16>
    %0 = kiln.dot_general %x, %r batch = [] x [] contract = [1] x [1] : tensor<4x64xbf16>, tensor<16x64xbf16> to f32
    return %0 : tensor<4x16xf32>
  }
}
