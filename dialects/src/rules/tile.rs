//! The ops of tile programs: what their lowering relies on.
use super::types::ensure;
use crate::{
    error::{OptionExt, Result},
    ir::{Node as _, Op, Type, Value},
    ops::*,
    sym::Dim,
    value::DType,
};

/// Rows of a consumer warpgroup, as of wgmma.
const ROWS: i64 = 64;
/// Rows of a consumer warp.
const WARP_ROWS: i64 = 16;
/// Columns that an epilogue computes and stages at once.
const SLICE: i64 = 64;

fn sizes(t: Type) -> Result<Vec<i64>> {
    let known = t.dims().iter().map(Dim::known).collect::<Option<Vec<i64>>>();
    Ok(known.ok_or_else(|| format!("has type {t}, which has dynamic sizes"))?)
}

/// The sizes of a tile in registers, which has one of these layouts.
fn fragment(v: Value, of: &[FragmentLayout]) -> Result<Vec<i64>> {
    use FragmentLayout as L;
    let all = sizes(v.ty())?;
    let found = v.ty().fragment_layout().filter(|l| of.contains(l));
    let layout = found.ok_or_else(|| {
        let list: Vec<&str> = of.iter().map(|l| l.keyword()).collect();
        format!("has type {} where a fragment of {} is needed", v.ty(), list.join(" or "))
    })?;
    let rank = if matches!(layout, L::Accumulator | L::Operand) { 2 } else { 1 };
    let rows = layout == L::Columns || all.first().is_some_and(|n| *n > 0 && n % ROWS == 0);
    let columns = layout != L::Operand || all.last().is_some_and(|n| n % 16 == 0);
    let eights = layout != L::Accumulator || all.last().is_some_and(|n| n % 8 == 0);
    ensure(all.len() == rank && rows && columns && eights, || {
        format!("has type {}, which no warpgroups hold", v.ty())
    })?;
    Ok(all)
}

/// Of an epilogue, the values that the regions take and yield.
fn epilogue(op: Op, region: usize) -> Result<(Vec<Type>, Vec<Type>)> {
    let (o, index) = (TileEpilogue::of(op).ok_or_malformed(op)?, Type::index(op.ctx()));
    let lines = o.destinations.iter().filter(|v| v.ty().is_memref()).count();
    if region > 0 {
        return Ok((vec![index; 2], vec![index; lines]));
    }
    ensure((op.regions().len() == 2) == (lines > 0), || {
        "needs lines where a destination is a memref, and only there".into()
    })?;
    let some = |t: Type| if o.vector > 1 { Type::vector(t, o.vector as usize) } else { t };
    let elements = o.values.iter().filter_map(|v| v.ty().element()).map(some);
    let end = op.regions().first().and_then(|r| r.first()).and_then(|b| b.terminator());
    let yields: Vec<Type> = end.into_iter().flat_map(Op::operands).map(|v| v.ty()).collect();
    ensure(yields.len() == o.destinations.len(), || {
        format!("yields {} results for {} destinations", yields.len(), o.destinations.len())
    })?;
    for (ty, to) in yields.iter().zip(&o.destinations) {
        let element = ty.element().unwrap_or(*ty);
        let fits = element.dtype().is_ok_and(is_tile_float);
        let same = !to.ty().is_memref() || to.ty().element() == Some(element);
        ensure(fits && same && *ty == some(element), || {
            format!("yields {ty} for a destination {}", to.ty())
        })?;
    }
    Ok(([index; 2].into_iter().chain(elements).collect(), yields))
}

/// The sizes of a tile in shared memory, or of a ring of them.
fn shared(v: Value, rank: usize) -> Result<Vec<i64>> {
    let all = sizes(v.ty())?;
    let element = v.ty().element().and_then(|e| e.dtype().ok());
    let fits = element.is_some_and(|d| is_8_bit(d) || is_tile_float(d));
    ensure(v.ty().memory_space() == Some(3) && all.len() == rank && fits, || {
        format!(
            "has type {}, not {rank} sizes of i8 or of floats of at most 32 bits in shared memory",
            v.ty()
        )
    })?;
    Ok(all)
}

fn is_tile_float(d: DType) -> bool {
    d.is_float() && [2, 4].contains(&d.byte_size())
}

/// Whether tensor cores multiply elements of 8 bits.
fn is_8_bit(d: DType) -> bool {
    d == DType::I8 || d.is_8_bit_float()
}

/// The element type of a tile.
fn element(v: Value) -> Result<DType> {
    v.ty().element().ok_or("has no element type")?.dtype()
}

/// A pipeline that a `kiln.tile.pipeline` makes.
fn pipeline(v: Value) -> Result<()> {
    let made = v.def().is_some_and(|op| op.kind() == Some(OpKind::TilePipeline));
    ensure(made, || "takes a pipeline that no kiln.tile.pipeline makes".into())
}

