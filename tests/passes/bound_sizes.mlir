// RUN: kiln-bound-sizes

// The sum of the elements that a mask chooses: what lies beyond them is 0.
// CASE: a_sum
// CHECK-NOT: kiln.unbacked_size
// CHECK: kiln.slice {{.*}} sizes = [%{{.*}}]
// CHECK: kiln.select
// CHECK: kiln.reduce sum
// IMPLICIT-CHECK-NOT: kiln.sym
func.func @f(%x: tensor<6x4xf32>, %mask: tensor<6xi1>) -> tensor<4xf32> {
  %ones = kiln.convert %mask : tensor<6xi1> to i64
  %n = kiln.reduce sum %ones dims = [0] : tensor<6xi64>
  %0 = kiln.unbacked_size @u, %n max [6] : tensor<i64> -> tensor<?x0xi8>
  %u = kiln.sym @u
  %1 = kiln.slice %x offsets = [0, 0] sizes = [%u, 4] strides = [1, 1] : tensor<6x4xf32>
  %2 = kiln.exp %1 : tensor<?x4xf32>
  %3 = kiln.reduce sum %2 dims = [0] : tensor<?x4xf32>
  return %3 : tensor<4xf32>
}

// -----
// A size as a number is the tensor that it was read from.
// CASE: a_size_as_a_number
// CHECK: kiln.dynamic_slice
// IMPLICIT-CHECK-NOT: kiln.sym @
func.func @f(%x: tensor<6xf32>, %mask: tensor<6xi1>) -> tensor<f32> {
  %ones = kiln.convert %mask : tensor<6xi1> to i64
  %n = kiln.reduce sum %ones dims = [0] : tensor<6xi64>
  %0 = kiln.unbacked_size @u, %n max [6] : tensor<i64> -> tensor<?x0xi8>
  %u = kiln.sym @u
  %one = arith.constant 1 : index
  %more = kiln.sym_expr add %u, %one
  %i = kiln.iota [%more] axis = 0 : i64
  %last = kiln.slice %i offsets = [%u] sizes = [1] strides = [1] : tensor<?xi64>
  %k = kiln.reshape %last sizes = [] : tensor<1xi64>
  %d = kiln.convert %k : tensor<i64> to f32
  %1 = kiln.slice %x offsets = [0] sizes = [%u] strides = [1] : tensor<6xf32>
  %s = kiln.reduce sum %1 dims = [0] : tensor<?xf32>
  %r = kiln.div %s, %d : tensor<f32>
  return %r : tensor<f32>
}

// -----
// Rows that an expert is given: indices beyond their number are 0, products and updates neutral.
// CASE: an_expert
// CHECK: kiln.gather
// CHECK: kiln.dot_general
// CHECK: kiln.rem
// CHECK: kiln.scatter add
// IMPLICIT-CHECK-NOT: kiln.sym
func.func @f(%x: tensor<5x4xf32>, %w: tensor<4x4xf32>, %mask: tensor<5xi1>) -> tensor<5x4xf32> {
  %ones = kiln.convert %mask : tensor<5xi1> to i64
  %n = kiln.reduce sum %ones dims = [0] : tensor<5xi64>
  %0 = kiln.unbacked_size @u, %n max [5] : tensor<i64> -> tensor<?x0xi8>
  %u = kiln.sym @u
  %i = kiln.iota [%u] axis = 0 : i64
  %rows = kiln.gather %x[%i] dims = [0] : tensor<5x4xf32>[tensor<?xi64>]
  %y = kiln.dot_general %rows, %w batch = [] x [] contract = [1] x [0] : tensor<?x4xf32>, tensor<4x4xf32> to f32
  %r = kiln.scatter add %x[%i], %y dims = [0] : tensor<5x4xf32>[tensor<?xi64>], tensor<?x4xf32>
  return %r : tensor<5x4xf32>
}

