//! Rewrites masked stores of one lane to scalar stores.
//!
//! Why: a workaround for LLVM 22.1's X86 backend. It folds a truncation into a masked store, and
//! then a constant one-lane mask into a scalar store of the untruncated lane, which overwrites the
//! bytes after the element (`trunc <8 x i64>` with mask `<1, 0, …>` stores 8 bytes, not 1).
use crate::target::llvm_api::*;
use std::ffi::CStr;

/// Rewrites all functions of a module.
///
/// # Safety
/// `module` is a live module of `context` that nothing else uses.
pub unsafe fn one_lane_stores(context: Ref, module: Ref) {
    // SAFETY: the caller's promise; what is erased is not used afterwards.
    unsafe {
        let found: Vec<Store> =
            instructions(module).into_iter().filter_map(|i| Store::of(i)).collect();
        let builder = LLVMCreateBuilderInContext(context);
        for store in found {
            let lane = LLVMConstInt(LLVMInt64TypeInContext(context), u64::from(store.lane), 0);
            LLVMPositionBuilderBefore(builder, store.call);
            let element = LLVMBuildExtractElement(builder, store.value, lane, c"".as_ptr());
            let place =
                LLVMBuildGEP2(builder, LLVMTypeOf(element), store.to, &lane, 1, c"".as_ptr());
            LLVMSetAlignment(LLVMBuildStore(builder, element, place), 1);
            LLVMInstructionEraseFromParent(store.call);
        }
        LLVMDisposeBuilder(builder);
    }
}

/// A masked store of one lane.
struct Store {
    call: Ref,
    value: Ref,
    to: Ref,
    lane: u32,
}

impl Store {
    unsafe fn of(call: Ref) -> Option<Store> {
        // SAFETY: a live instruction; a masked store has a value, an address, and a mask at the
        // end.
        unsafe {
            if LLVMIsACallInst(call).is_null() {
                return None;
            }
            let mut len = 0;
            let name = LLVMGetValueName2(LLVMGetCalledValue(call), &mut len);
            if name.is_null() || !CStr::from_ptr(name).to_bytes().starts_with(b"llvm.masked.store.")
            {
                return None;
            }
            let mask = LLVMGetOperand(call, LLVMGetNumArgOperands(call).checked_sub(1)?);
            if LLVMIsConstant(mask) == 0 {
                return None;
            }
            let lanes = LLVMGetVectorSize(LLVMTypeOf(mask));
            let set = |i: &u32| {
                let lane = LLVMGetAggregateElement(mask, *i);
                lane.is_null() || LLVMIsNull(lane) == 0
            };
            let mut set = (0..lanes).filter(set);
            let (lane, None) = (set.next()?, set.next()) else { return None };
            Some(Store { call, value: LLVMGetOperand(call, 0), to: LLVMGetOperand(call, 1), lane })
        }
    }
}
