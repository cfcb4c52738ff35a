//! Tiled contraction on CUDA cores: a CTA's threads copy a tile of both operands to shared memory,
//! then each accumulates its register tile of the results.
use crate::{
    analysis::{Access, Nest, NestPlan, Output, Poly, Stage},
    emit::{
        body::{ForwardedElements, Scope},
        code::Code,
        lanes::{LaneValue, Lanes},
        loops::decode,
    },
    strategies::gpu::{
        common::{
            grid_stride,
            ptx::Ptx,
            roles::{Roles, contraction},
            shared, threads,
        },
        naive_contraction::Params,
    },
};
use kiln_dialects::ir::*;

/// Longest K loop that LLVM may unroll fully.
const NONE: usize = 16;
const ONE_LANE: Lanes = Lanes { count: 1, mask: None };

/// An operand's tile in shared memory, `depth` by `across`, padded so that neighbours in a column
/// are in different banks.
struct OperandTile<'a> {
    access: &'a Access,
    memory: Value,
    /// The dimensions along the tile's width (M or N).
    dims: &'a [usize],
    /// Extent of the tile's width.
    across: usize,
    /// Whether neighbouring threads copy neighbours along K.
    k_contiguous: bool,
}

/// What all parts of the emission share.
pub(crate) struct ContractionEmitter<'a> {
    pub scope: &'a Scope<'a>,
    pub nest: &'a Nest,
    pub roles: Roles,
    pub threads: usize,
    pub k_per_tile: usize,
}

/// A position along several dimensions: the predicate that it is in bounds, and its indices, those
/// of the first position if it is not.
pub(crate) struct Position {
    in_bounds: Value,
    dims: Vec<(usize, Value)>,
}

