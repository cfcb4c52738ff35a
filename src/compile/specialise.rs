//! From a call to a program: trace with a plan, state guards, compile; with fewer symbols where the function contradicts them.
use super::{
    plan::{Plan, PlanDim, PlanLeaf},
    remark::Topic,
    settings::Settings,
    tree::Leaf,
};
use crate::{
    Error,
    backend::{Backend, GraphModule, Runnable},
    dialects::{
        ir::Context,
        ops::{CompareKind, SymKind},
        sym::{Atom, Dim as SymDim},
    },
    lowering::{
        compile::CompileError,
        host::interface::{expr_kind, relation},
        sizes::MakeSize,
    },
    nn::parameter::Stored,
    runtime::{
        Guards,
        guards::{Given, Scalar},
        program::{Dim, Expr},
    },
    tensor::{Array, Graph, OpError, Recorded, Session, Slot, Tensor, TraceError, has_effects, pick, record},
};
use std::{
    collections::HashMap,
    panic::{AssertUnwindSafe, Location, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// One program with its guards.
pub(super) struct Entry {
    pub guards: Guards,
    /// Weights that are part of the program, and how often they had been changed.
    frozen: Vec<(Arc<Stored>, u64)>,
    pub code: Code,
    /// Calls that it has run.
    pub calls: AtomicU64,
    /// What making it took.
    pub took: Duration,
}

/// How an entry runs.
pub(super) enum Code {
    Graph(Graphed),
    /// In segments, since the function reads a value.
    Segments,
}

/// A captured function.
pub(super) struct Graphed {
    /// None if nothing has to be computed.
    pub program: Option<Arc<dyn Runnable>>,
    /// Weights that are read anew by every call, behind the arguments.
    lifted: Vec<Arc<Stored>>,
    results: Vec<ResultLeaf>,
    /// The captured graph as text, if it is kept.
    pub text: String,
}

/// A leaf of what the function gives.
enum ResultLeaf {
    Tensor(Slot),
    Scalar(Scalar),
}

/// Why there is no entry.
pub(super) enum Failed {
    /// The function reads a value.
    Read(OpError),
    Error(Error),
}

impl From<Error> for Failed {
    fn from(e: Error) -> Failed {
        Failed::Error(e)
    }
}

impl Entry {
    pub fn in_segments(guards: Guards, took: Duration) -> Entry {
        Entry { guards, frozen: vec![], code: Code::Segments, calls: AtomicU64::new(0), took }
    }
    /// Whether the weights in the program are those of now.
    pub fn is_current(&self) -> bool {
        self.frozen.iter().all(|(w, version)| w.version() == *version)
    }
    /// The name of a weight that has been changed.
    pub fn stale(&self) -> Option<&str> {
        self.frozen.iter().find(|(w, version)| w.version() != *version).map(|(w, _)| w.name.as_str())
    }
}

impl Graphed {
    /// The leaves of the results for arguments that meet the guards; `given` are the same as guards see them.
    pub fn run(&self, leaves: &[Leaf], given: &[Given]) -> Result<Vec<Leaf>, Error> {
        let lifted = self.lifted.iter().map(|w| w.array().ok_or_else(|| Error::Weight(format!("weight {} has no value", w.name))));
        let lifted = lifted.collect::<Result<Vec<Arc<Array>>, _>>()?;
        let results: Vec<Arc<Array>> = match &self.program {
            None => vec![],
            Some(program) => {
                let mut views = Vec::with_capacity(given.len() + lifted.len());
                views.extend(given.iter().filter_map(|g| if let Given::Tensor(view) = g { Some(*view) } else { None }));
                views.extend(lifted.iter().map(|a| a.as_view()));
                program.run(&views)?.into_iter().map(Arc::new).collect()
            }
        };
        let input = |n| leaves.iter().filter_map(super::plan::array).chain(&lifted).nth(n).cloned();
        let leaf = |r: &ResultLeaf| match r {
            ResultLeaf::Scalar(s) => Ok(Leaf::Scalar(*s)),
            ResultLeaf::Tensor(slot) => Ok(Leaf::Tensor(pick(slot, &results, input).map_err(Error::Backend)?.into())),
        };
        self.results.iter().map(leaf).collect()
    }
}

/// What makes entries of a function.
pub(super) struct Maker<'a> {
    pub name: &'a str,
    pub settings: &'a Settings,
    pub backend: &'a dyn Backend,
    pub place: &'static Location<'static>,
    /// What people call the leaves.
    pub names: &'a [String],
    /// The function, on traced leaves.
    pub function: &'a dyn Fn(Vec<Leaf>) -> Result<Vec<Leaf>, TraceError>,
    pub remark: &'a dyn Fn(Topic, String),
}

/// What a trace gave, before it is compiled.
struct Trial {
    recorded: Recorded,
    results: Vec<ResultLeaf>,
    /// Dropped behind the module.
    _context: Context,
}

impl Maker<'_> {
    /// The entry for a plan, and the places of sizes that have to stay numbers.
    pub fn make(&self, plan: &Plan) -> Result<(Entry, Vec<(usize, usize)>), Failed> {
        let start = Instant::now();
        let mut pinned = vec![];
        let mut plan = plan.clone();
        loop {
            let tried = self.trace(&plan).and_then(|trial| match contradicted(&trial.recorded.session, &plan) {
                Some(found) => Ok(Err(found)),
                None => self.finish(&plan, trial, start).map(Ok),
            });
            let used = plan.used();
            match tried {
                Ok(Ok(entry)) => return Ok((entry, pinned)),
                // Another answer to the function's own question has a program of its own, in which the size is a symbol again.
                Ok(Err((symbol, _, true))) => plan = plan.without(symbol),
                Ok(Err((symbol, why, false))) => self.pin(&mut plan, symbol, &why, &mut pinned),
                // Time that is over is not the symbols' fault.
                Err(Failed::Error(e)) if !used.is_empty() && !matches!(e, Error::Compile(CompileError::Stopped(_))) => {
                    let symbol = self.culprit(&plan, &used);
                    let why = e.to_string();
                    match symbol {
                        Some(symbol) => self.pin(&mut plan, symbol, &why, &mut pinned),
                        None => used.iter().for_each(|s| self.pin(&mut plan, *s, &why, &mut pinned)),
                    }
                }
                Err(e) => return Err(e),
            }
        }
    }

    /// The one symbol without which the function can be traced, if there is one.
    fn culprit(&self, plan: &Plan, used: &[usize]) -> Option<usize> {
        let mut alone =
            used.iter().copied().filter(|s| self.trace(&plan.without(*s)).is_ok_and(|t| contradicted(&t.recorded.session, plan).is_none()));
        if used.len() > 1 { alone.next() } else { used.first().copied() }
    }

    fn pin(&self, plan: &mut Plan, symbol: usize, why: &str, pinned: &mut Vec<(usize, usize)>) {
        let places = plan.places(symbol);
        let all: Vec<String> =
            places.iter().map(|(l, d)| format!("{}.size({d})", self.names.get(*l).map_or("?", String::as_str))).collect();
        let n = plan.symbols.get(symbol).map_or(0, |(_, n)| *n);
        let first = why.lines().next().unwrap_or(why);
        (self.remark)(Topic::Dynamic, format!("{} stays the number {n}, since the function needs it to be one: {first}", all.join(", ")));
        pinned.extend(places);
        *plan = plan.without(symbol);
    }

    fn trace(&self, plan: &Plan) -> Result<Trial, Failed> {
        let context = Context::new();
        let hints = plan.symbols.iter().map(|(s, n)| (s.name.clone(), *n as i64)).collect();
        let session = Session { hints, freeze: self.settings.freeze, ..Default::default() };
        let mut shape = vec![];
        let recorded = record(context.ctx(), self.place, session, |graph| {
            let leaves = inputs(graph, plan, self.names);
            // What a function expects of a number need not hold of a symbol; without symbols it is the caller who learns of a panic.
            let results = match plan.used().is_empty() {
                true => (self.function)(leaves)?,
                false => catch_unwind(AssertUnwindSafe(|| (self.function)(leaves)))
                    .unwrap_or_else(|_| Err(TraceError::User("the function panics where a size is a symbol".into())))?,
            };
            let mut tensors = vec![];
            for leaf in results {
                match leaf {
                    Leaf::Tensor(t) => {
                        shape.push(None);
                        tensors.push(t);
                    }
                    Leaf::Scalar(s) => shape.push(Some(s)),
                }
            }
            Ok(tensors)
        });
        let recorded = recorded.map_err(|e| match e {
            TraceError::Read(read) => Failed::Read(read),
            e => Failed::Error(e.into()),
        })?;
        let mut slots = recorded.slots.iter().cloned();
        let mut results = vec![];
        for leaf in shape {
            results.push(match leaf {
                Some(s) => ResultLeaf::Scalar(s),
                None => ResultLeaf::Tensor(slots.next().ok_or_else(|| Error::Backend("the trace has lost a result".into()))?),
            });
        }
        Ok(Trial { recorded, results, _context: context })
    }

    fn finish(&self, plan: &Plan, trial: Trial, start: Instant) -> Result<Entry, Failed> {
        let Recorded { captured, slots, session } = &trial.recorded;
        let mut guards = plan.guards(self.names.to_vec(), false);
        state(&mut guards, session).map_err(|e| Error::Backend(format!("a size of the function {e}")))?;
        let graph = GraphModule::new(self.name, captured);
        let text = if self.settings.keep_graphs { graph.text() } else { String::new() };
        let computed = slots.iter().any(|s| matches!(s, Slot::Result(_)));
        let program =
            if computed || has_effects(captured.module.op()) { Some(self.backend.compile(&graph, &self.settings.machine)?) } else { None };
        let (mut frozen, mut lifted) = (vec![], vec![]);
        for (weight, version, _) in &session.weights {
            match version {
                Some(version) => frozen.push((weight.clone(), *version)),
                None => lifted.push(weight.clone()),
            }
        }
        let code = Code::Graph(Graphed { program, lifted, results: trial.results, text });
        Ok(Entry { guards, frozen, code, calls: AtomicU64::new(0), took: start.elapsed() })
    }
}

