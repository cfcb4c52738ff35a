//! Ops of `arith` and `math` on elements. Each rounds its result to its dtype.
use super::{
    elements::{Elements, form},
    floats, integers,
};
use crate::{
    error::{Error, Kind, OptionExt, Result},
    ir::{Op, OpType as _, arith, math},
    value::{DType, Data},
};

/// The value of a constant, of which equal elements are one.
fn constant(op: Op) -> Result<Elements> {
    let a = op.dyn_cast::<arith::Constant>().and_then(|o| o.value()).ok_or_malformed(op)?;
    let (dtype, width) = form(op.result(0).ty())?;
    let one = a.splat_value().unwrap_or(a);
    let data = match (one.as_f64(), one.as_i64()) {
        (Some(x), _) => Data::F(vec![x; width]),
        (_, Some(i)) => Data::I(vec![i; width]),
        _ => a.as_elements()?.data().clone(),
    };
    Ok(Elements::rounded(dtype, width, data))
}

/// The value of an op for each element of its operands. `active`: which elements count, if not
/// all do; the others may be anything.
///
/// # Errors
/// The op is none of these, or has no value, as a division by 0.
pub(super) fn apply(op: Op, x: &[Elements], active: Option<&[bool]>) -> Result<Elements> {
    let name = op.name();
    if op.isa::<arith::Constant>() {
        return constant(op);
    }
    if x.iter().any(|e| e.data().is_empty()) {
        return Err("takes no elements".into());
    }
    let (dtype, width) = form(op.result(0).ty())?;
    let count = x.iter().map(Elements::len).max().unwrap_or(1);
    let done = |data: Data| Ok(Elements::rounded(dtype, width, data));
    // Integers of one bit are even or odd, not zero or another number.
    let low = |i: i64| if dtype == DType::I1 { i & 1 } else { i };
    let counts = |i: usize| active.is_none_or(|a| a[i / width % a.len()]);
    match x {
        [a] => {
            if let Some(f) = floats::unary(&name) {
                return done(Data::F(a.floats()?.iter().map(|x| f(*x)).collect()));
            }
            if let Some(f) = integers::cast(&name) {
                let all = a.ints()?.iter().map(|i| low(f(a.dtype, *i)));
                return done(Data::I(all.collect()));
            }
            one(&name, a, dtype, &done)
        }
        [a, b] => {
            if let Some(f) = floats::binary(&name) {
                let (a, b) = (a.floats()?, b.floats()?);
                let all = (0..count).map(|i| f(a[i % a.len()], b[i % b.len()]));
                return done(Data::F(all.collect()));
            }
            if let Some(f) = integers::binary(&name) {
                let (of, a, b) = (a.dtype, a.ints()?, b.ints()?);
                let all = (0..count).map(|i| {
                    let (x, y) = (a[i % a.len()], b[i % b.len()]);
                    f(of, x, y)
                        .map(low)
                        .or((!counts(i)).then_some(0))
                        .ok_or_else(|| Error::from(format!("has no value for {x} and {y}")))
                });
                return done(Data::I(all.collect::<Result<_>>()?));
            }
            compared(op, a, b)
        }
        [c, a, b] if op.isa::<arith::Select>() => {
            let (each, chosen) = (if c.width == 1 { width } else { 1 }, c.ints()?);
            let taken = |i: usize| chosen[i / each % chosen.len()] != 0;
            let count = count.max(c.len() * each);
            Elements::chosen(count, &taken, [a, b])
        }
        [a, b, c] if op.isa::<math::Fma>() => {
            let (a, b, c) = (a.floats()?, b.floats()?, c.floats()?);
            let one = |i: usize| a[i % a.len()].mul_add(b[i % b.len()], c[i % c.len()]);
            done(Data::F((0..count).map(one).collect()))
        }
        _ => Err(unknown()),
    }
}

/// The error of an op that tile programs do not have.
pub(super) fn unknown() -> Error {
    Error::new(Kind::Unsupported, "is not an op that the interpreter runs in a tile program")
}

/// Comparisons.
fn compared(op: Op, a: &Elements, b: &Elements) -> Result<Elements> {
    let count = a.len().max(b.len());
    let all: Vec<bool> = if let Some(o) = op.dyn_cast::<arith::CmpI>() {
        let (of, p, a, b) = (a.dtype, o.predicate().ok_or_malformed(op)?, a.ints()?, b.ints()?);
        (0..count).map(|i| integers::compare(p, of, a[i % a.len()], b[i % b.len()])).collect()
    } else if let Some(o) = op.dyn_cast::<arith::CmpF>() {
        let (p, a, b) = (o.predicate().ok_or_malformed(op)?, a.floats()?, b.floats()?);
        (0..count).map(|i| floats::compare(p, a[i % a.len()], b[i % b.len()])).collect()
    } else {
        return Err(unknown());
    };
    let all = all.into_iter().map(i64::from).collect();
    Ok(Elements::exact(DType::I1, a.width, Data::I(all)))
}

/// Conversions between floats and integers, and of bits.
fn one(
    name: &str,
    a: &Elements,
    dtype: DType,
    done: &dyn Fn(Data) -> Result<Elements>,
) -> Result<Elements> {
    let float = |i: &i64| match name {
        arith::SIToFP::NAME => *i as f64,
        _ => integers::unsigned(a.dtype, *i) as f64,
    };
    match (name, a.data()) {
        (arith::SIToFP::NAME | arith::UIToFP::NAME, Data::I(all)) => {
            done(Data::F(all.iter().map(float).collect()))
        }
        (arith::FPToSI::NAME, Data::F(all)) => {
            done(Data::I(all.iter().map(|x| *x as i64).collect()))
        }
        (arith::FPToUI::NAME, Data::F(all)) => {
            done(Data::I(all.iter().map(|x| *x as u64 as i64).collect()))
        }
        (arith::Bitcast::NAME, Data::F(all)) => match (a.dtype, dtype) {
            (DType::F32, DType::I32) => {
                let bits = |x: &f64| i64::from((*x as f32).to_bits() as i32);
                done(Data::I(all.iter().map(bits).collect()))
            }
            (from, to) if from == to => Ok(a.clone()),
            _ => Err(unknown()),
        },
        (arith::Bitcast::NAME, Data::I(all)) if (a.dtype, dtype) == (DType::I32, DType::F32) => {
            let float = |i: &i64| f64::from(f32::from_bits(*i as i32 as u32));
            done(Data::F(all.iter().map(float).collect()))
        }
        _ => Err(unknown()),
    }
}
