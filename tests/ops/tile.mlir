// CASE: program
// NO-RUN: tile programs are not interpreted; tests/passes/gpu_tile.mlir runs them
#rows = #kiln.fragment<rows>
#columns = #kiln.fragment<columns>
#accumulator = #kiln.fragment<accumulator>
#operand = #kiln.fragment<operand>
#partial_rows = #kiln.fragment<partial_rows>
func.func @k(%map: !llvm.ptr, %out: memref<1024xf32>, %n: i32, %head: index) {
  %keys = kiln.tile.pipeline : memref<2x16x32xbf16, 3>
  %queries = kiln.tile.pipeline : memref<2x64x32xbf16, 3>
  kiln.tile.warp_specialize consumers 1 registers [40, 232] producer {
    %s = kiln.tile.first_stage
    kiln.tile.acquire %keys[%s] : memref<2x16x32xbf16, 3>
    kiln.tile.tma_load %map[%n, %n, %head : i32, i32, index] to %keys[%s] : !llvm.ptr to memref<2x16x32xbf16, 3>
    %t = kiln.tile.next_stage %keys[%s] : memref<2x16x32xbf16, 3>
    kiln.yield
  } consumer {
    %s = kiln.tile.first_stage
    kiln.tile.wait %keys[%s] : memref<2x16x32xbf16, 3>
    %k = kiln.tile.view %keys[%s] : memref<2x16x32xbf16, 3> -> memref<16x32xbf16, 3>
    %q = kiln.tile.view %queries[%s] : memref<2x64x32xbf16, 3> -> memref<64x32xbf16, 3>
    kiln.tile.zero_rows %k from %n : memref<16x32xbf16, 3>
    %a = kiln.tile.mma %q, transposed %k : memref<64x32xbf16, 3>, memref<16x32xbf16, 3> -> tensor<64x16xf32, #accumulator>
    %b = kiln.tile.mma_wait 0(%a : tensor<64x16xf32, #accumulator>)
    %w = kiln.tile.convert %b : tensor<64x16xf32, #accumulator> -> tensor<64x16xbf16, #operand>
    %zero = arith.constant dense<0.0> : tensor<64x32xf32, #accumulator>
    %p = kiln.tile.mma %w, %k init %zero : tensor<64x32xf32, #accumulator> : tensor<64x16xbf16, #operand>, memref<16x32xbf16, 3> -> tensor<64x32xf32, #accumulator>
    %d = kiln.tile.mma_wait 0(%p : tensor<64x32xf32, #accumulator>) alive(%w : tensor<64x16xbf16, #operand>)
    kiln.tile.release %keys[%s] : memref<2x16x32xbf16, 3>
    %i = kiln.tile.iota %n to %n : tensor<64xindex, #rows>
    %j = kiln.tile.iota %n : tensor<32xindex, #columns>
    %part = kiln.tile.reduce sum %d : tensor<64x32xf32, #accumulator> -> tensor<64xf32, #partial_rows>
    %sum = kiln.tile.reduce sum %part : tensor<64xf32, #partial_rows> -> tensor<64xf32, #rows>
    %all = kiln.tile.broadcast %sum : tensor<64xf32, #rows> -> tensor<64x32xf32, #accumulator>
    %r = arith.divf %d, %all : tensor<64x32xf32, #accumulator>
    %m = kiln.tile.map fast(%r, %i, %j, %head : tensor<64x32xf32, #accumulator>, tensor<64xindex, #rows>, tensor<32xindex, #columns>, index) -> tensor<64x32xf32, #accumulator> {
    ^bb0(%x: f32, %row: index, %column: index, %h: index):
      %hidden = arith.cmpi sgt, %column, %row : index
      %y = arith.select %hidden, %x, %x : f32
      kiln.yield %y : f32
    }
    kiln.tile.store %m to %out(%i, %j : tensor<64xindex, #rows>, tensor<32xindex, #columns>) vectors of 2 below %n {
    ^bb0(%row: index, %column: index):
      %at = affine.apply affine_map<(i, j) -> (i * 32 + j)>(%row, %column)
      kiln.yield %at : index
    } : tensor<64x32xf32, #accumulator> to memref<1024xf32>
    kiln.yield
  }
  return
}

// -----

// CASE: gemm
// NO-RUN: tile programs are not interpreted; tests/passes/gpu_tile.mlir runs them
#columns = #kiln.fragment<columns>
#accumulator = #kiln.fragment<accumulator>
func.func @k(%a: !llvm.ptr, %b: !llvm.ptr, %image: !llvm.ptr, %c: !llvm.ptr, %d: memref<4160xf32>, %n: i32, %size: index) {
  %left, %right = kiln.tile.pipeline warpgroups : memref<2x64x64xbf16, 3>, memref<2x128x64xbf16, 3>
  %raw = kiln.tile.pipeline : memref<2x64x64xf32, 3>
  kiln.tile.warp_specialize consumers 1 prefetch(%a, %b : !llvm.ptr, !llvm.ptr) producer {
    %s = kiln.tile.first_stage
    kiln.tile.acquire %left[%s] : memref<2x64x64xbf16, 3>
    kiln.tile.tma_load whole %a[%n, %n, %n : i32, i32, i32] to %left[%s] : !llvm.ptr to memref<2x64x64xbf16, 3>
    kiln.tile.tma_load %image[%n, %n, %n, %n : i32, i32, i32, i32] window(%n, %n) to %left[%s] : !llvm.ptr to memref<2x64x64xbf16, 3>
    kiln.tile.tma_load %b[%n, %n : i32, i32] to part [0, 2] of %right[%s] : !llvm.ptr to memref<2x128x64xbf16, 3>
    kiln.tile.tma_load %b[%n, %n : i32, i32] to part [1, 2] of %right[%s] : !llvm.ptr to memref<2x128x64xbf16, 3>
    kiln.yield
  } consumer {
    %s = kiln.tile.first_stage
    kiln.tile.wait %right[%s] : memref<2x128x64xbf16, 3>
    %x = kiln.tile.view %left[%s] : memref<2x64x64xbf16, 3> -> memref<64x64xbf16, 3>
    %y = kiln.tile.view %right[%s] : memref<2x128x64xbf16, 3> -> memref<128x64xbf16, 3>
    %first = kiln.tile.mma transposed %x, transposed %y : memref<64x64xbf16, 3>, memref<128x64xbf16, 3> -> tensor<64x128xf32, #accumulator>
    kiln.tile.mma_wait 1
    %next = kiln.tile.mma transposed %x, transposed %y init %first : tensor<64x128xf32, #accumulator> : memref<64x64xbf16, 3>, memref<128x64xbf16, 3> -> tensor<64x128xf32, #accumulator>
    %own = kiln.tile.mma_wait 0(%next : tensor<64x128xf32, #accumulator>)
    %z = kiln.tile.view %raw[%s] : memref<2x64x64xf32, 3> -> memref<64x64xf32, 3>
    %j = kiln.tile.iota %n : tensor<64xindex, #columns>
    %t = kiln.tile.local_load %z : memref<64x64xf32, 3> -> tensor<64x64xf32, #accumulator>
    %scale = kiln.tile.load %d(%j : tensor<64xindex, #columns>) vectors of 2 {
    ^bb0(%column: index):
      kiln.yield %column : index
    } : memref<4160xf32> -> tensor<64xf32, #columns>
    %scaled = kiln.tile.map(%t, %scale : tensor<64x64xf32, #accumulator>, tensor<64xf32, #columns>) -> tensor<64x64xf32, #accumulator> {
    ^bb0(%e: f32, %f: f32):
      %g = arith.mulf %e, %f : f32
      kiln.yield %g : f32
    }
    kiln.tile.cluster_reduce %own rank %n of 4 {
    ^bb0(%sum: tensor<64x128xf32, #accumulator>):
      %gate, %up = kiln.tile.split %sum : tensor<64x128xf32, #accumulator> -> tensor<64x64xf32, #accumulator>, tensor<64x64xf32, #accumulator>
      kiln.tile.epilogue(%gate, %up : tensor<64x64xf32, #accumulator>, tensor<64x64xf32, #accumulator>) at(%n, %n) rows below %size vectors of 2 to(%c, %d : !llvm.ptr, memref<4160xf32>) outer(%n) {
      ^bb0(%row: index, %column: index, %e: vector<2xf32>, %f: vector<2xf32>):
        %h = arith.mulf %e, %f : vector<2xf32>
        %i = arith.truncf %h : vector<2xf32> to vector<2xbf16>
        kiln.yield %i, %h : vector<2xbf16>, vector<2xf32>
      } lines {
      ^bb0(%row: index, %column: index):
        %at = affine.apply affine_map<(i, j) -> (i * 65 + j)>(%row, %column)
        kiln.yield %at : index
      }
      kiln.yield
    } : tensor<64x128xf32, #accumulator>
    kiln.tile.epilogue(%scaled : tensor<64x64xf32, #accumulator>) at(%n, %n) columns below %size vectors of 1 {
    ^bb0(%row: index, %column: index, %e: f32):
      %at = affine.apply affine_map<(i, j) -> (i * 65 + j)>(%row, %column)
      memref.store %e, %d[%at] : memref<4160xf32>
      kiln.yield
    }
    kiln.yield
  }
  return
}

// -----

func.func @f(%x: tensor<60xf32, #kiln.fragment<rows>>) {
  // expected-error @+1 {{has type tensor<60xf32, #kiln.fragment<rows>>, which no warpgroups hold}}
  %r = kiln.tile.broadcast %x : tensor<60xf32, #kiln.fragment<rows>> -> tensor<60x8xf32, #kiln.fragment<accumulator>>
  return
}

// -----

func.func @f(%x: tensor<64xf32>) {
  // expected-error @+1 {{has type tensor<64xf32> where a fragment of rows is needed}}
  %r = kiln.tile.broadcast %x : tensor<64xf32> -> tensor<64x8xf32, #kiln.fragment<accumulator>>
  return
}

// -----

func.func @f(%x: memref<2x16x32xbf16, 3>, %s: !kiln.stage) {
  // expected-error @+1 {{takes a pipeline that no kiln.tile.pipeline makes}}
  kiln.tile.wait %x[%s] : memref<2x16x32xbf16, 3>
  return
}

// -----

func.func @f() {
  // expected-error @+1 {{has type memref<2x16x32xf64, 3>, not 3 sizes of i8 or of floats of at most 32 bits in shared memory}}
  %r = kiln.tile.pipeline : memref<2x16x32xf64, 3>
  return
}

// -----

func.func @f(%a: memref<64x32xbf16, 3>, %b: memref<32x16xi8, 3>) {
  // expected-error @+1 {{multiplies bf16 and i8 to f32}}
  %r = kiln.tile.mma %a, %b : memref<64x32xbf16, 3>, memref<32x16xi8, 3> -> tensor<64x16xf32, #kiln.fragment<accumulator>>
  return
}

// -----

func.func @f(%a: memref<64x32xi8, 3>) {
  // expected-error @+1 {{reads [64, 32] elements of [64, 32]}}
  %r = kiln.tile.local_load %a : memref<64x32xi8, 3> -> tensor<64x32xi8, #kiln.fragment<operand>>
  return
}

// -----

func.func @f(%a: memref<64x32xbf16, 3>, %b: memref<16x32xbf16, 3>) {
  // expected-error @+1 {{multiplies [64, 32] and [16, 32] to [64, 16]}}
  %r = kiln.tile.mma %a, %b : memref<64x32xbf16, 3>, memref<16x32xbf16, 3> -> tensor<64x16xf32, #kiln.fragment<accumulator>>
  return
}

// -----

func.func @f(%x: tensor<64x8xf32, #kiln.fragment<accumulator>>) {
  // expected-error @+1 {{has kind prod, not sum or max}}
  %r = kiln.tile.reduce prod %x : tensor<64x8xf32, #kiln.fragment<accumulator>> -> tensor<64xf32, #kiln.fragment<rows>>
  return
}

// -----

func.func @f(%x: tensor<64xf32, #kiln.fragment<rows>>) {
  // expected-error @+1 {{has a body of other arguments}}
  %r = kiln.tile.map(%x : tensor<64xf32, #kiln.fragment<rows>>) -> tensor<64xf32, #kiln.fragment<rows>> {
  ^bb0(%a: f16):
    %0 = arith.extf %a : f16 to f32
    kiln.yield %0 : f32
  }
  return
}

// -----

func.func @f(%x: tensor<64xf32, #kiln.fragment<rows>>) {
  // expected-error @+1 {{yields something else than results}}
  %r = kiln.tile.map(%x : tensor<64xf32, #kiln.fragment<rows>>) -> tensor<64xf32, #kiln.fragment<rows>> {
  ^bb0(%a: f32):
    kiln.yield %a, %a : f32, f32
  }
  return
}

// -----

func.func @f(%x: tensor<64x24xf32, #kiln.fragment<accumulator>>) {
  // expected-error @+1 {{has a part tensor<64x8xf32, #kiln.fragment<accumulator>>, not of [64, 12]}}
  %a, %b = kiln.tile.split %x : tensor<64x24xf32, #kiln.fragment<accumulator>> -> tensor<64x8xf32, #kiln.fragment<accumulator>>, tensor<64x8xf32, #kiln.fragment<accumulator>>
  return
}

// -----

func.func @f() {
  // expected-error @+1 {{has tiles of [2, 3] stages, which are as many for each}}
  %a, %b = kiln.tile.pipeline : memref<2x64x64xbf16, 3>, memref<3x64x64xbf16, 3>
  return
}

// -----

func.func @f(%map: !llvm.ptr, %n: i32, %s: !kiln.stage) {
  %a = kiln.tile.pipeline : memref<2x64x64xbf16, 3>
  // expected-error @+1 {{has part [2, 2], not one of several parts and their number}}
  kiln.tile.tma_load %map[%n : i32] to part [2, 2] of %a[%s] : !llvm.ptr to memref<2x64x64xbf16, 3>
  return
}

// -----

func.func @f(%map: !llvm.ptr, %n: i32, %s: !kiln.stage) {
  %a = kiln.tile.pipeline : memref<2x64x64xbf16, 3>
  // expected-error @+1 {{needs a window of two offsets, and slices of their own}}
  kiln.tile.tma_load %map[%n : i32] window(%n) to %a[%s] : !llvm.ptr to memref<2x64x64xbf16, 3>
  return
}

// -----

func.func @f(%x: tensor<64x8xf32, #kiln.fragment<accumulator>>, %rank: i32) {
  // expected-error @+1 {{shares 64 rows among 8 CTAs, 16 for each warp}}
  kiln.tile.cluster_reduce %x rank %rank of 8 {
  ^bb0(%sum: tensor<64x8xf32, #kiln.fragment<accumulator>>):
    kiln.yield
  } : tensor<64x8xf32, #kiln.fragment<accumulator>>
  return
}

// -----

func.func @f(%x: memref<64x64xbf16, 3>) {
  // expected-error @+1 {{reads [64, 32] elements of [64, 64]}}
  %r = kiln.tile.local_load %x : memref<64x64xbf16, 3> -> tensor<64x32xbf16, #kiln.fragment<accumulator>>
  return
}

// -----

func.func @f(%x: memref<64xf32>, %j: tensor<64xindex, #kiln.fragment<columns>>) {
  // expected-error @+1 {{reads [64] elements at [64] columns, in vectors of 4}}
  %r = kiln.tile.load %x(%j : tensor<64xindex, #kiln.fragment<columns>>) vectors of 4 {
  ^bb0(%column: index):
    kiln.yield %column : index
  } : memref<64xf32> -> tensor<64xf32, #kiln.fragment<columns>>
  return
}

// -----

func.func @f(%x: tensor<64x64xf32, #kiln.fragment<accumulator>>, %n: i32, %d: memref<64xf32>) {
  // expected-error @+1 {{needs lines where a destination is a memref, and only there}}
  kiln.tile.epilogue(%x : tensor<64x64xf32, #kiln.fragment<accumulator>>) at(%n, %n) vectors of 1 to(%d : memref<64xf32>) {
  ^bb0(%row: index, %column: index, %e: f32):
    kiln.yield %e : f32
  }
  return
}

// -----

func.func @f(%x: tensor<64x64xf32, #kiln.fragment<accumulator>>, %n: i32, %map: !llvm.ptr) {
  // expected-error @+1 {{yields f32 for a destination !llvm.ptr}}
  kiln.tile.epilogue(%x : tensor<64x64xf32, #kiln.fragment<accumulator>>) at(%n, %n) vectors of 2 to(%map : !llvm.ptr) {
  ^bb0(%row: index, %column: index, %e: vector<2xf32>):
    %first = vector.extract %e[0] : f32 from vector<2xf32>
    kiln.yield %first : f32
  }
  return
}
