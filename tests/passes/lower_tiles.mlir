// RUN: kiln-gpu-schedule,kiln-gpu-tile,kiln-lower-tiles,cse

// Small tiles keep the snapshot short: 128 queries, 16 keys, 8 features.
// CASE: attention
// CHECK: nvvm.cp.async.bulk.tensor
// CHECK: nvvm.wgmma.mma_async
// CHECK: wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16
// CHECK: ex2.approx.ftz.f32
// IMPLICIT-CHECK-NOT: tensor<
// IMPLICIT-CHECK-NOT: math.exp
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
// CASE: attention_gradient
// CHECK: ldmatrix
// CHECK-COUNT-2: wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16
// CHECK: wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16
// IMPLICIT-CHECK-NOT: kiln.tile
module attributes {kiln.level = "linalg"} {
  module @k attributes {kiln.kernel = {kind = "attention"}} {
    func.func @k(%arg0: tensor<1x2x64x64xbf16> {kiln.sizes = array<i64: 1, 2, 64, 64>}, %arg1: tensor<1x2x128x64xbf16> {kiln.sizes = array<i64: 1, 2, 128, 64>}, %arg2: tensor<1x2x128x32xbf16> {kiln.sizes = array<i64: 1, 2, 128, 32>}, %arg3: tensor<1x2x64x32xbf16> {kiln.sizes = array<i64: 1, 2, 64, 32>}, %arg4: tensor<1x2x64xf32> {kiln.sizes = array<i64: 1, 2, 64>}, %arg5: tensor<1x2x64xf32> {kiln.sizes = array<i64: 1, 2, 64>}) -> (tensor<1x2x128x64xbf16>, tensor<1x2x128x32xbf16>) attributes {kiln.schedule = #kiln.schedule<"attention_gradient", {block = 16 : i64, overlap = 1 : i64, registers = 1 : i64, stages = 2 : i64, warpgroups = 2 : i64}>} {
      %0 = tensor.empty() : tensor<1x2x128x64xbf16>
      %1 = tensor.empty() : tensor<1x2x128x32xbf16>
      %2:2 = kiln.structured.attention_gradient scale 0.125 sizes [1, 2, 64, 128, 64, 32]
          ins(%arg0, %arg1, %arg2, %arg3, %arg4, %arg5 : tensor<1x2x64x64xbf16>, tensor<1x2x128x64xbf16>, tensor<1x2x128x32xbf16>, tensor<1x2x64x32xbf16>, tensor<1x2x64xf32>, tensor<1x2x64xf32>)
          outs(%0, %1 : tensor<1x2x128x64xbf16>, tensor<1x2x128x32xbf16>)
          maps = [affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d4)>, affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d3, d4)>, affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d3, d4)>, affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d4)>,
                  affine_map<(d0, d1, d2) -> (d0, d1, d2)>, affine_map<(d0, d1, d2) -> (d0, d1, d2)>, affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>, affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>] -> tensor<1x2x128x64xbf16>, tensor<1x2x128x32xbf16>
      return %2#0, %2#1 : tensor<1x2x128x64xbf16>, tensor<1x2x128x32xbf16>
    }
  }
}

// -----
// A thread has two elements of each of its two rows; four lanes share a row.
// CASE: maxima_of_rows
// RUN: kiln-lower-tiles
// NO-RUN: nothing stands before the tile program; tile_programs.rs runs it
// CHECK-COUNT-4: memref.load
// CHECK-COUNT-4: gpu.shuffle
// IMPLICIT-CHECK-NOT: kiln.tile
#rows = #kiln.fragment<rows>
#accumulator = #kiln.fragment<accumulator>
module attributes {kiln.level = "tiled"} {
  module @k attributes {kiln.kernel = {}} {
    func.func @k(%in: memref<512xf32>, %out: memref<64xf32>, %n: i32) attributes {kiln.threads = 256 : i64} {
      kiln.tile.warp_specialize consumers 1 producer {
        kiln.yield
      } consumer {
        %zero = arith.constant 0 : i32
        %two = arith.constant dense<2.0> : tensor<64x8xf32, #accumulator>
        %i = kiln.tile.iota %zero : tensor<64xindex, #rows>
        %j = kiln.tile.iota %zero : tensor<8xindex, #kiln.fragment<columns>>
        %x = kiln.tile.map(%two, %i, %j : tensor<64x8xf32, #accumulator>, tensor<64xindex, #rows>, tensor<8xindex, #kiln.fragment<columns>>) -> tensor<64x8xf32, #accumulator> {
        ^bb0(%s: f32, %row: index, %column: index):
          %at = affine.apply affine_map<(i, j) -> (i * 8 + j)>(%row, %column)
          %v = memref.load %in[%at] : memref<512xf32>
          %r = arith.mulf %v, %s : f32
          kiln.yield %r : f32
        }
        %max = kiln.tile.reduce max %x : tensor<64x8xf32, #accumulator> -> tensor<64xf32, #rows>
        kiln.tile.store %max to %out(%i : tensor<64xindex, #rows>) vectors of 1 below %n {
        ^bb0(%row: index):
          kiln.yield %row : index
        } : tensor<64xf32, #rows> to memref<64xf32>
        kiln.yield
      }
      return
    }
  }
}

