//! Recorded ops of earlier calls, as a trie: a call that records the same ops follows it, and
//! allocates only handles.
//!
//! A run is an immutable, straight sequence of ops; other paths branch off after one of its ops, as
//! runs of their own. Ops are compared structurally, not by hash: the row, its arguments, and the
//! results and inputs that its tensors refer to. Derived data, such as result types, is stored in
//! the run.
use super::{
    Array, Dim, Operand, Scalar, Tensor, arg::Arg, call_site::CallSite, handle::Repr,
    lazy::Segment, lazy_node::ResultTypes,
};
use crate::{
    capture::aten::Val,
    runtime::{DeviceId, guards::Scalar as Plain},
};
use kiln_dialects::{Result, ir::Size, value::DType};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Source of an operand.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum OperandSource {
    /// A result of this segment, by index.
    Result(u32),
    /// An input of the segment that occurred before, by index.
    Input(usize),
    /// The next new input, with this type, on this device.
    First(DType, Box<[usize]>, DeviceId),
}

/// An argument without its tensors, which can be shared between threads.
#[derive(Clone, Debug)]
pub(super) enum RecordedArg {
    Tensor,
    /// A list of this many tensors.
    Tensors(usize),
    /// A number that may change between calls, with its recorded value, of which only the type
    /// counts.
    Number(Plain),
    Int(i64),
    Float(f64),
    Bool(bool),
    Size(i64),
    Sizes(Vec<i64>),
    Plain(Literal),
}

/// A non-tensor argument of a row.
#[derive(Clone, Debug)]
pub(super) enum Literal {
    Int(i64),
    Float(f64),
    Bool(bool),
    Str(String),
    DType(DType),
    List(Vec<Literal>),
    None,
}

/// A recorded op.
pub(super) struct RecordedOp {
    pub site: CallSite,
    pub op: &'static str,
    pub target: &'static str,
    pub args: Vec<(&'static str, RecordedArg)>,
    pub operands: Vec<OperandSource>,
    pub result_types: Arc<ResultTypes>,
}

/// A sequence of recorded ops, and its continuations in other calls.
#[derive(Default)]
pub(super) struct TrieNode {
    pub ops: Vec<RecordedOp>,
    /// Branches, each after this many ops.
    branches: RwLock<Vec<(usize, Arc<TrieNode>)>>,
    ends: RwLock<Vec<SegmentEnd>>,
}

/// A point where a segment ended.
struct SegmentEnd {
    at: usize,
    /// Indices of the live results.
    live: Vec<u32>,
    segment: Arc<Segment>,
}

/// The segment of the current call, to which operands are matched.
pub(super) struct CurrentSegment<'a> {
    pub graph: u64,
    pub segment: u32,
    pub inputs: &'a mut Vec<Arc<Array>>,
}

fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}
fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

impl TrieNode {
    /// The branch after `at` ops whose first op matches; the op's new inputs are consumed.
    pub(super) fn next(
        &self,
        at: usize,
        fits: &mut dyn FnMut(&RecordedOp) -> bool,
    ) -> Option<Arc<TrieNode>> {
        let here = |(from, run): &&(usize, Arc<TrieNode>)| {
            *from == at && run.ops.first().is_some_and(&mut *fits)
        };
        read(&self.branches).iter().find(here).map(|(_, run)| run.clone())
    }
    /// Adds a branch of these ops after `at` ops, unless another call already has.
    pub(super) fn branch(&self, at: usize, ops: Vec<RecordedOp>) -> Arc<TrieNode> {
        let mut all = write(&self.branches);
        let same = |run: &TrieNode| {
            run.ops.len() == ops.len() && run.ops.iter().zip(&ops).all(|(a, b)| a.is_equal(b))
        };
        if let Some((_, run)) = all.iter().find(|(from, run)| *from == at && same(run)) {
            return run.clone();
        }
        let run = Arc::new(TrieNode { ops, ..TrieNode::default() });
        all.push((at, run.clone()));
        run
    }
    /// The program of a segment that ends after `at` ops with these live results.
    pub(super) fn end(&self, at: usize, live: &[u32]) -> Option<Arc<Segment>> {
        read(&self.ends).iter().find(|e| e.at == at && e.live == live).map(|e| e.segment.clone())
    }
    /// Adds a program; returns the one to use, and whether it is the new one.
    pub(super) fn add_end(
        &self,
        at: usize,
        live: Vec<u32>,
        segment: Arc<Segment>,
    ) -> (Arc<Segment>, bool) {
        let mut all = write(&self.ends);
        if let Some(e) = all.iter().find(|e| e.at == at && e.live == live) {
            return (e.segment.clone(), false);
        }
        all.push(SegmentEnd { at, live, segment: segment.clone() });
        (segment, true)
    }
}

