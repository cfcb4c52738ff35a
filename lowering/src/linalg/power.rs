//! Powers: expansion of x^y into products.
use crate::linalg::scalar::Scalars;
use kiln_dialects::{ir::*, value::DType};

impl Scalars {
    /// x^y of floats. For exponents 2, 3, 4 and -1, products are as exact as the general power (1.5
    /// ulp of f32), including overflow, subnormals and signed zeros; a general power takes about
    /// fifty times as long.
    pub(super) fn float_pow(&self, x: Value, y: Value) -> Result<Value> {
        let widened = |v: Value| v.def_as::<arith::ExtF>().map_or(v, |o| o.operand(0));
        let known =
            widened(y).def_as::<arith::Constant>().and_then(|o| o.value()).and_then(Attr::as_f64);
        let product = |a: Value, b: Value| arith::mulf(self, a, b);
        match known {
            Some(-1.0) => arith::divf(self, self.float(1.0, x)?, x),
            Some(2.0) => product(x, x),
            Some(3.0) => product(product(x, x)?, x),
            Some(4.0) => product(x, x).and_then(|square| product(square, square)),
            _ => math::powf(self, x, y),
        }
    }

    /// x^y of integers, modulo 2^bits. For a negative y the result is rounded toward zero, and 0 if
    /// x is 0. Binary exponentiation, unrolled over the bits that an exponent can have: a loop
    /// would prevent vectorisation.
    pub(super) fn int_pow(&self, x: Value, y: Value, d: DType) -> Result<Value> {
        let known = y
            .def_as::<arith::Constant>()
            .and_then(|o| o.value())
            .and_then(Attr::as_i64)
            .filter(|n| *n >= 0);
        let unsigned = d == DType::UI8;
        let all = i64::from(d.bits()) - i64::from(!unsigned);
        let bits = known.map_or(all, |n| i64::from(64 - n.leading_zeros())).min(all);
        let (zero, one) = (self.int(0, x)?, self.int(1, x)?);
        let (mut power, mut base) = (one, x);
        for k in 0..bits {
            let more = arith::muli(self, power, base)?;
            power = match known {
                Some(n) if n >> k & 1 == 1 => more,
                Some(_) => power,
                None => {
                    // As an i8, the highest bit is the number -128.
                    let mask = if unsigned && k == 7 { -128 } else { 1 << k };
                    let on = self.cmpi(
                        CmpIPredicate::Ne,
                        arith::andi(self, y, self.int(mask, y)?)?,
                        zero,
                    )?;
                    self.select(on, more, power)?
                }
            };
            if k + 1 < bits {
                base = arith::muli(self, base, base)?;
            }
        }
        if unsigned || known.is_some() {
            return Ok(power);
        }
        let minus = self.int(-1, x)?;
        let odd = self.cmpi(CmpIPredicate::Ne, arith::andi(self, y, one)?, zero)?;
        let sign = self.select(
            self.cmpi(CmpIPredicate::Eq, x, minus)?,
            self.select(odd, minus, one)?,
            zero,
        )?;
        let inverse = self.select(self.cmpi(CmpIPredicate::Eq, x, one)?, one, sign)?;
        self.select(self.cmpi(CmpIPredicate::Slt, y, zero)?, inverse, power)
    }
}
