// RUN: kiln-in-place

// Both inputs are read at the index that is written.
// CASE: elementwise
// CHECK: in_place = array<i64: 0, 0, 0, 1>
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
// Loops of other sizes read none of these elements, but %z is read in both.
// CASE: several_loops
// CHECK: in_place = array<i64: 0, 0, 1, 1>
#id = affine_map<(d0) -> (d0)>
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%x: tensor<8xf32> {kiln.sizes = array<i64: 8>}, %y: tensor<20xf32> {kiln.sizes = array<i64: 20>}, %z: tensor<20xf32> {kiln.sizes = array<i64: 20>}) -> (tensor<8xf32>, tensor<20xf32>) {
  %e = tensor.empty() : tensor<8xf32>
  %zero = tensor.extract_slice %z[0] [8] [1] : tensor<20xf32> to tensor<8xf32>
  %r = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]}
      ins(%x, %zero : tensor<8xf32>, tensor<8xf32>) outs(%e : tensor<8xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.mulf %a, %b : f32
    linalg.yield %p : f32
  } -> tensor<8xf32>
  %f = tensor.empty() : tensor<20xf32>
  %s = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]}
      ins(%y, %z : tensor<20xf32>, tensor<20xf32>) outs(%f : tensor<20xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.mulf %a, %b : f32
    linalg.yield %p : f32
  } -> tensor<20xf32>
  return %r, %s : tensor<8xf32>, tensor<20xf32>
}
}
}

// -----
// The first result must not overwrite %x, which the second reads; the second may. %y has another
// element width, %z is broadcast per row.
// CASE: read_after_the_write
// CHECK: in_place = array<i64: 1, 0>
#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d1)>
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%x: tensor<4x4xf32> {kiln.sizes = array<i64: 4, 4>}, %y: tensor<4x4xf16> {kiln.sizes = array<i64: 4, 4>}, %z: tensor<4xf32> {kiln.sizes = array<i64: 4>}) -> (tensor<4x4xf32>, tensor<4x4xf32>) {
  %e = tensor.empty() : tensor<4x4xf32>
  %r = linalg.generic {indexing_maps = [#id, #id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x, %y, %z : tensor<4x4xf32>, tensor<4x4xf16>, tensor<4xf32>) outs(%e : tensor<4x4xf32>) {
  ^bb0(%a: f32, %b: f16, %c: f32, %o: f32):
    %w = arith.extf %b : f16 to f32
    %p = arith.mulf %a, %w : f32
    %q = arith.addf %p, %c : f32
    linalg.yield %q : f32
  } -> tensor<4x4xf32>
  %f = tensor.empty() : tensor<4x4xf32>
  %s = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<4x4xf32>) outs(%f : tensor<4x4xf32>) {
  ^bb0(%a: f32, %o: f32):
    %p = arith.mulf %a, %a : f32
    linalg.yield %p : f32
  } -> tensor<4x4xf32>
  return %r, %s : tensor<4x4xf32>, tensor<4x4xf32>
}
}
}

// -----
// Momentum: the second stage reads the first's result where it was just written, so that each result
// may overwrite an argument of its own.
// CASE: result_read_again
// CHECK: in_place = array<i64: 0, 0, 0, 1, 1, 0, 1, 1, 1, 2>
#id = affine_map<(d0) -> (d0)>
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%m: tensor<8xf32> {kiln.sizes = array<i64: 8>}, %g: tensor<8xf32> {kiln.sizes = array<i64: 8>}, %w: tensor<8xf32> {kiln.sizes = array<i64: 8>}) -> (tensor<8xf32>, tensor<8xf32>) {
  %e = tensor.empty() : tensor<8xf32>
  %r = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]}
      ins(%m, %g : tensor<8xf32>, tensor<8xf32>) outs(%e : tensor<8xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.addf %a, %b : f32
    linalg.yield %p : f32
  } -> tensor<8xf32>
  %f = tensor.empty() : tensor<8xf32>
  %s = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]}
      ins(%w, %r : tensor<8xf32>, tensor<8xf32>) outs(%f : tensor<8xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.subf %a, %b : f32
    linalg.yield %p : f32
  } -> tensor<8xf32>
  return %r, %s : tensor<8xf32>, tensor<8xf32>
}
}
}

