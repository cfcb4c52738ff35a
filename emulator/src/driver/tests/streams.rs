//! Streams, events and captures.
use super::*;
use std::time::Duration;

const HANDLE: CUresult = CUresult::CUDA_ERROR_INVALID_HANDLE;
const UNSUPPORTED: CUresult = CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
const LOCAL: u32 = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL as u32;
const RELAXED: u32 = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED as u32;

fn event(flags: u32) -> CUevent {
    // SAFETY: room for the handle.
    made(|to| unsafe { cuEventCreate(to, flags) })
}

fn status(stream: CUstream) -> CudaResult<CUstreamCaptureStatus> {
    // SAFETY: room for the status.
    got(|to| unsafe { cuStreamIsCapturing(stream, to) })
}

#[test]
fn streams_have_ids_and_can_be_destroyed() {
    let _turn = ready();
    let (a, b) = (stream(), stream());
    // SAFETY: room for what is asked for.
    unsafe {
        let own = made(|to| cuCtxGetCurrent(to));
        let number = |s: CUstream| got(|to| cuStreamGetId(s, to));
        let default = |n: usize| ptr::without_provenance_mut(n);
        let all = [a, b, default(0), default(2)].map(number);
        assert!(
            all.iter().all(Result::is_ok) && (1..4).all(|i| !all[..i].contains(&all[i])),
            "{all:?}"
        );
        assert_eq!(number(default(0)), number(default(1)));
        [a, default(0), default(1), default(2)]
            .into_iter()
            .for_each(|s| assert_eq!(made(|to| cuStreamGetCtx(s, to)), own));
        done(cuStreamSynchronize(a));
        done(cuStreamQuery(default(2)));
        done(cuStreamDestroy_v2(a));
        refused(cuStreamSynchronize(a), HANDLE);
        refused(cuStreamDestroy_v2(a), HANDLE);
        refused(cuStreamDestroy_v2(default(0)), HANDLE);
        assert_eq!(number(a), Err(HANDLE));
        // A handle of another kind.
        refused(cuEventQuery(b.cast()), HANDLE);
        refused(cuMemcpyDtoDAsync_v2(0, 0, 0, a), HANDLE);
        refused(cuStreamCreate(&mut ptr::null_mut(), 2), CUresult::CUDA_ERROR_INVALID_VALUE);
        done(cuStreamDestroy_v2(b));
    }
}

#[test]
fn events_are_timed() {
    let _turn = ready();
    let (a, b, untimed, stream) = (event(0), event(0), event(2), stream());
    // SAFETY: room for what is asked for.
    unsafe {
        let between = |a, b| got(|to| cuEventElapsedTime(to, a, b));
        assert_eq!(between(a, b), Err(HANDLE));
        done(cuEventQuery(a));
        done(cuEventRecord(a, stream));
        std::thread::sleep(Duration::from_millis(2));
        done(cuEventRecord(b, stream));
        done(cuEventRecord(untimed, stream));
        done(cuEventSynchronize(b));
        done(cuStreamWaitEvent(stream, b, 0));
        let ms = between(a, b).unwrap();
        assert!(ms >= 2.0 && between(b, a) == Ok(-ms), "{ms}");
        assert_eq!(between(a, untimed), Err(HANDLE));
        [a, b, untimed].into_iter().for_each(|e| done(cuEventDestroy_v2(e)));
        refused(cuEventRecord(a, stream), HANDLE);
        refused(cuStreamWaitEvent(stream, a, 0), HANDLE);
        done(cuStreamDestroy_v2(stream));
    }
}

#[test]
fn captures_record_without_running() {
    let _turn = ready();
    let (at, stream) = (memory(4), stream());
    // SAFETY: memory and handles that live.
    unsafe {
        done(cuMemsetD8_v2(at, 0, 4));
        assert_eq!(status(stream), Ok(CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE));
        done(cuStreamBeginCapture_v2(stream, RELAXED));
        refused(cuStreamBeginCapture_v2(stream, RELAXED), CUresult::CUDA_ERROR_ILLEGAL_STATE);
        assert_eq!(status(stream), Ok(CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE));
        done(cuMemsetD8Async(at, 1, 4, stream));
        done(cuMemcpyDtoDAsync_v2(at, at + 1, 1, stream));
        done(cuMemsetD8Async(at + 1, 2, 2, stream));
        assert_eq!(bytes(at, 4), [0; 4]);
        let graph = made(|to| cuStreamEndCapture(stream, to));
        let exec = made(|to| cuGraphInstantiateWithFlags(to, graph, 0));
        done(cuGraphDestroy(graph));
        assert_eq!(bytes(at, 4), [0; 4]);
        done(cuGraphLaunch(exec, stream));
        assert_eq!(bytes(at, 4), [1, 2, 2, 1]);
        done(cuGraphExecDestroy(exec));
        refused(cuGraphLaunch(exec, stream), HANDLE);
        refused(
            cuStreamEndCapture(stream, &mut ptr::null_mut()),
            CUresult::CUDA_ERROR_ILLEGAL_STATE,
        );
        refused(cuStreamBeginCapture_v2(ptr::null_mut(), RELAXED), UNSUPPORTED);
        done(cuMemFree_v2(at));
        done(cuStreamDestroy_v2(stream));
    }
}

