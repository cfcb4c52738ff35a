//! What became of a function: graphs, breaks, kernels, guards, times.
use super::{Arguments, Compiled, Function, Pack, Remark, Topic, lock, specialise::Code};
use crate::{Error, backend::Runnable};
use std::{fmt, sync::atomic::Ordering, time::Duration};

/// What became of a function. Prints as text.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// The function's name.
    pub name: String,
    /// Its programs, in the order in which calls ask them.
    pub graphs: Vec<GraphInfo>,
    /// Where graphs end before the function does.
    pub breaks: Vec<Break>,
    /// How often another program was made, and why.
    pub recompiles: Vec<Remark>,
    /// What else it has had to say.
    pub remarks: Vec<Remark>,
    /// Calls that ran op by op.
    pub eager_calls: u64,
}

/// One program.
#[derive(Clone, Debug, Default)]
pub struct GraphInfo {
    /// Its guards, one line each.
    pub guards: String,
    /// Its kernels, in order: name, and the ops that each does.
    pub kernels: Vec<(String, Vec<String>)>,
    /// Why kernels do not do more: kernel and reason.
    pub not_fused: Vec<(String, String)>,
    /// Bytes between kernels, where that is no symbol.
    pub arena: Option<i64>,
    /// Calls that it has run.
    pub calls: u64,
    /// What making it took: parts with their times.
    pub times: Vec<(String, Duration)>,
    /// The captured graph, if option `trace.graph_diagram` is on.
    pub text: String,
}

/// A graph break.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Break {
    /// Why.
    pub reason: String,
    /// The user's line.
    pub place: String,
}

/// Calls a function once, and says what became of it. Err: that of the call.
#[track_caller]
pub fn explain<F: Function<A>, A: Arguments>(function: F, arguments: impl Pack<A>) -> Result<Explanation, Error> {
    let compiled = super::compile(function);
    compiled.call(arguments)?;
    Ok(compiled.explain())
}

impl<F: Function<A>, A: Arguments> Compiled<F, A> {
    /// What has become of the function in the calls so far.
    pub fn explain(&self) -> Explanation {
        let (mut graphs, mut breaks) = (vec![], vec![]);
        for entry in self.state.entries.all().iter() {
            let Code::Graph(graph) = &entry.code else { continue };
            let mut info = GraphInfo {
                guards: entry.guards.to_string(),
                kernels: vec![],
                not_fused: vec![],
                arena: None,
                calls: entry.calls.load(Ordering::Relaxed),
                times: vec![("all".into(), entry.took)],
                text: graph.text.clone(),
            };
            info.describe(graph.program.as_deref());
            graphs.push(info);
        }
        if let Some(segments) = lock(&self.state.segments).as_ref() {
            for segment in lock(&segments.made).values() {
                let calls = segment.calls.load(Ordering::Relaxed);
                let mut info = GraphInfo { guards: "a segment between reads of values".into(), calls, ..Default::default() };
                info.describe(segment.prepared.program.as_deref());
                graphs.push(info);
            }
            let reason = "a value is read";
            breaks.extend(lock(&segments.reads).iter().map(|place| Break { reason: reason.into(), place: place.clone() }));
        }
        let (recompiles, remarks) = lock(&self.state.remarks).iter().cloned().partition(|r| r.topic == Topic::Recompiles);
        let eager_calls = self.state.eager.load(Ordering::Relaxed);
        Explanation { name: self.settings.name.clone(), graphs, breaks, recompiles, remarks, eager_calls }
    }
}

impl GraphInfo {
    /// Takes in what the backend knows of a program.
    fn describe(&mut self, made: Option<&dyn Runnable>) {
        if let Some(program) = made.and_then(|p| p.program()) {
            self.arena = program.arena.value(&[], &[]).ok();
            for k in program.parts().into_iter().flat_map(|p| &p.kernels) {
                self.kernels.push((k.name.clone(), k.ops.clone()));
                self.not_fused.extend(k.not_fused.iter().map(|why| (k.name.clone(), why.clone())));
            }
        }
        if let Some(times) = made.and_then(|p| p.times()) {
            let mut add = |name: &str, t: Duration| self.times.push((name.into(), t));
            add("capture", times.capture);
            if let Some(c) = &times.compile {
                add("passes on the graph", c.graph);
                add("kernels", c.kernels);
                add("host function", c.host);
            }
            add("link", times.link);
            add("weights", times.weights);
        }
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (graphs, breaks) = (self.graphs.len(), self.breaks.len());
        let plural = |n: usize, word: &str| format!("{n} {word}{}", if n == 1 { "" } else { "s" });
        let (graphs, breaks, again) = (plural(graphs, "graph"), plural(breaks, "graph break"), plural(self.recompiles.len(), "recompile"));
        writeln!(f, "{}: {graphs}, {breaks}, {again}", self.name)?;
        for (i, g) in self.graphs.iter().enumerate() {
            writeln!(f, "graph {i}: {}, {}", plural(g.kernels.len(), "kernel"), plural(g.calls as usize, "call"))?;
            g.guards.lines().try_for_each(|line| writeln!(f, "  guard {line}"))?;
            for (name, ops) in &g.kernels {
                writeln!(f, "  kernel {name}: {}", ops.join(", "))?;
            }
            g.not_fused.iter().try_for_each(|(name, why)| writeln!(f, "  not fused: {name}: {why}"))?;
            if let Some(bytes) = g.arena {
                writeln!(f, "  memory between kernels: {bytes} bytes")?;
            }
            g.times.iter().try_for_each(|(name, t)| writeln!(f, "  time {name}: {:.1} ms", t.as_secs_f64() * 1e3))?;
            g.text.lines().try_for_each(|line| writeln!(f, "  {line}"))?;
        }
        self.breaks.iter().try_for_each(|b| writeln!(f, "graph break at {}: {}", b.place, b.reason))?;
        if self.eager_calls > 0 {
            writeln!(f, "{} calls ran op by op", self.eager_calls)?;
        }
        self.recompiles.iter().chain(&self.remarks).try_for_each(|r| writeln!(f, "{r}"))
    }
}
