//! Options of a compiled function: one table, from which come the API, the environment variables, and the lists that people read.
use crate::{
    Error,
    lowering::{Own, Stop},
    model::{CachePolicy, Options},
    passes::names::hint,
    runtime::{Place, cache, cuda, pool::MAX_THREADS},
};
use std::{path::Path, sync::LazyLock, time::Duration};

/// How a function is compiled and called.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What remarks call the function.
    pub name: String,
    /// The mode, of [`list_mode_options`].
    pub mode: String,
    /// Whether sizes are symbols: none for those that change.
    pub dynamic: Option<bool>,
    /// Whether a graph break is an error.
    pub fullgraph: bool,
    /// Whether weights become part of the program, to be packed and folded.
    pub freeze: bool,
    /// Whether nothing is compiled.
    pub disable: bool,
    /// The backend's name, of [`list_backends`](crate::list_backends).
    pub backend: String,
    /// How many programs a function has at most; then it runs op by op.
    pub cache_size_limit: usize,
    /// Whether ops that are noted between reads run one by one, and all functions so.
    pub each_op: bool,
    /// Whether another thread compiles, and calls run op by op until it is done.
    pub asynchronous: bool,
    /// Whether captured graphs are kept as text, for [`explain`](super::Compiled::explain).
    pub keep_graphs: bool,
    /// What the backend is told.
    pub machine: Options,
}

/// What setting an option has done.
enum Effect {
    Done,
    /// Nothing, and why.
    Nothing(&'static str),
}

/// One option.
struct Row {
    name: &'static str,
    /// torch's name, where it is another.
    torch: Option<&'static str>,
    kind: &'static str,
    default: &'static str,
    summary: &'static str,
    variable: Option<&'static str>,
    set: fn(&mut Settings, &str) -> Result<Effect, &'static str>,
}

/// A line of [`list_options`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionInfo {
    /// Its name.
    pub name: &'static str,
    /// What torch calls it, if it has it under another name.
    pub torch: Option<&'static str>,
    /// What values it takes.
    pub kind: &'static str,
    /// What it is if nothing sets it.
    pub default: &'static str,
    /// What it does.
    pub summary: &'static str,
    /// The environment variable that sets it.
    pub variable: Option<&'static str>,
}

const BOOL: &str = "true or false";

fn flag(text: &str) -> Result<bool, &'static str> {
    match text {
        "true" | "1" | "on" => Ok(true),
        "false" | "0" | "off" => Ok(false),
        _ => Err(BOOL),
    }
}

