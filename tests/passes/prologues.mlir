// RUN: kiln-prologues{chip=sm_90a}

// The last step of a norm: row statistics, a weight and a bias per column.
// CASE: rows_and_columns
// CHECK: {kiln.prologue}
// IMPLICIT-CHECK-NOT: "it does not
func.func @f(%x: tensor<70x64xf32>, %m: tensor<70xf32>, %r: tensor<70xf32>, %c: tensor<64xf32>, %b: tensor<64xf32>, %w: tensor<16x64xbf16>) -> tensor<70x16xbf16> {
  %0 = kiln.broadcast_in_dim %m dims = [0] sizes = [70, 64] : tensor<70xf32>
  %1 = kiln.sub %x, %0 : tensor<70x64xf32>
  %2 = kiln.broadcast_in_dim %r dims = [0] sizes = [70, 64] : tensor<70xf32>
  %3 = kiln.mul %1, %2 : tensor<70x64xf32>
  %4 = kiln.broadcast_in_dim %c dims = [1] sizes = [70, 64] : tensor<64xf32>
  %5 = kiln.mul %3, %4 : tensor<70x64xf32>
  %6 = kiln.broadcast_in_dim %b dims = [1] sizes = [70, 64] : tensor<64xf32>
  %7 = kiln.add %5, %6 : tensor<70x64xf32>
  %8 = kiln.convert %7 : tensor<70x64xf32> to bf16
  %9 = kiln.dot_general %8, %w batch = [] x [] contract = [1] x [1] : tensor<70x64xbf16>, tensor<16x64xbf16>
  return %9 : tensor<70x16xbf16>
}

// -----
// Row statistics of the same tensor: the reduction recomputes the widening.
// CASE: statistics_of_the_same_rows
// RUN: kiln-prologues{chip=sm_90a bandwidth=1}
// CHECK: {kiln.prologue}
// IMPLICIT-CHECK-NOT: "it does not
func.func @f(%x: tensor<2000x64xbf16>, %w: tensor<64x48xbf16>) -> tensor<2000x48xbf16> {
  %0 = kiln.convert %x : tensor<2000x64xbf16> to f32
  %1 = kiln.reduce max %0 dims = [1] : tensor<2000x64xf32>
  %2 = kiln.broadcast_in_dim %1 dims = [0] sizes = [2000, 64] : tensor<2000xf32>
  %3 = kiln.sub %0, %2 : tensor<2000x64xf32>
  %4 = kiln.convert %3 : tensor<2000x64xf32> to bf16
  %5 = kiln.dot_general %4, %w batch = [] x [] contract = [1] x [0] : tensor<2000x64xbf16>, tensor<64x48xbf16>
  return %5 : tensor<2000x48xbf16>
}

// -----
// A batch, and a dynamic M.
// CASE: batch_with_dynamic_m
// CHECK: {kiln.prologue}
module {
  func.func @f(%x: tensor<3x?x64xf16>, %c: tensor<3x64xf16>, %w: tensor<3x64x40xf16>) -> tensor<3x?x40xf16> {
    %n = kiln.sym @n {min = 2, max = 9}
    kiln.bind_shape %x, [3, %n, 64] : tensor<3x?x64xf16>
    %0 = kiln.broadcast_in_dim %c dims = [0, 2] sizes = [3, %n, 64] : tensor<3x64xf16>
    %1 = kiln.mul %x, %0 : tensor<3x?x64xf16>
    %2 = kiln.dot_general %1, %w batch = [0] x [0] contract = [2] x [1] : tensor<3x?x64xf16>, tensor<3x64x40xf16>
    return %2 : tensor<3x?x40xf16>
  }
}

// -----
// For 16 column tiles, recomputing the exponential costs more than a kernel that stores it.
// CASE: too_many_column_tiles
// CHECK: "it does not compute its left operand: to compute it again for each tile of columns takes longer than to store it"
// IMPLICIT-CHECK-NOT: {kiln.prologue}
func.func @f(%x: tensor<4096x512xbf16>, %w: tensor<4096x512xbf16>) -> tensor<4096x4096xbf16> {
  %0 = kiln.exp %x : tensor<4096x512xbf16>
  %1 = kiln.dot_general %0, %w batch = [] x [] contract = [1] x [1] : tensor<4096x512xbf16>, tensor<4096x512xbf16>
  return %1 : tensor<4096x4096xbf16>
}

