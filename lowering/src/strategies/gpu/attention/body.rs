//! Bodies of maps: what a stage of the kernel computes at a position, as ops on scalars.
use crate::{
    analysis::{Access, Body, Init, Stage},
    emit::{
        body::Scope,
        code::Code,
        lanes::{LaneValue, Lanes},
    },
};
use kiln_dialects::ir::*;
use std::collections::HashMap;

/// Writes values of a stage's body into the body of a map.
pub(super) struct StageBody<'a> {
    pub(super) scope: &'a Scope<'a>,
    pub(super) stage: &'a Stage,
    /// The loops' positions; behind those that the values depend on, there may be fewer.
    pub(super) position: Vec<Value>,
    /// What is known.
    pub(super) made: HashMap<Value, Value>,
}

const ONE: Lanes = Lanes { count: 1, mask: None };

impl StageBody<'_> {
    fn lanes(&self) -> Vec<LaneValue> {
        self.position.iter().map(|i| LaneValue::Uniform(*i)).collect()
    }
    fn read(&self, c: Code, a: &Access) -> Result<Value> {
        let found = self.scope.read(c, a, &self.lanes(), ONE, &Default::default())?;
        ONE.vector(c, found)
    }
    fn argument(&self, c: Code, i: usize) -> Result<Value> {
        let s = self.stage;
        if let Some(a) = s.inputs.get(i) {
            return self.read(c, a);
        }
        match s.outputs.get(i - s.inputs.len()).map(|o| &o.init) {
            Some(Init::Fill(v)) => self.scope.scalar(*v),
            Some(Init::Load(a)) => self.read(c, a),
            _ => Err("takes what is no input".into()),
        }
    }

    /// A value of the body.
    pub(super) fn value(&mut self, c: Code, v: Value) -> Result<Value> {
        if let Some(made) = self.made.get(&v) {
            return Ok(*made);
        }
        let Body::Block(block) = self.stage.body else { return self.scope.scalar(v) };
        let made = match (v.block_arg(), v.def()) {
            (Some((b, i)), _) if b == block => self.argument(c, i)?,
            (None, Some(op)) if op.block() == Some(block) => self.op(Code(c.0.at(op.loc())), op)?,
            _ => return self.scope.scalar(v),
        };
        self.made.insert(v, made);
        Ok(made)
    }

    fn op(&mut self, c: Code, op: Op) -> Result<Value> {
        let extract = op.isa::<tensor::Extract>();
        // `tensor.extract` reads from a tensor, which is no scalar operand.
        let inputs = op.operands().split_off(usize::from(extract));
        let operands: Vec<Value> =
            inputs.iter().map(|v| self.value(c, *v)).collect::<Result<_>>()?;
        if extract || op.isa::<linalg::Index>() {
            let get = |v: Value| {
                let place = inputs.iter().position(|i| *i == v).ok_or("takes what is not there")?;
                Ok(LaneValue::Uniform(operands[place]))
            };
            let made = self.scope.scalar_op(c, self.stage, op, &self.lanes(), ONE, &get)?;
            return ONE.vector(c, made);
        }
        if op.result_count() != 1 || !op.regions().is_empty() {
            return Err(format!("has a {} in its body", op.name()).into());
        }
        let attrs = op.attrs();
        let attrs: Vec<(&str, Attr)> = attrs.iter().map(|(n, a)| (n.as_str(), *a)).collect();
        c.op(&op.name(), &operands, op.result(0).ty(), &attrs)
    }

    /// What the stage yields, given elements that are in registers.
    pub(super) fn result(&mut self, c: Code, given: &[(Access, Value)]) -> Result<Value> {
        let passed = |a: &Access| given.iter().find(|(b, _)| a == b).map(|(_, v)| *v);
        match self.stage.body {
            Body::Fill(v) => self.scope.scalar(v),
            Body::Copy => {
                let a = self.stage.inputs.first().ok_or("copies nothing")?;
                passed(a).map_or_else(|| self.read(c, a), Ok)
            }
            Body::Block(block) => {
                let own = block.args().into_iter().zip(&self.stage.inputs);
                self.made.extend(own.filter_map(|(arg, a)| Some((arg, passed(a)?))));
                let end = block.terminator().ok_or("has a body without linalg.yield")?;
                self.value(c, end.operand(0))
            }
        }
    }
}