// -----
// Two CTAs share K: the bytes of the other one's accumulators complete an mbarrier of their own.
// CASE: gemm_split_k_by_a_cluster
// CHECK: nvvm.cluster.arrive.relaxed
// CHECK: nvvm.wgmma.mma_async
// CHECK: nvvm.cp.async.bulk.shared.cluster.shared.cta
// IMPLICIT-CHECK-NOT: tensor<
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
// The last accumulators pass through the wait; a warp stages 16 rows and TMA stores them.
// CASE: gemm_wgmma
// CHECK: nvvm.cp.async.bulk.tensor
// CHECK: nvvm.wgmma.mma_async
// CHECK: wgmma.wait_group.sync.aligned 0
// CHECK: nvvm.stmatrix
// IMPLICIT-CHECK-NOT: tensor<
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
// Lanes load 8 elements of the residual at once, and exchange words.
// CASE: gemm_with_a_residual
// CHECK: vector.load {{.*}} vector<8xbf16>
// CHECK: nvvm.shfl.sync bfly
// CHECK: nvvm.stmatrix
// IMPLICIT-CHECK-NOT: vector<2xbf16>, vector<2xbf16>
// IMPLICIT-CHECK-NOT: tensor<
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
// Rows of 65 elements are not aligned: lanes store pairs, and the elements at either end.
// CASE: gemm_with_unaligned_rows
// CHECK: nvvm.stmatrix
// CHECK: llvm.load
// IMPLICIT-CHECK-NOT: nvvm.cp.async.bulk.tensor.global.shared.cta
// IMPLICIT-CHECK-NOT: tensor<
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
// f32 rows of 256 bytes are two slices.
// CASE: gemm_of_a_computed_operand
// CHECK-COUNT-2: nvvm.cp.async.bulk.tensor.shared.cluster.global
// CHECK: wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16
// IMPLICIT-CHECK-NOT: tensor<
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
// Read before the stage is released, since no map takes the elements. The body has no bounds to
// check.
// CASE: tile_read_from_shared_memory
// RUN: kiln-lower-tiles,cse
// NO-RUN: nothing stands before the tile program; tile_programs.rs runs it
// CHECK-COUNT-4: nvvm.ldmatrix
// CHECK: nvvm.mbarrier.arrive
// CHECK: vector.store
// IMPLICIT-CHECK-NOT: kiln.tile
module attributes {kiln.level = "tiled"} {
  module @k attributes {kiln.kernel = {}} {
    func.func @k(%map: !llvm.ptr, %out: memref<4096xbf16>) attributes {kiln.shared = 9232 : i64, kiln.threads = 256 : i64} {
      %zero = arith.constant 0 : i32
      %ring = kiln.tile.pipeline warpgroups : memref<1x64x64xbf16, 3>
      kiln.tile.warp_specialize consumers 1 prefetch(%map : !llvm.ptr) producer {
        %s = kiln.tile.first_stage
        kiln.tile.acquire %ring[%s] : memref<1x64x64xbf16, 3>
        kiln.tile.tma_load %map[%zero, %zero : i32, i32] to %ring[%s] : !llvm.ptr to memref<1x64x64xbf16, 3>
        kiln.yield
      } consumer {
        %s = kiln.tile.first_stage
        kiln.tile.wait %ring[%s] : memref<1x64x64xbf16, 3>
        %t = kiln.tile.view %ring[%s] : memref<1x64x64xbf16, 3> -> memref<64x64xbf16, 3>
        %x = kiln.tile.local_load %t : memref<64x64xbf16, 3> -> tensor<64x64xbf16, #kiln.fragment<accumulator>>
        kiln.tile.release %ring[%s] : memref<1x64x64xbf16, 3>
        kiln.tile.epilogue(%x : tensor<64x64xbf16, #kiln.fragment<accumulator>>) at(%zero, %zero) vectors of 2 {
        ^bb0(%row: index, %column: index, %e: vector<2xbf16>):
          %at = affine.apply affine_map<(i, j) -> (i * 64 + j)>(%row, %column)
          vector.store %e, %out[%at] : memref<4096xbf16>, vector<2xbf16>
          kiln.yield
        }
        kiln.yield
      }
      return
    }
  }
}

