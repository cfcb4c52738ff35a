//! Elements in memory.
use super::{Tensor, TraceError, lock};
use crate::{
    capture::weight::Weight,
    runtime::{Buffer, Bytes, View, interop::Element},
};
use kiln_dialects::value::{self, DType, count};
use std::{ops::RangeInclusive, sync::Mutex};

/// Elements of a tensor in the host's memory, in row-major order; an `i1` is a byte. Nothing
/// changes them.
pub struct Array {
    dtype: DType,
    shape: Vec<usize>,
    bytes: Bytes,
    /// What was said of dimensions, by [`mark_dynamic`] and [`mark_static`].
    marks: Mutex<Vec<(usize, Mark)>>,
}

/// What a caller says of a dimension's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// Other calls have other sizes, in this range.
    Dynamic(i64, Option<i64>),
    /// A program is made for each size.
    Static,
}

impl std::fmt::Debug for Array {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{:?}", self.dtype, self.shape)
    }
}

/// A copy in aligned memory.
fn copied(bytes: &[u8]) -> Result<Bytes, String> {
    let mut buffer = Buffer::zeroed(bytes.len()).map_err(|e| e.to_string())?;
    buffer.bytes_mut().copy_from_slice(bytes);
    Ok(Bytes::owned(buffer))
}

impl Array {
    /// Takes over bytes. Err: another number of bytes than the shape says.
    pub fn new(dtype: DType, shape: &[usize], bytes: Bytes) -> Result<Array, String> {
        let want = count(shape)?.checked_mul(dtype.byte_size()).ok_or("is too large")?;
        if want != bytes.len() {
            return Err(format!("{dtype} {shape:?} needs {want} bytes, {} are given", bytes.len()));
        }
        if dtype == DType::I1
            && let Some(b) = bytes.bytes().iter().find(|b| **b > 1)
        {
            return Err(format!("has the truth value {b}, which is neither 0 nor 1"));
        }
        Ok(Array { dtype, shape: shape.to_vec(), bytes, marks: Mutex::default() })
    }
    /// A copy of bytes. Err: another number of bytes than the shape says, or no memory.
    pub fn of_bytes(dtype: DType, shape: &[usize], bytes: &[u8]) -> Result<Array, String> {
        Array::new(dtype, shape, copied(bytes)?)
    }
    /// A copy of numbers. Err: as for [`Array::of_bytes`].
    pub fn of<T: Element>(shape: &[usize], values: &[T]) -> Result<Array, String> {
        let dtype =
            DType::from_name(T::DTYPE).ok_or_else(|| format!("{} is no element type", T::DTYPE))?;
        // SAFETY: elements have no padding, and every byte of theirs may be read.
        let bytes = unsafe {
            std::slice::from_raw_parts(values.as_ptr().cast::<u8>(), size_of_val(values))
        };
        Array::of_bytes(dtype, shape, bytes)
    }
    /// A copy of a value, rounded to its dtype.
    pub fn of_value(t: &value::Tensor) -> Array {
        let held: std::sync::Arc<Vec<u8>> = t.dtype().encode(t).into();
        let bytes = Bytes::part_of(held.clone(), &held);
        Array { dtype: t.dtype(), shape: t.shape().to_vec(), bytes, marks: Mutex::default() }
    }
    /// A weight's elements, where they lie if they are row-major there. Err: a weight that is not
    /// what it says.
    pub fn of_weight(w: &Weight) -> Result<Array, String> {
        let bytes = match w.elements()? {
            std::borrow::Cow::Borrowed(bytes) if bytes.as_ptr().addr().is_multiple_of(8) => {
                Bytes::part_of(std::sync::Arc::new(w.clone()), bytes)
            }
            bytes => copied(&bytes)?,
        };
        Array::new(w.dtype, &w.shape, bytes)
    }
    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }
    /// Sizes.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }
    /// The elements.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.bytes()
    }
    /// What was said of a dimension.
    pub(crate) fn mark(&self, dim: usize) -> Option<Mark> {
        let all = lock(&self.marks);
        all.iter().rfind(|(d, _)| *d == dim).map(|(_, mark)| *mark)
    }
    fn add_mark(&self, dim: usize, mark: Mark) {
        let mut all = lock(&self.marks);
        all.retain(|(d, _)| *d != dim);
        all.push((dim, mark));
    }
    /// As an argument of a program. Err: never, for what was made here.
    pub fn view(&self) -> Result<View<'_>, crate::runtime::CallError> {
        Ok(self.as_view())
    }
    pub(crate) fn as_view(&self) -> View<'_> {
        // SAFETY: every way to make an array has as many bytes as its shape says.
        unsafe { View::known(self.dtype.name(), &self.shape, self.bytes.bytes()) }
    }
    /// As a value of the interpreter. Err: more elements than that takes.
    pub fn value(&self) -> Result<value::Tensor, String> {
        Ok(self.dtype.decode(&self.shape, self.bytes.bytes())?)
    }
    /// The numbers. Err: another dtype.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>, String> {
        if T::DTYPE != self.dtype.name() {
            return Err(format!("is {}, not {}", self.dtype, T::DTYPE));
        }
        let bytes = self.bytes.bytes();
        let n = bytes.len() / size_of::<T>();
        // SAFETY: the dtype is T's, whose values have every bit pattern; a bool's byte is 0 or 1
        // wherever it was written.
        Ok((0..n).map(|i| unsafe { bytes.as_ptr().cast::<T>().add(i).read_unaligned() }).collect())
    }
}

