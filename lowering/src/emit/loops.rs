//! Loops of one nest: parallel loops outside, one vectorised dimension, reduction loops inside with
//! their accumulators in registers.
use crate::{
    analysis::{Nest, Output},
    emit::{
        body::{ForwardedElements, Scope},
        code::{Code, constant_value},
        lanes::{LaneValue, Lanes},
        partials,
    },
};
use kiln_dialects::ir::*;

/// How the loops of a nest are emitted.
pub struct Loops<'a> {
    /// Scope of the emitted code.
    pub scope: &'a Scope<'a>,
    /// The nest.
    pub nest: &'a Nest,
    /// The vectorised dimension.
    pub vector: Option<usize>,
    /// Lanes per vector.
    pub lanes: usize,
    /// Vectors per iteration (unrolling).
    pub unroll: usize,
}

/// Consecutive indices of a parallel dimension, computed together (unroll and jam): dimension,
/// first index, count.
pub type UnrolledRows = (usize, Value, usize);

/// The reducing outputs of a nest.
pub fn reducing<'a>(scope: &'a Scope<'_>, nest: &'a Nest) -> impl Iterator<Item = &'a Output> {
    nest.stages
        .iter()
        .filter_map(|s| scope.kernel.stages.get(*s))
        .flat_map(|s| &s.outputs)
        .filter(|o| o.reduces)
}

/// Delinearises a row-major linear index over these sizes.
pub fn decode(c: Code, mut i: Value, sizes: &[Value]) -> Result<Vec<Value>> {
    let mut all = vec![];
    for (n, size) in sizes.iter().enumerate().rev() {
        if constant_value(*size) == Some(1) {
            all.push(c.index(0)?);
        } else if n == 0 {
            all.push(i);
        } else {
            all.push(c.rem(i, *size)?);
            i = c.div(i, *size)?;
        }
    }
    all.reverse();
    Ok(all)
}

/// Fixed loop dimensions, as SSA indices.
pub type FixedDims = Vec<Option<Value>>;
/// Body inside the reduction loops: builder, all fixed dimensions, loop-carried values.
pub type ReductionBody<'a> = dyn FnMut(Code, &FixedDims, &[Value]) -> Result<Vec<Value>> + 'a;
/// Body of a vector chunk: builder, first index, vector count, mask, loop-carried values.
pub type ChunkBody<'a> =
    dyn FnMut(Code, Value, usize, Option<Value>, &[Value]) -> Result<Vec<Value>> + 'a;

