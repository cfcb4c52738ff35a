//! Attributes of kernels that several levels read.

/// On a memref parameter: its sizes; entries below 0 name `index` parameters.
pub const SIZES: &str = "kiln.sizes";
/// In [`SIZES`]: a size that the body does not read off the memref.
pub const DERIVED: i64 = i64::MIN;
/// On a memref parameter: nothing else in the kernel reaches its memory.
pub const NOALIAS: &str = "kiln.noalias";
/// On a kernel's function: the results that may be written over an input.
pub const IN_PLACE: &str = "kiln.in_place";
/// The entry of `kiln.kernel` with such results and inputs, in turn.
pub const IN_PLACE_ENTRY: &str = "in_place";
/// The entry of `kiln.kernel` with the slices of results that a kernel writes.
pub const SLICES: &str = "pieces";
