//! Asynchronous copies: `cp.async`, and TMA (`cp.async.bulk`).
use super::{
    cluster::{Cluster, State, Thread},
    fault::FaultKind,
    memory::at,
    pending::{CpAsync, PendingTma, TmaRead, TmaStore},
    storage::{CachedAllocation, OFFSET_BITS},
};
use crate::{
    allocations::MEMORY,
    ptx::code::{Op, Space, Tma},
    tensor_map::TensorMap,
};

/// The 128-byte swizzle: XORs address bits 4 to 6 with bits 7 to 9.
pub fn swizzled(address: u64) -> u64 {
    address ^ (address >> 7 & 7) << 4
}

impl TensorMap {
    /// Bytes of a box.
    fn bytes(&self) -> u64 {
        let boxes = if self.corners.is_some() { 2 } else { self.rank };
        self.extent[..boxes].iter().map(|n| u64::from(*n)).product::<u64>() * self.width as u64
    }
    /// The address of an element. None: out of bounds.
    fn element(&self, place: &[i64]) -> Option<u64> {
        let inside = place.iter().zip(self.sizes).all(|(p, n)| (0..i64::from(n)).contains(p));
        let far: u64 = place
            .iter()
            .skip(1)
            .zip(self.strides)
            .map(|(p, s)| (*p as u64).wrapping_mul(s))
            .fold(0, u64::wrapping_add);
        inside.then(|| {
            self.address
                .wrapping_add(far)
                .wrapping_add((place[0] as u64).wrapping_mul(self.width as u64))
        })
    }
    /// The elements of a box in order, each with its offset in shared memory.
    fn walk(
        &self,
        corner: &[i64],
        offsets: &[i64],
        each: &mut dyn FnMut(Option<u64>, u64) -> Result<(), FaultKind>,
    ) -> Result<(), FaultKind> {
        let width = self.width as u64;
        if let Some([low, high]) = self.corners {
            // im2col: pixels in order of width, height, image; `offsets` selects the filter tap.
            let spatial = self.rank - 2;
            let mut pixel: Vec<i64> = corner[1..].to_vec();
            for p in 0..u64::from(self.extent[1]) {
                for c in 0..i64::from(self.extent[0]) {
                    let mut place = vec![corner[0] + c];
                    place.extend(
                        pixel
                            .iter()
                            .enumerate()
                            .map(|(d, v)| v + offsets.get(d).copied().unwrap_or(0)),
                    );
                    each(self.element(&place), (p * u64::from(self.extent[0]) + c as u64) * width)?;
                }
                let mut d = 0;
                loop {
                    if d == spatial {
                        pixel[d] += 1;
                        break;
                    }
                    pixel[d] += i64::from(self.steps[d + 1].max(1));
                    if pixel[d] < i64::from(self.sizes[d + 1]) + i64::from(high[d]) {
                        break;
                    }
                    pixel[d] = i64::from(low[d]);
                    d += 1;
                }
            }
            return Ok(());
        }
        let mut index = vec![0i64; self.rank];
        let mut far = 0;
        loop {
            let place: Vec<i64> = index
                .iter()
                .zip(corner)
                .zip(self.steps)
                .map(|((i, c), s)| c + i * i64::from(s.max(1)))
                .collect();
            each(self.element(&place), far)?;
            far += width;
            let mut d = 0;
            while d < self.rank {
                index[d] += 1;
                if index[d] < i64::from(self.extent[d]) {
                    break;
                }
                index[d] = 0;
                d += 1;
            }
            if d == self.rank {
                return Ok(());
            }
        }
    }
}

