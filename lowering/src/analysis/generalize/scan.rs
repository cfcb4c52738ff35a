//! `kiln.structured.scan` as `linalg.generic`: each element of the result is a reduction of the
//! whole axis, in which later elements count as the identity. Strategy `scan` needs one pass.
use crate::analysis::{
    generalize::{Generic, region_of},
    structure::{Scan, Structure, loops_of},
};
use kiln_dialects::{
    ir::*,
    ops::{CumulativeKind, StructuredScan},
    value::DType,
};

/// Writes the generic before the op; returns it with what it is.
pub fn scan(op: Op) -> Result<(Op, Structure)> {
    let o = StructuredScan::of(op).ok_or_malformed(op)?;
    let b = Builder::before(op).ok_or("is in no block")?;
    let axis = usize::try_from(o.axis).map_err(|_| "has a negative axis")?;
    // The reduction loop follows the loop of the axis.
    let (element, over) = (axis, axis + 1);
    let inner = |d: usize| if d < axis { d } else { d + 1 };
    let outer = |d: usize| if d <= axis { d } else { d + 1 };
    let (maps, reduction) = loops_of(op)?;
    let (result, inputs) = maps.split_last().ok_or("has no indexing maps")?;
    let loops = reduction.len() + 1;
    let map = |results: &[Affine], loop_of: &dyn Fn(usize) -> usize| {
        let moved = |l: &MapInput| match l {
            MapInput::Dim(d) => Some(Affine::dim(loop_of(*d))),
            MapInput::Symbol(_) => None,
        };
        let results: Option<Vec<Affine>> = results.iter().map(|e| e.substitute(&moved)).collect();
        Attr::affine_map(b.ctx, loops, &results.ok_or("has an indexing map with symbols")?)
    };
    let mut all = inputs.iter().map(|m| map(m, &inner)).collect::<Result<Vec<_>, _>>()?;
    all.push(map(result, &outer)?);
    let reduction: Vec<bool> = (0..loops).map(|d| d == over).collect();
    let ty = o.init.ty().element().ok_or("is no tensor")?;
    let (combine, identity) = combination(b.ctx, o.kind, ty, o.is_unsigned)?;
    let region = region_of(op, 0)?;
    let mut value = None;
    let generic = Generic { b, ins: &o.inputs, outs: &[o.init], maps: all, reduction: &reduction };
    let made = generic.build(&mut |body| {
        let given = body.ins().to_vec();
        let x = *body.inline(region, &given, &inner)?.first().ok_or("yields nothing")?;
        value = Some(x);
        let (of, at) = (body.index(over)?, body.index(element)?);
        // ult and ule
        let attrs = [("predicate", Attr::i64(b.ctx, if o.exclusive { 6 } else { 7 }))];
        let i1 = Type::scalar(b.ctx, DType::I1);
        let counts =
            body.b.generic(arith::CmpI::NAME, &[of, at], &[i1], &attrs, &mut [])?.result(0);
        let attrs = [("value", identity)];
        let none = body.b.generic(arith::Constant::NAME, &[], &[ty], &attrs, &mut [])?.result(0);
        let x = body.op(arith::Select::NAME, &[counts, x, none], ty)?;
        Ok(vec![body.op(combine, &[body.outs()[0], x], ty)?])
    })?;
    let value = value.ok_or("yields nothing")?;
    Ok((made, Structure::Scan(Scan { element, over, value, exclusive: o.exclusive })))
}

/// The op that combines elements, and its identity.
fn combination(
    c: Ctx,
    kind: CumulativeKind,
    ty: Type,
    unsigned: bool,
) -> Result<(&'static str, Attr)> {
    use CumulativeKind as K;
    let d = ty.dtype()?;
    if d.is_float() {
        let (name, identity) = match kind {
            K::Sum => (arith::AddF::NAME, 0.0),
            K::Prod => (arith::MulF::NAME, 1.0),
            K::Max => (arith::MaximumF::NAME, f64::NEG_INFINITY),
            K::Min => (arith::MinimumF::NAME, f64::INFINITY),
        };
        return Ok((name, Attr::scalar(c, d, identity)));
    }
    let (low, high) = if unsigned { DType::UI8 } else { d }.int_range();
    let (name, identity) = match (kind, unsigned) {
        (K::Sum, _) => (arith::AddI::NAME, 0),
        (K::Prod, _) => (arith::MulI::NAME, 1),
        (K::Max, true) => (arith::MaxUI::NAME, low),
        (K::Max, false) => (arith::MaxSI::NAME, low),
        (K::Min, true) => (arith::MinUI::NAME, high),
        (K::Min, false) => (arith::MinSI::NAME, high),
    };
    Ok((name, Attr::scalar_int(c, d, identity)))
}
