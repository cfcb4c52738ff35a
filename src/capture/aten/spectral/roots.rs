//! Roots of unity, computed in f64 by ops on numbers that are known: programs run these once, when
//! they are loaded.
use super::super::{Cx, formula as real, tools::*};
use kiln_dialects::{ir::*, ops::*, value::DType};

/// The largest factor that is one product, unless it is prime.
const RADIX: i64 = 32;
/// The largest prime factor that is one product.
const PRIME: i64 = 512;

/// Powers of `e^(-2 pi i / n)`, or with a positive exponent if `inverse`.
#[derive(Clone, Copy)]
pub(super) struct Roots {
    pub n: Size,
    pub inverse: bool,
}

impl Roots {
    /// The powers of exponents that are not negative: real and imaginary parts, in f64. The angle is
    /// reduced to a quarter, so that multiples of a quarter are exact.
    pub fn at(self, cx: &Cx, exponents: Value) -> Result<(Value, Value)> {
        real::pair(cx, |f| {
            let k = f.of(exponents);
            let n = match self.n.known() {
                Some(n) => k.number(n as f64),
                None => f.emit(cx.size_data(self.n, k.dtype())),
            };
            let four = k.remainder(n) * 4.0;
            let quarter = four.floor_div(n);
            let rest = (four - quarter * n).to(DType::F64);
            let angle = rest / n.to(DType::F64) * std::f64::consts::FRAC_PI_2;
            let (sin, cos) = (angle.sin(), angle.cos());
            let odd = quarter.eq(1.0) | quarter.eq(3.0);
            let (re, im) = (odd.select(sin, cos), odd.select(cos, sin));
            let left = quarter.eq(1.0) | quarter.eq(2.0);
            let below = quarter.ge(2.0);
            let below = if self.inverse { below } else { !below };
            (left.select(-re, re), below.select(-im, im))
        })
    }
}

/// The products of the indices of two dimensions of a shape.
pub(super) fn grid(cx: &Cx, shape: &[Size], i: usize, j: usize) -> Result<Value> {
    let sizes = || shape.to_vec();
    let (i, j) = (cx.iota(DType::I64, sizes(), i)?, cx.iota(DType::I64, sizes(), j)?);
    cx.binary(BinaryKind::Mul, i, j)
}

/// The product of complex numbers `[.., 2, k]` with known ones, whose parts broadcast to `[.., k]`.
pub(super) fn times(cx: &Cx, x: Value, (re, im): (Value, Value)) -> Result<Value> {
    let (d, axis) = (dtype_of(x)?, rank_of(re).saturating_sub(1));
    let same = cx.convert(cx.stacked(re, re, axis)?, d)?;
    let cross = cx.convert(cx.stacked(cx.unary(UnaryKind::Neg, im)?, im, axis)?, d)?;
    let swapped = cx.b.add(&Reverse { input: x, dims: vec![rank_of(x) as i64 - 2] })?;
    real::value(cx, |f| f.of(x) * f.of(same) + f.of(swapped) * f.of(cross))
}

/// The matrix `[n, parts, 2 k]` of a transform from n to k numbers: places and parts of its input,
/// parts and places of its result. Real numbers have one part.
pub(super) fn matrix(
    cx: &Cx,
    d: DType,
    roots: Roots,
    (n, parts, k): (Size, i64, Size),
    scale: f64,
) -> Result<Value> {
    let (re, im) = roots.at(cx, grid(cx, &[n, k], 0, 1)?)?;
    let (re, im) = real::pair(cx, |f| (f.of(re) * scale, f.of(im) * scale))?;
    let mut all = cx.stacked(re, im, 1)?;
    if parts == 2 {
        let turned = cx.stacked(cx.unary(UnaryKind::Neg, im)?, re, 1)?;
        all = cx.stacked(all, turned, 1)?;
    }
    let sizes = vec![n, Size::Static(parts), cx.size_mul(k, Size::Static(2))?];
    cx.reshape(cx.convert(all, d)?, sizes)
}

/// A length as factors of at most 32, or primes of at most 512; `None` if there are larger primes.
pub(super) fn factors(n: i64) -> Option<Vec<i64>> {
    let (mut rest, mut primes, mut p) = (n, vec![], 2);
    while p * p <= rest {
        while rest % p == 0 {
            primes.push(p);
            rest /= p;
        }
        p += 1;
    }
    if rest > 1 {
        primes.push(rest);
    }
    let mut all: Vec<i64> = vec![];
    for p in primes.into_iter().rev() {
        if p > PRIME {
            return None;
        }
        match all.iter_mut().find(|f| **f * p <= RADIX) {
            Some(f) => *f *= p,
            None => all.push(p),
        }
    }
    Some(if all.is_empty() { vec![1] } else { all })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_products_of_small_factors() {
        for (n, want) in [(1, vec![1]), (7, vec![7]), (1024, vec![32, 32]), (521 * 2, vec![])] {
            assert_eq!(factors(n).unwrap_or_default(), want, "{n}");
        }
        for n in [12, 360, 1000, 509 * 4, 3 * 11 * 13] {
            let all = factors(n).unwrap_or_default();
            assert_eq!(all.iter().product::<i64>(), n);
        }
    }
}
