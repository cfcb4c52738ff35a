//! Tensors from DLPack's and to them, without copies, on the host and on GPUs.
use super::{Array, Tensor, TraceError};
use crate::runtime::{
    Bytes, DataError, DeviceId, View, cuda::DeviceMemory, interop::dlpack_dtype, view::tensor_bytes,
};
use dlpark::{
    DlpackFlags, Managed, ManagedTensorBase,
    ffi::{DLDevice, DLDeviceType, DLManagedTensorVersioned},
    metadata::Dynamic,
};
use kiln_dialects::value::DType;
use std::sync::Arc;

impl Tensor {
    /// Takes a tensor of another library: in place if it is dense and row-major, else, on the host,
    /// as a copy. It is kept for as long as anything uses its elements. Err: a dtype or a device that
    /// kiln has not, or other strides on a GPU.
    ///
    /// # Safety
    /// The tensor is valid by DLPack's specification, and nobody writes its elements any more. On a
    /// GPU, what writes them has completed, or was enqueued on
    /// [`tensor_stream`](crate::runtime::cuda::tensor_stream).
    pub unsafe fn from_dlpack<M>(t: Managed<M>) -> Result<Tensor, TraceError>
    where
        M: ManagedTensorBase + 'static,
    {
        // SAFETY: the caller's promise.
        let view = unsafe { View::from_dlpack(t.tensor()) }.map_err(DataError::mismatch)?;
        let dtype =
            DType::from_name(view.dtype()).ok_or_else(|| DataError::mismatch(view.dtype()))?;
        let (shape, device) = (view.shape().to_vec(), view.device());
        let len = tensor_bytes("tensor", "", view.dtype(), &shape).map_err(DataError::mismatch)?;
        let (at, in_place) = (view.address(), view.is_row_major());
        let array = match device {
            DeviceId::Host if !in_place => Array::new(
                dtype,
                &shape,
                Bytes::owned(view.copied().map_err(DataError::mismatch)?),
            )?,
            DeviceId::Host => {
                // SAFETY: as many bytes as the shape says, by the caller's promise.
                let bytes = unsafe { std::slice::from_raw_parts(at, len) };
                Array::new(dtype, &shape, Bytes::part_of(Arc::new(t), bytes))?
            }
            DeviceId::Cuda(_) if !in_place => {
                return Err(DataError::mismatch("has strides on a GPU: make it contiguous").into());
            }
            DeviceId::Cuda(index) => {
                // SAFETY: the caller's promise.
                let memory = unsafe { DeviceMemory::foreign(index, at as u64, len, t) };
                Array::on_device(dtype, &shape, memory.map_err(DataError::device)?)?
            }
        };
        Ok(array.into())
    }

    /// Its elements as a DLPack tensor, shared and so read-only. Those of a GPU are complete when
    /// this returns. Err: it is poisoned or traced, or the GPU or its driver fails.
    #[track_caller]
    pub fn to_dlpack(&self) -> Result<Managed<DLManagedTensorVersioned>, TraceError> {
        let array = self.array()?;
        let (device_type, index) = match array.device() {
            DeviceId::Host => (DLDeviceType::CPU, 0),
            DeviceId::Cuda(index) => (DLDeviceType::CUDA, index),
        };
        let device_id = i32::try_from(index).map_err(DataError::mismatch)?;
        // Waits for elements on a GPU.
        let address = array.view().map_err(DataError::device)?.address();
        let dtype =
            dlpack_dtype(array.dtype().name()).ok_or_else(|| DataError::mismatch("has no type"))?;
        let shape: Vec<i64> = array.shape().iter().map(|n| *n as i64).collect();
        let strides = crate::capture::weight::contiguous(array.shape());
        let made = Dynamic::new(shape, strides).initialize(array);
        let mut made = made.map_err(DataError::mismatch)?;
        made.set_data(address.cast_mut().cast()).set_dtype(dtype);
        made.set_device(DLDevice { device_type, device_id });
        made.set_flags(DlpackFlags::READ_ONLY).map_err(DataError::mismatch)?;
        // SAFETY: the array, which the tensor keeps, holds these elements; nobody writes them.
        Ok(unsafe { made.finish() })
    }
}
