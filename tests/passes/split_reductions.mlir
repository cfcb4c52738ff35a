// RUN: kiln-split-reductions{min-elements=16384}

// CASE: full_sum_with_prologue
// CHECK: kiln.reshape %arg0 sizes = [4, 8192]
// CHECK: kiln.reduce sum
// IMPLICIT-CHECK-NOT: tensor<32768xf32>
func.func @f(%x: tensor<32768xbf16>) -> tensor<f32> {
  %two = kiln.splat [32768], 2.0 : f32
  %0 = kiln.convert %x : tensor<32768xbf16> to f32
  %1 = kiln.mul %0, %0 : tensor<32768xf32>
  %2 = kiln.mul %1, %two : tensor<32768xf32>
  %3 = kiln.reduce sum %2 dims = [0] : tensor<32768xf32>
  return %3 : tensor<f32>
}

// -----
// CASE: bf16_partial_sums_are_f32
// CHECK: kiln.convert
// CHECK: tensor<2xf32>
func.func @f(%x: tensor<16384xbf16>) -> tensor<bf16> {
  %0 = kiln.reduce sum %x dims = [0] : tensor<16384xbf16>
  return %0 : tensor<bf16>
}

// -----
// CASE: prime_size_has_a_remainder
// CHECK: kiln.slice
// CHECK: kiln.max
func.func @f(%x: tensor<16411xf32>) -> tensor<f32> {
  %0 = kiln.abs %x : tensor<16411xf32>
  %1 = kiln.reduce max %0 dims = [0] : tensor<16411xf32>
  return %1 : tensor<f32>
}

// -----
// CASE: columns
// CHECK: sizes = [4, 128, 64]
// CHECK: dims = [1]
func.func @f(%x: tensor<512x64xf32>) -> tensor<64xf32> {
  %0 = kiln.reduce sum %x dims = [0] : tensor<512x64xf32>
  return %0 : tensor<64xf32>
}

// -----
// CASE: shared_producers_are_not_recomputed
// CHECK: kiln.reshape %0 sizes = [2, 8192]
func.func @f(%x: tensor<16384xf32>) -> (tensor<16384xf32>, tensor<f32>) {
  %0 = kiln.exp %x : tensor<16384xf32>
  %1 = kiln.reduce sum %0 dims = [0] : tensor<16384xf32>
  return %0, %1 : tensor<16384xf32>, tensor<f32>
}

// -----
// CASE: rows_of_a_batch
// CHECK: sizes = [3, 2, 8192]
// CHECK: dims = [2]
// CHECK: dims = [1]
func.func @f(%x: tensor<3x16384xi32>) -> tensor<3xi32> {
  %0 = kiln.reduce sum %x dims = [1] : tensor<3x16384xi32>
  return %0 : tensor<3xi32>
}

// -----
// CASE: many_rows_stay
// CHECK-NOT: kiln.reshape
func.func @f(%x: tensor<?x16384xf32>, %y: tensor<600x16384xf32>, %z: tensor<4096xf32>) -> (tensor<?xf32>, tensor<600xf32>, tensor<f32>) {
  %0 = kiln.reduce sum %x dims = [1] : tensor<?x16384xf32>
  %1 = kiln.reduce sum %y dims = [1] : tensor<600x16384xf32>
  %2 = kiln.reduce sum %z dims = [0] : tensor<4096xf32>
  return %0, %1, %2 : tensor<?xf32>, tensor<600xf32>, tensor<f32>
}

// -----
// CASE: softmax_rows_stay
// CHECK-NOT: kiln.reshape
func.func @f(%x: tensor<4x16384xf32>) -> tensor<4x16384xf32> {
  %0 = kiln.reduce max %x dims = [1] : tensor<4x16384xf32>
  %1 = kiln.neg %0 : tensor<4xf32>
  %2 = kiln.broadcast_in_dim %1 dims = [0] sizes = [4, 16384] : tensor<4xf32>
  %3 = kiln.add %x, %2 : tensor<4x16384xf32>
  return %3 : tensor<4x16384xf32>
}

