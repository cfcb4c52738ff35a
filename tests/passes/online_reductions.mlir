// RUN: kiln-online-reductions

// CASE: dynamic_rows_with_prologue
// CHECK: kiln.merges
// CHECK: math.exp2
// CHECK: math.fma
#map = affine_map<(d0, d1) -> (d0, d1)>
#map1 = affine_map<(d0, d1) -> (d0)>
module attributes {kiln.level = "linalg", kiln.target = "cuda:sm_90a"} {
  func.func @main(%arg0: tensor<3x?xbf16>) -> tensor<3x?xf32> {
    %0 = kiln.sym @n
    kiln.bind_shape %arg0, [3, %0] : tensor<3x?xbf16>
    %1 = tensor.empty(%0) : tensor<3x?xf32>
    %2 = kiln.launch @mul_reduce_sub_mul ins(%arg0 : tensor<3x?xbf16>) sizes(%0) outs(%1 : tensor<3x?xf32>) flops 6 -> tensor<3x?xf32>
    return %2 : tensor<3x?xf32>
  }
  module @mul_reduce_sub_mul attributes {kiln.kernel = {kind = "rows", ops = ["mul", "reduce", "sub", "exp", "reduce", "div", "mul"]}} {
    func.func @mul_reduce_sub_mul(%arg0: tensor<3x?xbf16> {kiln.sizes = array<i64: 3, -1>}, %arg1: index) -> tensor<3x?xf32> {
      %0 = tensor.empty() : tensor<3xf32>
      %cst = arith.constant 0xFF800000 : f32
      %1 = linalg.fill ins(%cst : f32) outs(%0 : tensor<3xf32>) -> tensor<3xf32>
      %2 = linalg.generic {indexing_maps = [#map, #map1], iterator_types = ["parallel", "reduction"]} ins(%arg0 : tensor<3x?xbf16>) outs(%1 : tensor<3xf32>) {
      ^bb0(%in: bf16, %out: f32):
        %10 = arith.extf %in : bf16 to f32
        %cst_1 = arith.constant 5.000000e-01 : f32
        %11 = arith.mulf %10, %cst_1 : f32
        %12 = arith.maximumf %out, %11 : f32
        linalg.yield %12 : f32
      } -> tensor<3xf32>
      %3 = tensor.empty(%arg1) : tensor<3x?xf32>
      %4 = linalg.generic {indexing_maps = [#map, #map1, #map], iterator_types = ["parallel", "parallel"]} ins(%arg0, %2 : tensor<3x?xbf16>, tensor<3xf32>) outs(%3 : tensor<3x?xf32>) {
      ^bb0(%in: bf16, %in_1: f32, %out: f32):
        %10 = arith.extf %in : bf16 to f32
        %cst_2 = arith.constant 5.000000e-01 : f32
        %11 = arith.mulf %10, %cst_2 : f32
        %12 = arith.subf %11, %in_1 : f32
        %13 = math.exp %12 : f32
        linalg.yield %13 : f32
      } -> tensor<3x?xf32>
      %5 = tensor.empty() : tensor<3xf32>
      %cst_0 = arith.constant 0.000000e+00 : f32
      %6 = linalg.fill ins(%cst_0 : f32) outs(%5 : tensor<3xf32>) -> tensor<3xf32>
      %7 = linalg.generic {indexing_maps = [#map, #map1], iterator_types = ["parallel", "reduction"]} ins(%4 : tensor<3x?xf32>) outs(%6 : tensor<3xf32>) {
      ^bb0(%in: f32, %out: f32):
        %10 = arith.addf %out, %in : f32
        linalg.yield %10 : f32
      } -> tensor<3xf32>
      %8 = tensor.empty(%arg1) : tensor<3x?xf32>
      %9 = linalg.generic {indexing_maps = [#map, #map1, #map], iterator_types = ["parallel", "parallel"]} ins(%4, %7 : tensor<3x?xf32>, tensor<3xf32>) outs(%8 : tensor<3x?xf32>) {
      ^bb0(%in: f32, %in_1: f32, %out: f32):
        %cst_2 = arith.constant 1.000000e+00 : f32
        %10 = arith.divf %cst_2, %in_1 : f32
        %11 = arith.mulf %in, %10 : f32
        linalg.yield %11 : f32
      } -> tensor<3x?xf32>
      return %9 : tensor<3x?xf32>
    }
  }
}

// -----
// CASE: sum_and_squares
// CHECK: kiln.merges
// CHECK: fastmath<arcp,afn>
#map = affine_map<(d0, d1) -> (d0, d1)>
#map1 = affine_map<(d0, d1) -> (d0)>
#map2 = affine_map<(d0) -> (d0)>
module attributes {kiln.level = "linalg", kiln.target = "cuda:sm_90a"} {
  func.func @main(%arg0: tensor<4x40000xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
    %0 = tensor.empty() : tensor<4xf32>
    %1 = tensor.empty() : tensor<4xf32>
    %2:2 = kiln.launch @reduce_div_sub_div ins(%arg0 : tensor<4x40000xf32>) outs(%0, %1 : tensor<4xf32>, tensor<4xf32>) flops 160002 -> tensor<4xf32>, tensor<4xf32>
    return %2#0, %2#1 : tensor<4xf32>, tensor<4xf32>
  }
  module @reduce_div_sub_div attributes {kiln.kernel = {kind = "rows", ops = ["reduce", "div", "sub", "mul", "reduce", "div"]}} {
    func.func @reduce_div_sub_div(%arg0: tensor<4x40000xf32> {kiln.sizes = array<i64: 4, 40000>}) -> (tensor<4xf32>, tensor<4xf32>) {
      %0 = tensor.empty() : tensor<4xf32>
      %cst = arith.constant 0.000000e+00 : f32
      %1 = linalg.fill ins(%cst : f32) outs(%0 : tensor<4xf32>) -> tensor<4xf32>
      %2 = linalg.generic {indexing_maps = [#map, #map1], iterator_types = ["parallel", "reduction"]} ins(%arg0 : tensor<4x40000xf32>) outs(%1 : tensor<4xf32>) {
      ^bb0(%in: f32, %out: f32):
        %10 = arith.addf %out, %in : f32
        linalg.yield %10 : f32
      } -> tensor<4xf32>
      %3 = tensor.empty() : tensor<4xf32>
      %4 = linalg.generic {indexing_maps = [#map2, #map2], iterator_types = ["parallel"]} ins(%2 : tensor<4xf32>) outs(%3 : tensor<4xf32>) {
      ^bb0(%in: f32, %out: f32):
        %cst_1 = arith.constant 4.000000e+04 : f32
        %10 = arith.divf %in, %cst_1 : f32
        linalg.yield %10 : f32
      } -> tensor<4xf32>
      %5 = tensor.empty() : tensor<4xf32>
      %cst_0 = arith.constant 0.000000e+00 : f32
      %6 = linalg.fill ins(%cst_0 : f32) outs(%5 : tensor<4xf32>) -> tensor<4xf32>
      %7 = linalg.generic {indexing_maps = [#map, #map1, #map1], iterator_types = ["parallel", "reduction"]} ins(%arg0, %4 : tensor<4x40000xf32>, tensor<4xf32>) outs(%6 : tensor<4xf32>) {
      ^bb0(%in: f32, %in_1: f32, %out: f32):
        %10 = arith.subf %in, %in_1 : f32
        %11 = arith.mulf %10, %10 : f32
        %12 = arith.addf %out, %11 : f32
        linalg.yield %12 : f32
      } -> tensor<4xf32>
      %8 = tensor.empty() : tensor<4xf32>
      %9 = linalg.generic {indexing_maps = [#map2, #map2], iterator_types = ["parallel"]} ins(%7 : tensor<4xf32>) outs(%8 : tensor<4xf32>) {
      ^bb0(%in: f32, %out: f32):
        %cst_1 = arith.constant 3.999900e+04 : f32
        %10 = arith.divf %in, %cst_1 : f32
        linalg.yield %10 : f32
      } -> tensor<4xf32>
      return %4, %9 : tensor<4xf32>, tensor<4xf32>
    }
  }
}

// -----
// CASE: another_tensors_exponentials_stay
// CHECK-NOT: kiln.merges
#map = affine_map<(d0, d1) -> (d0, d1)>
#map1 = affine_map<(d0, d1) -> (d0)>
module attributes {kiln.level = "linalg", kiln.target = "cuda:sm_90a"} {
  func.func @main(%arg0: tensor<4x40000xf32>, %arg1: tensor<4x40000xf32>) -> tensor<4xf32> {
    %0 = tensor.empty() : tensor<4xf32>
    %1 = kiln.launch @reduce_sub_exp_reduce ins(%arg1, %arg0 : tensor<4x40000xf32>, tensor<4x40000xf32>) outs(%0 : tensor<4xf32>) flops 160000 -> tensor<4xf32>
    return %1 : tensor<4xf32>
  }
  module @reduce_sub_exp_reduce attributes {kiln.kernel = {kind = "rows", ops = ["reduce", "sub", "exp", "reduce"]}} {
    func.func @reduce_sub_exp_reduce(%arg0: tensor<4x40000xf32> {kiln.sizes = array<i64: 4, 40000>}, %arg1: tensor<4x40000xf32> {kiln.sizes = array<i64: 4, 40000>}) -> tensor<4xf32> {
      %0 = tensor.empty() : tensor<4xf32>
      %cst = arith.constant 0xFF800000 : f32
      %1 = linalg.fill ins(%cst : f32) outs(%0 : tensor<4xf32>) -> tensor<4xf32>
      %2 = linalg.generic {indexing_maps = [#map, #map1], iterator_types = ["parallel", "reduction"]} ins(%arg1 : tensor<4x40000xf32>) outs(%1 : tensor<4xf32>) {
      ^bb0(%in: f32, %out: f32):
        %6 = arith.maximumf %out, %in : f32
        linalg.yield %6 : f32
      } -> tensor<4xf32>
      %3 = tensor.empty() : tensor<4xf32>
      %cst_0 = arith.constant 0.000000e+00 : f32
      %4 = linalg.fill ins(%cst_0 : f32) outs(%3 : tensor<4xf32>) -> tensor<4xf32>
      %5 = linalg.generic {indexing_maps = [#map, #map1, #map1], iterator_types = ["parallel", "reduction"]} ins(%arg0, %2 : tensor<4x40000xf32>, tensor<4xf32>) outs(%4 : tensor<4xf32>) {
      ^bb0(%in: f32, %in_1: f32, %out: f32):
        %6 = arith.subf %in, %in_1 : f32
        %7 = math.exp %6 : f32
        %8 = arith.addf %out, %7 : f32
        linalg.yield %8 : f32
      } -> tensor<4xf32>
      return %5 : tensor<4xf32>
    }
  }
}

// -----
// CASE: rows_in_registers_stay
// CHECK-NOT: kiln.merges
#map = affine_map<(d0, d1) -> (d0, d1)>
#map1 = affine_map<(d0, d1) -> (d0)>
module attributes {kiln.level = "linalg", kiln.target = "cuda:sm_90a"} {
  func.func @main(%arg0: tensor<4x1000xf32>) -> tensor<4x1000xf32> {
    %0 = tensor.empty() : tensor<4x1000xf32>
    %1 = kiln.launch @reduce_sub_exp_mul ins(%arg0 : tensor<4x1000xf32>) outs(%0 : tensor<4x1000xf32>) flops 5 -> tensor<4x1000xf32>
    return %1 : tensor<4x1000xf32>
  }
  module @reduce_sub_exp_mul attributes {kiln.kernel = {kind = "rows", ops = ["reduce", "sub", "exp", "reduce", "div", "mul"]}} {
    func.func @reduce_sub_exp_mul(%arg0: tensor<4x1000xf32> {kiln.sizes = array<i64: 4, 1000>}) -> tensor<4x1000xf32> {
      %0 = tensor.empty() : tensor<4xf32>
      %cst = arith.constant 0xFF800000 : f32
      %1 = linalg.fill ins(%cst : f32) outs(%0 : tensor<4xf32>) -> tensor<4xf32>
      %2 = linalg.generic {indexing_maps = [#map, #map1], iterator_types = ["parallel", "reduction"]} ins(%arg0 : tensor<4x1000xf32>) outs(%1 : tensor<4xf32>) {
      ^bb0(%in: f32, %out: f32):
        %10 = arith.maximumf %out, %in : f32
        linalg.yield %10 : f32
      } -> tensor<4xf32>
      %3 = tensor.empty() : tensor<4x1000xf32>
      %4 = linalg.generic {indexing_maps = [#map, #map1, #map], iterator_types = ["parallel", "parallel"]} ins(%arg0, %2 : tensor<4x1000xf32>, tensor<4xf32>) outs(%3 : tensor<4x1000xf32>) {
      ^bb0(%in: f32, %in_1: f32, %out: f32):
        %10 = arith.subf %in, %in_1 : f32
        %11 = math.exp %10 : f32
        linalg.yield %11 : f32
      } -> tensor<4x1000xf32>
      %5 = tensor.empty() : tensor<4xf32>
      %cst_0 = arith.constant 0.000000e+00 : f32
      %6 = linalg.fill ins(%cst_0 : f32) outs(%5 : tensor<4xf32>) -> tensor<4xf32>
      %7 = linalg.generic {indexing_maps = [#map, #map1], iterator_types = ["parallel", "reduction"]} ins(%4 : tensor<4x1000xf32>) outs(%6 : tensor<4xf32>) {
      ^bb0(%in: f32, %out: f32):
        %10 = arith.addf %out, %in : f32
        linalg.yield %10 : f32
      } -> tensor<4xf32>
      %8 = tensor.empty() : tensor<4x1000xf32>
      %9 = linalg.generic {indexing_maps = [#map, #map1, #map], iterator_types = ["parallel", "parallel"]} ins(%4, %7 : tensor<4x1000xf32>, tensor<4xf32>) outs(%8 : tensor<4x1000xf32>) {
      ^bb0(%in: f32, %in_1: f32, %out: f32):
        %cst_2 = arith.constant 1.000000e+00 : f32
        %10 = arith.divf %cst_2, %in_1 : f32
        %11 = arith.mulf %in, %10 : f32
        linalg.yield %11 : f32
      } -> tensor<4x1000xf32>
      return %9 : tensor<4x1000xf32>
    }
  }
}
