//! The online softmax of a key tile in registers: masked scores, their exponentials, and the
//! factors that rescale earlier sums.
use crate::{
    emit::code::Code,
    strategies::gpu::{
        attention::{flash::Flash, query_tile::Thread},
        common::{ptx::Ptx, threads},
    },
};
use kiln_dialects::ir::*;
use std::f64::consts::LOG2_E;

/// Scaled scores so large that any two distinct ones differ by more than an exponential can
/// represent.
const LARGE: f64 = 1e38;

/// The softmax statistics of a thread's row so far.
#[derive(Clone, Copy)]
pub(super) struct SoftmaxState {
    /// The maximum score, unscaled.
    pub(super) max: Value,
    /// The sum of this thread's exponentials.
    pub(super) sum: Value,
}

/// Which masks a key tile needs: causal or out of bounds at its end, sliding window at its start.
#[derive(Clone, Copy)]
pub(super) struct Edges {
    pub(super) last: bool,
    pub(super) window: bool,
}

/// Exponentials, the statistics of both rows, and the factors that rescale the accumulators, if
/// there are earlier ones.
type Exponentials = (Vec<Value>, [SoftmaxState; 2], [Option<Value>; 2]);

impl Flash<'_> {
    /// Masked scores, unscaled. Of 8 columns a thread has 2 adjacent ones, in a row and in the
    /// eighth row below.
    pub(super) fn masked_scores(
        &self,
        c: Code,
        t: &Thread<'_>,
        scores: &[Value],
        back: Value,
        edges: Edges,
    ) -> Result<Vec<Value>> {
        let p = Ptx(c);
        let start = p.add(self.first_key(p, t.query_tile, back)?, t.column)?;
        let beyond = edges.last && self.partial_tiles[1];
        // The last visible column of each of the thread's rows, relative to the thread's first
        // column.
        let mut limits = vec![];
        for row in 0..2 {
            let ends = if beyond {
                Some(p.add_signed(p.sub(t.query_tile.count, start)?, -1)?)
            } else {
                None
            };
            let hidden = edges.last && self.score.causal;
            let own = if hidden { Some(p.sub(p.add_const(t.row, 8 * row)?, start)?) } else { None };
            limits.push(match (ends, own) {
                (Some(a), Some(b)) => Some(p.min(a, b)?),
                (a, b) => a.or(b),
            });
        }
        let last =
            if beyond { Some(p.max(p.add_signed(self.count, -1)?, p.number(0)?)?) } else { None };
        let mut known = self.score.tile(&t.scores, start, last, !edges.window);
        let low = c.number(f64::NEG_INFINITY, p.f32())?;
        let mut all = vec![];
        for (i, x) in scores.iter().enumerate() {
            let (row, column) = (i / 2 % 2, i / 4 * 8 + i % 2);
            let x = self.score.element(c, &mut known, *x, row, column)?;
            all.push(match limits[row] {
                Some(limit) => {
                    c.select(c.compare(CmpIPredicate::Sgt, p.number(column)?, limit)?, low, x)?
                }
                None => x,
            });
        }
        Ok(all)
    }

    /// Exponentials of the scores less the running maximum, and the factors that rescale earlier
    /// sums.
    pub(super) fn exponentials(
        &self,
        c: Code,
        seen: &[Value],
        old: Option<&[SoftmaxState; 2]>,
    ) -> Result<Exponentials> {
        let p = Ptx(c);
        type BinaryBuilder = fn(Code, Value, Value) -> Result<Value>;
        let tree = |two: BinaryBuilder, mut all: Vec<Value>| -> Result<Value> {
            while all.len() > 1 {
                all = all
                    .chunks(2)
                    .map(|x| if let [a, b] = x { two(c, *a, *b) } else { Ok(x[0]) })
                    .collect::<Result<_>>()?;
            }
            all.first().copied().ok_or_else(|| "has no keys".to_string().into())
        };
        let number = |x: f64| c.number(x, p.f32());
        let scale = number(LOG2_E * self.score.factor)?;
        let (mut made, mut rows, mut factors) = (seen.to_vec(), vec![], [None; 2]);
        for row in 0..2 {
            let own: Vec<usize> = (0..seen.len()).filter(|i| i / 2 % 2 == row).collect();
            let most = tree(arith::maxnumf, own.iter().map(|i| seen[*i]).collect())?;
            let mut max = threads::butterfly(c, most, 4, &|a, b| arith::maxnumf(c, a, b))?;
            if let Some(old) = old {
                max = arith::maxnumf(c, max, old[row].max)?;
            }
            // A fully masked row has the maximum -inf: all of its exponentials are 0.
            let least = number(f64::from(f32::MIN))?;
            let (mut over, mut by, mut finite) = (arith::mulf(c, max, scale)?, scale, None);
            if self.score.is_scaled_only() {
                over = arith::maxnumf(c, over, least)?;
            } else {
                // A scaled score may overflow. Scores below the maximum then are so far from it
                // that any scale makes their exponential 0.
                let most = arith::maxnumf(c, max, least)?;
                let size = math::absf(c, over)?;
                let large = arith::cmpf(c, CmpFPredicate::Ogt, size, number(LARGE)?)?;
                by = c.select(large, number(0.5)?, scale)?;
                over = arith::mulf(c, most, by)?;
                finite = Some(most);
            }
            let over = arith::negf(c, over)?;
            for i in &own {
                made[*i] = p.exp2(math::fma(c, seen[*i], by, over)?)?;
            }
            let mut sum = tree(arith::addf, own.iter().map(|i| made[*i]).collect())?;
            if let Some(old) = old {
                let before = old[row].max;
                let power = match finite {
                    Some(most) => arith::mulf(c, arith::subf(c, before, most)?, scale)?,
                    None => math::fma(c, before, by, over)?,
                };
                let factor = p.exp2(power)?;
                sum = math::fma(c, old[row].sum, factor, sum)?;
                factors[row] = Some(factor);
            }
            rows.push(SoftmaxState { max, sum });
        }
        Ok((made, [rows[0], rows[1]], factors))
    }

    /// Packs exponentials as left fragments: of each 16 columns, both rows of the first 8, then
    /// both rows of the second 8.
    pub(super) fn pack_fragments(&self, p: Ptx, made: &[Value]) -> Result<Vec<Value>> {
        made.chunks(2).map(|x| p.pack_pair(self.pattern.element, x[0], x[1])).collect()
    }
}
