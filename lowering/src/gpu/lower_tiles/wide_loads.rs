//! 16-byte loads of the 16-bit operands that an epilogue reads.
//!
//! A lane has two adjacent columns of each eight, so that a warp's load of such pairs reads half of a
//! sector in each of 8 rows. Here the four lanes of a row load 32 columns, 8 a lane, and transpose
//! their words by shuffles: a word of each lane belongs to each lane.
use crate::{
    emit::{body::backward_slice, code::Code},
    gpu::lower_tiles::role::{Role, clone},
    strategies::gpu::common::ptx::Ptx,
};
use kiln_dialects::{ir::*, ops::TileEpilogue};
use std::collections::{HashMap, HashSet};

/// Elements that a lane loads.
pub(super) const RUN: usize = 8;
/// Columns that the lanes of a row load.
pub(super) const COLUMNS: usize = 4 * RUN;
/// Most operands: words of 64 columns, and of the 64 ahead, stay in registers.
const MOST: usize = 2;

/// Loads of an epilogue's body, of two adjacent elements.
pub(super) struct WideLoads {
    body: Block,
    loads: Vec<Op>,
}

impl WideLoads {
    pub(super) fn of(o: &TileEpilogue, body: Block) -> WideLoads {
        let aligned = o.aligned.is_some_and(|n| n % RUN as i64 == 0) && o.vector == 2;
        let halves =
            |t: Type| t.element().is_some_and(|e| e.dtype().is_ok_and(|d| d.byte_size() == 2));
        let position: Vec<Value> = body.args().into_iter().take(2).collect();
        let along = |op: &Op| {
            let at = op.operands().into_iter().skip(1);
            let from: HashSet<Value> = at.flat_map(|v| backward_slice(body, v)).collect();
            position.iter().all(|v| from.contains(v))
        };
        let wide = |op: &Op| op.isa::<vector::Load>() && halves(op.result(0).ty()) && along(op);
        let all = body.ops().into_iter().filter(|op| aligned && wide(op));
        WideLoads { body, loads: all.take(MOST).collect() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.loads.is_empty()
    }

    /// Loads a lane's elements from a position on, as four words of each operand.
    pub(super) fn load(&self, role: &Role<'_>, c: Code, at: [Value; 2]) -> Result<Vec<Value>> {
        let mut known: HashMap<Value, Value> = self.body.args().into_iter().zip(at).collect();
        let needed: Vec<Op> = {
            let values = self.loads.iter().flat_map(|op| op.operands());
            values.flat_map(|v| backward_slice(self.body, v)).filter_map(|v| v.def()).collect()
        };
        for op in self.body.ops().into_iter().filter(|op| needed.contains(op)) {
            let of = |v: Value| known.get(&v).copied().unwrap_or_else(|| role.scalar(v));
            let new = clone(c, op, &of)?;
            known.extend(op.results().into_iter().zip(new.results()));
        }
        let of = |v: Value| known.get(&v).copied().unwrap_or_else(|| role.scalar(v));
        let words = Type::vector(Ptx(c).i32(), 4);
        let one = |op: &Op| {
            let (operands, element) = (op.operands(), op.result(0).ty().element());
            let ty = Type::vector(element.ok_or("loads no vector")?, RUN);
            let at: Vec<Value> = operands[1..].iter().map(|v| of(*v)).collect();
            vector::bitcast(c, vector::load(c, of(operands[0]), &at, ty)?, words)
        };
        self.loads.iter().map(one).collect()
    }

    /// What the loads of the body give at a lane's two columns of each of four eights. `words`: of each
    /// operand, from [`Self::load`].
    pub(super) fn pairs(
        &self,
        c: Code,
        lane: Value,
        words: &[Value],
    ) -> Result<[Vec<(Value, Value)>; 4]> {
        let mut all: [Vec<(Value, Value)>; 4] = Default::default();
        for (op, v) in self.loads.iter().zip(words) {
            let ty = op.result(0).ty();
            for (found, word) in all.iter_mut().zip(transposed(Ptx(c), lane, *v)?) {
                found.push((op.result(0), llvm::bitcast(c, word, ty)?));
            }
        }
        Ok(all)
    }
}

/// Word `l` of lane `i`, for each lane `i` of the four of a row, where `l` is this lane's place.
fn transposed(p: Ptx, lane: Value, v: Value) -> Result<[Value; 4]> {
    let word = |i: i64| vector::extract(p, v, &[Size::Static(i)], p.i32());
    let mut w = [word(0)?, word(1)?, word(2)?, word(3)?];
    for by in [2, 1] {
        let upper = p.eq_const(p.rem_const(p.div_const(lane, by)?, 2)?, 1)?;
        // Rows and columns of 2 by 2 blocks, then of words: those off the diagonal change places.
        for (i, j) in if by == 2 { [(0, 2), (1, 3)] } else { [(0, 1), (2, 3)] } {
            let other = p.exchange(p.0.select(upper, w[i], w[j])?, by)?;
            (w[i], w[j]) = (p.0.select(upper, other, w[i])?, p.0.select(upper, w[j], other)?);
        }
    }
    Ok(w)
}
