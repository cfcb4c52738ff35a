func.func @first(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = kiln.exp %x : tensor<4xf32>
  return %0 : tensor<4xf32>
}
// -----
func.func @second(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = kiln.exq %x : tensor<4xf32>
  return %0 : tensor<4xf32>
}
// -----
func.func @third(%x: tensor<4xf32>) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}
