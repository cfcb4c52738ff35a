//! Memory of tensors that stay on a GPU. One stream of each GPU orders all work on them, and memory
//! is allocated and freed in its order.
use super::{
    CudaError, Device,
    event::Event,
    memory::{DeviceBuffer, copy_on_device, keep_freed, release_freed},
    per_device::PerDevice,
    staging::Staging,
    stream::Stream,
};
use crate::{Buffer, CallError, DeviceId};
use std::{
    any::Any,
    sync::{Arc, Mutex, PoisonError},
};

/// A GPU that tensors stay on.
struct TensorDevice {
    device: Arc<Device>,
    staging: Mutex<Staging>,
    /// A stream beside that of tensors, on which copies of later batches overlap with kernels.
    copies: (Stream, Mutex<Staging>),
}

static DEVICES: PerDevice<TensorDevice> = PerDevice::new();

fn tensor_device(index: usize) -> Result<Arc<TensorDevice>, CudaError> {
    DEVICES.at(index, || {
        let device = Arc::new(Device::cuda(index)?);
        let _current = device.enter()?;
        keep_freed(&device)?;
        let staging = || Mutex::new(Staging::new(&device));
        let copies = (device.new_stream()?, staging());
        Ok(TensorDevice { staging: staging(), copies, device: device.clone() })
    })
}

/// The stream that orders all work on the tensors of GPU `index`. Work of other libraries on their
/// memory belongs on it, or has to wait for it.
pub fn tensor_stream(index: usize) -> Result<Stream, CudaError> {
    Ok(tensor_device(index)?.device.stream())
}

/// Waits for all work on the tensors of GPU `index`.
pub fn synchronize(index: usize) -> Result<(), CudaError> {
    let home = tensor_device(index)?;
    let _current = home.device.enter()?;
    home.device.stream().wait(&home.device)
}

/// Returns the memory that freed tensors of GPU `index` have left to other processes. It is kept for
/// later tensors otherwise, as PyTorch's allocator keeps it.
pub fn release_unused(index: usize) -> Result<(), CudaError> {
    synchronize(index)?;
    let home = tensor_device(index)?;
    let _current = home.device.enter()?;
    release_freed(&home.device)
}

/// A copy to a GPU that is under way.
pub struct Prefetch {
    /// `None` once it is handed over.
    memory: Option<DeviceMemory>,
    copied: Event,
}

impl Prefetch {
    /// Starts a copy of host bytes beside the work on tensors. They have been read when this returns.
    pub fn start(index: usize, bytes: &[u8]) -> Result<Prefetch, CudaError> {
        let home = tensor_device(index)?;
        let _current = home.device.enter()?;
        let (stream, staging) = (home.copies.0, &home.copies.1);
        let copied = Event::new(&home.device)?;
        // Allocated on this stream, since that of tensors may be far behind.
        let memory = DeviceMemory::allocate_on(home.clone(), bytes.len(), stream)?;
        let mut staging = staging.lock().unwrap_or_else(PoisonError::into_inner);
        let sent = staging.upload(memory.address(), bytes, stream, false);
        if let Err(e) = sent.and_then(|()| copied.record(&home.device, stream)) {
            // Part of the copy may be under way to memory that is about to be freed.
            let _ = stream.wait(&home.device);
            return Err(e);
        }
        Ok(Prefetch { memory: Some(memory), copied })
    }
    /// The copy, for work that is enqueued from now on; the host does not wait.
    pub fn finish(mut self) -> Result<DeviceMemory, CudaError> {
        self.order()?;
        let taken = || CudaError::Driver { what: "taking a copy", reason: "it was taken".into() };
        self.memory.take().ok_or_else(taken)
    }
    /// Orders what is enqueued on the stream of tensors from now on after the copy.
    fn order(&self) -> Result<(), CudaError> {
        let Some(memory) = &self.memory else { return Ok(()) };
        let device = &memory.home.device;
        let _current = device.enter()?;
        self.copied.stream_wait(device, device.stream())
    }
}

impl Drop for Prefetch {
    /// Memory that nobody took is freed on the stream of tensors, after the copy to it.
    fn drop(&mut self) {
        let _ = self.order();
    }
}

/// The memory of a tensor on a GPU. Freed in the order of [`tensor_stream`].
pub struct DeviceMemory {
    home: Arc<TensorDevice>,
    owner: Owner,
    len: usize,
}

