// RUN: kiln-gpu-schedule,kiln-gpu-tile,cse

// CASE: elementwise
// SIZES: s0 = 9
// CHECK: gpu.block_id
// CHECK: vector.load
// IMPLICIT-CHECK-NOT: tensor
// IMPLICIT-CHECK-NOT: vector.maskedstore
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
// Rows of 77 elements are padded to 80: four single elements of a thread are read before one is
// stored.
// CASE: elementwise_unrolled
// CHECK-COUNT-4: memref.load
// CHECK: memref.store
// IMPLICIT-CHECK-NOT: tensor
#id = affine_map<(d0, d1) -> (d0, d1)>
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%x: tensor<40x77xf16> {kiln.sizes = array<i64: 40, 77>}) -> tensor<40x80xf16> attributes {kiln.schedule = #kiln.schedule<"elementwise", {threads = 64 : i64, unroll = 4 : i64, vector = 1 : i64}>} {
  %e = tensor.empty() : tensor<40x80xf16>
  %o = tensor.extract_slice %e[0, 0] [40, 77] [1, 1] : tensor<40x80xf16> to tensor<40x77xf16>
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<40x77xf16>) outs(%o : tensor<40x77xf16>) {
  ^bb0(%a: f16, %b: f16):
    %0 = arith.negf %a : f16
    linalg.yield %0 : f16
  } -> tensor<40x77xf16>
  %w = tensor.insert_slice %r into %e[0, 0] [40, 77] [1, 1] : tensor<40x77xf16> into tensor<40x80xf16>
  %t = tensor.extract_slice %w[0, 77] [40, 3] [1, 1] : tensor<40x80xf16> to tensor<40x3xf16>
  %f = linalg.generic {indexing_maps = [#id], iterator_types = ["parallel", "parallel"]} outs(%t : tensor<40x3xf16>) {
  ^bb0(%b: f16):
    %0 = arith.constant 0.0 : f16
    linalg.yield %0 : f16
  } -> tensor<40x3xf16>
  %y = tensor.insert_slice %f into %w[0, 77] [40, 3] [1, 1] : tensor<40x3xf16> into tensor<40x80xf16>
  return %y : tensor<40x80xf16>
}
}
}

// -----
// Updates of many tensors are a loop each, which begins at the CTA behind those of the loops before.
// CASE: elementwise_of_many_tensors
// CHECK-COUNT-9: scf.for
// IMPLICIT-CHECK-NOT: tensor
#id = affine_map<(d0) -> (d0)>
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%x0: tensor<300xf32> {kiln.sizes = array<i64: 300>}, %x1: tensor<8xf32> {kiln.sizes = array<i64: 8>}, %x2: tensor<9xf32> {kiln.sizes = array<i64: 9>}, %x3: tensor<301xf32> {kiln.sizes = array<i64: 301>}, %x4: tensor<10xf32> {kiln.sizes = array<i64: 10>}, %x5: tensor<11xf32> {kiln.sizes = array<i64: 11>}, %x6: tensor<2000xf32> {kiln.sizes = array<i64: 2000>}, %x7: tensor<12xf32> {kiln.sizes = array<i64: 12>}, %x8: tensor<13xf32> {kiln.sizes = array<i64: 13>}) -> (tensor<300xf32>, tensor<8xf32>, tensor<9xf32>, tensor<301xf32>, tensor<10xf32>, tensor<11xf32>, tensor<2000xf32>, tensor<12xf32>, tensor<13xf32>) {
  %e0 = tensor.empty() : tensor<300xf32>
  %r0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x0 : tensor<300xf32>) outs(%e0 : tensor<300xf32>) {
  ^bb0(%a: f32, %o: f32):
    %p = arith.addf %a, %a : f32
    linalg.yield %p : f32
  } -> tensor<300xf32>
  %e1 = tensor.empty() : tensor<8xf32>
  %r1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x1 : tensor<8xf32>) outs(%e1 : tensor<8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %p = arith.addf %a, %a : f32
    linalg.yield %p : f32
  } -> tensor<8xf32>
  %e2 = tensor.empty() : tensor<9xf32>
  %r2 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x2 : tensor<9xf32>) outs(%e2 : tensor<9xf32>) {
  ^bb0(%a: f32, %o: f32):
    %p = arith.addf %a, %a : f32
    linalg.yield %p : f32
  } -> tensor<9xf32>
  %e3 = tensor.empty() : tensor<301xf32>
  %r3 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x3 : tensor<301xf32>) outs(%e3 : tensor<301xf32>) {
  ^bb0(%a: f32, %o: f32):
    %p = arith.addf %a, %a : f32
    linalg.yield %p : f32
  } -> tensor<301xf32>
  %e4 = tensor.empty() : tensor<10xf32>
  %r4 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x4 : tensor<10xf32>) outs(%e4 : tensor<10xf32>) {
  ^bb0(%a: f32, %o: f32):
    %p = arith.addf %a, %a : f32
    linalg.yield %p : f32
  } -> tensor<10xf32>
  %e5 = tensor.empty() : tensor<11xf32>
  %r5 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x5 : tensor<11xf32>) outs(%e5 : tensor<11xf32>) {
  ^bb0(%a: f32, %o: f32):
    %p = arith.addf %a, %a : f32
    linalg.yield %p : f32
  } -> tensor<11xf32>
  %e6 = tensor.empty() : tensor<2000xf32>
  %r6 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x6 : tensor<2000xf32>) outs(%e6 : tensor<2000xf32>) {
  ^bb0(%a: f32, %o: f32):
    %p = arith.addf %a, %a : f32
    linalg.yield %p : f32
  } -> tensor<2000xf32>
  %e7 = tensor.empty() : tensor<12xf32>
  %r7 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x7 : tensor<12xf32>) outs(%e7 : tensor<12xf32>) {
  ^bb0(%a: f32, %o: f32):
    %p = arith.addf %a, %a : f32
    linalg.yield %p : f32
  } -> tensor<12xf32>
  %e8 = tensor.empty() : tensor<13xf32>
  %r8 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x8 : tensor<13xf32>) outs(%e8 : tensor<13xf32>) {
  ^bb0(%a: f32, %o: f32):
    %p = arith.addf %a, %a : f32
    linalg.yield %p : f32
  } -> tensor<13xf32>
  return %r0, %r1, %r2, %r3, %r4, %r5, %r6, %r7, %r8 : tensor<300xf32>, tensor<8xf32>, tensor<9xf32>, tensor<301xf32>, tensor<10xf32>, tensor<11xf32>, tensor<2000xf32>, tensor<12xf32>, tensor<13xf32>
}
}
}

// -----
// CASE: softmax
// SIZES: s0 = 11
// CHECK: gpu.shuffle
// IMPLICIT-CHECK-NOT: gpu.barrier
// IMPLICIT-CHECK-NOT: , 3>
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
// CASE: softmax_with_two_warps_per_row
// SIZES: s0 = 3
// CHECK: , 3>
// CHECK: arith.select
// CHECK: gpu.shuffle
// CHECK: gpu.barrier
#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%x: tensor<?x100xf32> {kiln.sizes = array<i64: -1, 100>}, %s0: index) -> tensor<?x100xf32> attributes {kiln.schedule = #kiln.schedule<"register_rows", {cluster = 1 : i64, row_threads = 64 : i64, rows_per_cta = 1 : i64, unroll = 2 : i64, vector = 1 : i64}>} {
  %least = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty(%s0) : tensor<?x100xf32>
  %rows = tensor.empty(%s0) : tensor<?xf32>
  %m0 = linalg.fill ins(%least : f32) outs(%rows : tensor<?xf32>) -> tensor<?xf32>
  %m = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<?x100xf32>) outs(%m0 : tensor<?xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.maximumf %a, %o : f32
    linalg.yield %0 : f32
  } -> tensor<?xf32>
  %p = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]} ins(%x, %m : tensor<?x100xf32>, tensor<?xf32>) outs(%e : tensor<?x100xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.subf %a, %b : f32
    %1 = math.exp %0 : f32
    linalg.yield %1 : f32
  } -> tensor<?x100xf32>
  %t0 = linalg.fill ins(%zero : f32) outs(%rows : tensor<?xf32>) -> tensor<?xf32>
  %t = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]} ins(%p : tensor<?x100xf32>) outs(%t0 : tensor<?xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.addf %a, %o : f32
    linalg.yield %0 : f32
  } -> tensor<?xf32>
  %r = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]} ins(%p, %t : tensor<?x100xf32>, tensor<?xf32>) outs(%e : tensor<?x100xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.divf %a, %b : f32
    linalg.yield %0 : f32
  } -> tensor<?x100xf32>
  return %r : tensor<?x100xf32>
}
}
}

// -----
// CASE: softmax_with_two_ctas_per_row
// CHECK: nvvm.mapa
// CHECK: nvvm.cluster.wait
#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%x: tensor<3x100xf32> {kiln.sizes = array<i64: 3, 100>}) -> tensor<3x100xf32> attributes {kiln.schedule = #kiln.schedule<"register_rows", {cluster = 2 : i64, row_threads = 64 : i64, rows_per_cta = 1 : i64, unroll = 1 : i64, vector = 1 : i64}>} {
  %least = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<3x100xf32>
  %rows = tensor.empty() : tensor<3xf32>
  %m0 = linalg.fill ins(%least : f32) outs(%rows : tensor<3xf32>) -> tensor<3xf32>
  %m = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<3x100xf32>) outs(%m0 : tensor<3xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.maximumf %a, %o : f32
    linalg.yield %0 : f32
  } -> tensor<3xf32>
  %p = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]} ins(%x, %m : tensor<3x100xf32>, tensor<3xf32>) outs(%e : tensor<3x100xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.subf %a, %b : f32
    %1 = math.exp %0 : f32
    linalg.yield %1 : f32
  } -> tensor<3x100xf32>
  %t0 = linalg.fill ins(%zero : f32) outs(%rows : tensor<3xf32>) -> tensor<3xf32>
  %t = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]} ins(%p : tensor<3x100xf32>) outs(%t0 : tensor<3xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.addf %a, %o : f32
    linalg.yield %0 : f32
  } -> tensor<3xf32>
  %r = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]} ins(%p, %t : tensor<3x100xf32>, tensor<3xf32>) outs(%e : tensor<3x100xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.divf %a, %b : f32
    linalg.yield %0 : f32
  } -> tensor<3x100xf32>
  return %r : tensor<3x100xf32>
}
}
}