impl Entry {
    pub fn count(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
    }
}

/// The leaves as inputs of a graph.
fn inputs(graph: &Graph, plan: &Plan, names: &[String]) -> Vec<Leaf> {
    let symbols: Vec<_> = plan
        .symbols
        .iter()
        .enumerate()
        // One that stands nowhere is no size of the program.
        .map(|(i, (s, _))| (!plan.places(i).is_empty()).then(|| graph.dim_by(&s.name, s.min..=s.max.unwrap_or(i64::MAX), s.divisor)))
        .collect();
    let one = |(leaf, name): (&PlanLeaf, &String)| match leaf {
        PlanLeaf::Scalar(s) => Leaf::Scalar(*s),
        PlanLeaf::Tensor(array, dims) => {
            let size = |d: &PlanDim| match d {
                PlanDim::Static(n) => (*n).into(),
                PlanDim::Symbol(i) => symbols.get(*i).copied().flatten().unwrap_or_else(|| 0.into()),
            };
            let dims: Vec<crate::tensor::Dim> = dims.iter().map(size).collect();
            let name: String = name.chars().map(|c| if c.is_alphanumeric() { c } else { '_' }).collect();
            Leaf::Tensor(graph.input(name.trim_end_matches('_'), array.dtype(), dims))
        }
    };
    plan.leaves.iter().zip(names).map(one).collect()
}