// -----
// The epilogue's residual may be overwritten, the matmul's operands not.
// CASE: residual
// CHECK: in_place = array<i64: 0, 2>
#a = affine_map<(d0, d1, d2) -> (d0, d2)>
#b = affine_map<(d0, d1, d2) -> (d2, d1)>
#c = affine_map<(d0, d1, d2) -> (d0, d1)>
#id = affine_map<(d0, d1) -> (d0, d1)>
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%x: tensor<64x64xf32> {kiln.sizes = array<i64: 64, 64>}, %w: tensor<64x64xf32> {kiln.sizes = array<i64: 64, 64>}, %y: tensor<64x64xf32> {kiln.sizes = array<i64: 64, 64>}) -> tensor<64x64xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<64x64xf32>
  %i = linalg.fill ins(%zero : f32) outs(%e : tensor<64x64xf32>) -> tensor<64x64xf32>
  %m = linalg.contract indexing_maps = [#a, #b, #c]
      ins(%x, %w : tensor<64x64xf32>, tensor<64x64xf32>) outs(%i : tensor<64x64xf32>) -> tensor<64x64xf32>
  %f = tensor.empty() : tensor<64x64xf32>
  %r = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%m, %y : tensor<64x64xf32>, tensor<64x64xf32>) outs(%f : tensor<64x64xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.addf %a, %b : f32
    linalg.yield %p : f32
  } -> tensor<64x64xf32>
  return %r : tensor<64x64xf32>
}
}
}

// -----
// Of the launches of a program for a GPU only those of donated arguments count: %x is one, %y not.
// CASE: donated
// RUN: kiln-in-place{donated=true}
// NO-RUN: it only marks kernels
// CHECK: in_place = array<i64: 0, 0>
#id = affine_map<(d0) -> (d0)>
module attributes {kiln.level = "linalg"} {
func.func @main(%x: tensor<8xf32> {kiln.donated}, %y: tensor<8xf32>) -> tensor<8xf32> {
  %e = tensor.empty() : tensor<8xf32>
  %0 = kiln.launch @k0 ins(%x, %y : tensor<8xf32>, tensor<8xf32>) outs(%e : tensor<8xf32>) -> tensor<8xf32>
  %f = tensor.empty() : tensor<8xf32>
  %1 = kiln.launch @k1 ins(%0 : tensor<8xf32>) outs(%f : tensor<8xf32>) -> tensor<8xf32>
  return %1 : tensor<8xf32>
}
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%x: tensor<8xf32> {kiln.sizes = array<i64: 8>}, %y: tensor<8xf32> {kiln.sizes = array<i64: 8>}) -> tensor<8xf32> {
  %e = tensor.empty() : tensor<8xf32>
  %r = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]}
      ins(%x, %y : tensor<8xf32>, tensor<8xf32>) outs(%e : tensor<8xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.mulf %a, %b : f32
    linalg.yield %p : f32
  } -> tensor<8xf32>
  return %r : tensor<8xf32>
}
}
module @k1 attributes {kiln.kernel = {}} {
func.func @k1(%x: tensor<8xf32> {kiln.sizes = array<i64: 8>}) -> tensor<8xf32> {
  %e = tensor.empty() : tensor<8xf32>
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
      ins(%x : tensor<8xf32>) outs(%e : tensor<8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %p = arith.mulf %a, %a : f32
    linalg.yield %p : f32
  } -> tensor<8xf32>
  return %r : tensor<8xf32>
}
}
}

