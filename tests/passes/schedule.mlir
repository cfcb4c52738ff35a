// RUN: kiln-schedule

// CASE: elementwise
// CHECK: kiln.level = "scheduled"
// CHECK: #kiln.schedule<"elementwise"
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
// The result exceeds the caches, and an iteration is long enough to prefetch.
// CASE: prefetched_streams
// CHECK: nontemporal = 1 : i64, prefetch = 2048 : i64
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%x: tensor<16777216xf32> {kiln.sizes = array<i64: 16777216>}, %y: tensor<16777216xf32> {kiln.sizes = array<i64: 16777216>}) -> tensor<16777216xf32> {
  %e = tensor.empty() : tensor<16777216xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]}
      ins(%x, %y : tensor<16777216xf32>, tensor<16777216xf32>) outs(%e : tensor<16777216xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = math.erf %a : f32
    %q = math.exp %b : f32
    %s = arith.mulf %p, %q : f32
    linalg.yield %s : f32
  } -> tensor<16777216xf32>
  return %r : tensor<16777216xf32>
}
}
}

// -----
// CASE: softmax
// CHECK: #kiln.schedule<"rows"
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
// CASE: column_sum
// CHECK: #kiln.schedule<"reduction"
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
// CASE: matmul_with_bias
// CHECK: #kiln.schedule<"contraction"
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
// A batch of any size is no row of a tile where the image's rows are known.
// CASE: convolution_of_a_dynamic_batch
// CHECK: m = 8
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%x: tensor<?x10x10x16xf32> {kiln.sizes = array<i64: -1, 10, 10, 16>}, %w: tensor<3x3x16x32xf32> {kiln.sizes = array<i64: 3, 3, 16, 32>}, %s0: index) -> tensor<?x8x8x32xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty(%s0) : tensor<?x8x8x32xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x8x8x32xf32>) -> tensor<?x8x8x32xf32>
  %c = kiln.structured.contract ins(%x, %w : tensor<?x10x10x16xf32>, tensor<3x3x16x32xf32>) outs(%f : tensor<?x8x8x32xf32>)
      maps = [affine_map<(n, h, w, f, i, j, c) -> (n, h + i, w + j, c)>, affine_map<(n, h, w, f, i, j, c) -> (i, j, c, f)>, affine_map<(n, h, w, f, i, j, c) -> (n, h, w, f)>] {
  ^bb0(%a: f32, %b: f32):
    kiln.yield %a, %b : f32, f32
  } -> tensor<?x8x8x32xf32>
  return %c : tensor<?x8x8x32xf32>
}
}
}

// -----
// Channels first, of stride 2: pixels of a row are not contiguous in the image, so that they are
// packed for all filters.
// CASE: strided_convolution
// CHECK: "contraction"
// CHECK-SAME: pack = 1
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%x: tensor<2x16x30x30xf32> {kiln.sizes = array<i64: 2, 16, 30, 30>}, %w: tensor<32x16x3x3xf32> {kiln.sizes = array<i64: 32, 16, 3, 3>}) -> tensor<2x32x14x14xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<2x32x14x14xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<2x32x14x14xf32>) -> tensor<2x32x14x14xf32>
  %c = kiln.structured.contract ins(%x, %w : tensor<2x16x30x30xf32>, tensor<32x16x3x3xf32>) outs(%f : tensor<2x32x14x14xf32>)
      maps = [affine_map<(n, f, h, w, c, i, j) -> (n, c, h * 2 + i, w * 2 + j)>, affine_map<(n, f, h, w, c, i, j) -> (f, c, i, j)>, affine_map<(n, f, h, w, c, i, j) -> (n, f, h, w)>] {
  ^bb0(%a: f32, %b: f32):
    kiln.yield %a, %b : f32, f32
  } -> tensor<2x32x14x14xf32>
  return %c : tensor<2x32x14x14xf32>
}
}
}

// -----
// RUN: kiln-schedule{vector-bits=256}
// CASE: narrower_vectors
// CHECK: bits = 256
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
// CASE: attention
// CHECK: #kiln.schedule<"attention"
#map = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d4)>
#map1 = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d3, d4)>
#map2 = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d4, d3)>
#map3 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
module attributes {kiln.level = "linalg"} {
  module @k attributes {kiln.kernel = {kind = "attention"}} {
    func.func @k(%q: tensor<4x12x512x64xf32> {kiln.sizes = array<i64: 4, 12, 512, 64>}, %k: tensor<4x12x512x64xf32> {kiln.sizes = array<i64: 4, 12, 512, 64>}, %v: tensor<4x12x512x64xf32> {kiln.sizes = array<i64: 4, 12, 512, 64>}) -> tensor<4x12x512x64xf32> {
      %0 = tensor.empty() : tensor<4x12x512x64xf32>
      %result = kiln.structured.attention causal sizes [4, 12, 512, 512, 64, 64] lengths []
          inputs(%q, %k : tensor<4x12x512x64xf32>, tensor<4x12x512x64xf32>) modifiers() values(%v : tensor<4x12x512x64xf32>)
          outs(%0 : tensor<4x12x512x64xf32>) maps = [#map, #map1, #map2, #map3] factors {
      ^bb0(%x: f32, %y: f32):
        kiln.yield %x, %y : f32, f32
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
      ^bb0(%z: f32):
        kiln.yield %z : f32
      } -> tensor<4x12x512x64xf32>
      return %result : tensor<4x12x512x64xf32>
    }
  }
}

