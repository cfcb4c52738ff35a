//! `kiln-reciprocals`: turns a division by a broadcast value into a multiplication by its
//! reciprocal.
//!
//! Why: a vector division costs about 16 multiplications, and softmax, layer norm and batch norm
//! divide each element of a row or channel by the same number. With frozen weights the reciprocal
//! itself is frozen. Upstream's arith does this for constants only.
//!
//! Numerics: approximates, by at most one extra rounding. Only divisors whose reciprocal is normal
//! or infinite qualify: a square root, and a softmax denominator, which is at least 1.
//!
//! ```text
//! before:  %0 = kiln.sqrt %v   %1 = kiln.broadcast_in_dim %0 …   %2 = kiln.div %x, %1
//! after:   %0 = kiln.sqrt %v   %r = kiln.div %one, %0   %1 = kiln.broadcast_in_dim %r …   %2 = kiln.mul %x, %1
//! ```
use crate::pass::{Numerics, Pass};
use kiln_dialects::{
    ir::*,
    ops::*,
    rules::{GRAPH_LEVELS, Level, tensor_type},
    sym::known_product,
    value::DType,
};

crate::pass_options! {
    /// The pass.
    pub struct Reciprocals {
        /// Least broadcast factor of a divisor, where it is static
        pub repeats: i64 = 8,
    }
}

impl Pass for Reciprocals {
    const FLAG: &'static str = "kiln-reciprocals";
    const SUMMARY: &'static str =
        "Replaces divisions by a broadcast square root or softmax denominator by multiplications";
    const LEVELS: &'static [Level] = GRAPH_LEVELS;
    const NUMERICS: Numerics = Numerics::Approximates;

    fn run(&self, root: Op) -> Result<()> {
        for op in walk(root) {
            let Some(div) = Div::of(op) else { continue };
            let Some(broadcast) = div
                .rhs
                .def()
                .and_then(BroadcastInDim::of)
                .filter(|b| self.is_profitable(b, div.rhs))
            else {
                continue;
            };
            let b = Builder::before(op).ok_or_at(op, "is in no block")?;
            let s = broadcast.input;
            let dtype = tensor_type(s.ty()).at(op)?.dtype;
            let one = b.sizes_of(s).and_then(|sizes| b.splat(dtype, &sizes, 1.0)).at(op)?;
            let input = b.add(&Div { lhs: one, rhs: s }).at(op)?;
            let rhs = b.add(&BroadcastInDim { input, ..broadcast }).at(op)?;
            let product = b.add(&Mul { lhs: div.lhs, rhs }).at(op)?;
            op.result(0).replace_uses(product);
        }
        // The divisions are dead now; canonicalize erases them.
        Ok(())
    }
}

impl Reciprocals {
    fn is_profitable(&self, b: &BroadcastInDim, whole: Value) -> bool {
        let wide =
            tensor_type(whole.ty()).is_ok_and(|t| matches!(t.dtype, DType::F32 | DType::F64));
        let count = |v: Value| known_product(&v.ty().dims());
        let repeated = match (count(whole), count(b.input)) {
            (Some(all), Some(one)) => all >= one.saturating_mul(self.repeats),
            // Dynamic sizes: a lower rank means a broadcast.
            _ => b.dims.len() < whole.ty().dims().len(),
        };
        wide && repeated && b.input.def().is_some_and(has_normal_reciprocal)
    }
}

/// Whether reciprocals of an op's results are neither subnormal nor overflow, except for 0 and inf.
fn has_normal_reciprocal(op: Op) -> bool {
    match op.kind() {
        Some(OpKind::Sqrt) => true,
        Some(OpKind::Reshape) => op.operand(0).def().is_some_and(has_normal_reciprocal),
        Some(OpKind::Reduce) => softmax_sum(op).is_some(),
        _ => false,
    }
}

/// A sum of exp(x - max x), both along the same dimensions.
fn softmax_sum(op: Op) -> Option<()> {
    let sum = Reduce::of(op).filter(|r| r.kind == ReduceKind::Sum)?;
    let difference = Sub::of(Exp::of(sum.input.def()?)?.input.def()?)?;
    let max = Reduce::of(BroadcastInDim::of(difference.rhs.def()?)?.input.def()?)?;
    (max.kind == ReduceKind::Max && max.input == difference.lhs && max.dims == sum.dims)
        .then_some(())
}