// -----
// CASE: too_few_registers_for_a_row
// expected-error @+6 {{cluster * row_threads * unroll * vector is less than the 100 elements of its rows}}
#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
#column = affine_map<(d0, d1) -> (d1)>
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%x: tensor<?x100xf32> {kiln.sizes = array<i64: -1, 100>}, %s0: index) -> tensor<?x100xf32> attributes {kiln.schedule = #kiln.schedule<"register_rows", {cluster = 1 : i64, row_threads = 32 : i64, rows_per_cta = 1 : i64, unroll = 3 : i64, vector = 1 : i64}>} {
  %least = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty(%s0) : tensor<?x100xf32>
  %rows = tensor.empty(%s0) : tensor<?xf32>
  %m0 = linalg.fill ins(%least : f32) outs(%rows : tensor<?xf32>) -> tensor<?xf32>
  %m = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<?x100xf32>) outs(%m0 : tensor<?xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.maximumf %a, %o : f32
    linalg.yield %0 : f32
  } -> tensor<?xf32>
  %p = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]} ins(%x, %m : tensor<?x100xf32>, tensor<?xf32>) outs(%e : tensor<?x100xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.subf %a, %b : f32
    %1 = math.exp %0 : f32
    linalg.yield %1 : f32
  } -> tensor<?x100xf32>
  %t0 = linalg.fill ins(%zero : f32) outs(%rows : tensor<?xf32>) -> tensor<?xf32>
  %t = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]} ins(%p : tensor<?x100xf32>) outs(%t0 : tensor<?xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.addf %a, %o : f32
    linalg.yield %0 : f32
  } -> tensor<?xf32>
  %r = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]} ins(%p, %t : tensor<?x100xf32>, tensor<?xf32>) outs(%e : tensor<?x100xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.divf %a, %b : f32
    linalg.yield %0 : f32
  } -> tensor<?x100xf32>
  return %r : tensor<?x100xf32>
}
}
}

// -----
// CASE: vector_width_does_not_divide_rows
// expected-error @+6 {{its rows can be read 1 at a time}}
#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
#column = affine_map<(d0, d1) -> (d1)>
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%x: tensor<?x101xf32> {kiln.sizes = array<i64: -1, 101>}, %s0: index) -> tensor<?x101xf32> attributes {kiln.schedule = #kiln.schedule<"register_rows", {cluster = 1 : i64, row_threads = 32 : i64, rows_per_cta = 1 : i64, unroll = 2 : i64, vector = 4 : i64}>} {
  %least = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty(%s0) : tensor<?x101xf32>
  %rows = tensor.empty(%s0) : tensor<?xf32>
  %m0 = linalg.fill ins(%least : f32) outs(%rows : tensor<?xf32>) -> tensor<?xf32>
  %m = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<?x101xf32>) outs(%m0 : tensor<?xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.maximumf %a, %o : f32
    linalg.yield %0 : f32
  } -> tensor<?xf32>
  %p = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]} ins(%x, %m : tensor<?x101xf32>, tensor<?xf32>) outs(%e : tensor<?x101xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.subf %a, %b : f32
    %1 = math.exp %0 : f32
    linalg.yield %1 : f32
  } -> tensor<?x101xf32>
  %t0 = linalg.fill ins(%zero : f32) outs(%rows : tensor<?xf32>) -> tensor<?xf32>
  %t = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]} ins(%p : tensor<?x101xf32>) outs(%t0 : tensor<?xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.addf %a, %o : f32
    linalg.yield %0 : f32
  } -> tensor<?xf32>
  %r = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]} ins(%p, %t : tensor<?x101xf32>, tensor<?xf32>) outs(%e : tensor<?x101xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.divf %a, %b : f32
    linalg.yield %0 : f32
  } -> tensor<?x101xf32>
  return %r : tensor<?x101xf32>
}
}
}

// -----
// CASE: column_sum
// CHECK: iter_args
// IMPLICIT-CHECK-NOT: gpu.shuffle
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
// CHECK: gpu.barrier
// CHECK: vector.load
// CHECK: , 3>
#id = affine_map<(d0, d1) -> (d0, d1)>
#column = affine_map<(d0, d1) -> (d1)>
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%x: tensor<512x264xf32> {kiln.sizes = array<i64: 512, 264>}) -> tensor<264xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<264xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<264xf32>) -> tensor<264xf32>
  %r = linalg.generic {indexing_maps = [#id, #column], iterator_types = ["reduction", "parallel"]} ins(%x : tensor<512x264xf32>) outs(%f : tensor<264xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.addf %a, %o : f32
    linalg.yield %0 : f32
  } -> tensor<264xf32>
  return %r : tensor<264xf32>
}
}
}

// -----
// CASE: matmul_with_bias
// CHECK: math.fma
#id = affine_map<(d0, d1) -> (d0, d1)>
#column = affine_map<(d0, d1) -> (d1)>
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%a: tensor<8x64xf32> {kiln.sizes = array<i64: 8, 64>}, %b: tensor<1x64x32xf32> {kiln.sizes = array<i64: 1, 64, 32>}, %bias: tensor<32xf32> {kiln.sizes = array<i64: 32>}) -> tensor<8x32xf32> attributes {kiln.schedule = #kiln.schedule<"naive_contraction", {block_k = 16 : i64, block_m = 64 : i64, block_n = 64 : i64, thread_m = 4 : i64, thread_n = 4 : i64}>} {
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
// Loads of the next tiles overlap with the FMAs; a thread loads four columns at once.
// CASE: gemm_f32
// CHECK: nvvm.cp.async.shared.global
// CHECK: llvm.load
// CHECK: math.fma
#id = affine_map<(d0, d1) -> (d0, d1)>
#column = affine_map<(d0, d1) -> (d1)>
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%a: tensor<8x64xf32> {kiln.sizes = array<i64: 8, 64>}, %b: tensor<1x64x32xf32> {kiln.sizes = array<i64: 1, 64, 32>}, %bias: tensor<32xf32> {kiln.sizes = array<i64: 32>}) -> tensor<8x32xf32> attributes {kiln.schedule = #kiln.schedule<"simt_gemm", {block_k = 8 : i64, block_m = 32 : i64, block_n = 32 : i64, ctas_per_sm = 1 : i64, stages = 2 : i64, thread_m = 4 : i64, thread_n = 4 : i64, unroll = 1 : i64}>} {
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
// CASE: transpose
// CHECK: vector.load
// CHECK: arith.xori
// CHECK: gpu.barrier
// CHECK: vector.store
#id = affine_map<(d0, d1) -> (d0, d1)>
#turned = affine_map<(d0, d1) -> (d1, d0)>
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%x: tensor<64x96xbf16> {kiln.sizes = array<i64: 64, 96>}) -> tensor<96x64xbf16> {
  %e = tensor.empty() : tensor<96x64xbf16>
  %r = linalg.generic {indexing_maps = [#turned, #id], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<64x96xbf16>) outs(%e : tensor<96x64xbf16>) {
  ^bb0(%a: bf16, %o: bf16):
    linalg.yield %a : bf16
  } -> tensor<96x64xbf16>
  return %r : tensor<96x64xbf16>
}
}
}

// -----
// CASE: transpose_of_dynamic_size
// SIZES: s0 = 70, s1 = 45
// CHECK: gpu.barrier
// IMPLICIT-CHECK-NOT: vector.store
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
// CASE: transpose_schedule_without_a_transpose
// expected-error @+5 {{has no operand in another dimension order than its result}}
#id = affine_map<(d0, d1) -> (d0, d1)>
#turned = affine_map<(d0, d1) -> (d1, d0)>
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%x: tensor<64x96xbf16> {kiln.sizes = array<i64: 64, 96>}) -> tensor<64x96xbf16> attributes {kiln.schedule = #kiln.schedule<"transpose", {threads = 256, tile_columns = 64, tile_rows = 64, vector = 8}>} {
  %e = tensor.empty() : tensor<64x96xbf16>
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<64x96xbf16>) outs(%e : tensor<64x96xbf16>) {
  ^bb0(%a: bf16, %o: bf16):
    linalg.yield %a : bf16
  } -> tensor<64x96xbf16>
  return %r : tensor<64x96xbf16>
}
}
}

// -----
// CASE: reduction_of_few_rows
// SIZES: s0 = 5
// CHECK: gpu.shuffle
// CHECK: gpu.barrier
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
// CASE: gemm_wgmma
// CHECK: kiln.tile.tma_load
// CHECK: kiln.tile.mma {{.*}} init
// CHECK: kiln.tile.mma_wait 1
// CHECK: kiln.tile.epilogue
// IMPLICIT-CHECK-NOT: nvvm.
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%a: tensor<130x128xbf16> {kiln.sizes = array<i64: 130, 128>}, %b: tensor<128x64xbf16> {kiln.sizes = array<i64: 128, 64>}, %bias: tensor<64xf32> {kiln.sizes = array<i64: 64>}) -> tensor<130x64xbf16> attributes {kiln.schedule = #kiln.schedule<"wgmma_gemm", {block_k = 64 : i64, block_m = 64 : i64, block_n = 64 : i64, ctas_per_sm = 1 : i64, split_k = 1 : i64, stages = 2 : i64}>} {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<130x64xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<130x64xf32>) -> tensor<130x64xf32>
  %c = linalg.contract indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>]
      ins(%a, %b : tensor<130x128xbf16>, tensor<128x64xbf16>) outs(%f : tensor<130x64xf32>) -> tensor<130x64xf32>
  %g = tensor.empty() : tensor<130x64xbf16>
  %r = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (n)>, affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]}
      ins(%c, %bias : tensor<130x64xf32>, tensor<64xf32>) outs(%g : tensor<130x64xbf16>) {
  ^bb0(%x: f32, %y: f32, %o: bf16):
    %0 = arith.addf %x, %y : f32
    %1 = arith.truncf %0 : f32 to bf16
    linalg.yield %1 : bf16
  } -> tensor<130x64xbf16>
  return %r : tensor<130x64xbf16>
}
}
}

