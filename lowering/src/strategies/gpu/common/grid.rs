//! Grid size of a kernel, as an affine map over its `index` parameters.
use crate::{
    analysis::{Kernel, Nest, NestPlan, Poly},
    strategies::gpu::common::roles::{Roles, roles_of},
};
use kiln_dialects::ir::*;

/// Grid size where an extent is not affine in the parameters. Kernels are grid-stride, so that any
/// grid size is correct.
pub const DEFAULT_GRID: i64 = 1024;

/// The bytes of shared memory of a schedule.
///
/// # Errors
/// They are more than is possible.
pub fn shared_bytes(bytes: usize, most: usize) -> Result<usize> {
    match bytes <= most {
        true => Ok(bytes),
        false => {
            Err(format!("has a schedule of {bytes} bytes of shared memory; {most} are possible")
                .into())
        }
    }
}

/// A kernel's sizes, for affine expressions over them.
pub struct Extents(Vec<Value>);

impl Extents {
    /// Product of some extents of a nest.
    pub fn product(&self, n: &Nest, dims: &[usize]) -> Option<String> {
        self.poly(&Poly::product(dims.iter().filter_map(|d| n.extents.get(*d))))
    }
    /// Product of a nest's parallel extents.
    pub fn parallel(&self, n: &Nest) -> Option<String> {
        self.product(n, &parallel(n))
    }
    /// Affine expression of a size.
    pub fn poly(&self, p: &Poly) -> Option<String> {
        poly(p, &self.0)
    }
    /// CTA tiles of the plan's contraction: batch by rows by columns.
    pub fn tiles(&self, k: &Kernel, plan: &NestPlan, m: usize, n: usize) -> Option<String> {
        let nest = plan.nests.first()?;
        self.tiles_of(nest, &roles_of(k, nest, *nest.stages.first()?)?, m, n, 1)
    }
    /// CTA tiles of a matrix product: batch by rows by columns, each with a split-K factor.
    pub fn tiles_of(
        &self,
        nest: &Nest,
        r: &Roles,
        m: usize,
        n: usize,
        split_k: usize,
    ) -> Option<String> {
        let (rows, columns) = (self.product(nest, &r.rows)?, self.product(nest, &r.columns)?);
        // The right operands share the columns of a CTA tile evenly.
        let tiles = format!(
            "({}) * (({rows}) ceildiv {m}) * (({columns}) ceildiv {})",
            self.product(nest, &r.batch)?,
            n / nest.stages.len()
        );
        Some(if split_k > 1 { format!("{split_k} * {tiles}") } else { tiles })
    }
}

fn parallel(n: &Nest) -> Vec<usize> {
    (0..n.extents.len()).filter(|d| !n.reduction[*d]).collect()
}

/// The nest with the most results, as far as extents are static.
pub fn largest(plan: &NestPlan) -> Option<&Nest> {
    plan.nests.iter().max_by_key(|n| {
        Poly::product(parallel(n).iter().map(|d| &n.extents[*d])).known().unwrap_or(i64::MAX)
    })
}

/// Affine map of an expression over the kernel's sizes, or [`DEFAULT_GRID`] where there is none.
pub fn grid(k: &Kernel, expression: impl FnOnce(&Extents) -> Option<String>) -> Result<Attr> {
    let sizes: Vec<Value> = k.block.args().into_iter().filter(|a| a.ty().is_index()).collect();
    let extents = Extents(sizes);
    let expression = expression(&extents).unwrap_or_else(|| DEFAULT_GRID.to_string());
    map(k.func.ctx(), &[expression], extents.0.len())
}

/// Affine map of these expressions over as many sizes.
pub fn map(c: Ctx, expressions: &[String], sizes: usize) -> Result<Attr> {
    let names: Vec<String> = (0..sizes).map(|i| format!("s{i}")).collect();
    let map = format!("affine_map<()[{}] -> ({})>", names.join(", "), expressions.join(", "));
    Attr::parse(c, &map).ok_or_else(|| format!("'{map}' is no map").into())
}

/// A size as an affine expression; `None` where it is not affine.
pub fn poly(p: &Poly, sizes: &[Value]) -> Option<String> {
    let mut terms = vec![];
    for (symbols, n) in p.in_order() {
        let mut factors = vec![n.to_string()];
        for v in symbols {
            factors.push(value(v, sizes)?);
        }
        terms.push(factors.join(" * "));
    }
    Some(if terms.is_empty() { "0".into() } else { terms.join(" + ") })
}

fn value(v: Value, sizes: &[Value]) -> Option<String> {
    if let Some(i) = sizes.iter().position(|s| *s == v) {
        return Some(format!("s{i}"));
    }
    let op = v.def()?;
    if let Some(constant) = op.dyn_cast::<arith::Constant>() {
        return constant.value()?.as_i64().map(|n| n.to_string());
    }
    let sign = [
        (arith::AddI::NAME, "+"),
        (arith::MulI::NAME, "*"),
        (arith::DivUI::NAME, "floordiv"),
        (arith::RemUI::NAME, "mod"),
    ];
    let sign = sign.iter().find(|(name, _)| op.is(name))?.1;
    Some(format!("({} {sign} {})", value(op.operand(0), sizes)?, value(op.operand(1), sizes)?))
}
