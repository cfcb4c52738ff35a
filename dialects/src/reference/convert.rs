//! Conversions between dtypes.

use crate::{
    error::Result,
    value::{DType, Data, Tensor},
};

/// r = dtype(x): float to integer truncates, integer to integer wraps, to `i1` is x != 0. Float
/// results are not rounded here. Out-of-range floats give the nearest integer, NaN gives 0. Never
/// an error.
pub fn convert(x: &Tensor, dtype: DType) -> Result<Tensor> {
    let (low, high) = dtype.int_range();
    let data = match (x.data(), dtype) {
        (Data::F(v), _) if dtype.is_float() => Data::F(v.clone()),
        (Data::I(v), DType::F64) => Data::F(v.iter().map(|&v| v as f64).collect()),
        (Data::I(v), _) if dtype.is_float() => {
            Data::F(v.iter().map(|&v| round_to_odd(v)).collect())
        }
        (Data::F(v), DType::I1) => Data::I(v.iter().map(|&v| i64::from(v != 0.0)).collect()),
        (Data::F(v), _) => Data::I(v.iter().map(|&v| (v as i64).clamp(low, high)).collect()),
        (Data::I(v), _) => Data::I(v.iter().map(|&v| dtype.wrap(v)).collect()),
    };
    Tensor::new(dtype, x.shape().to_vec(), data)
}

/// An integer as f64, rounded to odd: later rounding to a narrower dtype is then correct (no double
/// rounding).
fn round_to_odd(v: i64) -> f64 {
    let nearest = v as f64;
    let excess = i128::from(v).abs() - (nearest.abs() as i128);
    let bits = nearest.to_bits();
    if excess == 0 || bits & 1 == 1 {
        nearest
    } else if excess > 0 {
        f64::from_bits(bits + 1)
    } else {
        f64::from_bits(bits - 1)
    }
}

/// Reinterprets the bits as another dtype of the same width; floats are rounded to their dtype
/// first. Err: widths differ.
pub fn bitcast(x: &Tensor, dtype: DType) -> Result<Tensor> {
    let (from, to) = (x.dtype(), dtype);
    if from.bits() != to.bits() {
        return Err(format!("{from} has {} bits, {to} has {}", from.bits(), to.bits()).into());
    }
    to.decode(x.shape(), &from.encode(x))
}