// -----
// CASE: variance_stays_with_its_mean
// CHECK-NOT: kiln.reshape
func.func @f(%x: tensor<4x16384xf32>) -> tensor<4xf32> {
  %0 = kiln.reduce sum %x dims = [1] : tensor<4x16384xf32>
  %n = kiln.splat [4], 16384.0 : f32
  %1 = kiln.div %0, %n : tensor<4xf32>
  %2 = kiln.broadcast_in_dim %1 dims = [0] sizes = [4, 16384] : tensor<4xf32>
  %3 = kiln.sub %x, %2 : tensor<4x16384xf32>
  %4 = kiln.mul %3, %3 : tensor<4x16384xf32>
  %5 = kiln.reduce sum %4 dims = [1] : tensor<4x16384xf32>
  return %5 : tensor<4xf32>
}

// -----
// CASE: argmax_of_a_long_axis
// CHECK: sizes = [4, 8192]
// CHECK: kiln.arg_max %0 axis = 1
func.func @f(%x: tensor<32768xbf16>) -> tensor<i64> {
  %0 = kiln.arg_max %x axis = 0 : tensor<32768xbf16>
  return %0 : tensor<i64>
}

// -----
// RUN: kiln-split-reductions{min-elements=64 ctas=4 min-contiguous=8 min-strided=8 columns-per-cta=2}
// CASE: argmax_with_prologue_and_remainder
// CHECK: kiln.select
func.func @f(%x: tensor<2x67xf32>) -> tensor<2xi64> {
  %0 = kiln.round_even %x : tensor<2x67xf32>
  %1 = kiln.arg_min %0 axis = 1 : tensor<2x67xf32>
  return %1 : tensor<2xi64>
}

// -----
// RUN: kiln-split-reductions{min-elements=64 ctas=16 min-strided=2 columns-per-cta=4}
// CASE: merged_dimensions
// CHECK: sizes = [8, 6, 4]
// CHECK: dims = [2] sizes = [8, 6, 4]
// CHECK: dims = [1]
func.func @f(%x: tensor<4x3x4x4xbf16>, %mean: tensor<1x1x1x4xf32>) -> tensor<4xf32> {
  %0 = kiln.convert %x : tensor<4x3x4x4xbf16> to f32
  %1 = kiln.broadcast_in_dim %mean dims = [0, 1, 2, 3] sizes = [4, 3, 4, 4] : tensor<1x1x1x4xf32>
  %2 = kiln.sub %0, %1 : tensor<4x3x4x4xf32>
  %3 = kiln.reduce sum %2 dims = [0, 1, 2] : tensor<4x3x4x4xf32>
  return %3 : tensor<4xf32>
}

// -----
// A part is one row: nothing is reshaped, so that producers keep their loops.
// CASE: a_part_of_each_row
// RUN: kiln-split-reductions{min-contiguous=64 min-elements=1024}
// CHECK: kiln.reduce sum %{{.*}} dims = [0, 2] : tensor<4x64x16xf32>
// CHECK: kiln.reduce sum %{{.*}} dims = [0] : tensor<64xf32>
// IMPLICIT-CHECK-NOT: kiln.reshape
func.func @f(%x: tensor<4x64x16xbf16>) -> tensor<f32> {
  %0 = kiln.convert %x : tensor<4x64x16xbf16> to f32
  %1 = kiln.mul %0, %0 : tensor<4x64x16xf32>
  %2 = kiln.reduce sum %1 dims = [0, 1, 2] : tensor<4x64x16xf32>
  return %2 : tensor<f32>
}

// -----
// What is read is transposed alike: the dimensions that are reduced are adjacent in memory.
// CASE: transposed_operands
// RUN: kiln-split-reductions{min-strided=8 min-elements=1024},canonicalize
// CHECK: kiln.reduce sum %{{.*}} dims = [1] : tensor<{{[0-9]+}}x{{[0-9]+}}x8xf32>
// CHECK: kiln.reduce sum %{{.*}} dims = [0] : tensor<{{[0-9]+}}x8xf32>
// IMPLICIT-CHECK-NOT: kiln.transpose
func.func @f(%x: tensor<4x16x16x8xf32>, %y: tensor<4x16x16x8xbf16>) -> tensor<8xf32> {
  %0 = kiln.transpose %x permutation = [0, 3, 1, 2] : tensor<4x16x16x8xf32>
  %1 = kiln.convert %y : tensor<4x16x16x8xbf16> to f32
  %2 = kiln.transpose %1 permutation = [0, 3, 1, 2] : tensor<4x16x16x8xf32>
  %3 = kiln.mul %0, %2 : tensor<4x8x16x16xf32>
  %4 = kiln.reduce sum %3 dims = [0, 2, 3] : tensor<4x8x16x16xf32>
  return %4 : tensor<8xf32>
}