/// A symbol that the function takes to be a number, and where.
fn contradicted(session: &Session, plan: &Plan) -> Option<(usize, String, bool)> {
    session.assumed.iter().filter(|a| a.kind == CompareKind::Eq).find_map(|a| {
        let symbol = |d: &SymDim| plan.symbols.iter().position(|(s, _)| *d == SymDim::sym(&s.name));
        let (symbol, n) = match (a.lhs.known(), a.rhs.known()) {
            (None, Some(n)) => (symbol(&a.lhs)?, n),
            (Some(n), None) => (symbol(&a.rhs)?, n),
            _ => return None,
        };
        Some((symbol, format!("it has to be {n} in {}", a.text), a.asked))
    })
}

/// Writes what was decided during the trace into the guards.
fn state(guards: &mut Guards, session: &Session) -> Result<(), String> {
    let names: Vec<String> = guards.symbols.iter().map(|s| s.name.clone()).collect();
    let mut sizes = Sizes { names, exprs: vec![], known: HashMap::new() };
    for a in &session.assumed {
        let (lhs, rhs) = (sizes.make(&a.lhs)?, sizes.make(&a.rhs)?);
        let sign = match a.kind {
            CompareKind::Eq => "==",
            CompareKind::Ne => "!=",
            CompareKind::Lt => "<",
            CompareKind::Le => "<=",
            CompareKind::Gt => ">",
            CompareKind::Ge => ">=",
        };
        guards.condition(relation(a.kind), lhs, rhs, format!("{} {sign} {} ({})", a.lhs, a.rhs, a.text));
    }
    guards.exprs = sizes.exprs;
    Ok(())
}

/// Sizes as plain data.
struct Sizes {
    names: Vec<String>,
    exprs: Vec<Expr>,
    known: HashMap<SymDim, Dim>,
}

impl MakeSize for Sizes {
    type Made = Dim;
    fn number(&mut self, n: i64) -> Result<Dim, String> {
        Ok(Dim::Known(n))
    }
    fn leaf(&mut self, a: &Atom, whole: &SymDim) -> Result<Dim, String> {
        let Atom::Sym(name) = a else { return Err(format!("depends on data ({whole})")) };
        self.names.iter().position(|n| n == name).map(Dim::Symbol).ok_or_else(|| format!("has the symbol {name}, which no argument has"))
    }
    fn apply(&mut self, kind: SymKind, lhs: Dim, rhs: Dim) -> Result<Dim, String> {
        self.exprs.push(Expr { kind: expr_kind(kind), lhs, rhs });
        Ok(Dim::Expr(self.exprs.len() - 1))
    }
    fn made(&self, d: &SymDim) -> Option<Dim> {
        self.known.get(d).copied()
    }
    fn remember(&mut self, d: &SymDim, made: Dim) {
        self.known.insert(d.clone(), made);
    }
}

/// Whether a tensor among the leaves is traced.
pub(super) fn traced(leaves: &[Leaf]) -> bool {
    leaves.iter().any(|l| matches!(l, Leaf::Tensor(t) if Tensor::is_traced(t)))
}
