// RUN: kiln-kernel-abi,canonicalize,cse

// Memref sizes are constants or index parameters; the body rebuilds the descriptor.
// CASE: dynamic
// NO-RUN: a function on pointers
// CHECK: !llvm.ptr {llvm.noalias}
// CHECK: %arg2: i64
// IMPLICIT-CHECK-NOT: kiln.divisor
module attributes {kiln.level = "target"} {
  func.func @k(%x: memref<?x4xf32> {kiln.sizes = array<i64: -1, 4>}, %out: memref<?x4xf32> {kiln.sizes = array<i64: -1, 4>, kiln.noalias}, %s: index {kiln.divisor = 8 : i64, kiln.least = 8 : i64}, %tid: index, %nth: index) {
    %c0 = arith.constant 0 : index
    %v = vector.load %x[%tid, %c0] : memref<?x4xf32>, vector<4xf32>
    vector.store %v, %out[%tid, %c0] : memref<?x4xf32>, vector<4xf32>
    return
  }
}
