//! The functions, called as C would call them.
mod graphs;
mod launches;
mod memory;
mod streams;
mod tensor_maps;

use super::{
    CudaResult, answer, capture::*, context::*, device::*, errors::*, events::*, function::*,
    graph::*, launch::*, link::*, lock, memcpy::*, memory::*, module::*, node::*, pointers::*,
    stream::*,
};
use cudarc::driver::sys::{
    CUDA_KERNEL_NODE_PARAMS, CUDA_MEMCPY2D, CUdevice_attribute, CUevent, CUfunction,
    CUfunction_attribute, CUgraph, CUgraphNode, CUjit_option, CUjitInputType, CUmemorytype,
    CUmodule, CUpointer_attribute, CUresult, CUstream, CUstreamCaptureMode, CUstreamCaptureStatus,
    CUtensorMap, CUtensorMapDataType, CUtensorMapSwizzle,
};
use std::{
    ffi::{CStr, CString, c_void},
    mem::MaybeUninit,
    ptr,
    sync::{Mutex, MutexGuard},
};

/// Stores a number with every thread.
const STORE: &str = "
.version 8.0
.target sm_80
.address_size 64

.visible .entry store(.param .u64 store_param_0, .param .u32 store_param_1)
.maxntid 128, 1, 1
{
	.reg .b32 	%r<6>;
	.reg .b64 	%rd<4>;
	ld.param.u64 	%rd1, [store_param_0];
	ld.param.u32 	%r1, [store_param_1];
	mov.u32 	%r2, %tid.x;
	mov.u32 	%r3, %ctaid.x;
	mov.u32 	%r4, %ntid.x;
	mad.lo.s32 	%r5, %r3, %r4, %r2;
	mul.wide.u32 	%rd2, %r5, 4;
	add.s64 	%rd3, %rd1, %rd2;
	st.global.u32 	[%rd3], %r1;
	ret;
}
";

/// Blocks in pairs, with shared memory.
const PAIRS: &str = "
.version 8.0
.target sm_90
.address_size 64
.shared .align 16 .b8 room[1024];

.visible .entry pairs()
.explicitcluster
.reqnctapercluster 2, 1, 1
{
	.reg .b32 	%r<2>;
	mov.u32 	%r1, 7;
	st.shared.u32 	[room], %r1;
	ret;
}
";

/// A context for the thread. Tests take turns, since a capture can be in the way of everything else
/// in the process.
fn ready() -> MutexGuard<'static, ()> {
    static SERIAL: Mutex<()> = Mutex::new(());
    let turn = lock(&SERIAL);
    // SAFETY: room for the handle.
    unsafe {
        done(cuInit(0));
        let context = made(|to| cuDevicePrimaryCtxRetain(to, 0));
        done(cuCtxSetCurrent(context));
    }
    turn
}

#[track_caller]
fn done(got: CUresult) {
    assert_eq!(got, CUresult::CUDA_SUCCESS);
}

#[track_caller]
fn refused(got: CUresult, want: CUresult) {
    assert_eq!(got, want);
}

/// What a function writes.
fn got<T>(f: impl FnOnce(*mut T) -> CUresult) -> CudaResult<T> {
    let mut to = MaybeUninit::uninit();
    match f(to.as_mut_ptr()) {
        // SAFETY: written by a function that succeeds.
        CUresult::CUDA_SUCCESS => Ok(unsafe { to.assume_init() }),
        e => Err(e),
    }
}

#[track_caller]
fn made<T>(f: impl FnOnce(*mut T) -> CUresult) -> T {
    match got(f) {
        Ok(made) => made,
        Err(e) => panic!("{e:?}"),
    }
}

fn memory(len: usize) -> u64 {
    // SAFETY: room for the address.
    made(|to| unsafe { cuMemAlloc_v2(to, len) })
}

fn stream() -> CUstream {
    // SAFETY: room for the handle.
    made(|to| unsafe { cuStreamCreate(to, 1) })
}

