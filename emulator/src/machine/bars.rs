//! Bars of shared memory (`mbarrier`): phases that end when all have arrived and all bytes have
//! come. The 64 bits hold, from below: the phase (1 bit), arrivals of a phase (20), those that are
//! missing (20), and bytes that are missing (23, signed).
use super::{
    What,
    cluster::{Cluster, State, Thread},
    memory::{at, read, write},
};
use crate::ptx::code::{Address, Bar, Space};

#[derive(Clone, Copy)]
struct Fields {
    phase: u64,
    all: u64,
    missing: u64,
    bytes: i64,
}

const COUNT: u64 = (1 << 20) - 1;

impl Fields {
    fn of(v: u64) -> Fields {
        Fields {
            phase: v & 1,
            all: v >> 1 & COUNT,
            missing: v >> 21 & COUNT,
            bytes: v as i64 >> 41,
        }
    }
    fn to_bits(self) -> u64 {
        self.phase | self.all << 1 | self.missing << 21 | (self.bytes as u64) << 41
    }
    /// Ends the phase if nothing is missing.
    fn settled(mut self) -> Fields {
        if self.missing == 0 && self.bytes == 0 {
            (self.phase, self.missing) = (self.phase ^ 1, self.all);
        }
        self
    }
}

impl Cluster<'_> {
    fn bar_place(&mut self, b: usize, address: u64) -> Result<*mut u8, What> {
        self.somewhere(b, Space::Shared, address, 8, 8)
    }
    /// Bytes have come that a bar waits for.
    pub fn bytes_came(&mut self, b: usize, address: u64, bytes: u64) -> Result<(), What> {
        let place = self.bar_place(b, address)?;
        // SAFETY: 8 bytes of shared memory.
        let mut f = Fields::of(unsafe { read(place, 8) });
        f.bytes -= bytes as i64;
        // SAFETY: as above.
        unsafe { write(place, 8, f.settled().to_bits()) };
        self.moved = true;
        Ok(())
    }
    /// What a thread does with a bar.
    pub fn bar(
        &mut self,
        b: usize,
        thread: &mut Thread,
        what: &Bar,
        address: Address,
    ) -> Result<(), What> {
        let r = &mut thread.regs;
        let place = self.bar_place(b, at(r, address))?;
        // SAFETY: 8 bytes of shared memory.
        let mut f = Fields::of(unsafe { read(place, 8) });
        match what {
            Bar::Init(count) => {
                f = Fields {
                    phase: 0,
                    all: r[*count as usize],
                    missing: r[*count as usize],
                    bytes: 0,
                }
            }
            Bar::Invalidate => f = Fields { phase: 0, all: 0, missing: 0, bytes: 0 },
            Bar::Expect(bytes) => f.bytes += r[*bytes as usize] as u32 as i64,
            Bar::Arrive { bytes, count, state } => {
                super::step::set(r, *state, f.phase);
                f.bytes += bytes.map_or(0, |s| r[s as usize] as u32 as i64);
                let count = count.map_or(1, |s| r[s as usize] & COUNT);
                if count > f.missing {
                    return Err(What::Instruction(format!(
                        "{count} arrive at a bar that waits for {}",
                        f.missing
                    )));
                }
                f.missing -= count;
                f = f.settled();
            }
            Bar::Test { out, phase } => {
                let over = f.phase != r[*phase as usize] & 1;
                r[*out as usize] = over.into();
                if !over {
                    thread.state = State::Looks;
                }
                return Ok(());
            }
        }
        // SAFETY: as above.
        unsafe { write(place, 8, f.to_bits()) };
        self.moved = true;
        Ok(())
    }
}
