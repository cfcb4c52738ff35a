//! Recording what streams are given as a graph.
use super::{
    Done, alive, context, current,
    graph::{self, Body},
    lock, put,
    stream::{Kind, Stream, find},
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

/// One capture, of one or several streams.
pub struct Capture {
    mode: c_uint,
    thread: ThreadId,
    /// The number of the stream that it began on.
    origin: u64,
    body: Mutex<Body>,
    /// Something was asked for that it does not allow.
    spoiled: AtomicBool,
    streams: Mutex<Vec<Arc<Stream>>>,
}

/// A stream's part in a capture.
pub struct Capturing {
    /// Which.
    pub capture: Arc<Capture>,
    /// The nodes that the stream's next one comes behind.
    pub after: Vec<usize>,
}

static UNDER_WAY: Mutex<Vec<Arc<Capture>>> = Mutex::new(vec![]);

impl Capture {
    /// It can only be ended from here on. The error of what did that.
    pub fn spoil(&self) -> CUresult {
        self.spoiled.store(true, Ordering::Relaxed);
        CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
    }
    fn is_spoiled(&self) -> bool {
        self.spoiled.load(Ordering::Relaxed)
    }
    /// Whether the legacy stream would wait for it.
    fn is_waited_for(&self) -> bool {
        lock(&self.streams).iter().any(|s| s.kind == Kind::Blocking)
    }
    /// Whether it has not been ended.
    pub fn under_way(self: &Arc<Capture>) -> bool {
        lock(&UNDER_WAY).iter().any(|c| Arc::ptr_eq(c, self))
    }
    /// Takes a further stream in, behind these nodes.
    pub fn join(self: &Arc<Capture>, stream: &Arc<Stream>, after: Vec<usize>) {
        *lock(&stream.capturing) = Some(Capturing { capture: self.clone(), after });
        lock(&self.streams).push(stream.clone());
    }
}

impl Capturing {
    /// One more node, behind the stream's last.
    pub fn add(&mut self, work: Work) -> Done {
        if self.capture.is_spoiled() {
            return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        }
        let node = lock(&self.capture.body).add(&self.after, work)?;
        self.after = vec![node];
        Ok(())
    }
}

/// Err: something is captured that does not allow calls which could wait for it: captures of the
/// calling thread, and of all threads in the strictest mode.
pub fn unsafe_call() -> Done {
    let here = thread::current().id();
    none(|c| c.mode == GLOBAL || c.mode != RELAXED && c.thread == here)
}

/// Err: something is captured, whatever the mode.
pub fn none_under_way() -> Done {
    none(|_| true)
}

/// Err, and an end to them: there are such captures.
fn none(which: impl Fn(&Capture) -> bool) -> Done {
    let mut done = Ok(());
    for capture in lock(&UNDER_WAY).iter().filter(|c| which(c)) {
        done = Err(capture.spoil());
    }
    done
}

/// Err: the legacy stream would wait for what is captured.
pub fn no_blocking_stream() -> Done {
    none(Capture::is_waited_for).map_err(|_| CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)
}

/// Begins to record what a stream is given.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamBeginCapture_v2(stream: CUstream, mode: c_uint) -> CUresult {
    current(|| {
        super::valid(mode <= RELAXED)?;
        let stream = find(stream)?;
        if stream.kind == Kind::Legacy {
            return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        }
        if lock(&stream.capturing).is_some() {
            return Err(CUresult::CUDA_ERROR_ILLEGAL_STATE);
        }
        let (thread, origin) = (thread::current().id(), stream.number);
        let (body, spoiled, streams) = (Mutex::default(), AtomicBool::new(false), Mutex::default());
        let capture = Arc::new(Capture { mode, thread, origin, body, spoiled, streams });
        capture.join(&stream, vec![]);
        lock(&UNDER_WAY).push(capture);
        Ok(())
    })
}

/// Ends a capture; what was recorded is a graph.
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
            capture.spoil();
            return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
        }
        if capture.mode != RELAXED && capture.thread != thread::current().id() {
            return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
        }
        lock(&UNDER_WAY).retain(|c| !Arc::ptr_eq(c, &capture));
        let ends = std::mem::take(&mut *lock(&capture.streams));
        let ends: Vec<Vec<usize>> =
            ends.iter().map(|s| lock(&s.capturing).take().map_or(vec![], |c| c.after)).collect();
        if capture.is_spoiled() {
            return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        }
        let body = std::mem::take(&mut *lock(&capture.body));
        // The first is the stream that it began on.
        let joined = body.before(ends.first().map_or(&[], Vec::as_slice));
        if !ends.iter().flatten().all(|end| joined.contains(end)) {
            return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
        }
        // SAFETY: as above.
        unsafe { put(to, graph::add(body)) }
    })
}

/// Whether what a stream is given is recorded.
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
        // Other than use of the legacy stream, the question does no harm.
        if stream.kind == Kind::Legacy && lock(&UNDER_WAY).iter().any(|c| c.is_waited_for()) {
            return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
        }
        let status = lock(&stream.capturing)
            .as_ref()
            .map_or(NONE, |c| if c.capture.is_spoiled() { INVALIDATED } else { ACTIVE });
        // SAFETY: room for a status.
        unsafe { put(to, status) }
    })
}
