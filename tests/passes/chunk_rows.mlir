// RUN: kiln-chunk-rows{bytes=256 multiple=1}

// Four rows of 16 numbers are 256 bytes.
// CASE: results_by_row_are_joined
// CHECK: kiln.dot_general {{.*}} : tensor<4x8xf32>, tensor<16x8xf32>
// CHECK: kiln.dot_general {{.*}} : tensor<4x8xf32>, tensor<16x8xf32>
// CHECK: kiln.concat {{.*}} axis = 0 : tensor<4xf32>, tensor<4xf32>
// IMPLICIT-CHECK-NOT: tensor<8x16xf32>
func.func @f(%x: tensor<8x8xf32>, %w: tensor<16x8xf32>) -> tensor<8xf32> {
  %0 = kiln.dot_general %x, %w batch = [] x [] contract = [1] x [1] : tensor<8x8xf32>, tensor<16x8xf32>
  %1 = kiln.exp %0 : tensor<8x16xf32>
  %2 = kiln.reduce sum %1 dims = [1] : tensor<8x16xf32>
  return %2 : tensor<8xf32>
}

// -----
// The gradients by both operands and by a bias; the last chunk has fewer rows.
// CASE: gradients_of_a_softmax
// CHECK-COUNT-3: kiln.reduce max
// CHECK: kiln.concat {{.*}} : tensor<4x8xf32>, tensor<4x8xf32>, tensor<2x8xf32>
// IMPLICIT-CHECK-NOT: tensor<10x16xf32>
func.func @f(%x: tensor<10x8xf32>, %w: tensor<16x8xf32>, %g: tensor<10xf32>) -> (tensor<10x8xf32>, tensor<16x8xf32>, tensor<16xf32>) {
  %0 = kiln.dot_general %x, %w batch = [] x [] contract = [1] x [1] : tensor<10x8xf32>, tensor<16x8xf32>
  %1 = kiln.reduce max %0 dims = [1] : tensor<10x16xf32>
  %2 = kiln.broadcast_in_dim %1 dims = [0] sizes = [10, 16] : tensor<10xf32>
  %3 = kiln.sub %0, %2 : tensor<10x16xf32>
  %4 = kiln.exp %3 : tensor<10x16xf32>
  %5 = kiln.broadcast_in_dim %g dims = [0] sizes = [10, 16] : tensor<10xf32>
  %6 = kiln.mul %4, %5 : tensor<10x16xf32>
  %7 = kiln.dot_general %6, %w batch = [] x [] contract = [1] x [0] : tensor<10x16xf32>, tensor<16x8xf32>
  %8 = kiln.dot_general %6, %x batch = [] x [] contract = [0] x [0] : tensor<10x16xf32>, tensor<10x8xf32>
  %9 = kiln.reduce sum %6 dims = [0] : tensor<10x16xf32>
  return %7, %8, %9 : tensor<10x8xf32>, tensor<16x8xf32>, tensor<16xf32>
}

// -----
// Sums of 16-bit floats are f32 from chunk to chunk.
// CASE: sums_in_f32
// CHECK: kiln.dot_general {{.*}} to f32
// CHECK: kiln.add %{{.*}} : tensor<16x8xf32>
// CHECK: kiln.convert %{{.*}} : tensor<16x8xf32> to bf16
// CHECK-NOT: to bf16
func.func @f(%x: tensor<16x8xbf16>, %w: tensor<16x8xbf16>) -> (tensor<16xbf16>, tensor<16x8xbf16>) {
  %0 = kiln.dot_general %x, %w batch = [] x [] contract = [1] x [1] : tensor<16x8xbf16>, tensor<16x8xbf16>
  %1 = kiln.reduce max %0 dims = [1] : tensor<16x16xbf16>
  %2 = kiln.dot_general %0, %x batch = [] x [] contract = [0] x [0] : tensor<16x16xbf16>, tensor<16x8xbf16>
  return %1, %2 : tensor<16xbf16>, tensor<16x8xbf16>
}

