//! Arithmetic on sizes and indices at compile time: one tree, [`Expr`], and one normal form,
//! [`Sum`], over leaves that their users choose.
//!
//! | leaves | tree | normal form |
//! | --- | --- | --- |
//! | dims and symbols of an affine map | [`Affine`](crate::ir::Affine) | |
//! | names of PyTorch's size expressions | `Expr<String>` | |
//! | symbols of a graph | | [`sym::Dim`](crate::sym::Dim) |
//!
//! The lowering's index expressions are the tree over loop dimensions, SSA sizes and data; its
//! polynomials are the normal form over SSA sizes. A `Program` has no tree: the runtime evaluates
//! its own list of operations without MLIR.
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
