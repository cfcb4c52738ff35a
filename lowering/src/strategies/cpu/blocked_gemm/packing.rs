//! Packing of the operands of a matrix product.
use crate::{
    analysis::Access,
    emit::{
        code::{Code, constant_value},
        lanes::{LaneValue, Lanes},
        loops::FixedDims,
    },
    strategies::cpu::{
        blocked_gemm::{
            Unit,
            blocks::{Blocks, ColumnGroup, Range},
        },
        common::transposed::{shuffled, store_rows, vectors_of_rows},
    },
};
use kiln_dialects::ir::*;

impl Blocks<'_> {
    /// The load of an input.
    pub fn input(&self, i: usize) -> Result<&Access> {
        let stage =
            self.loops.nest.stages.first().and_then(|s| self.loops.scope.kernel.stages.get(*s));
        stage.and_then(|s| s.inputs.get(i)).ok_or_else(|| "has no such input".into())
    }

    /// Packs rows of the left matrix, in vectors along K; the last one is zero-padded.
    pub fn copy_left(
        &self,
        c: Code,
        fixed: &FixedDims,
        rows: Range,
        (k0, k1): Range,
    ) -> Result<()> {
        let scope = self.loops.scope;
        let access = self.input(self.product.left)?;
        let (memory, step) =
            (scope.buffer(access.buffer)?, scope.poly(c, &self.product.step(access))?);
        // As many elements as a vector of the result has room for, in bits.
        let count = self.loops.lanes * 4 / self.unit.size() as usize;
        let copy_row = |c: Code, row: Value, from: Value| -> Result<()> {
            let base = self.element_address(c, access, &self.at_row(fixed, row), None)?;
            let to = c.mul(c.sub(row, rows.0)?, c.index(self.left_stride)?)?;
            let copy = |c: Code, k: Value, mask: Option<Value>| -> Result<()> {
                let lanes = Lanes { count, mask };
                let at = lanes.add_or_sub(
                    c,
                    LaneValue::Uniform(base),
                    lanes.scaled(c, LaneValue::Strided(k, 1), step)?,
                    false,
                )?;
                let v = loaded(c, lanes, memory, at)?;
                let to = LaneValue::Strided(c.add(to, c.sub(k, k0)?)?, 1);
                Lanes { count, mask: None }.store(c, self.left, to, LaneValue::Vector(v), false)
            };
            let whole = whole_steps(c, from, k1, count)?;
            c.for_loop(from, whole, count as i64, &[], &mut |c, k, _| {
                copy(c, k, None).map(|()| vec![])
            })?;
            c.for_loop(whole, k1, count as i64, &[], &mut |c, k, _| {
                let mask = mask(c, c.sub(k1, k)?, count)?;
                copy(c, k, Some(mask)).map(|()| vec![])
            })
            .map(drop)
        };
        let mut first = rows.0;
        if self.product.m_contiguous(access) && self.transposes() && constant_value(step) != Some(1)
        {
            let (n, all) = (count as i64, Lanes { count, mask: None });
            let (row_end, k_end) =
                (whole_steps(c, rows.0, rows.1, count)?, whole_steps(c, k0, k1, count)?);
            c.for_loop(rows.0, row_end, n, &[], &mut |c, row, _| {
                let base = self.element_address(c, access, &self.at_row(fixed, row), None)?;
                c.for_loop(k0, k_end, n, &[], &mut |c, k, _| {
                    let lines = vectors_of_rows(c, count, &mut |c, i| {
                        let k = c.add(k, c.index(i as i64)?)?;
                        let at = LaneValue::Strided(c.add(base, c.mul(k, step)?)?, 1);
                        loaded(c, all, memory, at)
                    })?;
                    let to = c.mul(c.sub(row, rows.0)?, c.index(self.left_stride)?)?;
                    let to = c.add(to, c.sub(k, k0)?)?;
                    store_rows(c, shuffled(c, lines)?, None, &mut |c, i| {
                        let at = c.add(to, c.index(i as i64 * self.left_stride)?)?;
                        Ok((self.left, LaneValue::Strided(at, 1)))
                    })
                    .map(|()| vec![])
                })?;
                c.for_loop(row, c.add(row, c.index(n)?)?, 1, &[], &mut |c, row, _| {
                    copy_row(c, row, k_end).map(|()| vec![])
                })
            })?;
            first = row_end;
        }
        c.for_loop(first, rows.1, 1, &[], &mut |c, row, _| copy_row(c, row, k0).map(|()| vec![]))
            .map(drop)
    }

    /// Whether operands that are contiguous in the other dimension are packed by transposes of
    /// lanes × lanes tiles in registers. A gather loads element by element.
    fn transposes(&self) -> bool {
        self.unit == Unit::Fma && self.loops.lanes.is_power_of_two() && self.loops.lanes >= 4
    }

    /// Packs the columns of a K-contiguous group by transposes of lanes × lanes tiles, from `k0`
    /// on; returns where it ends.
    fn transpose_right(
        &self,
        c: Code,
        (g, access): (&ColumnGroup, &Access),
        panel: Value,
        (k0, k1): Range,
    ) -> Result<Value> {
        let (scope, count) = (self.loops.scope, self.loops.lanes);
        let all = Lanes { count, mask: None };
        let mut fixed = g.fixed.clone();
        fixed[self.product.vector] = Some(g.start);
        let base = self.element_address(c, access, &fixed, None)?;
        let across = scope.poly(c, &access.at.coefficient(self.product.vector))?;
        let (memory, end) = (scope.buffer(access.buffer)?, whole_steps(c, k0, k1, count)?);
        let row = (g.count * count) as i64;
        c.for_loop(k0, end, count as i64, &[], &mut |c, k, _| {
            let to = c.mul(c.sub(k, k0)?, c.index(row)?)?;
            for n in 0..g.count {
                let lines = vectors_of_rows(c, count, &mut |c, i| {
                    let column = c.mul(c.index((n * count + i) as i64)?, across)?;
                    let at = LaneValue::Strided(c.add(c.add(base, column)?, k)?, 1);
                    loaded(c, all, memory, at)
                })?;
                store_rows(c, shuffled(c, lines)?, None, &mut |c, i| {
                    let at = c.add(to, c.index(i as i64 * row + (n * count) as i64)?)?;
                    Ok((panel, LaneValue::Strided(at, 1)))
                })?;
            }
            Ok(vec![])
        })?;
        Ok(end)
    }

    /// Packs columns of the right matrix as `[k][column]` of f32 or `[k / 2][column][2]` of bf16,
    /// zero-padded.
    pub fn copy_right(&self, c: Code, g: &ColumnGroup, (k0, k1): Range) -> Result<()> {
        let Some(panel) = self.right else { return Ok(()) };
        let (scope, access) = (self.loops.scope, self.input(self.product.right)?);
        let (memory, step) =
            (scope.buffer(access.buffer)?, scope.poly(c, &self.product.step(access))?);
        let (count, lanes) = (self.loops.lanes, Lanes { count: self.loops.lanes, mask: g.mask });
        let read = |c: Code, k: Value, n: usize| -> Result<Value> {
            let dims = self.loops.dims(c, &g.fixed, Some(self.loops.lane(c, g.start, n)?))?;
            let base = scope.address(c, &access.at, &dims, lanes)?;
            loaded(
                c,
                lanes,
                memory,
                lanes.add_or_sub(c, base, LaneValue::Uniform(c.mul(k, step)?), false)?,
            )
        };
        let row = c.index((g.count * count) as i64)?;
        if self.unit == Unit::Fma {
            let contiguous = access.at.coefficient(self.product.vector).known() == Some(1);
            let first = match constant_value(step) {
                Some(1) if !contiguous && g.mask.is_none() && self.transposes() => {
                    self.transpose_right(c, (g, access), panel, (k0, k1))?
                }
                _ => k0,
            };
            return c
                .for_loop(first, k1, 1, &[], &mut |c, k, _| {
                    let to = c.mul(c.sub(k, k0)?, row)?;
                    for n in 0..g.count {
                        let at = LaneValue::Strided(c.add(to, c.index((n * count) as i64)?)?, 1);
                        Lanes { count, mask: None }.store(
                            c,
                            panel,
                            at,
                            LaneValue::Vector(read(c, k, n)?),
                            false,
                        )?;
                    }
                    Ok(vec![])
                })
                .map(drop);
        }
        let element = panel.ty().element().ok_or("copies to what is no buffer")?;
        let zeros = |c: Code, n: usize| c.number(0.0, Type::vector(element, n));
        let pair =
            |c: Code, k: Value, made: &mut dyn FnMut(Code, usize) -> Result<Value>| -> Result<()> {
                let to = c.mul(c.sub(k, k0)?, row)?;
                for n in 0..g.count {
                    let at = LaneValue::Strided(c.add(to, c.index((2 * n * count) as i64)?)?, 1);
                    let v = made(c, n)?;
                    Lanes { count: 2 * count, mask: None }.store(
                        c,
                        panel,
                        at,
                        LaneValue::Vector(v),
                        false,
                    )?;
                }
                Ok(())
            };
        let woven = |c: Code, a: Value, b: Value| {
            vector::interleave(c, a, b, Type::vector(element, 2 * count))
        };
        let (two, one) = (c.index(2)?, c.index(1)?);
        let whole = c.add(k0, c.mul(c.div(c.sub(k1, k0)?, two)?, two)?)?;
        c.for_loop(k0, whole, 2, &[], &mut |c, k, _| {
            pair(c, k, &mut |c, n| woven(c, read(c, k, n)?, read(c, c.add(k, one)?, n)?))
                .map(|()| vec![])
        })?;
        // The last row of an odd K has no partner.
        c.for_loop(whole, k1, 2, &[], &mut |c, k, _| {
            pair(c, k, &mut |c, n| woven(c, read(c, k, n)?, zeros(c, count)?)).map(|()| vec![])
        })?;
        let depth = c.index(self.unit.k())?;
        let filled = c.add(k0, c.mul(c.ceil_div(c.sub(k1, k0)?, depth)?, depth)?)?;
        let done = c.add(k0, c.mul(c.ceil_div(c.sub(k1, k0)?, two)?, two)?)?;
        c.for_loop(done, filled, 2, &[], &mut |c, k, _| {
            pair(c, k, &mut |c, _| zeros(c, 2 * count)).map(|()| vec![])
        })
        .map(drop)
    }
}

/// Where whole steps of `count` from `lo` on end.
fn whole_steps(c: Code, lo: Value, hi: Value, count: usize) -> Result<Value> {
    let step = c.index(count as i64)?;
    c.add(lo, c.mul(c.div(c.sub(hi, lo)?, step)?, step)?)
}

/// A mask of the first `n` lanes.
fn mask(c: Code, n: Value, count: usize) -> Result<Value> {
    let i1 = Type::scalar(c.ctx(), kiln_dialects::value::DType::I1);
    vector::create_mask(c, &[n], Type::vector(i1, count))
}

/// A masked load, with zeros in inactive lanes.
fn loaded(c: Code, lanes: Lanes, memory: Value, at: LaneValue) -> Result<Value> {
    let v = lanes.load(c, memory, at).and_then(|v| lanes.vector(c, v))?;
    match lanes.mask {
        None => Ok(v),
        Some(m) => {
            let zeros = c.number(0.0, v.ty())?;
            arith::select(c, m, v, zeros)
        }
    }
}
