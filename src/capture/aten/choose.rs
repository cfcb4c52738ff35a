//! Overloads for selection, clamping and conversion.
use super::{Args, Cx, Outcome, Row, Val, tools::*};
use kiln_dialects::{Result, ops::*, value::DType};

/// Rows of this family.
pub(super) const ROWS: &[Row] = &[
    Row { name: "aten.clamp.default", arguments: "self, min=None, max=None", build: clamp },
    Row { name: "aten.clamp.Tensor", arguments: "self, min=None, max=None", build: clamp },
    Row { name: "aten.clamp_min.default", arguments: "self, min", build: clamp },
    Row { name: "aten.clamp_max.default", arguments: "self, max", build: clamp },
    Row { name: "aten.clamp_min.Tensor", arguments: "self, min", build: clamp },
    Row { name: "aten.clamp_max.Tensor", arguments: "self, max", build: clamp },
    Row { name: "aten.where.self", arguments: "condition, self, other", build: where_ },
    Row { name: "aten.where.ScalarOther", arguments: "condition, self, other", build: where_ },
    Row { name: "aten.where.ScalarSelf", arguments: "condition, self, other", build: where_ },
    Row { name: "aten.where.Scalar", arguments: "condition, self, other", build: where_ },
    Row { name: "aten.masked_fill.Scalar", arguments: "self, mask, value", build: masked_fill },
    Row { name: "aten.masked_fill.Tensor", arguments: "self, mask, value", build: masked_fill },
    Row {
        name: "aten.nan_to_num.default",
        arguments: "self, nan=0, posinf=None, neginf=None",
        build: nan_to_num,
    },
    Row { name: "aten.to.dtype", arguments: "self, dtype", build: to },
    Row { name: "aten.to.dtype_layout", arguments: "self, dtype=None", build: to },
    Row { name: "aten.to.device", arguments: "self, device, dtype=None", build: to },
    Row {
        name: "aten.to.other",
        arguments: "self, other",
        build: |cx, a| {
            let (x, other) = (cx.tensor(a, "self")?, cx.tensor(a, "other")?);
            if dtype_of(x)? == dtype_of(other)? && !a.flag("copy", false)? {
                return Ok(Outcome::One(Val::Tensor(a.alias("self")?)));
            }
            let r = cx.convert(x, dtype_of(other)?)?;
            cx.one(r)
        },
    },
    Row {
        name: "aten._to_copy.default",
        arguments: "self, dtype=None",
        build: |cx, a| {
            let x = cx.tensor(a, "self")?;
            let d = a.dtype("dtype")?.unwrap_or(dtype_of(x)?);
            let r = cx.convert(x, d)?;
            cx.one(r)
        },
    },
    Row {
        name: "aten.type_as.default",
        arguments: "self, other",
        build: |cx, a| {
            let (x, y) = (cx.tensor(a, "self")?, cx.tensor(a, "other")?);
            if dtype_of(x)? == dtype_of(y)? {
                return Ok(Outcome::One(Val::Tensor(a.alias("self")?)));
            }
            let r = cx.convert(x, dtype_of(y)?)?;
            cx.one(r)
        },
    },
];

fn clamp(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let names: Vec<&str> = ["self", "min", "max"].into_iter().filter(|n| a.has(n)).collect();
    let d = cx.common_dtype(a, &names)?;
    let mut r = cx.operand(a, "self", d)?;
    if matches!(d, DType::F64 | DType::F32 | DType::F16 | DType::BF16) {
        let bound = |cx: &mut Cx, name, other| {
            if a.has(name) { cx.operand(a, name, d) } else { cx.number(d, other) }
        };
        let low = bound(cx, "min", f64::NEG_INFINITY)?;
        let high = bound(cx, "max", f64::INFINITY)?;
        let sizes = cx.common(&[r, low, high])?;
        let [input, low, high] = [r, low, high].map(|v| cx.broadcast_to(v, &sizes));
        let y = cx.b.add(&Clamp { input: input?, low: low?, high: high? })?;
        return cx.one(y);
    }
    for (name, kind) in [("min", BinaryKind::Max), ("max", BinaryKind::Min)] {
        if a.has(name) {
            let bound = cx.operand(a, name, d)?;
            r = cx.binary(kind, r, bound)?;
        }
    }
    cx.one(r)
}

fn where_(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let (x, y) = cx.promoted(a, "self", "other")?;
    let c = cx.operand(a, "condition", DType::I1)?;
    let r = cx.select(c, x, y)?;
    cx.one(r)
}

fn masked_fill(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let x = cx.tensor(a, "self")?;
    let mask = cx.operand(a, "mask", DType::I1)?;
    let value = cx.operand(a, "value", dtype_of(x)?)?;
    let r = cx.select(mask, value, x)?;
    cx.one(r)
}

fn nan_to_num(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let x = cx.tensor(a, "self")?;
    let d = dtype_of(x)?;
    if !d.is_float() {
        return cx.one(x);
    }
    let greatest = match d {
        DType::F64 => f64::MAX,
        DType::F32 => f64::from(f32::MAX),
        DType::F16 => 65504.0,
        DType::BF16 => 3.3895313892515355e38,
        _ => return Err(format!("is not defined on {}", d.name()).into()),
    };
    let nan = cx.number(d, a.float("nan", Some(0.0))?)?;
    let is_nan = cx.unary(UnaryKind::IsNan, x)?;
    let mut r = cx.select(is_nan, nan, x)?;
    for (name, infinity, default) in
        [("posinf", f64::INFINITY, greatest), ("neginf", f64::NEG_INFINITY, -greatest)]
    {
        let hit = cx.compare(CompareKind::Eq, x, cx.number(d, infinity)?)?;
        r = cx.select(hit, cx.number(d, a.float(name, Some(default))?)?, r)?;
    }
    cx.one(r)
}

fn to(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let x = cx.tensor(a, "self")?;
    match a.dtype("dtype")? {
        // Without a conversion the result aliases its argument.
        None if !a.flag("copy", false)? => Ok(Outcome::One(Val::Tensor(a.alias("self")?))),
        None => cx.one(x),
        Some(d) if d == dtype_of(x)? && !a.flag("copy", false)? => {
            Ok(Outcome::One(Val::Tensor(a.alias("self")?)))
        }
        Some(d) => {
            let r = cx.convert(x, d)?;
            cx.one(r)
        }
    }
}
