//! Execution of a cluster: its CTAs and the scheduling of their threads.
use super::{
    fault::{Fault, FaultKind},
    launch::Launch,
    pending::{AsyncCopies, PendingTma},
    storage::{Aligned, CachedAllocation, OFFSET_BITS, SHARED},
};
use crate::{
    allocations::LaunchOrder,
    ptx::code::{InitialValue, Op},
};
use std::collections::VecDeque;

/// Fill byte of shared memory: NaN in every float type, so that reads of uninitialised memory show.
const FRESH: u8 = 0xff;
/// Scheduling rounds without progress, in which threads only poll mbarriers, before a deadlock.
const MAX_IDLE_ROUNDS: u32 = 64;
/// Time slice of a thread in instructions.
pub const TIME_SLICE: u32 = 1 << 20;
/// Named barriers of a CTA.
const BARRIERS: usize = 16;

/// Scheduling state of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Runnable.
    Runnable,
    /// Yields to other threads.
    Yields,
    /// Polled an mbarrier without success; yields.
    Polls,
    /// Waits at a barrier of the CTA.
    Barrier(u8),
    /// Waits for the other lanes of a warp-collective instruction.
    Collective,
    /// Waits at the cluster barrier.
    Cluster,
    /// Exited.
    Exited,
}

/// A thread.
pub struct Thread {
    /// Program counter.
    pub pc: usize,
    /// Scheduling state.
    pub state: State,
    /// Its registers.
    pub regs: Box<[u64]>,
    /// Local memory.
    pub local: Vec<u8>,
    /// The carry flag (`CC.CF`).
    pub carry: bool,
    /// Its asynchronous copies in flight.
    pub async_copies: AsyncCopies,
    /// Cached lookups of device allocations.
    pub cached: [CachedAllocation; 4],
    /// Cluster barrier phases that it has arrived at.
    pub arrivals: u64,
    /// Whether it has a `griddepcontrol.wait` before it, until which the kernel before may run.
    pub early: bool,
}

/// A named barrier of a CTA (`bar.sync`).
#[derive(Clone, Copy, Default)]
pub struct Barrier {
    /// Arrived threads.
    pub arrived: u32,
    /// Expected threads, if the instruction states them.
    pub threads: Option<u32>,
}

/// A CTA.
pub struct Block {
    /// Its linear index in the grid.
    pub number: u32,
    /// Its threads.
    pub threads: Vec<Thread>,
    /// Its shared memory.
    pub shared: Aligned,
    /// Its named barriers.
    pub barriers: [Barrier; BARRIERS],
    /// Threads that have not exited; shared memory is freed with the last one.
    pub live_threads: u32,
}

/// A pool of register files to reuse.
pub type RegisterPool = Vec<Box<[u64]>>;

/// The CTAs of a cluster.
pub struct Cluster<'a> {
    /// The launch.
    pub launch: &'a Launch<'a>,
    /// Which launch of its thread it is.
    pub order: LaunchOrder,
    /// Address of the parameters.
    pub params: u64,
    /// The CTAs.
    pub blocks: Vec<Block>,
    /// Pending TMA operations, which may be delayed.
    pub pending: VecDeque<PendingTma>,
    /// State of the random number generator.
    random: u64,
    /// Completed phases of the cluster barrier.
    pub passed: u64,
    /// Whether anything a polling thread may wait for has changed.
    pub progressed: bool,
}

