//! Discrete Fourier transforms as matrix products.
//!
//! A length `n = n1 m` is a transform of length n1 over j1 of `x[j1 m + j2]`, a factor
//! `w^(j2 k1)` of the nth root of unity w, and a transform of length m over j2, whose result k2 is
//! at `k1 + n1 k2` (Cooley and Tukey, "An algorithm for the machine calculation of complex Fourier
//! series", 1965). A transform of one factor is a product with its matrix.
use super::super::{Cx, formula as real, tools::*};
use super::roots::{Roots, factors, grid, matrix, times};
use kiln_dialects::{ir::*, ops::*, value::DType};

/// Transforms `[B, 2, n]`, real and imaginary parts, or `[B, 1, n]`, real numbers.
#[derive(Clone, Copy)]
pub(super) struct Dft {
    /// Length.
    pub n: i64,
    /// Whether the exponent's sign is positive.
    pub inverse: bool,
    /// Factor of the result.
    pub scale: f64,
}

/// One element of a dimension.
pub(super) const ONE: Size = Size::Static(1);

/// A part of a dimension.
pub(super) fn part(cx: &Cx, input: Value, axis: usize, from: i64, n: Size) -> Result<Value> {
    let mut sizes = cx.b.sizes_of(input)?;
    let mut offsets = vec![Size::Static(0); sizes.len()];
    let strides = vec![1; sizes.len()];
    if let (Some(size), Some(offset)) = (sizes.get_mut(axis), offsets.get_mut(axis)) {
        (*size, *offset) = (n, Size::Static(from));
    }
    cx.b.add(&Slice { input, offsets, sizes, strides })
}

impl Dft {
    /// The transform.
    pub fn emit(self, cx: &Cx, x: Value) -> Result<Value> {
        match factors(self.n) {
            Some(factors) => self.stages(cx, x, &factors),
            None => self.chirp(cx, x),
        }
    }

    /// One stage a factor.
    fn stages(self, cx: &Cx, x: Value, factors: &[i64]) -> Result<Value> {
        let (batch, d) = (cx.b.size_of(x, 0)?, dtype_of(x)?);
        let fixed = Size::Static;
        let mut c = x.ty().dims().get(1).and_then(|d| d.known()).unwrap_or(2);
        // The state is [B, m, r, c, k], where m is to be transformed, and r and k are. First, c
        // comes before m.
        let (mut state, mut m, mut r, mut k) = (x, self.n, 1, 1);
        for (stage, n) in factors.iter().enumerate() {
            m /= n;
            let (sizes, contracted) = match stage {
                0 => (vec![batch, fixed(c), fixed(*n), fixed(m)], vec![2, 1]),
                _ => (vec![batch, fixed(*n), fixed(m), fixed(r), fixed(c), fixed(k)], vec![1, 4]),
            };
            let scale = if stage == 0 { self.scale } else { 1.0 };
            let product = cx.b.add(&DotGeneral {
                lhs: cx.reshape(state, sizes)?,
                rhs: self.matrix(cx, d, (*n, c), scale)?,
                lhs_batch: vec![],
                rhs_batch: vec![],
                lhs_contract: contracted,
                rhs_contract: vec![0, 1],
                element_type: None,
            })?;
            (r, k, c) = (r * k, *n, 2);
            state = cx.reshape(product, vec![batch, fixed(m), fixed(r), fixed(c), fixed(k)])?;
            if m > 1 {
                let at = grid(cx, &[fixed(m), ONE, fixed(k)], 0, 2)?;
                state = times(
                    cx,
                    state,
                    Roots { n: Size::Static(k * m), inverse: self.inverse }.at(cx, at)?,
                )?;
            }
        }
        // The first factor's digit is the lowest one of the result, and the slowest of the state.
        let last = factors.len() as i64;
        let mut digits: Vec<Size> = factors.iter().map(|n| fixed(*n)).collect();
        digits.insert(factors.len() - 1, fixed(2));
        let state = cx.reshape(state, [&[batch], &digits[..]].concat())?;
        let order = [0, last, last + 1].into_iter().chain((1..last).rev()).collect();
        let state = cx.transpose(state, order)?;
        cx.reshape(state, vec![batch, fixed(2), fixed(self.n)])
    }

