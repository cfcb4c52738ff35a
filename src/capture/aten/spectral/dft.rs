//! Discrete Fourier transforms as matrix products.
//!
//! A length `n = n1 m` is a transform of length n1 over j1 of `x[j1 m + j2]`, a factor
//! `w^(j2 k1)` of the nth root of unity w, and a transform of length m over j2, whose result k2 is
//! at `k1 + n1 k2` (Cooley and Tukey, "An algorithm for the machine calculation of complex Fourier
//! series", 1965). A transform of one factor is a product with its matrix.
use super::super::{Cx, tools::*};
use super::roots::{factors, multiply, root, transform};
use kiln_dialects::{ir::*, ops::*, value::DType};

/// Transforms along the middle dimension of `[B, n, 2]`, or of `[B, n, 1]` for real numbers.
#[derive(Clone, Copy)]
pub(super) struct Dft {
    /// Length.
    pub n: i64,
    /// Whether the exponent's sign is positive.
    pub inverse: bool,
    /// Factor of the result.
    pub scale: f64,
}

/// A constant of this dtype.
pub(super) fn table(cx: &Cx, d: DType, shape: &[i64], data: Vec<f64>) -> Result<Value> {
    let shape = shape.iter().map(|n| *n as usize).collect();
    let value = kiln_dialects::value::Tensor::floats(d, shape, data)?.rounded();
    let value = Attr::dense(cx.b.ctx, &value)?;
    Ok(cx.b.create_with(&Constant { value }, &[value.type_of()], &mut [])?.result(0))
}

/// The product of complex numbers `[.., 2]` with constants, given in a shape that broadcasts.
pub(super) fn times(cx: &Cx, x: Value, shape: &[i64], by: &[(f64, f64)]) -> Result<Value> {
    let d = dtype_of(x)?;
    let shape = [shape, &[2]].concat();
    let same = table(cx, d, &shape, by.iter().flat_map(|(re, _)| [*re, *re]).collect())?;
    let cross = table(cx, d, &shape, by.iter().flat_map(|(_, im)| [-*im, *im]).collect())?;
    let swapped = cx.b.add(&Reverse { input: x, dims: vec![rank_of(x) as i64 - 1] })?;
    let (p, q) =
        (cx.binary(BinaryKind::Mul, x, same)?, cx.binary(BinaryKind::Mul, swapped, cross)?);
    cx.binary(BinaryKind::Add, p, q)
}

