//! What the lowerings of several stages share: the identity index, and the identities of reductions.
use crate::{
    analysis::index_expr::IndexExpr,
    linalg::{
        kernel::Kernel,
        scalar::{Scalars, wide},
    },
};
use kiln_dialects::{ir::*, ops::*, value::DType};

/// The tensors of an op's results.
pub type Tensors = Result<Vec<Value>>;

/// A value and the index at which it is read.
pub type Read = (Value, Vec<IndexExpr>);

/// The identity of a reduction, in the accumulator dtype.
pub fn neutral(c: Ctx, kind: ReduceKind, d: DType) -> Attr {
    let of = |float: f64, whole: i64| {
        if d.is_float() {
            Attr::scalar(c, wide(d), float)
        } else {
            Attr::scalar_int(c, wide(d), whole)
        }
    };
    match kind {
        ReduceKind::Sum | ReduceKind::Any => of(0.0, 0),
        ReduceKind::Prod | ReduceKind::All => of(1.0, 1),
        ReduceKind::Max => of(f64::NEG_INFINITY, d.int_range().0),
        ReduceKind::Min => of(f64::INFINITY, d.int_range().1),
    }
}

/// A tensor filled with the identity of a reduction, in the accumulator dtype.
pub fn start(k: &Kernel, kind: ReduceKind, d: DType, sizes: &[Size]) -> Result<Value> {
    let empty = k.empty(wide(d), sizes)?;
    let scalar = Scalars { b: k.b }.constant(neutral(k.b.ctx, kind, d))?;
    k.fill(scalar, empty)
}

/// The identity index: dimension `i` is loop `i`.
pub fn id(n: usize) -> Vec<IndexExpr> {
    (0..n).map(IndexExpr::dim).collect()
}

/// The reduction that a scan repeats.
pub fn reduces(kind: CumulativeKind) -> ReduceKind {
    match kind {
        CumulativeKind::Sum => ReduceKind::Sum,
        CumulativeKind::Prod => ReduceKind::Prod,
        CumulativeKind::Max => ReduceKind::Max,
        CumulativeKind::Min => ReduceKind::Min,
    }
}
