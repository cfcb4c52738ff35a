//! Scans along a contiguous axis: shuffles within a warp, shared memory between the warps of a row.
use crate::{
    emit::{code::Code, lanes::LaneValue, loops::decode, partials::extract_lane},
    strategies::gpu::common::shared,
    strategies::gpu::{
        common::threads::{self, ThreadGroup},
        scan::emit::{ONE_LANE, OuterPosition, ScanEmitter},
    },
    target::launch::WARP,
};
use kiln_dialects::ir::*;

impl ScanEmitter<'_> {
    /// Emits a scan along a contiguous axis.
    pub(crate) fn rows(&self, c: Code) -> Result<()> {
        let (across, count, axis) = (self.across, self.lanes.count, self.scan.axis);
        let (warps, width) = (across.div_ceil(WARP), across.min(WARP));
        if warps > 1 && self.chunks * warps > WARP {
            return Err(format!(
                "has a schedule of a scan whose {} items of {warps} warps are more than {WARP}",
                self.chunks
            )
            .into());
        }
        let group = ThreadGroup::of(c, across, self.beside)?;
        let memory = if warps > 1 {
            Some(shared(c, self.element(), (2 * WARP * self.beside) as i64)?)
        } else {
            None
        };
        let dims: Vec<usize> = (0..self.nest.extents.len()).filter(|d| *d != axis).collect();
        let (sizes, total) = self.sizes(c, &dims, false)?;
        let mut first = vec![];
        for p in 0..self.chunks {
            first.push(c.add(
                c.mul(group.thread, c.index(count as i64)?)?,
                c.index((p * across * count) as i64)?,
            )?);
        }
        group.for_each_row(c, self.beside, total, &mut |c, group, row| {
            let at = dims
                .iter()
                .copied()
                .zip(decode(c, row, &sizes)?.into_iter().map(LaneValue::Uniform))
                .collect();
            let around = OuterPosition { at, active: group.active };
            let mut state = vec![self.identity(c, ONE_LANE)?];
            if memory.is_some() {
                state.push(c.mul(group.number, c.index(2 * WARP as i64)?)?);
            }
            self.for_each_step(
                c,
                &around,
                &first,
                count,
                &state,
                &mut |c, state, mut pieces, given| {
                    let inner: Vec<Vec<Value>> =
                        given.iter().map(|v| self.prefixes(c, *v)).collect::<Result<_>>()?;
                    let last = inner
                        .iter()
                        .map(|all| all.last().copied().ok_or_else(|| "has no lanes".into()))
                        .collect::<Result<Vec<_>>>()?;
                    let all = self.scan_warp(c, last, width)?;
                    let lower = all
                        .iter()
                        .map(|v| self.exclusive(c, *v, width))
                        .collect::<Result<Vec<_>>>()?;
                    let (starts, state) = match memory {
                        Some(memory) => self.scan_cta(c, state, &all, memory, &group, warps)?,
                        None => {
                            let (mut sum, mut starts) = (state[0], vec![]);
                            for v in &all {
                                starts.push(sum);
                                let last = if width > 1 {
                                    threads::shuffle_idx(c, *v, width - 1, width)?
                                } else {
                                    *v
                                };
                                sum = self.combine_two(c, sum, last)?;
                            }
                            (starts, vec![sum])
                        }
                    };
                    for (n, piece) in pieces.iter_mut().enumerate() {
                        let start = self.combine_two(c, starts[n], lower[n])?;
                        let at = |i: usize| match (self.scan.exclusive, i) {
                            (true, 0) => Ok(start),
                            (true, i) => self.combine_two(c, start, inner[n][i - 1]),
                            (false, i) => self.combine_two(c, start, inner[n][i]),
                        };
                        let lanes = (0..count).map(at).collect::<Result<Vec<_>>>()?;
                        let v = match lanes[..] {
                            [v] => v,
                            _ => vector::from_elements(
                                c,
                                &lanes,
                                Type::vector(self.element(), count),
                            )?,
                        };
                        self.epilogue(c, piece, v)?;
                    }
                    Ok(state)
                },
            )?;
            // WAR barrier: the next row's first step may reuse this one's last exchange buffer.
            if memory.is_some() { threads::barrier(c) } else { Ok(()) }
        })
    }

    /// Inclusive scan of a piece's lanes.
    fn prefixes(&self, c: Code, v: Value) -> Result<Vec<Value>> {
        if self.lanes.count == 1 {
            return Ok(vec![v]);
        }
        let mut all: Vec<Value> = vec![];
        for i in 0..self.lanes.count {
            let one = extract_lane(c, v, i)?;
            all.push(all.last().map_or(Ok(one), |before| self.combine_two(c, *before, one))?);
        }
        Ok(all)
    }

    /// Inclusive warp scan over segments of `width` lanes, of several independent values (Kogge and
    /// Stone).
    fn scan_warp(&self, c: Code, mut all: Vec<Value>, width: usize) -> Result<Vec<Value>> {
        let mut by = 1;
        while by < width {
            for v in &mut all {
                let [other, there] = threads::shuffle_up(c, *v, by, width)?;
                *v = c.select(there, self.combine_two(c, other, *v)?, *v)?;
            }
            by *= 2;
        }
        Ok(all)
    }

    /// Exclusive from inclusive scan: the previous lane's value, or the identity.
    fn exclusive(&self, c: Code, v: Value, width: usize) -> Result<Value> {
        let nothing = self.identity(c, ONE_LANE)?;
        if width == 1 {
            return Ok(nothing);
        }
        let [other, there] = threads::shuffle_up(c, v, 1, width)?;
        c.select(there, other, nothing)
    }

    /// CTA-level scan: the exclusive prefix of each piece of a warp, from the totals in each warp's
    /// last lane, and the next state.
    fn scan_cta(
        &self,
        c: Code,
        state: &[Value],
        all: &[Value],
        memory: Value,
        group: &ThreadGroup,
        warps: usize,
    ) -> Result<(Vec<Value>, Vec<Value>)> {
        let (sum, place, count) = (state[0], state[1], self.chunks * warps);
        let wide = c.index(WARP as i64)?;
        let (lane, warp) = (c.rem(group.thread, wide)?, c.div(group.thread, wide)?);
        let mine = c.add(place, warp)?;
        let last = c.compare(CmpIPredicate::Eq, lane, c.index(WARP as i64 - 1)?)?;
        let mut give = |c: Code| -> Result<()> {
            let at = |p: usize| c.add(mine, c.index((p * warps) as i64)?);
            all.iter().enumerate().try_for_each(|(p, v)| memref::store(c, *v, memory, &[at(p)?]))
        };
        c.if_else(last, &mut give, None)?;
        threads::barrier(c)?;
        let there =
            if count < WARP { Some(c.less_than(lane, c.index(count as i64)?)?) } else { None };
        let from = there.map_or(Ok(lane), |there| c.select(there, lane, c.index(0)?))?;
        let mut v = memref::load(c, memory, &[c.add(place, from)?])?;
        if let Some(there) = there {
            v = c.select(there, v, self.identity(c, ONE_LANE)?)?;
        }
        let v = self.scan_warp(c, vec![v], count.next_power_of_two())?.remove(0);
        let lower = self.exclusive(c, v, WARP)?;
        let start = |p: usize| {
            self.combine_two(
                c,
                sum,
                threads::shuffle_idx_dynamic(c, lower, c.add(warp, c.index((p * warps) as i64)?)?)?,
            )
        };
        let starts = (0..self.chunks).map(start).collect::<Result<_>>()?;
        let sum = self.combine_two(c, sum, threads::shuffle_idx(c, v, count - 1, WARP)?)?;
        // The two exchange buffers of a group differ in one address bit.
        Ok((starts, vec![sum, arith::xori(c, place, wide)?]))
    }
}
