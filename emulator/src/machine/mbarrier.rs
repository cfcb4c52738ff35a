//! mbarriers: a phase completes when no arrivals and no transaction bytes are pending. The 64 bits
//! hold, from bit 0: the phase parity (1), expected arrivals (20), pending arrivals (20), pending
//! transaction bytes (23, signed).
use super::{
    FaultKind,
    cluster::{Cluster, State, Thread},
    memory::{at, read, write},
};
use crate::ptx::code::{Address, Mbarrier, Space};

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
    /// Completes the phase if nothing is pending.
    fn complete_phase(mut self) -> Fields {
        if self.missing == 0 && self.bytes == 0 {
            (self.phase, self.missing) = (self.phase ^ 1, self.all);
        }
        self
    }
}

impl Cluster<'_> {
    fn mbarrier_pointer(&mut self, b: usize, address: u64) -> Result<*mut u8, FaultKind> {
        self.place_without_thread(b, Space::Shared, address, 8, 8)
    }
    /// Completes transaction bytes (`complete_tx`).
    pub fn complete_tx(&mut self, b: usize, address: u64, bytes: u64) -> Result<(), FaultKind> {
        let pointer = self.mbarrier_pointer(b, address)?;
        // SAFETY: 8 bytes of shared memory.
        let mut f = Fields::of(unsafe { read(pointer, 8) });
        f.bytes -= bytes as i64;
        // SAFETY: as above.
        unsafe { write(pointer, 8, f.complete_phase().to_bits()) };
        self.progressed = true;
        Ok(())
    }
    /// Executes an mbarrier instruction.
    pub fn mbarrier(
        &mut self,
        b: usize,
        thread: &mut Thread,
        what: &Mbarrier,
        address: Address,
    ) -> Result<(), FaultKind> {
        let r = &mut thread.regs;
        let pointer = self.mbarrier_pointer(b, at(r, address))?;
        // SAFETY: 8 bytes of shared memory.
        let mut f = Fields::of(unsafe { read(pointer, 8) });
        match what {
            Mbarrier::Init(count) => {
                f = Fields {
                    phase: 0,
                    all: r[*count as usize],
                    missing: r[*count as usize],
                    bytes: 0,
                }
            }
            Mbarrier::Invalidate => f = Fields { phase: 0, all: 0, missing: 0, bytes: 0 },
            Mbarrier::Expect(bytes) => f.bytes += r[*bytes as usize] as u32 as i64,
            Mbarrier::Arrive { bytes, count, state } => {
                super::step::set(r, *state, f.phase);
                f.bytes += bytes.map_or(0, |s| r[s as usize] as u32 as i64);
                let count = count.map_or(1, |s| r[s as usize] & COUNT);
                if count > f.missing {
                    return Err(FaultKind::Instruction(format!(
                        "{count} arrivals at an mbarrier that expects {}",
                        f.missing
                    )));
                }
                f.missing -= count;
                f = f.complete_phase();
            }
            Mbarrier::Test { out, phase } => {
                let over = f.phase != r[*phase as usize] & 1;
                r[*out as usize] = over.into();
                if !over {
                    thread.state = State::Polls;
                }
                return Ok(());
            }
        }
        // SAFETY: as above.
        unsafe { write(pointer, 8, f.to_bits()) };
        self.progressed = true;
        Ok(())
    }
}
