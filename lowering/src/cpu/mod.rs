//! CPU code generation: lowers kernels on memrefs to object code.
pub mod host_abi;
pub mod kernel_abi;
pub mod llvm;
pub mod schedule;
pub mod tile;

/// Lowers a kernel after [`kernel_abi::KernelAbi`] to the llvm dialect; passes inside of
/// `builtin.module(…)`.
///
/// math ops that LLVM cannot lower become calls of the C library here, so `kiln-expand-math` has to
/// run before.
pub const KERNEL_TO_LLVM: &str = concat!(
    // Transfers of rank above one are unrolled to rows, without loops.
    "convert-vector-to-scf{full-unroll=true target-rank=1},",
    // Unrolled rows and rebuilt descriptors duplicate index arithmetic.
    "canonicalize,cse,",
    // Subviews become arithmetic on offsets and strides.
    "expand-strided-metadata,lower-affine,convert-scf-to-cf,",
    // Without bf16 instructions LLVM calls a function per element, and with them it flushes
    // subnormals; integer code does neither.
    "arith-expand{include-bf16=true},",
    // Reductions are reassociated to a tree: in order, they are a chain of dependent adds.
    "convert-vector-to-llvm{reassociate-fp-reductions=true enable-x86vector=true enable-amx=true},",
    "convert-ub-to-llvm,convert-math-to-llvm,convert-arith-to-llvm,convert-index-to-llvm,finalize-memref-to-llvm,",
    // The last conversion, because it changes the types of block arguments; it lowers func and cf,
    // and AMX tiles, which only it supports.
    "convert-to-llvm,",
    "canonicalize,reconcile-unrealized-casts"
);

/// Lowers a host function after [`host_abi::HostAbi`] to the llvm dialect.
pub const HOST_TO_LLVM: &str = "convert-scf-to-cf,convert-openmp-to-llvm,convert-arith-to-llvm,convert-func-to-llvm,convert-cf-to-llvm,canonicalize,reconcile-unrealized-casts";