fn number(text: &str, least: usize, most: usize, what: &'static str) -> Result<usize, &'static str> {
    text.parse().ok().filter(|n| (least..=most).contains(n)).ok_or(what)
}

/// A truth value of which only one changes nothing here, for a reason.
fn only(text: &str, usual: bool, why: &'static str) -> Result<Effect, &'static str> {
    Ok(if flag(text)? == usual { Effect::Done } else { Effect::Nothing(why) })
}

const COUNT: &str = "a number from 1 on";
const BYTES: &str = "a number of bytes, such as 500M or 4G";
const SECONDS: &str = "a number of seconds above 0";
const PASSES: &str =
    "a level (graph to linalg) or a pass's flag, a colon and passes, such as `prims: kiln-simplify,cse`; several with `;` between";

const THREADS: &str = "a number from 1 to 64";

const ROWS: &[Row] = &[
    Row {
        name: "cache_size_limit",
        torch: None,
        kind: COUNT,
        default: "8",
        summary: "how many programs a function has at most; a call that needs one more runs op by op, with one warning",
        variable: Some("KILN_CACHE_SIZE_LIMIT"),
        set: |s, t| {
            s.cache_size_limit = number(t, 1, usize::MAX, COUNT)?;
            Ok(Effect::Done)
        },
    },
    Row {
        name: "threads",
        torch: None,
        kind: THREADS,
        default: "all processors",
        summary: "threads of a call",
        variable: Some("KILN_NUM_THREADS"),
        set: |s, t| {
            s.machine.threads = number(t, 1, MAX_THREADS, THREADS)?;
            Ok(Effect::Done)
        },
    },
    Row {
        name: "compile_threads",
        torch: None,
        kind: COUNT,
        default: "all processors",
        summary: "threads that compile kernels",
        variable: Some("KILN_COMPILE_THREADS"),
        set: |s, t| {
            s.machine.workers = number(t, 1, 1024, COUNT)?;
            Ok(Effect::Done)
        },
    },
    Row {
        name: "time_budget",
        torch: None,
        kind: SECONDS,
        default: "none",
        summary: "what compiling a program may take; a function that needs longer runs op by op from then on, with one warning",
        variable: Some("KILN_TIME_BUDGET"),
        set: |s, t| {
            let seconds = t.parse().ok().filter(|n: &f64| *n > 0.0).ok_or(SECONDS)?;
            s.machine.time_budget = Some(Duration::try_from_secs_f64(seconds).map_err(|_| SECONDS)?);
            Ok(Effect::Done)
        },
    },
    Row {
        name: "asynchronous",
        torch: None,
        kind: BOOL,
        default: "false",
        summary: "compiles on a thread of its own: calls run op by op until their program is there",
        variable: Some("KILN_ASYNCHRONOUS"),
        set: |s, t| {
            s.asynchronous = flag(t)?;
            Ok(Effect::Done)
        },
    },
    Row {
        name: "cache_dir",
        torch: None,
        kind: "a folder, or off",
        default: "kiln in the XDG cache folder",
        summary: "where compiled code is kept between processes",
        variable: Some("KILN_CACHE_DIR"),
        set: |s, t| {
            s.machine.cache = match t {
                "off" => CachePolicy::Off,
                dir => cache::default_dir(Some(Path::new(dir))).map_or(CachePolicy::Off, CachePolicy::Dir),
            };
            Ok(Effect::Done)
        },
    },
    Row {
        name: "cache_size",
        torch: None,
        kind: BYTES,
        default: "4G",
        summary: "how much compiled code is kept: what was not used for longest goes",
        variable: Some("KILN_CACHE_SIZE"),
        set: |s, t| {
            s.machine.cache_bytes = cache::parse_bytes(t).ok_or(BYTES)?;
            Ok(Effect::Done)
        },
    },
    Row {
        name: "dump",
        torch: None,
        kind: "a folder",
        default: "none",
        summary: "where each compilation writes its IR, kernels, times, and a page to look at them",
        variable: Some("KILN_DUMP"),
        set: |s, t| {
            s.machine.dump = (!t.is_empty()).then(|| t.into());
            Ok(Effect::Done)
        },
    },
    Row {
        name: "target",
        torch: None,
        kind: "a processor, such as x86_64:haswell or cuda:sm_90a",
        default: "what the device is",
        summary: "what code is made for",
        variable: Some("KILN_TARGET"),
        set: |s, t| {
            s.machine.target = Some(t.into());
            Ok(Effect::Done)
        },
    },
    Row {
        name: "schedules",
        torch: None,
        kind: "a file that kiln tune has made",
        default: "none, with max_autotune autotune.txt in the cache folder",
        summary: "schedules of kernels that were measured; with max_autotune the file that they are added to",
        variable: Some("KILN_AUTOTUNE_CACHE"),
        set: |s, t| {
            s.machine.schedules = Some(t.into());
            Ok(Effect::Done)
        },
    },
    Row {
        name: "verify",
        torch: None,
        kind: BOOL,
        default: "in debug builds",
        summary: "runs MLIR's verifier after every pass",
        variable: Some("KILN_VERIFY"),
        set: |s, t| {
            s.machine.verify = flag(t)?;
            Ok(Effect::Done)
        },
    },
    Row {
        name: "cuda_blocking",
        torch: None,
        kind: BOOL,
        default: "false",
        summary: "waits for each launch on a GPU, so that a fault names its kernel",
        variable: Some("KILN_CUDA_BLOCKING"),
        set: |s, t| {
            s.machine.blocking = flag(t)?;
            Ok(Effect::Done)
        },
    },
    Row {
        name: "nvtx",
        torch: None,
        kind: BOOL,
        default: "false",
        summary: "marks calls and launches on a GPU for profilers",
        variable: Some("KILN_NVTX"),
        set: |s, t| {
            s.machine.nvtx = flag(t)?;
            Ok(Effect::Done)
        },
    },
    Row {
        name: "tf32",
        torch: Some("allow_tf32"),
        kind: BOOL,
        default: "false",
        summary: "rounds factors of products of f32 to tf32 on a GPU, for its tensor cores",
        variable: Some("KILN_TF32"),
        set: |s, t| {
            s.machine.tf32 = flag(t)?;
            Ok(Effect::Done)
        },
    },
    Row {
        name: "cudagraphs",
        torch: Some("triton.cudagraphs"),
        kind: BOOL,
        default: "as the mode says",
        summary: "runs a program on a GPU as a CUDA graph; on the host its results' memory is used again",
        variable: Some("KILN_CUDAGRAPHS"),
        set: |s, t| {
            s.machine.mode = if flag(t)? { cuda::Mode::ReduceOverhead } else { cuda::Mode::Default };
            Ok(Effect::Done)
        },
    },
    Row {
        name: "trace.graph_diagram",
        torch: None,
        kind: BOOL,
        default: "false",
        summary: "keeps the captured graphs as text, for explain",
        variable: Some("KILN_GRAPH_DIAGRAM"),
        set: |s, t| {
            s.keep_graphs = flag(t)?;
            Ok(Effect::Done)
        },
    },
    Row {
        name: "break_each_op",
        torch: None,
        kind: BOOL,
        default: "false",
        summary: "ends the graph behind every op, so that each has a program of its own: where results change with it, fusion has changed them",
        variable: Some("KILN_BREAK_EACH_OP"),
        set: |s, t| {
            s.each_op = flag(t)?;
            Ok(Effect::Done)
        },
    },
    Row {
        name: "passes",
        torch: Some("post_grad_custom_pre_pass"),
        kind: PASSES,
        default: "none",
        summary: "passes, such as one's own, that run as soon as a graph is on a level, or behind each run of a pass",
        variable: Some("KILN_PASSES"),
        set: |s, t| {
            s.machine.passes = Own::parse(t).map_err(|_| PASSES)?;
            Ok(Effect::Done)
        },
    },
    Row {
        name: "epilogue_fusion",
        torch: None,
        kind: BOOL,
        default: "true",
        summary: "computes what follows a product in the product's kernel",
        variable: None,
        set: |_, t| only(t, true, "a product's kernel always computes what follows it where it can"),
    },
    Row {
        name: "shape_padding",
        torch: None,
        kind: BOOL,
        default: "true",
        summary: "pads products to sizes that the processor likes",
        variable: None,
        set: |_, t| only(t, true, "padding is a decision of the schedule, and cannot be switched off yet"),
    },
    Row {
        name: "max_autotune",
        torch: None,
        kind: BOOL,
        default: "false",
        summary: "measures several schedules of each kernel that no table has while compiling, and takes the fastest whose results are those of the default",
        variable: Some("KILN_MAX_AUTOTUNE"),
        set: |s, t| {
            s.machine.max_autotune = flag(t)?;
            Ok(Effect::Done)
        },
    },
    Row {
        name: "autotune_budget",
        torch: None,
        kind: SECONDS,
        default: "60",
        summary: "how long a program's schedules are measured with max_autotune; kernels that are left keep their default, and are measured the next time",
        variable: Some("KILN_AUTOTUNE_BUDGET"),
        set: |s, t| {
            let seconds = t.parse().ok().filter(|n: &f64| *n > 0.0).ok_or(SECONDS)?;
            s.machine.autotune_budget = Duration::try_from_secs_f64(seconds).map_err(|_| SECONDS)?;
            Ok(Effect::Done)
        },
    },
    Row {
        name: "trace.enabled",
        torch: None,
        kind: BOOL,
        default: "false",
        summary: "as dump, with the folder kiln_dump where none is named",
        variable: None,
        set: |s, t| {
            s.machine.dump = if flag(t)? { s.machine.dump.take().or_else(|| Some("kiln_dump".into())) } else { None };
            Ok(Effect::Done)
        },
    },
    Row {
        name: "fallback_random",
        torch: None,
        kind: BOOL,
        default: "false",
        summary: "takes random numbers of the eager generator",
        variable: None,
        set: |_, t| only(t, false, "there are no random numbers in traced functions yet"),
    },
];

/// Modes, and the options that they set.
const MODES: &[(&str, &[(&str, &str)])] = &[
    ("default", &[]),
    ("reduce-overhead", &[("cudagraphs", "true")]),
    ("max-autotune", &[("max_autotune", "true"), ("cudagraphs", "true")]),
    ("max-autotune-no-cudagraphs", &[("max_autotune", "true")]),
];

/// All options.
pub fn list_options() -> Vec<OptionInfo> {
    let info =
        |r: &Row| OptionInfo { name: r.name, torch: r.torch, kind: r.kind, default: r.default, summary: r.summary, variable: r.variable };
    ROWS.iter().map(info).collect()
}

/// The modes, each with the options that it sets.
pub fn list_mode_options() -> Vec<(&'static str, &'static [(&'static str, &'static str)])> {
    MODES.to_vec()
}

/// The defaults, with what the environment says; it is read once.
static DEFAULTS: LazyLock<Result<Settings, String>> = LazyLock::new(|| {
    let machine = Options { cache: Options::from_env()?.cache, ..Options::default() };
    let mut settings = Settings { machine, ..Settings::plain() };
    for row in ROWS {
        let Some((variable, value)) = row.variable.and_then(|v| Some((v, std::env::var(v).ok()?))) else { continue };
        (row.set)(&mut settings, &value).map_err(|want| format!("{variable} is '{value}', not {want}"))?;
    }
    Ok(settings)
});

impl Settings {
    /// Without the environment.
    pub(super) fn plain() -> Settings {
        Settings {
            name: "function".into(),
            mode: "default".into(),
            dynamic: None,
            fullgraph: false,
            freeze: false,
            disable: false,
            backend: "kiln".into(),
            cache_size_limit: 8,
            each_op: false,
            asynchronous: false,
            keep_graphs: false,
            machine: crate::Options::default(),
        }
    }
    /// The defaults, with what the environment says. Err: a variable whose value is none.
    pub fn new() -> Result<Settings, Error> {
        let mut settings = DEFAULTS.as_ref().map(Clone::clone).map_err(|e| Error::Setting(e.clone()))?;
        // Clones of one are ended together.
        settings.machine.stop = Stop::new();
        Ok(settings)
    }
    /// Sets an option by name. Gives a remark if that changes nothing. Err: there is no such option, or it has no such value.
    pub fn set(&mut self, name: &str, value: &str) -> Result<Option<String>, Error> {
        let Some(row) = ROWS.iter().find(|r| r.name == name || r.torch == Some(name)) else {
            let all = ROWS.iter().flat_map(|r| [Some(r.name), r.torch]).flatten();
            return Err(Error::Setting(format!("there is no option '{name}'{}", hint(name, all))));
        };
        match (row.set)(self, value) {
            Ok(Effect::Done) => Ok(None),
            Ok(Effect::Nothing(why)) => Ok(Some(format!("option {name}={value} changes nothing: {why}"))),
            Err(want) => Err(Error::Setting(format!("option {name} is '{value}', not {want}"))),
        }
    }
    /// Sets a mode by name, as [`Settings::set`] its options.
    pub fn set_mode(&mut self, mode: &str) -> Result<Vec<String>, Error> {
        let Some((mode, options)) = MODES.iter().find(|(m, _)| *m == mode) else {
            let hint = hint(mode, MODES.iter().map(|(m, _)| *m));
            return Err(Error::Setting(format!("there is no mode '{mode}'{hint}")));
        };
        self.mode = mode.to_string();
        let mut remarks = vec![];
        for (name, value) in *options {
            remarks.extend(self.set(name, value)?.map(|r| format!("mode {mode}: {r}")));
        }
        Ok(remarks)
    }
    /// The device as the options say, and a remark on options that are for another one.
    pub fn settle(&mut self) -> Option<String> {
        if self.machine.device == Place::Host && self.machine.mode != cuda::Mode::Default {
            (self.machine.mode, self.machine.reuse) = (cuda::Mode::Default, true);
            let why = "a program is one parallel region already; results are written where earlier ones were that nobody holds any more";
            return Some(format!("cudagraphs makes no graph on the host: {why}"));
        }
        None
    }
}
