//! Cache-blocked matrix products. Rows of the left matrix are packed contiguously, columns of the
//! right one in the order in which the microkernel reads them. Accumulators are in scratch between
//! blocks of K.
//!
//! Why packing: rows whose stride is a large power of two map to a few cache sets and evict each
//! other. The scheme is Goto and van de Geijn's (Anatomy of High-Performance Matrix Multiplication,
//! 2008), with rows where they have panels of rows.
use crate::{
    analysis::{Nest, NestPlan, Poly},
    emit::{
        body::Scope,
        code::Code,
        lanes::{LaneValue, Lanes},
        loops::{FixedDims, Loops, decode},
    },
    strategies::cpu::{
        blocked_gemm::{
            MISMATCH, Params, Unit,
            blocks::{Blocks, ColumnGroup, Range},
            microkernel::RegisterTile,
            product,
        },
        common::tasks::{Threads, blocks},
    },
};
use kiln_dialects::{ir::*, sym::Dim};

fn local(c: Code, element: Type, count: i64) -> Result<Value> {
    let ty = Type::memref(element, &[Dim::Known(count)]);
    memref::Alloca::new(c, &[], &[], ty).alignment(64).result()
}

/// Emits the nest of a product.
pub fn emit(
    c: Code,
    scope: &Scope<'_>,
    plan: &NestPlan,
    nest: &Nest,
    (unit, params): (Unit, &Params),
    threads: Threads,
) -> Result<()> {
    let p = product(scope.kernel, plan).ok_or(MISMATCH)?;
    if p.bf16 != (unit != Unit::Fma) {
        return Err(MISMATCH.into());
    }
    if unit == Unit::Amx && params.bits != 512 {
        return Err("has AMX tiles with vectors that are not 512 bits wide".into());
    }
    let size = |d: usize| scope.poly(c, &nest.extents[d]);
    let up = |n: usize, to: usize| n.max(1).div_ceil(to) * to;
    let (lanes, m) = (params.bits / 32, params.m);
    if unit == Unit::Amx && m > 16 && m != 32 {
        return Err(format!(
            "has a schedule with m = {m}, but AMX multiplies up to 16 rows, or 32"
        )
        .into());
    }
    let width = nest.extents[p.vector].known().unwrap_or(0) as usize;
    let step = if p.panels.is_some() { width } else { lanes };
    let Params { k_block, m_block, n_block, .. } = *params;
    for (name, n, unit) in [("m_block", m_block, m), ("n_block", n_block, step)] {
        if n % unit != 0 {
            return Err(format!("has {name} = {n}, which is no multiple of {unit}").into());
        }
    }
    let loops = Loops { scope, nest, vector: Some(p.vector), lanes, unroll: params.n };
    let depth = nest.extents[p.k].times(&Poly::number(if p.k_pair.is_some() { 2 } else { 1 }));
    let single = depth.known().is_some_and(|k| k <= k_block as i64);
    let stage =
        nest.stages.first().and_then(|s| scope.kernel.stages.get(*s)).ok_or("has no stage")?;
    let element = |input: usize| -> Result<Type> {
        Ok(scope.kernel.buffers[stage.inputs[input].buffer].element)
    };
    // One cache line of padding, so that rows do not share cache sets.
    let (left_row, sums_row) = (k_block as i64 + 64 / unit.size(), up(n_block, lanes) as i64);
    let left = local(c, element(p.left)?, m_block as i64 * left_row)?;
    let pack = params.pack || (unit != Unit::Fma && !p.is_packed);
    if !pack && !p.is_packed && stage.inputs[p.right].at.coefficient(p.vector).known() != Some(1) {
        return Err("has a schedule that does not pack, but columns that are not contiguous".into());
    }
    let right = if pack {
        Some(local(c, element(p.right)?, (k_block * loops.unroll * lanes) as i64)?)
    } else {
        None
    };
    let f32 = Type::scalar(c.ctx(), kiln_dialects::value::DType::F32);
    let sums = if single && unit != Unit::Amx {
        None
    } else {
        Some(local(c, f32, m_block as i64 * sums_row)?)
    };
    let columns = match (&p.panels, &nest.split) {
        (Some(_), Some((_, _, both))) => scope.poly(c, both)?,
        (Some(d), None) => c.mul(size(*d)?, c.index(width as i64)?)?,
        (None, _) => size(p.vector)?,
    };
    let rows = p.rows.map_or_else(|| c.index(1), size)?;
    let (m_size, n_size) = (c.index(m_block as i64)?, c.index(n_block as i64)?);
    let mut sizes: Vec<Value> = p.outer.iter().map(|d| size(*d)).collect::<Result<_>>()?;
    sizes.extend([c.ceil_div(columns, n_size)?, c.ceil_div(rows, m_size)?]);
    let total = sizes.iter().try_fold(c.index(1)?, |a, b| c.mul(a, *b))?;
    let (depth, outer) = (scope.poly(c, &depth)?, p.outer.clone());
    let all = Blocks {
        loops,
        product: p,
        unit,
        m,
        left_stride: left_row,
        accumulator_stride: sums_row,
        left,
        right,
        accumulators: sums,
        single,
    };
    blocks(c, total, 1, threads, &mut |c, i| {
        let at = decode(c, i, &sizes)?;
        let mut fixed: FixedDims = vec![None; nest.extents.len()];
        outer.iter().zip(&at).for_each(|(d, i)| fixed[*d] = Some(*i));
        let part = |i: Value, block: Value, size: Value| -> Result<Range> {
            let lo = c.mul(i, block)?;
            Ok((lo, c.block_end(lo, block, size)?))
        };
        let columns = part(at[outer.len()], n_size, columns)?;
        let rows = part(at[outer.len() + 1], m_size, rows)?;
        all.task(c, &fixed, rows, columns, (depth, k_block as i64))
    })
}