// -----
// An epilogue says how far its 16-bit operands are contiguous and aligned.
// CASE: gemm_with_a_residual
// CHECK: kiln.tile.epilogue{{.*}} vectors of 2 aligned to 8
// CHECK: vector.load {{.*}} vector<2xbf16>
// IMPLICIT-CHECK-NOT: nvvm.
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%a: tensor<130x128xbf16> {kiln.sizes = array<i64: 130, 128>}, %b: tensor<64x128xbf16> {kiln.sizes = array<i64: 64, 128>}, %residual: tensor<130x64xbf16> {kiln.sizes = array<i64: 130, 64>}) -> tensor<130x64xbf16> attributes {kiln.schedule = #kiln.schedule<"wgmma_gemm", {block_k = 64 : i64, block_m = 64 : i64, block_n = 64 : i64, ctas_per_sm = 1 : i64, split_k = 1 : i64, stages = 2 : i64}>} {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<130x64xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<130x64xf32>) -> tensor<130x64xf32>
  %c = linalg.contract indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
      ins(%a, %b : tensor<130x128xbf16>, tensor<64x128xbf16>) outs(%f : tensor<130x64xf32>) -> tensor<130x64xf32>
  %g = tensor.empty() : tensor<130x64xbf16>
  %r = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]}
      ins(%c, %residual : tensor<130x64xf32>, tensor<130x64xbf16>) outs(%g : tensor<130x64xbf16>) {
  ^bb0(%x: f32, %y: bf16, %o: bf16):
    %0 = arith.extf %y : bf16 to f32
    %1 = arith.addf %x, %0 : f32
    %2 = arith.truncf %1 : f32 to bf16
    linalg.yield %2 : bf16
  } -> tensor<130x64xbf16>
  return %r : tensor<130x64xbf16>
}
}
}

// -----
// Split-K: each of two CTAs accumulates half of K and finishes 32 rows.
// CASE: gemm_split_k_by_a_cluster
// CHECK: kiln.tile.cluster_reduce
// CHECK: kiln.tile.epilogue
// IMPLICIT-CHECK-NOT: nvvm.
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%a: tensor<64x256xbf16> {kiln.sizes = array<i64: 64, 256>}, %b: tensor<64x256xbf16> {kiln.sizes = array<i64: 64, 256>}) -> tensor<64x64xbf16> attributes {kiln.schedule = #kiln.schedule<"wgmma_gemm", {block_k = 64 : i64, block_m = 64 : i64, block_n = 64 : i64, ctas_per_sm = 0 : i64, split_k = 2 : i64, stages = 2 : i64}>} {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<64x64xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<64x64xf32>) -> tensor<64x64xf32>
  %c = linalg.contract indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
      ins(%a, %b : tensor<64x256xbf16>, tensor<64x256xbf16>) outs(%f : tensor<64x64xf32>) -> tensor<64x64xf32>
  %g = tensor.empty() : tensor<64x64xbf16>
  %r = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]}
      ins(%c : tensor<64x64xf32>) outs(%g : tensor<64x64xbf16>) {
  ^bb0(%x: f32, %o: bf16):
    %0 = arith.truncf %x : f32 to bf16
    linalg.yield %0 : bf16
  } -> tensor<64x64xbf16>
  return %r : tensor<64x64xbf16>
}
}
}

// -----
// A tile program: 128 queries and 16 keys a tile.
// CASE: attention
// CHECK: kiln.tile.tma_load
// CHECK: kiln.tile.mma {{.*}}transposed
// CHECK: kiln.tile.mma_wait 1
// CHECK: fastmath<afn>
// IMPLICIT-CHECK-NOT: nvvm.
#query = affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1 * 2 + d2, d3, d5)>
#key = affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1, d4, d5)>
#value = affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1, d5, d4)>
#result = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3, d4)>
module attributes {kiln.level = "linalg"} {
  module @k attributes {kiln.kernel = {kind = "attention"}} {
    func.func @k(%arg0: tensor<1x4x256x64xbf16> {kiln.sizes = array<i64: 1, 4, 256, 64>}, %arg1: tensor<1x2x96x64xbf16> {kiln.sizes = array<i64: 1, 2, 96, 64>}, %arg2: tensor<1x2x96x64xbf16> {kiln.sizes = array<i64: 1, 2, 96, 64>}) -> tensor<1x4x256x64xbf16> attributes {kiln.schedule = #kiln.schedule<"attention", {block_kv = 16 : i64, ctas = 0 : i64, kv_stages = 2 : i64, q_stages = 1 : i64, warpgroups = 2 : i64}>} {
      %cst_1 = arith.constant 0.125 : f32
      %0 = tensor.empty() : tensor<1x2x2x256x64xbf16>
      %14 = kiln.structured.attention sizes [1, 2, 2, 256, 96, 64, 64] lengths []
          inputs(%arg0, %arg1 : tensor<1x4x256x64xbf16>, tensor<1x2x96x64xbf16>) modifiers()
          values(%arg2 : tensor<1x2x96x64xbf16>) outs(%0 : tensor<1x2x2x256x64xbf16>) maps = [#query, #key, #value, #result] factors {
      ^bb0(%q: bf16, %k: bf16):
        %1 = arith.extf %q : bf16 to f32
        %2 = arith.extf %k : bf16 to f32
        kiln.yield %1, %2 : f32, f32
      } score {
      ^bb0(%s: f32):
        %1 = arith.mulf %s, %cst_1 : f32
        kiln.yield %1, %1 : f32, f32
      } weighted {
      ^bb0(%v: bf16):
        %1 = arith.extf %v : bf16 to f32
        kiln.yield %1 : f32
      } -> tensor<1x2x2x256x64xbf16>
      %collapsed = tensor.collapse_shape %14 [[0], [1, 2], [3], [4]] : tensor<1x2x2x256x64xbf16> into tensor<1x4x256x64xbf16>
      return %collapsed : tensor<1x4x256x64xbf16>
    }
  }
}

// -----
// The derivative by queries: 128 queries stay, keys are streamed. Tiles of keys up to the diagonal need no mask.
// CASE: attention_gradient_by_queries
// CHECK: kiln.tile.mma_wait 1
// CHECK: arith.cmpi sgt
// IMPLICIT-CHECK-NOT: nvvm.
#query = affine_map<(d0, d1, d2, d3) -> (d0, d1, d3)>
#key = affine_map<(d0, d1, d2, d3) -> (d0, d2, d3)>
#row = affine_map<(d0, d1) -> (d0, d1)>
#result = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
module attributes {kiln.level = "linalg"} {
  module @k attributes {kiln.kernel = {kind = "attention"}} {
    func.func @k(%arg0: tensor<4x200x8xbf16> {kiln.sizes = array<i64: 4, 200, 8>}, %arg1: tensor<4x96x8xbf16> {kiln.sizes = array<i64: 4, 96, 8>}, %arg2: tensor<4x96x8xbf16> {kiln.sizes = array<i64: 4, 96, 8>}, %arg3: tensor<4x200x8xbf16> {kiln.sizes = array<i64: 4, 200, 8>}, %arg4: tensor<4x200xf32> {kiln.sizes = array<i64: 4, 200>}, %arg5: tensor<4x200xf32> {kiln.sizes = array<i64: 4, 200>}) -> tensor<4x200x8xbf16> attributes {kiln.schedule = #kiln.schedule<"attention_gradient", {block = 16 : i64, overlap = 0 : i64, registers = 0 : i64, stages = 2 : i64, warpgroups = 2 : i64}>} {
      %0 = tensor.empty() : tensor<4x200x8xbf16>
      %1 = kiln.structured.attention_gradient causal scale 0.35355339059327379 sizes [4, 200, 96, 8, 8]
          ins(%arg0, %arg1, %arg2, %arg3, %arg4, %arg5 : tensor<4x200x8xbf16>, tensor<4x96x8xbf16>, tensor<4x96x8xbf16>, tensor<4x200x8xbf16>, tensor<4x200xf32>, tensor<4x200xf32>)
          outs(%0 : tensor<4x200x8xbf16>)
          maps = [#query, #key, #key, #query, #row, #row, #result] -> tensor<4x200x8xbf16>
      return %1 : tensor<4x200x8xbf16>
    }
  }
}

// -----
// The derivatives by keys and values: 128 keys stay, in registers, and the queries of both heads that read them are streamed. Products of a
// tile follow those for the next tile's scores.
// CASE: attention_gradient_by_keys
// CHECK: kiln.tile.local_load {{.*}}#operand
// CHECK: kiln.tile.load prefetch
// CHECK: kiln.tile.mma_wait 3
// IMPLICIT-CHECK-NOT: nvvm.
module attributes {kiln.level = "linalg"} {
  module @k attributes {kiln.kernel = {kind = "attention"}} {
    func.func @k(%arg0: tensor<1x4x96x64xbf16> {kiln.sizes = array<i64: 1, 4, 96, 64>}, %arg1: tensor<1x2x200x64xbf16> {kiln.sizes = array<i64: 1, 2, 200, 64>}, %arg2: tensor<1x2x200x32xbf16> {kiln.sizes = array<i64: 1, 2, 200, 32>}, %arg3: tensor<1x4x96x32xbf16> {kiln.sizes = array<i64: 1, 4, 96, 32>}, %arg4: tensor<1x4x96xf32> {kiln.sizes = array<i64: 1, 4, 96>}, %arg5: tensor<1x4x96xf32> {kiln.sizes = array<i64: 1, 4, 96>}) -> (tensor<1x2x200x64xbf16>, tensor<1x2x200x32xbf16>) attributes {kiln.schedule = #kiln.schedule<"attention_gradient", {block = 16 : i64, overlap = 1 : i64, registers = 1 : i64, stages = 2 : i64, warpgroups = 2 : i64}>} {
      %0 = tensor.empty() : tensor<1x2x200x64xbf16>
      %1 = tensor.empty() : tensor<1x2x200x32xbf16>
      %2:2 = kiln.structured.attention_gradient scale 0.125 sizes [1, 2, 2, 96, 200, 64, 32]
          ins(%arg0, %arg1, %arg2, %arg3, %arg4, %arg5 : tensor<1x4x96x64xbf16>, tensor<1x2x200x64xbf16>, tensor<1x2x200x32xbf16>, tensor<1x4x96x32xbf16>, tensor<1x4x96xf32>, tensor<1x4x96xf32>)
          outs(%0, %1 : tensor<1x2x200x64xbf16>, tensor<1x2x200x32xbf16>)
          maps = [affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1 * 2 + d2, d3, d5)>, affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1, d4, d5)>, affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1, d4, d5)>, affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1 * 2 + d2, d3, d5)>,
                  affine_map<(d0, d1, d2, d3) -> (d0, d1 * 2 + d2, d3)>, affine_map<(d0, d1, d2, d3) -> (d0, d1 * 2 + d2, d3)>, affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d3, d4)>, affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d3, d4)>] -> tensor<1x2x200x64xbf16>, tensor<1x2x200x32xbf16>
      return %2#0, %2#1 : tensor<1x2x200x64xbf16>, tensor<1x2x200x32xbf16>
    }
  }
}

