// RUN: kiln-verify-level

// CASE: prims
// CHECK: kiln.level = "prims"
module attributes {kiln.level = "prims"} {
  func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
    %0 = kiln.neg %x : tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}

// -----
// CASE: composite with a strategy
// CHECK: kiln.softmax
module attributes {kiln.level = "prims"} {
  func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
    %0 = kiln.softmax %x axis = 0 : tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}

// -----
// CASE: composite left behind
module attributes {kiln.level = "prims"} {
  func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
    // expected-error @+1 {{'kiln.silu' op is not an op of level prims}}
    %0 = kiln.silu %x : tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}

// -----
// CASE: no level
// expected-error @+1 {{the module states no kiln.level, and the option level is empty}}
module {
}
