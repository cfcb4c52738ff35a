// RUN: kiln-verify-level

// CASE: prims_with_a_strategy_may_stay
module attributes {kiln.level = "prims"} {
// CHECK: kiln.softmax
  func.func @f(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
    %0 = kiln.softmax %x axis = 1 : tensor<2x3xf32>
    return %0 : tensor<2x3xf32>
  }
}

// -----
// CASE: composite_left_behind
module attributes {kiln.level = "prims"} {
  func.func @f(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
    // expected-error @+1 {{'kiln.silu' op is not an op of level prims}}
    %0 = kiln.silu %x : tensor<2x3xf32>
    return %0 : tensor<2x3xf32>
  }
}

// -----
// CASE: no_level
// expected-error @+1 {{kiln-verify-level: has no kiln.level, and the option level is empty}}
module {
}
