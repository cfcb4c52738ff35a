//! Control flow: regions are run again, and differentiated inside of the op's backward pass.
use super::rule::{PullBack, Rule, captured_by, inputs_of};
use crate::{
    decompose::tools::{Math, dtype},
    refine_shapes::Facts,
};
use kiln_dialects::{ir::*, ops::*, rules::tensor_type, sym::Dim};
use std::{
    cell::RefCell,
    collections::{HashMap, HashSet},
};

/// Copies the ops of a region's block, whose arguments become `args`; returns what it yields.
fn copied(b: &Builder, facts: &RefCell<Facts>, block: Block, args: &[Value]) -> Result<Vec<Value>> {
    copied_with(b, facts, block, block.args().into_iter().zip(args.iter().copied()).collect())
}

/// Copies the ops of a region's block with other values; returns what it yields.
fn copied_with(
    b: &Builder,
    facts: &RefCell<Facts>,
    block: Block,
    mut map: HashMap<Value, Value>,
) -> Result<Vec<Value>> {
    for op in block.ops() {
        if op.kind() == Some(OpKind::Yield) {
            return Ok(op.operands().iter().map(|v| *map.get(v).unwrap_or(v)).collect());
        }
        let copy = b.clone_op(op, &|v| *map.get(&v).unwrap_or(&v))?;
        map.extend(op.results().into_iter().zip(copy.results()));
        facts.borrow_mut().extend(copy)?;
    }
    Err("has a region without a terminator".into())
}

/// Gradients by `wrt` of values in a region, zeros where they do not depend on one.
fn gradients(
    pull_back: PullBack,
    b: &Builder,
    facts: &RefCell<Facts>,
    outputs: &[(Value, Value)],
    wrt: &[Value],
) -> Result<Vec<Value>> {
    let made = pull_back(b, facts, outputs, wrt, HashSet::new(), false)?;
    let m = Math { b };
    let one = |(x, g): (&Value, Option<Value>)| match g {
        Some(g) => m.retype(g, x.ty()),
        None => m.full_like(*x, 0.0),
    };
    wrt.iter().zip(made).map(one).collect()
}

pub(super) fn barrier(r: &mut Rule<'_>) -> Result<()> {
    let g = r.cotangent()?;
    r.give(r.op.operand(0), g)
}

/// `kiln.checkpoint`: the region runs again, on values that common-subexpression elimination does
/// not take for those of the forward pass.
pub(super) fn checkpoint(r: &mut Rule<'_>) -> Result<()> {
    let (facts, op) = (r.facts, r.op);
    let block = op.regions().first().and_then(|x| x.first()).ok_or("has no body")?;
    let (mut map, mut wrt) = (HashMap::new(), vec![]);
    for v in captured_by(op) {
        // Sizes have no barrier: they are computed again, or found.
        if tensor_type(v.ty()).is_err() {
            continue;
        }
        let made = r.m.b.create_node(&OptimizationBarrier { input: v })?;
        facts.borrow_mut().extend(made)?;
        map.insert(v, made.result(0));
        if r.wants(v) {
            wrt.push(v);
        }
    }
    let fresh: Vec<Value> = wrt.iter().map(|v| map[v]).collect();
    let yielded = copied_with(r.m.b, facts, block, map)?;
    let mut outputs = vec![];
    for (i, v) in yielded.into_iter().enumerate() {
        if let Some(g) = r.cotangent_of(i) {
            outputs.push((v, r.m.retype(g, v.ty())?));
        }
    }
    let made = gradients(r.pull_back, r.m.b, facts, &outputs, &fresh)?;
    for (x, g) in wrt.into_iter().zip(made) {
        r.give(x, g)?;
    }
    Ok(())
}

/// `kiln.if`: of the branch that is taken, for the values outside that it reads.
pub(super) fn branch(r: &mut Rule<'_>) -> Result<()> {
    let condition = r.node::<If>()?.condition;
    let wrt: Vec<Value> = inputs_of(r.op).into_iter().filter(|v| r.wants(*v)).collect();
    let (facts, op, back) = (r.facts, r.op, r.pull_back);
    let region = |index: usize, b: Builder| -> Result<()> {
        let block = op.regions().get(index).and_then(|x| x.first()).ok_or("has no region")?;
        let yielded = copied(&b, facts, block, &[])?;
        let outputs: Vec<(Value, Value)> = (0..op.result_count())
            .filter_map(|i| Some((yielded[i], r.cotangent_of(i)?)))
            .map(|(v, g)| Ok((v, Math { b: &b }.retype(g, v.ty())?)))
            .collect::<Result<_>>()?;
        let values = gradients(back, &b, facts, &outputs, &wrt)?;
        b.create_with(&Yield { values }, &[], &mut []).map(|_| ())
    };
    let types: Vec<Type> = wrt.iter().map(|v| v.ty()).collect();
    let mut then = |b: Builder, _: Vec<Value>| region(0, b);
    let mut other = |b: Builder, _: Vec<Value>| region(1, b);
    let made =
        r.m.b.create_with(&If { condition }, &types, &mut [(&[], &mut then), (&[], &mut other)])?;
    for (x, g) in wrt.into_iter().zip(made.results()) {
        r.give(x, g)?;
    }
    Ok(())
}

