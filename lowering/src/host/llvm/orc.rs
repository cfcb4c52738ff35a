//! Objects in this process, linked by ORC.
use super::{api::*, *};
use std::{
    ffi::c_void,
    ptr,
    sync::{Mutex, PoisonError},
};

/// Why code could not be linked.
#[derive(Clone, Debug, thiserror::Error)]
pub enum JitError {
    /// The linker could not be made.
    #[error("the linker did not start: {0}")]
    Start(String),
    /// The object is damaged, or defines what another one defines.
    #[error("the object was not added: {0}")]
    Object(String),
    /// The symbol is missing, or something that its object needs.
    #[error("symbol '{symbol}' was not linked: {reason}")]
    Symbol {
        /// What was looked up.
        symbol: String,
        /// The linker's words.
        reason: String,
    },
}

/// Linked code. It sees the symbols that it is given and its own objects', and nothing else of the process. Addresses are good until it is dropped.
#[derive(Debug)]
pub struct Jit {
    raw: Ref,
    reports: *mut Reports,
}
/// What the linker reports beside the errors that its calls return.
type Reports = Mutex<Vec<String>>;

// SAFETY: ORC locks its session; the list of reports has a lock of its own.
unsafe impl Send for Jit {}
// SAFETY: as above.
unsafe impl Sync for Jit {}

impl Jit {
    /// A linker that resolves these symbols. Of a name that comes twice the first counts.
    pub fn new(symbols: &[(&str, *const c_void)]) -> Result<Jit, JitError> {
        init();
        let mut raw = ptr::null_mut();
        // SAFETY: an out parameter; without a builder, LLVM takes this machine's defaults.
        unsafe { checked(LLVMOrcCreateLLJIT(&mut raw, ptr::null_mut())) }.map_err(JitError::Start)?;
        let jit = Jit { raw, reports: Box::into_raw(Box::default()) };
        let mut seen = std::collections::HashSet::new();
        let unique = symbols.iter().filter(|(name, _)| seen.insert(*name));
        // SAFETY: live references; ORC takes over the names, and copies the list.
        unsafe {
            LLVMOrcExecutionSessionSetErrorReporter(LLVMOrcLLJITGetExecutionSession(raw), report, jit.reports.cast());
            let pair = |(name, address): &(&str, *const c_void)| SymbolPair {
                name: LLVMOrcLLJITMangleAndIntern(raw, c_string(name).as_ptr()),
                address: address.expose_provenance() as u64,
                generic_flags: SYMBOL_EXPORTED | SYMBOL_CALLABLE,
                target_flags: 0,
            };
            let mut pairs: Vec<SymbolPair> = unique.map(pair).collect();
            let unit = LLVMOrcAbsoluteSymbols(pairs.as_mut_ptr(), pairs.len());
            checked(LLVMOrcJITDylibDefine(LLVMOrcLLJITGetMainJITDylib(raw), unit)).map_err(JitError::Start)?;
        }
        Ok(jit)
    }
    /// Adds an object; it is linked when one of its symbols is looked up.
    pub fn add_object(&self, object: &[u8]) -> Result<(), JitError> {
        // SAFETY: the bytes are copied, and the linker takes over the copy.
        let outcome = unsafe {
            let copy = LLVMCreateMemoryBufferWithMemoryRangeCopy(object.as_ptr().cast(), object.len(), c"kiln.o".as_ptr());
            checked(LLVMOrcLLJITAddObjectFile(self.raw, LLVMOrcLLJITGetMainJITDylib(self.raw), copy))
        };
        outcome.map_err(|e| JitError::Object(self.explain(e)))
    }
    /// The address of a symbol, after linking what it needs.
    pub fn lookup(&self, symbol: &str) -> Result<*const c_void, JitError> {
        let mut address = 0;
        // SAFETY: a live string and an out parameter.
        let outcome = unsafe { checked(LLVMOrcLLJITLookup(self.raw, &mut address, c_string(symbol).as_ptr())) };
        outcome.map_err(|e| JitError::Symbol { symbol: symbol.into(), reason: self.explain(e) })?;
        Ok(ptr::with_exposed_provenance(address as usize))
    }

    /// An error with the reports that came before it: they say which symbol was missing, where the error only says which were not linked.
    fn explain(&self, error: String) -> String {
        // SAFETY: the list lives as long as this.
        let reports = unsafe { &*self.reports };
        let mut all = std::mem::take(&mut *reports.lock().unwrap_or_else(PoisonError::into_inner));
        all.push(error);
        all.join("; ")
    }
}

extern "C" fn report(reports: *mut c_void, error: Ref) {
    // SAFETY: `reports` is the linker's list, and the error is this function's to consume.
    unsafe {
        if let Err(text) = checked(error) {
            (*reports.cast::<Reports>()).lock().unwrap_or_else(PoisonError::into_inner).push(text);
        }
    }
}

impl Drop for Jit {
    fn drop(&mut self) {
        // SAFETY: made by LLVMOrcCreateLLJIT; it reports no more once it is gone.
        unsafe {
            // An error while unmapping leaves nothing to do.
            let _ = checked(LLVMOrcDisposeLLJIT(self.raw));
            drop(Box::from_raw(self.reports));
        }
    }
}
