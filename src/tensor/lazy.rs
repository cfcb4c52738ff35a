//! Lazy tensors: ops of functions that read values are recorded, and run as one program when a
//! value is read or the function ends.
//!
//! The ops recorded since the last read are a segment. Its key consists of the ops with their
//! operand types, the data flow, and which results are still live. A program is compiled once per
//! key, so each control-flow path reuses its programs, and alternating between two paths recompiles
//! neither. Segments specialise on all sizes.
use super::{
    Array, BreakReason, Graph, OpError, Repr, ResultSource, Session, Tensor, TraceError,
    arg::Arg,
    call_site::CallSite,
    eager::{self, Prepared, device_of},
    key::{self, Key},
    lazy_node::{Free, LazyNode, ResultTypes},
    lock::lock,
    replay::{CurrentSegment, OperandSource, RecordedArg, RecordedOp, TrieNode},
    trace::record,
};
use crate::{
    Error, compile::background::ProgramCompiler, lowering::driver::compile::CompileError,
    runtime::DeviceId,
};
use indexmap::IndexMap;
use kiln_dialects::{Result, ir::Context};
use std::sync::{
    Arc, LazyLock, Mutex,
    atomic::{AtomicU64, Ordering},
};

/// The current segment: ops recorded since the last read.
pub(super) struct Lazy {
    segments: Arc<Segments>,
    /// Index of the segment.
    number: u32,
    /// Runs that the segment has left, and after which of their ops.
    path: Vec<(Arc<TrieNode>, usize)>,
    /// The run being replayed, and the number of its ops replayed.
    run: Arc<TrieNode>,
    at: usize,
    /// New ops, recorded since the segment diverged from all runs.
    new_ops: Vec<RecordedOp>,
    inputs: Vec<Arc<Array>>,
    results: Vec<Arc<LazyNode>>,
    free: Free,
}

/// The compiled program of a segment.
pub(crate) struct Segment {
    pub prepared: Prepared,
    /// Number of times it has run.
    pub calls: AtomicU64,
}

/// The segment programs of a function, and its graph breaks.
pub(crate) struct Segments {
    name: String,
    program_compiler: ProgramCompiler,
    /// Whether to break the graph after every op.
    each_op: bool,
    /// Maximum number of programs; further segments run op by op.
    pub limit: usize,
    /// The programs, in order of compilation.
    pub programs: Mutex<Vec<Arc<Segment>>>,
    /// Root of the tree of recorded runs; has no ops.
    root: Arc<TrieNode>,
    /// Distinct graph breaks, with their reasons.
    reads: Mutex<Vec<(CallSite, BreakReason)>>,
}

impl Segments {
    pub fn new(
        name: String,
        program_compiler: ProgramCompiler,
        each_op: bool,
        limit: usize,
    ) -> Segments {
        Segments {
            name,
            program_compiler,
            each_op,
            limit,
            programs: Mutex::default(),
            root: Arc::default(),
            reads: Mutex::default(),
        }
    }
    /// Locations and reasons of the graph breaks, in order of first occurrence.
    pub(crate) fn reads(&self) -> Vec<(String, BreakReason)> {
        lock(&self.reads)
            .iter()
            .map(|(at, why)| (format!("{}:{}:{}", at.file(), at.line(), at.column()), *why))
            .collect()
    }
}

/// Size limit of the type cache.
const MAX_TYPES: usize = 4096;
static TYPES: LazyLock<Mutex<IndexMap<Key, Arc<ResultTypes>>>> = LazyLock::new(Mutex::default);

