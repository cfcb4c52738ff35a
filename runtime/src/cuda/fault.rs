//! Kernel faults. They are asynchronous: the driver reports one at a later call and refuses all
//! work of the process from then on. So each device records the launches since its stream was last
//! synchronised, and the first fault.
use super::{CudaError, driver_message, stream::Stream};
use crate::{Program, program::Kernel};
use cudarc::driver::{DriverError, sys::CUresult};
use indexmap::{IndexMap, IndexSet};
use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};

/// How many different programs are recorded.
const MAX_RECORDED: usize = 8;

/// The launches of a plan.
pub struct Launches {
    /// The program.
    pub program: Arc<Program>,
    /// Grid size of each launch, in CTAs (thread blocks).
    pub grids: Vec<u32>,
}

impl Launches {
    /// Describes a launch: kernel, ops, source locations, launch configuration.
    pub fn describe_launch(&self, i: usize) -> String {
        self.program.kernels.get(i).zip(self.grids.get(i)).map_or_else(
            || format!("launch {i}"),
            |(k, grid)| describe(k, *grid, &k.sources.iter().collect()),
        )
    }
    /// Describes all launches: one line for each kernel and grid size, with the source locations of
    /// all its launches.
    fn all(&self) -> String {
        let mut groups: IndexMap<(&str, u32), (&Kernel, IndexSet<&String>, usize)> =
            IndexMap::new();
        for (k, grid) in self.program.kernels.iter().zip(&self.grids) {
            let group = groups.entry((&k.symbol, *grid)).or_insert((k, IndexSet::new(), 0));
            group.1.extend(&k.sources);
            group.2 += 1;
        }
        let times = |n: usize| if n > 1 { format!(", {n} times") } else { String::new() };
        let all: Vec<String> = groups
            .iter()
            .map(|((_, grid), (k, sources, n))| describe(k, *grid, sources) + &times(*n))
            .collect();
        format!("program {}: {}", self.program.name, all.join("; "))
    }
}

fn describe(k: &Kernel, grid: u32, sources: &IndexSet<&String>) -> String {
    let (threads, shared) = k.launch.as_ref().map_or((0, 0), |l| (l.threads, l.shared));
    let sources: Vec<&str> = sources.iter().map(|s| s.as_str()).collect();
    let sources =
        if sources.is_empty() { String::new() } else { format!(" of {}", sources.join(", ")) };
    let asked =
        if shared > 0 { format!(" and {shared} bytes of shared memory") } else { String::new() };
    format!("{} ({}){sources}, {grid} blocks of {threads} threads{asked}", k.name, k.ops.join(" "))
}

/// What is known of a device's faults.
#[derive(Default)]
pub struct Faults {
    /// Launched and not yet known to have completed, the latest last.
    pending: Mutex<Vec<(Stream, Arc<Launches>)>>,
    first: Mutex<Option<CudaError>>,
    /// Whether a fault was recorded.
    faulted: AtomicBool,
}

/// Whether the driver refuses all work after this error.
fn sticky(e: DriverError) -> bool {
    use CUresult::*;
    matches!(
        e.0,
        CUDA_ERROR_ILLEGAL_ADDRESS
            | CUDA_ERROR_LAUNCH_TIMEOUT
            | CUDA_ERROR_ASSERT
            | CUDA_ERROR_HARDWARE_STACK_ERROR
            | CUDA_ERROR_ILLEGAL_INSTRUCTION
            | CUDA_ERROR_MISALIGNED_ADDRESS
            | CUDA_ERROR_INVALID_ADDRESS_SPACE
            | CUDA_ERROR_INVALID_PC
            | CUDA_ERROR_LAUNCH_FAILED
            | CUDA_ERROR_ECC_UNCORRECTABLE
            | CUDA_ERROR_EXTERNAL_DEVICE
    )
}

