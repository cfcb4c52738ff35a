//! Code generation: from the llvm dialect to object code.
use crate::{
    cpu::llvm::{
        bf16_compare::compare_bf16_as_f32, one_lane::one_lane_stores,
        vzeroupper::without_vzeroupper, *,
    },
    target::{cpu::Target, llvm_api::*},
};
use kiln_dialects::ir::{Diagnostic, Op, collect};
use std::{ffi::c_void, ptr};

/// LLVM passes for kernels whose schedule unrolls already, as GEMMs. LLVM's own -O levels cost six
/// times the compile time and gain nothing here: loops, their order and vectorisation are decided
/// before.
pub const KERNEL_PASSES: &str = "function(sroa,early-cse<memssa>,instcombine<no-verify-fixpoint>,simplifycfg,loop-mssa(licm),vector-combine,gvn,dse)";
/// LLVM passes for all other kernels, with unrolling: about 10 % faster softmax for twice the code
/// generation time.
pub const UNROLLING_KERNEL_PASSES: &str = "function(sroa,early-cse<memssa>,instcombine<no-verify-fixpoint>,simplifycfg,loop-mssa(licm),\
    vector-combine,gvn,dse,loop-simplify,lcssa,loop-unroll<O3>,instcombine<no-verify-fixpoint>,simplifycfg)";
/// LLVM passes for the host function, which is straight-line calls: only address arithmetic needs
/// cleaning up.
pub const HOST_PASSES: &str =
    "function(sroa,early-cse<memssa>,instcombine<no-verify-fixpoint>,simplifycfg)";

/// Why code generation failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CodeGenError {
    /// LLVM does not support the target.
    #[error("no code generator for {target}: {reason}")]
    Target {
        /// The target triple or processor.
        target: String,
        /// LLVM's error message.
        reason: String,
    },
    /// The module has ops outside of the llvm dialect.
    #[error("the module does not translate to LLVM IR{}", .0.iter().map(|d| format!("\n{d}")).collect::<String>())]
    Translation(Vec<Diagnostic>),
    /// LLVM rejected the module, a pass name, or an instruction.
    #[error("LLVM: {0}")]
    Llvm(String),
}

/// A code generator for one target. It is Send but not Sync: each thread has its own.
#[derive(Debug)]
pub struct CodeGen {
    machine: Ref,
    triple: CString,
    target: Target,
}
// SAFETY: a target machine is tied to no thread; without Sync, one thread uses it at a time.
unsafe impl Send for CodeGen {}

impl CodeGen {
    /// A code generator for a target.
    pub fn new(target: &Target) -> Result<CodeGen, CodeGenError> {
        CodeGen::of_level(target, LEVEL_AGGRESSIVE)
    }
    /// A fast code generator for long code whose run time hardly matters; it is linear in the
    /// code's length.
    pub fn quick(target: &Target) -> Result<CodeGen, CodeGenError> {
        CodeGen::of_level(target, LEVEL_NONE)
    }

    fn of_level(target: &Target, level: std::ffi::c_int) -> Result<CodeGen, CodeGenError> {
        init();
        let triple = Target::triple();
        let fail = |reason: String| CodeGenError::Target { target: target.to_string(), reason };
        let (cpu, features) = (c_string(&target.cpu), c_string(&target.features));
        // SAFETY: live strings and out parameters; the error is freed by `message`.
        let machine = unsafe {
            let (mut found, mut error) = (ptr::null_mut(), ptr::null_mut());
            if LLVMGetTargetFromTriple(triple.as_ptr(), &mut found, &mut error) != 0 {
                return Err(fail(message(error)));
            }
            // Small code model: calls and constants are PC-relative, and the linker adds stubs for
            // far targets.
            let (reloc, model) = (RELOC_PIC, CODE_MODEL_SMALL);
            LLVMCreateTargetMachine(
                found,
                triple.as_ptr(),
                cpu.as_ptr(),
                features.as_ptr(),
                level,
                reloc,
                model,
            )
        };
        if machine.is_null() {
            return Err(fail("LLVM made no target machine".into()));
        }
        Ok(CodeGen { machine, triple, target: target.clone() })
    }
    /// The target it generates code for.
    pub fn target(&self) -> &Target {
        &self.target
    }
    /// Compiles a module of the llvm dialect to an object file, after these LLVM passes.
    pub fn object(&self, module: Op, passes: &str) -> Result<Vec<u8>, CodeGenError> {
        let unit = self.unit(module, passes, false)?;
        self.emit(&unit, FILE_OBJECT)
    }
    /// Prints LLVM IR after these passes (none if empty), for inspection.
    pub fn llvm_ir(&self, module: Op, passes: &str) -> Result<String, CodeGenError> {
        let unit = self.unit(module, passes, true)?;
        // SAFETY: a live module; the string is freed by `message`.
        Ok(unsafe { message(LLVMPrintModuleToString(unit.module)) })
    }
    /// Prints assembly after these passes, for inspection.
    pub fn assembly(&self, module: Op, passes: &str) -> Result<String, CodeGenError> {
        let unit = self.unit(module, passes, true)?;
        Ok(String::from_utf8_lossy(&self.emit(&unit, FILE_ASSEMBLY)?).into_owned())
    }

