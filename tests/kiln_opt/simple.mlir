// Input for canonicalize and cse: a dead op and two equal ops.
module {
  func.func @main(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
    %0 = kiln.silu %x : tensor<2x3xf32>
    %1 = kiln.silu %x : tensor<2x3xf32>
    %dead = kiln.exp %x : tensor<2x3xf32>
    %2 = kiln.add %0, %1 : tensor<2x3xf32>
    return %2 : tensor<2x3xf32>
  }
  func.func @other(%x: tensor<4xf32>) -> tensor<4xf32> {
    %0 = kiln.exp %x : tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}
