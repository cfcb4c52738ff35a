//! Pipelines in shared memory: where stages and mbarriers lie, and the TMA loads that fill them.
use crate::{
    emit::code::Code,
    gpu::lower_tiles::thread::{Thread, WARPS},
    strategies::gpu::{common::ptx::Ptx, wgmma_gemm::DEPTH},
    target::launch::{SHARED_BYTES, WARP},
};
use kiln_dialects::{ir::*, sym::Dim};

/// Bytes of a row of a slice in shared memory.
pub(super) const ROW: usize = 2 * DEPTH;
/// Alignment of tiles in shared memory, which the swizzle needs, in bytes.
const ALIGNMENT: usize = 1024;
/// The vector width of a thread's stores, in bytes.
const STORE_BYTES: usize = 16;

/// A place in a ring.
#[derive(Clone, Copy)]
pub(super) struct Stage {
    pub(super) index: Value,
    /// The parity of the phase of its barriers.
    pub(super) parity: Value,
}

/// A pipeline.
#[derive(Clone, Copy)]
pub(super) struct Ring {
    pub(super) stages: usize,
    rows: usize,
    columns: usize,
    /// Offsets of the first stage and of the first `full`, in bytes.
    start: usize,
    full: usize,
}

impl Ring {
    /// Bytes of a stage.
    fn bytes(&self) -> usize {
        self.rows * ROW * self.columns.div_ceil(DEPTH)
    }
}

/// A tile in shared memory.
#[derive(Clone, Copy)]
pub(super) struct Shared {
    pub(super) address: Value,
    pub(super) rows: usize,
    pub(super) columns: usize,
}

/// All pipelines of a kernel. Their tiles come first, then their mbarriers.
pub(super) struct Rings {
    base: Value,
    all: Vec<(Value, Ring)>,
}

impl Rings {
    pub(super) fn of(c: Code, func: Op, pipelines: &[Op]) -> Result<Rings> {
        let (mut all, mut end) = (vec![], 0);
        for op in pipelines {
            let sizes = op.result(0).ty().dims();
            let [Dim::Known(stages), Dim::Known(rows), Dim::Known(columns)] = sizes.as_slice()
            else {
                return Err("has a pipeline of dynamic sizes".into());
            };
            let [stages, rows, columns] = [*stages, *rows, *columns].map(|n| n as usize);
            let ring = Ring { stages, rows, columns, start: end, full: 0 };
            end += ring.bytes() * stages;
            all.push((op.result(0), ring));
        }
        for (_, ring) in &mut all {
            ring.full = end;
            end += 16 * ring.stages;
        }
        // The launch states what there is, with padding for the alignment of the first tile.
        let given = func.attr(SHARED_BYTES).and_then(Attr::as_i64).unwrap_or(0) as usize;
        if end > 0 && given < end + ALIGNMENT {
            return Err(
                format!("has tiles of {end} bytes in {given} bytes of shared memory").into()
            );
        }
        Ok(Rings { base: Ptx(c).dynamic_shared(func)?, all })
    }
    pub(super) fn get(&self, pipeline: Value) -> Result<&Ring> {
        let found = self.all.iter().find(|(v, _)| *v == pipeline);
        Ok(&found.ok_or("takes what is no pipeline")?.1)
    }
    /// Initialises all mbarriers; `arrivals`: at `empty`.
    pub(super) fn barriers(&self, c: Code, arrivals: usize) -> Result<()> {
        let p = Ptx(c);
        for (_, ring) in &self.all {
            for i in 0..ring.stages {
                p.mbarrier_init(self.full(p, ring, p.number(i)?)?, 1)?;
                p.mbarrier_init(self.empty(p, ring, p.number(i)?)?, arrivals)?;
            }
        }
        Ok(())
    }
    pub(super) fn full(&self, p: Ptx, ring: &Ring, stage: Value) -> Result<Value> {
        p.add(p.add_const(self.base, ring.full)?, p.mul_const(stage, 8)?)
    }
    pub(super) fn empty(&self, p: Ptx, ring: &Ring, stage: Value) -> Result<Value> {
        p.add_const(self.full(p, ring, stage)?, 8 * ring.stages)
    }
    pub(super) fn tile(&self, p: Ptx, ring: &Ring, stage: Value) -> Result<Shared> {
        let address =
            p.add(p.add_const(self.base, ring.start)?, p.mul_const(stage, ring.bytes())?)?;
        Ok(Shared { address, rows: ring.rows, columns: ring.columns })
    }
    /// Loads all slices of a tile into a stage. `at`: the row's coordinate, then outer ones.
    pub(super) fn load(
        &self,
        p: Ptx,
        ring: &Ring,
        stage: Value,
        map: Value,
        at: &[Value],
    ) -> Result<()> {
        let (full, to) = (self.full(p, ring, stage)?, self.tile(p, ring, stage)?.address);
        p.mbarrier_arrive_expect_tx(full, ring.bytes())?;
        let number = |v: &Value| if v.ty().is_index() { p.index_to_i32(*v) } else { Ok(*v) };
        let at: Vec<Value> = at.iter().map(number).collect::<Result<_>>()?;
        for slice in 0..ring.columns.div_ceil(DEPTH) {
            let at = [&[p.number(slice * DEPTH)?], at.as_slice()].concat();
            p.tma_load(p.add_const(to, slice * ring.rows * ROW)?, map, &at, full)?;
        }
        Ok(())
    }
}

impl Shared {
    /// Writes zeros over the rows from one on; wgmma then reads them.
    pub(super) fn zero_rows(&self, c: Code, from: Value, thread: Thread) -> Result<()> {
        let p = Ptx(c);
        let begin = p.add(self.address, p.mul_const(from, ROW)?)?;
        let (first, end) = (
            p.mul_const(thread.thread, STORE_BYTES)?,
            p.mul_const(p.sub(p.number(self.rows)?, from)?, ROW)?,
        );
        let nothing = c.integer(0, Type::vector(p.i32(), STORE_BYTES / 4))?;
        c.for_dynamic_step(
            p.i32_to_index(first)?,
            p.i32_to_index(end)?,
            c.index((WARPS * WARP * STORE_BYTES) as i64)?,
            &[],
            &mut |c, at, _| {
                let p = Ptx(c);
                let at = p.add(begin, p.index_to_i32(at)?)?;
                for slice in 0..self.columns.div_ceil(DEPTH) {
                    let at = p.add_const(at, slice * self.rows * ROW)?;
                    p.store_shared(at, nothing, STORE_BYTES)?;
                }
                Ok(vec![])
            },
        )?;
        p.fence_proxy_async()?;
        p.named_barrier(thread.group, WARPS * WARP)
    }
}