impl<'a> Cluster<'a> {
    /// A cluster before its first instruction.
    pub fn new(
        (launch, order): (&'a Launch<'a>, LaunchOrder),
        params: u64,
        number: u32,
        seed: u64,
        pool: &mut RegisterPool,
    ) -> Cluster<'a> {
        let (kernel, size) = (launch.kernel, launch.kernel.cluster.max(1));
        let threads: u32 = launch.block.iter().product();
        let split = |i: u32, by: [u32; 3]| [i % by[0], i / by[0] % by[1], i / by[0] / by[1]];
        let clusters = launch.grid.iter().product::<u32>() / size;
        let mut block = |rank: u32| {
            let index = number * size + rank;
            let place = split(index, launch.grid);
            let thread = |t: u32| {
                let mut regs =
                    pool.pop().unwrap_or_else(|| vec![0; kernel.slots as usize].into_boxed_slice());
                let (thread_index, lane) = (split(t, launch.block), t % 32);
                for (slot, initial) in &kernel.initial_values {
                    regs[*slot as usize] = match *initial {
                        InitialValue::Number(n) => n,
                        InitialValue::Thread(axis) => thread_index[axis].into(),
                        InitialValue::Threads(axis) => launch.block[axis].into(),
                        InitialValue::Block(axis) => place[axis].into(),
                        InitialValue::Blocks(axis) => launch.grid[axis].into(),
                        InitialValue::Lane => lane.into(),
                        InitialValue::Warp => (t / 32).into(),
                        InitialValue::Rank => rank.into(),
                        InitialValue::Ranks => size.into(),
                        InitialValue::Cluster => number.into(),
                        InitialValue::Clusters => clusters.into(),
                        InitialValue::Below(thread_index) => {
                            (1u64 << (lane + u32::from(thread_index))) - 1
                        }
                        InitialValue::Above(thread_index) => {
                            u64::from(u32::MAX) & !((1u64 << (lane + u32::from(!thread_index))) - 1)
                        }
                        InitialValue::Param(offset) => params + offset as u64,
                        // As on hardware, a generic shared address identifies its CTA.
                        InitialValue::Shared(offset) => {
                            offset | if size > 1 { u64::from(rank + 1) << OFFSET_BITS } else { 0 }
                        }
                        InitialValue::Dynamic => launch.shared.into(),
                    };
                }
                let local = vec![FRESH; kernel.local as usize];
                let async_copies = AsyncCopies::default();
                Thread {
                    pc: 0,
                    state: State::Runnable,
                    regs,
                    local,
                    carry: false,
                    async_copies,
                    cached: Default::default(),
                    arrivals: 0,
                    early: kernel.dependent,
                }
            };
            let live_threads = threads;
            let threads = (0..threads).map(thread).collect();
            let shared = Aligned::new((kernel.shared + launch.shared) as usize, FRESH);
            Block { number: index, threads, shared, barriers: Default::default(), live_threads }
        };
        let blocks = (0..size).map(&mut block).collect();
        let random = (seed ^ u64::from(number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)) | 1;
        Cluster {
            launch,
            order,
            params,
            blocks,
            pending: VecDeque::new(),
            random,
            passed: 0,
            progressed: false,
        }
    }
    /// Returns register files to the pool.
    pub fn recycle_registers(self, pool: &mut RegisterPool) {
        pool.extend(self.blocks.into_iter().flat_map(|b| b.threads).map(|t| t.regs));
    }
    /// Whether an address is in the parameter space.
    pub fn in_params(&self, address: u64) -> bool {
        address >= self.params && address < self.params + self.launch.params.len() as u64
    }
    /// A random bit (xorshift64).
    pub fn random(&mut self) -> bool {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random >> 60 & 1 == 1
    }
    /// A fault with its location.
    pub fn fault(&self, block: usize, thread: usize, pc: usize, what: FaultKind) -> Fault {
        let kernel = self.launch.kernel;
        let line = kernel.code.get(pc).map_or(0, |i| i.line);
        let text = kernel.text.get((line as usize).wrapping_sub(1)).cloned().unwrap_or_default();
        let number = self.blocks.get(block).map_or(0, |b| b.number);
        Fault {
            kernel: kernel.name.clone(),
            block: number,
            thread: thread as u32,
            line,
            text,
            what,
        }
    }

    /// Runs until all threads have exited.
    pub fn run(&mut self) -> Result<(), Fault> {
        let mut vain = 0;
        loop {
            let (mut ran, mut alive) = (false, false);
            self.progressed = false;
            for b in 0..self.blocks.len() {
                let warps = self.blocks[b].threads.len().div_ceil(32);
                let turned = self.random();
                for w in 0..warps {
                    ran |= self.warp(b, if turned { warps - 1 - w } else { w })?;
                }
                alive |= self.blocks[b].threads.iter().any(|t| t.state != State::Exited);
            }
            if !alive {
                break;
            }
            if ran || self.progressed {
                vain = 0;
                continue;
            }
            // No thread progresses: complete a delayed copy.
            if let Some(pending) = self.pending.pop_front() {
                let (b, t, pc) = pending.of;
                self.perform(pending).map_err(|what| self.fault(b, t, pc, what))?;
                vain = 0;
                continue;
            }
            vain += 1;
            let looks = self
                .blocks
                .iter()
                .any(|b| b.threads.iter().any(|t| matches!(t.state, State::Polls | State::Yields)));
            if !looks || vain > MAX_IDLE_ROUNDS {
                let waiting = |b: &Block| b.threads.iter().position(|t| t.state != State::Exited);
                let (b, t) = self
                    .blocks
                    .iter()
                    .enumerate()
                    .find_map(|(i, b)| Some((i, waiting(b)?)))
                    .unwrap_or((0, 0));
                return Err(self.fault(b, t, self.blocks[b].threads[t].pc, FaultKind::Stuck));
            }
        }
        // Complete TMA stores that no thread waited for.
        while let Some(pending) = self.pending.pop_front() {
            let (b, t, pc) = pending.of;
            self.perform(pending).map_err(|what| self.fault(b, t, pc, what))?;
        }
        Ok(())
    }

    /// Runs a warp until all its lanes wait. Returns whether one did more than poll an mbarrier.
    fn warp(&mut self, b: usize, w: usize) -> Result<bool, Fault> {
        let lanes = w * 32..self.blocks[b].threads.len().min(w * 32 + 32);
        for t in lanes.clone() {
            let state = &mut self.blocks[b].threads[t].state;
            if matches!(*state, State::Yields | State::Polls) {
                *state = State::Runnable;
            }
        }
        let mut ran = false;
        loop {
            let mut again = false;
            for t in lanes.clone() {
                if self.blocks[b].threads[t].state != State::Runnable {
                    continue;
                }
                again = true;
                self.thread(b, t)?;
                ran |= !matches!(self.blocks[b].threads[t].state, State::Polls);
            }
            if !again {
                return Ok(ran);
            }
        }
    }

    /// Runs a thread until it waits or yields.
    fn thread(&mut self, b: usize, t: usize) -> Result<(), Fault> {
        let nothing = Thread {
            pc: 0,
            state: State::Exited,
            regs: Box::default(),
            local: vec![],
            carry: false,
            async_copies: AsyncCopies::default(),
            cached: Default::default(),
            arrivals: 0,
            early: false,
        };
        let mut thread = std::mem::replace(&mut self.blocks[b].threads[t], nothing);
        let outcome = self.steps(b, t, &mut thread);
        let (pc, state) = (thread.pc, thread.state);
        self.blocks[b].threads[t] = thread;
        outcome.map_err(|what| self.fault(b, t, pc, what))?;
        match state {
            State::Collective => self.collect(b, t),
            State::Exited => {
                // Barriers no longer expect it.
                (0..BARRIERS).for_each(|id| self.release(b, id));
                self.release_cluster();
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// A thread arrives at a barrier of its CTA.
    pub fn arrive(&mut self, b: usize, id: u64, threads: Option<u64>) -> Result<(), FaultKind> {
        let Some(barrier) = self.blocks[b].barriers.get_mut(id as usize) else {
            return Err(FaultKind::Instruction(format!("there is no barrier {id}")));
        };
        barrier.arrived += 1;
        if threads.is_some() {
            barrier.threads = threads.map(|n| n as u32);
        }
        Ok(())
    }
    /// Releases the waiting threads if the barrier is complete.
    pub fn release(&mut self, b: usize, id: usize) {
        let block = &mut self.blocks[b];
        let barrier = block.barriers[id];
        if barrier.arrived == 0 {
            return;
        }
        // Without a count, all threads that have not exited are expected.
        let wanted = barrier.threads.unwrap_or_else(|| {
            block.threads.iter().filter(|t| t.state != State::Exited).count() as u32
        });
        if barrier.arrived < wanted {
            return;
        }
        block.barriers[id] = Barrier::default();
        for t in &mut block.threads {
            if t.state == State::Barrier(id as u8) {
                t.state = State::Runnable;
            }
        }
        self.progressed = true;
    }
    /// Releases the cluster's threads if all have arrived.
    pub fn release_cluster(&mut self) {
        let passed = self.passed;
        let all = |t: &Thread| t.state == State::Exited || t.arrivals > passed;
        if !self.blocks.iter().all(|b| b.threads.iter().all(all))
            || self.blocks.iter().all(|b| b.threads.iter().all(|t| t.state == State::Exited))
        {
            return;
        }
        self.passed += 1;
        for t in self.blocks.iter_mut().flat_map(|b| &mut b.threads) {
            if t.state == State::Cluster {
                t.state = State::Runnable;
            }
        }
        self.progressed = true;
    }

    /// A lane waits for a warp collective, which runs once all its lanes have arrived.
    fn collect(&mut self, b: usize, t: usize) -> Result<(), Fault> {
        let pc = self.blocks[b].threads[t].pc;
        let Op::Collective(what, mask) = &self.launch.kernel.code[pc].op else { return Ok(()) };
        let threads = &self.blocks[b].threads;
        let size = what.threads();
        let first = t / size * size;
        let wanted = match mask {
            Some(slot) => threads[t].regs[*slot as usize] as u32,
            None => u32::MAX,
        };
        let mut asked =
            (first..threads.len().min(first + size)).filter(|i| wanted >> (i % 32) & 1 == 1);
        let here = |i: usize| threads[i].state == State::Collective && threads[i].pc == pc;
        // Exited lanes do not take part.
        if !asked.clone().all(|i| here(i) || threads[i].state == State::Exited) {
            return Ok(());
        }
        let members: Vec<usize> = asked.by_ref().filter(|i| here(*i)).collect();
        if size > 32 && members.len() < size {
            let what =
                FaultKind::Instruction(format!("{} of {size} threads take part", members.len()));
            return Err(self.fault(b, t, pc, what));
        }
        let kernel = self.launch.kernel.clone();
        let Op::Collective(what, _) = &kernel.code[pc].op else { return Ok(()) };
        self.collective(b, what, &members).map_err(|w| self.fault(b, t, pc, w))?;
        for i in members {
            let thread = &mut self.blocks[b].threads[i];
            (thread.pc, thread.state) = (pc + 1, State::Runnable);
        }
        Ok(())
    }
}

/// The generic address of shared memory.
pub fn generic(address: u64) -> u64 {
    address | SHARED
}
