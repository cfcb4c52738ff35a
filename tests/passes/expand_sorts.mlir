// RUN: kiln-expand-sorts

// CASE: values_and_indices
// CHECK: kiln.is_nan
// IMPLICIT-CHECK-NOT: kiln.sort
func.func @f(%x: tensor<3x5xf32>) -> (tensor<3x5xf32>, tensor<3x5xi64>) {
  %v, %i = kiln.sort %x axis = 1 : tensor<3x5xf32>
  return %v, %i : tensor<3x5xf32>, tensor<3x5xi64>
}

// -----
// CASE: stable_for_equal_integers
// CHECK-NOT: kiln.is_nan
func.func @f(%x: tensor<6x2xi8>) -> (tensor<6x2xi8>, tensor<6x2xi64>) {
  %v, %i = kiln.sort %x axis = 0 descending : tensor<6x2xi8>
  return %v, %i : tensor<6x2xi8>, tensor<6x2xi64>
}

// -----
// CASE: nan_sorts_last
func.func @f(%x: tensor<4xf16>) -> (tensor<4xf16>, tensor<4xi64>, tensor<2xf16>, tensor<2xi64>) {
  %n = kiln.constant dense<[1.0, 0x7E00, -2.0, 0x7C00]> : tensor<4xf16>
  %0 = kiln.mul %n, %n : tensor<4xf16>
  %v, %i = kiln.sort %n axis = 0 descending : tensor<4xf16>
  %w, %j = kiln.top_k %0 axis = 0 k = 2 smallest : tensor<4xf16>
  return %v, %i, %w, %j : tensor<4xf16>, tensor<4xi64>, tensor<2xf16>, tensor<2xi64>
}

// -----
// CASE: top_k_of_a_dynamic_axis
// CHECK-NOT: kiln.top_k
func.func @f(%x: tensor<?x4xf32>) -> (tensor<?x3xf32>, tensor<?x3xi64>, tensor<?x4xf32>) {
  %v, %i = kiln.top_k %x axis = 1 k = 3 : tensor<?x4xf32>
  %w, %j = kiln.sort %x axis = 0 : tensor<?x4xf32>
  return %v, %i, %w : tensor<?x3xf32>, tensor<?x3xi64>, tensor<?x4xf32>
}

// -----
// CASE: blocked_top_k
// CHECK: 6x256xf32
// IMPLICIT-CHECK-NOT: 1500x1500
func.func @f(%x: tensor<2x1500xbf16>) -> (tensor<2x3xbf16>, tensor<2x3xi64>) {
  %v, %i = kiln.top_k %x axis = 1 k = 3 : tensor<2x1500xbf16>
  return %v, %i : tensor<2x3xbf16>, tensor<2x3xi64>
}

// -----
// CASE: blocked_top_k_smallest_integers
func.func @f(%x: tensor<1100x2xi32>) -> (tensor<2x2xi32>, tensor<2x2xi64>) {
  %v, %i = kiln.top_k %x axis = 0 k = 2 smallest : tensor<1100x2xi32>
  return %v, %i : tensor<2x2xi32>, tensor<2x2xi64>
}