// -----
// Assigned updates beyond the size go to a row that is cut off. One value binds one size.
// CASE: assigned_updates
// CHECK: kiln.pad
// CHECK: kiln.scatter assign
// CHECK: kiln.slice
func.func @f(%x: tensor<5x4xf32>, %y: tensor<5x4xf32>, %mask: tensor<5xi1>) -> tensor<5x4xf32> {
  %ones = kiln.convert %mask : tensor<5xi1> to i64
  %n = kiln.reduce sum %ones dims = [0] : tensor<5xi64>
  %0 = kiln.unbacked_size @u, %n max [5] : tensor<i64> -> tensor<?x0xi8>
  %u = kiln.sym @u
  %i = kiln.iota [%u] axis = 0 : i64
  %1 = kiln.unbacked_size @v, %n max [5] : tensor<i64> -> tensor<?x0xi8>
  %v = kiln.sym @v
  %rows = kiln.slice %y offsets = [0, 0] sizes = [%v, 4] strides = [1, 1] : tensor<5x4xf32>
  %r = kiln.scatter assign %x[%i], %rows dims = [0] : tensor<5x4xf32>[tensor<?xi64>], tensor<?x4xf32>
  return %r : tensor<5x4xf32>
}

// -----
// Terms of a product beyond the size are 0 in both operands; a bound may be another size's.
// CASE: terms_of_a_product
// CHECK-COUNT-2: kiln.select
// CHECK: kiln.dot_general
// IMPLICIT-CHECK-NOT: kiln.sym @u
// IMPLICIT-CHECK-NOT: kiln.sym @v
func.func @f(%x: tensor<?x4xf32>, %y: tensor<?x2xf32>, %n: tensor<i1>) -> tensor<4x2xf32> {
  %s = kiln.sym @s {max = 64 : i64, min = 1 : i64}
  kiln.bind_shape %x, [%s, 4] : tensor<?x4xf32>
  kiln.bind_shape %y, [%s, 2] : tensor<?x2xf32>
  %one = kiln.convert %n : tensor<i1> to i64
  %0 = kiln.unbacked_size @u, %one max [%s] : tensor<i64> -> tensor<?x0xi8>
  %u = kiln.sym @u
  %1 = kiln.unbacked_size @v, %one max [%u] : tensor<i64> -> tensor<?x0xi8>
  %v = kiln.sym @v
  %a = kiln.slice %x offsets = [0, 0] sizes = [%v, 4] strides = [1, 1] : tensor<?x4xf32>
  %b = kiln.slice %y offsets = [0, 0] sizes = [%v, 2] strides = [1, 1] : tensor<?x2xf32>
  %r = kiln.dot_general %a, %b batch = [] x [] contract = [0] x [0] : tensor<?x4xf32>, tensor<?x2xf32> to f32
  return %r : tensor<4x2xf32>
}

// -----
// Padding begins at the size, and ends at a dimension that does not depend on it.
// CASE: padding
// CHECK: kiln.select
// CHECK: kiln.pad {{.*}} low = [1] high = [3]
// IMPLICIT-CHECK-NOT: kiln.sym @
func.func @f(%x: tensor<6xf32>, %mask: tensor<6xi1>, %v: tensor<f32>) -> tensor<10xf32> {
  %ones = kiln.convert %mask : tensor<6xi1> to i64
  %n = kiln.reduce sum %ones dims = [0] : tensor<6xi64>
  %0 = kiln.unbacked_size @u, %n max [6] : tensor<i64> -> tensor<?x0xi8>
  %u = kiln.sym @u
  %k = arith.constant -1 : index
  %less = kiln.sym_expr mul %u, %k
  %nine = arith.constant 9 : index
  %rest = kiln.sym_expr add %nine, %less
  %1 = kiln.slice %x offsets = [0] sizes = [%u] strides = [1] : tensor<6xf32>
  %2 = kiln.pad %1, %v low = [1] high = [%rest] : tensor<?xf32>, tensor<f32>
  %3 = kiln.reshape %2 sizes = [10] : tensor<?xf32>
  return %3 : tensor<10xf32>
}

// -----
// A caller learns a result's size from the host, which reads it.
// CASE: results_keep_their_sizes
// CHECK: kiln.unbacked_size @u
// CHECK: kiln.sym @u
func.func @f(%x: tensor<6xf32>, %m: tensor<i1>) -> tensor<?xf32> {
  %n = kiln.convert %m : tensor<i1> to i64
  %0 = kiln.unbacked_size @u, %n max [6] : tensor<i64> -> tensor<?x0xi8>
  %u = kiln.sym @u
  %1 = kiln.slice %x offsets = [0] sizes = [%u] strides = [1] : tensor<6xf32>
  %2 = kiln.exp %1 : tensor<?xf32>
  return %2 : tensor<?xf32>
}

