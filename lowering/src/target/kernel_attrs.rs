//! Attributes of kernels that several levels read.

/// On a memref parameter: its sizes; a negative entry is the `index` parameter -1 - k, or
/// [`DERIVED`].
pub const SIZES: &str = "kiln.sizes";
/// In [`SIZES`]: a size that the body does not read from the memref.
pub const DERIVED: i64 = i64::MIN;
/// On a memref parameter: nothing else in the kernel accesses its memory.
pub const NOALIAS: &str = "kiln.noalias";
/// On a kernel's function: pairs of a result and an input that it may overwrite.
pub const IN_PLACE: &str = "kiln.in_place";
/// On an argument of a host function: a call may overwrite it after its last read; with the value
/// `"results"`, by results too; with a number, by the result of that number alone.
pub const DONATED: &str = "kiln.donated";
/// On a donated argument of a host function: the result that may take its memory.
pub const ALIASES: &str = "kiln.aliases";
/// On a donated argument of a host function: why no result takes its memory.
pub const NOT_ALIASED: &str = "kiln.not_aliased";
/// The entry of `kiln.kernel` with those pairs, flattened.
pub const IN_PLACE_ENTRY: &str = "in_place";
/// The entry of `kiln.kernel` with the slices of results that a kernel writes.
pub const SLICES: &str = "pieces";
/// The entry of `kiln.kernel` with inputs of which a kernel reads a part, and its elements, in pairs.
pub const READS: &str = "reads";

// Attributes that upstream's dialects give a meaning on functions, parameters and modules. The .td
// names no op or property for them.

/// Nothing else reaches what is written through this pointer.
pub const LLVM_NOALIAS: &str = "llvm.noalias";
/// The linkage of a function's symbol.
pub const LLVM_LINKAGE: &str = "llvm.linkage";
/// The alignment of a parameter, in bytes.
pub const LLVM_ALIGN: &str = "llvm.align";
/// A parameter passed as a copy of memory of this type.
pub const LLVM_BYVAL: &str = "llvm.byval";
/// The data layout of a module.
pub const LLVM_DATA_LAYOUT: &str = "llvm.data_layout";
/// A function that the host launches.
pub const GPU_KERNEL: &str = "gpu.kernel";
/// The same for NVPTX.
pub const NVVM_KERNEL: &str = "nvvm.kernel";
/// Threads of a CTA (`.reqntid`).
pub const NVVM_REQNTID: &str = "nvvm.reqntid";
/// Least CTAs per SM (`.minnctapersm`).
pub const NVVM_MINCTASM: &str = "nvvm.minctasm";
/// CTAs of a cluster (`.reqnctapercluster`).
pub const NVVM_CLUSTER_DIM: &str = "nvvm.cluster_dim";
/// A parameter that kernels only read (`__grid_constant__`).
pub const NVVM_GRID_CONSTANT: &str = "nvvm.grid_constant";
