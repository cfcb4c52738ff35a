//! From a call to a program: trace with symbolic sizes, add guards, compile. Retries with fewer
//! symbols if the function constrains one.
use super::{
    background::{ProgramCompiler, ProgramFuture},
    compiled_graph::{CompiledGraph, ResultLeaf},
    conditions::add_assumptions,
    donation::{Donations, Donor},
    placed::Placed,
    remark::Topic,
    settings::Settings,
    specialisation::{DimSpecialisation, LeafSpecialisation, Specialisation},
    tree::Leaf,
};
use crate::{
    Error,
    backend::GraphModule,
    dialects::{ir::Context, ops::CompareKind, sym::Dim as SymDim},
    lowering::driver::compile::CompileError,
    model::Donation,
    nn::stored::Stored,
    runtime::{DeviceId, Guards, guards::InputGuard},
    tensor::{
        self, Graph, Lifted, NumberArgument, OpError, Recorded, ResultSource, Session, TraceError,
        has_effects, record,
    },
};
use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, Location, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// A cache entry: one program with its guards.
pub(super) struct Entry {
    pub guards: Guards,
    /// Frozen weights, with their version counters at compile time.
    frozen: Vec<(Arc<Stored>, u64)>,
    pub code: EntryCode,
    /// Number arguments that were specialised although calls may change them: leaf indices and
    /// reasons.
    pub specialised_numbers: Vec<(usize, String)>,
    /// Lifted weights, and where they were at compile time.
    placed: Placed,
    /// Number of calls that it served.
    pub calls: AtomicU64,
    /// Compile time.
    pub compile_time: Duration,
}

/// How an entry runs.
pub(super) enum EntryCode {
    Graph(CompiledGraph),
    /// In segments, since the function reads values.
    Segments,
}

/// Why no entry was made.
pub(super) enum EntryError {
    /// A graph break: the function reads a value.
    Read(OpError),
    Error(Error),
}

impl From<Error> for EntryError {
    fn from(e: Error) -> EntryError {
        EntryError::Error(e)
    }
}

impl Entry {
    pub fn in_segments(guards: Guards, compile_time: Duration) -> Entry {
        Entry {
            guards,
            frozen: vec![],
            code: EntryCode::Segments,
            specialised_numbers: vec![],
            placed: Placed::default(),
            calls: AtomicU64::new(0),
            compile_time,
        }
    }
    /// Whether the frozen weights are unchanged, the others where they were, and a program exists or
    /// is being compiled.
    pub fn is_current(&self) -> bool {
        self.frozen.iter().all(|(w, version)| w.version() == *version)
            && self.placed.is_current()
            && self.compile_error().is_none()
    }
    /// Why background compilation failed with these symbols; specialised sizes may still succeed.
    pub fn compile_error(&self) -> Option<&Error> {
        let EntryCode::Graph(CompiledGraph { program: Some(program), .. }) = &self.code else {
            return None;
        };
        match program.get() {
            Some(Err(e))
                if !self.guards.symbols.is_empty()
                    && !matches!(**e, Error::Compile(CompileError::Cancelled(_))) =>
            {
                Some(&**e)
            }
            _ => None,
        }
    }
    /// The name of a frozen weight that was changed since.
    pub fn stale(&self) -> Option<&str> {
        self.frozen
            .iter()
            .find(|(w, version)| w.version() != *version)
            .map(|(w, _)| w.name.as_str())
    }
}

/// Compiles entries of a function.
pub(super) struct EntryCompiler<'a> {
    pub name: &'a str,
    pub settings: &'a Settings,
    pub program_compiler: &'a ProgramCompiler,
    pub location: &'static Location<'static>,
    /// Display names of the leaves.
    pub names: &'a [String],
    /// The tensors among the leaves.
    pub donors: &'a [Donor],
    pub donations: &'a Donations,
    /// The function, on traced leaves.
    pub function: &'a dyn Fn(Vec<Leaf>) -> Result<Vec<Leaf>, TraceError>,
    pub remark: &'a dyn Fn(Topic, String),
}

/// A trace before compilation.
struct TracedCall {
    recorded: Recorded,
    results: Vec<ResultLeaf>,
    /// Dropped after the module.
    _context: Context,
}

