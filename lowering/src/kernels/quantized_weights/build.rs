//! Ops of quantised weights: packed integers, tables of groups, and what a prologue computes.
use super::path::Other;
use crate::kernels::{
    frozen::{INDEX, STORED},
    marks::PROLOGUE,
    prologues::operands::dtype,
};
use kiln_dialects::{ir::*, ops::*, value::DType};
use kiln_passes::broadcasting;

/// A reshape or a transpose, of another value.
pub fn moved(b: &Builder, op: Op, input: Value) -> Result<Value> {
    match Transpose::of(op) {
        Some(o) => b.add(&Transpose { input, ..o }),
        None => reshaped(b, input, &sizes(op.result(0))?),
    }
}

/// An elementwise op of a prologue, on other values: `v` as its operand `at`.
pub fn applied(b: &Builder, op: Op, at: usize, v: Value, other: Other) -> Result<Value> {
    let to = dtype(op.result(0)).ok_or("is no tensor")?;
    let other = match other {
        Other::None => return widened(b, v, to),
        Other::Number(n) => filled(b, v, n)?,
        Other::Tensor(other) => other,
    };
    let kind = op.kind().and_then(BinaryKind::from_op).ok_or("is no binary op")?;
    let operands = if at == 0 { [v, other] } else { [other, v] };
    binary(b, kind, operands).map(marked)
}

/// Rows [N, K] of integers from `lowest` to `lowest + 15` as bytes [N, K / 2].
pub fn packed(b: &Builder, rows: Value, lowest: i64) -> Result<Value> {
    let [n, k] = matrix(rows)?;
    let rows = match lowest {
        0 => rows,
        _ => binary(b, BinaryKind::Sub, [rows, filled(b, rows, lowest as f64)?])?,
    };
    let pairs = reshaped(b, converted(b, rows, DType::UI8)?, &[n, k / 2, 2])?;
    let half = |at: i64| {
        let part = b.add(&Slice {
            input: pairs,
            offsets: Size::all(&[0, 0, at]),
            sizes: Size::all(&[n, k / 2, 1]),
            strides: vec![1, 1, 1],
        })?;
        reshaped(b, part, &[n, k / 2])
    };
    let high = half(1)?;
    let high = binary(b, BinaryKind::Shl, [high, filled(b, high, 4.0)?])?;
    binary(b, BinaryKind::Or, [half(0)?, high]).map(stored)
}

/// The inverse of [`packed`] as part of a prologue, of the type of `like`.
pub fn unpacked(b: &Builder, bytes: Value, lowest: i64, like: Value) -> Result<Value> {
    let [n, k] = matrix(like)?;
    let (sizes, byte) = (Size::all(&[n, k / 2, 2]), Type::scalar(b.ctx, DType::UI8));
    let bytes = b.add(&BroadcastInDim { input: bytes, dims: vec![0, 1], sizes: sizes.clone() })?;
    let half = b.add(&Iota { sizes, axis: 2, dtype: byte })?;
    let bits = marked(binary(b, BinaryKind::Mul, [half, filled(b, half, 4.0)?])?);
    let both = marked(binary(b, BinaryKind::Shr, [bytes, bits])?);
    let v = marked(binary(b, BinaryKind::And, [both, filled(b, both, 15.0)?])?);
    let to = dtype(like).ok_or("is no tensor")?;
    let v = widened(b, reshaped(b, v, &[n, k])?, to)?;
    match lowest {
        0 => Ok(v),
        _ => binary(b, BinaryKind::Add, [v, filled(b, v, lowest as f64)?]).map(marked),
    }
}

/// Rows [N, K] that are the same for runs of K: a stored matrix of a row a run, whose elements for
/// adjacent rows are adjacent, read as these rows by a prologue.
pub fn tabulated(b: &Builder, rows: Value, run: i64, store: DType) -> Result<Value> {
    let ([n, k], wide) = (matrix(rows)?, dtype(rows).ok_or("is no tensor")?);
    let first = b.add(&Slice {
        input: reshaped(b, rows, &[n, k / run, run])?,
        offsets: Size::all(&[0, 0, 0]),
        sizes: Size::all(&[n, k / run, 1]),
        strides: vec![1, 1, 1],
    })?;
    let columns =
        b.add(&Transpose { input: reshaped(b, first, &[n, k / run])?, permutation: vec![1, 0] })?;
    let table = stored(converted(b, columns, store)?);
    let input = b.add(&Transpose { input: table, permutation: vec![1, 0] })?;
    let sizes = Size::all(&[n, k / run, run]);
    let each = b.add(&BroadcastInDim { input, dims: vec![0, 1], sizes })?;
    widened(b, reshaped(b, each, &[n, k])?, wide)
}

pub fn transposed(b: &Builder, input: Value, permutation: Vec<i64>) -> Result<Value> {
    if permutation.is_sorted() { Ok(input) } else { b.add(&Transpose { input, permutation }) }
}

/// A reshape that is part of its readers' indices.
pub fn reshaped(b: &Builder, mut input: Value, to: &[i64]) -> Result<Value> {
    while let Some(o) = input.def().and_then(Reshape::of) {
        input = o.input;
    }
    if sizes(input)? == to {
        return Ok(input);
    }
    let v = b.add(&Reshape { input, sizes: Size::all(to) })?;
    if let Some(op) = v.def() {
        op.set_attr(INDEX, Attr::unit(b.ctx));
    }
    Ok(v)
}

/// Converted as part of a prologue.
fn widened(b: &Builder, v: Value, to: DType) -> Result<Value> {
    if dtype(v) == Some(to) { Ok(v) } else { converted(b, v, to).map(marked) }
}

/// Converted between types of which both have the elements.
fn converted(b: &Builder, input: Value, to: DType) -> Result<Value> {
    let same = dtype(input) == Some(to);
    if same { Ok(input) } else { b.add(&Convert { input, dtype: Type::scalar(b.ctx, to) }) }
}

fn binary(b: &Builder, kind: BinaryKind, [x, y]: [Value; 2]) -> Result<Value> {
    broadcasting::binary(b, kind, x, y)
}

/// A number as a tensor like another.
fn filled(b: &Builder, like: Value, number: f64) -> Result<Value> {
    b.splat(dtype(like).ok_or("is no tensor")?, &Size::all(&sizes(like)?), number)
}

fn sizes(v: Value) -> Result<Vec<i64>> {
    let all = v.ty().dims().iter().map(|d| d.known()).collect::<Option<_>>();
    all.ok_or_else(|| "has dynamic sizes".into())
}

fn matrix(v: Value) -> Result<[i64; 2]> {
    sizes(v)?.try_into().map_err(|_| "is no matrix".into())
}

/// Marks the op of a value as part of the product's prologue.
fn marked(v: Value) -> Value {
    if let Some(op) = v.def() {
        op.set_attr(PROLOGUE, Attr::unit(op.ctx()));
    }
    v
}

/// Marks the op of a value to be computed at load.
fn stored(v: Value) -> Value {
    if let Some(op) = v.def() {
        op.set_attr(STORED, Attr::unit(op.ctx()));
    }
    v
}