impl Blocks<'_> {
    /// Emits one block of the result.
    fn task(
        &self,
        c: Code,
        fixed: &FixedDims,
        rows: Range,
        columns: Range,
        (depth, k_block): (Value, i64),
    ) -> Result<()> {
        if !self.single {
            self.clear(c, rows, columns)?;
        }
        let zero = c.index(0)?;
        c.for_loop(zero, depth, k_block, &[], &mut |c, k, _| {
            let ks = (k, c.block_end(k, c.index(k_block)?, depth)?);
            self.copy_left(c, fixed, rows, ks)?;
            self.groups(c, fixed, columns, &mut |c, g| {
                self.copy_right(c, g, ks)?;
                self.tiles(c, rows, &mut |c, first, count| {
                    let tile = RegisterTile { blocks: self, group: g, rows, first, count, ks };
                    let sums = tile.multiply(c)?;
                    match (self.single, sums) {
                        (true, Some(sums)) => {
                            sums.chunks(g.count).enumerate().try_for_each(|(r, sums)| {
                                let row = c.add(first, c.index(r as i64)?)?;
                                self.finish(c, g, row, sums)
                            })
                        }
                        (true, None) => self.finish_rows(
                            c,
                            g,
                            rows,
                            (first, c.block_end(first, c.index(self.m as i64)?, rows.1)?),
                        ),
                        (false, _) => Ok(()),
                    }
                })
            })?;
            Ok(vec![])
        })?;
        if self.single {
            return Ok(());
        }
        self.groups(c, fixed, columns, &mut |c, g| self.finish_rows(c, g, rows, rows))
    }

    /// Register tiles of rows. Remaining rows take smaller tiles, unless the unit's tiles have a
    /// fixed size.
    fn tiles(
        &self,
        c: Code,
        (lo, hi): Range,
        f: &mut dyn FnMut(Code, Value, usize) -> Result<()>,
    ) -> Result<()> {
        if self.unit == Unit::Amx {
            return c
                .for_loop(lo, hi, self.m as i64, &[], &mut |c, i, _| {
                    f(c, i, self.m).map(|()| vec![])
                })
                .map(drop);
        }
        let (mut at, mut counts) = (lo, vec![self.m]);
        counts.extend([4, 1].into_iter().filter(|n| *n < self.m));
        for count in counts {
            let step = c.index(count as i64)?;
            let whole = c.div(c.sub(hi, at)?, step)?;
            let end = c.add(at, c.mul(whole, step)?)?;
            c.for_loop(at, end, count as i64, &[], &mut |c, i, _| f(c, i, count).map(|()| vec![]))?;
            at = end;
        }
        Ok(())
    }

    /// Groups of columns.
    fn groups(
        &self,
        c: Code,
        fixed: &FixedDims,
        (lo, hi): Range,
        f: &mut dyn FnMut(Code, &ColumnGroup) -> Result<()>,
    ) -> Result<()> {
        let Some(d) = self.product.panels else {
            let mut one =
                |c: Code, start: Value, count: usize, mask: Option<Value>, _: &[Value]| {
                    f(
                        c,
                        &ColumnGroup {
                            fixed: fixed.clone(),
                            start,
                            count,
                            mask,
                            column: c.sub(start, lo)?,
                        },
                    )
                    .map(|()| vec![])
                };
            return self.loops.chunks(c, lo, hi, &[], &mut one).map(drop);
        };
        let width = self.loops.scope.poly(c, &self.loops.nest.extents[self.product.vector])?;
        c.for_loop(c.div(lo, width)?, c.ceil_div(hi, width)?, 1, &[], &mut |c, i, _| {
            let mut fixed = fixed.clone();
            fixed[d] = Some(i);
            let base = c.sub(c.mul(i, width)?, lo)?;
            let size = self.loops.size(c, self.product.vector, &fixed)?;
            self.loops.chunks(c, c.index(0)?, size, &[], &mut |c, start, count, mask, _| {
                f(
                    c,
                    &ColumnGroup {
                        fixed: fixed.clone(),
                        start,
                        count,
                        mask,
                        column: c.add(base, start)?,
                    },
                )
                .map(|()| vec![])
            })
        })
        .map(drop)
    }

    /// Initialises the accumulators with the stage's scalar.
    fn clear(&self, c: Code, rows: Range, columns: Range) -> Result<()> {
        let (Some(sums), all) = (self.accumulators, Lanes { count: self.loops.lanes, mask: None })
        else {
            return Ok(());
        };
        let start = LaneValue::Vector(
            all.vector(c, LaneValue::Uniform(self.loops.scope.scalar(self.product.start)?))?,
        );
        let m = c.index(self.m as i64)?;
        // The last tile of a unit may extend past the last row.
        let count = c.mul(c.ceil_div(c.sub(rows.1, rows.0)?, m)?, m)?;
        c.for_loop(c.index(0)?, count, 1, &[], &mut |c, row, _| {
            let row = c.mul(row, c.index(self.accumulator_stride)?)?;
            let end = c.sub(columns.1, columns.0)?;
            c.for_loop(c.index(0)?, end, self.loops.lanes as i64, &[], &mut |c, i, _| {
                all.store(c, sums, LaneValue::Strided(c.add(row, i)?, 1), start, false)
                    .map(|()| vec![])
            })
        })
        .map(drop)
    }

    /// Epilogue: runs the stages that follow on rows of accumulators in scratch.
    fn finish_rows(&self, c: Code, g: &ColumnGroup, rows: Range, (lo, hi): Range) -> Result<()> {
        let Some(sums) = self.accumulators else { return Err("has no sums".into()) };
        let all = Lanes { count: self.loops.lanes, mask: None };
        c.for_loop(lo, hi, 1, &[], &mut |c, row, _| {
            let at = self.accumulator_address(c, g, row, rows)?;
            let load = |n: usize| -> Result<Value> {
                let i = c.add(at, c.index((n * self.loops.lanes) as i64)?)?;
                all.load(c, sums, LaneValue::Strided(i, 1)).and_then(|v| all.vector(c, v))
            };
            let values: Vec<Value> = (0..g.count).map(load).collect::<Result<_>>()?;
            self.finish(c, g, row, &values).map(|()| vec![])
        })
        .map(drop)
    }

    fn finish(&self, c: Code, g: &ColumnGroup, row: Value, sums: &[Value]) -> Result<()> {
        let fixed = self.at_row(&g.fixed, row);
        let lanes = Lanes { count: self.loops.lanes, mask: g.mask };
        sums.iter().enumerate().try_for_each(|(n, v)| {
            let dims = self.loops.dims(c, &fixed, Some(self.loops.lane(c, g.start, n)?))?;
            self.loops.finish(c, &dims, lanes, &[*v])
        })
    }
}
