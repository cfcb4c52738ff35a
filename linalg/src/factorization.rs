//! The table: names, rules of types, calls.
use crate::{
    Api, Element, Error, Input, Output, Slice, SliceMut, Type, cholesky, eigen, householder, ldl,
    lu, matrix::Real, spectral, triangular,
};

/// A function of the table. Shapes below are of one matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Factorization {
    /// A (n×n, lower triangle) to L and `info`.
    Cholesky,
    /// A (m×n) to packed LU, pivots (min(m, n)) and `info`.
    Lu,
    /// Pivots (k) and a matrix of m rows to the order of rows (m).
    Permutation,
    /// A (m×n) to packed QR and tau (min(m, n)).
    Qr,
    /// Packed reflections (m×n) and tau (k ≤ n ≤ m) to the first n columns of their product.
    HouseholderProduct,
    /// A (m×n) to U, S and Vh; square U and Vh if `full`.
    Svd {
        /// Whether U and Vh are square.
        full: bool,
    },
    /// A (m×n) to S.
    SingularValues,
    /// A (n×n, lower triangle) to eigenvalues and eigenvectors.
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
const NAMES: [(&str, Factorization); 20] = [
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

    /// Types of the results. Err: operands of other dtypes, sizes or number.
    pub fn results(self, operands: &[Type]) -> Result<Vec<Type>, Error> {
        let count = match self {
            Permutation | HouseholderProduct | Solve { .. } => 2,
            Eig { complex } | Eigvals { complex } => 1 + usize::from(complex),
            LdlSolve => 3,
            _ => 1,
        };
        if operands.len() != count {
            return Err(wrong("another number of operands", operands.len()));
        }
        if let Check(_) = self {
            let fits = operands[0].0 == Element::I32;
            return if fits { Ok(vec![]) } else { Err(wrong("info of i32", &operands[0])) };
        }
        let of = if self == Permutation { &operands[1] } else { &operands[0] };
        let ((batch, m, n), float) = (matrices(of)?, of.0);
        let ty = |element: Element, sizes: &[usize]| (element, [&batch[..], sizes].concat());
        let rectangular = matches!(
            self,
            Lu | Permutation | Qr | HouseholderProduct | Svd { .. } | SingularValues
        );
        if !rectangular && m != n {
            return Err(wrong("square matrices", of));
        }
        let k = m.min(n);
        Ok(match self {
            Cholesky => vec![of.clone(), ty(Element::I32, &[])],
            Lu => vec![of.clone(), ty(Element::I32, &[k]), ty(Element::I32, &[])],
            Permutation => {
                let (element, shape) = &operands[0];
                let pivots = shape.last().filter(|k| **k <= m).copied();
                if *element != Element::I32 || pivots.is_none_or(|k| *shape != ty(*element, &[k]).1)
                {
                    return Err(wrong("i32 pivots of each matrix, at most one a row", operands));
                }
                vec![ty(Element::I64, &[m])]
            }
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
                vec![ty(float, &[m, p]), ty(float, &[k]), ty(float, &[q, n])]
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
            LdlSolve => {
                let columns = operands[2].1.last().copied().unwrap_or(0);
                if operands[1] != ty(Element::I32, &[n]) || operands[2] != ty(float, &[n, columns]) {
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
            Check(_) => vec![],
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
        let of = if self == Permutation { &types[1] } else { &types[0] };
        let (batch, m, n) = matrices(of)?;
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
                Permutation => {
                    let Slice::I32(pivots) = inputs[0].data else { continue };
                    let k = pivots.len() / count;
                    lu::permutation(&pivots[i * k..(i + 1) * k], next().positions())
                        .map_err(|p| wrong("pivots that are rows", p))?;
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
                Check(_) => {}
            }
        }
        Ok(())
    }
}

/// The part of a result that belongs to one matrix.
enum Part<'a, T> {
    Floats(&'a mut [T]),
    Ints(&'a mut [i32]),
    Positions(&'a mut [i64]),
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
            SliceMut::I64(all) => {
                let range = range(all.len(), count, i);
                Part::Positions(&mut all[range])
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
    fn positions(self) -> &'a mut [i64] {
        if let Part::Positions(all) = self { all } else { &mut [] }
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
