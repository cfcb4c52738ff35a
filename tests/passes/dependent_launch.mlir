// RUN: kiln-dependent-launch

// CASE: waits_at_the_entry
// NO-RUN: no other pass lowers ops of a GPU; tests/gpu/card runs kernels with them
// CHECK: kiln.dependent
// CHECK: nvvm.griddepcontrol launch_dependents
// CHECK: nvvm.griddepcontrol wait
// CHECK: memref.load
module attributes {kiln.level = "tiled", kiln.kernel = {}} {
  func.func @k(%a: memref<64xf32>, %out: memref<64xf32>) attributes {kiln.dependent, kiln.grid = affine_map<() -> (1)>, kiln.threads = 64 : i64} {
    %t = gpu.thread_id x
    %v = memref.load %a[%t] : memref<64xf32>
    memref.store %v, %out[%t] : memref<64xf32>
    return
  }
}

// -----
// A strategy that prefetches has its own wait behind that.
// CASE: keeps_a_wait
// NO-RUN: no other pass lowers ops of a GPU; tests/gpu/card runs kernels with them
// CHECK: nvvm.griddepcontrol launch_dependents
// CHECK: nvvm.cp.async.bulk.prefetch
// CHECK: nvvm.griddepcontrol wait
// IMPLICIT-CHECK-NOT: wait
module attributes {kiln.level = "tiled", kiln.kernel = {}} {
  func.func @k(%a: memref<64xf32>, %from: !llvm.ptr<1>, %out: memref<64xf32>) attributes {kiln.dependent, kiln.grid = affine_map<() -> (1)>, kiln.threads = 64 : i64} {
    %bytes = arith.constant 256 : i32
    nvvm.cp.async.bulk.prefetch %from, %bytes : !llvm.ptr<1>
    nvvm.griddepcontrol wait
    %t = gpu.thread_id x
    %v = memref.load %a[%t] : memref<64xf32>
    memref.store %v, %out[%t] : memref<64xf32>
    return
  }
}

// -----
// CASE: leaves_other_kernels
// NO-RUN: no other pass lowers ops of a GPU; tests/gpu/card runs kernels with them
// IMPLICIT-CHECK-NOT: griddepcontrol
module attributes {kiln.level = "tiled", kiln.kernel = {}} {
  func.func @k(%a: memref<64xf32>, %out: memref<64xf32>) attributes {kiln.grid = affine_map<() -> (1)>, kiln.threads = 64 : i64} {
    %t = gpu.thread_id x
    %v = memref.load %a[%t] : memref<64xf32>
    memref.store %v, %out[%t] : memref<64xf32>
    return
  }
}
