//! The linker: checks that PTX parses, and writes an error log otherwise.
use super::{CudaResult, alive, current, image, lock, put, table::Table, valid};
use cudarc::driver::sys::{CUjit_option, CUjitInputType, CUlinkState, CUlinkState_st, CUresult};
use std::{
    ffi::{c_char, c_uint, c_void},
    sync::Mutex,
};

const PTX: c_uint = CUjitInputType::CU_JIT_INPUT_PTX as c_uint;
const BUFFER: c_uint = CUjit_option::CU_JIT_ERROR_LOG_BUFFER as c_uint;
const SIZE: c_uint = CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES as c_uint;

/// The caller's error log buffer.
#[derive(Clone, Copy, Default)]
pub struct Log {
    at: usize,
    len: usize,
}

impl Log {
    /// The log of a list of options.
    ///
    /// # Safety
    /// There are so many options and values.
    pub unsafe fn of(
        count: c_uint,
        options: *mut CUjit_option,
        values: *mut *mut c_void,
    ) -> CudaResult<Log> {
        valid(count == 0 || !options.is_null() && !values.is_null())?;
        let mut log = Log::default();
        for i in 0..count as usize {
            // SAFETY: the caller's promise; an option is a number that cudarc may not know.
            let (option, value) =
                unsafe { (options.cast::<c_uint>().add(i).read(), values.add(i).read()) };
            match option {
                BUFFER => log.at = value.expose_provenance(),
                // A 32-bit integer passed as a pointer.
                SIZE => log.len = value.addr() as u32 as usize,
                _ => {}
            }
        }
        Ok(log)
    }
    /// Writes as much of the text as fits. False: there is no log.
    ///
    /// # Safety
    /// The room is still there.
    pub unsafe fn write(self, text: &str) -> bool {
        if self.at == 0 || self.len == 0 {
            return false;
        }
        let to = std::ptr::with_exposed_provenance_mut::<u8>(self.at);
        for (i, byte) in text.bytes().take(self.len - 1).chain([0]).enumerate() {
            // SAFETY: the caller's promise.
            unsafe { to.add(i).write(byte) };
        }
        true
    }
}

/// A linker.
struct Linker {
    log: Log,
    text: Mutex<Option<String>>,
    /// The linked image, which callers read until the linker is destroyed.
    image: Mutex<Option<Vec<u8>>>,
}

static ALL: Table<Linker, CUlinkState_st> = Table::new();

/// Creates a linker. Only the log options are read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLinkCreate_v2(
    count: c_uint,
    options: *mut CUjit_option,
    values: *mut *mut c_void,
    to: *mut CUlinkState,
) -> CUresult {
    current(|| {
        valid(!to.is_null())?;
        // SAFETY: so many options, and room for a handle.
        unsafe {
            let log = Log::of(count, options, values)?;
            put(to, ALL.add(Linker { log, text: Mutex::default(), image: Mutex::default() }))
        }
    })
}

/// Adds PTX data, at most one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLinkAddData_v2(
    link: CUlinkState,
    kind: c_uint,
    data: *mut c_void,
    len: usize,
    _name: *const c_char,
    count: c_uint,
    options: *mut CUjit_option,
    values: *mut *mut c_void,
) -> CUresult {
    current(|| {
        let link = ALL.get(link)?;
        valid(!data.is_null() && len > 0)?;
        // SAFETY: so many bytes, so many options, and the log of the linker, which stays as long as
        // that.
        unsafe {
            let own = Log::of(count, options, values)?;
            let log = if own.at == 0 { link.log } else { own };
            let mut text = lock(&link.text);
            if kind != PTX || text.is_some() {
                log.write("only one PTX input can be linked");
                return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
            }
            let bytes = std::slice::from_raw_parts(data.cast::<u8>(), len);
            let bytes = bytes.split(|b| *b == 0).next().unwrap_or_default();
            let read = std::str::from_utf8(bytes)
                .map_err(|e| e.to_string())
                .and_then(|t| image::read(t).map(|_| t));
            let found = read.map_err(|why| {
                log.write(&why);
                CUresult::CUDA_ERROR_INVALID_PTX
            })?;
            *text = Some(found.into());
        }
        Ok(())
    })
}

/// Completes linking; the image lives until the linker is destroyed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLinkComplete(
    link: CUlinkState,
    to: *mut *mut c_void,
    len: *mut usize,
) -> CUresult {
    current(|| {
        let link = ALL.get(link)?;
        let text = lock(&link.text);
        let text = text.as_deref().ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        let mut image = lock(&link.image);
        let image = image.get_or_insert_with(|| image::image(text));
        // SAFETY: room for an address and a number.
        unsafe { put(to, image.as_mut_ptr().cast()).and_then(|()| put(len, image.len())) }
    })
}

/// Destroys a linker and its image.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLinkDestroy(link: CUlinkState) -> CUresult {
    alive(|| ALL.take(link).map(drop))
}
