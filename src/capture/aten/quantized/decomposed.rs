//! `quantized_decomposed`: what PT2E quantisation inserts. Formulas from
//! `torch/ao/quantization/fx/_decomposed.py`.
use super::{
    super::{Args, Cx, Outcome, Row, tools::*},
    *,
};
use crate::capture::unsupported;

/// Rows of this family.
pub(in super::super) const ROWS: &[Row] = &[
    Row {
        name: "quantized_decomposed.quantize_per_tensor.default",
        arguments: "input, scale, zero_point, quant_min, quant_max, dtype",
        build: quantize_tensor,
    },
    Row {
        name: "quantized_decomposed.quantize_per_tensor.tensor",
        arguments: "input, scale, zero_point, quant_min, quant_max, dtype",
        build: quantize_tensor,
    },
    Row {
        name: "quantized_decomposed.quantize_per_tensor.tensor2",
        arguments: "input, scale, zero_point, quant_min, quant_max, dtype",
        build: quantize_tensor,
    },
    Row {
        name: "quantized_decomposed.dequantize_per_tensor.default",
        arguments: "input, scale, zero_point, quant_min, quant_max, dtype, out_dtype=None",
        build: dequantize_tensor,
    },
    Row {
        name: "quantized_decomposed.dequantize_per_tensor.tensor",
        arguments: "input, scale, zero_point, quant_min, quant_max, dtype, out_dtype=None",
        build: dequantize_tensor,
    },
    Row {
        name: "quantized_decomposed.dequantize_per_tensor.tensor2",
        arguments: "input, scale, zero_point, quant_min, quant_max, dtype, out_dtype=None",
        build: dequantize_tensor,
    },
    Row {
        name: "quantized_decomposed.quantize_per_channel.default",
        arguments: "input, scales, zero_points, axis, quant_min, quant_max, dtype",
        build: |cx, a| {
            let x = single(cx, a)?;
            let p = channel(cx, a, x, "zero_points")?;
            quantized(cx, a, x, p)
        },
    },
    Row {
        name: "quantized_decomposed.dequantize_per_channel.default",
        arguments: "input, scales, zero_points, axis, quant_min, quant_max, dtype, out_dtype=None",
        build: |cx, a| {
            let q = cx.tensor(a, "input")?;
            let p = channel(cx, a, q, "zero_points")?;
            let d = a.dtype("out_dtype")?.unwrap_or(DType::F32);
            let v = dequantize(cx, q, p, d)?;
            cx.one(v)
        },
    },
    Row {
        name: "quantized_decomposed.quantize_per_token.default",
        arguments: "input, scales, zero_points, quant_min, quant_max, dtype",
        build: |cx, a| {
            let x = cx.tensor(a, "input")?;
            let p = token(cx, a, x)?;
            quantized(cx, a, x, p)
        },
    },
    Row {
        name: "quantized_decomposed.dequantize_per_token.default",
        arguments: "input, scales, zero_points, quant_min, quant_max, dtype, output_dtype",
        build: |cx, a| {
            let q = cx.tensor(a, "input")?;
            let p = token(cx, a, q)?;
            let d = a.dtype("output_dtype")?.unwrap_or(DType::F32);
            let v = dequantize(cx, q, p, d)?;
            cx.one(v)
        },
    },
    Row {
        name: "quantized_decomposed.quantize_per_channel_group.default",
        arguments: "input, scales, zero_points, quant_min, quant_max, dtype, group_size",
        build: |cx, a| {
            let x = cx.tensor(a, "input")?;
            let (blocks, p) = groups(cx, a, x)?;
            let split = blocks.split(cx, x)?;
            let range = (a.float("quant_min", None)?, a.float("quant_max", None)?);
            let d = a.dtype("dtype")?.ok_or("wants a dtype")?;
            let v = quantize(cx, split, p, range, d)?;
            let v = cx.shaped_as(v, x)?;
            cx.one(v)
        },
    },
    Row {
        name: "quantized_decomposed.dequantize_per_channel_group.default",
        arguments: "input, scales, zero_points, quant_min, quant_max, dtype, group_size, output_dtype",
        build: |cx, a| {
            // The schema's name of the first argument is not that of the function.
            let q = cx.tensor(a, "input")?;
            let (blocks, p) = groups(cx, a, q)?;
            let d = a.dtype("output_dtype")?.unwrap_or(DType::F32);
            let v = dequantize(cx, blocks.split(cx, q)?, p, d)?;
            let v = cx.shaped_as(v, q)?;
            cx.one(v)
        },
    },
    Row {
        name: "quantized_decomposed.choose_qparams.tensor",
        arguments: "input, quant_min, quant_max, eps, dtype",
        build: |cx, a| choose(cx, a, false),
    },
    Row {
        name: "quantized_decomposed.choose_qparams_symmetric.tensor",
        arguments: "input, quant_min, quant_max, eps, dtype",
        build: |cx, a| choose(cx, a, true),
    },
    Row {
        name: "quantized_decomposed.choose_qparams_per_token.default",
        arguments: "input, dtype",
        build: choose_token,
    },
    Row {
        name: "quantized_decomposed.choose_qparams_per_token_asymmetric.default",
        arguments: "input, dtype",
        build: choose_token_asymmetric,
    },
    Row {
        name: "quantized_decomposed._choose_qparams_per_token_asymmetric_impl.default",
        arguments: "input, dtype",
        build: choose_token_asymmetric,
    },
    Row {
        name: "quantized_decomposed.fake_quant_per_channel.default",
        arguments: "input, scales, zero_points, axis, quant_min, quant_max",
        build: |cx, a| {
            let x = cx.tensor(a, "input")?;
            let p = channel(cx, a, x, "zero_points")?;
            let p = Parameters { scale: cx.convert(p.scale, DType::F32)?, ..p };
            let range = (a.float("quant_min", None)?, a.float("quant_max", None)?);
            let q = quantize(cx, x, p, range, dtype_of(x)?)?;
            let v = dequantize(cx, q, p, dtype_of(x)?)?;
            cx.one(v)
        },
    },
    Row {
        name: "quantized_decomposed.convert_element_type.no_fuse",
        arguments: "input, dtype",
        build: |cx, a| {
            let x = cx.tensor(a, "input")?;
            let v = cx.convert(x, a.dtype("dtype")?.ok_or("wants a dtype")?)?;
            cx.one(v)
        },
    },
];