// -----
// A scatter by the runtime's library copies nothing in place, unless its updates are in that memory.
// CASE: library
// NO-RUN: it only marks kernels
// CHECK: in_place = array<i64: 0, 1>
// CHECK-NOT: in_place
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {kind = "library", callee = "kiln_scatter", operands = array<i64: 1, 0, 2>, results = array<i64: 0>, config = array<i64: 0, 0>}} {
func.func private @k0(tensor<2x4xf32>, tensor<6x4xf32>, tensor<2xi64>, tensor<6x4xf32>)
}
module @k1 attributes {kiln.kernel = {kind = "library", callee = "kiln_scatter", operands = array<i64: 0, 0, 1>, results = array<i64: 0>, config = array<i64: 0, 0>}} {
func.func private @k1(tensor<6x4xf32>, tensor<6xi64>, tensor<6x4xf32>)
}
module @k2 attributes {kiln.kernel = {kind = "library", callee = "kiln_sort", operands = array<i64: 0>, results = array<i64: 0, -1>, config = array<i64: 0, 0>}} {
func.func private @k2(tensor<6xf32>, tensor<6xf32>)
}
}

// -----
// A weight that its gradient, a product, is added to, but no operand of the product.
// CASE: donated_weight
// RUN: kiln-in-place{donated=true}
// NO-RUN: it only marks kernels
// CHECK: in_place = array<i64: 0, 2>}
#x = affine_map<(d0, d1, d2) -> (d2, d0)>
#y = affine_map<(d0, d1, d2) -> (d2, d1)>
#r = affine_map<(d0, d1, d2) -> (d0, d1)>
#id = affine_map<(d0, d1) -> (d0, d1)>
module attributes {kiln.level = "linalg"} {
func.func @main(%x: tensor<8x8xf32> {kiln.donated}, %y: tensor<8x8xf32>, %z: tensor<8x8xf32> {kiln.donated}) -> tensor<8x8xf32> {
  %e = tensor.empty() : tensor<8x8xf32>
  %0 = kiln.launch @k0 ins(%x, %y, %z : tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) -> tensor<8x8xf32>
  return %0 : tensor<8x8xf32>
}
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%x: tensor<8x8xf32> {kiln.sizes = array<i64: 8, 8>}, %y: tensor<8x8xf32> {kiln.sizes = array<i64: 8, 8>}, %z: tensor<8x8xf32> {kiln.sizes = array<i64: 8, 8>}) -> tensor<8x8xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<8x8xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<8x8xf32>) -> tensor<8x8xf32>
  %p = linalg.contract indexing_maps = [#x, #y, #r] ins(%x, %y : tensor<8x8xf32>, tensor<8x8xf32>) outs(%f : tensor<8x8xf32>) -> tensor<8x8xf32>
  %o = tensor.empty() : tensor<8x8xf32>
  %r = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%p, %z : tensor<8x8xf32>, tensor<8x8xf32>) outs(%o : tensor<8x8xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %s = arith.addf %a, %b : f32
    linalg.yield %s : f32
  } -> tensor<8x8xf32>
  return %r : tensor<8x8xf32>
}
}
}

