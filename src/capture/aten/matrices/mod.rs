//! Linear algebra of f32 and f64 matrices. Factorizations are host calls (`kiln-linalg`); the rest
//! is derived from them in prims.
pub(super) mod condition;
pub(super) mod factors;
pub(super) mod general;
pub(super) mod inverses;
pub(super) mod orthogonal;
pub(super) mod spectra;
pub(super) mod systems;

use super::{Args, Cx, tools::*};
use crate::capture::unsupported;
use kiln_dialects::{ir::*, ops::*, sym::Dim, value::DType};
use kiln_linalg::{Api, Factorization};

/// A result of a host call: dtype and sizes.
type Spec = (DType, Vec<Size>);

impl Cx {
    /// Calls a factorization on the host.
    fn factorize(
        &self,
        f: Factorization,
        inputs: &[Value],
        results: Vec<Spec>,
    ) -> Result<Vec<Value>> {
        let dims = |sizes: &[Size]| -> Vec<Dim> {
            sizes.iter().map(|s| s.known().map_or(Dim::Unknown, Dim::Known)).collect()
        };
        let types: Vec<Type> =
            results.iter().map(|(d, sizes)| Type::tensor(self.b.ctx, *d, &dims(sizes))).collect();
        let effect = matches!(f, Factorization::Check(_));
        let call = CustomCall { callee: f.name(), inputs: inputs.to_vec(), effect, config: None };
        let made = self.b.create_with(&call, &types, &mut [])?.results();
        for (value, (_, sizes)) in made.iter().zip(results) {
            if sizes.iter().any(|s| s.known().is_none()) {
                self.b.create_with(&BindShape { value: *value, sizes }, &[], &mut [])?;
            }
        }
        Ok(made)
    }
    /// Fails a call whose `info` reports a failure.
    fn check_info(&self, api: Api, info: Value) -> Result<()> {
        self.factorize(Factorization::Check(api), &[info], vec![]).map(|_| ())
    }
    /// Matrices of f32 or f64. Err: fewer than two dimensions, another dtype.
    fn matrices(&mut self, a: &Args<'_>, name: &str, api: &str) -> Result<Value> {
        let x = self.tensor(a, name)?;
        let d = dtype_of(x)?;
        if !d.is_float() {
            return Err(format!(
                "{api}: Expected a floating point or complex tensor as input. Got {}",
                super::check::scalar_name(d)
            )
            .into());
        }
        if d.bits() < 32 {
            return Err(format!(
                "{api}: Low precision dtypes not supported. Got {}",
                super::check::scalar_name(d)
            )
            .into());
        }
        if rank_of(x) < 2 {
            return Err(
                format!("{api}: The input tensor A must have at least 2 dimensions.").into()
            );
        }
        Ok(x)
    }
    /// As [`Cx::matrices`]. Err: they are not square.
    fn squares(&mut self, a: &Args<'_>, name: &str, api: &str) -> Result<Value> {
        let x = self.matrices(a, name, api)?;
        square(x, api).map(|()| x)
    }
    /// Sizes in front of the last two, rows, columns.
    fn sizes_of_matrices(&self, x: Value) -> Result<(Vec<Size>, Size, Size)> {
        let mut sizes = self.b.sizes_of(x)?;
        match (sizes.pop(), sizes.pop()) {
            (Some(n), Some(m)) => Ok((sizes, m, n)),
            _ => Err("has fewer than two dimensions".into()),
        }
    }
    /// The smaller of two sizes.
    fn smaller(&self, m: Size, n: Size) -> Result<Size> {
        if m == n { Ok(m) } else { self.size_min(m, n) }
    }
    /// The last two dimensions swapped.
    fn turned(&self, x: Value) -> Result<Value> {
        let n = rank_of(x) as i64;
        self.transpose(x, (0..n - 2).chain([n - 1, n - 2]).collect())
    }
    /// The first rows or columns of matrices: `back` is 2 for rows, 1 for columns.
    fn first(&self, x: Value, back: usize, count: Size) -> Result<Value> {
        let axis = rank_of(x) - back;
        if self.b.size_of(x, axis)? == count {
            return Ok(x);
        }
        self.part(x, axis, Size::Static(0), count)
    }
    /// Elements where `kind` holds between column and row, zeros elsewhere.
    fn where_columns(&self, kind: CompareKind, x: Value) -> Result<Value> {
        let (sizes, n) = (self.b.sizes_of(x)?, rank_of(x));
        let row = self.iota(DType::I64, sizes.clone(), n - 2)?;
        let column = self.iota(DType::I64, sizes, n - 1)?;
        self.select(self.compare(kind, column, row)?, x, self.number(dtype_of(x)?, 0.0)?)
    }
    /// The diagonals of square matrices.
    fn diagonals(&self, x: Value) -> Result<Value> {
        let last = rank_of(x) as i64 - 1;
        self.reduced(ReduceKind::Sum, self.where_columns(CompareKind::Eq, x)?, &[last])
    }
    /// A product of batches.
    fn product(&self, lhs: Value, rhs: Value) -> Result<Value> {
        self.b.add(&Matmul { lhs, rhs })
    }
    /// Matrices with their batch dimensions broadcast to those of each other.
    fn same_batch(&self, x: Value, y: Value) -> Result<(Value, Value)> {
        let ((p, m, n), (q, k, l)) = (self.sizes_of_matrices(x)?, self.sizes_of_matrices(y)?);
        if p == q {
            return Ok((x, y));
        }
        // Scalars of these batches, which broadcast as operands of an elementwise op.
        let of = |batch: &[Size]| self.b.splat(DType::I64, batch, 0.0);
        let common = self.common(&[of(&p)?, of(&q)?])?;
        let to = |v: Value, sizes: [Size; 2]| self.broadcast_to(v, &[&common[..], &sizes].concat());
        Ok((to(x, [m, n])?, to(y, [k, l])?))
    }
}

/// The identity in the shape of matrices.
pub(super) fn identity(cx: &Cx, x: Value) -> Result<Value> {
    let sizes = cx.b.sizes_of(x)?;
    let n = rank_of(x);
    let (i, j) = (cx.iota(DType::I64, sizes.clone(), n - 2)?, cx.iota(DType::I64, sizes, n - 1)?);
    cx.convert(cx.compare(CompareKind::Eq, i, j)?, dtype_of(x)?)
}

/// Err: the last two dimensions are not those of square matrices.
pub(super) fn square(x: Value, name: &str) -> Result<()> {
    let dims = x.ty().dims();
    match dims.as_slice() {
        [.., m, n] if m.known().zip(n.known()).is_none_or(|(m, n)| m == n) => Ok(()),
        _ => Err(format!("{name}: The input tensor must be batches of square matrices").into()),
    }
}

/// Err: LU without pivoting, which PyTorch has on GPUs only.
fn pivoting(a: &Args<'_>, api: &str) -> Result<()> {
    if a.flag("pivot", true)? {
        return Ok(());
    }
    Err(unsupported(format!("{api}: LU without pivoting is not implemented on the CPU")))
}

/// No elements, as results that were not asked for have.
fn nothing(cx: &Cx, d: DType) -> Result<Value> {
    cx.b.splat(d, &[Size::Static(0)], 0.0)
}
