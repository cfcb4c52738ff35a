//! Flash attention: blocks of keys stream past a block of queries, and accumulators are rescaled
//! when a greater score comes, so that the scores are never stored (online softmax: Milakov and
//! Gimelshein, 2018; Rabe and Staats, 2021; Dao et al., 2022).
//!
//! Queries are the lanes. Maxima and sums then need no horizontal reduction, keys and values are
//! read as scalars in any layout, and only queries and the result, which many keys share, are
//! transposed.
use crate::{
    analysis::{Access, Attention},
    emit::{
        body::{ForwardedElements, Scope},
        code::{Code, constant_value},
        lanes::{LaneValue, Lanes},
        loops::decode,
    },
    strategies::cpu::{
        attention::Params,
        common::{
            tasks::{Threads, blocks},
            transposed::{shuffled, store_rows, vectors_of_rows},
        },
    },
};
use kiln_dialects::{ir::*, sym::Dim};

/// Emits the tasks of a thread.
pub fn emit(c: Code, scope: &Scope<'_>, params: &Params, threads: Threads) -> Result<()> {
    let at = scope.kernel.attention.as_ref().ok_or("is no attention")?;
    let (outer, queries, keys) = at.sizes(scope.kernel).ok_or("has no loops")?;
    let mut sizes: Vec<Value> = outer.iter().map(|p| scope.poly(c, p)).collect::<Result<_>>()?;
    let (queries, keys) = (scope.poly(c, queries)?, scope.poly(c, keys)?);
    let wide =
        scope.kernel.buffers[scope.kernel.stages[at.scores].outputs[0].access.buffer].element;
    let (lanes, n) = (params.bits / 8 / wide.dtype()?.byte_size(), params.n);
    let width = lanes * n;
    let scratch = |count: usize| -> Result<Value> {
        let ty = Type::memref(wide, &[Dim::Known((count * width) as i64)]);
        memref::Alloca::new(c, &[], &[], ty).alignment(64).result()
    };
    let (query, scores, total) =
        (scratch(at.depth as usize)?, scratch(params.keys_block)?, scratch(at.columns as usize)?);
    let block = c.index(width as i64)?;
    sizes.push(c.ceil_div(queries, block)?);
    let tasks = sizes.iter().try_fold(c.index(1)?, |a, b| c.mul(a, *b))?;
    let even = constant_value(queries).is_some_and(|q| q % width as i64 == 0);
    blocks(c, tasks, 1, threads, &mut |c, i| {
        let mut outer = decode(c, i, &sizes)?;
        let first = c.mul(outer.pop().ok_or("has no block of queries")?, block)?;
        let mut masks = vec![];
        for v in 0..n {
            let left = c.sub(queries, c.add(first, c.index((v * lanes) as i64)?)?)?;
            let i1 = Type::scalar(c.ctx(), kiln_dialects::value::DType::I1);
            masks.push(if even {
                None
            } else {
                Some(vector::create_mask(c, &[left], Type::vector(i1, lanes))?)
            });
        }
        let limits = scope.lengths(c, at, &outer, &|axis| Ok([queries, keys][axis]))?;
        let task = Task {
            scope,
            attention: at,
            accumulator: wide,
            lanes,
            masks,
            outer,
            first,
            queries,
            is_full: even,
            query,
            scores,
            accumulators: total,
        };
        task.emit(c, (keys, limits), [params.keys_block, params.keys, params.columns])
    })
}

/// One task: a block of queries.
struct Task<'a> {
    scope: &'a Scope<'a>,
    attention: &'a Attention,
    /// Element type of the accumulators.
    accumulator: Type,
    lanes: usize,
    /// Mask of valid queries per vector.
    masks: Vec<Option<Value>>,
    /// Indices of the outer loops (batch, heads).
    outer: Vec<Value>,
    /// Index of the first query.
    first: Value,
    queries: Value,
    /// Whether all blocks of queries are full.
    is_full: bool,
    /// `[depth][queries]`.
    query: Value,
    /// `[keys][queries]`.
    scores: Value,
    /// `[columns][queries]`.
    accumulators: Value,
}

/// Body of a loop over groups: start, group size, loop-carried values.
type GroupBody<'a> = dyn FnMut(Code, Value, usize, &[Value]) -> Result<Vec<Value>> + 'a;

