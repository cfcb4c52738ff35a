//! A warp-specialised GEMM on Hopper's tensor cores: an elected lane issues TMA loads into a
//! multi-stage shared-memory pipeline, one or two consumer warpgroups issue wgmma, and the epilogue
//! runs the kernel's later stages on the accumulators. A persistent CTA takes further tiles: their
//! loads overlap the epilogue.
//!
//! A stage has two mbarriers. TMA's transaction bytes complete `full`. A consumer warpgroup arrives
//! at `empty` when it has read the stage; if consumers read the left operand themselves, each of
//! their warps arrives.

use crate::{
    analysis::NestPlan,
    emit::{
        body::Scope,
        code::{BranchBody, Code, constant_value, rolled},
        loops::decode,
    },
    strategies::gpu::{
        common::{
            fragments::{ProductResults, WarpFragment},
            grid_stride,
            ptx::{Mma, Ptx, wgmma_type},
            threads, warp_specialisation,
        },
        wgmma_gemm::{
            DEPTH, MatrixOperand, Params, ROW, TensorCoreProduct,
            cluster_reduce::KSplit,
            groups,
            staged_results::{StagedResult, staged_results},
            staging,
            store::without_stores,
        },
    },
    target::launch::TENSOR_MAPS,
};
use kiln_dialects::ir::*;

/// Rasterisation: rows of tiles that consecutive CTAs sweep before the next columns, so that both
/// operands stay in the L2 cache.
const BAND: usize = 8;
/// wgmma instructions of a tile up to which LLVM may unroll the K loop: with 32 of them and 128
/// accumulators per thread, addresses spill.
const WRITTEN_OUT: usize = 24;
/// Trip count up to which LLVM unrolls a loop completely.
const SHORT: usize = 6;
/// Registers of a producer and of a consumer thread (setmaxnreg) with two consumer warpgroups: with
/// one CTA per SM, and with two.
const REGISTERS: [(usize, usize); 2] = [(40, 232), (24, 104)];

/// Types of the tensor map parameters, which follow the kernel's other parameters.
pub fn parameters(func: Op) -> Result<Vec<Type>> {
    let count = func
        .attr(TENSOR_MAPS)
        .and_then(Attr::as_array)
        .ok_or("has no kiln.tensor_maps, which kiln-gpu-schedule makes")?
        .len();
    let pointer = Type::llvm_ptr(func.ctx(), 0);
    Ok(vec![pointer; count])
}

/// What all parts of the emission share.
pub(crate) struct WgmmaTile<'a> {
    pub(crate) results: ProductResults<'a>,
    /// The tensor maps of the operands.
    pub(crate) left_map: Value,
    pub(crate) right_maps: Vec<Value>,
    /// Results that the epilogue stages in shared memory, with the tensor maps of those that TMA
    /// stores.
    pub(crate) staged_results: Vec<(StagedResult, Option<Value>)>,
    pub(crate) m: usize,
    /// Columns of the tile, all right operands together.
    pub(crate) n: usize,
    pub(crate) stages: usize,
    warpgroups: usize,
    /// The base of the pipeline's stages in shared memory.
    pub(crate) pipeline: Value,
    /// Sizes of the batch dimensions, and tiles of a matrix: along M, along N.
    batch: Vec<Value>,
    tiles: [Value; 2],
    total: Value,
    /// The K steps of this CTA, at least one.
    pub(crate) k_split: KSplit,
}

/// The tile's first row and column as 32-bit integers, and its batch position as indices.
pub(crate) struct TileCoord {
    pub(crate) row: Value,
    pub(crate) column: Value,
    pub(crate) batch: Vec<Value>,
}

/// A consumer warpgroup's accumulators of a tile.
pub(crate) struct Fragments<'a> {
    pub(crate) coord: &'a TileCoord,
    pub(crate) warpgroup: Value,
    /// The thread in the warpgroup, 0 to 127.
    pub(crate) thread: Value,
    /// The warp in the CTA.
    pub(crate) warp: Value,
    /// Accumulators by 64 rows, by right operand.
    pub(crate) values: Vec<Vec<&'a [Value]>>,
}

