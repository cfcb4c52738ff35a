//! Single elements as numbers.
use super::{Array, TraceError};
use kiln_dialects::value;

/// A number type to read a single element as.
pub trait Number: Sized {
    /// Converts a float element.
    fn from_f64(x: f64) -> Self;
    /// Converts an integer or bool element.
    fn from_i64(n: i64) -> Self;
}
impl Number for f64 {
    fn from_f64(x: f64) -> f64 {
        x
    }
    fn from_i64(n: i64) -> f64 {
        n as f64
    }
}
/// Truncates towards 0.
impl Number for i64 {
    fn from_f64(x: f64) -> i64 {
        x as i64
    }
    fn from_i64(n: i64) -> i64 {
        n
    }
}
/// Whether it is nonzero.
impl Number for bool {
    fn from_f64(x: f64) -> bool {
        x != 0.0
    }
    fn from_i64(n: i64) -> bool {
        n != 0
    }
}

/// The element of a single-element tensor.
pub(super) fn item<T: Number>(array: &Array) -> Result<T, TraceError> {
    let value = array.value()?;
    match (value.len(), value.data()) {
        (1, value::Data::F(all)) => Ok(T::from_f64(all[0])),
        (1, value::Data::I(all)) => Ok(T::from_i64(all[0])),
        (n, _) => Err(TraceError::User(format!("a tensor of {n} elements is no number").into())),
    }
}
