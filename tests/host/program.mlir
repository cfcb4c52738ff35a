// args: x, y, m, n. One parallel region with one kernel, and a second one after a barrier.
module attributes {omp.version = #omp.version<version = 51>} {
  llvm.func @scale_rows(!llvm.ptr, !llvm.ptr, i64, i64, i64, i64)
  llvm.func @omp_get_thread_num() -> i32
  llvm.func @omp_get_num_threads() -> i32
  llvm.func @main(%args: !llvm.ptr, %threads: i32) {
    omp.parallel num_threads(%threads : i32) {
      %x = llvm.load %args : !llvm.ptr -> !llvm.ptr
      %yp = llvm.getelementptr %args[1] : (!llvm.ptr) -> !llvm.ptr, i64
      %y = llvm.load %yp : !llvm.ptr -> !llvm.ptr
      %mp = llvm.getelementptr %args[2] : (!llvm.ptr) -> !llvm.ptr, i64
      %m = llvm.load %mp : !llvm.ptr -> i64
      %np = llvm.getelementptr %args[3] : (!llvm.ptr) -> !llvm.ptr, i64
      %n = llvm.load %np : !llvm.ptr -> i64
      %id32 = llvm.call @omp_get_thread_num() : () -> i32
      %size32 = llvm.call @omp_get_num_threads() : () -> i32
      %id = llvm.sext %id32 : i32 to i64
      %size = llvm.sext %size32 : i32 to i64
      llvm.call @scale_rows(%x, %y, %m, %n, %id, %size) : (!llvm.ptr, !llvm.ptr, i64, i64, i64, i64) -> ()
      omp.barrier
      // A single row of m * n elements: all work goes to the first thread.
      %mn = llvm.mul %m, %n : i64
      %one = llvm.mlir.constant(1 : i64) : i64
      llvm.call @scale_rows(%y, %x, %one, %mn, %id, %size) : (!llvm.ptr, !llvm.ptr, i64, i64, i64, i64) -> ()
      omp.terminator
    }
    llvm.return
  }
}
