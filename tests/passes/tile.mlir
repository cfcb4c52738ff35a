// RUN: kiln-schedule,kiln-tile,cse

// CASE: elementwise
// SIZES: s0 = 150
// CHECK: vector.load
// CHECK: vector.maskedstore
// IMPLICIT-CHECK-NOT: tensor
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
// Inputs are prefetched 512 elements ahead; where the result is aligned, stores are non-temporal.
// CASE: prefetched_streams
// RUN: kiln-tile,cse
// CHECK: memref.prefetch
// CHECK: nontemporal = true
module attributes {kiln.level = "scheduled"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%x: tensor<40000xf32> {kiln.sizes = array<i64: 40000>}, %y: tensor<40000xf32> {kiln.sizes = array<i64: 40000>}) -> tensor<40000xf32> attributes {
  kiln.schedule = #kiln.schedule<"elementwise", {bits = 512, block = 1, nontemporal = 1, prefetch = 2048, tasks = 0, tile = 16384, unroll = 4}>
} {
  %e = tensor.empty() : tensor<40000xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]}
      ins(%x, %y : tensor<40000xf32>, tensor<40000xf32>) outs(%e : tensor<40000xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = math.erf %a : f32
    %q = math.exp %b : f32
    %s = arith.mulf %p, %q : f32
    linalg.yield %s : f32
  } -> tensor<40000xf32>
  return %r : tensor<40000xf32>
}
}
}

// -----
// CASE: softmax
// SIZES: s0 = 100
// CHECK: memref.alloca
// CHECK: vector.reduction <maximumf>
// IMPLICIT-CHECK-NOT: tensor
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
// CHECK: iter_args
// IMPLICIT-CHECK-NOT: vector.reduction
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
// Rows are the shared dimensions before the blocks of the packed weight: blocks are loops in a row.
// CASE: blocked_weight_in_rows
// RUN: kiln-schedule,kiln-tile
// CHECK: #kiln.schedule<"rows"
// CHECK: math.fma
#id = affine_map<(d0, d1) -> (d0, d1)>
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%a: tensor<6x16xf32> {kiln.sizes = array<i64: 6, 16>}, %b: tensor<2x16x16xf32> {kiln.sizes = array<i64: 2, 16, 16>}) -> (tensor<6x32xf32>, tensor<6x32xf32>) {
  %zero = arith.constant 0.0 : f32
  %e0 = tensor.empty() : tensor<6x32xf32>
  %e1 = tensor.empty() : tensor<6x32xf32>
  %e2 = tensor.empty() : tensor<6x32xf32>
  %z = linalg.generic {indexing_maps = [#id], iterator_types = ["parallel", "parallel"]} outs(%e0 : tensor<6x32xf32>) {
  ^bb0(%o: f32):
    linalg.yield %zero : f32
  } -> tensor<6x32xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e1 : tensor<6x32xf32>) -> tensor<6x32xf32>
  %c = kiln.structured.contract ins(%a, %b : tensor<6x16xf32>, tensor<2x16x16xf32>) outs(%f : tensor<6x32xf32>)
      maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n floordiv 16, k, n mod 16)>, affine_map<(m, n, k) -> (m, n)>] {
  ^bb0(%x: f32, %y: f32):
    kiln.yield %x, %y : f32, f32
  } -> tensor<6x32xf32>
  %r = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%c, %z : tensor<6x32xf32>, tensor<6x32xf32>) outs(%e2 : tensor<6x32xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %0 = arith.maximumf %x, %y : f32
    linalg.yield %0 : f32
  } -> tensor<6x32xf32>
  return %z, %r : tensor<6x32xf32>, tensor<6x32xf32>
}
}
}