impl Faults {
    /// Records launches that were enqueued on the stream.
    pub fn launched(&self, stream: Stream, launches: &Arc<Launches>) {
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        if pending.last().is_some_and(|(s, l)| *s == stream && Arc::ptr_eq(l, launches)) {
            return;
        }
        pending.retain(|(s, l)| *s != stream || !Arc::ptr_eq(l, launches));
        if pending.len() == MAX_RECORDED {
            pending.remove(0);
        }
        pending.push((stream, launches.clone()));
    }
    /// The stream was synchronised without a fault.
    pub fn done(&self, stream: Stream) {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner).retain(|(s, _)| *s != stream);
    }
    /// The recorded fault, after which no call can run.
    pub fn recorded(&self) -> Option<CudaError> {
        // Asked with every call, so the lock is taken only after a fault.
        self.faulted
            .load(Ordering::Acquire)
            .then(|| self.first.lock().unwrap_or_else(PoisonError::into_inner).clone())
            .flatten()
    }
    /// The fault that this error reports, with the launches that may have caused it. Later errors
    /// return the first fault.
    pub fn fault(&self, index: usize, e: DriverError) -> Option<CudaError> {
        if !sticky(e) {
            return None;
        }
        let pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        let suspects: Vec<String> = pending.iter().map(|(_, l)| l.all()).collect();
        let suspects = match suspects.is_empty() {
            true => "no launch of kiln's was under way, so it is another library's kernel".into(),
            false => format!(
                "it is one of these, if no other library's kernel (KILN_CUDA_BLOCKING=1 says which): {}",
                suspects.join("; ")
            ),
        };
        drop(pending);
        self.first(CudaError::Fault { index, reason: driver_message(e), suspects }).into()
    }
    /// As [`Faults::fault`], if the launch is known.
    pub fn launch_fault(&self, index: usize, e: DriverError, what: &str) -> Option<CudaError> {
        sticky(e).then(|| {
            self.first(CudaError::Fault {
                index,
                reason: driver_message(e),
                suspects: format!("it is of {what}"),
            })
        })
    }
    fn first(&self, fault: CudaError) -> CudaError {
        let first =
            self.first.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(fault).clone();
        self.faulted.store(true, Ordering::Release);
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::Launch;

    /// Twenty launches of one kernel, as of a model's layers, and one of another.
    fn launches(name: &str) -> Arc<Launches> {
        let launch = Launch {
            args: vec![],
            grid: Default::default(),
            resident: 0,
            threads: 128,
            shared: 64,
            maps: vec![],
            library: None,
            dependent: false,
            entry: None,
        };
        let kernel = |symbol: &str, line: usize| Kernel {
            name: format!("{name}_{symbol}"),
            symbol: symbol.into(),
            ops: vec!["gelu".into(), "mul".into()],
            sources: vec![format!("y (model.py:{line})")],
            launch: Some(launch.clone()),
            ..Default::default()
        };
        let kernels: Vec<Kernel> =
            (0..20).map(|i| kernel("k", 12 + i)).chain([kernel("last", 50)]).collect();
        let grids = vec![7; kernels.len()];
        Arc::new(Launches {
            program: Program { name: name.into(), kernels, ..Default::default() }.into(),
            grids,
        })
    }

    #[test]
    fn a_fault_names_what_was_launched_since_the_stream_was_done() {
        let (faults, a, b) = (Faults::default(), Stream::DEFAULT, Stream(2 as _));
        let (one, two) = (launches("one"), launches("two"));
        faults.launched(a, &one);
        faults.launched(b, &two);
        faults.launched(b, &two);
        assert_eq!(faults.fault(0, DriverError(CUresult::CUDA_ERROR_OUT_OF_MEMORY)), None);
        assert_eq!(faults.recorded(), None);
        faults.done(a);
        let e = DriverError(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
        // `words` calls the driver, which this machine may lack.
        let fault = faults.first(CudaError::Fault {
            index: 0,
            reason: String::new(),
            suspects: faults.pending.lock().unwrap()[0].1.all(),
        });
        let said = fault.to_string();
        assert_eq!(
            two.describe_launch(0),
            "two_k (gelu mul) of y (model.py:12), 7 blocks of 128 threads and 64 bytes of shared memory"
        );
        let configuration = "7 blocks of 128 threads and 64 bytes of shared memory";
        assert!(said.contains("two_k (gelu mul) of y (model.py:12), y (model.py:13), "), "{said}");
        assert!(
            said.contains(&format!("y (model.py:31), {configuration}, 20 times; two_last (gelu mul) of y (model.py:50), {configuration}")),
            "{said}"
        );
        assert!(!said.contains("one_k") && sticky(e));
        assert_eq!(faults.recorded(), Some(fault));
    }

    #[test]
    fn few_programs_are_remembered() {
        let faults = Faults::default();
        let all: Vec<_> = (0..MAX_RECORDED + 3).map(|i| launches(&format!("p{i}"))).collect();
        all.iter().for_each(|l| faults.launched(Stream::DEFAULT, l));
        let pending = faults.pending.lock().unwrap();
        assert_eq!(
            pending.iter().map(|(_, l)| l.program.name.as_str()).collect::<Vec<_>>(),
            ["p3", "p4", "p5", "p6", "p7", "p8", "p9", "p10"]
        );
    }
}
