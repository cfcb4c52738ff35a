//! Tensor data in host memory, or in that of a GPU.
use super::lock;
use crate::runtime::{
    Buffer, Bytes, CallError, DataError, DeviceId, View,
    cuda::{self, DeviceMemory},
    interop::Element,
};
use kiln_dialects::value::{self, DType, count};
use std::sync::{Arc, Mutex};

/// Immutable tensor data in row-major order, in host memory or in that of a GPU; an `i1` takes one
/// byte.
pub struct Array {
    dtype: DType,
    shape: Vec<usize>,
    storage: Storage,
    /// Marks of dimensions, set by `mark_dynamic` and `mark_static`.
    marks: Mutex<Vec<(usize, Mark)>>,
}

/// Where the elements are.
pub(super) enum Storage {
    Host(Bytes),
    Device(Arc<DeviceMemory>),
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
    fn stored(dtype: DType, shape: &[usize], storage: Storage) -> Result<Array, DataError> {
        let count = count(shape).map_err(DataError::malformed)?;
        let want = count.checked_mul(dtype.byte_size()).ok_or("is too large")?;
        let have = match &storage {
            Storage::Host(bytes) => bytes.len(),
            Storage::Device(memory) => memory.len(),
        };
        if want != have {
            return Err(DataError::Mismatch(format!(
                "{dtype} {shape:?} needs {want} bytes, {have} are given"
            )));
        }
        Ok(Array { dtype, shape: shape.to_vec(), storage, marks: Mutex::default() })
    }
    /// Takes ownership of bytes. Err: their number does not match the shape.
    pub fn new(dtype: DType, shape: &[usize], bytes: Bytes) -> Result<Array, DataError> {
        if dtype == DType::I1
            && let Some(b) = bytes.bytes().iter().find(|b| **b > 1)
        {
            return Err(format!("has the truth value {b}, which is neither 0 nor 1").into());
        }
        Array::stored(dtype, shape, Storage::Host(bytes))
    }
    /// Takes ownership of elements in device memory. Err: their number does not match the shape.
    pub fn on_device(
        dtype: DType,
        shape: &[usize],
        memory: impl Into<Arc<DeviceMemory>>,
    ) -> Result<Array, DataError> {
        Array::stored(dtype, shape, Storage::Device(memory.into()))
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
        let (shape, storage) = (t.shape().to_vec(), Storage::Host(bytes));
        Array { dtype: t.dtype(), shape, storage, marks: Mutex::default() }
    }
    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }
    /// The shape.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }
    /// Where the elements are.
    pub fn device(&self) -> DeviceId {
        match &self.storage {
            Storage::Host(_) => DeviceId::Host,
            Storage::Device(memory) => memory.device(),
        }
    }
    pub(super) fn storage(&self) -> &Storage {
        &self.storage
    }
    /// The elements in device memory; `None` on the host.
    pub fn device_memory(&self) -> Option<&DeviceMemory> {
        if let Storage::Device(memory) = &self.storage { Some(memory) } else { None }
    }
    /// The elements as bytes; from a GPU, a copy, once they are computed. Err: the GPU or its driver
    /// fails, or the host is out of memory.
    pub fn bytes(&self) -> Result<Bytes, DataError> {
        match &self.storage {
            Storage::Host(bytes) => Ok(bytes.clone()),
            Storage::Device(memory) => {
                Ok(Bytes::owned(memory.download().map_err(DataError::device)?))
            }
        }
    }
    /// A copy on a device; `None` if it is there. Err: the device or its driver fails, or is out of
    /// memory.
    pub(crate) fn copied_to(&self, device: DeviceId) -> Result<Option<Array>, DataError> {
        let storage = match (&self.storage, device) {
            _ if self.device() == device => return Ok(None),
            (_, DeviceId::Host) => Ok(Storage::Host(self.bytes()?)),
            (Storage::Host(bytes), DeviceId::Cuda(index)) => {
                DeviceMemory::upload(index, bytes.bytes()).map(|m| Storage::Device(m.into()))
            }
            (Storage::Device(memory), DeviceId::Cuda(index)) => {
                memory.copied_to(index).map(|m| Storage::Device(m.into()))
            }
        };
        let storage = storage.map_err(DataError::device)?;
        let marks = Mutex::new(lock(&self.marks).clone());
        Ok(Some(Array { dtype: self.dtype, shape: self.shape.clone(), storage, marks }))
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
    /// A view as a program argument. That of elements on a GPU waits for them, since a call may run
    /// on any stream. Err: the GPU or its driver fails.
    pub fn view(&self) -> Result<View<'_>, CallError> {
        if let DeviceId::Cuda(index) = self.device() {
            cuda::synchronize(index)?;
        }
        Ok(self.as_view())
    }
    /// As [`Array::view`], for a call on the stream of a GPU's tensors.
    pub(crate) fn as_view(&self) -> View<'_> {
        let dtype = self.dtype.name();
        match &self.storage {
            // SAFETY: every constructor checks the number of bytes against the shape.
            Storage::Host(bytes) => unsafe {
                View::new_unchecked(dtype, &self.shape, bytes.bytes())
            },
            // SAFETY: the same; the memory is freed in the order of the stream that calls run on.
            Storage::Device(memory) => unsafe {
                View::on_cuda(memory.index(), dtype, &self.shape, None, memory.address())
            },
        }
    }
    /// Converts to an interpreter value. Err: too many elements, or as for [`Array::bytes`].
    pub fn value(&self) -> Result<value::Tensor, DataError> {
        self.dtype.decode(&self.shape, self.bytes()?.bytes()).map_err(DataError::malformed)
    }
    /// Copies the elements. Err: another dtype, or as for [`Array::bytes`].
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>, DataError> {
        if T::DTYPE != self.dtype.name() {
            return Err(DataError::Mismatch(format!("is {}, not {}", self.dtype, T::DTYPE)));
        }
        let held = self.bytes()?;
        let bytes = held.bytes();
        let n = bytes.len() / size_of::<T>();
        // SAFETY: the dtype is T's, which accepts every bit pattern; bool bytes are always 0 or 1.
        Ok((0..n).map(|i| unsafe { bytes.as_ptr().cast::<T>().add(i).read_unaligned() }).collect())
    }
}
