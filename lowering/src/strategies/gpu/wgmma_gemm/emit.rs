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
        code::{BranchBody, Code},
    },
    strategies::gpu::{
        common::{fragments::ProductResults, grid_stride, ptx::Ptx, warp_specialisation},
        wgmma_gemm::{
            DEPTH, Params, groups, k_range::KSplit, staged_results::staged_results, tile::WgmmaTile,
        },
    },
    target::launch::TENSOR_MAPS,
};
use kiln_dialects::ir::*;

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
