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
/// The entry of `kiln.kernel` with those pairs, flattened.
pub const IN_PLACE_ENTRY: &str = "in_place";
/// The entry of `kiln.kernel` with the slices of results that a kernel writes.
pub const SLICES: &str = "pieces";
