//! Context creation: every dialect registered, `kiln` and `func` loaded, MLIR's threading off.
use super::*;
use crate::ffi;
use std::{marker::PhantomData, sync::OnceLock};

/// An MLIR context, one per compile job. It can move between threads but is not shared.
#[derive(Debug)]
pub struct Context {
    raw: MlirContext,
    _one_thread: PhantomData<*mut ()>,
}
// SAFETY: threading is off and nothing in a context is bound to a thread; `PhantomData` prevents
// `Sync`.
unsafe impl Send for Context {}

/// A handle of a [`Context`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ctx(pub(crate) *mut std::ffi::c_void);

struct Registry(MlirDialectRegistry);
// SAFETY: filled once under OnceLock; afterwards MLIR only reads it.
unsafe impl Send for Registry {}
unsafe impl Sync for Registry {}

fn registry() -> MlirDialectRegistry {
    static REGISTRY: OnceLock<Registry> = OnceLock::new();
    let make = || unsafe {
        let r = mlirDialectRegistryCreate();
        mlirRegisterAllDialects(r);
        mlirDialectHandleInsertDialect(ffi::mlirGetDialectHandle__kiln__(), r);
        mlirRegisterAllPasses();
        Registry(r)
    };
    REGISTRY.get_or_init(make).0
}

impl Context {
    /// A new context.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Context {
        // SAFETY: nothing else owns a new context.
        unsafe { Context::prepared(mlirContextCreateWithRegistry(registry(), false)) }
    }
    /// Takes over a context that was made elsewhere.
    ///
    /// # Safety
    /// The context is alive, and nothing else destroys it.
    #[cfg(feature = "melior")]
    pub(super) unsafe fn adopt(raw: MlirContext) -> Context {
        unsafe {
            mlirContextAppendDialectRegistry(raw, registry());
            mlirContextEnableMultithreading(raw, false);
            Context::prepared(raw)
        }
    }
    unsafe fn prepared(raw: MlirContext) -> Context {
        unsafe {
            for d in ["kiln", "func", "arith"] {
                mlirContextGetOrLoadDialect(raw, sref(d));
            }
            ffi::kilnPrintOpOnDiagnostic(raw, false);
            Context { raw, _one_thread: PhantomData }
        }
    }
    /// Where the C API's handle lies.
    #[cfg(feature = "melior")]
    pub(super) fn raw_ref(&self) -> &MlirContext {
        &self.raw
    }
    /// Registers upstream's passes for the pipeline parser; call it before registering kiln's.
    pub fn register_upstream() {
        registry();
    }
    /// The handle that the other APIs take.
    pub fn ctx(&self) -> Ctx {
        Ctx(self.raw.ptr)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        unsafe { mlirContextDestroy(self.raw) }
    }
}

impl Ctx {
    pub(crate) fn raw(self) -> MlirContext {
        MlirContext { ptr: self.0 }
    }
    /// Registers the LLVM IR translation of every dialect, which code generation in a pass needs.
    pub fn register_translations(self) {
        unsafe { mlirRegisterAllLLVMTranslations(self.raw()) }
    }
    /// Whether ops of unknown dialects parse.
    pub fn allow_unregistered(self, on: bool) {
        unsafe { mlirContextSetAllowUnregisteredDialects(self.raw(), on) }
    }
    /// The names of the registered dialects, sorted.
    pub fn dialect_names(self) -> Vec<String> {
        extern "C" fn take(name: MlirStringRef, out: *mut c_void) {
            // SAFETY: `out` is the Vec below, and MLIR passes a live string.
            unsafe { (*out.cast::<Vec<String>>()).push(text(name)) }
        }
        let mut all = Vec::<String>::new();
        unsafe { ffi::kilnDialectNames(self.raw(), Some(take), (&raw mut all).cast()) };
        all.sort();
        all
    }
}