// -----
// CASE: matmul_with_bias
// CHECK: math.fma
// IMPLICIT-CHECK-NOT: memref.alloca
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
// RUN: kiln-tile,cse
// CASE: edited
// CHECK: memref.load
// IMPLICIT-CHECK-NOT: vector.
#id = affine_map<(d0, d1) -> (d0, d1)>
#column = affine_map<(d0, d1) -> (d1)>
module attributes {kiln.level = "scheduled"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%x: tensor<40x48xf32> {kiln.sizes = array<i64: 40, 48>}) -> tensor<48xf32> attributes {kiln.schedule = #kiln.schedule<"scalar", {block = 4}>} {
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
// RUN: kiln-tile,cse
// CASE: unknown_parameter
#id = affine_map<(d0, d1) -> (d0, d1)>
#column = affine_map<(d0, d1) -> (d1)>
module attributes {kiln.level = "scheduled"} {
module @k0 attributes {kiln.kernel = {}} {
// expected-error @below {{blocks}}
func.func @k0(%x: tensor<40x48xf32> {kiln.sizes = array<i64: 40, 48>}) -> tensor<48xf32> attributes {kiln.schedule = #kiln.schedule<"reduction", {blocks = 4}>} {
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
// RUN: kiln-tile,cse
// CASE: unknown_strategy
#id = affine_map<(d0, d1) -> (d0, d1)>
#column = affine_map<(d0, d1) -> (d1)>
module attributes {kiln.level = "scheduled"} {
module @k0 attributes {kiln.kernel = {}} {
// expected-error @below {{has unknown schedule 'warp' (schedules: attention, rows, blocked_gemm, dot_gemm, amx_gemm, contraction, transpose, reduction, elementwise, scalar)}}
func.func @k0(%x: tensor<40x48xf32> {kiln.sizes = array<i64: 40, 48>}) -> tensor<48xf32> attributes {kiln.schedule = #kiln.schedule<"warp", {}>} {
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
// Square blocks are transposed in vector registers; the last one repeats rows.
// CASE: transpose
// RUN: kiln-schedule{vector-bits=128},kiln-tile,cse
// CHECK: vector.shuffle
// IMPLICIT-CHECK-NOT: vector.gather
#id = affine_map<(d0, d1) -> (d0, d1)>
#turned = affine_map<(d0, d1) -> (d1, d0)>
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%x: tensor<8x6xf32> {kiln.sizes = array<i64: 8, 6>}) -> tensor<6x8xf32> {
  %e = tensor.empty() : tensor<6x8xf32>
  %r = linalg.generic {indexing_maps = [#turned, #id], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<8x6xf32>) outs(%e : tensor<6x8xf32>) {
  ^bb0(%a: f32, %o: f32):
    linalg.yield %a : f32
  } -> tensor<6x8xf32>
  return %r : tensor<6x8xf32>
}
}
}

// -----
// Rows of blocks that fill whole cache lines use non-temporal stores, with prefetch.
// CASE: transpose_with_non_temporal_stores
// RUN: kiln-tile,cse
// CHECK: nontemporal = true
// CHECK: memref.prefetch
#id = affine_map<(d0, d1) -> (d0, d1)>
#turned = affine_map<(d0, d1) -> (d1, d0)>
module attributes {kiln.level = "scheduled"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%x: tensor<16x16xf32> {kiln.sizes = array<i64: 16, 16>}) -> tensor<16x16xf32> attributes {
  kiln.schedule = #kiln.schedule<"transpose", {bits = 512, m = 4, m_block = 64, n = 1, n_block = 1024, nontemporal = 1, prefetch = 256}>
} {
  %e = tensor.empty() : tensor<16x16xf32>
  %r = linalg.generic {indexing_maps = [#turned, #id], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<16x16xf32>) outs(%e : tensor<16x16xf32>) {
  ^bb0(%a: f32, %o: f32):
    linalg.yield %a : f32
  } -> tensor<16x16xf32>
  return %r : tensor<16x16xf32>
}
}
}

// -----
// Fewer rows than lanes are gathered.
// CASE: transpose_of_few_rows
// RUN: kiln-schedule{vector-bits=128},kiln-tile,cse
// CHECK: vector.gather
// IMPLICIT-CHECK-NOT: vector.shuffle
#id = affine_map<(d0, d1) -> (d0, d1)>
#turned = affine_map<(d0, d1) -> (d1, d0)>
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%x: tensor<8x3xf32> {kiln.sizes = array<i64: 8, 3>}) -> tensor<3x8xf32> {
  %e = tensor.empty() : tensor<3x8xf32>
  %r = linalg.generic {indexing_maps = [#turned, #id], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<8x3xf32>) outs(%e : tensor<3x8xf32>) {
  ^bb0(%a: f32, %o: f32):
    linalg.yield %a : f32
  } -> tensor<3x8xf32>
  return %r : tensor<3x8xf32>
}
}
}

// -----
// The interior of a padded tensor is written in square blocks, its border by loops.
// CASE: transpose_into_a_padded_tensor
// RUN: kiln-schedule{vector-bits=128},kiln-tile,cse
// CHECK: kiln.schedule<"transpose"
// CHECK: vector.shuffle
#id = affine_map<(d0, d1) -> (d0, d1)>
#turned = affine_map<(d0, d1) -> (d1, d0)>
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%x: tensor<8x4xf32> {kiln.sizes = array<i64: 8, 4>}) -> tensor<5x8xf32> {
  %e = tensor.empty() : tensor<5x8xf32>
  %b = tensor.extract_slice %e[0, 0] [1, 8] [1, 1] : tensor<5x8xf32> to tensor<1x8xf32>
  %f = linalg.generic {indexing_maps = [#id], iterator_types = ["parallel", "parallel"]} outs(%b : tensor<1x8xf32>) {
  ^bb0(%o: f32):
    %zero = arith.constant 0.0 : f32
    linalg.yield %zero : f32
  } -> tensor<1x8xf32>
  %g = tensor.insert_slice %f into %e[0, 0] [1, 8] [1, 1] : tensor<1x8xf32> into tensor<5x8xf32>
  %m = tensor.extract_slice %g[1, 0] [4, 8] [1, 1] : tensor<5x8xf32> to tensor<4x8xf32>
  %t = linalg.generic {indexing_maps = [#turned, #id], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<8x4xf32>) outs(%m : tensor<4x8xf32>) {
  ^bb0(%a: f32, %o: f32):
    linalg.yield %a : f32
  } -> tensor<4x8xf32>
  %r = tensor.insert_slice %t into %g[1, 0] [4, 8] [1, 1] : tensor<4x8xf32> into tensor<5x8xf32>
  return %r : tensor<5x8xf32>
}
}
}

// -----
// Each channel has filters of its own, which are stored in blocks of 8: of the second block 2 are
// computed and stored.
// CASE: blocked_filters_of_groups
// RUN: kiln-schedule{vector-bits=128},kiln-tile,cse
// CHECK: kiln.schedule<"contraction"
// CHECK: vector.maskedstore
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%x: tensor<1x7x7x40xf32> {kiln.sizes = array<i64: 1, 7, 7, 40>}, %w: tensor<2x3x3x4x8xf32> {kiln.sizes = array<i64: 2, 3, 3, 4, 8>}) -> tensor<1x5x5x10xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<1x5x5x10xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<1x5x5x10xf32>) -> tensor<1x5x5x10xf32>
  %r = kiln.structured.contract ins(%x, %w : tensor<1x7x7x40xf32>, tensor<2x3x3x4x8xf32>) outs(%f : tensor<1x5x5x10xf32>)
      maps = [affine_map<(n, y, x, c, i, j, k) -> (n, y + i, x + j, c * 4 + k)>, affine_map<(n, y, x, c, i, j, k) -> (c floordiv 8, i, j, k, c mod 8)>, affine_map<(n, y, x, c, i, j, k) -> (n, y, x, c)>] {
  ^bb0(%a: f32, %b: f32):
    kiln.yield %a, %b : f32, f32
  } -> tensor<1x5x5x10xf32>
  return %r : tensor<1x5x5x10xf32>
}
}
}

