//! Execution of one thread's instructions.
use super::{
    ATOMIC_LOCK, FaultKind,
    cluster::{Cluster, State, TIME_SLICE, Thread, generic},
    memory::{Accessor, at, read, write},
    storage::{LOCAL, OFFSET_BITS, SHARED},
};
use crate::ptx::{
    code::{Instruction, LoadType, Op, Slot, Space},
    convert,
    integers::{insert, logic},
};
use std::sync::PoisonError;

fn mask(bits: u32) -> u64 {
    if bits >= 64 { u64::MAX } else { (1 << bits) - 1 }
}

/// A value as held in a register.
fn extended(value: u64, load_type: LoadType) -> u64 {
    if !load_type.signed {
        return value;
    }
    let shift = 64 - 8 * u32::from(load_type.width);
    ((value << shift) as i64 >> shift) as u64
}

impl Cluster<'_> {
    /// Runs a thread until it waits or its time slice ends.
    pub fn steps(&mut self, b: usize, t: usize, thread: &mut Thread) -> Result<(), FaultKind> {
        let kernel = self.launch.kernel.clone();
        for _ in 0..TIME_SLICE {
            let Some(Instruction { guard, op, .. }) = kernel.code.get(thread.pc) else {
                thread.state = State::Exited;
                return Ok(());
            };
            if let Some((p, not)) = guard
                && (thread.regs[*p as usize] & 1 == 1) == *not
            {
                thread.pc += 1;
                continue;
            }
            let r = &mut thread.regs;
            match op {
                Op::Unary(of, d, a) => r[*d as usize] = of(r[*a as usize]),
                Op::Binary(of, d, a, b) => r[*d as usize] = of(r[*a as usize], r[*b as usize]),
                Op::Ternary(of, d, [a, b, c]) => {
                    r[*d as usize] = of(r[*a as usize], r[*b as usize], r[*c as usize])
                }
                Op::Compare { of, out, other, a, b, with } => {
                    let holds = of(r[*a as usize], r[*b as usize]);
                    let joined = |v: u64, r: &[u64]| match with {
                        Some((of, p, not)) => of(v, r[*p as usize] & 1 ^ u64::from(*not)),
                        None => v,
                    };
                    let (yes, no) = (joined(holds, r), joined(holds ^ 1, r));
                    set(r, *out, yes);
                    set(r, *other, no);
                }
                Op::Logic { out, operands: [a, b, c], table } => {
                    let of = [r[*a as usize], r[*b as usize], r[*c as usize]];
                    r[*out as usize] = logic(of, r[*table as usize]);
                }
                Op::Insert { out, a, b, from, count, bits } => {
                    r[*out as usize] = insert(
                        r[*a as usize],
                        r[*b as usize],
                        r[*from as usize],
                        r[*count as usize],
                        *bits,
                    );
                }
                Op::Select { out, a, b, p } => {
                    r[*out as usize] =
                        if r[*p as usize] & 1 == 1 { r[*a as usize] } else { r[*b as usize] }
                }
                Op::Branch(to) => {
                    thread.pc = *to;
                    continue;
                }
                Op::Nothing => {}
                _ => {
                    let before = thread.pc;
                    self.execute_other(b, t, thread, op)?;
                    if thread.state != State::Runnable {
                        // A collective advances its lanes when it executes; a polling thread
                        // retries.
                        if !matches!(thread.state, State::Collective) && thread.pc == before {
                            thread.pc += 1;
                        }
                        return Ok(());
                    }
                }
            }
            thread.pc += 1;
        }
        thread.state = State::Yields;
        self.progressed = true;
        Ok(())
    }

    fn execute_other(
        &mut self,
        b: usize,
        t: usize,
        thread: &mut Thread,
        op: &Op,
    ) -> Result<(), FaultKind> {
        let r = &mut thread.regs;
        match op {
            Op::Convert { to, from, round, saturate, relu, out, a } => {
                r[*out as usize] =
                    convert::convert(*to, *from, *round, *saturate, *relu, r[*a as usize]);
            }
            Op::ConvertPair { to, round, relu, out, high, low } => {
                let from = crate::ptx::code::NumberType::Float(32);
                let one = |s: Slot| {
                    convert::convert(*to, from, Some(*round), false, *relu, r[s as usize])
                };
                r[*out as usize] = one(*low) | one(*high) << 16;
            }
            Op::ComparePair { of, out, a, b } => {
                let (x, y) = (r[*a as usize], r[*b as usize]);
                set(r, out[0], of(x & 0xffff, y & 0xffff));
                set(r, out[1], of(x >> 16 & 0xffff, y >> 16 & 0xffff));
            }
            Op::Pack { out, parts, bits } => {
                r[*out as usize] = parts
                    .iter()
                    .enumerate()
                    .fold(0, |v, (i, p)| v | (r[*p as usize] & mask(*bits)) << (i as u32 * bits));
            }
            Op::Unpack { out, value, bits } => {
                let value = r[*value as usize];
                for (i, o) in out.iter().enumerate() {
                    set(r, *o, value >> (i as u32 * bits) & mask(*bits));
                }
            }
            Op::Carry { out, a, b, reads, writes, minus, bits } => {
                let part = |s: Slot| u128::from(r[s as usize] & mask(*bits));
                let (x, y, c) = (part(*a), part(*b), u128::from(*reads && thread.carry));
                // Borrow-in is carry-in 1.
                let v = if *minus { x.wrapping_sub(y).wrapping_sub(c) } else { x + y + c };
                r[*out as usize] = v as u64 & mask(*bits);
                if *writes {
                    thread.carry = v >> bits & 1 == 1;
                }
            }
            Op::ToGeneric(space, d, a) => {
                r[*d as usize] = match space {
                    Space::Shared => generic(r[*a as usize]),
                    Space::Local => r[*a as usize] | LOCAL,
                    _ => r[*a as usize],
                }
            }
            Op::FromGeneric(d, a) => r[*d as usize] = r[*a as usize] & !(SHARED | LOCAL),
            Op::Map { out, a, block, generic: whole } => {
                let offset = r[*a as usize] & ((1 << OFFSET_BITS) - 1);
                let address = offset | (r[*block as usize] + 1) << OFFSET_BITS;
                r[*out as usize] = if *whole { generic(address) } else { address };
            }
            Op::DependencyWait => thread.early = false,
            Op::ActiveMask(d) => r[*d as usize] = 1 << (t % 32),
            Op::Exit => {
                self.finish(b, thread)?;
                thread.state = State::Exited;
            }
            Op::Trap => return Err(FaultKind::Trap),
            Op::Collective(..) => thread.state = State::Collective,
            Op::Barrier { id, threads, waits } => {
                let (id, threads) = (r[*id as usize], threads.map(|s| r[s as usize]));
                if *waits {
                    thread.state = State::Barrier(id as u8);
                }
                return self.barrier(b, t, thread, id, threads);
            }
            Op::ClusterArrive => {
                thread.arrivals += 1;
                self.progressed = true;
                self.release_cluster_with(b, t, thread);
            }
            Op::ClusterWait => {
                if thread.arrivals > self.passed {
                    thread.state = State::Cluster;
                    self.release_cluster_with(b, t, thread);
                }
            }
            Op::Load { .. } | Op::Store { .. } | Op::Atomic { .. } => {
                return self.access(b, thread, op);
            }
            Op::Mbarrier(mbarrier, address) => return self.mbarrier(b, thread, mbarrier, *address),
            other => return self.copy(b, t, thread, other),
        }
        Ok(())
    }

    /// A thread arrives at a barrier. A running thread is not in its CTA's list.
    fn barrier(
        &mut self,
        b: usize,
        t: usize,
        thread: &mut Thread,
        id: u64,
        threads: Option<u64>,
    ) -> Result<(), FaultKind> {
        self.arrive(b, id, threads)?;
        self.blocks[b].threads[t].state = thread.state;
        self.release(b, id as usize);
        let state = self.blocks[b].threads[t].state;
        self.blocks[b].threads[t].state = State::Runnable;
        thread.state = state;
        if state == State::Runnable
            && matches!(self.launch.kernel.code[thread.pc].op, Op::Barrier { waits: true, .. })
        {
            // It was the last; the others of its warp continue when scheduled.
            self.progressed = true;
        }
        Ok(())
    }
    fn release_cluster_with(&mut self, b: usize, t: usize, thread: &mut Thread) {
        let own = &mut self.blocks[b].threads[t];
        (own.state, own.arrivals) = (thread.state, thread.arrivals);
        self.release_cluster();
        thread.state = self.blocks[b].threads[t].state;
    }

    fn access(&mut self, b: usize, thread: &mut Thread, op: &Op) -> Result<(), FaultKind> {
        let r = &mut thread.regs;
        let mut who = Accessor {
            block: b,
            local: &mut thread.local,
            cached: &mut thread.cached,
            early: thread.early,
            writes: !matches!(op, Op::Load { .. }),
        };
        match op {
            Op::Load { space, load_type, out, at: address, .. } => {
                let bytes = u64::from(load_type.width) * out.len() as u64;
                let from = self.place(&mut who, *space, at(r, *address), bytes, bytes)?;
                for (i, o) in out.iter().enumerate() {
                    // SAFETY: `place` has found all bytes.
                    let value =
                        unsafe { read(from.add(i * load_type.width as usize), load_type.width) };
                    set(r, *o, extended(value, *load_type));
                }
            }
            Op::Store { space, width, values, at: address } => {
                let bytes = u64::from(*width) * values.len() as u64;
                let to = self.place(&mut who, *space, at(r, *address), bytes, bytes)?;
                for (i, v) in values.iter().enumerate() {
                    // SAFETY: as above.
                    unsafe { write(to.add(i * *width as usize), *width, r[*v as usize]) };
                }
                self.progressed = true;
            }
            Op::Atomic { space, width, of, out, at: address, value, swap } => {
                let place = self.place(
                    &mut who,
                    *space,
                    at(r, *address),
                    (*width).into(),
                    (*width).into(),
                )?;
                let _one = ATOMIC_LOCK.lock().unwrap_or_else(PoisonError::into_inner);
                // SAFETY: as above.
                unsafe {
                    let before = read(place, *width);
                    let value = r[*value as usize];
                    let after = match swap {
                        Some(other) if before == value & mask(u32::from(*width) * 8) => {
                            r[*other as usize]
                        }
                        Some(_) => before,
                        None => of(before, value),
                    };
                    write(place, *width, after);
                    set(r, *out, before);
                }
                self.progressed = true;
            }
            _ => {}
        }
        Ok(())
    }
}

/// Writes a register, unless the destination is `_`.
pub fn set(regs: &mut [u64], slot: Option<Slot>, value: u64) {
    if let Some(s) = slot {
        regs[s as usize] = value;
    }
}