// -----
// A product of more rows computes too much.
// RUN: kiln-bound-sizes{rows=4}
// CASE: products_of_many_rows
// CHECK: kiln.unbacked_size @u
func.func @f(%x: tensor<6x4xf32>, %w: tensor<4x2xf32>, %m: tensor<i1>) -> tensor<2xf32> {
  %n = kiln.convert %m : tensor<i1> to i64
  %0 = kiln.unbacked_size @u, %n max [6] : tensor<i64> -> tensor<?x0xi8>
  %u = kiln.sym @u
  %1 = kiln.slice %x offsets = [0, 0] sizes = [%u, 4] strides = [1, 1] : tensor<6x4xf32>
  %2 = kiln.dot_general %1, %w batch = [] x [] contract = [1] x [0] : tensor<?x4xf32>, tensor<4x2xf32> to f32
  %3 = kiln.reduce sum %2 dims = [0] : tensor<?x2xf32>
  return %3 : tensor<2xf32>
}

// -----
// A maximum of no elements is an error, and so is a gather from none: the call decides.
// CASE: ops_that_need_elements
// CHECK: kiln.unbacked_size @u
func.func @f(%x: tensor<6xf32>, %m: tensor<i1>) -> tensor<f32> {
  %n = kiln.convert %m : tensor<i1> to i64
  %0 = kiln.unbacked_size @u, %n max [6] : tensor<i64> -> tensor<?x0xi8>
  %u = kiln.sym @u
  %1 = kiln.slice %x offsets = [0] sizes = [%u] strides = [1] : tensor<6xf32>
  %2 = kiln.reduce max %1 dims = [0] : tensor<?xf32>
  return %2 : tensor<f32>
}

// -----
// The outermost dimension stays it.
// CASE: a_reshape
// CHECK: kiln.reshape
// IMPLICIT-CHECK-NOT: kiln.sym @
func.func @f(%x: tensor<6x4xf32>, %mask: tensor<6xi1>) -> tensor<f32> {
  %ones = kiln.convert %mask : tensor<6xi1> to i64
  %n = kiln.reduce sum %ones dims = [0] : tensor<6xi64>
  %0 = kiln.unbacked_size @u, %n max [6] : tensor<i64> -> tensor<?x0xi8>
  %u = kiln.sym @u
  %four = arith.constant 4 : index
  %all = kiln.sym_expr mul %u, %four
  %1 = kiln.slice %x offsets = [0, 0] sizes = [%u, 4] strides = [1, 1] : tensor<6x4xf32>
  %2 = kiln.reshape %1 sizes = [%all] : tensor<?x4xf32>
  %3 = kiln.reduce prod %2 dims = [0] : tensor<?xf32>
  return %3 : tensor<f32>
}

// -----
// What tells a caller a size that the program no longer has is no result.
// NO-RUN: it has fewer results afterwards
// CASE: results_that_tell_a_size
// CHECK: func.func @f(%{{.*}}: tensor<6xf32>, %{{.*}}: tensor<i1>) -> (tensor<f32>, tensor<?xf32>, tensor<i64>) attributes {kiln.size_results = ["v"]}
func.func @f(%x: tensor<6xf32>, %m: tensor<i1>) -> (tensor<f32>, tensor<?xf32>, tensor<i64>, tensor<i64>) attributes {kiln.size_results = ["u", "v"]} {
  %n = kiln.convert %m : tensor<i1> to i64
  %k = kiln.add %n, %n : tensor<i64>
  %0 = kiln.unbacked_size @u, %n max [6] : tensor<i64> -> tensor<?x0xi8>
  %u = kiln.sym @u
  %1 = kiln.unbacked_size @v, %k max [6] : tensor<i64> -> tensor<?x0xi8>
  %v = kiln.sym @v
  %2 = kiln.slice %x offsets = [0] sizes = [%u] strides = [1] : tensor<6xf32>
  %3 = kiln.reduce sum %2 dims = [0] : tensor<?xf32>
  %4 = kiln.slice %x offsets = [0] sizes = [%v] strides = [1] : tensor<6xf32>
  return %3, %4, %n, %k : tensor<f32>, tensor<?xf32>, tensor<i64>, tensor<i64>
}
