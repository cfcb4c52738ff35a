//! A task of attention on CPUs: a block of queries, its scratch memory, and the kernel's stages on
//! vectors of queries.
use crate::{
    analysis::Attention,
    emit::{
        body::{ForwardedElements, Scope},
        code::Code,
        lanes::{LaneValue, Lanes},
    },
};
use kiln_dialects::ir::*;

/// One task: a block of queries.
pub(super) struct Task<'a> {
    pub(super) scope: &'a Scope<'a>,
    pub(super) attention: &'a Attention,
    /// Element type of the accumulators.
    pub(super) accumulator: Type,
    pub(super) lanes: usize,
    /// Mask of valid queries per vector.
    pub(super) masks: Vec<Option<Value>>,
    /// Indices of the outer loops (batch, heads).
    pub(super) outer: Vec<Value>,
    /// Index of the first query.
    pub(super) first: Value,
    pub(super) queries: Value,
    /// Whether all blocks of queries are full.
    pub(super) is_full: bool,
    /// `[depth][queries]`.
    pub(super) query: Value,
    /// `[keys][queries]`.
    pub(super) scores: Value,
    /// `[columns][queries]`.
    pub(super) accumulators: Value,
}

impl Task<'_> {
    pub(super) fn n(&self) -> usize {
        self.masks.len()
    }

    pub(super) fn lanes(&self, v: usize) -> Lanes {
        Lanes { count: self.lanes, mask: self.masks[v] }
    }

    pub(super) fn splat(&self, c: Code, number: f64) -> Result<Value> {
        c.number(number, Type::vector(self.accumulator, self.lanes))
    }

    /// The first query of a vector.
    pub(super) fn start(&self, c: Code, v: usize) -> Result<Value> {
        c.add(self.first, c.index((v * self.lanes) as i64)?)
    }

    /// Loop indices of a stage over queries and one more dimension.
    fn dims(&self, c: Code, v: usize, last: Value) -> Result<Vec<LaneValue>> {
        let mut dims: Vec<LaneValue> = self.outer.iter().map(|i| LaneValue::Uniform(*i)).collect();
        dims.extend([LaneValue::Strided(self.start(c, v)?, 1), LaneValue::Uniform(last)]);
        Ok(dims)
    }

    /// Emits a stage with given inputs, each by the stage that would have written it.
    pub(super) fn stage(
        &self,
        c: Code,
        stage: usize,
        v: usize,
        last: Value,
        given: &[(usize, Value)],
    ) -> Result<LaneValue> {
        let k = self.scope.kernel;
        let mut passed: ForwardedElements = given
            .iter()
            .map(|(s, x)| (k.stages[*s].outputs[0].access.clone(), LaneValue::Vector(*x)))
            .collect();
        self.scope.iteration(
            c,
            &[stage],
            &self.dims(c, v, last)?,
            self.lanes(v),
            &mut [],
            &mut passed,
        )?;
        passed
            .get(&k.stages[stage].outputs[0].access)
            .copied()
            .ok_or_else(|| "has a stage without a result".to_string().into())
    }

    pub(super) fn vector(
        &self,
        c: Code,
        stage: usize,
        v: usize,
        last: Value,
        given: &[(usize, Value)],
    ) -> Result<Value> {
        self.lanes(v).vector(c, self.stage(c, stage, v, last, given)?)
    }

    /// A position in scratch.
    fn address(&self, c: Code, row: Value, v: usize) -> Result<Value> {
        let at = c.mul(row, c.index((self.n() * self.lanes) as i64)?)?;
        c.add(at, c.index((v * self.lanes) as i64)?)
    }

    pub(super) fn load(&self, c: Code, memory: Value, row: Value, v: usize) -> Result<Value> {
        vector::load(
            c,
            memory,
            &[self.address(c, row, v)?],
            Type::vector(self.accumulator, self.lanes),
        )
    }

    pub(super) fn save(
        &self,
        c: Code,
        x: Value,
        memory: Value,
        row: Value,
        v: usize,
    ) -> Result<()> {
        vector::store(c, x, memory, &[self.address(c, row, v)?])
    }

    /// Extends to the accumulator type.
    pub(super) fn widened(&self, c: Code, x: Value, lanes: usize) -> Result<Value> {
        let ty = if lanes == 1 { self.accumulator } else { Type::vector(self.accumulator, lanes) };
        if x.ty() == ty { Ok(x) } else { arith::extf(c, x, ty) }
    }
}
