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
// A thread has two elements of each of its two rows; four lanes share a row.
// CASE: maxima_of_rows
// RUN: kiln-lower-tiles
// NO-RUN: a tile program has no other lowering to compare with
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
// CASE: no_wgmma_of_this_form
// RUN: kiln-lower-tiles
module attributes {kiln.level = "tiled"} {
  module @k attributes {kiln.kernel = {}} {
    func.func @k() attributes {kiln.shared = 9232 : i64, kiln.threads = 256 : i64} {
      %ring = kiln.tile.pipeline : memref<1x64x64xbf16, 3>
      kiln.tile.warp_specialize consumers 1 producer {
        kiln.yield
      } consumer {
        %s = kiln.tile.first_stage
        %t = kiln.tile.view %ring[%s] : memref<1x64x64xbf16, 3> -> memref<64x64xbf16, 3>
        // expected-error @+1 {{has operands that no wgmma takes}}
        %p = kiln.tile.mma %t, %t : memref<64x64xbf16, 3>, memref<64x64xbf16, 3> -> tensor<64x64xf32, #kiln.fragment<accumulator>>
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
