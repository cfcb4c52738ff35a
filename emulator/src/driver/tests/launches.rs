//! Modules, the linker, launches, and what is left after a fault.
use super::*;
use cudarc::driver::sys::{
    CUlaunchAttribute, CUlaunchAttributeID, CUlaunchAttributeValue, CUlaunchConfig,
};
use std::process::Command;

const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;
const DYNAMIC: u32 = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES as u32;

/// The linked image of PTX, and the error log.
fn linked(text: &str) -> (CudaResult<Vec<u8>>, String) {
    let mut log = [0u8; 64];
    let mut options =
        [CUjit_option::CU_JIT_ERROR_LOG_BUFFER, CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
    let mut values = [log.as_mut_ptr().cast(), ptr::without_provenance_mut::<c_void>(log.len())];
    let mut text = [text.as_bytes(), &[0]].concat();
    // SAFETY: all lives until the linker goes.
    let code = unsafe {
        let link = made(|to| cuLinkCreate_v2(2, options.as_mut_ptr(), values.as_mut_ptr(), to));
        let ptx = CUjitInputType::CU_JIT_INPUT_PTX as u32;
        let (none, data, len) = (ptr::null_mut(), text.as_mut_ptr().cast(), text.len());
        let added =
            cuLinkAddData_v2(link, ptx, data, len, c"it".as_ptr(), 0, ptr::null_mut(), none);
        let (mut at, mut len) = (ptr::null_mut(), 0);
        let code = match (added, cuLinkComplete(link, &mut at, &mut len)) {
            (CUresult::CUDA_SUCCESS, CUresult::CUDA_SUCCESS) => {
                Ok(std::slice::from_raw_parts(at.cast::<u8>(), len).to_vec())
            }
            (e, _) => Err(e),
        };
        done(cuLinkDestroy(link));
        refused(cuLinkDestroy(link), CUresult::CUDA_ERROR_INVALID_HANDLE);
        code
    };
    (code, CStr::from_bytes_until_nul(&log).expect("a text").to_string_lossy().into_owned())
}

/// A launch of `store` on the default stream.
fn launch(
    function: CUfunction,
    blocks: u32,
    threads: u32,
    shared: u32,
    store: &mut Store,
) -> CUresult {
    let mut params = store.pointers();
    // SAFETY: its two parameters.
    unsafe {
        cuLaunchKernel(
            function,
            blocks,
            1,
            1,
            threads,
            1,
            1,
            shared,
            ptr::null_mut(),
            params.as_mut_ptr(),
            ptr::null_mut(),
        )
    }
}

#[test]
fn code_is_linked_and_loaded() {
    let _turn = ready();
    let (code, said) = linked(STORE);
    assert!(said.is_empty(), "{said}");
    let code = code.unwrap();
    // SAFETY: code that the linker made, and texts.
    unsafe {
        let module = made(|to| cuModuleLoadData(to, code.as_ptr().cast()));
        assert_eq!(kernel(module, c"store"), kernel(module, c"store"));
        let missing = cuModuleGetFunction(&mut ptr::null_mut(), module, c"nothing".as_ptr());
        refused(missing, CUresult::CUDA_ERROR_NOT_FOUND);
        refused(
            cuModuleGetGlobal_v2(&mut 0, &mut 0, module, c"nothing".as_ptr()),
            CUresult::CUDA_ERROR_NOT_FOUND,
        );
        let function = kernel(module, c"store");
        done(cuModuleUnload(module));
        refused(cuModuleUnload(module), CUresult::CUDA_ERROR_INVALID_HANDLE);
        refused(launch(function, 1, 1, 0, &mut Store(0, 0)), CUresult::CUDA_ERROR_INVALID_HANDLE);
        let wrong = c"\x7fELF and more";
        refused(
            cuModuleLoadData(&mut ptr::null_mut(), wrong.as_ptr().cast()),
            CUresult::CUDA_ERROR_INVALID_IMAGE,
        );
        refused(cuModuleLoadData(&mut ptr::null_mut(), ptr::null()), INVALID);
    }
}

#[test]
fn the_linker_reports_errors() {
    let _turn = ready();
    let (code, said) = linked("no PTX");
    assert_eq!(code, Err(CUresult::CUDA_ERROR_INVALID_PTX));
    assert!(said.starts_with("line 1: "), "{said}");
    let (code, said) = linked(&STORE.replace("sm_80", "sm_100"));
    assert_eq!(code, Err(CUresult::CUDA_ERROR_INVALID_PTX));
    assert_eq!(said, "the target is sm_100, the device's compute capability 9.0");
}

#[test]
fn launches_have_attributes() {
    let _turn = ready();
    let module = load(STORE);
    let (store, at) = (kernel(module, c"store"), memory(8));
    let mut values = Store(at, 7);
    let mut params = values.pointers();
    let mut launch = |id: CUlaunchAttributeID, count: u32| {
        let mut attribute = CUlaunchAttribute {
            id,
            pad: [0; 4],
            value: CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 },
        };
        let config = CUlaunchConfig {
            gridDimX: 1,
            gridDimY: 1,
            gridDimZ: 1,
            blockDimX: 2,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: 0,
            hStream: ptr::null_mut(),
            attrs: &mut attribute,
            numAttrs: count,
        };
        // SAFETY: the function's two parameters.
        unsafe { cuLaunchKernelEx(&config, store, params.as_mut_ptr(), ptr::null_mut()) }
    };
    let other = CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PRIORITY;
    refused(launch(other, 1), CUresult::CUDA_ERROR_NOT_SUPPORTED);
    // Fresh memory, which no launch has written.
    assert_eq!(bytes(at, 8), [0xff; 8]);
    let serial = CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    done(launch(serial, 1));
    assert_eq!(bytes(at, 8), [7, 0, 0, 0, 7, 0, 0, 0]);
    done(launch(other, 0));
}

