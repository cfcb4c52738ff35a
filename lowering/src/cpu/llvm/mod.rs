//! LLVM: from a module of the llvm dialect to object code.
pub(crate) mod bf16_compare;
pub(crate) mod codegen;
pub(crate) mod one_lane;
mod vzeroupper;

pub use codegen::{CodeGen, CodeGenError, HOST_PASSES, KERNEL_PASSES, UNROLLING_KERNEL_PASSES};
use kiln_dialects::Result;
pub use kiln_runtime::link::library_symbols;

use crate::target::llvm_api::*;
use std::ffi::{CStr, CString};

/// LLVM's version, such as `22.1.8`; part of every cache key.
pub fn version() -> String {
    let (mut major, mut minor, mut patch) = (0, 0, 0);
    // SAFETY: three live integers.
    unsafe { LLVMGetVersion(&mut major, &mut minor, &mut patch) };
    format!("{major}.{minor}.{patch}")
}

/// Converts an `LLVMErrorRef` to a result and consumes it.
///
/// # Safety
/// `error` is null or an error that nobody has consumed.
unsafe fn checked(error: Ref) -> Result<(), CodeGenError> {
    if error.is_null() {
        return Ok(());
    }
    unsafe {
        let raw = LLVMGetErrorMessage(error);
        let text = CStr::from_ptr(raw).to_string_lossy().trim().to_string();
        LLVMDisposeErrorMessage(raw);
        Err(CodeGenError::Llvm(text))
    }
}

/// A C string, truncated at the first NUL.
fn c_string(s: &str) -> CString {
    CString::new(s.split('\0').next().unwrap_or_default()).unwrap_or_default()
}
