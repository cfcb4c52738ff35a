//! Arithmetic on sizes and indices at compile time: one tree, [`Expr`], and one normal form,
//! [`Sum`], over leaves that their users choose.
//!
//! | user | form | leaves |
//! | --- | --- | --- |
//! | sizes of a graph ([`sym::Dim`](crate::sym::Dim)) | `Sum` | symbols, operations on sizes |
//! | size expressions of PyTorch (`src/capture/srepr.rs`) | `Expr` | names |
//! | affine maps ([`ir::Affine`](crate::ir::Affine)) | `Expr` | dimensions, symbols |
//! | fused reads (`IndexExpr` of the lowering) | `Expr` | linear forms, SSA sizes, data |
//! | a kernel's sizes and strides (`Poly`, `LinearExpr` of the lowering) | `Sum` | SSA sizes |
//!
//! `IndexExpr` is a tree, since the order of its terms is the order of a kernel's index arithmetic.
//! A `Program` has a list of operations instead, which the runtime evaluates without MLIR.
mod expr;
mod sum;

pub use expr::Expr;
pub use sum::{Sum, common_divisor};

use crate::ops::SymKind;

/// Integer semantics of `kiln.sym_expr`: `None` on overflow, on division by 0 or below, and on
/// negative powers.
pub fn evaluate(kind: SymKind, a: i64, b: i64) -> Option<i64> {
    match kind {
        SymKind::Add => a.checked_add(b),
        SymKind::Mul => a.checked_mul(b),
        SymKind::Floordiv => (b > 0).then(|| a.div_euclid(b)),
        SymKind::Mod => (b > 0).then(|| a.rem_euclid(b)),
        SymKind::Min => Some(a.min(b)),
        SymKind::Max => Some(a.max(b)),
        SymKind::Pow => u32::try_from(b).ok().and_then(|b| a.checked_pow(b)),
    }
}
