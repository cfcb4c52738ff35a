//! The table: names, rules of types, calls.
use crate::{
    Api, Element, Error, Input, Output, Slice, SliceMut, Type, cholesky, eigen, householder, ldl,
    lu, matrix::Real, spectral, triangular,
};

/// A function of the table. Shapes below are of one matrix. What is stored by columns, as LAPACK
/// does, is a tensor of the transposed matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Factorization {
    /// A (n×n, lower triangle) to L, whose upper triangle is unspecified, and `info`. Where that is
    /// not 0, so is all of L.
    Cholesky,
    /// A (m×n) to packed LU, both by columns, pivots (min(m, n)) and `info`.
    Lu,
    /// Pivots (k) and numbers of rows (m) to the rows after these swaps.
    Permutation,
    /// A (m×n) to packed QR, both by columns, and tau (min(m, n)).
    Qr,
    /// Packed reflections (m×n) and tau (k ≤ n ≤ m) to the first n columns of their product. Both
    /// matrices are stored by columns.
    HouseholderProduct,
    /// A (m×n) to U by columns, S and Vh; square U and Vh if `full`.
    Svd {
        /// Whether U and Vh are square.
        full: bool,
    },
    /// A (m×n) to S.
    SingularValues,
    /// A (n×n, lower triangle) to eigenvalues and eigenvectors, by columns.
    Eigh,
    /// A (n×n, lower triangle) to eigenvalues.
    Eigenvalues,
    /// A (n×n), and its imaginary part if `complex`, to real and imaginary parts of eigenvalues (n)
    /// and of eigenvectors (n×n).
    Eig {
        /// Whether there is an imaginary part.
        complex: bool,
    },
    /// As [`Factorization::Eig`], to the two parts of eigenvalues.
    Eigvals {
        /// Whether there is an imaginary part.
        complex: bool,
    },
    /// A (n×n, lower triangle, symmetric) to packed LDL, pivots (n) and `info`.
    Ldl,
    /// Packed LU (n×n), pivots (n) and B (n×k) to X with A X = B, or A' X = B if `adjoint`. All
    /// matrices are stored by columns.
    LuSolve {
        /// Whether the system is of the transposed matrix.
        adjoint: bool,
    },
    /// Packed LDL (n×n), pivots (n) and B (n×k) to X with A X = B.
    LdlSolve,
    /// A (n×n, triangular) and B (n×k) to X with A X = B.
    Solve {
        /// Whether the upper triangle is read.
        upper: bool,
        /// Whether the diagonal counts as ones.
        unit: bool,
    },
    /// `info` to nothing; an error if one is not 0.
    Check(Api),
}

use Factorization::*;

const PREFIX: &str = "kiln.linalg.";
const NAMES: [(&str, Factorization); 22] = [
    ("cholesky", Cholesky),
    ("lu", Lu),
    ("permutation", Permutation),
    ("qr", Qr),
    ("householder_product", HouseholderProduct),
    ("svd", Svd { full: false }),
    ("svd_full", Svd { full: true }),
    ("svdvals", SingularValues),
    ("eigh", Eigh),
    ("eigvalsh", Eigenvalues),
    ("eig", Eig { complex: false }),
    ("eig_complex", Eig { complex: true }),
    ("eigvals", Eigvals { complex: false }),
    ("eigvals_complex", Eigvals { complex: true }),
    ("lu_solve", LuSolve { adjoint: false }),
    ("lu_solve_adjoint", LuSolve { adjoint: true }),
    ("ldl", Ldl),
    ("ldl_solve", LdlSolve),
    ("solve_lower", Solve { upper: false, unit: false }),
    ("solve_unit_lower", Solve { upper: false, unit: true }),
    ("solve_upper", Solve { upper: true, unit: false }),
    ("solve_unit_upper", Solve { upper: true, unit: true }),
];

fn wrong(wanted: &'static str, given: impl std::fmt::Debug) -> Error {
    Error::Operands { wanted, given: format!("{given:?}") }
}

/// Batch dimensions, rows and columns.
fn matrices((element, shape): &Type) -> Result<(Vec<usize>, usize, usize), Error> {
    match (element, shape.as_slice()) {
        (Element::F32 | Element::F64, [batch @ .., m, n]) => Ok((batch.to_vec(), *m, *n)),
        _ => Err(wrong("matrices of f32 or f64", (element, shape))),
    }
}

