//! Along which runs of K a scale or a zero point is the same.
use crate::analysis::index_expr::{IndexExpr, IndexLeaf, through};
use kiln_dialects::{algebra::Expr, ir::*, ops::*};

/// The length of the runs of dimension `k` in which a value does not change, 0 if it never does.
/// 1 where nothing is known.
pub fn run_length(v: Value, k: usize) -> i64 {
    let at: Vec<IndexExpr> = (0..v.ty().dims().len()).map(IndexExpr::dim).collect();
    of_value(v, &at, k)
}

/// As [`run_length`], of an element's position.
pub fn run_length_at(at: &[IndexExpr], k: usize) -> i64 {
    at.iter().map(|i| of_index(&i.0, k)).fold(0, common)
}

fn of_value(v: Value, at: &[IndexExpr], k: usize) -> i64 {
    let read = || run_length_at(at, k);
    let Some((op, kind)) = v.def().and_then(|op| Some((op, op.kind()?))) else { return read() };
    if let Some((from, at)) = through(op, at, &|_, _| None) {
        return of_value(from, &at, k);
    }
    match kind {
        OpKind::Splat => 0,
        _ if kind.is_elementwise() => {
            op.operands().into_iter().map(|o| of_value(o, at, k)).fold(0, common)
        }
        _ => read(),
    }
}

fn of_index(e: &Expr<IndexLeaf>, k: usize) -> i64 {
    match e {
        Expr::Const(_) | Expr::Leaf(IndexLeaf::Size(_)) => 0,
        Expr::Leaf(IndexLeaf::LinearExpr(l)) => i64::from(l.uses(k)),
        Expr::Leaf(IndexLeaf::Data { .. }) => 1,
        Expr::Apply(SymKind::Floordiv, both) => match (&both.0, &both.1) {
            (Expr::Leaf(IndexLeaf::LinearExpr(l)), Expr::Const(n)) if l.as_dim() == Some(k) => *n,
            (a, b) => common(of_index(a, k), of_index(b, k)),
        },
        Expr::Apply(_, both) => common(of_index(&both.0, k), of_index(&both.1, k)),
    }
}

/// The greatest common divisor.
fn common(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { common(b, a % b) }
}