// -----
// A sum that is too large for that is rounded after each chunk.
// CASE: large_sums_are_rounded
// RUN: kiln-chunk-rows{bytes=256 multiple=1 f32-bytes=0}
// CHECK: kiln.convert %{{.*}} : tensor<16x8xf32> to bf16
// CHECK: kiln.convert %{{.*}} : tensor<16x8xf32> to bf16
func.func @f(%x: tensor<16x8xbf16>, %w: tensor<16x8xbf16>) -> (tensor<16xbf16>, tensor<16x8xbf16>) {
  %0 = kiln.dot_general %x, %w batch = [] x [] contract = [1] x [1] : tensor<16x8xbf16>, tensor<16x8xbf16>
  %1 = kiln.reduce max %0 dims = [1] : tensor<16x16xbf16>
  %2 = kiln.dot_general %0, %x batch = [] x [] contract = [0] x [0] : tensor<16x16xbf16>, tensor<16x8xbf16>
  return %1, %2 : tensor<16xbf16>, tensor<16x8xbf16>
}

// -----
// Sequences of tokens: rows are two dimensions, and one after a reshape.
// CASE: rows_of_two_dimensions
// CHECK: kiln.reshape %{{.*}} sizes = [8, 8]
// CHECK: kiln.dot_general {{.*}} : tensor<4x8xf32>, tensor<16x8xf32>
// IMPLICIT-CHECK-NOT: tensor<8x16xf32>
// IMPLICIT-CHECK-NOT: tensor<2x4x16xf32>
func.func @f(%x: tensor<2x4x8xf32>, %w: tensor<16x8xf32>, %b: tensor<16xf32>) -> (tensor<8xf32>, tensor<2x4x8xf32>) {
  %0 = kiln.dot_general %x, %w batch = [] x [] contract = [2] x [1] : tensor<2x4x8xf32>, tensor<16x8xf32>
  %1 = kiln.broadcast_in_dim %b dims = [2] sizes = [2, 4, 16] : tensor<16xf32>
  %2 = kiln.add %0, %1 : tensor<2x4x16xf32>
  %3 = kiln.reshape %2 sizes = [8, 16] : tensor<2x4x16xf32>
  %4 = kiln.reduce max %3 dims = [1] : tensor<8x16xf32>
  %5 = kiln.dot_general %2, %w batch = [] x [] contract = [2] x [0] : tensor<2x4x16xf32>, tensor<16x8xf32>
  return %4, %5 : tensor<8xf32>, tensor<2x4x8xf32>
}

// -----
// Classes are dimension 1, as cross entropy takes them: rows are dimensions 0 and 2.
// CASE: rows_apart
// CHECK: kiln.dot_general {{.*}} : tensor<4x8xf32>, tensor<16x8xf32>
// IMPLICIT-CHECK-NOT: tensor<2x16x4xf32>
func.func @f(%x: tensor<2x4x8xf32>, %w: tensor<16x8xf32>, %g: tensor<2x4xf32>) -> (tensor<2x4xf32>, tensor<16x8xf32>) {
  %0 = kiln.dot_general %x, %w batch = [] x [] contract = [2] x [1] : tensor<2x4x8xf32>, tensor<16x8xf32>
  %1 = kiln.transpose %0 permutation = [0, 2, 1] : tensor<2x4x16xf32>
  %2 = kiln.reduce max %1 dims = [1] : tensor<2x16x4xf32>
  %3 = kiln.broadcast_in_dim %g dims = [0, 2] sizes = [2, 16, 4] : tensor<2x4xf32>
  %4 = kiln.mul %1, %3 : tensor<2x16x4xf32>
  %5 = kiln.transpose %4 permutation = [0, 2, 1] : tensor<2x16x4xf32>
  %6 = kiln.dot_general %5, %x batch = [] x [] contract = [0, 1] x [0, 1] : tensor<2x4x16xf32>, tensor<2x4x8xf32>
  return %2, %6 : tensor<2x4xf32>, tensor<16x8xf32>
}

