//! Matrix products.
use super::{Args, Cx, Outcome, Row, tools::*};
use crate::capture::unsupported;
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

/// One or two operands. Letters in both operands and the result are batch dimensions; in both
/// operands only, contracted; in one operand only, summed.
fn einsum(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let equation: String = a.text("equation", "")?.chars().filter(|c| !c.is_whitespace()).collect();
    let operands = cx.tensors(a, "tensors")?;
    let (left, right) = match equation.split_once("->") {
        Some((l, r)) => (l.to_string(), r.to_string()),
        None => {
            // Implicit result: the letters that occur once, in alphabetic order.
            let mut letters: Vec<char> = equation.chars().filter(|c| *c != ',').collect();
            letters.sort();
            let once =
                letters.iter().filter(|c| letters.iter().filter(|x| x == c).count() == 1).collect();
            (equation.clone(), once)
        }
    };
    let terms: Vec<Vec<char>> = left.split(',').map(|t| t.chars().collect()).collect();
    if terms.len() != operands.len() || equation.contains('.') {
        return Err(unsupported(format!(
            "the equation {equation} is not supported: no ellipsis, one term an operand"
        )));
    }
    let result: Vec<char> = right.chars().collect();
    let mut at = operands.into_iter().zip(terms);
    let (mut value, mut letters) = at.next().ok_or("has no operands")?;
    let rest: Vec<_> = at.collect();
    for (i, (other, theirs)) in rest.iter().enumerate() {
        let later =
            |c: &char| result.contains(c) || rest[i + 1..].iter().any(|(_, t)| t.contains(c));
        (value, letters) = contract(cx, (value, letters), (*other, theirs.clone()), &later)?;
    }
    let gone: Vec<i64> =
        (0..letters.len()).filter(|i| !result.contains(&letters[*i])).map(|i| i as i64).collect();
    if !gone.is_empty() {
        value = cx.b.add(&Reduce {
            kind: ReduceKind::Sum,
            input: value,
            dims: gone,
            maybe_empty: false,
        })?;
        letters.retain(|c| result.contains(c));
    }
    let places = result
        .iter()
        .map(|c| letters.iter().position(|l| l == c).map(|p| p as i64))
        .collect::<Option<Vec<_>>>();
    let value = cx.transpose(
        value,
        places.ok_or_else(|| format!("the result of {equation} has letters of its own"))?,
    )?;
    cx.one(value)
}

type Term = (Value, Vec<char>);

fn contract(cx: &mut Cx, x: Term, y: Term, later: &dyn Fn(&char) -> bool) -> Result<Term> {
    for letters in [&x.1, &y.1] {
        if letters.iter().any(|c| letters.iter().filter(|d| *d == c).count() > 1) {
            return Err(unsupported("diagonals are not supported"));
        }
    }
    // Sums over letters of one operand only.
    let alone = |cx: &mut Cx, t: Term, other: &[char]| -> Result<Term> {
        let gone: Vec<i64> = (0..t.1.len())
            .filter(|i| !other.contains(&t.1[*i]) && !later(&t.1[*i]))
            .map(|i| i as i64)
            .collect();
        if gone.is_empty() {
            return Ok(t);
        }
        let v = cx.b.add(&Reduce {
            kind: ReduceKind::Sum,
            input: t.0,
            dims: gone.clone(),
            maybe_empty: false,
        })?;
        Ok((
            v,
            t.1.iter()
                .enumerate()
                .filter(|(i, _)| !gone.contains(&(*i as i64)))
                .map(|(_, c)| *c)
                .collect(),
        ))
    };
    let x = alone(cx, x, &y.1)?;
    let y = alone(cx, y, &x.1)?;
    let shared: Vec<char> = x.1.iter().copied().filter(|c| y.1.contains(c)).collect();
    let (batch, inner): (Vec<char>, Vec<char>) = shared.into_iter().partition(|c| later(c));
    let places = |t: &Term, which: &[char]| {
        which
            .iter()
            .filter_map(|c| t.1.iter().position(|l| l == c).map(|p| p as i64))
            .collect::<Vec<_>>()
    };
    let node = DotGeneral {
        lhs: x.0,
        rhs: y.0,
        lhs_batch: places(&x, &batch),
        rhs_batch: places(&y, &batch),
        lhs_contract: places(&x, &inner),
        rhs_contract: places(&y, &inner),
        element_type: None,
    };
    let v = cx.b.add(&node)?;
    let free = |t: &Term| {
        t.1.iter().copied().filter(|c| !batch.contains(c) && !inner.contains(c)).collect::<Vec<_>>()
    };
    Ok((v, [batch.clone(), free(&x), free(&y)].concat()))
}
