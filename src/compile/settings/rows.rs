//! The rows of the table of options, and the modes, which are lists of them.
use super::Settings;
use crate::{
    backend,
    lowering::{
        Own, Target,
        kernels::{pad_products::PadProducts, prologues::Prologues},
    },
    model::CachePolicy,
    passes::Pass,
    runtime::{Place, cache, cuda, pool::MAX_THREADS},
};
use std::{path::Path, time::Duration};

/// Remarks. Err: how a sentence goes on that begins with the option and its value.
pub(super) type Set = Result<Vec<String>, String>;

/// What an option counts for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Of {
    /// Files and compiled functions.
    Both,
    /// Compiled functions alone.
    Functions,
}

/// One option.
pub(super) struct Row {
    pub name: &'static str,
    /// torch's name, where it is another.
    pub torch: Option<&'static str>,
    pub kind: &'static str,
    pub default: &'static str,
    pub variable: &'static str,
    pub of: Of,
    pub summary: &'static str,
    pub set: fn(&mut Settings, &str) -> Set,
}

const BOOL: &str = "true or false";
const COUNT: &str = "a number from 1 on";
const THREADS: &str = "a number from 1 to 256";
// The text above says it.
const _: () = assert!(MAX_THREADS == 256);
const BYTES: &str = "a number of bytes, such as 500M or 4G";
const SECONDS: &str = "a number of seconds above 0";
const DEVICE: &str = "cpu, cuda (the first NVIDIA GPU) or cuda:<number>";
const DYNAMIC: &str = "true, false or auto";
const PASSES: &str = "a level (graph to linalg) or a pass's flag, a colon and passes, such as `prims: kiln-simplify,cse`; several with `;` between";

fn not(what: &str) -> String {
    format!(", not {what}")
}
fn because(e: impl std::fmt::Display) -> String {
    format!(": {e}")
}

fn flag(text: &str) -> Result<bool, String> {
    match text {
        "true" | "1" | "on" => Ok(true),
        "false" | "0" | "off" => Ok(false),
        _ => Err(not(BOOL)),
    }
}

fn number(text: &str, most: usize, what: &str) -> Result<usize, String> {
    text.parse().ok().filter(|n| (1..=most).contains(n)).ok_or_else(|| not(what))
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text
        .parse()
        .ok()
        .filter(|n: &f64| *n > 0.0)
        .and_then(|n| Duration::try_from_secs_f64(n).ok());
    seconds.ok_or_else(|| not(SECONDS))
}

/// Sets a field.
fn put<T>(field: &mut T, value: Result<T, String>) -> Set {
    *field = value?;
    Ok(vec![])
}

/// A truth value that leaves a pass out where it does not hold.
fn without(s: &mut Settings, pass: &str, text: &str) -> Set {
    let runs = flag(text)?;
    s.machine.disable.retain(|p| p != pass);
    if !runs {
        s.machine.disable.push(pass.into());
    }
    Ok(vec![])
}

/// What an option switches off by leaving a pass out.
const PAD_PRODUCTS: &str = PadProducts::FLAG;
const PROLOGUES: &str = Prologues::FLAG;