/// What the op's operands must fulfil; [`verify_region`] checks the bodies.
pub(super) fn verify(op: Op) -> Result<()> {
    use FragmentLayout::{Accumulator, Columns, Operand, PartialRows, Rows};
    match op.kind() {
        Some(OpKind::TileWarpSpecialize) => {
            let o = TileWarpSpecialize::of(op).ok_or_malformed(op)?;
            ensure(o.consumers > 0, || "has no consumers".into())?;
            ensure(o.registers.is_none_or(|r| r.len() == 2), || {
                "needs registers of a producer and of a consumer".into()
            })
        }
        Some(OpKind::TilePipeline) => {
            let all = op.results();
            let stages: Vec<i64> =
                all.iter().map(|v| Ok(shared(*v, 3)?[0])).collect::<Result<_>>()?;
            ensure(!stages.is_empty() && stages.iter().all(|n| *n == stages[0]), || {
                format!("has tiles of {stages:?} stages, which are as many for each")
            })
        }
        Some(
            OpKind::TileNextStage | OpKind::TileAcquire | OpKind::TileWait | OpKind::TileRelease,
        ) => pipeline(op.operand(0)),
        Some(OpKind::TileTmaLoad) => {
            let o = TileTmaLoad::of(op).ok_or_malformed(op)?;
            let whole = |v: &Value| v.ty().is_index() || v.ty().dtype() == Ok(DType::I32);
            ensure(!o.coordinates.is_empty() && o.coordinates.iter().all(whole), || {
                "needs coordinates that are index or i32".into()
            })?;
            ensure([0, 2].contains(&o.window.len()) && (o.window.is_empty() || !o.whole), || {
                "needs a window of two offsets, and slices of their own".into()
            })?;
            let part = o.part.as_deref().unwrap_or(&[0, 1]);
            ensure(matches!(part, [i, n] if (0..*n).contains(i)), || {
                format!("has part {part:?}, not one of several parts and their number")
            })?;
            pipeline(o.pipeline)
        }
        Some(OpKind::TileView) => {
            pipeline(op.operand(0))?;
            let (ring, tile) = (shared(op.operand(0), 3)?, shared(op.result(0), 2)?);
            ensure(ring[1..] == tile, || format!("has a tile of {tile:?} in stages of {ring:?}"))
        }
        Some(OpKind::TileZeroRows) => shared(op.operand(0), 2).map(drop),
        Some(OpKind::TileMma) => {
            let o = TileMma::of(op).ok_or_malformed(op)?;
            let result = fragment(op.result(0), &[Accumulator])?;
            let mut left = match o.lhs.ty().is_memref() {
                true => shared(o.lhs, 2)?,
                false => fragment(o.lhs, &[Operand])?,
            };
            if o.transposed_lhs {
                ensure(o.lhs.ty().is_memref(), || "transposes a fragment".into())?;
                left.reverse();
            }
            let mut right = shared(o.rhs, 2)?;
            let (of, sum) = ([element(o.lhs)?, element(o.rhs)?], element(op.result(0))?);
            ensure(of[0] == of[1] && sum == of[0].accumulator(), || {
                format!("multiplies {} and {} to {sum}", of[0], of[1])
            })?;
            if o.transposed {
                right.reverse();
            }
            ensure(left == [result[0], right[0]] && right[1] == result[1], || {
                format!("multiplies {left:?} and {right:?} to {result:?}")
            })?;
            ensure(o.init.is_none_or(|v| v.ty() == op.result(0).ty()), || {
                "has an init of another type than its result".into()
            })
        }
        Some(OpKind::TileIota) => fragment(op.result(0), &[Rows, Columns]).map(drop),
        Some(OpKind::TileBroadcast) => {
            let (from, to) =
                (fragment(op.operand(0), &[Rows])?, fragment(op.result(0), &[Accumulator])?);
            ensure(from[0] == to[0], || format!("has {} rows of {}", to[0], from[0]))
        }
        Some(OpKind::TileReduce) => {
            let o = TileReduce::of(op).ok_or_malformed(op)?;
            ensure(matches!(o.kind, ReduceKind::Sum | ReduceKind::Max), || {
                format!("has kind {}, not sum or max", o.kind.keyword())
            })?;
            let (from, to) = (
                fragment(o.input, &[Accumulator, PartialRows])?,
                fragment(op.result(0), &[Rows, PartialRows])?,
            );
            ensure(from[0] == to[0], || format!("has {} rows of {}", to[0], from[0]))
        }
        Some(OpKind::TileConvert) => {
            let (from, to) = (
                fragment(op.operand(0), &[Accumulator, Rows])?,
                fragment(op.result(0), &[Accumulator, Operand, PartialRows])?,
            );
            ensure(from == to, || format!("has {to:?} elements of {from:?}"))
        }
        Some(OpKind::TileMap) => op
            .results()
            .into_iter()
            .try_for_each(|v| fragment(v, &[Accumulator, Rows, PartialRows]).map(drop)),
        Some(OpKind::TileStore) => fragment(op.operand(0), &[Accumulator, Rows]).map(drop),
        Some(OpKind::TileLocalLoad) => {
            let (from, to) =
                (shared(op.operand(0), 2)?, fragment(op.result(0), &[Accumulator, Operand])?);
            let element = op.operand(0).ty().element();
            let same = element == op.result(0).ty().element();
            // ldmatrix gives a left operand.
            let half = element.and_then(|e| e.dtype().ok()).is_some_and(|d| d.byte_size() == 2);
            let operand = op.result(0).ty().fragment_layout() == Some(Operand);
            ensure(from == to && same && to[1] % 16 == 0 && (half || !operand), || {
                format!("reads {to:?} elements of {from:?}")
            })
        }
        Some(OpKind::TileLoad) => {
            let o = TileLoad::of(op).ok_or_malformed(op)?;
            let (from, to) =
                (fragment(o.columns, &[Columns])?, fragment(op.result(0), &[Columns])?);
            let same = o.memory.ty().element() == op.result(0).ty().element();
            ensure(from == to && same && [1, 2].contains(&o.vector), || {
                format!("reads {to:?} elements at {from:?} columns, in vectors of {}", o.vector)
            })
        }
        Some(OpKind::TileSplit) => {
            let (from, parts) = (fragment(op.operand(0), &[Accumulator])?, op.results());
            ensure(!parts.is_empty() && from[1] % parts.len() as i64 == 0, || {
                format!("splits {} columns in {} parts", from[1], parts.len())
            })?;
            let part = [from[0], from[1] / parts.len() as i64];
            parts.into_iter().try_for_each(|v| {
                let to = fragment(v, &[Accumulator])?;
                let same = to == part && v.ty().element() == op.operand(0).ty().element();
                ensure(same, || format!("has a part {}, not of {part:?}", v.ty()))
            })
        }
        Some(OpKind::TileClusterReduce) => {
            let o = TileClusterReduce::of(op).ok_or_malformed(op)?;
            let rows = fragment(o.value, &[Accumulator])?[0];
            ensure(o.ctas > 1 && rows % (WARP_ROWS * o.ctas) == 0, || {
                format!("shares {rows} rows among {} CTAs, {WARP_ROWS} for each warp", o.ctas)
            })
        }
        Some(OpKind::TileEpilogue) => {
            let o = TileEpilogue::of(op).ok_or_malformed(op)?;
            let all: Vec<Vec<i64>> =
                o.values.iter().map(|v| fragment(*v, &[Accumulator])).collect::<Result<_>>()?;
            ensure(!all.is_empty() && all.iter().all(|s| *s == all[0]), || {
                format!("has tiles of {all:?}, which are alike")
            })?;
            ensure([1, 2].contains(&o.vector), || {
                format!("has vectors of {}, but a lane has two adjacent elements", o.vector)
            })?;
            ensure(o.destinations.is_empty() || all[0][1] % SLICE == 0, || {
                format!("stages {} columns, not slices of {SLICE}", all[0][1])
            })
        }
        _ => Ok(()),
    }
}

