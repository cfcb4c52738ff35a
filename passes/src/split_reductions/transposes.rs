//! Reductions of transposed tensors as reductions of what is transposed, also below a reshape of the
//! reduced dimensions: their loops are in the order of memory, and dimensions that are reduced lie
//! side by side.
use super::fused_producers;
use crate::simplify::splats::scalar_of;
use kiln_dialects::{ir::*, ops::*, sym::Dim};
use std::collections::HashMap;

/// The reduction of what is moved, and its result in the order of the old one's; `None` if not all
/// that it reads is moved alike.
pub(super) fn unmoved(op: Op) -> Option<Result<(Op, Value)>> {
    unreshaped(op).or_else(|| untransposed(op))
}

/// How the values that a reduction reads are moved.
enum Move {
    /// `kiln.transpose` by this permutation.
    Transpose(Vec<i64>),
    /// `kiln.reshape` of these sizes.
    Reshape(Vec<i64>),
}

impl Move {
    /// The sizes before the move.
    fn before<T: Clone>(&self, sizes: Vec<T>, known: impl Fn(i64) -> T) -> Vec<T> {
        match self {
            Move::Reshape(from) => from.iter().map(|n| known(*n)).collect(),
            Move::Transpose(permutation) => {
                let mut from = sizes.clone();
                for (d, size) in permutation.iter().zip(sizes) {
                    from[*d as usize] = size;
                }
                from
            }
        }
    }
}

/// The values that a reduction's fused producers read, without scalars.
fn leaves(input: Value, inner: &[Value]) -> Vec<Value> {
    let operands = inner.iter().filter_map(|v| v.def()).flat_map(Op::operands);
    let all = std::iter::once(input).chain(operands);
    all.filter(|v| !inner.contains(v) && scalar_of(*v).is_none()).collect()
}

/// A reduction of reshaped transposes whose groups of dimensions are reduced as a whole, if nothing
/// else reads these: other readers would compute them again.
fn unreshaped(op: Op) -> Option<Result<(Op, Value)>> {
    let o = Reduce::of(op)?;
    let inner = fused_producers(o.input, op);
    let sizes = |v: Value| v.ty().dims().iter().map(Dim::known).collect::<Option<Vec<i64>>>();
    let only = |v: Value| v.uses().iter().all(|(user, _)| *user == op || computes(&inner, *user));
    let reshaped = |v: &Value| {
        let input = Reshape::of(v.def()?)?.input;
        Transpose::of(input.def()?).filter(|_| only(*v) && input.uses().len() == 1)?;
        sizes(input)
    };
    let all = leaves(o.input, &inner);
    let from = reshaped(all.first()?)?;
    if !all.iter().all(|v| reshaped(v).as_ref() == Some(&from)) {
        return None;
    }
    let dims = regrouped(&from, &sizes(o.input)?, &o.dims)?;
    let build = || {
        let b = Builder::before(op).ok_or("is in no block")?.at(op.loc());
        let input = rebuilt(&b, o.input, &inner, &Move::Reshape(from), &mut HashMap::new())?;
        let made = b.create_node(&Reduce { input, dims, ..o.clone() })?;
        Ok((made, made.result(0)))
    };
    Some(build())
}

/// Whether an op computes one of these values.
fn computes(inner: &[Value], user: Op) -> bool {
    inner.iter().any(|v| v.def() == Some(user))
}

/// The dimensions of `from` that a reduction along `dims` of a reshape to `to` reduces; `None` if
/// the reshape changes more than these.
fn regrouped(from: &[i64], to: &[i64], dims: &[i64]) -> Option<Vec<i64>> {
    let (mut reduced, mut i, mut j) = (vec![], 0, 0);
    while i < from.len() || j < to.len() {
        let (a, b) = (i, j);
        let (mut p, mut q) = (*from.get(i)?, *to.get(j)?);
        (i, j) = (i + 1, j + 1);
        while p != q {
            if p < q {
                p *= from.get(i)?;
                i += 1;
            } else {
                q *= to.get(j)?;
                j += 1;
            }
        }
        let gone = (b..j).filter(|d| dims.contains(&(*d as i64))).count();
        if gone == j - b {
            reduced.extend(a as i64..i as i64);
        } else if gone > 0 || from[a..i] != to[b..j] {
            return None;
        }
    }
    Some(reduced)
}

/// A reduction of tensors that are transposed alike.
fn untransposed(op: Op) -> Option<Result<(Op, Value)>> {
    let o = Reduce::of(op)?;
    let inner = fused_producers(o.input, op);
    let mut permutation: Option<Vec<i64>> = None;
    for v in leaves(o.input, &inner) {
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
    Some(build(op, &o, &inner, permutation))
}

fn build(op: Op, o: &Reduce, inner: &[Value], permutation: Vec<i64>) -> Result<(Op, Value)> {
    let b = Builder::before(op).ok_or("is in no block")?.at(op.loc());
    let moved = Move::Transpose(permutation.clone());
    let input = rebuilt(&b, o.input, inner, &moved, &mut HashMap::new())?;
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

/// A value before the move.
fn rebuilt(
    b: &Builder,
    v: Value,
    inner: &[Value],
    moved: &Move,
    done: &mut HashMap<Value, Value>,
) -> Result<Value> {
    if let Some(known) = done.get(&v) {
        return Ok(*known);
    }
    let op = v.def().ok_or("is an argument")?;
    let made = if !inner.contains(&v) {
        match (scalar_of(v), moved) {
            (Some(value), _) => {
                let sizes = moved.before(b.sizes_of(v)?, Size::Static);
                b.add(&Splat { value, sizes })?
            }
            (None, Move::Transpose(_)) => Transpose::of(op).ok_or("is not transposed")?.input,
            (None, Move::Reshape(_)) => Reshape::of(op).ok_or("is not reshaped")?.input,
        }
    } else {
        let operands = op.operands();
        let inputs = operands
            .iter()
            .map(|x| rebuilt(b, *x, inner, moved, done))
            .collect::<Result<Vec<_>>>()?;
        let dims = moved.before(v.ty().dims(), Dim::Known);
        let ty = Type::tensor(b.ctx, super::element(v)?, &dims);
        let attrs = op.attrs();
        let attrs: Vec<(&str, Attr)> = attrs.iter().map(|(n, a)| (n.as_str(), *a)).collect();
        b.generic(&op.name(), &inputs, &[ty], &attrs, &mut [])?.result(0)
    };
    done.insert(v, made);
    Ok(made)
}
