// RUN: kiln-host-abi{serial-below=1}

// The second launch reads the first's result: a barrier between them; the third reads an argument
// only.
// CASE: barriers
// CHECK: omp.barrier
// CHECK: func.call @kiln_k
// IMPLICIT-CHECK-NOT: kiln.launch
module attributes {kiln.level = "program"} {
  func.func @main(%x: tensor<16xf32>) -> (tensor<16xf32>, tensor<16xf32>) {
    %c0 = arith.constant 0 : index
    %c64 = arith.constant 64 : index
    kiln.arena_size %c64
    %e0 = kiln.arena %c0 live 0 to 1 : tensor<16xf32>
    %0 = kiln.launch @k ins(%x : tensor<16xf32>) outs(%e0 : tensor<16xf32>) -> tensor<16xf32>
    %e1 = kiln.output 0 : tensor<16xf32>
    %1 = kiln.launch @k ins(%0 : tensor<16xf32>) outs(%e1 : tensor<16xf32>) -> tensor<16xf32>
    %e2 = kiln.output 1 : tensor<16xf32>
    %2 = kiln.launch @k ins(%x : tensor<16xf32>) outs(%e2 : tensor<16xf32>) -> tensor<16xf32>
    return %1, %2 : tensor<16xf32>, tensor<16xf32>
  }
  module @k attributes {kiln.kernel = {kind = "pointwise"}} {
    func.func @k(%x0: memref<16xf32> {kiln.sizes = array<i64: 16>}, %o: memref<16xf32> {kiln.noalias, kiln.sizes = array<i64: 16>}, %tid: index, %nth: index) {
      %c0 = arith.constant 0 : index
      %first = arith.cmpi eq, %tid, %c0 : index
      scf.if %first {
        %v = vector.load %x0[%c0] : memref<16xf32>, vector<16xf32>
        %w = arith.addf %v, %v : vector<16xf32>
        vector.store %w, %o[%c0] : memref<16xf32>, vector<16xf32>
      }
      return
    }
  }
}

// -----
// Two launches insert slices into one tensor without a barrier; its user waits for both.
// CASE: slices_of_one_tensor
// CHECK: omp.barrier
module attributes {kiln.level = "program"} {
  func.func @main(%x: tensor<16xf32>) -> tensor<16xf32> {
    %c0 = arith.constant 0 : index
    %c128 = arith.constant 128 : index
    kiln.arena_size %c128
    %e0 = kiln.arena %c0 live 0 to 2 : tensor<32xf32>
    %0 = kiln.launch @k ins(%x : tensor<16xf32>) outs(%e0 : tensor<32xf32>) -> tensor<32xf32>
    %1 = kiln.launch @p ins(%x, %0 : tensor<16xf32>, tensor<32xf32>) outs(%0 : tensor<32xf32>) -> tensor<32xf32>
    %e2 = kiln.output 0 : tensor<16xf32>
    %2 = kiln.launch @l ins(%1 : tensor<32xf32>) outs(%e2 : tensor<16xf32>) -> tensor<16xf32>
    return %2 : tensor<16xf32>
  }
  module @k attributes {kiln.kernel = {kind = "contract"}} {
    func.func @k(%x0: memref<16xf32> {kiln.sizes = array<i64: 16>}, %o: memref<32xf32> {kiln.noalias, kiln.sizes = array<i64: 32>}, %tid: index, %nth: index) {
      %c0 = arith.constant 0 : index
      %first = arith.cmpi eq, %tid, %c0 : index
      scf.if %first {
        %v = vector.load %x0[%c0] : memref<16xf32>, vector<16xf32>
        vector.store %v, %o[%c0] : memref<32xf32>, vector<16xf32>
      }
      return
    }
  }
  module @p attributes {kiln.kernel = {kind = "contract"}} {
    func.func @p(%x0: memref<16xf32> {kiln.sizes = array<i64: 16>}, %x1: memref<32xf32> {kiln.sizes = array<i64: 32>}, %o: memref<32xf32> {kiln.sizes = array<i64: 32>}, %tid: index, %nth: index) {
      %c0 = arith.constant 0 : index
      %first = arith.cmpi eq, %tid, %c0 : index
      scf.if %first {
        %v = vector.load %x0[%c0] : memref<16xf32>, vector<16xf32>
        %at = arith.constant 16 : index
        vector.store %v, %o[%at] : memref<32xf32>, vector<16xf32>
      }
      return
    }
  }
  module @l attributes {kiln.kernel = {kind = "pointwise"}} {
    func.func @l(%x0: memref<32xf32> {kiln.sizes = array<i64: 32>}, %o: memref<16xf32> {kiln.noalias, kiln.sizes = array<i64: 16>}, %tid: index, %nth: index) {
      %c0 = arith.constant 0 : index
      %first = arith.cmpi eq, %tid, %c0 : index
      scf.if %first {
        %at = arith.constant 16 : index
        %v = vector.load %x0[%c0] : memref<32xf32>, vector<16xf32>
        %u = vector.load %x0[%at] : memref<32xf32>, vector<16xf32>
        %w = arith.addf %v, %u : vector<16xf32>
        vector.store %w, %o[%c0] : memref<16xf32>, vector<16xf32>
      }
      return
    }
  }
}

