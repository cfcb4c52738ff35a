// RUN: kiln-hoist-gathers,canonicalize

// CASE: one_element_per_row
// CHECK: kiln.gather %arg0
// CHECK: kiln.sub {{.*}} : tensor<3xf32>
// IMPLICIT-CHECK-NOT: tensor<3x64xf32>
func.func @f(%x: tensor<3x64xbf16>, %row: tensor<3xf32>, %c: tensor<3xf32>) -> tensor<3xf32> {
  %0 = kiln.convert %x : tensor<3x64xbf16> to f32
  %1 = kiln.broadcast_in_dim %row dims = [0] sizes = [3, 64] : tensor<3xf32>
  %2 = kiln.sub %0, %1 : tensor<3x64xf32>
  %i = kiln.iota [3] axis = 0 : i64
  %k = kiln.convert %c : tensor<3xf32> to i64
  %j = kiln.abs %k : tensor<3xi64>
  %3 = kiln.gather %2[%i, %j] dims = [0, 1] : tensor<3x64xf32>[tensor<3xi64>, tensor<3xi64>]
  return %3 : tensor<3xf32>
}

// -----
// CASE: whole_rows_stay
// CHECK: kiln.gather %0
func.func @f(%x: tensor<40x8xf32>) -> tensor<4x8xf32> {
  %0 = kiln.exp %x : tensor<40x8xf32>
  %i = kiln.iota [4] axis = 0 : i64
  %1 = kiln.gather %0[%i] dims = [0] : tensor<40x8xf32>[tensor<4xi64>]
  return %1 : tensor<4x8xf32>
}

// -----
// CASE: many_elements_per_row_stay
// CHECK: kiln.gather %0
func.func @f(%x: tensor<8xf32>) -> tensor<8xf32> {
  %0 = kiln.exp %x : tensor<8xf32>
  %i = kiln.iota [8] axis = 0 : i64
  %1 = kiln.gather %0[%i] dims = [0] : tensor<8xf32>[tensor<8xi64>]
  return %1 : tensor<8xf32>
}

// -----
// A logit that a sum reads too is the same number where it is gathered.
// CASE: rounded_where_others_read_it
// CHECK-COUNT-2: kiln.add {{.*}} {kiln.rounded}
// IMPLICIT-CHECK-NOT: kiln.sub {{.*}} {kiln.rounded}
func.func @f(%x: tensor<3x64xbf16>, %b: tensor<64xbf16>, %row: tensor<3xbf16>, %j: tensor<3xi64>) -> (tensor<3xbf16>, tensor<3xbf16>) {
  %0 = kiln.broadcast_in_dim %b dims = [1] sizes = [3, 64] : tensor<64xbf16>
  %1 = kiln.add %x, %0 : tensor<3x64xbf16>
  %2 = kiln.broadcast_in_dim %row dims = [0] sizes = [3, 64] : tensor<3xbf16>
  %3 = kiln.sub %1, %2 : tensor<3x64xbf16>
  %i = kiln.iota [3] axis = 0 : i64
  %k = kiln.abs %j : tensor<3xi64>
  %4 = kiln.gather %3[%i, %k] dims = [0, 1] : tensor<3x64xbf16>[tensor<3xi64>, tensor<3xi64>]
  %5 = kiln.reduce max %1 dims = [1] : tensor<3x64xbf16>
  return %4, %5 : tensor<3xbf16>, tensor<3xbf16>
}