// -----
// CASE: two_tensors
// CHECK: "it does not compute its left operand: it reads two whole matrices"
func.func @f(%x: tensor<70x64xbf16>, %y: tensor<70x64xbf16>, %w: tensor<16x64xbf16>) -> tensor<70x16xbf16> {
  %0 = kiln.add %x, %y : tensor<70x64xbf16>
  %1 = kiln.dot_general %0, %w batch = [] x [] contract = [1] x [1] : tensor<70x64xbf16>, tensor<16x64xbf16>
  return %1 : tensor<70x16xbf16>
}

// -----
// Exponentials that are also summed would have to be stored, in a wider type.
// CASE: value_in_registers_of_another_kernel
// CHECK: "it does not compute its left operand: its operands would have to be stored instead"
func.func @f(%x: tensor<70x64xf32>, %w: tensor<64x16xbf16>) -> tensor<70x16xbf16> {
  %0 = kiln.exp %x : tensor<70x64xf32>
  %1 = kiln.reduce sum %0 dims = [1] : tensor<70x64xf32>
  %2 = kiln.broadcast_in_dim %1 dims = [0] sizes = [70, 64] : tensor<70xf32>
  %3 = kiln.div %0, %2 : tensor<70x64xf32>
  %4 = kiln.convert %3 : tensor<70x64xf32> to bf16
  %5 = kiln.dot_general %4, %w batch = [] x [] contract = [1] x [0] : tensor<70x64xbf16>, tensor<64x16xbf16>
  return %5 : tensor<70x16xbf16>
}

// -----
// CASE: unaligned_k
// CHECK: "it does not compute its left operand: TMA cannot load its operands"
func.func @f(%x: tensor<70x65xbf16>, %w: tensor<65x16xbf16>) -> tensor<70x16xbf16> {
  %0 = kiln.neg %x : tensor<70x65xbf16>
  %1 = kiln.dot_general %0, %w batch = [] x [] contract = [1] x [0] : tensor<70x65xbf16>, tensor<65x16xbf16>
  return %1 : tensor<70x16xbf16>
}

// -----
// Another matmul reads it, so it is materialised anyway.
// CASE: two_users
// CHECK-NOT: kiln.prologue
func.func @f(%x: tensor<70x64xbf16>, %v: tensor<64x16xbf16>, %w: tensor<64x16xbf16>) -> (tensor<70x16xbf16>, tensor<70x16xbf16>) {
  %0 = kiln.neg %x : tensor<70x64xbf16>
  %1 = kiln.dot_general %0, %v batch = [] x [] contract = [1] x [0] : tensor<70x64xbf16>, tensor<64x16xbf16>
  %2 = kiln.dot_general %0, %w batch = [] x [] contract = [1] x [0] : tensor<70x64xbf16>, tensor<64x16xbf16>
  return %1, %2 : tensor<70x16xbf16>, tensor<70x16xbf16>
}

// -----
// CASE: before_hopper
// RUN: kiln-prologues{chip=sm_80}
// CHECK: kiln.neg %arg0 {kiln.prologue}
func.func @f(%x: tensor<70x64xbf16>, %w: tensor<64x16xbf16>) -> tensor<70x16xbf16> {
  %0 = kiln.neg %x : tensor<70x64xbf16>
  %1 = kiln.dot_general %0, %w batch = [] x [] contract = [1] x [0] : tensor<70x64xbf16>, tensor<64x16xbf16>
  return %1 : tensor<70x16xbf16>
}

// -----
// Without TMA, threads copy 16-bit elements only.
// CASE: before_hopper_f32
// RUN: kiln-prologues{chip=sm_86}
// CHECK: "it does not compute its left operand: the prologue's kernel loads 16-bit elements only"
func.func @f(%x: tensor<70x64xf32>, %w: tensor<64x16xf16>) -> tensor<70x16xf16> {
  %0 = kiln.convert %x : tensor<70x64xf32> to f16
  %1 = kiln.dot_general %0, %w batch = [] x [] contract = [1] x [0] : tensor<70x64xf16>, tensor<64x16xf16>
  return %1 : tensor<70x16xf16>
}

