//! A multi-stage GEMM with mma.sync: all threads of a CTA issue cp.async for both operands' tiles,
//! some K steps in advance, and each warp multiplies its part of the tile. The epilogue runs the
//! kernel's later stages on the accumulators. For a convolution the left tile's rows are pixels
//! (im2col).
use crate::{
    analysis::NestPlan,
    emit::{
        body::Scope,
        code::{Code, constant_value},
        loops::decode,
    },
    strategies::gpu::{
        common::{
            fragments::{ProductResults, WarpFragment},
            grid_stride,
            ptx::Ptx,
            threads,
        },
        mma_gemm::{
            DEPTH, MISMATCH, Params, THREADS, product,
            tile::{MmaTile, OperandTile, ROWS_PER_COPY},
            warps,
        },
        prologue::{emit as prologue_emit, emit::PrologueElements},
        wgmma_gemm::ROW,
    },
};
use kiln_dialects::{ir::*, value::DType};

/// Bytes of a slice: 64 rows of a tile.
const SLICE_BYTES: usize = 64 * ROW;

/// Emits the nest of a product, and the plan's other nests.
pub fn emit(c: Code, scope: &Scope<'_>, plan: &NestPlan, params: &Params) -> Result<()> {
    let product = product(scope.kernel, plan).ok_or(MISMATCH)?;
    let nest = &plan.nests[0];
    let outs = product
        .stages
        .iter()
        .filter_map(|s| scope.kernel.stages.get(*s)?.outputs.first())
        .collect();
    let (m, n, stages) = (params.block_m, params.block_n, params.stages);
    let p = Ptx(c);
    let (ring, thread) = (p.dynamic_shared(scope.kernel.func)?, p.thread_id()?);
    let number = p.warp_id(thread)?;
    let warps = warps(m, n);
    let warp = [p.div_const(number, warps.1)?, p.rem_const(number, warps.1)?];
    let results = ProductResults { scope, plan, nest, product: &product, outs, tile: [m, n] };
    let steps = results.steps(c)?;
    let t = MmaTile {
        results,
        m,
        n,
        warps,
        stages,
        steps,
        pipeline: ring,
        thread,
        lane: p.rem_const(thread, 32)?,
        warp,
    };
    // Consecutive CTAs share columns and differ in rows.
    let mut sizes: Vec<Value> = product
        .roles
        .batch
        .iter()
        .map(|d| scope.poly(c, &nest.extents[*d]))
        .collect::<Result<_>>()?;
    sizes.push(c.ceil_div(t.results.columns(c)?, c.index(n as i64)?)?);
    sizes.push(c.ceil_div(t.results.rows(c)?, c.index(m as i64)?)?);
    let total = sizes.iter().try_fold(c.index(1)?, |a, b| c.mul(a, *b))?;
    threads::for_each_tile(c, total, &[], &mut |c, tile, _| {
        let at = decode(c, tile, &sizes)?;
        let (batch, [over, down]) = at.split_at(at.len() - 2) else {
            return Err("has no tiles".into());
        };
        t.tile(
            c,
            batch,
            [
                Ptx(c).mul_const(Ptx(c).index_to_i32(*down)?, m)?,
                Ptx(c).mul_const(Ptx(c).index_to_i32(*over)?, n)?,
            ],
        )
        .map(|()| vec![])
    })?;
    grid_stride::other_nests(c, scope, plan, 1, THREADS)
}

