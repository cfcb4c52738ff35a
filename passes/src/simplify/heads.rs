//! Grouped-query attention: removes `repeat_kv`, the broadcast of keys and values to the query
//! heads.
use kiln_dialects::{ir::*, ops::*};

/// Patterns by root op.
pub(super) const PATTERNS: &[Pattern] = &[Pattern {
    name: "attention-repeated-heads",
    root: OpKind::Attention,
    apply: remove_repeat_kv,
}];

/// Lets attention read the unrepeated key and value heads.
fn remove_repeat_kv(op: Op, r: &Rewriter) -> Result<bool> {
    let Some(o) = Attention::of(op).filter(|o| o.query != o.key && o.query != o.value) else {
        return Ok(false);
    };
    let (Some((key, n)), Some((value, m))) = (unrepeated(o.key), unrepeated(o.value)) else {
        return Ok(false);
    };
    if n != m {
        return Ok(false);
    }
    let b = r.before(op)?;
    let narrow = |v: Value| -> Result<Value> {
        let mut sizes = b.sizes_of(v)?;
        if sizes.len() == 4 {
            return Ok(v);
        }
        sizes.remove(2);
        b.add(&Reshape { input: v, sizes })
    };
    let (new_key, new_value) = (narrow(key)?, narrow(value)?);
    let new = b.clone_op(op, &|v| match v {
        v if v == o.key => new_key,
        v if v == o.value => new_value,
        v => v,
    })?;
    r.replace(op, &new.results());
    Ok(true)
}

/// The input of a broadcast-reshape to `[b, g n, s, d]`, as `[b, g, s, d]` or `[b, g, 1, s, d]`,
/// and `n`.
fn unrepeated(v: Value) -> Option<(Value, i64)> {
    let to = Reshape::of(v.def()?)?;
    let broadcast = BroadcastInDim::of(to.input.def()?)?;
    let [b, g, n, s, d] = broadcast.sizes[..] else { return None };
    let merged = to.sizes.len() == 4 && [to.sizes[0], to.sizes[2], to.sizes[3]] == [b, s, d];
    let heads = g.known()?.checked_mul(n.known()?)? == to.sizes.get(1)?.known()?;
    let from = broadcast.input.ty().dims();
    // Only the repeat dimension is broadcast.
    let kept_axes: Vec<usize> =
        if from.len() == 5 { vec![0, 1, 2, 3, 4] } else { vec![0, 1, 3, 4] };
    let in_order = broadcast.dims.iter().map(|i| *i as usize).eq(kept_axes.iter().copied());
    let result = to.input.ty().dims();
    let kept = kept_axes.iter().zip(&from).all(|(axis, size)| match axis {
        2 => size.known() == Some(1),
        axis => {
            size.known() == result.get(*axis).and_then(|d| d.known()) && size.known() != Some(1)
                || result.get(*axis).and_then(|d| d.known()) == Some(1)
        }
    });
    (merged && heads && in_order && kept).then_some((broadcast.input, n.known()?))
}