/// The input as f32; f64 is refused, as in PyTorch.
fn single(cx: &mut Cx, a: &Args<'_>) -> Result<Value> {
    let x = cx.tensor(a, "input")?;
    match dtype_of(x)? {
        DType::F32 | DType::F16 | DType::BF16 => cx.convert(x, DType::F32),
        d => {
            Err(format!("Expecting input to have dtype torch.float32, but got {}", d.name()).into())
        }
    }
}

/// Quantises to the range and the dtype of the arguments. Err: the dtype does not hold the range.
fn quantized(cx: &mut Cx, a: &Args<'_>, x: Value, p: Parameters) -> Result<Outcome> {
    let d = a.dtype("dtype")?.ok_or("wants a dtype")?;
    let range = held((a.float("quant_min", None)?, a.float("quant_max", None)?), d)?;
    let v = quantize(cx, x, p, range, d)?;
    cx.one(v)
}

/// A number, or the only element of a tensor, as a 0-d f64 tensor.
fn item(cx: &mut Cx, a: &Args<'_>, name: &str) -> Result<Value> {
    let v = cx.operand(a, name, DType::F64)?;
    if cx.numel(v)?.known().is_some_and(|n| n != 1) {
        return Err(format!("Expecting {name} tensor to be one element").into());
    }
    cx.reshape(v, vec![])
}

/// A scale and a zero point for the whole tensor. They are Python numbers to PyTorch: the inverse
/// of the scale is of f64, rounded to the input's f32.
fn quantize_tensor(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let d = a.dtype("dtype")?.ok_or("wants a dtype")?;
    let x = single(cx, a)?;
    let scale = item(cx, a, "scale")?;
    let inverse = cx.convert(reciprocal(cx, scale)?, DType::F32)?;
    let zero_point = item(cx, a, "zero_point")?;
    let v = round(cx, cx.binary(BinaryKind::Mul, x, inverse)?)?;
    let v = cx.binary(BinaryKind::Add, v, cx.convert(zero_point, DType::F32)?)?;
    let (low, high) = (item(cx, a, "quant_min")?, item(cx, a, "quant_max")?);
    let v = cx.binary(BinaryKind::Max, v, cx.convert(low, DType::F32)?)?;
    let v = cx.binary(BinaryKind::Min, v, cx.convert(high, DType::F32)?)?;
    let v = cx.convert(v, d)?;
    cx.one(v)
}

