// RUN: kiln-gpu-schedule

// CASE: elementwise
// CHECK: kiln.grid
// CHECK: #kiln.schedule<"elementwise"
// CHECK: kiln.threads = 256
// IMPLICIT-CHECK-NOT: tid
#id = affine_map<(d0, d1) -> (d0, d1)>
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%x: tensor<?x128xf32> {kiln.sizes = array<i64: -1, 128>}, %y: tensor<?x128xf32> {kiln.sizes = array<i64: -1, 128>}, %s0: index) -> tensor<?x128xf32> {
  %e = tensor.empty(%s0) : tensor<?x128xf32>
  %r = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x, %y : tensor<?x128xf32>, tensor<?x128xf32>) outs(%e : tensor<?x128xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.mulf %a, %b : f32
    linalg.yield %p : f32
  } -> tensor<?x128xf32>
  return %r : tensor<?x128xf32>
}
}
}

// -----
// CASE: softmax
// CHECK: #kiln.schedule<"register_rows", {cluster = 1 : i64, row_threads = 16 : i64, rows_per_cta = 8 : i64, unroll = 1 : i64, vector = 4 : i64}>
// CHECK: kiln.threads = 128
#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%x: tensor<?x64xf32> {kiln.sizes = array<i64: -1, 64>}, %s0: index) -> tensor<?x64xf32> {
  %least = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty(%s0) : tensor<?x64xf32>
  %rows = tensor.empty(%s0) : tensor<?xf32>
  %m0 = linalg.fill ins(%least : f32) outs(%rows : tensor<?xf32>) -> tensor<?xf32>
  %m = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<?x64xf32>) outs(%m0 : tensor<?xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.maximumf %a, %o : f32
    linalg.yield %0 : f32
  } -> tensor<?xf32>
  %p = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]} ins(%x, %m : tensor<?x64xf32>, tensor<?xf32>) outs(%e : tensor<?x64xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.subf %a, %b : f32
    %1 = math.exp %0 : f32
    linalg.yield %1 : f32
  } -> tensor<?x64xf32>
  %t0 = linalg.fill ins(%zero : f32) outs(%rows : tensor<?xf32>) -> tensor<?xf32>
  %t = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]} ins(%p : tensor<?x64xf32>) outs(%t0 : tensor<?xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.addf %a, %o : f32
    linalg.yield %0 : f32
  } -> tensor<?xf32>
  %r = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]} ins(%p, %t : tensor<?x64xf32>, tensor<?xf32>) outs(%e : tensor<?x64xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.divf %a, %b : f32
    linalg.yield %0 : f32
  } -> tensor<?x64xf32>
  return %r : tensor<?x64xf32>
}
}
}

// -----
// CASE: rows_behind_a_unit_reduction
// CHECK: kiln.grid = #map
// CHECK: #kiln.schedule<"register_rows"
#id = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#row = affine_map<(d0, d1, d2) -> (d1)>
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%x: tensor<1x64x147xf32> {kiln.sizes = array<i64: 1, 64, 147>}) -> tensor<1x64x147xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<1x64x147xf32>
  %rows = tensor.empty() : tensor<64xf32>
  %t0 = linalg.fill ins(%zero : f32) outs(%rows : tensor<64xf32>) -> tensor<64xf32>
  %t = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["reduction", "parallel", "reduction"]} ins(%x : tensor<1x64x147xf32>) outs(%t0 : tensor<64xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.addf %a, %o : f32
    linalg.yield %0 : f32
  } -> tensor<64xf32>
  %r = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel", "parallel"]} ins(%x, %t : tensor<1x64x147xf32>, tensor<64xf32>) outs(%e : tensor<1x64x147xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.divf %a, %b : f32
    linalg.yield %0 : f32
  } -> tensor<1x64x147xf32>
  return %r : tensor<1x64x147xf32>
}
}
}

// -----
// CASE: softmax_row_per_cta
// CHECK: #kiln.schedule<"register_rows", {cluster = 1 : i64, row_threads = 256 : i64, rows_per_cta = 1 : i64, unroll = 8 : i64, vector = 4 : i64}>
#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%x: tensor<?x8192xf32> {kiln.sizes = array<i64: -1, 8192>}, %s0: index) -> tensor<?x8192xf32> {
  %least = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty(%s0) : tensor<?x8192xf32>
  %rows = tensor.empty(%s0) : tensor<?xf32>
  %m0 = linalg.fill ins(%least : f32) outs(%rows : tensor<?xf32>) -> tensor<?xf32>
  %m = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<?x8192xf32>) outs(%m0 : tensor<?xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.maximumf %a, %o : f32
    linalg.yield %0 : f32
  } -> tensor<?xf32>
  %p = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]} ins(%x, %m : tensor<?x8192xf32>, tensor<?xf32>) outs(%e : tensor<?x8192xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.subf %a, %b : f32
    %1 = math.exp %0 : f32
    linalg.yield %1 : f32
  } -> tensor<?x8192xf32>
  %t0 = linalg.fill ins(%zero : f32) outs(%rows : tensor<?xf32>) -> tensor<?xf32>
  %t = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]} ins(%p : tensor<?x8192xf32>) outs(%t0 : tensor<?xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.addf %a, %o : f32
    linalg.yield %0 : f32
  } -> tensor<?xf32>
  %r = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]} ins(%p, %t : tensor<?x8192xf32>, tensor<?xf32>) outs(%e : tensor<?x8192xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.divf %a, %b : f32
    linalg.yield %0 : f32
  } -> tensor<?x8192xf32>
  return %r : tensor<?x8192xf32>
}
}
}

// -----
// CASE: softmax_of_an_odd_length
// CHECK: #kiln.schedule<"register_rows", {cluster = 1 : i64, row_threads = 32 : i64, rows_per_cta = 4 : i64, unroll = 32 : i64, vector = 1 : i64}>
#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%x: tensor<?x1001xf32> {kiln.sizes = array<i64: -1, 1001>}, %s0: index) -> tensor<?x1001xf32> {
  %least = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty(%s0) : tensor<?x1001xf32>
  %rows = tensor.empty(%s0) : tensor<?xf32>
  %m0 = linalg.fill ins(%least : f32) outs(%rows : tensor<?xf32>) -> tensor<?xf32>
  %m = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<?x1001xf32>) outs(%m0 : tensor<?xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.maximumf %a, %o : f32
    linalg.yield %0 : f32
  } -> tensor<?xf32>
  %p = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]} ins(%x, %m : tensor<?x1001xf32>, tensor<?xf32>) outs(%e : tensor<?x1001xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.subf %a, %b : f32
    %1 = math.exp %0 : f32
    linalg.yield %1 : f32
  } -> tensor<?x1001xf32>
  %t0 = linalg.fill ins(%zero : f32) outs(%rows : tensor<?xf32>) -> tensor<?xf32>
  %t = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]} ins(%p : tensor<?x1001xf32>) outs(%t0 : tensor<?xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.addf %a, %o : f32
    linalg.yield %0 : f32
  } -> tensor<?xf32>
  %r = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]} ins(%p, %t : tensor<?x1001xf32>, tensor<?xf32>) outs(%e : tensor<?x1001xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.divf %a, %b : f32
    linalg.yield %0 : f32
  } -> tensor<?x1001xf32>
  return %r : tensor<?x1001xf32>
}
}
}

// -----
// CASE: softmax_of_rows_too_long_for_registers
// CHECK: #kiln.schedule<"rows", {row_threads = 512 : i64
#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%x: tensor<?x65536xf32> {kiln.sizes = array<i64: -1, 65536>}, %s0: index) -> tensor<?x65536xf32> {
  %least = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty(%s0) : tensor<?x65536xf32>
  %rows = tensor.empty(%s0) : tensor<?xf32>
  %m0 = linalg.fill ins(%least : f32) outs(%rows : tensor<?xf32>) -> tensor<?xf32>
  %m = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<?x65536xf32>) outs(%m0 : tensor<?xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.maximumf %a, %o : f32
    linalg.yield %0 : f32
  } -> tensor<?xf32>
  %p = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]} ins(%x, %m : tensor<?x65536xf32>, tensor<?xf32>) outs(%e : tensor<?x65536xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.subf %a, %b : f32
    %1 = math.exp %0 : f32
    linalg.yield %1 : f32
  } -> tensor<?x65536xf32>
  %t0 = linalg.fill ins(%zero : f32) outs(%rows : tensor<?xf32>) -> tensor<?xf32>
  %t = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]} ins(%p : tensor<?x65536xf32>) outs(%t0 : tensor<?xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.addf %a, %o : f32
    linalg.yield %0 : f32
  } -> tensor<?xf32>
  %r = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]} ins(%p, %t : tensor<?x65536xf32>, tensor<?xf32>) outs(%e : tensor<?x65536xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.divf %a, %b : f32
    linalg.yield %0 : f32
  } -> tensor<?x65536xf32>
  return %r : tensor<?x65536xf32>
}
}
}

// -----
// CASE: softmax_of_rows_of_a_cluster
// CHECK: kiln.cluster = 4
// CHECK: #kiln.schedule<"register_rows", {cluster = 4 : i64, row_threads = 512 : i64
#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%x: tensor<16x65536xf32> {kiln.sizes = array<i64: 16, 65536>}) -> tensor<16x65536xf32> {
  %least = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<16x65536xf32>
  %rows = tensor.empty() : tensor<16xf32>
  %m0 = linalg.fill ins(%least : f32) outs(%rows : tensor<16xf32>) -> tensor<16xf32>
  %m = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<16x65536xf32>) outs(%m0 : tensor<16xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.maximumf %a, %o : f32
    linalg.yield %0 : f32
  } -> tensor<16xf32>
  %p = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]} ins(%x, %m : tensor<16x65536xf32>, tensor<16xf32>) outs(%e : tensor<16x65536xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.subf %a, %b : f32
    %1 = math.exp %0 : f32
    linalg.yield %1 : f32
  } -> tensor<16x65536xf32>
  %t0 = linalg.fill ins(%zero : f32) outs(%rows : tensor<16xf32>) -> tensor<16xf32>
  %t = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]} ins(%p : tensor<16x65536xf32>) outs(%t0 : tensor<16xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.addf %a, %o : f32
    linalg.yield %0 : f32
  } -> tensor<16xf32>
  %r = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]} ins(%p, %t : tensor<16x65536xf32>, tensor<16xf32>) outs(%e : tensor<16x65536xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.divf %a, %b : f32
    linalg.yield %0 : f32
  } -> tensor<16x65536xf32>
  return %r : tensor<16x65536xf32>
}
}
}

// -----
// CASE: column_sum
// CHECK: #kiln.schedule<"elementwise"
#id = affine_map<(d0, d1) -> (d0, d1)>
#column = affine_map<(d0, d1) -> (d1)>
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%x: tensor<40x48xf32> {kiln.sizes = array<i64: 40, 48>}) -> tensor<48xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<48xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<48xf32>) -> tensor<48xf32>
  %r = linalg.generic {indexing_maps = [#id, #column], iterator_types = ["reduction", "parallel"]} ins(%x : tensor<40x48xf32>) outs(%f : tensor<48xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.addf %a, %o : f32
    linalg.yield %0 : f32
  } -> tensor<48xf32>
  return %r : tensor<48xf32>
}
}
}

// -----
// CASE: column_sum_of_many_rows
// CHECK: #kiln.schedule<"column_reduction", {columns = 4 : i64, k_threads = 128 : i64, unroll = 4 : i64, vector = 4 : i64}>
#id = affine_map<(d0, d1) -> (d0, d1)>
#column = affine_map<(d0, d1) -> (d1)>
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%x: tensor<2048x64xf32> {kiln.sizes = array<i64: 2048, 64>}) -> tensor<64xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<64xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<64xf32>) -> tensor<64xf32>
  %r = linalg.generic {indexing_maps = [#id, #column], iterator_types = ["reduction", "parallel"]} ins(%x : tensor<2048x64xf32>) outs(%f : tensor<64xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.addf %a, %o : f32
    linalg.yield %0 : f32
  } -> tensor<64xf32>
  return %r : tensor<64xf32>
}
}
}

// -----
// CASE: matmul_with_bias
// CHECK: #kiln.schedule<"simt_gemm"
// CHECK: kiln.shared
#id = affine_map<(d0, d1) -> (d0, d1)>
#column = affine_map<(d0, d1) -> (d1)>
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%a: tensor<8x64xf32> {kiln.sizes = array<i64: 8, 64>}, %b: tensor<1x64x32xf32> {kiln.sizes = array<i64: 1, 64, 32>}, %bias: tensor<32xf32> {kiln.sizes = array<i64: 32>}) -> tensor<8x32xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<8x32xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<8x32xf32>) -> tensor<8x32xf32>
  %c = kiln.structured.contract ins(%a, %b : tensor<8x64xf32>, tensor<1x64x32xf32>) outs(%f : tensor<8x32xf32>)
      maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n floordiv 32, k, n mod 32)>, affine_map<(m, n, k) -> (m, n)>] {
  ^bb0(%x: f32, %y: f32):
    kiln.yield %x, %y : f32, f32
  } -> tensor<8x32xf32>
  %r = linalg.generic {indexing_maps = [#id, #column, #id], iterator_types = ["parallel", "parallel"]} ins(%c, %bias : tensor<8x32xf32>, tensor<32xf32>) outs(%e : tensor<8x32xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %0 = arith.addf %x, %y : f32
    linalg.yield %0 : f32
  } -> tensor<8x32xf32>
  return %r : tensor<8x32xf32>
}
}
}

// -----
// CASE: gradients_that_share_an_exponential
// CHECK: #kiln.schedule<"wgmma_gemm"
// IMPLICIT-CHECK-NOT: register_rows
#id = affine_map<(d0, d1) -> (d0, d1)>
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%a: tensor<256x64xbf16> {kiln.sizes = array<i64: 256, 64>}, %b: tensor<64x512xbf16> {kiln.sizes = array<i64: 64, 512>}, %g: tensor<256x512xf32> {kiln.sizes = array<i64: 256, 512>}) -> (tensor<256x512xf32>, tensor<256x512xf32>) {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<256x512xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<256x512xf32>) -> tensor<256x512xf32>
  %c = linalg.contract indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>]
      ins(%a, %b : tensor<256x64xbf16>, tensor<64x512xbf16>) outs(%f : tensor<256x512xf32>) -> tensor<256x512xf32>
  %x = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%g : tensor<256x512xf32>) outs(%e : tensor<256x512xf32>) {
  ^bb0(%p: f32, %o: f32):
    %0 = math.exp %p : f32
    linalg.yield %0 : f32
  } -> tensor<256x512xf32>
  %r0 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%c, %x : tensor<256x512xf32>, tensor<256x512xf32>) outs(%e : tensor<256x512xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %0 = arith.mulf %p, %q : f32
    linalg.yield %0 : f32
  } -> tensor<256x512xf32>
  %r1 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%c, %x : tensor<256x512xf32>, tensor<256x512xf32>) outs(%e : tensor<256x512xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %0 = arith.divf %p, %q : f32
    linalg.yield %0 : f32
  } -> tensor<256x512xf32>
  return %r0, %r1 : tensor<256x512xf32>, tensor<256x512xf32>
}
}
}

// -----
// What follows the sum is its epilogue, also where a map of other values is between them: as one nest
// with the map it would depend on the sum as a whole, which one CTA would compute.
// CASE: epilogue_after_another_map
// CHECK: affine_map<() -> (128)>
// CHECK: kiln.grid = #map, kiln.schedule = #kiln.schedule<"elementwise"
#in = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#out = affine_map<(d0, d1, d2) -> (d1, d2)>
#id = affine_map<(d0, d1) -> (d0, d1)>
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%x: tensor<8x512x256xf32> {kiln.sizes = array<i64: 8, 512, 256>}, %y: tensor<512x256xf32> {kiln.sizes = array<i64: 512, 256>}) -> (tensor<512x256xf32>, tensor<512x256xf32>) {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<512x256xf32>
  %s0 = linalg.fill ins(%zero : f32) outs(%e : tensor<512x256xf32>) -> tensor<512x256xf32>
  %s = linalg.generic {indexing_maps = [#in, #out], iterator_types = ["reduction", "parallel", "parallel"]} ins(%x : tensor<8x512x256xf32>) outs(%s0 : tensor<512x256xf32>) {
  ^bb0(%a: f32, %o: f32):
    %p = arith.addf %a, %o : f32
    linalg.yield %p : f32
  } -> tensor<512x256xf32>
  %e1 = tensor.empty() : tensor<512x256xf32>
  %m = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%y : tensor<512x256xf32>) outs(%e1 : tensor<512x256xf32>) {
  ^bb0(%a: f32, %o: f32):
    %p = arith.mulf %a, %a : f32
    linalg.yield %p : f32
  } -> tensor<512x256xf32>
  %e2 = tensor.empty() : tensor<512x256xf32>
  %r = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%s, %y : tensor<512x256xf32>, tensor<512x256xf32>) outs(%e2 : tensor<512x256xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.mulf %a, %b : f32
    linalg.yield %p : f32
  } -> tensor<512x256xf32>
  return %m, %r : tensor<512x256xf32>, tensor<512x256xf32>
}
}
}

