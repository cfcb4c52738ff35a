//! The option table.
use super::{
    Settings, passes,
    values::{
        ALIGN, AUTOCAST, BOOL, BYTES, COUNT, DEVICE, DYNAMIC, FLOAT8, PASSES, SECONDS, SetResult,
        THREADS, align, assign, expected, flag, invalid, number, seconds, without,
    },
};
use crate::{
    backend,
    lowering::{
        Target,
        kernels::{pad_products::PadProducts, prologues::Prologues},
    },
    model::CachePolicy,
    passes::Pass,
    runtime::{DeviceId, cache, cuda, pool::MAX_THREADS},
};
use std::path::Path;

/// Scope of an option.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum AppliesTo {
    /// Files and compiled functions.
    Both,
    /// Compiled functions alone.
    Functions,
}

/// An option.
pub(super) struct Row {
    pub name: &'static str,
    /// torch's name, if it differs.
    pub torch: Option<&'static str>,
    pub kind: &'static str,
    pub default: &'static str,
    pub variable: &'static str,
    pub applies_to: AppliesTo,
    pub summary: &'static str,
    pub set: fn(&mut Settings, &str) -> SetResult,
}

/// Flags of the passes that options enable.
const PAD_PRODUCTS: &str = PadProducts::FLAG;
const PROLOGUES: &str = Prologues::FLAG;
/// In the order in which environment variables apply: a mode before the options that it sets.
pub(super) const ROWS: &[Row] = &[
    Row {
        name: "mode",
        torch: None,
        kind: "default, reduce-overhead, max-autotune or max-autotune-no-cudagraphs",
        default: "default",
        variable: "KILN_MODE",
        applies_to: AppliesTo::Both,
        summary: "optimisation mode: a named set of options",
        set: |s, t| s.set_mode(t).map_err(invalid),
    },
    Row {
        name: "device",
        torch: None,
        kind: DEVICE,
        default: "cpu",
        variable: "KILN_DEVICE",
        applies_to: AppliesTo::Both,
        summary: "device that programs run on; eager ops run on the host",
        set: |s, t| assign(&mut s.options.device, DeviceId::parse(t).map_err(|_| expected(DEVICE))),
    },
    Row {
        name: "target",
        torch: None,
        kind: "a processor, such as x86_64:haswell or cuda:sm_90a",
        default: "what the device is",
        variable: "KILN_TARGET",
        applies_to: AppliesTo::Both,
        summary: "target that code is compiled for",
        set: |s, t| {
            assign(&mut s.options.target, Target::parse(t).map(|_| Some(t.into())).map_err(invalid))
        },
    },
    Row {
        name: "threads",
        torch: None,
        kind: THREADS,
        default: "all processors",
        variable: "KILN_NUM_THREADS",
        applies_to: AppliesTo::Both,
        summary: "threads that run a call",
        set: |s, t| assign(&mut s.options.threads, number(t, MAX_THREADS, THREADS)),
    },
    Row {
        name: "compile_threads",
        torch: None,
        kind: THREADS,
        default: "all processors",
        variable: "KILN_COMPILE_THREADS",
        applies_to: AppliesTo::Both,
        summary: "threads that compile kernels",
        set: |s, t| assign(&mut s.options.workers, number(t, MAX_THREADS, THREADS)),
    },
    Row {
        name: "time_budget",
        torch: None,
        kind: SECONDS,
        default: "none",
        variable: "KILN_TIME_BUDGET",
        applies_to: AppliesTo::Both,
        summary: "time limit of one compilation; a function that exceeds it runs op by op from then on, with one warning; for a file it is an error",
        set: |s, t| assign(&mut s.options.time_budget, seconds(t).map(Some)),
    },
    Row {
        name: "cache_dir",
        torch: None,
        kind: "a folder, or off",
        default: "kiln in the XDG cache folder",
        variable: "KILN_CACHE_DIR",
        applies_to: AppliesTo::Both,
        summary: "directory of the compile cache, shared by processes",
        set: |s, t| {
            let dir = |t| {
                cache::default_dir(Some(Path::new(t))).map_or(CachePolicy::Off, CachePolicy::Dir)
            };
            assign(&mut s.options.cache, Ok(if t == "off" { CachePolicy::Off } else { dir(t) }))
        },
    },
    Row {
        name: "cache_size",
        torch: None,
        kind: BYTES,
        default: "4G",
        variable: "KILN_CACHE_SIZE",
        applies_to: AppliesTo::Both,
        summary: "size limit of the compile cache; the least recently used entries are evicted",
        set: |s, t| {
            assign(&mut s.options.cache_bytes, cache::parse_bytes(t).ok_or_else(|| expected(BYTES)))
        },
    },
    Row {
        name: "dump",
        torch: None,
        kind: "a folder",
        default: "none",
        variable: "KILN_DUMP",
        applies_to: AppliesTo::Both,
        summary: "each compilation writes its IR, kernels, timings and an HTML viewer to a folder in it",
        set: |s, t| assign(&mut s.options.dump, Ok((!t.is_empty()).then(|| t.into()))),
    },
    Row {
        name: "trace.enabled",
        torch: None,
        kind: BOOL,
        default: "false",
        variable: "KILN_TRACE_ENABLED",
        applies_to: AppliesTo::Both,
        summary: "enables dump, by default to kiln_dump; false disables it",
        set: |s, t| {
            let dump = if flag(t)? {
                s.options.dump.take().or_else(|| Some("kiln_dump".into()))
            } else {
                None
            };
            assign(&mut s.options.dump, Ok(dump))
        },
    },
    Row {
        name: "trace.graph_diagram",
        torch: None,
        kind: BOOL,
        default: "false",
        variable: "KILN_GRAPH_DIAGRAM",
        applies_to: AppliesTo::Both,
        summary: "adds the launch graph as graph.svg to the dump, which defaults to kiln_dump",
        set: |s, t| {
            s.options.diagram = flag(t)?;
            if s.options.diagram {
                s.options.dump.get_or_insert_with(|| "kiln_dump".into());
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
        applies_to: AppliesTo::Both,
        summary: "directory of the weight files that a model refers to, such as the .pt2 archive of IR that was moved",
        set: |s, t| assign(&mut s.options.weights, Ok(Some(t.into()))),
    },
    Row {
        name: "reproducer",
        torch: None,
        kind: "a folder, or off",
        default: "the temporary folder for the commands of kiln, off else",
        variable: "KILN_REPRODUCER",
        applies_to: AppliesTo::Both,
        summary: "directory for the reproducer (IR and pipeline) of a failing pass, for kiln-opt --run-reproducer; with dump it goes into the dump",
        set: |s, t| assign(&mut s.options.reproducer, Ok((t != "off").then(|| t.into()))),
    },
    Row {
        name: "verify",
        torch: None,
        kind: BOOL,
        default: "in debug builds",
        variable: "KILN_VERIFY",
        applies_to: AppliesTo::Both,
        summary: "runs MLIR's verifier after every pass",
        set: |s, t| assign(&mut s.options.verify, flag(t)),
    },
    Row {
        name: "passes",
        torch: Some("post_grad_custom_pre_pass"),
        kind: PASSES,
        default: "none",
        variable: "KILN_PASSES",
        applies_to: AppliesTo::Both,
        summary: "extra passes, such as user passes, run as soon as a graph is at a level, or after each run of a pass",
        set: passes::set_user_passes,
    },
    Row {
        name: "chunk_bytes",
        torch: None,
        kind: BYTES,
        default: "1G",
        variable: "KILN_CHUNK_BYTES",
        applies_to: AppliesTo::Both,
        summary: "most bytes of a product, such as the logits of a loss, that is stored as a whole; what reads the rows of larger ones is computed in chunks of rows (`kiln-chunk-rows`); 0 for no limit",
        set: passes::set_chunk_bytes,
    },
    Row {
        name: "autocast",
        torch: None,
        kind: AUTOCAST,
        default: "off",
        variable: "KILN_AUTOCAST",
        applies_to: AppliesTo::Both,
        summary: "casts the operands of f32 products to 16-bit floats, as `torch.autocast` does, also those of gradients; arguments and results keep their types (`kiln-autocast`)",
        set: passes::set_autocast,
    },
    Row {
        name: "float8",
        torch: None,
        kind: FLOAT8,
        default: "off",
        variable: "KILN_FLOAT8",
        applies_to: AppliesTo::Both,
        summary: "quantises the operands of large products of 16-bit floats to 8-bit floats, with one scale for a tensor or for each row along K (`kiln-float8-products`)",
        set: passes::set_float8,
    },
    Row {
        name: "tf32",
        torch: Some("allow_tf32"),
        kind: BOOL,
        default: "false",
        variable: "KILN_TF32",
        applies_to: AppliesTo::Both,
        summary: "rounds operands of f32 products to tf32 on a GPU, to use its tensor cores",
        set: |s, t| assign(&mut s.options.tf32, flag(t)),
    },
    Row {
        name: "fast_math",
        torch: Some("cuda.use_fast_math"),
        kind: BOOL,
        default: "false",
        variable: "KILN_FAST_MATH",
        applies_to: AppliesTo::Both,
        summary: "uses a GPU's approximate instructions for f32 math functions (`kiln-gpu-math` states their errors)",
        set: |s, t| assign(&mut s.options.fast_math, flag(t)),
    },
    Row {
        name: "cufft",
        torch: None,
        kind: BOOL,
        default: "false",
        variable: "KILN_CUFFT",
        applies_to: AppliesTo::Both,
        summary: "has cuFFT compute a GPU's Fourier transforms where it is found, else the host; by default they are kernels",
        set: |s, t| assign(&mut s.options.cufft, flag(t)),
    },
    Row {
        name: "align_random_eager",
        torch: None,
        kind: ALIGN,
        default: "false",
        variable: "KILN_ALIGN_RANDOM_EAGER",
        applies_to: AppliesTo::Both,
        summary: "draws the numbers of PyTorch's CUDA kernels, for the device's GPU or for one that runs so many threads at once (SMs times threads an SM); [which ops](torch.md#random-numbers) have them",
        set: |s, t| assign(&mut s.options.align_random_eager, align(t)),
    },
    Row {
        name: "cudagraphs",
        torch: Some("triton.cudagraphs"),
        kind: BOOL,
        default: "as the mode says",
        variable: "KILN_CUDAGRAPHS",
        applies_to: AppliesTo::Both,
        summary: "launches a program on a GPU as a CUDA graph; on the host a function's result buffers are reused, and a file is rejected",
        set: |s, t| {
            assign(
                &mut s.options.mode,
                flag(t).map(|on| if on { cuda::Mode::ReduceOverhead } else { cuda::Mode::Default }),
            )
        },
    },
    Row {
        name: "cudagraph_replay",
        torch: None,
        kind: BOOL,
        default: "true",
        variable: "KILN_CUDAGRAPH_REPLAY",
        applies_to: AppliesTo::Both,
        summary: "launches a program in the caller's memory, as of torch.compile, as a CUDA graph from its third call on, with the addresses of each call",
        set: |s, t| assign(&mut s.options.cudagraph_replay, flag(t)),
    },
    Row {
        name: "cuda_blocking",
        torch: None,
        kind: BOOL,
        default: "false",
        variable: "KILN_CUDA_BLOCKING",
        applies_to: AppliesTo::Both,
        summary: "synchronises after each launch on a GPU, so that a fault names its kernel",
        set: |s, t| assign(&mut s.options.blocking, flag(t)),
    },
    Row {
        name: "nvtx",
        torch: None,
        kind: BOOL,
        default: "false",
        variable: "KILN_NVTX",
        applies_to: AppliesTo::Both,
        summary: "annotates calls and launches on a GPU with NVTX ranges for profilers",
        set: |s, t| assign(&mut s.options.nvtx, flag(t)),
    },
    Row {
        name: "max_autotune",
        torch: None,
        kind: BOOL,
        default: "as the mode says",
        variable: "KILN_MAX_AUTOTUNE",
        applies_to: AppliesTo::Both,
        summary: "autotunes each kernel that no table has while compiling: takes the fastest schedule whose results match the default's",
        set: |s, t| assign(&mut s.options.max_autotune, flag(t)),
    },
    Row {
        name: "autotune_budget",
        torch: None,
        kind: SECONDS,
        default: "60",
        variable: "KILN_AUTOTUNE_BUDGET",
        applies_to: AppliesTo::Both,
        summary: "time budget of max_autotune per program; remaining kernels keep their default schedule, and are measured the next time",
        set: |s, t| assign(&mut s.options.autotune_budget, seconds(t)),
    },
    Row {
        name: "autotune_candidates",
        torch: None,
        kind: COUNT,
        default: "48",
        variable: "KILN_AUTOTUNE_CANDIDATES",
        applies_to: AppliesTo::Both,
        summary: "most schedules that max_autotune tries per kernel",
        set: |s, t| assign(&mut s.options.autotune_candidates, number(t, usize::MAX, COUNT)),
    },
    Row {
        name: "schedules",
        torch: None,
        kind: "a file that kiln tune has made",
        default: "none, with max_autotune autotune.txt in the cache folder",
        variable: "KILN_AUTOTUNE_CACHE",
        applies_to: AppliesTo::Both,
        summary: "table of measured schedules; with max_autotune new ones are added to it",
        set: |s, t| assign(&mut s.options.schedules, Ok(Some(t.into()))),
    },
    Row {
        name: "shape_padding",
        torch: None,
        kind: BOOL,
        default: "true",
        variable: "KILN_SHAPE_PADDING",
        applies_to: AppliesTo::Both,
        summary: "pads the K dimension of products on GPUs to what tensor cores can load (`kiln-pad-products`)",
        set: |s, t| without(s, PAD_PRODUCTS, t),
    },
    Row {
        name: "prologue_fusion",
        torch: None,
        kind: BOOL,
        default: "true",
        variable: "KILN_PROLOGUE_FUSION",
        applies_to: AppliesTo::Both,
        summary: "fuses the producers of a product's left operand as a prologue of its kernel, on GPUs and where profitable (`kiln-prologues`)",
        set: |s, t| without(s, PROLOGUES, t),
    },
    Row {
        name: "dynamic",
        torch: None,
        kind: DYNAMIC,
        default: "auto",
        variable: "KILN_DYNAMIC",
        applies_to: AppliesTo::Functions,
        summary: "dynamic shapes: all sizes symbolic, none, or those that have changed between calls",
        set: |s, t| {
            assign(
                &mut s.dynamic,
                if t == "auto" {
                    Ok(None)
                } else {
                    flag(t).map(Some).map_err(|_| expected(DYNAMIC))
                },
            )
        },
    },
    Row {
        name: "fullgraph",
        torch: None,
        kind: BOOL,
        default: "false",
        variable: "KILN_FULLGRAPH",
        applies_to: AppliesTo::Functions,
        summary: "makes a graph break an error",
        set: |s, t| assign(&mut s.fullgraph, flag(t)),
    },
    Row {
        name: "backend",
        torch: None,
        kind: "a name of list_backends()",
        default: "kiln",
        variable: "KILN_BACKEND",
        applies_to: AppliesTo::Functions,
        summary: "backend that compiles captured graphs; register a custom one before naming it",
        set: |s, t| assign(&mut s.backend, backend::find(t).map(|_| t.into()).map_err(invalid)),
    },
    Row {
        name: "freeze",
        torch: Some("freezing"),
        kind: BOOL,
        default: "false",
        variable: "KILN_FREEZE",
        applies_to: AppliesTo::Functions,
        summary: "freezes weights of nn modules into the program, for packing and constant folding, as those of files are",
        set: |s, t| assign(&mut s.freeze, flag(t)),
    },
    Row {
        name: "disable",
        torch: None,
        kind: BOOL,
        default: "false",
        variable: "KILN_DISABLE",
        applies_to: AppliesTo::Functions,
        summary: "compiles nothing: functions run eagerly",
        set: |s, t| assign(&mut s.disable, flag(t)),
    },
    Row {
        name: "cache_size_limit",
        torch: None,
        kind: COUNT,
        default: "8",
        variable: "KILN_CACHE_SIZE_LIMIT",
        applies_to: AppliesTo::Functions,
        summary: "maximum number of programs per function; a call that would need another recompilation runs op by op, with one warning",
        set: |s, t| assign(&mut s.cache_size_limit, number(t, usize::MAX, COUNT)),
    },
    Row {
        name: "asynchronous",
        torch: None,
        kind: BOOL,
        default: "false",
        variable: "KILN_ASYNCHRONOUS",
        applies_to: AppliesTo::Functions,
        summary: "compiles in a background thread; calls run op by op until their program is ready",
        set: |s, t| assign(&mut s.asynchronous, flag(t)),
    },
    Row {
        name: "donate",
        torch: None,
        kind: BOOL,
        default: "true",
        variable: "KILN_DONATE",
        applies_to: AppliesTo::Functions,
        summary: "results may be written to the memory of arguments that nothing else holds",
        set: |s, t| assign(&mut s.donate, flag(t)),
    },
    Row {
        name: "keep_graphs",
        torch: None,
        kind: BOOL,
        default: "false",
        variable: "KILN_KEEP_GRAPHS",
        applies_to: AppliesTo::Functions,
        summary: "keeps the captured graphs as text, for explain()",
        set: |s, t| assign(&mut s.keep_graphs, flag(t)),
    },
    Row {
        name: "break_each_op",
        torch: None,
        kind: BOOL,
        default: "false",
        variable: "KILN_BREAK_EACH_OP",
        applies_to: AppliesTo::Functions,
        summary: "breaks the graph after every op, so that each op is a program of its own; if results change with it, fusion has changed them",
        set: |s, t| assign(&mut s.each_op, flag(t)),
    },
];
