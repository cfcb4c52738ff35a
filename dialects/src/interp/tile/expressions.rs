//! Affine expressions of elements.
use super::elements::Elements;
use crate::{
    algebra::{self, Expr},
    error::Result,
    ir::{Affine, MapInput},
};

/// The value of an expression for each element of its inputs.
///
/// # Errors
/// An input is missing, or the arithmetic overflows.
pub(super) fn evaluate(e: &Affine, dims: &[Elements], symbols: &[Elements]) -> Result<Elements> {
    let (kind, both) = match e {
        Expr::Const(n) => return Ok(Elements::index(*n)),
        Expr::Leaf(MapInput::Dim(d)) => {
            return Ok(dims.get(*d).ok_or("has too few operands")?.clone());
        }
        Expr::Leaf(MapInput::Symbol(s)) => {
            return Ok(symbols.get(*s).ok_or("has too few operands")?.clone());
        }
        Expr::Apply(kind, both) => (*kind, both),
    };
    let (a, b) = (evaluate(&both.0, dims, symbols)?, evaluate(&both.1, dims, symbols)?);
    let (x, y) = (a.ints()?, b.ints()?);
    let one = |i: usize| algebra::evaluate(kind, x[i % x.len()], y[i % y.len()]);
    let all = (0..x.len().max(y.len())).map(one).collect::<Option<_>>();
    Ok(Elements::indices(all.ok_or_else(|| format!("has no value: {}", kind.keyword()))?))
}
