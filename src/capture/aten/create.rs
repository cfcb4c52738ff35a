//! Factory overloads, from sizes and numbers.
use super::{Args, Cx, Outcome, Row, Val, promote::promote, tools::*};
use kiln_dialects::{ir::*, ops::*, rules::UNBOUNDED, value::DType};

/// Rows of this family.
pub(super) const ROWS: &[Row] = &[
    Row {
        name: "aten.zeros.default",
        arguments: "size, dtype=None",
        build: |cx, a| filled(cx, a, Some(0.0), DType::F32),
    },
    Row {
        name: "aten.ones.default",
        arguments: "size, dtype=None",
        build: |cx, a| filled(cx, a, Some(1.0), DType::F32),
    },
    Row {
        name: "aten.empty.memory_format",
        arguments: "size, dtype=None",
        build: |cx, a| filled(cx, a, Some(0.0), DType::F32),
    },
    Row {
        name: "aten.full.default",
        arguments: "size, fill_value, dtype=None",
        build: |cx, a| filled(cx, a, None, DType::F32),
    },
    Row {
        name: "aten.new_zeros.default",
        arguments: "self, size, dtype=None",
        build: |cx, a| like(cx, a, Some(0.0)),
    },
    Row {
        name: "aten.new_ones.default",
        arguments: "self, size, dtype=None",
        build: |cx, a| like(cx, a, Some(1.0)),
    },
    Row {
        name: "aten.new_full.default",
        arguments: "self, size, fill_value, dtype=None",
        build: |cx, a| like(cx, a, None),
    },
    Row {
        name: "aten.zeros_like.default",
        arguments: "self, dtype=None",
        build: |cx, a| like(cx, a, Some(0.0)),
    },
    Row {
        name: "aten.ones_like.default",
        arguments: "self, dtype=None",
        build: |cx, a| like(cx, a, Some(1.0)),
    },
    Row {
        name: "aten.empty_like.default",
        arguments: "self, dtype=None",
        build: |cx, a| like(cx, a, Some(0.0)),
    },
    Row {
        name: "aten.full_like.default",
        arguments: "self, fill_value, dtype=None",
        build: |cx, a| like(cx, a, None),
    },
    Row {
        name: "aten.fill.Scalar",
        arguments: "self, value",
        build: |cx, a| {
            let x = cx.tensor(a, "self")?;
            let v = cx.operand(a, "value", dtype_of(x)?)?;
            let y = cx.broadcast_to(v, &cx.b.sizes_of(x)?)?;
            cx.one(y)
        },
    },
    Row {
        name: "aten.fill.Tensor",
        arguments: "self, value",
        build: |cx, a| {
            let x = cx.tensor(a, "self")?;
            let v = cx.operand(a, "value", dtype_of(x)?)?;
            let y = cx.broadcast_to(v, &cx.b.sizes_of(x)?)?;
            cx.one(y)
        },
    },
    Row { name: "aten.zero.default", arguments: "self", build: |cx, a| like(cx, a, Some(0.0)) },
    Row {
        name: "aten.copy.default",
        arguments: "self, src",
        build: |cx, a| {
            let x = cx.tensor(a, "self")?;
            let v = cx.operand(a, "src", dtype_of(x)?)?;
            let y = cx.broadcast_to(v, &cx.b.sizes_of(x)?)?;
            cx.one(y)
        },
    },
    Row {
        name: "aten.scalar_tensor.default",
        arguments: "s, dtype=None",
        build: |cx, a| {
            let d = a.dtype("dtype")?.unwrap_or(DType::F32);
            let v = cx.operand(a, "s", d)?;
            cx.one(v)
        },
    },
    Row { name: "aten.arange.default", arguments: "end, dtype=None", build: arange },
    Row { name: "aten.arange.start", arguments: "start, end, dtype=None", build: arange },
    Row {
        name: "aten.arange.start_step",
        arguments: "start, end, step=1, dtype=None",
        build: arange,
    },
    Row {
        name: "aten.linspace.default",
        arguments: "start, end, steps, dtype=None",
        build: linspace,
    },
    Row { name: "aten.eye.default", arguments: "n, dtype=None", build: eye },
    Row { name: "aten.eye.m", arguments: "n, m, dtype=None", build: eye },
    Row {
        name: "aten.tril.default",
        arguments: "self, diagonal=0",
        build: |cx, a| triangle(cx, a, CompareKind::Le),
    },
    Row {
        name: "aten.triu.default",
        arguments: "self, diagonal=0",
        build: |cx, a| triangle(cx, a, CompareKind::Ge),
    },
];

