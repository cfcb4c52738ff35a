//! Copies that go on by themselves: `cp.async` of a thread, and the copy engine's boxes of tensors.
use super::{
    What,
    cluster::{Cluster, State, Thread},
    memory::{OFFSET_BITS, Seen, at},
};
use crate::{
    ptx::code::{Bulk, Op, Space},
    tensor_map::TensorMap,
};
use std::collections::VecDeque;

/// Bytes from one place to another; what is not read is 0.
#[derive(Clone, Copy)]
struct Small {
    to: u64,
    from: u64,
    bytes: u64,
    read: u64,
}

/// A box of shared memory on its way into a tensor, or bytes into memory.
#[derive(Clone)]
enum Store {
    Box { map: TensorMap, from: u64, corner: Vec<i64> },
    Bytes { to: u64, from: u64, bytes: u64 },
}

/// What a thread has under way.
#[derive(Default)]
pub struct Copies {
    open: Vec<Small>,
    groups: VecDeque<Vec<Small>>,
    stores: Vec<Store>,
    stored: VecDeque<Vec<Store>>,
}

/// What the copy engine reads for a bar, later.
pub struct Late {
    /// Block, thread and instruction.
    pub of: (usize, usize, usize),
    what: Read,
    to: u64,
    bar: u64,
    blocks: Vec<usize>,
}

enum Read {
    Box { map: TensorMap, corner: Vec<i64>, offsets: Vec<i64> },
    Bytes { of: Space, from: u64, bytes: u64 },
}

/// Where 16 bytes lie whose rows of 128 bytes are in different order from row to row.
pub fn swizzled(address: u64) -> u64 {
    address ^ (address >> 7 & 7) << 4
}

