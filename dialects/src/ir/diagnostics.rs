//! MLIR's diagnostics as values.
use super::*;
use crate::error::Kind;
use std::cell::Cell;

thread_local! {
    /// The kind of the error that [`emit`] emits. Contexts have no threads, so that handlers run on
    /// the thread that emits.
    static KIND: Cell<Option<Kind>> = const { Cell::new(None) };
}

/// How bad a diagnostic is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The operation failed.
    Error,
    /// Something looks wrong.
    Warning,
    /// Attached to another diagnostic.
    Note,
    /// What a pass did or missed, and why (optimisation remark).
    Remark,
}

impl Severity {
    /// Its keyword: `error`, `warning`, `note`, `remark`.
    pub const fn keyword(self) -> &'static str {
        match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
            Severity::Note => "note",
            Severity::Remark => "remark",
        }
    }
}

/// One message with its location chain (innermost first) and notes.
#[derive(Clone, Debug)]
pub struct Diagnostic {
    /// How bad.
    pub severity: Severity,
    /// The kind of a pass's error; `None` of everything else.
    pub kind: Option<Kind>,
    /// The message.
    pub message: String,
    /// `file:line:col` and `"name"` parts, innermost first.
    pub locations: Vec<String>,
    /// File, line, column of the innermost file location.
    pub location: Option<(String, u32, u32)>,
    /// Attached notes.
    pub notes: Vec<Diagnostic>,
}

impl std::fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if !self.locations.is_empty() {
            write!(f, "{}: ", self.locations.join(" <- "))?;
        }
        write!(f, "{}: {}", self.severity.keyword(), self.message)?;
        self.notes.iter().try_for_each(|n| write!(f, "\n  {n}"))
    }
}

fn read(d: MlirDiagnostic) -> Diagnostic {
    unsafe {
        let loc = Loc(mlirDiagnosticGetLocation(d));
        Diagnostic {
            #[allow(non_upper_case_globals)]
            severity: match mlirDiagnosticGetSeverity(d) {
                MlirDiagnosticSeverity_MlirDiagnosticError => Severity::Error,
                MlirDiagnosticSeverity_MlirDiagnosticWarning => Severity::Warning,
                MlirDiagnosticSeverity_MlirDiagnosticNote => Severity::Note,
                _ => Severity::Remark,
            },
            kind: KIND.get(),
            message: printed(|cb, o| mlirDiagnosticPrint(d, cb, o)),
            locations: loc.chain(),
            location: loc.file_line_col(),
            notes: (0..mlirDiagnosticGetNumNotes(d))
                .map(|i| read(mlirDiagnosticGetNote(d, i)))
                .collect(),
        }
    }
}

/// Emits an error of this kind.
pub(crate) fn emit(loc: Loc, kind: Kind, message: &str) {
    KIND.set(Some(kind));
    loc.emit_error(message);
    KIND.set(None);
}

/// Runs `f` and also returns the diagnostics emitted meanwhile. Calls may nest; the innermost one
/// captures.
pub fn collect<T>(c: Ctx, f: impl FnOnce() -> T) -> (T, Vec<Diagnostic>) {
    extern "C" fn take(d: MlirDiagnostic, out: *mut std::ffi::c_void) -> MlirLogicalResult {
        // SAFETY: `out` is the Vec below, alive until the handler is detached.
        let keep =
            std::panic::catch_unwind(|| unsafe { (*out.cast::<Vec<Diagnostic>>()).push(read(d)) });
        MlirLogicalResult { value: keep.is_ok() as i8 }
    }
    struct Detach(MlirContext, MlirDiagnosticHandlerID);
    impl Drop for Detach {
        fn drop(&mut self) {
            unsafe { mlirContextDetachDiagnosticHandler(self.0, self.1) }
        }
    }
    let all = Box::into_raw(Box::new(Vec::<Diagnostic>::new()));
    let guard = Detach(c.raw(), unsafe {
        mlirContextAttachDiagnosticHandler(c.raw(), Some(take), all.cast(), None)
    });
    let result = f();
    drop(guard);
    // SAFETY: the handler is detached, so this is the only pointer left.
    (result, *unsafe { Box::from_raw(all) })
}