// -----
// Causal, with a bias: key tiles with masked keys have a loop of their own.
// CASE: attention_masked
// CHECK: kiln.tile.iota {{.*}}tensor<128xindex, #rows>
// CHECK: arith.cmpi sgt
// CHECK-COUNT-2: kiln.tile.mma_wait 1
#query = affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1 * 2 + d2, d3, d5)>
#key = affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1, d4, d5)>
#bias = affine_map<(d0, d1, d2, d3, d4) -> (d4)>
#value = affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1, d5, d4)>
#result = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3, d4)>
module attributes {kiln.level = "linalg"} {
  module @k attributes {kiln.kernel = {kind = "attention"}} {
    func.func @k(%arg0: tensor<1x4x200x8xbf16> {kiln.sizes = array<i64: 1, 4, 200, 8>}, %arg1: tensor<1x2x200x8xbf16> {kiln.sizes = array<i64: 1, 2, 200, 8>}, %arg2: tensor<1x2x200x8xbf16> {kiln.sizes = array<i64: 1, 2, 200, 8>}, %arg3: tensor<200xbf16> {kiln.sizes = array<i64: 200>}) -> tensor<1x4x200x8xbf16> attributes {kiln.schedule = #kiln.schedule<"attention", {block_kv = 16 : i64, ctas = 0 : i64, kv_stages = 2 : i64, q_stages = 1 : i64, warpgroups = 2 : i64}>} {
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
// A mask by query and key: TMA loads its tiles beside those of keys, and the map of scores takes
// their elements.
// CASE: attention_with_a_mask_in_memory
// CHECK: kiln.tile.pipeline : memref<2x128x16xi8, 3>
// CHECK-COUNT-4: kiln.tile.tma_load
// CHECK: kiln.tile.local_load {{.*}} -> tensor<128x16xi8, #accumulator>
// CHECK: kiln.tile.map fast({{.*}}tensor<128x16xi8, #accumulator>
#query = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d4)>
#key = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d3, d4)>
#mask = affine_map<(d0, d1, d2, d3) -> (d0, d2, d3)>
#value = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d4, d3)>
#result = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
module attributes {kiln.level = "linalg"} {
  module @k attributes {kiln.kernel = {kind = "attention"}} {
    func.func @k(%arg0: tensor<2x4x200x8xbf16> {kiln.sizes = array<i64: 2, 4, 200, 8>}, %arg1: tensor<2x4x208x8xbf16> {kiln.sizes = array<i64: 2, 4, 208, 8>}, %arg2: tensor<2x4x208x8xbf16> {kiln.sizes = array<i64: 2, 4, 208, 8>}, %arg3: tensor<2x200x208xi8> {kiln.sizes = array<i64: 2, 200, 208>}) -> tensor<2x4x200x8xbf16> attributes {kiln.schedule = #kiln.schedule<"attention", {block_kv = 16 : i64, ctas = 0 : i64, kv_stages = 2 : i64, q_stages = 1 : i64, warpgroups = 2 : i64}>} {
      %low = arith.constant 0xFF800000 : f32
      %scale = arith.constant 0.353553385 : f32
      %0 = tensor.empty() : tensor<2x4x200x8xbf16>
      %1 = kiln.structured.attention sizes [2, 4, 200, 208, 8, 8] lengths []
          inputs(%arg0, %arg1 : tensor<2x4x200x8xbf16>, tensor<2x4x208x8xbf16>) modifiers(%arg3 : tensor<2x200x208xi8>)
          values(%arg2 : tensor<2x4x208x8xbf16>) outs(%0 : tensor<2x4x200x8xbf16>) maps = [#query, #key, #mask, #value, #result] factors {
      ^bb0(%q: bf16, %k: bf16):
        %2 = arith.extf %q : bf16 to f32
        %3 = arith.extf %k : bf16 to f32
        kiln.yield %2, %3 : f32, f32
      } score {
      ^bb0(%s: f32, %m: i8):
        %2 = arith.mulf %s, %scale : f32
        %3 = arith.trunci %m : i8 to i1
        %4 = arith.select %3, %2, %low : f32
        kiln.yield %4, %4 : f32, f32
      } weighted {
      ^bb0(%v: bf16):
        %2 = arith.extf %v : bf16 to f32
        kiln.yield %2 : f32
      } -> tensor<2x4x200x8xbf16>
      return %1 : tensor<2x4x200x8xbf16>
    }
  }
}

// -----
// Split attention: keys of two query heads are distributed over the warps of two CTAs, 16 at a
// time.
// CASE: split_attention
// CHECK: nvvm.mma.sync
// CHECK: prmt.b32
// CHECK: nvvm.cluster.arrive
// CHECK: nvvm.mapa
// IMPLICIT-CHECK-NOT: tensor<
// IMPLICIT-CHECK-NOT: math.exp
#query = affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1 * 2 + d2, d3, d5)>
#key = affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1, d4, d5)>
#bias = affine_map<(d0, d1, d2, d3, d4) -> (d4)>
#value = affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1, d5, d4)>
#result = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3, d4)>
module attributes {kiln.level = "linalg"} {
  module @k attributes {kiln.kernel = {kind = "attention"}} {
    func.func @k(%arg0: tensor<1x4x200x8xbf16> {kiln.sizes = array<i64: 1, 4, 200, 8>}, %arg1: tensor<1x2x200x8xbf16> {kiln.sizes = array<i64: 1, 2, 200, 8>}, %arg2: tensor<1x2x200x8xbf16> {kiln.sizes = array<i64: 1, 2, 200, 8>}, %arg3: tensor<200xbf16> {kiln.sizes = array<i64: 200>}) -> tensor<1x4x200x8xbf16> attributes {kiln.schedule = #kiln.schedule<"split_attention", {block_kv = 16 : i64, block_q = 8 : i64, split_kv = 2 : i64, warps = 1 : i64}>} {
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
// CASE: convolution_wgmma
// SIZES: s0 = 5
// CHECK: kiln.tile.tma_load {{.*}}window
// CHECK: kiln.tile.epilogue
// IMPLICIT-CHECK-NOT: nvvm.
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%x: tensor<?x9x7x72xbf16> {kiln.sizes = array<i64: -1, 9, 7, 72>}, %w: tensor<40x3x3x72xbf16> {kiln.sizes = array<i64: 40, 3, 3, 72>}, %s0: index) -> tensor<?x5x4x40xbf16> attributes {kiln.schedule = #kiln.schedule<"wgmma_gemm", {block_k = 64 : i64, block_m = 64 : i64, block_n = 64 : i64, ctas_per_sm = 1 : i64, split_k = 1 : i64, stages = 2 : i64}>} {
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
// Nine filter taps; a thread computes 8 channels of adjacent pixels, with zeros out of bounds.
// CASE: depthwise_convolution
// SIZES: s0 = 3
// CHECK: affine.min
// CHECK: vector<8xbf16>
// IMPLICIT-CHECK-NOT: tensor<
#image = affine_map<(n, h, w, c, r, s) -> (n, h * 2 + r, w * 2 + s, c)>
#window = affine_map<(n, h, w, c, r, s) -> (r, s, 0, c)>
#sum = affine_map<(n, h, w, c, r, s) -> (n, h, w, c)>
#id = affine_map<(n, h, w, c) -> (n, h, w, c)>
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%x: tensor<?x9x13x24xbf16> {kiln.sizes = array<i64: -1, 9, 13, 24>}, %w: tensor<3x3x1x24xbf16> {kiln.sizes = array<i64: 3, 3, 1, 24>}, %s0: index) -> tensor<?x5x7x24xbf16> attributes {kiln.schedule = #kiln.schedule<"depthwise", {pixels = 4 : i64, threads = 32 : i64, vector = 8 : i64}>} {
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
// Kernels without TMA compare each index with the bounds of the image.
// CASE: padded_convolution_without_tma
// SIZES: s0 = 3
// IMPLICIT-CHECK-NOT: tensor.pad
// CHECK: arith.cmpi ult
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%x: tensor<?x9x7x72xbf16> {kiln.sizes = array<i64: -1, 9, 7, 72>}, %w: tensor<40x3x3x72xbf16> {kiln.sizes = array<i64: 40, 3, 3, 72>}, %s0: index) -> tensor<?x5x4x40xbf16> attributes {kiln.schedule = #kiln.schedule<"naive_contraction", {block_k = 8 : i64, block_m = 8 : i64, block_n = 8 : i64, thread_m = 1 : i64, thread_n = 1 : i64}>} {
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
// M = 3, N = 20; K is not a multiple of the step.
// CASE: skinny_gemm
// CHECK: nvvm.cp.async.bulk.prefetch
// CHECK: nvvm.griddepcontrol wait
// CHECK: vector.load
// CHECK: nvvm.mma.sync
// CHECK: gpu.barrier
// IMPLICIT-CHECK-NOT: tensor<
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%a: tensor<3x72xbf16> {kiln.sizes = array<i64: 3, 72>}, %b: tensor<20x72xbf16> {kiln.sizes = array<i64: 20, 72>}) -> tensor<3x20xbf16> attributes {kiln.dependent, kiln.schedule = #kiln.schedule<"skinny_gemm", {block_m = 16 : i64, prefetch = 512 : i64, stages = 0 : i64, unroll = 1 : i64, warps = 2 : i64}>} {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<3x20xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<3x20xf32>) -> tensor<3x20xf32>
  %c = linalg.contract indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
      ins(%a, %b : tensor<3x72xbf16>, tensor<20x72xbf16>) outs(%f : tensor<3x20xf32>) -> tensor<3x20xf32>
  %g = tensor.empty() : tensor<3x20xbf16>
  %r = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]}
      ins(%c : tensor<3x20xf32>) outs(%g : tensor<3x20xbf16>) {
  ^bb0(%x: f32, %o: bf16):
    %0 = arith.truncf %x : f32 to bf16
    linalg.yield %0 : bf16
  } -> tensor<3x20xbf16>
  return %r : tensor<3x20xbf16>
}
}
}

// -----
// CASE: gemm_mma
// CHECK: nvvm.cp.async.shared.global
// CHECK: nvvm.cp.async.wait.group
// CHECK: nvvm.ldmatrix
// CHECK: nvvm.mma.sync
// IMPLICIT-CHECK-NOT: tensor<
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%a: tensor<130x128xbf16> {kiln.sizes = array<i64: 130, 128>}, %b: tensor<128x64xbf16> {kiln.sizes = array<i64: 128, 64>}) -> tensor<130x64xbf16> attributes {kiln.schedule = #kiln.schedule<"mma_gemm", {block_m = 64 : i64, block_n = 64 : i64, stages = 2 : i64}>} {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<130x64xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<130x64xf32>) -> tensor<130x64xf32>
  %c = linalg.contract indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>]
      ins(%a, %b : tensor<130x128xbf16>, tensor<128x64xbf16>) outs(%f : tensor<130x64xf32>) -> tensor<130x64xf32>
  %g = tensor.empty() : tensor<130x64xbf16>
  %r = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]}
      ins(%c : tensor<130x64xf32>) outs(%g : tensor<130x64xbf16>) {
  ^bb0(%x: f32, %o: bf16):
    %0 = arith.truncf %x : f32 to bf16
    linalg.yield %0 : bf16
  } -> tensor<130x64xbf16>
  return %r : tensor<130x64xbf16>
}
}
}

