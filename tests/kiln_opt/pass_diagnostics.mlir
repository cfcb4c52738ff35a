module attributes {kiln.level = "prims"} {
  func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
    // expected-error @+1 {{'kiln.silu' op is not an op of level prims}}
    %0 = kiln.silu %x : tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}
