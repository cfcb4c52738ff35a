//! CUDA events, and what is asked of a stream on its device.
use super::{CudaError, Device, stream::Stream};
use cudarc::driver::{result, sys};
use std::time::Duration;

impl Stream {
    /// Synchronises the host with the stream.
    pub(super) fn wait(self, device: &Device) -> Result<(), CudaError> {
        // SAFETY: a live stream.
        unsafe { result::stream::synchronize(self.0) }
            .map_err(device.error("waiting for the GPU"))?;
        device.faults.done(self);
        Ok(())
    }
    /// Whether it is being captured.
    pub(super) fn captures(self, device: &Device) -> Result<bool, CudaError> {
        // SAFETY: a live stream.
        let status = unsafe { result::stream::is_capturing(self.0) }
            .map_err(device.error("asking whether a stream is captured"))?;
        Ok(status != sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE)
    }
}

/// A stream with its process-wide unique id: the driver may reuse handles, never ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamKey {
    /// The handle.
    pub stream: Stream,
    /// The id.
    pub id: u64,
}

impl StreamKey {
    /// Asks the driver for the id.
    pub fn query(device: &Device, stream: Stream) -> Result<StreamKey, CudaError> {
        let mut id = 0;
        // SAFETY: a live stream; writes the id.
        unsafe { sys::cuStreamGetId(stream.0, &mut id) }
            .result()
            .map_err(device.error("asking for a stream's number"))?;
        Ok(StreamKey { stream, id })
    }
}

/// A CUDA event.
pub struct Event(pub(super) sys::CUevent);
// SAFETY: as for streams.
unsafe impl Send for Event {}

impl Event {
    /// An event without timing.
    pub fn new(device: &Device) -> Result<Event, CudaError> {
        Event::with(device, sys::CUevent_flags::CU_EVENT_DISABLE_TIMING)
    }
    /// An event with timing.
    pub fn timed(device: &Device) -> Result<Event, CudaError> {
        Event::with(device, sys::CUevent_flags::CU_EVENT_DEFAULT)
    }
    fn with(device: &Device, flags: sys::CUevent_flags) -> Result<Event, CudaError> {
        result::event::create(flags).map(Event).map_err(device.error("making an event"))
    }
    /// Records it after all that the stream has been given.
    pub fn record(&self, device: &Device, stream: Stream) -> Result<(), CudaError> {
        // SAFETY: a live event and a live stream.
        unsafe { result::event::record(self.0, stream.0) }
            .map_err(device.error("recording an event"))
    }
    /// Whether it has completed; true if it was never recorded.
    pub fn is_complete(&self) -> bool {
        // SAFETY: a live event.
        unsafe { result::event::query(self.0) }.is_ok()
    }
    /// Synchronises the host with it.
    pub fn wait(&self, device: &Device) -> Result<(), CudaError> {
        // SAFETY: a live event.
        unsafe { result::event::synchronize(self.0) }.map_err(device.error("waiting for the GPU"))
    }
    /// Makes a stream wait for it.
    pub fn stream_wait(&self, device: &Device, stream: Stream) -> Result<(), CudaError> {
        let flags = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
        // SAFETY: a live event and a live stream.
        unsafe { result::stream::wait_event(stream.0, self.0, flags) }
            .map_err(device.error("ordering two streams"))
    }
    /// The time since an earlier event. Both have timing and have completed.
    pub fn since(&self, device: &Device, earlier: &Event) -> Result<Duration, CudaError> {
        // SAFETY: live events, recorded on one stream.
        let ms = unsafe { result::event::elapsed(earlier.0, self.0) }
            .map_err(device.error("reading the GPU's clock"))?;
        Ok(Duration::from_secs_f64(f64::from(ms.max(0.0)) / 1e3))
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: created by the driver, and destroyed once.
        let _ = unsafe { result::event::destroy(self.0) };
    }
}
