//! Formulas of decompositions, written with operators, as results of rows; terms are in
//! `passes/src/formula.rs`.
use super::{Cx, Outcome, tools::*};
use kiln_dialects::{ir::*, value::DType};
pub(super) use kiln_passes::formula::{Formula, Term};

/// Emits a formula as the row's only result.
pub(super) fn formula(
    cx: &mut Cx,
    make: impl for<'f> FnOnce(&'f Formula) -> Term<'f>,
) -> Result<Outcome> {
    let v = value(cx, make)?;
    cx.one(v)
}

/// Emits a formula.
pub(super) fn value(cx: &Cx, make: impl for<'f> FnOnce(&'f Formula) -> Term<'f>) -> Result<Value> {
    kiln_passes::formula::value(&cx.b, make)
}

/// Emits a formula of two values.
pub(super) fn pair(
    cx: &Cx,
    make: impl for<'f> FnOnce(&'f Formula) -> (Term<'f>, Term<'f>),
) -> Result<(Value, Value)> {
    let f = Formula::new(&cx.b);
    let (x, y) = make(&f);
    Ok((f.end(x)?, f.end(y)?))
}

/// A formula computed in f64 and rounded once: it cancels, or its result spans many magnitudes.
pub(super) fn precisely<'f>(x: Term<'f>, make: impl FnOnce(Term<'f>) -> Term<'f>) -> Term<'f> {
    let d = x.dtype();
    make(x.to(DType::F64)).to(d)
}

/// A formula of 16-bit floats computed in f32, constants too, and rounded once.
pub(super) fn widely<'f>(x: Term<'f>, make: impl FnOnce(Term<'f>) -> Term<'f>) -> Term<'f> {
    let d = x.dtype();
    make(x.to(statistics_dtype(d))).to(d)
}

/// Whether a number is negative, by its sign bit.
pub(super) fn negative(x: Term<'_>) -> Term<'_> {
    let bits = match x.dtype() {
        DType::F64 => DType::I64,
        DType::F32 => DType::I32,
        DType::F16 | DType::BF16 => DType::I16,
        DType::F8E4M3FN | DType::F8E5M2 => DType::I8,
        DType::I1 | DType::UI8 => return x.ne(x),
        _ => return x.lt(0.0),
    };
    x.bitcast(bits).lt(0.0)
}

/// A magnitude with the sign of `x`.
pub(super) fn sign_of<'f>(x: Term<'f>, magnitude: Term<'f>) -> Term<'f> {
    negative(x).select(-magnitude, magnitude)
}
