//! Fake quantisation: the float values that quantised ones stand for, as training uses them.
//! Formulas from `aten/src/ATen/native/quantized/cpu/kernels/QuantizedOpKernels.cpp`.
use super::{
    super::{Args, Cx, Outcome, Row, tools::*},
    decomposed::channel,
    *,
};

/// Rows of this family.
pub(in super::super) const ROWS: &[Row] = &[
    Row {
        name: "aten.fake_quantize_per_tensor_affine.default",
        arguments: "self, scale, zero_point, quant_min, quant_max",
        build: |cx, a| whole(cx, a, false),
    },
    Row {
        name: "aten.fake_quantize_per_tensor_affine.tensor_qparams",
        arguments: "self, scale, zero_point, quant_min, quant_max",
        build: |cx, a| whole(cx, a, false),
    },
    Row {
        name: "aten.fake_quantize_per_tensor_affine_cachemask.default",
        arguments: "self, scale, zero_point, quant_min, quant_max",
        build: |cx, a| whole(cx, a, true),
    },
    Row {
        name: "aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default",
        arguments: "self, scale, zero_point, fake_quant_enabled, quant_min, quant_max",
        build: |cx, a| whole(cx, a, true),
    },
    Row {
        name: "aten.fake_quantize_per_channel_affine.default",
        arguments: "self, scale, zero_point, axis, quant_min, quant_max",
        build: |cx, a| channels(cx, a, false),
    },
    Row {
        name: "aten.fake_quantize_per_channel_affine_cachemask.default",
        arguments: "self, scale, zero_point, axis, quant_min, quant_max",
        build: |cx, a| channels(cx, a, true),
    },
    Row {
        name: "aten.fake_quantize_per_tensor_affine_cachemask_backward.default",
        arguments: "grad, mask",
        build: backward,
    },
    Row {
        name: "aten.fake_quantize_per_channel_affine_cachemask_backward.default",
        arguments: "grad, mask",
        build: backward,
    },
];

/// One scale and zero point, numbers or tensors of one element.
fn whole(cx: &mut Cx, a: &Args<'_>, masked: bool) -> Result<Outcome> {
    let x = cx.tensor(a, "self")?;
    let (scale, zero_point) = (scalar(cx, a, "scale")?, scalar(cx, a, "zero_point")?);
    let enabled = match cx.optional(a, "fake_quant_enabled")? {
        Some(v) => {
            let v = cx.reshape(v, vec![])?;
            let zero = cx.number(dtype_of(v)?, 0.0)?;
            Some(cx.compare(CompareKind::Ne, v, zero)?)
        }
        None => None,
    };
    let p = Parameters { scale, zero_point: Some(zero_point), adds_first: false };
    let (mut v, mut mask) = faked(cx, a, x, p)?;
    if let Some(enabled) = enabled {
        v = cx.select(enabled, v, x)?;
        mask = cx.binary(BinaryKind::Or, mask, cx.unary(UnaryKind::Not, enabled)?)?;
    }
    if masked { cx.many(&[v, mask]) } else { cx.one(v) }
}

/// A number or a tensor of one element, as a 0-d tensor: of f32 for scales, as the kernels read them.
fn scalar(cx: &mut Cx, a: &Args<'_>, name: &str) -> Result<Value> {
    let d = if name == "scale" { DType::F32 } else { cx.common_dtype(a, &[name])? };
    let v = cx.operand(a, name, d)?;
    cx.reshape(v, vec![])
}

/// A scale and a zero point a channel. Zero points that are floats are added before rounding.
fn channels(cx: &mut Cx, a: &Args<'_>, masked: bool) -> Result<Outcome> {
    let x = cx.tensor(a, "self")?;
    let p = channel(cx, a, x, "zero_point")?;
    let adds_first = match p.zero_point {
        Some(z) => dtype_of(z)?.is_float(),
        None => false,
    };
    let p = Parameters { scale: cx.convert(p.scale, DType::F32)?, adds_first, ..p };
    let (v, mask) = faked(cx, a, x, p)?;
    if masked { cx.many(&[v, mask]) } else { cx.one(v) }
}

/// Quantised and dequantised in f32, or f64 for f64, and rounded once to the input's dtype; and
/// which elements were in range. NaN becomes the least value.
fn faked(cx: &Cx, a: &Args<'_>, x: Value, p: Parameters) -> Result<(Value, Value)> {
    let d = dtype_of(x)?;
    let w = wide(d);
    let (low, high) = (a.float("quant_min", None)?, a.float("quant_max", None)?);
    let zero_point = cx.convert(p.zero_point.ok_or("wants zero points")?, w)?;
    // The inverse is of f32 also for f64.
    let inverse = cx.convert(reciprocal(cx, p.scale)?, w)?;
    let scale = cx.convert(p.scale, w)?;
    let mut steps = cx.binary(BinaryKind::Mul, cx.convert(x, w)?, inverse)?;
    steps = if p.adds_first {
        round(cx, cx.binary(BinaryKind::Add, steps, zero_point)?)?
    } else {
        cx.binary(BinaryKind::Add, round(cx, steps)?, zero_point)?
    };
    let least = cx.full_like(steps, low)?;
    let above = cx.compare(CompareKind::Ge, steps, least)?;
    let below = cx.compare(CompareKind::Le, steps, cx.full_like(steps, high)?)?;
    let mask = cx.binary(BinaryKind::And, above, below)?;
    let nan = cx.unary(UnaryKind::IsNan, steps)?;
    let q = cx.select(nan, least, clamp(cx, steps, low, high)?)?;
    let v = cx.binary(BinaryKind::Sub, q, zero_point)?;
    let v = cx.convert(cx.binary(BinaryKind::Mul, v, scale)?, d)?;
    Ok((v, mask))
}

/// The gradient where the input was in range, else 0.
fn backward(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let (grad, mask) = (cx.tensor(a, "grad")?, cx.tensor(a, "mask")?);
    let mask = cx.convert(mask, dtype_of(grad)?)?;
    let v = cx.binary(BinaryKind::Mul, grad, mask)?;
    cx.one(v)
}
