//! Whether a kernel can read rows of a tensor, its last dimension, as they lie in memory: the copy
//! engine of a GPU takes 16 bytes at a time.
use kiln_dialects::{ir::*, ops::*, sym::Dim};

/// Elements of 16 bits that one access of the copy engine takes.
const AT_ONCE: i64 = 8;

/// Whether rows of `v` lie in one piece and at multiples of 16 bytes in the value that it moves
/// elements of. `moves`: ops that readers look through. True of elements that are not of 16 bits,
/// and of rows that no copy would make fit.
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

/// Whether elements that are neighbours in a row of a movement's result are neighbours in its
/// operand, and rows start where eights do.
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
        // Splits of dimensions; of one of size 1 at the end it does not say where rows went.
        Some(OpKind::Reshape) => from
            .1
            .known()
            .zip(to.1.known())
            .is_some_and(|(n, row)| n > 1 && row > 0 && n % row == 0),
        _ => false,
    }
}
