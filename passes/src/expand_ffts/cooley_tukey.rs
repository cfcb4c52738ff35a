//! Discrete Fourier transforms as matrix products.
//!
//! A length `n = n1 m` is a transform of length n1 over j1 of `x[j1 m + j2]`, a factor
//! `w^(j2 k1)` of the nth root of unity w, and a transform of length m over j2, whose result k2 is
//! at `k1 + n1 k2` (Cooley and Tukey, "An algorithm for the machine calculation of complex Fourier
//! series", 1965). A transform of one factor is a product with its matrix.
use super::roots::{Roots, grid, stacked};
use crate::{
    decompose::tools::{Math, dtype, rank},
    expand_scans::LOOPS,
};
use kiln_dialects::{ir::*, ops::*, value::DType};

/// The largest factor that is one product, unless it is prime.
const RADIX: i64 = 32;
/// The largest prime factor that is one product.
const PRIME: i64 = 512;
/// One element of a dimension.
const ONE: Size = Size::Static(1);

/// A complex tensor `[B, n]`; a real one has no imaginary part.
#[derive(Clone, Copy)]
pub struct Parts {
    pub re: Value,
    pub im: Option<Value>,
}

/// A transform of `n` numbers, the second dimension.
#[derive(Clone, Copy)]
pub struct Dft<'a> {
    pub m: &'a Math<'a>,
    /// Length.
    pub n: i64,
    /// Whether the exponent's sign is positive.
    pub inverse: bool,
    /// Whether a kernel computes transforms of a length.
    pub fits: &'a dyn Fn(i64, DType) -> bool,
}