/// Emits the body of a tile, given stage and parity; returns the next ones.
type TileBody<'a> = dyn FnMut(Code, &TileCoord, &[Value]) -> Result<Vec<Value>> + 'a;

impl WgmmaTile<'_> {
    pub(crate) fn product(&self) -> &TensorCoreProduct {
        self.results.product
    }
    /// Columns of one right operand's tile.
    pub(crate) fn operand_columns(&self) -> usize {
        self.results.tile[1]
    }
    pub(crate) fn stage_bytes(&self) -> usize {
        self.left_bytes() + self.n * ROW
    }
    /// The base of the epilogue's staging buffers.
    pub(crate) fn staging(&self, p: Ptx) -> Result<Value> {
        p.add_const(self.pipeline, self.stages * self.stage_bytes())
    }
    pub(crate) fn full_barrier(&self, p: Ptx, stage: Value) -> Result<Value> {
        p.add(p.add_const(self.staging(p)?, staging(self.warpgroups))?, p.mul_const(stage, 8)?)
    }
    pub(crate) fn empty_barrier(&self, p: Ptx, stage: Value) -> Result<Value> {
        p.add_const(self.full_barrier(p, stage)?, 8 * self.stages)
    }
    /// The next stage, and its phase parity.
    pub(crate) fn next_stage(&self, p: Ptx, stage: Value, parity: Value) -> Result<[Value; 2]> {
        p.next_stage(stage, parity, self.stages)
    }
    /// The position of a tile, given its linear number.
    fn tile_coord(&self, c: Code, tile: Value) -> Result<TileCoord> {
        let (p, [down, over]) = (Ptx(c), self.tiles);
        let (mut tile, mut batch) = (tile, vec![]);
        if !self.batch.is_empty() {
            let matrix = c.mul(down, over)?;
            batch = decode(c, c.div(tile, matrix)?, &self.batch)?;
            tile = c.rem(tile, matrix)?;
        }
        // 32-bit division is cheaper.
        let (tile, down, over) =
            (p.index_to_i32(tile)?, p.index_to_i32(down)?, p.index_to_i32(over)?);
        let wide = p.mul_const(over, BAND)?;
        let (band, rest) = (arith::divui(p, tile, wide)?, arith::remui(p, tile, wide)?);
        let first = p.mul_const(band, BAND)?;
        let parts = |height: Value| -> Result<[Value; 2]> {
            Ok([arith::divui(p, rest, height)?, arith::remui(p, rest, height)?])
        };
        let [column, row] =
            match constant_value(self.tiles[0]).map(|n| (n as usize / BAND, n as usize % BAND)) {
                Some((_, 0)) => parts(p.number(BAND)?)?,
                Some((0, last)) => parts(p.number(last)?)?,
                // Branch so that the divisor is a constant: with `minui`, LLVM emits a 16-bit division,
                // a call that `cuLink` resolves, and calls serialise wgmma.
                Some((bands, last)) => {
                    let whole = c.less_than(band, p.number(bands)?)?;
                    let (full, part) = (parts(p.number(BAND)?)?, parts(p.number(last)?)?);
                    [c.select(whole, full[0], part[0])?, c.select(whole, full[1], part[1])?]
                }
                None => parts(arith::minui(p, arith::subi(p, down, first)?, p.number(BAND)?)?)?,
            };
        Ok(TileCoord {
            row: p.mul_const(p.add(first, row)?, self.m)?,
            column: p.mul_const(column, self.operand_columns())?,
            batch,
        })
    }
    /// Loops over the tiles of this CTA; stage and parity are loop-carried.
    pub(crate) fn for_each_tile(
        &self,
        c: Code,
        carried: &[Value; 2],
        body: &mut TileBody<'_>,
    ) -> Result<()> {
        let parts = c.index(self.k_split.splits as i64)?;
        let (first, step) =
            (c.div(threads::block_id(c)?, parts)?, c.div(threads::grid_dim(c)?, parts)?);
        c.for_dynamic_step(first, self.total, step, carried, &mut |c, tile, carried| {
            body(c, &self.tile_coord(c, tile)?, carried)
        })?;
        Ok(())
    }
    /// The first row of a warpgroup in a tile.
    pub(crate) fn warpgroup_row(&self, p: Ptx, group: Value) -> Result<Value> {
        p.mul_const(group, self.m / self.warpgroups)
    }

    /// Issues the TMA loads of an operand's tile.
    fn load_operand(
        &self,
        p: Ptx,
        o: &MatrixOperand,
        map: Value,
        (to, across): (Value, usize),
        at: (Value, Value, &[Value]),
        barrier: Value,
    ) -> Result<()> {
        let (x, depth, batch) = at;
        if o.is_single_load(across) {
            return p.tma_load(
                to,
                map,
                &[&[p.number(0)?, depth, p.div_const(x, DEPTH)?], batch].concat(),
                barrier,
            );
        }
        let boxes = if o.k_major { 1 } else { across / DEPTH };
        for i in 0..boxes {
            let x = p.add_const(x, i * DEPTH)?;
            let (near, far) = if o.k_major { (depth, x) } else { (x, depth) };
            p.tma_load(
                p.add_const(to, i * DEPTH * ROW)?,
                map,
                &[&[near, far], batch].concat(),
                barrier,
            )?;
        }
        Ok(())
    }
    /// The producer.
    fn produce(&self, c: Code) -> Result<()> {
        // All stages are empty at first.
        self.for_each_tile(
            c,
            &[Ptx(c).number(0)?, Ptx(c).number(1)?],
            &mut |c, tile_coord, carried| {
                let p = Ptx(c);
                let batch: Vec<Value> =
                    tile_coord.batch.iter().map(|b| p.index_to_i32(*b)).collect::<Result<_>>()?;
                let pixel = self
                    .product()
                    .window
                    .as_ref()
                    .map(|w| self.pixel(p, w, tile_coord.row))
                    .transpose()?;
                c.for_dynamic_step(
                    self.k_split.first,
                    self.k_split.end,
                    c.index(1)?,
                    carried,
                    &mut |c, step, carried| {
                        let (p, [stage, parity]) = (Ptx(c), [carried[0], carried[1]]);
                        p.mbarrier_wait(self.empty_barrier(p, stage)?, parity)?;
                        let full = self.full_barrier(p, stage)?;
                        p.mbarrier_arrive_expect_tx(full, self.stage_bytes())?;
                        let left = p.add(self.pipeline, p.mul_const(stage, self.stage_bytes())?)?;
                        let right = p.add_const(left, self.left_bytes())?;
                        if let (Some(w), Some(pixel)) = (&self.product().window, &pixel) {
                            self.copy_window(
                                p,
                                w,
                                pixel,
                                p.index_to_i32(step)?,
                                tile_coord.column,
                                (left, right),
                                full,
                            )?;
                        } else {
                            let depth =
                                p.mul_const(p.index_to_i32(step)?, self.product().k_per_stage())?;
                            let slices = self.product().slices();
                            for slice in 0..slices {
                                let (to, depth) = (
                                    p.add_const(left, slice * self.m * ROW)?,
                                    p.add_const(
                                        depth,
                                        slice * self.product().k_per_stage() / slices,
                                    )?,
                                );
                                self.load_operand(
                                    p,
                                    &self.product().left,
                                    self.left_map,
                                    (to, self.m),
                                    (tile_coord.row, depth, &batch),
                                    full,
                                )?;
                            }
                            for (i, (o, map)) in
                                self.product().rights.iter().zip(&self.right_maps).enumerate()
                            {
                                let right = p.add_const(right, i * self.operand_columns() * ROW)?;
                                self.load_operand(
                                    p,
                                    o,
                                    *map,
                                    (right, self.operand_columns()),
                                    (tile_coord.column, depth, &batch),
                                    full,
                                )?;
                            }
                        }
                        Ok(self.next_stage(p, stage, parity)?.to_vec())
                    },
                )
            },
        )
    }

    /// Issues the wgmmas of a stage.
    fn multiply(
        &self,
        p: Ptx,
        stage: Value,
        group: Value,
        sums: &[Value],
        first: bool,
    ) -> Result<Vec<Value>> {
        let product = self.product();
        let (left_deep, right_deep) = (product.left.k_major, product.rights[0].k_major);
        let element = wgmma_type(product.element);
        let mma = Mma { columns: self.n, element, a_k_major: left_deep, b_k_major: right_deep };
        let left = p.add(self.pipeline, p.mul_const(stage, self.stage_bytes())?)?;
        let right = p.wgmma_descriptor(p.add_const(left, self.m * ROW)?, right_deep)?;
        // 64 rows take 8 KiB, K-major or MN-major.
        let mine = p.mul_const(self.warpgroup_row(p, group)?, ROW)?;
        let left = p.wgmma_descriptor(p.add(left, mine)?, left_deep)?;
        let step = |k_major: bool| if k_major { 32 } else { 16 * ROW };
        p.wgmma_fence()?;
        let mut sums = sums.to_vec();
        // A wgmma takes 32 bytes of K, for any element type.
        for k in 0..ROW / 32 {
            let right = p.advance_descriptor(right, k * step(right_deep))?;
            for (b, sum) in sums.iter_mut().enumerate() {
                let left = p.advance_descriptor(left, k * step(left_deep) + b * 64 * ROW)?;
                *sum = p.wgmma(&mma, left, right, *sum, first && k == 0)?;
            }
        }
        p.wgmma_commit_and_wait()?;
        Ok(sums)
    }
    /// A consumer warpgroup. `thread`: its thread, 0 to 127.
    fn consume(&self, c: Code, group: Value, thread: Value, warp: Value) -> Result<()> {
        if self.product().prologue.is_some() {
            return self.consume_computed(c, group, thread, warp);
        }
        let blocks = self.m / 64 / self.warpgroups;
        self.for_each_tile(
            c,
            &[Ptx(c).number(0)?, Ptx(c).number(0)?],
            &mut |c, tile_coord, carried| {
                let p = Ptx(c);
                let elected = p.eq_const(thread, 0)?;
                let release = |c: Code, stage: Value| {
                    c.if_else(
                        elected,
                        &mut |c| Ptx(c).mbarrier_arrive(self.empty_barrier(Ptx(c), stage)?),
                        None,
                    )
                };
                let nothing: Vec<Value> =
                    (0..blocks).map(|_| p.undef_accumulators(self.n)).collect::<Result<_>>()?;
                // The first K step ignores the accumulators: zeroing them needs a wgmma fence, and
                // LLVM moves register writes across it.
                p.mbarrier_wait(self.full_barrier(p, carried[0])?, carried[1])?;
                let mut state = self.multiply(p, carried[0], group, &nothing, true)?;
                // Loop-carried after the accumulators: stage, parity, previous stage.
                state.extend(self.next_stage(p, carried[0], carried[1])?);
                state.push(carried[0]);
                let (one, steps) = (c.index(1)?, self.k_split.count);
                let done = c.for_dynamic_step(one, steps, one, &state, &mut |c, _, state| {
                    let p = Ptx(c);
                    let (sums, rest) = state.split_at(blocks);
                    let [stage, parity, before] = [rest[0], rest[1], rest[2]];
                    p.mbarrier_wait(self.full_barrier(p, stage)?, parity)?;
                    let mut next = self.multiply(p, stage, group, sums, false)?;
                    release(c, before)?;
                    next.extend(self.next_stage(p, stage, parity)?);
                    next.push(stage);
                    Ok(next)
                })?;
                // LLVM would unroll the loop and keep the addresses of all K steps live beside the
                // accumulators. LLVM and ptxas leave longer loops rolled.
                if constant_value(steps).is_some_and(|n| {
                    n as usize <= SHORT && n as usize * blocks * (ROW / 32) > WRITTEN_OUT
                }) {
                    rolled(&done)?;
                }
                let (sums, rest) = done.split_at(blocks);
                let values = p.wgmma_wait_all(sums, self.n)?;
                release(c, rest[2])?;
                let finish = |c: Code, values: &[Vec<Value>]| {
                    let values = values
                        .iter()
                        .map(|v| v.chunks(self.operand_columns() / 2).collect())
                        .collect();
                    self.finish(
                        c,
                        &Fragments { coord: tile_coord, warpgroup: group, thread, warp, values },
                    )
                };
                if self.k_split.splits > 1 {
                    self.reduce_and_finish(c, [group, thread, warp], &values, &finish)
                } else {
                    finish(c, &values)
                }?;
                Ok(vec![rest[0], rest[1]])
            },
        )
    }

    /// The epilogue: later stages on the accumulators, and the stores.
    pub(crate) fn finish(&self, c: Code, f: &Fragments<'_>) -> Result<()> {
        let results: Vec<StagedResult> =
            self.staged_results.iter().map(|(s, _)| s.clone()).collect();
        let ProductResults { scope, nest, .. } = self.results;
        let direct = without_stores(scope, &results);
        let stages = || nest.all().filter_map(|s| scope.kernel.stages.get(s));
        let left = stages()
            .flat_map(|s| &s.outputs)
            .any(|o| direct.memory.get(o.access.buffer).copied().flatten().is_some());
        if !results.is_empty() {
            let outputs: Vec<usize> =
                stages().flat_map(|s| &s.outputs).map(|o| o.access.buffer).collect();
            let mut none = without_stores(scope, &results);
            outputs.into_iter().for_each(|b| none.memory[b] = None);
            self.store(c, &none, f)?;
        }
        if left { self.store_fragments(c, &direct, f) } else { Ok(()) }
    }
    /// The epilogue without shared memory: each thread stores its fragments.
    fn store_fragments(&self, c: Code, scope: &Scope<'_>, f: &Fragments<'_>) -> Result<()> {
        let p = Ptx(c);
        let lane = p.rem_const(f.thread, 32)?;
        let mine = p.add(
            self.warpgroup_row(p, f.warpgroup)?,
            p.add(p.mul_const(p.rem_const(f.warp, 4)?, 16)?, p.div_const(lane, 4)?)?,
        )?;
        let at = [
            p.i32_to_index(p.add(f.coord.row, mine)?)?,
            p.i32_to_index(p.add(f.coord.column, p.mul_const(p.rem_const(lane, 4)?, 2)?)?)?,
        ];
        self.results.store(
            c,
            scope,
            &WarpFragment { batch: &f.coord.batch, at, row_stride: 64, values: &f.values },
        )
    }
}