// -----
// CASE: reduction_of_few_rows
// CHECK: #kiln.schedule<"row_reduction", {row_threads = 64 : i64, rows_per_cta = 2 : i64, unroll = 4 : i64, vector = 4 : i64}>
#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%x: tensor<?x1024xf32> {kiln.sizes = array<i64: -1, 1024>}, %s0: index) -> tensor<?xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty(%s0) : tensor<?xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?xf32>) -> tensor<?xf32>
  %r = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<?x1024xf32>) outs(%f : tensor<?xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.addf %o, %a : f32
    linalg.yield %0 : f32
  } -> tensor<?xf32>
  return %r : tensor<?xf32>
}
}
}

// -----
// CASE: transpose
// CHECK: #kiln.schedule<"transpose", {threads = 256 : i64, tile_columns = 64 : i64, tile_rows = 64 : i64, vector = 8 : i64}>
#id = affine_map<(d0, d1) -> (d0, d1)>
#turned = affine_map<(d0, d1) -> (d1, d0)>
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%x: tensor<512x256xbf16> {kiln.sizes = array<i64: 512, 256>}) -> tensor<256x512xbf16> {
  %e = tensor.empty() : tensor<256x512xbf16>
  %r = linalg.generic {indexing_maps = [#turned, #id], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<512x256xbf16>) outs(%e : tensor<256x512xbf16>) {
  ^bb0(%a: bf16, %o: bf16):
    linalg.yield %a : bf16
  } -> tensor<256x512xbf16>
  return %r : tensor<256x512xbf16>
}
}
}

// -----
// CASE: transpose_of_dynamic_size
// CHECK: ceildiv 32) * (
// CHECK: #kiln.schedule<"transpose", {threads = 256 : i64, tile_columns = 32 : i64, tile_rows = 32 : i64, vector = 1 : i64}>
#id = affine_map<(d0, d1) -> (d0, d1)>
#turned = affine_map<(d0, d1) -> (d1, d0)>
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%x: tensor<?x?xf32> {kiln.sizes = array<i64: -1, -2>}, %s0: index, %s1: index) -> tensor<?x?xf32> {
  %e = tensor.empty(%s1, %s0) : tensor<?x?xf32>
  %r = linalg.generic {indexing_maps = [#turned, #id], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<?x?xf32>) outs(%e : tensor<?x?xf32>) {
  ^bb0(%a: f32, %o: f32):
    linalg.yield %a : f32
  } -> tensor<?x?xf32>
  return %r : tensor<?x?xf32>
}
}
}

// -----
// A CTA has one part: its warps read neighbouring rows of it.
// CASE: partial_sums_of_few_columns
// CHECK: affine_map<() -> (1024)>
// CHECK: #kiln.schedule<"column_reduction", {columns = 2 : i64, k_threads = 128 : i64, unroll = 4 : i64, vector = 8 : i64}>
#in = affine_map<(p, k, c) -> (p, k, c)>
#out = affine_map<(p, k, c) -> (p, c)>
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%x: tensor<1024x1568x16xbf16> {kiln.sizes = array<i64: 1024, 1568, 16>}) -> tensor<1024x16xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<1024x16xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<1024x16xf32>) -> tensor<1024x16xf32>
  %r = linalg.generic {indexing_maps = [#in, #out], iterator_types = ["parallel", "reduction", "parallel"]} ins(%x : tensor<1024x1568x16xbf16>) outs(%f : tensor<1024x16xf32>) {
  ^bb0(%a: bf16, %o: f32):
    %0 = arith.extf %a : bf16 to f32
    %1 = arith.addf %o, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<1024x16xf32>
  return %r : tensor<1024x16xf32>
}
}
}

// -----
// Few parts: a CTA has 64 bytes of a row.
// CASE: columns_for_every_sm
// CHECK: affine_map<() -> (192)>
// CHECK: #kiln.schedule<"column_reduction", {columns = 4 : i64, k_threads = 64 : i64, unroll = 4 : i64, vector = 8 : i64}>
#in = affine_map<(p, k, c) -> (p, k, c)>
#out = affine_map<(p, k, c) -> (p, c)>
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%x: tensor<64x3136x96xbf16> {kiln.sizes = array<i64: 64, 3136, 96>}) -> tensor<64x96xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<64x96xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<64x96xf32>) -> tensor<64x96xf32>
  %r = linalg.generic {indexing_maps = [#in, #out], iterator_types = ["parallel", "reduction", "parallel"]} ins(%x : tensor<64x3136x96xbf16>) outs(%f : tensor<64x96xf32>) {
  ^bb0(%a: bf16, %o: f32):
    %0 = arith.extf %a : bf16 to f32
    %1 = arith.addf %o, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<64x96xf32>
  return %r : tensor<64x96xf32>
}
}
}

// -----
// A row of memory is all dimensions that stay.
// CASE: columns_of_several_dimensions
// CHECK: #kiln.schedule<"column_reduction", {columns = 32 : i64, k_threads = 8 : i64, unroll = 4 : i64, vector = 8 : i64}>
#in = affine_map<(k, a, b, c) -> (k, a, b, c)>
#out = affine_map<(k, a, b, c) -> (a, b, c)>
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%x: tensor<256x200x50x8xbf16> {kiln.sizes = array<i64: 256, 200, 50, 8>}) -> tensor<200x50x8xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<200x50x8xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<200x50x8xf32>) -> tensor<200x50x8xf32>
  %r = linalg.generic {indexing_maps = [#in, #out], iterator_types = ["reduction", "parallel", "parallel", "parallel"]} ins(%x : tensor<256x200x50x8xbf16>) outs(%f : tensor<200x50x8xf32>) {
  ^bb0(%a: bf16, %o: f32):
    %0 = arith.extf %a : bf16 to f32
    %1 = arith.addf %o, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<200x50x8xf32>
  return %r : tensor<200x50x8xf32>
}
}
}

// -----
// Elements of a row of three are read by one warp.
// CASE: transpose_of_few_columns
// CHECK: #kiln.schedule<"elementwise"
#id = affine_map<(d0, d1) -> (d0, d1)>
#turned = affine_map<(d0, d1) -> (d1, d0)>
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%x: tensor<3x4096xf32> {kiln.sizes = array<i64: 3, 4096>}) -> tensor<4096x3xf32> {
  %e = tensor.empty() : tensor<4096x3xf32>
  %r = linalg.generic {indexing_maps = [#turned, #id], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<3x4096xf32>) outs(%e : tensor<4096x3xf32>) {
  ^bb0(%a: f32, %o: f32):
    linalg.yield %a : f32
  } -> tensor<4096x3xf32>
  return %r : tensor<4096x3xf32>
}
}
}

// -----
// CASE: bad_transpose_tile
// expected-error @+5 {{has schedule 'transpose' with tile_rows = 256 : i64; it is a power of two from 16 to 128}}
#id = affine_map<(d0, d1) -> (d0, d1)>
#turned = affine_map<(d0, d1) -> (d1, d0)>
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%x: tensor<512x256xbf16> {kiln.sizes = array<i64: 512, 256>}) -> tensor<256x512xbf16> attributes {kiln.schedule = #kiln.schedule<"transpose", {threads = 256, tile_columns = 64, tile_rows = 256, vector = 8}>} {
  %e = tensor.empty() : tensor<256x512xbf16>
  %r = linalg.generic {indexing_maps = [#turned, #id], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<512x256xbf16>) outs(%e : tensor<256x512xbf16>) {
  ^bb0(%a: bf16, %o: bf16):
    linalg.yield %a : bf16
  } -> tensor<256x512xbf16>
  return %r : tensor<256x512xbf16>
}
}
}

// -----
// CASE: a_bad_number_of_threads
// RUN: kiln-gpu-schedule{threads=48}
// expected-error @+1 {{threads is a power of two from 32 to 1024, not 48}}
module attributes {kiln.level = "linalg"} {
}

// -----
// CASE: gemm_bf16
// RUN: kiln-gpu-schedule{tensor-cores=true}
// CHECK: #kiln.schedule<"wgmma_gemm", {block_k = 64 : i64, block_m = 128 : i64, block_n = 256 : i64, ctas_per_sm = 1 : i64, split_k = 1 : i64, stages = 4 : i64}>
// CHECK: kiln.tensor_maps
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%a: tensor<?x512xbf16> {kiln.sizes = array<i64: -1, 512>}, %b: tensor<4096x512xbf16> {kiln.sizes = array<i64: 4096, 512>}, %bias: tensor<4096xf32> {kiln.sizes = array<i64: 4096>}, %s0: index) -> tensor<?x4096xbf16> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty(%s0) : tensor<?x4096xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x4096xf32>) -> tensor<?x4096xf32>
  %c = linalg.contract indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
      ins(%a, %b : tensor<?x512xbf16>, tensor<4096x512xbf16>) outs(%f : tensor<?x4096xf32>) -> tensor<?x4096xf32>
  %g = tensor.empty(%s0) : tensor<?x4096xbf16>
  %r = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (n)>, affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]}
      ins(%c, %bias : tensor<?x4096xf32>, tensor<4096xf32>) outs(%g : tensor<?x4096xbf16>) {
  ^bb0(%x: f32, %y: f32, %o: bf16):
    %0 = arith.addf %x, %y : f32
    %1 = arith.truncf %0 : f32 to bf16
    linalg.yield %1 : bf16
  } -> tensor<?x4096xbf16>
  return %r : tensor<?x4096xbf16>
}
}
}

// -----
// CASE: gemm_with_rows_unaligned_for_tma
// RUN: kiln-gpu-schedule{tensor-cores=true}
// CHECK: #kiln.schedule<"mma_gemm"
// IMPLICIT-CHECK-NOT: kiln.tensor_maps
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%a: tensor<128x36xbf16> {kiln.sizes = array<i64: 128, 36>}, %b: tensor<128x36xbf16> {kiln.sizes = array<i64: 128, 36>}, %bias: tensor<128xf32> {kiln.sizes = array<i64: 128>}) -> tensor<128x128xbf16> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<128x128xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<128x128xf32>) -> tensor<128x128xf32>
  %c = linalg.contract indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
      ins(%a, %b : tensor<128x36xbf16>, tensor<128x36xbf16>) outs(%f : tensor<128x128xf32>) -> tensor<128x128xf32>
  %g = tensor.empty() : tensor<128x128xbf16>
  %r = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (n)>, affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]}
      ins(%c, %bias : tensor<128x128xf32>, tensor<128xf32>) outs(%g : tensor<128x128xbf16>) {
  ^bb0(%x: f32, %y: f32, %o: bf16):
    %0 = arith.addf %x, %y : f32
    %1 = arith.truncf %0 : f32 to bf16
    linalg.yield %1 : bf16
  } -> tensor<128x128xbf16>
  return %r : tensor<128x128xbf16>
}
}
}

// -----
// Not even cp.async copies rows of an odd number of 16-bit elements.
// CASE: gemm_with_rows_unaligned_for_cp_async
// RUN: kiln-gpu-schedule{tensor-cores=true}
// CHECK: #kiln.schedule<"naive_contraction"
// IMPLICIT-CHECK-NOT: kiln.tensor_maps
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%a: tensor<128x37xbf16> {kiln.sizes = array<i64: 128, 37>}, %b: tensor<128x37xbf16> {kiln.sizes = array<i64: 128, 37>}, %bias: tensor<128xf32> {kiln.sizes = array<i64: 128>}) -> tensor<128x128xbf16> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<128x128xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<128x128xf32>) -> tensor<128x128xf32>
  %c = linalg.contract indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
      ins(%a, %b : tensor<128x37xbf16>, tensor<128x37xbf16>) outs(%f : tensor<128x128xf32>) -> tensor<128x128xf32>
  %g = tensor.empty() : tensor<128x128xbf16>
  %r = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (n)>, affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]}
      ins(%c, %bias : tensor<128x128xf32>, tensor<128xf32>) outs(%g : tensor<128x128xbf16>) {
  ^bb0(%x: f32, %y: f32, %o: bf16):
    %0 = arith.addf %x, %y : f32
    %1 = arith.truncf %0 : f32 to bf16
    linalg.yield %1 : bf16
  } -> tensor<128x128xbf16>
  return %r : tensor<128x128xbf16>
}
}
}

// -----
// Split-K by a cluster of two CTAs: 64 tiles do not fill the GPU.
// CASE: gemm_split_k
// RUN: kiln-gpu-schedule{tensor-cores=true}
// CHECK: kiln.cluster = 2
// CHECK: #kiln.schedule<"wgmma_gemm", {block_k = 64 : i64, block_m = 64 : i64, block_n = 64 : i64, ctas_per_sm = 0 : i64, split_k = 2 : i64, stages = 12 : i64}>
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%a: tensor<4096x4096xbf16> {kiln.sizes = array<i64: 4096, 4096>}, %b: tensor<64x4096xbf16> {kiln.sizes = array<i64: 64, 4096>}) -> tensor<4096x64xbf16> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4096x64xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<4096x64xf32>) -> tensor<4096x64xf32>
  %c = linalg.contract indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
      ins(%a, %b : tensor<4096x4096xbf16>, tensor<64x4096xbf16>) outs(%f : tensor<4096x64xf32>) -> tensor<4096x64xf32>
  %g = tensor.empty() : tensor<4096x64xbf16>
  %r = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]}
      ins(%c : tensor<4096x64xf32>) outs(%g : tensor<4096x64xbf16>) {
  ^bb0(%x: f32, %o: bf16):
    %0 = arith.truncf %x : f32 to bf16
    linalg.yield %0 : bf16
  } -> tensor<4096x64xbf16>
  return %r : tensor<4096x64xbf16>
}
}
}

// -----
// CASE: gemm_bf16_before_hopper
// RUN: kiln-gpu-schedule{chip=sm_80}
// CHECK: #kiln.schedule<"mma_gemm", {block_m = 64 : i64, block_n = 64 : i64, stages = 4 : i64}>
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%a: tensor<128x64xbf16> {kiln.sizes = array<i64: 128, 64>}, %b: tensor<128x64xbf16> {kiln.sizes = array<i64: 128, 64>}, %bias: tensor<128xf32> {kiln.sizes = array<i64: 128>}) -> tensor<128x128xbf16> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<128x128xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<128x128xf32>) -> tensor<128x128xf32>
  %c = linalg.contract indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
      ins(%a, %b : tensor<128x64xbf16>, tensor<128x64xbf16>) outs(%f : tensor<128x128xf32>) -> tensor<128x128xf32>
  %g = tensor.empty() : tensor<128x128xbf16>
  %r = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (n)>, affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]}
      ins(%c, %bias : tensor<128x128xf32>, tensor<128xf32>) outs(%g : tensor<128x128xbf16>) {
  ^bb0(%x: f32, %y: f32, %o: bf16):
    %0 = arith.addf %x, %y : f32
    %1 = arith.truncf %0 : f32 to bf16
    linalg.yield %1 : bf16
  } -> tensor<128x128xbf16>
  return %r : tensor<128x128xbf16>
}
}
}

// -----
// CASE: impossible_tile
// expected-error @+3 {{has schedule 'wgmma_gemm' with block_n = 96 : i64; it is a multiple of 64 from 64 to 256}}
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%a: tensor<128x64xbf16> {kiln.sizes = array<i64: 128, 64>}, %b: tensor<128x64xbf16> {kiln.sizes = array<i64: 128, 64>}, %bias: tensor<128xf32> {kiln.sizes = array<i64: 128>}) -> tensor<128x128xbf16> attributes {kiln.schedule = #kiln.schedule<"wgmma_gemm", {block_k = 64 : i64, block_m = 128 : i64, block_n = 96 : i64, ctas_per_sm = 1 : i64, split_k = 1 : i64, stages = 4 : i64}>} {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<128x128xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<128x128xf32>) -> tensor<128x128xf32>
  %c = linalg.contract indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
      ins(%a, %b : tensor<128x64xbf16>, tensor<128x64xbf16>) outs(%f : tensor<128x128xf32>) -> tensor<128x128xf32>
  %g = tensor.empty() : tensor<128x128xbf16>
  %r = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (n)>, affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]}
      ins(%c, %bias : tensor<128x128xf32>, tensor<128xf32>) outs(%g : tensor<128x128xbf16>) {
  ^bb0(%x: f32, %y: f32, %o: bf16):
    %0 = arith.addf %x, %y : f32
    %1 = arith.truncf %0 : f32 to bf16
    linalg.yield %1 : bf16
  } -> tensor<128x128xbf16>
  return %r : tensor<128x128xbf16>
}
}
}

