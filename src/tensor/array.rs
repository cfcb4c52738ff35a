//! Tensor data in host memory.
use super::lock;
use crate::runtime::{Buffer, Bytes, DataError, View, interop::Element};
use kiln_dialects::value::{self, DType, count};
use std::sync::Mutex;

/// Immutable tensor data in host memory, in row-major order; an `i1` takes one byte.
pub struct Array {
    dtype: DType,
    shape: Vec<usize>,
    bytes: Bytes,
    /// Marks of dimensions, set by `mark_dynamic` and `mark_static`.
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
pub(crate) fn copied(bytes: &[u8]) -> Result<Bytes, DataError> {
    let mut buffer = Buffer::zeroed(bytes.len())?;
    buffer.bytes_mut().copy_from_slice(bytes);
    Ok(Bytes::owned(buffer))
}

impl Array {
    /// Takes ownership of bytes. Err: their number does not match the shape.
    pub fn new(dtype: DType, shape: &[usize], bytes: Bytes) -> Result<Array, DataError> {
        let count = count(shape).map_err(DataError::malformed)?;
        let want = count.checked_mul(dtype.byte_size()).ok_or("is too large")?;
        if want != bytes.len() {
            return Err(DataError::Mismatch(format!(
                "{dtype} {shape:?} needs {want} bytes, {} are given",
                bytes.len()
            )));
        }
        if dtype == DType::I1
            && let Some(b) = bytes.bytes().iter().find(|b| **b > 1)
        {
            return Err(format!("has the truth value {b}, which is neither 0 nor 1").into());
        }
        Ok(Array { dtype, shape: shape.to_vec(), bytes, marks: Mutex::default() })
    }
    /// Copies bytes. Err: their number does not match the shape, or out of memory.
    pub fn from_bytes(dtype: DType, shape: &[usize], bytes: &[u8]) -> Result<Array, DataError> {
        Array::new(dtype, shape, copied(bytes)?)
    }
    /// Copies numbers. Err: as for [`Array::from_bytes`].
    pub fn from_slice<T: Element>(shape: &[usize], values: &[T]) -> Result<Array, DataError> {
        let dtype =
            DType::from_name(T::DTYPE).ok_or_else(|| format!("{} is no element type", T::DTYPE))?;
        // SAFETY: elements have no padding, and every byte of theirs may be read.
        let bytes = unsafe {
            std::slice::from_raw_parts(values.as_ptr().cast::<u8>(), size_of_val(values))
        };
        Array::from_bytes(dtype, shape, bytes)
    }
    /// Copies a value, rounded to its dtype.
    pub fn from_value(t: &value::Tensor) -> Array {
        let held: std::sync::Arc<Vec<u8>> = t.dtype().encode(t).into();
        let bytes = Bytes::part_of(held.clone(), &held);
        Array { dtype: t.dtype(), shape: t.shape().to_vec(), bytes, marks: Mutex::default() }
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
    pub(super) fn add_mark(&self, dim: usize, mark: Mark) {
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
        unsafe { View::new_unchecked(self.dtype.name(), &self.shape, self.bytes.bytes()) }
    }
    /// Converts to an interpreter value. Err: too many elements.
    pub fn value(&self) -> Result<value::Tensor, DataError> {
        self.dtype.decode(&self.shape, self.bytes.bytes()).map_err(DataError::malformed)
    }
    /// Copies the elements. Err: another dtype.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>, DataError> {
        if T::DTYPE != self.dtype.name() {
            return Err(DataError::Mismatch(format!("is {}, not {}", self.dtype, T::DTYPE)));
        }
        let bytes = self.bytes.bytes();
        let n = bytes.len() / size_of::<T>();
        // SAFETY: the dtype is T's, which accepts every bit pattern; bool bytes are always 0 or 1.
        Ok((0..n).map(|i| unsafe { bytes.as_ptr().cast::<T>().add(i).read_unaligned() }).collect())
    }
}
