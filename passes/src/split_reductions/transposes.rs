//! Reductions of transposed tensors as reductions of what is transposed: their loops are in the
//! order of memory, and dimensions that are reduced lie side by side.
use super::fused_producers;
use crate::simplify::splats::scalar_of;
use kiln_dialects::{ir::*, ops::*};
use std::collections::HashMap;

/// The reduction, and its result in the order of the old one's; `None` if not all that it reads is
/// transposed alike.
pub(super) fn untransposed(op: Op) -> Option<Result<(Op, Value)>> {
    let o = Reduce::of(op)?;
    let inner = fused_producers(o.input, op);
    let operands = inner.iter().filter_map(|v| v.def()).flat_map(Op::operands);
    let mut permutation: Option<Vec<i64>> = None;
    for v in std::iter::once(o.input).chain(operands).filter(|v| !inner.contains(v)) {
        if scalar_of(v).is_some() {
            continue;
        }
        let Transpose { input, permutation: own } = Transpose::of(v.def()?)?;
        // Its kernel applies the transpose, if nothing reads the product before that.
        if input
            .def()
            .is_some_and(|o| matches!(o.kind(), Some(OpKind::DotGeneral | OpKind::Convolution)))
        {
            return None;
        }
        if permutation.get_or_insert_with(|| own.clone()) != &own {
            return None;
        }
    }
    let permutation = permutation?;
    Some(build(op, &o, &inner, &permutation))
}

fn build(op: Op, o: &Reduce, inner: &[Value], permutation: &[i64]) -> Result<(Op, Value)> {
    let b = Builder::before(op).ok_or("is in no block")?.at(op.loc());
    let input = rebuilt(&b, o.input, inner, permutation, &mut HashMap::new())?;
    let place = |d: &i64| permutation[*d as usize];
    let mut dims: Vec<i64> = o.dims.iter().map(place).collect();
    dims.sort_unstable();
    let made = b.create_node(&Reduce { input, dims: dims.clone(), ..o.clone() })?;
    // Where the old reduction has each dimension that stays.
    let stays = (0..permutation.len() as i64).filter(|d| !o.dims.contains(d));
    let order: Vec<i64> =
        stays.map(|d| place(&d) - dims.iter().filter(|r| **r < place(&d)).count() as i64).collect();
    let result = made.result(0);
    let result = match order.is_sorted() {
        true => result,
        false => b.add(&Transpose { input: result, permutation: order })?,
    };
    Ok((made, result))
}

/// A value before the transpose.
fn rebuilt(
    b: &Builder,
    v: Value,
    inner: &[Value],
    permutation: &[i64],
    done: &mut HashMap<Value, Value>,
) -> Result<Value> {
    if let Some(known) = done.get(&v) {
        return Ok(*known);
    }
    let op = v.def().ok_or("is an argument")?;
    let made = if !inner.contains(&v) {
        match (scalar_of(v), Transpose::of(op)) {
            (Some(value), _) => {
                let mut sizes = b.sizes_of(v)?;
                for (d, size) in permutation.iter().zip(b.sizes_of(v)?) {
                    sizes[*d as usize] = size;
                }
                b.add(&Splat { value, sizes })?
            }
            (None, Some(o)) => o.input,
            (None, None) => return Err("is not transposed".into()),
        }
    } else {
        let operands = op.operands();
        let inputs = operands
            .iter()
            .map(|x| rebuilt(b, *x, inner, permutation, done))
            .collect::<Result<Vec<_>>>()?;
        let mut dims = v.ty().dims();
        for (d, size) in permutation.iter().zip(v.ty().dims()) {
            dims[*d as usize] = size;
        }
        let ty = Type::tensor(b.ctx, super::element(v)?, &dims);
        let attrs = op.attrs();
        let attrs: Vec<(&str, Attr)> = attrs.iter().map(|(n, a)| (n.as_str(), *a)).collect();
        b.generic(&op.name(), &inputs, &[ty], &attrs, &mut [])?.result(0)
    };
    done.insert(v, made);
    Ok(made)
}
