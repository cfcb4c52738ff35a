//! Causal masks: attention biases that equal the `causal` attribute.
use super::splats::*;
use kiln_dialects::{ir::*, ops::*, sym::Dim, value::DType};

/// Patterns by root op.
pub(super) const PATTERNS: &[Pattern] =
    &[Pattern { name: "attention-causal-bias", root: OpKind::Attention, apply: causal }];

/// A bias of 0 where key <= query and -inf elsewhere becomes `causal`.
fn causal(op: Op, r: &Rewriter) -> Result<bool> {
    let plain = |o: &Attention| op.regions().iter().all(|r| r.first().is_none()) && !o.causal;
    let Some(o) = Attention::of(op).filter(plain) else { return Ok(false) };
    let Some(bias) = o.bias else { return Ok(false) };
    let Some(select) = bias.def().and_then(Select::of) else { return Ok(false) };
    let (seen, hidden) = (|v: Value| is_number(v, 0.0), |v: Value| is_number(v, f64::NEG_INFINITY));
    let shown = match () {
        () if seen(select.on_true) && hidden(select.on_false) => true,
        () if hidden(select.on_true) && seen(select.on_false) => false,
        () => return Ok(false),
    };
    let Some(compare) = select.condition.def().and_then(Compare::of) else { return Ok(false) };
    let axes =
        (index_of(compare.lhs), index_of(compare.rhs), bias.ty().dims().len().checked_sub(1));
    let (Some(left), Some(right), Some(key)) = axes else { return Ok(false) };
    let (query_first, key_first) =
        ([left + 1, right] == [key, key], [left, right + 1] == [key, key]);
    use CompareKind::*;
    let holds = match compare.kind {
        Le if key_first => true,
        Ge if query_first => true,
        Gt if key_first => false,
        Lt if query_first => false,
        _ => return Ok(false),
    };
    if holds != shown {
        return Ok(false);
    }
    let new = r.before(op)?.create_node(&Attention { bias: None, causal: true, ..o })?;
    r.replace(op, &new.results());
    Ok(true)
}

/// The axis along which a value is an iota, if its dtype holds every index.
fn index_of(v: Value) -> Option<usize> {
    let op = v.def().filter(|_| matches!(dtype(v), Some(DType::I32 | DType::I64)))?;
    match op.kind()? {
        OpKind::Iota => usize::try_from(Iota::of(op)?.axis).ok(),
        OpKind::Convert => index_of(op.operand(0)),
        OpKind::BroadcastInDim => {
            let o = BroadcastInDim::of(op)?;
            let from = index_of(o.input)?;
            let to = usize::try_from(*o.dims.get(from)?).ok()?;
            same(&o.input.ty().dims()[from], &v.ty().dims()[to]).then_some(to)
        }
        OpKind::Reshape => {
            // Only unit dimensions are added or removed.
            let (from, input, dims) =
                (index_of(op.operand(0))?, op.operand(0).ty().dims(), v.ty().dims());
            let wide = |dims: &[Dim]| {
                (0..dims.len()).filter(|i| dims[*i].known() != Some(1)).collect::<Vec<_>>()
            };
            let (old, new) = (wide(&input), wide(&dims));
            let kept = old.len() == new.len()
                && old.iter().zip(&new).all(|(a, b)| same(&input[*a], &dims[*b]));
            new.get(old.iter().position(|a| *a == from)?).copied().filter(|_| kept)
        }
        _ => None,
    }
}

fn same(a: &Dim, b: &Dim) -> bool {
    a.known().is_some() && a.known() == b.known()
}