impl Dft<'_> {
    /// The transform.
    pub fn emit(self, x: Parts) -> Result<Parts> {
        let m = self.m;
        if (self.fits)(self.n, dtype(x.re)?) {
            let im = x.im.map_or_else(|| m.full_like(x.re, 0.0), Ok)?;
            let op = m.b.create_node(&Fft {
                kind: FftKind::C2c,
                re: x.re,
                im: Some(im),
                length: self.n,
                inverse: self.inverse,
                interleaved_input: false,
                interleaved_result: false,
            })?;
            op.set_attr(LOOPS, Attr::unit(m.b.ctx));
            return Ok(Parts { re: op.result(0), im: Some(op.result(1)) });
        }
        match factors(self.n) {
            Some(factors) => self.stages(x, &factors),
            None => self.chirp(x),
        }
    }

    /// One stage a factor.
    fn stages(self, x: Parts, factors: &[i64]) -> Result<Parts> {
        let (m, fixed) = (self.m, Size::Static);
        let (batch, d) = (m.size_of(x.re, 0)?, dtype(x.re)?);
        let (mut state, mut c) = match x.im {
            Some(im) => (stacked(m.b, x.re, im, 1)?, 2),
            None => (x.re, 1),
        };
        // The state is [B, m, r, c, k], where m is to be transformed, and r and k are. First, c
        // comes before m.
        let (mut rest, mut r, mut k) = (self.n, 1, 1);
        for (stage, n) in factors.iter().enumerate() {
            rest /= n;
            let (sizes, lhs_contract) = match stage {
                0 => (vec![batch, fixed(c), fixed(*n), fixed(rest)], vec![2, 1]),
                _ => {
                    (vec![batch, fixed(*n), fixed(rest), fixed(r), fixed(c), fixed(k)], vec![1, 4])
                }
            };
            let roots = Roots { n: fixed(*n), inverse: self.inverse };
            let product = m.b.add(&DotGeneral {
                lhs: m.reshape(state, &sizes)?,
                rhs: roots.matrix(m.b, d, (fixed(*n), c, fixed(*n)), 1.0)?,
                lhs_batch: vec![],
                rhs_batch: vec![],
                lhs_contract,
                rhs_contract: vec![0, 1],
                element_type: None,
            })?;
            (r, k, c) = (r * k, *n, 2);
            state = m.reshape(product, &[batch, fixed(rest), fixed(r), fixed(c), fixed(k)])?;
            if rest > 1 {
                let at = grid(m.b, &[fixed(rest), ONE, fixed(k)], 0, 2)?;
                let roots = Roots { n: fixed(k * rest), inverse: self.inverse };
                state = self.turned(state, roots.at(m.b, at)?)?;
            }
        }
        // The first factor's digit is the lowest one of the result, and the slowest of the state.
        let last = factors.len() as i64;
        let mut digits: Vec<Size> = factors.iter().map(|n| fixed(*n)).collect();
        digits.insert(factors.len() - 1, fixed(2));
        let state = m.reshape(state, &[&[batch], &digits[..]].concat())?;
        let order: Vec<i64> = [0, last, last + 1].into_iter().chain((1..last).rev()).collect();
        let state = m.transpose(state, &order)?;
        let state = m.reshape(state, &[batch, fixed(2), fixed(self.n)])?;
        let part = |i| {
            let v = self.part(state, 1, i, 1)?;
            m.reshape(v, &[batch, fixed(self.n)])
        };
        Ok(Parts { re: part(0)?, im: Some(part(1)?) })
    }

    /// As a cyclic convolution of a power of two: `jk = (j^2 + k^2 - (k - j)^2) / 2` (Bluestein, "A
    /// linear filtering approach to the computation of discrete Fourier transform", 1970).
    fn chirp(self, x: Parts) -> Result<Parts> {
        let (m, n) = (self.m, self.n);
        let d = dtype(x.re)?;
        let length = 2 * n.cast_unsigned().next_power_of_two().cast_signed();
        let roots = Roots { n: Size::Static(2 * n), inverse: self.inverse };
        let squares = grid(m.b, &[Size::Static(n)], 0, 0)?;
        let chirp = roots.at(m.b, squares)?;
        let chirp = (m.convert(chirp.0, d)?, m.convert(chirp.1, d)?);
        // The conjugate, at the distance from 0 on the circle; 0 where that is not below n.
        let i = m.iota(&[ONE, Size::Static(length)], 1)?;
        let count = |k: i64| m.number_like(Size::Static(k), i);
        let distance = m.binary(BinaryKind::Min, i, m.sub(count(length)?, i)?)?;
        let (re, im) = roots.at(m.b, m.mul(distance, distance)?)?;
        let inside = m.compare(CompareKind::Lt, distance, count(n)?)?;
        let part = |v: Value, by: f64| {
            let scaled = m.mul(v, m.full_like(v, by)?)?;
            m.convert(m.select(inside, scaled, m.full_like(v, 0.0)?)?, d)
        };
        let scale = 1.0 / length as f64;
        let filter = Parts { re: part(re, scale)?, im: Some(part(im, -scale)?) };
        let forward = Dft { n: length, inverse: false, ..self };
        // Of numbers that are known, so it runs once, at load.
        let filter = forward.emit(filter)?;
        let x = self.times(x, chirp)?;
        let padded = |input: Value| {
            let value = m.b.splat(d, &[], 0.0)?;
            let high = vec![Size::Static(0), Size::Static(length - n)];
            m.b.add(&Pad { input, value, low: vec![Size::Static(0); 2], high })
        };
        let x = forward.emit(Parts { re: padded(x.re)?, im: x.im.map(padded).transpose()? })?;
        let flat = |v: Value| m.reshape(v, &[Size::Static(length)]);
        let filter = (flat(filter.re)?, flat(filter.im.ok_or("has no imaginary part")?)?);
        let x = Dft { inverse: true, ..forward }.emit(self.times(x, filter)?)?;
        let first = |v: Value| self.part(v, 1, 0, n);
        self.times(Parts { re: first(x.re)?, im: x.im.map(first).transpose()? }, chirp)
    }

    /// The first `n / 2 + 1` results for real `[B, n]`; the others are their conjugates. An even
    /// length is half as many complex numbers: Press et al., "Numerical Recipes", 12.3.
    pub fn of_real(self, re: Value) -> Result<Parts> {
        let (m, half) = (self.m, self.n / 2);
        if !self.halves(re)? {
            let all = self.emit(Parts { re, im: None })?;
            let first = |v: Value| self.part(v, 1, 0, half + 1);
            return Ok(Parts { re: first(all.re)?, im: all.im.map(first).transpose()? });
        }
        let pairs = m.reshape(re, &[m.size_of(re, 0)?, Size::Static(half), Size::Static(2)])?;
        let of = |i| {
            let v = self.part(pairs, 2, i, 1)?;
            m.reshape(v, &[m.size_of(re, 0)?, Size::Static(half)])
        };
        let z = Dft { n: half, ..self }.emit(Parts { re: of(0)?, im: Some(of(1)?) })?;
        let around = |v: Value| {
            let first = self.part(v, 1, 0, 1)?;
            let v = m.b.add(&Concat { inputs: vec![v, first], axis: 1 })?;
            m.mul(v, m.full_like(v, 0.5)?)
        };
        let z = Parts { re: around(z.re)?, im: z.im.map(around).transpose()? };
        let (even, odd) = self.split(z)?;
        let (re, im) = self.powers(half + 1, dtype(re)?)?;
        // -i w^k.
        let odd = self.times(odd, (im, m.unary(UnaryKind::Neg, re)?))?;
        self.sum(even, odd)
    }

    /// The real result `[B, n]` of a transform of `n / 2 + 1` numbers, the others being their
    /// conjugates. Imaginary parts of the first and, for even n, the last are ignored.
    pub fn to_real(self, x: Parts) -> Result<Value> {
        let (m, half) = (self.m, self.n / 2);
        let (batch, d) = (m.size_of(x.re, 0)?, dtype(x.re)?);
        let im = x.im.ok_or("has no imaginary part")?;
        let x = Parts { re: x.re, im: Some(self.without_ends(im)?) };
        if !self.halves(x.re)? {
            // For even n the middle is not repeated.
            let rest = |v: Value, sign: f64| {
                let back = self.part(v, 1, 1, (self.n - 1) / 2)?;
                let back = m.b.add(&Reverse { input: back, dims: vec![1] })?;
                let back = m.mul(back, m.full_like(back, sign)?)?;
                m.b.add(&Concat { inputs: vec![v, back], axis: 1 })
            };
            let im = x.im.map(|im| rest(im, -1.0)).transpose()?;
            return Ok(self.emit(Parts { re: rest(x.re, 1.0)?, im })?.re);
        }
        let (even, odd) = self.split(x)?;
        let first = |v: Value| self.part(v, 1, 0, half);
        let cut = |x: Parts| -> Result<Parts> {
            Ok(Parts { re: first(x.re)?, im: x.im.map(first).transpose()? })
        };
        let (re, im) = self.powers(half, d)?;
        // i w^k.
        let odd = self.times(cut(odd)?, (m.unary(UnaryKind::Neg, im)?, re))?;
        let z = Dft { n: half, ..self }.emit(self.sum(cut(even)?, odd)?)?;
        let z = stacked(m.b, z.re, z.im.ok_or("has no imaginary part")?, 2)?;
        m.reshape(z, &[batch, Size::Static(self.n)])
    }

    /// Whether a real transform is a complex one of half the length.
    fn halves(self, like: Value) -> Result<bool> {
        let half = self.n / 2;
        let made = (self.fits)(half, dtype(like)?) || factors(half).is_some();
        Ok(self.n % 2 == 0 && made)
    }

    /// For a sequence of `h + 1` numbers the sum and the difference of `z[k]` and the conjugate of
    /// `z[h - k]`.
    fn split(self, z: Parts) -> Result<(Parts, Parts)> {
        let m = self.m;
        let back = |input: Value| m.b.add(&Reverse { input, dims: vec![1] });
        let im = z.im.ok_or("has no imaginary part")?;
        let (mirror, mirror_im) = (back(z.re)?, back(im)?);
        let even = Parts { re: m.add(z.re, mirror)?, im: Some(m.sub(im, mirror_im)?) };
        let odd = Parts { re: m.sub(z.re, mirror)?, im: Some(m.add(im, mirror_im)?) };
        Ok((even, odd))
    }

    /// The first powers of the root of unity.
    fn powers(self, count: i64, d: DType) -> Result<(Value, Value)> {
        let k = self.m.iota(&[Size::Static(count)], 0)?;
        let roots = Roots { n: Size::Static(self.n), inverse: self.inverse };
        let (re, im) = roots.at(self.m.b, k)?;
        Ok((self.m.convert(re, d)?, self.m.convert(im, d)?))
    }

    /// Imaginary parts of half a spectrum, of which the first and, for even n, the last are 0.
    fn without_ends(self, im: Value) -> Result<Value> {
        let m = self.m;
        let k = m.iota(&m.sizes_of(im)?, 1)?;
        let at = |n: i64| m.compare(CompareKind::Eq, k, m.number_like(Size::Static(n), k)?);
        let mut end = at(0)?;
        if self.n % 2 == 0 {
            end = m.binary(BinaryKind::Or, end, at(self.n / 2)?)?;
        }
        m.select(end, m.full_like(im, 0.0)?, im)
    }

    /// The product with known numbers `[n]`.
    fn times(self, x: Parts, (re, im): (Value, Value)) -> Result<Parts> {
        let m = self.m;
        let row = |v: Value| m.broadcast_to(v, &[1], x.re);
        let (c, s) = (row(re)?, row(im)?);
        let Some(y) = x.im else {
            return Ok(Parts { re: m.mul(x.re, c)?, im: Some(m.mul(x.re, s)?) });
        };
        let re = m.sub(m.mul(x.re, c)?, m.mul(y, s)?)?;
        Ok(Parts { re, im: Some(m.add(m.mul(x.re, s)?, m.mul(y, c)?)?) })
    }

    /// The product of `[.., 2, k]`, both parts, with known numbers that broadcast to `[.., k]`.
    fn turned(self, x: Value, (re, im): (Value, Value)) -> Result<Value> {
        let (m, d) = (self.m, dtype(x)?);
        let axis = rank(re).saturating_sub(1);
        let known = |a, b| m.convert(stacked(m.b, a, b, axis)?, d);
        let (same, cross) = (known(re, re)?, known(m.unary(UnaryKind::Neg, im)?, im)?);
        let swapped = m.b.add(&Reverse { input: x, dims: vec![rank(x) as i64 - 2] })?;
        crate::formula::value(m.b, |f| f.of(x) * f.of(same) + f.of(swapped) * f.of(cross))
    }

    fn sum(self, x: Parts, y: Parts) -> Result<Parts> {
        let im = x.im.zip(y.im).map(|(a, b)| self.m.add(a, b)).transpose()?;
        Ok(Parts { re: self.m.add(x.re, y.re)?, im })
    }

    /// `count` elements of a dimension.
    fn part(self, input: Value, axis: usize, from: i64, count: i64) -> Result<Value> {
        let mut sizes = self.m.sizes_of(input)?;
        let mut offsets = vec![Size::Static(0); sizes.len()];
        let strides = vec![1; sizes.len()];
        if let (Some(size), Some(offset)) = (sizes.get_mut(axis), offsets.get_mut(axis)) {
            (*size, *offset) = (Size::Static(count), Size::Static(from));
        }
        self.m.b.add(&Slice { input, offsets, sizes, strides })
    }
}

/// A length as factors of at most 32, or primes of at most 512; `None` if there are larger primes.
fn factors(n: i64) -> Option<Vec<i64>> {
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
