//! Uniform values.
use kiln_dialects::{ir::*, ops::*, rules::tensor_type, value::DType};

/// The scalar that a value holds everywhere, seen through movement that keeps it so.
pub(crate) fn scalar_of(v: Value) -> Option<Attr> {
    let mut v = v;
    loop {
        let op = v.def()?;
        match op.kind()? {
            OpKind::Splat => return op.attr("value"),
            OpKind::Constant => return op.attr("value")?.splat_value(),
            OpKind::BroadcastInDim | OpKind::Reshape | OpKind::Transpose => v = op.operand(0),
            _ => return None,
        }
    }
}

/// Whether the value is a splat of this number; for floats the sign of zero counts.
pub(crate) fn is_number(v: Value, number: f64) -> bool {
    let Some(a) = scalar_of(v) else { return false };
    match a.as_f64() {
        Some(x) => x == number && x.is_sign_negative() == number.is_sign_negative(),
        None => integer(a).is_some_and(|i| i as f64 == number),
    }
}

/// An integer or boolean.
pub(super) fn integer(a: Attr) -> Option<i64> {
    a.as_bool().map(i64::from).or_else(|| a.as_i64())
}

pub(crate) fn dtype(v: Value) -> Option<DType> {
    tensor_type(v.ty()).ok().map(|t| t.dtype)
}

/// A splat of the scalar with other sizes.
pub(super) fn splat(b: &Builder, value: Attr, sizes: Vec<Size>) -> Result<Value> {
    b.add(&Splat { value, sizes })
}