// -----
// The first two tiles are of the first product, the other two of the second.
// CASE: skinny_products_of_one_operand
// CHECK: nvvm.cp.async.bulk.prefetch
// CHECK: nvvm.cp.async.bulk.prefetch
// CHECK: nvvm.griddepcontrol wait
// CHECK: nvvm.mma.sync
// CHECK: nvvm.mma.sync
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%a: tensor<3x64xbf16> {kiln.sizes = array<i64: 3, 64>}, %b: tensor<20x64xbf16> {kiln.sizes = array<i64: 20, 64>}, %d: tensor<24x64xbf16> {kiln.sizes = array<i64: 24, 64>}) -> (tensor<3x20xbf16>, tensor<3x24xbf16>) attributes {kiln.dependent, kiln.schedule = #kiln.schedule<"skinny_gemm", {block_m = 16 : i64, prefetch = 512 : i64, stages = 0 : i64, unroll = 1 : i64, warps = 2 : i64}>} {
  %zero = arith.constant 0.0 : f32
  %e0 = tensor.empty() : tensor<3x20xf32>
  %f0 = linalg.fill ins(%zero : f32) outs(%e0 : tensor<3x20xf32>) -> tensor<3x20xf32>
  %c0 = linalg.contract indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
      ins(%a, %b : tensor<3x64xbf16>, tensor<20x64xbf16>) outs(%f0 : tensor<3x20xf32>) -> tensor<3x20xf32>
  %g0 = tensor.empty() : tensor<3x20xbf16>
  %r0 = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]}
      ins(%c0 : tensor<3x20xf32>) outs(%g0 : tensor<3x20xbf16>) {
  ^bb0(%x: f32, %o: bf16):
    %0 = arith.truncf %x : f32 to bf16
    linalg.yield %0 : bf16
  } -> tensor<3x20xbf16>
  %e1 = tensor.empty() : tensor<3x24xf32>
  %f1 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<3x24xf32>) -> tensor<3x24xf32>
  %c1 = linalg.contract indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
      ins(%a, %d : tensor<3x64xbf16>, tensor<24x64xbf16>) outs(%f1 : tensor<3x24xf32>) -> tensor<3x24xf32>
  %g1 = tensor.empty() : tensor<3x24xbf16>
  %r1 = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]}
      ins(%c1 : tensor<3x24xf32>) outs(%g1 : tensor<3x24xbf16>) {
  ^bb0(%x: f32, %o: bf16):
    %0 = arith.truncf %x : f32 to bf16
    linalg.yield %0 : bf16
  } -> tensor<3x24xbf16>
  return %r0, %r1 : tensor<3x20xbf16>, tensor<3x24xbf16>
}
}
}

// -----
// No launch writes the matrices: their first fragments are loaded before the wait.
// CASE: skinny_products_of_constants
// CHECK: llvm.load
// CHECK: nvvm.griddepcontrol wait
// CHECK: nvvm.mma.sync
// IMPLICIT-CHECK-NOT: bulk.prefetch
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%a: tensor<3x64xbf16> {kiln.sizes = array<i64: 3, 64>}, %b: tensor<20x64xbf16> {kiln.constant, kiln.sizes = array<i64: 20, 64>}, %d: tensor<24x64xbf16> {kiln.constant, kiln.sizes = array<i64: 24, 64>}) -> (tensor<3x20xbf16>, tensor<3x24xbf16>) attributes {kiln.dependent, kiln.schedule = #kiln.schedule<"skinny_gemm", {block_m = 16 : i64, prefetch = 0 : i64, stages = 1 : i64, unroll = 1 : i64, warps = 2 : i64}>} {
  %zero = arith.constant 0.0 : f32
  %e0 = tensor.empty() : tensor<3x20xf32>
  %f0 = linalg.fill ins(%zero : f32) outs(%e0 : tensor<3x20xf32>) -> tensor<3x20xf32>
  %c0 = linalg.contract indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
      ins(%a, %b : tensor<3x64xbf16>, tensor<20x64xbf16>) outs(%f0 : tensor<3x20xf32>) -> tensor<3x20xf32>
  %g0 = tensor.empty() : tensor<3x20xbf16>
  %r0 = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]}
      ins(%c0 : tensor<3x20xf32>) outs(%g0 : tensor<3x20xbf16>) {
  ^bb0(%x: f32, %o: bf16):
    %0 = arith.truncf %x : f32 to bf16
    linalg.yield %0 : bf16
  } -> tensor<3x20xbf16>
  %e1 = tensor.empty() : tensor<3x24xf32>
  %f1 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<3x24xf32>) -> tensor<3x24xf32>
  %c1 = linalg.contract indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
      ins(%a, %d : tensor<3x64xbf16>, tensor<24x64xbf16>) outs(%f1 : tensor<3x24xf32>) -> tensor<3x24xf32>
  %g1 = tensor.empty() : tensor<3x24xbf16>
  %r1 = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]}
      ins(%c1 : tensor<3x24xf32>) outs(%g1 : tensor<3x24xbf16>) {
  ^bb0(%x: f32, %o: bf16):
    %0 = arith.truncf %x : f32 to bf16
    linalg.yield %0 : bf16
  } -> tensor<3x24xbf16>
  return %r0, %r1 : tensor<3x20xbf16>, tensor<3x24xbf16>
}
}
}

// -----
// The CTA sums the squares of each row, and scales it, behind the wait.
// CASE: skinny_gemm_of_a_norm
// CHECK: llvm.load
// CHECK: nvvm.griddepcontrol wait
// CHECK: gpu.shuffle
// CHECK: math.rsqrt
// CHECK: nvvm.mma.sync
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%a: tensor<2x128xbf16> {kiln.sizes = array<i64: 2, 128>}, %b: tensor<40x128xbf16> {kiln.constant, kiln.sizes = array<i64: 40, 128>}) -> tensor<2x40xbf16> attributes {kiln.dependent, kiln.schedule = #kiln.schedule<"skinny_gemm", {block_m = 16 : i64, prefetch = 0 : i64, stages = 2 : i64, unroll = 1 : i64, warps = 2 : i64}>} {
  %zero = arith.constant 0.0 : f32
  %sum0 = tensor.empty() : tensor<2xf32>
  %sum1 = linalg.fill ins(%zero : f32) outs(%sum0 : tensor<2xf32>) -> tensor<2xf32>
  %sum = linalg.generic {indexing_maps = [affine_map<(m, k) -> (m, k)>, affine_map<(m, k) -> (m)>], iterator_types = ["parallel", "reduction"]}
      ins(%a : tensor<2x128xbf16>) outs(%sum1 : tensor<2xf32>) {
  ^bb0(%x: bf16, %o: f32):
    %0 = arith.extf %x : bf16 to f32
    %1 = arith.mulf %0, %0 : f32
    %2 = arith.addf %o, %1 : f32
    linalg.yield %2 : f32
  } -> tensor<2xf32>
  %norm0 = tensor.empty() : tensor<2x128xbf16>
  %norm = linalg.generic {indexing_maps = [affine_map<(m, k) -> (m, k)>, affine_map<(m, k) -> (m)>, affine_map<(m, k) -> (m, k)>], iterator_types = ["parallel", "parallel"]}
      ins(%a, %sum : tensor<2x128xbf16>, tensor<2xf32>) outs(%norm0 : tensor<2x128xbf16>) {
  ^bb0(%x: bf16, %t: f32, %o: bf16):
    %0 = arith.extf %x : bf16 to f32
    %1 = math.rsqrt %t : f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.truncf %2 : f32 to bf16
    linalg.yield %3 : bf16
  } -> tensor<2x128xbf16>
  %e = tensor.empty() : tensor<2x40xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<2x40xf32>) -> tensor<2x40xf32>
  %c = linalg.contract indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
      ins(%norm, %b : tensor<2x128xbf16>, tensor<40x128xbf16>) outs(%f : tensor<2x40xf32>) -> tensor<2x40xf32>
  %g = tensor.empty() : tensor<2x40xbf16>
  %r = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]}
      ins(%c : tensor<2x40xf32>) outs(%g : tensor<2x40xbf16>) {
  ^bb0(%x: f32, %o: bf16):
    %0 = arith.truncf %x : f32 to bf16
    linalg.yield %0 : bf16
  } -> tensor<2x40xbf16>
  return %r : tensor<2x40xbf16>
}
}
}

// -----
// CASE: skinny_schedule_without_a_skinny_gemm
// expected-error @+3 {{is no product of few rows of bf16 or f16}}
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%a: tensor<130x128xbf16> {kiln.sizes = array<i64: 130, 128>}, %b: tensor<128x130xbf16> {kiln.sizes = array<i64: 128, 130>}) -> tensor<130x130xbf16> attributes {kiln.schedule = #kiln.schedule<"skinny_gemm", {block_m = 16 : i64, prefetch = 0 : i64, stages = 0 : i64, unroll = 1 : i64, warps = 2 : i64}>} {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<130x130xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<130x130xf32>) -> tensor<130x130xf32>
  %c = linalg.contract indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>]
      ins(%a, %b : tensor<130x128xbf16>, tensor<128x130xbf16>) outs(%f : tensor<130x130xf32>) -> tensor<130x130xf32>
  %g = tensor.empty() : tensor<130x130xbf16>
  %r = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]}
      ins(%c : tensor<130x130xf32>) outs(%g : tensor<130x130xbf16>) {
  ^bb0(%x: f32, %o: bf16):
    %0 = arith.truncf %x : f32 to bf16
    linalg.yield %0 : bf16
  } -> tensor<130x130xbf16>
  return %r : tensor<130x130xbf16>
}
}
}

