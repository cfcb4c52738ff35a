//! Passes that change IR within a level, one file each, and the table that names them.
//!
//! The stem of a pass's file is its flag without `kiln-`, its test input `tests/passes/<stem>.mlir`
//! and its snapshots `snapshots/<stem>/`.
// So that a pass reads the same inside of this crate and outside.
extern crate self as kiln_passes;

pub mod names;
pub mod options;
pub mod pass;
pub mod table;

pub mod argument_order;
pub mod decompose;
pub mod expand_random;
pub mod expand_scans;
pub mod expand_scatters;
pub mod expand_sorts;
pub mod expand_updates;
pub mod fold_indices;
pub mod hoist_gathers;
pub mod hoist_reshapes;
pub mod ptx_calls;
pub mod reciprocals;
pub mod refine_shapes;
pub mod simplify;
pub mod sink_concats;
pub mod split_reductions;
pub mod verify_level;

pub use kiln_dialects::error::{Error, Kind, OptionExt, Result, ResultExt};
pub use pass::{Numerics, Pass, PassRow};
pub use table::PASSES;
