//! Emits skinny GEMMs: the wait for the kernel before, the few rows, and the tiles of all products.
use crate::{
    analysis::{NestPlan, Stage},
    emit::{body::Scope, code::Code},
    strategies::CTA_SCRATCH,
    strategies::gpu::{
        common::{grid_stride, ptx::Ptx, shared, threads},
        skinny_gemm::{
            self, Params, SkinnyProduct,
            pipeline::{self, Pipeline},
            prologue::RowPrologue,
            tile::{SkinnyTile, TileRange, tile_of},
        },
    },
    target::launch::{DEPENDENT, SHARED, WARP},
};
use kiln_dialects::{ir::*, value::DType};

/// Emits the nests of such products, and the plan's other nests.
pub fn emit(c: Code, scope: &Scope<'_>, plan: &NestPlan, params: &Params) -> Result<()> {
    let products = skinny_gemm::products(scope.kernel, plan)
        .ok_or("is no product of few rows of bf16 or f16")?;
    let (rows, warps) = (params.block_m, params.warps);
    let thread = threads::thread_id(c)?;
    let before = products.first().ok_or("has no product")?.nest;
    let prologue = RowPrologue::of(c, scope, plan, before, WARP * warps)?;
    // The few rows are computed, copied, or read where they are.
    let taken = match before {
        0 if params.stages == 0 => 0,
        0 => products.iter().map(pipeline::staged_bytes).max().unwrap_or(0) as i64,
        _ => CTA_SCRATCH,
    };
    let parts = |p: &SkinnyProduct| skinny_gemm::warps_at_once(p, rows, warps, SHARED - taken);
    let elements = products.iter().map(|p| parts(p) * skinny_gemm::warp_elements(p, rows)).max();
    let memory = shared(c, Type::scalar(c.ctx(), DType::F32), elements.unwrap_or_default() as i64)?;
    let (warp, lane) =
        (c.div(thread, c.index(WARP as i64)?)?, c.rem(thread, c.index(WARP as i64)?)?);
    let lane = [c.div(lane, c.index(4)?)?, c.rem(lane, c.index(4)?)?];
    let dependent = scope.kernel.func.attr(DEPENDENT).is_some();
    let mut ranges: Vec<TileRange<'_>> = vec![];
    for product in &products {
        let nest = plan.nests.get(product.nest).ok_or("has no such nest")?;
        let stages: Vec<&Stage> =
            product.stages.iter().filter_map(|s| scope.kernel.stages.get(*s)).collect();
        let outs = stages.iter().filter_map(|s| s.outputs.first()).collect();
        let tile = SkinnyTile {
            scope,
            nest,
            stages,
            outs,
            product,
            rows,
            warps,
            warps_at_once: parts(product),
            unroll: params.unroll,
            memory,
            thread,
            warp,
            lane,
        };
        let many = tile.total(c, &product.matrix.dims)?;
        let mut sizes = tile.sizes(c, &product.batch)?;
        sizes.push(c.ceil_div(many, c.index(rows as i64)?)?);
        let tiles = sizes.iter().try_fold(c.index(1)?, |a, b| c.mul(a, *b))?;
        let begin = ranges.last().map(|r| r.end);
        let end = begin.map_or(Ok(tiles), |begin| c.add(begin, tiles))?;
        ranges.push(TileRange { tile, sizes, many, begin, end });
    }
    if dependent && before > 0 {
        prologue.prefetch(c)?;
    }
    let total = ranges.last().ok_or("has no product")?.end;
    // What no launch writes is loaded in front of the wait.
    let early = params.stages > 0 && dependent && products.iter().all(|p| p.constant);
    if dependent && !early {
        if params.prefetch > 0 {
            let first = threads::block_id(c)?;
            for r in &ranges {
                r.prefetch(c, first, params.prefetch)?;
            }
        }
        Ptx(c).wait_for_dependencies()?;
    }
    if params.stages > 0 {
        let pipeline = Pipeline::of(c, &ranges, params, total)?;
        let first = pipeline.fill(c)?;
        if early {
            Ptx(c).wait_for_dependencies()?;
        }
        prologue.emit(c)?;
        pipeline.stage_rows(c)?;
        pipeline.tiles(c, first)?;
    } else {
        prologue.emit(c)?;
        threads::for_each_tile(c, total, &[], &mut |c, number, _| {
            tile_of(c, &ranges, number, &|c, r| r.compute(c, number))?;
            // The next tile reuses the reduction buffer.
            threads::barrier(c).map(|()| vec![])
        })?;
    }
    grid_stride::other_nests(c, scope, plan, before + ranges.len(), WARP * warps)
}
