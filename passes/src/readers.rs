//! The readers of values.
use kiln_dialects::{ir::*, ops::BindShape};

/// The only op that reads the elements of a value.
pub fn only_reader(v: Value) -> Option<Op> {
    let uses = v.uses();
    // Sizes that are stated read no elements.
    let mut readers = uses.iter().map(|u| u.0).filter(|u| BindShape::of(*u).is_none());
    readers.next().filter(|_| readers.next().is_none())
}
