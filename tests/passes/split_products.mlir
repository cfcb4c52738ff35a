// RUN: kiln-split-products

// CASE: large_k_with_few_tiles
// CHECK: kiln.reshape %arg0 sizes = [128,
// CHECK: batch = [1] x [1] contract = [2] x [2]
// CHECK: to f32
// CHECK: kiln.reduce sum
// CHECK: to bf16
func.func @f(%x: tensor<128x8192xbf16>, %w: tensor<128x8192xbf16>) -> tensor<128x128xbf16> {
  %0 = kiln.dot_general %x, %w batch = [] x [] contract = [1] x [1] : tensor<128x8192xbf16>, tensor<128x8192xbf16>
  return %0 : tensor<128x128xbf16>
}

// -----
// CASE: batch_and_mn_major
// RUN: kiln-split-products{launch=0 bandwidth=1000000}
// CHECK: batch = [0, 2] x [0, 1] contract = [3] x [2]
func.func @f(%x: tensor<2x72x512xbf16>, %w: tensor<2x512x72xbf16>) -> tensor<2x72x72xf32> {
  %0 = kiln.dot_general %x, %w batch = [0] x [0] contract = [2] x [1] : tensor<2x72x512xbf16>, tensor<2x512x72xbf16> to f32
  return %0 : tensor<2x72x72xf32>
}

// -----
// CASE: enough_tiles_for_the_gpu
// CHECK-NOT: kiln.reduce
func.func @f(%x: tensor<4096x1024xbf16>, %w: tensor<4096x1024xbf16>) -> tensor<4096x4096xbf16> {
  %0 = kiln.dot_general %x, %w batch = [] x [] contract = [1] x [1] : tensor<4096x1024xbf16>, tensor<4096x1024xbf16>
  return %0 : tensor<4096x4096xbf16>
}

// -----
// CASE: skinny_gemm_is_not_split
// CHECK-NOT: kiln.reduce
func.func @f(%x: tensor<16x4096xbf16>, %w: tensor<4096x4096xbf16>) -> tensor<16x4096xbf16> {
  %0 = kiln.dot_general %x, %w batch = [] x [] contract = [1] x [1] : tensor<16x4096xbf16>, tensor<4096x4096xbf16>
  return %0 : tensor<16x4096xbf16>
}

// -----
// The same sizes are split in bf16.
// CASE: f32_is_not_split
// CHECK-NOT: kiln.reduce
func.func @f(%x: tensor<128x8192xf32>, %w: tensor<128x8192xf32>) -> tensor<128x128xf32> {
  %0 = kiln.dot_general %x, %w batch = [] x [] contract = [1] x [1] : tensor<128x8192xf32>, tensor<128x8192xf32>
  return %0 : tensor<128x128xf32>
}

// -----
// CASE: before_hopper
// RUN: kiln-split-products{chip=sm_80}
// CHECK-NOT: kiln.reduce
func.func @f(%x: tensor<128x8192xbf16>, %w: tensor<128x8192xbf16>) -> tensor<128x128xbf16> {
  %0 = kiln.dot_general %x, %w batch = [] x [] contract = [1] x [1] : tensor<128x8192xbf16>, tensor<128x8192xbf16>
  return %0 : tensor<128x128xbf16>
}

// -----
// CASE: measured_split_factor
// CHECK: kiln.reshape %arg0 sizes = [64, 2, 64]
// IMPLICIT-CHECK-NOT: kiln.reshape %arg2
module attributes {kiln.parts = {
    "tensor<64x128xbf16> tensor<64x128xbf16> batch [] x [] contract [1] x [1] to bf16" = 2 : i64,
    "tensor<64x8192xbf16> tensor<64x8192xbf16> batch [] x [] contract [1] x [1] to f32" = 1 : i64}} {
func.func @f(%x: tensor<64x128xbf16>, %w: tensor<64x128xbf16>, %y: tensor<64x8192xbf16>, %z: tensor<64x8192xbf16>) -> (tensor<64x64xbf16>, tensor<64x64xf32>) {
  %0 = kiln.dot_general %x, %w batch = [] x [] contract = [1] x [1] : tensor<64x128xbf16>, tensor<64x128xbf16>
  %1 = kiln.dot_general %y, %z batch = [] x [] contract = [1] x [1] : tensor<64x8192xbf16>, tensor<64x8192xbf16> to f32
  return %0, %1 : tensor<64x64xbf16>, tensor<64x64xf32>
}
}

// -----
// Rows of four numbers are too short for TMA: a single CTA would sum two million products.
// CASE: few_results_of_a_large_k
// RUN: kiln-split-products{chip=sm_80}
// CHECK: kiln.reshape %arg0 sizes = [64, 1024, 4]
// CHECK: batch = [0] x [0] contract = [1] x [1]
// CHECK: kiln.reduce sum
func.func @f(%x: tensor<65536x4xbf16>, %y: tensor<65536x4xbf16>) -> tensor<4x4xbf16> {
  %0 = kiln.dot_general %x, %y batch = [] x [] contract = [0] x [0] : tensor<65536x4xbf16>, tensor<65536x4xbf16>
  return %0 : tensor<4x4xbf16>
}

// -----
// CASE: many_results_of_short_rows
// CHECK-NOT: kiln.reduce
func.func @f(%x: tensor<65536x36xf32>, %y: tensor<65536x36xf32>) -> tensor<36x36xf32> {
  %0 = kiln.dot_general %x, %y batch = [] x [] contract = [0] x [0] : tensor<65536x36xf32>, tensor<65536x36xf32>
  return %0 : tensor<36x36xf32>
}

// -----
// The gradient of a weight of few rows: its operands are not K-major, so that no kernel for few rows
// takes them, and one tile would be one CTA.
// CASE: a_weight_gradient_of_few_rows
// CHECK: kiln.reshape %arg0 sizes = [49, 8192, 24]
// CHECK: kiln.reduce sum
func.func @f(%x: tensor<401408x24xbf16>, %y: tensor<401408x72xbf16>) -> tensor<24x72xbf16> {
  %0 = kiln.dot_general %x, %y batch = [] x [] contract = [0] x [0] : tensor<401408x24xbf16>, tensor<401408x72xbf16>
  return %0 : tensor<24x72xbf16>
}
