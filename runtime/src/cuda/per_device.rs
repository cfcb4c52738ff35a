//! What each device has one of, kept until the process ends.
use super::{CudaError, Device};
use std::sync::{Arc, Mutex, PoisonError};

/// Values by device, such as handles of a library.
pub struct PerDevice<T>(Mutex<Vec<(usize, Arc<T>)>>);

impl<T> PerDevice<T> {
    /// None yet.
    pub const fn new() -> PerDevice<T> {
        PerDevice(Mutex::new(vec![]))
    }
    /// A device's value, made on first use. Err: it could not be made; the next call tries again.
    pub fn of(
        &self,
        device: &Device,
        make: impl FnOnce() -> Result<T, CudaError>,
    ) -> Result<Arc<T>, CudaError> {
        self.at(device.info().index, make)
    }
    /// As [`PerDevice::of`], by the device's ordinal.
    pub fn at(
        &self,
        index: usize,
        make: impl FnOnce() -> Result<T, CudaError>,
    ) -> Result<Arc<T>, CudaError> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, found)) = kept.iter().find(|(i, _)| *i == index) {
            return Ok(found.clone());
        }
        let made = Arc::new(make()?);
        kept.push((index, made.clone()));
        Ok(made)
    }
}
