// RUN: kiln-plan

// %0 is dead when %2 is written, so they share memory; the last result is the caller's buffer.
// CASE: static
// CHECK: live 0 to 1
// CHECK: kiln.output 0
module attributes {kiln.level = "tiled"} {
  func.func @main(%x: tensor<16xf32>) -> tensor<16xf32> {
    %e0 = tensor.empty() : tensor<16xf32>
    %0 = kiln.launch @k ins(%x : tensor<16xf32>) outs(%e0 : tensor<16xf32>) -> tensor<16xf32>
    %e1 = tensor.empty() : tensor<16xf32>
    %1 = kiln.launch @k ins(%0 : tensor<16xf32>) outs(%e1 : tensor<16xf32>) -> tensor<16xf32>
    %e2 = tensor.empty() : tensor<16xf32>
    %2 = kiln.launch @k ins(%1 : tensor<16xf32>) outs(%e2 : tensor<16xf32>) -> tensor<16xf32>
    %e3 = tensor.empty() : tensor<16xf32>
    %3 = kiln.launch @k ins(%2 : tensor<16xf32>) outs(%e3 : tensor<16xf32>) -> tensor<16xf32>
    return %3 : tensor<16xf32>
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
// Equal symbolic sizes share memory; offsets are symbolic.
// CASE: symbolic
// CHECK: kiln.arena_size
module attributes {kiln.level = "tiled"} {
  func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> {
    %s = kiln.sym @s {min = 1 : i64}
    kiln.bind_shape %x, [%s] : tensor<?xf32>
    %e0 = tensor.empty(%s) : tensor<?xf32>
    %0 = kiln.launch @k ins(%x : tensor<?xf32>) sizes(%s) outs(%e0 : tensor<?xf32>) -> tensor<?xf32>
    %e1 = tensor.empty(%s) : tensor<?xf32>
    %1 = kiln.launch @k ins(%0 : tensor<?xf32>) sizes(%s) outs(%e1 : tensor<?xf32>) -> tensor<?xf32>
    %e2 = tensor.empty(%s) : tensor<?xf32>
    %2 = kiln.launch @k ins(%1 : tensor<?xf32>) sizes(%s) outs(%e2 : tensor<?xf32>) -> tensor<?xf32>
    %e3 = tensor.empty(%s) : tensor<?xf32>
    %3 = kiln.launch @k ins(%2 : tensor<?xf32>) sizes(%s) outs(%e3 : tensor<?xf32>) -> tensor<?xf32>
    return %3 : tensor<?xf32>
  }
  module @k attributes {kiln.kernel = {kind = "pointwise"}} {
    func.func @k(%x0: memref<?xf32> {kiln.sizes = array<i64: -1>}, %o: memref<?xf32> {kiln.noalias, kiln.sizes = array<i64: -1>}, %s0: index, %tid: index, %nth: index) {
      %c0 = arith.constant 0 : index
      %first = arith.cmpi eq, %tid, %c0 : index
      scf.if %first {
        %c1 = arith.constant 1 : index
        scf.for %i = %c0 to %s0 step %c1 {
          %v = memref.load %x0[%i] : memref<?xf32>
          %w = arith.addf %v, %v : f32
          memref.store %w, %o[%i] : memref<?xf32>
        }
      }
      return
    }
  }
}

// -----
// %1 overwrites %0, which is dead; %2 does not overwrite %1, which is still live.
// CASE: in_place
// CHECK: live 0 to 0
module attributes {kiln.level = "tiled"} {
  func.func @main(%x: tensor<16xf32>) -> tensor<16xf32> {
    %e0 = tensor.empty() : tensor<16xf32>
    %0 = kiln.launch @k ins(%x, %x : tensor<16xf32>, tensor<16xf32>) outs(%e0 : tensor<16xf32>) -> tensor<16xf32>
    %e1 = tensor.empty() : tensor<16xf32>
    %1 = kiln.launch @k ins(%x, %0 : tensor<16xf32>, tensor<16xf32>) outs(%e1 : tensor<16xf32>) -> tensor<16xf32>
    %e2 = tensor.empty() : tensor<16xf32>
    %2 = kiln.launch @k ins(%x, %1 : tensor<16xf32>, tensor<16xf32>) outs(%e2 : tensor<16xf32>) -> tensor<16xf32>
    %e3 = tensor.empty() : tensor<16xf32>
    %3 = kiln.launch @k ins(%1, %2 : tensor<16xf32>, tensor<16xf32>) outs(%e3 : tensor<16xf32>) -> tensor<16xf32>
    return %3 : tensor<16xf32>
  }
  module @k attributes {kiln.kernel = {in_place = array<i64: 0, 1>, kind = "pointwise"}} {
    func.func @k(%x0: memref<16xf32> {kiln.sizes = array<i64: 16>}, %x1: memref<16xf32> {kiln.sizes = array<i64: 16>}, %o: memref<16xf32> {kiln.sizes = array<i64: 16>}, %tid: index, %nth: index) {
      %c0 = arith.constant 0 : index
      %first = arith.cmpi eq, %tid, %c0 : index
      scf.if %first {
        %v = vector.load %x0[%c0] : memref<16xf32>, vector<16xf32>
        %u = vector.load %x1[%c0] : memref<16xf32>, vector<16xf32>
        %w = arith.addf %v, %u : vector<16xf32>
        vector.store %w, %o[%c0] : memref<16xf32>, vector<16xf32>
      }
      return
    }
  }
}

// -----
// %1 is inserted into %0, so both are one buffer, live from the first launch to the last; %2 gets
// another.
// CASE: slices_of_one_tensor
// CHECK: live 0 to 3
// CHECK: kiln.arena_size %c128
// CHECK: live 1 to 3
module attributes {kiln.level = "tiled"} {
  func.func @main(%x: tensor<8xf32>) -> tensor<16xf32> {
    %e0 = tensor.empty() : tensor<16xf32>
    %0 = kiln.launch @first ins(%x : tensor<8xf32>) outs(%e0 : tensor<16xf32>) -> tensor<16xf32>
    %e2 = tensor.empty() : tensor<16xf32>
    %2 = kiln.launch @twice ins(%x : tensor<8xf32>) outs(%e2 : tensor<16xf32>) -> tensor<16xf32>
    %1 = kiln.launch @second ins(%x, %0 : tensor<8xf32>, tensor<16xf32>) outs(%0 : tensor<16xf32>) -> tensor<16xf32>
    %e3 = tensor.empty() : tensor<16xf32>
    %3 = kiln.launch @k ins(%1, %2 : tensor<16xf32>, tensor<16xf32>) outs(%e3 : tensor<16xf32>) -> tensor<16xf32>
    return %3 : tensor<16xf32>
  }
  module @first attributes {kiln.kernel = {kind = "contract", pieces = [array<i64: 0, 8>]}} {
    func.func @first(%x0: memref<8xf32> {kiln.sizes = array<i64: 8>}, %o: memref<16xf32> {kiln.noalias, kiln.sizes = array<i64: 16>}, %tid: index, %nth: index) {
      %c0 = arith.constant 0 : index
      %first = arith.cmpi eq, %tid, %c0 : index
      scf.if %first {
        %v = vector.load %x0[%c0] : memref<8xf32>, vector<8xf32>
        vector.store %v, %o[%c0] : memref<16xf32>, vector<8xf32>
      }
      return
    }
  }
  module @second attributes {kiln.kernel = {kind = "contract", pieces = [array<i64: 0, 8>]}} {
    func.func @second(%x0: memref<8xf32> {kiln.sizes = array<i64: 8>}, %x1: memref<16xf32> {kiln.sizes = array<i64: 16>}, %o: memref<16xf32> {kiln.sizes = array<i64: 16>}, %tid: index, %nth: index) {
      %c0 = arith.constant 0 : index
      %first = arith.cmpi eq, %tid, %c0 : index
      scf.if %first {
        %v = vector.load %x0[%c0] : memref<8xf32>, vector<8xf32>
        %at = arith.constant 8 : index
        vector.store %v, %o[%at] : memref<16xf32>, vector<8xf32>
      }
      return
    }
  }
  module @twice attributes {kiln.kernel = {kind = "pointwise"}} {
    func.func @twice(%x0: memref<8xf32> {kiln.sizes = array<i64: 8>}, %o: memref<16xf32> {kiln.noalias, kiln.sizes = array<i64: 16>}, %tid: index, %nth: index) {
      %c0 = arith.constant 0 : index
      %first = arith.cmpi eq, %tid, %c0 : index
      scf.if %first {
        %v = vector.load %x0[%c0] : memref<8xf32>, vector<8xf32>
        %at = arith.constant 8 : index
        vector.store %v, %o[%c0] : memref<16xf32>, vector<8xf32>
        vector.store %v, %o[%at] : memref<16xf32>, vector<8xf32>
      }
      return
    }
  }
  module @k attributes {kiln.kernel = {kind = "pointwise"}} {
    func.func @k(%x0: memref<16xf32> {kiln.sizes = array<i64: 16>}, %x1: memref<16xf32> {kiln.sizes = array<i64: 16>}, %o: memref<16xf32> {kiln.noalias, kiln.sizes = array<i64: 16>}, %tid: index, %nth: index) {
      %c0 = arith.constant 0 : index
      %first = arith.cmpi eq, %tid, %c0 : index
      scf.if %first {
        %v = vector.load %x0[%c0] : memref<16xf32>, vector<16xf32>
        %u = vector.load %x1[%c0] : memref<16xf32>, vector<16xf32>
        %w = arith.addf %v, %u : vector<16xf32>
        vector.store %w, %o[%c0] : memref<16xf32>, vector<16xf32>
      }
      return
    }
  }
}

// -----
// %0 and %1 are dead before the results are written: %0 lies in the first result, %1, which is live
// at the same time, behind it; %2 is live when both are, and lies in the arena.
// CASE: results_not_yet_written
// RUN: kiln-plan{reuse-from=64}
// NO-RUN: programs for processors do not reuse the caller's memory
// CHECK: kiln.reuse %0 at %c64
module attributes {kiln.level = "tiled"} {
  func.func @main(%x: tensor<16xf32>) -> (tensor<40xf32>, tensor<8xf32>) {
    %e0 = tensor.empty() : tensor<16xf32>
    %0 = kiln.launch @k ins(%x : tensor<16xf32>) outs(%e0 : tensor<16xf32>) -> tensor<16xf32>
    %e1 = tensor.empty() : tensor<16xf32>
    %1 = kiln.launch @k ins(%0 : tensor<16xf32>) outs(%e1 : tensor<16xf32>) -> tensor<16xf32>
    %e2 = tensor.empty() : tensor<16xf32>
    %2 = kiln.launch @k ins(%1 : tensor<16xf32>) outs(%e2 : tensor<16xf32>) -> tensor<16xf32>
    %e3 = tensor.empty() : tensor<40xf32>
    %3 = kiln.launch @wide ins(%2 : tensor<16xf32>) outs(%e3 : tensor<40xf32>) -> tensor<40xf32>
    %e4 = tensor.empty() : tensor<8xf32>
    %4 = kiln.launch @half ins(%2 : tensor<16xf32>) outs(%e4 : tensor<8xf32>) -> tensor<8xf32>
    return %3, %4 : tensor<40xf32>, tensor<8xf32>
  }
  module @k attributes {kiln.kernel = {kind = "pointwise"}} {}
  module @half attributes {kiln.kernel = {kind = "pointwise"}} {}
  module @wide attributes {kiln.kernel = {kind = "pointwise"}} {}
}

// -----
// A sum over launches, each of which overwrites the one before, is in the result from the first on.
// CASE: sums_in_the_result
// RUN: kiln-plan{reuse-from=64}
// NO-RUN: programs for processors do not reuse the caller's memory
// CHECK: kiln.reuse %0 at %{{.*}} live 0 to 0
// CHECK: kiln.reuse %0 at %{{.*}} live 1 to 2
module attributes {kiln.level = "tiled"} {
  func.func @main(%x: tensor<16xf32>) -> tensor<16xf32> {
    %e0 = tensor.empty() : tensor<16xf32>
    %0 = kiln.launch @k ins(%x : tensor<16xf32>) outs(%e0 : tensor<16xf32>) -> tensor<16xf32>
    %e1 = tensor.empty() : tensor<16xf32>
    %1 = kiln.launch @sum ins(%x, %0 : tensor<16xf32>, tensor<16xf32>) outs(%e1 : tensor<16xf32>) -> tensor<16xf32>
    %e2 = tensor.empty() : tensor<16xf32>
    %2 = kiln.launch @sum ins(%x, %1 : tensor<16xf32>, tensor<16xf32>) outs(%e2 : tensor<16xf32>) -> tensor<16xf32>
    return %2 : tensor<16xf32>
  }
  module @k attributes {kiln.kernel = {kind = "pointwise"}} {}
  module @sum attributes {kiln.kernel = {in_place = array<i64: 0, 1>, kind = "pointwise"}} {}
}

// -----
// %0 overwrites %x, whose last reader it is; %1 lies in %y, which is dead by then, and not in %z,
// which is not donated.
// CASE: donated_arguments
// RUN: kiln-plan{reuse-from=64}
// NO-RUN: programs for processors do not reuse the caller's memory
// CHECK: kiln.reuse %arg0 at
// CHECK: kiln.arena_size
// CHECK: kiln.reuse %arg1 at
module attributes {kiln.level = "tiled"} {
  func.func @main(%x: tensor<16xf32> {kiln.donated}, %y: tensor<4x8xf32> {kiln.donated}, %z: tensor<16xf32>) -> tensor<4xf32> {
    %e0 = tensor.empty() : tensor<16xf32>
    %0 = kiln.launch @k ins(%x, %y : tensor<16xf32>, tensor<4x8xf32>) outs(%e0 : tensor<16xf32>) -> tensor<16xf32>
    %e1 = tensor.empty() : tensor<16xf32>
    %1 = kiln.launch @l ins(%0, %z : tensor<16xf32>, tensor<16xf32>) outs(%e1 : tensor<16xf32>) -> tensor<16xf32>
    %e2 = tensor.empty() : tensor<4xf32>
    %2 = kiln.launch @sum ins(%0, %1 : tensor<16xf32>, tensor<16xf32>) outs(%e2 : tensor<4xf32>) -> tensor<4xf32>
    return %2 : tensor<4xf32>
  }
  module @k attributes {kiln.kernel = {in_place = array<i64: 0, 0>, kind = "pointwise"}} {}
  module @l attributes {kiln.kernel = {kind = "pointwise"}} {}
  module @sum attributes {kiln.kernel = {kind = "pointwise"}} {}
}

// -----
// CASE: destination_with_other_users
module attributes {kiln.level = "tiled"} {
  func.func @main(%x: tensor<8xf32>) -> (tensor<16xf32>, tensor<16xf32>) {
    %e0 = tensor.empty() : tensor<16xf32>
    %0 = kiln.launch @first ins(%x : tensor<8xf32>) outs(%e0 : tensor<16xf32>) -> tensor<16xf32>
    // expected-error @+1 {{writes result 0 on a tensor that it does not take, or that others read}}
    %1 = kiln.launch @first ins(%x, %0 : tensor<8xf32>, tensor<16xf32>) outs(%0 : tensor<16xf32>) -> tensor<16xf32>
    return %0, %1 : tensor<16xf32>, tensor<16xf32>
  }
  module @first attributes {kiln.kernel = {kind = "contract", pieces = [array<i64: 0, 8>]}} {}
}

// -----
// CASE: kernel_overwrites_the_destination
module attributes {kiln.level = "tiled"} {
  func.func @main(%x: tensor<16xf32>) -> tensor<16xf32> {
    %e0 = tensor.empty() : tensor<16xf32>
    %0 = kiln.launch @k ins(%x : tensor<16xf32>) outs(%e0 : tensor<16xf32>) -> tensor<16xf32>
    // expected-error @+1 {{writes all of result 0 to memory that an earlier launch has written}}
    %1 = kiln.launch @k ins(%0 : tensor<16xf32>) outs(%0 : tensor<16xf32>) -> tensor<16xf32>
    return %1 : tensor<16xf32>
  }
  module @k attributes {kiln.kernel = {kind = "pointwise"}} {}
}

// -----
// The new value of the state is in the state's memory: no other memory is planned for it.
// CASE: state
// NO-RUN: its kernels are not here
// CHECK: outs(%arg0
// IMPLICIT-CHECK-NOT: kiln.output
// IMPLICIT-CHECK-NOT: kiln.arena %
module attributes {kiln.level = "tiled"} {
  func.func @main(%a: tensor<8xf32> {kiln.aliases = 0 : i64, kiln.donated = "results", kiln.state = {result = 0 : i64, source = ""}}, %x: tensor<1xf32>, %i: tensor<i64>) -> tensor<8xf32> {
    %0 = kiln.launch @put ins(%x, %i, %a : tensor<1xf32>, tensor<i64>, tensor<8xf32>) outs(%a : tensor<8xf32>) -> tensor<8xf32>
    return %0 : tensor<8xf32>
  }
  module @put attributes {kiln.kernel = {kind = "single", pieces = [array<i64: 0, 1>]}} {}
}
