//! Warp-collective instructions.
use super::{FaultKind, cluster::Cluster, memory::at, step::set};
use crate::ptx::code::{Address, Collective, Shuffle, Slot, Space, Vote};

impl Collective {
    /// The number of participating threads.
    pub fn threads(&self) -> usize {
        if matches!(self, Collective::Wgmma(_)) { 128 } else { 32 }
    }
}

/// The source lane of a shuffle, and whether it is in the lane's segment. `limit` has the clamp in
/// bits 0 to 4 and the segment mask in bits 8 to 12.
fn source_lane(kind: Shuffle, lane: u32, by: u32, limit: u32) -> (u32, bool) {
    let (parts, last) = (limit >> 8 & 0x1f, limit & 0x1f);
    let most = lane & parts | last & !parts;
    let least = lane & parts;
    let (to, valid) = match kind {
        Shuffle::Up => (lane.wrapping_sub(by), lane as i64 - i64::from(by) >= i64::from(most)),
        Shuffle::Down => (lane + by, lane + by <= most),
        Shuffle::Butterfly => (lane ^ by, lane ^ by <= most),
        Shuffle::Index => (least | by & !parts, least | by & !parts <= most),
    };
    if valid { (to, true) } else { (lane, false) }
}

impl Cluster<'_> {
    /// A thread's register.
    pub fn reg(&self, b: usize, t: usize, s: Slot) -> u64 {
        self.blocks[b].threads[t].regs[s as usize]
    }
    fn write_reg(&mut self, b: usize, t: usize, s: Slot, value: u64) {
        self.blocks[b].threads[t].regs[s as usize] = value;
    }
    /// The values of a register across the members.
    fn member_values(&self, b: usize, members: &[usize], s: Slot) -> Vec<u64> {
        members.iter().map(|t| self.reg(b, *t, s)).collect()
    }

    /// Executes the instruction for all its threads.
    pub fn collective(
        &mut self,
        b: usize,
        what: &Collective,
        members: &[usize],
    ) -> Result<(), FaultKind> {
        match what {
            Collective::Sync => {}
            Collective::Shuffle { kind, out, valid, value, lane, limit } => {
                let mut values = [None; 32];
                members.iter().for_each(|t| values[t % 32] = Some(self.reg(b, *t, *value)));
                let mut found = vec![];
                for t in members {
                    let (by, limit) =
                        (self.reg(b, *t, *lane) as u32, self.reg(b, *t, *limit) as u32);
                    let (from, ok) = source_lane(*kind, *t as u32 % 32, by & 0x1f, limit);
                    match values[from as usize & 31] {
                        Some(v) => found.push((v, ok)),
                        None => {
                            return Err(FaultKind::Instruction(format!(
                                "lane {from} is read but does not take part"
                            )));
                        }
                    }
                }
                for (t, (v, ok)) in members.iter().zip(found) {
                    self.write_reg(b, *t, *out, v);
                    set(&mut self.blocks[b].threads[*t].regs, *valid, ok.into());
                }
            }
            Collective::Vote { kind, out, value, negate } => {
                let said: Vec<bool> = self
                    .member_values(b, members, *value)
                    .into_iter()
                    .map(|v| (v & 1 == 1) != *negate)
                    .collect();
                let result = match kind {
                    Vote::All => said.iter().all(|v| *v).into(),
                    Vote::Any => said.iter().any(|v| *v).into(),
                    Vote::Uniform => said.windows(2).all(|w| w[0] == w[1]).into(),
                    Vote::Ballot => members
                        .iter()
                        .zip(&said)
                        .fold(0u64, |m, (t, v)| m | u64::from(*v) << (t % 32)),
                };
                members.iter().for_each(|t| self.write_reg(b, *t, *out, result));
            }
            Collective::Reduce { of, out, value } => {
                let result =
                    self.member_values(b, members, *value).into_iter().reduce(of).unwrap_or(0);
                members.iter().for_each(|t| self.write_reg(b, *t, *out, result));
            }
            Collective::Elect { out, chosen } => {
                let first = members.first().copied().unwrap_or(0);
                for t in members {
                    self.write_reg(b, *t, *chosen, u64::from(*t == first));
                    set(&mut self.blocks[b].threads[*t].regs, *out, first as u64 % 32);
                }
            }
            Collective::LoadMatrix { out, at, transposed } => {
                for (i, o) in out.iter().enumerate() {
                    let rows = self.rows(b, members, *at, i)?;
                    for t in members {
                        let (row, member_values) = (t % 32 / 4, t % 4 * 2);
                        // SAFETY: `rows` has found 16 bytes for each.
                        let half = |r: usize, c: usize| {
                            u64::from(unsafe { rows[r].cast::<u16>().add(c).read() })
                        };
                        let value = if *transposed {
                            half(member_values, row) | half(member_values + 1, row) << 16
                        } else {
                            half(row, member_values) | half(row, member_values + 1) << 16
                        };
                        self.write_reg(b, *t, *o, value);
                    }
                }
            }
            Collective::StoreMatrix { values, at, transposed } => {
                for (i, v) in values.iter().enumerate() {
                    let rows = self.rows(b, members, *at, i)?;
                    for t in members {
                        let (row, member_values, value) =
                            (t % 32 / 4, t % 4 * 2, self.reg(b, *t, *v));
                        let places = if *transposed {
                            [(member_values, row), (member_values + 1, row)]
                        } else {
                            [(row, member_values), (row, member_values + 1)]
                        };
                        for (n, (r, c)) in places.into_iter().enumerate() {
                            // SAFETY: as above.
                            unsafe {
                                rows[r].cast::<u16>().add(c).write((value >> (16 * n)) as u16)
                            };
                        }
                    }
                }
                self.progressed = true;
            }
            Collective::Mma(m) => self.mma(b, m, members)?,
            Collective::Wgmma(m) => self.wgmma(b, m, members)?,
        }
        Ok(())
    }

    /// The 16-byte rows of an 8x8 matrix, whose addresses eight lanes hold.
    fn rows(
        &mut self,
        b: usize,
        members: &[usize],
        address: Address,
        matrix: usize,
    ) -> Result<Vec<*mut u8>, FaultKind> {
        let Some(lanes) = members.get(8 * matrix..8 * matrix + 8) else {
            return Err(FaultKind::Instruction("lanes of the matrix are missing".into()));
        };
        let addresses: Vec<u64> =
            lanes.iter().map(|t| at(&self.blocks[b].threads[*t].regs, address)).collect();
        addresses
            .into_iter()
            .map(|a| self.place_without_thread(b, Space::Shared, a, 16, 16))
            .collect()
    }
}
