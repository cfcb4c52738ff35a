//! LLVM: from a module of the llvm dialect to object code, and from objects to addresses.
mod api;
mod bf16_compare;
mod codegen;
mod one_lane;
mod target;

pub use codegen::{CodeGen, CodeGenError, HOST_PASSES, KERNEL_PASSES, UNROLLING_KERNEL_PASSES};
pub use kiln_runtime::link::library_symbols;
pub use target::Target;

use api::*;
use std::ffi::{CStr, CString, c_char};

/// Makes the code generator known to LLVM, once in a process.
fn init() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    // SAFETY: the calls fill LLVM's registry, which nobody reads before this is over.
    ONCE.call_once(|| unsafe {
        LLVMInitializeX86TargetInfo();
        LLVMInitializeX86Target();
        LLVMInitializeX86TargetMC();
        LLVMInitializeX86AsmPrinter();
        LLVMInitializeX86AsmParser();
    });
}

/// LLVM's version, such as `22.1.8`; a part of every cache key.
pub fn version() -> String {
    let (mut major, mut minor, mut patch) = (0, 0, 0);
    // SAFETY: three live integers.
    unsafe { LLVMGetVersion(&mut major, &mut minor, &mut patch) };
    format!("{major}.{minor}.{patch}")
}

/// The text of a message that LLVM allocated, and frees it.
///
/// # Safety
/// `raw` is null or a string that `LLVMDisposeMessage` frees.
unsafe fn message(raw: *mut c_char) -> String {
    if raw.is_null() {
        return String::new();
    }
    unsafe {
        let text = CStr::from_ptr(raw).to_string_lossy().into_owned();
        LLVMDisposeMessage(raw);
        text
    }
}

/// An `LLVMErrorRef` as a result; it is consumed.
///
/// # Safety
/// `error` is null or an error that nobody has consumed.
unsafe fn checked(error: Ref) -> Result<(), String> {
    if error.is_null() {
        return Ok(());
    }
    unsafe {
        let raw = LLVMGetErrorMessage(error);
        let text = CStr::from_ptr(raw).to_string_lossy().trim().to_string();
        LLVMDisposeErrorMessage(raw);
        Err(text)
    }
}

/// A C string; what stands behind a NUL is not part of a name.
fn c_string(s: &str) -> CString {
    CString::new(s.split('\0').next().unwrap_or_default()).unwrap_or_default()
}
