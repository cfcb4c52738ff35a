//! The K steps of a CTA: all of a tile's, or the share of one CTA of a cluster (split-K).
use crate::{
    emit::code::{Code, constant_value},
    strategies::gpu::common::{ptx::Ptx, threads},
};
use kiln_dialects::ir::*;

/// A CTA's share of K.
pub(super) struct KSplit {
    /// The split-K factor: CTAs that share a tile.
    pub(super) splits: usize,
    /// The CTA's rank in its cluster.
    pub(super) rank: Value,
    /// The CTA's K steps: first, end (exclusive), count.
    pub(super) first: Value,
    pub(super) end: Value,
    pub(super) count: Value,
}

impl KSplit {
    /// Splits `steps` K steps among `parts` CTAs.
    pub(super) fn of(c: Code, parts: usize, steps: Value) -> Result<KSplit> {
        if parts == 1 {
            return Ok(KSplit {
                splits: parts,
                rank: Ptx(c).number(0)?,
                first: c.index(0)?,
                end: steps,
                count: steps,
            });
        }
        let all = c.index(parts as i64)?;
        let rank = c.rem(threads::block_id(c)?, all)?;
        let even =
            constant_value(steps).filter(|n| n % parts as i64 == 0).map(|n| n / parts as i64);
        let begin = |rank: Value| c.div(c.mul(rank, steps)?, all);
        let first = begin(rank)?;
        let end = begin(c.add(rank, c.index(1)?)?)?;
        let count = even.map_or_else(|| c.sub(end, first), |n| c.index(n))?;
        Ok(KSplit { splits: parts, rank: Ptx(c).index_to_i32(rank)?, first, end, count })
    }
}