// -----
// CASE: no_wgmma_of_this_form
// RUN: kiln-lower-tiles
module attributes {kiln.level = "tiled"} {
  module @k attributes {kiln.kernel = {}} {
    func.func @k() attributes {kiln.shared = 17424 : i64, kiln.threads = 256 : i64} {
      %left, %right = kiln.tile.pipeline : memref<1x64x32xf32, 3>, memref<1x32x64xf32, 3>
      kiln.tile.warp_specialize consumers 1 producer {
        kiln.yield
      } consumer {
        %s = kiln.tile.first_stage
        %a = kiln.tile.view %left[%s] : memref<1x64x32xf32, 3> -> memref<64x32xf32, 3>
        %b = kiln.tile.view %right[%s] : memref<1x32x64xf32, 3> -> memref<32x64xf32, 3>
        // expected-error @+1 {{has operands that no wgmma takes}}
        %p = kiln.tile.mma %a, %b : memref<64x32xf32, 3>, memref<32x64xf32, 3> -> tensor<64x64xf32, #kiln.fragment<accumulator>>
        kiln.yield
      }
      return
    }
  }
}

// -----
// CASE: rows_that_no_warpgroups_hold
// RUN: kiln-lower-tiles
module attributes {kiln.level = "tiled"} {
  module @k attributes {kiln.kernel = {}} {
    func.func @k(%n: i32) attributes {kiln.threads = 384 : i64} {
      kiln.tile.warp_specialize consumers 2 producer {
        kiln.yield
      } consumer {
        // expected-error @+1 {{has 64 rows for 2 warpgroups}}
        %i = kiln.tile.iota %n : tensor<64xindex, #kiln.fragment<rows>>
        kiln.yield
      }
      return
    }
  }
}

// -----
// CASE: several_sums_over_a_cluster
// RUN: kiln-lower-tiles
#accumulator = #kiln.fragment<accumulator>
module attributes {kiln.level = "tiled"} {
  module @k attributes {kiln.kernel = {}} {
    // expected-error @+1 {{reduces several tiles over its cluster}}
    func.func @k(%n: i32) attributes {kiln.threads = 256 : i64} {
      kiln.tile.warp_specialize consumers 1 producer {
        kiln.yield
      } consumer {
        %x = arith.constant dense<0.0> : tensor<64x8xf32, #accumulator>
        kiln.tile.cluster_reduce %x rank %n of 2 {
        ^bb0(%sum: tensor<64x8xf32, #accumulator>):
          kiln.yield
        } : tensor<64x8xf32, #accumulator>
        kiln.tile.cluster_reduce %x rank %n of 2 {
        ^bb0(%sum: tensor<64x8xf32, #accumulator>):
          kiln.yield
        } : tensor<64x8xf32, #accumulator>
        kiln.yield
      }
      return
    }
  }
}

// -----
// CASE: more_tiles_than_shared_memory
// RUN: kiln-lower-tiles
module attributes {kiln.level = "tiled"} {
  module @k attributes {kiln.kernel = {}} {
    // expected-error @+1 {{has tiles of 8208 bytes in 9000 bytes of shared memory}}
    func.func @k() attributes {kiln.shared = 9000 : i64, kiln.threads = 256 : i64} {
      %ring = kiln.tile.pipeline : memref<1x64x64xbf16, 3>
      kiln.tile.warp_specialize consumers 1 producer {
        kiln.yield
      } consumer {
        kiln.yield
      }
      return
    }
  }
}
