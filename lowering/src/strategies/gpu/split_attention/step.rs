//! A warp's step of keys: masked scores, online softmax, and the product with the values.
use crate::{
    emit::code::Code,
    strategies::gpu::{
        common::{ptx::Ptx, threads},
        split_attention::{
            row_tile::{Row, RowTile},
            split::{EIGHT, Split},
        },
    },
};
use kiln_dialects::ir::*;
use std::f64::consts::LOG2_E;

/// Loop-carried from one step of keys to the next. For each row of a thread: the maximum score,
/// unscaled, and the sum of this thread's exponentials. Accumulators: by eight columns, two of each
/// row.
pub(super) struct LoopCarried {
    pub(super) max: Vec<Value>,
    pub(super) row_sums: Vec<Value>,
    pub(super) values: Vec<Value>,
}

impl LoopCarried {
    pub(super) fn flat(&self) -> Vec<Value> {
        [self.max.as_slice(), &self.row_sums, &self.values].concat()
    }

    pub(super) fn of(rows: usize, flat: &[Value]) -> LoopCarried {
        LoopCarried {
            max: flat[..rows].to_vec(),
            row_sums: flat[rows..2 * rows].to_vec(),
            values: flat[2 * rows..].to_vec(),
        }
    }
}

impl Split<'_> {
    /// Masked scores, unscaled: for each row of the thread, two of each eight keys.
    fn masked_scores(
        &self,
        c: Code,
        row_tile: &RowTile,
        rows: &[Row],
        scores: &[Vec<Value>],
        start: Value,
    ) -> Result<Vec<Vec<Value>>> {
        let p = Ptx(c);
        let start = p.add(start, p.mul_const(self.lane[1], 2)?)?;
        let low = c.number(f64::NEG_INFINITY, p.f32())?;
        let last = if self.partial_step { Some(p.add_signed(self.count, -1)?) } else { None };
        let one = |(half, row): (usize, &Row)| -> Result<Vec<Value>> {
            // The last visible key of the row, relative to the thread's first key.
            let ends =
                if self.partial_step { Some(p.add_signed(row_tile.keys[1], -1)?) } else { None };
            let own = if self.score.causal { Some(row.query) } else { None };
            let limit = match (ends, own) {
                (Some(a), Some(b)) => Some(p.min(a, b)?),
                (a, b) => a.or(b),
            };
            let limit = limit.map(|n| p.sub(n, start)).transpose()?;
            let mut known = self.score.tile(&row.scores, start, last, false);
            let mut all = vec![];
            for (j, four) in scores.iter().enumerate() {
                for i in 0..2 {
                    let column = EIGHT * j + i;
                    let x = self.score.element(c, &mut known, four[2 * half + i], 0, column)?;
                    all.push(match limit {
                        Some(limit) => c.select(
                            c.compare(CmpIPredicate::Sgt, p.number(column)?, limit)?,
                            low,
                            x,
                        )?,
                        None => x,
                    });
                }
            }
            Ok(all)
        };
        rows.iter().enumerate().map(one).collect()
    }

    /// 2 to the power of a score less the maximum, both unscaled; `over` is at least the lowest
    /// finite f32.
    pub(super) fn exp2_difference(&self, c: Code, x: Value, over: Value) -> Result<Value> {
        let p = Ptx(c);
        let scale = c.number(LOG2_E * self.score.factor, p.f32())?;
        p.exp2(arith::mulf(p, arith::subf(p, x, over)?, scale)?)
    }

    /// The maximum score made finite, so that all exponentials of a fully masked row are 0.
    pub(super) fn finite(&self, c: Code, most: Value) -> Result<Value> {
        let least = c.number(f32::MIN.into(), most.ty())?;
        arith::maxnumf(c, most, least)
    }

    /// A step of keys: scores, online softmax, product with the values.
    pub(super) fn step(
        &self,
        c: Code,
        row_tile: &RowTile,
        rows: &[Row],
        queries: &[Vec<Vec<Value>>],
        start: Value,
        old: &LoopCarried,
    ) -> Result<LoopCarried> {
        let (p, element, halves) = (Ptx(c), self.pattern.element, self.rows_per_thread());
        let (keys, values) =
            (self.read_keys(c, row_tile, start)?, self.read_values(c, row_tile, start)?);
        let (nothing, none) = (c.number(0.0, p.f32())?, p.number(0)?);
        let mut scores = vec![];
        for key in &keys {
            let mut sums = vec![nothing; 4];
            for (q, k) in queries.iter().zip(key) {
                for i in [0, 2] {
                    let low = |i: usize| q.get(1).map_or(none, |q| q[i]);
                    sums = p.warp_mma(
                        element,
                        [q[0][i], low(i), q[0][i + 1], low(i + 1)],
                        [k[i], k[i + 1]],
                        &sums,
                    )?;
                }
            }
            scores.push(sums);
        }
        let seen = self.masked_scores(c, row_tile, rows, &scores, start)?;
        let (mut most, mut sums, mut factors, mut weights) = (vec![], vec![], vec![], vec![]);
        for (half, own) in seen.iter().enumerate() {
            let (first, rest) = own.split_first().ok_or("takes no keys")?;
            let max = rest.iter().try_fold(*first, |a, b| arith::maxnumf(c, a, *b))?;
            let max = threads::butterfly(c, max, 4, &|a, b| arith::maxnumf(c, a, b))?;
            let max = arith::maxnumf(c, max, old.max[half])?;
            let over = self.finite(c, max)?;
            let made = own
                .iter()
                .map(|x| self.exp2_difference(c, *x, over))
                .collect::<Result<Vec<_>>>()?;
            let factor = self.exp2_difference(c, old.max[half], over)?;
            let sum =
                made.iter().try_fold(arith::mulf(c, old.row_sums[half], factor)?, |a, b| {
                    arith::addf(c, a, *b)
                })?;
            most.push(max);
            sums.push(sum);
            factors.push(factor);
            weights.push(made);
        }
        let mut all = old
            .values
            .iter()
            .enumerate()
            .map(|(i, x)| arith::mulf(c, *x, factors[i / 2 % halves]))
            .collect::<Result<Vec<_>>>()?;
        for (k, value) in values.iter().enumerate() {
            let pair = |half: usize, eight: usize| match weights.get(half) {
                Some(w) => p.pack_pair(element, w[4 * k + 2 * eight], w[4 * k + 2 * eight + 1]),
                None => Ok(none),
            };
            let left = [pair(0, 0)?, pair(1, 0)?, pair(0, 1)?, pair(1, 1)?];
            for (i, four) in value.iter().enumerate() {
                for m in 0..EIGHT {
                    let right = [
                        p.permute_pairs(four[0][m / 2], four[1][m / 2], m % 2)?,
                        p.permute_pairs(four[2][m / 2], four[3][m / 2], m % 2)?,
                    ];
                    let at = (i * EIGHT + m) * 2 * halves;
                    let mut own = all[at..at + 2 * halves].to_vec();
                    own.resize(4, nothing);
                    let made = p.warp_mma(element, left, right, &own)?;
                    all.splice(at..at + 2 * halves, made.into_iter().take(2 * halves));
                }
            }
        }
        Ok(LoopCarried { max: most, row_sums: sums, values: all })
    }
}
