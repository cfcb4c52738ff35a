//! The score function as plain data: what the softmax reads, as terms over the product of a query
//! and a key, its position and tensors.
//!
//! On the way from the product, floats are of the score's dtype. Ops that depend on query and key
//! but not on the product are terms, so that masks need no memory; smaller tensors are read.
use crate::{
    raise_attention::place::{Place, places},
    refine_shapes::Facts,
    simplify::splats::scalar_of,
};
use kiln_dialects::{
    ir::*,
    ops::*,
    rules::tensor_type,
    sym::Dim,
    value::{DType, Tensor},
};
use std::collections::{HashMap, HashSet};

/// A 0-d value of the score function.
#[derive(Clone, Debug)]
pub(super) enum Term {
    /// The scaled product.
    Score,
    /// An index.
    Index(Place),
    Float(f64),
    Int(i64),
    /// An element of a tensor.
    Read(Value, Vec<Place>),
    /// An elementwise op on other terms.
    Apply(Op, Vec<usize>),
    Compare(CompareKind, usize, usize),
    Select([usize; 3]),
    Logic(OpKind, Vec<usize>),
    Convert(usize),
}

/// The terms in order, each with its dtype.
pub(super) struct Score<'a> {
    pub(super) facts: &'a Facts,
    /// Values between the product and the softmax.
    pub(super) spine: &'a HashSet<Value>,
    /// The value that is the scaled product.
    pub(super) scaled: Value,
    /// The dtype of scores.
    pub(super) dtype: DType,
    pub(super) terms: Vec<(Term, DType)>,
    /// Most terms.
    pub(super) most: usize,
    known: HashMap<(Value, Vec<Place>), usize>,
}

pub(super) type Planned = Result<usize, &'static str>;