    /// The matrix of one factor.
    fn matrix(self, cx: &Cx, d: DType, (n, parts): (i64, i64), scale: f64) -> Result<Value> {
        let n = Size::Static(n);
        matrix(cx, d, Roots { n, inverse: self.inverse }, (n, parts, n), scale)
    }

    /// As a cyclic convolution of a power of two: `jk = (j^2 + k^2 - (k - j)^2) / 2` (Bluestein, "A
    /// linear filtering approach to the computation of discrete Fourier transform", 1970).
    fn chirp(self, cx: &Cx, x: Value) -> Result<Value> {
        let n = self.n;
        let length = 2 * n.cast_unsigned().next_power_of_two().cast_signed();
        let roots = Roots { n: Size::Static(2 * n), inverse: self.inverse };
        let squares = |count| grid(cx, &[Size::Static(count), ONE], 0, 0);
        let line = |v| cx.reshape(v, vec![Size::Static(n)]);
        let chirp = roots.at(cx, squares(n)?)?;
        let chirp = (line(chirp.0)?, line(chirp.1)?);
        // The conjugate, at the distance from 0 on the circle; 0 where that is not below n.
        let circle = [Size::Static(1), Size::Static(length)];
        let i = cx.iota(DType::I64, circle.to_vec(), 1)?;
        let distance = real::value(cx, |f| {
            let i = f.of(i);
            i.min(i * -1.0 + length as f64)
        })?;
        let at = cx.binary(BinaryKind::Mul, distance, distance)?;
        let (re, im) = roots.at(cx, at)?;
        let (re, im) = real::pair(cx, |f| {
            let (inside, scale) = (f.of(distance).lt(n as f64), self.scale / length as f64);
            let part = |v: Value, by: f64| inside.select(f.of(v) * by, 0.0);
            (part(re, scale), part(im, -scale))
        })?;
        let forward = Dft { n: length, inverse: false, scale: 1.0 };
        // Of numbers that are known, so it runs once, at load.
        let filter = forward.emit(cx, cx.stacked(re, im, 1)?)?;
        let filter = |at| cx.reshape(part(cx, filter, 1, at, ONE)?, vec![Size::Static(length)]);
        let filter = (filter(0)?, filter(1)?);
        let x = times(cx, self.complex(cx, x)?, chirp)?;
        let zero = cx.number(dtype_of(x)?, 0.0)?;
        let high = vec![Size::Static(0), Size::Static(0), Size::Static(length - n)];
        let low = vec![Size::Static(0); 3];
        let x = cx.b.add(&Pad { input: x, value: zero, low, high })?;
        let x = times(cx, forward.emit(cx, x)?, filter)?;
        let x = Dft { inverse: true, ..forward }.emit(cx, x)?;
        times(cx, part(cx, x, 2, 0, Size::Static(n))?, chirp)
    }

    /// Real numbers as complex ones.
    fn complex(self, cx: &Cx, x: Value) -> Result<Value> {
        if x.ty().dims().get(1).and_then(|d| d.known()) == Some(2) {
            return Ok(x);
        }
        let zero = cx.full_like(x, 0.0)?;
        cx.b.add(&Concat { inputs: vec![x, zero], axis: 1 })
    }

    /// The first `n / 2 + 1` results for real `[B, 1, n]`; the others are their conjugates. An even
    /// length is half as many complex numbers: Press et al., "Numerical Recipes", 12.3.
    pub fn of_real(self, cx: &Cx, x: Value) -> Result<Value> {
        let half = self.n / 2;
        if self.n % 2 == 1 || factors(half).is_none() {
            return part(cx, self.emit(cx, x)?, 2, 0, Size::Static(half + 1));
        }
        let pairs = vec![cx.b.size_of(x, 0)?, Size::Static(half), Size::Static(2)];
        let z = Dft { n: half, inverse: self.inverse, scale: self.scale * 0.5 };
        let pairs = cx.transpose(cx.reshape(x, pairs)?, vec![0, 2, 1])?;
        let z = z.emit(cx, pairs)?;
        let (z, mirror) = self.mirrored(cx, z)?;
        let even = cx.binary(BinaryKind::Add, z, mirror)?;
        let odd = cx.binary(BinaryKind::Sub, z, mirror)?;
        let (re, im) = self.powers(cx, half + 1)?;
        // -i w^k.
        let by = (im, cx.unary(UnaryKind::Neg, re)?);
        cx.binary(BinaryKind::Add, even, times(cx, odd, by)?)
    }