#[test]
fn invalid_launches_are_rejected() {
    let _turn = ready();
    let (module, pairs) = (load(STORE), load(PAIRS));
    let (store, pair) = (kernel(module, c"store"), kernel(pairs, c"pairs"));
    let at = memory(1024);
    let params = &mut Store(at, 7);
    // SAFETY: handles that live, room for what is asked for.
    unsafe {
        done(launch(store, 2, 128, 0, params));
        assert_eq!(bytes(at, 1024), [7, 0, 0, 0].repeat(256));
        for (blocks, threads, shared) in [
            (0, 1, 0),
            (1, 0, 0),
            (1, 129, 0),
            (1, 1025, 0),
            (u32::MAX, 1, 0),
            (1, 1, 48 * 1024 + 1),
        ] {
            refused(launch(store, blocks, threads, shared, params), INVALID);
        }
        let run = |params: *mut *mut c_void| {
            cuLaunchKernel(store, 1, 1, 1, 1, 1, 1, 0, ptr::null_mut(), params, ptr::null_mut())
        };
        refused(run(ptr::null_mut()), INVALID);
        refused(run([ptr::null_mut(); 2].as_mut_ptr()), INVALID);
        let refusal = cuLaunchKernel(
            store,
            1,
            1,
            1,
            1,
            1,
            1,
            0,
            store.cast(),
            params.pointers().as_mut_ptr(),
            ptr::null_mut(),
        );
        refused(refusal, CUresult::CUDA_ERROR_INVALID_HANDLE);
        // Shared memory that a kernel declares is of the same room.
        let attribute = |f, a: CUfunction_attribute| made(|to| cuFuncGetAttribute(to, a as u32, f));
        assert_eq!(
            attribute(store, CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK),
            128
        );
        assert_eq!(
            attribute(pair, CUfunction_attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES),
            1024
        );
        let run = |blocks, shared| {
            let none = ptr::null_mut();
            cuLaunchKernel(
                pair,
                blocks,
                1,
                1,
                1,
                1,
                1,
                shared,
                ptr::null_mut(),
                none,
                ptr::null_mut(),
            )
        };
        refused(run(2, 47 * 1024 + 1), INVALID);
        refused(cuFuncSetAttribute(pair, DYNAMIC, 232_448 - 1023), INVALID);
        refused(cuFuncSetAttribute(pair, DYNAMIC, -1), INVALID);
        done(cuFuncSetAttribute(pair, DYNAMIC, 232_448 - 1024));
        done(run(2, 232_448 - 1024));
        refused(run(3, 0), CUresult::CUDA_ERROR_INVALID_CLUSTER_SIZE);
        done(cuCtxSynchronize());
        [module, pairs].into_iter().for_each(|m| done(cuModuleUnload(m)));
        done(cuMemFree_v2(at));
    }
}

/// A fault stays for the process, so this test runs itself in one of its own.
#[test]
fn faults_are_sticky() {
    const CHILD: &str = "KILN_EMULATOR_FAULT";
    if std::env::var_os(CHILD).is_none() {
        let name = "driver::tests::launches::faults_are_sticky";
        let mut child = Command::new(std::env::current_exe().expect("a test has a file"));
        let out =
            child.args(["--exact", name, "--nocapture"]).env(CHILD, "1").output().expect("it runs");
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success() && said.matches("kiln-emulator: ").count() == 1, "{said}");
        assert!(
            said.contains("kernel store, block 0, thread 2") && said.contains("4 bytes at 0x"),
            "{said}"
        );
        return;
    }
    let _turn = ready();
    let (module, at) = (load(STORE), memory(8));
    let (function, stream) = (kernel(module, c"store"), stream());
    let fault = CUresult::CUDA_ERROR_ILLEGAL_ADDRESS;
    // SAFETY: handles that live, room for what is asked for.
    unsafe {
        // The launch itself succeeds, as on a GPU.
        done(launch(function, 1, 3, 0, &mut Store(at, 5)));
        refused(launch(function, 1, 3, 0, &mut Store(at, 5)), fault);
        refused(cuStreamSynchronize(stream), fault);
        refused(cuCtxSynchronize(), fault);
        refused(cuMemFree_v2(at), fault);
        refused(cuMemcpyDtoH_v2([0u8; 8].as_mut_ptr().cast(), at, 8), fault);
        refused(cuEventCreate(&mut ptr::null_mut(), 0), fault);
        refused(cuModuleUnload(module), fault);
        // What is not of the context still answers.
        assert!(!made(|to| cuCtxGetCurrent(to)).is_null());
        assert_eq!(made(|to| cuDeviceGetCount(to)), 1);
        done(cuDevicePrimaryCtxRelease_v2(0));
    }
}
