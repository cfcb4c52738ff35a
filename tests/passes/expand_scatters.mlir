// RUN: kiln-expand-scatters

// CASE: add_rows
// CHECK: kiln.reduce sum
// IMPLICIT-CHECK-NOT: kiln.scatter
func.func @f(%x: tensor<4x3xbf16>, %i: tensor<5xi64>, %u: tensor<5x3xbf16>) -> tensor<4x3xbf16> {
  %0 = kiln.scatter add %x[%i], %u dims = [0] : tensor<4x3xbf16>[tensor<5xi64>], tensor<5x3xbf16>
  return %0 : tensor<4x3xbf16>
}

// -----
// CASE: assign_with_permuted_dims
// CHECK: kiln.reduce max
// CHECK: kiln.gather
func.func @f(%x: tensor<3x2x4xf32>, %i: tensor<2x2xi32>, %j: tensor<2x2xi32>, %u: tensor<2x2x2xf32>) -> tensor<3x2x4xf32> {
  %0 = kiln.scatter assign %x[%i, %j], %u dims = [2, 0] : tensor<3x2x4xf32>[tensor<2x2xi32>, tensor<2x2xi32>], tensor<2x2x2xf32>
  return %0 : tensor<3x2x4xf32>
}

// -----
// CASE: max_of_dynamic_sizes
// CHECK: maybe_empty
func.func @f(%x: tensor<?xf32>, %i: tensor<?xi64>, %u: tensor<?xf32>) -> (tensor<?xf32>, tensor<?xf32>) {
  %n = kiln.sym @n {min = 3 : i64}
  %m = kiln.sym @m
  kiln.bind_shape %x, [%n] : tensor<?xf32>
  kiln.bind_shape %i, [%m] : tensor<?xi64>
  kiln.bind_shape %u, [%m] : tensor<?xf32>
  %0 = kiln.scatter min %x[%i], %u dims = [0] : tensor<?xf32>[tensor<?xi64>], tensor<?xf32>
  %1 = kiln.scatter assign %x[%i], %u dims = [0] : tensor<?xf32>[tensor<?xi64>], tensor<?xf32>
  return %0, %1 : tensor<?xf32>, tensor<?xf32>
}

// -----
// CASE: mul_of_integers
func.func @f(%x: tensor<4xi32>, %i: tensor<3xi64>, %u: tensor<3xi32>) -> (tensor<4xi32>, tensor<4xi32>) {
  %0 = kiln.scatter mul %x[%i], %u dims = [0] : tensor<4xi32>[tensor<3xi64>], tensor<3xi32>
  %1 = kiln.scatter max %x[%i], %u dims = [0] : tensor<4xi32>[tensor<3xi64>], tensor<3xi32>
  return %0, %1 : tensor<4xi32>, tensor<4xi32>
}
