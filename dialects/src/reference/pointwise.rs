//! Elementwise prims, without broadcasting.

use crate::{
    error::Result,
    ops::{BinaryKind, CompareKind, UnaryKind},
    reference::{
        element::{Element, both_data},
        scalar::{binary_float, binary_int, unary_float, unary_int},
        shape::{has_dtype, same_dtype, same_shape},
    },
    value::{DType, Data, Tensor},
};

/// r = kind(x), of x's dtype; `is_finite` and `is_nan` give `i1`. Floats support all kinds but
/// `not`; integers neg, abs, sign and not; `i1` not; all support is_finite and is_nan. Formulas:
/// Elementwise.td. Err: the kind is not defined on the dtype.
pub fn unary(kind: UnaryKind, x: &Tensor) -> Result<Tensor> {
    let dtype = x.dtype();
    let missing = || format!("{kind:?} is not defined on {dtype}");
    if matches!(kind, UnaryKind::IsFinite | UnaryKind::IsNan) {
        let nan = kind == UnaryKind::IsNan;
        let bits = match x.data() {
            Data::F(v) => {
                v.iter().map(|x| i64::from(if nan { x.is_nan() } else { x.is_finite() })).collect()
            }
            Data::I(v) => vec![i64::from(!nan); v.len()],
        };
        return Tensor::ints(DType::I1, x.shape().to_vec(), bits);
    }
    let data = match x.data() {
        Data::F(v) => {
            let f = unary_float(kind).ok_or_else(missing)?;
            Data::F(v.iter().map(|&x| f(x)).collect())
        }
        Data::I(v) => {
            let f = unary_int(kind, dtype).ok_or_else(missing)?;
            Data::I(v.iter().map(|&x| dtype.wrap(f(x))).collect())
        }
    };
    Tensor::new(dtype, x.shape().to_vec(), data)
}

/// r = x kind y, of the operands' dtype. Floats support all kinds but the bitwise ones; integers
/// all but atan2; `i1` and, or, xor, max, min, add (or) and mul (and). Formulas: Elementwise.td.
/// Err: shapes or dtypes differ, the kind is not defined on the dtype, integer division by 0.
pub fn binary(kind: BinaryKind, x: &Tensor, y: &Tensor) -> Result<Tensor> {
    same_shape(x, y)?;
    same_dtype(x, y)?;
    let dtype = x.dtype();
    let data = match (x.data(), y.data()) {
        (Data::F(v), Data::F(w)) => {
            let f =
                binary_float(kind).ok_or_else(|| format!("{kind:?} is not defined on {dtype}"))?;
            Data::F(v.iter().zip(w).map(|(&x, &y)| f(x, y)).collect())
        }
        _ => {
            let pairs = x.as_i()?.iter().zip(y.as_i()?).enumerate();
            let at = |(k, (&x, &y))| match binary_int(kind, dtype, x, y) {
                Ok(value) => Ok(dtype.wrap(value)),
                Err(why) => Err(format!("{why} (element {k})").into()),
            };
            Data::I(pairs.map(at).collect::<Result<_>>()?)
        }
    };
    Tensor::new(dtype, x.shape().to_vec(), data)
}

/// r = x kind y as `i1`; comparisons with NaN are false except `ne` (IEEE 754-2019, 5.11). Err:
/// shapes or dtypes differ.
pub fn compare(kind: CompareKind, x: &Tensor, y: &Tensor) -> Result<Tensor> {
    same_shape(x, y)?;
    same_dtype(x, y)?;
    fn run<E: Element>(kind: CompareKind, v: &[E], w: &[E]) -> Vec<i64> {
        let holds = |(x, y): (&E, &E)| match kind {
            CompareKind::Eq => x == y,
            CompareKind::Ne => x != y,
            CompareKind::Lt => x < y,
            CompareKind::Le => x <= y,
            CompareKind::Gt => x > y,
            CompareKind::Ge => x >= y,
        };
        v.iter().zip(w).map(|pair| i64::from(holds(pair))).collect()
    }
    let bits = match (x.data(), y.data()) {
        (Data::F(v), Data::F(w)) => run(kind, v, w),
        _ => run(kind, x.as_i()?, y.as_i()?),
    };
    Tensor::ints(DType::I1, x.shape().to_vec(), bits)
}

/// r = c ? x : y for an `i1` tensor c of the same shape. Err: c is not `i1`, shapes or dtypes
/// differ.
pub fn select(condition: &Tensor, on_true: &Tensor, on_false: &Tensor) -> Result<Tensor> {
    has_dtype("condition", condition, DType::I1)?;
    same_shape(condition, on_true)?;
    same_shape(on_true, on_false)?;
    same_dtype(on_true, on_false)?;
    fn run<E: Element>(condition: &[i64], v: &[E], w: &[E]) -> Vec<E> {
        condition
            .iter()
            .zip(v.iter().zip(w))
            .map(|(&c, (&x, &y))| if c != 0 { x } else { y })
            .collect()
    }
    let c = condition.as_i()?;
    let data = both_data!(on_true, on_false, v, w => run(c, v, w));
    Tensor::new(on_true.dtype(), on_true.shape().to_vec(), data)
}

/// r = min(max(x, low), high); propagates NaN, `high` wins where low > high. Err: shapes or dtypes
/// differ.
pub fn clamp(x: &Tensor, low: &Tensor, high: &Tensor) -> Result<Tensor> {
    binary(BinaryKind::Min, &binary(BinaryKind::Max, x, low)?, high)
}
