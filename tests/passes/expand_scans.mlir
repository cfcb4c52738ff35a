// RUN: kiln-expand-scans

// CASE: sum_of_dynamic_size
// CHECK: kiln.cumulative sum
// CHECK: kiln.loops
func.func @f(%x: tensor<3x?xf32>) -> tensor<3x?xf32> {
  %0 = kiln.cumulative sum %x axis = 1 : tensor<3x?xf32>
  return %0 : tensor<3x?xf32>
}

// -----
// CASE: integers_along_the_outer_axis
// CHECK: kiln.cumulative max
// IMPLICIT-CHECK-NOT: kiln.reduce
func.func @f(%x: tensor<5x2xi64>) -> (tensor<5x2xi64>, tensor<5x2xi64>) {
  %0 = kiln.cumulative max %x axis = 0 : tensor<5x2xi64>
  %1 = kiln.cumulative prod %x axis = 0 : tensor<5x2xi64>
  return %0, %1 : tensor<5x2xi64>, tensor<5x2xi64>
}

// -----
// CASE: blocked_scan
// RUN: kiln-expand-scans{max-block=256 ctas=16}
// CHECK: kiln.cumulative sum {{.*}} axis = 1 {kiln.loops} : tensor<10x50xf32>
// CHECK: kiln.reduce sum {{.*}} : tensor<10x50xf32>
// IMPLICIT-CHECK-NOT: kiln.cumulative
func.func @f(%x: tensor<500xf32>) -> tensor<500xf32> {
  %0 = kiln.cumulative sum %x axis = 0 : tensor<500xf32>
  return %0 : tensor<500xf32>
}

// -----
// CASE: blocked_scan_of_prime_length
// RUN: kiln-expand-scans{max-block=64 ctas=16}
// CHECK: kiln.pad
// CHECK: kiln.slice
func.func @f(%x: tensor<2x131x2xbf16>) -> tensor<2x131x2xbf16> {
  %0 = kiln.cumulative max %x axis = 1 : tensor<2x131x2xbf16>
  return %0 : tensor<2x131x2xbf16>
}

// -----
// CASE: many_rows_are_not_blocked
// RUN: kiln-expand-scans{max-block=64 ctas=16}
// CHECK-NOT: kiln.reshape
func.func @f(%x: tensor<5x131xf32>, %y: tensor<131x80xf32>) -> (tensor<5x131xf32>, tensor<131x80xf32>) {
  %0 = kiln.cumulative min %x axis = 1 : tensor<5x131xf32>
  %1 = kiln.cumulative sum %y axis = 0 : tensor<131x80xf32>
  return %0, %1 : tensor<5x131xf32>, tensor<131x80xf32>
}

// -----
// CASE: maximum_of_an_empty_axis
func.func @f(%x: tensor<3x0xf16>) -> tensor<3x0xf16> {
  %0 = kiln.cumulative max %x axis = 1 : tensor<3x0xf16>
  return %0 : tensor<3x0xf16>
}
