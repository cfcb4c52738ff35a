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
    kiln.tile.tma_load %map[%n, %head : i32, index] to %keys[%s] : !llvm.ptr to memref<2x16x32xbf16, 3>
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
  // expected-error @+1 {{has type memref<2x16x32xf32, 3>, not 3 sizes of 16-bit floats in shared memory}}
  %r = kiln.tile.pipeline : memref<2x16x32xf32, 3>
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
