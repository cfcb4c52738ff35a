//! Elements as bits of another dtype, as `Tensor.view(dtype)` reads them.
use super::srepr::size_op;
use kiln_dialects::{ir::*, ops::*, value::DType};
use kiln_passes::broadcasting::{binary, convert};

/// The elements of `x` as `to`. Elements of another width divide, or join, those of the last
/// dimension, the lowest bits first. Err: bools, or a last dimension that does not divide so.
pub fn viewed(b: &Builder, x: Value, to: DType) -> Result<Value> {
    let dtype = |d: DType| Type::scalar(b.ctx, d);
    let from = x.ty().element().ok_or("has no elements")?.dtype()?;
    if from == to {
        return Ok(x);
    }
    if [from, to].contains(&DType::I1) {
        return Err(format!("views {} as {}, whose width differs", from.name(), to.name()).into());
    }
    let bits = |x: Value, d: DType| b.add(&Bitcast { input: x, dtype: dtype(d) });
    if from.bits() == to.bits() {
        return bits(x, to);
    }
    let mut sizes = b.sizes_of(x)?;
    let Some(last) = sizes.len().checked_sub(1) else {
        return Err(format!(
            "self.dim() cannot be 0 to view {} as {} (different element sizes)",
            from.name(),
            to.name()
        )
        .into());
    };
    // Parts of an element are numbered along a last dimension.
    let (wide, narrow) = (from.bits().max(to.bits()), from.bits().min(to.bits()));
    let (whole, part) = (integer(wide)?, integer(narrow)?);
    let ratio = i64::from(wide / narrow);
    let place = b.add(&Iota { sizes: vec![Size::Static(ratio)], axis: 0, dtype: dtype(whole) })?;
    let number = |n: i64| b.add(&Splat { value: Attr::scalar_int(b.ctx, whole, n), sizes: vec![] });
    let place = binary(b, BinaryKind::Mul, place, number(i64::from(narrow))?)?;
    let mask = number((1i64 << narrow) - 1)?;
    let size = |kind: SymKind, n: Size| size_op(b, kind, n, Size::Static(ratio));
    let v = if to.bits() < from.bits() {
        let apart = [&sizes[..], &[Size::Static(1)]].concat();
        let v = b.add(&Reshape { input: bits(x, whole)?, sizes: apart })?;
        let v = binary(b, BinaryKind::And, binary(b, BinaryKind::Shr, v, place)?, mask)?;
        sizes[last] = size(SymKind::Mul, sizes[last])?;
        b.add(&Reshape { input: convert(b, v, part)?, sizes })?
    } else {
        if sizes[last].known().is_some_and(|n| n % ratio != 0) {
            return Err(format!(
                "self.size(-1) must be divisible by {ratio} to view {} as {} (different element sizes)",
                from.name(),
                to.name()
            )
            .into());
        }
        sizes[last] = size(SymKind::Floordiv, sizes[last])?;
        sizes.push(Size::Static(ratio));
        let v = b.add(&Reshape { input: bits(x, part)?, sizes })?;
        let v = binary(b, BinaryKind::And, convert(b, v, whole)?, mask)?;
        // No two parts share a bit.
        let v = binary(b, BinaryKind::Shl, v, place)?;
        b.add(&Reduce {
            kind: ReduceKind::Sum,
            input: v,
            dims: vec![last as i64 + 1],
            maybe_empty: false,
        })?
    };
    bits(v, to)
}

/// The integers of a width.
fn integer(bits: u32) -> Result<DType> {
    Ok(match bits {
        8 => DType::UI8,
        16 => DType::I16,
        32 => DType::I32,
        64 => DType::I64,
        other => return Err(format!("has no integers of {other} bits").into()),
    })
}
