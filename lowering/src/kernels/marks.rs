//! Attributes by which passes tell fusion about ops and modules.
use kiln_dialects::ir::*;

/// Unit attribute of a module whose ops are not fused.
pub const EACH_OP: &str = "kiln.each_op";

/// On an elementwise op (unit): part of the prologue of the product that reads it as its left
/// operand. On a product (string): why it has no prologue.
pub(crate) const PROLOGUE: &str = "kiln.prologue";

/// Whether an op is marked as part of a prologue.
pub(crate) fn in_prologue(op: Op) -> bool {
    op.attr(PROLOGUE).is_some_and(Attr::is_unit)
}
/// Marks a grouped convolution that `wgmma_gemm` takes, with how many groups are one.
pub const GROUPS: &str = "kiln.groups";
