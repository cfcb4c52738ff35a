//! Attention on Hopper's tensor cores, after FlashAttention-3 (Shah et al., 2024). A producer
//! issues TMA loads for tiles of queries and, from the last to the first, of keys and values;
//! consumer warpgroups issue wgmma.
//!
//! Scores stay in registers: the exponentials of a key tile are the register operand of the product
//! with its values, which overlaps the scores of the next tile. A greater score rescales the
//! accumulators (online softmax: Milakov and Gimelshein, 2018).
//!
//! It is a tile program: `kiln-lower-tiles` writes it as the code of one thread.

use crate::{
    analysis::Poly,
    emit::{body::Scope, code::Code},
    strategies::gpu::{
        attention::{FlashPattern, Params, ROWS, biases::Bias, flash::Flash},
        common::{ptx::Ptx, score::Score, tile::Tile},
    },
};
use kiln_dialects::ir::*;

/// Registers of a producer and of a consumer thread (setmaxnreg), by consumer warpgroups.
const REGISTERS: [Option<(usize, usize)>; 3] = [None, Some((40, 232)), Some((32, 160))];

/// Emits the kernel's tile program. `maps`: the tensor maps of queries, keys, values and biases.
pub fn emit(c: Code, scope: &Scope<'_>, params: &Params, maps: &[Value]) -> Result<()> {
    let missing = "is no attention that wgmma and TMA take";
    let pattern = FlashPattern::of(scope.kernel).ok_or(missing)?;
    let biases = pattern.staged_biases(params);
    if maps.len() != 3 + biases.len() {
        return Err("has not as many parameters as tensor maps".into());
    }
    let (outer, queries, count) = pattern.at.sizes(scope.kernel).ok_or("has no loops")?;
    let (rows, keys) = (params.warpgroups * ROWS, params.block_kv);
    let even = |p: &Poly, by: usize| !p.is_zero() && p.multiple_of(by as i64);
    let ragged =
        [!even(queries, rows), !even(count, keys) || pattern.at.limits.lengths[1].is_some()];
    let around: Vec<Value> = outer.iter().map(|n| scope.poly(c, n)).collect::<Result<_>>()?;
    let (p, all) = (Ptx(c), scope.poly(c, queries)?);
    // Known sizes are constants, which fold.
    let narrow = |size: &Poly| match size.known() {
        Some(n) => p.constant(n),
        None => p.index_to_i32(scope.poly(c, size)?),
    };
    let down = c.ceil_div(all, c.index(rows as i64)?)?;
    let total = around.iter().try_fold(down, |a, b| c.mul(a, *b))?;
    let element = Type::scalar(c.ctx(), pattern.element);
    let ring = |stages: usize, rows: usize, columns: i64| {
        Tile(c).pipeline(element, stages, [rows, columns as usize])
    };
    let staged = |b: &'_ Bias| {
        Tile(c).pipeline(Type::scalar(c.ctx(), b.element), params.kv_stages, [rows, keys])
    };
    let f = Flash {
        scope,
        pattern: &pattern,
        score: Score::of(scope, &pattern.at)?,
        maps,
        queries_ring: ring(params.q_stages, rows, pattern.at.depth)?,
        keys_ring: ring(params.kv_stages, keys, pattern.at.depth)?,
        values_ring: ring(params.kv_stages, keys, pattern.at.columns)?,
        biases: biases.iter().map(|b| Ok((b, staged(b)?))).collect::<Result<_>>()?,
        rows,
        keys,
        outer_sizes: around,
        queries: narrow(queries)?,
        count: narrow(count)?,
        tiles_per_outer: down,
        tiles: total,
        partial_tiles: ragged,
    };
    let registers = *REGISTERS.get(params.warpgroups - 1).ok_or(missing)?;
    let (produce, consume) = (&mut |c| f.produce(c), &mut |c| f.consume(c));
    Tile(c).warp_specialize(params.warpgroups, registers, &[], produce, consume)
}