impl TensorMap {
    /// Bytes of a box.
    fn bytes(&self) -> u64 {
        let boxes = if self.corners.is_some() { 2 } else { self.rank };
        self.extent[..boxes].iter().map(|n| u64::from(*n)).product::<u64>() * self.width as u64
    }
    /// The address of an element. None: it is beyond the tensor.
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
    /// The elements of a box in order, each with its distance from the box's begin.
    fn walk(
        &self,
        corner: &[i64],
        offsets: &[i64],
        each: &mut dyn FnMut(Option<u64>, u64) -> Result<(), What>,
    ) -> Result<(), What> {
        let width = self.width as u64;
        if let Some([low, high]) = self.corners {
            // Pixels one behind the other: width, height, image; the window's element is `offsets`
            // further.
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
    fn map(&mut self, b: usize, address: u64) -> Result<TensorMap, What> {
        if !address.is_multiple_of(64) {
            return Err(What::Alignment(128, address));
        }
        let from = self.somewhere(b, Space::Generic, address, 128, 1)?;
        // SAFETY: 128 bytes are there.
        let bytes = unsafe { from.cast::<[u8; 128]>().read() };
        TensorMap::of_bytes(&bytes).ok_or_else(|| {
            What::Instruction(format!("at {address:#x} is no description of a tensor"))
        })
    }
    fn small(&mut self, b: usize, c: Small) -> Result<(), What> {
        let to = self.somewhere(b, Space::Shared, c.to, c.bytes, 1)?;
        // SAFETY: that many bytes are at both places.
        unsafe { to.write_bytes(0, c.bytes as usize) };
        if c.read > 0 {
            let from = self.somewhere(b, Space::Global, c.from, c.read, 1)?;
            // SAFETY: as above.
            unsafe { to.copy_from_nonoverlapping(from, c.read as usize) };
        }
        self.moved = true;
        Ok(())
    }
    fn store(&mut self, b: usize, s: &Store) -> Result<(), What> {
        match s {
            Store::Bytes { to, from, bytes } => {
                let from = self.somewhere(b, Space::Shared, *from, *bytes, 1)?;
                let to = self.somewhere(b, Space::Global, *to, *bytes, 1)?;
                // SAFETY: as above.
                unsafe { to.copy_from_nonoverlapping(from, *bytes as usize) };
            }
            Store::Box { map, from, corner } => {
                let base = self.somewhere(b, Space::Shared, *from, map.bytes(), 1)?;
                let (begin, mut seen) = (*from, [Seen::default(); 4]);
                map.walk(corner, &[], &mut |element, far| {
                    let Some(element) = element else { return Ok(()) };
                    let to = Cluster::global(&mut seen, element, map.width as u64)?;
                    let order = if map.swizzle { swizzled(begin + far) - begin } else { far };
                    // SAFETY: the box's bytes are at `base`, in an order that stays within its rows
                    // of 1024 bytes.
                    unsafe { to.copy_from_nonoverlapping(base.add(order as usize), map.width) };
                    Ok(())
                })?;
            }
        }
        self.moved = true;
        Ok(())
    }

    /// Does what the copy engine had put off.
    pub fn perform(&mut self, late: Late) -> Result<(), What> {
        for target in late.blocks {
            let bytes = match &late.what {
                Read::Bytes { of, from, bytes } => {
                    let from = self.somewhere(late.of.0, *of, *from, *bytes, 1)?;
                    let to = self.somewhere(target, Space::Shared, late.to, *bytes, 1)?;
                    // SAFETY: that many bytes are at both places.
                    unsafe { to.copy_from_nonoverlapping(from, *bytes as usize) };
                    *bytes
                }
                Read::Box { map, corner, offsets } => {
                    let base = self.somewhere(target, Space::Shared, late.to, map.bytes(), 1)?;
                    let (begin, mut seen) =
                        (self.shared_place(target, late.to).1 as u64, [Seen::default(); 4]);
                    map.walk(corner, offsets, &mut |element, far| {
                        let order = if map.swizzle { swizzled(begin + far) - begin } else { far };
                        let mut value = [0u8; 8];
                        if let Some(element) = element {
                            let from = Cluster::global(&mut seen, element, map.width as u64)?;
                            // SAFETY: an element is there, of at most 8 bytes.
                            unsafe { value.as_mut_ptr().copy_from_nonoverlapping(from, map.width) };
                        }
                        if map.tf32 {
                            let bits = crate::ptx::convert::narrow(
                                crate::ptx::code::Kind::Tf32,
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
            self.bytes_came(target, late.bar, bytes)?;
        }
        Ok(())
    }

    /// Copies that a thread asks for, and waits for.
    pub fn copy(&mut self, b: usize, t: usize, thread: &mut Thread, op: &Op) -> Result<(), What> {
        let (r, pc) = (&thread.regs, thread.pc);
        match op {
            Op::Copy { to, from, bytes, read } => {
                let bytes = u64::from(*bytes);
                let c = Small {
                    to: at(r, *to),
                    from: at(r, *from),
                    bytes,
                    read: read.map_or(bytes, |s| (r[s as usize] as u32 as u64).min(bytes)),
                };
                for address in [c.to, c.from] {
                    if !address.is_multiple_of(bytes) {
                        return Err(What::Alignment(bytes, address));
                    }
                }
                if self.chance() {
                    return self.small(b, c);
                }
                thread.copies.open.push(c);
            }
            Op::CopyCommit => {
                let group = std::mem::take(&mut thread.copies.open);
                thread.copies.groups.push_back(group);
            }
            Op::CopyWait(left) => {
                while thread.copies.groups.len() > *left as usize {
                    for c in thread.copies.groups.pop_front().unwrap_or_default() {
                        self.small(b, c)?;
                    }
                }
            }
            Op::Bulk(bulk) => return self.bulk(b, t, pc, thread, bulk),
            Op::BulkCommit => {
                let mut group = std::mem::take(&mut thread.copies.stores);
                if self.chance() {
                    group.drain(..).try_for_each(|s| self.store(b, &s))?;
                }
                // Also a group that is done counts where the last ones may be left.
                thread.copies.stored.push_back(group);
            }
            Op::BulkWait(left) => {
                while thread.copies.stored.len() > *left as usize {
                    for s in thread.copies.stored.pop_front().unwrap_or_default() {
                        self.store(b, &s)?;
                    }
                }
            }
            other => return Err(What::Instruction(format!("{other:?} is not done"))),
        }
        Ok(())
    }

    fn bulk(
        &mut self,
        b: usize,
        t: usize,
        pc: usize,
        thread: &mut Thread,
        bulk: &Bulk,
    ) -> Result<(), What> {
        let r = &thread.regs;
        let signed = |slots: &[u32]| {
            slots.iter().map(|s| i64::from(r[*s as usize] as u32 as i32)).collect::<Vec<_>>()
        };
        let (what, to, bar, blocks) = match bulk {
            Bulk::Load { to, map, at: place, offsets, bar, blocks } => {
                let found = self.map(b, r[*map as usize])?;
                if place.len() != found.rank
                    || offsets.len() != found.corners.map_or(0, |_| found.rank - 2)
                {
                    return Err(What::Instruction(format!(
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
                    Read::Box { map: found, corner: signed(place), offsets },
                    at(r, *to),
                    at(r, *bar),
                    blocks,
                )
            }
            Bulk::LoadBytes { to, of, from, bytes, bar } => (
                Read::Bytes {
                    of: *of,
                    from: at(r, *from),
                    bytes: r[*bytes as usize] as u32 as u64,
                },
                at(r, *to),
                at(r, *bar),
                None,
            ),
            Bulk::Store { from, map, at: place } => {
                let map = self.map(b, r[*map as usize])?;
                let store = Store::Box { map, from: at(r, *from), corner: signed(place) };
                thread.copies.stores.push(store);
                return Ok(());
            }
            Bulk::StoreBytes { to, from, bytes } => {
                thread.copies.stores.push(Store::Bytes {
                    to: at(r, *to),
                    from: at(r, *from),
                    bytes: r[*bytes as usize] as u32 as u64,
                });
                return Ok(());
            }
        };
        if !(to & 0xffff).is_multiple_of(if matches!(what, Read::Bytes { .. }) { 16 } else { 128 })
        {
            return Err(What::Alignment(128, to));
        }
        // To many blocks, or to the one that the address names.
        let mut late = Late { of: (b, t, pc), what, to, bar, blocks: vec![] };
        match blocks {
            Some(many) => {
                let offset = |a: u64| a & ((1 << OFFSET_BITS) - 1);
                (late.to, late.bar, late.blocks) = (offset(to), offset(bar), many);
            }
            None => late.blocks = vec![b],
        }
        if self.chance() {
            return self.perform(late);
        }
        self.late.push_back(late);
        Ok(())
    }

    /// Ends what a thread has under way that ends.
    pub fn finish(&mut self, b: usize, thread: &mut Thread) -> Result<(), What> {
        let copies = std::mem::take(&mut thread.copies);
        copies
            .groups
            .into_iter()
            .flatten()
            .chain(copies.open)
            .try_for_each(|c| self.small(b, c))?;
        copies
            .stored
            .into_iter()
            .flatten()
            .chain(copies.stores)
            .try_for_each(|s| self.store(b, &s))?;
        thread.state = State::Over;
        self.blocks[b].left -= 1;
        Ok(())
    }
}