// -----
// A contraction's epilogue writes the interior of a padded tensor; its border is a separate loop
// nest.
// CASE: contraction_into_a_padded_tensor
// RUN: kiln-schedule{vector-bits=128},kiln-tile,cse
// CHECK: kiln.schedule<"contraction"
#a = affine_map<(d0, d1, d2) -> (d0, d2)>
#b = affine_map<(d0, d1, d2) -> (d2, d1)>
#c = affine_map<(d0, d1, d2) -> (d0, d1)>
#id = affine_map<(d0, d1) -> (d0, d1)>
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%x: tensor<6x3xf32> {kiln.sizes = array<i64: 6, 3>}, %w: tensor<3x8xf32> {kiln.sizes = array<i64: 3, 8>}) -> tensor<7x8xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<6x8xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<6x8xf32>) -> tensor<6x8xf32>
  %p = linalg.contract indexing_maps = [#a, #b, #c]
      ins(%x, %w : tensor<6x3xf32>, tensor<3x8xf32>) outs(%f : tensor<6x8xf32>) -> tensor<6x8xf32>
  %g = tensor.empty() : tensor<7x8xf32>
  %m = tensor.extract_slice %g[1, 0] [6, 8] [1, 1] : tensor<7x8xf32> to tensor<6x8xf32>
  %t = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%p : tensor<6x8xf32>) outs(%m : tensor<6x8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.negf %a : f32
    linalg.yield %0 : f32
  } -> tensor<6x8xf32>
  %r = tensor.insert_slice %t into %g[1, 0] [6, 8] [1, 1] : tensor<6x8xf32> into tensor<7x8xf32>
  %h = tensor.extract_slice %r[0, 0] [1, 8] [1, 1] : tensor<7x8xf32> to tensor<1x8xf32>
  %i = linalg.generic {indexing_maps = [#id], iterator_types = ["parallel", "parallel"]} outs(%h : tensor<1x8xf32>) {
  ^bb0(%o: f32):
    linalg.yield %zero : f32
  } -> tensor<1x8xf32>
  %s = tensor.insert_slice %i into %r[0, 0] [1, 8] [1, 1] : tensor<1x8xf32> into tensor<7x8xf32>
  return %s : tensor<7x8xf32>
}
}
}

