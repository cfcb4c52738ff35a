//! What the consumers of attention's derivatives carry from one tile of columns to the next.
use kiln_dialects::ir::*;

/// What the products of the tile before take, which are not done yet.
#[derive(Clone)]
pub(super) struct Previous {
    /// Gradients of scores and, for the derivatives by keys, weights, as left operands.
    pub(super) operands: Vec<Value>,
    pub(super) stage: Value,
    /// Whether there is such a tile, as 0 or 1.
    pub(super) there: Value,
}

/// Loop-carried from one tile of columns to the next.
#[derive(Clone)]
pub(super) struct Carried {
    /// The accumulators.
    pub(super) sums: Vec<Value>,
    /// The stage of the columns.
    pub(super) stage: Value,
    /// Where products overlap the next tile.
    pub(super) previous: Option<Previous>,
}

impl Carried {
    /// All values, in order.
    pub(super) fn flat(&self) -> Vec<Value> {
        let mut all = self.sums.clone();
        all.push(self.stage);
        if let Some(p) = &self.previous {
            all.extend(&p.operands);
            all.extend([p.stage, p.there]);
        }
        all
    }
    /// The same state with other values.
    pub(super) fn like(&self, flat: &[Value]) -> Result<Carried> {
        let mut next = flat.iter().copied();
        let mut take = || next.next().ok_or("carries fewer values than a tile of columns");
        let mut some =
            |n: usize| (0..n).map(|_| take()).collect::<std::result::Result<Vec<_>, _>>();
        let (sums, stage) = (some(self.sums.len())?, some(1)?[0]);
        let mut previous = None;
        if let Some(p) = &self.previous {
            let operands = some(p.operands.len())?;
            let rest = some(2)?;
            previous = Some(Previous { operands, stage: rest[0], there: rest[1] });
        }
        Ok(Carried { sums, stage, previous })
    }
}
