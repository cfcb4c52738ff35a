// RUN: kiln-powers,canonicalize

// CASE: seventh
// CHECK: %0 = kiln.mul %arg0, %arg0
// CHECK-NEXT: %1 = kiln.mul %arg0, %0
// CHECK-NEXT: %2 = kiln.mul %0, %0
// CHECK-NEXT: kiln.mul %1, %2
// IMPLICIT-CHECK-NOT: kiln.pow
func.func @f(%x: tensor<33xf32>) -> tensor<33xf32> {
  %seven = kiln.splat [33], 7.0 : f32
  %0 = kiln.pow %x, %seven : tensor<33xf32>
  return %0 : tensor<33xf32>
}

// -----
// A power of two is squarings alone.
// CASE: sixteenth
// CHECK-COUNT-4: kiln.mul
// IMPLICIT-CHECK-NOT: kiln.mul
func.func @f(%x: tensor<33xf64>) -> tensor<33xf64> {
  %n = kiln.splat [33], 16.0 : f64
  %0 = kiln.pow %x, %n : tensor<33xf64>
  return %0 : tensor<33xf64>
}

// -----
// Products of bf16 would each be rounded to 8 bits.
// CASE: narrow_floats_are_computed_in_f32
// CHECK: kiln.convert {{.*}} tensor<4xbf16> to f32
// CHECK-COUNT-3: kiln.mul {{.*}} tensor<4xf32>
// CHECK: kiln.convert {{.*}} tensor<4xf32> to bf16
func.func @f(%x: tensor<4xbf16>) -> tensor<4xbf16> {
  %n = kiln.splat [4], 5.0 : bf16
  %0 = kiln.pow %x, %n : tensor<4xbf16>
  return %0 : tensor<4xbf16>
}

// -----
// CASE: an_exponent_that_is_broadcast_and_converted
// CHECK-COUNT-3: kiln.mul
// IMPLICIT-CHECK-NOT: kiln.pow
func.func @f(%x: tensor<2x?xf32>) -> tensor<2x?xf32> {
  %n = kiln.splat [], 6 : i64
  %converted = kiln.convert %n : tensor<i64> to f32
  %size = kiln.dim %x, 1 : tensor<2x?xf32>
  %wide = kiln.broadcast_in_dim %converted dims = [] sizes = [2, %size] : tensor<f32>
  %0 = kiln.pow %x, %wide : tensor<2x?xf32>
  return %0 : tensor<2x?xf32>
}

// -----
// 0.5 is 0 as an integer.
// CASE: an_exponent_that_is_truncated
// CHECK: kiln.pow %arg0
// IMPLICIT-CHECK-NOT: kiln.sqrt
func.func @f(%x: tensor<f32>) -> tensor<f32> {
  %half = kiln.splat [], 0.5 : f32
  %none = kiln.convert %half : tensor<f32> to i32
  %zero = kiln.convert %none : tensor<i32> to f32
  %0 = kiln.pow %x, %zero : tensor<f32>
  return %0 : tensor<f32>
}

// -----
// 9 is 8 in two bits of mantissa.
// CASE: an_exponent_that_is_rounded
// NO-RUN: the exact run before does not round the exponent
// CHECK-COUNT-3: kiln.mul
// IMPLICIT-CHECK-NOT: kiln.mul
func.func @f(%x: tensor<f8E5M2>) -> tensor<f8E5M2> {
  %nine = kiln.splat [], 9 : i64
  %eight = kiln.convert %nine : tensor<i64> to f8E5M2
  %0 = kiln.pow %x, %eight : tensor<f8E5M2>
  return %0 : tensor<f8E5M2>
}

// -----
// The root of -0 is -0 and that of -inf NaN; these powers are +0 and +inf.
// CASE: square_root
// CHECK: kiln.add %arg0
// CHECK-NEXT: kiln.sqrt
// CHECK: kiln.compare eq %arg0
// CHECK: kiln.select
// IMPLICIT-CHECK-NOT: kiln.pow
func.func @f(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %special = kiln.constant dense<[0x80000000, 0xFF800000, 0x7F800000, 4.0]> : tensor<4xf32>
  %half = kiln.splat [4], 0.5 : f32
  %0 = kiln.pow %x, %half : tensor<4xf32>
  %1 = kiln.pow %special, %half : tensor<4xf32>
  return %0, %1 : tensor<4xf32>, tensor<4xf32>
}

// -----
// kiln-to-linalg writes small powers; one of 32 would be off by 16 ulp; integers wrap there, too.
// CASE: others_stay
// CHECK-COUNT-5: kiln.pow
// IMPLICIT-CHECK-NOT: kiln.mul
func.func @f(%x: tensor<4xf32>, %i: tensor<4xi32>, %y: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xi32>, tensor<4xf32>) {
  %four = kiln.splat [4], 4.0 : f32
  %most = kiln.splat [4], 32.0 : f32
  %part = kiln.splat [4], 5.5 : f32
  %five = kiln.splat [4], 5 : i32
  %0 = kiln.pow %x, %four : tensor<4xf32>
  %1 = kiln.pow %x, %most : tensor<4xf32>
  %2 = kiln.pow %x, %part : tensor<4xf32>
  %3 = kiln.pow %i, %five : tensor<4xi32>
  %4 = kiln.pow %x, %y : tensor<4xf32>
  return %0, %1, %2, %3, %4 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xi32>, tensor<4xf32>
}