// -----
// Two dimensions stay, in another order than in memory.
// CASE: transposed_results
// RUN: kiln-split-reductions{min-strided=8 min-elements=1024},canonicalize
// CHECK: kiln.transpose %{{.*}} permutation = [1, 0] : tensor<{{[0-9]+}}x{{[0-9]+}}xf32>
func.func @f(%x: tensor<16x4x32xf32>) -> tensor<32x4xf32> {
  %0 = kiln.transpose %x permutation = [2, 1, 0] : tensor<16x4x32xf32>
  %1 = kiln.reduce sum %0 dims = [2] : tensor<32x4x16xf32>
  return %1 : tensor<32x4xf32>
}

// -----
// The kernel of a product applies its transpose, which the reduction goes on to read.
// CASE: transposed_product
// RUN: kiln-split-reductions{min-strided=8 min-elements=64},canonicalize
// CHECK-COUNT-1: kiln.transpose
func.func @f(%x: tensor<64x8xf32>, %w: tensor<8x16xf32>) -> (tensor<16xf32>, tensor<16x64xf32>) {
  %0 = kiln.dot_general %x, %w batch = [] x [] contract = [1] x [0] : tensor<64x8xf32>, tensor<8x16xf32>
  %1 = kiln.transpose %0 permutation = [1, 0] : tensor<64x16xf32>
  %2 = kiln.reduce sum %1 dims = [1] : tensor<16x64xf32>
  %3 = kiln.neg %1 : tensor<16x64xf32>
  return %2, %3 : tensor<16xf32>, tensor<16x64xf32>
}

// -----
// A reshape of the dimensions that are reduced is no obstacle: the sum is of columns of %x.
// CASE: reshaped_transposes
// RUN: kiln-split-reductions{min-strided=8 min-elements=1024},canonicalize
// CHECK: kiln.reduce sum %{{.*}} dims = [0, 2] : tensor<4x{{[0-9]+}}x{{[0-9]+}}x8xf32>
// IMPLICIT-CHECK-NOT: kiln.transpose
func.func @f(%x: tensor<4x256x8xbf16>) -> tensor<8xbf16> {
  %0 = kiln.transpose %x permutation = [0, 2, 1] : tensor<4x256x8xbf16>
  %1 = kiln.reshape %0 sizes = [4, 8, 16, 16] : tensor<4x8x256xbf16>
  %2 = kiln.reduce sum %1 dims = [0, 2, 3] : tensor<4x8x16x16xbf16>
  return %2 : tensor<8xbf16>
}

// -----
// What another op reads is computed in its order, for both. A reshape of what stays is kept.
// CASE: reshapes_that_stay
// RUN: kiln-split-reductions{min-strided=8 min-elements=1024},canonicalize
// CHECK: kiln.transpose %arg0 permutation = [0, 2, 1]
// CHECK: kiln.reshape %{{.*}} sizes = [4, 8, 16, 16]
// CHECK: kiln.transpose %arg1 permutation = [1, 0]
// CHECK: kiln.reshape %{{.*}} sizes = [2, 4, 256]
func.func @f(%x: tensor<4x256x8xbf16>, %y: tensor<256x8xf32>) -> (tensor<8xbf16>, tensor<4x8x16x16xbf16>, tensor<4xf32>) {
  %0 = kiln.transpose %x permutation = [0, 2, 1] : tensor<4x256x8xbf16>
  %1 = kiln.reshape %0 sizes = [4, 8, 16, 16] : tensor<4x8x256xbf16>
  %2 = kiln.reduce sum %1 dims = [0, 2, 3] : tensor<4x8x16x16xbf16>
  %3 = kiln.neg %1 : tensor<4x8x16x16xbf16>
  %4 = kiln.transpose %y permutation = [1, 0] : tensor<256x8xf32>
  %5 = kiln.reshape %4 sizes = [2, 4, 256] : tensor<8x256xf32>
  %6 = kiln.reduce sum %5 dims = [0, 2] : tensor<2x4x256xf32>
  return %2, %3, %6 : tensor<8xbf16>, tensor<4x8x16x16xbf16>, tensor<4xf32>
}