// -----
// CASE: attention_gradient
// RUN: kiln-gpu-schedule{tensor-cores=true}
// CHECK: #kiln.schedule<"attention_gradient", {block = 64 : i64
// CHECK: kiln.tensor_maps
module attributes {kiln.level = "linalg"} {
  module @k attributes {kiln.kernel = {kind = "attention"}} {
    func.func @k(%arg0: tensor<1x4x256x64xbf16> {kiln.sizes = array<i64: 1, 4, 256, 64>}, %arg1: tensor<1x2x300x64xbf16> {kiln.sizes = array<i64: 1, 2, 300, 64>}, %arg2: tensor<1x2x300x64xbf16> {kiln.sizes = array<i64: 1, 2, 300, 64>}, %arg3: tensor<1x4x256x64xbf16> {kiln.sizes = array<i64: 1, 4, 256, 64>}, %arg4: tensor<1x4x256xf32> {kiln.sizes = array<i64: 1, 4, 256>}, %arg5: tensor<1x4x256xf32> {kiln.sizes = array<i64: 1, 4, 256>}) -> (tensor<1x2x300x64xbf16>, tensor<1x2x300x64xbf16>) {
      %0 = tensor.empty() : tensor<1x2x300x64xbf16>
      %1 = tensor.empty() : tensor<1x2x300x64xbf16>
      %2:2 = kiln.structured.attention_gradient causal scale 0.125 sizes [1, 2, 2, 256, 300, 64, 64]
          ins(%arg0, %arg1, %arg2, %arg3, %arg4, %arg5 : tensor<1x4x256x64xbf16>, tensor<1x2x300x64xbf16>, tensor<1x2x300x64xbf16>, tensor<1x4x256x64xbf16>, tensor<1x4x256xf32>, tensor<1x4x256xf32>)
          outs(%0, %1 : tensor<1x2x300x64xbf16>, tensor<1x2x300x64xbf16>)
          maps = [affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1 * 2 + d2, d3, d5)>, affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1, d4, d5)>, affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1, d4, d5)>, affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1 * 2 + d2, d3, d5)>,
                  affine_map<(d0, d1, d2, d3) -> (d0, d1 * 2 + d2, d3)>, affine_map<(d0, d1, d2, d3) -> (d0, d1 * 2 + d2, d3)>, affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d3, d4)>, affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d3, d4)>] -> tensor<1x2x300x64xbf16>, tensor<1x2x300x64xbf16>
      return %2#0, %2#1 : tensor<1x2x300x64xbf16>, tensor<1x2x300x64xbf16>
    }
  }
}

// -----
// CASE: attention_gradient_of_slices
// RUN: kiln-gpu-schedule{tensor-cores=true}
// CHECK: #kiln.schedule<"attention_gradient", {block = 64 : i64
#map = affine_map<(d0, d1, d2, d3, d4) -> (d0 * 197 + d2, d1 * 64 + d4)>
#map1 = affine_map<(d0, d1, d2, d3, d4) -> (d0 * 197 + d3, d1 * 64 + d4 + 384)>
#map2 = affine_map<(d0, d1, d2, d3, d4) -> (d0 * 197 + d3, d1 * 64 + d4 + 768)>
#map3 = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#map4 = affine_map<(d0, d1, d2, d3) -> (d0, d2, d1, d3)>
module attributes {kiln.level = "linalg"} {
  module @k attributes {kiln.kernel = {kind = "attention"}} {
    func.func @k(%p: tensor<394x1152xbf16> {kiln.sizes = array<i64: 394, 1152>}, %c: tensor<394x384xbf16> {kiln.sizes = array<i64: 394, 384>}, %l: tensor<2x6x197xf32> {kiln.sizes = array<i64: 2, 6, 197>}, %d: tensor<2x6x197xf32> {kiln.sizes = array<i64: 2, 6, 197>}) -> tensor<2x197x6x64xbf16> {
      %0 = tensor.empty() : tensor<2x197x6x64xbf16>
      %1 = kiln.structured.attention_gradient scale 0.125 sizes [2, 6, 197, 197, 64, 64]
          ins(%p, %p, %p, %c, %l, %d : tensor<394x1152xbf16>, tensor<394x1152xbf16>, tensor<394x1152xbf16>, tensor<394x384xbf16>, tensor<2x6x197xf32>, tensor<2x6x197xf32>)
          outs(%0 : tensor<2x197x6x64xbf16>) maps = [#map, #map1, #map2, #map, #map3, #map3, #map4] -> tensor<2x197x6x64xbf16>
      return %1 : tensor<2x197x6x64xbf16>
    }
  }
}

// -----
// CASE: attention
// RUN: kiln-gpu-schedule{tensor-cores=true}
// CHECK: #kiln.schedule<"attention", {block_kv = 128 : i64, ctas = 0 : i64, kv_stages = 2 : i64, q_stages = 2 : i64, warpgroups = 2 : i64}>
// CHECK: kiln.tensor_maps
#map = affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d3, d1 * 2 + d2, d5)>
#map1 = affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1, d4, d5)>
#map2 = affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1, d5, d4)>
#map3 = affine_map<(d0, d1, d2, d3, d4) -> (d0, d3, d1, d2, d4)>
module attributes {kiln.level = "linalg"} {
  module @k attributes {kiln.kernel = {kind = "attention"}} {
    func.func @k(%q: tensor<2x?x4x64xbf16> {kiln.sizes = array<i64: 2, -1, 4, 64>}, %k: tensor<2x2x300x64xbf16> {kiln.sizes = array<i64: 2, 2, 300, 64>}, %v: tensor<2x2x300x64xbf16> {kiln.sizes = array<i64: 2, 2, 300, 64>}, %s: index) -> tensor<2x?x4x64xbf16> {
      %0 = tensor.empty(%s) : tensor<2x?x2x2x64xbf16>
      %result = kiln.structured.attention sizes [2, 2, 2, %s, 300, 64, 64] lengths []
          inputs(%q, %k : tensor<2x?x4x64xbf16>, tensor<2x2x300x64xbf16>) modifiers() values(%v : tensor<2x2x300x64xbf16>)
          outs(%0 : tensor<2x?x2x2x64xbf16>) maps = [#map, #map1, #map2, #map3] factors {
      ^bb0(%x: bf16, %y: bf16):
        %1 = arith.extf %x : bf16 to f32
        %2 = arith.extf %y : bf16 to f32
        kiln.yield %1, %2 : f32, f32
      } score {
      ^bb0(%z: f32):
        %cst = arith.constant 1.250000e-01 : f32
        %1 = arith.mulf %z, %cst : f32
        kiln.yield %1, %1 : f32, f32
      } weighted {
      ^bb0(%z: bf16):
        %1 = arith.extf %z : bf16 to f32
        kiln.yield %1 : f32
      } -> tensor<2x?x2x2x64xbf16>
      %collapsed = tensor.collapse_shape %result [[0], [1], [2, 3], [4]] : tensor<2x?x2x2x64xbf16> into tensor<2x?x4x64xbf16>
      return %collapsed : tensor<2x?x4x64xbf16>
    }
  }
}

// -----
// Grouped-query attention: the four query heads of a key head form one tile, and the CTAs of a
// cluster split its keys.
// CASE: split_attention
// CHECK: kiln.cluster = 8
// CHECK: #kiln.schedule<"split_attention", {block_kv = 32 : i64, block_q = 8 : i64, split_kv = 8 : i64, warps = 8 : i64}>
#map = affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1 * 4 + d2, d3, d5)>
#map1 = affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1, d4, d5)>
#map2 = affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1, d5, d4)>
#map3 = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3, d4)>
module attributes {kiln.level = "linalg"} {
  module @k attributes {kiln.kernel = {kind = "attention"}} {
    func.func @k(%q: tensor<1x8x1x64xbf16> {kiln.sizes = array<i64: 1, 8, 1, 64>}, %k: tensor<1x2x?x64xbf16> {kiln.sizes = array<i64: 1, 2, -1, 64>}, %v: tensor<1x2x?x64xbf16> {kiln.sizes = array<i64: 1, 2, -1, 64>}, %s: index) -> tensor<1x8x1x64xbf16> {
      %0 = tensor.empty() : tensor<1x2x4x1x64xbf16>
      %result = kiln.structured.attention sizes [1, 2, 4, 1, %s, 64, 64] lengths []
          inputs(%q, %k : tensor<1x8x1x64xbf16>, tensor<1x2x?x64xbf16>) modifiers() values(%v : tensor<1x2x?x64xbf16>)
          outs(%0 : tensor<1x2x4x1x64xbf16>) maps = [#map, #map1, #map2, #map3] factors {
      ^bb0(%x: bf16, %y: bf16):
        %1 = arith.extf %x : bf16 to f32
        %2 = arith.extf %y : bf16 to f32
        kiln.yield %1, %2 : f32, f32
      } score {
      ^bb0(%z: f32):
        %cst = arith.constant 1.250000e-01 : f32
        %1 = arith.mulf %z, %cst : f32
        kiln.yield %1, %1 : f32, f32
      } weighted {
      ^bb0(%z: bf16):
        %1 = arith.extf %z : bf16 to f32
        kiln.yield %1 : f32
      } -> tensor<1x2x4x1x64xbf16>
      %collapsed = tensor.collapse_shape %result [[0], [1, 2], [3], [4]] : tensor<1x2x4x1x64xbf16> into tensor<1x8x1x64xbf16>
      return %collapsed : tensor<1x8x1x64xbf16>
    }
  }
}

// -----
// Chips before Hopper have no clusters; any number of queries.
// CASE: attention_before_hopper
// RUN: kiln-gpu-schedule{chip=sm_80}
// CHECK: #kiln.schedule<"split_attention", {block_kv = 32 : i64, block_q = 16 : i64, split_kv = 1 : i64, warps = 8 : i64}>
// IMPLICIT-CHECK-NOT: kiln.cluster
#map = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d4)>
#map1 = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d3, d4)>
#map2 = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d4, d3)>
#map3 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
module attributes {kiln.level = "linalg"} {
  module @k attributes {kiln.kernel = {kind = "attention"}} {
    func.func @k(%q: tensor<1x8x300x64xbf16> {kiln.sizes = array<i64: 1, 8, 300, 64>}, %k: tensor<1x8x300x64xbf16> {kiln.sizes = array<i64: 1, 8, 300, 64>}, %v: tensor<1x8x300x64xbf16> {kiln.sizes = array<i64: 1, 8, 300, 64>}) -> tensor<1x8x300x64xbf16> {
      %0 = tensor.empty() : tensor<1x8x300x64xbf16>
      %result = kiln.structured.attention causal sizes [1, 8, 300, 300, 64, 64] lengths []
          inputs(%q, %k : tensor<1x8x300x64xbf16>, tensor<1x8x300x64xbf16>) modifiers() values(%v : tensor<1x8x300x64xbf16>)
          outs(%0 : tensor<1x8x300x64xbf16>) maps = [#map, #map1, #map2, #map3] factors {
      ^bb0(%x: bf16, %y: bf16):
        %1 = arith.extf %x : bf16 to f32
        %2 = arith.extf %y : bf16 to f32
        kiln.yield %1, %2 : f32, f32
      } score {
      ^bb0(%z: f32):
        %cst = arith.constant 1.250000e-01 : f32
        %1 = arith.mulf %z, %cst : f32
        %2 = kiln.structured.index 2
        %3 = kiln.structured.index 3
        %4 = arith.cmpi sle, %3, %2 : index
        %cst_0 = arith.constant 0xFF800000 : f32
        %5 = arith.select %4, %1, %cst_0 : f32
        kiln.yield %5, %1 : f32, f32
      } weighted {
      ^bb0(%z: bf16):
        %1 = arith.extf %z : bf16 to f32
        kiln.yield %1 : f32
      } -> tensor<1x8x300x64xbf16>
      return %result : tensor<1x8x300x64xbf16>
    }
  }
}

// -----
// Few queries fill one warpgroup, 197 two, 2048 three; long causal tiles are balanced by the hardware.
// CASE: attention_of_lengths
// RUN: kiln-gpu-schedule{tensor-cores=true}
// CHECK: ctas = 0 : i64, kv_stages = 2 : i64, q_stages = 2 : i64, warpgroups = 1 : i64
// CHECK: ctas = 132 : i64, kv_stages = 2 : i64, q_stages = 2 : i64, warpgroups = 2 : i64
// CHECK: ctas = 0 : i64, kv_stages = 2 : i64, q_stages = 2 : i64, warpgroups = 3 : i64
#map = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d4)>
#map1 = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d3, d4)>
#map2 = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d4, d3)>
#map3 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
module attributes {kiln.level = "linalg"} {
  module @short attributes {kiln.kernel = {kind = "attention"}} {
    func.func @short(%q: tensor<64x12x50x64xbf16> {kiln.sizes = array<i64: 64, 12, 50, 64>}, %k: tensor<64x12x50x64xbf16> {kiln.sizes = array<i64: 64, 12, 50, 64>}, %v: tensor<64x12x50x64xbf16> {kiln.sizes = array<i64: 64, 12, 50, 64>}) -> tensor<64x12x50x64xbf16> {
      %0 = tensor.empty() : tensor<64x12x50x64xbf16>
      %result = kiln.structured.attention sizes [64, 12, 50, 50, 64, 64] lengths []
          inputs(%q, %k : tensor<64x12x50x64xbf16>, tensor<64x12x50x64xbf16>) modifiers() values(%v : tensor<64x12x50x64xbf16>)
          outs(%0 : tensor<64x12x50x64xbf16>) maps = [#map, #map1, #map2, #map3] factors {
      ^bb0(%x: bf16, %y: bf16):
        %1 = arith.extf %x : bf16 to f32
        %2 = arith.extf %y : bf16 to f32
        kiln.yield %1, %2 : f32, f32
      } score {
      ^bb0(%z: f32):
        %cst = arith.constant 1.250000e-01 : f32
        %1 = arith.mulf %z, %cst : f32
        kiln.yield %1, %1 : f32, f32
      } weighted {
      ^bb0(%z: bf16):
        %1 = arith.extf %z : bf16 to f32
        kiln.yield %1 : f32
      } -> tensor<64x12x50x64xbf16>
      return %result : tensor<64x12x50x64xbf16>
    }
  }
  module @middle attributes {kiln.kernel = {kind = "attention"}} {
    func.func @middle(%q: tensor<64x12x197x64xbf16> {kiln.sizes = array<i64: 64, 12, 197, 64>}, %k: tensor<64x12x197x64xbf16> {kiln.sizes = array<i64: 64, 12, 197, 64>}, %v: tensor<64x12x197x64xbf16> {kiln.sizes = array<i64: 64, 12, 197, 64>}) -> tensor<64x12x197x64xbf16> {
      %0 = tensor.empty() : tensor<64x12x197x64xbf16>
      %result = kiln.structured.attention sizes [64, 12, 197, 197, 64, 64] lengths []
          inputs(%q, %k : tensor<64x12x197x64xbf16>, tensor<64x12x197x64xbf16>) modifiers() values(%v : tensor<64x12x197x64xbf16>)
          outs(%0 : tensor<64x12x197x64xbf16>) maps = [#map, #map1, #map2, #map3] factors {
      ^bb0(%x: bf16, %y: bf16):
        %1 = arith.extf %x : bf16 to f32
        %2 = arith.extf %y : bf16 to f32
        kiln.yield %1, %2 : f32, f32
      } score {
      ^bb0(%z: f32):
        %cst = arith.constant 1.250000e-01 : f32
        %1 = arith.mulf %z, %cst : f32
        kiln.yield %1, %1 : f32, f32
      } weighted {
      ^bb0(%z: bf16):
        %1 = arith.extf %z : bf16 to f32
        kiln.yield %1 : f32
      } -> tensor<64x12x197x64xbf16>
      return %result : tensor<64x12x197x64xbf16>
    }
  }
  module @causal attributes {kiln.kernel = {kind = "attention"}} {
    func.func @causal(%q: tensor<8x16x2048x64xbf16> {kiln.sizes = array<i64: 8, 16, 2048, 64>}, %k: tensor<8x16x2048x64xbf16> {kiln.sizes = array<i64: 8, 16, 2048, 64>}, %v: tensor<8x16x2048x64xbf16> {kiln.sizes = array<i64: 8, 16, 2048, 64>}) -> tensor<8x16x2048x64xbf16> {
      %0 = tensor.empty() : tensor<8x16x2048x64xbf16>
      %result = kiln.structured.attention causal sizes [8, 16, 2048, 2048, 64, 64] lengths []
          inputs(%q, %k : tensor<8x16x2048x64xbf16>, tensor<8x16x2048x64xbf16>) modifiers() values(%v : tensor<8x16x2048x64xbf16>)
          outs(%0 : tensor<8x16x2048x64xbf16>) maps = [#map, #map1, #map2, #map3] factors {
      ^bb0(%x: bf16, %y: bf16):
        %1 = arith.extf %x : bf16 to f32
        %2 = arith.extf %y : bf16 to f32
        kiln.yield %1, %2 : f32, f32
      } score {
      ^bb0(%z: f32):
        %cst = arith.constant 1.250000e-01 : f32
        %1 = arith.mulf %z, %cst : f32
        %2 = kiln.structured.index 2
        %3 = kiln.structured.index 3
        %4 = arith.cmpi sle, %3, %2 : index
        %cst_0 = arith.constant 0xFF800000 : f32
        %5 = arith.select %4, %1, %cst_0 : f32
        kiln.yield %5, %1 : f32, f32
      } weighted {
      ^bb0(%z: bf16):
        %1 = arith.extf %z : bf16 to f32
        kiln.yield %1 : f32
      } -> tensor<8x16x2048x64xbf16>
      return %result : tensor<8x16x2048x64xbf16>
    }
  }
}

// -----
// CASE: attention_exceeds_shared_memory
#query = affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1 * 2 + d2, d3, d5)>
#key = affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1, d4, d5)>
#bias = affine_map<(d0, d1, d2, d3, d4) -> (d4)>
#value = affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1, d5, d4)>
#result = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3, d4)>
module attributes {kiln.level = "linalg"} {
  module @k attributes {kiln.kernel = {kind = "attention"}} {
    // expected-error @+1 {{has a schedule of 296096 bytes of shared memory; 232448 are possible}}
    func.func @k(%arg0: tensor<1x4x200x8xbf16> {kiln.sizes = array<i64: 1, 4, 200, 8>}, %arg1: tensor<1x2x200x8xbf16> {kiln.sizes = array<i64: 1, 2, 200, 8>}, %arg2: tensor<1x2x200x8xbf16> {kiln.sizes = array<i64: 1, 2, 200, 8>}, %arg3: tensor<200xbf16> {kiln.sizes = array<i64: 200>}) -> tensor<1x4x200x8xbf16> attributes {kiln.schedule = #kiln.schedule<"attention", {block_kv = 256 : i64, ctas = 0 : i64, kv_stages = 4 : i64, q_stages = 2 : i64, warpgroups = 2 : i64}>} {
      %cst_0 = arith.constant 0xFF800000 : f32
      %cst_1 = arith.constant 0.353553385 : f32
      %0 = tensor.empty() : tensor<1x2x2x200x8xbf16>
      %14 = kiln.structured.attention causal sizes [1, 2, 2, 200, 200, 8, 8] lengths []
          inputs(%arg0, %arg1 : tensor<1x4x200x8xbf16>, tensor<1x2x200x8xbf16>) modifiers(%arg3 : tensor<200xbf16>)
          values(%arg2 : tensor<1x2x200x8xbf16>) outs(%0 : tensor<1x2x2x200x8xbf16>) maps = [#query, #key, #bias, #value, #result] factors {
      ^bb0(%q: bf16, %k: bf16):
        %1 = arith.extf %q : bf16 to f32
        %2 = arith.extf %k : bf16 to f32
        kiln.yield %1, %2 : f32, f32
      } score {
      ^bb0(%s: f32, %b: bf16):
        %1 = arith.mulf %s, %cst_1 : f32
        %2 = arith.extf %b : bf16 to f32
        %3 = arith.addf %1, %2 : f32
        %4 = kiln.structured.index 3
        %5 = kiln.structured.index 4
        %6 = arith.cmpi sle, %5, %4 : index
        %7 = arith.select %6, %3, %cst_0 : f32
        kiln.yield %7, %3 : f32, f32
      } weighted {
      ^bb0(%v: bf16):
        %1 = arith.extf %v : bf16 to f32
        kiln.yield %1 : f32
      } -> tensor<1x2x2x200x8xbf16>
      %collapsed = tensor.collapse_shape %14 [[0], [1, 2], [3], [4]] : tensor<1x2x2x200x8xbf16> into tensor<1x4x200x8xbf16>
      return %collapsed : tensor<1x4x200x8xbf16>
    }
  }
}

// -----
// CASE: attention_with_a_bad_schedule
#query = affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1 * 2 + d2, d3, d5)>
#key = affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1, d4, d5)>
#bias = affine_map<(d0, d1, d2, d3, d4) -> (d4)>
#value = affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1, d5, d4)>
#result = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3, d4)>
module attributes {kiln.level = "linalg"} {
  module @k attributes {kiln.kernel = {kind = "attention"}} {
    // expected-error @+1 {{has schedule 'attention' with block_kv = 24 : i64; it is a multiple of 16 from 16 to 256}}
    func.func @k(%arg0: tensor<1x4x200x8xbf16> {kiln.sizes = array<i64: 1, 4, 200, 8>}, %arg1: tensor<1x2x200x8xbf16> {kiln.sizes = array<i64: 1, 2, 200, 8>}, %arg2: tensor<1x2x200x8xbf16> {kiln.sizes = array<i64: 1, 2, 200, 8>}, %arg3: tensor<200xbf16> {kiln.sizes = array<i64: 200>}) -> tensor<1x4x200x8xbf16> attributes {kiln.schedule = #kiln.schedule<"attention", {block_kv = 24 : i64, ctas = 0 : i64, kv_stages = 4 : i64, q_stages = 2 : i64, warpgroups = 2 : i64}>} {
      %cst_0 = arith.constant 0xFF800000 : f32
      %cst_1 = arith.constant 0.353553385 : f32
      %0 = tensor.empty() : tensor<1x2x2x200x8xbf16>
      %14 = kiln.structured.attention causal sizes [1, 2, 2, 200, 200, 8, 8] lengths []
          inputs(%arg0, %arg1 : tensor<1x4x200x8xbf16>, tensor<1x2x200x8xbf16>) modifiers(%arg3 : tensor<200xbf16>)
          values(%arg2 : tensor<1x2x200x8xbf16>) outs(%0 : tensor<1x2x2x200x8xbf16>) maps = [#query, #key, #bias, #value, #result] factors {
      ^bb0(%q: bf16, %k: bf16):
        %1 = arith.extf %q : bf16 to f32
        %2 = arith.extf %k : bf16 to f32
        kiln.yield %1, %2 : f32, f32
      } score {
      ^bb0(%s: f32, %b: bf16):
        %1 = arith.mulf %s, %cst_1 : f32
        %2 = arith.extf %b : bf16 to f32
        %3 = arith.addf %1, %2 : f32
        %4 = kiln.structured.index 3
        %5 = kiln.structured.index 4
        %6 = arith.cmpi sle, %5, %4 : index
        %7 = arith.select %6, %3, %cst_0 : f32
        kiln.yield %7, %3 : f32, f32
      } weighted {
      ^bb0(%v: bf16):
        %1 = arith.extf %v : bf16 to f32
        kiln.yield %1 : f32
      } -> tensor<1x2x2x200x8xbf16>
      %collapsed = tensor.collapse_shape %14 [[0], [1, 2], [3], [4]] : tensor<1x2x2x200x8xbf16> into tensor<1x4x200x8xbf16>
      return %collapsed : tensor<1x4x200x8xbf16>
    }
  }
}

// -----
// Nine filter taps, two K steps of channels each; the last tap starts one row and one column into
// the image.
// CASE: padded_convolution
// CHECK: #kiln.schedule<"wgmma_gemm"
// CHECK: window = {high = array<i64: -1, -1>, low = array<i64: -1, -1>, strides = array<i64: 2, 2>}
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%x: tensor<?x9x7x72xbf16> {kiln.sizes = array<i64: -1, 9, 7, 72>}, %w: tensor<40x3x3x72xbf16> {kiln.sizes = array<i64: 40, 3, 3, 72>}, %s0: index) -> tensor<?x5x4x40xbf16> {
  %zero = arith.constant 0.0 : f32
  %p = tensor.pad %x low[0, 1, 1, 0] high[0, 1, 1, 0] {
  ^bb0(%a: index, %b: index, %c: index, %d: index):
    %z = arith.constant 0.0 : bf16
    tensor.yield %z : bf16
  } : tensor<?x9x7x72xbf16> to tensor<?x11x9x72xbf16>
  %e = tensor.empty(%s0) : tensor<?x5x4x40xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x5x4x40xf32>) -> tensor<?x5x4x40xf32>
  %c = kiln.structured.contract ins(%p, %w : tensor<?x11x9x72xbf16>, tensor<40x3x3x72xbf16>) outs(%f : tensor<?x5x4x40xf32>)
      maps = [affine_map<(n, h, w, k, r, s, c) -> (n, h * 2 + r, w * 2 + s, c)>, affine_map<(n, h, w, k, r, s, c) -> (k, r, s, c)>, affine_map<(n, h, w, k, r, s, c) -> (n, h, w, k)>] {
  ^bb0(%a: bf16, %b: bf16):
    %0 = arith.extf %a : bf16 to f32
    %1 = arith.extf %b : bf16 to f32
    kiln.yield %0, %1 : f32, f32
  } -> tensor<?x5x4x40xf32>
  %g = tensor.empty(%s0) : tensor<?x5x4x40xbf16>
  %r = linalg.generic {indexing_maps = [affine_map<(n, h, w, k) -> (n, h, w, k)>, affine_map<(n, h, w, k) -> (n, h, w, k)>],
      iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%c : tensor<?x5x4x40xf32>) outs(%g : tensor<?x5x4x40xbf16>) {
  ^bb0(%a: f32, %o: bf16):
    %0 = arith.maximumf %a, %zero : f32
    %1 = arith.truncf %0 : f32 to bf16
    linalg.yield %1 : bf16
  } -> tensor<?x5x4x40xbf16>
  return %r : tensor<?x5x4x40xbf16>
}
}
}

