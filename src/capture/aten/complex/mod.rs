//! Complex numbers: a complex tensor is a pair of real tensors, its real and its imaginary part.
//! Only inputs, results and `view_as_real` hold both parts in one tensor, in a last dimension of 2.
//!
//! Most overloads need no builder of their own: what moves or adds elements runs once for each part
//! ([`parts`]), and products run once for each pair of parts ([`products`]).
mod functions;
mod number;
mod parts;
mod products;
mod rows;

use super::{
    Args, Cx, Outcome, Row, Val, check::check, matrices, promote::result_type, spectral, tools::*,
};
use crate::capture::{storage::Alias, storage::ViewOp, unsupported};
use kiln_dialects::{ir::*, ops::*, value::DType};
pub(super) use number::Z;
pub(super) use rows::ROWS;

/// A builder of an overload for complex arguments.
type Build = fn(&mut Cx, &Row, &Args<'_>) -> Result<Outcome>;

/// Checks the arguments of an overload, and emits it.
///
/// # Errors
/// The arguments are wrong or not supported, or complex where the overload has no form for that.
pub(in crate::capture) fn build(row: &Row, cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let complex = || ROWS.iter().chain(spectral::ROWS).chain(matrices::general::COMPLEX);
    let knows = || complex().any(|r| r.name == row.name);
    if !a.values.values().any(is_complex) || knows() {
        check(row, cx, a)?;
        return (row.build)(cx, a);
    }
    let name = row.name.strip_prefix("aten.").unwrap_or(row.name);
    let own = functions::find(name).or_else(|| products::find(name)).or_else(|| parts::find(name));
    match own {
        Some(build) => build(cx, row, a),
        None => Err(unsupported("is not supported on complex numbers")),
    }
}

/// The movements from a tensor of parts to one of them, of these sizes.
fn halved(sizes: &[Size], part: i64) -> Vec<ViewOp> {
    let mut offsets = vec![Size::Static(0); sizes.len()];
    offsets.push(Size::Static(part));
    let cut = [sizes, &[Size::Static(1)]].concat();
    let slice = ViewOp::Slice(offsets, cut, vec![1; sizes.len() + 1]);
    vec![slice, ViewOp::Reshape(sizes.to_vec())]
}

/// Whether an argument is or holds something complex.
fn is_complex(v: &Val) -> bool {
    match v {
        Val::Complex(..) | Val::ComplexNumber(..) | Val::ComplexDType(_) => true,
        Val::List(all) => all.iter().any(is_complex),
        _ => false,
    }
}

impl Cx {
    /// A complex view of a tensor whose last dimension holds the two parts.
    pub(super) fn parted(&mut self, whole: Alias) -> Result<Val> {
        let x = self.get(whole)?;
        let sizes = self.b.sizes_of(x)?;
        let Some((last, kept)) = sizes.split_last() else {
            return Err("Input tensor must have one or more dimensions".into());
        };
        if last.known() != Some(2) {
            return Err("Tensor must have a last dimension of size 2".into());
        }
        let kept = kept.to_vec();
        let (re, im) = (self.view(whole, &halved(&kept, 0))?, self.view(whole, &halved(&kept, 1))?);
        self.wholes.insert((re, im), whole);
        Ok(Val::Complex(re, im))
    }
    /// The tensor of a complex one's parts, which are its last dimension. It shares their memory, or
    /// neither may be written later.
    pub(in crate::capture) fn interleaved(&mut self, re: Alias, im: Alias) -> Result<Alias> {
        if let Some(whole) = self.wholes.get(&(re, im)) {
            return Ok(*whole);
        }
        let (x, y) = (self.get(re)?, self.get(im)?);
        let (sizes, v) = (self.b.sizes_of(x)?, self.stacked(x, y, rank_of(x))?);
        let parts = [(re, halved(&sizes, 0)), (im, halved(&sizes, 1))];
        if let Some(whole) = self.store.joined(v, parts) {
            self.wholes.insert((re, im), whole);
            return Ok(whole);
        }
        let copy = self.store.fresh(v);
        [re, im, copy].into_iter().for_each(|alias| self.store.pin(alias));
        Ok(copy)
    }
    /// Two tensors of one type along a new dimension.
    pub(super) fn stacked(&self, x: Value, y: Value, axis: usize) -> Result<Value> {
        let mut sizes = self.b.sizes_of(x)?;
        sizes.insert(axis, Size::Static(1));
        let inputs = vec![self.reshape(x, sizes.clone())?, self.reshape(y, sizes)?];
        self.b.add(&Concat { inputs, axis: axis as i64 })
    }
    /// One complex result, with storages of its own. Parts are f32 or f64, and broadcast.
    pub(super) fn one_complex(&mut self, re: Value, im: Value) -> Result<Outcome> {
        let (re, im) = self.broadcast(re, im)?;
        let d = part_dtype(dtype_of(re)?)?;
        let (re, im) = (self.convert(re, d)?, self.convert(im, d)?);
        Ok(Outcome::One(Val::Complex(self.store.fresh(re), self.store.fresh(im))))
    }
    /// A tensor argument's parts; a real one has no second.
    pub(super) fn halves(&mut self, a: &Args<'_>, name: &str) -> Result<(Value, Option<Value>)> {
        match a.get(name) {
            Some(Val::Complex(re, im)) => Ok((self.get(*re)?, Some(self.get(*im)?))),
            _ => Ok((self.tensor(a, name)?, None)),
        }
    }
    /// Tensor or number arguments as parts of their common complex dtype; a real one's second part
    /// is 0.
    fn numbers<const N: usize>(
        &mut self,
        a: &Args<'_>,
        names: [&str; N],
    ) -> Result<[(Value, Value); N]> {
        let (mut tensors, mut plain) = (vec![], vec![]);
        for name in names {
            match a.get(name) {
                Some(Val::Complex(re, _)) => tensors.push(self.get(*re)?),
                Some(Val::Tensor(t)) => tensors.push(self.get(*t)?),
                // In type promotion it raises the category, as a float does.
                Some(Val::ComplexNumber(re, _)) => plain.push(Val::Float(*re)),
                Some(v) => plain.push(v.clone()),
                None => return Err(format!("argument {name} is missing").into()),
            }
        }
        let d = part_dtype(result_type(&tensors, &plain.iter().collect::<Vec<_>>())?)?;
        let mut all = vec![];
        for name in names {
            let pair = match a.get(name) {
                Some(Val::Complex(re, im)) => (self.get(*re)?, self.get(*im)?),
                Some(Val::ComplexNumber(re, im)) => (self.number(d, *re)?, self.number(d, *im)?),
                _ => {
                    let re = self.operand(a, name, d)?;
                    (re, self.full_like(re, 0.0)?)
                }
            };
            all.push((self.convert(pair.0, d)?, self.convert(pair.1, d)?));
        }
        all.try_into().map_err(|_| "has another number of arguments".into())
    }
}

/// The dtype of a complex number's parts, if its dtype is promoted to that of a real tensor.
fn part_dtype(d: DType) -> Result<DType> {
    match d {
        DType::F64 => Ok(d),
        DType::F16 => Err(unsupported("gives complex32, which is not supported")),
        _ => Ok(DType::F32),
    }
}