impl Cluster<'_> {
    fn map(&mut self, b: usize, address: u64) -> Result<TensorMap, FaultKind> {
        if !address.is_multiple_of(64) {
            return Err(FaultKind::Alignment(128, address));
        }
        let from = self.place_without_thread(b, Space::Generic, address, 128, 1)?;
        // SAFETY: 128 bytes are there.
        let bytes = unsafe { from.cast::<[u8; 128]>().read() };
        TensorMap::of_bytes(&bytes).ok_or_else(|| {
            FaultKind::Instruction(format!("there is no tensor map at {address:#x}"))
        })
    }
    fn cp_async(&mut self, b: usize, c: CpAsync) -> Result<(), FaultKind> {
        let to = self.place_without_thread(b, Space::Shared, c.to, c.bytes, 1)?;
        // SAFETY: that many bytes are at both places.
        unsafe { to.write_bytes(0, c.bytes as usize) };
        if c.read > 0 {
            let from = self.place_without_thread(b, Space::Global, c.from, c.read, 1)?;
            // SAFETY: as above.
            unsafe { to.copy_from_nonoverlapping(from, c.read as usize) };
        }
        self.progressed = true;
        Ok(())
    }
    fn store(&mut self, b: usize, s: &TmaStore) -> Result<(), FaultKind> {
        match s {
            TmaStore::Bytes { to, from, bytes } => {
                let from = self.place_without_thread(b, Space::Shared, *from, *bytes, 1)?;
                let to = self.global_to_write(&mut Default::default(), *to, *bytes)?;
                // SAFETY: as above.
                unsafe { to.copy_from_nonoverlapping(from, *bytes as usize) };
            }
            TmaStore::Box { map, from, corner } => {
                // An H200 writes whole units of 16 bytes, also where a row ends within one.
                let mut map = *map;
                map.sizes[0] = map.sizes[0].next_multiple_of((16 / map.width as u32).max(1));
                let base = self.place_without_thread(b, Space::Shared, *from, map.bytes(), 1)?;
                let (begin, mut cached) = (*from, [CachedAllocation::default(); 4]);
                map.walk(corner, &[], &mut |element, far| {
                    let Some(element) = element else { return Ok(()) };
                    let to = self.global_to_write(&mut cached, element, map.width as u64)?;
                    let order = if map.swizzle { swizzled(begin + far) - begin } else { far };
                    // SAFETY: the box's bytes are at `base`; the swizzle stays within 1024-byte atoms.
                    unsafe { to.copy_from_nonoverlapping(base.add(order as usize), map.width) };
                    Ok(())
                })?;
            }
        }
        self.progressed = true;
        Ok(())
    }

    /// Performs a delayed TMA operation.
    pub fn perform(&mut self, pending: PendingTma) -> Result<(), FaultKind> {
        for target in pending.blocks {
            let bytes = match &pending.what {
                TmaRead::Bytes { of, from, bytes } => {
                    let from = self.place_without_thread(pending.of.0, *of, *from, *bytes, 1)?;
                    let to =
                        self.place_without_thread(target, Space::Shared, pending.to, *bytes, 1)?;
                    // SAFETY: that many bytes are at both places.
                    unsafe { to.copy_from_nonoverlapping(from, *bytes as usize) };
                    *bytes
                }
                TmaRead::Box { map, corner, offsets } => {
                    let base = self.place_without_thread(
                        target,
                        Space::Shared,
                        pending.to,
                        map.bytes(),
                        1,
                    )?;
                    let (begin, mut cached) = (
                        self.shared_offset(target, pending.to).1 as u64,
                        [CachedAllocation::default(); 4],
                    );
                    map.walk(corner, offsets, &mut |element, far| {
                        let order = if map.swizzle { swizzled(begin + far) - begin } else { far };
                        let mut value = [0u8; 8];
                        if let Some(element) = element {
                            let from = Cluster::global(&mut cached, element, map.width as u64)?;
                            // SAFETY: an element is there, of at most 8 bytes.
                            unsafe { value.as_mut_ptr().copy_from_nonoverlapping(from, map.width) };
                        }
                        if map.tf32 {
                            let bits = crate::ptx::convert::narrow(
                                crate::ptx::code::NumberType::Tf32,
                                f32::from_le_bytes([value[0], value[1], value[2], value[3]]).into(),
                                crate::ptx::code::Round::Even,
                            );
                            value[..4].copy_from_slice(&(bits as u32).to_le_bytes());
                        }
                        // SAFETY: the box's bytes are at `base`.
                        unsafe {
                            base.add(order as usize)
                                .copy_from_nonoverlapping(value.as_ptr(), map.width)
                        };
                        Ok(())
                    })?;
                    map.bytes()
                }
            };
            self.complete_tx(target, pending.mbarrier, bytes)?;
        }
        Ok(())
    }

    /// Executes the copy, commit and wait instructions of a thread.
    pub fn copy(
        &mut self,
        b: usize,
        t: usize,
        thread: &mut Thread,
        op: &Op,
    ) -> Result<(), FaultKind> {
        let (r, pc) = (&thread.regs, thread.pc);
        let in_flux = || match op {
            Op::Copy { from, .. } => MEMORY.is_in_flux(at(r, *from), self.order),
            op => matches!(op, Op::Tma(_)),
        };
        if thread.early && in_flux() {
            return Err(FaultKind::early());
        }
        match op {
            Op::Copy { to, from, bytes, read } => {
                let bytes = u64::from(*bytes);
                let c = CpAsync {
                    to: at(r, *to),
                    from: at(r, *from),
                    bytes,
                    read: read.map_or(bytes, |s| (r[s as usize] as u32 as u64).min(bytes)),
                };
                for address in [c.to, c.from] {
                    if !address.is_multiple_of(bytes) {
                        return Err(FaultKind::Alignment(bytes, address));
                    }
                }
                if self.random() {
                    return self.cp_async(b, c);
                }
                thread.async_copies.open.push(c);
            }
            Op::CopyCommit => {
                let group = std::mem::take(&mut thread.async_copies.open);
                thread.async_copies.groups.push_back(group);
            }
            Op::CopyWait(live_threads) => {
                while thread.async_copies.groups.len() > *live_threads as usize {
                    for c in thread.async_copies.groups.pop_front().unwrap_or_default() {
                        self.cp_async(b, c)?;
                    }
                }
            }
            Op::Tma(bulk) => return self.bulk(b, t, pc, thread, bulk),
            Op::TmaCommit => {
                let mut group = std::mem::take(&mut thread.async_copies.stores);
                if self.random() {
                    group.drain(..).try_for_each(|s| self.store(b, &s))?;
                }
                // Empty groups count for `wait_group` too.
                thread.async_copies.stored.push_back(group);
            }
            Op::TmaWait(live_threads) => {
                while thread.async_copies.stored.len() > *live_threads as usize {
                    for s in thread.async_copies.stored.pop_front().unwrap_or_default() {
                        self.store(b, &s)?;
                    }
                }
            }
            other => return Err(FaultKind::Instruction(format!("{other:?} is not supported"))),
        }
        Ok(())
    }

    fn bulk(
        &mut self,
        b: usize,
        t: usize,
        pc: usize,
        thread: &mut Thread,
        bulk: &Tma,
    ) -> Result<(), FaultKind> {
        let r = &thread.regs;
        let signed = |slots: &[u32]| {
            slots.iter().map(|s| i64::from(r[*s as usize] as u32 as i32)).collect::<Vec<_>>()
        };
        let (what, to, mbarrier, blocks) = match bulk {
            Tma::Load { to, map, at: place, offsets, mbarrier, blocks } => {
                let found = self.map(b, r[*map as usize])?;
                if place.len() != found.rank
                    || offsets.len() != found.corners.map_or(0, |_| found.rank - 2)
                {
                    return Err(FaultKind::Instruction(format!(
                        "{} coordinates and {} offsets for {found:?}",
                        place.len(),
                        offsets.len()
                    )));
                }
                let offsets = offsets.iter().map(|s| i64::from(r[*s as usize] as u16)).collect();
                let blocks = blocks.map(|s| {
                    (0..self.blocks.len()).filter(|i| r[s as usize] >> i & 1 == 1).collect()
                });
                (
                    TmaRead::Box { map: found, corner: signed(place), offsets },
                    at(r, *to),
                    at(r, *mbarrier),
                    blocks,
                )
            }
            Tma::LoadBytes { to, of, from, bytes, mbarrier } => (
                TmaRead::Bytes {
                    of: *of,
                    from: at(r, *from),
                    bytes: r[*bytes as usize] as u32 as u64,
                },
                at(r, *to),
                at(r, *mbarrier),
                None,
            ),
            Tma::Store { from, map, at: place } => {
                let map = self.map(b, r[*map as usize])?;
                let store = TmaStore::Box { map, from: at(r, *from), corner: signed(place) };
                thread.async_copies.stores.push(store);
                return Ok(());
            }
            Tma::StoreBytes { to, from, bytes } => {
                thread.async_copies.stores.push(TmaStore::Bytes {
                    to: at(r, *to),
                    from: at(r, *from),
                    bytes: r[*bytes as usize] as u32 as u64,
                });
                return Ok(());
            }
        };
        if !(to & 0xffff).is_multiple_of(if matches!(what, TmaRead::Bytes { .. }) {
            16
        } else {
            128
        }) {
            return Err(FaultKind::Alignment(128, to));
        }
        // Multicast to the CTAs of the mask, or to the CTA that the address names.
        let mut pending = PendingTma { of: (b, t, pc), what, to, mbarrier, blocks: vec![] };
        match blocks {
            Some(many) => {
                let offset = |a: u64| a & ((1 << OFFSET_BITS) - 1);
                (pending.to, pending.mbarrier, pending.blocks) =
                    (offset(to), offset(mbarrier), many);
            }
            None => pending.blocks = vec![b],
        }
        if self.random() {
            return self.perform(pending);
        }
        self.pending.push_back(pending);
        Ok(())
    }

    /// Completes a thread's copies at its exit.
    pub fn finish(&mut self, b: usize, thread: &mut Thread) -> Result<(), FaultKind> {
        let copies = std::mem::take(&mut thread.async_copies);
        copies
            .groups
            .into_iter()
            .flatten()
            .chain(copies.open)
            .try_for_each(|c| self.cp_async(b, c))?;
        copies
            .stored
            .into_iter()
            .flatten()
            .chain(copies.stores)
            .try_for_each(|s| self.store(b, &s))?;
        thread.state = State::Exited;
        self.blocks[b].live_threads -= 1;
        Ok(())
    }
}