// -----
// On GPUs also what a large product is added to, but not an operand of the product.
// CASE: sums_of_products
// RUN: kiln-in-place{donated=true sums-from=256}
// NO-RUN: it only marks kernels
// CHECK: in_place = array<i64: 0, 2>}
#x = affine_map<(d0, d1, d2) -> (d2, d0)>
#y = affine_map<(d0, d1, d2) -> (d2, d1)>
#r = affine_map<(d0, d1, d2) -> (d0, d1)>
#id = affine_map<(d0, d1) -> (d0, d1)>
module attributes {kiln.level = "linalg"} {
func.func @main(%x: tensor<8x8xf32>, %y: tensor<8x8xf32>, %z: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %e = tensor.empty() : tensor<8x8xf32>
  %0 = kiln.launch @k0 ins(%x, %y, %z : tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) -> tensor<8x8xf32>
  return %0 : tensor<8x8xf32>
}
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%x: tensor<8x8xf32> {kiln.sizes = array<i64: 8, 8>}, %y: tensor<8x8xf32> {kiln.sizes = array<i64: 8, 8>}, %z: tensor<8x8xf32> {kiln.sizes = array<i64: 8, 8>}) -> tensor<8x8xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<8x8xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<8x8xf32>) -> tensor<8x8xf32>
  %p = linalg.contract indexing_maps = [#x, #y, #r] ins(%x, %y : tensor<8x8xf32>, tensor<8x8xf32>) outs(%f : tensor<8x8xf32>) -> tensor<8x8xf32>
  %o = tensor.empty() : tensor<8x8xf32>
  %r = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%p, %z : tensor<8x8xf32>, tensor<8x8xf32>) outs(%o : tensor<8x8xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %s = arith.addf %a, %b : f32
    linalg.yield %s : f32
  } -> tensor<8x8xf32>
  return %r : tensor<8x8xf32>
}
}
}

// -----
// A convolution reads pixels beside the one that it writes, of an image that it pads as it loads. It
// reads %z at the pixel that it writes.
// CASE: padded_image
// RUN: kiln-in-place{donated=true sums-from=256}
// CHECK: in_place = array<i64: 0, 2>
// NO-RUN: it only marks kernels
#image = affine_map<(n, h, w, c, r, s) -> (n, h + r, w + s, c)>
#window = affine_map<(n, h, w, c, r, s) -> (r, s, 0, c)>
#sum = affine_map<(n, h, w, c, r, s) -> (n, h, w, c)>
#id = affine_map<(n, h, w, c) -> (n, h, w, c)>
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%x: tensor<2x5x6x8xbf16> {kiln.sizes = array<i64: 2, 5, 6, 8>}, %w: tensor<3x3x1x8xbf16> {kiln.sizes = array<i64: 3, 3, 1, 8>}, %z: tensor<2x5x6x8xbf16> {kiln.sizes = array<i64: 2, 5, 6, 8>}) -> tensor<2x5x6x8xbf16> {
  %zero = arith.constant 0.0 : f32
  %p = tensor.pad %x low[0, 1, 1, 0] high[0, 1, 1, 0] {
  ^bb0(%a: index, %b: index, %c: index, %d: index):
    %0 = arith.constant 0.0 : bf16
    tensor.yield %0 : bf16
  } : tensor<2x5x6x8xbf16> to tensor<2x7x8x8xbf16>
  %e = tensor.empty() : tensor<2x5x6x8xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<2x5x6x8xf32>) -> tensor<2x5x6x8xf32>
  %c = kiln.structured.contract ins(%p, %w : tensor<2x7x8x8xbf16>, tensor<3x3x1x8xbf16>) outs(%f : tensor<2x5x6x8xf32>)
      maps = [#image, #window, #sum] {
  ^bb0(%a: bf16, %b: bf16):
    %0 = arith.extf %a : bf16 to f32
    %1 = arith.extf %b : bf16 to f32
    kiln.yield %0, %1 : f32, f32
  } -> tensor<2x5x6x8xf32>
  %g = tensor.empty() : tensor<2x5x6x8xbf16>
  %r = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%c, %z : tensor<2x5x6x8xf32>, tensor<2x5x6x8xbf16>) outs(%g : tensor<2x5x6x8xbf16>) {
  ^bb0(%a: f32, %b: bf16, %o: bf16):
    %0 = arith.extf %b : bf16 to f32
    %1 = arith.addf %a, %0 : f32
    %2 = arith.truncf %1 : f32 to bf16
    linalg.yield %2 : bf16
  } -> tensor<2x5x6x8xbf16>
  return %r : tensor<2x5x6x8xbf16>
}
}
}
