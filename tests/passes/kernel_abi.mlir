// RUN: kiln-kernel-abi,canonicalize,cse

// Memref sizes are constants or index parameters; the body rebuilds the descriptor. The program's
// entry loads the words of the argument array and calls the kernel.
// CASE: called_by_a_program
// CHECK: func.func @kiln_k(%arg0: !llvm.ptr, %arg1: !llvm.ptr {llvm.noalias}, %arg2: i64
// IMPLICIT-CHECK-NOT: kiln.divisor
module attributes {kiln.level = "target", kiln.programs = {main = {arena = {known = 0 : i64}, entry = {main = "kiln_entry_main", object = "host"}, exprs = [{kind = "mul", lhs = {symbol = 0 : i64}, rhs = {known = 32 : i64}}], format = 7 : i64, globals = [], inputs = [{dims = [{symbol = 0 : i64}, {known = 4 : i64}], dtype = "f32", name = "input_0"}], kernels = [{bytes = {expr = 0 : i64}, flops = {known = 0 : i64}, inputs = array<i64: 0>, kind = "pointwise", name = "k", not_fused = [], object = "k", ops = [], outputs = array<i64: 0>, reads = [], results = [{dims = [{symbol = 0 : i64}, {known = 4 : i64}], dtype = "f32", name = ""}], serial = false, sources = ["k.mlir:9"], symbol = "kiln_k"}], name = "main", options = {compiler = "", threads = 0 : i64}, outputs = [{dims = [{symbol = 0 : i64}, {known = 4 : i64}], dtype = "f32", name = "output_0"}], symbols = [{dim = 0 : i64, divisor = 8 : i64, input = 0 : i64, min = 8 : i64, name = "s"}], target = {arch = "", cpu = "", features = ""}}}} {
  func.func private @kiln_k(!llvm.ptr, !llvm.ptr, i64, i64, i64)
  func.func @kiln_entry_main(%words: !llvm.ptr, %threads: i32) {
    %c0 = arith.constant 0 : i64
    %c1 = arith.constant 1 : i64
    %0 = llvm.getelementptr %words[2] : (!llvm.ptr) -> !llvm.ptr, i64
    %x = llvm.load %0 : !llvm.ptr -> !llvm.ptr
    %1 = llvm.getelementptr %words[3] : (!llvm.ptr) -> !llvm.ptr, i64
    %out = llvm.load %1 : !llvm.ptr -> !llvm.ptr
    %2 = llvm.getelementptr %words[4] : (!llvm.ptr) -> !llvm.ptr, i64
    %s = llvm.load %2 : !llvm.ptr -> i64
    func.call @kiln_k(%x, %out, %s, %c0, %c1) : (!llvm.ptr, !llvm.ptr, i64, i64, i64) -> ()
    return
  }
  module @k attributes {kiln.kernel = {kind = "pointwise"}} {
    func.func @kiln_k(%x: memref<?x4xf32> {kiln.sizes = array<i64: -1, 4>}, %out: memref<?x4xf32> {kiln.noalias, kiln.sizes = array<i64: -1, 4>}, %s: index {kiln.divisor = 8 : i64, kiln.least = 8 : i64}, %tid: index, %nth: index) {
      %c0 = arith.constant 0 : index
      scf.for %i = %tid to %s step %nth {
        %v = vector.load %x[%i, %c0] : memref<?x4xf32>, vector<4xf32>
        %w = arith.addf %v, %v : vector<4xf32>
        vector.store %w, %out[%i, %c0] : memref<?x4xf32>, vector<4xf32>
      }
      return
    }
  }
}