/// A part of a dimension.
pub(super) fn part(cx: &Cx, input: Value, axis: usize, from: i64, n: i64) -> Result<Value> {
    let mut sizes = cx.b.sizes_of(input)?;
    let mut offsets = vec![Size::Static(0); sizes.len()];
    let strides = vec![1; sizes.len()];
    if let (Some(size), Some(offset)) = (sizes.get_mut(axis), offsets.get_mut(axis)) {
        (*size, *offset) = (Size::Static(n), Size::Static(from));
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
        let (mut state, mut c) = (x, x.ty().dims().last().and_then(|d| d.known()).unwrap_or(2));
        // The state is [B, m, r, c], where m is to be transformed and r is.
        let (mut m, mut r) = (self.n, 1);
        for (stage, n) in factors.iter().enumerate() {
            m /= n;
            let split = vec![batch, fixed(*n), fixed(m), fixed(r), fixed(c)];
            let split = cx.reshape(state, split)?;
            let lines = cx.transpose(split, vec![0, 2, 3, 1, 4])?;
            let rows = cx.size_mul(batch, fixed(m * r))?;
            let lhs = cx.reshape(lines, vec![rows, fixed(n * c)])?;
            let scale = if stage == 0 { self.scale } else { 1.0 };
            let rhs = table(cx, d, &[n * c, n * 2], self.matrix(*n, c, scale))?;
            let product = cx.b.add(&Matmul { lhs, rhs })?;
            state = cx.reshape(product, vec![batch, fixed(m), fixed(r), fixed(*n), fixed(2)])?;
            if m > 1 {
                let twiddles: Vec<_> =
                    (0..m * n).map(|at| root((at / n) * (at % n), n * m, self.inverse)).collect();
                state = times(cx, state, &[m, 1, *n], &twiddles)?;
            }
            (r, c) = (r * n, 2);
        }
        // The first factor's digit is the lowest one of the result, and the slowest of the state.
        let digits: Vec<Size> = factors.iter().map(|n| fixed(*n)).collect();
        let state = cx.reshape(state, [&[batch], &digits[..], &[fixed(2)]].concat())?;
        let k = factors.len() as i64;
        let order = std::iter::once(0).chain((1..=k).rev()).chain([k + 1]).collect();
        let state = cx.transpose(state, order)?;
        cx.reshape(state, vec![batch, fixed(self.n), fixed(2)])
    }

    /// The matrix of a transform: rows are places and parts of the input, columns of the result.
    fn matrix(self, n: i64, parts: i64, scale: f64) -> Vec<f64> {
        let mut all = vec![];
        for j in 0..n {
            for part in 0..parts {
                for k in 0..n {
                    let (re, im) = root(j * k % n, n, self.inverse);
                    let column = if part == 0 { [re, im] } else { [-im, re] };
                    all.extend(column.map(|x| x * scale));
                }
            }
        }
        all
    }

    /// As a cyclic convolution of a power of two: `jk = (j^2 + k^2 - (k - j)^2) / 2` (Bluestein, "A
    /// linear filtering approach to the computation of discrete Fourier transform", 1970).
    fn chirp(self, cx: &Cx, x: Value) -> Result<Value> {
        let n = self.n;
        let length = 2 * n.cast_unsigned().next_power_of_two().cast_signed();
        let chirp: Vec<_> = (0..n).map(|j| root(j * j % (2 * n), 2 * n, self.inverse)).collect();
        let mut filter = vec![(0.0, 0.0); length as usize];
        let scale = self.scale / length as f64;
        for (j, (re, im)) in chirp.iter().enumerate() {
            let value = (re * scale, -im * scale);
            filter[j] = value;
            let mirrored = (filter.len() - j) % filter.len();
            filter[mirrored] = value;
        }
        let filter = transform(filter);
        let x = self.complex(cx, x)?;
        let x = times(cx, x, &[n], &chirp)?;
        let zero = cx.number(dtype_of(x)?, 0.0)?;
        let high = vec![Size::Static(0), Size::Static(length - n), Size::Static(0)];
        let low = vec![Size::Static(0); 3];
        let x = cx.b.add(&Pad { input: x, value: zero, low, high })?;
        let x = Dft { n: length, inverse: false, scale: 1.0 }.emit(cx, x)?;
        let x = times(cx, x, &[length], &filter)?;
        let x = Dft { n: length, inverse: true, scale: 1.0 }.emit(cx, x)?;
        times(cx, part(cx, x, 1, 0, n)?, &[n], &chirp)
    }

    /// Real numbers as complex ones.
    fn complex(self, cx: &Cx, x: Value) -> Result<Value> {
        if x.ty().dims().last().and_then(|d| d.known()) == Some(2) {
            return Ok(x);
        }
        let zero = cx.full_like(x, 0.0)?;
        cx.b.add(&Concat { inputs: vec![x, zero], axis: 2 })
    }

    /// The first `n / 2 + 1` results for real `[B, n, 1]`; the others are their conjugates. An even
    /// length is half as many complex numbers: Press et al., "Numerical Recipes", 12.3.
    pub fn of_real(self, cx: &Cx, x: Value) -> Result<Value> {
        let half = self.n / 2;
        if self.n % 2 == 1 || factors(half).is_none() {
            return part(cx, self.emit(cx, x)?, 1, 0, half + 1);
        }
        let pairs = vec![cx.b.size_of(x, 0)?, Size::Static(half), Size::Static(2)];
        let z = Dft { n: half, inverse: self.inverse, scale: self.scale * 0.5 };
        let z = z.emit(cx, cx.reshape(x, pairs)?)?;
        let (z, mirror) = self.mirrored(cx, z)?;
        let even = cx.binary(BinaryKind::Add, z, mirror)?;
        let odd = cx.binary(BinaryKind::Sub, z, mirror)?;
        // -i w^k.
        let by: Vec<_> = (0..=half).map(|k| root(k, self.n, self.inverse)).collect();
        let by: Vec<_> = by.into_iter().map(|w| multiply(w, (0.0, -1.0))).collect();
        cx.binary(BinaryKind::Add, even, times(cx, odd, &[half + 1], &by)?)
    }

    /// `z[k]` and the conjugate of `z[h - k]` for k from 0 to h, where `z[h]` is `z[0]`.
    fn mirrored(self, cx: &Cx, z: Value) -> Result<(Value, Value)> {
        let first = part(cx, z, 1, 0, 1)?;
        let z = cx.b.add(&Concat { inputs: vec![z, first], axis: 1 })?;
        Ok((z, self.reversed(cx, z)?))
    }
    /// The conjugates in reversed order.
    fn reversed(self, cx: &Cx, z: Value) -> Result<Value> {
        let back = cx.b.add(&Reverse { input: z, dims: vec![1] })?;
        let signs = table(cx, dtype_of(z)?, &[2], vec![1.0, -1.0])?;
        cx.binary(BinaryKind::Mul, back, signs)
    }

    /// The real result `[B, n]` of a transform of `n / 2 + 1` numbers `[B, n / 2 + 1, 2]`, the others
    /// being their conjugates. Imaginary parts of the first and, for even n, the last are ignored.
    pub fn to_real(self, cx: &Cx, x: Value) -> Result<Value> {
        let (half, batch) = (self.n / 2, cx.b.size_of(x, 0)?);
        if self.n % 2 == 1 || factors(half).is_none() {
            // For even n the middle is not repeated.
            let rest = part(cx, x, 1, 1, (self.n - 1) / 2)?;
            let rest = self.reversed(cx, rest)?;
            let z = cx.b.add(&Concat { inputs: vec![x, rest], axis: 1 })?;
            let z = part(cx, self.emit(cx, z)?, 2, 0, 1)?;
            return cx.reshape(z, vec![batch, Size::Static(self.n)]);
        }
        let ends = (0..=half).flat_map(|k| [1.0, f64::from(k != 0 && k != half)]).collect();
        let ends = table(cx, dtype_of(x)?, &[half + 1, 2], ends)?;
        let x = cx.binary(BinaryKind::Mul, x, ends)?;
        let back = self.reversed(cx, x)?;
        let (z, mirror) = (part(cx, x, 1, 0, half)?, part(cx, back, 1, 0, half)?);
        let even = cx.binary(BinaryKind::Add, z, mirror)?;
        let odd = cx.binary(BinaryKind::Sub, z, mirror)?;
        // i w^k.
        let by: Vec<_> = (0..half).map(|k| root(k, self.n, self.inverse)).collect();
        let by: Vec<_> = by.into_iter().map(|w| multiply(w, (0.0, 1.0))).collect();
        let z = cx.binary(BinaryKind::Add, even, times(cx, odd, &[half], &by)?)?;
        let z = Dft { n: half, inverse: self.inverse, scale: self.scale }.emit(cx, z)?;
        cx.reshape(z, vec![batch, Size::Static(self.n)])
    }
}
