//! Quantised tensors: integers or 8-bit floats `q` that stand for `(q - zero point) * scale`, with
//! one scale and zero point a tensor, a channel, a token or a group.
pub(super) mod affine;
pub(super) mod decomposed;
pub(super) mod fake;
pub(super) mod grouped;
pub(super) mod packed;
pub(super) mod products;
pub(super) mod tiled;

use super::{axes::wide, promote::promote, tools::*};
use kiln_dialects::{ir::*, ops::*, value::DType};

/// Arithmetic as eager PyTorch does it: operands promote by category and width, and results of
/// 16-bit floats are rounded. Fusion keeps this rounding, so that integers come out equal.
fn arithmetic(cx: &Cx, kind: BinaryKind, x: Value, y: Value) -> Result<Value> {
    let d = promote(dtype_of(x)?, dtype_of(y)?);
    let (x, y) = (cx.convert(x, wide(d))?, cx.convert(y, wide(d))?);
    cx.convert(cx.binary(kind, x, y)?, d)
}

/// Arithmetic of a float tensor and a number, which is not rounded to 16 bits.
fn with_number(cx: &Cx, kind: BinaryKind, x: Value, number: f64) -> Result<Value> {
    let d = dtype_of(x)?;
    let y = cx.number(wide(d), number)?;
    cx.convert(cx.binary(kind, cx.convert(x, wide(d))?, y)?, d)
}

/// `1 / x` in the dtype of `x`.
fn reciprocal(cx: &Cx, x: Value) -> Result<Value> {
    let d = dtype_of(x)?;
    let one = cx.number(wide(d), 1.0)?;
    cx.convert(cx.binary(BinaryKind::Div, one, cx.convert(x, wide(d))?)?, d)
}

/// Rounds to the nearest integer, half to even.
fn round(cx: &Cx, x: Value) -> Result<Value> {
    cx.unary(UnaryKind::RoundEven, x)
}

/// Limits a tensor to a range.
fn clamp(cx: &Cx, x: Value, low: f64, high: f64) -> Result<Value> {
    let d = dtype_of(x)?;
    let x = cx.binary(BinaryKind::Max, x, cx.number(d, low)?)?;
    cx.binary(BinaryKind::Min, x, cx.number(d, high)?)
}

/// Scales and zero points, in shapes that broadcast to the tensor that they quantise.
#[derive(Clone, Copy)]
struct Parameters {
    scale: Value,
    zero_point: Option<Value>,
    /// Whether the zero point is added before rounding.
    adds_first: bool,
}

/// `clamp(round(x * (1 / scale)) + zero_point, low, high)`, converted to `dtype`.
fn quantize(cx: &Cx, x: Value, p: Parameters, range: (f64, f64), dtype: DType) -> Result<Value> {
    let mut v = arithmetic(cx, BinaryKind::Mul, x, reciprocal(cx, p.scale)?)?;
    if !p.adds_first {
        v = round(cx, v)?;
    }
    if let Some(zero_point) = p.zero_point {
        v = arithmetic(cx, BinaryKind::Add, v, zero_point)?;
    }
    if p.adds_first {
        v = round(cx, v)?;
    }
    cx.convert(clamp(cx, v, range.0, range.1)?, dtype)
}

/// `(q - zero_point) * scale`, converted to `dtype`.
fn dequantize(cx: &Cx, q: Value, p: Parameters, dtype: DType) -> Result<Value> {
    let v = match p.zero_point {
        Some(zero_point) => arithmetic(cx, BinaryKind::Sub, q, zero_point)?,
        None => q,
    };
    cx.convert(arithmetic(cx, BinaryKind::Mul, v, p.scale)?, dtype)
}

/// The least and the greatest element over dimensions, which stay as size 1; both at most 0 and at
/// least 0, so that 0 has an exact representation.
fn extremes(cx: &Cx, x: Value, dims: &[i64]) -> Result<(Value, Value)> {
    let bound = |reduce: ReduceKind, kind: BinaryKind| {
        let v =
            cx.b.add(&Reduce { kind: reduce, input: x, dims: dims.to_vec(), maybe_empty: false })?;
        let v = super::reduce::keep_dims(cx, x, v, dims)?;
        cx.binary(kind, v, cx.number(dtype_of(x)?, 0.0)?)
    };
    Ok((bound(ReduceKind::Min, BinaryKind::Min)?, bound(ReduceKind::Max, BinaryKind::Max)?))
}