// -----
// Without TMA, threads copy pixels, with zeros out of bounds.
// CASE: padded_convolution_before_hopper
// RUN: kiln-gpu-schedule{chip=sm_80}
// CHECK: #kiln.schedule<"mma_gemm"
// IMPLICIT-CHECK-NOT: kiln.tensor_maps
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%x: tensor<?x9x7x72xbf16> {kiln.sizes = array<i64: -1, 9, 7, 72>}, %w: tensor<40x3x3x72xbf16> {kiln.sizes = array<i64: 40, 3, 3, 72>}, %s0: index) -> tensor<?x5x4x40xbf16> {
  %zero = arith.constant 0.0 : f32
  %p = tensor.pad %x low[0, 1, 1, 0] high[0, 1, 1, 0] {
  ^bb0(%a: index, %b: index, %c: index, %d: index):
    %z = arith.constant 0.0 : bf16
    tensor.yield %z : bf16
  } : tensor<?x9x7x72xbf16> to tensor<?x11x9x72xbf16>
  %e = tensor.empty(%s0) : tensor<?x5x4x40xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x5x4x40xf32>) -> tensor<?x5x4x40xf32>
  %c = kiln.structured.contract ins(%p, %w : tensor<?x11x9x72xbf16>, tensor<40x3x3x72xbf16>) outs(%f : tensor<?x5x4x40xf32>)
      maps = [affine_map<(n, h, w, k, r, s, c) -> (n, h * 2 + r, w * 2 + s, c)>, affine_map<(n, h, w, k, r, s, c) -> (k, r, s, c)>, affine_map<(n, h, w, k, r, s, c) -> (n, h, w, k)>] {
  ^bb0(%a: bf16, %b: bf16):
    %0 = arith.extf %a : bf16 to f32
    %1 = arith.extf %b : bf16 to f32
    kiln.yield %0, %1 : f32, f32
  } -> tensor<?x5x4x40xf32>
  %g = tensor.empty(%s0) : tensor<?x5x4x40xbf16>
  %r = linalg.generic {indexing_maps = [affine_map<(n, h, w, k) -> (n, h, w, k)>, affine_map<(n, h, w, k) -> (n, h, w, k)>],
      iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%c : tensor<?x5x4x40xf32>) outs(%g : tensor<?x5x4x40xbf16>) {
  ^bb0(%a: f32, %o: bf16):
    %0 = arith.maximumf %a, %zero : f32
    %1 = arith.truncf %0 : f32 to bf16
    linalg.yield %1 : bf16
  } -> tensor<?x5x4x40xbf16>
  return %r : tensor<?x5x4x40xbf16>
}
}
}

// -----
// Too few pixels for a thread to compute more than one of them.
// CASE: depthwise_convolution
// CHECK: #kiln.schedule<"depthwise", {pixels = 1 : i64, threads = 128 : i64, vector = 8 : i64}>
#image = affine_map<(n, h, w, c, r, s) -> (n, h * 2 + r, w * 2 + s, c)>
#window = affine_map<(n, h, w, c, r, s) -> (r, s, 0, c)>
#sum = affine_map<(n, h, w, c, r, s) -> (n, h, w, c)>
#id = affine_map<(n, h, w, c) -> (n, h, w, c)>
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%x: tensor<?x9x13x24xbf16> {kiln.sizes = array<i64: -1, 9, 13, 24>}, %w: tensor<3x3x1x24xbf16> {kiln.sizes = array<i64: 3, 3, 1, 24>}, %s0: index) -> tensor<?x5x7x24xbf16> {
  %zero = arith.constant 0.0 : f32
  %p = tensor.pad %x low[0, 1, 1, 0] high[0, 1, 1, 0] {
  ^bb0(%a: index, %b: index, %c: index, %d: index):
    %z = arith.constant 0.0 : bf16
    tensor.yield %z : bf16
  } : tensor<?x9x13x24xbf16> to tensor<?x11x15x24xbf16>
  %e = tensor.empty(%s0) : tensor<?x5x7x24xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x5x7x24xf32>) -> tensor<?x5x7x24xf32>
  %c = kiln.structured.contract ins(%p, %w : tensor<?x11x15x24xbf16>, tensor<3x3x1x24xbf16>) outs(%f : tensor<?x5x7x24xf32>)
      maps = [#image, #window, #sum] {
  ^bb0(%a: bf16, %b: bf16):
    %0 = arith.extf %a : bf16 to f32
    %1 = arith.extf %b : bf16 to f32
    kiln.yield %0, %1 : f32, f32
  } -> tensor<?x5x7x24xf32>
  %g = tensor.empty(%s0) : tensor<?x5x7x24xbf16>
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%c : tensor<?x5x7x24xf32>) outs(%g : tensor<?x5x7x24xbf16>) {
  ^bb0(%a: f32, %o: bf16):
    %0 = arith.maximumf %a, %zero : f32
    %1 = arith.truncf %0 : f32 to bf16
    linalg.yield %1 : bf16
  } -> tensor<?x5x7x24xbf16>
  return %r : tensor<?x5x7x24xbf16>
}
}
}

// -----
// CASE: skinny_gemm
// CHECK: #kiln.schedule<"skinny_gemm", {block_m = 16 : i64, prefetch = 1024 : i64, stages = 4 : i64, unroll = 4 : i64, warps = 16 : i64}>
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%a: tensor<1x2048xbf16> {kiln.sizes = array<i64: 1, 2048>}, %b: tensor<8192x2048xbf16> {kiln.sizes = array<i64: 8192, 2048>}) -> tensor<1x8192xbf16> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<1x8192xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<1x8192xf32>) -> tensor<1x8192xf32>
  %c = linalg.contract indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
      ins(%a, %b : tensor<1x2048xbf16>, tensor<8192x2048xbf16>) outs(%f : tensor<1x8192xf32>) -> tensor<1x8192xf32>
  %g = tensor.empty() : tensor<1x8192xbf16>
  %r = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]}
      ins(%c : tensor<1x8192xf32>) outs(%g : tensor<1x8192xbf16>) {
  ^bb0(%x: f32, %o: bf16):
    %0 = arith.truncf %x : f32 to bf16
    linalg.yield %0 : bf16
  } -> tensor<1x8192xbf16>
  return %r : tensor<1x8192xbf16>
}
}
}

// -----
// The grid has the tiles of both: 128 and 32.
// CASE: skinny_products_of_one_operand
// CHECK: affine_map<() -> (160)>
// CHECK: #kiln.schedule<"skinny_gemm", {block_m = 16 : i64, prefetch = 1024 : i64, stages = 4 : i64, unroll = 4 : i64, warps = 16 : i64}>
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%a: tensor<1x2048xbf16> {kiln.sizes = array<i64: 1, 2048>}, %b: tensor<2048x2048xbf16> {kiln.sizes = array<i64: 2048, 2048>}, %d: tensor<512x2048xbf16> {kiln.sizes = array<i64: 512, 2048>}) -> (tensor<1x2048xbf16>, tensor<1x512xbf16>) {
  %zero = arith.constant 0.0 : f32
  %e0 = tensor.empty() : tensor<1x2048xf32>
  %f0 = linalg.fill ins(%zero : f32) outs(%e0 : tensor<1x2048xf32>) -> tensor<1x2048xf32>
  %c0 = linalg.contract indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
      ins(%a, %b : tensor<1x2048xbf16>, tensor<2048x2048xbf16>) outs(%f0 : tensor<1x2048xf32>) -> tensor<1x2048xf32>
  %g0 = tensor.empty() : tensor<1x2048xbf16>
  %r0 = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]}
      ins(%c0 : tensor<1x2048xf32>) outs(%g0 : tensor<1x2048xbf16>) {
  ^bb0(%x: f32, %o: bf16):
    %0 = arith.truncf %x : f32 to bf16
    linalg.yield %0 : bf16
  } -> tensor<1x2048xbf16>
  %e1 = tensor.empty() : tensor<1x512xf32>
  %f1 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<1x512xf32>) -> tensor<1x512xf32>
  %c1 = linalg.contract indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
      ins(%a, %d : tensor<1x2048xbf16>, tensor<512x2048xbf16>) outs(%f1 : tensor<1x512xf32>) -> tensor<1x512xf32>
  %g1 = tensor.empty() : tensor<1x512xbf16>
  %r1 = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]}
      ins(%c1 : tensor<1x512xf32>) outs(%g1 : tensor<1x512xbf16>) {
  ^bb0(%x: f32, %o: bf16):
    %0 = arith.truncf %x : f32 to bf16
    linalg.yield %0 : bf16
  } -> tensor<1x512xbf16>
  return %r0, %r1 : tensor<1x2048xbf16>, tensor<1x512xbf16>
}
}
}

