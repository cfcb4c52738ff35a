//! Asynchronous copies in flight.
use crate::{ptx::code::Space, tensor_map::TensorMap};
use std::collections::VecDeque;

/// A `cp.async`: bytes past `read` are zero-filled.
#[derive(Clone, Copy)]
pub(super) struct CpAsync {
    pub(super) to: u64,
    pub(super) from: u64,
    pub(super) bytes: u64,
    pub(super) read: u64,
}

/// A TMA store of a box or of contiguous bytes.
#[derive(Clone)]
pub(super) enum TmaStore {
    Box { map: TensorMap, from: u64, corner: Vec<i64> },
    Bytes { to: u64, from: u64, bytes: u64 },
}

/// A thread's asynchronous copies in flight.
#[derive(Default)]
pub struct AsyncCopies {
    pub(super) open: Vec<CpAsync>,
    pub(super) groups: VecDeque<Vec<CpAsync>>,
    pub(super) stores: Vec<TmaStore>,
    pub(super) stored: VecDeque<Vec<TmaStore>>,
}

/// A delayed TMA operation.
pub struct PendingTma {
    /// CTA, thread and instruction.
    pub of: (usize, usize, usize),
    pub(super) what: TmaRead,
    pub(super) to: u64,
    pub(super) mbarrier: u64,
    pub(super) blocks: Vec<usize>,
}

pub(super) enum TmaRead {
    Box { map: TensorMap, corner: Vec<i64>, offsets: Vec<i64> },
    Bytes { of: Space, from: u64, bytes: u64 },
}