// -----
// Both nests keep two dimensions, since the second needs them; so the intermediate of dynamic size is
// in the buffer of the second result.
// CASE: intermediate_of_dynamic_size
// RUN: kiln-tile,cse
// SIZES: s0 = 5, s1 = 7
// CHECK: math.sqrt
// IMPLICIT-CHECK-NOT: memref.alloca
#id = affine_map<(d0, d1) -> (d0, d1)>
#all = affine_map<(d0, d1) -> ()>
module attributes {kiln.level = "scheduled"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%x: tensor<?x?xf32> {kiln.sizes = array<i64: -1, -2>}, %s0: index, %s1: index) -> (tensor<f32>, tensor<?x?xf32>) attributes {
  kiln.schedule = #kiln.schedule<"scalar", {block = 1}>
} {
  %zero = arith.constant 0.0 : f32
  %e0 = tensor.empty(%s0, %s1) : tensor<?x?xf32>
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<?x?xf32>) outs(%e0 : tensor<?x?xf32>) {
  ^bb0(%a: f32, %o: f32):
    %p = math.sin %a : f32
    linalg.yield %p : f32
  } -> tensor<?x?xf32>
  %e1 = tensor.empty() : tensor<f32>
  %f1 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<f32>) -> tensor<f32>
  %1 = linalg.generic {indexing_maps = [#id, #all], iterator_types = ["reduction", "reduction"]}
      ins(%0 : tensor<?x?xf32>) outs(%f1 : tensor<f32>) {
  ^bb0(%a: f32, %o: f32):
    %p = arith.mulf %a, %a : f32
    %q = arith.addf %o, %p : f32
    linalg.yield %q : f32
  } -> tensor<f32>
  %e2 = tensor.empty() : tensor<f32>
  %2 = linalg.generic {indexing_maps = [affine_map<() -> ()>, affine_map<() -> ()>], iterator_types = []}
      ins(%1 : tensor<f32>) outs(%e2 : tensor<f32>) {
  ^bb0(%a: f32, %o: f32):
    %p = math.sqrt %a : f32
    linalg.yield %p : f32
  } -> tensor<f32>
  %e3 = tensor.empty(%s0, %s1) : tensor<?x?xf32>
  %3 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%0 : tensor<?x?xf32>) outs(%e3 : tensor<?x?xf32>) {
  ^bb0(%a: f32, %o: f32):
    %i = linalg.index 0 : index
    %j = linalg.index 1 : index
    %u = arith.cmpi sge, %j, %i : index
    %p = arith.select %u, %a, %zero : f32
    linalg.yield %p : f32
  } -> tensor<?x?xf32>
  return %2, %3 : tensor<f32>, tensor<?x?xf32>
}
}
}

