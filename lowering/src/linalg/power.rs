//! Powers: expansion of x^y into products.
use crate::linalg::scalar::Scalars;
use kiln_dialects::{
    Result,
    ir::{Attr, Value},
    value::DType,
};

/// x^y of floats. For exponents 2, 3, 4 and -1, products are as exact as the general power (1.5 ulp
/// of f32), including overflow, subnormals and signed zeros; a general power takes about fifty
/// times as long.
pub fn float_pow(s: &Scalars, x: Value, y: Value) -> Result<Value> {
    let widened = |v: Value| v.def().filter(|o| o.is("arith.extf")).map_or(v, |o| o.operand(0));
    let known = widened(y)
        .def()
        .filter(|o| o.is("arith.constant"))
        .and_then(|o| o.attr("value"))
        .and_then(Attr::as_f64);
    let product = |a: Value, b: Value| s.same("arith.mulf", &[a, b]);
    match known {
        Some(-1.0) => s.same("arith.divf", &[s.float(1.0, x)?, x]),
        Some(2.0) => product(x, x),
        Some(3.0) => product(product(x, x)?, x),
        Some(4.0) => product(x, x).and_then(|square| product(square, square)),
        _ => s.same("math.powf", &[x, y]),
    }
}

/// x^y of integers, modulo 2^bits. For a negative y the result is rounded toward zero, and 0 if x
/// is 0. Binary exponentiation, unrolled over the bits that an exponent can have: a loop would
/// prevent vectorisation.
pub fn int_pow(s: &Scalars, x: Value, y: Value, d: DType) -> Result<Value> {
    let known = y
        .def()
        .filter(|o| o.is("arith.constant"))
        .and_then(|o| o.attr("value"))
        .and_then(Attr::as_i64)
        .filter(|n| *n >= 0);
    let unsigned = d == DType::UI8;
    let all = i64::from(d.bits()) - i64::from(!unsigned);
    let bits = known.map_or(all, |n| i64::from(64 - n.leading_zeros())).min(all);
    let (zero, one) = (s.int(0, x)?, s.int(1, x)?);
    let (mut power, mut base) = (one, x);
    for k in 0..bits {
        let more = s.same("arith.muli", &[power, base])?;
        power = match known {
            Some(n) if n >> k & 1 == 1 => more,
            Some(_) => power,
            None => {
                // As an i8, the highest bit is the number -128.
                let mask = if unsigned && k == 7 { -128 } else { 1 << k };
                let on = s.cmpi(1, s.same("arith.andi", &[y, s.int(mask, y)?])?, zero)?;
                s.select(on, more, power)?
            }
        };
        if k + 1 < bits {
            base = s.same("arith.muli", &[base, base])?;
        }
    }
    if unsigned || known.is_some() {
        return Ok(power);
    }
    let minus = s.int(-1, x)?;
    let odd = s.cmpi(1, s.same("arith.andi", &[y, one])?, zero)?;
    let sign = s.select(s.cmpi(0, x, minus)?, s.select(odd, minus, one)?, zero)?;
    let inverse = s.select(s.cmpi(0, x, one)?, one, sign)?;
    s.select(s.cmpi(2, y, zero)?, inverse, power)
}