// -----
// Each CTA computes the row that its product multiplies.
// CASE: skinny_gemm_of_a_norm
// CHECK: affine_map<() -> (512)>
// CHECK: #kiln.schedule<"skinny_gemm", {block_m = 16 : i64, prefetch = 1024 : i64, stages = 4 : i64, unroll = 4 : i64, warps = 16 : i64}>
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%a: tensor<1x2048xbf16> {kiln.sizes = array<i64: 1, 2048>}, %b: tensor<8192x2048xbf16> {kiln.constant, kiln.sizes = array<i64: 8192, 2048>}) -> tensor<1x8192xbf16> {
  %zero = arith.constant 0.0 : f32
  %sum0 = tensor.empty() : tensor<1xf32>
  %sum1 = linalg.fill ins(%zero : f32) outs(%sum0 : tensor<1xf32>) -> tensor<1xf32>
  %sum = linalg.generic {indexing_maps = [affine_map<(m, k) -> (m, k)>, affine_map<(m, k) -> (m)>], iterator_types = ["parallel", "reduction"]}
      ins(%a : tensor<1x2048xbf16>) outs(%sum1 : tensor<1xf32>) {
  ^bb0(%x: bf16, %o: f32):
    %0 = arith.extf %x : bf16 to f32
    %1 = arith.mulf %0, %0 : f32
    %2 = arith.addf %o, %1 : f32
    linalg.yield %2 : f32
  } -> tensor<1xf32>
  %norm0 = tensor.empty() : tensor<1x2048xbf16>
  %norm = linalg.generic {indexing_maps = [affine_map<(m, k) -> (m, k)>, affine_map<(m, k) -> (m)>, affine_map<(m, k) -> (m, k)>], iterator_types = ["parallel", "parallel"]}
      ins(%a, %sum : tensor<1x2048xbf16>, tensor<1xf32>) outs(%norm0 : tensor<1x2048xbf16>) {
  ^bb0(%x: bf16, %t: f32, %o: bf16):
    %0 = arith.extf %x : bf16 to f32
    %1 = math.rsqrt %t : f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.truncf %2 : f32 to bf16
    linalg.yield %3 : bf16
  } -> tensor<1x2048xbf16>
  %e = tensor.empty() : tensor<1x8192xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<1x8192xf32>) -> tensor<1x8192xf32>
  %c = linalg.contract indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
      ins(%norm, %b : tensor<1x2048xbf16>, tensor<8192x2048xbf16>) outs(%f : tensor<1x8192xf32>) -> tensor<1x8192xf32>
  %g = tensor.empty() : tensor<1x8192xbf16>
  %r = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]}
      ins(%c : tensor<1x8192xf32>) outs(%g : tensor<1x8192xbf16>) {
  ^bb0(%x: f32, %o: bf16):
    %0 = arith.truncf %x : f32 to bf16
    linalg.yield %0 : bf16
  } -> tensor<1x8192xbf16>
  return %r : tensor<1x8192xbf16>
}
}
}

// -----
// 16 rows of 2048 elements do not fit what a CTA has for them.
// CASE: norm_of_too_many_rows
// IMPLICIT-CHECK-NOT: skinny_gemm
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%a: tensor<16x2048xbf16> {kiln.sizes = array<i64: 16, 2048>}, %b: tensor<8192x2048xbf16> {kiln.constant, kiln.sizes = array<i64: 8192, 2048>}) -> tensor<16x8192xbf16> {
  %zero = arith.constant 0.0 : f32
  %sum0 = tensor.empty() : tensor<16xf32>
  %sum1 = linalg.fill ins(%zero : f32) outs(%sum0 : tensor<16xf32>) -> tensor<16xf32>
  %sum = linalg.generic {indexing_maps = [affine_map<(m, k) -> (m, k)>, affine_map<(m, k) -> (m)>], iterator_types = ["parallel", "reduction"]}
      ins(%a : tensor<16x2048xbf16>) outs(%sum1 : tensor<16xf32>) {
  ^bb0(%x: bf16, %o: f32):
    %0 = arith.extf %x : bf16 to f32
    %1 = arith.mulf %0, %0 : f32
    %2 = arith.addf %o, %1 : f32
    linalg.yield %2 : f32
  } -> tensor<16xf32>
  %norm0 = tensor.empty() : tensor<16x2048xbf16>
  %norm = linalg.generic {indexing_maps = [affine_map<(m, k) -> (m, k)>, affine_map<(m, k) -> (m)>, affine_map<(m, k) -> (m, k)>], iterator_types = ["parallel", "parallel"]}
      ins(%a, %sum : tensor<16x2048xbf16>, tensor<16xf32>) outs(%norm0 : tensor<16x2048xbf16>) {
  ^bb0(%x: bf16, %t: f32, %o: bf16):
    %0 = arith.extf %x : bf16 to f32
    %1 = math.rsqrt %t : f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.truncf %2 : f32 to bf16
    linalg.yield %3 : bf16
  } -> tensor<16x2048xbf16>
  %e = tensor.empty() : tensor<16x8192xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<16x8192xf32>) -> tensor<16x8192xf32>
  %c = linalg.contract indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
      ins(%norm, %b : tensor<16x2048xbf16>, tensor<8192x2048xbf16>) outs(%f : tensor<16x8192xf32>) -> tensor<16x8192xf32>
  %g = tensor.empty() : tensor<16x8192xbf16>
  %r = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]}
      ins(%c : tensor<16x8192xf32>) outs(%g : tensor<16x8192xbf16>) {
  ^bb0(%x: f32, %o: bf16):
    %0 = arith.truncf %x : f32 to bf16
    linalg.yield %0 : bf16
  } -> tensor<16x8192xbf16>
  return %r : tensor<16x8192xbf16>
}
}
}

// -----
// CASE: skinny_gemm_of_several_rows
// CHECK: #kiln.schedule<"skinny_gemm", {block_m = 32 : i64, prefetch = 1024 : i64, stages = 4 : i64, unroll = 2 : i64, warps = 8 : i64}>
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%a: tensor<16x4096xbf16> {kiln.sizes = array<i64: 16, 4096>}, %b: tensor<4096x4096xbf16> {kiln.sizes = array<i64: 4096, 4096>}) -> tensor<16x4096xbf16> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<16x4096xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<16x4096xf32>) -> tensor<16x4096xf32>
  %c = linalg.contract indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
      ins(%a, %b : tensor<16x4096xbf16>, tensor<4096x4096xbf16>) outs(%f : tensor<16x4096xf32>) -> tensor<16x4096xf32>
  %g = tensor.empty() : tensor<16x4096xbf16>
  %r = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]}
      ins(%c : tensor<16x4096xf32>) outs(%g : tensor<16x4096xbf16>) {
  ^bb0(%x: f32, %o: bf16):
    %0 = arith.truncf %x : f32 to bf16
    linalg.yield %0 : bf16
  } -> tensor<16x4096xbf16>
  return %r : tensor<16x4096xbf16>
}
}
}

// -----
// Its threads load the right operand along K, which is not contiguous here.
// CASE: skinny_gemm_mn_major
// CHECK: #kiln.schedule<"wgmma_gemm"
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%a: tensor<16x4096xbf16> {kiln.sizes = array<i64: 16, 4096>}, %b: tensor<4096x4096xbf16> {kiln.sizes = array<i64: 4096, 4096>}) -> tensor<16x4096xbf16> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<16x4096xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<16x4096xf32>) -> tensor<16x4096xf32>
  %c = linalg.contract indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>]
      ins(%a, %b : tensor<16x4096xbf16>, tensor<4096x4096xbf16>) outs(%f : tensor<16x4096xf32>) -> tensor<16x4096xf32>
  %g = tensor.empty() : tensor<16x4096xbf16>
  %r = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]}
      ins(%c : tensor<16x4096xf32>) outs(%g : tensor<16x4096xbf16>) {
  ^bb0(%x: f32, %o: bf16):
    %0 = arith.truncf %x : f32 to bf16
    linalg.yield %0 : bf16
  } -> tensor<16x4096xbf16>
  return %r : tensor<16x4096xbf16>
}
}
}

// -----
// CASE: bad_skinny_gemm_schedule
// expected-error @+3 {{has schedule 'skinny_gemm' with block_m = 8 : i64; it is a power of two from 16 to 64}}
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%a: tensor<16x64xbf16> {kiln.sizes = array<i64: 16, 64>}, %b: tensor<64x64xbf16> {kiln.sizes = array<i64: 64, 64>}) -> tensor<16x64xbf16> attributes {kiln.schedule = #kiln.schedule<"skinny_gemm", {block_m = 8 : i64, prefetch = 0 : i64, stages = 0 : i64, unroll = 4 : i64, warps = 1 : i64}>} {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<16x64xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<16x64xf32>) -> tensor<16x64xf32>
  %c = linalg.contract indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
      ins(%a, %b : tensor<16x64xbf16>, tensor<64x64xbf16>) outs(%f : tensor<16x64xf32>) -> tensor<16x64xf32>
  %g = tensor.empty() : tensor<16x64xbf16>
  %r = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]}
      ins(%c : tensor<16x64xf32>) outs(%g : tensor<16x64xbf16>) {
  ^bb0(%x: f32, %o: bf16):
    %0 = arith.truncf %x : f32 to bf16
    linalg.yield %0 : bf16
  } -> tensor<16x64xbf16>
  return %r : tensor<16x64xbf16>
}
}
}

// -----
// CASE: mma_pipeline_exceeds_shared_memory
// expected-error @+3 {{has a pipeline of 132096 bytes of shared memory; 101376 are possible}}
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%a: tensor<128x64xbf16> {kiln.sizes = array<i64: 128, 64>}, %b: tensor<128x64xbf16> {kiln.sizes = array<i64: 128, 64>}) -> tensor<128x128xbf16> attributes {kiln.schedule = #kiln.schedule<"mma_gemm", {block_m = 128 : i64, block_n = 128 : i64, stages = 4 : i64}>} {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<128x128xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<128x128xf32>) -> tensor<128x128xf32>
  %c = linalg.contract indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
      ins(%a, %b : tensor<128x64xbf16>, tensor<128x64xbf16>) outs(%f : tensor<128x128xf32>) -> tensor<128x128xf32>
  %g = tensor.empty() : tensor<128x128xbf16>
  %r = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]}
      ins(%c : tensor<128x128xf32>) outs(%g : tensor<128x128xbf16>) {
  ^bb0(%x: f32, %o: bf16):
    %0 = arith.truncf %x : f32 to bf16
    linalg.yield %0 : bf16
  } -> tensor<128x128xbf16>
  return %r : tensor<128x128xbf16>
}
}
}

// -----
// CASE: gated_gemm
// CHECK: #kiln.schedule<"wgmma_gemm", {block_k = 64 : i64, block_m = 128 : i64, block_n = 256 : i64, ctas_per_sm = 1 : i64, split_k = 1 : i64, stages = 4 : i64}>
// CHECK: {argument = 2 : i64, box = array<i64: 64, 128>
#map = affine_map<(d0, d1, d2) -> (d0, d2)>
#map1 = affine_map<(d0, d1, d2) -> (d1, d2)>
#map2 = affine_map<(d0, d1, d2) -> (d0, d1)>
#map3 = affine_map<(d0, d1) -> (d0, d1)>
module attributes {kiln.level = "linalg"} {
  module @k attributes {kiln.kernel = {kind = "contract"}} {
    func.func @k(%x: tensor<4096x512xbf16> {kiln.sizes = array<i64: 4096, 512>}, %v: tensor<4096x512xbf16> {kiln.sizes = array<i64: 4096, 512>}, %w: tensor<4096x512xbf16> {kiln.sizes = array<i64: 4096, 512>}) -> tensor<4096x4096xbf16> {
      %0 = tensor.empty() : tensor<4096x4096xf32>
      %cst = arith.constant 0.000000e+00 : f32
      %1 = linalg.fill ins(%cst : f32) outs(%0 : tensor<4096x4096xf32>) -> tensor<4096x4096xf32>
      %2 = linalg.contract indexing_maps = [#map, #map1, #map2] ins(%x, %v : tensor<4096x512xbf16>, tensor<4096x512xbf16>) outs(%1 : tensor<4096x4096xf32>) -> tensor<4096x4096xf32>
      %3 = tensor.empty() : tensor<4096x4096xf32>
      %cst_0 = arith.constant 0.000000e+00 : f32
      %4 = linalg.fill ins(%cst_0 : f32) outs(%3 : tensor<4096x4096xf32>) -> tensor<4096x4096xf32>
      %5 = linalg.contract indexing_maps = [#map, #map1, #map2] ins(%x, %w : tensor<4096x512xbf16>, tensor<4096x512xbf16>) outs(%4 : tensor<4096x4096xf32>) -> tensor<4096x4096xf32>
      %6 = tensor.empty() : tensor<4096x4096xbf16>
      %7 = linalg.generic {indexing_maps = [#map3, #map3, #map3], iterator_types = ["parallel", "parallel"]} ins(%2, %5 : tensor<4096x4096xf32>, tensor<4096x4096xf32>) outs(%6 : tensor<4096x4096xbf16>) {
      ^bb0(%in: f32, %in_1: f32, %out: bf16):
        %8 = arith.negf %in : f32
        %9 = arith.mulf %8, %in_1 : f32
        %10 = arith.truncf %9 : f32 to bf16
        linalg.yield %10 : bf16
      } -> tensor<4096x4096xbf16>
      return %7 : tensor<4096x4096xbf16>
    }
  }
}

// -----
// CASE: gated_skinny_gemm
// CHECK: #kiln.schedule<"skinny_gemm", {block_m = 16 : i64, prefetch = 1024 : i64, stages = 2 : i64, unroll = 2 : i64, warps = 16 : i64}>
#map = affine_map<(d0, d1, d2) -> (d0, d2)>
#map1 = affine_map<(d0, d1, d2) -> (d1, d2)>
#map2 = affine_map<(d0, d1, d2) -> (d0, d1)>
#map3 = affine_map<(d0, d1) -> (d0, d1)>
module attributes {kiln.level = "linalg"} {
  module @k attributes {kiln.kernel = {kind = "contract"}} {
    func.func @k(%x: tensor<4x512xbf16> {kiln.sizes = array<i64: 4, 512>}, %v: tensor<4096x512xbf16> {kiln.sizes = array<i64: 4096, 512>}, %w: tensor<4096x512xbf16> {kiln.sizes = array<i64: 4096, 512>}) -> tensor<4x4096xbf16> {
      %0 = tensor.empty() : tensor<4x4096xf32>
      %cst = arith.constant 0.000000e+00 : f32
      %1 = linalg.fill ins(%cst : f32) outs(%0 : tensor<4x4096xf32>) -> tensor<4x4096xf32>
      %2 = linalg.contract indexing_maps = [#map, #map1, #map2] ins(%x, %v : tensor<4x512xbf16>, tensor<4096x512xbf16>) outs(%1 : tensor<4x4096xf32>) -> tensor<4x4096xf32>
      %3 = tensor.empty() : tensor<4x4096xf32>
      %cst_0 = arith.constant 0.000000e+00 : f32
      %4 = linalg.fill ins(%cst_0 : f32) outs(%3 : tensor<4x4096xf32>) -> tensor<4x4096xf32>
      %5 = linalg.contract indexing_maps = [#map, #map1, #map2] ins(%x, %w : tensor<4x512xbf16>, tensor<4096x512xbf16>) outs(%4 : tensor<4x4096xf32>) -> tensor<4x4096xf32>
      %6 = tensor.empty() : tensor<4x4096xbf16>
      %7 = linalg.generic {indexing_maps = [#map3, #map3, #map3], iterator_types = ["parallel", "parallel"]} ins(%2, %5 : tensor<4x4096xf32>, tensor<4x4096xf32>) outs(%6 : tensor<4x4096xbf16>) {
      ^bb0(%in: f32, %in_1: f32, %out: bf16):
        %8 = arith.negf %in : f32
        %9 = arith.mulf %8, %in_1 : f32
        %10 = arith.truncf %9 : f32 to bf16
        linalg.yield %10 : bf16
      } -> tensor<4x4096xbf16>
      return %7 : tensor<4x4096xbf16>
    }
  }
}

// -----
// A 1-d window in a 4-d tensor: the other dimensions are one loop.
// CASE: a_pool_along_one_dimension
// CHECK: #kiln.schedule<"elementwise"
module attributes {kiln.level = "linalg"} {
module @k attributes {kiln.kernel = {}} {
func.func @k(%x: tensor<2x3x8x16xf32> {kiln.sizes = array<i64: 2, 3, 8, 16>}) -> tensor<2x3x4x16xf32> {
  %0 = tensor.empty() : tensor<2x3x4x16xf32>
  %low = arith.constant 0xFF800000 : f32
  %1 = linalg.fill ins(%low : f32) outs(%0 : tensor<2x3x4x16xf32>) -> tensor<2x3x4x16xf32>
  %window = tensor.empty() : tensor<2xi8>
  %r = linalg.generic {indexing_maps = [affine_map<(n, h, w, c, k) -> (n, h, w * 2 + k, c)>, affine_map<(n, h, w, c, k) -> (k)>, affine_map<(n, h, w, c, k) -> (n, h, w, c)>],
      iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction"]} ins(%x, %window : tensor<2x3x8x16xf32>, tensor<2xi8>) outs(%1 : tensor<2x3x4x16xf32>) {
  ^bb0(%a: f32, %i: i8, %o: f32):
    %m = arith.maximumf %o, %a : f32
    linalg.yield %m : f32
  } -> tensor<2x3x4x16xf32>
  return %r : tensor<2x3x4x16xf32>
}
}
}

// -----
// CASE: gemm_with_cublaslt
// RUN: kiln-gpu-schedule{tensor-cores=true}
// CHECK: activation = "relu"
// CHECK: batch = 1 : i64, bias = array<i64: 2, 0>
// CHECK: name = "cublaslt"
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%a: tensor<96x64xbf16> {kiln.sizes = array<i64: 96, 64>}, %b: tensor<128x64xbf16> {kiln.sizes = array<i64: 128, 64>}, %bias: tensor<128xbf16> {kiln.sizes = array<i64: 128>}) -> tensor<96x128xbf16> attributes {kiln.library = "cublaslt"} {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<96x128xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<96x128xf32>) -> tensor<96x128xf32>
  %c = linalg.contract indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
      ins(%a, %b : tensor<96x64xbf16>, tensor<128x64xbf16>) outs(%f : tensor<96x128xf32>) -> tensor<96x128xf32>
  %g = tensor.empty() : tensor<96x128xbf16>
  %r = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (n)>, affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]}
      ins(%c, %bias : tensor<96x128xf32>, tensor<128xbf16>) outs(%g : tensor<96x128xbf16>) {
  ^bb0(%x: f32, %y: bf16, %o: bf16):
    %0 = arith.extf %y : bf16 to f32
    %1 = arith.addf %x, %0 : f32
    %2 = arith.maximumf %1, %zero : f32
    %3 = arith.truncf %2 : f32 to bf16
    linalg.yield %3 : bf16
  } -> tensor<96x128xbf16>
  return %r : tensor<96x128xbf16>
}
}
}

