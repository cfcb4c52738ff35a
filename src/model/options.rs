//! Options of the compiler and the runtime. The table in `src/compile/settings/rows.rs` maps names,
//! environment variables and values to these fields.
use crate::{
    lowering::{CancellationToken, UserPasses},
    runtime::{self, DeviceId, Store, cuda::Mode},
};
use std::{collections::BTreeMap, path::PathBuf, time::Duration};

/// Compilation and runtime options.
#[derive(Clone, Debug)]
pub struct Options {
    /// The entry function.
    pub function: String,
    /// Threads that run a call.
    pub threads: usize,
    /// Threads that compile.
    pub workers: usize,
    /// Location of the compile cache.
    pub cache: CachePolicy,
    /// Size limit of the cache in bytes; the least recently used entries are evicted.
    pub cache_bytes: u64,
    /// Cancellation token for compilations.
    pub cancellation: CancellationToken,
    /// Time limit of one compilation. Exceeding it is an error; a compiled function then falls back
    /// to op-by-op execution.
    pub time_budget: Option<Duration>,
    /// Flags of optional passes to disable; used by `kiln ablate` and `kiln bisect`.
    pub disable: Vec<String>,
    /// Dump directory: each compilation adds a folder with its IR and code (`docs/debugging.md`).
    pub dump: Option<PathBuf>,
    /// Whether a dump includes the launch graph as `graph.svg`.
    pub diagram: bool,
    /// Directory of weight files; the model's own if `None`.
    pub weights: Option<PathBuf>,
    /// Where to write the reproducer (IR and pipeline) of a failing pass, for `kiln-opt
    /// --run-reproducer`. With `dump` it goes to the dump's folder. `None`: not written.
    pub reproducer: Option<PathBuf>,
    /// Target, such as `x86_64:haswell` or `cuda:sm_90a`; the device's own if `None`.
    pub target: Option<String>,
    /// Device to run on.
    pub device: DeviceId,
    /// Whether to synchronise after each GPU launch, so that a fault names its kernel.
    pub blocking: bool,
    /// Whether a compiled function reuses the buffers of dropped results for new ones.
    pub reuse: bool,
    /// How kernels are launched on a GPU.
    pub mode: Mode,
    /// Whether later calls in the caller's memory are launched as CUDA graphs.
    pub cudagraph_replay: bool,
    /// Whether to annotate calls and GPU launches with NVTX ranges.
    pub nvtx: bool,
    /// Whether operands of f32 products may be rounded to tf32 for a GPU's tensor cores.
    pub tf32: bool,
    /// Whether f32 math functions may use a GPU's approximate instructions.
    pub fast_math: bool,
    /// Whether cuFFT computes a GPU's Fourier transforms where it is found.
    pub cufft: bool,
    /// Whether random numbers are those of PyTorch's CUDA generator.
    pub align_random_eager: AlignRandom,
    /// Table of measured schedules, written by `kiln tune`. With `max_autotune`, new results are
    /// added to it.
    pub schedules: Option<PathBuf>,
    /// Whether to autotune schedules that no table has, and keep them in `schedules` or in a table
    /// in the cache folder.
    pub max_autotune: bool,
    /// Time budget for autotuning one program.
    pub autotune_budget: Duration,
    /// Most schedules that autotuning tries per kernel.
    pub autotune_candidates: usize,
    /// Whether to run MLIR's verifier after every pass.
    pub verify: bool,
    /// Memory layout of arguments, by argument index: the dimension order, outermost first, such as
    /// `[0, 2, 3, 1]` for channels-last. Arguments in that order are not copied; others are still
    /// accepted and copied. Default: the layout in the file.
    pub orders: BTreeMap<usize, Vec<usize>>,
    /// Arguments whose memory a call may use for other values, and so needs less.
    pub donated: BTreeMap<usize, Donation>,
    /// Whether the buffers that an archive's program mutates are its last arguments, as states
    /// ([`Program::states`](runtime::Program::states)), instead of constants whose new values are
    /// results alone. [`Model::session`](crate::Model::session) sets it.
    pub states: bool,
    /// User passes that run in addition to the pipeline: as soon as a module is at a level, or
    /// after every run of a pass.
    pub passes: Vec<UserPasses>,
}