// -----
// CASE: cpu
// RUN: kiln-prologues
// CHECK-NOT: kiln.prologue
func.func @f(%x: tensor<70x64xbf16>, %w: tensor<64x16xbf16>) -> tensor<70x16xbf16> {
  %0 = kiln.neg %x : tensor<70x64xbf16>
  %1 = kiln.dot_general %0, %w batch = [] x [] contract = [1] x [0] : tensor<70x64xbf16>, tensor<64x16xbf16>
  return %1 : tensor<70x16xbf16>
}

// -----
// Each thread converts the 8-bit weights that it multiplies; the transpose only changes indices.
// CASE: weights_of_8_bits
// CHECK: kiln.convert {{.*}} {kiln.prologue} : tensor<64x32xi8> to bf16
func.func @f(%x: tensor<4x64xbf16>, %w: tensor<32x64xi8>, %s: tensor<32xbf16>) -> tensor<4x32xbf16> {
  %0 = kiln.transpose %w permutation = [1, 0] : tensor<32x64xi8>
  %1 = kiln.convert %0 : tensor<64x32xi8> to bf16
  %2 = kiln.dot_general %x, %1 batch = [] x [] contract = [1] x [0] : tensor<4x64xbf16>, tensor<64x32xbf16>
  %3 = kiln.broadcast_in_dim %s dims = [1] sizes = [4, 32] : tensor<32xbf16>
  %4 = kiln.mul %2, %3 : tensor<4x32xbf16>
  return %4 : tensor<4x32xbf16>
}

// -----
// What kiln-quantized-weights marked stays marked, since a skinny GEMM reads the bytes.
// CASE: weights_of_4_bits
// CHECK: kiln.and {{.*}} {kiln.prologue}
func.func @main(%x: tensor<2x64xbf16>, %p: tensor<32x32xui8>, %s: tensor<32x2xbf16>) -> tensor<2x32xf32> {
  %b = kiln.broadcast_in_dim %p dims = [0, 1] sizes = [32, 32, 2] : tensor<32x32xui8>
  %i = kiln.iota [32, 32, 2] axis = 2 : ui8
  %c4 = kiln.splat [32, 32, 2], 4 : ui8
  %m = kiln.mul %i, %c4 {kiln.prologue} : tensor<32x32x2xui8>
  %h = kiln.shr %b, %m {kiln.prologue} : tensor<32x32x2xui8>
  %c15 = kiln.splat [32, 32, 2], 15 : ui8
  %q = kiln.and %h, %c15 {kiln.prologue} : tensor<32x32x2xui8>
  %r = kiln.reshape %q sizes = [32, 64] {kiln.index} : tensor<32x32x2xui8>
  %f = kiln.convert %r {kiln.prologue} : tensor<32x64xui8> to bf16
  %e = kiln.broadcast_in_dim %s dims = [0, 1] sizes = [32, 2, 32] : tensor<32x2xbf16>
  %g = kiln.reshape %e sizes = [32, 64] {kiln.index} : tensor<32x2x32xbf16>
  %w = kiln.mul %f, %g {kiln.prologue} : tensor<32x64xbf16>
  %0 = kiln.dot_general %x, %w batch = [] x [] contract = [1] x [1] : tensor<2x64xbf16>, tensor<32x64xbf16> to f32
  return %0 : tensor<2x32xf32>
}

// -----
// With more rows every CTA would convert the weights again; N-major ones are not read as vectors.
// CASE: weights_of_8_bits_in_memory
// CHECK-NOT: kiln.prologue}
func.func @f(%x: tensor<40x64xbf16>, %v: tensor<32x64xi8>, %y: tensor<4x64xbf16>, %w: tensor<64x32xi8>) -> (tensor<40x32xbf16>, tensor<4x32xbf16>) {
  %0 = kiln.convert %v : tensor<32x64xi8> to bf16
  %1 = kiln.dot_general %x, %0 batch = [] x [] contract = [1] x [1] : tensor<40x64xbf16>, tensor<32x64xbf16>
  %2 = kiln.convert %w : tensor<64x32xi8> to bf16
  %3 = kiln.dot_general %y, %2 batch = [] x [] contract = [1] x [0] : tensor<4x64xbf16>, tensor<64x32xbf16>
  return %1, %3 : tensor<40x32xbf16>, tensor<4x32xbf16>
}
