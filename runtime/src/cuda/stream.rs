//! Streams of callers, and events.
use super::{CudaError, Device};
use cudarc::driver::{result, sys};
use std::{ffi::c_void, time::Duration};

/// A stream of the driver (`CUstream`, the same as a `cudaStream_t`), not owned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream(pub(super) sys::CUstream);
// SAFETY: the driver's handles are tied to no thread.
unsafe impl Send for Stream {}
unsafe impl Sync for Stream {}

impl Stream {
    /// The legacy default stream of the card, which waits for all others that are not made
    /// non-blocking.
    pub const DEFAULT: Stream = Stream(std::ptr::null_mut());

    /// A stream of any library.
    ///
    /// # Safety
    /// It is a `CUstream` (1 and 2 are the legacy and the thread's default stream) that lives until
    /// the calls on it are over.
    pub unsafe fn from_raw(stream: *mut c_void) -> Stream {
        Stream(stream.cast())
    }
    /// Waits on the host until all is done that it was given.
    pub(super) fn wait(self, device: &Device) -> Result<(), CudaError> {
        // SAFETY: a live stream.
        unsafe { result::stream::synchronize(self.0) }
            .map_err(device.error("waiting for the GPU"))?;
        device.faults.done(self);
        Ok(())
    }
    /// Ends one of kiln's own.
    pub(super) fn destroy(self) {
        // SAFETY: made by the device, and destroyed once; the driver frees it behind what it was
        // given.
        let _ = unsafe { result::stream::destroy(self.0) };
    }
    /// Whether it is recording what it is given as a graph.
    pub(super) fn captures(self, device: &Device) -> Result<bool, CudaError> {
        // SAFETY: a live stream.
        let status = unsafe { result::stream::is_capturing(self.0) }
            .map_err(device.error("asking whether a stream is captured"))?;
        Ok(status != sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE)
    }
}

/// A stream with the number that no other stream of the process ever has; a handle may be used
/// again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lane {
    /// The handle.
    pub stream: Stream,
    /// The number.
    pub id: u64,
}

impl Lane {
    /// Asks the driver for the number.
    pub fn of(device: &Device, stream: Stream) -> Result<Lane, CudaError> {
        let mut id = 0;
        // SAFETY: a live stream; writes the number.
        unsafe { sys::cuStreamGetId(stream.0, &mut id) }
            .result()
            .map_err(device.error("asking for a stream's number"))?;
        Ok(Lane { stream, id })
    }
}

/// An event of the driver.
pub struct Event(pub(super) sys::CUevent);
// SAFETY: as for streams.
unsafe impl Send for Event {}

impl Event {
    /// One that is only waited for.
    pub fn new(device: &Device) -> Result<Event, CudaError> {
        Event::with(device, sys::CUevent_flags::CU_EVENT_DISABLE_TIMING)
    }
    /// One that knows the time.
    pub fn timed(device: &Device) -> Result<Event, CudaError> {
        Event::with(device, sys::CUevent_flags::CU_EVENT_DEFAULT)
    }
    fn with(device: &Device, flags: sys::CUevent_flags) -> Result<Event, CudaError> {
        result::event::create(flags).map(Event).map_err(device.error("making an event"))
    }
    /// Behind all that the stream has been given.
    pub fn record(&self, device: &Device, stream: Stream) -> Result<(), CudaError> {
        // SAFETY: a live event and a live stream.
        unsafe { result::event::record(self.0, stream.0) }
            .map_err(device.error("recording an event"))
    }
    /// Whether what it was recorded behind is over; so if it was not recorded yet.
    pub fn over(&self) -> bool {
        // SAFETY: a live event.
        unsafe { result::event::query(self.0) }.is_ok()
    }
    /// Waits for it on the host.
    pub fn wait(&self, device: &Device) -> Result<(), CudaError> {
        // SAFETY: a live event.
        unsafe { result::event::synchronize(self.0) }.map_err(device.error("waiting for the GPU"))
    }
    /// Makes a stream wait for it.
    pub fn hold(&self, device: &Device, stream: Stream) -> Result<(), CudaError> {
        let flags = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
        // SAFETY: a live event and a live stream.
        unsafe { result::stream::wait_event(stream.0, self.0, flags) }
            .map_err(device.error("ordering two streams"))
    }
    /// The time from an earlier one; both were made by [`Event::timed`] and have been waited for.
    pub fn since(&self, device: &Device, earlier: &Event) -> Result<Duration, CudaError> {
        // SAFETY: live events, recorded on one stream.
        let ms = unsafe { result::event::elapsed(earlier.0, self.0) }
            .map_err(device.error("reading the GPU's clock"))?;
        Ok(Duration::from_secs_f64(f64::from(ms.max(0.0)) / 1e3))
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: made by the driver, and destroyed once.
        let _ = unsafe { result::event::destroy(self.0) };
    }
}