impl Task<'_> {
    fn n(&self) -> usize {
        self.masks.len()
    }
    fn lanes(&self, v: usize) -> Lanes {
        Lanes { count: self.lanes, mask: self.masks[v] }
    }
    fn splat(&self, c: Code, number: f64) -> Result<Value> {
        c.number(number, Type::vector(self.accumulator, self.lanes))
    }
    /// The first query of a vector.
    fn start(&self, c: Code, v: usize) -> Result<Value> {
        c.add(self.first, c.index((v * self.lanes) as i64)?)
    }
    /// Loop indices of a stage over queries and one more dimension.
    fn dims(&self, c: Code, v: usize, last: Value) -> Result<Vec<LaneValue>> {
        let mut dims: Vec<LaneValue> = self.outer.iter().map(|i| LaneValue::Uniform(*i)).collect();
        dims.extend([LaneValue::Strided(self.start(c, v)?, 1), LaneValue::Uniform(last)]);
        Ok(dims)
    }
    /// Emits a stage with given inputs, each by the stage that would have written it.
    fn stage(
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
    fn vector(
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
    fn load(&self, c: Code, memory: Value, row: Value, v: usize) -> Result<Value> {
        vector::load(
            c,
            memory,
            &[self.address(c, row, v)?],
            Type::vector(self.accumulator, self.lanes),
        )
    }
    fn save(&self, c: Code, x: Value, memory: Value, row: Value, v: usize) -> Result<()> {
        vector::store(c, x, memory, &[self.address(c, row, v)?])
    }
    /// Extends to the accumulator type.
    fn widened(&self, c: Code, x: Value, lanes: usize) -> Result<Value> {
        let ty = if lanes == 1 { self.accumulator } else { Type::vector(self.accumulator, lanes) };
        if x.ty() == ty { Ok(x) } else { arith::extf(c, x, ty) }
    }

    /// `limits`: valid sequence lengths of queries and keys.
    fn emit(
        &self,
        c: Code,
        (keys, limits): (Value, [Option<Value>; 2]),
        [block, at_once, columns]: [usize; 3],
    ) -> Result<()> {
        self.pack(c)?;
        let (zero, n) = (c.index(0)?, self.n());
        let nothing = self.splat(c, 0.0)?;
        c.for_loop(zero, c.index(self.attention.columns)?, 1, &[], &mut |c, e, _| {
            (0..n).try_for_each(|v| self.save(c, nothing, self.accumulators, e, v)).map(|()| vec![])
        })?;
        let low = self.splat(c, f64::NEG_INFINITY)?;
        let mut carried = vec![low; n];
        carried.extend(vec![nothing; n]);
        // Causal: no key after the last query of the block is visible.
        let mut end = if self.attention.limits.causal {
            c.min(c.add(self.first, c.index((n * self.lanes) as i64)?)?, keys)?
        } else {
            keys
        };
        if let Some(keys) = limits[1] {
            end = c.min(end, keys)?;
        }
        if let Some(queries) = limits[0] {
            end = c.select(c.less_than(self.first, queries)?, end, zero)?;
        }
        let known = c.for_loop(zero, end, block as i64, &carried, &mut |c, lo, carried| {
            let hi = c.block_end(lo, c.index(block as i64)?, end)?;
            let (old, sums) = carried.split_at(n);
            let max = self.score(c, (lo, hi), at_once, old)?;
            let mut factors = vec![];
            for v in 0..n {
                factors.push(self.vector(
                    c,
                    self.attention.weights,
                    v,
                    lo,
                    &[(self.attention.seen, old[v]), (self.attention.max, max[v])],
                )?);
            }
            let added = c.for_loop(lo, hi, 1, &vec![nothing; n], &mut |c, key, sums| {
                let row = c.sub(key, lo)?;
                let mut sums = sums.to_vec();
                for (v, sum) in sums.iter_mut().enumerate() {
                    let s = self.load(c, self.scores, row, v)?;
                    let w = self.vector(
                        c,
                        self.attention.weights,
                        v,
                        key,
                        &[(self.attention.seen, s), (self.attention.max, max[v])],
                    )?;
                    self.save(c, w, self.scores, row, v)?;
                    *sum = arith::addf(c, *sum, w)?;
                }
                Ok(sums)
            })?;
            self.accumulate_values(c, (lo, hi), columns, &factors)?;
            let mut next = max;
            for v in 0..n {
                next.push(math::fma(c, sums[v], factors[v], added[v])?);
            }
            Ok(next)
        })?;
        self.finish(c, &known[..n], &known[n..])
    }

    /// Packs queries transposed, with the block's queries as lanes.
    fn pack(&self, c: Code) -> Result<()> {
        let (k, depth) = (self.scope.kernel, self.attention.depth);
        let a = &k.stages[self.attention.scores].inputs[0];
        let memory = self.scope.buffer(a.buffer)?;
        let rows = a.at.coefficient(self.attention.outer + 2).known() == Some(1)
            && depth % self.lanes as i64 == 0;
        let step = if rows { self.lanes as i64 } else { 1 };
        let dims = |c: Code, q: LaneValue, d: LaneValue| -> Result<Vec<LaneValue>> {
            let mut dims: Vec<LaneValue> =
                self.outer.iter().map(|i| LaneValue::Uniform(*i)).collect();
            dims.extend([q, LaneValue::Uniform(c.index(0)?), d]);
            Ok(dims)
        };
        c.for_loop(c.index(0)?, c.index(depth)?, step, &[], &mut |c, d, _| {
            for v in 0..self.n() {
                let start = self.start(c, v)?;
                if !rows {
                    let lanes = self.lanes(v);
                    let at = self.scope.address(
                        c,
                        &a.at,
                        &dims(c, LaneValue::Strided(start, 1), LaneValue::Uniform(d))?,
                        lanes,
                    )?;
                    let x = lanes.vector(c, lanes.load(c, memory, at)?)?;
                    self.save(c, self.widened(c, x, self.lanes)?, self.query, d, v)?;
                    continue;
                }
                let last = c.sub(self.queries, c.index(1)?)?;
                let loaded = vectors_of_rows(c, self.lanes, &mut |c, i| {
                    let mut row = c.add(start, c.index(i as i64)?)?;
                    if !self.is_full {
                        row = c.min(row, last)?;
                    }
                    let all = Lanes { count: self.lanes, mask: None };
                    let at = self.scope.address(
                        c,
                        &a.at,
                        &dims(c, LaneValue::Uniform(row), LaneValue::Strided(d, 1))?,
                        all,
                    )?;
                    let x = all.vector(c, all.load(c, memory, at)?)?;
                    self.widened(c, x, self.lanes)
                })?;
                for (i, x) in shuffled(c, loaded)?.into_iter().enumerate() {
                    self.save(c, x, self.query, c.add(d, c.index(i as i64)?)?, v)?;
                }
            }
            Ok(vec![])
        })?;
        Ok(())
    }

    /// Broadcasts an element that is uniform over queries.
    fn broadcast(&self, c: Code, a: &Access, one: Value, two: Value) -> Result<Value> {
        let mut dims: Vec<LaneValue> = self.outer.iter().map(|i| LaneValue::Uniform(*i)).collect();
        dims.extend([
            LaneValue::Uniform(c.index(0)?),
            LaneValue::Uniform(one),
            LaneValue::Uniform(two),
        ]);
        let one = Lanes { count: 1, mask: None };
        let LaneValue::Uniform(at) = self.scope.address(c, &a.at, &dims, one)? else {
            return Err("has keys or values that differ in lanes".into());
        };
        let x = memref::load(c, self.scope.buffer(a.buffer)?, &[at])?;
        Lanes { count: self.lanes, mask: None }
            .vector(c, LaneValue::Uniform(self.widened(c, x, 1)?))
    }

    /// Register-tiled product of `rows` times all vectors: each step loads a row of scratch and one
    /// element per accumulator.
    fn products(
        &self,
        c: Code,
        range: (Value, Value),
        start: Vec<Value>,
        scratch: &mut dyn FnMut(Code, Value, usize) -> Result<Value>,
        element: &mut dyn FnMut(Code, Value, usize) -> Result<Value>,
    ) -> Result<Vec<Value>> {
        let n = self.n();
        c.for_loop(range.0, range.1, 1, &start, &mut |c, i, sums| {
            let vectors: Vec<Value> = (0..n).map(|v| scratch(c, i, v)).collect::<Result<_>>()?;
            let mut next = vec![];
            for (r, sums) in sums.chunks(n).enumerate() {
                let x = element(c, i, r)?;
                for (v, sum) in sums.iter().enumerate() {
                    next.push(math::fma(c, x, vectors[v], *sum)?);
                }
            }
            Ok(next)
        })
    }

    /// Calls `f` for groups of at most `most` of a range, with loop-carried values.
    fn groups(
        &self,
        c: Code,
        (lo, hi): (Value, Value),
        most: usize,
        carried: &[Value],
        f: &mut GroupBody<'_>,
    ) -> Result<Vec<Value>> {
        let (mut at, mut carried) = (lo, carried.to_vec());
        let mut counts = vec![most];
        counts.extend([4, 1].into_iter().filter(|n| *n < most));
        for count in counts {
            let step = c.index(count as i64)?;
            let end = c.add(at, c.mul(c.div(c.sub(hi, at)?, step)?, step)?)?;
            carried = c.for_loop(at, end, count as i64, &carried, &mut |c, i, carried| {
                f(c, i, count, carried)
            })?;
            at = end;
        }
        Ok(carried)
    }

    /// Scores of a block of keys to scratch, and their running maxima.
    fn score(
        &self,
        c: Code,
        (lo, hi): (Value, Value),
        most: usize,
        max: &[Value],
    ) -> Result<Vec<Value>> {
        let key = self.scope.kernel.stages[self.attention.scores].inputs[1].clone();
        let nothing = self.splat(c, 0.0)?;
        let depth = (c.index(0)?, c.index(self.attention.depth)?);
        self.groups(c, (lo, hi), most, max, &mut |c, first, count, max| {
            let rows: Vec<Value> =
                (0..count).map(|r| c.add(first, c.index(r as i64)?)).collect::<Result<_>>()?;
            let sums = self.products(
                c,
                depth,
                vec![nothing; count * self.n()],
                &mut |c, d, v| self.load(c, self.query, d, v),
                &mut |c, d, r| self.broadcast(c, &key, rows[r], d),
            )?;
            let mut max = max.to_vec();
            for (i, sum) in sums.into_iter().enumerate() {
                let (r, v) = (i / self.n(), i % self.n());
                let seen = self.vector(
                    c,
                    self.attention.seen,
                    v,
                    rows[r],
                    &[(self.attention.scores, sum)],
                )?;
                self.save(c, seen, self.scores, c.sub(rows[r], lo)?, v)?;
                // A NaN is not greater than the maximum, but its weight is a NaN.
                let greater = arith::cmpf(c, CmpFPredicate::Ogt, seen, max[v])?;
                max[v] = arith::select(c, greater, seen, max[v])?;
            }
            Ok(max)
        })
    }

    /// Rescales the accumulators and adds the values of a block of keys, weighted.
    fn accumulate_values(
        &self,
        c: Code,
        (lo, hi): (Value, Value),
        most: usize,
        factors: &[Value],
    ) -> Result<()> {
        let value = self.scope.kernel.stages[self.attention.product].inputs[1].clone();
        let columns = (c.index(0)?, c.index(self.attention.columns)?);
        self.groups(c, columns, most, &[], &mut |c, first, count, _| {
            let rows: Vec<Value> =
                (0..count).map(|r| c.add(first, c.index(r as i64)?)).collect::<Result<_>>()?;
            let mut start = vec![];
            for row in &rows {
                for (v, factor) in factors.iter().enumerate() {
                    let old = self.load(c, self.accumulators, *row, v)?;
                    start.push(arith::mulf(c, old, *factor)?);
                }
            }
            let sums = self.products(
                c,
                (lo, hi),
                start,
                &mut |c, key, v| self.load(c, self.scores, c.sub(key, lo)?, v),
                &mut |c, key, r| self.broadcast(c, &value, rows[r], key),
            )?;
            for (i, sum) in sums.into_iter().enumerate() {
                self.save(c, sum, self.accumulators, rows[i / self.n()], i % self.n())?;
            }
            Ok(vec![])
        })?;
        Ok(())
    }

    /// Runs the last stage and stores the result.
    fn finish(&self, c: Code, max: &[Value], sums: &[Value]) -> Result<()> {
        let k = self.scope.kernel;
        let out = k.stages[self.attention.result].outputs[0].access.clone();
        let memory = self.scope.buffer(out.buffer)?;
        let rows = out.at.coefficient(self.attention.outer + 1).known() == Some(1)
            && self.attention.columns % self.lanes as i64 == 0;
        let given = |total: Value, v: usize| {
            [
                (self.attention.product, total),
                (self.attention.max, max[v]),
                (self.attention.sum, sums[v]),
            ]
        };
        let mut without = self.scope.memory.clone();
        without[out.buffer] = None;
        let inner = Scope { memory: without, ..self.scope.clone() };
        let inner =
            Task { scope: &inner, masks: self.masks.clone(), outer: self.outer.clone(), ..*self };
        let step = if rows { self.lanes as i64 } else { 1 };
        c.for_loop(c.index(0)?, c.index(self.attention.columns)?, step, &[], &mut |c, e, _| {
            for v in 0..self.n() {
                if !rows {
                    let total = self.load(c, self.accumulators, e, v)?;
                    self.stage(c, self.attention.result, v, e, &given(total, v))?;
                    continue;
                }
                let columns = vectors_of_rows(c, self.lanes, &mut |c, i| {
                    let e = c.add(e, c.index(i as i64)?)?;
                    let total = self.load(c, self.accumulators, e, v)?;
                    inner.vector(c, self.attention.result, v, e, &given(total, v))
                })?;
                let start = self.start(c, v)?;
                store_rows(
                    c,
                    shuffled(c, columns)?,
                    (!self.is_full).then_some((start, self.queries)),
                    &mut |c, i| {
                        let mut dims: Vec<LaneValue> =
                            self.outer.iter().map(|i| LaneValue::Uniform(*i)).collect();
                        dims.extend([
                            LaneValue::Uniform(c.add(start, c.index(i as i64)?)?),
                            LaneValue::Strided(e, 1),
                        ]);
                        Ok((
                            memory,
                            self.scope.address(
                                c,
                                &out.at,
                                &dims,
                                Lanes { count: self.lanes, mask: None },
                            )?,
                        ))
                    },
                )?;
            }
            Ok(vec![])
        })?;
        Ok(())
    }
}