    fn unit(&self, module: Op, passes: &str, names: bool) -> Result<Unit, CodeGenError> {
        let mut unit = Unit::new(names);
        // SAFETY: the context is this function's own.
        let (translated, diagnostics) =
            collect(module.ctx(), || unsafe { module.translate_to_llvm(unit.context) });
        unit.module = translated.ok_or(CodeGenError::Translation(diagnostics))?.as_ptr();
        // SAFETY: live references of this function, and strings that outlive their calls.
        unsafe {
            LLVMSetTarget(unit.module, self.triple.as_ptr());
            let layout = LLVMCreateTargetDataLayout(self.machine);
            LLVMSetModuleDataLayout(unit.module, layout);
            LLVMDisposeTargetData(layout);
            let mut error = ptr::null_mut();
            let broken = LLVMVerifyModule(unit.module, VERIFY_RETURN_STATUS, &mut error) != 0;
            let reason = message(error);
            if broken {
                return Err(CodeGenError::Llvm(reason));
            }
            if !passes.is_empty() {
                let options = LLVMCreatePassBuilderOptions();
                let outcome = checked(LLVMRunPasses(
                    unit.module,
                    c_string(passes).as_ptr(),
                    self.machine,
                    options,
                ));
                LLVMDisposePassBuilderOptions(options);
                outcome?;
            }
            one_lane_stores(unit.context, unit.module);
            compare_bf16_as_f32(unit.context, unit.module);
            without_vzeroupper(unit.module, &self.target.features);
        }
        unit.check()?;
        Ok(unit)
    }

    fn emit(&self, unit: &Unit, file: std::ffi::c_int) -> Result<Vec<u8>, CodeGenError> {
        // SAFETY: live references; the buffer's bytes are copied before it is freed.
        let bytes = unsafe {
            let (mut buffer, mut error) = (ptr::null_mut(), ptr::null_mut());
            if LLVMTargetMachineEmitToMemoryBuffer(
                self.machine,
                unit.module,
                file,
                &mut error,
                &mut buffer,
            ) != 0
            {
                return Err(CodeGenError::Llvm(message(error)));
            }
            let bytes = std::slice::from_raw_parts(
                LLVMGetBufferStart(buffer).cast::<u8>(),
                LLVMGetBufferSize(buffer),
            )
            .to_vec();
            LLVMDisposeMemoryBuffer(buffer);
            bytes
        };
        unit.check()?;
        Ok(bytes)
    }
}

impl Drop for CodeGen {
    fn drop(&mut self) {
        // SAFETY: made by LLVMCreateTargetMachine.
        unsafe { LLVMDisposeTargetMachine(self.machine) }
    }
}

/// An LLVM context with one module, and the errors that LLVM reported on it.
struct Unit {
    context: Ref,
    module: Ref,
    errors: *mut Vec<String>,
}

impl Unit {
    fn new(names: bool) -> Unit {
        let errors: *mut Vec<String> = Box::into_raw(Box::default());
        // SAFETY: a fresh context; `errors` lives until it is disposed.
        let context = unsafe {
            let context = LLVMContextCreate();
            // Without a handler LLVM prints errors and ends the process.
            LLVMContextSetDiagnosticHandler(context, on_diagnostic, errors.cast());
            LLVMContextSetDiscardValueNames(context, !names as i32);
            context
        };
        Unit { context, module: ptr::null_mut(), errors }
    }
    fn check(&self) -> Result<(), CodeGenError> {
        // SAFETY: only the handler writes here, and no call into LLVM is under way.
        let errors = unsafe { &*self.errors };
        if errors.is_empty() { Ok(()) } else { Err(CodeGenError::Llvm(errors.join("\n"))) }
    }
}

extern "C" fn on_diagnostic(info: Ref, errors: *mut c_void) {
    // SAFETY: `errors` is the unit's list, and LLVM passes a live diagnostic.
    unsafe {
        if LLVMGetDiagInfoSeverity(info) == SEVERITY_ERROR {
            (*errors.cast::<Vec<String>>()).push(message(LLVMGetDiagInfoDescription(info)));
        }
    }
}

impl Drop for Unit {
    fn drop(&mut self) {
        // SAFETY: the module is in the context and goes first; nothing reports to `errors`
        // afterwards.
        unsafe {
            if !self.module.is_null() {
                LLVMDisposeModule(self.module);
            }
            LLVMContextDispose(self.context);
            drop(Box::from_raw(self.errors));
        }
    }
}