impl ContractionEmitter<'_> {
    pub fn sizes(&self, c: Code, dims: &[usize]) -> Result<Vec<Value>> {
        dims.iter().map(|d| self.scope.poly(c, &self.nest.extents[*d])).collect()
    }
    pub fn total(&self, c: Code, dims: &[usize]) -> Result<Value> {
        self.sizes(c, dims)?.into_iter().try_fold(c.index(1)?, |a, b| c.mul(a, b))
    }
    pub fn at(&self, c: Code, dims: &[usize], i: Value) -> Result<Position> {
        let there = c.less_than(i, self.total(c, dims)?)?;
        let i = c.select(there, i, c.index(0)?)?;
        let all = decode(c, i, &self.sizes(c, dims)?)?;
        Ok(Position { in_bounds: there, dims: dims.iter().copied().zip(all).collect() })
    }
    /// Loop dimensions as values; those that are not among `parts` are 0.
    fn dims(&self, c: Code, parts: &[&[(usize, Value)]]) -> Result<Vec<LaneValue>> {
        let zero = c.index(0)?;
        let of = |d: usize| {
            parts.iter().flat_map(|p| p.iter()).find(|(e, _)| *e == d).map_or(zero, |(_, v)| *v)
        };
        Ok((0..self.nest.extents.len()).map(|d| LaneValue::Uniform(of(d))).collect())
    }
    /// Copies an operand's tile at (`across`, `k_index`); elements out of bounds are 0.
    fn copy(
        &self,
        c: Code,
        side: &OperandTile<'_>,
        batch: &[(usize, Value)],
        across: Value,
        k_index: Value,
        thread: Value,
    ) -> Result<()> {
        let buffer = self.scope.buffer(side.access.buffer)?;
        let element = buffer.ty().element().ok_or("is no memref")?;
        let zero = c.number(0.0, element)?;
        let (wide, tall) = (c.index(side.across as i64)?, c.index(self.k_per_tile as i64)?);
        let count = side.across * self.k_per_tile;
        for n in 0..count.div_ceil(self.threads) {
            let i = c.add(thread, c.index((n * self.threads) as i64)?)?;
            let (x, k) = match side.k_contiguous {
                true => (c.div(i, tall)?, c.rem(i, tall)?),
                false => (c.rem(i, wide)?, c.div(i, wide)?),
            };
            let mut one = |c: Code| -> Result<()> {
                let a = self.at(c, side.dims, c.add(across, x)?)?;
                let d = self.at(c, &self.roles.k, c.add(k_index, k)?)?;
                let dims = self.dims(c, &[batch, &a.dims, &d.dims])?;
                let LaneValue::Uniform(v) =
                    self.scope.read(c, side.access, &dims, ONE_LANE, &ForwardedElements::new())?
                else {
                    return Err("reads a vector".into());
                };
                let there = c.all_of(&[a.in_bounds, d.in_bounds])?.ok_or("has no bounds")?;
                let v = c.select(there, v, zero)?;
                let place = c.add(c.mul(k, c.index(side.across as i64 + 1)?)?, x)?;
                memref::store(c, v, side.memory, &[place])
            };
            if (n + 1) * self.threads <= count {
                one(c)?;
            } else {
                c.if_else(c.less_than(i, c.index(count as i64)?)?, &mut one, None)?;
            }
        }
        Ok(())
    }
    /// Initial values of a thread's accumulators, row by row.
    pub fn initial_values(
        &self,
        c: Code,
        batch: &[(usize, Value)],
        out: &Output,
        rows: &[Position],
        columns: &[Position],
    ) -> Result<Vec<Value>> {
        let mut all = vec![];
        for r in rows {
            for o in columns {
                let dims = self.dims(c, &[batch, &r.dims, &o.dims])?;
                let Some(LaneValue::Uniform(v)) = self.scope.initial_value(
                    c,
                    &out.init,
                    &dims,
                    ONE_LANE,
                    &ForwardedElements::new(),
                )?
                else {
                    return Err("reduces into a tensor without contents".into());
                };
                all.push(v);
            }
        }
        Ok(all)
    }
    /// Accumulates the outer product of a thread's rows and columns.
    pub fn products(
        &self,
        c: Code,
        stage: &Stage,
        rows: &[LaneValue],
        columns: &[LaneValue],
        sums: &[Value],
    ) -> Result<Vec<Value>> {
        let mut next = vec![];
        for (i, x) in rows.iter().enumerate() {
            for (j, y) in columns.iter().enumerate() {
                let sum = Some(LaneValue::Uniform(sums[i * columns.len() + j]));
                match self
                    .scope
                    .stage(c, stage, vec![Some(*x), Some(*y), sum], &[], ONE_LANE)?
                    .as_slice()
                {
                    [LaneValue::Uniform(v)] => next.push(*v),
                    _ => return Err("has a sum that is no scalar".into()),
                }
            }
        }
        Ok(next)
    }
    /// Stores the accumulators that are in bounds, and runs the epilogue stages on them.
    pub fn finish(
        &self,
        c: Code,
        batch: &[(usize, Value)],
        out: &Output,
        (rows, columns): (&[Position], &[Position]),
        sums: &[Value],
    ) -> Result<()> {
        let scope = self.scope;
        for (i, r) in rows.iter().enumerate() {
            for (j, o) in columns.iter().enumerate() {
                let there = c.all_of(&[r.in_bounds, o.in_bounds])?.ok_or("has no bounds")?;
                let sum = LaneValue::Uniform(sums[i * columns.len() + j]);
                c.if_else(
                    there,
                    &mut |c| {
                        let dims = self.dims(c, &[batch, &r.dims, &o.dims])?;
                        if let Some(memory) = scope.memory.get(out.access.buffer).copied().flatten()
                        {
                            ONE_LANE.store(
                                c,
                                memory,
                                scope.address(c, &out.access.at, &dims, ONE_LANE)?,
                                sum,
                                false,
                            )?;
                        }
                        let mut passed = ForwardedElements::from([(out.access.clone(), sum)]);
                        scope.iteration(c, &self.nest.after, &dims, ONE_LANE, &mut [], &mut passed)
                    },
                    None,
                )?;
            }
        }
        Ok(())
    }
}

