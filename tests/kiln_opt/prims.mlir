// Claims level prims, but has a composite.
module attributes {kiln.level = "prims"} {
  func.func @main(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
    %0 = kiln.silu %x : tensor<2x3xf32>
    return %0 : tensor<2x3xf32>
  }
}
