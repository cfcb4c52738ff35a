// RUN: kiln-gpu-abi

// CASE: registers_shuffles_and_shared_memory
// NO-RUN: no other pass lowers ops of a GPU; tests/gpu/card runs kernels with them
// CHECK: nvvm.read.ptx.sreg.tid.x
// CHECK: memref.get_global @shared_0
// CHECK: nvvm.shfl.sync
// CHECK: nvvm.barrier0
// IMPLICIT-CHECK-NOT: gpu.
module attributes {kiln.level = "target", kiln.kernel = {}} {
  func.func @k(%out: !llvm.ptr, %n: i64) attributes {kiln.threads = 32 : i64} {
    %t = gpu.thread_id x
    %b = gpu.block_id x
    %i = arith.addi %t, %b : index
    %m = memref.alloca() {alignment = 16 : i64} : memref<64xf32, 3>
    %v = memref.load %m[%i] : memref<64xf32, 3>
    %one = arith.constant 1 : i32
    %width = arith.constant 32 : i32
    %s, %ok = gpu.shuffle xor %v, %one, %width : f32
    memref.store %s, %m[%t] : memref<64xf32, 3>
    gpu.barrier
    return
  }
}

// -----
// Values wider than a register are shuffled in halves, narrower ones are widened.
// CASE: shuffles_of_other_widths
// NO-RUN: no other pass lowers ops of a GPU; tests/gpu/card runs kernels with them
// CHECK: arith.shrui
// CHECK: arith.extui %arg1 : i8 to i32
module attributes {kiln.level = "target", kiln.kernel = {}} {
  func.func @k(%v: f64, %w: i8) -> (f64, i8) {
    %one = arith.constant 1 : i32
    %width = arith.constant 32 : i32
    %s, %ok = gpu.shuffle xor %v, %one, %width : f64
    %r, %also = gpu.shuffle xor %w, %one, %width : i8
    return %s, %r : f64, i8
  }
}

// -----
// An op with the approximate flag is one instruction per lane; others stay.
// CASE: approximations
// NO-RUN: no other pass lowers ops of a GPU; tests/gpu/card runs kernels with them
// CHECK: math.exp2 %arg0
// CHECK: ex2.approx.ftz.f32
// CHECK: rcp.approx.ftz.f32
// CHECK: div.full.f32
// CHECK: vector.from_elements
module attributes {kiln.level = "target", kiln.kernel = {}} {
  func.func @k(%v: f32, %w: vector<2xf32>) -> (f32, vector<2xf32>) {
    %one = arith.constant 1.0 : f32
    %0 = math.exp2 %v : f32
    %1 = math.exp2 %v fastmath<afn> : f32
    %2 = arith.divf %one, %1 fastmath<arcp,afn> : f32
    %3 = arith.mulf %0, %2 : f32
    %4 = arith.divf %w, %w fastmath<afn> : vector<2xf32>
    return %3, %4 : f32, vector<2xf32>
  }
}

// -----
// A segmented scan over four lanes.
// CASE: segmented_scan
// NO-RUN: no other pass lowers ops of a GPU; tests/gpu/card runs kernels with them
// CHECK: nvvm.shfl.sync  up
// CHECK: return_value_and_is_valid
// CHECK: nvvm.shfl.sync  idx
module attributes {kiln.level = "target", kiln.kernel = {}} {
  func.func @k(%v: f32, %w: i64) -> (f32, i64, f32) {
    %one = arith.constant 1 : i32
    %last = arith.constant 3 : i32
    %width = arith.constant 4 : i32
    %s, %ok = gpu.shuffle up %v, %one, %width : f32
    %0 = arith.select %ok, %s, %v : f32
    %t, %also = gpu.shuffle up %w, %one, %width : i64
    %1 = arith.select %also, %t, %w : i64
    %2, %always = gpu.shuffle idx %0, %last, %width : f32
    return %0, %1, %2 : f32, i64, f32
  }
}

// -----
// CASE: unknown_shuffle_mode
module attributes {kiln.level = "target", kiln.kernel = {}} {
  func.func @k(%v: f32) -> f32 {
    %one = arith.constant 1 : i32
    %width = arith.constant 32 : i32
    // expected-error @+1 {{which is none of xor up idx}}
    %s, %ok = gpu.shuffle down %v, %one, %width : f32
    return %s : f32
  }
}