impl Factorization {
    /// The function with a name such as `kiln.linalg.lu`, if there is one.
    pub fn find(name: &str) -> Option<Factorization> {
        let name = name.strip_prefix(PREFIX)?;
        let named = NAMES.iter().find(|(n, _)| *n == name).map(|(_, f)| *f);
        let checks = || {
            let api = name.strip_prefix("check_")?;
            Api::ALL.iter().find(|(n, _)| *n == api).map(|(_, api)| Check(*api))
        };
        named.or_else(checks)
    }
    /// The name under which it is found.
    pub fn name(self) -> String {
        let check = |api: Api| Api::ALL.iter().find(|(_, a)| *a == api).map(|(n, _)| *n);
        match self {
            Check(api) => format!("{PREFIX}check_{}", check(api).unwrap_or_default()),
            _ => {
                let name = NAMES.iter().find(|(_, f)| *f == self).map(|(n, _)| *n);
                format!("{PREFIX}{}", name.unwrap_or_default())
            }
        }
    }

    /// Batch dimensions, and rows and columns of the matrices of the first operand.
    pub fn sizes(self, of: &Type) -> Result<(Vec<usize>, usize, usize), Error> {
        let (batch, m, n) = matrices(of)?;
        let by_columns = matches!(self, Lu | Qr | HouseholderProduct);
        Ok(if by_columns { (batch, n, m) } else { (batch, m, n) })
    }

    /// Types of the results. Err: operands of other dtypes, sizes or number.
    pub fn results(self, operands: &[Type]) -> Result<Vec<Type>, Error> {
        let count = match self {
            Permutation | HouseholderProduct | Solve { .. } => 2,
            Eig { complex } | Eigvals { complex } => 1 + usize::from(complex),
            LdlSolve | LuSolve { .. } => 3,
            _ => 1,
        };
        if operands.len() != count {
            return Err(wrong("another number of operands", operands.len()));
        }
        if let Check(_) = self {
            let fits = operands[0].0 == Element::I32;
            return if fits { Ok(vec![]) } else { Err(wrong("info of i32", &operands[0])) };
        }
        if self == Permutation {
            let [(Element::I32, pivots), (Element::I32, rows)] = operands else {
                return Err(wrong("i32 pivots and rows", operands));
            };
            let fits = match (pivots.split_last(), rows.split_last()) {
                (Some((k, of)), Some((m, batch))) => k <= m && of == batch,
                _ => false,
            };
            let said = || wrong("pivots of each matrix, at most one a row", operands);
            return if fits { Ok(vec![operands[1].clone()]) } else { Err(said()) };
        }
        let of = &operands[0];
        let ((batch, m, n), float) = (self.sizes(of)?, of.0);
        let ty = |element: Element, sizes: &[usize]| (element, [&batch[..], sizes].concat());
        let rectangular =
            matches!(self, Lu | Qr | HouseholderProduct | Svd { .. } | SingularValues);
        if !rectangular && m != n {
            return Err(wrong("square matrices", of));
        }
        let k = m.min(n);
        Ok(match self {
            Cholesky => vec![of.clone(), ty(Element::I32, &[])],
            Lu => vec![of.clone(), ty(Element::I32, &[k]), ty(Element::I32, &[])],
            Qr => vec![of.clone(), ty(float, &[k])],
            HouseholderProduct => {
                let tau = operands[1].1.last().copied().unwrap_or(usize::MAX);
                if n > m || tau > n || operands[1] != ty(float, &[tau]) {
                    return Err(wrong("m×n reflections with at most n ≤ m tau", operands));
                }
                vec![of.clone()]
            }
            Svd { full } => {
                let (p, q) = if full { (m, n) } else { (k, k) };
                vec![ty(float, &[p, m]), ty(float, &[k]), ty(float, &[q, n])]
            }
            SingularValues => vec![ty(float, &[k])],
            Eigh => vec![ty(float, &[n]), of.clone()],
            Eigenvalues => vec![ty(float, &[n])],
            Eig { .. } | Eigvals { .. } if operands.iter().any(|o| o != of) => {
                return Err(wrong("parts of one type", operands));
            }
            Eig { .. } => [&[n][..], &[n], &[n, n], &[n, n]].map(|s| ty(float, s)).to_vec(),
            Eigvals { .. } => vec![ty(float, &[n]); 2],
            Ldl => vec![of.clone(), ty(Element::I32, &[n]), ty(Element::I32, &[])],
            LuSolve { .. } => {
                let columns = operands[2].1.iter().rev().nth(1).copied().unwrap_or(0);
                if operands[1] != ty(Element::I32, &[n]) || operands[2] != ty(float, &[columns, n])
                {
                    return Err(wrong("i32 pivots and right-hand sides of as many rows", operands));
                }
                vec![operands[2].clone()]
            }
            LdlSolve => {
                let columns = operands[2].1.last().copied().unwrap_or(0);
                if operands[1] != ty(Element::I32, &[n]) || operands[2] != ty(float, &[n, columns])
                {
                    return Err(wrong("i32 pivots and right-hand sides of as many rows", operands));
                }
                vec![operands[2].clone()]
            }
            Solve { .. } => {
                let columns = operands[1].1.last().copied().unwrap_or(0);
                if operands[1] != ty(float, &[n, columns]) {
                    return Err(wrong("right-hand sides of as many rows", operands));
                }
                vec![operands[1].clone()]
            }
            Check(_) | Permutation => vec![],
        })
    }