// -----
// CASE: gated_gemm
// RUN: kiln-to-linalg,kiln-gpu-schedule,kiln-gpu-tile,cse
// CHECK: kiln.tile.tma_load {{.*}}part [1, 2]
// CHECK: kiln.tile.split
// IMPLICIT-CHECK-NOT: nvvm.
module attributes {kiln.level = "kernels"} {
module @k attributes {kiln.kernel = {kind = "contract"}} {
  func.func @k(%x: tensor<128x64xbf16> {kiln.sizes = array<i64: 128, 64>}, %v: tensor<64x64xbf16> {kiln.sizes = array<i64: 64, 64>}, %w: tensor<64x64xbf16> {kiln.sizes = array<i64: 64, 64>}) -> tensor<128x64xbf16> {
    %0 = kiln.dot_general %x, %v batch = [] x [] contract = [1] x [1] : tensor<128x64xbf16>, tensor<64x64xbf16>
    %1 = kiln.neg %0 : tensor<128x64xbf16>
    %2 = kiln.dot_general %x, %w batch = [] x [] contract = [1] x [1] : tensor<128x64xbf16>, tensor<64x64xbf16>
    %3 = kiln.mul %1, %2 : tensor<128x64xbf16>
    return %3 : tensor<128x64xbf16>
  }
}
}

// -----
// CASE: gemm_with_unaligned_rows
// CHECK: kiln.tile.epilogue
// CHECK: lines
// IMPLICIT-CHECK-NOT: nvvm.
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%a: tensor<130x128xbf16> {kiln.sizes = array<i64: 130, 128>}, %b: tensor<65x128xbf16> {kiln.sizes = array<i64: 65, 128>}) -> tensor<130x65xbf16> attributes {kiln.schedule = #kiln.schedule<"wgmma_gemm", {block_k = 64 : i64, block_m = 64 : i64, block_n = 64 : i64, ctas_per_sm = 1 : i64, split_k = 1 : i64, stages = 2 : i64}>} {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<130x65xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<130x65xf32>) -> tensor<130x65xf32>
  %c = linalg.contract indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
      ins(%a, %b : tensor<130x128xbf16>, tensor<65x128xbf16>) outs(%f : tensor<130x65xf32>) -> tensor<130x65xf32>
  %g = tensor.empty() : tensor<130x65xbf16>
  %r = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]}
      ins(%c : tensor<130x65xf32>) outs(%g : tensor<130x65xbf16>) {
  ^bb0(%x: f32, %o: bf16):
    %0 = arith.truncf %x : f32 to bf16
    linalg.yield %0 : bf16
  } -> tensor<130x65xbf16>
  return %r : tensor<130x65xbf16>
}
}
}

// -----
// A thread takes 8 elements, without a remainder.
// CASE: divisible_rows
// SIZES: s0 = 50, s1 = 48
// CHECK: vector<8xbf16>
// IMPLICIT-CHECK-NOT: memref.load
// IMPLICIT-CHECK-NOT: scf.if
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
// CASE: gemm_with_dynamic_k
// SIZES: s0 = 70, s1 = 72, s2 = 328
// CHECK: kiln.tile.mma {{.*}} init
// IMPLICIT-CHECK-NOT: nvvm.
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%a: tensor<?x?xbf16> {kiln.sizes = array<i64: -1, -3>}, %b: tensor<?x?xbf16> {kiln.sizes = array<i64: -3, -2>}, %s0: index, %s1: index {kiln.divisor = 8 : i64, kiln.least = 8 : i64}, %s2: index {kiln.divisor = 8 : i64, kiln.least = 8 : i64}) -> tensor<?x?xbf16> attributes {kiln.schedule = #kiln.schedule<"wgmma_gemm", {block_k = 64 : i64, block_m = 64 : i64, block_n = 64 : i64, ctas_per_sm = 1 : i64, split_k = 1 : i64, stages = 2 : i64}>} {
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
// The left operand is computed in registers, of rows, of columns and of what TMA loaded. The last K
// step is partial.
// CASE: gemm_of_a_computed_operand
// CHECK: kiln.tile.local_load
// CHECK: kiln.tile.load
// CHECK: kiln.tile.mma_wait 0{{.*}}alive
// IMPLICIT-CHECK-NOT: nvvm.
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%a: tensor<130x88xf32> {kiln.sizes = array<i64: 130, 88>}, %s: tensor<130xf32> {kiln.sizes = array<i64: 130>}, %c: tensor<88xf32> {kiln.sizes = array<i64: 88>}, %b: tensor<72x88xbf16> {kiln.sizes = array<i64: 72, 88>}) -> tensor<130x72xf32> attributes {kiln.schedule = #kiln.schedule<"wgmma_gemm", {block_k = 64 : i64, block_m = 128 : i64, block_n = 64 : i64, ctas_per_sm = 1 : i64, split_k = 1 : i64, stages = 2 : i64}>} {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<130x72xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<130x72xf32>) -> tensor<130x72xf32>
  %r = kiln.structured.contract ins(%s, %a, %c, %b : tensor<130xf32>, tensor<130x88xf32>, tensor<88xf32>, tensor<72x88xbf16>) outs(%f : tensor<130x72xf32>)
      maps = [affine_map<(m, n, k) -> (m)>, affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>] {
  ^bb0(%x: f32, %y: f32, %z: f32, %w: bf16):
    %0 = arith.subf %y, %x : f32
    %1 = arith.mulf %0, %z : f32
    %2 = arith.truncf %1 : f32 to bf16
    %3 = arith.extf %2 : bf16 to f32
    %4 = arith.extf %w : bf16 to f32
    kiln.yield %3, %4 : f32, f32
  } -> tensor<130x72xf32>
  return %r : tensor<130x72xf32>
}
}
}

// -----
// CASE: gemm_mma_with_dynamic_k
// SIZES: s0 = 70, s1 = 72, s2 = 328
// CHECK: nvvm.mma.sync
// IMPLICIT-CHECK-NOT: tensor<
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%a: tensor<?x?xbf16> {kiln.sizes = array<i64: -1, -3>}, %b: tensor<?x?xbf16> {kiln.sizes = array<i64: -3, -2>}, %s0: index, %s1: index {kiln.divisor = 8 : i64, kiln.least = 8 : i64}, %s2: index {kiln.divisor = 8 : i64, kiln.least = 8 : i64}) -> tensor<?x?xbf16> attributes {kiln.schedule = #kiln.schedule<"mma_gemm", {block_m = 64 : i64, block_n = 64 : i64, stages = 4 : i64}>} {
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
// Two warps share a row: shuffles within a warp, shared memory between warps, a loop-carried
// prefix.
// CASE: scan_of_rows
// CHECK: gpu.shuffle  up
// CHECK: gpu.shuffle  idx
// CHECK: vector.store
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%x: tensor<8x1000xf32> {kiln.sizes = array<i64: 8, 1000>}) -> tensor<8x1000xf32> attributes {kiln.schedule = #kiln.schedule<"scan", {items = 1 : i64, prefetch = 0 : i64, row_threads = 64 : i64, rows_per_cta = 2 : i64, vector = 4 : i64}>} {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<8x1000xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<8x1000xf32>) -> tensor<8x1000xf32>
  %s = kiln.structured.scan sum along 1 ins(%x : tensor<8x1000xf32>) outs(%f : tensor<8x1000xf32>)
      maps = [affine_map<(r, i) -> (r, i)>, affine_map<(r, i) -> (r, i)>] {
  ^bb0(%a: f32):
    %0 = math.exp %a : f32
    kiln.yield %0 : f32
  } -> tensor<8x1000xf32>
  return %s : tensor<8x1000xf32>
}
}
}

// -----
// Two passes: a thread has a butterfly of five numbers, then two of four, of which some are redone.
// CASE: fft
// RUN: kiln-gpu-schedule,kiln-gpu-tile
// SIZES: s0 = 5
// CHECK: gpu.barrier
// CHECK: llvm.store
// CHECK: gpu.barrier
// CHECK: llvm.load
// IMPLICIT-CHECK-NOT: gpu.barrier
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%x: tensor<?x20xf32> {kiln.sizes = array<i64: -1, 20>}, %y: tensor<?x20xf32> {kiln.sizes = array<i64: -1, 20>}, %s0: index) -> (tensor<?x20xf32>, tensor<?x20xf32>) attributes {kiln.schedule = #kiln.schedule<"stockham", {row_threads = 4 : i64, rows_per_cta = 8 : i64}>} {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty(%s0) : tensor<?x20xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x20xf32>) -> tensor<?x20xf32>
  %h = tensor.empty(%s0) : tensor<?x20xf32>
  %g = linalg.fill ins(%zero : f32) outs(%h : tensor<?x20xf32>) -> tensor<?x20xf32>
  %r:2 = kiln.structured.fft c2c length 20 ins(%x, %y : tensor<?x20xf32>, tensor<?x20xf32>) outs(%f, %g : tensor<?x20xf32>, tensor<?x20xf32>)
      maps = [affine_map<(a, k, j) -> (a, j)>, affine_map<(a, k, j) -> (a, j)>, affine_map<(a, k, j) -> (a, k)>, affine_map<(a, k, j) -> (a, k)>] {
  ^bb0(%a: f32, %b: f32):
    kiln.yield %a, %b : f32, f32
  } -> tensor<?x20xf32>, tensor<?x20xf32>
  return %r#0, %r#1 : tensor<?x20xf32>, tensor<?x20xf32>
}
}
}

// -----
// The second half of the spectrum are conjugates of the first; one pass.
// CASE: fft_to_real_numbers
// IMPLICIT-CHECK-NOT: gpu.barrier
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%x: tensor<9x4xf64> {kiln.sizes = array<i64: 9, 4>}, %y: tensor<9x4xf64> {kiln.sizes = array<i64: 9, 4>}) -> tensor<9x6xf64> attributes {kiln.schedule = #kiln.schedule<"stockham", {row_threads = 1 : i64, rows_per_cta = 32 : i64}>} {
  %zero = arith.constant 0.0 : f64
  %e = tensor.empty() : tensor<9x6xf64>
  %f = linalg.fill ins(%zero : f64) outs(%e : tensor<9x6xf64>) -> tensor<9x6xf64>
  %r = kiln.structured.fft c2r length 6 inverse ins(%x, %y : tensor<9x4xf64>, tensor<9x4xf64>) outs(%f : tensor<9x6xf64>)
      maps = [affine_map<(a, k, j) -> (a, j)>, affine_map<(a, k, j) -> (a, j)>, affine_map<(a, k, j) -> (a, k)>] {
  ^bb0(%a: f64, %b: f64):
    kiln.yield %a, %b : f64, f64
  } -> tensor<9x6xf64>
  return %r : tensor<9x6xf64>
}
}
}

