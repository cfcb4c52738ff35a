//! Flash attention: blocks of keys stream past a block of queries, and accumulators are rescaled
//! when a greater score comes, so that the scores are never stored (online softmax: Milakov and
//! Gimelshein, 2018; Rabe and Staats, 2021; Dao et al., 2022).
//!
//! Queries are the lanes. Maxima and sums then need no horizontal reduction, keys and values are
//! read as scalars in any layout, and only queries and the result, which many keys share, are
//! transposed.
use crate::{
    emit::{
        body::Scope,
        code::{Code, constant_value},
        loops::decode,
    },
    strategies::cpu::{
        attention::{Params, task::Task},
        common::tasks::{Threads, blocks},
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

impl Task<'_> {
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
}