/// In the order in which the environment sets them: a mode comes before the options that it is made
/// of.
pub(super) const ROWS: &[Row] = &[
    Row {
        name: "mode",
        torch: None,
        kind: "default, reduce-overhead, max-autotune or max-autotune-no-cudagraphs",
        default: "default",
        variable: "KILN_MODE",
        of: Of::Both,
        summary: "what is done for speed, as a list of options",
        set: |s, t| s.set_mode(t).map_err(because),
    },
    Row {
        name: "device",
        torch: None,
        kind: DEVICE,
        default: "cpu",
        variable: "KILN_DEVICE",
        of: Of::Both,
        summary: "where programs run; ops that run at once do on the host",
        set: |s, t| put(&mut s.machine.device, Place::parse(t).map_err(|_| not(DEVICE))),
    },
    Row {
        name: "target",
        torch: None,
        kind: "a processor, such as x86_64:haswell or cuda:sm_90a",
        default: "what the device is",
        variable: "KILN_TARGET",
        of: Of::Both,
        summary: "what code is made for",
        set: |s, t| {
            put(&mut s.machine.target, Target::parse(t).map(|_| Some(t.into())).map_err(because))
        },
    },
    Row {
        name: "threads",
        torch: None,
        kind: THREADS,
        default: "all processors",
        variable: "KILN_NUM_THREADS",
        of: Of::Both,
        summary: "threads of a call",
        set: |s, t| put(&mut s.machine.threads, number(t, MAX_THREADS, THREADS)),
    },
    Row {
        name: "compile_threads",
        torch: None,
        kind: THREADS,
        default: "all processors",
        variable: "KILN_COMPILE_THREADS",
        of: Of::Both,
        summary: "threads that compile kernels",
        set: |s, t| put(&mut s.machine.workers, number(t, MAX_THREADS, THREADS)),
    },
    Row {
        name: "time_budget",
        torch: None,
        kind: SECONDS,
        default: "none",
        variable: "KILN_TIME_BUDGET",
        of: Of::Both,
        summary: "what compiling a program may take; a function that needs longer runs op by op from then on, with one warning; a file that does is an error",
        set: |s, t| put(&mut s.machine.time_budget, seconds(t).map(Some)),
    },
    Row {
        name: "cache_dir",
        torch: None,
        kind: "a folder, or off",
        default: "kiln in the XDG cache folder",
        variable: "KILN_CACHE_DIR",
        of: Of::Both,
        summary: "where compiled code is kept between processes",
        set: |s, t| {
            let dir = |t| {
                cache::default_dir(Some(Path::new(t))).map_or(CachePolicy::Off, CachePolicy::Dir)
            };
            put(&mut s.machine.cache, Ok(if t == "off" { CachePolicy::Off } else { dir(t) }))
        },
    },
    Row {
        name: "cache_size",
        torch: None,
        kind: BYTES,
        default: "4G",
        variable: "KILN_CACHE_SIZE",
        of: Of::Both,
        summary: "how much compiled code is kept: what was not used for longest goes",
        set: |s, t| {
            put(&mut s.machine.cache_bytes, cache::parse_bytes(t).ok_or_else(|| not(BYTES)))
        },
    },
    Row {
        name: "dump",
        torch: None,
        kind: "a folder",
        default: "none",
        variable: "KILN_DUMP",
        of: Of::Both,
        summary: "where each compilation writes its IR, kernels, times, and a page to look at them",
        set: |s, t| put(&mut s.machine.dump, Ok((!t.is_empty()).then(|| t.into()))),
    },
    Row {
        name: "trace.enabled",
        torch: None,
        kind: BOOL,
        default: "false",
        variable: "KILN_TRACE_ENABLED",
        of: Of::Both,
        summary: "as dump, with the folder kiln_dump where none is named; false ends dump",
        set: |s, t| {
            let dump = if flag(t)? {
                s.machine.dump.take().or_else(|| Some("kiln_dump".into()))
            } else {
                None
            };
            put(&mut s.machine.dump, Ok(dump))
        },
    },
    Row {
        name: "trace.graph_diagram",
        torch: None,
        kind: BOOL,
        default: "false",
        variable: "KILN_GRAPH_DIAGRAM",
        of: Of::Both,
        summary: "also writes the graph of launches to graph.svg in the dump, with the folder kiln_dump where none is named",
        set: |s, t| {
            s.machine.diagram = flag(t)?;
            if s.machine.diagram {
                s.machine.dump.get_or_insert_with(|| "kiln_dump".into());
            }
            Ok(vec![])
        },
    },
    Row {
        name: "weights",
        torch: None,
        kind: "a folder",
        default: "that of the model",
        variable: "KILN_WEIGHTS",
        of: Of::Both,
        summary: "where the files are whose weights a model names, such as the .pt2 archive of IR that is resumed in another folder",
        set: |s, t| put(&mut s.machine.weights, Ok(Some(t.into()))),
    },
    Row {
        name: "reproducer",
        torch: None,
        kind: "a folder, or off",
        default: "the temporary folder for the commands of kiln, off else",
        variable: "KILN_REPRODUCER",
        of: Of::Both,
        summary: "where the IR and the pipeline of a pass that fails are written, for kiln-opt --run-reproducer; with dump into the dump",
        set: |s, t| put(&mut s.machine.reproducer, Ok((t != "off").then(|| t.into()))),
    },
    Row {
        name: "verify",
        torch: None,
        kind: BOOL,
        default: "in debug builds",
        variable: "KILN_VERIFY",
        of: Of::Both,
        summary: "runs MLIR's verifier after every pass",
        set: |s, t| put(&mut s.machine.verify, flag(t)),
    },
    Row {
        name: "passes",
        torch: Some("post_grad_custom_pre_pass"),
        kind: PASSES,
        default: "none",
        variable: "KILN_PASSES",
        of: Of::Both,
        summary: "passes, such as one's own, that run as soon as a graph is on a level, or behind each run of a pass",
        set: |s, t| {
            put(&mut s.machine.passes, Own::parse(t).map_err(|e| format!("{}: {e}", not(PASSES))))
        },
    },
    Row {
        name: "tf32",
        torch: Some("allow_tf32"),
        kind: BOOL,
        default: "false",
        variable: "KILN_TF32",
        of: Of::Both,
        summary: "rounds factors of products of f32 to tf32 on a GPU, for its tensor cores",
        set: |s, t| put(&mut s.machine.tf32, flag(t)),
    },
    Row {
        name: "fast_math",
        torch: Some("cuda.use_fast_math"),
        kind: BOOL,
        default: "false",
        variable: "KILN_FAST_MATH",
        of: Of::Both,
        summary: "computes functions of f32 on a GPU by its approximations (`kiln-gpu-math` states their errors)",
        set: |s, t| put(&mut s.machine.fast_math, flag(t)),
    },
    Row {
        name: "cudagraphs",
        torch: Some("triton.cudagraphs"),
        kind: BOOL,
        default: "as the mode says",
        variable: "KILN_CUDAGRAPHS",
        of: Of::Both,
        summary: "runs a program on a GPU as a CUDA graph; on the host the memory of a function's results is used again, and a file is refused",
        set: |s, t| {
            put(
                &mut s.machine.mode,
                flag(t).map(|on| if on { cuda::Mode::ReduceOverhead } else { cuda::Mode::Default }),
            )
        },
    },
    Row {
        name: "cuda_blocking",
        torch: None,
        kind: BOOL,
        default: "false",
        variable: "KILN_CUDA_BLOCKING",
        of: Of::Both,
        summary: "waits for each launch on a GPU, so that a fault names its kernel",
        set: |s, t| put(&mut s.machine.blocking, flag(t)),
    },
    Row {
        name: "nvtx",
        torch: None,
        kind: BOOL,
        default: "false",
        variable: "KILN_NVTX",
        of: Of::Both,
        summary: "marks calls and launches on a GPU for profilers",
        set: |s, t| put(&mut s.machine.nvtx, flag(t)),
    },
    Row {
        name: "max_autotune",
        torch: None,
        kind: BOOL,
        default: "as the mode says",
        variable: "KILN_MAX_AUTOTUNE",
        of: Of::Both,
        summary: "measures several schedules of each kernel that no table has while compiling, and takes the fastest whose results are those of the default",
        set: |s, t| put(&mut s.machine.max_autotune, flag(t)),
    },
    Row {
        name: "autotune_budget",
        torch: None,
        kind: SECONDS,
        default: "60",
        variable: "KILN_AUTOTUNE_BUDGET",
        of: Of::Both,
        summary: "how long a program's schedules are measured with max_autotune; kernels that are left keep their default, and are measured the next time",
        set: |s, t| put(&mut s.machine.autotune_budget, seconds(t)),
    },
    Row {
        name: "schedules",
        torch: None,
        kind: "a file that kiln tune has made",
        default: "none, with max_autotune autotune.txt in the cache folder",
        variable: "KILN_AUTOTUNE_CACHE",
        of: Of::Both,
        summary: "schedules of kernels that were measured; with max_autotune the file that they are added to",
        set: |s, t| put(&mut s.machine.schedules, Ok(Some(t.into()))),
    },
    Row {
        name: "shape_padding",
        torch: None,
        kind: BOOL,
        default: "true",
        variable: "KILN_SHAPE_PADDING",
        of: Of::Both,
        summary: "pads products on GPUs to depths that their tensor cores can read (`kiln-pad-products`)",
        set: |s, t| without(s, PAD_PRODUCTS, t),
    },
    Row {
        name: "prologue_fusion",
        torch: None,
        kind: BOOL,
        default: "true",
        variable: "KILN_PROLOGUE_FUSION",
        of: Of::Both,
        summary: "computes what precedes a product's left operand in the product's kernel, on GPUs and where it pays (`kiln-prologues`)",
        set: |s, t| without(s, PROLOGUES, t),
    },
    Row {
        name: "dynamic",
        torch: None,
        kind: DYNAMIC,
        default: "auto",
        variable: "KILN_DYNAMIC",
        of: Of::Functions,
        summary: "whether sizes are symbols: all, none, or those that have changed between calls",
        set: |s, t| {
            put(
                &mut s.dynamic,
                if t == "auto" { Ok(None) } else { flag(t).map(Some).map_err(|_| not(DYNAMIC)) },
            )
        },
    },
    Row {
        name: "fullgraph",
        torch: None,
        kind: BOOL,
        default: "false",
        variable: "KILN_FULLGRAPH",
        of: Of::Functions,
        summary: "makes a graph break an error",
        set: |s, t| put(&mut s.fullgraph, flag(t)),
    },
    Row {
        name: "backend",
        torch: None,
        kind: "a name of list_backends()",
        default: "kiln",
        variable: "KILN_BACKEND",
        of: Of::Functions,
        summary: "what makes captured graphs run; one of one's own is registered before it is named",
        set: |s, t| put(&mut s.backend, backend::find(t).map(|_| t.into()).map_err(because)),
    },
    Row {
        name: "freeze",
        torch: Some("freezing"),
        kind: BOOL,
        default: "false",
        variable: "KILN_FREEZE",
        of: Of::Functions,
        summary: "makes weights of nn modules a part of the program, to be packed and folded, as those of files are",
        set: |s, t| put(&mut s.freeze, flag(t)),
    },
    Row {
        name: "disable",
        torch: None,
        kind: BOOL,
        default: "false",
        variable: "KILN_DISABLE",
        of: Of::Functions,
        summary: "compiles nothing: functions are called as they are",
        set: |s, t| put(&mut s.disable, flag(t)),
    },
    Row {
        name: "cache_size_limit",
        torch: None,
        kind: COUNT,
        default: "8",
        variable: "KILN_CACHE_SIZE_LIMIT",
        of: Of::Functions,
        summary: "how many programs a function has at most; a call that needs one more runs op by op, with one warning",
        set: |s, t| put(&mut s.cache_size_limit, number(t, usize::MAX, COUNT)),
    },
    Row {
        name: "asynchronous",
        torch: None,
        kind: BOOL,
        default: "false",
        variable: "KILN_ASYNCHRONOUS",
        of: Of::Functions,
        summary: "compiles on a thread of its own: calls run op by op until their program is there",
        set: |s, t| put(&mut s.asynchronous, flag(t)),
    },
    Row {
        name: "keep_graphs",
        torch: None,
        kind: BOOL,
        default: "false",
        variable: "KILN_KEEP_GRAPHS",
        of: Of::Functions,
        summary: "keeps the captured graphs as text, which explain() prints",
        set: |s, t| put(&mut s.keep_graphs, flag(t)),
    },
    Row {
        name: "break_each_op",
        torch: None,
        kind: BOOL,
        default: "false",
        variable: "KILN_BREAK_EACH_OP",
        of: Of::Functions,
        summary: "ends the graph behind every op, so that each has a program of its own: where results change with it, fusion has changed them",
        set: |s, t| put(&mut s.each_op, flag(t)),
    },
];

/// Modes, and the options that they set.
pub(super) const MODES: &[(&str, &[(&str, &str)])] = &[
    ("default", &[]),
    ("reduce-overhead", &[("cudagraphs", "true")]),
    ("max-autotune", &[("max_autotune", "true"), ("cudagraphs", "true")]),
    ("max-autotune-no-cudagraphs", &[("max_autotune", "true")]),
];