// -----
// CASE: gemm_unsupported_by_cublaslt
// RUN: kiln-gpu-schedule{tensor-cores=true}
// expected-error @+3 {{is for library 'cublaslt', but is no product that it has}}
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%a: tensor<96x64xbf16> {kiln.sizes = array<i64: 96, 64>}, %b: tensor<128x64xbf16> {kiln.sizes = array<i64: 128, 64>}, %bias: tensor<128xbf16> {kiln.sizes = array<i64: 128>}) -> tensor<96x128xbf16> attributes {kiln.library = "cublaslt"} {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<96x128xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<96x128xf32>) -> tensor<96x128xf32>
  %c = linalg.contract indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
      ins(%a, %b : tensor<96x64xbf16>, tensor<128x64xbf16>) outs(%f : tensor<96x128xf32>) -> tensor<96x128xf32>
  %g = tensor.empty() : tensor<96x128xbf16>
  %r = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (n)>, affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]}
      ins(%c, %bias : tensor<96x128xf32>, tensor<128xbf16>) outs(%g : tensor<96x128xbf16>) {
  ^bb0(%x: f32, %y: bf16, %o: bf16):
    %0 = arith.extf %y : bf16 to f32
    %1 = arith.addf %x, %0 : f32
    %2 = math.tanh %1 : f32
    %3 = arith.truncf %2 : f32 to bf16
    linalg.yield %3 : bf16
  } -> tensor<96x128xbf16>
  return %r : tensor<96x128xbf16>
}
}
}

// -----
// CASE: unknown_library
// RUN: kiln-gpu-schedule{tensor-cores=true}
// expected-error @+3 {{is for library 'mkl', which is none of cublaslt cudnn}}
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%a: tensor<96x64xbf16> {kiln.sizes = array<i64: 96, 64>}, %b: tensor<128x64xbf16> {kiln.sizes = array<i64: 128, 64>}, %bias: tensor<128xbf16> {kiln.sizes = array<i64: 128>}) -> tensor<96x128xbf16> attributes {kiln.library = "mkl"} {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<96x128xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<96x128xf32>) -> tensor<96x128xf32>
  %c = linalg.contract indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
      ins(%a, %b : tensor<96x64xbf16>, tensor<128x64xbf16>) outs(%f : tensor<96x128xf32>) -> tensor<96x128xf32>
  %g = tensor.empty() : tensor<96x128xbf16>
  %r = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (n)>, affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]}
      ins(%c, %bias : tensor<96x128xf32>, tensor<128xbf16>) outs(%g : tensor<96x128xbf16>) {
  ^bb0(%x: f32, %y: bf16, %o: bf16):
    %0 = arith.extf %y : bf16 to f32
    %1 = arith.addf %x, %0 : f32
    %2 = arith.maximumf %1, %zero : f32
    %3 = arith.truncf %2 : f32 to bf16
    linalg.yield %3 : bf16
  } -> tensor<96x128xbf16>
  return %r : tensor<96x128xbf16>
}
}
}

// -----
// CASE: convolution_with_cudnn
// RUN: kiln-gpu-schedule{tensor-cores=true}
// CHECK: bias = {element = bf16, place = array<i64: 2, 0, 1, 40, 1, 1, 40, 1, 40, 40>}
// CHECK: image = {element = bf16, place = array<i64: 0, 0, 2, 16, 9, 7, 1008, 1, 112, 16>}
// CHECK: name = "cudnn"
// CHECK: residual = {element = bf16, place = array<i64: 3, 0, 2, 40, 5, 4, 800, 1, 160, 40>}
// CHECK: weight = {element = bf16, place = array<i64: 1, 0, 40, 16, 3, 3, 144, 1, 48, 16>}
// CHECK: window = array<i64: 2, 2, 1, 1, 1, 1, 1, 1>
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%x: tensor<2x9x7x16xbf16> {kiln.sizes = array<i64: 2, 9, 7, 16>}, %w: tensor<40x3x3x16xbf16> {kiln.sizes = array<i64: 40, 3, 3, 16>}, %b: tensor<40xbf16> {kiln.sizes = array<i64: 40>}, %more: tensor<2x5x4x40xbf16> {kiln.sizes = array<i64: 2, 5, 4, 40>}) -> tensor<2x5x4x40xbf16> attributes {kiln.library = "cudnn"} {
  %p = tensor.pad %x low[0, 1, 1, 0] high[0, 1, 1, 0] {
  ^bb0(%i0: index, %i1: index, %i2: index, %i3: index):
    %none = arith.constant 0.0 : bf16
    tensor.yield %none : bf16
  } : tensor<2x9x7x16xbf16> to tensor<2x11x9x16xbf16>
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<2x5x4x40xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<2x5x4x40xf32>) -> tensor<2x5x4x40xf32>
  %c = kiln.structured.contract ins(%p, %w : tensor<2x11x9x16xbf16>, tensor<40x3x3x16xbf16>) outs(%f : tensor<2x5x4x40xf32>)
      maps = [affine_map<(n, p, q, k, r, s, c) -> (n, p * 2 + r, q * 2 + s, c)>, affine_map<(n, p, q, k, r, s, c) -> (k, r, s, c)>, affine_map<(n, p, q, k, r, s, c) -> (n, p, q, k)>] {
  ^bb0(%a: bf16, %y: bf16):
    %0 = arith.extf %a : bf16 to f32
    %1 = arith.extf %y : bf16 to f32
    kiln.yield %0, %1 : f32, f32
  } -> tensor<2x5x4x40xf32>
  %g = tensor.empty() : tensor<2x5x4x40xbf16>
  %r = linalg.generic {indexing_maps = [affine_map<(n, p, q, k) -> (n, p, q, k)>, affine_map<(n, p, q, k) -> (k)>, affine_map<(n, p, q, k) -> (n, p, q, k)>, affine_map<(n, p, q, k) -> (n, p, q, k)>],
      iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%c, %b, %more : tensor<2x5x4x40xf32>, tensor<40xbf16>, tensor<2x5x4x40xbf16>) outs(%g : tensor<2x5x4x40xbf16>) {
  ^bb0(%a: f32, %y: bf16, %z: bf16, %o: bf16):
    %0 = arith.extf %y : bf16 to f32
    %1 = arith.addf %a, %0 : f32
    %2 = arith.extf %z : bf16 to f32
    %3 = arith.addf %1, %2 : f32
    %4 = arith.truncf %3 : f32 to bf16
    linalg.yield %4 : bf16
  } -> tensor<2x5x4x40xbf16>
  return %r : tensor<2x5x4x40xbf16>
}
}
}

// -----
// Dynamic rows are 16-byte aligned.
// CASE: divisible_rows
// CHECK: #kiln.schedule<"elementwise", {threads = 256 : i64, unroll = 1 : i64, vector = 8 : i64}>
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%x: tensor<?x?xbf16> {kiln.sizes = array<i64: -1, -2>}, %y: tensor<?xbf16> {kiln.sizes = array<i64: -2>}, %s0: index, %s1: index {kiln.divisor = 16 : i64, kiln.least = 16 : i64}) -> tensor<?x?xbf16> {
  %e = tensor.empty(%s0, %s1) : tensor<?x?xbf16>
  %r = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (n)>, affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]}
      ins(%x, %y : tensor<?x?xbf16>, tensor<?xbf16>) outs(%e : tensor<?x?xbf16>) {
  ^bb0(%a: bf16, %b: bf16, %o: bf16):
    %p = arith.mulf %a, %b : bf16
    linalg.yield %p : bf16
  } -> tensor<?x?xbf16>
  return %r : tensor<?x?xbf16>
}
}
}

// -----
// Dynamic columns, and a dynamic K that is not 0, are multiples of 16 bytes.
// CASE: gemm_of_divisible_sizes
// CHECK: #kiln.schedule<"wgmma_gemm"
// CHECK: kiln.tensor_maps
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%a: tensor<?x?xbf16> {kiln.sizes = array<i64: -1, -3>}, %b: tensor<?x?xbf16> {kiln.sizes = array<i64: -3, -2>}, %s0: index, %s1: index {kiln.divisor = 8 : i64, kiln.least = 8 : i64}, %s2: index {kiln.divisor = 8 : i64, kiln.least = 8 : i64}) -> tensor<?x?xbf16> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty(%s0, %s1) : tensor<?x?xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x?xf32>) -> tensor<?x?xf32>
  %c = linalg.contract indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>]
      ins(%a, %b : tensor<?x?xbf16>, tensor<?x?xbf16>) outs(%f : tensor<?x?xf32>) -> tensor<?x?xf32>
  %g = tensor.empty(%s0, %s1) : tensor<?x?xbf16>
  %r = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]}
      ins(%c : tensor<?x?xf32>) outs(%g : tensor<?x?xbf16>) {
  ^bb0(%x: f32, %o: bf16):
    %1 = arith.truncf %x : f32 to bf16
    linalg.yield %1 : bf16
  } -> tensor<?x?xbf16>
  return %r : tensor<?x?xbf16>
}
}
}

// -----
// RUN: kiln-gpu-schedule{chip=sm_80}
// CASE: gemm_of_divisible_sizes_before_hopper
// CHECK: #kiln.schedule<"mma_gemm"
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%a: tensor<?x?xbf16> {kiln.sizes = array<i64: -1, -3>}, %b: tensor<?x?xbf16> {kiln.sizes = array<i64: -3, -2>}, %s0: index, %s1: index {kiln.divisor = 8 : i64, kiln.least = 8 : i64}, %s2: index {kiln.divisor = 8 : i64, kiln.least = 8 : i64}) -> tensor<?x?xbf16> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty(%s0, %s1) : tensor<?x?xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x?xf32>) -> tensor<?x?xf32>
  %c = linalg.contract indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>]
      ins(%a, %b : tensor<?x?xbf16>, tensor<?x?xbf16>) outs(%f : tensor<?x?xf32>) -> tensor<?x?xf32>
  %g = tensor.empty(%s0, %s1) : tensor<?x?xbf16>
  %r = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]}
      ins(%c : tensor<?x?xf32>) outs(%g : tensor<?x?xbf16>) {
  ^bb0(%x: f32, %o: bf16):
    %1 = arith.truncf %x : f32 to bf16
    linalg.yield %1 : bf16
  } -> tensor<?x?xbf16>
  return %r : tensor<?x?xbf16>
}
}
}

// -----
// Multiples of 8 bytes.
// CASE: gemm_of_sizes_divisible_by_8_bytes
// CHECK: #kiln.schedule<"mma_gemm"
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%a: tensor<?x?xbf16> {kiln.sizes = array<i64: -1, -3>}, %b: tensor<?x?xbf16> {kiln.sizes = array<i64: -3, -2>}, %s0: index, %s1: index {kiln.divisor = 4 : i64, kiln.least = 8 : i64}, %s2: index {kiln.divisor = 8 : i64, kiln.least = 8 : i64}) -> tensor<?x?xbf16> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty(%s0, %s1) : tensor<?x?xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x?xf32>) -> tensor<?x?xf32>
  %c = linalg.contract indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>]
      ins(%a, %b : tensor<?x?xbf16>, tensor<?x?xbf16>) outs(%f : tensor<?x?xf32>) -> tensor<?x?xf32>
  %g = tensor.empty(%s0, %s1) : tensor<?x?xbf16>
  %r = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]}
      ins(%c : tensor<?x?xf32>) outs(%g : tensor<?x?xbf16>) {
  ^bb0(%x: f32, %o: bf16):
    %1 = arith.truncf %x : f32 to bf16
    linalg.yield %1 : bf16
  } -> tensor<?x?xbf16>
  return %r : tensor<?x?xbf16>
}
}
}

// -----
// K may be 0.
// CASE: gemm_with_k_maybe_0
// CHECK: #kiln.schedule<"naive_contraction"
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%a: tensor<?x?xbf16> {kiln.sizes = array<i64: -1, -3>}, %b: tensor<?x?xbf16> {kiln.sizes = array<i64: -3, -2>}, %s0: index, %s1: index {kiln.divisor = 8 : i64, kiln.least = 8 : i64}, %s2: index {kiln.divisor = 8 : i64, kiln.least = 0 : i64}) -> tensor<?x?xbf16> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty(%s0, %s1) : tensor<?x?xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x?xf32>) -> tensor<?x?xf32>
  %c = linalg.contract indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>]
      ins(%a, %b : tensor<?x?xbf16>, tensor<?x?xbf16>) outs(%f : tensor<?x?xf32>) -> tensor<?x?xf32>
  %g = tensor.empty(%s0, %s1) : tensor<?x?xbf16>
  %r = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]}
      ins(%c : tensor<?x?xf32>) outs(%g : tensor<?x?xbf16>) {
  ^bb0(%x: f32, %o: bf16):
    %1 = arith.truncf %x : f32 to bf16
    linalg.yield %1 : bf16
  } -> tensor<?x?xbf16>
  return %r : tensor<?x?xbf16>
}
}
}

