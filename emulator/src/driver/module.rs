//! Modules of PTX.
use super::{
    CudaResult, alive, current, function,
    image::{read, text},
    link::Log,
    lock, put,
    table::Table,
    valid,
};
use crate::ptx;
use cudarc::driver::sys::{
    CUdeviceptr, CUfunction, CUjit_option, CUlibrary, CUmod_st, CUmodule, CUresult,
};
use std::{
    collections::BTreeMap,
    ffi::{CStr, c_char, c_uint, c_void},
    ptr,
    sync::Mutex,
};

struct Module {
    code: ptx::Module,
    /// Function handles by name, created on first use.
    functions: Mutex<BTreeMap<String, usize>>,
}

static ALL: Table<Module, CUmod_st> = Table::new();

/// Loads a module from an image or text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleLoadData(module: *mut CUmodule, image: *const c_void) -> CUresult {
    // SAFETY: the same promise.
    unsafe { cuModuleLoadDataEx(module, image, 0, ptr::null_mut(), ptr::null_mut()) }
}

/// Loads a module with options; only the log options are read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleLoadDataEx(
    module: *mut CUmodule,
    image: *const c_void,
    count: c_uint,
    options: *mut CUjit_option,
    values: *mut *mut c_void,
) -> CUresult {
    current(|| {
        super::capture::unsafe_call()?;
        valid(!module.is_null())?;
        // SAFETY: as the driver's functions are called.
        unsafe {
            let log = Log::of(count, options, values)?;
            let code = read(text(image)?).map_err(|why| {
                // Without a log the reason would be lost.
                if !log.write(&why) {
                    eprintln!("kiln-emulator: {why}");
                }
                CUresult::CUDA_ERROR_INVALID_PTX
            })?;
            put(module, ALL.add(Module { code, functions: Mutex::default() }))
        }
    })
}

/// Unloads a module and its functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleUnload(module: CUmodule) -> CUresult {
    current(|| end(module))
}

fn end(module: CUmodule) -> CudaResult<()> {
    super::capture::unsafe_call()?;
    let module = ALL.take(module)?;
    lock(&module.functions)
        .values()
        .for_each(|f| function::remove(ptr::without_provenance_mut(*f)));
    Ok(())
}

/// Loads a library: a module without a context.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLibraryLoadData(
    library: *mut CUlibrary,
    image: *const c_void,
    options: *mut CUjit_option,
    values: *mut *mut c_void,
    count: c_uint,
    _library_options: *mut c_void,
    _library_values: *mut *mut c_void,
    _library_count: c_uint,
) -> CUresult {
    // SAFETY: the same promise, and handles are as large as each other.
    unsafe { cuModuleLoadDataEx(library.cast(), image, count, options, values) }
}

/// The module of a library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLibraryGetModule(module: *mut CUmodule, library: CUlibrary) -> CUresult {
    current(|| {
        ALL.get(library.cast())?;
        valid(!module.is_null())?;
        // SAFETY: room for a handle.
        unsafe { put(module, library.cast()) }
    })
}

/// Unloads a library and its module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLibraryUnload(library: CUlibrary) -> CUresult {
    alive(|| end(library.cast()))
}

/// A name passed by the caller.
///
/// # Safety
/// It is null or ends in NUL.
unsafe fn name<'a>(name: *const c_char) -> CudaResult<&'a str> {
    valid(!name.is_null())?;
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(name) }.to_str().map_err(|_| CUresult::CUDA_ERROR_NOT_FOUND)
}

/// A function of a module; the handle is the same for every query.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleGetFunction(
    to: *mut CUfunction,
    module: CUmodule,
    title: *const c_char,
) -> CUresult {
    alive(|| {
        let module = ALL.get(module)?;
        // SAFETY: a text.
        let name = unsafe { name(title) }?;
        valid(!to.is_null())?;
        let kernel = module.code.kernels.get(name).ok_or(CUresult::CUDA_ERROR_NOT_FOUND)?;
        let mut known = lock(&module.functions);
        let handle = known.entry(name.into()).or_insert_with(|| function::add(kernel).addr());
        // SAFETY: room for a handle.
        unsafe { put(to, ptr::without_provenance_mut(*handle)) }
    })
}

/// Address and size of a module's variable; either output may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleGetGlobal_v2(
    to: *mut CUdeviceptr,
    len: *mut usize,
    module: CUmodule,
    title: *const c_char,
) -> CUresult {
    alive(|| {
        let module = ALL.get(module)?;
        // SAFETY: a text, and room for what is not null.
        unsafe {
            let (at, size) = module
                .code
                .globals
                .get(name(title)?)
                .copied()
                .ok_or(CUresult::CUDA_ERROR_NOT_FOUND)?;
            valid(!to.is_null() || !len.is_null())?;
            if !to.is_null() {
                put(to, at)?;
            }
            if !len.is_null() {
                put(len, size)?;
            }
        }
        Ok(())
    })
}
