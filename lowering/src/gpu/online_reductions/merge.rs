//! Partial results: lifting an element, the neutral element, merging two, and the final value of
//! each reduction.
use crate::{gpu::online_reductions::matches::Kind, linalg::scalar::Scalars};
use kiln_dialects::{ir::*, value::DType};
use std::f64::consts::LOG2_E;

/// Values per partial result: maximum and sum; or sum, squared deviations and count.
pub fn count(kind: Kind) -> usize {
    if kind == Kind::Exponential { 2 } else { 3 }
}

fn number(b: Builder, ty: Type, value: f64) -> Result<Value> {
    Scalars { b }.constant(Attr::scalar(b.ctx, ty.dtype()?, value))
}

/// The partial result of one element.
pub fn element(kind: Kind, b: Builder, x: Value) -> Result<Vec<Value>> {
    let of = |n: f64| number(b, x.ty(), n);
    Ok(if kind == Kind::Exponential { vec![x, of(1.0)?] } else { vec![x, of(-0.0)?, of(1.0)?] })
}

/// The neutral partial result. Its maximum is the least finite number, so that any number can be
/// subtracted.
pub fn starts(kind: Kind, b: Builder, ty: Type) -> Result<Vec<Value>> {
    let least = if ty.dtype()? == DType::F64 { f64::MIN } else { f64::from(f32::MIN) };
    let of = |n: f64| number(b, ty, n);
    Ok(if kind == Kind::Exponential {
        vec![of(least)?, of(0.0)?]
    } else {
        vec![of(0.0)?, of(0.0)?, of(0.0)?]
    })
}

/// Merges two partial results.
pub fn merge(kind: Kind, s: &Scalars, a: &[Value], b: &[Value]) -> Result<Vec<Value>> {
    match (kind, a, b) {
        (Kind::Exponential, [m, sum], [n, other]) => {
            // One exponential is enough: the factor of the side with the greater maximum is 1.
            let apart = math::absf(s, arith::subf(s, *n, *m)?)?;
            let less = decay(s, apart)?;
            let above = s.cmpf(CmpFPredicate::Ogt, *n, *m)?;
            let (small, large) = (s.select(above, *sum, *other)?, s.select(above, *other, *sum)?);
            let sum = math::fma(s, small, less, large)?;
            Ok(vec![arith::maximumf(s, *m, *n)?, sum])
        }
        (Kind::Square, [sum, squares, n], [other, more, m]) => {
            let both = arith::addf(s, *n, *m)?;
            let apart = arith::subf(s, mean(s, *other, *m)?, mean(s, *sum, *n)?)?;
            let weight = arith::mulf(s, arith::mulf(s, *n, *m)?, one_over(s, both)?)?;
            // The weight of an empty side is 0, and so is its product with a finite number.
            let between = arith::mulf(s, apart, arith::mulf(s, apart, weight)?)?;
            let squares = arith::addf(s, arith::addf(s, *squares, *more)?, between)?;
            Ok(vec![arith::addf(s, *sum, *other)?, squares, both])
        }
        _ => Err("has other than two partial results".into()),
    }
}

/// exp(-x), for f32 by 2^x with a rounded exponent. A term added to a sum has an error of x exp(-x)
/// 2^-24, at most 0.37 2^-24 of the sum's greatest term.
fn decay(s: &Scalars, x: Value) -> Result<Value> {
    if x.ty().dtype()? == DType::F64 {
        return math::exp(s, arith::negf(s, x)?);
    }
    let exponent = arith::mulf(s, x, s.float(-LOG2_E, x)?)?;
    math::Exp2::new(s, exponent).fastmath(FastMathFlags::AFN).result()
}

/// 1 / n, or 1 for n = 0.
fn one_over(s: &Scalars, n: Value) -> Result<Value> {
    let one = s.float(1.0, n)?;
    let some = arith::maximumf(s, n, one)?;
    if n.ty().dtype()? == DType::F64 {
        arith::divf(s, one, some)
    } else {
        let flags = FastMathFlags::ARCP | FastMathFlags::AFN;
        arith::DivF::new(s, one, some).fastmath(flags).result()
    }
}

fn mean(s: &Scalars, sum: Value, n: Value) -> Result<Value> {
    arith::mulf(s, sum, one_over(s, n)?)
}

/// The final value of the first reduction.
pub fn first(kind: Kind, s: &Scalars, parts: &[Value]) -> Result<Value> {
    match (kind, parts) {
        (Kind::Exponential, [most, sum, ..]) => {
            // Nothing was added: no element is above -inf.
            let none = s.cmpf(CmpFPredicate::Oeq, *sum, s.float(0.0, *sum)?)?;
            s.select(none, s.float(f64::NEG_INFINITY, *most)?, *most)
        }
        (Kind::Square, [sum, ..]) => Ok(*sum),
        _ => Err("has no partial result".into()),
    }
}

/// The final value of the second reduction, for the shift c.
pub fn second(kind: Kind, s: &Scalars, parts: &[Value], c: Value) -> Result<Value> {
    match (kind, parts) {
        (Kind::Exponential, [most, sum, ..]) => {
            let factor = math::exp(s, arith::subf(s, *most, c)?)?;
            let scaled = arith::mulf(s, *sum, factor)?;
            // With infinities the sum may be NaN; exp(inf - c), the value of one of them, is the
            // result.
            s.select(
                s.cmpf(CmpFPredicate::Oeq, *most, s.float(f64::INFINITY, *most)?)?,
                factor,
                scaled,
            )
        }
        (Kind::Square, [sum, squares, n, ..]) => {
            let some = arith::maximumf(s, *n, s.float(1.0, *n)?)?;
            let off = arith::subf(s, arith::divf(s, *sum, some)?, c)?;
            let rest = arith::mulf(s, arith::mulf(s, off, off)?, *n)?;
            arith::addf(s, *squares, rest)
        }
        _ => Err("has no partial result".into()),
    }
}
