//! Shared memory of a tile program: where stages, staging buffers and mbarriers lie, and the TMA
//! loads that fill a stage.
use crate::{
    emit::code::Code,
    gpu::lower_tiles::thread::{Thread, WARPS},
    strategies::gpu::{
        common::ptx::Ptx,
        wgmma_gemm::{ROW, staging},
    },
    target::launch::{SHARED_BYTES, WARP},
};
use kiln_dialects::{ir::*, ops::*, sym::Dim};

/// Alignment of tiles in shared memory, which the swizzle needs, in bytes.
const ALIGNMENT: usize = 1024;
/// The vector width of a thread's stores, in bytes.
const STORE_BYTES: usize = 16;
/// Bytes of an mbarrier.
const BARRIER: usize = 8;

/// A place in a ring.
#[derive(Clone, Copy)]
pub(super) struct Stage {
    pub(super) index: Value,
    /// The parity of the phase of its barriers.
    pub(super) parity: Value,
}

/// A tile of a pipeline's stages.
struct StageTile {
    value: Value,
    /// Its offset in a stage, in bytes.
    offset: usize,
    rows: usize,
    columns: usize,
    /// Columns of a slice, whose rows have 128 bytes.
    slice: usize,
}

impl StageTile {
    fn bytes(&self) -> usize {
        self.rows * ROW * self.columns.div_ceil(self.slice)
    }
}

/// A pipeline.
pub(super) struct Ring {
    pub(super) stages: usize,
    /// Whether one warp of a warpgroup arrives at `empty`, else all do.
    pub(super) warpgroups: bool,
    tiles: Vec<StageTile>,
    /// Bytes of a stage.
    bytes: usize,
    /// Offsets of the first stage and of the first `full`, in bytes.
    start: usize,
    full: usize,
}

impl Ring {
    fn of(op: Op) -> Result<Ring> {
        let (mut tiles, mut bytes, mut stages) = (vec![], 0, 0);
        for value in op.results() {
            let sizes = value.ty().dims();
            let [Dim::Known(count), Dim::Known(rows), Dim::Known(columns)] = sizes.as_slice()
            else {
                return Err("has a pipeline of dynamic sizes".into());
            };
            let element = value.ty().element().ok_or("has no element type")?.dtype()?;
            let [rows, columns] = [*rows, *columns].map(|n| n as usize);
            let slice = ROW / element.byte_size();
            let tile = StageTile { value, offset: bytes, rows, columns, slice };
            (bytes, stages) = (bytes + tile.bytes(), *count as usize);
            tiles.push(tile);
        }
        let warpgroups = TilePipeline::of(op).ok_or_malformed(op)?.warpgroups;
        Ok(Ring { stages, warpgroups, tiles, bytes, start: 0, full: 0 })
    }
}

/// A tile in shared memory.
#[derive(Clone, Copy)]
pub(super) struct Shared {
    pub(super) address: Value,
    pub(super) rows: usize,
    pub(super) columns: usize,
    pub(super) slice: usize,
}

/// Shared memory: the pipelines' tiles, then staging buffers, then mbarriers.
pub(super) struct Rings {
    pub(super) base: Value,
    all: Vec<Ring>,
    staging: usize,
    reduction: usize,
}

