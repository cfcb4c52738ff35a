//! Attention on Hopper's tensor cores, after FlashAttention-3 (Shah et al., 2024). A producer
//! issues TMA loads for tiles of queries and, from the last to the first, of keys and values;
//! consumer warpgroups issue wgmma.
//!
//! Scores stay in registers: the exponentials of a key tile are the register operand of the product
//! with its values, which overlaps the scores of the next tile. A greater score rescales the
//! accumulators (online softmax: Milakov and Gimelshein, 2018).
//!
//! Each stage of queries, keys and values has two mbarriers. TMA's transaction bytes complete
//! `full`; each consumer warp arrives at `empty` when it has read the stage. One elected lane per
//! warpgroup would not do, as it does for products: a step waits for `full` once more after its
//! wgmmas, and a warp that a refill overtakes before that would wait for a phase that is over.

use crate::{
    analysis::Poly,
    emit::{body::Scope, code::Code},
    strategies::gpu::{
        attention::{
            FlashPattern, Params, ROWS,
            flash::{Flash, Pipeline, WARPS},
        },
        common::{ptx::Ptx, score::Score, warp_specialisation},
    },
};
use kiln_dialects::ir::*;

/// Registers of a producer and of a consumer thread (setmaxnreg), by consumer warpgroups.
const REGISTERS: [Option<(usize, usize)>; 3] = [None, Some((40, 232)), Some((32, 160))];

/// Emits the kernel. `maps`: the tensor maps of queries, keys and values.
pub fn emit(c: Code, scope: &Scope<'_>, params: &Params, maps: &[Value]) -> Result<()> {
    let missing = "is no attention that wgmma and TMA take";
    let pattern = FlashPattern::of(scope.kernel).ok_or(missing)?;
    let maps =
        <[Value; 3]>::try_from(maps).map_err(|_| "has no parameters for three tensor maps")?;
    let (outer, queries, count) = pattern.at.sizes(scope.kernel).ok_or("has no loops")?;
    let (groups, keys) = (params.warpgroups, params.block_kv);
    let even = |p: &Poly, by: usize| !p.is_zero() && p.multiple_of(by as i64);
    let ragged = [
        !even(queries, groups * ROWS),
        !even(count, keys) || pattern.at.limits.lengths[1].is_some(),
    ];
    let around: Vec<Value> = outer.iter().map(|n| scope.poly(c, n)).collect::<Result<_>>()?;
    let (queries, count, p) = (scope.poly(c, queries)?, scope.poly(c, count)?, Ptx(c));
    let down = c.ceil_div(queries, c.index((groups * ROWS) as i64)?)?;
    let total = around.iter().try_fold(down, |a, b| c.mul(a, *b))?;
    let f = Flash {
        scope,
        pattern: &pattern,
        score: Score::of(scope, &pattern.at)?,
        maps,
        warpgroups: groups,
        keys,
        kv_stages: params.kv_stages,
        q_stages: params.q_stages,
        bytes: pattern.bytes(params),
        base: p.dynamic_shared(scope.kernel.func)?,
        outer_sizes: around,
        queries: p.index_to_i32(queries)?,
        count: p.index_to_i32(count)?,
        tiles_per_outer: down,
        tiles: total,
        partial_tiles: ragged,
    };
    let mut barriers = |c: Code| {
        let p = Ptx(c);
        for pipeline in [Pipeline::Queries, Pipeline::Keys, Pipeline::Values] {
            for i in 0..f.stage_layout(pipeline).2 {
                p.mbarrier_init(f.full_barrier(p, pipeline, p.number(i)?)?, 1)?;
                p.mbarrier_init(f.empty_barrier(p, pipeline, p.number(i)?)?, groups * WARPS)?;
            }
        }
        Ok(())
    };
    let roles = warp_specialisation::WarpRoles {
        registers: *REGISTERS.get(groups - 1).ok_or(missing)?,
        barriers: &mut barriers,
        copied: None,
        copies: &mut |c| f.produce(c),
        multiplies: &mut |c, group, thread, warp| f.consume(c, group, thread, warp),
    };
    warp_specialisation::emit(c, roles)
}
