//! What is computed in chunks: the ops from a product to the values that leave its rows.
use super::{
    rows::{Rows, elements, sizes},
    rules::{Need, Outcome, needs, outcome, sum_needs},
};
use kiln_dialects::{ir::*, ops::*};
use std::collections::{HashMap, HashSet};

/// An op that is computed for each chunk.
pub(super) struct Step {
    pub op: Op,
    /// Of each operand.
    pub needs: Vec<Need>,
    /// The rows of its result; `None` for a sum over rows.
    pub rows: Option<Rows>,
    /// Whether something else reads its result.
    pub leaves: bool,
}

/// Steps in program order.
pub(super) struct Region {
    pub steps: Vec<Step>,
    /// Their ops.
    pub ops: HashSet<Op>,
    /// Ops between them that depend on what leaves the region.
    pub later: Vec<Op>,
    /// The number of rows.
    pub count: i64,
    /// The number of elements of the product's result.
    elements: i64,
}

/// What the analysis knows of a value that depends on the product.
enum State {
    /// It has rows.
    Rows(Rows),
    /// It reduces all rows.
    Sum,
    /// It is computed of what has left the region.
    Later,
}

impl Region {
    /// The region of a product. `Ok(None)`: its rows are not reduced. Err: why it has none.
    pub(super) fn of(block: Block, product: Op) -> Result<Option<Region>, String> {
        let Some(o) = DotGeneral::of(product).filter(|o| o.lhs_batch.is_empty()) else {
            return Ok(None);
        };
        let (Some(all), Some(elements)) = (sizes(product.result(0)), elements(product.result(0)))
        else {
            return Ok(None);
        };
        let of_lhs = o.lhs.ty().dims().len() - o.lhs_contract.len();
        let real = |dims: std::ops::Range<usize>| dims.filter(|d| all[*d] > 1).collect::<Rows>();
        let lhs = Self::with_rows(block, product, real(0..of_lhs), elements);
        // Either operand may be the one that has rows.
        match lhs {
            Ok(Some(_)) => lhs,
            _ => match Self::with_rows(block, product, real(of_lhs..all.len()), elements) {
                Ok(Some(region)) => Ok(Some(region)),
                _ => lhs,
            },
        }
    }

    fn with_rows(
        block: Block,
        product: Op,
        rows: Rows,
        elements: i64,
    ) -> Result<Option<Region>, String> {
        let all = sizes(product.result(0)).unwrap_or_default();
        let count = rows.iter().filter_map(|d| all.get(*d)).product();
        let Some(needed) = needs(product, &rows).filter(|_| count > 1) else { return Ok(None) };
        let mut region =
            Region { steps: vec![], ops: HashSet::new(), later: vec![], count, elements };
        let mut states = HashMap::from([(product.result(0), State::Rows(rows.clone()))]);
        let first = Step { op: product, needs: needed, rows: Some(rows), leaves: false };
        let mut steps = vec![first];
        let mut after: Vec<(Op, Option<String>)> = vec![];
        let ops = block.ops();
        let at = ops.iter().position(|op| *op == product).unwrap_or(ops.len());
        for op in ops.into_iter().skip(at + 1) {
            let read: Vec<Value> = walk(op).into_iter().flat_map(Op::operands).collect();
            if !read.iter().any(|v| states.contains_key(v)) {
                continue;
            }
            match step(op, &states) {
                Ok(step) => {
                    let state = step.rows.clone().map_or(State::Sum, State::Rows);
                    states.insert(op.result(0), state);
                    steps.push(step);
                }
                Err(why) => {
                    states.extend(op.results().into_iter().map(|v| (v, State::Later)));
                    after.push((op, why));
                }
            }
        }
        region.keep(steps);
        let reduces = |s: &Step| {
            use OpKind::{ArgMax, ArgMin, Reduce};
            s.rows.is_some()
                && matches!(s.op.kind(), Some(Reduce | ArgMax | ArgMin))
                && region.is_large(s.op.operand(0))
        };
        let reduced = region.steps.iter().any(reduces);
        let later =
            |(op, _): &(Op, _)| op.kind() == Some(OpKind::Reduce) && region.is_large(op.operand(0));
        if !reduced && !after.iter().any(later) {
            return Ok(None);
        }
        for s in &region.steps {
            let Some(reader) = region.reader(s.op.result(0)) else { continue };
            if s.rows.is_some() && region.is_large(s.op.result(0)) {
                let known = after.iter().find(|(op, _)| *op == reader);
                let why = known.and_then(|(_, why)| why.clone());
                return Err(why.unwrap_or_else(|| format!("{} reads all rows", reader.name())));
            }
        }
        region.later = region.later_ops(block);
        Ok(reduced.then_some(region))
    }

