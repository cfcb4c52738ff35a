//! `explain`: graphs, graph breaks, guards, kernels and times of a compiled function.
use super::{
    Arguments, Compiled, Function, Pack, Remark, Topic, background::ProgramFuture, entry::EntryCode,
};
use crate::{
    Error,
    lowering::driver::compile::PassTime,
    model::{Times, random_input_symbols},
    runtime::{
        Program,
        program::{Global, Role, Symbol, Tensor},
        view::byte_size,
    },
    tensor::lock,
};
use std::{fmt, sync::atomic::Ordering, time::Duration};

/// Report on a compiled function. `Display` prints it as text.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// The function's name.
    pub name: String,
    /// Its programs, in the order in which calls check their guards.
    pub graphs: Vec<GraphInfo>,
    /// Graph breaks.
    pub breaks: Vec<GraphBreak>,
    /// Recompilations, and their reasons.
    pub recompiles: Vec<Remark>,
    /// Further remarks.
    pub remarks: Vec<Remark>,
    /// Calls that ran op by op.
    pub eager_calls: u64,
}

/// Report on one program.
#[derive(Clone, Debug, Default)]
pub struct GraphInfo {
    /// Its guards, one per line.
    pub guards: String,
    /// Why there is no compiled program, if there is none (option `asynchronous`).
    pub missing: String,
    /// Its kernels in launch order: name, and the graph ops fused into each.
    pub kernels: Vec<(String, Vec<String>)>,
    /// Missed fusions: kernel and reason.
    pub not_fused: Vec<(String, String)>,
    /// What passes did or missed, such as casts, with the source locations of the ops.
    pub remarks: Vec<(String, Vec<String>)>,
    /// Strategy of each kernel, in the same order.
    pub kinds: Vec<String>,
    /// Arena bytes for intermediate buffers: a number, or an expression of symbols. A long
    /// expression is evaluated at example sizes, such as `at s0 = 8, 4096`.
    pub arena: String,
    /// Bytes of weights as stored, and of constants computed from them at load time.
    pub weights: (u64, u64),
    /// Results that calls have written to the memory of donated arguments and weights.
    pub donations: u64,
    /// Arguments that are copied unless their strides match the compiled layout, and copies that
    /// calls made.
    pub copies: Vec<String>,
    /// What prevents a CUDA graph; GPU programs only.
    pub cudagraphs: Vec<String>,
    /// Messages of autotuning.
    pub tuning: Vec<String>,
    /// Time of each pass, if it was compiled in this process. Times of kernel passes are summed
    /// over threads.
    pub passes: Vec<PassTime>,
    /// Number of calls that it served.
    pub calls: u64,
    /// Compile-time breakdown.
    pub times: Vec<(String, Duration)>,
    /// The captured graph as text, with option `keep_graphs`.
    pub text: String,
}

/// A graph break.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GraphBreak {
    /// The reason.
    pub reason: String,
    /// The user's source line.
    pub location: String,
}

/// Calls a function once, and reports on it. Err: the call failed.
#[track_caller]
pub fn explain<F: Function<A>, A: Arguments>(
    function: F,
    arguments: impl Pack<A>,
) -> Result<Explanation, Error> {
    let compiled = super::compile(function);
    compiled.call(arguments)?;
    Ok(compiled.explain())
}

impl<F: Function<A>, A: Arguments> Compiled<F, A> {
    /// Reports on the function's calls so far.
    pub fn explain(&self) -> Explanation {
        let (mut graphs, mut breaks) = (vec![], vec![]);
        for entry in self.state.entries.all().iter() {
            let EntryCode::Graph(graph) = &entry.code else { continue };
            let mut info = GraphInfo {
                guards: entry.guards.to_string(),
                calls: entry.calls.load(Ordering::Relaxed),
                times: vec![("all".into(), entry.compile_time)],
                text: graph.text.clone(),
                donations: graph.donations.load(Ordering::Relaxed),
                ..Default::default()
            };
            info.describe(graph.program.as_deref());
            graphs.push(info);
        }
        if let Some(segments) = lock(&self.state.segments).as_ref() {
            for segment in lock(&segments.programs).iter() {
                let calls = segment.calls.load(Ordering::Relaxed);
                let mut info = GraphInfo {
                    guards: "a segment between graph breaks".into(),
                    calls,
                    ..Default::default()
                };
                info.describe(segment.prepared.program.as_deref());
                graphs.push(info);
            }
            breaks.extend(
                segments
                    .reads()
                    .into_iter()
                    .map(|(location, why)| GraphBreak { reason: why.text().into(), location }),
            );
        }
        let (recompiles, remarks) =
            lock(&self.state.remarks).iter().cloned().partition(|r| r.topic == Topic::Recompiles);
        let eager_calls = self.state.eager.load(Ordering::Relaxed);
        Explanation {
            name: self.settings.name.clone(),
            graphs,
            breaks,
            recompiles,
            remarks,
            eager_calls,
        }
    }
}