impl EntryCompiler<'_> {
    /// Compiles a plan; also returns the dimensions that must stay static.
    pub fn compile(
        &self,
        spec: &Specialisation,
    ) -> Result<(Entry, Vec<(usize, usize)>), EntryError> {
        let start = Instant::now();
        let mut pinned = vec![];
        let mut spec = spec.clone();
        loop {
            let tried = self.trace(&spec).and_then(|call| {
                match contradicted(&call.recorded.session, &spec) {
                    Some(found) => Ok(Err(found)),
                    None => self.finish(&spec, call, start).map(Ok),
                }
            });
            let used = spec.used();
            match tried {
                Ok(Ok(entry)) => return Ok((entry, pinned)),
                // The function branches on the size: the other branch gets a program of its own,
                // where the size is symbolic again.
                Ok(Err((symbol, _, true))) => spec = spec.without(symbol),
                Ok(Err((symbol, why, false))) => self.pin(&mut spec, symbol, &why, &mut pinned),
                // A timeout is not the fault of a symbol.
                Err(EntryError::Error(e))
                    if !used.is_empty()
                        && !matches!(e, Error::Compile(CompileError::Cancelled(_))) =>
                {
                    let symbol = self.blocking_symbol(&spec, &used);
                    let why = e.to_string();
                    match symbol {
                        Some(symbol) => self.pin(&mut spec, symbol, &why, &mut pinned),
                        None => {
                            used.iter().for_each(|s| self.pin(&mut spec, *s, &why, &mut pinned))
                        }
                    }
                }
                Err(e) => return Err(e),
            }
        }
    }

    /// The one symbol that prevents tracing, if specialising it helps.
    fn blocking_symbol(&self, spec: &Specialisation, used: &[usize]) -> Option<usize> {
        let mut alone = used.iter().copied().filter(|s| {
            self.trace(&spec.without(*s))
                .is_ok_and(|t| contradicted(&t.recorded.session, spec).is_none())
        });
        if used.len() > 1 { alone.next() } else { used.first().copied() }
    }

    fn pin(
        &self,
        spec: &mut Specialisation,
        symbol: usize,
        why: &str,
        pinned: &mut Vec<(usize, usize)>,
    ) {
        let occurrences = spec.occurrences(symbol);
        let name = |l: usize| self.names.get(l).map_or("?", String::as_str);
        let one = |(l, d): &(usize, usize)| {
            if spec.is_number(*l) {
                format!("{} as a size", name(*l))
            } else {
                format!("{}.size({d})", name(*l))
            }
        };
        let all: Vec<String> = occurrences.iter().map(one).collect();
        let n = spec.symbols.get(symbol).map_or(0, |(_, n)| *n);
        let first = why.lines().next().unwrap_or(why);
        (self.remark)(
            Topic::Dynamic,
            format!(
                "{} stays the number {n}, since the function needs it to be one: {first}",
                all.join(", ")
            ),
        );
        pinned.extend(occurrences);
        *spec = spec.without(symbol);
    }

    fn trace(&self, spec: &Specialisation) -> Result<TracedCall, EntryError> {
        let context = Context::new();
        let hints = spec.symbols.iter().map(|(s, n)| (s.name.clone(), *n as i64)).collect();
        let number = |(i, (leaf, name)): (usize, (&LeafSpecialisation, &String))| {
            let LeafSpecialisation::Number(_, symbol) = leaf else { return None };
            let symbol = symbol.and_then(|s| spec.symbols.get(s)).map(|(s, _)| s.name.clone());
            Some((i, NumberArgument { name: plain(name), symbol, input: None }))
        };
        let numbers = spec.leaves.iter().zip(self.names).enumerate().filter_map(number).collect();
        let session =
            Session { hints, numbers, freeze: self.settings.freeze, ..Default::default() };
        let mut shape = vec![];
        let recorded = record(context.ctx(), self.location, session, |graph| {
            let leaves = inputs(graph, spec, self.names);
            // Code that expects a number may panic on a symbol. Without symbols the panic is the
            // caller's.
            let results = match spec.used().is_empty() {
                true => (self.function)(leaves)?,
                false => catch_unwind(AssertUnwindSafe(|| (self.function)(leaves)))
                    .unwrap_or_else(|_| {
                        Err(TraceError::User("the function panics where a size is a symbol".into()))
                    })?,
            };
            let mut tensors = vec![];
            for leaf in results {
                match leaf {
                    Leaf::Tensor(t) => {
                        shape.push(None);
                        tensors.push(t);
                    }
                    Leaf::Scalar(s) => shape.push(Some(ResultLeaf::Scalar(s))),
                    Leaf::Number(s) if s.is_plain() => {
                        shape.push(Some(ResultLeaf::Scalar(s.peek())))
                    }
                    Leaf::Number(s) => {
                        shape.push(Some(ResultLeaf::Number(ResultSource::Result(0))));
                        tensors.push(s.tensor());
                    }
                }
            }
            Ok(tensors)
        });
        let recorded = recorded.map_err(|e| match e {
            TraceError::Read(read) => EntryError::Read(read),
            e => EntryError::Error(e.into()),
        })?;
        let mut result_sources = recorded.result_sources.iter().cloned();
        let mut results = vec![];
        for leaf in shape {
            let mut slot = || {
                result_sources
                    .next()
                    .ok_or_else(|| Error::Backend("the trace has lost a result".into()))
            };
            results.push(match leaf {
                Some(ResultLeaf::Number(_)) => ResultLeaf::Number(slot()?),
                Some(known) => known,
                None => ResultLeaf::Tensor(slot()?),
            });
        }
        Ok(TracedCall { recorded, results, _context: context })
    }

    /// The device of a program's tensors. Err: they are on several GPUs.
    fn device(&self, spec: &Specialisation, lifted: &[Lifted]) -> Result<DeviceId, Error> {
        let given = spec.leaves.iter().filter_map(|l| match l {
            LeafSpecialisation::Tensor(array, _) => Some(array.device()),
            _ => None,
        });
        let lifted = lifted.iter().filter_map(|l| match l {
            Lifted::Weight(w) => Some(w.device()),
            Lifted::Array(array) => Some(array.device()),
            _ => None,
        });
        tensor::common_device(given.chain(lifted))
            .map_err(|e| Error::Setting(format!("{} {e}", self.name)))
    }

    /// The inputs that a program is compiled for as donated, and those of them that the caller
    /// names. An input that is a result itself is not among them.
    fn donated(
        &self,
        lifted: &[Lifted],
        results: &[ResultSource],
    ) -> (BTreeMap<usize, Donation>, Vec<usize>) {
        let own = |l: &Lifted| matches!(l, Lifted::Weight(w) if self.donations.has(w));
        let arguments = self.donors.iter().map(|d| (d.named, d.counts(self.settings)));
        let all = arguments.chain(lifted.iter().map(|l| (own(l), own(l)))).enumerate();
        let (mut donated, mut named) = (BTreeMap::new(), vec![]);
        for (i, (by_name, counts)) in all {
            let returned = results.iter().any(|r| matches!(r, ResultSource::Input(n) if *n == i));
            if counts && !returned {
                donated.insert(i, Donation::Results);
            }
            if by_name {
                named.push(i);
            }
        }
        (donated, named)
    }

    /// Remarks on inputs that the caller donates and whose memory no result takes.
    fn remark_donation(&self, asked: &[usize], program: Option<&ProgramFuture>) {
        let Some(program) = program.and_then(|p| p.ready()?.program()) else { return };
        let without = |i: &&usize| program.aliases.iter().all(|a| a.input != **i);
        for i in asked.iter().filter(without) {
            let name = program.inputs.get(*i).map_or("?", |t| t.name.as_str());
            let not = program.not_aliased.iter().find(|n| n.input == *i);
            let why = not.map_or("a result is the argument itself", |n| n.reason.as_str());
            (self.remark)(
                Topic::Donation,
                format!("no result is in the memory of {name}, which is donated: {why}"),
            );
        }
    }

    fn finish(
        &self,
        spec: &Specialisation,
        call: TracedCall,
        start: Instant,
    ) -> Result<Entry, EntryError> {
        // Locals are dropped in reverse order: the context must go last.
        let TracedCall {
            _context,
            recorded: Recorded { captured, result_sources, session },
            results,
        } = call;
        let sized: Vec<usize> = session
            .lifted
            .iter()
            .filter_map(|l| if let Lifted::Size(leaf) = l { Some(*leaf) } else { None })
            .collect();
        let mut guards = spec.guards(self.names.to_vec(), false, &sized);
        for (leaf, why) in &session.specialised_numbers {
            let (Some(LeafSpecialisation::Number(value, _)), Some(guard)) =
                (spec.leaves.get(*leaf), guards.inputs.get_mut(*leaf))
            else {
                continue;
            };
            *guard = InputGuard::Scalar(*value);
            let name = self.names.get(*leaf).map_or("?", String::as_str);
            (self.remark)(
                Topic::Dynamic,
                format!(
                    "{name} is the number {value} in this program, since {why}; other values have programs of their own"
                ),
            );
        }
        add_assumptions(&mut guards, &session)
            .map_err(|e| Error::Backend(format!("a size of the function {e}")))?;
        for ((op, from, to), n) in &session.casts {
            let many = if *n > 1 { format!("{n} times ") } else { String::new() };
            (self.remark)(
                Topic::Autocast,
                format!("{op} takes {many}{to} where it is given {from}"),
            );
        }
        let text = if self.settings.keep_graphs {
            GraphModule::new(self.name, &captured).text()
        } else {
            String::new()
        };
        let placed = Placed::of(&session.lifted);
        let device = self.device(spec, &session.lifted)?;
        let mut program_compiler = self.program_compiler.on(device);
        let (donated, asked) = self.donated(&session.lifted, &result_sources);
        program_compiler.options.donated = donated;
        let computed = result_sources.iter().any(|s| matches!(s, ResultSource::Result(_)));
        let program = if computed || has_effects(captured.module.op()) {
            Some(program_compiler.compile(self.name, captured)?)
        } else {
            None
        };
        self.remark_donation(&asked, program.as_deref());
        let weight = |l: &Lifted| match l {
            Lifted::Weight(w) => self.donations.has(w),
            _ => false,
        };
        let donated_weights = session.lifted.iter().map(weight).collect();
        let frozen = session
            .weights
            .iter()
            .filter_map(|(w, version, _)| version.map(|v| (w.clone(), v)))
            .collect();
        let code = EntryCode::Graph(CompiledGraph {
            program,
            lifted: session.lifted,
            donated_weights,
            donations: AtomicU64::new(0),
            results,
            text,
        });
        Ok(Entry {
            guards,
            frozen,
            code,
            specialised_numbers: session.specialised_numbers,
            placed,
            calls: AtomicU64::new(0),
            compile_time: start.elapsed(),
        })
    }
}

