#rest = affine_map<(d0)[s0] -> (32, -d0 + s0)>
// Ops that kernels contain; compiled, not run.
func.func @many_ops(%x: memref<?x128xf32> {kiln.sizes = array<i64: -1, 128>, kiln.noalias},
  %y: memref<?x128xf32> {kiln.sizes = array<i64: -1, 128>},
  %b: memref<?x128xi1> {kiln.sizes = array<i64: -1, 128>},
  %h: memref<?x128xbf16> {kiln.sizes = array<i64: -1, 128>},
  %g: memref<?x128xf16> {kiln.sizes = array<i64: -1, 128>},
  %q: memref<?x128xi8> {kiln.sizes = array<i64: -1, 128>},
  %n: index, %tid: index, %nth: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c16 = arith.constant 16 : index
  %c32 = arith.constant 32 : index
  %c128 = arith.constant 128 : index
  %f0 = arith.constant 0.0 : f32
  %z = arith.constant dense<0.0> : vector<16xf32>
  %buf = memref.alloca() {alignment = 64 : i64} : memref<4x16xf32>
  scf.for %i = %tid to %n step %nth {
    %r = scf.for %j = %c0 to %c128 step %c16 iter_args(%acc = %z) -> vector<16xf32> {
      %v = vector.load %x[%i, %j] : memref<?x128xf32>, vector<16xf32>
      %a = vector.fma %v, %v, %acc : vector<16xf32>
      %m = affine.min #rest(%j)[%n]
      %mask = vector.create_mask %m : vector<16xi1>
      %l = vector.maskedload %x[%i, %j], %mask, %z : memref<?x128xf32>, vector<16xi1>, vector<16xf32> into vector<16xf32>
      vector.maskedstore %y[%i, %j], %mask, %l : memref<?x128xf32>, vector<16xi1>, vector<16xf32>
      scf.yield %a : vector<16xf32>
    }
    %s = vector.reduction <add>, %r : vector<16xf32> into f32
    %even = arith.remui %i, %c32 : index
    %cond = arith.cmpi eq, %even, %c0 : index
    %w = scf.if %cond -> f32 { scf.yield %s : f32 } else { %t = arith.addf %s, %s : f32
      scf.yield %t : f32 }
    memref.store %w, %y[%i, %c0] : memref<?x128xf32>
    %sub = memref.subview %x[%i, 0] [1, 128] [1, 1] : memref<?x128xf32> to memref<1x128xf32, strided<[128, 1], offset: ?>>
    %tr = vector.transfer_read %sub[%c0, %c0], %f0 {in_bounds = [true, true]} : memref<1x128xf32, strided<[128, 1], offset: ?>>, vector<1x16xf32>
    %tr2 = vector.transfer_read %x[%i, %c0], %f0 {in_bounds = [false, true]} : memref<?x128xf32>, vector<4x16xf32>
    %tr3 = vector.transfer_read %x[%i, %tid], %f0 {in_bounds = [true, false]} : memref<?x128xf32>, vector<1x16xf32>
    vector.transfer_write %tr3, %y[%i, %c16] {in_bounds = [true, true]} : vector<1x16xf32>, memref<?x128xf32>
    vector.transfer_write %tr2, %buf[%c0, %c0] {in_bounds = [true, true]} : vector<4x16xf32>, memref<4x16xf32>
    %tt = vector.transfer_read %buf[%c0, %c0], %f0 {in_bounds = [true, true], permutation_map = affine_map<(a, b) -> (b, a)>} : memref<4x16xf32>, vector<16x4xf32>
    vector.transfer_write %tt, %y[%i, %c32] {in_bounds = [false, false]} : vector<16x4xf32>, memref<?x128xf32>
    %bb = memref.load %b[%i, %c1] : memref<?x128xi1>
    memref.store %bb, %b[%i, %c0] : memref<?x128xi1>
    %hh = vector.load %h[%i, %c0] : memref<?x128xbf16>, vector<16xbf16>
    %h32 = arith.extf %hh : vector<16xbf16> to vector<16xf32>
    %h2 = arith.addf %h32, %h32 : vector<16xf32>
    %hb = arith.truncf %h2 : vector<16xf32> to vector<16xbf16>
    vector.store %hb, %h[%i, %c16] : memref<?x128xbf16>, vector<16xbf16>
    %gg = vector.load %g[%i, %c0] : memref<?x128xf16>, vector<16xf16>
    %g32 = arith.extf %gg : vector<16xf16> to vector<16xf32>
    %g2 = arith.addf %g32, %g32 : vector<16xf32>
    %gb = arith.truncf %g2 : vector<16xf32> to vector<16xf16>
    vector.store %gb, %g[%i, %c16] : memref<?x128xf16>, vector<16xf16>
    %qq = vector.load %q[%i, %c0] : memref<?x128xi8>, vector<16xi8>
    %qi = arith.extsi %qq : vector<16xi8> to vector<16xi64>
    %qf = arith.sitofp %qi : vector<16xi64> to vector<16xf32>
    %cmp = arith.cmpf ogt, %qf, %h32 : vector<16xf32>
    %sel = arith.select %cmp, %qf, %g32 : vector<16xi1>, vector<16xf32>
    %mx = arith.maximumf %sel, %qf : vector<16xf32>
    %sq = math.sqrt %mx : vector<16xf32>
    %ab = math.absf %sq : vector<16xf32>
    %fl = math.floor %ab : vector<16xf32>
    vector.store %fl, %y[%i, %c0] : memref<?x128xf32>, vector<16xf32>
  }
  return
  }
