//! Transforms of a few complex numbers in registers.
use crate::math::emit::{Emit, Res};
use kiln_dialects::ir::*;
use std::f64::consts::{FRAC_1_SQRT_2, TAU};

/// A complex number; a real one has no imaginary part.
#[derive(Clone, Copy)]
pub struct Complex {
    pub re: Value,
    pub im: Option<Value>,
}

/// Emits butterflies of one direction.
pub struct Butterfly<'a> {
    pub e: &'a Emit,
    /// Whether the exponent's sign is positive.
    pub inverse: bool,
}

impl Butterfly<'_> {
    /// The transform of as many numbers as `x` has: radix 2 and 4, odd primes, and products of these.
    pub fn transform(&self, x: &[Complex]) -> Result<Vec<Complex>> {
        match *x {
            [_] => Ok(x.to_vec()),
            [a, b] => Ok(vec![self.add(a, b)?, self.sub(a, b)?]),
            [a, b, c, d] => {
                let (even, even_odd) = (self.add(a, c)?, self.sub(a, c)?);
                let (odd, turned) = (self.add(b, d)?, self.turned(self.sub(b, d)?, 1)?);
                Ok(vec![
                    self.add(even, odd)?,
                    self.add(even_odd, turned)?,
                    self.sub(even, odd)?,
                    self.sub(even_odd, turned)?,
                ])
            }
            _ => match factor(x.len()) {
                first if first == x.len() => self.prime(x),
                first => self.product(x, first),
            },
        }
    }

    /// A length `a b`: as `kiln-expand-ffts` (Cooley and Tukey, 1965).
    fn product(&self, x: &[Complex], a: usize) -> Result<Vec<Complex>> {
        let (n, b) = (x.len(), x.len() / a);
        let mut columns = vec![];
        for j in 0..b {
            let column: Vec<Complex> = x.iter().skip(j).step_by(b).copied().collect();
            let made = self.transform(&column)?.into_iter().enumerate();
            columns.push(made.map(|(k, v)| self.rotated(v, j * k, n)).collect::<Result<Vec<_>>>()?);
        }
        let mut all = x.to_vec();
        for k in 0..a {
            let row: Vec<Complex> = columns.iter().map(|column| column[k]).collect();
            for (i, v) in self.transform(&row)?.into_iter().enumerate() {
                all[k + a * i] = v;
            }
        }
        Ok(all)
    }

    /// An odd prime: sums and differences of x\[j\] and x\[p - j\] share their factors.
    fn prime(&self, x: &[Complex]) -> Result<Vec<Complex>> {
        let (p, half) = (x.len(), x.len() / 2);
        let pairs = (1..=half)
            .map(|j| Ok((self.add(x[j], x[p - j])?, self.sub(x[j], x[p - j])?)))
            .collect::<Result<Vec<_>>>()?;
        let mut all = x.to_vec();
        all[0] = pairs.iter().try_fold(x[0], |sum, (s, _)| self.add(sum, *s))?;
        for k in 1..=half {
            let angle = |j: usize| TAU * ((j + 1) * k % p) as f64 / p as f64;
            let mut even = x[0];
            let mut odd: Option<Complex> = None;
            for (j, (s, d)) in pairs.iter().enumerate() {
                even = self.scaled_sum(Some(even), *s, angle(j).cos())?;
                odd = Some(self.scaled_sum(odd, *d, angle(j).sin())?);
            }
            let turned = self.turned(odd.ok_or("has no pairs")?, 1)?;
            all[k] = self.add(even, turned)?;
            all[p - k] = self.sub(even, turned)?;
        }
        Ok(all)
    }

    /// `sum + x k`.
    fn scaled_sum(&self, sum: Option<Complex>, x: Complex, k: f64) -> Result<Complex> {
        let part = |sum: Option<Value>, x: Value| match sum {
            Some(sum) => self.e.fmac(x, k, sum),
            None => self.e.mul(x, self.e.c(k)?),
        };
        let im = match (sum.and_then(|s| s.im), x.im) {
            (sum, Some(x)) => Some(part(sum, x)?),
            (sum, None) => sum,
        };
        Ok(Complex { re: part(sum.map(|s| s.re), x.re)?, im })
    }

    /// Times the `k`-th power of the `n`-th root of unity, a constant.
    fn rotated(&self, x: Complex, k: usize, n: usize) -> Result<Complex> {
        let (octants, e) = (8 * (k % n), self.e);
        if !octants.is_multiple_of(n) {
            let angle = TAU * (k % n) as f64 / n as f64;
            let sin = if self.inverse { angle.sin() } else { -angle.sin() };
            return times(e, x, (e.c(angle.cos())?, e.c(sin)?));
        }
        let octant = octants / n;
        if octant.is_multiple_of(2) {
            return self.turned(x, octant / 2);
        }
        // An eighth turn: (1 - i) / sqrt(2), inverse (1 + i) / sqrt(2).
        let sum = self.add(x, self.turned(x, 1)?)?;
        let scaled = self.scaled_sum(None, sum, FRAC_1_SQRT_2)?;
        self.turned(scaled, octant / 2)
    }

    /// Turned by quarters, in the direction of the transform.
    fn turned(&self, x: Complex, quarters: usize) -> Result<Complex> {
        let e = self.e;
        let neg = |v: Option<Value>| v.map(|v| e.neg(v)).transpose();
        let im = || x.im.map_or_else(|| e.c(0.0), Ok);
        let quarters = if self.inverse { (4 - quarters % 4) % 4 } else { quarters % 4 };
        Ok(match quarters {
            0 => x,
            1 => Complex { re: im()?, im: Some(e.neg(x.re)?) },
            2 => Complex { re: e.neg(x.re)?, im: neg(x.im)? },
            _ => Complex { re: e.neg(im()?)?, im: Some(x.re) },
        })
    }

    fn add(&self, x: Complex, y: Complex) -> Result<Complex> {
        let im = match (x.im, y.im) {
            (Some(a), Some(b)) => Some(self.e.add(a, b)?),
            (a, b) => a.or(b),
        };
        Ok(Complex { re: self.e.add(x.re, y.re)?, im })
    }
    fn sub(&self, x: Complex, y: Complex) -> Result<Complex> {
        let im = match (x.im, y.im) {
            (Some(a), Some(b)) => Some(self.e.sub(a, b)?),
            (None, Some(b)) => Some(self.e.neg(b)?),
            (a, None) => a,
        };
        Ok(Complex { re: self.e.sub(x.re, y.re)?, im })
    }
}

/// The product with a complex number.
pub fn times(e: &Emit, x: Complex, (re, im): (Value, Value)) -> Result<Complex> {
    let Some(y) = x.im else {
        return Ok(Complex { re: e.mul(x.re, re)?, im: Some(e.mul(x.re, im)?) });
    };
    let cross = |a: Value, b: Value, c: Value| -> Res { e.fma(x.re, a, e.mul(b, c)?) };
    Ok(Complex { re: cross(re, e.neg(y)?, im)?, im: Some(cross(im, y, re)?) })
}

/// 4, or the least prime factor.
fn factor(n: usize) -> usize {
    if n.is_multiple_of(4) { 4 } else { (2..n).find(|p| n.is_multiple_of(*p)).unwrap_or(n) }
}
