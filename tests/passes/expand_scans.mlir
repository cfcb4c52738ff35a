// RUN: kiln-expand-scans

// CASE: a_sum_over_an_open_size
// CHECK: kiln.cumulative sum
// CHECK: kiln.loops
func.func @f(%x: tensor<3x?xf32>) -> tensor<3x?xf32> {
  %0 = kiln.cumulative sum %x axis = 1 : tensor<3x?xf32>
  return %0 : tensor<3x?xf32>
}

// -----
// CASE: integers_along_the_first_axis
// CHECK: kiln.cumulative max
// IMPLICIT-CHECK-NOT: kiln.reduce
func.func @f(%x: tensor<5x2xi64>) -> (tensor<5x2xi64>, tensor<5x2xi64>) {
  %0 = kiln.cumulative max %x axis = 0 : tensor<5x2xi64>
  %1 = kiln.cumulative prod %x axis = 0 : tensor<5x2xi64>
  return %0, %1 : tensor<5x2xi64>, tensor<5x2xi64>
}

// -----
// CASE: a_long_axis_in_blocks
// RUN: kiln-expand-scans{whole=256 groups=16}
// CHECK: 10x50xf32
// IMPLICIT-CHECK-NOT: 500x500
func.func @f(%x: tensor<500xf32>) -> tensor<500xf32> {
  %0 = kiln.cumulative sum %x axis = 0 : tensor<500xf32>
  return %0 : tensor<500xf32>
}

// -----
// CASE: a_prime_number_of_elements
// RUN: kiln-expand-scans{whole=64 groups=16}
// CHECK: kiln.pad
// CHECK: kiln.slice
func.func @f(%x: tensor<2x131x2xbf16>) -> tensor<2x131x2xbf16> {
  %0 = kiln.cumulative max %x axis = 1 : tensor<2x131x2xbf16>
  return %0 : tensor<2x131x2xbf16>
}

// -----
// CASE: so_many_rows_that_each_is_whole
// RUN: kiln-expand-scans{whole=64 groups=16}
// CHECK-NOT: kiln.reshape
func.func @f(%x: tensor<5x131xf32>, %y: tensor<131x80xf32>) -> (tensor<5x131xf32>, tensor<131x80xf32>) {
  %0 = kiln.cumulative min %x axis = 1 : tensor<5x131xf32>
  %1 = kiln.cumulative sum %y axis = 0 : tensor<131x80xf32>
  return %0, %1 : tensor<5x131xf32>, tensor<131x80xf32>
}

// -----
// CASE: the_greatest_of_nothing
func.func @f(%x: tensor<3x0xf16>) -> tensor<3x0xf16> {
  %0 = kiln.cumulative max %x axis = 1 : tensor<3x0xf16>
  return %0 : tensor<3x0xf16>
}