impl GraphInfo {
    /// Reports on a program that need not have been called: its inputs as guards, and static
    /// CUDA-graph blockers.
    pub fn of(program: &Program, times: Option<&Times>) -> GraphInfo {
        let mut info = GraphInfo {
            guards: accepted_inputs(program),
            cudagraphs: blockers(program),
            ..GraphInfo::default()
        };
        info.program(program);
        if let Some(times) = times {
            info.times(times);
        }
        info
    }
    /// Adds what the backend reports about a program.
    fn describe(&mut self, made: Option<&ProgramFuture>) {
        let made = match made.map(|m| m.get()) {
            None => return,
            Some(None) => {
                return self.missing =
                    "is being compiled by another thread; its calls run op by op".into();
            }
            Some(Some(Err(e))) => {
                return self.missing = format!("was not compiled, and its calls run op by op: {e}");
            }
            Some(Some(Ok(made))) => made,
        };
        if let Some(program) = made.program() {
            self.program(program);
        }
        if let Some(times) = made.times() {
            self.times(times);
        }
        let (copies, others): (Vec<String>, Vec<String>) =
            made.remarks().into_iter().partition(|r| r.contains("copied"));
        self.copies.extend(copies.clone());
        self.cudagraphs.extend(copies.into_iter().chain(others));
    }
    fn program(&mut self, program: &Program) {
        self.arena = arena(program);
        for k in program.parts().into_iter().flat_map(|p| &p.kernels) {
            self.kernels.push((k.name.clone(), k.ops.clone()));
            self.kinds.push(k.kind.clone());
            self.not_fused.extend(k.not_fused.iter().map(|why| (k.name.clone(), why.clone())));
        }
        for remark in &program.remarks {
            let at = self.remarks.iter().position(|(text, _)| *text == remark.text);
            let at = at.unwrap_or_else(|| {
                self.remarks.push((remark.text.clone(), vec![]));
                self.remarks.len() - 1
            });
            self.remarks[at].1.push(remark.source.clone());
        }
        let bytes =
            |g: &Global| g.shape.iter().product::<u64>() * byte_size(&g.dtype).unwrap_or(1) as u64;
        let sum = |p: &Program, packed: bool| {
            p.globals.iter().filter(|g| (g.role == Role::Packed) == packed).map(bytes).sum::<u64>()
        };
        let read = |p: &Program| sum(p, false) + p.prepare.as_deref().map_or(0, |p| sum(p, false));
        let parts = program.parts();
        self.weights =
            (parts.iter().map(|p| read(p)).sum(), parts.iter().map(|p| sum(p, true)).sum());
        for t in program.inputs.iter().filter(|t| !t.order.is_empty()) {
            self.copies.push(format!(
                "argument '{}' is read with its dimensions in the order {:?}, the outermost first; in any other it is copied",
                t.name, t.order
            ));
        }
    }
    fn times(&mut self, times: &Times) {
        self.tuning.extend(times.tuning.iter().cloned());
        let mut add = |name: &str, t: Duration| self.times.push((name.into(), t));
        add("measuring schedules", times.autotuning);
        add("capture", times.capture);
        if let Some(c) = &times.compile {
            add("passes on the graph", c.graph);
            add("kernels", c.kernels);
            add("host function", c.host);
        }
        add("link", times.link);
        add("weights", times.weights);
        self.passes = times.compile.as_ref().map_or(vec![], |c| c.passes.clone());
        self.passes.sort_by_key(|p| std::cmp::Reverse(p.time));
    }
}

/// Arena bytes; a long expression is evaluated at typical sizes, with its free symbols.
fn arena(program: &Program) -> String {
    const LONG: usize = 60;
    let text = program.size_text(program.arena);
    if text.len() <= LONG {
        return text;
    }
    let symbols = random_input_symbols(program);
    let exprs = program.expr_values(&symbols).unwrap_or_default();
    let Ok(bytes) = program.arena.value(&symbols, &exprs) else { return text };
    let named = program.symbols.iter().zip(&symbols).filter(|(s, _)| mentions(&text, &s.name));
    let at: Vec<String> = named.map(|(s, n)| format!("{} = {n}", s.name)).collect();
    format!("at {}, {bytes}", at.join(", "))
}

/// Whether an expression's text mentions this name.
fn mentions(text: &str, name: &str) -> bool {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').any(|word| word == name)
}

/// What a program accepts, one per line: arguments with sizes, symbol ranges, conditions.
fn accepted_inputs(p: &Program) -> String {
    let name = |i: usize| p.inputs.get(i).map_or("an argument", |t| t.name.as_str());
    let argument = |t: &Tensor| {
        let sizes: Vec<String> = t.dims.iter().map(|d| p.size_text(*d)).collect();
        format!("{}: {}[{}]", t.name, t.dtype, sizes.join(", "))
    };
    let symbol =
        |s: &Symbol| format!("{} = {}.size({}) in {}", s.name, name(s.input), s.dim, s.range());
    let all = p
        .inputs
        .iter()
        .map(argument)
        .chain(p.symbols.iter().map(symbol))
        .chain(p.conditions.iter().map(|c| c.text.clone()));
    all.collect::<Vec<_>>().join("\n")
}