impl Rings {
    /// Of a program's pipelines. `consumers`: warpgroups, and whether they stage results.
    pub(super) fn of(
        c: Code,
        func: Op,
        pipelines: &[Op],
        (consumers, staged): (usize, bool),
    ) -> Result<Rings> {
        let mut all: Vec<Ring> = pipelines.iter().map(|op| Ring::of(*op)).collect::<Result<_>>()?;
        let mut end = 0;
        for ring in &mut all {
            ring.start = end;
            end += ring.bytes * ring.stages;
        }
        let buffers = end.next_multiple_of(ALIGNMENT);
        if staged {
            end = buffers + staging(consumers);
        }
        for ring in &mut all {
            ring.full = end;
            end += 2 * BARRIER * ring.stages;
        }
        // The launch states what there is, with padding for the alignment of the first tile.
        let given = func.attr(SHARED_BYTES).and_then(Attr::as_i64).unwrap_or(0) as usize;
        if end > 0 && given < end + ALIGNMENT {
            return Err(
                format!("has tiles of {end} bytes in {given} bytes of shared memory").into()
            );
        }
        let base = Ptx(c).dynamic_shared(func)?;
        Ok(Rings { base, all, staging: buffers, reduction: end })
    }
    pub(super) fn get(&self, pipeline: Value) -> Result<&Ring> {
        self.place(pipeline).map(|(ring, _)| ring)
    }
    fn place(&self, pipeline: Value) -> Result<(&Ring, &StageTile)> {
        let tiles = self.all.iter().flat_map(|r| r.tiles.iter().map(move |t| (r, t)));
        let found = tiles.into_iter().find(|(_, t)| t.value == pipeline);
        found.ok_or_else(|| "takes what is no pipeline".into())
    }
    /// Initialises all mbarriers; `consumers`: warpgroups.
    pub(super) fn barriers(&self, c: Code, consumers: usize) -> Result<()> {
        let p = Ptx(c);
        for ring in &self.all {
            let arrivals = if ring.warpgroups { consumers } else { consumers * WARPS };
            for i in 0..ring.stages {
                p.mbarrier_init(self.full(p, ring, p.number(i)?)?, 1)?;
                p.mbarrier_init(self.empty(p, ring, p.number(i)?)?, arrivals)?;
            }
        }
        Ok(())
    }
    pub(super) fn full(&self, p: Ptx, ring: &Ring, stage: Value) -> Result<Value> {
        p.add(p.add_const(self.base, ring.full)?, p.mul_const(stage, BARRIER)?)
    }
    pub(super) fn empty(&self, p: Ptx, ring: &Ring, stage: Value) -> Result<Value> {
        p.add_const(self.full(p, ring, stage)?, BARRIER * ring.stages)
    }
    /// The staging buffers of all warps.
    pub(super) fn staging(&self, p: Ptx) -> Result<Value> {
        p.add_const(self.base, self.staging)
    }
    /// The mbarrier at which the elements of other CTAs arrive.
    pub(super) fn reduction(&self, p: Ptx) -> Result<Value> {
        p.add_const(self.base, self.reduction)
    }
    pub(super) fn tile(&self, p: Ptx, pipeline: Value, stage: Value) -> Result<Shared> {
        let (ring, tile) = self.place(pipeline)?;
        let stage = p.add(p.add_const(self.base, ring.start)?, p.mul_const(stage, ring.bytes)?)?;
        let address = p.add_const(stage, tile.offset)?;
        Ok(Shared { address, rows: tile.rows, columns: tile.columns, slice: tile.slice })
    }
    /// Waits until a stage is empty; `full` then expects the bytes of its tiles.
    pub(super) fn acquire(&self, p: Ptx, ring: &Ring, stage: Stage) -> Result<()> {
        p.mbarrier_wait(self.empty(p, ring, stage.index)?, stage.parity)?;
        p.mbarrier_arrive_expect_tx(self.full(p, ring, stage.index)?, ring.bytes)
    }
    /// Starts the loads of a tile, or of a part of it. `at`: coordinates, `window`: offsets of
    /// im2col mode.
    pub(super) fn load(
        &self,
        p: Ptx,
        o: &TileTmaLoad,
        map: Value,
        stage: Stage,
        at: &[Value],
        window: &[Value],
    ) -> Result<()> {
        let (ring, tile) = self.place(o.pipeline)?;
        let full = self.full(p, ring, stage.index)?;
        let [part, parts] = match o.part.as_deref() {
            Some([i, n]) => [*i, *n].map(|n| n as usize),
            _ => [0, 1],
        };
        let to = self.tile(p, o.pipeline, stage.index)?.address;
        let to = p.add_const(to, part * tile.bytes() / parts)?;
        let number = |v: &Value| if v.ty().is_index() { p.index_to_i32(*v) } else { Ok(*v) };
        let at: Vec<Value> = at.iter().map(number).collect::<Result<_>>()?;
        let (first, outer) = at.split_first().ok_or("has no coordinates")?;
        let slices = (tile.columns.div_ceil(tile.slice) / parts).max(1);
        for slice in 0..if o.whole { 1 } else { slices } {
            let to = p.add_const(to, slice * tile.rows * ROW)?;
            let at = [&[p.add_const(*first, slice * tile.slice)?], outer].concat();
            match window {
                [across, down] => p.tma_load_im2col(to, map, &at, &[*across, *down], full)?,
                _ => p.tma_load(to, map, &at, full)?,
            }
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
                for slice in 0..self.columns.div_ceil(self.slice) {
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
