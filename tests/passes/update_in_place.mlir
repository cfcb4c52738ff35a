// RUN: kiln-update-in-place

// A cache of keys of 2 heads, 6 positions and 4 numbers: a step writes one of its positions.
// CASE: one_position
// CHECK: kiln.insert_slice {{.*}} into %arg0 at {{.*}} axis = 2
// IMPLICIT-CHECK-NOT: kiln.scatter
func.func @f(%cache: tensor<1x2x6x4xf32> {kiln.donated = "results", kiln.state = {result = 1 : i64, source = ""}}, %at: tensor<1xi64>, %row: tensor<1x1x2x4xf32>) -> (tensor<1x2x6x4xf32>, tensor<1x2x6x4xf32>) {
  %0 = kiln.scatter assign %cache[%at], %row dims = [2] : tensor<1x2x6x4xf32>[tensor<1xi64>], tensor<1x1x2x4xf32>
  %1 = kiln.neg %0 : tensor<1x2x6x4xf32>
  return %1, %0 : tensor<1x2x6x4xf32>, tensor<1x2x6x4xf32>
}

// -----
// Several rows at one position, which is moved into bounds.
// CASE: some_rows
// CHECK: kiln.insert_slice %arg2 into %arg0 at %arg1
func.func @f(%cache: tensor<6x4xf32> {kiln.donated = "results", kiln.state = {result = 0 : i64, source = ""}}, %at: tensor<i32>, %rows: tensor<2x4xf32>) -> tensor<6x4xf32> {
  %zero = kiln.splat [], 0 : i32
  %0 = kiln.dynamic_update_slice %cache[%at, %zero : tensor<i32>, tensor<i32>], %rows : tensor<6x4xf32>, tensor<2x4xf32>
  return %0 : tensor<6x4xf32>
}

// -----
// A view of the new value is another result, which is not in the state's memory.
// CASE: returned_twice
// IMPLICIT-CHECK-NOT: kiln.insert_slice
func.func @f(%cache: tensor<6x4xf32> {kiln.donated = "results", kiln.state = {result = 1 : i64, source = ""}}, %at: tensor<1xi64>, %row: tensor<1x4xf32>) -> (tensor<24xf32>, tensor<6x4xf32>) {
  %0 = kiln.scatter assign %cache[%at], %row dims = [0] : tensor<6x4xf32>[tensor<1xi64>], tensor<1x4xf32>
  %1 = kiln.reshape %0 sizes = [24] : tensor<6x4xf32>
  return %1, %0 : tensor<24xf32>, tensor<6x4xf32>
}

// -----
// No state; the old value is read as well; another result is the new value; several positions; sums.
// CASE: not_in_place
// CHECK-COUNT-5: kiln.scatter
// IMPLICIT-CHECK-NOT: kiln.insert_slice
func.func @f(%plain: tensor<6x4xf32>, %read: tensor<6x4xf32> {kiln.donated = "results", kiln.state = {result = 1 : i64, source = ""}}, %other: tensor<6x4xf32> {kiln.donated = "results", kiln.state = {result = 3 : i64, source = ""}}, %some: tensor<6x4xf32> {kiln.donated = "results", kiln.state = {result = 4 : i64, source = ""}}, %sums: tensor<6x4xf32> {kiln.donated = "results", kiln.state = {result = 5 : i64, source = ""}}, %at: tensor<1xi64>, %row: tensor<1x4xf32>, %places: tensor<2xi64>, %rows: tensor<2x4xf32>) -> (tensor<6x4xf32>, tensor<6x4xf32>, tensor<6x4xf32>, tensor<6x4xf32>, tensor<6x4xf32>, tensor<6x4xf32>) {
  %0 = kiln.scatter assign %plain[%at], %row dims = [0] : tensor<6x4xf32>[tensor<1xi64>], tensor<1x4xf32>
  %1 = kiln.scatter assign %read[%at], %row dims = [0] : tensor<6x4xf32>[tensor<1xi64>], tensor<1x4xf32>
  %2 = kiln.neg %read : tensor<6x4xf32>
  %3 = kiln.scatter assign %other[%at], %row dims = [0] : tensor<6x4xf32>[tensor<1xi64>], tensor<1x4xf32>
  %4 = kiln.scatter assign %some[%places], %rows dims = [0] : tensor<6x4xf32>[tensor<2xi64>], tensor<2x4xf32>
  %5 = kiln.scatter add %sums[%at], %row dims = [0] : tensor<6x4xf32>[tensor<1xi64>], tensor<1x4xf32>
  return %0, %1, %3, %2, %4, %5 : tensor<6x4xf32>, tensor<6x4xf32>, tensor<6x4xf32>, tensor<6x4xf32>, tensor<6x4xf32>, tensor<6x4xf32>
}
