// RUN: kiln-plan

// %0 is over when %2 is written, so they share memory; the last result is the caller's.
// CASE: static
// NO-RUN: kernels are loops by now
// CHECK: kiln.output 0
// CHECK: live 0 to 1
module attributes {kiln.level = "tiled"} {
  func.func @main(%x: tensor<16xf32>) -> tensor<16xf32> {
    %e0 = tensor.empty() : tensor<16xf32>
    %0 = kiln.launch @k ins(%x : tensor<16xf32>) outs(%e0 : tensor<16xf32>) -> tensor<16xf32>
    %e1 = tensor.empty() : tensor<16xf32>
    %1 = kiln.launch @k ins(%0 : tensor<16xf32>) outs(%e1 : tensor<16xf32>) -> tensor<16xf32>
    %e2 = tensor.empty() : tensor<16xf32>
    %2 = kiln.launch @k ins(%1 : tensor<16xf32>) outs(%e2 : tensor<16xf32>) -> tensor<16xf32>
    %e3 = tensor.empty() : tensor<16xf32>
    %3 = kiln.launch @k ins(%2 : tensor<16xf32>) outs(%e3 : tensor<16xf32>) -> tensor<16xf32>
    return %3 : tensor<16xf32>
  }
  module @k attributes {kiln.kernel = {kind = "pointwise"}} {}
}

// -----
// Equal symbolic sizes share; offsets are expressions of the symbol.
// CASE: symbolic
// NO-RUN: kernels are loops by now
// CHECK: kiln.arena_size
module attributes {kiln.level = "tiled"} {
  func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> {
    %s = kiln.sym @s {min = 1 : i64}
    kiln.bind_shape %x, [%s] : tensor<?xf32>
    %e0 = tensor.empty(%s) : tensor<?xf32>
    %0 = kiln.launch @k ins(%x : tensor<?xf32>) sizes(%s) outs(%e0 : tensor<?xf32>) -> tensor<?xf32>
    %e1 = tensor.empty(%s) : tensor<?xf32>
    %1 = kiln.launch @k ins(%0 : tensor<?xf32>) sizes(%s) outs(%e1 : tensor<?xf32>) -> tensor<?xf32>
    %e2 = tensor.empty(%s) : tensor<?xf32>
    %2 = kiln.launch @k ins(%1 : tensor<?xf32>) sizes(%s) outs(%e2 : tensor<?xf32>) -> tensor<?xf32>
    %e3 = tensor.empty(%s) : tensor<?xf32>
    %3 = kiln.launch @k ins(%2 : tensor<?xf32>) sizes(%s) outs(%e3 : tensor<?xf32>) -> tensor<?xf32>
    return %3 : tensor<?xf32>
  }
  module @k attributes {kiln.kernel = {kind = "pointwise"}} {}
}

// -----
// %1 lies where %0 lies, which nothing reads afterwards; %2 does not lie where %1 lies, which is read once more.
// CASE: in_place
// NO-RUN: kernels are loops by now
// CHECK: live 0 to 0
module attributes {kiln.level = "tiled"} {
  func.func @main(%x: tensor<16xf32>) -> tensor<16xf32> {
    %e0 = tensor.empty() : tensor<16xf32>
    %0 = kiln.launch @k ins(%x, %x : tensor<16xf32>, tensor<16xf32>) outs(%e0 : tensor<16xf32>) -> tensor<16xf32>
    %e1 = tensor.empty() : tensor<16xf32>
    %1 = kiln.launch @k ins(%x, %0 : tensor<16xf32>, tensor<16xf32>) outs(%e1 : tensor<16xf32>) -> tensor<16xf32>
    %e2 = tensor.empty() : tensor<16xf32>
    %2 = kiln.launch @k ins(%x, %1 : tensor<16xf32>, tensor<16xf32>) outs(%e2 : tensor<16xf32>) -> tensor<16xf32>
    %e3 = tensor.empty() : tensor<16xf32>
    %3 = kiln.launch @k ins(%1, %2 : tensor<16xf32>, tensor<16xf32>) outs(%e3 : tensor<16xf32>) -> tensor<16xf32>
    return %3 : tensor<16xf32>
  }
  module @k attributes {kiln.kernel = {in_place = array<i64: 0, 1>, kind = "pointwise"}} {}
}
