//! An f32 GEMM on FMA units: threads issue cp.async for both operands' tiles, some K steps in
//! advance, and each multiplies a register tile of 4 or 8 rows and columns. Shared memory is read
//! 16 bytes at a time: a warp's 4 by 8 threads read 4 distinct addresses of the left tile and 8
//! adjacent ones of the right tile, without bank conflicts.
use crate::{
    analysis::NestPlan,
    emit::{body::Scope, code::Code, lanes::LaneValue, loops::decode},
    strategies::gpu::{
        common::{grid_stride, ptx::Ptx, threads},
        naive_contraction::emit::{ContractionEmitter, Position},
        simt_gemm::{LANES, Params, SimtOperand, UNIT, pitch, product, stage_bytes},
    },
    target::launch::WARP,
};
use kiln_dialects::ir::*;

/// Bytes of an element.
const BYTES: usize = 4;
/// Elements of K that adjacent threads copy from a K-major operand: 32 bytes, one memory sector.
const K_PER_COPY: usize = 8;

/// What all parts of the emission share.
struct SimtTile<'a> {
    scope: &'a Scope<'a>,
    k_per_stage: usize,
    /// Threads of the CTA.
    threads: usize,
    /// Bytes of a pipeline stage.
    stage_bytes: usize,
    /// The base of the pipeline's stages in shared memory.
    pipeline: Value,
    thread: Value,
    /// The size of K.
    end: Value,
}

/// One cp.async of a thread, repeated in each K step.
struct AsyncCopy {
    /// The source address, in the first K step.
    source: Value,
    /// The destination offset in a stage.
    destination: Value,
    /// The position in K, in the first K step.
    k: Value,
    /// Bytes to copy, if the position in K is in bounds.
    bytes: Value,
}

impl SimtTile<'_> {
    /// This thread's copies in a K step of an operand's tile. `first`: the tile's first row (left)
    /// or column (right); `size`: how many the operand has; `across`: how many the tile has.
    fn copies(
        &self,
        p: Ptx,
        side: &SimtOperand,
        (first, size, across): (Value, Value, usize),
        begin: Value,
        offset: usize,
    ) -> Result<Vec<AsyncCopy>> {
        let (scope, zero) = (self.scope, p.number(0)?);
        let strides = [scope.poly(p.0, &side.mn_stride)?, scope.poly(p.0, &side.k_stride)?];
        let unit = if side.is_vectorised { UNIT } else { 1 };
        // The positions, in K and across, of a thread's copies.
        let places: Vec<(Value, Value)> = if side.is_k_major() {
            let (k, x) =
                (p.rem_const(self.thread, K_PER_COPY)?, p.div_const(self.thread, K_PER_COPY)?);
            let step = self.threads / K_PER_COPY;
            let all = (0..across / step).flat_map(|j| {
                (0..self.k_per_stage / K_PER_COPY).map(move |h| (h * K_PER_COPY, j * step))
            });
            all.map(|(h, j)| Ok((p.add_const(k, h)?, p.add_const(x, j)?))).collect::<Result<_>>()?
        } else {
            let wide = across / unit;
            let (x, k) = (
                p.mul_const(p.rem_const(self.thread, wide)?, unit)?,
                p.div_const(self.thread, wide)?,
            );
            let count = across * self.k_per_stage / unit / self.threads;
            match self.threads >= wide {
                true => (0..count)
                    .map(|j| Ok((p.add_const(k, j * self.threads / wide)?, x)))
                    .collect::<Result<_>>()?,
                // A K row of the tile takes several rounds of all threads.
                false => {
                    let x = p.mul_const(self.thread, unit)?;
                    let turns = wide / self.threads;
                    (0..count)
                        .map(|j| {
                            Ok((
                                p.number(j / turns)?,
                                p.add_const(x, j % turns * self.threads * unit)?,
                            ))
                        })
                        .collect::<Result<_>>()?
                }
            }
        };
        let piece = |(k_index, x): (Value, Value)| -> Result<AsyncCopy> {
            let at = p.add(first, x)?;
            let element = p.0.add(
                p.0.mul(p.i32_to_index(at)?, strides[0])?,
                p.0.mul(p.i32_to_index(k_index)?, strides[1])?,
            )?;
            let from = arith::addi(p, begin, p.size_in_bytes(element, BYTES)?)?;
            let to = p.add_const(
                p.add(p.mul_const(k_index, BYTES * pitch(across))?, p.mul_const(x, BYTES)?)?,
                offset,
            )?;
            let left = p.mul_const(p.sub(size, at)?, BYTES)?;
            Ok(AsyncCopy {
                source: from,
                destination: to,
                k: k_index,
                bytes: p.min(p.max(left, zero)?, p.number(BYTES * unit)?)?,
            })
        };
        places.into_iter().map(piece).collect()
    }
    /// Issues the cp.asyncs of a K step into a stage. `base`: the step's first position in K.
    fn copy_stage(
        &self,
        p: Ptx,
        sides: [(&SimtOperand, &[AsyncCopy]); 2],
        base: Value,
        stage_bytes: Value,
    ) -> Result<()> {
        let (c, zero) = (p.0, p.number(0)?);
        let to = p.add(self.pipeline, p.mul_const(stage_bytes, self.stage_bytes)?)?;
        for (side, copies) in sides {
            let further = p.size_in_bytes(
                c.mul(p.i32_to_index(base)?, self.scope.poly(c, &side.k_stride)?)?,
                BYTES,
            )?;
            for piece in copies {
                let there = c.compare(CmpIPredicate::Slt, p.add(base, piece.k)?, self.end)?;
                let bytes = c.select(there, piece.bytes, zero)?;
                // Out of bounds no byte is copied, since the address may be unmapped; cp.async
                // writes zeros.
                let from = arith::addi(p, piece.source, further)?;
                p.cp_async(
                    p.add(to, piece.destination)?,
                    from,
                    bytes,
                    if side.is_vectorised { UNIT * BYTES } else { BYTES },
                )?;
            }
        }
        Ok(())
    }
    /// Four adjacent elements, or two groups of four that are `apart`, of a tile in shared memory.
    fn fragment(&self, p: Ptx, at: Value, each: usize, apart: usize) -> Result<Vec<LaneValue>> {
        let quads = (0..each / UNIT)
            .map(|i| p.load_shared_vector(p.add_const(at, i * apart * BYTES)?, p.f32(), UNIT))
            .collect::<Result<Vec<_>>>()?;
        Ok(quads.concat().into_iter().map(LaneValue::Uniform).collect())
    }
}

