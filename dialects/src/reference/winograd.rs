//! Winograd's minimal filtering algorithm F(m × m, 3 × 3) (Lavin and Gray, 2016), as Toom and Cook's
//! products of polynomials at n - 1 points and infinity, n = m + 2.
//!
//! A tile of m by m results of a convolution is Aᵀ [(G w Gᵀ) ⊙ (Bᵀ x B)] A, where x are n by n
//! elements of the input. Points of four results are powers of 3/2 times 3/4: exact in binary, and a
//! fifth of the error of the usual 1 and 2.

use crate::{
    error::Result,
    value::{Tensor, count},
};

/// Elements of the window in each direction.
const WINDOW: usize = 3;

/// The finite points of a tile of m results. Err: no points are known.
fn points(tile: i64) -> Result<&'static [f64]> {
    match tile {
        2 => Ok(&[0.0, 1.0, -1.0]),
        4 => Ok(&[0.0, 0.75, -0.75, 1.5, -1.5]),
        _ => Err(format!("has tile {tile}; tiles are of 2 or 4 results").into()),
    }
}

/// Coefficients of the product of (x - p) over these points, the constant one first, padded with
/// zeros to `size`.
fn product(points: impl Iterator<Item = f64>, size: usize) -> Vec<f64> {
    let mut all = vec![0.0; size];
    all[0] = 1.0;
    for p in points {
        for k in (0..size).rev() {
            let below = if k > 0 { all[k - 1] } else { 0.0 };
            all[k] = below - p * all[k];
        }
    }
    all
}

/// Bᵀ, n by n: the transform of n elements of the input. Err: another tile than 2 or 4.
pub fn winograd_input_matrix(tile: i64) -> Result<Vec<Vec<f64>>> {
    let all = points(tile)?;
    let n = all.len() + 1;
    let without = |i: usize| all.iter().enumerate().filter(move |(k, _)| *k != i).map(|(_, p)| *p);
    Ok((0..n).map(|i| product(without(i), n)).collect())
}

/// G, n by 3: the transform of a window of the weight. Err: another tile than 2 or 4.
pub fn winograd_filter_matrix(tile: i64) -> Result<Vec<Vec<f64>>> {
    let all = points(tile)?;
    let row = |(i, p): (usize, &f64)| {
        let others = all.iter().enumerate().filter(|(k, _)| *k != i);
        let scale: f64 = others.map(|(_, q)| p - q).product();
        (0..WINDOW).map(|k| p.powi(k as i32) / scale).collect()
    };
    let last = (0..WINDOW).map(|k| f64::from(u8::from(k + 1 == WINDOW))).collect();
    Ok(all.iter().enumerate().map(row).chain([last]).collect())
}

/// Aᵀ, m by n: the transform to m results. Err: another tile than 2 or 4.
pub fn winograd_output_matrix(tile: i64) -> Result<Vec<Vec<f64>>> {
    let (all, m) = (points(tile)?, tile as usize);
    let last = |j: usize| f64::from(u8::from(j + 1 == m));
    let row = |j: usize| all.iter().map(|p| p.powi(j as i32)).chain([last(j)]).collect();
    Ok((0..m).map(row).collect())
}

/// M x Mᵀ of a row-major square x.
fn both_sides(matrix: &[Vec<f64>], x: &[f64]) -> Vec<f64> {
    let n = matrix.first().map_or(0, Vec::len);
    let entry = |left: &[f64], right: &[f64]| -> f64 {
        (0..n * n).map(|k| left[k / n] * x[k] * right[k % n]).sum()
    };
    matrix.iter().flat_map(|l| matrix.iter().map(move |r| entry(l, r))).collect()
}

/// Bᵀ x B of the overlapping n by n tiles of an image: \[N, m TY + 2, m TX + 2, C\] to
/// \[n², N, TY, TX, C\]. Err: another rank, sizes that are no whole tiles, not a float dtype.
pub fn winograd_input(x: &Tensor, tile: i64) -> Result<Tensor> {
    let (matrix, m) = (winograd_input_matrix(tile)?, tile as usize);
    let n = matrix.len();
    let &[images, height, width, channels] = x.shape() else {
        return Err(format!("{:?} is no image [N, H, W, C]", x.shape()).into());
    };
    let tiles = |size: usize| {
        let whole = size.checked_sub(2).filter(|rest| rest % m == 0);
        whole
            .map(|rest| rest / m)
            .ok_or_else(|| format!("{size} pixels are no tiles of {m}, and 2"))
    };
    let (rows, columns, v) = (tiles(height)?, tiles(width)?, x.as_f()?);
    let shape = vec![n * n, images, rows, columns, channels];
    let mut out = vec![0.0; count(&shape)?];
    let inner = images * rows * columns * channels;
    for at in 0..inner {
        let (c, tx) = (at % channels, at / channels % columns);
        let (ty, i) = (at / channels / columns % rows, at / channels / columns / rows);
        let place =
            |k: usize| ((i * height + ty * m + k / n) * width + tx * m + k % n) * channels + c;
        let square: Vec<f64> = (0..n * n).map(|k| v[place(k)]).collect();
        both_sides(&matrix, &square).iter().enumerate().for_each(|(k, r)| out[k * inner + at] = *r);
    }
    Tensor::floats(x.dtype(), shape, out)
}

