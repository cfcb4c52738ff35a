//! Images, whose kernels compute with channels last.
use kiln_dialects::{ir::*, ops::*};
use std::collections::HashSet;

/// Whether the order of the dimensions matters: channels, and more than one pixel.
fn is_image(v: Value) -> bool {
    let known: Option<Vec<i64>> = v.ty().dims().iter().map(|d| d.known()).collect();
    matches!(known.as_deref(), Some([_, channels, height, width]) if *channels > 1 && height * width > 1)
}

/// Whether an op computes with channels last what it is given so.
fn keeps(op: Op) -> bool {
    use OpKind::*;
    op.kind().is_some_and(|k| {
        k.is_elementwise()
            || matches!(k, MaxPool | AvgPool | BatchNorm | Pad | Concat | ReduceWindow | Slice)
            || k == Interpolate
    })
}

/// The images of a block that convolutions read or make, and those that pointwise ops, norms and
/// pools compute from or to these.
pub(super) fn around_convolutions(block: Block) -> HashSet<Value> {
    let convolutions = block.ops().into_iter().filter_map(|op| Some((op, Convolution::of(op)?)));
    let mut waiting: Vec<Value> =
        convolutions.flat_map(|(op, o)| [o.input, op.result(0)]).collect();
    let mut found = HashSet::new();
    while let Some(v) = waiting.pop() {
        if !is_image(v) || !found.insert(v) {
            continue;
        }
        let readers = v.uses().into_iter().map(|(reader, _)| reader).filter(|r| keeps(*r));
        waiting.extend(readers.flat_map(|r| r.results()));
        waiting.extend(v.def().filter(|op| keeps(*op)).into_iter().flat_map(|op| op.operands()));
    }
    found
}
