//! Loops whose bounds are affine, as `affine.for`.
//!
//! Done when a function is complete: what may be an operand of a bound depends on the loops around.
//! The rules for operands are upstream's for dimensions (`isValidDim`): values at the top of the
//! function, induction variables of `affine.for`, and affine expressions of these.
use crate::emit::{code::LOOP_ANNOTATION, index::constant_value};
use kiln_dialects::{algebra::Expr, ir::*, ops::OpKind};

/// Turns each `scf.for` of a function into an `affine.for` if its step is a positive constant and
/// its bounds are affine. `kiln-lower-affine` turns it back.
pub fn raise(func: Op) -> Result<()> {
    // From the outside in, since induction variables of `affine.for` are operands inside.
    // Those of a tile program wait for `kiln-lower-tiles`: tiles are carried.
    let of_tiles = |op: &Op| {
        let around = std::iter::successors(op.parent(), |o| o.parent());
        around.into_iter().any(|o| o.kind() == Some(OpKind::TileWarpSpecialize))
    };
    let all = walk(func).into_iter().filter(|op| !of_tiles(op));
    let all: Vec<_> = all.filter_map(Op::dyn_cast::<scf::For>).collect();
    all.into_iter().try_for_each(|old| raise_loop(func, old).at(*old))
}

fn raise_loop(func: Op, old: TypedOp<scf::For>) -> Result<()> {
    let Some(step) = constant_value(old.step()).filter(|k| *k > 0) else { return Ok(()) };
    let lower = bound(func, old.lower_bound(), false)?;
    let upper = bound(func, old.upper_bound(), true)?;
    let (Some((lower, lower_operands)), Some((upper, upper_operands))) = (lower, upper) else {
        return Ok(());
    };
    let from = old.region().and_then(Region::first).ok_or("has no body")?;
    let types: Vec<Type> = from.args().iter().map(|v| v.ty()).collect();
    let last = from.terminator().ok_or("has no terminator")?;
    let mut fill = |b: Builder, args: Vec<Value>| {
        b.block().take_body(from, &args);
        affine::yield_(b, &last.operands())?;
        last.erase();
        Ok(())
    };
    let new = affine::for_(
        Builder::before(*old).ok_or("is in no block")?,
        &lower_operands,
        &upper_operands,
        &old.init_args(),
        lower,
        upper,
        step,
        &types[1..],
        (&types, &mut fill),
    )?;
    stand_in(*old, *new);
    old.erase();
    Ok(())
}

/// Lets a loop stand for another one: its results are read instead, and LLVM treats it the same.
pub(super) fn stand_in(old: Op, new: Op) {
    if let Some(annotation) = old.attr(LOOP_ANNOTATION) {
        new.set_attr(LOOP_ANNOTATION, annotation);
    }
    old.results().into_iter().zip(new.results()).for_each(|(a, b)| a.replace_uses(b));
}

/// The map and the operands of the bound `v` of a loop. A minimum, which is no dimension, becomes
/// part of an upper bound. What an `affine.apply` gives is an operand: its place in the code stays.
fn bound(func: Op, v: Value, upper: bool) -> Result<Option<(Attr, Vec<Value>)>> {
    let c = func.ctx();
    if let Some(k) = constant_value(v) {
        return Ok(Some((Attr::affine_map(c, 0, &[Expr::Const(k)])?, vec![])));
    }
    if let Some(min) = v.def_as::<affine::AffineMin>().filter(|_| upper) {
        let operands = min.operands();
        let fits = operands.iter().all(|v| is_dimension(func, *v));
        return Ok(if fits { Some((min.map().ok_or("has no map")?, operands)) } else { None });
    }
    // MLIR prints a symbol as a bound without its map.
    Ok(match () {
        _ if is_at_top(func, v) => Some((Attr::identity_of_symbol(c), vec![v])),
        _ if is_dimension(func, v) => Some((Attr::projection(c, 1, &[0])?, vec![v])),
        _ => None,
    })
}

/// Whether a value is an argument of the function, or defined at its top.
fn is_at_top(func: Op, v: Value) -> bool {
    let parent = match v.block_arg() {
        Some((block, _)) => block.parent(),
        None => v.def().and_then(Op::parent),
    };
    parent == Some(func)
}

/// Whether a value may be a dimension of an affine map in this function.
fn is_dimension(func: Op, v: Value) -> bool {
    if let Some((block, i)) = v.block_arg() {
        let of_loop = || block.parent().is_some_and(|o| o.isa::<affine::AffineFor>());
        return is_at_top(func, v) || i == 0 && of_loop();
    }
    let Some(def) = v.def() else { return false };
    is_at_top(func, v)
        || constant_value(v).is_some()
        || def.isa::<affine::AffineApply>() && def.operands().iter().all(|v| is_dimension(func, *v))
}