/// Static CUDA-graph blockers of a program, or parts of a call outside the graph. Blockers seen by
/// calls are in `runtime/src/cuda/call.rs`.
fn blockers(p: &Program) -> Vec<String> {
    if !p.target.is_cuda() {
        return vec![format!("the program is for {}, and CUDA graphs are for GPUs", p.target.arch)];
    }
    let mut all = vec![];
    if p.kernels.is_empty() {
        all.push("it launches no kernel".to_string());
    }
    for (what, tensors) in [("argument", &p.inputs), ("result", &p.outputs)] {
        let names: Vec<String> = tensors.iter().map(|t| format!("'{}'", t.name)).collect();
        if !names.is_empty() {
            let why = "is copied outside of it where it lies in the host's memory, or not at a multiple of 16 bytes";
            all.push(format!("{what} {} {why}", names.join(", ")));
        }
    }
    if !p.symbols.is_empty() {
        let names: Vec<&str> = p.symbols.iter().map(|s| s.name.as_str()).collect();
        all.push(format!(
            "calls with other values of {} have a graph of their own",
            names.join(", ")
        ));
    }
    all
}

/// Number of source locations printed of a remark.
const PLACES: usize = 4;

/// Number of passes printed.
const PASSES: usize = 12;

impl fmt::Display for GraphInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.guards.lines().try_for_each(|line| writeln!(f, "  guard {line}"))?;
        if !self.missing.is_empty() {
            writeln!(f, "  {}", self.missing)?;
        }
        for ((name, ops), kind) in self.kernels.iter().zip(&self.kinds) {
            writeln!(f, "  kernel {name} ({kind}): {}", ops.join(", "))?;
        }
        self.not_fused
            .iter()
            .try_for_each(|(name, why)| writeln!(f, "  not fused: {name}: {why}"))?;
        for (text, sources) in &self.remarks {
            let times =
                if sources.len() == 1 { "once".into() } else { format!("{} times", sources.len()) };
            let mut places: Vec<&str> = vec![];
            for source in sources.iter().filter(|s| !s.is_empty()) {
                if !places.contains(&source.as_str()) {
                    places.push(source);
                }
            }
            let more = if places.len() > PLACES { ", …" } else { "" };
            places.truncate(PLACES);
            let at = if places.is_empty() {
                String::new()
            } else {
                format!(" at {}{more}", places.join(", "))
            };
            writeln!(f, "  remark: {text}, {times}{at}")?;
        }
        if !self.arena.is_empty() {
            writeln!(
                f,
                "  memory between kernels: {} bytes; weights: {} bytes, and {} made of them once",
                self.arena, self.weights.0, self.weights.1
            )?;
        }
        if self.donations > 0 {
            let n = self.donations;
            writeln!(f, "  donated: {n} results were written to the memory of arguments")?;
        }
        self.copies.iter().try_for_each(|c| writeln!(f, "  copy: {c}"))?;
        self.cudagraphs
            .iter()
            .try_for_each(|c| writeln!(f, "  no CUDA graph, or not all of the call: {c}"))?;
        self.tuning.iter().try_for_each(|t| writeln!(f, "  autotune: {t}"))?;
        self.times.iter().try_for_each(|(name, t)| {
            writeln!(f, "  time {name}: {:.1} ms", t.as_secs_f64() * 1e3)
        })?;
        for p in self.passes.iter().take(PASSES) {
            let runs = if p.runs == 1 { String::new() } else { format!(" in {} runs", p.runs) };
            writeln!(f, "  time of pass {}: {:.2} ms{runs}", p.pass, p.time.as_secs_f64() * 1e3)?;
        }
        self.text.lines().try_for_each(|line| writeln!(f, "  {line}"))
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (graphs, breaks) = (self.graphs.len(), self.breaks.len());
        let plural = |n: usize, word: &str| format!("{n} {word}{}", if n == 1 { "" } else { "s" });
        let (graphs, breaks, again) = (
            plural(graphs, "graph"),
            plural(breaks, "graph break"),
            plural(self.recompiles.len(), "recompile"),
        );
        writeln!(f, "{}: {graphs}, {breaks}, {again}", self.name)?;
        for (i, g) in self.graphs.iter().enumerate() {
            writeln!(
                f,
                "graph {i}: {}, {}",
                plural(g.kernels.len(), "kernel"),
                plural(g.calls as usize, "call")
            )?;
            write!(f, "{g}")?;
        }
        self.breaks
            .iter()
            .try_for_each(|b| writeln!(f, "graph break at {}: {}", b.location, b.reason))?;
        if self.eager_calls > 0 {
            writeln!(f, "{} calls ran op by op", self.eager_calls)?;
        }
        self.recompiles.iter().chain(&self.remarks).try_for_each(|r| writeln!(f, "{r}"))
    }
}