// -----
// Several short rows per warp; prologue and epilogue read the same element, which is loaded once.
// CASE: scan_of_short_rows
// SIZES: s0 = 37
// CHECK: gpu.shuffle  up
// IMPLICIT-CHECK-NOT: gpu.barrier
#id = affine_map<(r, i) -> (r, i)>
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%x: tensor<?x16xf32> {kiln.sizes = array<i64: -1, 16>}, %s0: index) -> tensor<?x16xf32> {
  %one = arith.constant 1.0 : f32
  %e = tensor.empty(%s0) : tensor<?x16xf32>
  %f = linalg.fill ins(%one : f32) outs(%e : tensor<?x16xf32>) -> tensor<?x16xf32>
  %s = kiln.structured.scan prod along 1 ins(%x : tensor<?x16xf32>) outs(%f : tensor<?x16xf32>)
      maps = [affine_map<(r, i) -> (r, i)>, affine_map<(r, i) -> (r, i)>] {
  ^bb0(%a: f32):
    kiln.yield %a : f32
  } -> tensor<?x16xf32>
  %g = tensor.empty(%s0) : tensor<?x16xf32>
  %r = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%s, %x : tensor<?x16xf32>, tensor<?x16xf32>) outs(%g : tensor<?x16xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.subf %a, %b : f32
    linalg.yield %0 : f32
  } -> tensor<?x16xf32>
  return %r : tensor<?x16xf32>
}
}
}

// -----
// Two threads share a dynamic column, with prefetch of the next block; an exclusive scan.
// CASE: scan_along_columns
// SIZES: s0 = 7
// CHECK: gpu.barrier
// CHECK: arith.maxsi
// IMPLICIT-CHECK-NOT: gpu.shuffle
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%x: tensor<?x64xi32> {kiln.sizes = array<i64: -1, 64>}, %s0: index) -> tensor<?x64xi32> attributes {kiln.schedule = #kiln.schedule<"scan", {items = 2 : i64, prefetch = 1 : i64, row_threads = 2 : i64, rows_per_cta = 16 : i64, vector = 4 : i64}>} {
  %least = arith.constant -2147483648 : i32
  %e = tensor.empty(%s0) : tensor<?x64xi32>
  %f = linalg.fill ins(%least : i32) outs(%e : tensor<?x64xi32>) -> tensor<?x64xi32>
  %s = kiln.structured.scan max along 0 exclusive ins(%x : tensor<?x64xi32>) outs(%f : tensor<?x64xi32>)
      maps = [affine_map<(i, n) -> (i, n)>, affine_map<(i, n) -> (i, n)>] {
  ^bb0(%a: i32):
    kiln.yield %a : i32
  } -> tensor<?x64xi32>
  return %s : tensor<?x64xi32>
}
}
}

// -----
// CASE: too_many_elements_per_thread
// expected-error @+3 {{8 items of 8 warps are more than 32}}
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%x: tensor<8x5000xf32> {kiln.sizes = array<i64: 8, 5000>}) -> tensor<8x5000xf32> attributes {kiln.schedule = #kiln.schedule<"scan", {items = 8 : i64, prefetch = 0 : i64, row_threads = 256 : i64, rows_per_cta = 1 : i64, vector = 4 : i64}>} {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<8x5000xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<8x5000xf32>) -> tensor<8x5000xf32>
  %s = kiln.structured.scan sum along 1 ins(%x : tensor<8x5000xf32>) outs(%f : tensor<8x5000xf32>)
      maps = [affine_map<(r, i) -> (r, i)>, affine_map<(r, i) -> (r, i)>] {
  ^bb0(%a: f32):
    kiln.yield %a : f32
  } -> tensor<8x5000xf32>
  return %s : tensor<8x5000xf32>
}
}
}

// -----
// CASE: rows_added_by_index
// CHECK: nvvm.vote.sync ballot
// CHECK: math.cttz
// CHECK: vector.store
// IMPLICIT-CHECK-NOT: tensor
#row = affine_map<(d0, d1, d2) -> (d0)>
#update = affine_map<(d0, d1, d2) -> (d0, d2)>
#result = affine_map<(d0, d1, d2) -> (d1, d2)>
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%i: tensor<300xi64> {kiln.sizes = array<i64: 300>}, %u: tensor<300x160xf32> {kiln.sizes = array<i64: 300, 160>}) -> tensor<1001x160xf32> attributes {kiln.schedule = #kiln.schedule<"scatter_reduction", {keys = 4 : i64, threads = 64 : i64, unroll = 2 : i64, vector = 4 : i64}>} {
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
// CASE: last_update_by_index
// CHECK: nvvm.vote.sync ballot
// IMPLICIT-CHECK-NOT: tensor
#updates = affine_map<(d0, d1) -> (d0)>
#result = affine_map<(d0, d1) -> (d1)>
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%i: tensor<300xi64> {kiln.sizes = array<i64: 300>}) -> tensor<1001xi64> attributes {kiln.schedule = #kiln.schedule<"scatter_reduction", {keys = 1 : i64, threads = 64 : i64, unroll = 1 : i64, vector = 1 : i64}>} {
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
// CASE: small_products
// CHECK: vector.load {{.*}}vector<8xbf16>
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%a: tensor<5x9x9xbf16> {kiln.sizes = array<i64: 5, 9, 9>}, %b: tensor<5x9x32xbf16> {kiln.sizes = array<i64: 5, 9, 32>}) -> tensor<5x9x32xbf16> attributes {kiln.schedule = #kiln.schedule<"elementwise", {threads = 256 : i64, unroll = 1 : i64, vector = 8 : i64}>} {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<5x9x32xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<5x9x32xf32>) -> tensor<5x9x32xf32>
  %c = linalg.contract indexing_maps = [affine_map<(b, m, n, k) -> (b, m, k)>, affine_map<(b, m, n, k) -> (b, k, n)>, affine_map<(b, m, n, k) -> (b, m, n)>]
      ins(%a, %b : tensor<5x9x9xbf16>, tensor<5x9x32xbf16>) outs(%f : tensor<5x9x32xf32>) -> tensor<5x9x32xf32>
  %g = tensor.empty() : tensor<5x9x32xbf16>
  %r = linalg.generic {indexing_maps = [affine_map<(b, m, n) -> (b, m, n)>, affine_map<(b, m, n) -> (b, m, n)>], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%c : tensor<5x9x32xf32>) outs(%g : tensor<5x9x32xbf16>) {
  ^bb0(%x: f32, %o: bf16):
    %0 = arith.truncf %x : f32 to bf16
    linalg.yield %0 : bf16
  } -> tensor<5x9x32xbf16>
  return %r : tensor<5x9x32xbf16>
}
}
}

// -----
// Rows of 72 bytes: copies of 8.
// CASE: mma_of_narrow_copies
// CHECK: nvvm.cp.async.shared.global {{.*}}, 8, cache = ca
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%a: tensor<128x36xbf16> {kiln.sizes = array<i64: 128, 36>}, %b: tensor<128x36xbf16> {kiln.sizes = array<i64: 128, 36>}, %bias: tensor<128xf32> {kiln.sizes = array<i64: 128>}) -> tensor<128x128xbf16> attributes {kiln.schedule = #kiln.schedule<"mma_gemm", {block_m = 64 : i64, block_n = 64 : i64, stages = 2 : i64}>} {
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
// Weights of 8 bits become bf16 in registers.
// CASE: skinny_gemm_of_8_bit_weights
// CHECK: llvm.load
// CHECK: nvvm.griddepcontrol wait
// CHECK: prmt.b32
// CHECK: arith.subf
// CHECK: nvvm.mma.sync
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%a: tensor<3x64xbf16> {kiln.sizes = array<i64: 3, 64>}, %b: tensor<20x64xi8> {kiln.constant, kiln.sizes = array<i64: 20, 64>}) -> tensor<3x20xbf16> attributes {kiln.dependent, kiln.schedule = #kiln.schedule<"skinny_gemm", {block_m = 16 : i64, prefetch = 0 : i64, stages = 1 : i64, unroll = 1 : i64, warps = 1 : i64}>} {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<3x20xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<3x20xf32>) -> tensor<3x20xf32>
  %c = kiln.structured.contract ins(%a, %b : tensor<3x64xbf16>, tensor<20x64xi8>) outs(%f : tensor<3x20xf32>) maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>] {
  ^bb0(%x: bf16, %q: i8):
    %0 = arith.extf %x : bf16 to f32
    %1 = arith.sitofp %q : i8 to f32
    %2 = arith.truncf %1 : f32 to bf16
    %3 = arith.extf %2 : bf16 to f32
    kiln.yield %0, %3 : f32, f32
  } -> tensor<3x20xf32>
  %g = tensor.empty() : tensor<3x20xbf16>
  %r = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]}
      ins(%c : tensor<3x20xf32>) outs(%g : tensor<3x20xbf16>) {
  ^bb0(%x: f32, %o: bf16):
    %0 = arith.truncf %x : f32 to bf16
    linalg.yield %0 : bf16
  } -> tensor<3x20xbf16>
  return %r : tensor<3x20xbf16>
}
}
}

// -----
// Weights of 8-bit floats: exponents and mantissas are moved, and a power of two corrects the bias.
// CASE: skinny_gemm_of_8_bit_floats
// CHECK: llvm.load
// CHECK: nvvm.griddepcontrol wait
// CHECK: prmt.b32
// CHECK-COUNT-2: arith.mulf
// CHECK: math.fma
// CHECK: nvvm.mma.sync
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%a: tensor<3x64xbf16> {kiln.sizes = array<i64: 3, 64>}, %b: tensor<20x64xf8E4M3FN> {kiln.constant, kiln.sizes = array<i64: 20, 64>}) -> tensor<3x20xbf16> attributes {kiln.dependent, kiln.schedule = #kiln.schedule<"skinny_gemm", {block_m = 16 : i64, prefetch = 0 : i64, stages = 1 : i64, unroll = 1 : i64, warps = 1 : i64}>} {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<3x20xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<3x20xf32>) -> tensor<3x20xf32>
  %c = kiln.structured.contract ins(%a, %b : tensor<3x64xbf16>, tensor<20x64xf8E4M3FN>) outs(%f : tensor<3x20xf32>) maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>] {
  ^bb0(%x: bf16, %q: f8E4M3FN):
    %0 = arith.extf %x : bf16 to f32
    %1 = arith.extf %q : f8E4M3FN to f32
    %2 = arith.truncf %1 : f32 to bf16
    %3 = arith.extf %2 : bf16 to f32
    kiln.yield %0, %3 : f32, f32
  } -> tensor<3x20xf32>
  %g = tensor.empty() : tensor<3x20xbf16>
  %r = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]}
      ins(%c : tensor<3x20xf32>) outs(%g : tensor<3x20xbf16>) {
  ^bb0(%x: f32, %o: bf16):
    %0 = arith.truncf %x : f32 to bf16
    linalg.yield %0 : bf16
  } -> tensor<3x20xbf16>
  return %r : tensor<3x20xbf16>
}
}
}

