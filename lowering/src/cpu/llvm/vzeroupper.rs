//! Keeps `vzeroupper` out of functions that restore all registers.
//!
//! Why: a workaround for LLVM 22.1's X86 backend. Its VZeroUpper pass runs after the epilogue's
//! reloads and does not know `no_caller_saved_registers`, so the caller's vector registers lose
//! their upper halves unless the function returns vectors in registers.
use crate::{cpu::llvm::c_string, target::llvm_api::*};

const SAVES_ALL: &str = "no_caller_saved_registers";

/// Compiles such functions of a module for the target's `features` without `vzeroupper`.
///
/// # Safety
/// `module` is a live module that nothing else uses.
pub unsafe fn without_vzeroupper(module: Ref, features: &str) {
    let separator = if features.is_empty() { "" } else { "," };
    let features = c_string(&format!("{features}{separator}-vzeroupper"));
    // SAFETY: the caller's promise; strings that outlive their calls.
    unsafe {
        let mut function = LLVMGetFirstFunction(module);
        while !function.is_null() {
            let saves_all = LLVMGetStringAttributeAtIndex(
                function,
                FUNCTION_INDEX,
                SAVES_ALL.as_ptr().cast(),
                SAVES_ALL.len() as _,
            );
            if !saves_all.is_null() {
                LLVMAddTargetDependentFunctionAttr(
                    function,
                    c"target-features".as_ptr(),
                    features.as_ptr(),
                );
            }
            function = LLVMGetNextFunction(function);
        }
    }
}
