//! Attributes on a kernel's function that describe its launch on a GPU.

/// Most bytes of shared memory that a kernel asks for; every chip has 48 KiB without being asked
/// for more, of which reductions take some.
pub const SHARED: i64 = 46 << 10;
/// Threads of a warp.
pub const WARP: usize = 32;
/// On a kernel's function: how many blocks it wants, over its `index` parameters. Any number is
/// right.
pub const GRID: &str = "kiln.grid";
/// On a kernel's function: what its last parameters, descriptions of tensors for the copy engine,
/// are made of.
pub const TENSOR_MAPS: &str = "kiln.tensor_maps";
/// On a kernel's function: bytes of shared memory that a launch asks for.
pub const SHARED_BYTES: &str = "kiln.shared";
/// On a kernel's function: no more of its blocks are launched for each multiprocessor; they go on
/// with what is left. Without it, all that `kiln.grid` asks for are launched.
pub const PERSISTENT: &str = "kiln.persistent";
/// On a kernel's function: how many neighbouring blocks are a cluster, whose shared memory each of
/// them reads; no cluster if it is absent.
pub const CLUSTER: &str = "kiln.cluster";
/// On a kernel's function: a library, `"cublaslt"` or `"cudnn"`, that can compute it; once it is
/// scheduled, what the library is to do: argument numbers, sizes, distances. A runtime that finds
/// the library calls it, any other runs the kernel.
pub const LIBRARY: &str = "kiln.library";
/// On a kernel's function: how many threads a block has.
pub const THREADS: &str = "kiln.threads";
/// On a kernel's function: how many blocks a multiprocessor should hold at once, for which the
/// assembler keeps registers few enough; one if it is absent.
pub const RESIDENT: &str = "kiln.resident";