impl Entry {
    pub fn count(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
    }
}

/// Creates graph inputs for the leaves.
fn inputs(graph: &Graph, spec: &Specialisation, names: &[String]) -> Vec<Leaf> {
    let symbols: Vec<_> = spec
        .symbols
        .iter()
        .enumerate()
        // Unused symbols are not sizes of the program; a number's symbol is created where it is
        // used as a size.
        .map(|(i, (s, _))| {
            spec.occurrences(i)
                .first()
                .is_some_and(|(leaf, _)| !spec.is_number(*leaf))
                .then(|| graph.dim_by(&s.name, s.min..=s.max.unwrap_or(i64::MAX), s.divisor))
        })
        .collect();
    let one = |(i, (leaf, name)): (usize, (&LeafSpecialisation, &String))| match leaf {
        LeafSpecialisation::Scalar(s) => Leaf::Scalar(*s),
        LeafSpecialisation::Number(s, _) => Leaf::Number(tensor::Scalar::argument(graph, i, *s)),
        LeafSpecialisation::Tensor(array, dims) => {
            let size = |d: &DimSpecialisation| match d {
                DimSpecialisation::Static(n) => (*n).into(),
                DimSpecialisation::Symbol(i) => {
                    symbols.get(*i).copied().flatten().unwrap_or_else(|| 0.into())
                }
            };
            let dims: Vec<crate::tensor::Dim> = dims.iter().map(size).collect();
            Leaf::Tensor(graph.input(&plain(name), array.dtype(), dims))
        }
    };
    spec.leaves.iter().zip(names).enumerate().map(one).collect()
}

