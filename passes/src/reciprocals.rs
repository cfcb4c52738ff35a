//! `kiln-reciprocals`: a division by a repeated value becomes a multiplication by its reciprocal,
//! which is computed once.
//!
//! Why: a vector division takes about sixteen times as long as a multiplication, and softmax, layer
//! norm and batch norm divide every element of a row or channel by the same number; of frozen
//! weights the reciprocal is a weight itself. Upstream's arith has this for constants only.
//!
//! Numerics: approximates, by at most one more rounding. Only divisors whose reciprocal is a normal
//! number or infinite are taken: a square root, and a sum of exponentials of differences from their
//! maximum, which is at least 1.
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
    sym::Dim as SymDim,
    value::DType,
};

crate::pass_options! {
    /// The pass.
    pub struct Reciprocals {
        /// Least times that a divisor is repeated, where that is known
        pub repeats: i64 = 8,
    }
}

impl Pass for Reciprocals {
    const FLAG: &'static str = "kiln-reciprocals";
    const SUMMARY: &'static str =
        "Turns divisions by a repeated square root or softmax sum into multiplications";
    const LEVELS: &'static [Level] = GRAPH_LEVELS;
    const NUMERICS: Numerics = Numerics::Approximates;

    fn run(&self, root: Op) -> Result<()> {
        for op in walk(root) {
            let Some(div) = Div::of(op) else { continue };
            let Some(broadcast) =
                div.rhs.def().and_then(BroadcastInDim::of).filter(|b| self.pays(b, div.rhs))
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
        // The divisions have no readers any more; canonicalize drops them.
        Ok(())
    }
}

impl Reciprocals {
    fn pays(&self, b: &BroadcastInDim, whole: Value) -> bool {
        let wide =
            tensor_type(whole.ty()).is_ok_and(|t| matches!(t.dtype, DType::F32 | DType::F64));
        let count = |v: Value| {
            v.ty()
                .dims()
                .iter()
                .map(SymDim::known)
                .try_fold(1i64, |n, d| d.and_then(|d| n.checked_mul(d)))
        };
        let repeated = match (count(whole), count(b.input)) {
            (Some(all), Some(one)) => all >= one.saturating_mul(self.repeats),
            // A dimension that the divisor does not have is what repeats it.
            _ => b.dims.len() < whole.ty().dims().len(),
        };
        wide && repeated && b.input.def().is_some_and(has_normal_reciprocal)
    }
}

/// Whether an op's results have reciprocals that are neither subnormal nor overflow, zeros and
/// infinities aside.
fn has_normal_reciprocal(op: Op) -> bool {
    match op.kind() {
        Some(OpKind::Sqrt) => true,
        Some(OpKind::Reshape) => op.operand(0).def().is_some_and(has_normal_reciprocal),
        Some(OpKind::Reduce) => softmax_sum(op).is_some(),
        _ => false,
    }
}

/// A sum of exponentials of differences from the maximum along the same dimensions.
fn softmax_sum(op: Op) -> Option<()> {
    let sum = Reduce::of(op).filter(|r| r.kind == ReduceKind::Sum)?;
    let difference = Sub::of(Exp::of(sum.input.def()?)?.input.def()?)?;
    let max = Reduce::of(BroadcastInDim::of(difference.rhs.def()?)?.input.def()?)?;
    (max.kind == ReduceKind::Max && max.input == difference.lhs && max.dims == sum.dims)
        .then_some(())
}
