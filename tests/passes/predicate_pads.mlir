// RUN: kiln-predicate-pads

// CASE: slices_of_a_padded_argument
// CHECK-NOT: kiln.pad
// CHECK: kiln.gather %arg0
// CHECK: kiln.select
// CHECK: kiln.slice %arg0 offsets = [1, 0] sizes = [3, 8]
// CHECK: kiln.max
func.func @f(%x: tensor<4x8xf32>) -> (tensor<3x8xf32>, tensor<4x8xf32>) {
  %0 = kiln.splat [], 7.0 : f32
  %1 = kiln.pad %x, %0 low = [1, 0] high = [2, 0] : tensor<4x8xf32>, tensor<f32>
  %2 = kiln.slice %1 offsets = [2, 0] sizes = [3, 8] strides = [1, 1] : tensor<7x8xf32>
  %3 = kiln.exp %2 : tensor<3x8xf32>
  %4 = kiln.slice %1 offsets = [0, 0] sizes = [4, 8] strides = [2, 1] : tensor<7x8xf32>
  %5 = kiln.max %4, %x : tensor<4x8xf32>
  return %3, %5 : tensor<3x8xf32>, tensor<4x8xf32>
}

// -----
// CASE: of_two_dimensions_behind_another
// CHECK: kiln.gather %arg0[%{{.*}}, %{{.*}}, %{{.*}}] dims = [0, 1, 2]
// CHECK-NOT: kiln.transpose
func.func @f(%x: tensor<2x3x4x8xf32>) -> tensor<2x5x6x8xf32> {
  %0 = kiln.splat [], 0.0 : f32
  %1 = kiln.pad %x, %0 low = [0, 1, 1, 0] high = [0, 1, 1, 0] : tensor<2x3x4x8xf32>, tensor<f32>
  %2 = kiln.exp %1 : tensor<2x5x6x8xf32>
  return %2 : tensor<2x5x6x8xf32>
}

// -----
// CASE: small_windows_are_compared_one_by_one
// CHECK-NOT: kiln.reduce_window
// CHECK-COUNT-2: kiln.max
func.func @f(%x: tensor<2x5x8xf32>) -> tensor<2x3x8xf32> {
  %0 = kiln.splat [], -1.0 : f32
  %1 = kiln.pad %x, %0 low = [0, 1, 0] high = [0, 1, 0] : tensor<2x5x8xf32>, tensor<f32>
  %2 = kiln.reduce_window max %1 window = [1, 3, 1] strides = [1, 2, 1] pad = [0, 0, 0] x [0, 0, 0] dilation = [1, 1, 1] : tensor<2x7x8xf32>
  return %2 : tensor<2x3x8xf32>
}

// -----
// CASE: not_what_its_producer_writes
// CHECK: kiln.pad
func.func @f(%x: tensor<4x8xf32>) -> tensor<3x8xf32> {
  %0 = kiln.splat [], 7.0 : f32
  %1 = kiln.exp %x : tensor<4x8xf32>
  %2 = kiln.pad %1, %0 low = [1, 0] high = [2, 0] : tensor<4x8xf32>, tensor<f32>
  %3 = kiln.slice %2 offsets = [2, 0] sizes = [3, 8] strides = [1, 1] : tensor<7x8xf32>
  %4 = kiln.exp %3 : tensor<3x8xf32>
  return %4 : tensor<3x8xf32>
}

// -----
// CASE: not_the_innermost_dimension
// CHECK: kiln.pad
func.func @f(%x: tensor<4x8xf32>) -> tensor<4x9xf32> {
  %0 = kiln.splat [], 7.0 : f32
  %1 = kiln.pad %x, %0 low = [0, 1] high = [0, 0] : tensor<4x8xf32>, tensor<f32>
  %2 = kiln.exp %1 : tensor<4x9xf32>
  return %2 : tensor<4x9xf32>
}

// -----
// CASE: not_of_a_product_or_a_result
// CHECK-COUNT-2: kiln.pad
func.func @f(%x: tensor<4x8xf32>, %y: tensor<4x8xf32>) -> (tensor<6x6xf32>, tensor<6x8xf32>) {
  %0 = kiln.splat [], 0.0 : f32
  %1 = kiln.pad %x, %0 low = [1, 0] high = [1, 0] : tensor<4x8xf32>, tensor<f32>
  %2 = kiln.dot_general %1, %1 batch = [] x [] contract = [1] x [1] : tensor<6x8xf32>, tensor<6x8xf32>
  %3 = kiln.pad %y, %0 low = [1, 0] high = [1, 0] : tensor<4x8xf32>, tensor<f32>
  return %2, %3 : tensor<6x6xf32>, tensor<6x8xf32>
}
