// x times its transpose, by one CTA of a producer and a consumer warpgroup.
#accumulator = #kiln.fragment<accumulator>
module attributes {kiln.level = "tiled"} {
  func.func @main(%x: tensor<64x64xbf16>) -> tensor<64x64xf32> {
    %e = tensor.empty() : tensor<64x64xf32>
    %r = kiln.launch @k ins(%x : tensor<64x64xbf16>) outs(%e : tensor<64x64xf32>) -> tensor<64x64xf32>
    return %r : tensor<64x64xf32>
  }
  module @k attributes {kiln.kernel = {}} {
    func.func @k(%x: memref<64x64xbf16> {kiln.sizes = array<i64: 64, 64>}, %out: memref<64x64xf32> {kiln.noalias, kiln.sizes = array<i64: 64, 64>}, %map: !llvm.ptr) attributes {kiln.grid = affine_map<() -> (1)>, kiln.shared = 9232 : i64, kiln.tensor_maps = [{argument = 0 : i64, box = array<i64: 64, 64>, element = bf16, map = affine_map<() -> (0, 64, 64, 64)>}], kiln.threads = 256 : i64} {
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
        %p = kiln.tile.mma %t, transposed %t : memref<64x64xbf16, 3>, memref<64x64xbf16, 3> -> tensor<64x64xf32, #accumulator>
        %r = kiln.tile.mma_wait 0(%p : tensor<64x64xf32, #accumulator>)
        kiln.tile.release %ring[%s] : memref<1x64x64xbf16, 3>
        kiln.tile.epilogue(%r : tensor<64x64xf32, #accumulator>) at(%zero, %zero) vectors of 2 {
        ^bb0(%row: index, %column: index, %e: vector<2xf32>):
          vector.store %e, %out[%row, %column] : memref<64x64xf32>, vector<2xf32>
          kiln.yield
        }
        kiln.yield
      }
      return
    }
  }
}
