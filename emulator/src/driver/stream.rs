//! Streams.
use super::{
    Done, alive,
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

/// How a stream stands to the legacy default stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It is that.
    Legacy,
    /// Each waits for the other.
    Blocking,
    /// Neither waits.
    Free,
}

/// A stream.
pub struct Stream {
    /// What no other stream of the process has.
    pub number: u64,
    /// See there.
    pub kind: Kind,
    /// What records its work in place of doing it.
    pub capturing: Mutex<Option<Capturing>>,
    /// Held while work is done, so that what several threads give is not done at once.
    turn: Mutex<()>,
}

static ALL: Table<Stream, CUstream_st> = Table::new();
static LEGACY: LazyLock<Arc<Stream>> = LazyLock::new(|| Arc::new(Stream::new(Kind::Legacy)));
thread_local! {
    static OWN: Arc<Stream> = Arc::new(Stream::new(Kind::Blocking));
}

/// The stream of a handle; 0 and 1 are the legacy default stream, 2 is the calling thread's.
pub fn find(handle: CUstream) -> Done<Arc<Stream>> {
    match handle.addr() {
        0 | 1 => Ok(LEGACY.clone()),
        2 => Ok(OWN.with(Arc::clone)),
        _ => ALL.get(handle),
    }
}

impl Stream {
    fn new(kind: Kind) -> Stream {
        Stream { number: fresh() as u64, kind, capturing: Mutex::new(None), turn: Mutex::new(()) }
    }
    /// Does work, or records it. Err: memory that it names is not there, or the capture does not
    /// allow it.
    pub fn give(&self, work: Work) -> Done {
        work.check().and_then(|()| self.run(work))
    }
    /// The same with work of which memory was looked at when it was made.
    pub fn run(&self, work: Work) -> Done {
        if let Some(capturing) = &mut *lock(&self.capturing) {
            return capturing.add(work);
        }
        self.not_implicit()?;
        let _turn = lock(&self.turn);
        work.run();
        Ok(())
    }
    /// Err: it is the legacy stream, and would wait for one that is captured.
    pub fn not_implicit(&self) -> Done {
        if self.kind == Kind::Legacy { capture::no_blocking_stream() } else { Ok(()) }
    }
    /// Err: it is captured, and what is asked of it ends that.
    pub fn not_captured(&self) -> Done {
        match &*lock(&self.capturing) {
            Some(capturing) => Err(capturing.capture.spoil()),
            None => self.not_implicit(),
        }
    }
}

/// A new stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamCreate(stream: *mut CUstream, flags: c_uint) -> CUresult {
    current(|| {
        valid(!stream.is_null() && flags <= CUstream_flags::CU_STREAM_NON_BLOCKING as c_uint)?;
        let kind = if flags == 0 { Kind::Blocking } else { Kind::Free };
        // SAFETY: room for a handle.
        unsafe { put(stream, ALL.add(Stream::new(kind))) }
    })
}

/// Ends a stream; a capture of its ends too.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamDestroy_v2(stream: CUstream) -> CUresult {
    alive(|| {
        let stream = ALL.take(stream)?;
        if let Some(capturing) = lock(&stream.capturing).take() {
            capturing.capture.spoil();
        }
        Ok(())
    })
}

/// Waits for what a stream was given.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamSynchronize(stream: CUstream) -> CUresult {
    current(|| find(stream)?.not_captured().and_then(|()| capture::unsafe_call()))
}

/// Whether what a stream was given is done.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamQuery(stream: CUstream) -> CUresult {
    // SAFETY: the same promise; what was given is always done.
    unsafe { cuStreamSynchronize(stream) }
}

/// The context of a stream; of a default stream the thread's.
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

/// The number that no other stream has.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamGetId(stream: CUstream, to: *mut c_ulonglong) -> CUresult {
    // SAFETY: room for a number.
    alive(|| unsafe { put(to, find(stream)?.number) })
}
