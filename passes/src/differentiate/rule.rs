//! What a rule works with: the op, the cotangents of its results, and where to put those of its
//! operands.
use crate::{
    decompose::{self, tools::*},
    formula::{Formula, Term},
    refine_shapes::Facts,
};
use kiln_dialects::{ir::*, ops::*, sym::Dim, value::DType};
use std::{cell::RefCell, collections::HashSet};

/// The backward pass, which rules call for ops that they emit: at an insertion point, the
/// cotangents of values, what to differentiate by, further values at which it stops, and whether
/// the ops on the way are new to the facts.
pub(super) type PullBack = fn(
    &Builder,
    &RefCell<Facts>,
    &[(Value, Value)],
    &[Value],
    HashSet<Value>,
    bool,
) -> Result<Vec<Option<Value>>>;

/// One application of a rule. Ops are emitted at the end of the backward pass so far, with the
/// location of the op.
pub struct Rule<'a> {
    pub(super) m: Math<'a>,
    pub(super) op: Op,
    pub(super) facts: &'a RefCell<Facts>,
    cotangents: Vec<Option<Value>>,
    wanted: &'a HashSet<Value>,
    pub(super) pull_back: PullBack,
    pub(super) given: Vec<(Value, Value)>,
}

impl<'a> Rule<'a> {
    pub(super) fn new(
        b: &'a Builder,
        op: Op,
        facts: &'a RefCell<Facts>,
        cotangents: Vec<Option<Value>>,
        wanted: &'a HashSet<Value>,
        pull_back: PullBack,
    ) -> Rule<'a> {
        Rule { m: Math { b }, op, facts, cotangents, wanted, pull_back, given: vec![] }
    }
    /// The op as plain data.
    pub(super) fn node<N: Node>(&self) -> Result<N> {
        N::of(self.op).ok_or_malformed(self.op)
    }
    /// The cotangent of a result; `None` if it is 0.
    pub(super) fn cotangent_of(&self, result: usize) -> Option<Value> {
        self.cotangents.get(result).copied().flatten()
    }
    /// The cotangent of the first result.
    pub(super) fn cotangent(&self) -> Result<Value> {
        self.cotangent_of(0).ok_or_else(|| "has no cotangent of its first result".into())
    }
    /// Whether an operand depends on what is differentiated by.
    pub(super) fn wants(&self, operand: Value) -> bool {
        self.wanted.contains(&operand)
    }
    /// Adds to the cotangent of an operand.
    pub(super) fn give(&mut self, operand: Value, cotangent: Value) -> Result<()> {
        if self.wants(operand) {
            let v = self.m.convert(cotangent, dtype(operand)?)?;
            self.given.push((operand, self.m.retype(v, operand.ty())?));
        }
        Ok(())
    }
    /// Adds a formula of the cotangent, the operand and the result to the cotangent of operand
    /// `i`; computed in f32 for 16-bit floats.
    pub(super) fn slope(
        &mut self,
        i: usize,
        formula: impl for<'f> FnOnce(Term<'f>, Term<'f>, Term<'f>) -> Term<'f>,
    ) -> Result<()> {
        let (x, y, g) = (self.op.operand(i), self.op.result(0), self.cotangent()?);
        if !self.wants(x) {
            return Ok(());
        }
        let made = self.formula([g, x, y], |[g, x, y]| formula(g, x, y))?;
        self.give(x, made)
    }
    /// A formula of values, which are floats of one dtype; computed in f32 for 16-bit floats.
    pub(super) fn formula<const N: usize>(
        &self,
        values: [Value; N],
        formula: impl for<'f> FnOnce([Term<'f>; N]) -> Term<'f>,
    ) -> Result<Value> {
        let f = Formula::new(self.m.b);
        let wide = |v: Value| match dtype(v) {
            Ok(d) if d.is_float() => f.of(v).to(accumulator_type(d)),
            _ => f.of(v),
        };
        f.end(formula(values.map(wide)))
    }
    /// Zeros in the shape and dtype of a value.
    pub(super) fn zeros_like(&self, v: Value) -> Result<Value> {
        self.m.full_like(v, 0.0)
    }
    /// A 0-d zero.
    pub(super) fn zero(&self, d: DType) -> Result<Value> {
        self.m.b.splat(d, &[], 0.0)
    }
    /// A size with the sign changed.
    pub(super) fn negative(&self, s: Size) -> Result<Size> {
        self.m.size(SymKind::Mul, s, Size::Static(-1))
    }
    /// A dimension, as far as it is known.
    pub(super) fn dim(&self, v: Value, axis: usize) -> Dim {
        self.facts.borrow().dims(v).get(axis).cloned().unwrap_or(Dim::Unknown)
    }

    /// Differentiates the expansion that `kiln-decompose` makes of the op. It is emitted anew; the
    /// decomposition of the op itself is the same, and CSE joins the two.
    pub(super) fn decompose(&mut self) -> Result<()> {
        let kind = self.op.kind().ok_or("is no op of kiln")?;
        let values = decompose::expand(kind, self.op, self.m.b)?;
        let mut outputs = vec![];
        for ((i, old), new) in self.op.results().into_iter().enumerate().zip(values) {
            if let Some(g) = self.cotangent_of(i) {
                outputs.push((self.m.retype(new, old.ty())?, g));
            }
        }
        self.through(&outputs)
    }
    /// Differentiates values that the rule has emitted as functions of the op's operands.
    pub(super) fn through(&mut self, outputs: &[(Value, Value)]) -> Result<()> {
        let inputs = inputs_of(self.op);
        let wrt: Vec<Value> = inputs.iter().copied().filter(|v| self.wants(*v)).collect();
        let leaves = inputs.into_iter().collect();
        let made = (self.pull_back)(self.m.b, self.facts, outputs, &wrt, leaves, true)?;
        for (x, g) in wrt.into_iter().zip(made) {
            if let Some(g) = g {
                self.give(x, g)?;
            }
        }
        Ok(())
    }
}

/// The operands of an op, and the values outside of its regions that these read, each once.
pub(crate) fn inputs_of(op: Op) -> Vec<Value> {
    let mut seen = HashSet::new();
    let all = [op.operands(), captured_by(op)].concat();
    all.into_iter().filter(|v| seen.insert(*v)).collect()
}

/// The values outside of an op's regions that these read, each once.
pub(super) fn captured_by(op: Op) -> Vec<Value> {
    if op.regions().is_empty() {
        return vec![];
    }
    let inner = walk(op);
    let ops: HashSet<Op> = inner.iter().copied().collect();
    let own: HashSet<Block> = inner.iter().flat_map(|o| blocks(*o)).collect();
    let outside = |v: &Value| match (v.def(), v.block_arg()) {
        (Some(def), _) => !ops.contains(&def),
        (None, Some((block, _))) => !own.contains(&block),
        (None, None) => false,
    };
    let mut seen = HashSet::new();
    let read = inner.into_iter().skip(1).flat_map(|o| o.operands());
    read.filter(|v| outside(v) && seen.insert(*v)).collect()
}