/// Verifies the bodies, after the nested ops.
pub(super) fn verify_region(op: Op) -> Result<()> {
    let element = |v: &Value| v.ty().element().unwrap_or(v.ty());
    let signature = |region: usize| -> Result<(Vec<Type>, Vec<Type>)> {
        Ok(match op.kind() {
            Some(OpKind::TileMap) => (
                op.operands().iter().map(element).collect(),
                op.results().iter().map(element).collect(),
            ),
            Some(OpKind::TileStore) => {
                let o = TileStore::of(op).ok_or_malformed(op)?;
                (o.positions.iter().map(element).collect(), vec![Type::index(op.ctx())])
            }
            Some(OpKind::TileLoad) => (vec![element(&op.operand(1))], vec![Type::index(op.ctx())]),
            Some(OpKind::TileClusterReduce) => (vec![op.operand(0).ty()], vec![]),
            Some(OpKind::TileEpilogue) => epilogue(op, region)?,
            _ => (vec![], vec![]),
        })
    };
    for (i, region) in op.regions().into_iter().enumerate() {
        let (args, yields) = signature(i)?;
        let block = region.first().ok_or("has an empty region")?;
        let end = block.terminator().filter(|t| t.kind() == Some(OpKind::Yield));
        let end = end.ok_or("has a region that does not end in kiln.yield")?;
        let types = |all: &[Value]| all.iter().map(|v| v.ty()).collect::<Vec<_>>();
        ensure(types(&block.args()) == args, || "has a body of other arguments".into())?;
        ensure(types(&end.operands()) == yields, || "yields something else than results".into())?;
    }
    Ok(())
}
