//! A control-flow function (`kiln-outline-control`) as plain data that the runtime interprets.
use crate::{
    analysis::sizes::{SizeBuilder, makes_sizes},
    program::interface::describe,
};
use kiln_dialects::{
    ir::*,
    ops::{CustomCall, OpKind, Scan, UnbackedSize},
    rules::tensor_type,
};
use kiln_passes::refine_shapes::Facts;
use kiln_runtime::{
    control as c,
    program::{Dim, Program},
};
use std::collections::{HashMap, HashSet};

/// Describes the function. `sizes` builds size expressions of the whole program.
pub fn control(
    module: Op,
    func: Op,
    sizes: &mut dyn SizeBuilder<Output = Dim>,
    facts: &Facts,
) -> Result<c::Control> {
    let block = func.regions().first().and_then(|r| r.first()).ok_or_at(func, "has no body")?;
    let mut reader = Reader {
        module,
        sizes,
        facts,
        numbers: HashMap::new(),
        assumed: HashSet::new(),
        names: vec![],
        control: c::Control::default(),
    };
    reader.control.body = reader.body(block, &[])?;
    Ok(reader.control)
}

/// Visits a program, all programs it calls, and the programs that prepare their weights.
pub fn for_each_program(program: &mut Program, f: &mut dyn FnMut(&mut Program)) {
    f(program);
    program.prepare.iter_mut().for_each(|p| for_each_program(p, f));
    program.control.iter_mut().flat_map(|c| &mut c.parts).for_each(|p| for_each_program(p, f));
}

struct Reader<'a> {
    module: Op,
    sizes: &'a mut dyn SizeBuilder<Output = Dim>,
    facts: &'a Facts,
    numbers: HashMap<Value, usize>,
    /// Ids of values without stated sizes.
    assumed: HashSet<usize>,
    /// Names of the called functions.
    names: Vec<String>,
    control: c::Control,
}

