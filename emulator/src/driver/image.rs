//! Images of modules: PTX, or linked images, which are PTX with a magic prefix.
use super::{CudaResult, device::device, valid};
use crate::ptx;
use cudarc::driver::sys::CUresult;
use std::ffi::{CStr, c_void};

/// Magic prefix of linked images.
const MARK: &[u8] = b"\x7fkiln PTX\n";

/// A linked image of PTX.
pub fn image(text: &str) -> Vec<u8> {
    [MARK, text.as_bytes(), &[0]].concat()
}

/// Parses PTX for this device. Err: the error log.
pub fn read(text: &str) -> Result<ptx::Module, String> {
    let target = text.lines().find_map(|l| l.trim().strip_prefix(".target"));
    if let (Some(target), Ok(device)) =
        (target.and_then(|t| t.split([',', ' ', '\t']).find(|w| !w.is_empty())), device())
        && !device.runs(target)
    {
        let (major, minor) = device.capability;
        return Err(format!(
            "the target is {target}, the device's compute capability {major}.{minor}"
        ));
    }
    ptx::Module::load(text).map_err(|e| e.to_string())
}

/// The PTX of an image or of text.
///
/// # Safety
/// `image` is null, or what [`image`] has made, or has a NUL at the end.
pub unsafe fn text<'a>(image: *const c_void) -> CudaResult<&'a str> {
    valid(!image.is_null())?;
    let wrong = CUresult::CUDA_ERROR_INVALID_IMAGE;
    let bytes = image.cast::<u8>();
    // SAFETY: the caller's promise; nothing is read past the first byte that differs from the magic.
    unsafe {
        let marked = MARK.iter().enumerate().all(|(i, b)| bytes.add(i).read() == *b);
        if !marked && (*bytes == 0 || !bytes.read().is_ascii() || bytes.read() == MARK[0]) {
            return Err(wrong);
        }
        let text = CStr::from_ptr(bytes.add(if marked { MARK.len() } else { 0 }).cast());
        text.to_str().map_err(|_| wrong)
    }
}
