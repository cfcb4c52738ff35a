//! Copies between the host and a card, through pinned memory, since only from and to such memory
//! copies run by themselves. Four pieces of memory take turns: a copy of any size needs no more,
//! one of a small tensor returns before it has happened.
use super::{
    CudaError, Device,
    stream::{Event, Stream},
};
use crate::Pool;
use cudarc::driver::{result, sys};
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

/// Bytes of a piece.
const PIECE: usize = 4 << 20;
/// How many take turns.
const PIECES: usize = 4;
/// Tensors start at multiples of this in a piece.
const STEP: usize = 256;
/// From here on several threads copy between the caller's memory and a piece, since one reaches a
/// part of the memory's rate only.
const SHARED: usize = 1 << 20;
/// Below this, asking whether the caller's memory is pinned costs more than it saves.
const WORTH_ASKING: usize = 64 << 10;

/// Pinned memory of a call.
pub struct Staging {
    device: Arc<Device>,
    pieces: Vec<Piece>,
    /// The piece that is being filled, and how far.
    current: usize,
    used: usize,
}

struct Piece {
    at: *mut u8,
    /// Behind the last copy from or to it.
    done: Event,
}
// SAFETY: memory of the driver's, owned by the piece.
unsafe impl Send for Piece {}

impl Piece {
    fn new(device: &Device) -> Result<Piece, CudaError> {
        let done = Event::new(device)?;
        // SAFETY: a fresh allocation, freed below.
        let at = unsafe { result::malloc_host(PIECE, 0) }
            .map_err(device.error("allocating pinned memory"))?;
        Ok(Piece { at: at.cast(), done })
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        // SAFETY: allocated by the driver; the copies have been waited for. A driver that refuses
        // has given up the process's work.
        let _ = unsafe { result::free_host(self.at.cast()) };
    }
}

/// Where in pinned memory a copy goes.
struct Room {
    piece: usize,
    at: *mut u8,
    len: usize,
}

impl Staging {
    /// Allocates nothing yet.
    pub fn new(device: &Arc<Device>) -> Staging {
        Staging { device: device.clone(), pieces: vec![], current: 0, used: 0 }
    }

    /// Room for up to `len` bytes; the piece before is closed behind what the stream has been
    /// given. `opened` is told of a piece whose copies are over and whose memory is used from now
    /// on.
    fn room(
        &mut self,
        len: usize,
        stream: Stream,
        opened: &mut dyn FnMut(usize),
    ) -> Result<Room, CudaError> {
        // A rest that would cut a tensor into crumbs is left.
        if self.used > 0 && PIECE - self.used < len.min(PIECE / 4) {
            self.close(stream)?;
        }
        if self.used == 0 {
            if self.current == self.pieces.len() {
                let piece = Piece::new(&self.device)?;
                self.pieces.push(piece);
            }
            self.pieces[self.current].done.wait(&self.device)?;
            opened(self.current);
        }
        let len = len.min(PIECE - self.used);
        // SAFETY: inside of the piece.
        let at = unsafe { self.pieces[self.current].at.add(self.used) };
        let room = Room { piece: self.current, at, len };
        self.used = (self.used + len).next_multiple_of(STEP).min(PIECE);
        Ok(room)
    }

    /// The piece that is being filled is used again once the stream has come so far.
    pub fn close(&mut self, stream: Stream) -> Result<(), CudaError> {
        if self.used > 0 {
            self.pieces[self.current].done.record(&self.device, stream)?;
            (self.current, self.used) = ((self.current + 1) % PIECES, 0);
        }
        Ok(())
    }

    /// Copies bytes to the card; they have been read when this returns, unless the caller `waits`
    /// for the stream before they change.
    pub fn upload(
        &mut self,
        to: u64,
        bytes: &[u8],
        stream: Stream,
        waits: bool,
    ) -> Result<(), CudaError> {
        let device = self.device.clone();
        let copy = |to: u64, bytes: &[u8]| {
            // SAFETY: the card has room for them, and they stay until the copy is over: in a piece
            // by its event, else by the caller's waiting.
            unsafe { result::memcpy_htod_async(to, bytes, stream.0) }
                .map_err(device.error("copying to the GPU"))
        };
        if waits && bytes.len() >= WORTH_ASKING && pinned(bytes.as_ptr()) {
            return copy(to, bytes);
        }
        let mut done = 0;
        while done < bytes.len() {
            let room = self.room(bytes.len() - done, stream, &mut |_| ())?;
            // SAFETY: the room is this call's alone.
            let staged = unsafe { std::slice::from_raw_parts_mut(room.at, room.len) };
            copy_bytes(staged, &bytes[done..done + room.len]);
            copy(to + done as u64, staged)?;
            done += room.len;
        }
        Ok(())
    }

