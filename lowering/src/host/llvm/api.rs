//! The part of LLVM's C API that code generation needs. LLVM is linked with MLIR already; a binding crate would link it again.
use std::ffi::{c_char, c_int, c_uint, c_void};

/// Every opaque reference of the C API.
pub type Ref = *mut c_void;
pub type DiagnosticHandler = extern "C" fn(Ref, *mut c_void);
pub type ErrorReporter = extern "C" fn(*mut c_void, Ref);

pub const LEVEL_NONE: c_int = 0;
pub const LEVEL_AGGRESSIVE: c_int = 3;
pub const RELOC_PIC: c_int = 2;
pub const CODE_MODEL_SMALL: c_int = 3;
pub const FILE_ASSEMBLY: c_int = 0;
pub const FILE_OBJECT: c_int = 1;
pub const VERIFY_RETURN_STATUS: c_int = 2;
pub const SEVERITY_ERROR: c_int = 0;
pub const SYMBOL_EXPORTED: u8 = 1;
pub const SYMBOL_CALLABLE: u8 = 4;

/// `LLVMOrcCSymbolMapPair`.
#[repr(C)]
pub struct SymbolPair {
    pub name: Ref,
    pub address: u64,
    pub generic_flags: u8,
    pub target_flags: u8,
}

unsafe extern "C" {
    pub fn LLVMInitializeX86TargetInfo();
    pub fn LLVMInitializeX86Target();
    pub fn LLVMInitializeX86TargetMC();
    pub fn LLVMInitializeX86AsmPrinter();
    pub fn LLVMInitializeX86AsmParser();

    pub fn LLVMContextCreate() -> Ref;
    pub fn LLVMContextDispose(context: Ref);
    pub fn LLVMContextSetDiscardValueNames(context: Ref, discard: c_int);
    pub fn LLVMContextSetDiagnosticHandler(context: Ref, handler: DiagnosticHandler, data: *mut c_void);
    pub fn LLVMGetDiagInfoSeverity(info: Ref) -> c_int;
    pub fn LLVMGetDiagInfoDescription(info: Ref) -> *mut c_char;
    pub fn LLVMDisposeMessage(message: *mut c_char);
    pub fn LLVMGetErrorMessage(error: Ref) -> *mut c_char;
    pub fn LLVMDisposeErrorMessage(message: *mut c_char);

    pub fn LLVMDisposeModule(module: Ref);
    pub fn LLVMSetTarget(module: Ref, triple: *const c_char);
    pub fn LLVMSetModuleDataLayout(module: Ref, layout: Ref);
    pub fn LLVMPrintModuleToString(module: Ref) -> *mut c_char;
    pub fn LLVMVerifyModule(module: Ref, action: c_int, message: *mut *mut c_char) -> c_int;
    pub fn LLVMRunPasses(module: Ref, passes: *const c_char, machine: Ref, options: Ref) -> Ref;
    pub fn LLVMCreatePassBuilderOptions() -> Ref;
    pub fn LLVMDisposePassBuilderOptions(options: Ref);

    pub fn LLVMGetDefaultTargetTriple() -> *mut c_char;
    pub fn LLVMGetHostCPUName() -> *mut c_char;
    pub fn LLVMGetHostCPUFeatures() -> *mut c_char;
    pub fn LLVMGetTargetFromTriple(triple: *const c_char, target: *mut Ref, error: *mut *mut c_char) -> c_int;
    pub fn LLVMCreateTargetMachine(
        target: Ref,
        triple: *const c_char,
        cpu: *const c_char,
        features: *const c_char,
        level: c_int,
        reloc: c_int,
        code_model: c_int,
    ) -> Ref;
    pub fn LLVMDisposeTargetMachine(machine: Ref);
    pub fn LLVMCreateTargetDataLayout(machine: Ref) -> Ref;
    pub fn LLVMDisposeTargetData(layout: Ref);
    pub fn LLVMTargetMachineEmitToMemoryBuffer(machine: Ref, module: Ref, file: c_int, error: *mut *mut c_char, buffer: *mut Ref) -> c_int;

    pub fn LLVMCreateMemoryBufferWithMemoryRangeCopy(data: *const c_char, len: usize, name: *const c_char) -> Ref;
    pub fn LLVMGetBufferStart(buffer: Ref) -> *const c_char;
    pub fn LLVMGetBufferSize(buffer: Ref) -> usize;
    pub fn LLVMDisposeMemoryBuffer(buffer: Ref);

    pub fn LLVMOrcCreateLLJIT(jit: *mut Ref, builder: Ref) -> Ref;
    pub fn LLVMOrcDisposeLLJIT(jit: Ref) -> Ref;
    pub fn LLVMOrcLLJITGetExecutionSession(jit: Ref) -> Ref;
    pub fn LLVMOrcExecutionSessionSetErrorReporter(session: Ref, report: ErrorReporter, data: *mut c_void);
    pub fn LLVMOrcLLJITGetMainJITDylib(jit: Ref) -> Ref;
    pub fn LLVMOrcLLJITAddObjectFile(jit: Ref, dylib: Ref, buffer: Ref) -> Ref;
    pub fn LLVMOrcLLJITLookup(jit: Ref, address: *mut u64, name: *const c_char) -> Ref;
    pub fn LLVMOrcLLJITMangleAndIntern(jit: Ref, name: *const c_char) -> Ref;
    pub fn LLVMOrcAbsoluteSymbols(pairs: *mut SymbolPair, len: usize) -> Ref;
    pub fn LLVMOrcJITDylibDefine(dylib: Ref, unit: Ref) -> Ref;

    pub fn LLVMGetFirstFunction(module: Ref) -> Ref;
    pub fn LLVMGetNextFunction(function: Ref) -> Ref;
    pub fn LLVMGetFirstBasicBlock(function: Ref) -> Ref;
    pub fn LLVMGetNextBasicBlock(block: Ref) -> Ref;
    pub fn LLVMGetFirstInstruction(block: Ref) -> Ref;
    pub fn LLVMGetNextInstruction(instruction: Ref) -> Ref;
    pub fn LLVMIsACallInst(value: Ref) -> Ref;
    pub fn LLVMGetCalledValue(call: Ref) -> Ref;
    pub fn LLVMGetNumArgOperands(call: Ref) -> c_uint;
    pub fn LLVMGetValueName2(value: Ref, len: *mut usize) -> *const c_char;
    pub fn LLVMGetOperand(value: Ref, index: c_uint) -> Ref;
    pub fn LLVMIsConstant(value: Ref) -> c_int;
    pub fn LLVMIsNull(value: Ref) -> c_int;
    pub fn LLVMTypeOf(value: Ref) -> Ref;
    pub fn LLVMGetVectorSize(ty: Ref) -> c_uint;
    pub fn LLVMGetAggregateElement(constant: Ref, index: c_uint) -> Ref;
    pub fn LLVMInt64TypeInContext(context: Ref) -> Ref;
    pub fn LLVMConstInt(ty: Ref, value: u64, signed: c_int) -> Ref;
    pub fn LLVMCreateBuilderInContext(context: Ref) -> Ref;
    pub fn LLVMPositionBuilderBefore(builder: Ref, instruction: Ref);
    pub fn LLVMBuildExtractElement(builder: Ref, vector: Ref, index: Ref, name: *const c_char) -> Ref;
    pub fn LLVMBuildGEP2(builder: Ref, ty: Ref, pointer: Ref, indices: *const Ref, count: c_uint, name: *const c_char) -> Ref;
    pub fn LLVMBuildStore(builder: Ref, value: Ref, pointer: Ref) -> Ref;
    pub fn LLVMSetAlignment(instruction: Ref, bytes: c_uint);
    pub fn LLVMInstructionEraseFromParent(instruction: Ref);
    pub fn LLVMDisposeBuilder(builder: Ref);

    pub fn LLVMGetVersion(major: *mut c_uint, minor: *mut c_uint, patch: *mut c_uint);
}
