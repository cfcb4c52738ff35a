//! Streams.
use super::{
    CudaResult, alive,
    capture::{self, Capturing},
    context, current, lock, put,
    table::{Table, fresh},
    valid,
    work::Work,
};
use cudarc::driver::sys::{CUcontext, CUresult, CUstream, CUstream_flags, CUstream_st};
use std::{
    ffi::{c_uint, c_ulonglong},
    sync::{Arc, LazyLock, Mutex},
};

/// How a stream synchronises with the legacy default stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamKind {
    /// The legacy stream itself.
    Legacy,
    /// Blocking: each synchronises with the other.
    Blocking,
    /// Non-blocking.
    Free,
}

/// A stream.
pub struct Stream {
    /// A process-wide unique id.
    pub number: u64,
    /// Its synchronisation with the legacy stream.
    pub kind: StreamKind,
    /// The capture that records its work.
    pub capturing: Mutex<Option<Capturing>>,
    /// Held while work runs, to serialise threads that use the stream.
    running: Mutex<()>,
}

static ALL: Table<Stream, CUstream_st> = Table::new();
static LEGACY: LazyLock<Arc<Stream>> = LazyLock::new(|| Arc::new(Stream::new(StreamKind::Legacy)));
thread_local! {
    static PER_THREAD: Arc<Stream> = Arc::new(Stream::new(StreamKind::Blocking));
}

/// The stream of a handle; 0 and 1 are the legacy default stream, 2 is the per-thread default.
pub fn find(handle: CUstream) -> CudaResult<Arc<Stream>> {
    match handle.addr() {
        0 | 1 => Ok(LEGACY.clone()),
        2 => Ok(PER_THREAD.with(Arc::clone)),
        _ => ALL.get(handle),
    }
}

impl Stream {
    fn new(kind: StreamKind) -> Stream {
        Stream {
            number: fresh() as u64,
            kind,
            capturing: Mutex::new(None),
            running: Mutex::new(()),
        }
    }
    /// Runs or captures work. Err: invalid memory, or not permitted during capture.
    pub fn give(&self, work: Work) -> CudaResult {
        work.check().and_then(|()| self.run(work))
    }
    /// As [`Stream::give`], for work whose memory has been checked.
    pub fn run(&self, work: Work) -> CudaResult {
        if let Some(capturing) = &mut *lock(&self.capturing) {
            return capturing.add(work);
        }
        self.not_implicit()?;
        let _turn = lock(&self.running);
        work.run();
        Ok(())
    }
    /// Err: the legacy stream would synchronise with a capturing one.
    pub fn not_implicit(&self) -> CudaResult {
        if self.kind == StreamKind::Legacy { capture::no_blocking_stream() } else { Ok(()) }
    }
    /// Err: the stream is capturing, and this operation invalidates the capture.
    pub fn not_captured(&self) -> CudaResult {
        match &*lock(&self.capturing) {
            Some(capturing) => Err(capturing.capture.invalidate()),
            None => self.not_implicit(),
        }
    }
}

/// Creates a stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamCreate(stream: *mut CUstream, flags: c_uint) -> CUresult {
    current(|| {
        valid(!stream.is_null() && flags <= CUstream_flags::CU_STREAM_NON_BLOCKING as c_uint)?;
        let kind = if flags == 0 { StreamKind::Blocking } else { StreamKind::Free };
        // SAFETY: room for a handle.
        unsafe { put(stream, ALL.add(Stream::new(kind))) }
    })
}

/// Destroys a stream and its capture.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamDestroy_v2(stream: CUstream) -> CUresult {
    alive(|| {
        let stream = ALL.take(stream)?;
        if let Some(capturing) = lock(&stream.capturing).take() {
            capturing.capture.invalidate();
        }
        Ok(())
    })
}

/// Waits for a stream's work.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamSynchronize(stream: CUstream) -> CUresult {
    current(|| find(stream)?.not_captured().and_then(|()| capture::unsafe_call()))
}

/// Whether a stream's work has completed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamQuery(stream: CUstream) -> CUresult {
    // SAFETY: the same promise; work completes when it is submitted.
    unsafe { cuStreamSynchronize(stream) }
}

/// The context of a stream; for a default stream the current one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamGetCtx(stream: CUstream, to: *mut CUcontext) -> CUresult {
    alive(|| {
        if stream.addr() <= 2 {
            context::current()?;
        }
        find(stream)?;
        // SAFETY: room for a handle.
        unsafe { put(to, context::handle()) }
    })
}

/// The stream's unique id.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamGetId(stream: CUstream, to: *mut c_ulonglong) -> CUresult {
    // SAFETY: room for a number.
    alive(|| unsafe { put(to, find(stream)?.number) })
}
