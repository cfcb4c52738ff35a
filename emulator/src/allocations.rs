//! Memory of the card: memory of the host, of which it is known what is allocated.
use std::{
    alloc::{Layout, alloc, dealloc},
    collections::BTreeMap,
    sync::{PoisonError, RwLock},
};

/// Allocations begin at multiples of so many bytes, as the driver's do.
const ALIGN: usize = 256;
/// What fresh memory holds: NaN in every float type, so that what is read before it is written
/// shows.
const FRESH: u8 = 0xff;

/// Whose memory it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The card's.
    Device,
    /// The host's, which the card can read and write.
    Host,
}

#[derive(Clone, Copy)]
struct Piece {
    len: usize,
    room: Layout,
    kind: Kind,
}

/// All that is allocated, by address.
#[derive(Default)]
pub struct Allocations {
    pieces: RwLock<BTreeMap<u64, Piece>>,
}

/// The card's memory.
pub static MEMORY: Allocations = Allocations { pieces: RwLock::new(BTreeMap::new()) };

impl Allocations {
    /// Memory of `len` bytes, at least one. None: the host has no more.
    pub fn allocate(&self, len: usize, kind: Kind) -> Option<u64> {
        let room =
            Layout::from_size_align(len.max(1).checked_next_multiple_of(ALIGN)?, ALIGN).ok()?;
        // SAFETY: the size is not 0.
        let at = unsafe { alloc(room) };
        if at.is_null() {
            return None;
        }
        // SAFETY: just allocated with this size.
        unsafe { at.write_bytes(FRESH, room.size()) };
        self.pieces
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(at as u64, Piece { len: len.max(1), room, kind });
        Some(at as u64)
    }
    /// Gives back what begins at an address. False: nothing does.
    pub fn free(&self, at: u64) -> bool {
        let Some(piece) = self.pieces.write().unwrap_or_else(PoisonError::into_inner).remove(&at)
        else {
            return false;
        };
        // SAFETY: allocated above with this layout, and no longer in the list.
        unsafe { dealloc(at as *mut u8, piece.room) };
        true
    }
    /// The allocation that an address lies in: its first address, its bytes, and whose it is.
    pub fn around(&self, at: u64) -> Option<(u64, usize, Kind)> {
        let pieces = self.pieces.read().unwrap_or_else(PoisonError::into_inner);
        let (first, piece) = pieces.range(..=at).next_back()?;
        (at - first < piece.len as u64).then_some((*first, piece.len, piece.kind))
    }
    /// Bytes of the card's memory that are allocated.
    pub fn used(&self) -> usize {
        let pieces = self.pieces.read().unwrap_or_else(PoisonError::into_inner);
        pieces.values().filter(|p| p.kind == Kind::Device).map(|p| p.room.size()).sum()
    }
}