/// The default dtype of a fill value.
fn natural(v: Option<&Val>, float: DType) -> DType {
    match v {
        Some(Val::Bool(_) | Val::Condition(..)) => DType::I1,
        Some(Val::Int(_) | Val::Number(_, DType::I64)) => DType::I64,
        _ => float,
    }
}

fn fill(
    cx: &mut Cx,
    a: &Args<'_>,
    value: Option<f64>,
    d: DType,
    sizes: &[Size],
) -> Result<Outcome> {
    let v = match value {
        Some(x) => cx.b.splat(d, sizes, x)?,
        None => {
            let scalar = cx.operand(a, "fill_value", d)?;
            cx.broadcast_to(scalar, sizes)?
        }
    };
    cx.one(v)
}

fn filled(cx: &mut Cx, a: &Args<'_>, value: Option<f64>, default: DType) -> Result<Outcome> {
    let d = a.dtype("dtype")?.unwrap_or(if value.is_some() {
        default
    } else {
        natural(a.values.get("fill_value"), default)
    });
    let sizes = a.sizes("size")?;
    fill(cx, a, value, d, &sizes)
}

fn like(cx: &mut Cx, a: &Args<'_>, value: Option<f64>) -> Result<Outcome> {
    let x = cx.tensor(a, "self")?;
    let d = a.dtype("dtype")?.unwrap_or(dtype_of(x)?);
    let sizes = if a.has("size") { a.sizes("size")? } else { cx.b.sizes_of(x)? };
    fill(cx, a, value, d, &sizes)
}

fn arange(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let given: Vec<&Val> = ["start", "end", "step"]
        .iter()
        .filter_map(|n| a.values.get(n))
        .filter(|v| !matches!(v, Val::None))
        .collect();
    // Graphs that give no results' types specialise such numbers instead.
    let data = given.iter().any(|v| matches!(v, Val::Number(..) | Val::Fraction(..)));
    if data && !cx.declared.is_empty() {
        return arange_of_data(cx, a);
    }
    let integers = given.iter().all(|v| matches!(v, Val::Int(_)));
    let d = a.dtype("dtype")?.unwrap_or(if integers { DType::I64 } else { DType::F32 });
    // Floats without a fraction count beside symbols, exactly; for i64 all floats are truncated.
    let whole = |name: &str, default: i64| match a.get(name) {
        Some(Val::Int(s)) => Some(*s),
        Some(Val::Float(x)) if (x.fract() == 0.0 || d == DType::I64) && x.abs() < 2f64.powi(53) => {
            Some(Size::Static(*x as i64))
        }
        None => Some(Size::Static(default)),
        _ => None,
    };
    let bounds = (whole("start", 0), whole("end", 0), whole("step", 1));
    let count = if let (Some(start), Some(end), Some(step)) = bounds {
        let step = step
            .known()
            .filter(|s| *s != 0 && *s != i64::MIN)
            .ok_or("wants a step that is known now and not 0")?;
        // ceil((end - start) / step) by a positive divisor.
        let span = cx.size_add(end, cx.size_mul(start, Size::Static(-1))?)?;
        let span = if step < 0 { cx.size_mul(span, Size::Static(-1))? } else { span };
        let n = cx
            .size_div(cx.size_add(span, Size::Static(step.abs() - 1))?, Size::Static(step.abs()))?;
        if n.known().is_none() && !a.has("start") { n } else { cx.size_max(n, Size::Static(0))? }
    } else {
        let (start, end, step) =
            (a.float("start", Some(0.0))?, a.float("end", None)?, a.float("step", Some(1.0))?);
        Size::Static(((end - start) / step).ceil().max(0.0) as i64)
    };
    // The iota has a dtype that holds every index, then is scaled; integers stay exact. For integers
    // PyTorch truncates the numbers first, and for i64 alone before it counts them.
    let work = if d.is_float() { promote(d, DType::F32) } else { DType::I64 };
    let mut v = cx.iota(work, vec![count], 0)?;
    if a.has("step") && a.float("step", Some(1.0)) != Ok(1.0) {
        let step = cx.operand(a, "step", work)?;
        v = cx.binary(BinaryKind::Mul, v, step)?;
    }
    if a.has("start") && a.float("start", Some(1.0)) != Ok(0.0) {
        let start = cx.operand(a, "start", work)?;
        v = cx.binary(BinaryKind::Add, v, start)?;
    }
    let v = cx.convert(v, d)?;
    cx.one(v)
}

