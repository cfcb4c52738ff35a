//! torchao's custom ops, as exports keep them before `run_decompositions`. Formulas from
//! `torchao/quantization/quant_primitives.py`.
use super::{
    super::{Args, Cx, Outcome, Row, tools::*},
    *,
};
use crate::capture::unsupported;

/// Rows of this family.
pub(in super::super) const ROWS: &[Row] = &[
    Row {
        name: "torchao.choose_qparams_affine.default",
        arguments: "input, mapping_type, block_size, target_dtype, quant_min=None, quant_max=None, eps=None, scale_dtype=None, zero_point_dtype=None, keepdim=False",
        build: choose,
    },
    Row {
        name: "torchao.quantize_affine.default",
        arguments: "input, block_size, scale, zero_point, output_dtype, quant_min=None, quant_max=None",
        build: |cx, a| {
            let x = cx.tensor(a, "input")?;
            let d = a.dtype("output_dtype")?.ok_or("wants a dtype")?;
            let range = range(a, d)?;
            let (blocks, p) = parameters(cx, a, x)?;
            let v = quantize(cx, blocks.split(cx, x)?, p, range, d)?;
            let v = cx.shaped_as(v, x)?;
            cx.one(v)
        },
    },
    Row {
        name: "torchao.dequantize_affine.default",
        arguments: "input, block_size, scale, zero_point, input_dtype, quant_min=None, quant_max=None, output_dtype=torch.float32",
        build: |cx, a| {
            let q = cx.tensor(a, "input")?;
            let d = a.dtype("output_dtype")?.unwrap_or(DType::F32);
            let (blocks, p) = parameters(cx, a, q)?;
            let zero_point = p.zero_point.map(|z| cx.convert(z, d)).transpose()?;
            let p = Parameters { zero_point, ..p };
            let split = cx.convert(blocks.split(cx, q)?, d)?;
            let v = dequantize(cx, split, p, d)?;
            let v = cx.shaped_as(v, q)?;
            cx.one(v)
        },
    },
    Row {
        name: "torchao.choose_scale_float8.default",
        arguments: "tensor, block_size, float8_dtype=torch.float8_e4m3fn, scale_dtype=torch.float32, hp_value_lb=None, hp_value_ub=None",
        build: choose_float8,
    },
    Row {
        name: "torchao.quantize_affine_float8_non_decomposed.default",
        arguments: "tensor, scale, float8_dtype=torch.float8_e4m3fn",
        build: |cx, a| {
            let x = cx.tensor(a, "tensor")?;
            let d = a.dtype("float8_dtype")?.unwrap_or(DType::F8E4M3FN);
            let (low, high) = bounds(d)?;
            let (split, scale) = expanded(cx, a, x)?;
            let v = arithmetic(cx, BinaryKind::Div, cx.convert(split, DType::F32)?, scale)?;
            let v = cx.convert(clamp(cx, v, low, high)?, d)?;
            let v = cx.shaped_as(v, x)?;
            cx.one(v)
        },
    },
    Row {
        name: "torchao.dequantize_affine_float8_non_decomposed.default",
        arguments: "tensor, scale, output_dtype=torch.float32",
        build: |cx, a| {
            let q = cx.tensor(a, "tensor")?;
            let d = a.dtype("output_dtype")?.unwrap_or(DType::F32);
            let (split, scale) = expanded(cx, a, q)?;
            let v = arithmetic(cx, BinaryKind::Mul, cx.convert(split, DType::F32)?, scale)?;
            let v = cx.convert(v, d)?;
            let v = cx.shaped_as(v, q)?;
            cx.one(v)
        },
    },
];

/// The bounds of quantised values: the arguments, or those of the dtype.
fn range(a: &Args<'_>, d: DType) -> Result<(f64, f64)> {
    let (least, most) = bounds(d)?;
    held((a.float("quant_min", Some(least))?, a.float("quant_max", Some(most))?), d)
}

/// Blocks, scales and zero points. A zero point without elements is none.
fn parameters(cx: &mut Cx, a: &Args<'_>, x: Value) -> Result<(Blocks, Parameters)> {
    let blocks = Blocks::of(cx, x, &a.sizes("block_size")?)?;
    let scale = cx.tensor(a, "scale")?;
    let scale = blocks.parameter(cx, scale)?;
    let zero_point = match cx.optional(a, "zero_point")? {
        Some(v) if cx.numel(v)?.known() != Some(0) => Some(blocks.parameter(cx, v)?),
        _ => None,
    };
    Ok((blocks, Parameters { scale, zero_point, adds_first: false }))
}

