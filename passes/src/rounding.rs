//! 16-bit results that several kernels compute.
//!
//! Within a kernel a 16-bit float stays in f32. A value that is stored and computed again, or
//! computed twice, would be two values then, and what reads both would see their difference: a
//! logit that is rounded in the sum of exponentials and not where it is gathered gave cross
//! entropies below zero. A pass that duplicates an op marks both.
use kiln_dialects::{ir::*, ops::OpKind, rules::tensor_type};

/// On an op with a 16-bit result (unit): other kernels read or compute the result too, so that its
/// kernel rounds it where it is computed.
pub const ROUNDED: &str = "kiln.rounded";

/// Marks an op of which there are two, if rounding its result makes a difference.
pub fn mark(op: Op) {
    if rounds(op) {
        op.set_attr(ROUNDED, Attr::unit(op.ctx()));
    }
}

/// Whether an op computes a 16-bit float in f32 and rounds it.
pub fn rounds(op: Op) -> bool {
    use OpKind::*;
    let narrow =
        |v: Value| tensor_type(v.ty()).is_ok_and(|t| t.dtype.is_float() && t.dtype.bits() == 16);
    let Some(kind) = op.kind().filter(|_| op.result_count() == 1 && narrow(op.result(0))) else {
        return false;
    };
    let exact = matches!(
        kind,
        Abs | Bitcast
            | Ceil
            | Clamp
            | Convert
            | Floor
            | Max
            | Min
            | Neg
            | RoundEven
            | Select
            | Sign
            | Trunc
    );
    kind.is_elementwise() && !exact || accumulates(kind)
}

/// Whether an op combines many elements, in f32.
fn accumulates(kind: OpKind) -> bool {
    use OpKind::*;
    matches!(
        kind,
        Convolution
            | ConvolutionWeightGradient
            | Cumulative
            | DotGeneral
            | Reduce
            | ReduceWindow
            | WinogradOutput
    )
}
