// RUN: kiln-decompose

// CASE: silu
// CHECK: kiln.exp
// CHECK-NOT: kiln.silu
func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = kiln.silu %x : tensor<4xf32>
  return %0 : tensor<4xf32>
}
