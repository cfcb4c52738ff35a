//! Scans along a strided axis (down columns): threads below each other share a column and combine
//! the totals of the threads above.
use crate::{
    emit::{code::Code, lanes::LaneValue, loops::decode},
    strategies::gpu::common::shared,
    strategies::gpu::{
        common::threads,
        scan::emit::{OuterPosition, ScanEmitter},
    },
};
use kiln_dialects::ir::*;

impl ScanEmitter<'_> {
    /// Emits a scan along a strided axis.
    pub(crate) fn columns(&self, c: Code) -> Result<()> {
        let (across, beside, count) = (self.across, self.beside, self.lanes.count);
        let (thread, side) = (threads::thread_id(c)?, c.index(beside as i64)?);
        let (column, part) = (c.rem(thread, side)?, c.div(thread, side)?);
        let places = across * beside * count;
        let memory =
            if across > 1 { Some(shared(c, self.element(), 2 * places as i64)?) } else { None };
        let mut dims: Vec<usize> = (0..self.nest.extents.len())
            .filter(|d| *d != self.scan.axis && *d != self.fast)
            .collect();
        dims.push(self.fast);
        let (sizes, total) = self.sizes(c, &dims, true)?;
        let own = c.mul(part, c.index(self.chunks as i64)?)?;
        let first =
            (0..self.chunks).map(|p| c.add(own, c.index(p as i64)?)).collect::<Result<Vec<_>>>()?;
        let val =
            |i: Value| if count == 1 { LaneValue::Uniform(i) } else { LaneValue::Strided(i, 1) };
        threads::for_each_tile_of(c, side, total, &mut |c, base, _| {
            let item = c.add(base, column)?;
            let active = c.less_than(item, total)?;
            let mut at = decode(c, c.select(active, item, base)?, &sizes)?;
            let last = c.mul(at.pop().ok_or("has no columns")?, c.index(count as i64)?)?;
            let mut at: Vec<(usize, LaneValue)> =
                dims.iter().copied().zip(at.into_iter().map(LaneValue::Uniform)).collect();
            at.push((self.fast, val(last)));
            let mut state = vec![self.identity(c, self.lanes)?];
            if memory.is_some() {
                state.push(c.index(0)?);
            }
            self.for_each_step(
                c,
                &OuterPosition { at, active: Some(active) },
                &first,
                1,
                &state,
                &mut |c, state, mut pieces, given| {
                    let mut all: Vec<Value> = vec![];
                    for v in &given {
                        // A thread with a whole column continues from the carried value.
                        let before =
                            all.last().copied().or(if across == 1 { Some(state[0]) } else { None });
                        all.push(before.map_or(Ok(*v), |before| self.combine_two(c, before, *v))?);
                    }
                    let (own, carried) = (*all.last().ok_or("has no pieces")?, state[0]);
                    let (start, state) = match memory {
                        None => (None, vec![own]),
                        Some(memory) => {
                            let place = |c: Code, from: Value, thread: Value| {
                                c.mul(c.add(from, thread)?, c.index(count as i64)?).map(val)
                            };
                            let many = if count == 1 {
                                LaneValue::Uniform(own)
                            } else {
                                LaneValue::Vector(own)
                            };
                            self.lanes.store(
                                c,
                                memory,
                                place(c, state[1], thread)?,
                                many,
                                false,
                            )?;
                            threads::barrier(c)?;
                            let (mut start, mut sum) = (state[0], state[0]);
                            for other in 0..across {
                                let at = place(
                                    c,
                                    state[1],
                                    c.add(column, c.index((other * beside) as i64)?)?,
                                )?;
                                let v = self.lanes.load(c, memory, at)?;
                                sum = self.combine_two(c, sum, self.lanes.vector(c, v)?)?;
                                if other + 1 < across {
                                    start = c.select(
                                        c.less_than(c.index(other as i64)?, part)?,
                                        sum,
                                        start,
                                    )?;
                                }
                            }
                            (
                                Some(start),
                                vec![
                                    sum,
                                    arith::xori(c, state[1], c.index((across * beside) as i64)?)?,
                                ],
                            )
                        }
                    };
                    for (n, piece) in pieces.iter_mut().enumerate() {
                        let mine = if self.scan.exclusive {
                            n.checked_sub(1).map(|n| all[n])
                        } else {
                            Some(all[n])
                        };
                        let v = match (start, mine) {
                            (Some(start), Some(mine)) => self.combine_two(c, start, mine)?,
                            (Some(start), None) => start,
                            (None, Some(mine)) => mine,
                            (None, None) => carried,
                        };
                        self.epilogue(c, piece, v)?;
                    }
                    Ok(state)
                },
            )?;
            // WAR barrier: the next columns' first step may reuse this one's last exchange buffer.
            if memory.is_some() {
                threads::barrier(c)?
            }
            Ok(vec![])
        })
        .map(drop)
    }
}
