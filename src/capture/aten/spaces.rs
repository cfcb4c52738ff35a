//! Evenly spaced numbers between tensors, powers of them, and tensors without contents.
use super::{Args, Cx, Outcome, Row, formula::value, promote::promote, tools::*};
use kiln_dialects::{ir::*, ops::*, value::DType};

macro_rules! space_row {
    ($name:literal, $arguments:literal, $build:expr) => {
        Row { name: $name, arguments: $arguments, build: $build }
    };
}

/// Rows of this family.
pub(super) const ROWS: &[Row] = &[
    space_row!("aten.linspace.Tensor_Tensor", "start, end, steps, dtype=None", linspace),
    space_row!("aten.linspace.Tensor_Scalar", "start, end, steps, dtype=None", linspace),
    space_row!("aten.linspace.Scalar_Tensor", "start, end, steps, dtype=None", linspace),
    space_row!("aten.logspace.default", "start, end, steps, base=10, dtype=None", logspace),
    space_row!("aten.logspace.Tensor_Tensor", "start, end, steps, base=10, dtype=None", logspace),
    space_row!("aten.logspace.Tensor_Scalar", "start, end, steps, base=10, dtype=None", logspace),
    space_row!("aten.logspace.Scalar_Tensor", "start, end, steps, base=10, dtype=None", logspace),
    space_row!("aten.new_empty.default", "self, size, dtype=None", empty),
    space_row!("aten.new_empty_strided.default", "self, size, stride, dtype=None", empty),
    space_row!("aten.empty_permuted.default", "size, physical_layout, dtype=None", empty),
    space_row!("aten.empty_strided.default", "size, stride, dtype=None", empty),
];

/// `n` numbers from `start` to `end`, 0-d tensors, computed from both ends towards the middle.
pub(super) fn steps(cx: &Cx, start: Value, end: Value, n: i64) -> Result<Value> {
    let d = dtype_of(start)?;
    let i = cx.iota(d, vec![Size::Static(n)], 0)?;
    value(cx, |f| {
        let (start, end, i) = (f.of(start), f.of(end), f.of(i));
        if n < 2 {
            return i + start;
        }
        let step = (end - start) / (n - 1) as f64;
        let (up, down) = (start + i * step, end - ((n - 1) as f64 - i) * step);
        i.lt((n / 2) as f64).select(up, down)
    })
}

/// The numbers in a dtype wide enough to compute with, and the result's dtype.
fn spaced(cx: &mut Cx, a: &Args<'_>) -> Result<(Value, DType)> {
    let to = a.dtype("dtype")?.unwrap_or(DType::F32);
    let n = a.int("steps", None)?;
    if n < 0 {
        return Err("number of steps must be non-negative".into());
    }
    let d = if to.is_float() { promote(to, DType::F32) } else { DType::F64 };
    // Both have the result's dtype first: integers are truncated. One number is not.
    let own = |cx: &mut Cx, name: &str| -> Result<Value> {
        let x = cx.operand(a, name, d)?;
        if n == 1 {
            return Ok(x);
        }
        cx.convert(cx.convert(x, to)?, d)
    };
    let (start, end) = (own(cx, "start")?, own(cx, "end")?);
    if rank_of(start) > 0 || rank_of(end) > 0 {
        return Err("only supports 0-dimensional start and end tensors".into());
    }
    Ok((steps(cx, start, end, n)?, to))
}

fn linspace(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let (v, to) = spaced(cx, a)?;
    let v = cx.convert(v, to)?;
    cx.one(v)
}

fn logspace(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let base = a.float("base", Some(10.0))?;
    let (v, to) = spaced(cx, a)?;
    let v = cx.binary(BinaryKind::Pow, cx.number(dtype_of(v)?, base)?, v)?;
    let v = cx.convert(v, to)?;
    cx.one(v)
}

/// Contents that nothing defines: zeros.
fn empty(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let own = match cx.optional(a, "self")? {
        Some(x) => dtype_of(x)?,
        None => DType::F32,
    };
    let v = cx.b.splat(a.dtype("dtype")?.unwrap_or(own), &a.sizes("size")?, 0.0)?;
    cx.one(v)
}