// -----
// A word becomes four pairs, less 136, times the scale, plus the zero point; the few rows' pairs are
// put in the same order.
// CASE: skinny_gemm_of_4_bit_weights
// CHECK: llvm.load
// CHECK: prmt.b32
// CHECK: math.fma
// CHECK: nvvm.mma.sync
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%a: tensor<3x128xbf16> {kiln.sizes = array<i64: 3, 128>}, %b: tensor<20x64xi8> {kiln.constant, kiln.sizes = array<i64: 20, 64>}, %s: tensor<20x2xbf16> {kiln.constant, kiln.sizes = array<i64: 20, 2>}, %z: tensor<20x2xbf16> {kiln.constant, kiln.sizes = array<i64: 20, 2>}) -> tensor<3x20xbf16> attributes {kiln.dependent, kiln.schedule = #kiln.schedule<"skinny_gemm", {block_m = 16 : i64, prefetch = 0 : i64, stages = 1 : i64, unroll = 1 : i64, warps = 1 : i64}>} {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<3x20xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<3x20xf32>) -> tensor<3x20xf32>
  %c = kiln.structured.contract ins(%a, %b, %s, %z : tensor<3x128xbf16>, tensor<20x64xi8>, tensor<20x2xbf16>, tensor<20x2xbf16>) outs(%f : tensor<3x20xf32>) maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k floordiv 2)>, affine_map<(m, n, k) -> (n, k floordiv 64)>, affine_map<(m, n, k) -> (n, k floordiv 64)>, affine_map<(m, n, k) -> (m, n)>] {
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
  } -> tensor<3x20xf32>
  %g = tensor.empty() : tensor<3x20xbf16>
  %r = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]}
      ins(%c : tensor<3x20xf32>) outs(%g : tensor<3x20xbf16>) {
  ^bb0(%x: f32, %o: bf16):
    %0 = arith.truncf %x : f32 to bf16
    linalg.yield %0 : bf16
  } -> tensor<3x20xbf16>
  return %r : tensor<3x20xbf16>
}
}
}

// -----
// Groups of whole K steps: the sums of a step are scaled, and the total of a row's elements makes up
// for the bias, the offset and the zero point.
// CASE: skinny_gemm_of_4_bit_weights_in_long_groups
// CHECK: llvm.load
// CHECK: nvvm.mma.sync
// CHECK: math.fma {{.*}} : f32
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%a: tensor<3x128xbf16> {kiln.sizes = array<i64: 3, 128>}, %b: tensor<20x64xi8> {kiln.constant, kiln.sizes = array<i64: 20, 64>}, %s: tensor<20x1xbf16> {kiln.constant, kiln.sizes = array<i64: 20, 1>}, %z: tensor<20x1xbf16> {kiln.constant, kiln.sizes = array<i64: 20, 1>}) -> tensor<3x20xbf16> attributes {kiln.dependent, kiln.schedule = #kiln.schedule<"skinny_gemm", {block_m = 16 : i64, prefetch = 0 : i64, stages = 1 : i64, unroll = 1 : i64, warps = 1 : i64}>} {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<3x20xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<3x20xf32>) -> tensor<3x20xf32>
  %c = kiln.structured.contract ins(%a, %b, %s, %z : tensor<3x128xbf16>, tensor<20x64xi8>, tensor<20x1xbf16>, tensor<20x1xbf16>) outs(%f : tensor<3x20xf32>) maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k floordiv 2)>, affine_map<(m, n, k) -> (n, k floordiv 128)>, affine_map<(m, n, k) -> (n, k floordiv 128)>, affine_map<(m, n, k) -> (m, n)>] {
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
  } -> tensor<3x20xf32>
  %g = tensor.empty() : tensor<3x20xbf16>
  %r = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]}
      ins(%c : tensor<3x20xf32>) outs(%g : tensor<3x20xbf16>) {
  ^bb0(%x: f32, %o: bf16):
    %0 = arith.truncf %x : f32 to bf16
    linalg.yield %0 : bf16
  } -> tensor<3x20xbf16>
  return %r : tensor<3x20xbf16>
}
}
}

// -----
// The sums of each K step of 128 are added in f32 registers.
// CASE: gemm_wgmma_of_8_bit_floats
// CHECK: kiln.tile.mma {{.*}} memref<64x128xf8E4M3FN, 3> -> tensor<64x64xf32, #accumulator>
// CHECK-NEXT: kiln.tile.mma_wait 0
// CHECK: arith.addf {{.*}} : tensor<64x64xf32, #accumulator>
// CHECK: kiln.tile.epilogue
// IMPLICIT-CHECK-NOT: nvvm.
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%a: tensor<130x272xf8E4M3FN> {kiln.sizes = array<i64: 130, 272>}, %b: tensor<64x272xf8E4M3FN> {kiln.sizes = array<i64: 64, 272>}, %scale: tensor<64xf32> {kiln.sizes = array<i64: 64>}) -> tensor<130x64xbf16> attributes {kiln.schedule = #kiln.schedule<"wgmma_gemm", {block_k = 128 : i64, block_m = 64 : i64, block_n = 64 : i64, ctas_per_sm = 1 : i64, split_k = 1 : i64, stages = 2 : i64}>} {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<130x64xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<130x64xf32>) -> tensor<130x64xf32>
  %c = linalg.contract indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
      ins(%a, %b : tensor<130x272xf8E4M3FN>, tensor<64x272xf8E4M3FN>) outs(%f : tensor<130x64xf32>) -> tensor<130x64xf32>
  %g = tensor.empty() : tensor<130x64xbf16>
  %r = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (n)>, affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]}
      ins(%c, %scale : tensor<130x64xf32>, tensor<64xf32>) outs(%g : tensor<130x64xbf16>) {
  ^bb0(%x: f32, %y: f32, %o: bf16):
    %0 = arith.mulf %x, %y : f32
    %1 = arith.truncf %0 : f32 to bf16
    linalg.yield %1 : bf16
  } -> tensor<130x64xbf16>
  return %r : tensor<130x64xbf16>
}
}
}

// -----
// int8 with int32 sums, which two CTAs of a cluster share.
// CASE: gemm_wgmma_of_int8
// CHECK: kiln.tile.mma {{.*}} init {{.*}} memref<64x128xi8, 3> -> tensor<64x64xi32, #accumulator>
// CHECK: kiln.tile.cluster_reduce
// IMPLICIT-CHECK-NOT: nvvm.
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%a: tensor<64x512xi8> {kiln.sizes = array<i64: 64, 512>}, %b: tensor<64x512xi8> {kiln.sizes = array<i64: 64, 512>}, %scale: tensor<64xf32> {kiln.sizes = array<i64: 64>}) -> tensor<64x64xbf16> attributes {kiln.schedule = #kiln.schedule<"wgmma_gemm", {block_k = 128 : i64, block_m = 64 : i64, block_n = 64 : i64, ctas_per_sm = 0 : i64, split_k = 2 : i64, stages = 2 : i64}>} {
  %zero = arith.constant 0 : i32
  %e = tensor.empty() : tensor<64x64xi32>
  %f = linalg.fill ins(%zero : i32) outs(%e : tensor<64x64xi32>) -> tensor<64x64xi32>
  %c = linalg.contract indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
      ins(%a, %b : tensor<64x512xi8>, tensor<64x512xi8>) outs(%f : tensor<64x64xi32>) -> tensor<64x64xi32>
  %g = tensor.empty() : tensor<64x64xbf16>
  %r = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (n)>, affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]}
      ins(%c, %scale : tensor<64x64xi32>, tensor<64xf32>) outs(%g : tensor<64x64xbf16>) {
  ^bb0(%x: i32, %y: f32, %o: bf16):
    %0 = arith.sitofp %x : i32 to f32
    %1 = arith.mulf %0, %y : f32
    %2 = arith.truncf %1 : f32 to bf16
    linalg.yield %2 : bf16
  } -> tensor<64x64xbf16>
  return %r : tensor<64x64xbf16>
}
}
}

// -----
// Gradients of a depthwise convolution by its weight: a thread has a row of the window for a channel
// vector. Tiles at the ends of a row leave out pixels of the padding; the two parts of the image rows
// meet in shared memory.
// CASE: depthwise_gradient
// CHECK: vector<4xbf16>
// CHECK: gpu.barrier
// IMPLICIT-CHECK-NOT: tensor<
#gradient = affine_map<(s, i, j, c, n, p, q) -> (s * 2 + n, p, q, c)>
#image = affine_map<(s, i, j, c, n, p, q) -> (s * 2 + n, p + i, q + j, c)>
#images = affine_map<(s, i, j, c, n, p, q) -> (n)>
#sum = affine_map<(s, i, j, c, n, p, q) -> (s, i, j, c)>
module attributes {kiln.level = "linalg"} {
module @k0 attributes {kiln.kernel = {}} {
func.func @k0(%x: tensor<4x5x20x4xbf16> {kiln.sizes = array<i64: 4, 5, 20, 4>}, %g: tensor<4x5x20x4xbf16> {kiln.sizes = array<i64: 4, 5, 20, 4>}) -> tensor<2x3x3x4xf32> attributes {kiln.schedule = #kiln.schedule<"depthwise_gradient", {columns = 1 : i64, parts = 2 : i64, pixels = 2 : i64, vector = 4 : i64}>} {
  %zero = arith.constant 0.0 : f32
  %p = tensor.pad %x low[0, 1, 1, 0] high[0, 1, 1, 0] {
  ^bb0(%a: index, %b: index, %c: index, %d: index):
    %z = arith.constant 0.0 : bf16
    tensor.yield %z : bf16
  } : tensor<4x5x20x4xbf16> to tensor<4x7x22x4xbf16>
  %e = tensor.empty() : tensor<2x3x3x4xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<2x3x3x4xf32>) -> tensor<2x3x3x4xf32>
  %n = tensor.empty() : tensor<2xi8>
  %r = kiln.structured.contract ins(%g, %p, %n : tensor<4x5x20x4xbf16>, tensor<4x7x22x4xbf16>, tensor<2xi8>) outs(%f : tensor<2x3x3x4xf32>)
      maps = [#gradient, #image, #images, #sum] {
  ^bb0(%a: bf16, %b: bf16, %c: i8):
    %0 = arith.extf %a : bf16 to f32
    %1 = arith.extf %b : bf16 to f32
    kiln.yield %0, %1 : f32, f32
  } -> tensor<2x3x3x4xf32>
  return %r : tensor<2x3x3x4xf32>
}
}
}