/// Aᵀ x A of squares of products: \[n², N, TY, TX, K\] to \[N, TY, m, TX, m, K\]. Err: another shape,
/// not a float dtype.
pub fn winograd_output(x: &Tensor, tile: i64) -> Result<Tensor> {
    let (matrix, m) = (winograd_output_matrix(tile)?, tile as usize);
    let n = m + 2;
    let &[squares, images, rows, columns, filters] = x.shape() else {
        return Err(format!("{:?} is no [n², N, TY, TX, K]", x.shape()).into());
    };
    if squares != n * n {
        return Err(format!("{squares} is not {n}² elements of a tile of {m}").into());
    }
    let (v, inner) = (x.as_f()?, images * rows * columns * filters);
    let shape = vec![images, rows, m, columns, m, filters];
    let mut out = vec![0.0; count(&shape)?];
    for at in 0..inner {
        let (k, tx) = (at % filters, at / filters % columns);
        let row = at / filters / columns;
        let square: Vec<f64> = (0..n * n).map(|i| v[i * inner + at]).collect();
        for (i, r) in both_sides(&matrix, &square).into_iter().enumerate() {
            out[(((row * m + i / m) * columns + tx) * m + i % m) * filters + k] = r;
        }
    }
    Tensor::floats(x.dtype(), shape, out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        reference::{ConvParams, convolution, transpose},
        value::DType,
    };

    #[test]
    fn the_transforms_and_products_between_them_are_a_convolution() -> Result<()> {
        for tile in [2, 4] {
            let n = (tile + 2) as usize;
            let shape = [2, 2 * tile as usize + 2, tile as usize + 2, 3];
            let numbers = |shape: &[usize]| {
                let values =
                    (1..=shape.iter().product()).map(|i: usize| (i as f64).sin()).collect();
                Tensor::floats(DType::F64, shape.to_vec(), values)
            };
            let (x, w) = (numbers(&shape)?, numbers(&[4, 3, 3, 3])?);
            let v = winograd_input(&x, tile)?;
            let g = winograd_filter_matrix(tile)?;
            let filters: Vec<Vec<f64>> = w.as_f()?.chunks(9).map(|w| both_sides(&g, w)).collect();
            let tiles = v.len() / (n * n * 3);
            let mut products = vec![0.0; n * n * tiles * 4];
            for k in 0..n * n {
                for t in 0..tiles {
                    for o in 0..4 {
                        let sum = (0..3).map(|c| {
                            v.as_f().map_or(0.0, |v| v[(k * tiles + t) * 3 + c])
                                * filters[o * 3 + c][k]
                        });
                        products[(k * tiles + t) * 4 + o] = sum.sum();
                    }
                }
            }
            let m = Tensor::floats(DType::F64, vec![n * n, 2, 2, 1, 4], products)?;
            let y = winograd_output(&m, tile)?;
            let y = y.with_shape(vec![2, 2 * tile as usize, tile as usize, 4])?;
            let params = ConvParams {
                strides: vec![1; 2],
                pad_low: vec![0; 2],
                pad_high: vec![0; 2],
                dilation: vec![1; 2],
                groups: 1,
                transposed: false,
                output_padding: None,
            };
            let want = convolution(&transpose(&x, &[0, 3, 1, 2])?, &w, &params)?;
            let want = transpose(&want, &[0, 2, 3, 1])?;
            let error = y.as_f()?.iter().zip(want.as_f()?).map(|(a, b)| (a - b).abs());
            assert!(error.fold(0.0, f64::max) < 1e-12);
        }
        Ok(())
    }

    #[test]
    fn other_shapes_are_errors() -> Result<()> {
        let x = |shape: &[usize]| {
            Tensor::floats(DType::F32, shape.to_vec(), vec![0.0; shape.iter().product()])
        };
        for (shape, tile) in [(&[1, 6, 7, 1][..], 4), (&[1, 6, 6], 4), (&[1, 5, 5, 1], 3)] {
            assert!(winograd_input(&x(shape)?, tile).is_err());
        }
        for (shape, tile) in [(&[36, 1, 1, 1][..], 4), (&[16, 1, 1, 1, 1], 4)] {
            assert!(winograd_output(&x(shape)?, tile).is_err());
        }
        Ok(())
    }
}
