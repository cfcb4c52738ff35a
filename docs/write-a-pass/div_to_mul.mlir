// RUN: kiln-div-to-mul

// CASE: by_a_power_of_two
// CHECK: kiln.splat [4], 1.250000e-01
// CHECK-NOT: kiln.div
func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  %eight = kiln.splat [4], 8.0 : f32
  %0 = kiln.div %x, %eight : tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----
// CASE: not_by_three
// CHECK: kiln.div
func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  %three = kiln.splat [4], 3.0 : f32
  %0 = kiln.div %x, %three : tensor<4xf32>
  return %0 : tensor<4xf32>
}