/// A copy of device memory.
fn bytes(at: u64, len: usize) -> Vec<u8> {
    let mut to = vec![0; len];
    // SAFETY: room for so many.
    done(unsafe { cuMemcpyDtoH_v2(to.as_mut_ptr().cast(), at, len) });
    to
}

fn load(text: &str) -> CUmodule {
    let text = CString::new(text).expect("a text");
    // SAFETY: a text with its NUL.
    made(|to| unsafe { cuModuleLoadData(to, text.as_ptr().cast()) })
}

fn kernel(module: CUmodule, name: &CStr) -> CUfunction {
    // SAFETY: a name, and room for the handle.
    made(|to| unsafe { cuModuleGetFunction(to, module, name.as_ptr()) })
}

/// Parameters of `store`.
struct Store(u64, u32);

impl Store {
    fn pointers(&mut self) -> [*mut c_void; 2] {
        [(&raw mut self.0).cast(), (&raw mut self.1).cast()]
    }
}

#[test]
fn errors_have_names_and_descriptions() {
    let of = |e: CUresult| {
        // SAFETY: room for the addresses, which are of texts.
        unsafe {
            let (name, words) =
                (got(|to| cuGetErrorName(e as u32, to)), got(|to| cuGetErrorString(e as u32, to)));
            name.and_then(|n| {
                Ok((CStr::from_ptr(n).to_str().unwrap(), CStr::from_ptr(words?).to_str().unwrap()))
            })
        }
    };
    assert_eq!(
        of(CUresult::CUDA_ERROR_INVALID_PTX),
        Ok(("CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"))
    );
    assert_eq!(of(CUresult::CUDA_ERROR_FILE_NOT_FOUND), Err(CUresult::CUDA_ERROR_INVALID_VALUE));
}

#[test]
fn nothing_unwinds() {
    assert_eq!(answer(|| panic!("on purpose")), CUresult::CUDA_ERROR_UNKNOWN);
}

#[test]
fn there_is_one_device() {
    let _turn = ready();
    // SAFETY: room for what is asked for.
    unsafe {
        assert_eq!((made(|to| cuDeviceGetCount(to)), made(|to| cuDeviceGet(to, 0))), (1, 0));
        refused(cuDeviceGet(&mut 0, 1), CUresult::CUDA_ERROR_INVALID_DEVICE);
        assert_eq!(made(|to| cuDriverGetVersion(to)), 12089);
        let mut name = [1; 6];
        done(cuDeviceGetName(name.as_mut_ptr(), 6, 0));
        assert_eq!(CStr::from_ptr(name.as_ptr()), c"kiln ");
        let attribute = |a: CUdevice_attribute| made(|to| cuDeviceGetAttribute(to, a as u32, 0));
        assert_eq!(attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_WARP_SIZE), 32);
        assert_eq!(attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED), 1);
        refused(cuDeviceGetAttribute(&mut 0, 9999, 0), CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let device = device().unwrap();
    assert_eq!((device.capability, device.shared), ((9, 0), 232_448));
    assert!(
        device.runs("sm_80")
            && device.runs("sm_90a")
            && !device.runs("sm_80a")
            && !device.runs("sm_100")
            && !device.runs("x")
    );
}

#[test]
fn threads_start_without_a_context() {
    let _turn = ready();
    // SAFETY: room for what is asked for.
    unsafe {
        let own = made(|to| cuCtxGetCurrent(to));
        assert!(!own.is_null());
        refused(
            cuCtxSetCurrent(ptr::without_provenance_mut(0x10)),
            CUresult::CUDA_ERROR_INVALID_CONTEXT,
        );
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert!(made(|to| cuCtxGetCurrent(to)).is_null());
                refused(cuMemAlloc_v2(&mut 0, 8), CUresult::CUDA_ERROR_INVALID_CONTEXT);
            });
        });
        done(cuDevicePrimaryCtxRelease_v2(0));
        done(cuCtxSetCurrent(ptr::null_mut()));
        refused(cuCtxSynchronize(), CUresult::CUDA_ERROR_INVALID_CONTEXT);
    }
}
