// RUN: kiln-narrow-products{chip=sm_90a}

// As `_scaled_mm` is captured: the weights are transposed, scales follow.
// CASE: scaled_mm
// CHECK-NOT: kiln.convert
// CHECK: kiln.dot_general {{.*}} : tensor<64x128xf8E4M3FN>, tensor<128x96xf8E4M3FN> to f32
func.func @f(%x: tensor<64x128xf8E4M3FN>, %w: tensor<96x128xf8E4M3FN>) -> tensor<64x96xf32> {
  %0 = kiln.convert %x : tensor<64x128xf8E4M3FN> to bf16
  %1 = kiln.transpose %w permutation = [1, 0] : tensor<96x128xf8E4M3FN>
  %2 = kiln.convert %1 : tensor<128x96xf8E4M3FN> to bf16
  %3 = kiln.dot_general %0, %2 batch = [] x [] contract = [1] x [0] : tensor<64x128xbf16>, tensor<128x96xbf16> to f32
  return %3 : tensor<64x96xf32>
}

// -----
// Dequantised in f16 before the transpose; the product is rounded to f16. The number of rows is
// dynamic.
// CASE: transposed_after_conversion
// CHECK: kiln.transpose %{{.*}} : tensor<96x128xf8E5M2>
// CHECK: kiln.dot_general {{.*}} : tensor<?x128xf8E5M2>, tensor<128x96xf8E5M2> to f16
func.func @f(%x: tensor<?x128xf8E5M2>, %w: tensor<96x128xf8E5M2>) -> tensor<?x96xf16> {
  %0 = kiln.convert %x : tensor<?x128xf8E5M2> to f16
  %1 = kiln.convert %w : tensor<96x128xf8E5M2> to f16
  %2 = kiln.transpose %1 permutation = [1, 0] : tensor<96x128xf16>
  %3 = kiln.dot_general %0, %2 batch = [] x [] contract = [1] x [0] : tensor<?x128xf16>, tensor<128x96xf16>
  return %3 : tensor<?x96xf16>
}

// -----
// Tokens of a batch, whose dimensions the quantised matrix has merged.
// CASE: reshaped_rows
// CHECK: kiln.reshape {{.*}} : tensor<128x64xf8E4M3FN>
// CHECK: kiln.dot_general {{.*}} : tensor<4x32x64xf8E4M3FN>, tensor<96x64xf8E4M3FN> to bf16
func.func @f(%x: tensor<128x64xf8E4M3FN>, %w: tensor<96x64xf8E4M3FN>) -> tensor<4x32x96xbf16> {
  %0 = kiln.convert %x : tensor<128x64xf8E4M3FN> to bf16
  %1 = kiln.reshape %0 sizes = [4, 32, 64] : tensor<128x64xbf16>
  %2 = kiln.convert %w : tensor<96x64xf8E4M3FN> to bf16
  %3 = kiln.dot_general %1, %2 batch = [] x [] contract = [2] x [1] : tensor<4x32x64xbf16>, tensor<96x64xbf16>
  return %3 : tensor<4x32x96xbf16>
}

// -----
// wgmma reads 8-bit operands K-major; these weights are N-major. A reshape that splits K, too, is
// left.
// CASE: n_major
// CHECK-COUNT-4: kiln.convert
func.func @f(%x: tensor<64x128xf8E4M3FN>, %w: tensor<128x96xf8E4M3FN>, %y: tensor<64x128xf8E4M3FN>, %v: tensor<96x64xf8E4M3FN>) -> (tensor<64x96xf32>, tensor<2x64x96xf32>) {
  %0 = kiln.convert %x : tensor<64x128xf8E4M3FN> to bf16
  %1 = kiln.convert %w : tensor<128x96xf8E4M3FN> to bf16
  %2 = kiln.dot_general %0, %1 batch = [] x [] contract = [1] x [0] : tensor<64x128xbf16>, tensor<128x96xbf16> to f32
  %3 = kiln.convert %y : tensor<64x128xf8E4M3FN> to bf16
  %4 = kiln.reshape %3 sizes = [64, 2, 64] : tensor<64x128xbf16>
  %5 = kiln.transpose %4 permutation = [1, 0, 2] : tensor<64x2x64xbf16>
  %6 = kiln.convert %v : tensor<96x64xf8E4M3FN> to bf16
  %7 = kiln.dot_general %5, %6 batch = [] x [] contract = [2] x [1] : tensor<2x64x64xbf16>, tensor<96x64xbf16> to f32
  return %2, %7 : tensor<64x96xf32>, tensor<2x64x96xf32>
}

// -----
// Quantised by the graph with one scale, and read in two orders: once more with the other innermost.
// CASE: quantised_in_both_orders
// CHECK: kiln.dot_general {{.*}} : tensor<64x128xf8E4M3FN>, tensor<96x128xf8E4M3FN> to f32
// CHECK: kiln.transpose %{{.*}} permutation = [1, 0] : tensor<64x128xf32>
// CHECK: kiln.dot_general {{.*}} : tensor<128x64xf8E4M3FN>, tensor<96x64xf8E4M3FN> to f32
func.func @f(%g: tensor<64x128xf32>, %s: tensor<f32>, %w: tensor<96x128xf8E4M3FN>, %v: tensor<96x64xf8E4M3FN>) -> (tensor<64x96xf32>, tensor<128x96xf32>) {
  %0 = kiln.broadcast_in_dim %s dims = [] sizes = [64, 128] : tensor<f32>
  %1 = kiln.mul %g, %0 : tensor<64x128xf32>
  %2 = kiln.convert %1 : tensor<64x128xf32> to f8E4M3FN
  %3 = kiln.convert %2 : tensor<64x128xf8E4M3FN> to bf16
  %4 = kiln.convert %w : tensor<96x128xf8E4M3FN> to bf16
  %5 = kiln.dot_general %3, %4 batch = [] x [] contract = [1] x [1] : tensor<64x128xbf16>, tensor<96x128xbf16> to f32
  %6 = kiln.convert %v : tensor<96x64xf8E4M3FN> to bf16
  %7 = kiln.transpose %3 permutation = [1, 0] : tensor<64x128xbf16>
  %8 = kiln.dot_general %7, %6 batch = [] x [] contract = [1] x [1] : tensor<128x64xbf16>, tensor<96x64xbf16> to f32
  return %5, %8 : tensor<64x96xf32>, tensor<128x96xf32>
}

// -----
// Two types, and a K of which rows are no whole 16 bytes.
// CASE: two_types
// CHECK-COUNT-4: kiln.convert
func.func @f(%x: tensor<64x128xf8E4M3FN>, %w: tensor<96x128xf8E5M2>, %y: tensor<64x100xf8E4M3FN>, %v: tensor<96x100xf8E4M3FN>) -> (tensor<64x96xf32>, tensor<64x96xf32>) {
  %0 = kiln.convert %x : tensor<64x128xf8E4M3FN> to bf16
  %1 = kiln.convert %w : tensor<96x128xf8E5M2> to bf16
  %2 = kiln.dot_general %0, %1 batch = [] x [] contract = [1] x [1] : tensor<64x128xbf16>, tensor<96x128xbf16> to f32
  %3 = kiln.convert %y : tensor<64x100xf8E4M3FN> to bf16
  %4 = kiln.convert %v : tensor<96x100xf8E4M3FN> to bf16
  %5 = kiln.dot_general %3, %4 batch = [] x [] contract = [1] x [1] : tensor<64x100xbf16>, tensor<96x100xbf16> to f32
  return %2, %5 : tensor<64x96xf32>, tensor<64x96xf32>
}
