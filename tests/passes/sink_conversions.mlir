// RUN: kiln-sink-conversions

// What a kernel stores before the transpose has 16 bits.
// CASE: below_a_chain_of_movements
// CHECK: kiln.reshape %arg0 sizes = [2, 3, 4] : tensor<2x12xbf16>
// CHECK: kiln.transpose %{{.*}} : tensor<2x3x4xbf16>
// CHECK: kiln.slice %{{.*}} : tensor<2x4x3xbf16>
// CHECK: kiln.convert %{{.*}} : tensor<2x2x3xbf16> to f32
func.func @f(%x: tensor<2x12xbf16>) -> tensor<2x2x3xf32> {
  %0 = kiln.convert %x : tensor<2x12xbf16> to f32
  %1 = kiln.reshape %0 sizes = [2, 3, 4] : tensor<2x12xf32>
  %2 = kiln.transpose %1 permutation = [0, 2, 1] : tensor<2x3x4xf32>
  %3 = kiln.slice %2 offsets = [0, 1, 0] sizes = [2, 2, 3] strides = [1, 1, 1] : tensor<2x4x3xf32>
  return %3 : tensor<2x2x3xf32>
}

// -----
// Another reader keeps its own.
// CASE: with_another_reader
// CHECK: kiln.convert %arg0
// CHECK: kiln.exp
// CHECK: kiln.convert %{{.*}} : tensor<3x2xf16> to f32
func.func @f(%x: tensor<2x3xf16>) -> (tensor<2x3xf32>, tensor<3x2xf32>) {
  %0 = kiln.convert %x : tensor<2x3xf16> to f32
  %1 = kiln.exp %0 : tensor<2x3xf32>
  %2 = kiln.transpose %0 permutation = [1, 0] : tensor<2x3xf32>
  return %1, %2 : tensor<2x3xf32>, tensor<3x2xf32>
}

// -----
// CASE: dynamic
// CHECK: kiln.reshape %arg0 sizes = [%{{.*}}, 2, 2] : tensor<?x4xbf16>
// CHECK: kiln.convert %{{.*}} : tensor<?x2x2xbf16> to f32
func.func @f(%x: tensor<?x4xbf16>) -> tensor<?x2x2xf32> {
  %n = kiln.sym @n {min = 1 : i64}
  kiln.bind_shape %x, [%n, 4] : tensor<?x4xbf16>
  %0 = kiln.convert %x : tensor<?x4xbf16> to f32
  %1 = kiln.reshape %0 sizes = [%n, 2, 2] : tensor<?x4xf32>
  return %1 : tensor<?x2x2xf32>
}

// -----
// Fewer bits are stored where they are, and integers are no floats.
// CASE: narrowing_stays
// CHECK: kiln.convert
// CHECK: kiln.transpose %{{.*}} : tensor<2x3xbf16>
// CHECK: kiln.convert
// CHECK: kiln.transpose %{{.*}} : tensor<2x3xf32>
func.func @f(%x: tensor<2x3xf32>, %i: tensor<2x3xi8>) -> (tensor<3x2xbf16>, tensor<3x2xf32>) {
  %0 = kiln.convert %x : tensor<2x3xf32> to bf16
  %1 = kiln.transpose %0 permutation = [1, 0] : tensor<2x3xbf16>
  %2 = kiln.convert %i : tensor<2x3xi8> to f32
  %3 = kiln.transpose %2 permutation = [1, 0] : tensor<2x3xf32>
  return %1, %3 : tensor<3x2xbf16>, tensor<3x2xf32>
}

// -----
// kiln-narrow-products stores the transpose of an operand of 8 bits.
// CASE: floats_of_8_bits_stay
// CHECK: kiln.convert
// CHECK: kiln.transpose %{{.*}} : tensor<2x3xbf16>
func.func @f(%x: tensor<2x3xf8E4M3FN>) -> tensor<3x2xbf16> {
  %0 = kiln.convert %x : tensor<2x3xf8E4M3FN> to bf16
  %1 = kiln.transpose %0 permutation = [1, 0] : tensor<2x3xbf16>
  return %1 : tensor<3x2xbf16>
}