// -----
// Sizes come from the argument array, weights have slots after the results, views alias their
// source.
// CASE: sizes_weights_and_views
// CHECK: llvm.load
module attributes {kiln.level = "program"} {
  kiln.global @w : tensor<4xf32> from "w.safetensors"
  func.func @main(%x: tensor<?x4xf32>) -> tensor<?xf32> {
    %s = kiln.sym @s {min = 1 : i64}
    kiln.bind_shape %x, [%s, 4] : tensor<?x4xf32>
    %c4 = arith.constant 4 : index
    %n = kiln.sym_expr mul %s, %c4
    %c0 = arith.constant 0 : index
    kiln.arena_size %c0
    %w = kiln.get_global @w : tensor<4xf32>
    %v = kiln.reshape %x sizes = [%n] : tensor<?x4xf32>
    %e = kiln.output 0 : tensor<?xf32>
    kiln.bind_shape %e, [%n] : tensor<?xf32>
    %0 = kiln.launch @k ins(%v, %w : tensor<?xf32>, tensor<4xf32>) sizes(%n) outs(%e : tensor<?xf32>) flops 3 -> tensor<?xf32>
    return %0 : tensor<?xf32>
  }
  module @k attributes {kiln.kernel = {kind = "pointwise"}} {
    func.func @k(%x0: memref<?xf32> {kiln.sizes = array<i64: -1>}, %x1: memref<4xf32> {kiln.sizes = array<i64: 4>}, %o: memref<?xf32> {kiln.noalias, kiln.sizes = array<i64: -1>}, %s0: index, %tid: index, %nth: index) {
      %c0 = arith.constant 0 : index
      %first = arith.cmpi eq, %tid, %c0 : index
      scf.if %first {
        %c1 = arith.constant 1 : index
        %c4 = arith.constant 4 : index
        scf.for %i = %c0 to %s0 step %c1 {
          %j = arith.remui %i, %c4 : index
          %v = memref.load %x0[%i] : memref<?xf32>
          %u = memref.load %x1[%j] : memref<4xf32>
          %w = arith.addf %v, %u : f32
          memref.store %w, %o[%i] : memref<?xf32>
        }
      }
      return
    }
  }
}

// -----
// CASE: memory_without_a_plan
module attributes {kiln.level = "program"} {
  // expected-error @below {{has memory made by func.call}}
  func.func @main(%x: tensor<16xf32>) -> tensor<16xf32> {
    %e = func.call @elsewhere() : () -> tensor<16xf32>
    %0 = kiln.launch @k ins(%x : tensor<16xf32>) outs(%e : tensor<16xf32>) -> tensor<16xf32>
    return %0 : tensor<16xf32>
  }
  func.func private @elsewhere() -> tensor<16xf32>
  module @k attributes {kiln.kernel = {kind = "pointwise"}} {}
}

// -----
// The second launch may write to the argument that the first reads: a barrier between them.
// CASE: result_in_the_memory_of_an_argument
// CHECK: omp.barrier
module attributes {kiln.level = "program"} {
  func.func @main(%x: tensor<16xf32> {kiln.aliases = 1 : i64, kiln.donated = "results"}, %y: tensor<16xf32>) -> (tensor<16xf32>, tensor<16xf32>) {
    %c0 = arith.constant 0 : index
    kiln.arena_size %c0
    %e0 = kiln.output 0 : tensor<16xf32>
    %0 = kiln.launch @k ins(%x : tensor<16xf32>) outs(%e0 : tensor<16xf32>) -> tensor<16xf32>
    %e1 = kiln.output 1 : tensor<16xf32>
    %1 = kiln.launch @k ins(%y : tensor<16xf32>) outs(%e1 : tensor<16xf32>) -> tensor<16xf32>
    return %0, %1 : tensor<16xf32>, tensor<16xf32>
  }
  module @k attributes {kiln.kernel = {kind = "pointwise"}} {
    func.func @k(%x0: memref<16xf32> {kiln.sizes = array<i64: 16>}, %o: memref<16xf32> {kiln.noalias, kiln.sizes = array<i64: 16>}, %tid: index, %nth: index) {
      %c0 = arith.constant 0 : index
      %first = arith.cmpi eq, %tid, %c0 : index
      scf.if %first {
        %v = vector.load %x0[%c0] : memref<16xf32>, vector<16xf32>
        %w = arith.addf %v, %v : vector<16xf32>
        vector.store %w, %o[%c0] : memref<16xf32>, vector<16xf32>
      }
      return
    }
  }
}