// -----
// The second maximum's nest computes the sine again, then from it the exponential.
// CASE: rematerialised_in_program_order
// RUN: kiln-tile,cse
// SIZES: s0 = 9
// CHECK-COUNT-2: math.sin
#id = affine_map<(d0) -> (d0)>
#all = affine_map<(d0) -> ()>
#one = affine_map<() -> ()>
module attributes {kiln.level = "scheduled"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%x: tensor<?xf32> {kiln.sizes = array<i64: -1>}, %s0: index) -> (tensor<f32>, tensor<f64>) attributes {
  kiln.schedule = #kiln.schedule<"scalar", {block = 1}>
} {
  %least = arith.constant 0xFF800000 : f32
  %wide = arith.constant 0xFFF0000000000000 : f64
  %e0 = tensor.empty(%s0) : tensor<?xf32>
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
      ins(%x : tensor<?xf32>) outs(%e0 : tensor<?xf32>) {
  ^bb0(%a: f32, %o: f32):
    %p = math.sin %a : f32
    linalg.yield %p : f32
  } -> tensor<?xf32>
  %e1 = tensor.empty(%s0) : tensor<?xf32>
  %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
      ins(%0 : tensor<?xf32>) outs(%e1 : tensor<?xf32>) {
  ^bb0(%a: f32, %o: f32):
    %p = math.exp %a : f32
    linalg.yield %p : f32
  } -> tensor<?xf32>
  %e2 = tensor.empty() : tensor<f32>
  %f2 = linalg.fill ins(%least : f32) outs(%e2 : tensor<f32>) -> tensor<f32>
  %2 = linalg.generic {indexing_maps = [#id, #id, #all], iterator_types = ["reduction"]}
      ins(%0, %1 : tensor<?xf32>, tensor<?xf32>) outs(%f2 : tensor<f32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.addf %a, %b : f32
    %q = arith.maximumf %o, %p : f32
    linalg.yield %q : f32
  } -> tensor<f32>
  %e3 = tensor.empty() : tensor<f32>
  %3 = linalg.generic {indexing_maps = [#one, #one], iterator_types = []}
      ins(%2 : tensor<f32>) outs(%e3 : tensor<f32>) {
  ^bb0(%a: f32, %o: f32):
    %p = arith.negf %a : f32
    linalg.yield %p : f32
  } -> tensor<f32>
  %e4 = tensor.empty() : tensor<f64>
  %f4 = linalg.fill ins(%wide : f64) outs(%e4 : tensor<f64>) -> tensor<f64>
  %4 = linalg.generic {indexing_maps = [#id, #id, #all], iterator_types = ["reduction"]}
      ins(%0, %1 : tensor<?xf32>, tensor<?xf32>) outs(%f4 : tensor<f64>) {
  ^bb0(%a: f32, %b: f32, %o: f64):
    %p = arith.subf %a, %b : f32
    %q = arith.extf %p : f32 to f64
    %r = arith.maximumf %o, %q : f64
    linalg.yield %r : f64
  } -> tensor<f64>
  return %3, %4 : tensor<f32>, tensor<f64>
}
}
}

// -----
// The division writes its result before the last nest computes the exponential again, so that the
// result's buffer cannot hold the sine: it is computed again too.
// CASE: source_that_a_result_would_overwrite
// RUN: kiln-tile,cse
// SIZES: s0 = 5, s1 = 7
// CHECK-COUNT-3: math.sin
#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
module attributes {kiln.level = "scheduled"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%x: tensor<?x?xf64> {kiln.sizes = array<i64: -1, -2>}, %s0: index, %s1: index) -> (tensor<?x?xf64>, tensor<?x?xf16>) attributes {
  kiln.schedule = #kiln.schedule<"scalar", {block = 1}>
} {
  %zero = arith.constant 0.0 : f32
  %e0 = tensor.empty(%s0, %s1) : tensor<?x?xf64>
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<?x?xf64>) outs(%e0 : tensor<?x?xf64>) {
  ^bb0(%a: f64, %o: f64):
    %p = math.sin %a : f64
    linalg.yield %p : f64
  } -> tensor<?x?xf64>
  %e1 = tensor.empty(%s0, %s1) : tensor<?x?xf32>
  %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%0 : tensor<?x?xf64>) outs(%e1 : tensor<?x?xf32>) {
  ^bb0(%a: f64, %o: f32):
    %p = arith.truncf %a : f64 to f32
    %q = math.exp %p : f32
    linalg.yield %q : f32
  } -> tensor<?x?xf32>
  %e2 = tensor.empty(%s0) : tensor<?xf32>
  %f2 = linalg.fill ins(%zero : f32) outs(%e2 : tensor<?xf32>) -> tensor<?xf32>
  %2 = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%1 : tensor<?x?xf32>) outs(%f2 : tensor<?xf32>) {
  ^bb0(%a: f32, %o: f32):
    %p = arith.addf %o, %a : f32
    linalg.yield %p : f32
  } -> tensor<?xf32>
  %e3 = tensor.empty(%s0, %s1) : tensor<?x?xf64>
  %3 = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%0, %2 : tensor<?x?xf64>, tensor<?xf32>) outs(%e3 : tensor<?x?xf64>) {
  ^bb0(%a: f64, %b: f32, %o: f64):
    %p = arith.extf %b : f32 to f64
    %q = arith.divf %a, %p : f64
    linalg.yield %q : f64
  } -> tensor<?x?xf64>
  %e4 = tensor.empty(%s0) : tensor<?xf32>
  %f4 = linalg.fill ins(%zero : f32) outs(%e4 : tensor<?xf32>) -> tensor<?xf32>
  %4 = linalg.generic {indexing_maps = [#id, #row, #row], iterator_types = ["parallel", "reduction"]}
      ins(%1, %2 : tensor<?x?xf32>, tensor<?xf32>) outs(%f4 : tensor<?xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.divf %a, %b : f32
    %q = arith.addf %o, %p : f32
    linalg.yield %q : f32
  } -> tensor<?xf32>
  %e5 = tensor.empty(%s0, %s1) : tensor<?x?xf16>
  %5 = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%1, %4 : tensor<?x?xf32>, tensor<?xf32>) outs(%e5 : tensor<?x?xf16>) {
  ^bb0(%a: f32, %b: f32, %o: f16):
    %p = arith.divf %a, %b : f32
    %q = arith.truncf %p : f32 to f16
    linalg.yield %q : f16
  } -> tensor<?x?xf16>
  return %3, %5 : tensor<?x?xf64>, tensor<?x?xf16>
}
}
}

