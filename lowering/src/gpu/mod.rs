//! NVIDIA GPUs: from kernels on linalg to PTX, without a CUDA toolkit.
pub mod gpu_abi;
pub mod gpu_math;
pub mod gpu_module;
pub mod gpu_schedule;
pub mod gpu_tile;
pub mod online_reductions;
pub mod ptx;
pub mod support;

/// From a kernel that [`gpu_abi::GpuAbi`] has been through to the llvm and nvvm dialects; passes
/// inside of `builtin.module(…)`.
///
/// Upstream's conversion of the gpu dialect would turn math functions into calls of a library that
/// only the toolkit has.
pub const KERNEL_TO_NVVM: &str = concat!(
    "canonicalize,cse,expand-strided-metadata,lower-affine,convert-scf-to-cf,",
    // What LLVM has no intrinsic for becomes inline assembly.
    "convert-nvvm-to-llvm,",
    // Vectors are used only where addresses are a multiple of their size; by default a load is
    // aligned as an element is, and split.
    "convert-vector-to-llvm{use-vector-alignment=true reassociate-fp-reductions=true},",
    "convert-ub-to-llvm,convert-math-to-llvm,convert-arith-to-llvm,convert-index-to-llvm,finalize-memref-to-llvm,",
    "convert-func-to-llvm,convert-cf-to-llvm,canonicalize,cse,reconcile-unrealized-casts"
);
