//! Attributes by which passes tell fusion about ops and modules.
use kiln_dialects::ir::*;

/// Unit attribute of a module whose ops are not fused.
pub const EACH_OP: &str = "kiln.each_op";

/// On an elementwise op (unit): part of the prologue of the product that reads it as its left
/// operand. On a product (string): why it has no prologue.
pub(crate) const PROLOGUE: &str = "kiln.prologue";

/// On an elementwise op (unit): its kernel stages it in shared memory, although only ops of the
/// kernel read it.
pub(crate) const STAGED: &str = "kiln.staged";

/// Whether an op is marked as part of a prologue.
pub(crate) fn in_prologue(op: Op) -> bool {
    op.attr(PROLOGUE).is_some_and(Attr::is_unit)
}

/// What `kiln.pack` begins with on a contraction whose weight is not packed.
pub(crate) const AS_IT_IS: &str = "as it is";

/// Whether `kiln-pack` stored the weight of a contraction.
pub(crate) fn is_packed(op: Op) -> bool {
    let said = op.attr("kiln.pack").and_then(Attr::as_string);
    said.is_some_and(|s| !s.starts_with(AS_IT_IS))
}

/// Marks a grouped convolution that `wgmma_gemm` takes, with how many groups are one.
pub const GROUPS: &str = "kiln.groups";
