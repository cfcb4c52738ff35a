//! The backward pass over a block: which ops matter, in which order, and the sums of cotangents.
use super::{
    derivative::{Derivative, derivative},
    rule::{Rule, inputs_of},
};
use crate::{decompose::tools::Math, refine_shapes::Facts};
use kiln_dialects::{ir::*, ops::OpKind, rules::tensor_type, value::DType};
use std::{
    cell::RefCell,
    collections::{HashMap, HashSet},
};

/// Emits the vector-Jacobian product of `outputs`, each with its cotangent of the same shape and
/// dtype, by `wrt`: one gradient each, in its shape and dtype; `None` is 0. All values are visible
/// at the insertion point, and what depends on `wrt` is in the block of the insertion point.
/// `facts` are of the ops before it. Err: an op on the way that has no derivative, with its
/// location.
pub fn vjp(
    b: &Builder,
    facts: &mut Facts,
    outputs: &[(Value, Value)],
    wrt: &[Value],
) -> Result<Vec<Option<Value>>> {
    let shared = RefCell::new(std::mem::take(facts));
    let made = pull_back(b, &shared, outputs, wrt, HashSet::new(), false);
    *facts = shared.into_inner();
    made
}

/// As [`vjp`]; `leaves` are further values at which it stops. `fresh`: the ops on the way are not
/// in `facts` yet.
fn pull_back(
    b: &Builder,
    facts: &RefCell<Facts>,
    outputs: &[(Value, Value)],
    wrt: &[Value],
    mut leaves: HashSet<Value>,
    fresh: bool,
) -> Result<Vec<Option<Value>>> {
    leaves.extend(wrt);
    let from: Vec<Value> = outputs.iter().map(|(v, _)| *v).collect();
    let ops = ancestors(&from, &leaves, b.block());
    if fresh {
        ops.iter().try_for_each(|op| facts.borrow_mut().extend(*op))?;
    }
    let (active, bits) = active(&ops, wrt);
    let mut sums = Sums::default();
    for (value, cotangent) in outputs.iter().filter(|(v, _)| active.contains(v)) {
        sums.add(b, *value, *cotangent)?;
    }
    for op in ops.into_iter().rev() {
        let cotangents: Vec<Option<Value>> =
            op.results().iter().map(|v| sums.0.get(v).copied()).collect();
        if cotangents.iter().all(Option::is_none) {
            continue;
        }
        if bits.contains(&op) {
            return Err(Error::unsupported(
                op,
                "cannot be differentiated: it makes a number of bits of others",
            ));
        }
        let at = b.at(op.loc());
        let mut rule = Rule::new(&at, op, facts, cotangents, &active, pull_back);
        apply(&mut rule).at(op)?;
        for (operand, cotangent) in rule.given {
            sums.add(&at, operand, cotangent)?;
        }
    }
    Ok(wrt.iter().map(|v| sums.0.get(v).copied()).collect())
}

fn apply(rule: &mut Rule<'_>) -> Result<()> {
    let Some(kind) = rule.op.kind() else {
        return Err("cannot be differentiated: it is no op of kiln".into());
    };
    match derivative(kind) {
        Derivative::Zero => Ok(()),
        Derivative::Own(emit) => emit(rule),
        Derivative::Decomposed => rule.decompose(),
        Derivative::Refused(why) => {
            Err(Error::unsupported(rule.op, format!("cannot be differentiated: it {why}")))
        }
    }
}

/// Cotangents so far.
#[derive(Default)]
struct Sums(HashMap<Value, Value>);

impl Sums {
    fn add(&mut self, b: &Builder, value: Value, cotangent: Value) -> Result<()> {
        let m = Math { b };
        let new = m.retype(cotangent, value.ty())?;
        let sum = match self.0.get(&value) {
            Some(old) => m.add(*old, new)?,
            None => new,
        };
        self.0.insert(value, sum);
        Ok(())
    }
}

/// The ops of a block that `values` are computed by from `leaves`, operands first. Iterative: a
/// graph may be deep.
fn ancestors(values: &[Value], leaves: &HashSet<Value>, block: Block) -> Vec<Op> {
    let maker = |v: &Value| v.def().filter(|op| !leaves.contains(v) && op.block() == Some(block));
    let (mut all, mut seen) = (vec![], HashSet::new());
    let mut stack: Vec<(Op, std::vec::IntoIter<Value>)> = vec![];
    for value in values {
        let mut next = maker(value);
        loop {
            if let Some(op) = next.take().filter(|op| seen.insert(*op)) {
                stack.push((op, inputs_of(op).into_iter()));
            }
            let Some((op, rest)) = stack.last_mut() else { break };
            match rest.next() {
                Some(v) => next = maker(&v),
                None => {
                    all.push(*op);
                    stack.pop();
                }
            }
        }
    }
    all
}

/// The values that depend on `wrt` and have a derivative; and the ops that make floats of the bits
/// of such values, whose derivative no rule of integers gives.
fn active(ops: &[Op], wrt: &[Value]) -> (HashSet<Value>, HashSet<Op>) {
    let dtype = |v: &Value| tensor_type(v.ty()).ok().map(|t| t.dtype);
    let is_float = |v: &Value| dtype(v).is_some_and(|d| d.is_float());
    let mut all: HashSet<Value> = wrt.iter().copied().collect();
    let (mut bits, mut of_bits) = (HashSet::new(), HashSet::new());
    for op in ops {
        let (inputs, casts) = (inputs_of(*op), op.kind() == Some(OpKind::Bitcast));
        if inputs.iter().any(|v| bits.contains(v)) {
            let integers = op.results().into_iter().filter(|v| !is_float(v));
            bits.extend(integers.filter(|v| dtype(v) != Some(DType::I1)));
            if casts {
                // So that a cotangent comes here.
                all.extend(op.results().into_iter().filter(is_float));
                of_bits.insert(*op);
            }
        }
        let zero = op.kind().is_some_and(|k| matches!(derivative(k), Derivative::Zero));
        if !zero && inputs.iter().any(|v| all.contains(v)) {
            all.extend(op.results().into_iter().filter(is_float));
            bits.extend(op.results().into_iter().filter(|v| casts && !is_float(v)));
        }
    }
    (all, of_bits)
}