impl Loops<'_> {
    /// Emits the loops around dimensions that are not fixed yet; the vectorised one runs over
    /// `range`.
    pub fn emit(&self, c: Code, fixed: &FixedDims, range: Option<(Value, Value)>) -> Result<()> {
        let free =
            |d: &usize| fixed[*d].is_none() && Some(*d) != self.vector && !self.nest.reduction[*d];
        if let Some(d) = (0..fixed.len()).find(free) {
            let (lo, hi) = (c.index(0)?, self.size(c, d, fixed)?);
            c.for_loop(lo, hi, 1, &[], &mut |c, i, _| {
                let mut fixed = fixed.clone();
                fixed[d] = Some(i);
                self.emit(c, &fixed, range).map(|()| vec![])
            })?;
            return Ok(());
        }
        let Some(v) = self.vector else { return self.parallel(c, fixed, None, 1, None, None) };
        let (lo, hi) = match range {
            Some((lo, hi)) if self.is_cut(v) => (lo, c.min(hi, self.size(c, v, fixed)?)?),
            Some(range) => range,
            None => (c.index(0)?, self.size(c, v, fixed)?),
        };
        if self.nest.reduction[v] {
            return self.reduce_vectorized(c, fixed, lo, hi);
        }
        self.chunks(c, lo, hi, &[], &mut |c, i, count, mask, _| {
            self.parallel(c, fixed, Some(i), count, mask, None).map(|()| vec![])
        })?;
        Ok(())
    }

    /// Whether a dimension is the inner one of a split whose last part is shorter.
    pub fn is_cut(&self, d: usize) -> bool {
        self.nest.split.as_ref().is_some_and(|(_, inner, _)| *inner == d)
    }

    /// Extent of a dimension: the last inner part of a split one may be shorter.
    pub fn size(&self, c: Code, d: usize, fixed: &FixedDims) -> Result<Value> {
        let size = self.scope.poly(c, &self.nest.extents[d])?;
        match &self.nest.split {
            Some((outer, inner, both)) if *inner == d => {
                let before =
                    c.mul(fixed[*outer].ok_or("has a split dimension out of order")?, size)?;
                c.min(size, c.sub(self.scope.poly(c, both)?, before)?)
            }
            _ => Ok(size),
        }
    }

    /// `lo` to `hi` in groups of vectors, then single vectors, then a masked remainder.
    pub fn chunks(
        &self,
        c: Code,
        lo: Value,
        hi: Value,
        carried: &[Value],
        f: &mut ChunkBody<'_>,
    ) -> Result<Vec<Value>> {
        let (mut at, mut values) = (lo, carried.to_vec());
        let groups = if self.unroll > 1 { vec![self.unroll, 1] } else { vec![1] };
        for count in groups {
            let step = (count * self.lanes) as i64;
            let whole = c.div(c.sub(hi, at)?, c.index(step)?)?;
            let end = c.add(at, c.mul(whole, c.index(step)?)?)?;
            values = c.for_loop(at, end, step, &values, &mut |c, i, carried| {
                f(c, i, count, None, carried)
            })?;
            at = end;
        }
        if self.lanes > 1 {
            let lanes = self.lanes;
            values = c.for_loop(at, hi, lanes as i64, &values, &mut |c, i, carried| {
                let i1 = Type::scalar(c.ctx(), kiln_dialects::value::DType::I1);
                let mask = vector::create_mask(c, &[c.sub(hi, i)?], Type::vector(i1, lanes))?;
                f(c, i, 1, Some(mask), carried)
            })?;
        }
        Ok(values)
    }

    fn reducing(&self) -> impl Iterator<Item = &Output> {
        reducing(self.scope, self.nest)
    }

    /// Loop dimensions as values; those that are not fixed are 0, for addresses that do not use
    /// them.
    pub fn dims(
        &self,
        c: Code,
        fixed: &FixedDims,
        vector: Option<LaneValue>,
    ) -> Result<Vec<LaneValue>> {
        let one = |(d, v): (usize, &Option<Value>)| match (v, vector) {
            (Some(v), _) => Ok(LaneValue::Uniform(*v)),
            (None, Some(x)) if Some(d) == self.vector => Ok(x),
            _ => c.index(0).map(LaneValue::Uniform),
        };
        fixed.iter().enumerate().map(one).collect()
    }

    /// Index of the first lane of the `nth` vector, affine in the lane.
    pub fn lane(&self, c: Code, start: Value, nth: usize) -> Result<LaneValue> {
        let i = c.add(start, c.index((nth * self.lanes) as i64)?)?;
        Ok(if self.lanes == 1 { LaneValue::Uniform(i) } else { LaneValue::Strided(i, 1) })
    }

    /// Reduction loops of `count` vectors of one parallel dimension and `rows` of another, then the
    /// stages that follow on the results.
    pub fn parallel(
        &self,
        c: Code,
        fixed: &FixedDims,
        start: Option<Value>,
        count: usize,
        mask: Option<Value>,
        rows: Option<UnrolledRows>,
    ) -> Result<()> {
        let lanes = Lanes { count: if start.is_some() { self.lanes } else { 1 }, mask };
        let mut at: Vec<(Option<usize>, Option<usize>)> = vec![];
        for row in 0..rows.map_or(1, |r| r.2) {
            at.extend((0..count).map(|n| (rows.map(|_| row), start.map(|_| n))));
        }
        let dims = |c: Code,
                    fixed: &FixedDims,
                    (row, n): (Option<usize>, Option<usize>)|
         -> Result<Vec<LaneValue>> {
            let mut fixed = fixed.clone();
            if let (Some((d, first, _)), Some(row)) = (rows, row) {
                fixed[d] = Some(c.add(first, c.index(row as i64)?)?);
            }
            let vector =
                if let (Some(s), Some(n)) = (start, n) { Some(self.lane(c, s, n)?) } else { None };
            self.dims(c, &fixed, vector)
        };
        let mut running = vec![];
        for x in &at {
            let dims = dims(c, fixed, *x)?;
            for o in self.reducing() {
                let init = self.scope.initial_value(
                    c,
                    &o.init,
                    &dims,
                    lanes,
                    &ForwardedElements::new(),
                )?;
                running
                    .push(lanes.vector(c, init.ok_or("reduces into a tensor without contents")?)?);
            }
        }
        let each = running.len() / at.len().max(1);
        let mut reserved = fixed.clone();
        if let Some((d, first, _)) = rows {
            reserved[d] = Some(first);
        }
        let results = self.reductions(c, &reserved, &running, &mut |c, fixed, running| {
            let mut running = running.to_vec();
            for (n, x) in at.iter().enumerate() {
                let dims = dims(c, fixed, *x)?;
                self.scope.iteration(
                    c,
                    &self.nest.stages,
                    &dims,
                    lanes,
                    &mut running[n * each..(n + 1) * each],
                    &mut ForwardedElements::new(),
                )?;
            }
            Ok(running)
        })?;
        for (n, x) in at.iter().enumerate() {
            self.finish(c, &dims(c, fixed, *x)?, lanes, &results[n * each..])?;
        }
        Ok(())
    }

    /// Stores final values of the reductions, and runs the stages that follow on them.
    pub fn finish(
        &self,
        c: Code,
        dims: &[LaneValue],
        lanes: Lanes,
        results: &[Value],
    ) -> Result<()> {
        let mut passed = ForwardedElements::new();
        for (o, v) in self.reducing().zip(results) {
            let v = if lanes.count == 1 { LaneValue::Uniform(*v) } else { LaneValue::Vector(*v) };
            self.scope.write(c, o, dims, lanes, v, false)?;
            passed.insert(o.access.clone(), v);
        }
        self.scope.iteration(c, &self.nest.after, dims, lanes, &mut [], &mut passed)
    }

    /// The loops over reduction dimensions that are neither fixed nor vectorised.
    pub fn reductions(
        &self,
        c: Code,
        fixed: &FixedDims,
        carried: &[Value],
        body: &mut ReductionBody<'_>,
    ) -> Result<Vec<Value>> {
        let free = |d: &usize| fixed[*d].is_none() && Some(*d) != self.vector;
        let Some(d) = (0..fixed.len()).find(free) else { return body(c, fixed, carried) };
        let (lo, hi) = (c.index(0)?, self.scope.poly(c, &self.nest.extents[d])?);
        c.for_loop(lo, hi, 1, carried, &mut |c, i, carried| {
            let mut fixed = fixed.clone();
            fixed[d] = Some(i);
            self.reductions(c, &fixed, carried, body)
        })
    }

    /// Reduction over the vectorised dimension: per-lane partial results, combined at the end in a
    /// fixed order.
    fn reduce_vectorized(&self, c: Code, fixed: &FixedDims, lo: Value, hi: Value) -> Result<()> {
        let mut running = vec![];
        for _ in 0..self.unroll {
            running.extend(partials::identities(c, self.scope, self.nest, self.lanes)?);
        }
        let each = running.len() / self.unroll.max(1);
        let results = self.reductions(c, fixed, &running, &mut |c, fixed, running| {
            self.chunks(c, lo, hi, running, &mut |c, i, count, mask, running| {
                let (mut running, lanes) = (running.to_vec(), Lanes { count: self.lanes, mask });
                for n in 0..count {
                    let dims = self.dims(c, fixed, Some(self.lane(c, i, n)?))?;
                    let mine = &mut running[n * each..(n + 1) * each];
                    let old = mine.to_vec();
                    self.scope.iteration(
                        c,
                        &self.nest.stages,
                        &dims,
                        lanes,
                        mine,
                        &mut ForwardedElements::new(),
                    )?;
                    if let Some(m) = mask {
                        for (new, old) in mine.iter_mut().zip(old) {
                            *new = arith::select(c, m, *new, old)?;
                        }
                    }
                }
                Ok(running)
            })
        })?;
        let dims = self.dims(c, fixed, None)?;
        let (one, mut passed) = (Lanes { count: 1, mask: None }, ForwardedElements::new());
        let all: Vec<Vec<Value>> = results.chunks(each.max(1)).map(<[Value]>::to_vec).collect();
        let vectors = partials::tree_reduce(all, &|a, b| {
            partials::combined(c, self.scope, self.nest, self.lanes, a, b)
        })?;
        let values = self.reduce_lanes(c, &vectors)?;
        let values = partials::combine_initial(
            c,
            self.scope,
            self.nest,
            &dims,
            1,
            &values,
            &ForwardedElements::new(),
        )?;
        for (o, value) in self.reducing().zip(values) {
            self.scope.write(c, o, &dims, one, LaneValue::Uniform(value), false)?;
            passed.insert(o.access.clone(), LaneValue::Uniform(value));
        }
        self.scope.iteration(c, &self.nest.after, &dims, one, &mut [], &mut passed)
    }

    /// Horizontal reduction of each accumulator: `vector.reduction` where each combines by itself.
    fn reduce_lanes(&self, c: Code, vectors: &[Value]) -> Result<Vec<Value>> {
        if self.reducing().any(|o| o.combine.is_none()) {
            return partials::reduce_lanes(c, self.scope, self.nest, self.lanes, vectors);
        }
        let one = |(o, v): (&Output, &Value)| {
            let combine = o.combine.as_ref().ok_or("cannot be reduced in parts")?;
            vector::Reduction::new(c, combine.kind, *v, combine.op.result(0).ty())
                .fastmath(FastMathFlags::REASSOC)
                .result()
        };
        self.reducing().zip(vectors).map(one).collect()
    }
}
