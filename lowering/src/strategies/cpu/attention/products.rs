//! The products of a block of keys, scores and weighted values, as register tiles.
use crate::{
    analysis::Access,
    emit::{
        code::Code,
        lanes::{LaneValue, Lanes},
    },
    strategies::cpu::attention::task::Task,
};
use kiln_dialects::ir::*;

/// Body of a loop over groups: start, group size, loop-carried values.
type GroupBody<'a> = dyn FnMut(Code, Value, usize, &[Value]) -> Result<Vec<Value>> + 'a;

impl Task<'_> {
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
    pub(super) fn score(
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
    pub(super) fn accumulate_values(
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
}
