//! A computed matrix in the other order.
use kiln_dialects::{ir::*, ops::*, rules::tensor_type};

/// Most ops that are computed again.
const MOST: usize = 8;

/// The transpose of a matrix.
pub(super) fn transpose(b: &Builder, input: Value) -> Result<Value> {
    b.add(&Transpose { input, permutation: vec![1, 0] })
}

/// The transpose of a matrix of elementwise ops: these ops on transposed operands, so that one
/// kernel reads in the one order and stores in the other.
pub(super) fn transposed(b: &Builder, v: Value) -> Result<Value> {
    of(b, v, &mut { MOST })
}

fn of(b: &Builder, v: Value, left: &mut usize) -> Result<Value> {
    let op = v.def().filter(|_| *left > 0);
    *left = left.saturating_sub(1);
    let Some(op) = op else { return transpose(b, v) };
    let turned = |sizes: &[Size]| sizes.iter().rev().copied().collect();
    if let Some(o) = Transpose::of(op) {
        return Ok(o.input);
    }
    if let Some(o) = BroadcastInDim::of(op).filter(|o| o.dims.len() < 2) {
        let dims = o.dims.iter().map(|d| 1 - d).collect();
        return b.add(&BroadcastInDim { dims, sizes: turned(&o.sizes), ..o });
    }
    if let Some(o) = Splat::of(op) {
        return b.add(&Splat { sizes: turned(&o.sizes), ..o });
    }
    if let Some(o) = Convert::of(op) {
        return b.add(&Convert { input: of(b, o.input, left)?, ..o });
    }
    let family = op.kind().map(OpKind::family);
    if !matches!(family, Some(Family::Unary | Family::Binary)) {
        return transpose(b, v);
    }
    let operands = op.operands().into_iter().map(|x| of(b, x, left)).collect::<Result<Vec<_>>>()?;
    let dims: Vec<_> = v.ty().dims().into_iter().rev().collect();
    let ty = Type::tensor(b.ctx, tensor_type(v.ty())?.dtype, &dims);
    Ok(b.generic(&op.name(), &operands, &[ty], &[], &mut [])?.result(0))
}