/// Says that other calls have other sizes of this dimension, in this range, so that a function is
/// compiled for all of them at once. Sizes below 2 get programs of their own all the same. Err: a
/// dimension that the tensor does not have, a size outside of the range, a traced tensor.
pub fn mark_dynamic(t: &Tensor, dim: i64, range: RangeInclusive<i64>) -> Result<(), TraceError> {
    let max = Some(*range.end()).filter(|m| *m < i64::MAX);
    let array = t.array()?;
    let at = position(&array, dim)?;
    let n = array.shape[at] as i64;
    if !range.contains(&n) {
        return Err(TraceError::User(
            format!("dimension {dim} has size {n}, which is not in {range:?}").into(),
        ));
    }
    array.add_mark(at, Mark::Dynamic(*range.start(), max));
    Ok(())
}

/// Says that a function is to be compiled for each size of this dimension. Err: a dimension that
/// the tensor does not have, a traced tensor.
pub fn mark_static(t: &Tensor, dim: i64) -> Result<(), TraceError> {
    let array = t.array()?;
    let at = position(&array, dim)?;
    array.add_mark(at, Mark::Static);
    Ok(())
}

/// A dimension that may count from the end.
fn position(array: &Array, dim: i64) -> Result<usize, TraceError> {
    let rank = array.shape.len();
    let at =
        usize::try_from(if dim < 0 { dim + rank as i64 } else { dim }).ok().filter(|d| *d < rank);
    at.ok_or_else(|| TraceError::User(format!("dimension {dim} is outside of rank {rank}").into()))
}

/// A number that one element is read as.
pub trait Number: Sized {
    /// From a float element.
    fn of_float(x: f64) -> Self;
    /// From an integer or a truth value.
    fn of_int(n: i64) -> Self;
}
impl Number for f64 {
    fn of_float(x: f64) -> f64 {
        x
    }
    fn of_int(n: i64) -> f64 {
        n as f64
    }
}
/// Rounded towards 0.
impl Number for i64 {
    fn of_float(x: f64) -> i64 {
        x as i64
    }
    fn of_int(n: i64) -> i64 {
        n
    }
}
/// Whether it is not 0.
impl Number for bool {
    fn of_float(x: f64) -> bool {
        x != 0.0
    }
    fn of_int(n: i64) -> bool {
        n != 0
    }
}

/// The one element of a tensor.
pub(super) fn item<T: Number>(array: &Array) -> Result<T, TraceError> {
    let value = array.value().map_err(TraceError::Module)?;
    match (value.len(), value.data()) {
        (1, value::Data::F(all)) => Ok(T::of_float(all[0])),
        (1, value::Data::I(all)) => Ok(T::of_int(all[0])),
        (n, _) => Err(TraceError::User(format!("a tensor of {n} elements is no number").into())),
    }
}
