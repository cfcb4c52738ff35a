//! What the compiler and the runtime are told. `src/compile/settings/rows.rs` has the table of
//! names, variables and values that set it.
use crate::{
    Error,
    compile::Settings,
    lowering::{Own, Stop},
    runtime::{self, Place, Store, cuda::Mode},
};
use std::{collections::BTreeMap, path::PathBuf, time::Duration};

/// How to compile and run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The function to compile.
    pub function: String,
    /// Threads of a call.
    pub threads: usize,
    /// Threads that compile.
    pub workers: usize,
    /// Where compiled code is kept.
    pub cache: CachePolicy,
    /// How many bytes of it at most: what was not used for longest goes.
    pub cache_bytes: u64,
    /// Ends compilations from another thread.
    pub stop: Stop,
    /// What compiling a program may take; one that takes longer is an error, and a compiled
    /// function runs op by op then.
    pub time_budget: Option<Duration>,
    /// Flags of optional passes that do not run; `kiln ablate` and `kiln bisect` use it.
    pub disable: Vec<String>,
    /// Where each compilation makes a folder with everything about it (`docs/debugging.md`).
    pub dump: Option<PathBuf>,
    /// Whether the graph of launches is also written to `graph.svg` in the folder of `dump`.
    pub diagram: bool,
    /// The folder in which files of weights are looked for, if not beside the model.
    pub weights: Option<PathBuf>,
    /// Where IR and pipeline of a pass that fails are written, for `kiln-opt --run-reproducer`;
    /// with `dump` that is the dump's folder. None: nowhere.
    pub reproducer: Option<PathBuf>,
    /// What to compile for, such as `x86_64:haswell` or `cuda:sm_90a`; what the device is if not
    /// given.
    pub target: Option<String>,
    /// Where programs run.
    pub device: Place,
    /// Whether each launch on a GPU is waited for, so that a fault names its kernel.
    pub blocking: bool,
    /// Whether results of a compiled function are written where earlier ones were that nobody holds
    /// any more; that memory is kept for it.
    pub reuse: bool,
    /// How a program's kernels are launched on a GPU.
    pub mode: Mode,
    /// Marks calls and launches on a GPU for profilers, by NVTX.
    pub nvtx: bool,
    /// Whether factors of products of f32 may be rounded to tf32 on a GPU, whose tensor cores
    /// multiply these.
    pub tf32: bool,
    /// Whether functions of f32 may be a GPU's approximations.
    pub fast_math: bool,
    /// A table of measured schedules, which `kiln tune` makes; with `max_autotune` also the one
    /// that is added to.
    pub schedules: Option<PathBuf>,
    /// Whether schedules that no table has are measured while compiling, and kept in `schedules` or
    /// a table in the cache folder.
    pub max_autotune: bool,
    /// For how long the schedules of one program are measured.
    pub autotune_budget: Duration,
    /// Runs MLIR's verifier after every pass.
    pub verify: bool,
    /// How arguments lie in memory, if not as the file says: the dimensions of the argument of that
    /// number, the outermost first, such as `[0, 2, 3, 1]` for channels last. Those that lie so are
    /// not copied; others still are right.
    pub orders: BTreeMap<usize, Vec<usize>>,
    /// Passes that run beside those of the pipeline, such as those of a crate of one's own: as soon
    /// as a module is on a level, or behind every run of a pass.
    pub passes: Vec<Own>,
}

/// For how long a program's schedules are measured if nobody says.
pub const AUTOTUNE_BUDGET: Duration = Duration::from_secs(60);

/// Whether compiled code is kept between processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CachePolicy {
    /// It is not.
    Off,
    /// In this folder.
    Dir(PathBuf),
}

impl CachePolicy {
    /// The cache, if there is to be one. One that cannot be used has said so, and is not needed.
    pub(crate) fn store(&self) -> Option<Store> {
        match self {
            CachePolicy::Off => None,
            CachePolicy::Dir(dir) => Store::open(dir).ok(),
        }
    }
}

impl Default for Options {
    /// All processors, and no cache.
    fn default() -> Options {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let verify = cfg!(debug_assertions);
        Options {
            function: "main".into(),
            threads: processors,
            workers: processors,
            cache: CachePolicy::Off,
            cache_bytes: runtime::cache::DEFAULT_BYTES,
            stop: Stop::new(),
            time_budget: None,
            disable: vec![],
            dump: None,
            diagram: false,
            weights: None,
            reproducer: None,
            target: None,
            device: Place::Host,
            blocking: false,
            reuse: false,
            mode: Mode::Default,
            nvtx: false,
            tf32: false,
            fast_math: false,
            schedules: None,
            max_autotune: false,
            autotune_budget: AUTOTUNE_BUDGET,
            verify,
            orders: BTreeMap::new(),
            passes: vec![],
        }
    }
}

impl Options {
    /// Those for a program of one of a model's kernels: what a model asks for has been done on the
    /// way there, and of what is tried little is worth keeping.
    pub(crate) fn alone(&self) -> Options {
        Options {
            function: "main".into(),
            cache: CachePolicy::Off,
            schedules: None,
            max_autotune: false,
            dump: None,
            reproducer: None,
            passes: vec![],
            orders: BTreeMap::new(),
            mode: Mode::Default,
            time_budget: None,
            ..self.clone()
        }
    }
    /// The defaults with what the environment says, for a file: the variables of all options of
    /// [`list_options`](crate::list_options) that count for files (`docs/options.md`). Compiled
    /// code is kept in the XDG cache folder if none is named. Err: a variable whose value is none,
    /// with what it takes.
    pub fn from_env() -> Result<Options, Error> {
        Settings::from_env().map(Settings::for_file)
    }
}