/// Emits the nest of a contraction, and what is written beside its result.
pub fn emit(
    c: Code,
    scope: &Scope<'_>,
    plan: &NestPlan,
    params: &Params,
    threads: usize,
) -> Result<()> {
    let roles = contraction(scope.kernel, plan).ok_or("is no contraction")?;
    let (nest, stage) = (&plan.nests[0], &scope.kernel.stages[roles.stage]);
    let [a, b] = stage.inputs.as_slice() else { return Err("is no product of two tensors".into()) };
    let out = stage.outputs.first().ok_or("has no result")?;
    let (m, n, m_each, n_each, depth) =
        (params.block_m, params.block_n, params.thread_m, params.thread_n, params.block_k);
    let me = ContractionEmitter { scope, nest, roles: roles.clone(), threads, k_per_tile: depth };
    let memory = |a: &Access, across: usize| -> Result<Value> {
        let element = scope.kernel.buffers.get(a.buffer).ok_or("has no such operand")?.element;
        shared(c, element, ((across + 1) * depth) as i64)
    };
    let inner = *roles.k.last().ok_or("has nothing to sum")?;
    let k_index = |a: &Access| a.at.coefficient(inner).known() == Some(1);
    let left = OperandTile {
        access: a,
        memory: memory(a, m)?,
        dims: &roles.rows,
        across: m,
        k_contiguous: k_index(a),
    };
    let right = OperandTile {
        access: b,
        memory: memory(b, n)?,
        dims: &roles.columns,
        across: n,
        k_contiguous: k_index(b),
    };

    let thread = threads::thread_id(c)?;
    let (down, over) = (m / m_each, n / n_each);
    let (ty, tx) = (c.div(thread, c.index(over as i64)?)?, c.rem(thread, c.index(over as i64)?)?);
    let (rows, columns) = (me.total(c, &roles.rows)?, me.total(c, &roles.columns)?);
    let mut tiles = me.sizes(c, &roles.batch)?;
    tiles.extend([c.ceil_div(rows, c.index(m as i64)?)?, c.ceil_div(columns, c.index(n as i64)?)?]);
    let total = tiles.iter().try_fold(c.index(1)?, |a, b| c.mul(a, *b))?;
    let mut depth_size = me.total(c, &roles.k)?;
    // LLVM would fully unroll a short K loop, and keep all of the shared-memory tile in registers
    // up to the epilogue.
    if Poly::product(roles.k.iter().map(|d| &nest.extents[*d]))
        .known()
        .is_some_and(|n| n > depth as i64 && n <= (NONE * depth) as i64)
    {
        let p = Ptx(c);
        depth_size = p.i32_to_index(p.opaque(p.index_to_i32(depth_size)?)?)?;
    }
    threads::for_each_tile(c, total, &[], &mut |c, tile, _| {
        let at = decode(c, tile, &tiles)?;
        let batch: Vec<(usize, Value)> =
            roles.batch.iter().copied().zip(at.iter().copied()).collect();
        let (row0, column0) = (
            c.mul(at[batch.len()], c.index(m as i64)?)?,
            c.mul(at[batch.len() + 1], c.index(n as i64)?)?,
        );
        let place = |c: Code, base: Value, t: Value, i: usize, step: usize| {
            c.add(c.add(base, t)?, c.index((i * step) as i64)?)
        };
        let rows: Vec<Position> = (0..m_each)
            .map(|i| me.at(c, &roles.rows, place(c, row0, ty, i, down)?))
            .collect::<Result<_>>()?;
        let columns: Vec<Position> = (0..n_each)
            .map(|j| me.at(c, &roles.columns, place(c, column0, tx, j, over)?))
            .collect::<Result<_>>()?;
        let running = me.initial_values(c, &batch, out, &rows, &columns)?;
        let step = c.index(depth as i64)?;
        let sums =
            c.for_dynamic_step(c.index(0)?, depth_size, step, &running, &mut |c, k0, running| {
                me.copy(c, &left, &batch, row0, k0, thread)?;
                me.copy(c, &right, &batch, column0, k0, thread)?;
                threads::barrier(c)?;
                let next = c.for_loop(c.index(0)?, step, 1, running, &mut |c, k, running| {
                    let load = |side: &OperandTile<'_>,
                                t: Value,
                                i: usize,
                                step: usize|
                     -> Result<LaneValue> {
                        let at = place(c, c.mul(k, c.index(side.across as i64 + 1)?)?, t, i, step)?;
                        ONE_LANE.load(c, side.memory, LaneValue::Uniform(at))
                    };
                    let xs: Vec<LaneValue> =
                        (0..m_each).map(|i| load(&left, ty, i, down)).collect::<Result<_>>()?;
                    let ys: Vec<LaneValue> =
                        (0..n_each).map(|j| load(&right, tx, j, over)).collect::<Result<_>>()?;
                    me.products(c, stage, &xs, &ys, running)
                })?;
                threads::barrier(c)?;
                Ok(next)
            })?;
        me.finish(c, &batch, out, (&rows, &columns), &sums)?;
        Ok(vec![])
    })?;
    grid_stride::other_nests(c, scope, plan, 1, threads)
}