/// `(q - zero_point) * scale`, with a rounding to the result's dtype after each.
fn dequantize_tensor(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let q = cx.tensor(a, "input")?;
    let d = a.dtype("out_dtype")?.unwrap_or(DType::F32);
    let zero_point = item(cx, a, "zero_point")?;
    let (zero_point, scale) = (cx.convert(zero_point, wide(d))?, item(cx, a, "scale")?);
    let v = cx.convert(cx.convert(q, d)?, wide(d))?;
    let v = cx.convert(cx.binary(BinaryKind::Sub, v, zero_point)?, d)?;
    let v = cx.convert(v, wide(d))?;
    let v = cx.binary(BinaryKind::Mul, v, cx.convert(scale, wide(d))?)?;
    let v = cx.convert(v, d)?;
    cx.one(v)
}

/// Scales and zero points [channels] of an axis.
pub(super) fn channel(cx: &mut Cx, a: &Args<'_>, x: Value, zero: &str) -> Result<Parameters> {
    let axis = wrap(a.int("axis", None)?, rank_of(x))?;
    let scales = if a.has("scales") { "scales" } else { "scale" };
    let mut along = |name: &str| -> Result<Option<Value>> {
        let Some(v) = cx.optional(a, name)? else { return Ok(None) };
        let mut sizes = vec![Size::Static(1); rank_of(x)];
        sizes[axis] = cx.b.size_of(v, 0)?;
        cx.reshape(v, sizes).map(Some)
    };
    let scale = along(scales)?.ok_or("wants scales")?;
    Ok(Parameters { scale, zero_point: along(zero)?, adds_first: false })
}

/// Scales and zero points of all rows, as [.., 1].
fn token(cx: &mut Cx, a: &Args<'_>, x: Value) -> Result<Parameters> {
    let (scale, zero_point) = (cx.tensor(a, "scales")?, cx.tensor(a, "zero_points")?);
    let mut sizes = cx.b.sizes_of(x)?;
    *sizes.last_mut().ok_or("wants a tensor with dimensions")? = Size::Static(1);
    let zero_point = Some(cx.reshape(zero_point, sizes.clone())?);
    Ok(Parameters { scale: cx.reshape(scale, sizes)?, zero_point, adds_first: true })
}

/// Scales and zero points of groups of a matrix's columns.
fn groups(cx: &mut Cx, a: &Args<'_>, x: Value) -> Result<(Blocks, Parameters)> {
    let mut size = a.int("group_size", Some(128))?;
    if size <= 1 {
        return Err("group_size must be > 1".into());
    }
    if rank_of(x) != 2 {
        return Err("input must be 2-dimensional".into());
    }
    let scale = cx.tensor(a, "scales")?;
    let last = |v: Value| v.ty().dims().last().and_then(|d| d.known());
    if let Some(columns) = last(x).filter(|n| *n < size && last(scale) == Some(1)) {
        size = columns;
    }
    // A group of the whole row keeps a dimension of its own.
    let (rows, columns) = (cx.b.size_of(x, 0)?, cx.b.size_of(x, 1)?);
    if columns.known().is_some_and(|n| n % size != 0) {
        return Err("input.shape[-1] must be divisible by group_size".into());
    }
    let count = cx.size_div(columns, Size::Static(size))?;
    let blocks = Blocks { sizes: vec![rows, count, Size::Static(size)], within: vec![2] };
    let scale = blocks.parameter(cx, scale)?;
    let zero_point = match cx.optional(a, "zero_points")? {
        Some(v) => Some(blocks.parameter(cx, v)?),
        None => None,
    };
    Ok((blocks, Parameters { scale, zero_point, adds_first: true }))
}

