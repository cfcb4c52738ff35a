//! Events. Streams run synchronously, so an event completes when it is recorded.
use super::{
    CudaResult, alive,
    capture::{self, Capture},
    current, lock, put,
    stream::find,
    table::Table,
    valid,
};
use cudarc::driver::sys::{CUevent, CUevent_flags, CUevent_st, CUresult, CUstream};
use std::{
    ffi::c_uint,
    sync::{Arc, Mutex},
    time::Instant,
};

/// All valid flags.
const FLAGS: c_uint = 7;

/// Whether and when an event was recorded.
#[derive(Default)]
enum State {
    /// Not recorded.
    #[default]
    Never,
    At(Instant),
    /// Recorded in a capture, after these nodes.
    Captured(Arc<Capture>, Vec<usize>),
}

struct Event {
    timed: bool,
    state: Mutex<State>,
}

static ALL: Table<Event, CUevent_st> = Table::new();

impl Event {
    /// Err: recorded in a capture, so it cannot be waited for.
    fn over(&self) -> CudaResult {
        match &*lock(&self.state) {
            State::Captured(capture, _) => {
                capture.invalidate();
                Err(CUresult::CUDA_ERROR_CAPTURED_EVENT)
            }
            _ => Ok(()),
        }
    }
    fn time(&self) -> CudaResult<Instant> {
        match &*lock(&self.state) {
            State::At(at) if self.timed => Ok(*at),
            State::Captured(..) => Err(CUresult::CUDA_ERROR_CAPTURED_EVENT),
            _ => Err(CUresult::CUDA_ERROR_INVALID_HANDLE),
        }
    }
}

/// Creates an event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventCreate(event: *mut CUevent, flags: c_uint) -> CUresult {
    current(|| {
        valid(!event.is_null() && flags <= FLAGS)?;
        let timed = flags & CUevent_flags::CU_EVENT_DISABLE_TIMING as c_uint == 0;
        // SAFETY: room for a handle.
        unsafe { put(event, ALL.add(Event { timed, state: Mutex::default() })) }
    })
}

/// Destroys an event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventDestroy_v2(event: CUevent) -> CUresult {
    alive(|| ALL.take(event).map(drop))
}

/// Records an event on a stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventRecord(event: CUevent, stream: CUstream) -> CUresult {
    current(|| {
        let (event, stream) = (ALL.get(event)?, find(stream)?);
        let state = match &*lock(&stream.capturing) {
            Some(c) => State::Captured(c.capture.clone(), c.after.clone()),
            None => stream.not_implicit().map(|()| State::At(Instant::now()))?,
        };
        *lock(&event.state) = state;
        Ok(())
    })
}

/// Whether an event has completed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventQuery(event: CUevent) -> CUresult {
    alive(|| ALL.get(event)?.over().and_then(|()| capture::unsafe_call()))
}

/// Waits for an event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventSynchronize(event: CUevent) -> CUresult {
    // SAFETY: the same promise.
    unsafe { cuEventQuery(event) }
}

/// Milliseconds between two events.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventElapsedTime(
    to: *mut f32,
    start: CUevent,
    end: CUevent,
) -> CUresult {
    alive(|| {
        let (start, end) = (ALL.get(start)?.time()?, ALL.get(end)?.time()?);
        let seconds = match end >= start {
            true => (end - start).as_secs_f64(),
            false => -(start - end).as_secs_f64(),
        };
        // SAFETY: room for a number.
        unsafe { put(to, (1e3 * seconds) as f32) }
    })
}

/// Makes a stream wait for an event; a captured event makes the stream join its capture.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamWaitEvent(
    stream: CUstream,
    event: CUevent,
    flags: c_uint,
) -> CUresult {
    current(|| {
        valid(flags <= 1)?;
        let (stream, event) = (find(stream)?, ALL.get(event)?);
        let state = lock(&event.state);
        let mut capturing = lock(&stream.capturing);
        match (&*state, &mut *capturing) {
            (State::Captured(capture, nodes), Some(c)) if Arc::ptr_eq(capture, &c.capture) => {
                c.after.extend(nodes);
                Ok(())
            }
            (State::Captured(..), Some(c)) => {
                c.capture.invalidate();
                Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_MERGE)
            }
            (State::Captured(capture, nodes), None) if capture.is_active() => {
                drop(capturing);
                capture.join(&stream, nodes.clone());
                Ok(())
            }
            (State::Captured(..), None) => Err(CUresult::CUDA_ERROR_CAPTURED_EVENT),
            (State::At(_), Some(c)) => {
                c.capture.invalidate();
                Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_ISOLATION)
            }
            (State::At(_), None) => stream.not_implicit(),
            (State::Never, _) => Ok(()),
        }
    })
}
