//! Singular values and eigenvalues of symmetric matrices.
use crate::{
    Error,
    matrix::{Real, rows, rows_mut, store},
};
use faer::{ColRef, Side};

fn finite<T: Real>(a: &[T], name: &'static str) -> Result<(), Error> {
    if a.iter().all(|x| x.finite()) { Ok(()) } else { Err(Error::NotFinite(name)) }
}

fn store_column<T: Real>(from: ColRef<'_, T>, to: &mut [T]) {
    from.iter().zip(to).for_each(|(x, to)| *to = *x);
}

/// A = U diag(S) Vh of an m×n matrix, with singular values in descending order. U and Vh are
/// square if `full`, else they have min(m, n) columns and rows. U is stored by columns, Vh by rows.
/// The signs of pairs of singular vectors are arbitrary.
pub(crate) fn svd<T: Real>(
    a: &[T],
    (m, n): (usize, usize),
    full: bool,
    [u, s, vh]: [&mut [T]; 3],
) -> Result<(), Error> {
    const NAME: &str = "linalg.svd";
    finite(a, NAME)?;
    if m.min(n) == 0 {
        for (to, n) in [(u, m), (vh, n)] {
            to.fill(T::ZERO);
            (0..if full { n } else { 0 }).for_each(|i| to[i * n + i] = T::ONE);
        }
        return Ok(());
    }
    let a = rows(a, m, n);
    let svd = if full { a.svd() } else { a.thin_svd() };
    let svd = svd.map_err(|_| Error::NoConvergence(NAME))?;
    store(svd.U().transpose(), u);
    store_column(svd.S().column_vector(), s);
    store(svd.V().transpose(), vh);
    Ok(())
}

/// Singular values of an m×n matrix in descending order.
pub(crate) fn singular_values<T: Real>(
    a: &[T],
    (m, n): (usize, usize),
    s: &mut [T],
) -> Result<(), Error> {
    const NAME: &str = "linalg.svd";
    finite(a, NAME)?;
    if m.min(n) > 0 {
        let all = rows(a, m, n).singular_values().map_err(|_| Error::NoConvergence(NAME))?;
        s.copy_from_slice(&all);
    }
    Ok(())
}

/// The elements on and below the diagonal.
fn lower<T: Real>(a: &[T], n: usize) -> impl Iterator<Item = T> {
    (0..n).flat_map(move |i| a[i * n..i * n + i + 1].iter().copied())
}

/// Eigenvalues in ascending order, and the eigenvectors one after another if wanted, of the symmetric
/// matrix whose lower triangle is `a`'s. The signs of eigenvectors are arbitrary.
pub(crate) fn eigh<T: Real>(
    a: &[T],
    n: usize,
    values: &mut [T],
    vectors: Option<&mut [T]>,
) -> Result<(), Error> {
    const NAME: &str = "linalg.eigh";
    if !lower(a, n).all(Real::finite) {
        return Err(Error::NotFinite(NAME));
    }
    if n == 0 {
        return Ok(());
    }
    let a = rows(a, n, n);
    match vectors {
        Some(to) => {
            let evd = a.self_adjoint_eigen(Side::Lower).map_err(|_| Error::NoConvergence(NAME))?;
            store_column(evd.S().column_vector(), values);
            rows_mut(to, n, n).copy_from(evd.U().transpose());
        }
        None => {
            let all =
                a.self_adjoint_eigenvalues(Side::Lower).map_err(|_| Error::NoConvergence(NAME))?;
            values.copy_from_slice(&all);
        }
    }
    Ok(())
}