enum Owner {
    /// Empty memory has none.
    Own(DeviceBuffer),
    /// An address, and what keeps its memory alive.
    Foreign(u64, #[allow(dead_code)] Box<dyn Any + Send + Sync>),
}

impl DeviceMemory {
    /// Uninitialised memory of `len` bytes, aligned to 256. Err: out of memory, or no such GPU.
    pub fn allocate(index: usize, len: usize) -> Result<DeviceMemory, CudaError> {
        let home = tensor_device(index)?;
        let stream = home.device.stream();
        DeviceMemory::allocate_on(home, len, stream)
    }
    fn allocate_on(
        home: Arc<TensorDevice>,
        len: usize,
        stream: Stream,
    ) -> Result<DeviceMemory, CudaError> {
        let mut buffer = DeviceBuffer::none(&home.device);
        if len > 0 {
            let _current = home.device.enter()?;
            let words = || "a tensor".into();
            buffer.ensure(len, stream, &words, &|| format!("{len} bytes"))?;
        }
        Ok(DeviceMemory { home, owner: Owner::Own(buffer), len })
    }
    /// Memory of another owner, which is dropped after the last use has completed.
    ///
    /// # Safety
    /// `address` is of `len` bytes on GPU `index`, which stay allocated until `owner` is dropped.
    /// What has been written to them is visible to [`tensor_stream`], and nobody writes them.
    pub unsafe fn foreign(
        index: usize,
        address: u64,
        len: usize,
        owner: impl Any + Send + Sync,
    ) -> Result<DeviceMemory, CudaError> {
        let owner = Owner::Foreign(address, Box::new(owner));
        Ok(DeviceMemory { home: tensor_device(index)?, owner, len })
    }
    /// A copy of host bytes. They have been read when this returns; the copy may still be under way.
    pub fn upload(index: usize, bytes: &[u8]) -> Result<DeviceMemory, CudaError> {
        let made = DeviceMemory::allocate(index, bytes.len())?;
        if !bytes.is_empty() {
            let device = &made.home.device;
            let _current = device.enter()?;
            let mut staging = made.home.staging.lock().unwrap_or_else(PoisonError::into_inner);
            staging.upload(made.address(), bytes, device.stream(), false)?;
        }
        Ok(made)
    }
    /// A copy in host memory; waits for what computes it.
    pub fn download(&self) -> Result<Buffer, CallError> {
        let mut copy = Buffer::zeroed(self.len).map_err(|e| e.of("a tensor's copy"))?;
        if self.len > 0 {
            let device = &self.home.device;
            let _current = device.enter()?;
            let mut staging = self.home.staging.lock().unwrap_or_else(PoisonError::into_inner);
            let all = &mut [(self.address(), copy.bytes_mut())];
            staging.download(all, device.stream())?;
        }
        Ok(copy)
    }
    /// A copy on GPU `index`. To another GPU both are waited for.
    pub fn copied_to(&self, index: usize) -> Result<DeviceMemory, CudaError> {
        let made = DeviceMemory::allocate(index, self.len)?;
        if self.len == 0 {
            return Ok(made);
        }
        let device = &made.home.device;
        let apart = !Arc::ptr_eq(&made.home, &self.home);
        if apart {
            synchronize(self.index())?;
        }
        let _current = device.enter()?;
        copy_on_device(device, made.address(), self.address(), self.len, device.stream())?;
        if apart {
            device.stream().wait(device)?;
        }
        Ok(made)
    }
    /// The device address; 0 if empty.
    pub fn address(&self) -> u64 {
        match &self.owner {
            Owner::Own(buffer) => buffer.address(),
            Owner::Foreign(address, _) => *address,
        }
    }
    /// Its size in bytes.
    pub fn len(&self) -> usize {
        self.len
    }
    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
    /// Whether it was allocated here, as opposed to another owner's.
    pub fn is_own(&self) -> bool {
        matches!(self.owner, Owner::Own(_))
    }
    /// The GPU's ordinal.
    pub fn index(&self) -> usize {
        self.home.device.info().index
    }
    /// The GPU that holds it.
    pub fn device(&self) -> DeviceId {
        DeviceId::Cuda(self.index())
    }
}

impl Drop for DeviceMemory {
    /// Uses by kiln precede on the stream; another owner may free its memory on any.
    fn drop(&mut self) {
        if matches!(self.owner, Owner::Foreign(..)) {
            let _ = synchronize(self.index());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_such_gpu_is_an_error() {
        assert!(DeviceMemory::allocate(1000, 16).is_err());
    }
}