    /// Whether a value has as many elements as the product.
    pub(super) fn is_large(&self, v: Value) -> bool {
        elements(v).is_some_and(|n| n >= self.elements)
    }

    /// Keeps the steps that read large values, or whose results others need to do so.
    fn keep(&mut self, steps: Vec<Step>) {
        let kept = steps.into_iter().rev().filter_map(|mut s| {
            let v = s.op.result(0);
            let rows = |n: &Need| matches!(n, Need::Rows(_));
            let mut read = s.op.operands().into_iter().zip(&s.needs);
            let own = s.rows.is_some()
                && (self.is_large(v) || v.uses().iter().any(|(op, _)| self.ops.contains(op)));
            if !own && !read.any(|(v, n)| rows(n) && self.is_large(v)) {
                return None;
            }
            self.ops.insert(s.op);
            s.leaves = self.reader(v).is_some();
            Some(s)
        });
        let mut kept: Vec<Step> = kept.collect();
        kept.reverse();
        self.steps = kept;
    }

    /// An op outside of the region that reads a value.
    fn reader(&self, v: Value) -> Option<Op> {
        v.uses().into_iter().map(|(op, _)| op).find(|op| !self.ops.contains(op))
    }

    /// The ops before the last step that depend on a step.
    fn later_ops(&self, block: Block) -> Vec<Op> {
        let mut depend: HashSet<Value> = self.ops.iter().map(|op| op.result(0)).collect();
        let last = self.steps.last().map(|s| s.op);
        let mut found = vec![];
        for op in block.ops().into_iter().take_while(|op| Some(*op) != last) {
            let mut read = walk(op).into_iter().flat_map(Op::operands);
            if !self.ops.contains(&op) && read.any(|v| depend.contains(&v)) {
                depend.extend(op.results());
                found.push(op);
            }
        }
        found
    }
}

/// The step of an op that reads values with states. Err: it is none, with the reason if that is not
/// only that it reads what has left the region.
fn step(op: Op, states: &HashMap<Value, State>) -> Result<Step, Option<String>> {
    let by_rows = || Some(format!("{} is not computed row by row", op.name()));
    let of = |v: Value| match states.get(&v) {
        Some(State::Rows(rows)) => Some(rows),
        _ => None,
    };
    let operands = op.operands();
    let Some((i, rows)) = operands.iter().enumerate().find_map(|(i, v)| Some((i, of(*v)?))) else {
        return Err(None);
    };
    if operands.iter().any(|v| matches!(states.get(v), Some(State::Sum | State::Later))) {
        let name = op.name();
        return Err(Some(format!("{name} takes a row and a value that depends on all rows")));
    }
    if op.isa::<func::Return>() {
        return Err(Some("the function returns all rows".into()));
    }
    if op.result_count() != 1 || !op.regions().is_empty() {
        return Err(by_rows());
    }
    let (needed, rows) = match outcome(op, i, rows) {
        Outcome::Rows(result) => (needs(op, &result), Some(result)),
        Outcome::Sum => (sum_needs(op, i, rows), None),
        Outcome::Other => (None, None),
    };
    // What has rows is read by its rows.
    let fits = |needed: &Vec<Need>| {
        let all = operands.iter().zip(needed);
        needed.len() == operands.len()
            && all.into_iter().all(|(v, n)| of(*v).is_none_or(|r| *n == Need::Rows(r.clone())))
    };
    match needed.filter(fits) {
        Some(needs) => Ok(Step { op, needs, rows, leaves: false }),
        None => Err(by_rows()),
    }
}
