//! Runs kernels. Threads run one after the other, each until it waits for others, so that a result
//! depends on no race of the host's threads. What a card may do early or late (copies that go on by
//! themselves) is done at once or as late as it can be, by chance, and warps take turns in either
//! order, also by chance: a kernel that forgets to wait is wrong here sooner than on a card.
//! `KILN_EMULATOR_SEED` is what chance begins with.
mod bars;
mod cluster;
mod copies;
mod memory;
mod step;
mod tensor_cores;
#[cfg(test)]
mod tests;
mod together;

use crate::ptx::Kernel;
use cluster::Cluster;
use std::sync::{
    Arc, LazyLock, Mutex, PoisonError,
    atomic::{AtomicBool, AtomicU32, Ordering},
};

/// A kernel's launch.
pub struct Launch<'a> {
    /// The kernel.
    pub kernel: &'a Arc<Kernel>,
    /// Blocks in x, y and z.
    pub grid: [u32; 3],
    /// Threads of a block in x, y and z.
    pub block: [u32; 3],
    /// Bytes of shared memory beside what the kernel declares.
    pub shared: u32,
    /// Its parameters, laid out as [`Kernel::params`] says.
    pub params: &'a [u8],
}

/// What a kernel does that no kernel may.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("kernel {kernel}, block {block}, thread {thread}, line {line} ({text}): {what}")]
pub struct Fault {
    /// Its name.
    pub kernel: String,
    /// Of the grid.
    pub block: u32,
    /// Of the block.
    pub thread: u32,
    /// Of the PTX.
    pub line: u32,
    /// The instruction.
    pub text: String,
    /// What is wrong.
    pub what: What,
}

/// Kinds of faults, as the driver tells them apart.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum What {
    /// `CUDA_ERROR_ILLEGAL_ADDRESS`.
    #[error("{0} bytes at {1:#x} are not allocated")]
    Address(u64, u64),
    /// `CUDA_ERROR_MISALIGNED_ADDRESS`.
    #[error("{0} bytes at {1:#x} are not aligned")]
    Alignment(u64, u64),
    /// `CUDA_ERROR_ILLEGAL_INSTRUCTION`.
    #[error("{0}")]
    Instruction(String),
    /// All threads wait (a card would not end), `CUDA_ERROR_LAUNCH_TIMEOUT`.
    #[error("all threads wait for what does not come")]
    Stuck,
    /// `trap`, `CUDA_ERROR_LAUNCH_FAILED`.
    #[error("a trap")]
    Trap,
}

/// What chance begins with.
static SEED: LazyLock<u64> = LazyLock::new(|| {
    std::env::var("KILN_EMULATOR_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(1)
});

/// The host's threads for a launch.
static WORKERS: LazyLock<usize> = LazyLock::new(|| {
    let said = std::env::var("KILN_EMULATOR_THREADS").ok().and_then(|s| s.parse().ok());
    said.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, |n| n.get())).max(1)
});

/// Runs a kernel to its end. Err: the first fault that was met.
pub fn run(launch: &Launch<'_>) -> Result<(), Fault> {
    let blocks: u32 = launch.grid.iter().product();
    let clusters = blocks / launch.kernel.cluster.max(1);
    // The kernel's parameters as the copy engine reads descriptions of tensors in them.
    let mut params = memory::Aligned::new(launch.params.len().max(1), 0);
    params.bytes()[..launch.params.len()].copy_from_slice(launch.params);
    let at = params.bytes().as_ptr() as u64;
    let (next, stop, fault) = (AtomicU32::new(0), AtomicBool::new(false), Mutex::new(None));
    let work = || {
        let mut room = vec![];
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= clusters || stop.load(Ordering::Relaxed) {
                return;
            }
            let mut cluster = Cluster::new(launch, at, number, *SEED, &mut room);
            if let Err(f) = cluster.run() {
                stop.store(true, Ordering::Relaxed);
                fault.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(f);
            }
            cluster.give_back(&mut room);
        }
    };
    let workers = (*WORKERS).min(clusters as usize);
    if workers <= 1 || u64::from(blocks) * u64::from(launch.block.iter().product::<u32>()) < 4096 {
        work();
    } else {
        std::thread::scope(|scope| (0..workers).for_each(|_| drop(scope.spawn(work))));
    }
    fault.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
}

/// Held while memory is read and written at once.
static ATOMIC: Mutex<()> = Mutex::new(());
