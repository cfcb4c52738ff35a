// RUN: kiln-split-concats

// The convolutions' slices come first, in program order; the argument is copied after them.
// CASE: slices_of_two_convolutions
// CHECK: kiln.insert_slice %0 offsets = [0, 2, 0, 0] sizes = [1, 7, 4, 4]
// CHECK: into %2 offsets = [0, 6, 0, 0]
// CHECK: kiln.insert_slice %arg0 into %3 offsets = [0, 0, 0, 0]
// IMPLICIT-CHECK-NOT: kiln.concat
func.func @f(%x: tensor<1x2x4x4xf32>, %w: tensor<4x2x1x1xf32>, %v: tensor<1x2x3x3xf32>) -> tensor<1x7x4x4xf32> {
  %0 = kiln.convolution %x, %w strides = [1, 1] pad = [0, 0] x [0, 0] dilation = [1, 1] : tensor<1x2x4x4xf32>, tensor<4x2x1x1xf32>
  %1 = kiln.convolution %x, %v strides = [1, 1] pad = [1, 1] x [1, 1] dilation = [1, 1] : tensor<1x2x4x4xf32>, tensor<1x2x3x3xf32>
  %2 = kiln.concat %x, %0, %1 axis = 1 : tensor<1x2x4x4xf32>, tensor<1x4x4x4xf32>, tensor<1x1x4x4xf32>
  return %2 : tensor<1x7x4x4xf32>
}

// -----
// A single convolution's kernel inserts its slice and copies the rest.
// CASE: one_convolution
// CHECK: kiln.concat
// IMPLICIT-CHECK-NOT: kiln.insert_slice
func.func @f(%x: tensor<1x2x4x4xf32>, %w: tensor<4x2x1x1xf32>) -> tensor<1x6x4x4xf32> {
  %0 = kiln.convolution %x, %w strides = [1, 1] pad = [0, 0] x [0, 0] dilation = [1, 1] : tensor<1x2x4x4xf32>, tensor<4x2x1x1xf32>
  %1 = kiln.concat %0, %x axis = 1 : tensor<1x4x4x4xf32>, tensor<1x2x4x4xf32>
  return %1 : tensor<1x6x4x4xf32>
}

// -----
// A kernel inserts its slice into the first tensor; the second has copies and one convolution.
// CASE: the_first_of_two_concatenations
// CHECK: kiln.insert_slice %1 into
// CHECK: kiln.concat %0, %1, %5
func.func @f(%x: tensor<1x2x4x4xf32>, %w: tensor<2x2x1x1xf32>) -> (tensor<1x4x4x4xf32>, tensor<1x6x4x4xf32>) {
  %0 = kiln.convolution %x, %w strides = [1, 1] pad = [0, 0] x [0, 0] dilation = [1, 1] : tensor<1x2x4x4xf32>, tensor<2x2x1x1xf32>
  %1 = kiln.convolution %0, %w strides = [1, 1] pad = [0, 0] x [0, 0] dilation = [1, 1] : tensor<1x2x4x4xf32>, tensor<2x2x1x1xf32>
  %2 = kiln.concat %0, %1 axis = 1 : tensor<1x2x4x4xf32>, tensor<1x2x4x4xf32>
  %3 = kiln.neg %1 : tensor<1x2x4x4xf32>
  %4 = kiln.convolution %3, %w strides = [1, 1] pad = [0, 0] x [0, 0] dilation = [1, 1] : tensor<1x2x4x4xf32>, tensor<2x2x1x1xf32>
  %5 = kiln.concat %0, %1, %4 axis = 1 : tensor<1x2x4x4xf32>, tensor<1x2x4x4xf32>, tensor<1x2x4x4xf32>
  return %2, %5 : tensor<1x4x4x4xf32>, tensor<1x6x4x4xf32>
}

