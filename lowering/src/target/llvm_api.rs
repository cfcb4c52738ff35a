//! The part of LLVM's C API that code generation needs. MLIR links LLVM already; a binding crate
//! would link it again.
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

/// An opaque reference of the C API.
pub type Ref = *mut c_void;
pub type DiagnosticHandler = extern "C" fn(Ref, *mut c_void);

pub const LEVEL_NONE: c_int = 0;
pub const LEVEL_AGGRESSIVE: c_int = 3;
pub const RELOC_PIC: c_int = 2;
pub const CODE_MODEL_SMALL: c_int = 3;
pub const FILE_ASSEMBLY: c_int = 0;
pub const FILE_OBJECT: c_int = 1;
pub const VERIFY_RETURN_STATUS: c_int = 2;
pub const SEVERITY_ERROR: c_int = 0;
pub const KIND_VECTOR: c_int = 13;
/// The index of a function's own attributes.
pub const FUNCTION_INDEX: c_uint = c_uint::MAX;

unsafe extern "C" {
    pub fn LLVMInitializeX86TargetInfo();
    pub fn LLVMInitializeX86Target();
    pub fn LLVMInitializeX86TargetMC();
    pub fn LLVMInitializeX86AsmPrinter();
    pub fn LLVMInitializeX86AsmParser();

    pub fn LLVMContextCreate() -> Ref;
    pub fn LLVMContextDispose(context: Ref);
    pub fn LLVMContextSetDiscardValueNames(context: Ref, discard: c_int);
    pub fn LLVMContextSetDiagnosticHandler(
        context: Ref,
        handler: DiagnosticHandler,
        data: *mut c_void,
    );
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
    pub fn LLVMGetTargetFromTriple(
        triple: *const c_char,
        target: *mut Ref,
        error: *mut *mut c_char,
    ) -> c_int;
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
    pub fn LLVMTargetMachineEmitToMemoryBuffer(
        machine: Ref,
        module: Ref,
        file: c_int,
        error: *mut *mut c_char,
        buffer: *mut Ref,
    ) -> c_int;

    pub fn LLVMGetBufferStart(buffer: Ref) -> *const c_char;
    pub fn LLVMGetBufferSize(buffer: Ref) -> usize;
    pub fn LLVMDisposeMemoryBuffer(buffer: Ref);

    pub fn LLVMGetFirstFunction(module: Ref) -> Ref;
    pub fn LLVMGetNextFunction(function: Ref) -> Ref;
    pub fn LLVMGetStringAttributeAtIndex(
        function: Ref,
        index: c_uint,
        name: *const c_char,
        len: c_uint,
    ) -> Ref;
    pub fn LLVMAddTargetDependentFunctionAttr(
        function: Ref,
        name: *const c_char,
        value: *const c_char,
    );
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
    pub fn LLVMBuildExtractElement(
        builder: Ref,
        vector: Ref,
        index: Ref,
        name: *const c_char,
    ) -> Ref;
    pub fn LLVMBuildGEP2(
        builder: Ref,
        ty: Ref,
        pointer: Ref,
        indices: *const Ref,
        count: c_uint,
        name: *const c_char,
    ) -> Ref;
    pub fn LLVMBuildStore(builder: Ref, value: Ref, pointer: Ref) -> Ref;
    pub fn LLVMSetAlignment(instruction: Ref, bytes: c_uint);
    pub fn LLVMIsAFCmpInst(value: Ref) -> Ref;
    pub fn LLVMGetFCmpPredicate(compare: Ref) -> c_int;
    pub fn LLVMGetTypeKind(ty: Ref) -> c_int;
    pub fn LLVMGetElementType(ty: Ref) -> Ref;
    pub fn LLVMBFloatTypeInContext(context: Ref) -> Ref;
    pub fn LLVMFloatTypeInContext(context: Ref) -> Ref;
    pub fn LLVMVectorType(element: Ref, lanes: c_uint) -> Ref;
    pub fn LLVMBuildFPExt(builder: Ref, value: Ref, ty: Ref, name: *const c_char) -> Ref;
    pub fn LLVMBuildFCmp(
        builder: Ref,
        predicate: c_int,
        lhs: Ref,
        rhs: Ref,
        name: *const c_char,
    ) -> Ref;
    pub fn LLVMReplaceAllUsesWith(value: Ref, other: Ref);
    pub fn LLVMInstructionEraseFromParent(instruction: Ref);
    pub fn LLVMDisposeBuilder(builder: Ref);

    pub fn LLVMGetVersion(major: *mut c_uint, minor: *mut c_uint, patch: *mut c_uint);
}

/// The instructions of all functions of a module, in order.
///
/// # Safety
/// `module` is a live module that nothing else changes.
pub unsafe fn instructions(module: Ref) -> Vec<Ref> {
    let mut all = vec![];
    // SAFETY: the caller's promise.
    unsafe {
        let mut function = LLVMGetFirstFunction(module);
        while !function.is_null() {
            let mut block = LLVMGetFirstBasicBlock(function);
            while !block.is_null() {
                let mut instruction = LLVMGetFirstInstruction(block);
                while !instruction.is_null() {
                    all.push(instruction);
                    instruction = LLVMGetNextInstruction(instruction);
                }
                block = LLVMGetNextBasicBlock(block);
            }
            function = LLVMGetNextFunction(function);
        }
    }
    all
}

/// Registers LLVM's code generators, once per process.
pub fn init() {
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

/// Copies the text of a message that LLVM allocated, and frees it.
///
/// # Safety
/// `raw` is null or a string that `LLVMDisposeMessage` frees.
pub unsafe fn message(raw: *mut c_char) -> String {
    if raw.is_null() {
        return String::new();
    }
    unsafe {
        let text = CStr::from_ptr(raw).to_string_lossy().into_owned();
        LLVMDisposeMessage(raw);
        text
    }
}
