// RUN: kiln-gpu-schedule

// CASE: elementwise
// NO-RUN: the interpreter runs kiln ops
// CHECK: #kiln.schedule<"loops"
// CHECK: kiln.threads = 256
// CHECK: kiln.grid
// CHECK-NOT: tid
#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
#column = affine_map<(d0, d1) -> (d1)>
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
// NO-RUN: the interpreter runs kiln ops
// CHECK: #kiln.schedule<"registers", {group = 16 : i64, groups = 8 : i64, pieces = 1 : i64, vector = 4 : i64}>
// CHECK: kiln.threads = 128
#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
#column = affine_map<(d0, d1) -> (d1)>
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
// CASE: softmax_of_rows_for_a_block
// NO-RUN: the interpreter runs kiln ops
// CHECK: #kiln.schedule<"registers", {group = 256 : i64, groups = 1 : i64, pieces = 8 : i64, vector = 4 : i64}>
#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
#column = affine_map<(d0, d1) -> (d1)>
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
// NO-RUN: the interpreter runs kiln ops
// CHECK: #kiln.schedule<"registers", {group = 32 : i64, groups = 4 : i64, pieces = 32 : i64, vector = 1 : i64}>
#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
#column = affine_map<(d0, d1) -> (d1)>
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
// CASE: softmax_of_rows_that_no_block_can_hold
// NO-RUN: the interpreter runs kiln ops
// CHECK: #kiln.schedule<"rows", {group = 1024 : i64
#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
#column = affine_map<(d0, d1) -> (d1)>
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
// CASE: column_sum
// NO-RUN: the interpreter runs kiln ops
// CHECK: #kiln.schedule<"loops"
#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
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
// NO-RUN: the interpreter runs kiln ops
// CHECK: #kiln.schedule<"columns", {columns = 16 : i64, parts = 16 : i64, pieces = 4 : i64, vector = 4 : i64}>
#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
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
// NO-RUN: the interpreter runs kiln ops
// CHECK: #kiln.schedule<
#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
#column = affine_map<(d0, d1) -> (d1)>
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%a: tensor<8x64xf32> {kiln.sizes = array<i64: 8, 64>}, %b: tensor<1x64x32xf32> {kiln.sizes = array<i64: 1, 64, 32>}, %bias: tensor<32xf32> {kiln.sizes = array<i64: 32>}) -> tensor<8x32xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<8x32xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<8x32xf32>) -> tensor<8x32xf32>
  %c = linalg.generic {indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n floordiv 32, k, n mod 32)>, affine_map<(m, n, k) -> (m, n)>],
      iterator_types = ["parallel", "parallel", "reduction"]} ins(%a, %b : tensor<8x64xf32>, tensor<1x64x32xf32>) outs(%f : tensor<8x32xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %0 = arith.mulf %x, %y : f32
    %1 = arith.addf %o, %0 : f32
    linalg.yield %1 : f32
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
// CASE: a_sum_of_few_rows
// NO-RUN: the interpreter runs kiln ops
// CHECK: #kiln.schedule<"reduce", {group = 64 : i64, groups = 2 : i64, pieces = 4 : i64, vector = 4 : i64}>
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
// CASE: a_bad_number_of_threads
// RUN: kiln-gpu-schedule{threads=48}
// expected-error @+1 {{threads is a power of two from 32 to 1024, not 48}}
module attributes {kiln.level = "linalg"} {
}

// -----
// CASE: product_of_bf16
// RUN: kiln-gpu-schedule{tensor-cores=true}
// NO-RUN: the interpreter runs kiln ops
// CHECK: #kiln.schedule<"wgmma", {k = 64 : i64, m = 128 : i64, n = 256 : i64, resident = 1 : i64, stages = 4 : i64}>
// CHECK: kiln.tensor_maps
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%a: tensor<?x512xbf16> {kiln.sizes = array<i64: -1, 512>}, %b: tensor<4096x512xbf16> {kiln.sizes = array<i64: 4096, 512>}, %bias: tensor<4096xf32> {kiln.sizes = array<i64: 4096>}, %s0: index) -> tensor<?x4096xbf16> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty(%s0) : tensor<?x4096xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x4096xf32>) -> tensor<?x4096xf32>
  %c = linalg.generic {indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>],
      iterator_types = ["parallel", "parallel", "reduction"]} ins(%a, %b : tensor<?x512xbf16>, tensor<4096x512xbf16>) outs(%f : tensor<?x4096xf32>) {
  ^bb0(%x: bf16, %y: bf16, %o: f32):
    %0 = arith.extf %x : bf16 to f32
    %1 = arith.extf %y : bf16 to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %o, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<?x4096xf32>
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
// CASE: product_whose_rows_the_copy_engine_cannot_read
// RUN: kiln-gpu-schedule{tensor-cores=true}
// NO-RUN: the interpreter runs kiln ops
// CHECK: #kiln.schedule<"contract"
// CHECK-NOT: kiln.tensor_maps
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%a: tensor<128x36xbf16> {kiln.sizes = array<i64: 128, 36>}, %b: tensor<128x36xbf16> {kiln.sizes = array<i64: 128, 36>}, %bias: tensor<128xf32> {kiln.sizes = array<i64: 128>}) -> tensor<128x128xbf16> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<128x128xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<128x128xf32>) -> tensor<128x128xf32>
  %c = linalg.generic {indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>],
      iterator_types = ["parallel", "parallel", "reduction"]} ins(%a, %b : tensor<128x36xbf16>, tensor<128x36xbf16>) outs(%f : tensor<128x128xf32>) {
  ^bb0(%x: bf16, %y: bf16, %o: f32):
    %0 = arith.extf %x : bf16 to f32
    %1 = arith.extf %y : bf16 to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %o, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<128x128xf32>
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
// CASE: product_of_bf16_on_an_older_chip
// NO-RUN: the interpreter runs kiln ops
// RUN: kiln-gpu-schedule{chip=sm_80}
// CHECK: #kiln.schedule<"contract"
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%a: tensor<128x64xbf16> {kiln.sizes = array<i64: 128, 64>}, %b: tensor<128x64xbf16> {kiln.sizes = array<i64: 128, 64>}, %bias: tensor<128xf32> {kiln.sizes = array<i64: 128>}) -> tensor<128x128xbf16> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<128x128xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<128x128xf32>) -> tensor<128x128xf32>
  %c = linalg.generic {indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>],
      iterator_types = ["parallel", "parallel", "reduction"]} ins(%a, %b : tensor<128x64xbf16>, tensor<128x64xbf16>) outs(%f : tensor<128x128xf32>) {
  ^bb0(%x: bf16, %y: bf16, %o: f32):
    %0 = arith.extf %x : bf16 to f32
    %1 = arith.extf %y : bf16 to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %o, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<128x128xf32>
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
// CASE: a_tile_that_is_not_possible
// expected-error @+3 {{n a multiple of 64 up to 256}}
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%a: tensor<128x64xbf16> {kiln.sizes = array<i64: 128, 64>}, %b: tensor<128x64xbf16> {kiln.sizes = array<i64: 128, 64>}, %bias: tensor<128xf32> {kiln.sizes = array<i64: 128>}) -> tensor<128x128xbf16> attributes {kiln.schedule = #kiln.schedule<"wgmma", {k = 64 : i64, m = 128 : i64, n = 96 : i64, resident = 1 : i64, stages = 4 : i64}>} {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<128x128xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<128x128xf32>) -> tensor<128x128xf32>
  %c = linalg.generic {indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>],
      iterator_types = ["parallel", "parallel", "reduction"]} ins(%a, %b : tensor<128x64xbf16>, tensor<128x64xbf16>) outs(%f : tensor<128x128xf32>) {
  ^bb0(%x: bf16, %y: bf16, %o: f32):
    %0 = arith.extf %x : bf16 to f32
    %1 = arith.extf %y : bf16 to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %o, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<128x128xf32>
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
// Nine places of the window, two steps of channels each; the last place begins one row and one column behind the image.
// CASE: padded_convolution
// NO-RUN: the interpreter runs kiln ops
// CHECK: #kiln.schedule<"wgmma"
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
  %c = linalg.generic {indexing_maps = [affine_map<(n, h, w, k, r, s, c) -> (n, h * 2 + r, w * 2 + s, c)>, affine_map<(n, h, w, k, r, s, c) -> (k, r, s, c)>,
      affine_map<(n, h, w, k, r, s, c) -> (n, h, w, k)>], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]}
      ins(%p, %w : tensor<?x11x9x72xbf16>, tensor<40x3x3x72xbf16>) outs(%f : tensor<?x5x4x40xf32>) {
  ^bb0(%a: bf16, %b: bf16, %o: f32):
    %0 = arith.extf %a : bf16 to f32
    %1 = arith.extf %b : bf16 to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %o, %2 : f32
    linalg.yield %3 : f32
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
// Threads that read it themselves compare each index with the image's ends.
// CASE: padded_convolution_on_an_older_chip
// NO-RUN: the interpreter runs kiln ops
// RUN: kiln-gpu-schedule{chip=sm_80},kiln-gpu-tile
// CHECK-NOT: tensor.pad
// CHECK: arith.cmpi ult
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%x: tensor<?x9x7x72xbf16> {kiln.sizes = array<i64: -1, 9, 7, 72>}, %w: tensor<40x3x3x72xbf16> {kiln.sizes = array<i64: 40, 3, 3, 72>}, %s0: index) -> tensor<?x5x4x40xbf16> attributes {kiln.schedule = #kiln.schedule<"contract", {depth = 8 : i64, m = 8 : i64, m_each = 1 : i64, n = 8 : i64, n_each = 1 : i64}>} {
  %zero = arith.constant 0.0 : f32
  %p = tensor.pad %x low[0, 1, 1, 0] high[0, 1, 1, 0] {
  ^bb0(%a: index, %b: index, %c: index, %d: index):
    %z = arith.constant 0.0 : bf16
    tensor.yield %z : bf16
  } : tensor<?x9x7x72xbf16> to tensor<?x11x9x72xbf16>
  %e = tensor.empty(%s0) : tensor<?x5x4x40xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x5x4x40xf32>) -> tensor<?x5x4x40xf32>
  %c = linalg.generic {indexing_maps = [affine_map<(n, h, w, k, r, s, c) -> (n, h * 2 + r, w * 2 + s, c)>, affine_map<(n, h, w, k, r, s, c) -> (k, r, s, c)>,
      affine_map<(n, h, w, k, r, s, c) -> (n, h, w, k)>], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]}
      ins(%p, %w : tensor<?x11x9x72xbf16>, tensor<40x3x3x72xbf16>) outs(%f : tensor<?x5x4x40xf32>) {
  ^bb0(%a: bf16, %b: bf16, %o: f32):
    %0 = arith.extf %a : bf16 to f32
    %1 = arith.extf %b : bf16 to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %o, %2 : f32
    linalg.yield %3 : f32
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
