//! Powers of integers.
use super::scalar::Scalars;
use kiln_dialects::{
    ir::{Attr, Value},
    value::DType,
};

/// x^y modulo two to the bits; for negative y what rounding toward zero gives, and 0 for 0. By squaring, one step for each bit that an exponent
/// can have: a loop would keep the element out of vectors.
pub fn int_pow(s: &Scalars, x: Value, y: Value, d: DType) -> Result<Value, String> {
    let known = y.def().filter(|o| o.is("arith.constant")).and_then(|o| o.attr("value")).and_then(Attr::as_i64).filter(|n| *n >= 0);
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
                // The highest bit of an i8 is the number -128.
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
