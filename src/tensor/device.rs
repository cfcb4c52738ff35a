//! Tensors that stay on a GPU.
use super::{Array, Repr, Tensor, TraceError};
use crate::runtime::{DataError, DeviceId, cuda::Prefetch};
use kiln_dialects::value::DType;
use std::{panic::Location, sync::Arc};

/// A device by name. Err: there is none of this name.
pub(crate) fn parse(device: &str) -> Result<DeviceId, DataError> {
    DeviceId::parse(device).map_err(DataError::Missing)
}

impl Tensor {
    /// The address of its elements on their device, for tests and reports of where results lie;
    /// `None` of a tensor without elements.
    pub fn address(&self) -> Option<u64> {
        let array = self.array().ok()?;
        Some(array.as_view().address() as u64)
    }
    /// Where its elements are; the host for a traced tensor, which has none. Err: it is poisoned.
    pub fn device(&self) -> Result<DeviceId, TraceError> {
        match &self.0 {
            Repr::Array(array) => Ok(array.device()),
            Repr::Node(node) if node.alias.is_some() => Ok(DeviceId::Host),
            Repr::Lazy(node) => Ok(node.value.get().map_or(DeviceId::Host, |a| a.device())),
            _ => Err(self.error()),
        }
    }
    /// Its elements on a device: `cpu`, `cuda` or `cuda:<ordinal>`. Ops on a tensor that is on a GPU
    /// run there, and so do compiled functions, without copies; their results stay there. A call
    /// returns when its work is enqueued, and reading elements waits for them.
    ///
    /// Itself if it is there already, and in a trace, since a program runs on one device. In a
    /// compiled function that reads values, the graph breaks. Errors poison the result: no such
    /// device, out of its memory.
    #[track_caller]
    pub fn to_device(&self, device: &str) -> Tensor {
        if self.is_poisoned() || matches!(self.0, Repr::Node(_)) {
            return self.clone();
        }
        let site = Location::caller();
        let moved = || -> Result<Tensor, TraceError> {
            let (device, array) = (parse(device)?, self.array()?);
            Ok(array.beside(device)?.into())
        };
        moved().unwrap_or_else(|e| self.graph().refuse(site, "to_device", e, &[]))
    }
}

impl Array {
    /// This, or a copy where another tensor is. Err: as for [`Array::copied_to`].
    pub(crate) fn beside(self: Arc<Self>, device: DeviceId) -> Result<Arc<Array>, DataError> {
        Ok(self.copied_to(device)?.map_or(self, Arc::new))
    }
}

/// A tensor on its way to a device.
pub(crate) enum Moving {
    /// It is there.
    There(Arc<Array>),
    Copied(DType, Vec<usize>, Prefetch),
}

impl Moving {
    /// Starts to copy from the host to a GPU, beside other work there; other ways are gone at once.
    /// Err: as for [`Array::copied_to`].
    pub(crate) fn start(array: Arc<Array>, device: DeviceId) -> Result<Moving, DataError> {
        match device {
            DeviceId::Cuda(index) if array.device() == DeviceId::Host => {
                let copy = Prefetch::start(index, array.bytes()?.bytes());
                let copy = copy.map_err(DataError::device)?;
                Ok(Moving::Copied(array.dtype(), array.shape().to_vec(), copy))
            }
            _ => array.beside(device).map(Moving::There),
        }
    }
    /// The tensor, for ops from now on.
    pub(crate) fn finish(self) -> Result<Arc<Array>, DataError> {
        match self {
            Moving::There(array) => Ok(array),
            Moving::Copied(dtype, shape, copy) => {
                let memory = copy.finish().map_err(DataError::device)?;
                Array::on_device(dtype, &shape, memory).map(Arc::new)
            }
        }
    }
}
