//! Work items of streams and graph nodes.
use super::{CudaResult, context, launch::PreparedLaunch, valid};
use crate::allocations::{MEMORY, MemoryKind};
use cudarc::driver::sys::CUresult;
use std::{mem::discriminant, sync::Arc};

/// A work item.
#[derive(Clone)]
pub enum Work {
    /// A kernel launch.
    Kernel(PreparedLaunch),
    /// memcpy of rows.
    Copy {
        /// The source.
        from: Rows,
        /// The destination.
        to: Rows,
    },
    /// memset.
    Fill {
        /// The destination.
        at: Rows,
        /// The pattern.
        with: u32,
        /// Bytes of the pattern per element.
        width: usize,
    },
    /// A sequence.
    Several(Arc<[Work]>),
}

/// Pitched rows of bytes.
#[derive(Clone, Copy)]
pub struct Rows {
    /// Address of the first row.
    pub at: u64,
    /// Bytes per row.
    pub len: usize,
    /// The number of rows.
    pub count: usize,
    /// Pitch: bytes from row to row.
    pub pitch: usize,
    /// Whether the memory must be a known allocation; host memory cannot be checked.
    pub on_device: bool,
}

impl Rows {
    /// One row.
    pub fn one(at: u64, len: usize, on_device: bool) -> Rows {
        Rows { at, len, count: 1, pitch: len, on_device }
    }
    /// Err: the rows exceed their allocation.
    fn check(&self) -> CudaResult {
        if self.len == 0 || self.count == 0 {
            return Ok(());
        }
        let span = self.pitch.checked_mul(self.count - 1).and_then(|n| n.checked_add(self.len));
        let span = span
            .filter(|n| self.at.checked_add(*n as u64).is_some())
            .ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        let within = |(first, len, kind): (u64, usize, MemoryKind)| {
            span <= len - (self.at - first) as usize && (self.on_device || kind == MemoryKind::Host)
        };
        valid(MEMORY.find(self.at).map_or(!self.on_device && self.at != 0, within))
    }
    fn rows(&self) -> impl Iterator<Item = *mut u8> {
        let rows = *self;
        (0..rows.count)
            .map(move |i| std::ptr::with_exposed_provenance_mut(rows.at as usize + i * rows.pitch))
    }
}

impl Work {
    /// Err: invalid memory.
    pub fn check(&self) -> CudaResult {
        match self {
            Work::Kernel(_) => Ok(()),
            Work::Copy { from, to } => from.check().and_then(|()| to.check()),
            Work::Fill { at, .. } => at.check(),
            Work::Several(all) => all.iter().try_for_each(Work::check),
        }
    }
    /// Runs the work; failures become the context's sticky error. Does nothing after one.
    pub fn run(&self) {
        if context::faulted() {
            return;
        }
        match self {
            Work::Several(all) => all.iter().for_each(Work::run),
            Work::Kernel(kernel) => kernel.run(),
            // Memory of a graph node may have been freed since it was added.
            Work::Copy { .. } | Work::Fill { .. } if self.check().is_err() => {
                context::fault(
                    CUresult::CUDA_ERROR_ILLEGAL_ADDRESS,
                    &"a graph node accesses memory that is not allocated",
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
    /// Whether both have the same kinds of nodes in the same order.
    pub fn is_like(&self, other: &Work) -> bool {
        match (self, other) {
            (Work::Several(a), Work::Several(b)) => {
                a.len() == b.len() && a.iter().zip(b.iter()).all(|(a, b)| a.is_like(b))
            }
            (a, b) => discriminant(a) == discriminant(b),
        }
    }
}