// -----
// CASE: blocked_gemm
// RUN: kiln-schedule
// CHECK: #kiln.schedule<"blocked_gemm"
#left = affine_map<(d0, d1, d2) -> (d0, d2)>
#right = affine_map<(d0, d1, d2) -> (d2, d1)>
#out = affine_map<(d0, d1, d2) -> (d0, d1)>
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%x: tensor<40x4096xf32>, %w: tensor<4096x256xf32>) -> tensor<40x256xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<40x256xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<40x256xf32>) -> tensor<40x256xf32>
  %m = linalg.contract indexing_maps = [#left, #right, #out]
      ins(%x, %w : tensor<40x4096xf32>, tensor<4096x256xf32>) outs(%f : tensor<40x256xf32>) -> tensor<40x256xf32>
  return %m : tensor<40x256xf32>
}
}
}

// -----
// A product of strided views. The empty tensor only states K.
// CASE: product_of_views
// RUN: kiln-schedule
// CHECK: #kiln.schedule<"contraction"
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%x: tensor<64x48xf32> {kiln.sizes = array<i64: 64, 48>}) -> tensor<3x64x64xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<3x64x64xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<3x64x64xf32>) -> tensor<3x64x64xf32>
  %s = tensor.empty() : tensor<8xi8>
  %c = kiln.structured.contract ins(%x, %x, %s : tensor<64x48xf32>, tensor<64x48xf32>, tensor<8xi8>) outs(%f : tensor<3x64x64xf32>)
      maps = [affine_map<(h, m, n, k) -> (m, h * 8 + k)>, affine_map<(h, m, n, k) -> (n, h * 8 + k + 24)>, affine_map<(h, m, n, k) -> (k)>, affine_map<(h, m, n, k) -> (h, m, n)>] {
  ^bb0(%a: f32, %b: f32, %size: i8):
    kiln.yield %a, %b : f32, f32
  } -> tensor<3x64x64xf32>
  return %c : tensor<3x64x64xf32>
}
}
}

// -----
// CASE: pairs
// RUN: kiln-schedule{bf16=dot}
// CHECK: #kiln.schedule<"dot_gemm"
#left = affine_map<(d0, d1, d2) -> (d0, d2)>
#right = affine_map<(d0, d1, d2) -> (d2, d1)>
#out = affine_map<(d0, d1, d2) -> (d0, d1)>
#id = affine_map<(d0, d1) -> (d0, d1)>
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%x: tensor<40x70xbf16>, %w: tensor<70x64xbf16>) -> tensor<40x64xbf16> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<40x64xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<40x64xf32>) -> tensor<40x64xf32>
  %m = linalg.contract indexing_maps = [#left, #right, #out]
      ins(%x, %w : tensor<40x70xbf16>, tensor<70x64xbf16>) outs(%f : tensor<40x64xf32>) -> tensor<40x64xf32>
  %h = tensor.empty() : tensor<40x64xbf16>
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%m : tensor<40x64xf32>) outs(%h : tensor<40x64xbf16>) {
  ^bb0(%a: f32, %o: bf16):
    %t = arith.truncf %a : f32 to bf16
    linalg.yield %t : bf16
  } -> tensor<40x64xbf16>
  return %r : tensor<40x64xbf16>
}
}
}

// -----
// CASE: tiles
// RUN: kiln-schedule{bf16=amx}
// CHECK: #kiln.schedule<"amx_gemm"
#left = affine_map<(d0, d1, d2) -> (d0, d2)>
#right = affine_map<(d0, d1, d2) -> (d2, d1)>
#out = affine_map<(d0, d1, d2) -> (d0, d1)>
#id = affine_map<(d0, d1) -> (d0, d1)>
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%x: tensor<40x70xbf16>, %w: tensor<70x64xbf16>) -> tensor<40x64xbf16> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<40x64xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<40x64xf32>) -> tensor<40x64xf32>
  %m = linalg.contract indexing_maps = [#left, #right, #out]
      ins(%x, %w : tensor<40x70xbf16>, tensor<70x64xbf16>) outs(%f : tensor<40x64xf32>) -> tensor<40x64xf32>
  %h = tensor.empty() : tensor<40x64xbf16>
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%m : tensor<40x64xf32>) outs(%h : tensor<40x64xbf16>) {
  ^bb0(%a: f32, %o: bf16):
    %t = arith.truncf %a : f32 to bf16
    linalg.yield %t : bf16
  } -> tensor<40x64xbf16>
  return %r : tensor<40x64xbf16>
}
}
}

// -----
// CASE: widened
// RUN: kiln-schedule
// CHECK: #kiln.schedule<"contraction"
#left = affine_map<(d0, d1, d2) -> (d0, d2)>
#right = affine_map<(d0, d1, d2) -> (d2, d1)>
#out = affine_map<(d0, d1, d2) -> (d0, d1)>
#id = affine_map<(d0, d1) -> (d0, d1)>
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%x: tensor<40x70xbf16>, %w: tensor<70x64xbf16>) -> tensor<40x64xbf16> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<40x64xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<40x64xf32>) -> tensor<40x64xf32>
  %m = linalg.contract indexing_maps = [#left, #right, #out]
      ins(%x, %w : tensor<40x70xbf16>, tensor<70x64xbf16>) outs(%f : tensor<40x64xf32>) -> tensor<40x64xf32>
  %h = tensor.empty() : tensor<40x64xbf16>
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%m : tensor<40x64xf32>) outs(%h : tensor<40x64xbf16>) {
  ^bb0(%a: f32, %o: bf16):
    %t = arith.truncf %a : f32 to bf16
    linalg.yield %t : bf16
  } -> tensor<40x64xbf16>
  return %r : tensor<40x64xbf16>
}
}
}
