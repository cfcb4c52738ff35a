// RUN: kiln-sink-scales,canonicalize

// Float8WeightOnlyConfig: a scale a row in f32, on the transposed weights.
// CASE: float_weights
// CHECK: kiln.convert {{.*}} : tensor<32x64xf8E4M3FN> to bf16
// CHECK: kiln.dot_general {{.*}} to f32
// CHECK: kiln.mul {{.*}} : tensor<1x4x32xf32>
// CHECK: kiln.convert {{.*}} : tensor<1x4x32xf32> to bf16
func.func @f(%x: tensor<1x4x64xbf16>, %w: tensor<32x64xf8E4M3FN>, %s: tensor<1x32xf32>) -> tensor<1x4x32xbf16> {
  %0 = kiln.convert %w : tensor<32x64xf8E4M3FN> to f32
  %1 = kiln.transpose %0 permutation = [1, 0] : tensor<32x64xf32>
  %2 = kiln.broadcast_in_dim %s dims = [0, 1] sizes = [64, 32] : tensor<1x32xf32>
  %3 = kiln.mul %1, %2 : tensor<64x32xf32>
  %4 = kiln.convert %3 : tensor<64x32xf32> to bf16
  %5 = kiln.dot_general %x, %4 batch = [] x [] contract = [2] x [0] : tensor<1x4x64xbf16>, tensor<64x32xbf16>
  return %5 : tensor<1x4x32xbf16>
}

// -----
// The f32 product of a fused bias carries the scale unrounded.
// CASE: integer_weights_of_a_wide_product
// CHECK: kiln.convert {{.*}} : tensor<32x64xi8> to bf16
// CHECK: kiln.dot_general {{.*}} to f32
// CHECK: kiln.mul {{.*}} : tensor<4x32xf32>
// CHECK-NEXT: return
func.func @f(%x: tensor<4x64xbf16>, %w: tensor<32x64xi8>, %s: tensor<32x1xbf16>) -> tensor<4x32xf32> {
  %0 = kiln.convert %w : tensor<32x64xi8> to f32
  %1 = kiln.convert %s : tensor<32x1xbf16> to f32
  %2 = kiln.broadcast_in_dim %1 dims = [0, 1] sizes = [32, 64] : tensor<32x1xf32>
  %3 = kiln.mul %0, %2 : tensor<32x64xf32>
  %4 = kiln.convert %3 : tensor<32x64xf32> to bf16
  %5 = kiln.dot_general %x, %4 batch = [] x [] contract = [1] x [1] : tensor<4x64xbf16>, tensor<32x64xbf16> to f32
  return %5 : tensor<4x32xf32>
}

// -----
// The weights on the left, multiplied by two scales in 16 bits, one of them of the whole tensor.
// CASE: weights_on_the_left
// CHECK: kiln.dot_general {{.*}} to f32
// CHECK-COUNT-2: kiln.mul {{.*}} : tensor<32x4xf32>
func.func @f(%x: tensor<64x4xf16>, %w: tensor<32x64xi8>, %s: tensor<32xf16>, %t: tensor<1x1xf16>) -> tensor<32x4xf16> {
  %0 = kiln.convert %w : tensor<32x64xi8> to f16
  %1 = kiln.broadcast_in_dim %s dims = [0] sizes = [32, 64] : tensor<32xf16>
  %2 = kiln.mul %1, %0 : tensor<32x64xf16>
  %3 = kiln.broadcast_in_dim %t dims = [0, 1] sizes = [32, 64] : tensor<1x1xf16>
  %4 = kiln.mul %2, %3 : tensor<32x64xf16>
  %5 = kiln.dot_general %4, %x batch = [] x [] contract = [1] x [0] : tensor<32x64xf16>, tensor<64x4xf16>
  return %5 : tensor<32x4xf16>
}

