//! Address spaces and access checks.
use super::{
    cluster::Cluster,
    fault::FaultKind,
    storage::{CachedAllocation, LOCAL, OFFSET_BITS, SHARED},
};
use crate::{
    allocations::MEMORY,
    ptx::code::{Address, Space},
};

/// The thread that performs an access.
pub struct Accessor<'a> {
    /// Its CTA's rank in the cluster.
    pub block: usize,
    /// Its local memory.
    pub local: &'a mut Vec<u8>,
    /// Its cached allocation lookups.
    pub cached: &'a mut [CachedAllocation; 4],
    /// Whether the kernel before may still run.
    pub early: bool,
    /// Whether it writes.
    pub writes: bool,
}

/// Evaluates an address operand.
pub fn at(regs: &[u64], a: Address) -> u64 {
    regs[a.base as usize].wrapping_add(a.offset as u64)
}

impl Cluster<'_> {
    /// CTA rank and offset of a shared address.
    pub fn shared_offset(&self, block: usize, address: u64) -> (usize, usize) {
        let rank = (address >> OFFSET_BITS & 0xff) as usize;
        (if rank == 0 { block } else { rank - 1 }, (address & ((1 << OFFSET_BITS) - 1)) as usize)
    }
    /// A pointer to device memory. Err: not allocated.
    pub fn global(
        cached: &mut [CachedAllocation; 4],
        address: u64,
        len: u64,
    ) -> Result<*mut u8, FaultKind> {
        let end = address.checked_add(len).ok_or(FaultKind::Address(len, address))?;
        if let Some(i) = cached.iter().position(|s| s.first <= address && end <= s.behind) {
            cached.swap(0, i);
            return Ok(address as *mut u8);
        }
        match MEMORY.find(address) {
            Some((first, size, _)) if end <= first + size as u64 => {
                cached.rotate_right(1);
                cached[0] = CachedAllocation { first, behind: first + size as u64, written: false };
                Ok(address as *mut u8)
            }
            _ => Err(FaultKind::Address(len, address)),
        }
    }
    /// The same to write there, which is recorded.
    pub fn global_to_write(
        &self,
        cached: &mut [CachedAllocation; 4],
        address: u64,
        len: u64,
    ) -> Result<*mut u8, FaultKind> {
        let found = Cluster::global(cached, address, len)?;
        if !cached[0].written {
            cached[0].written = true;
            MEMORY.record_write(address, self.order);
        }
        Ok(found)
    }
    /// As [`Cluster::place`] for accesses without local memory: TMA, mbarriers, warp collectives.
    pub fn place_without_thread(
        &mut self,
        block: usize,
        space: Space,
        address: u64,
        len: u64,
        align: u64,
    ) -> Result<*mut u8, FaultKind> {
        self.place(
            &mut Accessor {
                block,
                local: &mut vec![],
                cached: &mut Default::default(),
                early: false,
                writes: false,
            },
            space,
            address,
            len,
            align,
        )
    }
    /// The host pointer of `len` bytes at an address with alignment `align`.
    pub fn place(
        &mut self,
        who: &mut Accessor<'_>,
        space: Space,
        address: u64,
        len: u64,
        align: u64,
    ) -> Result<*mut u8, FaultKind> {
        if !address.is_multiple_of(align) {
            return Err(FaultKind::Alignment(len, address));
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
                let (block, offset) = self.shared_offset(who.block, address);
                if self.blocks.get(block).is_some_and(|b| b.live_threads == 0) {
                    return Err(FaultKind::Instruction(format!(
                        "CTA {block} of the cluster has exited, and its shared memory is freed"
                    )));
                }
                self.blocks.get_mut(block).and_then(|b| within(b.shared.bytes(), offset as u64))
            }
            Space::Local => within(who.local, address & !LOCAL),
            Space::Param => (self.in_params(address) && self.in_params(address + len - 1))
                .then_some(address as *mut u8),
            _ if who.early && (who.writes || MEMORY.is_in_flux(address, self.order)) => {
                return Err(FaultKind::early());
            }
            _ => {
                return match who.writes {
                    true => self.global_to_write(who.cached, address, len),
                    false => Cluster::global(who.cached, address, len),
                };
            }
        };
        found.ok_or(FaultKind::Address(len, address))
    }
}

/// Loads a value of 1, 2, 4 or 8 bytes.
///
/// # Safety
/// That many bytes are there.
pub unsafe fn read(from: *const u8, width: u8) -> u64 {
    // SAFETY: as promised; other host threads may write concurrently, as other CTAs of a GPU may.
    unsafe {
        match width {
            1 => from.read_volatile().into(),
            2 => from.cast::<u16>().read_volatile().into(),
            4 => from.cast::<u32>().read_volatile().into(),
            _ => from.cast::<u64>().read_volatile(),
        }
    }
}

/// Stores a value of 1, 2, 4 or 8 bytes.
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