impl MmaTile<'_> {
    fn operand_tile<'b>(
        &'b self,
        p: Ptx,
        left: bool,
        batch: &[Value],
        first: Value,
    ) -> Result<OperandTile<'b>> {
        let (product, scope) = (self.results.product, self.results.scope);
        let (operand, across) =
            if left { (&product.left, self.m) } else { (&product.rights[0], self.n) };
        let mut at = scope.poly(p.0, &operand.offset)?;
        let own = operand.batch.iter().filter_map(|i| batch.get(*i));
        for (i, stride) in own.zip(&operand.strides[1..]) {
            at = p.0.add(at, p.0.mul(*i, scope.poly(p.0, stride)?)?)?;
        }
        let begin = arith::addi(
            p,
            p.base_address(scope.buffer(operand.buffer)?)?,
            p.size_in_bytes(at, self.element_bytes())?,
        )?;
        let pixels = match &product.window {
            Some(w) if left => self.pixels(p.0, w, begin, first)?,
            _ => vec![],
        };
        Ok(OperandTile { operand, left, across, base: begin, first, pixels })
    }
    /// Bytes of an operand's element in memory.
    fn element_bytes(&self) -> usize {
        self.results.product.raw.byte_size()
    }
    /// The address of an operand's tile in a stage.
    fn stage_address(&self, p: Ptx, stage: Value, left: bool) -> Result<Value> {
        let at = p.add(self.pipeline, p.mul_const(stage, (self.m + self.n) * ROW)?)?;
        p.add_const(at, if left { 0 } else { self.m * ROW })
    }

    /// Issues the cp.asyncs of a K step. A row of a tile is 128 contiguous bytes; an MN-major
    /// operand's tile has slices of 64 rows (K).
    fn copy_stage(&self, c: Code, side: &OperandTile<'_>, step: Value, stage: Value) -> Result<()> {
        let (p, o, width) = (Ptx(c), side.operand, self.element_bytes());
        let (row, chunk) = (p.div_const(self.thread, 8)?, p.rem_const(self.thread, 8)?);
        let place = arith::xori(p, chunk, p.rem_const(row, 8)?)?;
        let to = p.add(
            self.stage_address(p, stage, side.left)?,
            p.add(p.mul_const(row, ROW)?, p.mul_const(place, 16)?)?,
        )?;
        if let Some(w) = &self.results.product.window {
            return self.copy_window(c, w, side, step, to, chunk);
        }
        let size = |i: usize| p.index_to_i32(self.results.scope.poly(c, &o.sizes[i])?);
        let (near_size, far_size) = (size(0)?, size(1)?);
        let stride = self.results.scope.poly(c, &o.strides[0])?;
        let depth = p.mul_const(step, ROW / width)?;
        let (near0, far0) = if o.k_major { (depth, side.first) } else { (side.first, depth) };
        let (near0, far0) = (p.add(near0, p.mul_const(chunk, 16 / width)?)?, p.add(far0, row)?);
        let (slices, rows) =
            if o.k_major { (1, side.across) } else { (side.across / DEPTH, DEPTH) };
        let zero = p.number(0)?;
        let bytes = o.copy_bytes(width);
        for slice in 0..slices {
            let near = p.add_const(near0, slice * DEPTH)?;
            // The bytes left in the row for each copy of a chunk: cp.async fills the rest with
            // zeros.
            let copies = (0..16 / bytes).map(|j| {
                let left = p.sub(near_size, p.add_const(near, j * bytes / width)?)?;
                p.min(p.max(p.mul_const(left, width)?, zero)?, p.number(bytes)?)
            });
            let copies = copies.collect::<Result<Vec<Value>>>()?;
            for i in 0..rows / ROWS_PER_COPY {
                let far = p.add_const(far0, i * ROWS_PER_COPY)?;
                let inside = c.compare(CmpIPredicate::Slt, far, far_size)?;
                let element = c.add(c.mul(p.i32_to_index(far)?, stride)?, p.i32_to_index(near)?)?;
                let from = arith::addi(p, side.base, p.size_in_bytes(element, width)?)?;
                let to = p.add_const(to, slice * SLICE_BYTES + i * ROWS_PER_COPY * ROW)?;
                for (j, left) in copies.iter().enumerate() {
                    let left = c.select(inside, *left, zero)?;
                    let from = if j == 0 {
                        from
                    } else {
                        let wide = Type::scalar(c.ctx(), DType::I64);
                        arith::addi(p, from, c.integer((j * bytes) as i64, wide)?)?
                    };
                    p.cp_async(p.add_const(to, j * bytes)?, from, left, bytes)?;
                }
            }
        }
        Ok(())
    }

    /// Loads by ldmatrix the fragments of 16 rows (left) or columns (right) from `x` on, at the
    /// `k`-th 32 bytes of K. The right operand's are two fragments of 8 columns.
    fn fragment(
        &self,
        p: Ptx,
        side: &OperandTile<'_>,
        tile: Value,
        x: Value,
        k: usize,
    ) -> Result<[Value; 4]> {
        let k_major = side.operand.k_major;
        let (low, high) = (p.rem_const(self.lane, 8)?, p.div_const(self.lane, 16)?);
        let middle = p.rem_const(p.div_const(self.lane, 8)?, 2)?;
        // The row and 16-byte chunk that each lane addresses. A left fragment has the second 8 rows
        // before the second 8 of K.
        let (row, chunk) = if side.left == k_major {
            (p.rem_const(self.lane, 16)?, high)
        } else {
            (p.add(low, p.mul_const(high, 8)?)?, middle)
        };
        let swizzled = |chunk: Value| p.mul_const(arith::xori(p, chunk, low)?, 16);
        let at = if k_major {
            let chunk = arith::xori(p, chunk, p.number(2 * k)?)?;
            p.add(p.mul_const(p.add(x, row)?, ROW)?, swizzled(chunk)?)?
        } else {
            let chunk = p.add(p.rem_const(p.div_const(x, 8)?, 8)?, chunk)?;
            let slice = p.mul_const(p.div_const(x, DEPTH)?, SLICE_BYTES)?;
            p.add(slice, p.add(p.mul_const(p.add_const(row, 16 * k)?, ROW)?, swizzled(chunk)?)?)?
        };
        p.ldmatrix(p.add(tile, at)?, !k_major)
    }

    /// The left operand's prologue at a tile, if it has one. A thread has two of each 16 of a
    /// warp's rows.
    fn prologue(
        &self,
        c: Code,
        batch: &[Value],
        row: Value,
    ) -> Result<Option<PrologueElements<'_>>> {
        if self.results.product.prologue.is_none() {
            return Ok(None);
        }
        let (p, down) = (Ptx(c), self.m / self.warps.0);
        let own =
            p.add(row, p.add(p.mul_const(self.warp[0], down)?, p.div_const(self.lane, 4)?)?)?;
        let rows =
            (0..down / 8).map(|i| p.add_const(own, 8 * i)).collect::<Result<Vec<Value>>>()?;
        PrologueElements::of(c, &self.results, batch, &rows).map(Some)
    }

    /// Multiplies a stage. `step`: the K step that the stage holds.
    fn multiply(
        &self,
        c: Code,
        sides: [&OperandTile<'_>; 2],
        elements: Option<&PrologueElements<'_>>,
        (stage, step): (Value, Value),
        sums: &[Value],
    ) -> Result<Vec<Value>> {
        let (p, mut sums) = (Ptx(c), sums.to_vec());
        let column =
            || p.add(p.mul_const(step, DEPTH)?, p.mul_const(p.rem_const(self.lane, 4)?, 2)?);
        let mut known = elements.map(|e| e.step(c, column()?)).transpose()?;
        let (down, over) = (self.m / self.warps.0 / 16, self.n / self.warps.1 / 16);
        let element = self.results.product.element;
        for k in 0..DEPTH / 16 {
            let read =
                |side: &OperandTile<'_>, first: Value, count: usize| -> Result<Vec<[Value; 4]>> {
                    let tile = self.stage_address(p, stage, side.left)?;
                    (0..count)
                        .map(|i| self.fragment(p, side, tile, p.add_const(first, 16 * i)?, k))
                        .collect()
                };
            let mut left = read(sides[0], p.mul_const(self.warp[0], 16 * down)?, down)?;
            if let (Some(e), Some(known)) = (elements, &mut known) {
                for (i, words) in left.iter_mut().enumerate() {
                    let mut made = vec![];
                    for (j, word) in words.iter().enumerate() {
                        for (b, raw) in
                            prologue_emit::unpack_pair(c, *word, self.results.product.raw)?
                                .into_iter()
                                .enumerate()
                        {
                            made.push(e.element(
                                c,
                                known,
                                raw,
                                2 * i + j % 2,
                                16 * k + 8 * (j / 2) + b,
                            )?);
                        }
                    }
                    *words = <[Value; 4]>::try_from(e.packed(p, &made)?)
                        .map_err(|_| "has no four registers")?;
                }
            }
            let right = read(sides[1], p.mul_const(self.warp[1], 16 * over)?, over)?;
            for (i, a) in left.iter().enumerate() {
                for (j, b) in right.iter().flat_map(|b| [[b[0], b[1]], [b[2], b[3]]]).enumerate() {
                    let at = 4 * (2 * over * i + j);
                    let next = p.warp_mma(element, *a, b, &sums[at..at + 4])?;
                    sums.splice(at..at + 4, next);
                }
            }
        }
        Ok(sums)
    }

    fn tile(&self, c: Code, batch: &[Value], [row, column]: [Value; 2]) -> Result<()> {
        let p = Ptx(c);
        let (left, right) =
            (self.operand_tile(p, true, batch, row)?, self.operand_tile(p, false, batch, column)?);
        let copy = |c: Code, step: Value, stage: Value| {
            self.copy_stage(c, &left, step, stage)?;
            self.copy_stage(c, &right, step, stage)
        };
        let ahead = self.stages - 1;
        for s in 0..ahead {
            match constant_value(self.steps) {
                Some(steps) if s as i64 >= steps => {}
                None if s > 0 => {
                    let more = c.less_than(c.index(s as i64)?, self.steps)?;
                    c.if_else(more, &mut |c| copy(c, Ptx(c).number(s)?, Ptx(c).number(s)?), None)?;
                }
                _ => copy(c, p.number(s)?, p.number(s)?)?,
            }
            p.cp_async_commit_group()?;
        }
        let (down, over) = (self.m / self.warps.0, self.n / self.warps.1);
        let sum = Type::scalar(c.ctx(), self.results.product.accumulator());
        let zero = if sum.dtype()?.is_float() { c.number(0.0, sum)? } else { c.integer(0, sum)? };
        let sums = vec![zero; down * over / 32];
        let elements = self.prologue(c, batch, row)?;
        let end = match constant_value(self.steps) {
            Some(steps) => p.number(steps as usize)?,
            None => p.index_to_i32(self.steps)?,
        };
        let sums = c.for_dynamic_step(
            c.index(0)?,
            self.steps,
            c.index(1)?,
            &sums,
            &mut |c, step, sums| {
                let p = Ptx(c);
                let step = p.index_to_i32(step)?;
                // All threads' copies of the oldest stage are complete, and all threads have read
                // the stage that is filled next.
                p.cp_async_wait_group(ahead - 1)?;
                threads::barrier(c)?;
                let next = p.add_const(step, ahead)?;
                let more = c.compare(CmpIPredicate::Slt, next, end)?;
                c.if_else(
                    more,
                    &mut |c| copy(c, next, Ptx(c).rem_const(next, self.stages)?),
                    None,
                )?;
                p.cp_async_commit_group()?;
                self.multiply(
                    c,
                    [&left, &right],
                    elements.as_ref(),
                    (p.rem_const(step, self.stages)?, step),
                    sums,
                )
            },
        )?;
        // The next tile reuses the pipeline's stages.
        threads::barrier(c)?;
        let [group, quarter] = [p.div_const(self.lane, 4)?, p.rem_const(self.lane, 4)?];
        let mine = p.add(p.mul_const(self.warp[0], down)?, group)?;
        let beside = p.add(p.mul_const(self.warp[1], over)?, p.mul_const(quarter, 2)?)?;
        let at = [p.i32_to_index(p.add(row, mine)?)?, p.i32_to_index(p.add(column, beside)?)?];
        let values: Vec<Vec<&[Value]>> = sums.chunks(over / 2).map(|block| vec![block]).collect();
        self.results.store(
            c,
            self.results.scope,
            &WarpFragment { batch, at, row_stride: 16, values: &values },
        )
    }
}
