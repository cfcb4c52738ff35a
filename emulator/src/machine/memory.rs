//! Addresses: which memory one is of, and whether it may be used.
use super::{What, cluster::Cluster};
use crate::{
    allocations::MEMORY,
    ptx::code::{Address, Space},
};

/// Generic addresses of shared memory have this bit; below it stand the block's number in the
/// cluster plus 1, or 0 for the thread's own block, and the offset.
pub const SHARED: u64 = 1 << 56;
/// Generic addresses of a thread's own memory.
pub const LOCAL: u64 = 1 << 57;
/// Bits of an offset in shared memory.
pub const OFFSET_BITS: u32 = 24;

/// What was found last in the list of allocations.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    first: u64,
    behind: u64,
}

/// Who asks.
pub struct Asker<'a> {
    /// The block, of the cluster.
    pub block: usize,
    /// The thread's own memory.
    pub local: &'a mut Vec<u8>,
    /// The thread's last allocation.
    pub seen: &'a mut [Seen; 4],
}

/// Moves an address.
pub fn at(regs: &[u64], a: Address) -> u64 {
    regs[a.base as usize].wrapping_add(a.offset as u64)
}

impl Cluster<'_> {
    /// Where in a block's shared memory an address is: the block and the offset.
    pub fn shared_place(&self, block: usize, address: u64) -> (usize, usize) {
        let rank = (address >> OFFSET_BITS & 0xff) as usize;
        (if rank == 0 { block } else { rank - 1 }, (address & ((1 << OFFSET_BITS) - 1)) as usize)
    }
    /// A place of the card's memory. Err: it is not allocated.
    pub fn global(seen: &mut [Seen; 4], address: u64, len: u64) -> Result<*mut u8, What> {
        let end = address.checked_add(len).ok_or(What::Address(len, address))?;
        if let Some(i) = seen.iter().position(|s| s.first <= address && end <= s.behind) {
            seen.swap(0, i);
            return Ok(address as *mut u8);
        }
        match MEMORY.around(address) {
            Some((first, size, _)) if end <= first + size as u64 => {
                seen.rotate_right(1);
                seen[0] = Seen { first, behind: first + size as u64 };
                Ok(address as *mut u8)
            }
            _ => Err(What::Address(len, address)),
        }
    }
    /// As [`Cluster::place`], for what is no thread's own: the copy engine, bars and lanes
    /// together.
    pub fn somewhere(
        &mut self,
        block: usize,
        space: Space,
        address: u64,
        len: u64,
        align: u64,
    ) -> Result<*mut u8, What> {
        self.place(
            &mut Asker { block, local: &mut vec![], seen: &mut Default::default() },
            space,
            address,
            len,
            align,
        )
    }
    /// The place that an address means, for `len` bytes at a multiple of `align`.
    pub fn place(
        &mut self,
        who: &mut Asker<'_>,
        space: Space,
        address: u64,
        len: u64,
        align: u64,
    ) -> Result<*mut u8, What> {
        if !address.is_multiple_of(align) {
            return Err(What::Alignment(len, address));
        }
        let space = match space {
            Space::Generic if address & SHARED != 0 => Space::Shared,
            Space::Generic if address & LOCAL != 0 => Space::Local,
            Space::Generic if self.in_params(address) => Space::Param,
            Space::Generic => Space::Global,
            other => other,
        };
        let within = |memory: &mut [u8], offset: u64| {
            let part = memory.get_mut(usize::try_from(offset).ok()?..)?;
            (part.len() as u64 >= len).then_some(part.as_mut_ptr())
        };
        let found = match space {
            Space::Shared => {
                let (block, offset) = self.shared_place(who.block, address);
                if self.blocks.get(block).is_some_and(|b| b.left == 0) {
                    return Err(What::Instruction(format!(
                        "block {block} of the cluster has ended, and its shared memory with it"
                    )));
                }
                self.blocks.get_mut(block).and_then(|b| within(b.shared.bytes(), offset as u64))
            }
            Space::Local => within(who.local, address & !LOCAL),
            Space::Param => (self.in_params(address) && self.in_params(address + len - 1))
                .then_some(address as *mut u8),
            _ => return Cluster::global(who.seen, address, len),
        };
        found.ok_or(What::Address(len, address))
    }
}

/// Bytes that begin at a multiple of 1024, as the copy engine's order of bytes wants.
pub struct Aligned {
    room: Vec<u128>,
    skip: usize,
    len: usize,
}

impl Aligned {
    /// So many bytes, each the same.
    pub fn new(len: usize, fill: u8) -> Aligned {
        let room = vec![u128::from_ne_bytes([fill; 16]); len.div_ceil(16) + 64];
        let skip = room.as_ptr().cast::<u8>().align_offset(1024);
        Aligned { room, skip, len }
    }
    /// All of them.
    pub fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the room has 1024 bytes more than `len`, and any bytes are u8.
        unsafe {
            std::slice::from_raw_parts_mut(
                self.room.as_mut_ptr().cast::<u8>().add(self.skip),
                self.len,
            )
        }
    }
}

/// Reads a number of 1, 2, 4 or 8 bytes.
///
/// # Safety
/// That many bytes are there.
pub unsafe fn read(from: *const u8, width: u8) -> u64 {
    // SAFETY: as promised; other threads of the host may write meanwhile, as other blocks of a card
    // may.
    unsafe {
        match width {
            1 => from.read_volatile().into(),
            2 => from.cast::<u16>().read_volatile().into(),
            4 => from.cast::<u32>().read_volatile().into(),
            _ => from.cast::<u64>().read_volatile(),
        }
    }
}

/// Writes one.
///
/// # Safety
/// That many bytes are there.
pub unsafe fn write(to: *mut u8, width: u8, value: u64) {
    // SAFETY: as above.
    unsafe {
        match width {
            1 => to.write_volatile(value as u8),
            2 => to.cast::<u16>().write_volatile(value as u16),
            4 => to.cast::<u32>().write_volatile(value as u32),
            _ => to.cast::<u64>().write_volatile(value),
        }
    }
}
