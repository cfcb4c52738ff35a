// RUN: kiln-gpu-module{chip=sm_80}

// CASE: a_kernel
// NO-RUN: it wraps a kernel, and no program launches it; tests/gpu/card runs such kernels
// CHECK: kiln.threads = 256 : i64, symbol = "kiln_k0"
// CHECK: gpu.module @gpu [#nvvm.target<O = 3, chip = "sm_80">]
// CHECK: llvm.func @kiln_k0
// CHECK: nvvm.reqntid = array<i32: 256>
module attributes {kiln.level = "target"} {
  module @k0 attributes {kiln.kernel = {}} {
    llvm.mlir.global private @shared_0() {addr_space = 3 : i32} : !llvm.array<64 x f32>
    llvm.func @k(%x: !llvm.ptr, %out: !llvm.ptr) attributes {kiln.threads = 256 : i64} {
      %t = nvvm.read.ptx.sreg.tid.x : i32
      %p = llvm.getelementptr %x[%t] : (!llvm.ptr, i32) -> !llvm.ptr, f32
      %v = llvm.load %p : !llvm.ptr -> f32
      %f = llvm.intr.fma(%v, %v, %v) : (f32, f32, f32) -> f32
      %q = llvm.getelementptr %out[%t] : (!llvm.ptr, i32) -> !llvm.ptr, f32
      llvm.store %f, %q : f32, !llvm.ptr
      llvm.return
    }
  }
}

// -----
// LLVM would abort on an op without an instruction.
// CASE: a_function_without_an_instruction
module attributes {kiln.level = "target"} {
  llvm.func @k(%x: f32) -> f32 attributes {kiln.threads = 32 : i64} {
    // expected-error @+1 {{has no compiled form yet for sm_80}}
    %y = llvm.intr.exp(%x) : (f32) -> f32
    llvm.return %y : f32
  }
}

// -----
// CASE: an_unknown_chip
// RUN: kiln-gpu-module{chip=sm_70}
// expected-error @+1 {{chip is sm_80, sm_86, sm_89 or sm_90a, not sm_70}}
module attributes {kiln.level = "target"} {
}
