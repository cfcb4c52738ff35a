//! Whether a kernel can load rows of a tensor, its last dimension, directly from memory: a GPU's
//! TMA needs 16-byte aligned, contiguous rows.
use kiln_dialects::{ir::*, ops::*, sym::Dim};

/// 16-bit elements per 16-byte TMA unit.
const AT_ONCE: i64 = 8;

/// Whether rows of `v` are contiguous and 16-byte aligned in the stored value underneath its
/// movement ops. `moves`: ops that readers look through. Also true if the elements are not 16 bits
/// wide, and for rows that even a copy would not align.
pub fn in_rows(mut v: Value, moves: &dyn Fn(Op) -> bool) -> bool {
    let narrow = v
        .ty()
        .element()
        .and_then(|t| t.dtype().ok())
        .is_some_and(|d| d.is_float() && d.byte_size() == 2);
    let even =
        |v: Value| v.ty().dims().last().and_then(Dim::known).is_some_and(|n| n % AT_ONCE == 0);
    if !narrow || !even(v) {
        return true;
    }
    while let Some(op) = v.def().filter(|op| moves(*op)) {
        if !keeps_rows(op) {
            return false;
        }
        v = op.operand(0);
    }
    even(v)
}

/// Whether a movement op keeps rows contiguous, and their starts at multiples of eight elements.
fn keeps_rows(op: Op) -> bool {
    let (from, to) = (op.operand(0).ty().dims(), op.result(0).ty().dims());
    let (Some(from), Some(to)) = (
        from.len().checked_sub(1).map(|i| (i, &from[i])),
        to.len().checked_sub(1).map(|i| (i, &to[i])),
    ) else {
        return false;
    };
    match op.kind() {
        Some(OpKind::Transpose) => {
            Transpose::of(op).and_then(|o| o.permutation.last().copied()) == Some(to.0 as i64)
        }
        Some(OpKind::Slice) => Slice::of(op).is_some_and(|o| {
            let starts = matches!(o.offsets.get(to.0), Some(Size::Static(n)) if n % AT_ONCE == 0);
            starts && o.strides.get(to.0) == Some(&1)
        }),
        Some(OpKind::BroadcastInDim) => BroadcastInDim::of(op).is_some_and(|o| {
            o.dims.last() == Some(&(to.0 as i64)) && from.1.known() == to.1.known()
        }),
        // Splits of dimensions; a trailing unit dimension does not tell where the row went.
        Some(OpKind::Reshape) => from
            .1
            .known()
            .zip(to.1.known())
            .is_some_and(|(n, row)| n > 1 && row > 0 && n % row == 0),
        _ => false,
    }
}
