//! Blocks that run together, and whose turn it is.
use super::{
    Fault, Launch, What,
    copies::{Copies, Late},
    memory::{Aligned, OFFSET_BITS, SHARED, Seen},
};
use crate::ptx::code::{Fill, Op};
use std::collections::VecDeque;

/// What shared memory holds before it is written: NaN in every float type.
const FRESH: u8 = 0xff;
/// Rounds in which threads only look at bars that do not move.
const PATIENCE: u32 = 64;
/// Instructions after which a thread lets others run.
pub const TURN: u32 = 1 << 20;
/// Bars of a block.
const BARRIERS: usize = 16;

/// What a thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Runs.
    Runs,
    /// Lets others run.
    Yields,
    /// Has looked at a bar in vain; lets others run.
    Looks,
    /// Waits for a bar of the block.
    Barrier(u8),
    /// Waits for other lanes, at its instruction.
    Together,
    /// Waits for the cluster.
    Cluster,
    /// Has ended.
    Over,
}

/// A thread.
pub struct Thread {
    /// The next instruction.
    pub pc: usize,
    /// What it does.
    pub state: State,
    /// Its registers.
    pub regs: Box<[u64]>,
    /// Its own memory.
    pub local: Vec<u8>,
    /// Of additions in parts.
    pub carry: bool,
    /// Copies of its own that are under way.
    pub copies: Copies,
    /// What it has used of the card's memory.
    pub seen: [Seen; 4],
    /// Bars of the cluster that it has arrived at.
    pub arrivals: u64,
}

/// A bar of a block.
#[derive(Clone, Copy, Default)]
pub struct Barrier {
    /// Threads that have arrived.
    pub arrived: u32,
    /// Threads that are expected, if it was said.
    pub threads: Option<u32>,
}

/// A block.
pub struct Block {
    /// Its number in the grid.
    pub number: u32,
    /// Its threads.
    pub threads: Vec<Thread>,
    /// Its memory.
    pub shared: Aligned,
    /// Its bars.
    pub barriers: [Barrier; BARRIERS],
    /// How many of its threads have not ended; with the last one its memory goes.
    pub left: u32,
}

/// Registers of threads that have ended, for others.
pub type Room = Vec<Box<[u64]>>;

/// Blocks of a cluster.
pub struct Cluster<'a> {
    /// The launch.
    pub launch: &'a Launch<'a>,
    /// Where the parameters are.
    pub params: u64,
    /// The blocks.
    pub blocks: Vec<Block>,
    /// Copies of the copy engine that are to come.
    pub late: VecDeque<Late>,
    /// What has been chosen by chance.
    chance: u64,
    /// Bars of the cluster that are over.
    pub passed: u64,
    /// Whether anything has happened that a thread may look for.
    pub moved: bool,
}