/// Scales and zero points from the range of each block, in the input's dtype.
fn choose(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let x = cx.tensor(a, "input")?;
    let d = dtype_of(x)?;
    let target = a.dtype("target_dtype")?.ok_or("wants a dtype")?;
    let (low, high) = range(a, target)?;
    let block = a.sizes("block_size")?;
    let blocks = Blocks::of(cx, x, &block)?;
    let (least, most) = extremes(cx, blocks.split(cx, x)?, &blocks.within)?;
    let smallest = match d {
        DType::F16 => 6.103515625e-05,
        DType::F64 => f64::MIN_POSITIVE,
        _ => f64::from(f32::MIN_POSITIVE),
    };
    let eps = cx.number(d, a.float("eps", Some(smallest))?)?;
    let divided = |v: Value, by: f64| with_number(cx, BinaryKind::Div, v, by);
    let middle = ((high + low + 1.0) / 2.0).trunc();
    let kind = a.text("mapping_type", "")?;
    let scale = match kind.as_str() {
        "SYMMETRIC" => {
            let most = cx.binary(BinaryKind::Max, cx.unary(UnaryKind::Neg, least)?, most)?;
            divided(most, (high - low) / 2.0)?
        }
        "SYMMETRIC_NO_CLIPPING_ERR" => {
            cx.binary(BinaryKind::Max, divided(least, low)?, divided(most, high)?)?
        }
        "ASYMMETRIC" => divided(arithmetic(cx, BinaryKind::Sub, most, least)?, high - low)?,
        other => return Err(format!("Unsupported mapping type: {other}").into()),
    };
    let scale = cx.binary(BinaryKind::Max, scale, eps)?;
    let (zero_point, default) = if kind == "ASYMMETRIC" {
        let steps = round(cx, arithmetic(cx, BinaryKind::Div, least, scale)?)?;
        let v = with_number(cx, BinaryKind::Add, cx.unary(UnaryKind::Neg, steps)?, low)?;
        (clamp(cx, v, low, high)?, DType::I32)
    } else {
        (cx.full_like(scale, middle)?, d)
    };
    // One element a block: in the input's rank, or without the dimensions within blocks.
    let sizes = if a.flag("keepdim", false)? {
        Blocks::counts(cx, x, &block)?
    } else {
        let outside = |(i, _): &(usize, &Size)| !blocks.within.contains(&(*i as i64));
        blocks.sizes.iter().enumerate().filter(outside).map(|(_, s)| *s).collect()
    };
    let scale =
        cx.convert(cx.reshape(scale, sizes.clone())?, a.dtype("scale_dtype")?.unwrap_or(d))?;
    let zero_point = cx.reshape(zero_point, sizes)?;
    let zero_point = cx.convert(zero_point, a.dtype("zero_point_dtype")?.unwrap_or(default))?;
    cx.many(&[scale, zero_point])
}

/// f32 scales that map the greatest magnitude of a block to the greatest 8-bit float.
fn choose_float8(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let x = cx.tensor(a, "tensor")?;
    let (_, most) = bounds(a.dtype("float8_dtype")?.unwrap_or(DType::F8E4M3FN))?;
    if a.dtype("scale_dtype")?.is_some_and(|d| d != DType::F32) {
        return Err(unsupported("scales of another dtype than float32 are not supported"));
    }
    let block = a.sizes("block_size")?;
    let blocks = Blocks::of(cx, x, &block)?;
    let magnitude = cx.unary(UnaryKind::Abs, blocks.split(cx, x)?)?;
    let mut v = cx.reduced(ReduceKind::Max, magnitude, &blocks.within)?;
    let d = dtype_of(v)?;
    for (name, kind) in [("hp_value_lb", BinaryKind::Max), ("hp_value_ub", BinaryKind::Min)] {
        if a.has(name) {
            v = cx.binary(kind, v, cx.number(d, a.float(name, None)?)?)?;
        }
    }
    let v = with_number(cx, BinaryKind::Div, v, most)?;
    let v = cx.convert(cx.reshape(v, Blocks::counts(cx, x, &block)?)?, DType::F32)?;
    cx.one(v)
}

/// A tensor split into the blocks that its scale's shape implies, and the scale beside it.
fn expanded(cx: &mut Cx, a: &Args<'_>, x: Value) -> Result<(Value, Value)> {
    let scale = cx.tensor(a, "scale")?;
    let (mine, theirs) = (x.ty().dims(), scale.ty().dims());
    let broadcasts = theirs.len() <= mine.len()
        && mine.iter().rev().zip(theirs.iter().rev()).all(|(m, s)| m == s || s.known() == Some(1));
    if broadcasts {
        return Ok((x, scale));
    }
    if mine.len() != theirs.len() {
        let (n, m) = (theirs.len(), mine.len());
        return Err(format!("Scale tensor has {n} dimensions but target has {m}").into());
    }
    let block = mine.iter().zip(&theirs).map(|(m, s)| match (m.known(), s.known()) {
        _ if m == s => Ok(Size::Static(1)),
        (Some(m), Some(s)) if s > 0 && m % s == 0 => Ok(Size::Static(m / s)),
        (Some(m), Some(s)) => {
            Err(format!("target size {m} is not evenly divisible by scale size {s}").into())
        }
        _ => Err(unsupported("blocks of symbolic sizes are not supported")),
    });
    let block = block.collect::<Result<Vec<_>>>()?;
    let blocks = Blocks::of(cx, x, &block)?;
    Ok((blocks.split(cx, x)?, blocks.parameter(cx, scale)?))
}