impl Reader<'_> {
    fn value(&mut self, v: Value) -> Result<usize> {
        self.value_like(v, None)
    }
    /// The id of a value. A value that nobody reads may have no stated sizes; then they are `like`,
    /// derived from other values.
    fn value_like(&mut self, v: Value, like: Option<Vec<Dim>>) -> Result<usize> {
        if let Some(n) = self.numbers.get(&v) {
            return Ok(*n);
        }
        if !v.ty().is_tensor() {
            return Err(format!(
                "carries a value of {} through control flow; it carries tensors",
                v.ty()
            )
            .into());
        }
        let dtype = tensor_type(v.ty())?.dtype.name().into();
        let stated: Result<Vec<Dim>> =
            self.facts.dims(v).iter().map(|d| self.sizes.build(d)).collect();
        let number = self.control.values.len();
        let dims = match (stated, like) {
            (Err(_), Some(like)) if like.len() == v.ty().dims().len() => {
                self.assumed.insert(number);
                like
            }
            (stated, _) => stated?,
        };
        self.control.values.push(c::Value { dtype, dims });
        self.numbers.insert(v, number);
        Ok(number)
    }
    fn all(&mut self, values: Vec<Value>) -> Result<Vec<usize>> {
        values.into_iter().map(|v| self.value(v)).collect()
    }

    fn dims(&self, value: usize) -> Vec<Dim> {
        self.control.values[value].dims.clone()
    }

    /// `like`: sizes of the block arguments.
    fn body(&mut self, block: Block, like: &[Vec<Dim>]) -> Result<c::Body> {
        let end = block
            .terminator()
            .ok_or_else(|| Error::at(self.module, "has a block without an end"))?;
        let mut args = vec![];
        for (i, v) in block.args().into_iter().enumerate() {
            args.push(self.value_like(v, like.get(i).cloned()).at(end)?);
        }
        let mut steps = vec![];
        for op in block.ops().into_iter().filter(|o| *o != end && !makes_sizes(*o)) {
            steps.push(self.step(op)?);
        }
        Ok(c::Body { args, steps, yields: self.all(end.operands()).at(end)? })
    }

    fn step(&mut self, op: Op) -> Result<c::Step> {
        if let Some(o) = UnbackedSize::of(op) {
            let source = op.loc().sources().into_iter().next().unwrap_or_default();
            let value = self.value(o.value).at(op)?;
            let result = self.all(op.results()).at(op)?;
            return Ok(c::Step::UnbackedSize { value, result, source });
        }
        let inputs = self.all(op.operands()).at(op)?;
        let carried = match op.kind() {
            Some(OpKind::While) => inputs.len(),
            Some(OpKind::Scan) => Scan::of(op).map_or(0, |s| s.inits.len()),
            _ => 0,
        };
        // Block arguments are the loop-carried values, then the slices.
        let row = |dims: Vec<Dim>| dims.get(1..).unwrap_or_default().to_vec();
        let taken: Vec<Vec<Dim>> = inputs
            .iter()
            .enumerate()
            .map(|(i, v)| if i < carried { self.dims(*v) } else { row(self.dims(*v)) })
            .collect();
        let mut bodies = vec![];
        for region in op.regions() {
            bodies.push(self.body(region.first().ok_or_at(op, "has an empty region")?, &taken)?);
        }
        let given =
            bodies.last().map_or(vec![], |b| b.yields.iter().map(|v| self.dims(*v)).collect());
        let length = inputs.get(carried).and_then(|v| self.dims(*v).first().copied());
        let mut results = vec![];
        for (i, v) in op.results().into_iter().enumerate() {
            let like = given.get(i).cloned().and_then(|dims| match op.kind() {
                Some(OpKind::If) => {
                    bodies.iter().all(|b| self.dims(b.yields[i]) == dims).then_some(dims)
                }
                Some(OpKind::Scan) if i >= carried => Some([vec![length?], dims].concat()),
                _ => (taken.get(i) == Some(&dims)).then_some(dims),
            });
            results.push(self.value_like(v, like).at(op)?);
        }
        let assumed = |i: usize| {
            bodies.last().and_then(|b| b.args.get(i)).is_some_and(|v| self.assumed.contains(v))
        };
        if (0..carried).any(|i| assumed(i) && given.get(i) != taken.get(i)) {
            return Err(Error::at(op, "carries a value whose sizes change"));
        }
        let mut bodies = bodies.into_iter();
        let mut next = || bodies.next().unwrap_or_default();
        let source = op.loc().sources().into_iter().next().unwrap_or_default();
        Ok(match op.kind() {
            Some(OpKind::If) => c::Step::If {
                condition: inputs[0],
                then: next(),
                otherwise: next(),
                results,
                source,
            },
            Some(OpKind::While) => {
                c::Step::While { inits: inputs, condition: next(), body: next(), results, source }
            }
            Some(OpKind::Scan) => {
                let scan = Scan::of(op).ok_or_malformed(op)?;
                let (inits, inputs) = inputs.split_at(scan.inits.len());
                c::Step::Scan {
                    inits: inits.to_vec(),
                    inputs: inputs.to_vec(),
                    reverse: scan.reverse,
                    body: next(),
                    results,
                    source,
                }
            }
            Some(OpKind::CustomCall) => {
                let call = CustomCall::of(op).ok_or_malformed(op)?;
                if call.config.is_some() {
                    return Err(Error::unsupported(
                        op,
                        "has a config, which has no compiled form yet",
                    ));
                }
                c::Step::Custom { callee: call.callee, inputs, results, source }
            }
            _ if op.isa::<func::Call>() => {
                let name = op
                    .attr("callee")
                    .and_then(Attr::as_symbol)
                    .ok_or_at(op, "names no function")?;
                let part = match self.names.iter().position(|n| *n == name) {
                    Some(part) => part,
                    None => {
                        self.control.parts.push(describe(self.module, &name)?);
                        self.names.push(name);
                        self.names.len() - 1
                    }
                };
                c::Step::Call { part, inputs, results }
            }
            _ => {
                return Err(Error::unsupported(
                    op,
                    "stands between programs, where it has no compiled form",
                ));
            }
        })
    }
}