/// What the memory of a donated argument may be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Donation {
    /// Intermediate values: the argument's elements are unspecified after a call. Programs for GPUs
    /// alone do so, and only on tensors that lie there.
    Intermediates,
    /// Results, too: [`Program::aliases`](runtime::Program::aliases) says which result may be given
    /// the argument's memory.
    Results,
    /// The result of this number, which is the argument's new value; no other result, and no
    /// intermediate value, whose memory the caller may not have given.
    Update(usize),
}

/// Default of [`Options::autotune_candidates`].
pub const AUTOTUNE_CANDIDATES: usize = 48;

/// Default time budget for autotuning one program.
pub const AUTOTUNE_BUDGET: Duration = Duration::from_secs(60);

/// Whether random numbers are those that PyTorch draws on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlignRandom {
    /// They depend on no device.
    Off,
    /// Those of the device, a GPU.
    Device,
    /// Those of a GPU that runs so many threads at once: SMs times threads an SM, a multiple of 256.
    Threads(u32),
}

/// Whether compiled code is cached on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CachePolicy {
    /// No cache.
    Off,
    /// A cache in this directory.
    Dir(PathBuf),
}

impl CachePolicy {
    /// Opens the cache, if enabled. An unusable cache is logged and ignored.
    pub(crate) fn store(&self) -> Option<Store> {
        match self {
            CachePolicy::Off => None,
            CachePolicy::Dir(dir) => Store::open(dir).ok(),
        }
    }
}

impl Default for Options {
    /// All processors, no cache.
    fn default() -> Options {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let verify = cfg!(debug_assertions);
        Options {
            function: "main".into(),
            threads: processors,
            workers: processors,
            cache: CachePolicy::Off,
            cache_bytes: runtime::cache::DEFAULT_BYTES,
            cancellation: CancellationToken::new(),
            time_budget: None,
            disable: vec![],
            dump: None,
            diagram: false,
            weights: None,
            reproducer: None,
            target: None,
            device: DeviceId::Host,
            blocking: false,
            reuse: false,
            mode: Mode::Default,
            cudagraph_replay: true,
            nvtx: false,
            tf32: false,
            fast_math: false,
            cufft: false,
            align_random_eager: AlignRandom::Off,
            schedules: None,
            max_autotune: false,
            autotune_budget: AUTOTUNE_BUDGET,
            autotune_candidates: AUTOTUNE_CANDIDATES,
            verify,
            orders: BTreeMap::new(),
            donated: BTreeMap::new(),
            states: false,
            passes: vec![],
        }
    }
}

impl Options {
    /// The options of a program for tensors on a device. Those of tensors on the host may be for a
    /// GPU, to which calls copy; tensors on a GPU are taken by programs for it alone.
    pub(crate) fn for_tensors_on(&self, device: DeviceId) -> Options {
        let mut options = self.clone();
        if device != DeviceId::Host {
            options.device = device;
            options.target = options.target.filter(|t| t.starts_with("cuda"));
        }
        options
    }
    /// Options for compiling one kernel in isolation. Model-wide options no longer apply, and
    /// candidates are not worth caching.
    pub(crate) fn for_single_kernel(&self) -> Options {
        Options {
            function: "main".into(),
            cache: CachePolicy::Off,
            schedules: None,
            max_autotune: false,
            dump: None,
            reproducer: None,
            passes: vec![],
            orders: BTreeMap::new(),
            donated: BTreeMap::new(),
            states: false,
            mode: Mode::Default,
            time_budget: None,
            ..self.clone()
        }
    }
}