// -----
// f32 rows are copied unconverted; the warps that multiply compute the prologue.
// CASE: gemm_with_a_prologue
// CHECK: #kiln.schedule<"wgmma_gemm", {block_k = 64 : i64
// CHECK: {argument = 0 : i64, box = array<i64: 32,
// CHECK: {argument = 3 : i64, box = array<i64: 64,
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%a: tensor<4096x512xf32> {kiln.sizes = array<i64: 4096, 512>}, %s: tensor<4096xf32> {kiln.sizes = array<i64: 4096>}, %c: tensor<512xf32> {kiln.sizes = array<i64: 512>}, %b: tensor<256x512xbf16> {kiln.sizes = array<i64: 256, 512>}) -> tensor<4096x256xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4096x256xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<4096x256xf32>) -> tensor<4096x256xf32>
  %r = kiln.structured.contract ins(%s, %a, %c, %b : tensor<4096xf32>, tensor<4096x512xf32>, tensor<512xf32>, tensor<256x512xbf16>) outs(%f : tensor<4096x256xf32>)
      maps = [affine_map<(m, n, k) -> (m)>, affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>] {
  ^bb0(%x: f32, %y: f32, %z: f32, %w: bf16):
    %0 = arith.subf %y, %x : f32
    %1 = arith.mulf %0, %z : f32
    %2 = arith.truncf %1 : f32 to bf16
    %3 = arith.extf %2 : bf16 to f32
    %4 = arith.extf %w : bf16 to f32
    kiln.yield %3, %4 : f32, f32
  } -> tensor<4096x256xf32>
  return %r : tensor<4096x256xf32>
}
}
}

// -----
// Without TMA, threads copy 16-bit elements only.
// CASE: gemm_with_an_f32_prologue_before_hopper
// RUN: kiln-gpu-schedule{chip=sm_80}
// CHECK: #kiln.schedule<"row_reduction"
// IMPLICIT-CHECK-NOT: _gemm"
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%a: tensor<4096x512xf32> {kiln.sizes = array<i64: 4096, 512>}, %s: tensor<4096xf32> {kiln.sizes = array<i64: 4096>}, %c: tensor<512xf32> {kiln.sizes = array<i64: 512>}, %b: tensor<256x512xbf16> {kiln.sizes = array<i64: 256, 512>}) -> tensor<4096x256xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4096x256xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<4096x256xf32>) -> tensor<4096x256xf32>
  %r = kiln.structured.contract ins(%s, %a, %c, %b : tensor<4096xf32>, tensor<4096x512xf32>, tensor<512xf32>, tensor<256x512xbf16>) outs(%f : tensor<4096x256xf32>)
      maps = [affine_map<(m, n, k) -> (m)>, affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>] {
  ^bb0(%x: f32, %y: f32, %z: f32, %w: bf16):
    %0 = arith.subf %y, %x : f32
    %1 = arith.mulf %0, %z : f32
    %2 = arith.truncf %1 : f32 to bf16
    %3 = arith.extf %2 : bf16 to f32
    %4 = arith.extf %w : bf16 to f32
    kiln.yield %3, %4 : f32, f32
  } -> tensor<4096x256xf32>
  return %r : tensor<4096x256xf32>
}
}
}

// -----
// CASE: prologue_without_registers
// expected-error @+3 {{registers hold the computed left operand of at most 128 rows}}
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%a: tensor<4096x512xf32> {kiln.sizes = array<i64: 4096, 512>}, %s: tensor<4096xf32> {kiln.sizes = array<i64: 4096>}, %c: tensor<512xf32> {kiln.sizes = array<i64: 512>}, %b: tensor<256x512xbf16> {kiln.sizes = array<i64: 256, 512>}) -> tensor<4096x256xf32> attributes {kiln.schedule = #kiln.schedule<"wgmma_gemm", {block_k = 64 : i64, block_m = 256 : i64, block_n = 128 : i64, ctas_per_sm = 1 : i64, split_k = 1 : i64, stages = 2 : i64}>} {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4096x256xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<4096x256xf32>) -> tensor<4096x256xf32>
  %r = kiln.structured.contract ins(%s, %a, %c, %b : tensor<4096xf32>, tensor<4096x512xf32>, tensor<512xf32>, tensor<256x512xbf16>) outs(%f : tensor<4096x256xf32>)
      maps = [affine_map<(m, n, k) -> (m)>, affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>] {
  ^bb0(%x: f32, %y: f32, %z: f32, %w: bf16):
    %0 = arith.subf %y, %x : f32
    %1 = arith.mulf %0, %z : f32
    %2 = arith.truncf %1 : f32 to bf16
    %3 = arith.extf %2 : bf16 to f32
    %4 = arith.extf %w : bf16 to f32
    kiln.yield %3, %4 : f32, f32
  } -> tensor<4096x256xf32>
  return %r : tensor<4096x256xf32>
}
}
}

// -----
// CASE: too_many_pipeline_stages
// expected-error @+3 {{bytes of shared memory; 232448 are possible}}
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%a: tensor<4096x512xf32> {kiln.sizes = array<i64: 4096, 512>}, %s: tensor<4096xf32> {kiln.sizes = array<i64: 4096>}, %c: tensor<512xf32> {kiln.sizes = array<i64: 512>}, %b: tensor<256x512xbf16> {kiln.sizes = array<i64: 256, 512>}) -> tensor<4096x256xf32> attributes {kiln.schedule = #kiln.schedule<"wgmma_gemm", {block_k = 64 : i64, block_m = 128 : i64, block_n = 256 : i64, ctas_per_sm = 1 : i64, split_k = 1 : i64, stages = 4 : i64}>} {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4096x256xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<4096x256xf32>) -> tensor<4096x256xf32>
  %r = kiln.structured.contract ins(%s, %a, %c, %b : tensor<4096xf32>, tensor<4096x512xf32>, tensor<512xf32>, tensor<256x512xbf16>) outs(%f : tensor<4096x256xf32>)
      maps = [affine_map<(m, n, k) -> (m)>, affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>] {
  ^bb0(%x: f32, %y: f32, %z: f32, %w: bf16):
    %0 = arith.subf %y, %x : f32
    %1 = arith.mulf %0, %z : f32
    %2 = arith.truncf %1 : f32 to bf16
    %3 = arith.extf %2 : bf16 to f32
    %4 = arith.extf %w : bf16 to f32
    kiln.yield %3, %4 : f32, f32
  } -> tensor<4096x256xf32>
  return %r : tensor<4096x256xf32>
}
}
}

// -----
// Two warps per row: how many rows there are is not known.
// CASE: scan_of_rows
// CHECK: #kiln.schedule<"scan", {items = 4 : i64, prefetch = 1 : i64, row_threads = 64 : i64, rows_per_cta = 2 : i64, vector = 4 : i64}>
// IMPLICIT-CHECK-NOT: kiln.refused
#id = affine_map<(r, i) -> (r, i)>
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%x: tensor<?x4096xf32> {kiln.sizes = array<i64: -1, 4096>}, %s0: index) -> tensor<?x4096xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty(%s0) : tensor<?x4096xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x4096xf32>) -> tensor<?x4096xf32>
  %s = kiln.structured.scan sum along 1 ins(%x : tensor<?x4096xf32>) outs(%f : tensor<?x4096xf32>)
      maps = [affine_map<(r, i) -> (r, i)>, affine_map<(r, i) -> (r, i)>] {
  ^bb0(%a: f32):
    %0 = math.exp %a : f32
    kiln.yield %0 : f32
  } -> tensor<?x4096xf32>
  %g = tensor.empty(%s0) : tensor<?x4096xf32>
  %r = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%s, %x : tensor<?x4096xf32>, tensor<?x4096xf32>) outs(%g : tensor<?x4096xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.subf %a, %b : f32
    linalg.yield %0 : f32
  } -> tensor<?x4096xf32>
  return %r : tensor<?x4096xf32>
}
}
}

// -----
// A row is three passes of radix 10 through shared memory.
// CASE: fft
// CHECK: #kiln.schedule<"stockham", {row_threads = 100 : i64, rows_per_cta = 1 : i64}>
// CHECK-SAME: kiln.shared
// IMPLICIT-CHECK-NOT: kiln.refused
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%x: tensor<?x1000xf32> {kiln.sizes = array<i64: -1, 1000>}, %s0: index) -> (tensor<?x501xf32>, tensor<?x501xf32>) {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty(%s0) : tensor<?x501xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x501xf32>) -> tensor<?x501xf32>
  %h = tensor.empty(%s0) : tensor<?x501xf32>
  %g = linalg.fill ins(%zero : f32) outs(%h : tensor<?x501xf32>) -> tensor<?x501xf32>
  %r:2 = kiln.structured.fft r2c length 1000 ins(%x : tensor<?x1000xf32>) outs(%f, %g : tensor<?x501xf32>, tensor<?x501xf32>)
      maps = [affine_map<(a, k, j) -> (a, j)>, affine_map<(a, k, j) -> (a, k)>, affine_map<(a, k, j) -> (a, k)>] {
  ^bb0(%a: f32):
    kiln.yield %a : f32
  } -> tensor<?x501xf32>, tensor<?x501xf32>
  return %r#0, %r#1 : tensor<?x501xf32>, tensor<?x501xf32>
}
}
}

// -----
// One pass in registers, several rows a CTA.
// CASE: short_fft
// CHECK: #kiln.schedule<"stockham", {row_threads = 1 : i64, rows_per_cta = 128 : i64}>
// IMPLICIT-CHECK-NOT: kiln.shared
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%x: tensor<?x7xf64> {kiln.sizes = array<i64: -1, 7>}, %y: tensor<?x7xf64> {kiln.sizes = array<i64: -1, 7>}, %s0: index) -> tensor<?x12xf64> {
  %zero = arith.constant 0.0 : f64
  %e = tensor.empty(%s0) : tensor<?x12xf64>
  %f = linalg.fill ins(%zero : f64) outs(%e : tensor<?x12xf64>) -> tensor<?x12xf64>
  %r = kiln.structured.fft c2r length 12 inverse ins(%x, %y : tensor<?x7xf64>, tensor<?x7xf64>) outs(%f : tensor<?x12xf64>)
      maps = [affine_map<(a, k, j) -> (a, j)>, affine_map<(a, k, j) -> (a, j)>, affine_map<(a, k, j) -> (a, k)>] {
  ^bb0(%a: f64, %b: f64):
    kiln.yield %a, %b : f64, f64
  } -> tensor<?x12xf64>
  return %r : tensor<?x12xf64>
}
}
}

// -----
// A prime factor above 13: a sum for each number.
// CASE: fft_of_a_prime_length
// CHECK: needs prime factors of at most 13
// IMPLICIT-CHECK-NOT: stockham"
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%x: tensor<4x17xf32> {kiln.sizes = array<i64: 4, 17>}, %y: tensor<4x17xf32> {kiln.sizes = array<i64: 4, 17>}) -> (tensor<4x17xf32>, tensor<4x17xf32>) {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4x17xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<4x17xf32>) -> tensor<4x17xf32>
  %h = tensor.empty() : tensor<4x17xf32>
  %g = linalg.fill ins(%zero : f32) outs(%h : tensor<4x17xf32>) -> tensor<4x17xf32>
  %r:2 = kiln.structured.fft c2c length 17 ins(%x, %y : tensor<4x17xf32>, tensor<4x17xf32>) outs(%f, %g : tensor<4x17xf32>, tensor<4x17xf32>)
      maps = [affine_map<(a, k, j) -> (a, j)>, affine_map<(a, k, j) -> (a, j)>, affine_map<(a, k, j) -> (a, k)>, affine_map<(a, k, j) -> (a, k)>] {
  ^bb0(%a: f32, %b: f32):
    kiln.yield %a, %b : f32, f32
  } -> tensor<4x17xf32>, tensor<4x17xf32>
  return %r#0, %r#1 : tensor<4x17xf32>, tensor<4x17xf32>
}
}
}

// -----
// CASE: fft_beyond_shared_memory
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
// expected-error @+1 {{has a schedule of 136160 bytes of shared memory; 101376 are possible}}
func.func @k0(%x: tensor<8x4096xf32> {kiln.sizes = array<i64: 8, 4096>}, %y: tensor<8x4096xf32> {kiln.sizes = array<i64: 8, 4096>}) -> (tensor<8x4096xf32>, tensor<8x4096xf32>) attributes {kiln.schedule = #kiln.schedule<"stockham", {row_threads = 256 : i64, rows_per_cta = 4 : i64}>} {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<8x4096xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<8x4096xf32>) -> tensor<8x4096xf32>
  %h = tensor.empty() : tensor<8x4096xf32>
  %g = linalg.fill ins(%zero : f32) outs(%h : tensor<8x4096xf32>) -> tensor<8x4096xf32>
  %r:2 = kiln.structured.fft c2c length 4096 ins(%x, %y : tensor<8x4096xf32>, tensor<8x4096xf32>) outs(%f, %g : tensor<8x4096xf32>, tensor<8x4096xf32>)
      maps = [affine_map<(a, k, j) -> (a, j)>, affine_map<(a, k, j) -> (a, j)>, affine_map<(a, k, j) -> (a, k)>, affine_map<(a, k, j) -> (a, k)>] {
  ^bb0(%a: f32, %b: f32):
    kiln.yield %a, %b : f32, f32
  } -> tensor<8x4096xf32>, tensor<8x4096xf32>
  return %r#0, %r#1 : tensor<8x4096xf32>, tensor<8x4096xf32>
}
}
}

// -----
// Few columns: several threads share a column. An exclusive scan.
// CASE: scan_along_columns
// CHECK: #kiln.schedule<"scan", {items = 8 : i64, prefetch = 1 : i64, row_threads = 16 : i64, rows_per_cta = 4 : i64, vector = 8 : i64}>
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%x: tensor<32768x4096xbf16> {kiln.sizes = array<i64: 32768, 4096>}) -> tensor<32768x4096xbf16> {
  %least = arith.constant 0xFF800000 : f32
  %e = tensor.empty() : tensor<32768x4096xf32>
  %f = linalg.fill ins(%least : f32) outs(%e : tensor<32768x4096xf32>) -> tensor<32768x4096xf32>
  %s = kiln.structured.scan max along 0 exclusive ins(%x : tensor<32768x4096xbf16>) outs(%f : tensor<32768x4096xf32>)
      maps = [affine_map<(i, n) -> (i, n)>, affine_map<(i, n) -> (i, n)>] {
  ^bb0(%a: bf16):
    %0 = arith.extf %a : bf16 to f32
    kiln.yield %0 : f32
  } -> tensor<32768x4096xf32>
  %g = tensor.empty() : tensor<32768x4096xbf16>
  %r = linalg.generic {indexing_maps = [affine_map<(i, n) -> (i, n)>, affine_map<(i, n) -> (i, n)>], iterator_types = ["parallel", "parallel"]}
      ins(%s : tensor<32768x4096xf32>) outs(%g : tensor<32768x4096xbf16>) {
  ^bb0(%a: f32, %o: bf16):
    %0 = arith.truncf %a : f32 to bf16
    linalg.yield %0 : bf16
  } -> tensor<32768x4096xbf16>
  return %r : tensor<32768x4096xbf16>
}
}
}

// -----
// A reduction of the scanned row in the same kernel: quadratic, with a remark.
// CASE: scan_with_a_reduction
// CHECK: kiln.refused = {scan = "the scan shares its kernel
// CHECK: #kiln.schedule<"rows"
// IMPLICIT-CHECK-NOT: #kiln.schedule<"scan"
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%x: tensor<8x4096xf32> {kiln.sizes = array<i64: 8, 4096>}) -> (tensor<8x4096xf32>, tensor<8xf32>) {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<8x4096xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<8x4096xf32>) -> tensor<8x4096xf32>
  %s = kiln.structured.scan sum along 1 ins(%x : tensor<8x4096xf32>) outs(%f : tensor<8x4096xf32>)
      maps = [affine_map<(r, i) -> (r, i)>, affine_map<(r, i) -> (r, i)>] {
  ^bb0(%a: f32):
    kiln.yield %a : f32
  } -> tensor<8x4096xf32>
  %g = tensor.empty() : tensor<8xf32>
  %h = linalg.fill ins(%zero : f32) outs(%g : tensor<8xf32>) -> tensor<8xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(r, i) -> (r, i)>, affine_map<(r, i) -> (r)>], iterator_types = ["parallel", "reduction"]}
      ins(%s : tensor<8x4096xf32>) outs(%h : tensor<8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.addf %o, %a : f32
    linalg.yield %0 : f32
  } -> tensor<8xf32>
  return %s, %r : tensor<8x4096xf32>, tensor<8xf32>
}
}
}

// -----
// CASE: bad_scan_threads
// expected-error @+3 {{has schedule 'scan' with row_threads = 24 : i64; it is a power of two from 1 to 1024}}
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%x: tensor<8x4096xf32> {kiln.sizes = array<i64: 8, 4096>}) -> tensor<8x4096xf32> attributes {kiln.schedule = #kiln.schedule<"scan", {items = 4 : i64, prefetch = 0 : i64, row_threads = 24 : i64, rows_per_cta = 4 : i64, vector = 4 : i64}>} {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<8x4096xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<8x4096xf32>) -> tensor<8x4096xf32>
  %s = kiln.structured.scan sum along 1 ins(%x : tensor<8x4096xf32>) outs(%f : tensor<8x4096xf32>)
      maps = [affine_map<(r, i) -> (r, i)>, affine_map<(r, i) -> (r, i)>] {
  ^bb0(%a: f32):
    kiln.yield %a : f32
  } -> tensor<8x4096xf32>
  return %s : tensor<8x4096xf32>
}
}
}

