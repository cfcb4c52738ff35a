//! The online softmax of a key tile in registers: exponentials of the scores, and the factors that
//! rescale earlier sums.
use crate::{
    emit::code::Code,
    strategies::gpu::{
        attention::flash::Flash,
        common::{ptx::Ptx, tile::Tile},
    },
};
use kiln_dialects::{ir::*, ops::ReduceKind};
use std::f64::consts::LOG2_E;

/// Scaled scores so large that any two distinct ones differ by more than an exponential can
/// represent.
const LARGE: f64 = 1e38;

/// The softmax statistics of the rows so far.
#[derive(Clone, Copy)]
pub(super) struct SoftmaxState {
    /// The maximum score, unscaled.
    pub(super) max: Value,
    /// The sum of the exponentials, each lane with its own.
    pub(super) sum: Value,
}

impl Flash<'_> {
    /// Exponentials of the scores less the running maximum, the statistics, and the factor that
    /// rescales earlier sums, if there are any.
    pub(super) fn exponentials(
        &self,
        c: Code,
        seen: Value,
        old: Option<SoftmaxState>,
    ) -> Result<(Value, SoftmaxState, Option<Value>)> {
        let (t, f, f32) = (Tile(c), self.fragments(), Ptx(c).f32());
        let (row, part) = (f.row(f32), f.partial_row(f32));
        let number = |x: f64| c.number(x, row);
        let factor = LOG2_E * self.score.factor;
        let (scale, least) = (number(factor)?, number(f64::from(f32::MIN))?);
        let mut max = t.reduce(ReduceKind::Max, seen, row)?;
        if let Some(old) = old {
            max = arith::maxnumf(c, max, old.max)?;
        }
        // A fully masked row has the maximum -inf: all of its exponentials are 0.
        let (mut over, mut by, mut finite) = (arith::mulf(c, max, scale)?, None, None);
        if self.score.is_scaled_only() {
            over = arith::maxnumf(c, over, least)?;
        } else {
            // A scaled score may overflow. Scores below the maximum then are so far from it that
            // any scale makes their exponential 0.
            let most = arith::maxnumf(c, max, least)?;
            let large = arith::cmpf(c, CmpFPredicate::Ogt, math::absf(c, over)?, number(LARGE)?)?;
            let own = c.select(large, number(0.5)?, scale)?;
            over = arith::mulf(c, most, own)?;
            (by, finite) = (Some(own), Some(most));
        }
        let over = arith::negf(c, over)?;
        let every = |v: Value| t.broadcast(v, seen.ty());
        let by = by.map_or_else(|| c.number(factor, seen.ty()), every)?;
        let made = t.exp2(math::fma(c, seen, by, every(over)?)?)?;
        let sum = t.reduce(ReduceKind::Sum, made, part)?;
        let Some(old) = old else { return Ok((made, SoftmaxState { max, sum }, None)) };
        let power = match finite {
            Some(most) => arith::mulf(c, arith::subf(c, old.max, most)?, scale)?,
            None => math::fma(c, old.max, scale, over)?,
        };
        let factor = t.exp2(power)?;
        let sum = math::fma(c, old.sum, t.convert(factor, part)?, sum)?;
        Ok((made, SoftmaxState { max, sum }, Some(factor)))
    }
}
