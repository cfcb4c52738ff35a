//! Compares vectors of bf16 as f32, which is exact.
//!
//! Why: a workaround for LLVM 22.1's X86 backend where bf16 vectors are legal (AVX512-BF16). For a
//! comparison whose result becomes 16-bit integers or floats, it creates an f32 comparison that
//! fills the lanes of a 512-bit register. No such instruction exists, so instruction selection
//! fails and aborts the process.
use crate::target::llvm_api::*;

/// Rewrites all functions of a module.
///
/// # Safety
/// `module` is a live module of `context` that nothing else uses.
pub unsafe fn compare_bf16_as_f32(context: Ref, module: Ref) {
    // SAFETY: the caller's promise; erased instructions are not used afterwards.
    unsafe {
        let (narrow, wide) = (LLVMBFloatTypeInContext(context), LLVMFloatTypeInContext(context));
        let builder = LLVMCreateBuilderInContext(context);
        for compare in instructions(module).into_iter().filter(|i| !LLVMIsAFCmpInst(*i).is_null()) {
            let (lhs, rhs) = (LLVMGetOperand(compare, 0), LLVMGetOperand(compare, 1));
            let ty = LLVMTypeOf(lhs);
            if LLVMGetTypeKind(ty) != KIND_VECTOR || LLVMGetElementType(ty) != narrow {
                continue;
            }
            LLVMPositionBuilderBefore(builder, compare);
            let to = LLVMVectorType(wide, LLVMGetVectorSize(ty));
            let widened = |v: Ref| LLVMBuildFPExt(builder, v, to, c"".as_ptr());
            let new = LLVMBuildFCmp(
                builder,
                LLVMGetFCmpPredicate(compare),
                widened(lhs),
                widened(rhs),
                c"".as_ptr(),
            );
            LLVMReplaceAllUsesWith(compare, new);
            LLVMInstructionEraseFromParent(compare);
        }
        LLVMDisposeBuilder(builder);
    }
}
