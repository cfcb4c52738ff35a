//! Products of quantised matrices: int8 with int32 sums, int8 weights, 8-bit floats with scales.
use super::{
    super::{Args, Cx, Outcome, Row, tools::*},
    *,
};
use crate::capture::unsupported;

/// Rows of this family.
pub(in super::super) const ROWS: &[Row] = &[
    Row {
        name: "aten._int_mm.default",
        arguments: "self, mat2",
        build: |cx, a| {
            let v = int_mm(cx, a)?;
            cx.one(v)
        },
    },
    Row {
        name: "aten._weight_int8pack_mm.default",
        arguments: "self, mat2, scales",
        build: weight_int8pack_mm,
    },
    Row {
        name: "aten._scaled_mm.default",
        arguments: "self, mat2, scale_a, scale_b, bias=None, scale_result=None, out_dtype=None",
        build: scaled_mm,
    },
];

/// `x @ y` of matrices, with sums of `sum`.
pub(super) fn product(cx: &Cx, x: Value, y: Value, inner: (i64, i64), sum: DType) -> Result<Value> {
    cx.b.add(&DotGeneral {
        lhs: x,
        rhs: y,
        lhs_batch: vec![],
        rhs_batch: vec![],
        lhs_contract: vec![inner.0],
        rhs_contract: vec![inner.1],
        element_type: Some(Type::scalar(cx.b.ctx, sum)),
    })
}

/// Two int8 matrices with int32 sums.
fn int_mm(cx: &mut Cx, a: &Args<'_>) -> Result<Value> {
    let (x, y) = (cx.tensor(a, "self")?, cx.tensor(a, "mat2")?);
    for v in [x, y] {
        if dtype_of(v)? != DType::I8 {
            return Err("int_mm: expected operands to be of type int8".into());
        }
        if rank_of(v) != 2 {
            return Err(format!("Expected matrices, got {} dimensions", rank_of(v)).into());
        }
    }
    product(cx, x, y, (1, 0), DType::I32)
}

/// x [M, K] with int8 weights [N, K] and a scale for each of their rows: f32 sums are scaled, then
/// rounded once.
fn weight_int8pack_mm(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let (x, weight) = (cx.tensor(a, "self")?, cx.tensor(a, "mat2")?);
    let d = dtype_of(x)?;
    if rank_of(x) != 2 || rank_of(weight) != 2 || dtype_of(weight)? != DType::I8 {
        return Err("_weight_int8pack_mm: expects a float matrix and an int8 matrix".into());
    }
    // An int8 is exact in 16 bits.
    let weight = cx.convert(weight, d)?;
    let v = product(cx, x, weight, (1, 1), DType::F32)?;
    let scales = cx.tensor(a, "scales")?;
    let v = cx.binary(BinaryKind::Mul, v, cx.convert(scales, DType::F32)?)?;
    let v = cx.convert(v, d)?;
    cx.one(v)
}

/// Two matrices of 8-bit floats: `(x @ y) * scale_a * scale_b + bias` in f32, rounded once. Scales
/// have one element, or one a row of x and one a column of y.
fn scaled_mm(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let (x, y) = (cx.tensor(a, "self")?, cx.tensor(a, "mat2")?);
    let eight = |v| Ok::<_, Error>(dtype_of(v)?.is_8_bit_float());
    if rank_of(x) != 2 || rank_of(y) != 2 || !eight(x)? || !eight(y)? {
        return Err("_scaled_mm: expects two matrices of 8-bit floats".into());
    }
    let d = a.dtype("out_dtype")?.unwrap_or(dtype_of(x)?);
    if d.bits() == 8 && a.has("scale_result") {
        return Err(unsupported(
            "scale_result of an 8-bit result is not supported: PyTorch divides by it on processors and multiplies on GPUs",
        ));
    }
    // 8-bit floats are exact in bf16.
    let (m, n) = (cx.b.size_of(x, 0)?, cx.b.size_of(y, 1)?);
    let (x, y) = (cx.convert(x, DType::BF16)?, cx.convert(y, DType::BF16)?);
    let mut v = product(cx, x, y, (1, 0), DType::F32)?;
    for (name, sizes) in [("scale_a", [m, Size::Static(1)]), ("scale_b", [Size::Static(1), n])] {
        let scale = cx.tensor(a, name)?;
        if dtype_of(scale)? != DType::F32 {
            return Err(unsupported(format!("{name} of another dtype than float32")));
        }
        v = cx.binary(BinaryKind::Mul, v, scale_of(cx, scale, name, &sizes)?)?;
    }
    if let Some(bias) = cx.optional(a, "bias")? {
        v = cx.binary(BinaryKind::Add, v, cx.convert(bias, DType::F32)?)?;
    }
    let v = cx.convert(v, d)?;
    cx.one(v)
}

/// A scale of one element as a 0-d tensor, or one of these sizes. Err: any other, as of blocks.
fn scale_of(cx: &Cx, scale: Value, name: &str, sizes: &[Size; 2]) -> Result<Value> {
    if cx.numel(scale)?.known() == Some(1) {
        return cx.reshape(scale, vec![]);
    }
    let dims = scale.ty().dims();
    let fits = dims.len() == 2 && dims.iter().zip(sizes).all(|(d, s)| d.known() == s.known());
    if fits {
        return Ok(scale);
    }
    Err(unsupported(format!(
        "{name}: scales of a tensor, or of rows and columns, are supported, not scales of blocks"
    )))
}