// -----
// What has the merged dimensions whole is reshaped below its broadcast or slice.
// CASE: merged_broadcasts_and_slices
// RUN: kiln-split-reductions{min-elements=64 ctas=32 min-strided=2 columns-per-cta=4},canonicalize
// CHECK: kiln.reshape %arg0 sizes = [16, 9, 6]
// CHECK: kiln.slice %{{.*}} offsets = [0, 0, 2] sizes = [16, 9, 4] strides = [1, 1, 1]
// CHECK: kiln.reshape %arg1 sizes = [16, 9, 1]
// CHECK: kiln.reduce sum %{{.*}} dims = [1] : tensor<16x9x4xf32>
func.func @f(%x: tensor<4x12x3x6xf32>, %mean: tensor<4x12x3x1xf32>) -> tensor<4xf32> {
  %0 = kiln.slice %x offsets = [0, 0, 0, 2] sizes = [4, 12, 3, 4] strides = [1, 1, 1, 1] : tensor<4x12x3x6xf32>
  %1 = kiln.broadcast_in_dim %mean dims = [0, 1, 2, 3] sizes = [4, 12, 3, 4] : tensor<4x12x3x1xf32>
  %2 = kiln.sub %0, %1 : tensor<4x12x3x4xf32>
  %3 = kiln.reduce sum %2 dims = [0, 1, 2] : tensor<4x12x3x4xf32>
  return %3 : tensor<4xf32>
}

// -----
// A transposed operand is not contiguous in merged dimensions: images are parts, and their rows are
// split.
// CASE: outermost_dimensions_are_parts
// RUN: kiln-split-reductions{min-elements=64 ctas=32 min-strided=2 columns-per-cta=4},canonicalize
// CHECK: kiln.reduce sum %{{.*}} dims = [2, 3] : tensor<4x4x3x3x4xf32>
// CHECK: kiln.reduce sum %{{.*}} dims = [0, 1] : tensor<4x4x4xf32>
func.func @f(%y: tensor<4x4x12x3xbf16>, %mean: tensor<4x12x3x1xf32>) -> tensor<4xf32> {
  %x = kiln.transpose %y permutation = [0, 2, 3, 1] : tensor<4x4x12x3xbf16>
  %0 = kiln.convert %x : tensor<4x12x3x4xbf16> to f32
  %1 = kiln.broadcast_in_dim %mean dims = [0, 1, 2, 3] sizes = [4, 12, 3, 4] : tensor<4x12x3x1xf32>
  %2 = kiln.sub %0, %1 : tensor<4x12x3x4xf32>
  %3 = kiln.reduce sum %2 dims = [0, 1, 2] : tensor<4x12x3x4xf32>
  return %3 : tensor<4xf32>
}

// -----
// The masked values are stored for what else reads them, which a conversion of its own hides.
// CASE: values_with_other_readers_are_read
// CHECK: kiln.select
// CHECK-NOT: kiln.select
func.func @f(%x: tensor<512x64xbf16>, %m: tensor<512x64xi1>) -> (tensor<64xf32>, tensor<512x64xf32>) {
  %zero = kiln.splat [512, 64], 0.0 : bf16
  %0 = kiln.select %m, %zero, %x : tensor<512x64xi1>, tensor<512x64xbf16>
  %1 = kiln.convert %0 : tensor<512x64xbf16> to f32
  %2 = kiln.mul %1, %1 : tensor<512x64xf32>
  %3 = kiln.reduce sum %1 dims = [0] : tensor<512x64xf32>
  return %3, %2 : tensor<64xf32>, tensor<512x64xf32>
}
