//! Type rules of the elementwise ops.
use super::types::{Sizes, TensorType, ensure, unify_all};
use crate::{ir::*, ops::*, value::DType};

/// The dtypes that a unary op supports.
fn takes_unary(kind: UnaryKind, d: DType) -> bool {
    match kind {
        UnaryKind::Neg | UnaryKind::Abs | UnaryKind::Sign => d != DType::I1,
        UnaryKind::Not => !d.is_float(),
        UnaryKind::Exp
        | UnaryKind::Exp2
        | UnaryKind::Expm1
        | UnaryKind::Log
        | UnaryKind::Log1p
        | UnaryKind::Log2
        | UnaryKind::Sqrt
        | UnaryKind::Rsqrt
        | UnaryKind::Sin
        | UnaryKind::Cos
        | UnaryKind::Tan
        | UnaryKind::Asin
        | UnaryKind::Acos
        | UnaryKind::Atan
        | UnaryKind::Sinh
        | UnaryKind::Cosh
        | UnaryKind::Tanh
        | UnaryKind::Erf
        | UnaryKind::Ceil
        | UnaryKind::Floor
        | UnaryKind::RoundEven
        | UnaryKind::Trunc
        | UnaryKind::IsFinite
        | UnaryKind::IsNan => d.is_float(),
    }
}

fn takes_binary(kind: BinaryKind, d: DType) -> bool {
    match kind {
        BinaryKind::Add
        | BinaryKind::Sub
        | BinaryKind::Mul
        | BinaryKind::Div
        | BinaryKind::Rem
        | BinaryKind::FloorDiv
        | BinaryKind::Pow => d != DType::I1,
        BinaryKind::Max | BinaryKind::Min => true,
        BinaryKind::Atan2 => d.is_float(),
        BinaryKind::And | BinaryKind::Or | BinaryKind::Xor => !d.is_float(),
        BinaryKind::Shl | BinaryKind::Shr => d.is_int(),
    }
}

fn accept(ok: bool, d: DType) -> Result<()> {
    ensure(ok, || format!("is not defined on {}", d.name()))
}

/// The elementwise prims.
pub(super) fn infer(view: &View, v: &dyn Sizes) -> Result<Vec<TensorType>> {
    let operand = |i: usize| v.tensor(*view.values.get(i).ok_or("has too few operands")?);
    let same = |n: usize| -> Result<TensorType> {
        ensure(view.values.len() == n, || {
            format!("has {} operands where {n} are needed", view.values.len())
        })?;
        let mut t = operand(0)?;
        for i in 1..n {
            let other = operand(i)?;
            ensure(t.dtype == other.dtype, || {
                format!("mixes {} and {}; convert first", t.dtype.name(), other.dtype.name())
            })?;
            t.dims = unify_all(&t.dims, &other.dims, "of its operands; broadcast first")?;
        }
        Ok(t)
    };
    let t = match view.kind {
        unary!() => {
            let t = same(1)?;
            let kind = UnaryKind::from_op(view.kind).ok_or("is not a unary op")?;
            accept(takes_unary(kind, t.dtype), t.dtype)?;
            if matches!(kind, UnaryKind::IsFinite | UnaryKind::IsNan) {
                TensorType { dtype: DType::I1, ..t }
            } else {
                t
            }
        }
        binary!() => {
            let t = same(2)?;
            let kind = BinaryKind::from_op(view.kind).ok_or("is not a binary op")?;
            accept(takes_binary(kind, t.dtype), t.dtype)?;
            t
        }
        OpKind::Compare => TensorType { dtype: DType::I1, ..same(2)? },
        OpKind::Clamp => {
            let t = same(3)?;
            accept(t.dtype != DType::I1, t.dtype)?;
            t
        }
        OpKind::Select => {
            let o = Select::read(view)?;
            let (c, x, y) = (v.tensor(o.condition)?, v.tensor(o.on_true)?, v.tensor(o.on_false)?);
            ensure(c.dtype == DType::I1, || {
                format!("needs an i1 condition, has {}", c.dtype.name())
            })?;
            ensure(x.dtype == y.dtype, || {
                format!("mixes {} and {}; convert first", x.dtype.name(), y.dtype.name())
            })?;
            let dims = unify_all(&x.dims, &y.dims, "of its operands; broadcast first")?;
            TensorType {
                dtype: x.dtype,
                dims: unify_all(&dims, &c.dims, "of condition and values; broadcast first")?,
            }
        }
        OpKind::Convert => {
            let o = Convert::read(view)?;
            TensorType { dtype: o.dtype.dtype()?, ..v.tensor(o.input)? }
        }
        OpKind::Bitcast => {
            let o = Bitcast::read(view)?;
            let (t, to) = (v.tensor(o.input)?, o.dtype.dtype()?);
            let ok = t.dtype.bits() == to.bits();
            ensure(ok, || {
                format!(
                    "reads {} bits of {} as {} bits of {}",
                    t.dtype.bits(),
                    t.dtype.name(),
                    to.bits(),
                    to.name()
                )
            })?;
            TensorType { dtype: to, ..t }
        }
        other => return Err(format!("({}) is not an elementwise op", other.name()).into()),
    };
    Ok(vec![t])
}

/// Activations: floats only, the result has the input's type.
pub(super) fn activation(view: &View, v: &dyn Sizes) -> Result<Vec<TensorType>> {
    let t = v.tensor(*view.values.first().ok_or("has no operand")?)?;
    accept(t.dtype.is_float(), t.dtype)?;
    if view.kind == OpKind::Softplus {
        let o = Softplus::read(view)?;
        ensure(o.beta != 0.0, || "has beta 0".into())?;
    }
    Ok(vec![t])
}