/// Between numbers of which data determines one, and so the size. For integers the numbers are
/// truncated first.
fn arange_of_data(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let of =
        |name: &str, default: i64| a.get(name).cloned().unwrap_or(Val::Int(Size::Static(default)));
    let all = [of("start", 0), of("end", 0), of("step", 1)];
    let whole = |v: &Val| match v {
        Val::Number(_, d) => !d.is_float(),
        v => matches!(v, Val::Int(_) | Val::Bool(_)),
    };
    let natural = if all.iter().all(whole) { DType::I64 } else { DType::F32 };
    let d = a.dtype("dtype")?.unwrap_or(natural);
    let work = if d.is_float() { DType::F64 } else { DType::I64 };
    let [start, end, step] = all;
    let (start, end) = (cx.scalar(&start, work)?, cx.scalar(&end, work)?);
    let step = cx.scalar(&step, work)?;
    // ceil((end - start) / step).
    let less = cx.binary(BinaryKind::Sub, start, end)?;
    let count = cx.binary(BinaryKind::FloorDiv, less, step)?;
    let count = cx.convert(cx.unary(UnaryKind::Neg, count)?, DType::I64)?;
    let count = cx.binary(BinaryKind::Max, count, cx.integer(DType::I64, 0)?)?;
    let count = cx.unbacked(count, Size::Static(UNBOUNDED))?;
    let i = cx.iota(work, vec![count], 0)?;
    let v = cx.binary(BinaryKind::Add, cx.binary(BinaryKind::Mul, i, step)?, start)?;
    let v = cx.convert(v, d)?;
    cx.one(v)
}

/// As in PyTorch: from both ends towards the middle, so that the last element is exactly `end`.
fn linspace(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let d = a.dtype("dtype")?.unwrap_or(DType::F32);
    let own = |x: f64| if d.is_float() { d.round(x) } else { x.trunc() };
    let (start, end) = (own(a.float("start", None)?), own(a.float("end", None)?));
    let n = a.int("steps", None)?;
    if n < 0 {
        return Err(format!("wants {n} steps").into());
    }
    let step = if n > 1 { (end - start) / (n - 1) as f64 } else { 0.0 };
    // Integers and 16-bit floats are computed in wider floats, then converted.
    let to = d;
    let d = if d.is_float() { promote(d, DType::F32) } else { DType::F64 };
    let i = cx.iota(d, vec![Size::Static(n)], 0)?;
    let number = |x| cx.number(d, x);
    let up =
        cx.binary(BinaryKind::Add, cx.binary(BinaryKind::Mul, i, number(step)?)?, number(start)?)?;
    let back = cx.binary(BinaryKind::Sub, number((n - 1) as f64)?, i)?;
    let down =
        cx.binary(BinaryKind::Sub, number(end)?, cx.binary(BinaryKind::Mul, back, number(step)?)?)?;
    let half = cx.compare(CompareKind::Lt, i, number((n / 2) as f64)?)?;
    let v = if n > 1 { cx.select(half, up, down)? } else { up };
    let v = cx.convert(v, to)?;
    cx.one(v)
}

fn eye(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let d = a.dtype("dtype")?.unwrap_or(DType::F32);
    let n = a.size("n")?;
    let sizes = vec![n, if a.has("m") { a.size("m")? } else { n }];
    let (i, j) = (cx.iota(DType::I64, sizes.clone(), 0)?, cx.iota(DType::I64, sizes, 1)?);
    let v = cx.convert(cx.compare(CompareKind::Eq, i, j)?, d)?;
    cx.one(v)
}

/// Masks by comparing column - row with the diagonal.
fn triangle(cx: &mut Cx, a: &Args<'_>, kind: CompareKind) -> Result<Outcome> {
    let x = cx.tensor(a, "self")?;
    let rank = rank_of(x);
    if rank < 2 {
        return Err("wants a matrix".into());
    }
    let sizes = vec![cx.b.size_of(x, rank - 2)?, cx.b.size_of(x, rank - 1)?];
    let (i, j) = (cx.iota(DType::I64, sizes.clone(), 0)?, cx.iota(DType::I64, sizes, 1)?);
    let limit =
        cx.binary(BinaryKind::Add, i, cx.integer(DType::I64, a.int("diagonal", Some(0))?)?)?;
    let keep = cx.compare(kind, j, limit)?;
    let zero = cx.number(dtype_of(x)?, 0.0)?;
    let v = cx.select(keep, x, zero)?;
    cx.one(v)
}
