//! Tensor data in host memory.
use super::{Tensor, TraceError, lock};
use crate::{
    capture::weight::Weight,
    runtime::{Buffer, Bytes, View, interop::Element},
};
use kiln_dialects::value::{self, DType, count};
use std::{ops::RangeInclusive, sync::Mutex};

/// Immutable tensor data in host memory, in row-major order; an `i1` takes one byte.
pub struct Array {
    dtype: DType,
    shape: Vec<usize>,
    bytes: Bytes,
    /// Marks of dimensions, set by [`mark_dynamic`] and [`mark_static`].
    marks: Mutex<Vec<(usize, Mark)>>,
}

/// A dynamic-shape mark of a dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// Dynamic, with this range of sizes.
    Dynamic(i64, Option<i64>),
    /// Static: specialise on each size.
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
    /// Takes ownership of bytes. Err: their number does not match the shape.
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
    /// Copies bytes. Err: their number does not match the shape, or out of memory.
    pub fn of_bytes(dtype: DType, shape: &[usize], bytes: &[u8]) -> Result<Array, String> {
        Array::new(dtype, shape, copied(bytes)?)
    }
    /// Copies numbers. Err: as for [`Array::of_bytes`].
    pub fn of<T: Element>(shape: &[usize], values: &[T]) -> Result<Array, String> {
        let dtype =
            DType::from_name(T::DTYPE).ok_or_else(|| format!("{} is no element type", T::DTYPE))?;
        // SAFETY: elements have no padding, and every byte of theirs may be read.
        let bytes = unsafe {
            std::slice::from_raw_parts(values.as_ptr().cast::<u8>(), size_of_val(values))
        };
        Array::of_bytes(dtype, shape, bytes)
    }
    /// Copies a value, rounded to its dtype.
    pub fn of_value(t: &value::Tensor) -> Array {
        let held: std::sync::Arc<Vec<u8>> = t.dtype().encode(t).into();
        let bytes = Bytes::part_of(held.clone(), &held);
        Array { dtype: t.dtype(), shape: t.shape().to_vec(), bytes, marks: Mutex::default() }
    }
    /// The elements of a weight, without a copy if it is contiguous. Err: the weight is malformed.
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
    /// The shape.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }
    /// The elements as bytes.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.bytes()
    }
    /// The mark of a dimension.
    pub(crate) fn mark(&self, dim: usize) -> Option<Mark> {
        let all = lock(&self.marks);
        all.iter().rfind(|(d, _)| *d == dim).map(|(_, mark)| *mark)
    }
    fn add_mark(&self, dim: usize, mark: Mark) {
        let mut all = lock(&self.marks);
        all.retain(|(d, _)| *d != dim);
        all.push((dim, mark));
    }
    /// A view as a program argument. Err: never, for arrays made here.
    pub fn view(&self) -> Result<View<'_>, crate::runtime::CallError> {
        Ok(self.as_view())
    }
    pub(crate) fn as_view(&self) -> View<'_> {
        // SAFETY: every constructor checks the number of bytes against the shape.
        unsafe { View::known(self.dtype.name(), &self.shape, self.bytes.bytes()) }
    }
    /// Converts to an interpreter value. Err: too many elements.
    pub fn value(&self) -> Result<value::Tensor, String> {
        Ok(self.dtype.decode(&self.shape, self.bytes.bytes())?)
    }
    /// Copies the elements. Err: another dtype.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>, String> {
        if T::DTYPE != self.dtype.name() {
            return Err(format!("is {}, not {}", self.dtype, T::DTYPE));
        }
        let bytes = self.bytes.bytes();
        let n = bytes.len() / size_of::<T>();
        // SAFETY: the dtype is T's, which accepts every bit pattern; bool bytes are always 0 or 1.
        Ok((0..n).map(|i| unsafe { bytes.as_ptr().cast::<T>().add(i).read_unaligned() }).collect())
    }
}

/// Marks a dimension as dynamic with a range of sizes, so that the first compilation makes it
/// symbolic (as `torch._dynamo.mark_dynamic`). Sizes 0 and 1 are still specialised. Err: no such
/// dimension, the current size is out of range, or a traced tensor.
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

/// Marks a dimension as static: each size is specialised. Err: no such dimension, or a traced
/// tensor.
pub fn mark_static(t: &Tensor, dim: i64) -> Result<(), TraceError> {
    let array = t.array()?;
    let at = position(&array, dim)?;
    array.add_mark(at, Mark::Static);
    Ok(())
}

/// Normalises a dimension; negative ones count from the end.
fn position(array: &Array, dim: i64) -> Result<usize, TraceError> {
    let rank = array.shape.len();
    let at =
        usize::try_from(if dim < 0 { dim + rank as i64 } else { dim }).ok().filter(|d| *d < rank);
    at.ok_or_else(|| TraceError::User(format!("dimension {dim} is outside of rank {rank}").into()))
}

/// A number type to read a single element as.
pub trait Number: Sized {
    /// Converts a float element.
    fn of_float(x: f64) -> Self;
    /// Converts an integer or bool element.
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
/// Truncates towards 0.
impl Number for i64 {
    fn of_float(x: f64) -> i64 {
        x as i64
    }
    fn of_int(n: i64) -> i64 {
        n
    }
}
/// Whether it is nonzero.
impl Number for bool {
    fn of_float(x: f64) -> bool {
        x != 0.0
    }
    fn of_int(n: i64) -> bool {
        n != 0
    }
}

/// The element of a single-element tensor.
pub(super) fn item<T: Number>(array: &Array) -> Result<T, TraceError> {
    let value = array.value().map_err(TraceError::Module)?;
    match (value.len(), value.data()) {
        (1, value::Data::F(all)) => Ok(T::of_float(all[0])),
        (1, value::Data::I(all)) => Ok(T::of_int(all[0])),
        (n, _) => Err(TraceError::User(format!("a tensor of {n} elements is no number").into())),
    }
}
