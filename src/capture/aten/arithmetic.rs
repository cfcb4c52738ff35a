//! Builders of elementwise rows that are more than one op.
use super::{Args, Cx, Outcome, axes::wide, formula::value, promote::result_type, tools::*};
use kiln_dialects::{ir::*, ops::*, value::DType};

impl Cx {
    /// A tensor argument; integers and bools are converted to the default float dtype.
    pub(super) fn floating(&mut self, a: &Args<'_>, name: &str) -> Result<Value> {
        let x = self.tensor(a, name)?;
        let d = dtype_of(x)?;
        if d.is_float() { Ok(x) } else { self.convert(x, DType::F32) }
    }
}

pub(super) fn default_float(d: DType) -> DType {
    if d.is_float() { d } else { DType::F32 }
}

pub(super) fn mul(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let (x, y) = cx.promoted(a, "self", "other")?;
    let r = cx.binary(BinaryKind::Mul, x, y)?;
    cx.one(r)
}

pub(super) fn scaled(cx: &mut Cx, a: &Args<'_>, kind: BinaryKind) -> Result<Outcome> {
    let (x, mut y) = cx.promoted(a, "self", "other")?;
    if a.has("alpha") && a.float("alpha", None)? != 1.0 {
        let alpha = cx.operand(a, "alpha", dtype_of(y)?)?;
        y = cx.binary(BinaryKind::Mul, y, alpha)?;
    }
    // A sum of bools is a logical or.
    let kind =
        if dtype_of(x)? == DType::I1 && kind == BinaryKind::Add { BinaryKind::Or } else { kind };
    let r = cx.binary(kind, x, y)?;
    cx.one(r)
}

pub(super) fn true_div(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let d = default_float(cx.common_dtype(a, &["self", "other"])?);
    let (x, y) = (cx.operand(a, "self", d)?, cx.operand(a, "other", d)?);
    let r = cx.binary(BinaryKind::Div, x, y)?;
    cx.one(r)
}

pub(super) fn div_mode(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let mode = a.text("rounding_mode", "")?;
    let (x, y) = match mode.as_str() {
        "floor" | "trunc" => cx.promoted(a, "self", "other")?,
        _ => return true_div(cx, a),
    };
    quotient(cx, a, mode == "floor", x, y)
}

/// A quotient rounded to an integer. PyTorch divides 16-bit floats in f32, by a number that is not
/// rounded to 16 bits; a quotient by a tensor is rounded before it is truncated.
pub(super) fn quotient(
    cx: &mut Cx,
    a: &Args<'_>,
    floor: bool,
    x: Value,
    y: Value,
) -> Result<Outcome> {
    let d = dtype_of(x)?;
    let wide = wide(d);
    let number = a.float("other", None).is_ok();
    let r = if wide != d && (number || !floor) {
        let y = if number { cx.operand(a, "other", wide)? } else { y };
        value(cx, |f| {
            let (x, y) = (f.of(x).to(wide), f.of(y).to(wide));
            match (floor, number) {
                (true, _) => x.floor_div(y),
                (false, true) => (x / y).trunc(),
                (false, false) => (x / y).rounded(d).trunc(),
            }
            .to(d)
        })?
    } else if floor {
        cx.binary(BinaryKind::FloorDiv, x, y)?
    } else {
        let q = cx.binary(BinaryKind::Div, x, y)?;
        if d.is_float() { cx.unary(UnaryKind::Trunc, q)? } else { q }
    };
    cx.one(r)
}

/// Python's remainder (sign of the divisor): fmod, plus the divisor if the signs differ.
pub(super) fn remainder(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let (x, y) = cx.promoted(a, "self", "other")?;
    let v = modulo(cx, x, y)?;
    cx.one(v)
}

/// As [`remainder`], of two values of one dtype.
pub(super) fn modulo(cx: &Cx, x: Value, y: Value) -> Result<Value> {
    let (x, y) = cx.broadcast(x, y)?;
    let r = cx.binary(BinaryKind::Rem, x, y)?;
    let zero = cx.full_like(r, 0.0)?;
    let nonzero = cx.compare(CompareKind::Ne, r, zero)?;
    let (r_neg, y_neg) =
        (cx.compare(CompareKind::Lt, r, zero)?, cx.compare(CompareKind::Lt, y, zero)?);
    let differ = cx.binary(BinaryKind::Xor, r_neg, y_neg)?;
    let fix = cx.binary(BinaryKind::And, nonzero, differ)?;
    let moved = cx.binary(BinaryKind::Add, r, y)?;
    cx.select(fix, moved, r)
}

/// A power. As in PyTorch, float exponents 0.5 and -0.5 become `sqrt` and `rsqrt`, so `pow(-0.0,
/// 0.5)` is -0 and `pow(-inf, 0.5)` is NaN.
pub(super) fn pow(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let (x, y) = cx.promoted(a, "self", "exponent")?;
    let root = match a.float("exponent", None) {
        Ok(0.5) => Some(UnaryKind::Sqrt),
        Ok(-0.5) => Some(UnaryKind::Rsqrt),
        _ => None,
    };
    if let Some(kind) = root.filter(|_| dtype_of(x).is_ok_and(|d| d.is_float())) {
        let r = cx.unary(kind, x)?;
        return cx.one(r);
    }
    let r = cx.binary(BinaryKind::Pow, x, y)?;
    cx.one(r)
}

pub(super) fn hardtanh(cx: &mut Cx, input: Value, low: f64, high: f64) -> Result<Outcome> {
    let d = dtype_of(input)?;
    let y = if d.is_float() {
        cx.b.add(&Hardtanh { input, low, high })?
    } else {
        let above = cx.binary(BinaryKind::Max, input, cx.number(d, low)?)?;
        cx.binary(BinaryKind::Min, above, cx.number(d, high)?)?
    };
    cx.one(y)
}

pub(super) fn positive_or(cx: &mut Cx, x: Value, otherwise: Value) -> Result<Outcome> {
    let zero = cx.number(dtype_of(x)?, 0.0)?;
    let c = cx.compare(CompareKind::Gt, x, zero)?;
    let y = cx.select(c, x, otherwise)?;
    cx.one(y)
}

pub(super) fn addc(cx: &mut Cx, a: &Args<'_>, kind: BinaryKind) -> Result<Outcome> {
    let d = cx.common_dtype(a, &["self", "tensor1", "tensor2"])?;
    let (x, y, z) =
        (cx.operand(a, "self", d)?, cx.operand(a, "tensor1", d)?, cx.operand(a, "tensor2", d)?);
    let value = cx.number(d, a.float("value", Some(1.0))?)?;
    let term = cx.binary(BinaryKind::Mul, cx.binary(kind, y, z)?, value)?;
    let r = cx.binary(BinaryKind::Add, x, term)?;
    cx.one(r)
}

/// Type promotion over a list, as in cat.
pub(super) fn common_of(values: &[Value]) -> Result<DType> {
    result_type(values, &[])
}
