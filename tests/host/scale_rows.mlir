// y[i, :] = x[i, :] * sum(x[i, :]) for this thread's rows, with a masked tail.
#rest = affine_map<(d0)[s0] -> (16, -d0 + s0)>
func.func @scale_rows(%x: memref<?x?xf32> {kiln.sizes = array<i64: -1, -2>, kiln.noalias},
                      %y: memref<?x?xf32> {kiln.sizes = array<i64: -1, -2>, kiln.noalias},
                      %m: index, %n: index, %tid: index, %nth: index) {
  %c0 = arith.constant 0 : index
  %c16 = arith.constant 16 : index
  %zero = arith.constant dense<0.0> : vector<16xf32>
  scf.for %i = %tid to %m step %nth {
    %sums = scf.for %j = %c0 to %n step %c16 iter_args(%acc = %zero) -> vector<16xf32> {
      %left = affine.min #rest(%j)[%n]
      %mask = vector.create_mask %left : vector<16xi1>
      %v = vector.maskedload %x[%i, %j], %mask, %zero : memref<?x?xf32>, vector<16xi1>, vector<16xf32> into vector<16xf32>
      %next = arith.addf %acc, %v : vector<16xf32>
      scf.yield %next : vector<16xf32>
    }
    %sum = vector.reduction <add>, %sums : vector<16xf32> into f32
    %scale = vector.broadcast %sum : f32 to vector<16xf32>
    scf.for %j = %c0 to %n step %c16 {
      %left = affine.min #rest(%j)[%n]
      %mask = vector.create_mask %left : vector<16xi1>
      %v = vector.maskedload %x[%i, %j], %mask, %zero : memref<?x?xf32>, vector<16xi1>, vector<16xf32> into vector<16xf32>
      %w = arith.mulf %v, %scale : vector<16xf32>
      vector.maskedstore %y[%i, %j], %mask, %w : memref<?x?xf32>, vector<16xi1>, vector<16xf32>
    }
  }
  return
}
