//! Functions that read values: ops are noted, and run as one program when a value is read, or when the function ends.
//!
//! What has been noted since the last read is a segment. Its ops with the types of their operands, how they hang together, and which of its tensors
//! somebody still holds are its key; a program is made for a key once, so that a function whose way depends on values runs the programs of that way, and
//! one that alternates between two ways compiles neither again. The sizes of segments are numbers.
use super::{
    Array, Graph, OpError, Repr, Session, Slot, Tensor, TraceError,
    arg::Arg,
    eager::{self, Prepared, lock},
    graph::Place,
    key::{self, Key, Keys},
    run::record,
};
use crate::{Error, compile::later::Making, lowering::compile::CompileError};
use indexmap::IndexMap;
use kiln_dialects::{ir::Context, value::DType};
use std::{
    hash::Hash,
    sync::{
        Arc, LazyLock, Mutex, OnceLock, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

/// A value that has been noted.
pub(crate) struct LazyNode {
    pub graph: u64,
    pub dtype: DType,
    pub shape: Vec<usize>,
    /// The number of its op in the segment, and of the op's result.
    at: (usize, usize),
    pub value: OnceLock<Arc<Array>>,
}

/// Where an operand comes from.
#[derive(Clone, Copy, Debug, Hash)]
enum Source {
    /// An op's result in this segment.
    Node(usize, usize),
    /// An input of the segment.
    Input(usize),
}

/// An op.
struct Noted {
    place: Place,
    op: &'static str,
    target: &'static str,
    /// With any tensors in the place of its operands.
    args: Vec<(&'static str, Arg)>,
    operands: Vec<Source>,
    results: Vec<Weak<LazyNode>>,
}

/// What has been noted since the last read.
pub(super) struct Lazy {
    segments: Arc<Segments>,
    ops: Vec<Noted>,
    inputs: Vec<Arc<Array>>,
    /// Ops with the types of their operands, and where these come from.
    key: Keys,
}

/// A program of a segment.
pub(crate) struct Segment {
    pub prepared: Prepared,
    /// How often it has run.
    pub calls: AtomicU64,
}

/// The programs of a function's segments, and where it reads values.
pub(crate) struct Segments {
    pub name: String,
    pub making: Making,
    /// Whether every op is a segment.
    pub each_op: bool,
    /// How many programs there are at most; further segments run op by op.
    pub limit: usize,
    pub made: Mutex<IndexMap<Key, Arc<Segment>>>,
    /// The places of reads, each once.
    pub reads: Mutex<Vec<String>>,
}

/// What is known of an op for types of operands.
struct Known {
    types: Vec<(DType, Vec<usize>)>,
    slots: Vec<Slot>,
}

/// How many ops' types are kept.
const KEPT: usize = 4096;
static KNOWN: LazyLock<Mutex<IndexMap<Key, Arc<Known>>>> = LazyLock::new(Mutex::default);

impl Lazy {
    pub fn new(segments: Arc<Segments>) -> Lazy {
        Lazy { segments, ops: vec![], inputs: vec![], key: Keys::new() }
    }
    /// Notes an op. Err: a reason why it cannot be.
    pub(super) fn row(
        &mut self,
        graph: u64,
        place: Place,
        op: &'static str,
        target: &'static str,
        args: Vec<(&'static str, Arg)>,
    ) -> Result<Vec<Tensor>, String> {
        let operands: Vec<Tensor> = args.iter().flat_map(|(_, a)| a.tensors()).collect();
        let key = key::of("", target, &args);
        let known = types(key, place, op, target, &args, &operands)?;
        if !known.slots.iter().any(|s| matches!(s, Slot::Result(_))) {
            return known.slots.iter().map(|slot| plain(slot, &operands)).collect();
        }
        let sources = operands.iter().map(|t| self.source(graph, t)).collect::<Result<Vec<_>, String>>()?;
        let number = self.ops.len();
        let (mut results, mut all) = (vec![], vec![]);
        for ((dtype, shape), slot) in known.types.iter().zip(&known.slots) {
            if !matches!(slot, Slot::Result(_)) {
                all.push(plain(slot, &operands)?);
                results.push(Weak::new());
                continue;
            }
            let at = (number, results.len());
            let node = Arc::new(LazyNode { graph, dtype: *dtype, shape: shape.clone(), at, value: OnceLock::new() });
            results.push(Arc::downgrade(&node));
            all.push(Tensor(Repr::Lazy(node)));
        }
        // Operands would be held by what is noted, and so count as used later.
        let mut nothing = std::iter::repeat_with(nothing);
        let args = args.into_iter().map(|(name, arg)| (name, arg.with_tensors(&mut nothing))).collect();
        (key, &sources).hash(&mut self.key);
        self.ops.push(Noted { place, op, target, args, operands: sources, results });
        if self.segments.each_op {
            self.flush(None).map_err(|e| e.to_string())?;
        }
        Ok(all)
    }
    fn source(&mut self, graph: u64, t: &Tensor) -> Result<Source, String> {
        let array = match &t.0 {
            Repr::Lazy(node) => match node.value.get() {
                Some(array) => array.clone(),
                None if node.graph == graph => return Ok(Source::Node(node.at.0, node.at.1)),
                None => return Err("takes a tensor of a function that is over".into()),
            },
            Repr::Array(array) => array.clone(),
            _ => return Err("takes a tensor of another trace".into()),
        };
        let at = self.inputs.iter().position(|a| Arc::ptr_eq(a, &array)).unwrap_or_else(|| {
            self.inputs.push(array);
            self.inputs.len() - 1
        });
        Ok(Source::Input(at))
    }

    /// Runs what has been noted; every tensor that somebody holds has elements then. `read` is where a value is read, if one is.
    pub(super) fn flush(&mut self, read: Option<Place>) -> Result<(), TraceError> {
        if let Some(at) = read {
            let place = format!("{}:{}:{}", at.file(), at.line(), at.column());
            let mut all = lock(&self.segments.reads);
            if !all.contains(&place) {
                all.push(place);
            }
        }
        let (ops, inputs, mut key) =
            (std::mem::take(&mut self.ops), std::mem::take(&mut self.inputs), std::mem::replace(&mut self.key, Keys::new()));
        let held: Vec<Arc<LazyNode>> = ops.iter().flat_map(|o| &o.results).filter_map(Weak::upgrade).collect();
        if held.is_empty() {
            return Ok(());
        }
        held.iter().for_each(|n| n.at.hash(&mut key));
        let results = match self.segment(key.key(), &ops, &inputs, &held)? {
            Some(segment) if segment.prepared.is_ready() => {
                segment.calls.fetch_add(1, Ordering::Relaxed);
                segment.prepared.run(&inputs).map_err(user)?
            }
            _ => one_by_one(ops, &inputs, &held)?,
        };
        for (node, array) in held.iter().zip(results) {
            // A node gets its value once: it is in one segment.
            let _ = node.value.set(array);
        }
        Ok(())
    }
    /// The program of a segment; none if there may be no more, or if somebody ended its compilation.
    fn segment(&self, key: Key, ops: &[Noted], inputs: &[Arc<Array>], held: &[Arc<LazyNode>]) -> Result<Option<Arc<Segment>>, TraceError> {
        let s = &self.segments;
        let (found, full) = {
            let made = lock(&s.made);
            (made.get(&key).cloned(), made.len() >= s.limit)
        };
        if found.is_some() || full {
            return Ok(found);
        }
        let context = Context::new();
        let Some(first) = ops.first() else { return Ok(None) };
        let recorded = record(context.ctx(), first.place, Session::default(), |graph: &Graph| {
            let inputs: Vec<Tensor> = inputs.iter().enumerate().map(|(i, a)| graph.input(&format!("x{i}"), a.dtype(), a.shape())).collect();
            let all = again(graph, ops, &inputs);
            Ok(held.iter().filter_map(|n| all.get(n.at.0)?.get(n.at.1).cloned()).collect())
        });
        let prepared = match Prepared::new(&s.name, recorded?, &s.making) {
            Ok(prepared) => prepared,
            Err(Error::Compile(CompileError::Stopped(_))) => return Ok(None),
            Err(e) => return Err(user(e.to_string())),
        };
        let segment = Arc::new(Segment { prepared, calls: AtomicU64::new(0) });
        Ok(Some(lock(&s.made).entry(key).or_insert(segment).clone()))
    }
}

fn user(reason: String) -> TraceError {
    TraceError::User(reason.into())
}

/// What stands for an operand.
fn nothing() -> Tensor {
    static NOTHING: LazyLock<Arc<OpError>> = LazyLock::new(|| {
        let text = String::new;
        Arc::new(OpError {
            file: text(),
            line: 0,
            column: 0,
            op: text(),
            reason: "an operand that has been taken out".into(),
            operands: vec![],
        })
    });
    Tensor(Repr::Failed(NOTHING.clone()))
}

/// A result that is none of a program.
fn plain(slot: &Slot, operands: &[Tensor]) -> Result<Tensor, String> {
    match slot {
        Slot::Input(i) => operands.get(*i).cloned().ok_or_else(|| "has lost an operand".into()),
        Slot::Constant(array) => Ok(array.clone().into()),
        Slot::Result(_) => Err("has a result that has to be computed".into()),
    }
}

/// The ops on other inputs: the results of each.
fn again(graph: &Graph, ops: &[Noted], inputs: &[Tensor]) -> Vec<Vec<Tensor>> {
    let mut all: Vec<Vec<Tensor>> = vec![];
    for o in ops {
        let operand = |s: &Source| match s {
            Source::Input(i) => inputs.get(*i).cloned(),
            Source::Node(op, result) => all.get(*op).and_then(|r| r.get(*result)).cloned(),
        };
        let mut operands = o.operands.iter().filter_map(operand).collect::<Vec<_>>().into_iter();
        let args = o.args.iter().map(|(name, arg)| (*name, arg.clone().with_tensors(&mut operands))).collect();
        all.push(graph.row(o.place, o.op, o.target, args));
    }
    all
}

/// The segment op by op.
fn one_by_one(ops: Vec<Noted>, inputs: &[Arc<Array>], held: &[Arc<LazyNode>]) -> Result<Vec<Arc<Array>>, TraceError> {
    let inputs: Vec<Tensor> = inputs.iter().map(|a| a.clone().into()).collect();
    let all = super::graph::at_once(|| again(&Graph::current(), &ops, &inputs));
    let value = |n: &Arc<LazyNode>| {
        let found = all.get(n.at.0).and_then(|r| r.get(n.at.1));
        found.ok_or_else(|| TraceError::Module("a noted op has lost a result".into()))?.array()
    };
    held.iter().map(value).collect()
}

/// The types of an op's results, by its key.
fn types(
    key: Key,
    place: Place,
    op: &'static str,
    target: &'static str,
    args: &[(&'static str, Arg)],
    operands: &[Tensor],
) -> Result<Arc<Known>, String> {
    if let Some(known) = lock(&KNOWN).get(&key) {
        return Ok(known.clone());
    }
    let context = Context::new();
    let mut types = vec![];
    let recorded = record(context.ctx(), place, Session::default(), |graph: &Graph| {
        let mut inputs = vec![];
        for (i, t) in operands.iter().enumerate() {
            inputs.push(graph.input(&format!("x{i}"), t.dtype()?, t.dims()?));
        }
        let mut next = inputs.into_iter();
        let args = args.iter().map(|(name, arg)| (*name, arg.clone().with_tensors(&mut next))).collect();
        let results = graph.row(place, op, target, args);
        for t in &results {
            let sizes = t.dims()?.into_iter().map(|d| d.known().and_then(|n| usize::try_from(n).ok()));
            let sizes: Option<Vec<usize>> = sizes.collect();
            types.push((t.dtype()?, sizes.ok_or_else(|| TraceError::User("a size that depends on data".into()))?));
        }
        Ok(results)
    });
    let recorded = recorded.map_err(eager::reason)?;
    let known = Arc::new(Known { types, slots: recorded.slots });
    let mut all = lock(&KNOWN);
    if all.len() >= KEPT {
        all.shift_remove_index(0);
    }
    all.insert(key, known.clone());
    Ok(known)
}
