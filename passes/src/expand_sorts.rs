//! `kiln-expand-sorts`: each element of a sort counts those that come before it, and each place of
//! the result looks for the element that is there.
//!
//! Why: a GPU has no library of functions. No thread waits for another, and any size, also an open
//! one, is sorted by two reductions; their work grows with the square of the axis. The k greatest
//! of a long axis are among the k greatest of each of its blocks, so that their work grows with the
//! axis alone.
//!
//! Numerics: exact.
//!
//! ```text
//! before:  %v, %i = kiln.sort %x axis = 0 : tensor<8xf32>
//! after:   %b = x[j] < x[i], or x[j] = x[i] and j < i   %rank = kiln.reduce sum %b dims = [1]   %m = kiln.compare eq %rank, %place
//!          %v = kiln.reduce max (kiln.select %m, %x, -inf) dims = [1]   %i = kiln.reduce max (kiln.select %m, %position, -1) dims = [1]
//! ```
use crate::{
    decompose::tools::{Math, replace_ops},
    expand_scans::{neutral, summed},
    pass::{Numerics, Pass},
};
use kiln_dialects::{
    ir::*,
    ops::*,
    rules::{GRAPH_LEVELS, Level, tensor_type},
    value::DType,
};

crate::pass_options! {
    /// The pass.
    pub struct ExpandSorts {}
}

impl Pass for ExpandSorts {
    const FLAG: &'static str = "kiln-expand-sorts";
    const SUMMARY: &'static str =
        "Writes sorts and the k greatest as counts of what comes before each element";
    const LEVELS: &'static [Level] = GRAPH_LEVELS;
    const NUMERICS: Numerics = Numerics::Exact;

    fn run(&self, root: Op) -> Result<()> {
        replace_ops(root, |m, op| {
            let made = if let Some(o) = Sort::of(op) {
                m.size_of(o.input, o.axis as usize)
                    .and_then(|n| sorted(m, o.input, o.axis as usize, o.descending, n))
            } else {
                let o = TopK::of(op)?;
                best(m, o.input, o.axis as usize, !o.smallest, o.k)
            };
            Some(made.map(|all| all.to_vec()))
        })
    }
}

/// The longest axis whose k greatest are found at once.
const WHOLE: i64 = 1024;
/// Least elements of a block of a longer one, and how many times k they are at least.
const BLOCK: (i64, i64) = (256, 4);

/// The first `k` values of a stable sort, and where they were.
fn best(m: &Math, x: Value, axis: usize, descending: bool, k: i64) -> Result<[Value; 2]> {
    let own = m.sizes_of(x)?;
    let size = BLOCK.0.max(BLOCK.1 * k);
    let Some(n) = own.get(axis).and_then(|n| n.known()).filter(|n| *n > WHOLE.max(size) && k > 0)
    else {
        return sorted(m, x, axis, descending, Size::Static(k));
    };
    let dtype = tensor_type(x.ty())?.dtype;
    let x = m.convert(x, summed(dtype))?;
    let parts = (n + size - 1) / size;
    // What comes behind everything else, and, at the end, behind what is equal to it.
    let last = match (descending, summed(dtype).is_float()) {
        (true, _) => neutral(m.b.ctx, ReduceKind::Max, summed(dtype)),
        (false, true) => Attr::scalar(m.b.ctx, summed(dtype), f64::NAN),
        (false, false) => neutral(m.b.ctx, ReduceKind::Min, summed(dtype)),
    };
    let value = m.b.add(&Splat { value: last, sizes: vec![] })?;
    let zeros = vec![Size::Static(0); own.len()];
    let mut high = zeros.clone();
    high[axis] = Size::Static(parts * size - n);
    let padded =
        if parts * size == n { x } else { m.b.add(&Pad { input: x, value, low: zeros, high })? };
    let with = |sizes: &[i64]| [&own[..axis], &Size::all(sizes), &own[axis + 1..]].concat();
    let [values, places] = sorted(
        m,
        m.reshape(padded, &with(&[parts, size]))?,
        axis + 1,
        descending,
        Size::Static(k),
    )?;
    let block = m.iota(&with(&[parts, k]), axis)?;
    let block = m.retype_like(m.mul(block, m.full_like(block, size as f64)?)?, places)?;
    let (values, places) = (
        m.reshape(values, &with(&[parts * k]))?,
        m.reshape(m.add(block, places)?, &with(&[parts * k]))?,
    );
    let [values, from] = best(m, values, axis, descending, k)?;
    let mut indices =
        (0..own.len()).map(|d| m.iota(&with(&[k]), d)).collect::<Result<Vec<_>, _>>()?;
    indices[axis] = from;
    let index = |v: Value| m.retype_like(v, from);
    let indices = indices.into_iter().map(index).collect::<Result<Vec<_>, _>>()?;
    let places =
        m.b.add(&Gather { input: places, indices, dims: (0..own.len() as i64).collect() })?;
    Ok([m.convert(values, dtype)?, places])
}