// -----
// Dynamic batch, and dynamic sizes along the axis, where slices start at a sum of sizes.
// CASE: dynamic_sizes
// CHECK: kiln.sym_expr add %0, %0
// CHECK: offsets = [0, 0, %0] sizes = [2, 3, %4]
func.func @f(%x: tensor<2x1x?xf32>, %w: tensor<3x1x1xf32>) -> tensor<2x3x?xf32> {
  %n = kiln.sym @n
  kiln.bind_shape %x, [2, 1, %n] : tensor<2x1x?xf32>
  %0 = kiln.convolution %x, %w strides = [1] pad = [0] x [0] dilation = [1] : tensor<2x1x?xf32>, tensor<3x1x1xf32>
  %1 = kiln.neg %x : tensor<2x1x?xf32>
  %2 = kiln.convolution %1, %w strides = [1] pad = [0] x [0] dilation = [1] : tensor<2x1x?xf32>, tensor<3x1x1xf32>
  %3 = kiln.concat %0, %2 axis = 2 : tensor<2x3x?xf32>, tensor<2x3x?xf32>
  return %3 : tensor<2x3x?xf32>
}

// -----
// Matmuls, pools and rows too; a single row kernel as well, since it copies nothing.
// CASE: slices_of_a_matmul_and_rows
// CHECK: kiln.insert_slice %0 offsets = [0, 0]
// CHECK: kiln.insert_slice %3 into %4 offsets = [0, 5]
// CHECK: kiln.insert_slice %arg0 into %9 offsets = [0, 0]
// IMPLICIT-CHECK-NOT: kiln.concat
func.func @f(%x: tensor<8x6xf32>, %w: tensor<6x5xf32>) -> (tensor<8x11xf32>, tensor<8x12xf32>) {
  %0 = kiln.dot_general %x, %w batch = [] x [] contract = [1] x [0] : tensor<8x6xf32>, tensor<6x5xf32>
  %1 = kiln.reduce max %x dims = [1] : tensor<8x6xf32>
  %2 = kiln.broadcast_in_dim %1 dims = [0] sizes = [8, 6] : tensor<8xf32>
  %3 = kiln.sub %x, %2 : tensor<8x6xf32>
  %4 = kiln.concat %0, %3 axis = 1 : tensor<8x5xf32>, tensor<8x6xf32>
  %5 = kiln.reduce min %x dims = [1] : tensor<8x6xf32>
  %6 = kiln.broadcast_in_dim %5 dims = [0] sizes = [8, 6] : tensor<8xf32>
  %7 = kiln.sub %x, %6 : tensor<8x6xf32>
  %8 = kiln.concat %x, %7 axis = 1 : tensor<8x6xf32>, tensor<8x6xf32>
  return %4, %8 : tensor<8x11xf32>, tensor<8x12xf32>
}

// -----
// An input that is a concatenation itself, with a size that the chain does not state.
// CASE: a_concatenation_of_a_concatenation
// CHECK: kiln.insert_slice %1 offsets
// IMPLICIT-CHECK-NOT: kiln.concat
func.func @f(%x: tensor<?x4xf32>, %w: tensor<4x1xf32>) -> tensor<?x9xf32> {
  %n = kiln.sym @n
  kiln.bind_shape %x, [%n, 4] : tensor<?x4xf32>
  %0 = kiln.reduce_window max %x window = [2, 2] strides = [1, 1] pad = [0, 0] x [1, 1] dilation = [1, 1] : tensor<?x4xf32>
  %1 = kiln.reduce_window max %0 window = [2, 2] strides = [1, 1] pad = [0, 0] x [1, 1] dilation = [1, 1] : tensor<?x4xf32>
  %2 = kiln.concat %0, %1 axis = 0 : tensor<?x4xf32>, tensor<?x4xf32>
  %3 = kiln.dot_general %2, %w batch = [] x [] contract = [1] x [0] : tensor<?x4xf32>, tensor<4x1xf32>
  %4 = kiln.concat %2, %3, %2 axis = 1 : tensor<?x4xf32>, tensor<?x1xf32>, tensor<?x4xf32>
  return %4 : tensor<?x9xf32>
}
