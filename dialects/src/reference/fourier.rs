//! Discrete Fourier transforms.
use crate::{
    error::Result,
    ops::FftKind,
    reference::shape::{same_dtype, same_shape},
    value::Tensor,
};
use std::f64::consts::FRAC_PI_2;

/// A complex number.
type Complex = (f64, f64);

/// r\[k\] = sum over j < n of x\[j\] e^(-2 pi i jk / n) along the last dimension, n being `length`,
/// with a positive exponent if `inverse`. Real and imaginary parts are tensors of their own:
/// [`FftKind::C2c`] takes and gives n of each, [`FftKind::R2c`] n real numbers and the first
/// n / 2 + 1 results, [`FftKind::C2r`] the reverse; it ignores the imaginary part of the first and,
/// for even n, of the last. Err: sizes, shapes, dtypes or an imaginary part that do not fit.
pub fn fft(
    kind: FftKind,
    re: &Tensor,
    im: Option<&Tensor>,
    length: i64,
    inverse: bool,
) -> Result<Vec<Tensor>> {
    let n = usize::try_from(length).ok().filter(|n| *n > 0).ok_or("has a length below 1")?;
    let half = n / 2 + 1;
    let (takes, gives) = match kind {
        FftKind::C2c => (n, n),
        FftKind::R2c => (n, half),
        FftKind::C2r => (half, n),
    };
    let (last, outer) = re.shape().split_last().ok_or("has no dimension to transform")?;
    if *last != takes {
        return Err(format!("takes {takes} numbers along the last dimension, not {last}").into());
    }
    if im.is_some() == (kind == FftKind::R2c) {
        return Err("has an imaginary part that does not fit its kind".into());
    }
    if let Some(im) = im {
        same_shape(re, im)?;
        same_dtype(re, im)?;
    }
    let roots: Vec<Complex> = (0..n).map(|k| root(k, n, inverse)).collect();
    let (x, y) = (re.as_f()?, im.map(|im| im.as_f()).transpose()?);
    let (mut out_re, mut out_im) = (vec![], vec![]);
    for row in 0..outer.iter().product() {
        let at = |j: usize| (x[row * takes + j], y.map_or(0.0, |y| y[row * takes + j]));
        let line: Vec<Complex> = match kind {
            FftKind::C2r => (0..n).map(|j| mirrored(&at, j, n)).collect(),
            _ => (0..n).map(at).collect(),
        };
        let all = transform(&line, &roots);
        out_re.extend(all[..gives].iter().map(|v| v.0));
        out_im.extend(all[..gives].iter().map(|v| v.1));
    }
    let shape = [outer, &[gives]].concat();
    let parts = if kind == FftKind::C2r { vec![out_re] } else { vec![out_re, out_im] };
    parts.into_iter().map(|v| Tensor::floats(re.dtype(), shape.clone(), v)).collect()
}

/// Real and imaginary parts of complex numbers with a last dimension of 2. Err: another size.
pub fn deinterleave(z: &Tensor) -> Result<(Tensor, Tensor)> {
    let (Some((2, shape)), v) = (z.shape().split_last(), z.as_f()?) else {
        return Err("has no last dimension of 2".into());
    };
    let part = |i: usize| {
        Tensor::floats(z.dtype(), shape.to_vec(), v.iter().skip(i).step_by(2).copied().collect())
    };
    Ok((part(0)?, part(1)?))
}

/// Complex numbers with a last dimension of 2. Err: shapes that differ.
pub fn interleave(re: &Tensor, im: &Tensor) -> Result<Tensor> {
    same_shape(re, im)?;
    let both = re.as_f()?.iter().zip(im.as_f()?).flat_map(|(a, b)| [*a, *b]).collect();
    Tensor::floats(re.dtype(), [re.shape(), &[2]].concat(), both)
}

/// Number `j` of a whole spectrum, of which the first half is given.
fn mirrored(at: &dyn Fn(usize) -> Complex, j: usize, n: usize) -> Complex {
    let (re, im) = at(j.min(n - j));
    match 2 * j {
        twice if twice == 0 || twice == n => (re, 0.0),
        twice if twice < n => (re, im),
        _ => (re, -im),
    }
}

/// e^(-2 pi i k / n), k < n. The angle is reduced to a quarter turn, so that quarters are exact.
fn root(k: usize, n: usize, inverse: bool) -> Complex {
    let (quarter, rest) = (4 * k / n, 4 * k % n);
    let (sin, cos) = (FRAC_PI_2 * (rest as f64 / n as f64)).sin_cos();
    let (re, im) = match quarter {
        0 => (cos, -sin),
        1 => (-sin, -cos),
        2 => (-cos, sin),
        _ => (sin, cos),
    };
    (re, if inverse { -im } else { im })
}

/// By the smallest prime factor p: p transforms of every pth number, and a sum of p terms for each
/// result (Cooley and Tukey, 1965). A prime length is the definition. `roots` are those of the
/// length, or of a multiple of it.
fn transform(x: &[Complex], roots: &[Complex]) -> Vec<Complex> {
    let n = x.len();
    if n == 1 {
        return x.to_vec();
    }
    let p = (2..n).take_while(|p| p * p <= n).find(|p| n.is_multiple_of(*p)).unwrap_or(n);
    let m = n / p;
    let every = |r: usize| x.iter().skip(r).step_by(p).copied().collect::<Vec<_>>();
    let parts: Vec<_> = (0..p).map(|r| transform(&every(r), roots)).collect();
    let step = roots.len() / n;
    let one = |k: usize| {
        parts.iter().enumerate().fold((0.0, 0.0), |sum, (r, part)| {
            let ((a, b), (c, d)) = (part[k % m], roots[r * k % n * step]);
            (sum.0 + (a * c - b * d), sum.1 + (a * d + b * c))
        })
    };
    (0..n).map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The definition, with angles computed for each term.
    fn definition(x: &[Complex], inverse: bool) -> Vec<Complex> {
        let n = x.len();
        let sum = |k: usize| {
            x.iter().enumerate().fold((0.0, 0.0), |sum, (j, (a, b))| {
                let (c, d) = root(j * k % n, n, inverse);
                (sum.0 + (a * c - b * d), sum.1 + (a * d + b * c))
            })
        };
        (0..n).map(sum).collect()
    }

    #[test]
    fn factors_give_what_the_definition_gives() {
        for n in [1, 2, 3, 8, 12, 15, 49, 97, 210] {
            let x: Vec<Complex> =
                (0..n).map(|i| ((i as f64).sin() + 0.5, (3.0 * i as f64).cos())).collect();
            let roots: Vec<Complex> = (0..n).map(|k| root(k, n, true)).collect();
            let (have, want) = (transform(&x, &roots), definition(&x, true));
            for (a, b) in have.iter().zip(&want) {
                assert!((a.0 - b.0).hypot(a.1 - b.1) < 1e-11, "{n}: {a:?} {b:?}");
            }
        }
    }
}
