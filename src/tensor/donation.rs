//! Memory of arguments that a call may write results to.
use super::{Array, array::Storage};
use crate::runtime::{Buffer, Bytes, DataError, DeviceId, cuda::DeviceMemory};
use kiln_dialects::value::DType;
use std::sync::Arc;

/// Memory of an argument that is gone after the call, so that a result may have it. Elements of an
/// [`Array`] do not change: whoever writes to it holds the array's only handle, and drops it.
pub struct DonatedMemory(Owner);

enum Owner {
    Host(Arc<Buffer>),
    Device(Arc<DeviceMemory>),
}

impl DonatedMemory {
    /// The memory of an array whose only handle this is. `None`: something else holds the array or
    /// its memory, or the memory is not kiln's own.
    pub(crate) fn of(array: &Arc<Array>) -> Option<DonatedMemory> {
        if Arc::strong_count(array) != 1 {
            return None;
        }
        match array.storage() {
            Storage::Host(bytes) => bytes.sole_buffer().map(Owner::Host),
            Storage::Device(memory) => {
                let sole = Arc::strong_count(memory) == 1 && memory.is_own();
                sole.then(|| Owner::Device(memory.clone()))
            }
        }
        .filter(|_| !array.shape().contains(&0))
        .map(DonatedMemory)
    }
    /// Where it is.
    pub fn device(&self) -> DeviceId {
        match &self.0 {
            Owner::Host(_) => DeviceId::Host,
            Owner::Device(memory) => memory.device(),
        }
    }
    /// Its size in bytes.
    pub fn len(&self) -> usize {
        match &self.0 {
            Owner::Host(buffer) => buffer.len(),
            Owner::Device(memory) => memory.len(),
        }
    }
    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// The address of its first byte, on its device.
    pub fn address(&self) -> u64 {
        match &self.0 {
            Owner::Host(buffer) => buffer.as_mut_ptr() as u64,
            Owner::Device(memory) => memory.address(),
        }
    }
    /// The result that was written to it. Err: a result of another size.
    pub(crate) fn into_array(self, dtype: DType, shape: &[usize]) -> Result<Array, DataError> {
        match self.0 {
            Owner::Host(buffer) => {
                Array::new(dtype, shape, Bytes::part_of(buffer.clone(), buffer.bytes()))
            }
            Owner::Device(memory) => Array::on_device(dtype, shape, memory),
        }
    }
}