#[test]
fn prohibited_calls_invalidate_a_capture() {
    let _turn = ready();
    let (at, pinned, stream, event) = (memory(4), event(2), stream(), event(2));
    // SAFETY: memory and handles that live.
    unsafe {
        let tries: [&dyn Fn() -> CUresult; 7] = [
            &|| cuStreamSynchronize(stream),
            &|| cuMemAllocAsync(&mut 0, 4, stream),
            &|| cuMemFreeAsync(at, stream),
            &|| cuMemAlloc_v2(&mut 0, 4),
            &|| cuMemcpyDtoD_v2(at, at, 4),
            &|| cuEventQuery(pinned),
            &|| cuCtxSynchronize(),
        ];
        for (i, call) in tries.iter().enumerate() {
            done(cuStreamBeginCapture_v2(stream, LOCAL));
            assert_eq!(call(), UNSUPPORTED, "{i}");
            assert_eq!(
                status(stream),
                Ok(CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_INVALIDATED),
                "{i}"
            );
            refused(
                cuMemsetD8Async(at, 1, 4, stream),
                CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
            );
            let mut graph = ptr::dangling_mut();
            refused(
                cuStreamEndCapture(stream, &mut graph),
                CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
            );
            assert!(
                graph.is_null()
                    && status(stream) == Ok(CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE),
                "{i}"
            );
        }
        // Another thread's calls are not in the way, and it cannot end the capture.
        done(cuStreamBeginCapture_v2(stream, LOCAL));
        let (own, handle) = (made(|to| cuCtxGetCurrent(to)).addr(), stream.addr());
        std::thread::scope(|scope| {
            scope.spawn(move || {
                done(cuCtxSetCurrent(ptr::without_provenance_mut(own)));
                done(cuMemFree_v2(memory(4)));
                let ended =
                    cuStreamEndCapture(ptr::without_provenance_mut(handle), &mut ptr::null_mut());
                refused(ended, CUresult::CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
            });
        });
        done(cuEventRecord(event, stream));
        refused(cuEventSynchronize(event), CUresult::CUDA_ERROR_CAPTURED_EVENT);
        refused(
            cuStreamEndCapture(stream, &mut ptr::null_mut()),
            CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
        );
        // The legacy stream waits for blocking streams.
        let blocking = made(|to| cuStreamCreate(to, 0));
        done(cuStreamBeginCapture_v2(blocking, RELAXED));
        assert_eq!(status(ptr::null_mut()), Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT));
        assert_eq!(status(blocking), Ok(CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE));
        refused(
            cuMemsetD8Async(at, 1, 4, ptr::null_mut()),
            CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
        );
        refused(
            cuStreamEndCapture(blocking, &mut ptr::null_mut()),
            CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
        );
        [event, pinned].into_iter().for_each(|e| done(cuEventDestroy_v2(e)));
        [stream, blocking].into_iter().for_each(|s| done(cuStreamDestroy_v2(s)));
        done(cuMemFree_v2(at));
    }
}

#[test]
fn captures_span_several_streams() {
    let _turn = ready();
    let (at, a, b) = (memory(2), stream(), stream());
    let (fork, join) = (event(2), event(2));
    // SAFETY: memory and handles that live.
    unsafe {
        let begin = || {
            done(cuMemsetD8_v2(at, 0, 2));
            done(cuStreamBeginCapture_v2(a, RELAXED));
            done(cuMemsetD8Async(at, 1, 2, a));
            done(cuEventRecord(fork, a));
            done(cuStreamWaitEvent(b, fork, 0));
            done(cuMemsetD8Async(at + 1, 2, 1, b));
        };
        begin();
        done(cuEventRecord(join, b));
        done(cuStreamWaitEvent(a, join, 0));
        done(cuMemcpyDtoDAsync_v2(at, at + 1, 1, a));
        let graph = made(|to| cuStreamEndCapture(a, to));
        assert_eq!(status(b), Ok(CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE));
        let exec = made(|to| cuGraphInstantiateWithFlags(to, graph, 0));
        done(cuGraphLaunch(exec, b));
        assert_eq!(bytes(at, 2), [2, 2]);
        begin();
        refused(
            cuStreamEndCapture(a, &mut ptr::null_mut()),
            CUresult::CUDA_ERROR_STREAM_CAPTURE_UNJOINED,
        );
        begin();
        refused(
            cuStreamEndCapture(b, &mut ptr::null_mut()),
            CUresult::CUDA_ERROR_STREAM_CAPTURE_UNMATCHED,
        );
        refused(
            cuStreamEndCapture(a, &mut ptr::null_mut()),
            CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
        );
        // What is not captured cannot be waited for.
        done(cuEventRecord(join, b));
        done(cuStreamBeginCapture_v2(a, RELAXED));
        refused(cuStreamWaitEvent(a, join, 0), CUresult::CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
        refused(
            cuStreamEndCapture(a, &mut ptr::null_mut()),
            CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
        );
        done(cuGraphExecDestroy(exec));
        done(cuGraphDestroy(graph));
        [fork, join].into_iter().for_each(|e| done(cuEventDestroy_v2(e)));
        [a, b].into_iter().for_each(|s| done(cuStreamDestroy_v2(s)));
        done(cuMemFree_v2(at));
    }
}