impl<'a> Score<'a> {
    pub(super) fn new(
        facts: &'a Facts,
        spine: &'a HashSet<Value>,
        scaled: Value,
        dtype: DType,
        most: usize,
    ) -> Score<'a> {
        let (terms, known) = (vec![], HashMap::new());
        Score { facts, spine, scaled, dtype, terms, most, known }
    }

    /// The term of a value's element.
    pub(super) fn element(&mut self, v: Value, at: &[Place]) -> Planned {
        let key = (v, at.to_vec());
        if let Some(n) = self.known.get(&key) {
            return Ok(*n);
        }
        let n = self.planned(v, at)?;
        self.known.insert(key, n);
        Ok(n)
    }

    fn planned(&mut self, v: Value, at: &[Place]) -> Planned {
        let d = self.dtype_of(v)?;
        if v == self.scaled {
            let own = places(self.facts.dims(v))?;
            return if own == at { self.push(Term::Score, d) } else { Err(MOVED) };
        }
        if let Some(number) = scalar_of(v) {
            let n = number.as_bool().map(i64::from).or_else(|| number.as_i64());
            return match number.as_f64() {
                Some(x) => self.push(Term::Float(x), d),
                None => self.push(Term::Int(n.ok_or("has a strange number")?), d),
            };
        }
        let spine = self.spine.contains(&v);
        let Some((op, kind)) = v.def().and_then(|op| Some((op, op.kind()?))) else {
            return self.read(v, at, d);
        };
        if !spine && !self.is_inlined(v, at) {
            return self.read(v, at, d);
        }
        match kind {
            OpKind::Iota => {
                let o = Iota::of(op).ok_or("is malformed")?;
                let n = self.push(Term::Index(at[o.axis as usize].clone()), DType::I64)?;
                if d == DType::I64 { Ok(n) } else { self.push(Term::Convert(n), d) }
            }
            OpKind::BroadcastInDim | OpKind::Transpose | OpKind::Slice | OpKind::Reshape => {
                match self.moved(op, at) {
                    Some((from, at)) => self.element(from, &at),
                    None if spine => Err(MOVED),
                    None => self.read(v, at, d),
                }
            }
            OpKind::Convert => self.convert(op.operand(0), v, at, spine),
            _ => {
                let operands = op.operands();
                let all = operands.iter().map(|x| self.element(*x, at));
                let all = all.collect::<Result<Vec<_>, _>>()?;
                self.apply(op, &all, d)
            }
        }
    }

    pub(super) fn push(&mut self, term: Term, d: DType) -> Planned {
        if self.terms.len() >= self.most {
            return Err("its score has too many ops");
        }
        self.terms.push((term, d));
        Ok(self.terms.len() - 1)
    }

    /// The dtype of a term: the score's dtype for narrower floats.
    fn dtype_of(&self, v: Value) -> Result<DType, &'static str> {
        let d = tensor_type(v.ty()).map_err(|_| "is no tensor")?.dtype;
        match d.is_float() && d.bits() <= self.dtype.bits() {
            true => Ok(self.dtype),
            false if d.is_float() && self.spine.contains(&v) => {
                Err("its scores are wider than its accumulator")
            }
            false => Ok(d),
        }
    }

    /// A conversion. Between the product and the softmax floats are not rounded; what is added may
    /// overflow as it is rounded.
    fn convert(&mut self, from: Value, to: Value, at: &[Place], spine: bool) -> Planned {
        let n = self.element(from, at)?;
        let (d, own) = (self.dtype_of(to)?, self.terms[n].1);
        let narrow = tensor_type(to.ty()).map_err(|_| "is no tensor")?.dtype;
        let before = tensor_type(from.ty()).map_err(|_| "is no tensor")?.dtype;
        let rounds = narrow.is_float() && narrow.bits() < before.bits().min(d.bits());
        if let (Term::Float(x), true) = (&self.terms[n].0, rounds) {
            let rounded = Tensor::scalar_f(narrow, *x).ok().map(|t| t.rounded());
            let x = rounded.as_ref().and_then(|t| t.as_f().ok()?.first().copied());
            return self.push(Term::Float(x.ok_or("has a strange number")?), d);
        }
        if !spine && rounds {
            let n = self.push(Term::Convert(n), narrow)?;
            return self.push(Term::Convert(n), d);
        }
        if own == d { Ok(n) } else { self.push(Term::Convert(n), d) }
    }

    /// The operand of a movement op and the position in it, if it is one of scores.
    fn moved(&self, op: Op, at: &[Place]) -> Option<(Value, Vec<Place>)> {
        let from = op.operand(0);
        let (own, all) = (self.facts.dims(from), self.facts.dims(op.result(0)));
        let unit = |i: usize| own[i].known() == Some(1);
        if let Some(o) = BroadcastInDim::of(op) {
            let place = |(i, d): (usize, &i64)| {
                if unit(i) { Place::Zero } else { at[*d as usize].clone() }
            };
            return Some((from, o.dims.iter().enumerate().map(place).collect()));
        }
        if let Some(o) = Transpose::of(op) {
            let mut moved = at.to_vec();
            o.permutation.iter().zip(at).for_each(|(p, x)| moved[*p as usize] = x.clone());
            return Some((from, moved));
        }
        if let Some(o) = Slice::of(op) {
            let first = o.offsets.iter().all(|s| s.known() == Some(0));
            return (first && o.strides.iter().all(|s| *s == 1)).then(|| (from, at.to_vec()));
        }
        Reshape::of(op)?;
        let rows = |dims: &[Dim]| dims[dims.len().saturating_sub(2)..].to_vec();
        if own.len() > 1 && rows(own) == rows(all) && places(all).is_ok_and(|all| all == at) {
            return Some((from, places(own).ok()?));
        }
        // Only unit dimensions come and go.
        let wide = (0..all.len()).filter(|i| all[*i].known() != Some(1));
        let mut wide = wide.map(|i| (&all[i], &at[i])).collect::<Vec<_>>().into_iter();
        let place = |i: usize| match own[i].known() {
            Some(1) => Some(Place::Zero),
            _ => wide.next().filter(|(d, _)| **d == own[i]).map(|(_, place)| place.clone()),
        };
        let moved = (0..own.len()).map(place).collect::<Option<Vec<_>>>()?;
        wide.next().is_none().then_some((from, moved))
    }

    /// Whether a value that does not depend on the product is computed for each score: it is cheap,
    /// and as large as the scores or a function of the position.
    fn is_inlined(&self, v: Value, at: &[Place]) -> bool {
        let large = at.contains(&Place::Query) && at.contains(&Place::Key);
        let Some((op, kind)) = v.def().and_then(|op| Some((op, op.kind()?))) else { return false };
        match kind {
            OpKind::Iota | OpKind::BroadcastInDim | OpKind::Slice => true,
            OpKind::Transpose | OpKind::Reshape => op.operand(0).def().is_some_and(|o| {
                o.kind() == Some(OpKind::Iota)
                    || (o.kind().is_some_and(is_cheap) && self.moved(op, at).is_some())
                    || (kind == OpKind::Reshape && self.moved(op, at).is_some())
            }),
            kind => is_cheap(kind) && (large || is_positional(v, 8)),
        }
    }

    fn read(&mut self, v: Value, at: &[Place], d: DType) -> Planned {
        let stored = tensor_type(v.ty()).map_err(|_| "is no tensor")?.dtype;
        let n = self.push(Term::Read(v, at.to_vec()), stored)?;
        if stored == d { Ok(n) } else { self.push(Term::Convert(n), d) }
    }
}

const MOVED: &str = "its scores are moved between the product and the softmax";

/// Ops that cost less than a read.
fn is_cheap(kind: OpKind) -> bool {
    use OpKind::*;
    let arithmetic = matches!(kind, Add | Sub | Mul | Neg | Abs | Max | Min | Clamp | Convert);
    arithmetic || matches!(kind, Compare | Select | And | Or | Xor | Not)
}

/// Whether a value is computed from indices and numbers only.
fn is_positional(v: Value, depth: usize) -> bool {
    let Some((op, kind)) = v.def().and_then(|op| Some((op, op.kind()?))) else { return false };
    let moves = matches!(kind, OpKind::BroadcastInDim | OpKind::Reshape | OpKind::Transpose);
    kind == OpKind::Iota
        || scalar_of(v).is_some()
        || (depth > 0
            && (is_cheap(kind) || moves)
            && op
                .operands()
                .iter()
                .filter(|o| o.ty().is_tensor())
                .all(|o| is_positional(*o, depth - 1)))
}
