//! Stream capture into graphs.
use super::{
    CudaResult, alive, context, current,
    graph::{self, GraphNodes},
    lock, put,
    stream::{Stream, StreamKind, find},
    work::Work,
};
use cudarc::driver::sys::{
    CUgraph, CUresult, CUstream, CUstreamCaptureMode, CUstreamCaptureStatus,
};
use std::{
    ffi::c_uint,
    ptr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, ThreadId},
};

const GLOBAL: c_uint = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL as c_uint;
const RELAXED: c_uint = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED as c_uint;
const NONE: CUstreamCaptureStatus = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
const ACTIVE: CUstreamCaptureStatus = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE;
const INVALIDATED: CUstreamCaptureStatus =
    CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_INVALIDATED;

/// A capture sequence, on one or several streams.
pub struct Capture {
    mode: c_uint,
    thread: ThreadId,
    /// The id of the stream on which it began.
    origin: u64,
    body: Mutex<GraphNodes>,
    /// Invalidated by an operation that is not permitted during capture.
    invalidated: AtomicBool,
    streams: Mutex<Vec<Arc<Stream>>>,
}

/// A stream's state in a capture.
pub struct Capturing {
    /// The capture sequence.
    pub capture: Arc<Capture>,
    /// The nodes that the stream's next node depends on.
    pub after: Vec<usize>,
}

static CAPTURES: Mutex<Vec<Arc<Capture>>> = Mutex::new(vec![]);

impl Capture {
    /// Invalidates the capture and returns the error of the operation that did so.
    pub fn invalidate(&self) -> CUresult {
        self.invalidated.store(true, Ordering::Relaxed);
        CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
    }
    fn is_invalidated(&self) -> bool {
        self.invalidated.load(Ordering::Relaxed)
    }
    /// Whether it includes a blocking stream, which the legacy stream synchronises with.
    fn has_blocking_stream(&self) -> bool {
        lock(&self.streams).iter().any(|s| s.kind == StreamKind::Blocking)
    }
    /// Whether it has not ended.
    pub fn is_active(self: &Arc<Capture>) -> bool {
        lock(&CAPTURES).iter().any(|c| Arc::ptr_eq(c, self))
    }
    /// Adds a stream to the capture, with these dependencies.
    pub fn join(self: &Arc<Capture>, stream: &Arc<Stream>, after: Vec<usize>) {
        *lock(&stream.capturing) = Some(Capturing { capture: self.clone(), after });
        lock(&self.streams).push(stream.clone());
    }
}

impl Capturing {
    /// Appends a node after the stream's last ones.
    pub fn add(&mut self, work: Work) -> CudaResult {
        if self.capture.is_invalidated() {
            return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        }
        let node = lock(&self.capture.body).add(&self.after, work)?;
        self.after = vec![node];
        Ok(())
    }
}

/// Err: an active capture prohibits potentially unsafe calls (this thread's, or any in global
/// mode).
pub fn unsafe_call() -> CudaResult {
    let here = thread::current().id();
    invalidate_all(|c| c.mode == GLOBAL || c.mode != RELAXED && c.thread == here)
}

/// Err: a capture is active, in any mode.
pub fn no_active_capture() -> CudaResult {
    invalidate_all(|_| true)
}

/// Err if there are such captures; invalidates them.
fn invalidate_all(which: impl Fn(&Capture) -> bool) -> CudaResult {
    let mut done = Ok(());
    for capture in lock(&CAPTURES).iter().filter(|c| which(c)) {
        done = Err(capture.invalidate());
    }
    done
}

/// Err: the legacy stream would synchronise with a capturing stream.
pub fn no_blocking_stream() -> CudaResult {
    invalidate_all(Capture::has_blocking_stream)
        .map_err(|_| CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)
}

/// Begins capture on a stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamBeginCapture_v2(stream: CUstream, mode: c_uint) -> CUresult {
    current(|| {
        super::valid(mode <= RELAXED)?;
        let stream = find(stream)?;
        if stream.kind == StreamKind::Legacy {
            return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        }
        if lock(&stream.capturing).is_some() {
            return Err(CUresult::CUDA_ERROR_ILLEGAL_STATE);
        }
        let (thread, origin) = (thread::current().id(), stream.number);
        let (body, invalidated, streams) =
            (Mutex::default(), AtomicBool::new(false), Mutex::default());
        let capture = Arc::new(Capture { mode, thread, origin, body, invalidated, streams });
        capture.join(&stream, vec![]);
        lock(&CAPTURES).push(capture);
        Ok(())
    })
}

/// Ends a capture and returns its graph.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamEndCapture(stream: CUstream, to: *mut CUgraph) -> CUresult {
    current(|| {
        // SAFETY: room for a handle.
        unsafe { put(to, ptr::null_mut()) }?;
        let stream = find(stream)?;
        let capture = lock(&stream.capturing)
            .as_ref()
            .map(|c| c.capture.clone())
            .ok_or(CUresult::CUDA_ERROR_ILLEGAL_STATE)?;
        if capture.origin != stream.number {
            capture.invalidate();
            return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
        }
        if capture.mode != RELAXED && capture.thread != thread::current().id() {
            return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
        }
        lock(&CAPTURES).retain(|c| !Arc::ptr_eq(c, &capture));
        let ends = std::mem::take(&mut *lock(&capture.streams));
        let ends: Vec<Vec<usize>> =
            ends.iter().map(|s| lock(&s.capturing).take().map_or(vec![], |c| c.after)).collect();
        if capture.is_invalidated() {
            return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        }
        let body = std::mem::take(&mut *lock(&capture.body));
        // The first is the origin stream.
        let joined = body.dependencies(ends.first().map_or(&[], Vec::as_slice));
        if !ends.iter().flatten().all(|end| joined.contains(end)) {
            return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
        }
        // SAFETY: as above.
        unsafe { put(to, graph::add(body)) }
    })
}

/// Whether a stream is capturing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamIsCapturing(
    stream: CUstream,
    to: *mut CUstreamCaptureStatus,
) -> CUresult {
    alive(|| {
        if stream.addr() <= 2 {
            context::current()?;
        }
        let stream = find(stream)?;
        // The query itself is permitted, except on the legacy stream.
        if stream.kind == StreamKind::Legacy
            && lock(&CAPTURES).iter().any(|c| c.has_blocking_stream())
        {
            return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
        }
        let status = lock(&stream.capturing)
            .as_ref()
            .map_or(NONE, |c| if c.capture.is_invalidated() { INVALIDATED } else { ACTIVE });
        // SAFETY: room for a status.
        unsafe { put(to, status) }
    })
}
