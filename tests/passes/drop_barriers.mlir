// RUN: kiln-drop-barriers

// CASE: reads_the_operand
// CHECK-NOT: kiln.optimization_barrier
// CHECK: kiln.exp %arg0
func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = kiln.optimization_barrier %x : tensor<4xf32>
  %1 = kiln.optimization_barrier %0 : tensor<4xf32>
  %2 = kiln.exp %1 : tensor<4xf32>
  return %2 : tensor<4xf32>
}

// -----
// CASE: cse_does_not_see_through_it
// RUN: cse
// CHECK-COUNT-2: kiln.exp
func.func @f(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %0 = kiln.optimization_barrier %x : tensor<4xf32>
  %1 = kiln.exp %x : tensor<4xf32>
  %2 = kiln.exp %0 : tensor<4xf32>
  return %1, %2 : tensor<4xf32>, tensor<4xf32>
}
