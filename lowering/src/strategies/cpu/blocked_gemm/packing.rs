//! Packing of the operands of a matrix product.
use crate::{
    analysis::Access,
    emit::{
        code::Code,
        lanes::{LaneValue, Lanes},
        loops::FixedDims,
    },
    strategies::cpu::blocked_gemm::{
        Unit,
        blocks::{Blocks, ColumnGroup, Range},
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
        c.for_loop(rows.0, rows.1, 1, &[], &mut |c, row, _| {
            let fixed = self.at_row(fixed, row);
            let one = Lanes { count: 1, mask: None };
            let base = scope.address(c, &access.at, &self.loops.dims(c, &fixed, None)?, one)?;
            let to = c.mul(c.sub(row, rows.0)?, c.index(self.left_stride)?)?;
            let copy = |c: Code, k: Value, mask: Option<Value>| -> Result<()> {
                let lanes = Lanes { count, mask };
                let at = lanes.add_or_sub(
                    c,
                    base,
                    lanes.scaled(c, LaneValue::Strided(k, 1), step)?,
                    false,
                )?;
                let v = loaded(c, lanes, memory, at)?;
                let to = LaneValue::Strided(c.add(to, c.sub(k, k0)?)?, 1);
                Lanes { count, mask: None }.store(c, self.left, to, LaneValue::Vector(v), false)
            };
            let length = c.sub(k1, k0)?;
            let whole =
                c.add(k0, c.mul(c.div(length, c.index(count as i64)?)?, c.index(count as i64)?)?)?;
            c.for_loop(k0, whole, count as i64, &[], &mut |c, k, _| {
                copy(c, k, None).map(|()| vec![])
            })?;
            c.for_loop(whole, k1, count as i64, &[], &mut |c, k, _| {
                let mask = mask(c, c.sub(k1, k)?, count)?;
                copy(c, k, Some(mask)).map(|()| vec![])
            })
        })
        .map(drop)
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
            return c
                .for_loop(k0, k1, 1, &[], &mut |c, k, _| {
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
