//! Errors of cuDNN.
use crate::cuda::CudaError;
use cudarc::cudnn::{result, sys};
use std::ffi::{CStr, c_char};

/// The message of the last cuDNN error on this thread.
pub(super) fn failed(what: &'static str) -> impl Fn(result::CudnnError) -> CudaError {
    move |e| {
        let mut text = [0 as c_char; 512];
        // SAFETY: writes at most that many bytes, NUL-terminated.
        let said = unsafe {
            sys::cudnnGetLastErrorString(text.as_mut_ptr(), text.len());
            text[text.len() - 1] = 0;
            CStr::from_ptr(text.as_ptr()).to_string_lossy().into_owned()
        };
        let said = said.lines().map(str::trim).collect::<Vec<_>>().join("; ");
        CudaError::Driver { what, reason: format!("cuDNN says {:?}: {said}", e.0) }
    }
}