impl RecordedOp {
    /// Whether a call matches this op; consumes its new inputs if so. `first` comes before `args`,
    /// as argument `self`.
    pub(super) fn matches(
        &self,
        first: Option<&Tensor>,
        target: &str,
        args: &[(&'static str, Arg)],
        current: &mut CurrentSegment,
    ) -> bool {
        let before = current.inputs.len();
        let mut sources = self.operands.iter();
        let mut recorded = self.args.iter();
        let mut tensor =
            |t: &Tensor| sources.next().is_some_and(|source| current.matches(source, t));
        let fits = same_name(self.target, target)
            && self.args.len() == args.len() + usize::from(first.is_some())
            && first.is_none_or(|t| {
                recorded.next().is_some_and(|(name, recorded)| {
                    same_name(name, "self") && matches!(recorded, RecordedArg::Tensor) && tensor(t)
                })
            })
            && recorded.zip(args).all(|((name, recorded), (given, arg))| {
                same_name(name, given) && recorded.matches(arg, &mut tensor)
            });
        if !fits {
            current.inputs.truncate(before);
        }
        fits
    }
    /// Whether both are the same op on the same operands.
    fn is_equal(&self, other: &RecordedOp) -> bool {
        self.target == other.target
            && self.operands == other.operands
            && self.args.len() == other.args.len()
            && self.args.iter().zip(&other.args).all(|((a, x), (b, y))| a == b && x.is_equal(y))
    }
}

impl CurrentSegment<'_> {
    /// Whether a tensor matches this operand; a new input is consumed.
    fn matches(&mut self, source: &OperandSource, t: &Tensor) -> bool {
        let array = match &t.0 {
            Repr::Array(array) => array,
            Repr::Lazy(node) => match node.value.get() {
                Some(array) => array,
                None => {
                    return matches!(source, OperandSource::Result(n) if node.is_result(self.graph, self.segment, *n));
                }
            },
            Repr::Node(_) | Repr::Failed(_) => return false,
        };
        match source {
            OperandSource::Result(_) => false,
            OperandSource::Input(n) => {
                self.inputs.get(*n).is_some_and(|have| Arc::ptr_eq(have, array))
            }
            // A repeated input is accepted: in the recorded call it was a distinct tensor.
            OperandSource::First(dtype, shape, device) => {
                let fits = array.dtype() == *dtype
                    && array.shape() == &**shape
                    && array.device() == *device;
                if fits {
                    self.inputs.push(array.clone());
                }
                fits
            }
        }
    }
}

/// Whether both numbers have one type.
fn same_type(a: Plain, b: Plain) -> bool {
    std::mem::discriminant(&a) == std::mem::discriminant(&b)
}

/// Whether both strings are equal; usually they have the same address.
fn same_name(a: &str, b: &str) -> bool {
    std::ptr::eq(a, b) || a == b
}

impl RecordedArg {
    /// Err: the argument is a graph value, which cannot be recorded.
    pub(super) fn of(arg: &Arg) -> Result<RecordedArg> {
        let size = |d: &Dim| d.known().ok_or_else(|| "takes a size that is no number".to_string());
        Ok(match arg {
            Arg::Operand(Operand::Tensor(_)) => RecordedArg::Tensor,
            Arg::Operand(Operand::Number(s)) => RecordedArg::Number(s.peek()),
            Arg::Operand(Operand::Int(n)) => RecordedArg::Int(*n),
            Arg::Operand(Operand::Float(x)) => RecordedArg::Float(*x),
            Arg::Operand(Operand::Bool(b)) => RecordedArg::Bool(*b),
            Arg::Operand(Operand::Size(d)) => RecordedArg::Size(size(d)?),
            Arg::Tensors(all) => RecordedArg::Tensors(all.len()),
            Arg::Sizes(all) => RecordedArg::Sizes(all.iter().map(size).collect::<Result<_, _>>()?),
            Arg::Plain(v) => RecordedArg::Plain(Literal::of(v)?),
        })
    }
    /// Restores the argument with these tensors. Err: too few tensors.
    pub(super) fn arg(&self, tensors: &mut impl Iterator<Item = Tensor>) -> Result<Arg> {
        let lost = || "has lost an operand".to_string();
        Ok(match self {
            RecordedArg::Tensor => Arg::Operand(Operand::Tensor(tensors.next().ok_or_else(lost)?)),
            RecordedArg::Tensors(n) => Arg::Tensors(
                (0..*n).map(|_| tensors.next().ok_or_else(lost)).collect::<Result<_, _>>()?,
            ),
            RecordedArg::Number(value) => Arg::Operand(Operand::Number(
                Scalar::plain(*value).with(tensors.next().ok_or_else(lost)?),
            )),
            RecordedArg::Int(n) => Arg::Operand(Operand::Int(*n)),
            RecordedArg::Float(x) => Arg::Operand(Operand::Float(*x)),
            RecordedArg::Bool(b) => Arg::Operand(Operand::Bool(*b)),
            RecordedArg::Size(n) => Arg::Operand(Operand::Size(Dim::from(*n))),
            RecordedArg::Sizes(all) => Arg::Sizes(all.iter().map(|n| Dim::from(*n)).collect()),
            RecordedArg::Plain(v) => Arg::Plain(v.value()),
        })
    }
    /// Whether an argument matches; `tensor` compares its tensors, in order.
    fn matches(&self, arg: &Arg, tensor: &mut dyn FnMut(&Tensor) -> bool) -> bool {
        match (self, arg) {
            (RecordedArg::Tensor, Arg::Operand(Operand::Tensor(t))) => tensor(t),
            (RecordedArg::Number(a), Arg::Operand(Operand::Number(s))) => {
                same_type(*a, s.peek()) && tensor(&s.tensor())
            }
            (RecordedArg::Int(a), Arg::Operand(Operand::Int(b))) => a == b,
            (RecordedArg::Float(a), Arg::Operand(Operand::Float(b))) => a.to_bits() == b.to_bits(),
            (RecordedArg::Bool(a), Arg::Operand(Operand::Bool(b))) => a == b,
            (RecordedArg::Size(n), Arg::Operand(Operand::Size(d))) => d.known() == Some(*n),
            (RecordedArg::Tensors(n), Arg::Tensors(all)) => {
                *n == all.len() && all.iter().all(tensor)
            }
            (RecordedArg::Sizes(recorded), Arg::Sizes(all)) => {
                recorded.len() == all.len()
                    && recorded.iter().zip(all).all(|(n, d)| d.known() == Some(*n))
            }
            (RecordedArg::Plain(recorded), Arg::Plain(v)) => recorded.matches(v),
            _ => false,
        }
    }
    /// Whether both are equal, floats bitwise.
    fn is_equal(&self, other: &RecordedArg) -> bool {
        match (self, other) {
            (RecordedArg::Float(a), RecordedArg::Float(b)) => a.to_bits() == b.to_bits(),
            (RecordedArg::Tensor, RecordedArg::Tensor) => true,
            (RecordedArg::Tensors(a), RecordedArg::Tensors(b)) => a == b,
            (RecordedArg::Number(a), RecordedArg::Number(b)) => same_type(*a, *b),
            (RecordedArg::Int(a), RecordedArg::Int(b))
            | (RecordedArg::Size(a), RecordedArg::Size(b)) => a == b,
            (RecordedArg::Bool(a), RecordedArg::Bool(b)) => a == b,
            (RecordedArg::Sizes(a), RecordedArg::Sizes(b)) => a == b,
            (RecordedArg::Plain(a), RecordedArg::Plain(b)) => a.matches(&b.value()),
            _ => false,
        }
    }
}

impl Literal {
    fn of(v: &Val) -> Result<Literal> {
        Ok(match v {
            Val::Int(Size::Static(n)) => Literal::Int(*n),
            Val::Float(x) => Literal::Float(*x),
            Val::Bool(b) => Literal::Bool(*b),
            Val::Str(s) => Literal::Str(s.clone()),
            Val::DType(d) => Literal::DType(*d),
            Val::List(all) => Literal::List(all.iter().map(Literal::of).collect::<Result<_, _>>()?),
            Val::None => Literal::None,
            Val::ComplexNumber(..) | Val::ComplexDType(_) => {
                return Err("takes a complex number".into());
            }
            Val::Tensor(_)
            | Val::Complex(..)
            | Val::Number(..)
            | Val::Fraction(..)
            | Val::Int(Size::Dynamic(_))
            | Val::Condition(..) => {
                return Err("takes a value of a graph".into());
            }
        })
    }
    fn value(&self) -> Val {
        match self {
            Literal::Int(n) => Val::Int(Size::Static(*n)),
            Literal::Float(x) => Val::Float(*x),
            Literal::Bool(b) => Val::Bool(*b),
            Literal::Str(s) => Val::Str(s.clone()),
            Literal::DType(d) => Val::DType(*d),
            Literal::List(all) => Val::List(all.iter().map(Literal::value).collect()),
            Literal::None => Val::None,
        }
    }
    fn matches(&self, v: &Val) -> bool {
        match (self, v) {
            (Literal::Int(a), Val::Int(Size::Static(b))) => a == b,
            (Literal::Float(a), Val::Float(b)) => a.to_bits() == b.to_bits(),
            (Literal::Bool(a), Val::Bool(b)) => a == b,
            (Literal::Str(a), Val::Str(b)) => a == b,
            (Literal::DType(a), Val::DType(b)) => a == b,
            (Literal::List(a), Val::List(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.matches(b))
            }
            (Literal::None, Val::None) => true,
            _ => false,
        }
    }
}