/// Emits the nest of a product. `maps`: the tensor map parameters.
pub fn emit(
    c: Code,
    scope: &Scope<'_>,
    plan: &NestPlan,
    params: &Params,
    maps: &[Value],
) -> Result<()> {
    let missing = "is no product that wgmma and TMA take";
    let product = super::product(scope.kernel, plan).ok_or(missing)?;
    let nest = &plan.nests[0];
    let outs = product
        .stages
        .iter()
        .filter_map(|s| scope.kernel.stages.get(*s)?.outputs.first())
        .collect();
    let results = staged_results(scope.kernel, nest, &product);
    let count = product.rights.len();
    let [left, others @ ..] = maps else { return Err("has no parameters for tensor maps".into()) };
    let written = results.iter().filter(|r| r.tensor.is_some()).count();
    if others.len() != count + written || !params.block_n.is_multiple_of(DEPTH * count) {
        return Err("has as many tensor maps, or columns, as another schedule wants".into());
    }
    let (rights, outputs) = others.split_at(count);
    let mut outputs = outputs.iter().copied();
    let staged_results = results
        .into_iter()
        .map(|r| (r.tensor.is_some().then(|| outputs.next()).flatten(), r))
        .map(|(map, r)| (r, map))
        .collect();
    if params.block_k != product.k_per_stage() {
        return Err(format!(
            "has block_k = {}, but 128 bytes of its operands are {} elements",
            params.block_k,
            product.k_per_stage()
        )
        .into());
    }
    super::fits(params, nest, &product)?;
    // With a computed left operand each warp arrives for itself, since it reads its own rows.
    let readers = if product.prologue.is_some() { 4 } else { 1 };
    let (m, n, stages) = (params.block_m, params.block_n, params.stages);
    let sizes = |dims: &[usize]| {
        dims.iter().map(|d| scope.poly(c, &nest.extents[*d])).collect::<Result<Vec<Value>>>()
    };
    let up = |dims: &[usize], by: usize| {
        let all = sizes(dims)?.into_iter().try_fold(c.index(1)?, |a, b| c.mul(a, b))?;
        c.ceil_div(all, c.index(by as i64)?)
    };
    let batch = sizes(&product.roles.batch)?;
    let across = n / count;
    let tiles = [up(&product.roles.rows, m)?, up(&product.roles.columns, across)?];
    let total = batch.iter().chain(&tiles).try_fold(c.index(1)?, |a, b| c.mul(a, *b))?;
    let p = Ptx(c);
    let ring = p.dynamic_shared(scope.kernel.func)?;
    let groups = groups(params);
    let results = ProductResults { scope, plan, nest, product: &product, outs, tile: [m, across] };
    let (left_map, right_maps) = (*left, rights.to_vec());
    let parts = params.split_k;
    let part = KSplit::of(c, parts, results.steps(c)?)?;
    let t = WgmmaTile {
        results,
        left_map,
        right_maps,
        staged_results,
        m,
        n,
        stages,
        warpgroups: groups,
        pipeline: ring,
        batch,
        tiles,
        total,
        k_split: part,
    };

    // Independent nests come before setmaxnreg, while all threads have the same registers.
    plan.nests
        .iter()
        .skip(1)
        .try_for_each(|n| grid_stride::grid(c, scope, plan, n, 128 * (groups + 1), 4))?;
    let mut barriers = |c: Code| {
        let p = Ptx(c);
        maps.iter().try_for_each(|m| p.prefetch_tensor_map(*m))?;
        (0..stages).try_for_each(|i| {
            p.mbarrier_init(t.full_barrier(p, p.number(i)?)?, 1)?;
            p.mbarrier_init(t.empty_barrier(p, p.number(i)?)?, groups * readers)
        })?;
        t.init_reduction_mbarrier(p)
    };
    let mut copied = |c: Code| t.producer_barriers(c);
    let roles = warp_specialisation::WarpRoles {
        registers: (groups > 1).then_some(REGISTERS[usize::from(params.ctas_per_sm > 1)]),
        barriers: &mut barriers,
        copies: &mut |c| t.produce(c),
        copied: (parts > 1).then_some(&mut copied as &mut BranchBody<'_>),
        multiplies: &mut |c, group, thread, warp| {
            t.consume(c, group, thread, warp)?;
            // A CTA must not exit before TMA has read its shared memory.
            let stores = Ptx(c).eq_const(Ptx(c).rem_const(thread, 32)?, 0)?;
            if t.staged_results.is_empty() {
                Ok(())
            } else {
                c.if_else(stores, &mut |c| Ptx(c).tma_store_wait(0, true), None)
            }
        },
    };
    warp_specialisation::emit(c, roles)
}
