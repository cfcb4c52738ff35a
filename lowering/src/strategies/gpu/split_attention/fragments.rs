//! Loads of queries, keys and values straight into mma.sync fragments, 16 bytes a lane.
use crate::{
    analysis::Access,
    emit::{
        body::ForwardedElements,
        code::Code,
        lanes::{LaneValue, Lanes},
    },
    strategies::gpu::{
        common::ptx::Ptx,
        skinny_gemm::VECTOR,
        split_attention::{
            COLUMNS, DEPTH,
            row_tile::{Row, RowTile},
            split::{EIGHT, Split},
        },
    },
};
use kiln_dialects::ir::*;

/// The vector width of a thread's loads.
const VECTOR_LANES: Lanes = Lanes { count: VECTOR, mask: None };

impl Split<'_> {
    /// The 16 bytes at an element as four registers; zeros unless `inside`.
    fn load_vector(
        &self,
        c: Code,
        access: &Access,
        dims: &[LaneValue],
        inside: Option<Value>,
    ) -> Result<Vec<Value>> {
        let v = VECTOR_LANES.vector(
            c,
            self.scope.read(c, access, dims, VECTOR_LANES, &ForwardedElements::new())?,
        )?;
        let words = Type::vector(Ptx(c).i32(), 4);
        let mut v = vector::bitcast(c, v, words)?;
        if let Some(inside) = inside {
            v = c.select(inside, v, c.integer(0, words)?)?;
        }
        let word = |i: i64| vector::extract(c, v, &[Size::Static(i)], Ptx(c).i32());
        (0..4).map(word).collect()
    }

    /// The address of the thread's 16 bytes of a step along a row, clamped to the first ones if out
    /// of bounds, and the bounds check, if one is needed.
    fn lane_address(
        &self,
        c: Code,
        step: usize,
        wide: usize,
        lane: Value,
        size: i64,
    ) -> Result<(Value, Option<Value>)> {
        let p = Ptx(c);
        let at = p.i32_to_index(p.add_const(p.mul_const(lane, VECTOR)?, step * wide)?)?;
        if size as usize >= (step + 1) * wide {
            return Ok((at, None));
        }
        let inside = c.less_than(at, c.index(size)?)?;
        Ok((c.select(inside, at, c.index(0)?)?, Some(inside)))
    }

    /// Queries as left fragments: by 32 elements of K, four registers of each row. `here`: emit the
    /// addresses at this place, not hoisted out of a loop.
    pub(super) fn read_queries(
        &self,
        c: Code,
        rows: &[Row],
        here: bool,
    ) -> Result<Vec<Vec<Vec<Value>>>> {
        let at = &self.pattern.at;
        let access = &self.scope.kernel.stages[at.scores].inputs[0];
        let step = |i: usize| -> Result<Vec<Vec<Value>>> {
            let (k_index, inside) = self.lane_address(c, i, DEPTH, self.lane[1], at.depth)?;
            let one = |r: &Row| {
                let query = if here { Ptx(c).opaque(r.query)? } else { r.query };
                let mut dims: Vec<LaneValue> =
                    r.outer.iter().map(|i| LaneValue::Uniform(*i)).collect();
                dims.extend([
                    LaneValue::Uniform(Ptx(c).i32_to_index(query)?),
                    LaneValue::Uniform(c.index(0)?),
                    LaneValue::Strided(k_index, 1),
                ]);
                self.load_vector(c, access, &dims, inside)
            };
            rows.iter().map(one).collect()
        };
        (0..(at.depth as usize).div_ceil(DEPTH)).map(step).collect()
    }

    /// The outer loops of keys.
    fn outer(&self, c: Code, row_tile: &RowTile) -> Result<Vec<LaneValue>> {
        let mut dims: Vec<LaneValue> =
            row_tile.outer.iter().map(|i| LaneValue::Uniform(*i)).collect();
        dims.resize(self.pattern.at.outer, LaneValue::Uniform(c.index(0)?));
        Ok(dims)
    }

    /// A key, clamped to the last one.
    fn key(&self, p: Ptx, row_tile: &RowTile, key: Value) -> Result<Value> {
        p.i32_to_index(if self.partial_step {
            p.min(key, p.add_signed(row_tile.keys[1], -1)?)?
        } else {
            key
        })
    }

    /// Keys as right fragments: by eight keys, by 32 elements of K.
    pub(super) fn read_keys(
        &self,
        c: Code,
        row_tile: &RowTile,
        start: Value,
    ) -> Result<Vec<Vec<Vec<Value>>>> {
        let (p, at) = (Ptx(c), &self.pattern.at);
        let access = &self.scope.kernel.stages[at.scores].inputs[1];
        let eight = |j: usize| -> Result<Vec<Vec<Value>>> {
            let key =
                self.key(p, row_tile, p.add(start, p.add_const(self.lane[0], EIGHT * j)?)?)?;
            let step = |i: usize| {
                let (k_index, inside) = self.lane_address(c, i, DEPTH, self.lane[1], at.depth)?;
                let mut dims = self.outer(c, row_tile)?;
                dims.extend([
                    LaneValue::Uniform(c.index(0)?),
                    LaneValue::Uniform(key),
                    LaneValue::Strided(k_index, 1),
                ]);
                self.load_vector(c, access, &dims, inside)
            };
            (0..(at.depth as usize).div_ceil(DEPTH)).map(step).collect()
        };
        (0..self.keys / EIGHT).map(eight).collect()
    }

    /// Values: by 16 keys, by 64 columns, of the four keys whose exponentials the thread has.
    pub(super) fn read_values(
        &self,
        c: Code,
        row_tile: &RowTile,
        start: Value,
    ) -> Result<Vec<Vec<Vec<Vec<Value>>>>> {
        let (p, at) = (Ptx(c), &self.pattern.at);
        let access = &self.scope.kernel.stages[at.product].inputs[1];
        let own = p.add(start, p.mul_const(self.lane[1], 2)?)?;
        let sixteen = |k: usize| -> Result<Vec<Vec<Vec<Value>>>> {
            let step = |i: usize| -> Result<Vec<Vec<Value>>> {
                let (column, _) = self.lane_address(c, i, COLUMNS, self.lane[0], at.columns)?;
                let one = |j: &usize| {
                    let key = p.add_const(own, 2 * EIGHT * k + j)?;
                    // What stands beyond the end may be no number, and 0 times that is none.
                    let inside = if self.partial_step {
                        Some(c.compare(CmpIPredicate::Slt, key, row_tile.keys[1])?)
                    } else {
                        None
                    };
                    let mut dims = self.outer(c, row_tile)?;
                    dims.extend([
                        LaneValue::Uniform(c.index(0)?),
                        LaneValue::Strided(column, 1),
                        LaneValue::Uniform(self.key(p, row_tile, key)?),
                    ]);
                    self.load_vector(c, access, &dims, inside)
                };
                [0, 1, EIGHT, EIGHT + 1].iter().map(one).collect()
            };
            (0..(at.columns as usize).div_ceil(COLUMNS)).map(step).collect()
        };
        (0..self.keys / 16).map(sixteen).collect()
    }
}
