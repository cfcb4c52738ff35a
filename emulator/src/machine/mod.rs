//! The PTX interpreter. Threads run sequentially, each until it waits, so results do not depend on
//! races between host threads. What hardware may order freely (asynchronous copies, warp
//! scheduling) is randomised: a copy completes at once or as late as possible, so a missing wait
//! shows sooner than on a GPU. `KILN_EMULATOR_SEED` seeds the generator.
mod async_copies;
mod cluster;
mod collective;
mod fault;
mod launch;
mod mbarrier;
mod memory;
mod pending;
mod step;
mod storage;
mod tensor_cores;
#[cfg(test)]
mod tests;

use crate::allocations::MEMORY;
use cluster::Cluster;
pub use fault::{Fault, FaultKind};
pub use launch::Launch;
use std::sync::{
    LazyLock, Mutex, PoisonError,
    atomic::{AtomicBool, AtomicU32, Ordering},
};

/// The seed of the generator.
static SEED: LazyLock<u64> = LazyLock::new(|| {
    std::env::var("KILN_EMULATOR_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(1)
});

/// Host threads per launch.
static WORKERS: LazyLock<usize> = LazyLock::new(|| {
    let said = std::env::var("KILN_EMULATOR_THREADS").ok().and_then(|s| s.parse().ok());
    said.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, |n| n.get())).max(1)
});

/// Runs a kernel to completion. Err: the first fault.
pub fn run(launch: &Launch<'_>) -> Result<(), Fault> {
    let order = MEMORY.launch();
    let blocks: u32 = launch.grid.iter().product();
    let clusters = blocks / launch.kernel.cluster.max(1);
    // Parameters are aligned for the tensor maps in them.
    let mut params = storage::Aligned::new(launch.params.len().max(1), 0);
    params.bytes()[..launch.params.len()].copy_from_slice(launch.params);
    let at = params.bytes().as_ptr() as u64;
    let (next, stop, fault) = (AtomicU32::new(0), AtomicBool::new(false), Mutex::new(None));
    let work = || {
        let mut pool = vec![];
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= clusters || stop.load(Ordering::Relaxed) {
                return;
            }
            let mut cluster = Cluster::new((launch, order), at, number, *SEED, &mut pool);
            if let Err(f) = cluster.run() {
                stop.store(true, Ordering::Relaxed);
                fault.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(f);
            }
            cluster.recycle_registers(&mut pool);
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

/// Held during an atomic read-modify-write.
static ATOMIC_LOCK: Mutex<()> = Mutex::new(());