// -----
// Two blocks of keys, up to the last query of a block; maxima, sums and sums of values are
// rescaled from block to block.
// CASE: attention
// RUN: kiln-to-linalg,kiln-schedule{vector-bits=128},kiln-tile,cse
// CHECK: keys_block = 132
// CHECK: vector.shuffle
// IMPLICIT-CHECK-NOT: vector.gather
module attributes {kiln.level = "kernels"} {
module @k attributes {kiln.kernel = {kind = "attention"}} {
  func.func @k(%q: tensor<1x2x150x4xf32>, %k: tensor<1x2x150x4xf32>, %v: tensor<1x2x150x4xf32>) -> tensor<1x2x150x4xf32> {
    %0 = kiln.attention %q, %k, %v causal : tensor<1x2x150x4xf32>, tensor<1x2x150x4xf32>, tensor<1x2x150x4xf32>
    return %0 : tensor<1x2x150x4xf32>
  }
}
}

// -----
// CASE: blocked
// RUN: kiln-tile,cse
// CHECK: math.fma
#left = affine_map<(d0, d1, d2) -> (d0, d2)>
#right = affine_map<(d0, d1, d2) -> (d2, d1)>
#out = affine_map<(d0, d1, d2) -> (d0, d1)>
module attributes {kiln.level = "scheduled"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%x: tensor<40x96xf32>, %w: tensor<96x64xf32>) -> tensor<40x64xf32> attributes {kiln.schedule = #kiln.schedule<"blocked_gemm", {bits = 512, k_block = 64, m = 2, m_block = 40, n = 2, n_block = 64, pack = 1}>} {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<40x64xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<40x64xf32>) -> tensor<40x64xf32>
  %m = linalg.contract indexing_maps = [#left, #right, #out]
      ins(%x, %w : tensor<40x96xf32>, tensor<96x64xf32>) outs(%f : tensor<40x64xf32>) -> tensor<40x64xf32>
  return %m : tensor<40x64xf32>
}
}
}