fn is_float(v: &Value) -> bool {
    tensor_type(v.ty()).is_ok_and(|t| t.dtype.is_float())
}

/// `kiln.scan`: runs forward once more, keeps the loop-carried values that each step begins with,
/// and scans the other way over these.
pub(super) fn scan(r: &mut Rule<'_>) -> Result<()> {
    let (o, facts, op, back) = (r.node::<Scan>()?, r.facts, r.op, r.pull_back);
    let block = op.regions().first().and_then(|x| x.first()).ok_or("has no body")?;
    let states = states(r, &o, block)?;
    let n = o.inits.len();
    let args = block.args();
    let carried: Vec<usize> = (0..n).filter(|i| is_float(&args[*i])).collect();
    let sliced: Vec<usize> = (0..o.inputs.len()).filter(|i| r.wants(o.inputs[*i])).collect();
    let captured: Vec<Value> = captured_by(op).into_iter().filter(|v| r.wants(*v)).collect();
    let stacked: Vec<usize> =
        (n..op.result_count()).filter(|i| r.cotangent_of(*i).is_some()).collect();

    // Loop-carried: cotangents of the loop-carried values, and sums of those of captured values.
    let mut inits = vec![];
    for i in &carried {
        inits.push(match r.cotangent_of(*i) {
            Some(g) => r.m.retype(g, args[*i].ty())?,
            None => r.zeros_like(o.inits[*i])?,
        });
    }
    for v in &captured {
        inits.push(r.zeros_like(*v)?);
    }
    let mut inputs = [states, o.inputs.clone()].concat();
    inputs.extend(stacked.iter().filter_map(|i| r.cotangent_of(*i)));
    let mut types: Vec<Type> = inits.iter().map(|v| v.ty()).collect();
    let mut slices = types.clone();
    for v in &inputs {
        let dims = v.ty().dims();
        let rest = dims.get(1..).ok_or("has an input without a first dimension")?;
        slices.push(Type::tensor(v.ctx(), dtype(*v)?, rest));
    }
    types.extend(sliced.iter().map(|i| o.inputs[*i].ty()));
    let count = inits.len();
    let mut body = |b: Builder, given: Vec<Value>| -> Result<()> {
        given.iter().for_each(|v| facts.borrow_mut().argument(*v));
        let m = Math { b: &b };
        let (cotangents, rest) = given.split_at(count);
        let (step, by_stacked) = rest.split_at(n + o.inputs.len());
        let step = step
            .iter()
            .zip(&args)
            .map(|(v, arg)| m.retype(*v, arg.ty()))
            .collect::<Result<Vec<_>>>()?;
        let yielded = copied(&b, facts, block, &step)?;
        let mut outputs = vec![];
        for (i, g) in carried.iter().zip(cotangents) {
            outputs.push((yielded[*i], m.retype(*g, yielded[*i].ty())?));
        }
        for (i, g) in stacked.iter().zip(by_stacked) {
            outputs.push((yielded[*i], m.retype(*g, yielded[*i].ty())?));
        }
        let wrt: Vec<Value> = carried
            .iter()
            .map(|i| step[*i])
            .chain(captured.iter().copied())
            .chain(sliced.iter().map(|i| step[n + *i]))
            .collect();
        let mut values = gradients(back, &b, facts, &outputs, &wrt)?;
        for (k, sum) in cotangents.iter().enumerate().skip(carried.len()) {
            values[k] = m.add(*sum, values[k])?;
        }
        b.create_with(&Yield { values }, &[], &mut []).map(|_| ())
    };
    let node = Scan { inits, inputs, reverse: !o.reverse };
    let made = r.m.b.create_with(&node, &types, &mut [(&slices, &mut body)])?.results();
    let operands = carried.iter().map(|i| o.inits[*i]).chain(captured.iter().copied());
    let operands: Vec<Value> = operands.chain(sliced.iter().map(|i| o.inputs[*i])).collect();
    for (x, g) in operands.into_iter().zip(made) {
        r.give(x, g)?;
    }
    Ok(())
}

/// The loop-carried values at the beginning of each step, stacked.
fn states(r: &Rule<'_>, o: &Scan, block: Block) -> Result<Vec<Value>> {
    let (facts, n) = (r.facts, o.inits.len());
    let args = block.args();
    let length = o.inputs.first().and_then(|v| v.ty().dims().first().cloned());
    let length = length.unwrap_or(Dim::Unknown);
    let types: Vec<Type> = args.iter().map(|v| v.ty()).collect();
    let mut results = types[..n].to_vec();
    for v in &args[..n] {
        let dims = [std::slice::from_ref(&length), v.ty().dims().as_slice()].concat();
        results.push(Type::tensor(v.ctx(), dtype(*v)?, &dims));
    }
    let mut body = |b: Builder, given: Vec<Value>| -> Result<()> {
        given.iter().for_each(|v| facts.borrow_mut().argument(*v));
        let mut values = copied(&b, facts, block, &given)?;
        values.truncate(n);
        values.extend(&given[..n]);
        b.create_with(&Yield { values }, &[], &mut []).map(|_| ())
    };
    let made = r.m.b.create_with(o, &results, &mut [(&types, &mut body)])?;
    facts.borrow_mut().extend(made)?;
    Ok(made.results().split_off(n))
}