/// Whether elements are NaN.
fn nan(m: &Math, x: Value) -> Result<Value> {
    let ty = Type::tensor(m.b.ctx, DType::I1, &x.ty().dims());
    Ok(m.b.generic(OpKind::IsNan.name(), &[x], &[ty], &[], &mut [])?.result(0))
}

/// The first `kept` values of a stable sort, and where they were.
fn sorted(m: &Math, x: Value, axis: usize, descending: bool, kept: Size) -> Result<[Value; 2]> {
    let dtype = tensor_type(x.ty())?.dtype;
    // Of truth values there is no maximum, and floats of 8 bits have no infinity.
    let x = m.convert(x, summed(dtype))?;
    let own = m.sizes_of(x)?;
    let n = *own.get(axis).ok_or("has no such axis")?;
    let (here, other) = (axis as i64, axis as i64 + 1);
    // Behind the axis a dimension of all others.
    let with = |first: Size, second: Size| {
        let mut sizes = own.clone();
        sizes[axis] = first;
        sizes.insert(axis + 1, second);
        sizes
    };
    let dims = |at: i64| {
        (0..own.len() as i64)
            .map(|d| if d == here { at } else { d + i64::from(d > here) })
            .collect::<Vec<_>>()
    };
    let pairs = with(n, n);
    let (mine, theirs) =
        (m.broadcast(x, &dims(here), &pairs)?, m.broadcast(x, &dims(other), &pairs)?);
    let less = |a: Value, b: Value| -> Result<Value> {
        let less = m.compare(CompareKind::Lt, a, b)?;
        if !summed(dtype).is_float() {
            return Ok(less);
        }
        // NaN is above everything.
        let last = m.binary(BinaryKind::And, nan(m, b)?, m.unary(UnaryKind::Not, nan(m, a)?)?)?;
        m.binary(BinaryKind::Or, less, last)
    };
    let (before, behind) = if descending {
        (less(mine, theirs)?, less(theirs, mine)?)
    } else {
        (less(theirs, mine)?, less(mine, theirs)?)
    };
    let earlier = m.compare(CompareKind::Lt, m.iota(&pairs, axis + 1)?, m.iota(&pairs, axis)?)?;
    let equal = m.binary(BinaryKind::And, m.unary(UnaryKind::Not, behind)?, earlier)?;
    let first = m.convert(m.binary(BinaryKind::Or, before, equal)?, DType::I64)?;
    let rank = m.b.add(&Reduce {
        kind: ReduceKind::Sum,
        input: first,
        dims: vec![other],
        maybe_empty: false,
    })?;
    // Each place looks for its element.
    let places = with(kept, n);
    let found = m.compare(
        CompareKind::Eq,
        m.broadcast(rank, &dims(other), &places)?,
        m.iota(&places, axis)?,
    )?;
    let pick = |v: Value, dtype: DType| -> Result<Value> {
        let nothing = m.b.add(&Splat {
            value: neutral(m.b.ctx, ReduceKind::Max, dtype),
            sizes: places.clone(),
        })?;
        m.b.add(&Reduce {
            kind: ReduceKind::Max,
            input: m.select(found, v, nothing)?,
            dims: vec![other],
            maybe_empty: true,
        })
    };
    let values = pick(m.broadcast(x, &dims(other), &places)?, summed(dtype))?;
    Ok([m.convert(values, dtype)?, pick(m.iota(&places, axis + 1)?, DType::I64)?])
}