// -----
// An M-contiguous left operand and a K-contiguous right one are packed by transposes in registers.
// CASE: blocked_transposed
// RUN: kiln-tile,cse
// CHECK: vector.shuffle
// CHECK: math.fma
#left = affine_map<(m, n, k) -> (k, m)>
#right = affine_map<(m, n, k) -> (n, k)>
#sum = affine_map<(m, n, k) -> (m, n)>
module attributes {kiln.level = "scheduled"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%x: tensor<32x8xf32> {kiln.sizes = array<i64: 32, 8>}, %w: tensor<8x32xf32> {kiln.sizes = array<i64: 8, 32>}) -> tensor<8x8xf32> attributes {kiln.schedule = #kiln.schedule<"blocked_gemm", {bits = 128 : i64, k_block = 32 : i64, m = 2 : i64, m_block = 8 : i64, n = 1 : i64, n_block = 8 : i64, pack = 1 : i64}>} {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<8x8xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<8x8xf32>) -> tensor<8x8xf32>
  %c = linalg.contract indexing_maps = [#left, #right, #sum] ins(%x, %w : tensor<32x8xf32>, tensor<8x32xf32>) outs(%f : tensor<8x8xf32>) -> tensor<8x8xf32>
  return %c : tensor<8x8xf32>
}
}
}

// -----
// CASE: pairs
// NEEDS: avx512bf16
// RUN: kiln-tile,cse
// CHECK: vector.interleave
// CHECK: x86vector.avx512.dot
#left = affine_map<(d0, d1, d2) -> (d0, d2)>
#right = affine_map<(d0, d1, d2) -> (d2, d1)>
#out = affine_map<(d0, d1, d2) -> (d0, d1)>
#id = affine_map<(d0, d1) -> (d0, d1)>
module attributes {kiln.level = "scheduled"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%x: tensor<40x71xbf16>, %w: tensor<71x64xbf16>) -> tensor<40x64xbf16> attributes {kiln.schedule = #kiln.schedule<"dot_gemm", {bits = 512, k_block = 96, m = 2, m_block = 40, n = 2, n_block = 64, pack = 1}>} {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<40x64xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<40x64xf32>) -> tensor<40x64xf32>
  %m = linalg.contract indexing_maps = [#left, #right, #out]
      ins(%x, %w : tensor<40x71xbf16>, tensor<71x64xbf16>) outs(%f : tensor<40x64xf32>) -> tensor<40x64xf32>
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
// NEEDS: amx-bf16
// RUN: kiln-tile,cse
// CHECK: amx.tile_mulf
#left = affine_map<(d0, d1, d2) -> (d0, d2)>
#right = affine_map<(d0, d1, d2) -> (d2, d1)>
#out = affine_map<(d0, d1, d2) -> (d0, d1)>
#id = affine_map<(d0, d1) -> (d0, d1)>
module attributes {kiln.level = "scheduled"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%x: tensor<40x71xbf16>, %w: tensor<71x64xbf16>) -> tensor<40x64xbf16> attributes {kiln.schedule = #kiln.schedule<"amx_gemm", {bits = 512, k_block = 96, m = 32, m_block = 64, n = 2, n_block = 64, pack = 1}>} {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<40x64xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<40x64xf32>) -> tensor<40x64xf32>
  %m = linalg.contract indexing_maps = [#left, #right, #out]
      ins(%x, %w : tensor<40x71xbf16>, tensor<71x64xbf16>) outs(%f : tensor<40x64xf32>) -> tensor<40x64xf32>
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
