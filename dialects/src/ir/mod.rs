//! Bindings to MLIR as `Copy` handles. Only this module and `ffi` call MLIR's C API.
//!
//! A handle is a pointer: cheap to copy, compare and hash, and valid until the op is erased or its
//! [`Context`] dropped. The compiler does not check that, so passes read, decide, apply, and keep no
//! handle across an erasure. Debug builds check it for ops ([`Op::erase`]).
//! Owners (`Context`, `Module`, `PassManager`) are not `Copy`.
mod affine_map;
mod attrs;
mod builder;
mod context;
mod diagnostics;
mod function;
#[cfg(debug_assertions)]
mod generation;
mod loc;
#[cfg(feature = "melior")]
mod melior;
mod module;
mod op;
mod passmanager;
mod rewrite;
mod types;
pub mod upstream;
mod view;
mod walk;

pub use crate::error::{Error, OptionExt, Result, ResultExt};
pub use affine_map::{Affine, MapInput};
pub use attrs::Attr;
pub use builder::{Builder, RegionBody, RegionFill, State};
pub use context::{Context, Ctx};
pub(crate) use diagnostics::emit;
pub use diagnostics::{Diagnostic, Severity, collect};
pub use function::set_returned;
pub use loc::Loc;
pub use module::{BYTECODE_MAGIC, Module, NESTING_LIMIT, ParseError, PrintOptions};
pub use op::{Block, Op, Region, Value};
pub use passmanager::PassManager;
pub use rewrite::{Pattern, Rewriter, apply_patterns};
pub use types::Type;
pub use upstream::{
    AttrEnum, OpBuilder, OpType, TypedOp, affine, arith, func, gpu, linalg, llvm, math, memref,
    nvvm, omp, scf, tensor, utils, vector,
};
pub use upstream::{
    arith::{CmpFPredicate, CmpIPredicate, FastMathFlags},
    utils::IteratorType,
    vector::CombiningKind,
};
pub use view::{Node, Operands, Size, View};
pub use walk::{blocks, functions_in, op_count, walk};

use mlir_sys::*;
use std::ffi::c_void;

/// A C API string reference; not NUL-terminated.
pub(crate) fn sref(s: &str) -> MlirStringRef {
    MlirStringRef { data: s.as_ptr().cast(), length: s.len() }
}

/// The text of a C string reference, with invalid UTF-8 replaced.
///
/// # Safety
/// `s` points to `s.length` readable bytes.
pub(crate) unsafe fn text(s: MlirStringRef) -> String {
    String::from_utf8_lossy(unsafe { bytes(s) }).into_owned()
}

/// # Safety
/// `s` points to `s.length` bytes that live for `'a`.
pub(crate) unsafe fn bytes<'a>(s: MlirStringRef) -> &'a [u8] {
    unsafe { list(s.length as isize, s.data.cast()) }
}

/// A slice of a C array that may be (null, 0), which `from_raw_parts` does not allow.
///
/// # Safety
/// `p` points to `n` values that live for `'a`, or `n` is 0.
pub(crate) unsafe fn list<'a, T>(n: isize, p: *const T) -> &'a [T] {
    if n <= 0 || p.is_null() { &[] } else { unsafe { std::slice::from_raw_parts(p, n as usize) } }
}

pub(crate) extern "C" fn append(s: MlirStringRef, out: *mut c_void) {
    // SAFETY: `printed` passes a live Vec<u8>, and MLIR a live string.
    unsafe { (*out.cast::<Vec<u8>>()).extend_from_slice(bytes(s)) }
}

/// Collects the chunks that a C printing function emits.
pub(crate) fn printed_bytes(f: impl FnOnce(MlirStringCallback, *mut c_void)) -> Vec<u8> {
    let mut out = Vec::<u8>::new();
    f(Some(append), (&raw mut out).cast());
    out
}

/// As [`printed_bytes`], as text.
pub(crate) fn printed(f: impl FnOnce(MlirStringCallback, *mut c_void)) -> String {
    let out = printed_bytes(f);
    String::from_utf8(out).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned())
}
