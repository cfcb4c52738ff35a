//! Faults of kernels. The driver reports one with whatever is asked of it next, maybe another call,
//! and refuses all further work of the process; so each device remembers what has been launched
//! since its stream was last seen to be done, and what the first fault was.
use super::{CudaError, stream::Stream, words};
use crate::{Program, program::Kernel};
use cudarc::driver::{DriverError, sys::CUresult};
use indexmap::{IndexMap, IndexSet};
use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};

/// How many different programs are remembered.
const REMEMBERED: usize = 8;

/// The launches of a program with its sizes known.
pub struct Launches {
    /// The program.
    pub program: Arc<Program>,
    /// Blocks of each launch.
    pub grids: Vec<u32>,
}

impl Launches {
    /// A launch in words: the kernel, its ops, where they stand in the source, its configuration.
    pub fn one(&self, i: usize) -> String {
        self.program.kernels.get(i).zip(self.grids.get(i)).map_or_else(
            || format!("launch {i}"),
            |(k, grid)| words_of(k, *grid, &k.sources.iter().collect()),
        )
    }
    /// All launches: each kernel once for each number of blocks, with the sources of all its
    /// launches.
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
            .map(|((_, grid), (k, sources, n))| words_of(k, *grid, sources) + &times(*n))
            .collect();
        format!("program {}: {}", self.program.name, all.join("; "))
    }
}

fn words_of(k: &Kernel, grid: u32, sources: &IndexSet<&String>) -> String {
    let (threads, shared) = k.launch.as_ref().map_or((0, 0), |l| (l.threads, l.shared));
    let sources: Vec<&str> = sources.iter().map(|s| s.as_str()).collect();
    let sources =
        if sources.is_empty() { String::new() } else { format!(" of {}", sources.join(", ")) };
    let asked =
        if shared > 0 { format!(" and {shared} bytes of shared memory") } else { String::new() };
    format!("{} ({}){sources}, {grid} blocks of {threads} threads{asked}", k.name, k.ops.join(" "))
}

/// What a device knows of faults.
#[derive(Default)]
pub struct Faults {
    /// Launched and not seen to be done, the latest last.
    open: Mutex<Vec<(Stream, Arc<Launches>)>>,
    first: Mutex<Option<CudaError>>,
    /// Whether there is a first one.
    any: AtomicBool,
}

/// Whether the driver does nothing more after this error.
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
    /// These have been given to the stream.
    pub fn launched(&self, stream: Stream, launches: &Arc<Launches>) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.last().is_some_and(|(s, l)| *s == stream && Arc::ptr_eq(l, launches)) {
            return;
        }
        open.retain(|(s, l)| *s != stream || !Arc::ptr_eq(l, launches));
        if open.len() == REMEMBERED {
            open.remove(0);
        }
        open.push((stream, launches.clone()));
    }
    /// All that the stream was given is done, without a fault.
    pub fn done(&self, stream: Stream) {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).retain(|(s, _)| *s != stream);
    }
    /// The fault after which nothing goes.
    pub fn noticed(&self) -> Option<CudaError> {
        // The lock only where it is needed: this is asked with every call.
        self.any
            .load(Ordering::Acquire)
            .then(|| self.first.lock().unwrap_or_else(PoisonError::into_inner).clone())
            .flatten()
    }
    /// The fault that this error is, with what it may be of; of later ones the first is given
    /// again.
    pub fn of(&self, index: usize, e: DriverError) -> Option<CudaError> {
        if !sticky(e) {
            return None;
        }
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let suspects: Vec<String> = open.iter().map(|(_, l)| l.all()).collect();
        let suspects = match suspects.is_empty() {
            true => "no launch of kiln's was under way, so it is another library's kernel".into(),
            false => format!(
                "it is one of these, if no other library's kernel (KILN_CUDA_BLOCKING=1 says which): {}",
                suspects.join("; ")
            ),
        };
        drop(open);
        self.first(CudaError::Fault { index, reason: words(e), suspects }).into()
    }
    /// As [`Faults::of`], where it is known which launch it is of.
    pub fn of_launch(&self, index: usize, e: DriverError, what: &str) -> Option<CudaError> {
        sticky(e).then(|| {
            self.first(CudaError::Fault {
                index,
                reason: words(e),
                suspects: format!("it is of {what}"),
            })
        })
    }
    fn first(&self, fault: CudaError) -> CudaError {
        let first =
            self.first.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(fault).clone();
        self.any.store(true, Ordering::Release);
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::Launch;

    /// Twenty launches of one kernel, as many as of layers, and one of another.
    fn launches(name: &str) -> Arc<Launches> {
        let launch = Launch {
            args: vec![],
            grid: Default::default(),
            resident: 0,
            threads: 128,
            shared: 64,
            maps: vec![],
            library: None,
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
        assert_eq!(faults.of(0, DriverError(CUresult::CUDA_ERROR_OUT_OF_MEMORY)), None);
        assert_eq!(faults.noticed(), None);
        faults.done(a);
        let e = DriverError(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
        // `words` asks the driver, which this machine may not have.
        let fault = faults.first(CudaError::Fault {
            index: 0,
            reason: String::new(),
            suspects: faults.open.lock().unwrap()[0].1.all(),
        });
        let said = fault.to_string();
        assert_eq!(
            two.one(0),
            "two_k (gelu mul) of y (model.py:12), 7 blocks of 128 threads and 64 bytes of shared memory"
        );
        let configuration = "7 blocks of 128 threads and 64 bytes of shared memory";
        assert!(said.contains("two_k (gelu mul) of y (model.py:12), y (model.py:13), "), "{said}");
        assert!(
            said.contains(&format!("y (model.py:31), {configuration}, 20 times; two_last (gelu mul) of y (model.py:50), {configuration}")),
            "{said}"
        );
        assert!(!said.contains("one_k") && sticky(e));
        assert_eq!(faults.noticed(), Some(fault));
    }

    #[test]
    fn few_programs_are_remembered() {
        let faults = Faults::default();
        let all: Vec<_> = (0..REMEMBERED + 3).map(|i| launches(&format!("p{i}"))).collect();
        all.iter().for_each(|l| faults.launched(Stream::DEFAULT, l));
        let open = faults.open.lock().unwrap();
        assert_eq!(
            open.iter().map(|(_, l)| l.program.name.as_str()).collect::<Vec<_>>(),
            ["p3", "p4", "p5", "p6", "p7", "p8", "p9", "p10"]
        );
    }
}