/// Emits the nest of a product, and the plan's other nests.
pub fn emit(
    c: Code,
    scope: &Scope<'_>,
    plan: &NestPlan,
    params: &Params,
    threads: usize,
) -> Result<()> {
    let product =
        product(scope.kernel, plan).ok_or("is no product of f32 whose addresses are linear")?;
    let (nest, stage) = (&plan.nests[0], &scope.kernel.stages[product.roles.stage]);
    let out = stage.outputs.first().ok_or("has no result")?;
    let (m, n, m_each, n_each) = (params.block_m, params.block_n, params.thread_m, params.thread_n);
    let (depth, stages, unroll) = (params.block_k, params.stages, params.unroll);
    let me = ContractionEmitter {
        scope,
        nest,
        roles: product.roles.clone(),
        threads,
        k_per_tile: depth,
    };
    let p = Ptx(c);
    let thread = p.thread_id()?;
    let end = me.total(c, &product.roles.k)?;
    let steps = c.ceil_div(end, c.index(depth as i64)?)?;
    let t = SimtTile {
        scope,
        k_per_stage: depth,
        threads,
        stage_bytes: stage_bytes(params),
        pipeline: p.dynamic_shared(scope.kernel.func)?,
        thread,
        end: p.index_to_i32(end)?,
    };
    // The first row and column of a thread in a tile.
    let mine = |p: Ptx, thread: Value| -> Result<[Value; 2]> {
        let (warp, lane) = (p.div_const(thread, WARP)?, p.rem_const(thread, WARP)?);
        let over = n / n_each / LANES.1;
        let down =
            p.add(p.mul_const(p.div_const(warp, over)?, LANES.0)?, p.div_const(lane, LANES.1)?)?;
        let across =
            p.add(p.mul_const(p.rem_const(warp, over)?, LANES.1)?, p.rem_const(lane, LANES.1)?)?;
        Ok([p.mul_const(down, UNIT)?, p.mul_const(across, UNIT)?])
    };
    let [down, across] = mine(p, thread)?;
    let all = [me.total(c, &product.roles.rows)?, me.total(c, &product.roles.columns)?];
    let mut tiles = me.sizes(c, &product.roles.batch)?;
    tiles
        .extend([c.ceil_div(all[0], c.index(m as i64)?)?, c.ceil_div(all[1], c.index(n as i64)?)?]);
    let total = tiles.iter().try_fold(c.index(1)?, |a, b| c.mul(a, *b))?;
    threads::for_each_tile(c, total, &[], &mut |c, tile, _| {
        let p = Ptx(c);
        let at = decode(c, tile, &tiles)?;
        let batch: Vec<(usize, Value)> =
            product.roles.batch.iter().copied().zip(at.iter().copied()).collect();
        let first = [
            p.mul_const(p.index_to_i32(at[batch.len()])?, m)?,
            p.mul_const(p.index_to_i32(at[batch.len() + 1])?, n)?,
        ];
        let copies =
            |side: &SimtOperand, first: Value, size: Value, across: usize, offset: usize| {
                let mut begin = scope.poly(c, &side.access.at.constant)?;
                for (d, i) in &batch {
                    begin =
                        c.add(begin, c.mul(*i, scope.poly(c, &side.access.at.coefficient(*d))?)?)?;
                }
                let begin = arith::addi(
                    p,
                    p.base_address(scope.buffer(side.access.buffer)?)?,
                    p.size_in_bytes(begin, BYTES)?,
                )?;
                t.copies(p, side, (first, p.index_to_i32(size)?, across), begin, offset)
            };
        let left = copies(&product.left, first[0], all[0], m, 0)?;
        let right = copies(&product.right, first[1], all[1], n, BYTES * depth * pitch(m))?;
        let sides = [(&product.left, left.as_slice()), (&product.right, right.as_slice())];
        let ahead = stages - 1;
        for s in 0..ahead {
            // Beyond K nothing is read, and zeros are written.
            t.copy_stage(p, sides, p.number(s * depth)?, p.number(s)?)?;
            p.cp_async_commit_group()?;
        }
        let sizes = [(m, m_each), (n, n_each)];
        let (rows, columns) = positions(&me, c, first, [down, across], sizes)?;
        let begins = me.initial_values(c, &batch, out, &rows, &columns)?;
        let sums =
            c.for_dynamic_step(c.index(0)?, steps, c.index(1)?, &begins, &mut |c, step, sums| {
                let p = Ptx(c);
                let step = p.index_to_i32(step)?;
                // All threads' copies of the oldest stage are complete, and all threads have
                // read the stage that is filled next.
                p.cp_async_wait_group(ahead - 1)?;
                threads::barrier(c)?;
                let next = p.add_const(step, ahead)?;
                t.copy_stage(p, sides, p.mul_const(next, depth)?, p.rem_const(next, stages)?)?;
                p.cp_async_commit_group()?;
                let stage_bytes =
                    p.add(t.pipeline, p.mul_const(p.rem_const(step, stages)?, t.stage_bytes)?)?;
                let (left, right) = (
                    p.add(stage_bytes, p.mul_const(down, BYTES)?)?,
                    p.add(
                        stage_bytes,
                        p.add_const(p.mul_const(across, BYTES)?, BYTES * depth * pitch(m))?,
                    )?,
                );
                c.for_loop(
                    c.index(0)?,
                    c.index(depth as i64)?,
                    unroll as i64,
                    sums,
                    &mut |c, k, sums| {
                        let (p, mut sums) = (Ptx(c), sums.to_vec());
                        let k = p.index_to_i32(k)?;
                        let (left, right) = (
                            p.add(left, p.mul_const(k, BYTES * pitch(m))?)?,
                            p.add(right, p.mul_const(k, BYTES * pitch(n))?)?,
                        );
                        for i in 0..unroll {
                            let xs = t.fragment(
                                p,
                                p.add_const(left, i * BYTES * pitch(m))?,
                                m_each,
                                m / m_each * UNIT,
                            )?;
                            let ys = t.fragment(
                                p,
                                p.add_const(right, i * BYTES * pitch(n))?,
                                n_each,
                                n / n_each * UNIT,
                            )?;
                            sums = me.products(c, stage, &xs, &ys, &sums)?;
                        }
                        Ok(sums)
                    },
                )
            })?;
        // The next tile reuses the stages; copies beyond K may still be in flight.
        p.cp_async_wait_group(0)?;
        threads::barrier(c)?;
        // Rematerialised, so that no register holds it through the main loop.
        let again = mine(p, p.opaque(thread)?)?;
        let (rows, columns) = positions(&me, c, first, again, sizes)?;
        me.finish(c, &batch, out, (&rows, &columns), &sums)?;
        Ok(vec![])
    })?;
    grid_stride::other_nests(c, scope, plan, 1, threads)
}

/// A thread's rows and columns: groups of four, with a stride of all threads' groups.
fn positions(
    me: &ContractionEmitter<'_>,
    c: Code,
    first: [Value; 2],
    mine: [Value; 2],
    sizes: [(usize, usize); 2],
) -> Result<(Vec<Position>, Vec<Position>)> {
    let p = Ptx(c);
    let of = |i: usize, dims: &[usize]| -> Result<Vec<Position>> {
        let (wide, each) = sizes[i];
        let begin = p.add(first[i], mine[i])?;
        (0..each)
            .map(|j| {
                me.at(
                    c,
                    dims,
                    p.i32_to_index(
                        p.add_const(begin, j / UNIT * (wide / each * UNIT) + j % UNIT)?,
                    )?,
                )
            })
            .collect()
    };
    Ok((of(0, &me.roles.rows)?, of(1, &me.roles.columns)?))
}