// -----
// The weight is the left operand.
// CASE: rows_of_the_right_operand
// CHECK: kiln.dot_general {{.*}} : tensor<4x8xf32>, tensor<16x8xf32>
// IMPLICIT-CHECK-NOT: tensor<16x8xf32>, tensor<8x8xf32>
func.func @f(%x: tensor<8x8xf32>, %w: tensor<16x8xf32>) -> tensor<8xf32> {
  %0 = kiln.dot_general %w, %x batch = [] x [] contract = [1] x [1] : tensor<16x8xf32>, tensor<8x8xf32>
  %1 = kiln.reduce max %0 dims = [0] : tensor<16x8xf32>
  return %1 : tensor<8xf32>
}

// -----
// An element of each row, read and written: the first becomes a sum over the row, so that no
// kernel of its own reads the rows later.
// CASE: elements_of_rows
// CHECK: kiln.compare eq
// CHECK: kiln.scatter add
// IMPLICIT-CHECK-NOT: kiln.gather
func.func @f(%x: tensor<8x8xf32>, %w: tensor<16x8xf32>, %t: tensor<8xi64>) -> (tensor<8xf32>, tensor<8xf32>, tensor<16x8xf32>) {
  %0 = kiln.dot_general %x, %w batch = [] x [] contract = [1] x [1] : tensor<8x8xf32>, tensor<16x8xf32>
  %1 = kiln.reduce max %0 dims = [1] : tensor<8x16xf32>
  %2 = kiln.iota [8] axis = 0 : i64
  %zero = kiln.splat [8], 0 : i64
  %most = kiln.splat [8], 15 : i64
  %c = kiln.clamp %t, %zero, %most : tensor<8xi64>
  %3 = kiln.gather %0[%2, %c] dims = [0, 1] : tensor<8x16xf32>[tensor<8xi64>, tensor<8xi64>]
  %4 = kiln.scatter add %0[%2, %c], %1 dims = [0, 1] : tensor<8x16xf32>[tensor<8xi64>, tensor<8xi64>], tensor<8xf32>
  %5 = kiln.dot_general %4, %x batch = [] x [] contract = [0] x [0] : tensor<8x16xf32>, tensor<8x8xf32>
  return %1, %3, %5 : tensor<8xf32>, tensor<8xf32>, tensor<16x8xf32>
}

// -----
// Teacher and student: two products, of which one does not depend on the other.
// CASE: two_products
// CHECK-COUNT-4: kiln.dot_general {{.*}} : tensor<4x8xf32>, tensor<16x8xf32>
// IMPLICIT-CHECK-NOT: tensor<8x16xf32>
func.func @f(%x: tensor<8x8xf32>, %w: tensor<16x8xf32>, %y: tensor<8x8xf32>, %v: tensor<16x8xf32>) -> tensor<8xf32> {
  %0 = kiln.dot_general %x, %w batch = [] x [] contract = [1] x [1] : tensor<8x8xf32>, tensor<16x8xf32>
  %1 = kiln.dot_general %y, %v batch = [] x [] contract = [1] x [1] : tensor<8x8xf32>, tensor<16x8xf32>
  %2 = kiln.sub %0, %1 : tensor<8x16xf32>
  %3 = kiln.reduce sum %2 dims = [1] : tensor<8x16xf32>
  return %3 : tensor<8xf32>
}

// -----
// What is computed of the results comes after all chunks.
// CASE: readers_of_results_come_later
// CHECK: kiln.concat
// CHECK: kiln.neg
func.func @f(%x: tensor<8x8xf32>, %w: tensor<16x8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  %0 = kiln.dot_general %x, %w batch = [] x [] contract = [1] x [1] : tensor<8x8xf32>, tensor<16x8xf32>
  %1 = kiln.reduce max %0 dims = [1] : tensor<8x16xf32>
  %2 = kiln.neg %1 : tensor<8xf32>
  %3 = kiln.reduce sum %0 dims = [1] : tensor<8x16xf32>
  return %2, %3 : tensor<8xf32>, tensor<8xf32>
}

