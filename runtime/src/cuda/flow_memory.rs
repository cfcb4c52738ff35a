//! The caller's memory in a call of control flow: how it is divided.
use crate::{CallError, OutOfMemory, control::run::CountedBuffer};

/// Alignment of parts of a workspace, in bytes.
pub const WORKSPACE_ALIGNMENT: usize = 256;

/// How control flow divides the caller's memory: first what one program or library call needs at a
/// time, then the buffers of values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlowMemory {
    /// Bytes of the largest arena or library workspace.
    pub scratch: usize,
    /// Bytes of each buffer.
    pub buffers: Vec<usize>,
}

/// The same at its addresses.
pub struct GivenMemory {
    /// Where arenas begin.
    pub scratch: u64,
    buffers: Vec<(u64, usize)>,
}

impl GivenMemory {
    /// The buffers, none of them in use.
    pub fn buffers(&self) -> Vec<CountedBuffer> {
        let one =
            |(at, len): &(u64, usize)| CountedBuffer { at: *at as _, len: *len, references: 0 };
        self.buffers.iter().map(one).collect()
    }
}

impl FlowMemory {
    /// Bytes in all.
    pub fn bytes(&self) -> Option<usize> {
        self.buffers.iter().try_fold(self.scratch, |all, n| all.checked_add(*n))
    }
    /// The division of memory that begins at an address.
    pub fn at(&self, begin: u64) -> GivenMemory {
        let mut next = begin + self.scratch as u64;
        let mut buffers = vec![];
        for len in &self.buffers {
            buffers.push((next, *len));
            next += *len as u64;
        }
        GivenMemory { scratch: begin, buffers }
    }
}

/// The next multiple of the alignment; at least one byte, since values have addresses.
pub fn aligned(bytes: usize) -> Result<usize, CallError> {
    let room = bytes.max(1).checked_next_multiple_of(WORKSPACE_ALIGNMENT);
    Ok(room.ok_or_else(|| OutOfMemory::new(None, "values between programs"))?)
}
