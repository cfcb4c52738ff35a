//! The values of a graph under construction, and which a step may use.
use super::Material;
use crate::{ops::Symbolic, support::Random};
use kiln::dialects::{ir::*, ops::*, rules::Sizes, sym::Dim as Extent, value::DType};

/// A function `@f` that computes every value of the recipe and returns the unused ones.
pub struct Graph {
    pub b: Builder,
    pub values: Vec<Value>,
    pub random: Random,
    pub material: &'static Material,
    /// Whether a step uses exact values only.
    pub exact: bool,
    /// Nesting depth of regions.
    pub depth: usize,
    /// Arguments of these regions.
    pub regional: Vec<Value>,
}

impl Graph {
    pub fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.random.below(all.len())]
    }
    /// A value that `fits`, else a splat.
    pub fn value(&mut self, fits: impl Fn(&[Extent], DType) -> bool) -> Option<Value> {
        let ok =
            |v: &&Value| fits(&v.ty().dims(), dtype(**v)) && (!self.exact || self.is_exact(**v));
        let all: Vec<Value> = self.values.iter().filter(ok).copied().collect();
        if all.is_empty() { None } else { Some(self.pick(&all)) }
    }
    pub fn any(&mut self) -> Value {
        self.value(|_, _| true).expect("arguments")
    }
    pub fn shaped(&mut self) -> Option<(Value, i64)> {
        let v = self.value(|d, _| !d.is_empty())?;
        let axis = self.random.below(v.ty().dims().len());
        Some((v, axis as i64))
    }
    /// A value with the type and sizes of `x`: an existing one, or a splat.
    pub fn like(&mut self, x: Value) -> Result<Value, kiln_dialects::Error> {
        let block = self.values.iter().find_map(|v| v.block_arg()).ok_or("has no arguments")?.0;
        let sizes = Symbolic::of(block)?;
        let (ty, wanted) = (x.ty(), sizes.tensor(x)?);
        let known = wanted.dims.iter().all(|d| *d != Extent::Unknown);
        let fits = |v: Value| {
            known
                && v.ty() == ty
                && (!self.exact || self.is_exact(v))
                && sizes.tensor(v).is_ok_and(|t| t == wanted)
        };
        let same = |v: &&Value| **v == x || fits(**v);
        let all: Vec<Value> = self.values.iter().filter(same).copied().collect();
        if self.random.below(3) > 0 {
            return Ok(self.pick(&all));
        }
        let number = self.pick(&[1.0, 2.0, 0.5, 3.0]);
        self.b.splat(dtype(x), &self.b.sizes_of(x)?, number)
    }
    pub fn scalar(&self, dtype: DType, value: f64) -> Result<Value, kiln_dialects::Error> {
        self.b.splat(dtype, &[], value)
    }
    pub fn permutation(&mut self, n: usize) -> Vec<i64> {
        let mut p: Vec<i64> = (0..n as i64).collect();
        (1..n).for_each(|i| p.swap(i, self.random.below(i + 1)));
        p
    }
    /// Whether a value is equal in every precision, as far as its ops show.
    fn is_exact(&self, v: Value) -> bool {
        let Some(op) = v.def() else { return !dtype(v).is_float() || !self.regional.contains(&v) };
        use OpKind::*;
        let copies =
            matches!(op.kind().map(|k| k.family()), Some(Family::Movement | Family::Create))
                || matches!(
                    op.kind(),
                    Some(
                        Gather
                            | DynamicSlice
                            | DynamicUpdateSlice
                            | Sort
                            | TopK
                            | Select
                            | Clamp
                            | Neg
                            | Abs
                            | Sign
                            | Max
                            | Min
                    )
                );
        let bits = matches!(op.kind(), Some(RandomBits | Philox));
        let whole = !dtype(v).is_float() && !bits;
        let tensors = || op.operands().into_iter().filter(|o| o.ty().is_tensor());
        (copies || whole || bits) && tensors().all(|o| self.is_exact(o))
    }
    pub fn subset(&mut self, n: usize) -> Vec<i64> {
        (0..n as i64).filter(|_| self.random.below(2) == 0).collect()
    }
}

pub fn dtype(v: Value) -> DType {
    kiln::dialects::rules::tensor_type(v.ty()).unwrap().dtype
}

/// Functions with a small condition number.
pub const SMOOTH: &[UnaryKind] = &[
    UnaryKind::Neg,
    UnaryKind::Abs,
    UnaryKind::Sin,
    UnaryKind::Cos,
    UnaryKind::Atan,
    UnaryKind::Tanh,
    UnaryKind::Erf,
    UnaryKind::Not,
];
