//! Eigenvalues and right eigenvectors of any square matrix, real or complex, as two real parts.
use crate::{
    Error,
    matrix::{Real, rows},
};
use faer::{Mat, MatRef, complex::Complex, linalg::solvers::EvdError};

/// Real and imaginary parts of one kind of result.
pub(crate) type Parts<'a, T> = [&'a mut [T]; 2];

/// A V = V diag(W) of an n×n matrix whose parts are `re` and `im`, the second only if it is
/// complex. Eigenvectors are columns of Euclidean norm 1 whose largest component is real, as
/// LAPACK's geev has them; the order of the pairs, and signs, are arbitrary.
pub(crate) fn eig<T: Real>(
    (re, im): (&[T], Option<&[T]>),
    n: usize,
    values: Parts<'_, T>,
    vectors: Option<Parts<'_, T>>,
) -> Result<(), Error> {
    const NAME: &str = "linalg.eig";
    if !re.iter().chain(im.unwrap_or_default()).all(|x| x.finite()) {
        let reason = "torch.linalg.eig: input tensor should not contain infs or NaNs.";
        return Err(Error::Failed(reason.into()));
    }
    if n == 0 {
        return Ok(());
    }
    let failed = |_: EvdError| Error::NoConvergence(NAME);
    let real = rows(re, n, n);
    let complex = im.map(|im| {
        let im = rows(im, n, n);
        Mat::from_fn(n, n, |i, j| Complex { re: real[(i, j)], im: im[(i, j)] })
    });
    let Some(to) = vectors else {
        let all = match &complex {
            Some(a) => a.eigenvalues(),
            None => real.eigenvalues(),
        };
        store_values(all.map_err(failed)?.into_iter(), values);
        return Ok(());
    };
    let found = match &complex {
        Some(a) => a.eigen(),
        None => real.eigen(),
    };
    let found = found.map_err(failed)?;
    store_values(found.S().column_vector().iter().copied(), values);
    store_vectors(found.U(), to);
    Ok(())
}

fn store_values<T: Real>(all: impl Iterator<Item = Complex<T>>, [re, im]: Parts<'_, T>) {
    for (z, (re, im)) in all.zip(re.iter_mut().zip(im)) {
        (*re, *im) = (z.re, z.im);
    }
}

/// Stores each column divided by its norm, and by the direction of its largest component.
fn store_vectors<T: Real>(u: MatRef<'_, Complex<T>>, [re, im]: Parts<'_, T>) {
    let n = u.nrows();
    let square = |z: Complex<T>| z.re * z.re + z.im * z.im;
    for j in 0..n {
        // Scaled, so that no square underflows to a norm of 0.
        let largest = (0..n).flat_map(|i| [u[(i, j)].re.magnitude(), u[(i, j)].im.magnitude()]);
        let scale = largest.fold(T::ZERO, |most, x| if x > most { x } else { most });
        let scale = if scale > T::ZERO { scale } else { T::ONE };
        let at = |i: usize| Complex { re: u[(i, j)].re / scale, im: u[(i, j)].im / scale };
        let norm = (0..n).fold(T::ZERO, |sum, i| sum + square(at(i))).root();
        let first =
            (1..n).fold(0, |best, i| if square(at(i)) > square(at(best)) { i } else { best });
        let (most, is_real) = (at(first), (0..n).all(|i| u[(i, j)].im == T::ZERO));
        let length = square(most).root();
        let turn = if is_real {
            Complex { re: T::ONE, im: T::ZERO }
        } else {
            Complex { re: most.re / length, im: -(most.im / length) }
        };
        for i in 0..n {
            let z = at(i);
            re[i * n + j] = (z.re * turn.re - z.im * turn.im) / norm;
            im[i * n + j] = (z.re * turn.im + z.im * turn.re) / norm;
        }
        if !is_real {
            im[first * n + j] = T::ZERO;
        }
    }
}
