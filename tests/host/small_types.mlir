// Every narrow type: bf16 and f16 doubled in f32, i8 widened and halved, a rank-0 scalar, a
// subview, a comparison.
func.func @small_types(%h: memref<?x16xbf16> {kiln.sizes = array<i64: -1, 16>}, %g: memref<2x16xf16>, %q: memref<16xi8>, %l: memref<?xi64> {kiln.sizes = array<i64: -1>},
                       %s: memref<f32>, %y: memref<?x16xf32> {kiln.sizes = array<i64: -1, 16>}, %n: index, %gain: f32, %tid: index, %nth: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %hv = vector.load %h[%c0, %c0] : memref<?x16xbf16>, vector<16xbf16>
  %hf = arith.extf %hv : vector<16xbf16> to vector<16xf32>
  %h2 = arith.addf %hf, %hf : vector<16xf32>
  %hb = arith.truncf %h2 : vector<16xf32> to vector<16xbf16>
  vector.store %hb, %h[%c1, %c0] : memref<?x16xbf16>, vector<16xbf16>
  %gv = vector.load %g[%c0, %c0] : memref<2x16xf16>, vector<16xf16>
  %gf = arith.extf %gv : vector<16xf16> to vector<16xf32>
  %g2 = arith.addf %gf, %gf : vector<16xf32>
  %gb = arith.truncf %g2 : vector<16xf32> to vector<16xf16>
  vector.store %gb, %g[%c1, %c0] : memref<2x16xf16>, vector<16xf16>
  %qv = vector.load %q[%c0] : memref<16xi8>, vector<16xi8>
  %ql = arith.extsi %qv : vector<16xi8> to vector<16xi64>
  %half = arith.constant dense<2> : vector<16xi64>
  %qh = arith.divsi %ql, %half : vector<16xi64>
  vector.store %qh, %l[%c0] : memref<?xi64>, vector<16xi64>
  %base = memref.load %s[] : memref<f32>
  %scaled = arith.mulf %base, %gain : f32
  %all = vector.broadcast %scaled : f32 to vector<16xf32>
  %more = arith.cmpf ogt, %hf, %gf : vector<16xf32>
  %pick = arith.select %more, %all, %gf : vector<16xi1>, vector<16xf32>
  %last = arith.subi %n, %c1 : index
  %row = memref.subview %y[%last, 0] [1, 16] [1, 1] : memref<?x16xf32> to memref<16xf32, strided<[1], offset: ?>>
  %odd = arith.remui %n, %n : index
  %none = arith.cmpi eq, %odd, %c0 : index
  %out = scf.if %none -> vector<16xf32> {
    scf.yield %pick : vector<16xf32>
  } else {
    scf.yield %all : vector<16xf32>
  }
  vector.store %out, %row[%c0] : memref<16xf32, strided<[1], offset: ?>>, vector<16xf32>
  return
}