/// A tensor whose dimensions are split into blocks that share a scale.
struct Blocks {
    /// The shape: a dimension of several blocks is two, the number of blocks and their size.
    sizes: Vec<Size>,
    /// The dimensions of `sizes` within a block.
    within: Vec<i64>,
}

impl Blocks {
    /// Splits a shape. Err: a block does not divide its dimension, or ranks differ.
    fn of(cx: &Cx, x: Value, block: &[Size]) -> Result<Blocks> {
        let all = cx.b.sizes_of(x)?;
        if all.len() != block.len() {
            let (n, m) = (all.len(), block.len());
            return Err(format!("Got input dim:{n}, block_size of {m} dimensions").into());
        }
        let (mut sizes, mut within) = (vec![], vec![]);
        for (size, block) in all.into_iter().zip(block) {
            match (size.known(), block.known()) {
                (_, Some(1)) => sizes.push(size),
                (Some(n), Some(b)) if n != b => {
                    if b < 1 || n % b != 0 {
                        return Err(format!(
                            "Expecting input size {n} to be divisible by block_size {b}"
                        )
                        .into());
                    }
                    within.push(sizes.len() as i64 + 1);
                    sizes.extend([Size::Static(n / b), Size::Static(b)]);
                }
                (None, Some(b)) => {
                    within.push(sizes.len() as i64 + 1);
                    sizes.extend([cx.size_div(size, *block)?, Size::Static(b)]);
                }
                // A symbolic block is the whole dimension.
                _ => {
                    within.push(sizes.len() as i64);
                    sizes.push(size);
                }
            }
        }
        Ok(Blocks { sizes, within })
    }
    /// How many blocks each dimension of a tensor has.
    fn counts(cx: &Cx, x: Value, block: &[Size]) -> Result<Vec<Size>> {
        let count = |(size, block): (Size, &Size)| match (size.known(), block.known()) {
            (_, Some(1)) => Ok(size),
            (Some(n), Some(b)) => Ok(Size::Static(n / b)),
            (None, Some(_)) => cx.size_div(size, *block),
            (_, None) => Ok(Size::Static(1)),
        };
        cx.b.sizes_of(x)?.into_iter().zip(block).map(count).collect()
    }
    /// A tensor in the split shape.
    fn split(&self, cx: &Cx, x: Value) -> Result<Value> {
        cx.reshape(x, self.sizes.clone())
    }
    /// A tensor of one element a block, in a shape that broadcasts to the split one.
    fn parameter(&self, cx: &Cx, v: Value) -> Result<Value> {
        let size = |(i, s): (usize, &Size)| {
            if self.within.contains(&(i as i64)) { Size::Static(1) } else { *s }
        };
        cx.reshape(v, self.sizes.iter().enumerate().map(size).collect())
    }
}

/// A range of quantised values. Err: the dtype does not hold it.
fn held((low, high): (f64, f64), d: DType) -> Result<(f64, f64)> {
    let (least, most) = bounds(d)?;
    if low < least || high > most {
        return Err(format!("quant_min or quant_max out of bound for dtype: {low}, {high}").into());
    }
    Ok((low, high))
}

/// The least and the greatest value of a dtype, as quantised values.
fn bounds(d: DType) -> Result<(f64, f64)> {
    Ok(match d {
        DType::UI8 => (0.0, 255.0),
        DType::I8 => (-128.0, 127.0),
        DType::I16 => (-32768.0, 32767.0),
        DType::I32 => (f64::from(i32::MIN), f64::from(i32::MAX)),
        DType::F8E4M3FN => (-448.0, 448.0),
        DType::F8E5M2 => (-57344.0, 57344.0),
        _ => return Err(format!("Unsupported dtype: {}", d.name()).into()),
    })
}
