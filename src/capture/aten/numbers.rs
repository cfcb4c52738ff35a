//! Overloads on numbers as they are represented, and comparisons within tolerances.
use super::{
    Args, Cx, Outcome, Row,
    formula::{formula, value},
    tools::*,
};
use kiln_dialects::{ir::*, ops::*, value::DType};

/// Rows of this family.
pub(super) const ROWS: &[Row] = &[
    Row { name: "aten.float_power.Tensor_Tensor", arguments: "self, exponent", build: float_power },
    Row { name: "aten.float_power.Tensor_Scalar", arguments: "self, exponent", build: float_power },
    Row { name: "aten.float_power.Scalar", arguments: "self, exponent", build: float_power },
    Row { name: "aten.round.decimals", arguments: "self, decimals", build: round },
    Row { name: "aten.nextafter.default", arguments: "self, other", build: nextafter },
    Row { name: "aten.frexp.Tensor", arguments: "self", build: frexp },
    Row {
        name: "aten.isclose.default",
        arguments: "self, other, rtol=1e-05, atol=1e-08, equal_nan=False",
        build: isclose,
    },
    Row {
        name: "aten.isreal.default",
        arguments: "self",
        build: |cx, a| {
            let x = cx.tensor(a, "self")?;
            let v = cx.b.splat(DType::I1, &cx.b.sizes_of(x)?, 1.0)?;
            cx.one(v)
        },
    },
];

fn float_power(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let (x, y) = (cx.operand(a, "self", DType::F64)?, cx.operand(a, "exponent", DType::F64)?);
    let v = cx.binary(BinaryKind::Pow, x, y)?;
    cx.one(v)
}

/// To a number of decimals; negative ones round to tens, hundreds, …
fn round(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let x = cx.tensor(a, "self")?;
    let d = dtype_of(x)?;
    let decimals = a.int("decimals", None)?;
    if !d.is_float() {
        return Err(format!("\"round_vml_cpu\" not implemented for {}", d.name()).into());
    }
    let power = 10f64.powi(decimals.unsigned_abs().min(400) as i32);
    formula(cx, |f| {
        let x = f.of(x).to(super::axes::wide(d));
        let v = match decimals {
            0 => x.round(),
            1.. => (x * power).round() / power,
            _ => (x / power).round() * power,
        };
        v.to(d)
    })
}

/// The integer of a float's width, and the bits of its mantissa.
fn layout(d: DType) -> Result<(DType, u32)> {
    match d {
        DType::F64 => Ok((DType::I64, 52)),
        DType::F32 => Ok((DType::I32, 23)),
        DType::F16 => Ok((DType::I16, 10)),
        DType::BF16 => Ok((DType::I16, 7)),
        _ => Err(format!("is not defined on {}", d.name()).into()),
    }
}

/// One step in the order of the bits.
fn nextafter(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let (x, y) = cx.promoted(a, "self", "other")?;
    let (x, y) = cx.broadcast(x, y)?;
    let d = dtype_of(x)?;
    let (bits, _) = layout(d)?;
    let least = cx.integer(bits, 1)?;
    formula(cx, |f| {
        let (x, y) = (f.of(x), f.of(y));
        let away = x.lt(y).to(DType::I32).eq(x.gt(0.0).to(DType::I32));
        let b = x.bitcast(bits);
        let step = away.select(b + 1.0, b - 1.0).bitcast(d);
        // From 0, the least number of the other's sign.
        let least = f.of(least).bitcast(d);
        let from_zero = y.gt(0.0).select(least, -least);
        let v = x.eq(0.0).select(from_zero, step);
        let v = x.eq(y).select(y, v);
        (x.is_nan() | y.is_nan()).select(x + y, v)
    })
}

/// A mantissa in [0.5, 1) and a power of two.
fn frexp(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let whole = cx.tensor(a, "self")?;
    let to = dtype_of(whole)?;
    let d = super::axes::wide(to);
    let (bits, mantissa) =
        layout(d).map_err(|_| "torch.frexp() only supports floating-point dtypes".to_string())?;
    let bias = (1i64 << (d.bits() as u32 - mantissa - 2)) - 1;
    let unit = (1i64 << mantissa) as f64;
    // Clears the exponent; its other bits are sign and mantissa.
    let rest = cx.integer(bits, !(((2 * bias + 1) as i64) << mantissa))?;
    let half = cx.integer(bits, (bias - 1) << mantissa)?;
    let magnitude =
        cx.integer(bits, if d == DType::F64 { i64::MAX } else { i64::from(i32::MAX) })?;
    let x = cx.convert(whole, d)?;
    let part = |exponent: bool| {
        value(cx, |f| {
            let x = f.of(x);
            let least = x.number(if d == DType::F64 {
                f64::MIN_POSITIVE
            } else {
                f64::from(f32::MIN_POSITIVE)
            });
            // Subnormal numbers are scaled into the normal range.
            let small = x.abs().lt(least);
            let scaled = small.select(x * (unit * 4.0), x);
            let b = scaled.bitcast(bits);
            let plain = x.eq(0.0) | !x.is_finite();
            if exponent {
                let e = (b & f.of(magnitude)) / unit - (bias - 1) as f64;
                let e = small.select(e - f64::from(mantissa + 2), e);
                plain.select(0.0, e).to(DType::I32)
            } else {
                let m = ((b & f.of(rest)) | f.of(half)).bitcast(d);
                plain.select(x, m).to(to)
            }
        })
    };
    let (m, e) = (part(false)?, part(true)?);
    cx.many(&[m, e])
}

fn isclose(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let (x, y) = (cx.tensor(a, "self")?, cx.tensor(a, "other")?);
    let d = dtype_of(x)?;
    if d != dtype_of(y)? {
        return Err("isclose: expected self and other to have the same dtype".into());
    }
    let (rtol, atol) = (a.float("rtol", Some(1e-5))?, a.float("atol", Some(1e-8))?);
    if rtol < 0.0 || atol < 0.0 {
        return Err("rtol and atol must be greater than or equal to zero".into());
    }
    let nan = a.flag("equal_nan", false)? && d.is_float();
    let (x, y) = cx.broadcast(x, y)?;
    formula(cx, |f| {
        let (x, y) = (f.of(x), f.of(y));
        let mut close = x.eq(y);
        if nan {
            close = close | (x.is_nan() & y.is_nan());
        }
        if rtol == 0.0 && atol == 0.0 {
            return close;
        }
        let d = if d.is_float() { d } else { DType::F32 };
        let (x, y) = (x.to(d), y.to(d));
        let (allowed, off) = ((y * rtol).abs() + atol, (x - y).abs());
        close | (off.is_finite() & off.le(allowed))
    })
}
