//! Optimisation remarks: what a pass did to an op, or why it did not.
use kiln_dialects::ir::Op;

/// Emits an MLIR remark at an op, prefixed by the pass's flag, and logs it. Reports of a compilation
/// list remarks, and a program's manifest keeps them.
pub fn remark(op: Op, flag: &str, message: &str) {
    tracing::info!(target: "kiln::passes", "{}: {flag}: {message}", op.loc());
    op.emit_remark(&format!("{flag}: {message}"));
}