impl Lazy {
    pub fn new(segments: Arc<Segments>) -> Lazy {
        let run = segments.root.clone();
        let free = Free::of_thread();
        Lazy {
            segments,
            number: 0,
            path: vec![],
            run,
            at: 0,
            new_ops: vec![],
            inputs: vec![],
            results: vec![],
            free,
        }
    }
    /// Replays an op that an earlier call recorded at this point. `first` comes before `args`, as
    /// argument `self`. `None`: it is another op.
    pub(super) fn replay<const R: usize>(
        &mut self,
        graph: u64,
        first: Option<&Tensor>,
        target: &str,
        args: &[(&'static str, Arg)],
    ) -> Option<[Tensor; R]> {
        if self.segments.each_op || !self.follow(graph, first, target, args, Some(R)) {
            return None;
        }
        let Lazy { run, results, free, number, .. } = self;
        let known = &run.ops[self.at - 1].result_types;
        let operand = |n| {
            first.cloned().into_iter().chain(args.iter().flat_map(|(_, arg)| arg.tensors())).nth(n)
        };
        let mut slot = 0;
        Some([(); R].map(|()| {
            slot += 1;
            result(known, slot - 1, (graph, *number), results, free, operand)
        }))
    }
    /// Advances the run if the op is its next one, or the first of a branch, which the segment then
    /// follows. If given, the number of results must match as well.
    fn follow(
        &mut self,
        graph: u64,
        first: Option<&Tensor>,
        target: &str,
        args: &[(&'static str, Arg)],
        results: Option<usize>,
    ) -> bool {
        if !self.new_ops.is_empty() {
            return false;
        }
        let mut current = CurrentSegment { graph, segment: self.number, inputs: &mut self.inputs };
        let mut fits = |recorded_op: &RecordedOp| {
            results.is_none_or(|n| n == recorded_op.result_types.result_sources.len())
                && recorded_op.matches(first, target, args, &mut current)
        };
        if !self.run.ops.get(self.at).is_some_and(&mut fits) {
            let Some(run) = self.run.next(self.at, &mut fits) else { return false };
            self.results.reserve(run.ops.len());
            self.path.push((std::mem::replace(&mut self.run, run), std::mem::take(&mut self.at)));
        }
        self.at += 1;
        true
    }
    /// Records an op. Err: why it is invalid.
    pub(super) fn row(
        &mut self,
        graph: u64,
        site: CallSite,
        op: &'static str,
        target: &'static str,
        args: Vec<(&'static str, Arg)>,
    ) -> Result<Vec<Tensor>> {
        let operands: Vec<Tensor> = args.iter().flat_map(|(_, a)| a.tensors()).collect();
        let known = match self.follow(graph, None, target, &args, None) {
            true => self.run.ops[self.at - 1].result_types.clone(),
            false => self.record_op(graph, site, op, target, args, &operands)?,
        };
        let operand = |n: usize| operands.get(n).cloned();
        let numbers = (graph, self.number);
        let made = |slot| result(&known, slot, numbers, &mut self.results, &mut self.free, operand);
        let all = (0..known.result_sources.len()).map(made).collect();
        if self.segments.each_op {
            self.flush(None).map_err(|e| e.to_string())?;
        }
        Ok(all)
    }
    /// Records an op that diverges from all runs.
    fn record_op(
        &mut self,
        graph: u64,
        site: CallSite,
        op: &'static str,
        target: &'static str,
        args: Vec<(&'static str, Arg)>,
        operands: &[Tensor],
    ) -> Result<Arc<ResultTypes>> {
        let known =
            types(key::of("", DeviceId::Host, target, &args), site, op, target, &args, operands)?;
        // Recorded tensors would stay alive, and so count as live results.
        let args = args
            .iter()
            .map(|(name, arg)| Ok((*name, RecordedArg::of(arg)?)))
            .collect::<Result<Vec<_>>>()?;
        let before = self.inputs.len();
        let sources = operands.iter().map(|t| self.source(graph, t)).collect::<Result<Vec<_>>>();
        let sources = sources.inspect_err(|_| self.inputs.truncate(before))?;
        self.new_ops.push(RecordedOp {
            site,
            op,
            target,
            args,
            operands: sources,
            result_types: known.clone(),
        });
        Ok(known)
    }
    fn source(&mut self, graph: u64, t: &Tensor) -> Result<OperandSource> {
        let array = match &t.0 {
            Repr::Lazy(node) => match node.value.get() {
                Some(array) => array.clone(),
                None if node.is_result(graph, self.number, node.at) => {
                    return Ok(OperandSource::Result(node.at));
                }
                None => return Err(
                    "takes a tensor of a function that is over, or of a program that did not run"
                        .into(),
                ),
            },
            Repr::Array(array) => array.clone(),
            _ => return Err("takes a tensor of another trace".into()),
        };
        if let Some(at) = self.inputs.iter().position(|a| Arc::ptr_eq(a, &array)) {
            return Ok(OperandSource::Input(at));
        }
        let first = OperandSource::First(array.dtype(), array.shape().into(), array.device());
        self.inputs.push(array);
        Ok(first)
    }

    /// Runs the recorded ops; all live tensors have data afterwards. `read` is the location and
    /// reason of the graph break, if there is one.
    pub(super) fn flush(
        &mut self,
        read: Option<(CallSite, BreakReason)>,
    ) -> Result<(), TraceError> {
        if let Some(at) = read {
            let mut all = lock(&self.segments.reads);
            if !all.contains(&at) {
                all.push(at);
            }
        }
        // Start a new segment, even if this one fails.
        let next = Lazy {
            number: self.number.wrapping_add(1),
            free: Free(std::mem::take(&mut self.free.0)),
            ..Lazy::new(self.segments.clone())
        };
        let mut recorded_op = std::mem::replace(self, next);
        // The list itself holds one reference.
        let live: Vec<u32> =
            recorded_op.results.iter().filter(|n| Arc::strong_count(n) > 1).map(|n| n.at).collect();
        if live.is_empty() {
            self.free.recycle(recorded_op.results);
            return Ok(());
        }
        let known = if recorded_op.new_ops.is_empty() {
            recorded_op.run.end(recorded_op.at, &live)
        } else {
            None
        };
        let segment = match known {
            Some(segment) => Some(segment),
            None => recorded_op.compile_segment(&live)?,
        };
        let values = match segment {
            Some(segment) if segment.prepared.is_ready() => {
                segment.calls.fetch_add(1, Ordering::Relaxed);
                segment.prepared.run(&recorded_op.inputs).map_err(|e| user(e.to_string()))?
            }
            _ => run_eagerly(&recorded_op.ops(), &recorded_op.inputs, &live)?,
        };
        for (n, array) in live.iter().zip(values) {
            // Set once: a node belongs to one segment.
            let _ = recorded_op.results[*n as usize].value.set(array);
        }
        self.free.recycle(recorded_op.results);
        Ok(())
    }
    /// All ops of the segment.
    fn ops(&self) -> Vec<&RecordedOp> {
        let runs = self.path.iter().map(|(run, at)| &run.ops[..*at]);
        runs.chain([&self.run.ops[..self.at], &self.new_ops]).flatten().collect()
    }
    /// Compiles the segment; `None` at the limit on programs, or if compilation was cancelled.
    fn compile_segment(&mut self, live: &[u32]) -> Result<Option<Arc<Segment>>, TraceError> {
        let s = self.segments.clone();
        if lock(&s.programs).len() >= s.limit {
            return Ok(None);
        }
        let context = Context::new();
        let recorded = {
            let ops = self.ops();
            let Some(first) = ops.first() else { return Ok(None) };
            record(context.ctx(), first.site, Session::default(), |graph: &Graph| {
                let inputs = self.inputs.iter().enumerate();
                let inputs: Vec<Tensor> = inputs
                    .map(|(i, a)| graph.input(&format!("x{i}"), a.dtype(), a.shape()))
                    .collect();
                let all = reapply(graph, &ops, &inputs);
                Ok(live.iter().filter_map(|n| all.get(*n as usize).cloned()).collect())
            })
        };
        let compiler =
            s.program_compiler.on(device_of(&self.inputs).map_err(|e| user(e.to_string()))?);
        let prepared = match Prepared::new(&s.name, recorded?, &compiler) {
            Ok(prepared) => prepared,
            Err(Error::Compile(CompileError::Cancelled(_))) => return Ok(None),
            Err(e) => return Err(user(e.to_string())),
        };
        if !self.new_ops.is_empty() {
            let branch = self.run.branch(self.at, std::mem::take(&mut self.new_ops));
            self.at = branch.ops.len();
            self.run = branch;
        }
        let (segment, mine) = self.run.add_end(
            self.at,
            live.to_vec(),
            Arc::new(Segment { prepared, calls: AtomicU64::new(0) }),
        );
        if mine {
            lock(&s.programs).push(segment.clone());
        }
        Ok(Some(segment))
    }
}

fn user(reason: String) -> TraceError {
    TraceError::User(reason.into())
}

/// Placeholder for a lost operand.
fn lost_operand() -> Tensor {
    static LOST_OPERAND: LazyLock<Arc<OpError>> = LazyLock::new(|| {
        let text = String::new;
        Arc::new(OpError {
            file: text(),
            line: 0,
            column: 0,
            op: text(),
            reason: "an operand of an op that was noted is lost".into(),
            operands: vec![],
        })
    });
    Tensor(Repr::Failed(LOST_OPERAND.clone()))
}

/// A result of a recorded op: a new lazy node, a constant, or a forwarded operand. The pair
/// identifies the graph and the segment.
fn result(
    known: &Arc<ResultTypes>,
    slot: usize,
    (graph, segment): (u64, u32),
    results: &mut Vec<Arc<LazyNode>>,
    free: &mut Free,
    operand: impl Fn(usize) -> Option<Tensor>,
) -> Tensor {
    match &known.result_sources[slot] {
        ResultSource::Result(_) => {
            let node = free.node(known, graph, segment, results.len() as u32, slot as u32);
            results.push(node.clone());
            Tensor(Repr::Lazy(node))
        }
        ResultSource::Constant(array) => array.clone().into(),
        ResultSource::Input(i) => operand(*i).unwrap_or_else(lost_operand),
    }
}

/// Replays the ops on other inputs; returns all computed results.
fn reapply(graph: &Graph, ops: &[&RecordedOp], inputs: &[Tensor]) -> Vec<Tensor> {
    let (mut all, mut inputs_used): (Vec<Tensor>, usize) = (vec![], 0);
    for o in ops {
        let mut operands = vec![];
        for source in &o.operands {
            let found = match source {
                OperandSource::Result(n) => all.get(*n as usize),
                OperandSource::Input(n) => inputs.get(*n),
                OperandSource::First(..) => {
                    inputs_used += 1;
                    inputs.get(inputs_used - 1)
                }
            };
            operands.extend(found.cloned());
        }
        let mut operands = operands.into_iter();
        let args = o
            .args
            .iter()
            .map(|(name, arg)| Ok((*name, arg.arg(&mut operands)?)))
            .collect::<Result<_>>();
        let made = match args {
            Ok(args) => graph.row(o.site, o.op, o.target, args),
            Err(e) => vec![graph.refuse(o.site, o.op, e, &[])],
        };
        // A failed row returns a single poisoned tensor.
        let made = (0..o.result_types.result_sources.len())
            .map(|i| made.get(i).or(made.last()).cloned().unwrap_or_else(lost_operand));
        all.extend(
            made.zip(&o.result_types.result_sources)
                .filter(|(_, slot)| matches!(slot, ResultSource::Result(_)))
                .map(|(t, _)| t),
        );
    }
    all
}

/// Runs the segment op by op.
fn run_eagerly(
    ops: &[&RecordedOp],
    inputs: &[Arc<Array>],
    live: &[u32],
) -> Result<Vec<Arc<Array>>, TraceError> {
    let inputs: Vec<Tensor> = inputs.iter().map(|a| a.clone().into()).collect();
    let all = super::modes::eagerly(|| reapply(&Graph::current(), ops, &inputs));
    let value = |n: &u32| {
        all.get(*n as usize)
            .ok_or_else(|| TraceError::Module("a noted op has lost a result".into()))?
            .array()
    };
    live.iter().map(value).collect()
}

/// Infers an op's result types; cached by key.
fn types(
    key: Key,
    site: CallSite,
    op: &'static str,
    target: &'static str,
    args: &[(&'static str, Arg)],
    operands: &[Tensor],
) -> Result<Arc<ResultTypes>> {
    if let Some(known) = lock(&TYPES).get(&key) {
        return Ok(known.clone());
    }
    let context = Context::new();
    let mut types = vec![];
    let recorded = record(context.ctx(), site, Session::default(), |graph: &Graph| {
        let mut inputs = vec![];
        for (i, t) in operands.iter().enumerate() {
            inputs.push(graph.input(&format!("x{i}"), t.dtype()?, t.dims()?));
        }
        let mut next = inputs.into_iter();
        let args =
            args.iter().map(|(name, arg)| (*name, arg.clone().with_tensors(&mut next))).collect();
        let results = graph.row(site, op, target, args);
        for t in &results {
            let sizes =
                t.dims()?.into_iter().map(|d| d.known().and_then(|n| usize::try_from(n).ok()));
            let sizes: Option<Vec<usize>> = sizes.collect();
            types.push((
                t.dtype()?,
                sizes.ok_or_else(|| TraceError::User("a size that depends on data".into()))?,
            ));
        }
        Ok(results)
    });
    let recorded = recorded.map_err(eager::reason)?;
    let known = Arc::new(ResultTypes { types, result_sources: recorded.result_sources });
    let mut all = lock(&TYPES);
    if all.len() >= MAX_TYPES {
        all.shift_remove_index(0);
    }
    all.insert(key, known.clone());
    Ok(known)
}
