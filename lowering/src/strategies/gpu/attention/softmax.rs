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

/// 2 to a power, within 2 ulp.
fn exp2(c: Code, x: Value) -> Result<Value> {
    math::Exp2::new(c, x).fastmath(FastMathFlags::AFN).result()
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
        let (row, part) = (f.row(f32)?, f.partial_row(f32)?);
        let scaled = self.score.is_scaled_only();
        let factor = LOG2_E * self.score.factor;
        let own = t.reduce(ReduceKind::Max, seen, row)?;
        let maxima: Vec<Value> = [own].into_iter().chain(old.map(|o| o.max)).collect();
        // The maximum, what to subtract from scaled scores, and where a scaled score may overflow
        // the scale and the finite maximum.
        let types = vec![row; if scaled { 2 } else { 4 }];
        let rows = t.map(&maxima, &types, &mut |c, x| {
            let number = |x: f64| c.number(x, f32);
            let (scale, least) = (number(factor)?, number(f64::from(f32::MIN))?);
            let max = match x {
                [own, before] => arith::maxnumf(c, *own, *before)?,
                _ => *x.first().ok_or("has no maximum")?,
            };
            // A fully masked row has the maximum -inf: all of its exponentials are 0.
            let over = arith::mulf(c, max, scale)?;
            if scaled {
                return Ok(vec![max, arith::negf(c, arith::maxnumf(c, over, least)?)?]);
            }
            // Scores below the maximum then are so far from it that any scale makes their
            // exponential 0.
            let most = arith::maxnumf(c, max, least)?;
            let large = arith::cmpf(c, CmpFPredicate::Ogt, math::absf(c, over)?, number(LARGE)?)?;
            let by = c.select(large, number(0.5)?, scale)?;
            Ok(vec![max, arith::negf(c, arith::mulf(c, most, by)?)?, by, most])
        })?;
        let (max, over) = (rows[0], rows[1]);
        let (by, most) = (rows.get(2).copied(), rows.get(3).copied());
        let inputs: Vec<Value> = [seen, over].into_iter().chain(by).collect();
        let made = t.map_one(&inputs, seen.ty(), &mut |c, x| {
            let by = x.get(2).copied().map_or_else(|| c.number(factor, f32), Ok)?;
            exp2(c, math::fma(c, x[0], by, x[1])?)
        })?;
        let sum = t.reduce(ReduceKind::Sum, made, part)?;
        let Some(old) = old else { return Ok((made, SoftmaxState { max, sum }, None)) };
        let inputs = [old.max, most.unwrap_or(over), old.sum, sum];
        let all = t.map(&inputs, &[row, part], &mut |c, x| {
            let scale = c.number(factor, f32)?;
            let power = match scaled {
                true => math::fma(c, x[0], scale, x[1])?,
                false => arith::mulf(c, arith::subf(c, x[0], x[1])?, scale)?,
            };
            let factor = exp2(c, power)?;
            Ok(vec![factor, math::fma(c, x[2], factor, x[3])?])
        })?;
        Ok((made, SoftmaxState { max, sum: all[1] }, Some(all[0])))
    }
}
