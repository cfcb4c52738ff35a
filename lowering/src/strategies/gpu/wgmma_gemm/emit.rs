//! A warp-specialised GEMM on Hopper's tensor cores: an elected lane issues TMA loads into a
//! multi-stage shared-memory pipeline, one or two consumer warpgroups issue wgmma, and the epilogue
//! runs the kernel's later stages on the accumulators. A persistent CTA takes further tiles: their
//! loads overlap the epilogue.
//!
//! It is a tile program: `kiln-lower-tiles` writes it as the code of one thread.

use crate::{
    analysis::NestPlan,
    emit::{body::Scope, code::Code},
    strategies::gpu::{
        common::{fragments::ProductResults, grid_stride, tile::Tile},
        wgmma_gemm::{
            DEPTH, Params, groups,
            k_range::KSplit,
            staged_results::staged_results,
            tile::{WgmmaTile, tile_sizes},
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
    let [left_map, others @ ..] = maps else {
        return Err("has no parameters for tensor maps".into());
    };
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
    let (m, n) = (params.block_m, params.block_n);
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
    let groups = groups(params);
    let results = ProductResults { scope, plan, nest, product: &product, outs, tile: [m, across] };
    let tile = |o, dtype, across| {
        (Type::scalar(c.ctx(), dtype), tile_sizes(o, across, product.k_per_stage()))
    };
    let operands =
        [tile(&product.left, product.raw, m), tile(&product.rights[0], product.element, n)];
    // With a computed left operand each warp arrives for itself, since it reads its own rows.
    let warpgroups = product.prologue.is_none();
    let [left, right] = Tile(c).pipeline_of_two(params.stages, operands, warpgroups)?;
    let k_split = KSplit::of(c, params.split_k, results.steps(c)?)?;
    let t = WgmmaTile {
        results,
        left_map: *left_map,
        right_maps: rights.to_vec(),
        staged_results,
        m,
        n,
        warpgroups: groups,
        left,
        right,
        batch,
        tiles,
        total,
        k_split,
    };
    // Independent nests come before setmaxnreg, while all threads have the same registers.
    grid_stride::other_nests(c, scope, plan, 1, 128 * (groups + 1))?;
    let registers = (groups > 1).then_some(REGISTERS[usize::from(params.ctas_per_sm > 1)]);
    let (produce, consume) = (&mut |c| t.produce(c), &mut |c| t.consume(c));
    Tile(c).warp_specialize(groups, registers, maps, produce, consume)
}
