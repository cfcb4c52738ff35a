//! NVIDIA GPUs: lowers kernels on linalg to PTX, without a CUDA toolkit.
pub mod dependent_launch;
pub mod gpu_abi;
pub mod gpu_math;
pub mod gpu_module;
pub mod gpu_schedule;
pub mod gpu_tile;
pub mod lower_tiles;
pub mod online_reductions;
pub mod ptx;
pub mod support;

/// Lowers a kernel after [`gpu_abi::GpuAbi`] to the llvm and nvvm dialects; passes inside of
/// `builtin.module(…)`.
///
/// Upstream's conversion of the gpu dialect would turn math ops into calls of libdevice, which only
/// the toolkit has.
pub const KERNEL_TO_NVVM: &str = concat!(
    "canonicalize,cse,expand-strided-metadata,lower-affine,convert-scf-to-cf,",
    // nvvm ops without an LLVM intrinsic become inline PTX.
    "convert-nvvm-to-llvm,",
    // Vector accesses are created only for aligned addresses; the default aligns them to the
    // element and splits them.
    "convert-vector-to-llvm{use-vector-alignment=true reassociate-fp-reductions=true},",
    "convert-ub-to-llvm,convert-math-to-llvm,convert-arith-to-llvm,convert-index-to-llvm,finalize-memref-to-llvm,",
    "convert-func-to-llvm,convert-cf-to-llvm,canonicalize,cse,reconcile-unrealized-casts"
);