// -----
// Products of many rows, and of weights that are not K-major, read 16 bits from memory.
// CASE: weights_in_memory
// CHECK-NOT: to f32
func.func @f(%x: tensor<40x64xbf16>, %w: tensor<48x64xi8>, %y: tensor<4x48xbf16>, %s: tensor<48xbf16>, %t: tensor<64xbf16>) -> (tensor<40x48xbf16>, tensor<4x64xbf16>) {
  %0 = kiln.convert %w : tensor<48x64xi8> to bf16
  %1 = kiln.broadcast_in_dim %s dims = [0] sizes = [48, 64] : tensor<48xbf16>
  %2 = kiln.mul %0, %1 : tensor<48x64xbf16>
  %3 = kiln.dot_general %x, %2 batch = [] x [] contract = [1] x [1] : tensor<40x64xbf16>, tensor<48x64xbf16>
  %4 = kiln.convert %w : tensor<48x64xi8> to bf16
  %5 = kiln.broadcast_in_dim %t dims = [1] sizes = [48, 64] : tensor<64xbf16>
  %6 = kiln.mul %4, %5 : tensor<48x64xbf16>
  %7 = kiln.dot_general %y, %6 batch = [] x [] contract = [1] x [0] : tensor<4x48xbf16>, tensor<48x64xbf16>
  return %3, %7 : tensor<40x48xbf16>, tensor<4x64xbf16>
}

// -----
// A scale that varies along K, and dequantised weights that another op reads.
// CASE: scales_that_stay
// CHECK-NOT: to f32
func.func @f(%x: tensor<4x64xbf16>, %v: tensor<32x64xi8>, %s: tensor<64xbf16>, %w: tensor<32x64xi8>, %t: tensor<32xbf16>) -> (tensor<4x32xbf16>, tensor<4x32xbf16>, tensor<32x64xbf16>) {
  %0 = kiln.convert %v : tensor<32x64xi8> to bf16
  %1 = kiln.broadcast_in_dim %s dims = [1] sizes = [32, 64] : tensor<64xbf16>
  %2 = kiln.mul %0, %1 : tensor<32x64xbf16>
  %3 = kiln.dot_general %x, %2 batch = [] x [] contract = [1] x [1] : tensor<4x64xbf16>, tensor<32x64xbf16>
  %4 = kiln.convert %w : tensor<32x64xi8> to bf16
  %5 = kiln.broadcast_in_dim %t dims = [0] sizes = [32, 64] : tensor<32xbf16>
  %6 = kiln.mul %4, %5 : tensor<32x64xbf16>
  %7 = kiln.dot_general %x, %6 batch = [] x [] contract = [1] x [1] : tensor<4x64xbf16>, tensor<32x64xbf16>
  return %3, %7, %6 : tensor<4x32xbf16>, tensor<4x32xbf16>, tensor<32x64xbf16>
}

// -----
// IntxWeightOnlyConfig: the product's kernel subtracts the zero point as well.
// CASE: a_zero_point
// CHECK-NOT: to f32
func.func @f(%x: tensor<4x64xbf16>, %w: tensor<32x64xi8>, %s: tensor<32x1xbf16>, %z: tensor<32x1xi8>) -> tensor<4x32xbf16> {
  %0 = kiln.convert %w : tensor<32x64xi8> to bf16
  %1 = kiln.convert %z : tensor<32x1xi8> to bf16
  %2 = kiln.broadcast_in_dim %1 dims = [0, 1] sizes = [32, 64] : tensor<32x1xbf16>
  %3 = kiln.sub %0, %2 : tensor<32x64xbf16>
  %4 = kiln.broadcast_in_dim %s dims = [0, 1] sizes = [32, 64] : tensor<32x1xbf16>
  %5 = kiln.mul %3, %4 : tensor<32x64xbf16>
  %6 = kiln.dot_general %x, %5 batch = [] x [] contract = [1] x [1] : tensor<4x64xbf16>, tensor<32x64xbf16>
  return %6 : tensor<4x32xbf16>
}
