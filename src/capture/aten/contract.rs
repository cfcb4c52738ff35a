//! Matrix products.
use super::{Args, Cx, Outcome, Row, einsum::einsum, tools::*};
use kiln_dialects::{ir::*, ops::*};

/// Rows of this family.
pub(super) const ROWS: &[Row] = &[
    Row {
        name: "aten.linear.default",
        arguments: "input, weight, bias=None",
        build: |cx, a| {
            let (input, weight, bias) =
                (cx.tensor(a, "input")?, cx.tensor(a, "weight")?, cx.optional(a, "bias")?);
            let v = cx.b.add(&Linear { input, weight, bias })?;
            cx.one(v)
        },
    },
    Row {
        name: "aten.matmul.default",
        arguments: "self, other",
        build: |cx, a| matmul(cx, a, "self", "other"),
    },
    Row {
        name: "aten.mm.default",
        arguments: "self, mat2",
        build: |cx, a| matmul(cx, a, "self", "mat2"),
    },
    Row {
        name: "aten.bmm.default",
        arguments: "self, mat2",
        build: |cx, a| matmul(cx, a, "self", "mat2"),
    },
    Row {
        name: "aten.mv.default",
        arguments: "self, vec",
        build: |cx, a| matmul(cx, a, "self", "vec"),
    },
    Row {
        name: "aten.dot.default",
        arguments: "self, tensor",
        build: |cx, a| matmul(cx, a, "self", "tensor"),
    },
    Row {
        name: "aten.addmm.default",
        arguments: "self, mat1, mat2, beta=1, alpha=1",
        build: |cx, a| added(cx, a, "mat1", "mat2"),
    },
    Row {
        name: "aten.baddbmm.default",
        arguments: "self, batch1, batch2, beta=1, alpha=1",
        build: |cx, a| added(cx, a, "batch1", "batch2"),
    },
    Row {
        name: "aten.outer.default",
        arguments: "self, vec2",
        build: |cx, a| {
            let (x, y) = cx.promoted(a, "self", "vec2")?;
            let (m, n) = (cx.b.size_of(x, 0)?, cx.b.size_of(y, 0)?);
            let (x, y) = (
                cx.reshape(x, vec![m, Size::Static(1)])?,
                cx.reshape(y, vec![Size::Static(1), n])?,
            );
            let v = cx.binary(BinaryKind::Mul, x, y)?;
            cx.one(v)
        },
    },
    Row { name: "aten.einsum.default", arguments: "equation, tensors", build: einsum },
];

fn matmul(cx: &mut Cx, a: &Args<'_>, x: &str, y: &str) -> Result<Outcome> {
    let (lhs, rhs) = (cx.tensor(a, x)?, cx.tensor(a, y)?);
    let v = cx.b.add(&Matmul { lhs, rhs })?;
    cx.one(v)
}

/// beta * self + alpha * (x @ y); beta 0 ignores self, even NaN.
fn added(cx: &mut Cx, a: &Args<'_>, x: &str, y: &str) -> Result<Outcome> {
    let (lhs, rhs) = (cx.tensor(a, x)?, cx.tensor(a, y)?);
    let v = cx.b.add(&Matmul { lhs, rhs })?;
    plus(cx, a, v)
}

/// beta * self + alpha * v.
pub(super) fn plus(cx: &mut Cx, a: &Args<'_>, mut v: Value) -> Result<Outcome> {
    let d = dtype_of(v)?;
    let factor = |cx: &mut Cx, v: Value, by: f64| {
        if by == 1.0 {
            Ok(v)
        } else {
            let f = cx.number(d, by)?;
            cx.binary(BinaryKind::Mul, v, f)
        }
    };
    v = factor(cx, v, a.float("alpha", Some(1.0))?)?;
    let beta = a.float("beta", Some(1.0))?;
    if beta != 0.0 {
        let bias = cx.tensor(a, "self")?;
        let bias = factor(cx, bias, beta)?;
        v = cx.binary(BinaryKind::Add, v, bias)?;
    }
    cx.one(v)
}
