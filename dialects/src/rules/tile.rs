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

/// The sizes of a tile in shared memory, or of a ring of them.
fn shared(v: Value, rank: usize) -> Result<Vec<i64>> {
    let all = sizes(v.ty())?;
    let narrow = v.ty().element().and_then(|e| e.dtype().ok()).is_some_and(|d| d.byte_size() == 2);
    ensure(v.ty().memory_space() == Some(3) && all.len() == rank && narrow, || {
        format!("has type {}, not {rank} sizes of 16-bit floats in shared memory", v.ty())
    })?;
    Ok(all)
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
        Some(OpKind::TilePipeline) => shared(op.result(0), 3).map(drop),
        Some(
            OpKind::TileNextStage | OpKind::TileAcquire | OpKind::TileWait | OpKind::TileRelease,
        ) => pipeline(op.operand(0)),
        Some(OpKind::TileTmaLoad) => {
            let o = TileTmaLoad::of(op).ok_or_malformed(op)?;
            let whole = |v: &Value| v.ty().is_index() || v.ty().dtype() == Ok(DType::I32);
            ensure(!o.coordinates.is_empty() && o.coordinates.iter().all(whole), || {
                "needs coordinates that are index or i32".into()
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
            let left = match o.lhs.ty().is_memref() {
                true => shared(o.lhs, 2)?,
                false => fragment(o.lhs, &[Operand])?,
            };
            let mut right = shared(o.rhs, 2)?;
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
        _ => Ok(()),
    }
}

/// Verifies the bodies, after the nested ops.
pub(super) fn verify_region(op: Op) -> Result<()> {
    let element = |v: &Value| v.ty().element().unwrap_or(v.ty());
    let (args, yields): (Vec<Type>, Vec<Type>) = match op.kind() {
        Some(OpKind::TileMap) => (
            op.operands().iter().map(element).collect(),
            op.results().iter().map(element).collect(),
        ),
        Some(OpKind::TileStore) => {
            let o = TileStore::of(op).ok_or_malformed(op)?;
            (o.positions.iter().map(element).collect(), vec![Type::index(op.ctx())])
        }
        _ => (vec![], vec![]),
    };
    for region in op.regions() {
        let block = region.first().ok_or("has an empty region")?;
        let end = block.terminator().filter(|t| t.kind() == Some(OpKind::Yield));
        let end = end.ok_or("has a region that does not end in kiln.yield")?;
        let types = |all: &[Value]| all.iter().map(|v| v.ty()).collect::<Vec<_>>();
        ensure(types(&block.args()) == args, || "has a body of other arguments".into())?;
        ensure(types(&end.operands()) == yields, || "yields something else than results".into())?;
    }
    Ok(())
}
