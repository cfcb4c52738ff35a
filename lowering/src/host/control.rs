//! A function of control flow (`kiln-outline-control`) as plain data, which the runtime runs.
use super::interface::describe;
use crate::sizes::{MakeSize, makes_sizes};
use kiln_dialects::{
    ir::*,
    ops::{CustomCall, OpKind, Scan},
    rules::tensor_type,
};
use kiln_passes::{Failure, refine_shapes::Facts};
use kiln_runtime::{
    control as c,
    program::{Dim, Program},
};
use std::collections::HashMap;

/// Reads the function. `sizes` makes sizes of the whole program.
pub fn control(module: Op, func: Op, sizes: &mut dyn MakeSize<Made = Dim>, facts: &Facts) -> Result<c::Control, Failure> {
    let block = func.regions().first().and_then(|r| r.first()).ok_or_else(|| Failure::at(func, "has no body"))?;
    let mut reader = Reader { module, sizes, facts, numbers: HashMap::new(), names: vec![], made: c::Control::default() };
    reader.made.body = reader.body(block)?;
    Ok(reader.made)
}

/// All programs that are called in one, itself first, and what prepares their weights.
pub fn each(program: &mut Program, f: &mut dyn FnMut(&mut Program)) {
    f(program);
    program.prepare.iter_mut().for_each(|p| each(p, f));
    program.control.iter_mut().flat_map(|c| &mut c.parts).for_each(|p| each(p, f));
}

struct Reader<'a> {
    module: Op,
    sizes: &'a mut dyn MakeSize<Made = Dim>,
    facts: &'a Facts,
    numbers: HashMap<Value, usize>,
    /// Functions of the parts.
    names: Vec<String>,
    made: c::Control,
}

impl Reader<'_> {
    fn value(&mut self, v: Value) -> Result<usize, String> {
        if let Some(n) = self.numbers.get(&v) {
            return Ok(*n);
        }
        if !v.ty().is_tensor() {
            return Err(format!("carries a value of {} through control flow; it carries tensors", v.ty()));
        }
        let dtype = tensor_type(v.ty())?.dtype.name().into();
        let dims = self.facts.dims(v).iter().map(|d| self.sizes.make(d)).collect::<Result<_, _>>()?;
        self.made.values.push(c::Value { dtype, dims });
        self.numbers.insert(v, self.made.values.len() - 1);
        Ok(self.made.values.len() - 1)
    }
    fn all(&mut self, values: Vec<Value>) -> Result<Vec<usize>, String> {
        values.into_iter().map(|v| self.value(v)).collect()
    }

    fn body(&mut self, block: Block) -> Result<c::Body, Failure> {
        let end = block.terminator().ok_or_else(|| Failure::at(self.module, "has a block without an end"))?;
        let args = self.all(block.args()).map_err(|e| Failure::at(end, e))?;
        let mut steps = vec![];
        for op in block.ops().into_iter().filter(|o| *o != end && !makes_sizes(*o)) {
            steps.push(self.step(op)?);
        }
        Ok(c::Body { args, steps, yields: self.all(end.operands()).map_err(|e| Failure::at(end, e))? })
    }

    fn step(&mut self, op: Op) -> Result<c::Step, Failure> {
        let at = |e: String| Failure::at(op, e);
        let results = self.all(op.results()).map_err(at)?;
        let mut bodies = vec![];
        for region in op.regions() {
            bodies.push(self.body(region.first().ok_or_else(|| at("has an empty region".into()))?)?);
        }
        let mut bodies = bodies.into_iter();
        let mut next = || bodies.next().unwrap_or_default();
        let inputs = self.all(op.operands()).map_err(at)?;
        Ok(match op.kind() {
            Some(OpKind::If) => c::Step::If { condition: inputs[0], then: next(), otherwise: next(), results },
            Some(OpKind::While) => c::Step::While { inits: inputs, condition: next(), body: next(), results },
            Some(OpKind::Scan) => {
                let scan = Scan::of(op).ok_or_else(|| at("is malformed".into()))?;
                let (inits, inputs) = inputs.split_at(scan.inits.len());
                c::Step::Scan { inits: inits.to_vec(), inputs: inputs.to_vec(), reverse: scan.reverse, body: next(), results }
            }
            Some(OpKind::CustomCall) => {
                let call = CustomCall::of(op).ok_or_else(|| at("is malformed".into()))?;
                if call.config.is_some() {
                    return Err(at("has a config, which has no compiled form yet".into()));
                }
                c::Step::Custom { callee: call.callee, inputs, results }
            }
            _ if op.is("func.call") => {
                let name = op.attr("callee").and_then(Attr::as_symbol).ok_or_else(|| at("names no function".into()))?;
                let part = match self.names.iter().position(|n| *n == name) {
                    Some(part) => part,
                    None => {
                        self.made.parts.push(describe(self.module, &name)?);
                        self.names.push(name);
                        self.names.len() - 1
                    }
                };
                c::Step::Call { part, inputs, results }
            }
            _ => return Err(at("stands between programs, where it has no compiled form".into())),
        })
    }
}
