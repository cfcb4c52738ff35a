//! Types and sizes of operands, and the checks that all shape rules share.
use crate::{
    error::Result,
    ir::{Size, Type, Value},
    sym::Dim,
    value::DType,
};

/// A tensor's dtype and dimensions.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorType {
    /// Element type.
    pub dtype: DType,
    /// Dimensions, outermost first.
    pub dims: Vec<Dim>,
}

/// The source of operand types and sizes.
pub trait Sizes {
    /// The type of an operand.
    fn tensor(&self, v: Value) -> Result<TensorType>;
    /// An entry of a list of sizes.
    fn size(&self, s: &Size) -> Dim;
    /// All entries.
    fn sizes(&self, all: &[Size]) -> Vec<Dim> {
        all.iter().map(|s| self.size(s)).collect()
    }
}

/// The dtype and dimensions of a type. Err: why it is not a kiln tensor.
pub fn tensor_type(t: Type) -> Result<TensorType> {
    if !t.is_tensor() {
        return Err(format!("needs a ranked tensor, has {t}").into());
    }
    if t.has_encoding() {
        return Err(format!(
            "has type {t}: encodings are not part of kiln's types; memory formats are #kiln.layout on entry arguments"
        ).into());
    }
    Ok(TensorType { dtype: t.element().ok_or("has no element type")?.dtype()?, dims: t.dims() })
}

/// The size that both equal. Err: they provably differ.
pub fn unify(a: &Dim, b: &Dim, what: impl Fn() -> String) -> Result<Dim> {
    match (a, b) {
        _ if a.differs(b) => Err(format!("has sizes {a} and {b} {}", what()).into()),
        (Dim::Known(_), _) | (_, Dim::Unknown) => Ok(a.clone()),
        (_, Dim::Known(_)) | (Dim::Unknown, _) => Ok(b.clone()),
        _ => Ok(a.clone()),
    }
}

/// Unifies per dimension; ranks must be equal.
pub(super) fn unify_all(a: &[Dim], b: &[Dim], what: &str) -> Result<Vec<Dim>> {
    if a.len() != b.len() {
        return Err(format!("has ranks {} and {} {what}", a.len(), b.len()).into());
    }
    a.iter()
        .zip(b)
        .enumerate()
        .map(|(i, (x, y))| unify(x, y, || format!("in dimension {i} {what}")))
        .collect()
}

/// A checked axis.
pub(super) fn axis_of(axis: i64, rank: usize) -> Result<usize> {
    usize::try_from(axis)
        .ok()
        .filter(|a| *a < rank)
        .ok_or_else(|| format!("has axis {axis} out of range for rank {rank}").into())
}

/// Checked, distinct axes.
pub(super) fn axes_of(axes: &[i64], rank: usize, name: &str) -> Result<Vec<usize>> {
    let mut all = vec![];
    for a in axes {
        let a = axis_of(*a, rank)?;
        if all.contains(&a) {
            return Err(format!("repeats dimension {a} in '{name}'").into());
        }
        all.push(a);
    }
    Ok(all)
}

pub(super) fn ensure(ok: bool, message: impl FnOnce() -> String) -> Result<()> {
    if ok { Ok(()) } else { Err(message().into()) }
}

pub(super) fn ensure_len(list: &[i64], n: usize, name: &str) -> Result<()> {
    ensure(list.len() == n, || {
        format!("has {} entries in '{name}' where {n} are needed", list.len())
    })
}

/// The dimensions without `gone`, or with 1 in their place under `keep`.
pub(super) fn without(dims: &[Dim], gone: &[usize], keep: bool) -> Vec<Dim> {
    let cell = |(i, d): (usize, &Dim)| match (gone.contains(&i), keep) {
        (false, _) => Some(d.clone()),
        (true, true) => Some(Dim::Known(1)),
        (true, false) => None,
    };
    dims.iter().enumerate().filter_map(cell).collect()
}
