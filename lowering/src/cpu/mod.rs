//! Host code: from kernels on memrefs to objects, and objects into this process.
pub mod host_abi;
pub mod kernel_abi;
pub mod llvm;
pub mod schedule;
pub mod tile;

/// From a kernel that [`kernel_abi::KernelAbi`] has been through to the llvm dialect; passes inside of
/// `builtin.module(…)`.
///
/// math ops without an instruction of their own become calls of the C library here, so
/// `kiln-expand-math` has to come before.
pub const KERNEL_TO_LLVM: &str = concat!(
    // Transfers of more than one dimension become rows, without loops around them.
    "convert-vector-to-scf{full-unroll=true target-rank=1},",
    // Unrolled rows and rebuilt descriptors repeat each other's index arithmetic.
    "canonicalize,cse,",
    // Subviews become arithmetic on offset and strides.
    "expand-strided-metadata,lower-affine,convert-scf-to-cf,",
    // Without bf16 instructions LLVM calls a function per element, and with them it flushes
    // subnormals; integer code does neither.
    "arith-expand{include-bf16=true},",
    // A reduction's order is that of a tree: the one in a row costs a chain of dependent adds.
    "convert-vector-to-llvm{reassociate-fp-reductions=true enable-x86vector=true enable-amx=true},",
    "convert-ub-to-llvm,convert-math-to-llvm,convert-arith-to-llvm,convert-index-to-llvm,finalize-memref-to-llvm,",
    // Last among the conversions, since block arguments change their types there; of func and cf,
    // and of tiles, which only this one knows.
    "convert-to-llvm,",
    "canonicalize,reconcile-unrealized-casts"
);

/// From a host function that [`host_abi::HostAbi`] has made to the llvm dialect.
pub const HOST_TO_LLVM: &str = "convert-scf-to-cf,convert-openmp-to-llvm,convert-arith-to-llvm,convert-func-to-llvm,convert-cf-to-llvm,canonicalize,reconcile-unrealized-casts";
