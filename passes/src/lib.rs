//! Passes within a level, one file each, and their table.
//!
//! Naming: the file stem is the flag without `kiln-`; the test input is `tests/passes/<stem>.mlir`,
//! the snapshots are in `snapshots/<stem>/`.
// Lets a pass name this crate as passes of other crates do.
extern crate self as kiln_passes;

pub mod names;
pub mod options;
pub mod pass;
pub mod permutation;
pub mod readers;
pub mod remarks;
pub mod table;

pub mod argument_order;
pub mod autocast;
pub mod broadcasting;
pub mod chunk_rows;
pub mod decompose;
pub mod differentiate;
pub mod drop_barriers;
pub mod expand_ffts;
pub mod expand_random;
pub mod expand_scans;
pub mod expand_scatters;
pub mod expand_sorts;
pub mod expand_updates;
pub mod fft_calls;
pub mod float8_products;
pub mod fold_indices;
pub mod formula;
pub mod hoist_gathers;
pub mod hoist_reshapes;
pub mod hoist_slices;
pub mod interleave_ffts;
pub mod partition;
pub mod powers;
pub mod ptx_calls;
pub mod raise_attention;
pub mod reciprocals;
pub mod refine_shapes;
pub mod rounding;
pub mod shifted_variances;
pub mod simplify;
pub mod sink_concats;
pub mod sink_conversions;
pub mod sink_reshapes;
mod slices;
pub mod split_reductions;
pub mod verify_level;
pub mod vmap;

pub use kiln_dialects::error::{Error, Kind, OptionExt, Result, ResultExt};
pub use pass::{Numerics, Pass, PassRow};
pub use table::PASSES;