/// A leaf's display name as an identifier.
fn plain(name: &str) -> String {
    let name: String = name.chars().map(|c| if c.is_alphanumeric() { c } else { '_' }).collect();
    name.trim_end_matches('_').into()
}

/// A symbol that the function constrains to a constant: the symbol, the reason, and whether the
/// function's own comparison did it.
fn contradicted(session: &Session, spec: &Specialisation) -> Option<(usize, String, bool)> {
    session.assumptions.iter().filter(|a| a.kind == CompareKind::Eq).find_map(|a| {
        let symbol = |d: &SymDim| spec.symbols.iter().position(|(s, _)| *d == SymDim::sym(&s.name));
        let (symbol, n) = match (a.lhs.known(), a.rhs.known()) {
            (None, Some(n)) => (symbol(&a.lhs)?, n),
            (Some(n), None) => (symbol(&a.rhs)?, n),
            _ => return None,
        };
        Some((symbol, format!("it has to be {n} in {}", a.text), a.from_user_code))
    })
}

/// Whether a leaf is a traced tensor.
pub(super) fn traced(leaves: &[Leaf]) -> bool {
    leaves.iter().any(|l| match l {
        Leaf::Tensor(t) => t.is_traced(),
        Leaf::Number(s) => !s.is_plain(),
        Leaf::Scalar(_) => false,
    })
}
