//! What a stream is given, and what a graph's nodes do.
use super::{Done, context, launch::Prepared, valid};
use crate::allocations::{Kind, MEMORY};
use cudarc::driver::sys::CUresult;
use std::{mem::discriminant, sync::Arc};

/// A piece of work.
#[derive(Clone)]
pub enum Work {
    /// A kernel.
    Kernel(Prepared),
    /// Bytes from one place to another.
    Copy {
        /// From where.
        from: Rows,
        /// To where.
        to: Rows,
    },
    /// The same bytes again and again.
    Fill {
        /// Where.
        at: Rows,
        /// The bytes.
        with: u32,
        /// How many of them are an element.
        width: usize,
    },
    /// Several, in this order.
    Several(Arc<[Work]>),
}

/// Rows of bytes.
#[derive(Clone, Copy)]
pub struct Rows {
    /// Where the first begins.
    pub at: u64,
    /// Bytes of each.
    pub len: usize,
    /// How many there are.
    pub count: usize,
    /// Bytes from one to the next.
    pub pitch: usize,
    /// Whether they have to be in memory that the card reaches; elsewhere the caller's word is all
    /// there is.
    pub on_card: bool,
}

impl Rows {
    /// One row.
    pub fn one(at: u64, len: usize, on_card: bool) -> Rows {
        Rows { at, len, count: 1, pitch: len, on_card }
    }
    /// Err: they are not within one allocation.
    fn check(&self) -> Done {
        if self.len == 0 || self.count == 0 {
            return Ok(());
        }
        let span = self.pitch.checked_mul(self.count - 1).and_then(|n| n.checked_add(self.len));
        let span = span
            .filter(|n| self.at.checked_add(*n as u64).is_some())
            .ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        let within = |(first, len, kind): (u64, usize, Kind)| {
            span <= len - (self.at - first) as usize && (self.on_card || kind == Kind::Host)
        };
        valid(MEMORY.around(self.at).map_or(!self.on_card && self.at != 0, within))
    }
    fn rows(&self) -> impl Iterator<Item = *mut u8> {
        let rows = *self;
        (0..rows.count)
            .map(move |i| std::ptr::with_exposed_provenance_mut(rows.at as usize + i * rows.pitch))
    }
}

impl Work {
    /// Err: memory that it names is not there.
    pub fn check(&self) -> Done {
        match self {
            Work::Kernel(_) => Ok(()),
            Work::Copy { from, to } => from.check().and_then(|()| to.check()),
            Work::Fill { at, .. } => at.check(),
            Work::Several(all) => all.iter().try_for_each(Work::check),
        }
    }
    /// Does it; what goes wrong is the context's fault from there on. Nothing is done after a
    /// fault.
    pub fn run(&self) {
        if context::faulted() {
            return;
        }
        match self {
            Work::Several(all) => all.iter().for_each(Work::run),
            Work::Kernel(kernel) => kernel.run(),
            // Of a graph, memory may be gone since its node was made.
            Work::Copy { .. } | Work::Fill { .. } if self.check().is_err() => {
                context::fault(
                    CUresult::CUDA_ERROR_ILLEGAL_ADDRESS,
                    &"a node of a graph copies or fills memory that is not allocated",
                );
            }
            Work::Copy { from, to } => {
                for (source, target) in from.rows().zip(to.rows()) {
                    // SAFETY: checked where it can be, else as the caller has promised; both may be
                    // the same memory.
                    unsafe { std::ptr::copy(source, target, to.len) };
                }
            }
            Work::Fill { at, with, width } => {
                for row in at.rows() {
                    for i in 0..at.len {
                        // SAFETY: checked above.
                        unsafe { row.add(i).write(with.to_le_bytes()[i % width]) };
                    }
                }
            }
        }
    }
    /// Whether both are the same kinds of nodes in the same order.
    pub fn is_like(&self, other: &Work) -> bool {
        match (self, other) {
            (Work::Several(a), Work::Several(b)) => {
                a.len() == b.len() && a.iter().zip(b.iter()).all(|(a, b)| a.is_like(b))
            }
            (a, b) => discriminant(a) == discriminant(b),
        }
    }
}