    /// Copies from the card, and waits until all is there.
    pub fn download(
        &mut self,
        all: &mut [(u64, &mut [u8])],
        stream: Stream,
    ) -> Result<(), CudaError> {
        let outcome = self.fetch(all, stream);
        // Also after an error, since copies may be under way.
        let waited = stream.wait(&self.device);
        outcome.and(waited)
    }

    fn fetch(&mut self, all: &mut [(u64, &mut [u8])], stream: Stream) -> Result<(), CudaError> {
        let device = self.device.clone();
        let copy = |bytes: &mut [u8], from: u64| {
            // SAFETY: the card has them, and the caller waits for the stream before the borrow
            // ends.
            unsafe { result::memcpy_dtoh_async(bytes, from, stream.0) }
                .map_err(device.error("copying from the GPU"))
        };
        self.close(stream)?;
        let mut open = Open::new();
        for (from, bytes) in all.iter_mut() {
            if bytes.len() >= WORTH_ASKING && pinned(bytes.as_ptr()) {
                copy(bytes, *from)?;
                continue;
            }
            let (mut from, mut rest) = (*from, &mut **bytes);
            while !rest.is_empty() {
                let room = self.room(rest.len(), stream, &mut |piece| settle(&mut open, piece))?;
                // SAFETY: the room is this call's alone.
                copy(unsafe { std::slice::from_raw_parts_mut(room.at, room.len) }, from)?;
                let (part, after) = rest.split_at_mut(room.len);
                open.push_back((room.piece, room.at.cast_const(), part));
                (from, rest) = (from + room.len as u64, after);
            }
        }
        self.close(stream)?;
        while let Some(piece) = open.front().map(|o| o.0) {
            self.pieces[piece].done.wait(&self.device)?;
            settle(&mut open, piece);
        }
        Ok(())
    }
}

/// What lies in pieces, in order, and where it goes.
type Open<'a> = VecDeque<(usize, *const u8, &'a mut [u8])>;

/// Moves on what lies in a piece; the copies into it are over.
fn settle(open: &mut Open, piece: usize) {
    while let Some((_, from, to)) = open.pop_front_if(|o| o.0 == piece) {
        // SAFETY: as many bytes as were copied there, which nothing writes to before the piece is
        // opened again.
        copy_bytes(to, unsafe { std::slice::from_raw_parts(from, to.len()) });
    }
}

/// As many bytes.
fn copy_bytes(to: &mut [u8], from: &[u8]) {
    if to.len() < SHARED {
        return to.copy_from_slice(from);
    }
    let all: Vec<Mutex<(&mut [u8], &[u8])>> =
        to.chunks_mut(SHARED / 4).zip(from.chunks(SHARED / 4)).map(Mutex::new).collect();
    Pool::run(|id, size| {
        for part in all.iter().skip(id).step_by(size) {
            let mut part = part.lock().unwrap_or_else(PoisonError::into_inner);
            let (to, from) = &mut *part;
            to.copy_from_slice(from);
        }
    });
}

/// Whether the driver can copy from and to this memory by itself.
fn pinned(at: *const u8) -> bool {
    use sys::{
        CUmemorytype::CU_MEMORYTYPE_HOST as HOST,
        CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE as TYPE,
    };
    let mut kind = 0u32;
    // SAFETY: writes one number; memory that the driver does not know is an error.
    unsafe { sys::cuPointerGetAttribute((&raw mut kind).cast(), TYPE, at as u64) }.result().is_ok()
        && kind == HOST as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_threads_copy_every_byte() {
        for len in [0, 1, SHARED - 1, SHARED, 3 * SHARED + 17] {
            let from: Vec<u8> = (0..len).map(|i| (i * 31 % 251) as u8).collect();
            let mut to = vec![0; len];
            copy_bytes(&mut to, &from);
            assert!(to == from, "{len} bytes");
        }
    }
}
