//! From linalg to machine code of the host.
pub mod kernel;
pub mod schedule;
pub mod tile;

use kiln_dialects::ir::{Op, walk};

/// The functions of all kernels: of the modules below `root`, itself included, that say `kiln.kernel`.
pub fn kernels_of(root: Op) -> Vec<Op> {
    let inside = |f: &Op| f.is("func.func") && f.parent().is_some_and(|m| m.attr("kiln.kernel").is_some());
    walk(root).into_iter().filter(inside).collect()
}