    /// `z[k]` and the conjugate of `z[h - k]` for k from 0 to h, where `z[h]` is `z[0]`.
    fn mirrored(self, cx: &Cx, z: Value) -> Result<(Value, Value)> {
        let first = part(cx, z, 2, 0, ONE)?;
        let z = cx.b.add(&Concat { inputs: vec![z, first], axis: 2 })?;
        Ok((z, self.reversed(cx, z)?))
    }
    /// The conjugates in reversed order.
    fn reversed(self, cx: &Cx, z: Value) -> Result<Value> {
        let back = cx.b.add(&Reverse { input: z, dims: vec![2] })?;
        let c = cx.iota(DType::I64, vec![Size::Static(2), Size::Static(1)], 0)?;
        real::value(cx, |f| {
            let z = f.of(back);
            f.of(c).eq(0.0).select(z, -z)
        })
    }

    /// The first powers of the root of unity.
    fn powers(self, cx: &Cx, count: i64) -> Result<(Value, Value)> {
        let k = cx.iota(DType::I64, vec![Size::Static(count)], 0)?;
        Roots { n: Size::Static(self.n), inverse: self.inverse }.at(cx, k)
    }
    /// Half a spectrum `[B, 2, h + 1]` whose first and last imaginary part are 0.
    fn without_ends(self, cx: &Cx, x: Value) -> Result<Value> {
        let half = self.n / 2;
        let sizes = vec![Size::Static(2), Size::Static(half + 1)];
        let (c, k) = (cx.iota(DType::I64, sizes.clone(), 0)?, cx.iota(DType::I64, sizes, 1)?);
        real::value(cx, |f| {
            let (k, c, x) = (f.of(k), f.of(c), f.of(x));
            let end = (k.eq(0.0) | k.eq(half as f64)) & c.eq(1.0);
            end.select(0.0, x)
        })
    }

    /// The real result `[B, n]` of a transform of `n / 2 + 1` numbers `[B, 2, n / 2 + 1]`, the others
    /// being their conjugates. Imaginary parts of the first and, for even n, the last are ignored.
    pub fn to_real(self, cx: &Cx, x: Value) -> Result<Value> {
        let (half, batch, x) = (self.n / 2, cx.b.size_of(x, 0)?, self.complex(cx, x)?);
        if self.n % 2 == 1 || factors(half).is_none() {
            // For even n the middle is not repeated.
            let rest = part(cx, x, 2, 1, Size::Static((self.n - 1) / 2))?;
            let rest = self.reversed(cx, rest)?;
            let z = cx.b.add(&Concat { inputs: vec![x, rest], axis: 2 })?;
            let z = part(cx, self.emit(cx, z)?, 1, 0, ONE)?;
            return cx.reshape(z, vec![batch, Size::Static(self.n)]);
        }
        let x = self.without_ends(cx, x)?;
        let back = self.reversed(cx, x)?;
        let first = |v| part(cx, v, 2, 0, Size::Static(half));
        let (z, mirror) = (first(x)?, first(back)?);
        let even = cx.binary(BinaryKind::Add, z, mirror)?;
        let odd = cx.binary(BinaryKind::Sub, z, mirror)?;
        let (re, im) = self.powers(cx, half)?;
        // i w^k.
        let by = (cx.unary(UnaryKind::Neg, im)?, re);
        let z = cx.binary(BinaryKind::Add, even, times(cx, odd, by)?)?;
        let z = Dft { n: half, inverse: self.inverse, scale: self.scale }.emit(cx, z)?;
        let z = cx.transpose(z, vec![0, 2, 1])?;
        cx.reshape(z, vec![batch, Size::Static(self.n)])
    }
}