/// A scale [1] of f64 and a zero point [1] of i64 for the range of all elements.
fn choose(cx: &mut Cx, a: &Args<'_>, symmetric: bool) -> Result<Outcome> {
    let x = cx.tensor(a, "input")?;
    let (low, high) = (a.float("quant_min", None)?, a.float("quant_max", None)?);
    if low >= high {
        return Err(format!("qmin should be less than qmax, but got {low} and {high}").into());
    }
    let dims: Vec<i64> = (0..rank_of(x) as i64).collect();
    let (least, most) = extremes(cx, x, &dims)?;
    let one = |v: Value| cx.reshape(v, vec![Size::Static(1)]);
    let (least, most) = (one(least)?, one(most)?);
    // eps is a tensor of f32, so the scale is one from here on.
    let eps = a.float("eps", None)?;
    let at_least = |v: Value| {
        let v = cx.convert(v, DType::F32)?;
        cx.binary(BinaryKind::Max, v, cx.number(DType::F32, eps)?)
    };
    let (scale, zero_point) = if symmetric {
        let most = cx.binary(BinaryKind::Max, cx.unary(UnaryKind::Neg, least)?, most)?;
        let scale = at_least(with_number(cx, BinaryKind::Div, most, (high - low) / 2.0)?)?;
        let middle = if a.dtype("dtype")? == Some(DType::UI8) { 128.0 } else { 0.0 };
        (scale, cx.b.splat(DType::I64, &[Size::Static(1)], middle)?)
    } else {
        let range = arithmetic(cx, BinaryKind::Sub, most, least)?;
        let scale = at_least(with_number(cx, BinaryKind::Div, range, high - low)?)?;
        let steps = round(cx, arithmetic(cx, BinaryKind::Div, least, scale)?)?;
        let steps = cx.convert(steps, DType::I64)?;
        let v = cx.binary(BinaryKind::Sub, cx.number(DType::I64, low)?, steps)?;
        (scale, clamp(cx, v, low, high)?)
    };
    let scale = cx.convert(scale, DType::F64)?;
    cx.many(&[scale, zero_point])
}

/// Scales [.., 1] of rows for int8, and zero points that are 0, both floats.
fn choose_token(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    if a.dtype("dtype")? != Some(DType::I8) {
        return Err(unsupported("unsupported dtype in choose_qparams_per_token: only int8"));
    }
    let x = cx.tensor(a, "input")?;
    let last = rank_of(x) as i64 - 1;
    let magnitude = cx.unary(UnaryKind::Abs, x)?;
    let most = cx.reduced(ReduceKind::Max, magnitude, &[last])?;
    let most = super::super::reduce::keep_dims(cx, x, most, &[last])?;
    let d = if dtype_of(x)? == DType::F16 { DType::F32 } else { dtype_of(x)? };
    let most = cx.convert(most, d)?;
    let most = cx.binary(BinaryKind::Max, most, cx.number(d, 1e-5)?)?;
    let scale = with_number(cx, BinaryKind::Div, most, 127.0)?;
    let zero_point = cx.full_like(scale, 0.0)?;
    cx.many(&[scale, zero_point])
}

/// Scales [.., 1] of f64 and zero points [.., 1] of i64 of rows for int8: of the two zero points
/// that map an end of the range exactly, the one with the smaller error.
fn choose_token_asymmetric(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let x = cx.tensor(a, "input")?;
    let (low, high) = (-128.0, 127.0);
    let (least, most) = extremes(cx, x, &[rank_of(x) as i64 - 1])?;
    let range = arithmetic(cx, BinaryKind::Sub, most, least)?;
    let scale = with_number(cx, BinaryKind::Div, range, high - low)?;
    let eps = cx.number(dtype_of(scale)?, f64::from(f32::EPSILON))?;
    let scale = cx.binary(BinaryKind::Max, scale, eps)?;
    let down = arithmetic(cx, BinaryKind::Div, least, scale)?;
    let up = arithmetic(cx, BinaryKind::Div, most, scale)?;
    let errors = arithmetic(
        cx,
        BinaryKind::Add,
        with_number(cx, BinaryKind::Add, down, low)?,
        with_number(cx, BinaryKind::Add, up, high)?,
    )?;
    let positive = cx.compare(CompareKind::Gt, errors, cx.number(dtype_of(errors)?, 0.0)?)?;
    let negated = |v: Value, by: f64| {
        let v = cx.unary(UnaryKind::Neg, v)?;
        with_number(cx, BinaryKind::Add, v, by)
    };
    let zero_point = cx.select(positive, negated(down, low)?, negated(up, high)?)?;
    let zero_point = round(cx, clamp(cx, zero_point, low, high)?)?;
    let (scale, zero_point) = (cx.convert(scale, DType::F64)?, cx.convert(zero_point, DType::I64)?);
    cx.many(&[scale, zero_point])
}