// -----
// CASE: scan_schedule_without_a_scan
// expected-error @+3 {{is no scan}}
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%x: tensor<8x4096xf32> {kiln.sizes = array<i64: 8, 4096>}) -> tensor<8x4096xf32> attributes {kiln.schedule = #kiln.schedule<"scan", {items = 4 : i64, prefetch = 0 : i64, row_threads = 32 : i64, rows_per_cta = 4 : i64, vector = 4 : i64}>} {
  return %x : tensor<8x4096xf32>
}
}
}

// -----
// The gradient of an embedding: a warp adds the rows whose index is one of its results.
// CASE: rows_added_by_index
// CHECK: #kiln.schedule<"scatter_reduction", {keys = 1 : i64, threads = 256 : i64, unroll = 4 : i64, vector = 4 : i64}>
#row = affine_map<(d0, d1, d2) -> (d0)>
#update = affine_map<(d0, d1, d2) -> (d0, d2)>
#result = affine_map<(d0, d1, d2) -> (d1, d2)>
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%i: tensor<300xi64> {kiln.sizes = array<i64: 300>}, %u: tensor<300x160xf32> {kiln.sizes = array<i64: 300, 160>}) -> tensor<1001x160xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<1001x160xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<1001x160xf32>) -> tensor<1001x160xf32>
  %r = linalg.generic {indexing_maps = [#row, #update, #result], iterator_types = ["reduction", "parallel", "parallel"]} ins(%i, %u : tensor<300xi64>, tensor<300x160xf32>) outs(%f : tensor<1001x160xf32>) {
  ^bb0(%a: i64, %b: f32, %o: f32):
    %0 = linalg.index 1 : index
    %1 = arith.index_cast %0 : index to i64
    %2 = arith.cmpi eq, %a, %1 : i64
    %3 = arith.select %2, %b, %zero : f32
    %4 = arith.addf %o, %3 : f32
    linalg.yield %4 : f32
  } -> tensor<1001x160xf32>
  return %r : tensor<1001x160xf32>
}
}
}

// -----
// The last update of each element: lanes lie along the keys.
// CASE: last_update_by_index
// CHECK: #kiln.schedule<"scatter_reduction"
#updates = affine_map<(d0, d1) -> (d0)>
#result = affine_map<(d0, d1) -> (d1)>
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%i: tensor<300xi64> {kiln.sizes = array<i64: 300>}) -> tensor<1001xi64> {
  %none = arith.constant -1 : i64
  %e = tensor.empty() : tensor<1001xi64>
  %f = linalg.fill ins(%none : i64) outs(%e : tensor<1001xi64>) -> tensor<1001xi64>
  %r = linalg.generic {indexing_maps = [#updates, #result], iterator_types = ["reduction", "parallel"]} ins(%i : tensor<300xi64>) outs(%f : tensor<1001xi64>) {
  ^bb0(%a: i64, %o: i64):
    %0 = linalg.index 1 : index
    %1 = arith.index_cast %0 : index to i64
    %2 = arith.cmpi eq, %a, %1 : i64
    %3 = linalg.index 0 : index
    %4 = arith.index_cast %3 : index to i64
    %least = arith.constant -9223372036854775808 : i64
    %5 = arith.select %2, %4, %least : i64
    %6 = arith.maxsi %o, %5 : i64
    linalg.yield %6 : i64
  } -> tensor<1001xi64>
  return %r : tensor<1001xi64>
}
}
}

// -----
// A thread sums a vector of results: a tile of one product would be empty for the most part.
// CASE: small_products
// CHECK: #kiln.schedule<"elementwise", {threads = 256 : i64, unroll = 1 : i64, vector = 8 : i64}>
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%a: tensor<37632x9x9xbf16> {kiln.sizes = array<i64: 37632, 9, 9>}, %b: tensor<37632x9x32xbf16> {kiln.sizes = array<i64: 37632, 9, 32>}) -> tensor<37632x9x32xbf16> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<37632x9x32xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<37632x9x32xf32>) -> tensor<37632x9x32xf32>
  %c = linalg.contract indexing_maps = [affine_map<(b, m, n, k) -> (b, m, k)>, affine_map<(b, m, n, k) -> (b, k, n)>, affine_map<(b, m, n, k) -> (b, m, n)>]
      ins(%a, %b : tensor<37632x9x9xbf16>, tensor<37632x9x32xbf16>) outs(%f : tensor<37632x9x32xf32>) -> tensor<37632x9x32xf32>
  %g = tensor.empty() : tensor<37632x9x32xbf16>
  %r = linalg.generic {indexing_maps = [affine_map<(b, m, n) -> (b, m, n)>, affine_map<(b, m, n) -> (b, m, n)>], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%c : tensor<37632x9x32xf32>) outs(%g : tensor<37632x9x32xbf16>) {
  ^bb0(%x: f32, %o: bf16):
    %0 = arith.truncf %x : f32 to bf16
    linalg.yield %0 : bf16
  } -> tensor<37632x9x32xbf16>
  return %r : tensor<37632x9x32xbf16>
}
}
}

// -----
// Weights of 8 bits: a step has 64 elements of K.
// CASE: skinny_gemm_of_8_bit_weights
// CHECK: #kiln.schedule<"skinny_gemm", {block_m = 32 : i64, prefetch = 1024 : i64, stages = 2 : i64
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%a: tensor<1x2048xbf16> {kiln.sizes = array<i64: 1, 2048>}, %b: tensor<8192x2048xi8> {kiln.constant, kiln.sizes = array<i64: 8192, 2048>}) -> tensor<1x8192xbf16> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<1x8192xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<1x8192xf32>) -> tensor<1x8192xf32>
  %c = kiln.structured.contract ins(%a, %b : tensor<1x2048xbf16>, tensor<8192x2048xi8>) outs(%f : tensor<1x8192xf32>) maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>] {
  ^bb0(%x: bf16, %q: i8):
    %0 = arith.extf %x : bf16 to f32
    %1 = arith.sitofp %q : i8 to f32
    %2 = arith.truncf %1 : f32 to bf16
    %3 = arith.extf %2 : bf16 to f32
    kiln.yield %0, %3 : f32, f32
  } -> tensor<1x8192xf32>
  %g = tensor.empty() : tensor<1x8192xbf16>
  %r = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]}
      ins(%c : tensor<1x8192xf32>) outs(%g : tensor<1x8192xbf16>) {
  ^bb0(%x: f32, %o: bf16):
    %0 = arith.truncf %x : f32 to bf16
    linalg.yield %0 : bf16
  } -> tensor<1x8192xbf16>
  return %r : tensor<1x8192xbf16>
}
}
}

// -----
// As above, of floats.
// CASE: skinny_gemm_of_8_bit_floats
// CHECK: #kiln.schedule<"skinny_gemm", {block_m = 32 : i64, prefetch = 1024 : i64, stages = 2 : i64
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%a: tensor<1x2048xbf16> {kiln.sizes = array<i64: 1, 2048>}, %b: tensor<8192x2048xf8E4M3FN> {kiln.constant, kiln.sizes = array<i64: 8192, 2048>}) -> tensor<1x8192xbf16> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<1x8192xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<1x8192xf32>) -> tensor<1x8192xf32>
  %c = kiln.structured.contract ins(%a, %b : tensor<1x2048xbf16>, tensor<8192x2048xf8E4M3FN>) outs(%f : tensor<1x8192xf32>) maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>] {
  ^bb0(%x: bf16, %q: f8E4M3FN):
    %0 = arith.extf %x : bf16 to f32
    %1 = arith.extf %q : f8E4M3FN to f32
    %2 = arith.truncf %1 : f32 to bf16
    %3 = arith.extf %2 : bf16 to f32
    kiln.yield %0, %3 : f32, f32
  } -> tensor<1x8192xf32>
  %g = tensor.empty() : tensor<1x8192xbf16>
  %r = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]}
      ins(%c : tensor<1x8192xf32>) outs(%g : tensor<1x8192xbf16>) {
  ^bb0(%x: f32, %o: bf16):
    %0 = arith.truncf %x : f32 to bf16
    linalg.yield %0 : bf16
  } -> tensor<1x8192xbf16>
  return %r : tensor<1x8192xbf16>
}
}
}

// -----
// 16 bytes of weights of 4 bits are 32 elements, a K step of a warp 128.
// CASE: skinny_gemm_of_4_bit_weights
// CHECK: #kiln.schedule<"skinny_gemm"
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%a: tensor<1x2048xbf16> {kiln.sizes = array<i64: 1, 2048>}, %b: tensor<8192x1024xi8> {kiln.constant, kiln.sizes = array<i64: 8192, 1024>}, %s: tensor<8192x16xbf16> {kiln.constant, kiln.sizes = array<i64: 8192, 16>}, %z: tensor<8192x16xbf16> {kiln.constant, kiln.sizes = array<i64: 8192, 16>}) -> tensor<1x8192xbf16> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<1x8192xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<1x8192xf32>) -> tensor<1x8192xf32>
  %c = kiln.structured.contract ins(%a, %b, %s, %z : tensor<1x2048xbf16>, tensor<8192x1024xi8>, tensor<8192x16xbf16>, tensor<8192x16xbf16>) outs(%f : tensor<1x8192xf32>) maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k floordiv 2)>, affine_map<(m, n, k) -> (n, k floordiv 128)>, affine_map<(m, n, k) -> (n, k floordiv 128)>, affine_map<(m, n, k) -> (m, n)>] {
  ^bb0(%vx: bf16, %vp: i8, %vs: bf16, %vz: bf16):
    %v0 = arith.extf %vx : bf16 to f32
    %vk = kiln.structured.index 2
    %vc2 = arith.constant 2 : index
    %vodd = arith.remui %vk, %vc2 : index
    %vwide = arith.index_cast %vodd : index to i64
    %vbyte = arith.trunci %vwide : i64 to i8
    %vc4 = arith.constant 4 : i8
    %vbits = arith.muli %vbyte, %vc4 : i8
    %vhalf = arith.shrui %vp, %vbits : i8
    %vc15 = arith.constant 15 : i8
    %vq = arith.andi %vhalf, %vc15 : i8
    %vi = arith.extui %vq : i8 to i32
    %vf = arith.sitofp %vi : i32 to f32
    %vc8 = arith.constant 8.0 : f32
    %vc = arith.subf %vf, %vc8 : f32
    %vsf = arith.extf %vs : bf16 to f32
    %vm = arith.mulf %vc, %vsf : f32
    %vzf = arith.extf %vz : bf16 to f32
    %va = arith.addf %vm, %vzf : f32
    %vw = arith.truncf %va : f32 to bf16
    %v1 = arith.extf %vw : bf16 to f32
    kiln.yield %v0, %v1 : f32, f32
  } -> tensor<1x8192xf32>
  %g = tensor.empty() : tensor<1x8192xbf16>
  %r = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]}
      ins(%c : tensor<1x8192xf32>) outs(%g : tensor<1x8192xbf16>) {
  ^bb0(%x: f32, %o: bf16):
    %0 = arith.truncf %x : f32 to bf16
    linalg.yield %0 : bf16
  } -> tensor<1x8192xbf16>
  return %r : tensor<1x8192xbf16>
}
}
}

// -----
// Rows of a table are contiguous and aligned, wherever they are.
// CASE: rows_by_index
// CHECK: #kiln.schedule<"elementwise", {threads = 256 : i64, unroll = 1 : i64, vector = 8 : i64}>
#row = affine_map<(d0, d1) -> (d0)>
#id = affine_map<(d0, d1) -> (d0, d1)>
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%i: tensor<300000xi64> {kiln.sizes = array<i64: 300000>}, %t: tensor<1001x64xbf16> {kiln.sizes = array<i64: 1001, 64>}) -> tensor<300000x64xbf16> {
  %e = tensor.empty() : tensor<300000x64xbf16>
  %r = linalg.generic {indexing_maps = [#row, #id], iterator_types = ["parallel", "parallel"]} ins(%i : tensor<300000xi64>) outs(%e : tensor<300000x64xbf16>) {
  ^bb0(%a: i64, %o: bf16):
    %0 = arith.index_cast %a : i64 to index
    %1 = linalg.index 1 : index
    %v = tensor.extract %t[%0, %1] : tensor<1001x64xbf16>
    linalg.yield %v : bf16
  } -> tensor<300000x64xbf16>
  return %r : tensor<300000x64xbf16>
}
}
}

// -----
// CASE: rows_by_index_of_odd_length
// CHECK: #kiln.schedule<"elementwise", {threads = 256 : i64, unroll = 2 : i64, vector = 1 : i64}>
#row = affine_map<(d0, d1) -> (d0)>
#id = affine_map<(d0, d1) -> (d0, d1)>
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%i: tensor<300000xi64> {kiln.sizes = array<i64: 300000>}, %t: tensor<1001x63xbf16> {kiln.sizes = array<i64: 1001, 63>}) -> tensor<300000x63xbf16> {
  %e = tensor.empty() : tensor<300000x63xbf16>
  %r = linalg.generic {indexing_maps = [#row, #id], iterator_types = ["parallel", "parallel"]} ins(%i : tensor<300000xi64>) outs(%e : tensor<300000x63xbf16>) {
  ^bb0(%a: i64, %o: bf16):
    %0 = arith.index_cast %a : i64 to index
    %1 = linalg.index 1 : index
    %v = tensor.extract %t[%0, %1] : tensor<1001x63xbf16>
    linalg.yield %v : bf16
  } -> tensor<300000x63xbf16>
  return %r : tensor<300000x63xbf16>
}
}
}

// -----
// CASE: elements_by_index
// CHECK: #kiln.schedule<"elementwise", {threads = 256 : i64, unroll = 2 : i64, vector = 1 : i64}>
#row = affine_map<(d0, d1) -> (d0)>
#id = affine_map<(d0, d1) -> (d0, d1)>
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%i: tensor<300000xi64> {kiln.sizes = array<i64: 300000>}, %t: tensor<64x64xbf16> {kiln.sizes = array<i64: 64, 64>}) -> tensor<300000x64xbf16> {
  %e = tensor.empty() : tensor<300000x64xbf16>
  %r = linalg.generic {indexing_maps = [#row, #id], iterator_types = ["parallel", "parallel"]} ins(%i : tensor<300000xi64>) outs(%e : tensor<300000x64xbf16>) {
  ^bb0(%a: i64, %o: bf16):
    %0 = linalg.index 1 : index
    %1 = arith.index_cast %0 : index to i64
    %2 = arith.xori %a, %1 : i64
    %3 = arith.index_cast %2 : i64 to index
    %v = tensor.extract %t[%0, %3] : tensor<64x64xbf16>
    linalg.yield %v : bf16
  } -> tensor<300000x64xbf16>
  return %r : tensor<300000x64xbf16>
}
}
}

// -----
// 42 channel vectors are two CTAs of 21 each; 8 parts share the 10 rows of a sum.
// CASE: depthwise_gradient
// CHECK: #kiln.schedule<"depthwise_gradient", {columns = 21 : i64, parts = 8 : i64, pixels = 7 : i64, vector = 4 : i64}>
#gradient = affine_map<(s, i, j, c, n, p, q) -> (s * 2 + n, p, q, c)>
#image = affine_map<(s, i, j, c, n, p, q) -> (s * 2 + n, p + i, q + j, c)>
#images = affine_map<(s, i, j, c, n, p, q) -> (n)>
#sum = affine_map<(s, i, j, c, n, p, q) -> (s, i, j, c)>
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%x: tensor<4x5x20x168xbf16> {kiln.sizes = array<i64: 4, 5, 20, 168>}, %g: tensor<4x5x20x168xbf16> {kiln.sizes = array<i64: 4, 5, 20, 168>}) -> tensor<2x3x3x168xf32> {
  %zero = arith.constant 0.0 : f32
  %p = tensor.pad %x low[0, 1, 1, 0] high[0, 1, 1, 0] {
  ^bb0(%a: index, %b: index, %c: index, %d: index):
    %z = arith.constant 0.0 : bf16
    tensor.yield %z : bf16
  } : tensor<4x5x20x168xbf16> to tensor<4x7x22x168xbf16>
  %e = tensor.empty() : tensor<2x3x3x168xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<2x3x3x168xf32>) -> tensor<2x3x3x168xf32>
  %n = tensor.empty() : tensor<2xi8>
  %r = kiln.structured.contract ins(%g, %p, %n : tensor<4x5x20x168xbf16>, tensor<4x7x22x168xbf16>, tensor<2xi8>) outs(%f : tensor<2x3x3x168xf32>)
      maps = [#gradient, #image, #images, #sum] {
  ^bb0(%a: bf16, %b: bf16, %c: i8):
    %0 = arith.extf %a : bf16 to f32
    %1 = arith.extf %b : bf16 to f32
    kiln.yield %0, %1 : f32, f32
  } -> tensor<2x3x3x168xf32>
  return %r : tensor<2x3x3x168xf32>
}
}
}