// -----
// CASE: small_products_stay
// RUN: kiln-chunk-rows{bytes=512 multiple=1}
// CHECK: kiln.dot_general {{.*}} : tensor<8x8xf32>, tensor<16x8xf32>
// CHECK-NOT: kiln.not_chunked
func.func @f(%x: tensor<8x8xf32>, %w: tensor<16x8xf32>) -> tensor<8xf32> {
  %0 = kiln.dot_general %x, %w batch = [] x [] contract = [1] x [1] : tensor<8x8xf32>, tensor<16x8xf32>
  %1 = kiln.reduce sum %0 dims = [1] : tensor<8x16xf32>
  return %1 : tensor<8xf32>
}

// -----
// A layer whose rows nothing reduces.
// CASE: layers_stay
// CHECK: kiln.dot_general {{.*}} : tensor<8x8xf32>, tensor<16x8xf32>
// CHECK-NOT: kiln.not_chunked
func.func @f(%x: tensor<8x8xf32>, %w: tensor<16x8xf32>, %v: tensor<8x16xf32>) -> tensor<8x8xf32> {
  %0 = kiln.dot_general %x, %w batch = [] x [] contract = [1] x [1] : tensor<8x8xf32>, tensor<16x8xf32>
  %1 = kiln.tanh %0 : tensor<8x16xf32>
  %2 = kiln.dot_general %1, %v batch = [] x [] contract = [1] x [1] : tensor<8x16xf32>, tensor<8x16xf32>
  return %2 : tensor<8x8xf32>
}

// -----
// CASE: a_result_is_stored
// CHECK: kiln.not_chunked = "the function returns all rows"
func.func @f(%x: tensor<8x8xf32>, %w: tensor<16x8xf32>) -> (tensor<8xf32>, tensor<8x16xf32>) {
  %0 = kiln.dot_general %x, %w batch = [] x [] contract = [1] x [1] : tensor<8x8xf32>, tensor<16x8xf32>
  %1 = kiln.reduce sum %0 dims = [1] : tensor<8x16xf32>
  return %1, %0 : tensor<8xf32>, tensor<8x16xf32>
}

// -----
// Each row needs the maximum of all.
// CASE: rows_that_depend_on_each_other
// CHECK: kiln.not_chunked = "kiln.sub takes a row and a value that depends on all rows"
func.func @f(%x: tensor<8x8xf32>, %w: tensor<16x8xf32>) -> tensor<8xf32> {
  %0 = kiln.dot_general %x, %w batch = [] x [] contract = [1] x [1] : tensor<8x8xf32>, tensor<16x8xf32>
  %1 = kiln.reduce max %0 dims = [0, 1] : tensor<8x16xf32>
  %2 = kiln.broadcast_in_dim %1 dims = [] sizes = [8, 16] : tensor<f32>
  %3 = kiln.sub %0, %2 : tensor<8x16xf32>
  %4 = kiln.reduce sum %3 dims = [1] : tensor<8x16xf32>
  return %4 : tensor<8xf32>
}

// -----
// CASE: rows_that_are_reordered
// CHECK: kiln.not_chunked = "kiln.reverse is not computed row by row"
func.func @f(%x: tensor<8x8xf32>, %w: tensor<16x8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  %0 = kiln.dot_general %x, %w batch = [] x [] contract = [1] x [1] : tensor<8x8xf32>, tensor<16x8xf32>
  %1 = kiln.reduce sum %0 dims = [1] : tensor<8x16xf32>
  %2 = kiln.reverse %0 dims = [0] : tensor<8x16xf32>
  %3 = kiln.reduce sum %2 dims = [1] : tensor<8x16xf32>
  return %1, %3 : tensor<8xf32>, tensor<8xf32>
}
