//! Checks of a call's arguments before it is emitted, with the rules and messages of PyTorch's meta
//! functions.
//!
//! Only what builders and op verifiers do not check: they already reject dimensions out of range,
//! shapes that do not broadcast, and mismatched products. Symbolic sizes are not compared here; the
//! export's guards cover them.
mod elementwise;
mod image;
mod index;
mod norm;
mod product;
mod shape;

use super::{Args, Cx, Row, Val, tools::dtype_of};
use kiln_dialects::{ir::*, sym::Dim, value::DType};

/// A check; its error has PyTorch's wording.
type Check = fn(&mut Call<'_, '_>) -> Result<()>;

/// Overloads that share checks. In-place overloads use those of their functional variants.
type Checks = &'static [(&'static [&'static str], Check)];

const TABLE: [Checks; 6] = [
    elementwise::CHECKS,
    shape::CHECKS,
    index::CHECKS,
    product::CHECKS,
    norm::CHECKS,
    image::CHECKS,
];

/// Err: the overload does not accept these arguments.
pub(in crate::capture) fn check(row: &Row, cx: &mut Cx, a: &Args<'_>) -> Result<()> {
    let name = row.name.strip_prefix("aten.").unwrap_or(row.name);
    let mut call = Call { name, cx, a };
    let all = TABLE.iter().copied().flatten().filter(|(names, _)| names.contains(&name));
    all.into_iter().try_for_each(|(_, check)| check(&mut call))
}

/// A call to check.
struct Call<'c, 'a> {
    /// The overload, such as `mm.default`.
    name: &'c str,
    cx: &'c mut Cx,
    a: &'c Args<'a>,
}

/// A tensor type; symbolic sizes are `None`.
#[derive(Clone, Debug, PartialEq)]
struct Ty {
    dtype: DType,
    dims: Vec<Option<i64>>,
}

impl Ty {
    fn of(v: Value) -> Result<Ty> {
        let known = |d: &Dim| d.known();
        Ok(Ty { dtype: dtype_of(v)?, dims: v.ty().dims().iter().map(known).collect() })
    }
    fn rank(&self) -> usize {
        self.dims.len()
    }
    /// The sizes in PyTorch's notation.
    fn sizes(&self) -> String {
        list(&self.dims)
    }
    /// The sizes for indexing, where PyTorch treats a 0-d tensor as one of size `[1]`.
    fn at_least_1d(&self) -> Vec<Option<i64>> {
        if self.dims.is_empty() { vec![Some(1)] } else { self.dims.clone() }
    }
    /// The number of elements, if static.
    fn count(&self) -> Option<i64> {
        self.dims.iter().try_fold(1i64, |n, d| n.checked_mul((*d)?))
    }
}

/// Sizes in PyTorch's notation; symbols print as `s`.
pub(super) fn list(dims: &[Option<i64>]) -> String {
    format!("[{}]", joined(dims, ", "))
}
fn joined(dims: &[Option<i64>], between: &str) -> String {
    let texts: Vec<String> = dims.iter().map(|d| d.map_or("s".into(), |n| n.to_string())).collect();
    texts.join(between)
}

/// Whether two sizes are statically different.
fn differ(x: Option<i64>, y: Option<i64>) -> bool {
    x.zip(y).is_some_and(|(x, y)| x != y)
}
/// Whether two shapes are statically different.
fn shapes_differ(x: &[Option<i64>], y: &[Option<i64>]) -> bool {
    x.len() != y.len() || x.iter().zip(y).any(|(x, y)| differ(*x, *y))
}

/// PyTorch's dtype name in messages, such as `Float`.
pub(super) fn scalar_name(d: DType) -> &'static str {
    match d {
        DType::F64 => "Double",
        DType::F32 => "Float",
        DType::F16 => "Half",
        DType::BF16 => "BFloat16",
        DType::F8E4M3FN => "Float8_e4m3fn",
        DType::F8E5M2 => "Float8_e5m2",
        DType::I64 => "Long",
        DType::I32 => "Int",
        DType::I16 => "Short",
        DType::I8 => "Char",
        DType::UI8 => "Byte",
        DType::I1 => "Bool",
    }
}

impl<'c> Call<'c, '_> {
    /// A tensor argument.
    fn ty(&mut self, name: &str) -> Result<Ty> {
        Ty::of(self.cx.tensor(self.a, name)?)
    }
    /// A tensor argument; `None` if it is absent or a number.
    fn optional(&mut self, name: &str) -> Result<Option<Ty>> {
        match self.a.values.get(name) {
            Some(Val::Tensor(t)) => Ty::of(self.cx.get(*t)?).map(Some),
            _ => Ok(None),
        }
    }
    /// A list of tensors.
    fn types(&mut self, name: &str) -> Result<Vec<Ty>> {
        self.cx.tensors(self.a, name)?.into_iter().map(Ty::of).collect()
    }
    /// A list of sizes; symbolic ones are `None`.
    fn sizes(&self, name: &str) -> Result<Vec<Option<i64>>> {
        Ok(self.a.sizes(name)?.into_iter().map(Size::known).collect())
    }
    /// A dimension argument, normalised for this rank.
    fn dim(&self, default: Option<i64>, rank: usize) -> Result<usize> {
        super::tools::wrap(self.a.int("dim", default)?, rank)
    }
    /// The op without its overload, such as `mm`.
    fn packet(&self) -> &'c str {
        self.name.split('.').next().unwrap_or(self.name)
    }
}

/// Err: `ok` is false.
fn wants(ok: bool, reason: impl FnOnce() -> String) -> Result<()> {
    if ok { Ok(()) } else { Err(reason().into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_check_is_of_a_row() {
        for name in TABLE.iter().copied().flatten().flat_map(|(names, _)| names.iter()) {
            let full = format!("aten.{name}");
            assert!(super::super::rows().any(|r| r.name == full), "{full} has no row");
        }
    }
}