    /// Computes the results. Err: operands or results of other types than [`Self::results`] says,
    /// an iteration that does not converge, pivots that are no rows, or `info` of a failure.
    pub fn call(self, inputs: &[Input<'_>], outputs: &mut [Output<'_>]) -> Result<(), Error> {
        let types: Vec<Type> = inputs.iter().map(Input::ty).collect();
        let want = self.results(&types)?;
        let have: Vec<Type> = outputs.iter().map(Output::ty).collect();
        if want != have {
            return Err(wrong("results of its own types", have));
        }
        if let (Check(api), [Input { shape, data: Slice::I32(info) }]) = (self, inputs) {
            return api.check(info, shape.is_empty());
        }
        if let (Permutation, [pivots, rows], [order]) = (self, inputs, &mut *outputs) {
            return permute(pivots, rows, order);
        }
        let of = &types[0];
        let (batch, m, n) = self.sizes(of)?;
        let count = batch.iter().product();
        match of.0 {
            Element::F32 => self.batch::<f32>(count, (m, n), inputs, outputs),
            _ => self.batch::<f64>(count, (m, n), inputs, outputs),
        }
    }

    fn batch<T: Elements>(
        self,
        count: usize,
        (m, n): (usize, usize),
        inputs: &[Input<'_>],
        outputs: &mut [Output<'_>],
    ) -> Result<(), Error> {
        for i in 0..count {
            let a = |k: usize| T::part(&inputs[k], count, i);
            let mut parts = outputs.iter_mut().map(|o| Part::<T>::new(o, count, i));
            let mut next = || parts.next().unwrap_or(Part::None);
            match self {
                Cholesky => {
                    let (l, info) = (next(), next());
                    info.ints()[0] = cholesky::factor(a(0), n, l.floats());
                }
                Lu => {
                    let (packed, pivots, info) = (next(), next(), next());
                    let pivots = pivots.ints();
                    info.ints()[0] = lu::factor(a(0), (m, n), packed.floats(), pivots);
                }
                Qr => {
                    let (packed, tau) = (next(), next());
                    householder::factor(a(0), (m, n), packed.floats(), tau.floats());
                }
                HouseholderProduct => {
                    householder::product(a(0), a(1), (m, n), next().floats());
                }
                Svd { full } => {
                    let all = [next(), next(), next()].map(Part::floats);
                    spectral::svd(a(0), (m, n), full, all)?;
                }
                SingularValues => spectral::singular_values(a(0), (m, n), next().floats())?,
                Eigh => {
                    let (values, vectors) = (next(), next());
                    spectral::eigh(a(0), n, values.floats(), Some(vectors.floats()))?;
                }
                Eigenvalues => spectral::eigh(a(0), n, next().floats(), None)?,
                Eig { complex } => {
                    let [re, im, p, q] = [next(), next(), next(), next()].map(Part::floats);
                    let parts = (a(0), complex.then(|| a(1)));
                    eigen::eig(parts, n, [re, im], Some([p, q]))?;
                }
                Eigvals { complex } => {
                    let values = [next(), next()].map(Part::floats);
                    eigen::eig((a(0), complex.then(|| a(1))), n, values, None)?;
                }
                Ldl => {
                    let (packed, pivots, info) = (next(), next(), next());
                    info.ints()[0] = ldl::factor(a(0), n, packed.floats(), pivots.ints());
                }
                LuSolve { adjoint } => {
                    let Slice::I32(pivots) = inputs[1].data else { continue };
                    let columns = inputs[2].shape.iter().rev().nth(1).copied().unwrap_or(0);
                    let of = (a(0), &pivots[i * n..(i + 1) * n]);
                    lu::solve(of, a(2), (n, columns), adjoint, next().floats())
                        .map_err(|p| wrong("pivots that are rows", p))?;
                }
                LdlSolve => {
                    let Slice::I32(pivots) = inputs[1].data else { continue };
                    let columns = inputs[2].shape.last().copied().unwrap_or(0);
                    let of = (a(0), &pivots[i * n..(i + 1) * n]);
                    ldl::solve(of, a(2), (n, columns), next().floats())
                        .map_err(|p| wrong("pivots of LDL factors", p))?;
                }
                Solve { upper, unit } => {
                    let (b, x) = (a(1), next().floats());
                    let columns = inputs[1].shape.last().copied().unwrap_or(0);
                    triangular::solve(a(0), b, (n, columns), (upper, unit), x);
                }
                Check(_) | Permutation => {}
            }
        }
        Ok(())
    }
}

/// Swaps the rows of each matrix.
fn permute(pivots: &Input<'_>, rows: &Input<'_>, order: &mut Output<'_>) -> Result<(), Error> {
    let (Slice::I32(swaps), Slice::I32(from), SliceMut::I32(to)) =
        (pivots.data, rows.data, &mut order.data)
    else {
        return Ok(());
    };
    let (k, m) =
        (pivots.shape.last().copied().unwrap_or(0), rows.shape.last().copied().unwrap_or(0));
    for (i, (from, to)) in from.chunks(m.max(1)).zip(to.chunks_mut(m.max(1))).enumerate() {
        lu::permutation(&swaps[i * k..(i + 1) * k], from, to)
            .map_err(|p| wrong("pivots that are rows", p))?;
    }
    Ok(())
}

/// The part of a result that belongs to one matrix.
enum Part<'a, T> {
    Floats(&'a mut [T]),
    Ints(&'a mut [i32]),
    None,
}

/// The `i`-th of `count` equal parts.
fn range(length: usize, count: usize, i: usize) -> std::ops::Range<usize> {
    let each = length / count;
    i * each..(i + 1) * each
}

impl<'a, T: Elements> Part<'a, T> {
    fn new(output: &'a mut Output<'_>, count: usize, i: usize) -> Part<'a, T> {
        match &mut output.data {
            SliceMut::I32(all) => {
                let range = range(all.len(), count, i);
                Part::Ints(&mut all[range])
            }
            floats => T::all_mut(floats).map_or(Part::None, |all| {
                let range = range(all.len(), count, i);
                Part::Floats(&mut all[range])
            }),
        }
    }
    fn floats(self) -> &'a mut [T] {
        if let Part::Floats(all) = self { all } else { &mut [] }
    }
    fn ints(self) -> &'a mut [i32] {
        if let Part::Ints(all) = self { all } else { &mut [] }
    }
}

/// Access to slices of one float type.
trait Elements: Real {
    fn all<'a>(input: &Input<'a>) -> &'a [Self];
    fn all_mut<'a>(output: &'a mut SliceMut<'_>) -> Option<&'a mut [Self]>;
    fn part<'a>(input: &Input<'a>, count: usize, i: usize) -> &'a [Self] {
        let all = Self::all(input);
        &all[range(all.len(), count, i)]
    }
}

macro_rules! elements {
    ($($t:ty: $kind:ident),*) => { $(
        impl Elements for $t {
            fn all<'a>(input: &Input<'a>) -> &'a [$t] {
                if let Slice::$kind(all) = input.data { all } else { &[] }
            }
            fn all_mut<'a>(output: &'a mut SliceMut<'_>) -> Option<&'a mut [$t]> {
                if let SliceMut::$kind(all) = output { Some(all) } else { None }
            }
        }
    )* };
}
elements!(f32: F32, f64: F64);