impl<'a> Cluster<'a> {
    /// The blocks of one cluster before they begin.
    pub fn new(
        launch: &'a Launch<'a>,
        params: u64,
        number: u32,
        seed: u64,
        room: &mut Room,
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
                    room.pop().unwrap_or_else(|| vec![0; kernel.slots as usize].into_boxed_slice());
                let (own, lane) = (split(t, launch.block), t % 32);
                for (slot, fill) in &kernel.fills {
                    regs[*slot as usize] = match *fill {
                        Fill::Number(n) => n,
                        Fill::Thread(axis) => own[axis].into(),
                        Fill::Threads(axis) => launch.block[axis].into(),
                        Fill::Block(axis) => place[axis].into(),
                        Fill::Blocks(axis) => launch.grid[axis].into(),
                        Fill::Lane => lane.into(),
                        Fill::Warp => (t / 32).into(),
                        Fill::Rank => rank.into(),
                        Fill::Ranks => size.into(),
                        Fill::Cluster => number.into(),
                        Fill::Clusters => clusters.into(),
                        Fill::Below(own) => (1u64 << (lane + u32::from(own))) - 1,
                        Fill::Above(own) => {
                            u64::from(u32::MAX) & !((1u64 << (lane + u32::from(!own))) - 1)
                        }
                        Fill::Param(offset) => params + offset as u64,
                        // As on a card, an address in a cluster says of which block it is.
                        Fill::Shared(offset) => {
                            offset | if size > 1 { u64::from(rank + 1) << OFFSET_BITS } else { 0 }
                        }
                        Fill::Dynamic => launch.shared.into(),
                    };
                }
                let local = vec![FRESH; kernel.local as usize];
                let copies = Copies::default();
                Thread {
                    pc: 0,
                    state: State::Runs,
                    regs,
                    local,
                    carry: false,
                    copies,
                    seen: Default::default(),
                    arrivals: 0,
                }
            };
            let left = threads;
            let threads = (0..threads).map(thread).collect();
            let shared = Aligned::new((kernel.shared + launch.shared) as usize, FRESH);
            Block { number: index, threads, shared, barriers: Default::default(), left }
        };
        let blocks = (0..size).map(&mut block).collect();
        let chance = (seed ^ u64::from(number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)) | 1;
        Cluster { launch, params, blocks, late: VecDeque::new(), chance, passed: 0, moved: false }
    }
    /// Keeps registers for the next cluster.
    pub fn give_back(self, room: &mut Room) {
        room.extend(self.blocks.into_iter().flat_map(|b| b.threads).map(|t| t.regs));
    }
    /// Whether an address is one of a parameter.
    pub fn in_params(&self, address: u64) -> bool {
        address >= self.params && address < self.params + self.launch.params.len() as u64
    }
    /// One of two, by chance (xorshift64).
    pub fn chance(&mut self) -> bool {
        self.chance ^= self.chance << 13;
        self.chance ^= self.chance >> 7;
        self.chance ^= self.chance << 17;
        self.chance >> 60 & 1 == 1
    }
    /// What went wrong, with the place.
    pub fn fault(&self, block: usize, thread: usize, pc: usize, what: What) -> Fault {
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

    /// Runs until all threads have ended.
    pub fn run(&mut self) -> Result<(), Fault> {
        let mut vain = 0;
        loop {
            let (mut ran, mut alive) = (false, false);
            self.moved = false;
            for b in 0..self.blocks.len() {
                let warps = self.blocks[b].threads.len().div_ceil(32);
                let turned = self.chance();
                for w in 0..warps {
                    ran |= self.warp(b, if turned { warps - 1 - w } else { w })?;
                }
                alive |= self.blocks[b].threads.iter().any(|t| t.state != State::Over);
            }
            if !alive {
                break;
            }
            if ran || self.moved {
                vain = 0;
                continue;
            }
            // Nobody gets on: what was put off comes now.
            if let Some(late) = self.late.pop_front() {
                let (b, t, pc) = late.of;
                self.perform(late).map_err(|what| self.fault(b, t, pc, what))?;
                vain = 0;
                continue;
            }
            vain += 1;
            let looks = self
                .blocks
                .iter()
                .any(|b| b.threads.iter().any(|t| matches!(t.state, State::Looks | State::Yields)));
            if !looks || vain > PATIENCE {
                let waiting = |b: &Block| b.threads.iter().position(|t| t.state != State::Over);
                let (b, t) = self
                    .blocks
                    .iter()
                    .enumerate()
                    .find_map(|(i, b)| Some((i, waiting(b)?)))
                    .unwrap_or((0, 0));
                return Err(self.fault(b, t, self.blocks[b].threads[t].pc, What::Stuck));
            }
        }
        // Stores of the copy engine that nobody has waited for.
        while let Some(late) = self.late.pop_front() {
            let (b, t, pc) = late.of;
            self.perform(late).map_err(|what| self.fault(b, t, pc, what))?;
        }
        Ok(())
    }

    /// Runs a warp until all its lanes wait. Returns whether one has done more than look at a bar.
    fn warp(&mut self, b: usize, w: usize) -> Result<bool, Fault> {
        let lanes = w * 32..self.blocks[b].threads.len().min(w * 32 + 32);
        for t in lanes.clone() {
            let state = &mut self.blocks[b].threads[t].state;
            if matches!(*state, State::Yields | State::Looks) {
                *state = State::Runs;
            }
        }
        let mut ran = false;
        loop {
            let mut again = false;
            for t in lanes.clone() {
                if self.blocks[b].threads[t].state != State::Runs {
                    continue;
                }
                again = true;
                self.thread(b, t)?;
                ran |= !matches!(self.blocks[b].threads[t].state, State::Looks);
            }
            if !again {
                return Ok(ran);
            }
        }
    }

    /// Runs a thread until it waits.
    fn thread(&mut self, b: usize, t: usize) -> Result<(), Fault> {
        let nothing = Thread {
            pc: 0,
            state: State::Over,
            regs: Box::default(),
            local: vec![],
            carry: false,
            copies: Copies::default(),
            seen: Default::default(),
            arrivals: 0,
        };
        let mut thread = std::mem::replace(&mut self.blocks[b].threads[t], nothing);
        let outcome = self.steps(b, t, &mut thread);
        let (pc, state) = (thread.pc, thread.state);
        self.blocks[b].threads[t] = thread;
        outcome.map_err(|what| self.fault(b, t, pc, what))?;
        match state {
            State::Together => self.gather(b, t),
            State::Over => {
                // Bars no longer wait for it.
                (0..BARRIERS).for_each(|id| self.release(b, id));
                self.pass();
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// A thread has come to a bar of its block.
    pub fn arrive(&mut self, b: usize, id: u64, threads: Option<u64>) -> Result<(), What> {
        let Some(barrier) = self.blocks[b].barriers.get_mut(id as usize) else {
            return Err(What::Instruction(format!("there is no bar {id}")));
        };
        barrier.arrived += 1;
        if threads.is_some() {
            barrier.threads = threads.map(|n| n as u32);
        }
        Ok(())
    }
    /// Lets those go on whose bar is complete.
    pub fn release(&mut self, b: usize, id: usize) {
        let block = &mut self.blocks[b];
        let barrier = block.barriers[id];
        if barrier.arrived == 0 {
            return;
        }
        // Without a number it is for all that have not ended.
        let wanted = barrier.threads.unwrap_or_else(|| {
            block.threads.iter().filter(|t| t.state != State::Over).count() as u32
        });
        if barrier.arrived < wanted {
            return;
        }
        block.barriers[id] = Barrier::default();
        for t in &mut block.threads {
            if t.state == State::Barrier(id as u8) {
                t.state = State::Runs;
            }
        }
        self.moved = true;
    }
    /// Lets the cluster's threads go on if all have arrived.
    pub fn pass(&mut self) {
        let passed = self.passed;
        let all = |t: &Thread| t.state == State::Over || t.arrivals > passed;
        if !self.blocks.iter().all(|b| b.threads.iter().all(all))
            || self.blocks.iter().all(|b| b.threads.iter().all(|t| t.state == State::Over))
        {
            return;
        }
        self.passed += 1;
        for t in self.blocks.iter_mut().flat_map(|b| &mut b.threads) {
            if t.state == State::Cluster {
                t.state = State::Runs;
            }
        }
        self.moved = true;
    }

    /// A lane waits for others: if all are here, what they do together is done.
    fn gather(&mut self, b: usize, t: usize) -> Result<(), Fault> {
        let pc = self.blocks[b].threads[t].pc;
        let Op::Together(what, mask) = &self.launch.kernel.code[pc].op else { return Ok(()) };
        let threads = &self.blocks[b].threads;
        let size = what.threads();
        let first = t / size * size;
        let wanted = match mask {
            Some(slot) => threads[t].regs[*slot as usize] as u32,
            None => u32::MAX,
        };
        let mut asked =
            (first..threads.len().min(first + size)).filter(|i| wanted >> (i % 32) & 1 == 1);
        let here = |i: usize| threads[i].state == State::Together && threads[i].pc == pc;
        // Lanes that have ended take no part.
        if !asked.clone().all(|i| here(i) || threads[i].state == State::Over) {
            return Ok(());
        }
        let members: Vec<usize> = asked.by_ref().filter(|i| here(*i)).collect();
        if size > 32 && members.len() < size {
            let what = What::Instruction(format!("{} of {size} threads are here", members.len()));
            return Err(self.fault(b, t, pc, what));
        }
        let kernel = self.launch.kernel.clone();
        let Op::Together(what, _) = &kernel.code[pc].op else { return Ok(()) };
        self.together(b, what, &members).map_err(|w| self.fault(b, t, pc, w))?;
        for i in members {
            let thread = &mut self.blocks[b].threads[i];
            (thread.pc, thread.state) = (pc + 1, State::Runs);
        }
        Ok(())
    }
}

/// The generic address of shared memory.
pub fn generic(address: u64) -> u64 {
    address | SHARED
}
