// RUN: kiln-freeze

// A norm's scale is computed from its variance once; the broadcast stays, since it only indexes.
// CASE: statistics
// CHECK: from "prepare#0"
// CHECK: kiln.get_global @frozen_0 : tensor<4xf32>
module {
  kiln.global "private" @var : tensor<4xf32> from "w#var"
  func.func @main(%x: tensor<2x4xf32>) -> tensor<2x4xf32> {
    %v = kiln.get_global @var : tensor<4xf32>
    %eps = kiln.splat [4], 1.0e-05 : f32
    %s = kiln.mul %v, %v : tensor<4xf32>
    %0 = kiln.add %s, %eps : tensor<4xf32>
    %1 = kiln.rsqrt %0 : tensor<4xf32>
    %2 = kiln.broadcast_in_dim %1 dims = [1] sizes = [2, 4] : tensor<4xf32>
    %3 = kiln.mul %x, %2 : tensor<2x4xf32>
    return %3 : tensor<2x4xf32>
  }
}

// -----
// Mutable globals are read at every call, and values derived from them stay.
// CASE: mutable_globals_stay
// IMPLICIT-CHECK-NOT: @prepare
// CHECK: kiln.exp
module {
  kiln.global "private" mutable @w : tensor<4xf32> from "w#w"
  func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
    %w = kiln.get_global mutable @w : tensor<4xf32>
    %0 = kiln.exp %w : tensor<4xf32>
    %1 = kiln.mul %x, %0 : tensor<4xf32>
    return %1 : tensor<4xf32>
  }
}

// -----
// The result is much larger than the weight: loading it would cost more than recomputing it.
// CASE: growing_results_are_not_frozen
// RUN: kiln-freeze{table=64}
// CHECK-NOT: @prepare
module {
  kiln.global "private" @w : tensor<8xf32> from "w#w"
  func.func @main(%x: tensor<256x8xf32>) -> tensor<256x8xf32> {
    %w = kiln.get_global @w : tensor<8xf32>
    %two = kiln.splat [256, 8], 2.0 : f32
    %0 = kiln.broadcast_in_dim %w dims = [1] sizes = [256, 8] : tensor<8xf32>
    %1 = kiln.mul %0, %two : tensor<256x8xf32>
    %2 = kiln.add %x, %1 : tensor<256x8xf32>
    return %2 : tensor<256x8xf32>
  }
}

// -----
// A table of angles is larger than its inputs, but sines are expensive.
// CASE: sine_tables
// CHECK: @frozen_0 : tensor<6x4xf32>
// CHECK: @frozen_1 : tensor<6x4xf32>
module {
  kiln.global "private" @inv_freq : tensor<4xf32> from "w#inv_freq"
  func.func @main(%x: tensor<6x4xf32>) -> tensor<6x4xf32> {
    %f = kiln.get_global @inv_freq : tensor<4xf32>
    %t = kiln.iota [6, 4] axis = 0 : f32
    %0 = kiln.broadcast_in_dim %f dims = [1] sizes = [6, 4] : tensor<4xf32>
    %1 = kiln.mul %t, %0 : tensor<6x4xf32>
    %2 = kiln.sin %1 : tensor<6x4xf32>
    %3 = kiln.cos %1 : tensor<6x4xf32>
    %4 = kiln.mul %x, %2 : tensor<6x4xf32>
    %5 = kiln.add %4, %3 : tensor<6x4xf32>
    return %5 : tensor<6x4xf32>
  }
}

// -----
// The weight has other users, and the symbol name is taken.
// CASE: shared_and_named
// CHECK: func.func @prepare_1
// CHECK: kiln.gather %
module {
  kiln.global "private" @w : tensor<8x4xf32> from "w#w"
  func.func @prepare(%x: tensor<4xf32>) -> tensor<4xf32> {
    return %x : tensor<4xf32>
  }
  func.func @main(%x: tensor<3x4xf32>) -> (tensor<3x8xf32>, tensor<8x4xf32>) {
    %w = kiln.get_global @w : tensor<8x4xf32>
    %0 = kiln.transpose %w permutation = [1, 0] : tensor<8x4xf32>
    %1 = kiln.dot_general %x, %0 batch = [] x [] contract = [1] x [0] : tensor<3x4xf32>, tensor<4x8xf32>
    %i = kiln.iota [8] axis = 0 : i64
    %y = kiln.slice %x offsets = [0, 0] sizes = [1, 4] strides = [1, 1] : tensor<3x4xf32>
    %z = kiln.broadcast_in_dim %y dims = [0, 1] sizes = [8, 4] : tensor<1x4xf32>
    %2 = kiln.gather %w[%i] dims = [0] : tensor<8x4xf32> [tensor<8xi64>]
    %3 = kiln.add %2, %z : tensor<8x4xf32>
    return %1, %3 : tensor<3x8xf32>, tensor<8x4xf32>
  }
}

// -----
// A transpose that a matmul reads stays, one that an elementwise op reads moves.
// RUN: kiln-freeze{either-order=true}
// CASE: a_transpose_that_a_matmul_reads
// CHECK-NOT: @frozen_1
// CHECK: kiln.get_global @frozen_0
// CHECK: kiln.transpose %{{.*}} permutation = [1, 0] : tensor<9x4xf32>
// CHECK: kiln.dot_general
module {
  kiln.global "private" @w : tensor<9x4xf32> from "w#w"
  kiln.global "private" @v : tensor<4x3xf32> from "w#v"
  func.func @main(%x: tensor<3x4xf32>) -> tensor<3x9xf32> {
    %w = kiln.get_global @w : tensor<9x4xf32>
    %v = kiln.get_global @v : tensor<4x3xf32>
    %0 = kiln.transpose %v permutation = [1, 0] : tensor<4x3xf32>
    %1 = kiln.add %x, %0 : tensor<3x4xf32>
    %2 = kiln.transpose %w permutation = [1, 0] : tensor<9x4xf32>
    %3 = kiln.dot_general %1, %2 batch = [] x [] contract = [1] x [0] : tensor<3x4xf32>, tensor<4x9xf32>
    return %3 : tensor<3x9xf32>
  }
}

// -----
// A product computes the marked ops in registers: the bytes stay as they are in memory.
// CASE: prologues_stay
// CHECK: kiln.convert {{.*}} {kiln.prologue}
// IMPLICIT-CHECK-NOT: func.func @prepare
module {
  kiln.global "private" @w : tensor<16x64xui8> from "w#w"
  func.func @main(%x: tensor<4x64xbf16>) -> tensor<4x16xf32> {
    %w = kiln.get_global @w : tensor<16x64xui8>
    %a = kiln.convert %w {kiln.prologue} : tensor<16x64xui8> to bf16
    %0 = kiln.dot_general %x, %a batch = [] x [] contract = [1] x [1] : tensor<4x64xbf16>, tensor<16x64xbf16> to f32
    return %0 : tensor<4x16xf32>
  }
}
