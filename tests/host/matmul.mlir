// c[i, :] = a[i, :] * b in 4 x 16 tiles; rows of tiles are distributed over threads.
func.func @matmul(%a: memref<?x24xf32> {kiln.sizes = array<i64: -1, 24>, kiln.noalias},
                  %b: memref<24x32xf32> {kiln.sizes = array<i64: 24, 32>, kiln.noalias},
                  %c: memref<?x32xf32> {kiln.sizes = array<i64: -1, 32>, kiln.noalias}, %m: index, %tid: index, %nth: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %c16 = arith.constant 16 : index
  %c24 = arith.constant 24 : index
  %c32 = arith.constant 32 : index
  %pad = arith.constant 0.0 : f32
  %zero = arith.constant dense<0.0> : vector<4x16xf32>
  %tile = memref.alloca() {alignment = 64 : i64} : memref<4x16xf32>
  %from = arith.muli %tid, %c4 : index
  %step = arith.muli %nth, %c4 : index
  scf.for %i = %from to %m step %step {
    scf.for %j = %c0 to %c32 step %c16 {
      %sum = scf.for %k = %c0 to %c24 step %c1 iter_args(%acc = %zero) -> vector<4x16xf32> {
        %col = vector.transfer_read %a[%i, %k], %pad {in_bounds = [false, true]} : memref<?x24xf32>, vector<4x1xf32>
        %lhs = vector.shape_cast %col : vector<4x1xf32> to vector<4xf32>
        %row = vector.transfer_read %b[%k, %j], %pad {in_bounds = [true]} : memref<24x32xf32>, vector<16xf32>
        %next = vector.outerproduct %lhs, %row, %acc {kind = #vector.kind<add>} : vector<4xf32>, vector<16xf32>
        scf.yield %next : vector<4x16xf32>
      }
      vector.transfer_write %sum, %tile[%c0, %c0] {in_bounds = [true, true]} : vector<4x16xf32>, memref<4x16xf32>
      %again = vector.transfer_read %tile[%c0, %c0], %pad {in_bounds = [true, true]} : memref<4x16xf32>, vector<4x16xf32>
      vector.transfer_write %again, %c[%i, %j] {in_bounds = [false, true]} : vector<4x16xf32>, memref<?x32xf32>
    }
  }
  return
}
