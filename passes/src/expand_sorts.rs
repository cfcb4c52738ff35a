//! `kiln-expand-sorts`: expands a sort into a rank sort: each element counts its predecessors, and
//! each output position selects the element of that rank.
//!
//! Why: GPU kernels cannot call the runtime. A rank sort is two reductions without synchronisation
//! between threads and handles dynamic sizes; its work is O(n²) in the axis length. The top k of a
//! long axis are among the top k of its blocks, which makes top-k linear in the axis.
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
    expand_scans::{identity, reduction_type},
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
        "Expands sorts and top-k into rank sorts (O(n²) in the axis length)";
    const LEVELS: &'static [Level] = GRAPH_LEVELS;
    const NUMERICS: Numerics = Numerics::Exact;

    fn run(&self, root: Op) -> Result<()> {
        replace_ops(root, |m, op| {
            let expanded = if let Some(o) = Sort::of(op) {
                m.size_of(o.input, o.axis as usize)
                    .and_then(|n| sorted(m, o.input, o.axis as usize, o.descending, n))
            } else {
                let o = TopK::of(op)?;
                top_k(m, o.input, o.axis as usize, !o.smallest, o.k)
            };
            Some(expanded.map(|all| all.to_vec()))
        })
    }
}

/// The longest axis whose top k are found without blocks.
const MAX_UNBLOCKED: i64 = 1024;
/// Least block size of a longer axis, absolute and as a multiple of k.
const BLOCK: (i64, i64) = (256, 4);

/// The first `k` values of a stable sort and their indices.
fn top_k(m: &Math, x: Value, axis: usize, descending: bool, k: i64) -> Result<[Value; 2]> {
    let sizes_x = m.sizes_of(x)?;
    let size = BLOCK.0.max(BLOCK.1 * k);
    let Some(n) =
        sizes_x.get(axis).and_then(|n| n.known()).filter(|n| *n > MAX_UNBLOCKED.max(size) && k > 0)
    else {
        return sorted(m, x, axis, descending, Size::Static(k));
    };
    let dtype = tensor_type(x.ty())?.dtype;
    let x = m.convert(x, reduction_type(dtype))?;
    let parts = (n + size - 1) / size;
    // The padding sorts last: it compares greater than or equal to every element and comes after
    // them.
    let last = match (descending, reduction_type(dtype).is_float()) {
        (true, _) => identity(m.b.ctx, ReduceKind::Max, reduction_type(dtype)),
        (false, true) => Attr::scalar(m.b.ctx, reduction_type(dtype), f64::NAN),
        (false, false) => identity(m.b.ctx, ReduceKind::Min, reduction_type(dtype)),
    };
    let value = m.b.add(&Splat { value: last, sizes: vec![] })?;
    let zeros = vec![Size::Static(0); sizes_x.len()];
    let mut high = zeros.clone();
    high[axis] = Size::Static(parts * size - n);
    let padded =
        if parts * size == n { x } else { m.b.add(&Pad { input: x, value, low: zeros, high })? };
    let with = |sizes: &[i64]| [&sizes_x[..axis], &Size::all(sizes), &sizes_x[axis + 1..]].concat();
    let [values, indices_x] = sorted(
        m,
        m.reshape(padded, &with(&[parts, size]))?,
        axis + 1,
        descending,
        Size::Static(k),
    )?;
    let block = m.iota(&with(&[parts, k]), axis)?;
    let block = m.retype_like(m.mul(block, m.full_like(block, size as f64)?)?, indices_x)?;
    let (values, indices_x) = (
        m.reshape(values, &with(&[parts * k]))?,
        m.reshape(m.add(block, indices_x)?, &with(&[parts * k]))?,
    );
    let [values, from] = top_k(m, values, axis, descending, k)?;
    let mut indices =
        (0..sizes_x.len()).map(|d| m.iota(&with(&[k]), d)).collect::<Result<Vec<_>, _>>()?;
    indices[axis] = from;
    let index = |v: Value| m.retype_like(v, from);
    let indices = indices.into_iter().map(index).collect::<Result<Vec<_>, _>>()?;
    let indices_x =
        m.b.add(&Gather { input: indices_x, indices, dims: (0..sizes_x.len() as i64).collect() })?;
    Ok([m.convert(values, dtype)?, indices_x])
}

/// The mask of NaN elements.
fn nan(m: &Math, x: Value) -> Result<Value> {
    let ty = Type::tensor(m.b.ctx, DType::I1, &x.ty().dims());
    Ok(m.b.generic(OpKind::IsNan.name(), &[x], &[ty], &[], &mut [])?.result(0))
}

/// The first `kept` values of a stable sort and their indices.
fn sorted(m: &Math, x: Value, axis: usize, descending: bool, kept: Size) -> Result<[Value; 2]> {
    let dtype = tensor_type(x.ty())?.dtype;
    // There is no maximum of i1, and 8-bit floats have no infinity.
    let x = m.convert(x, reduction_type(dtype))?;
    let sizes_x = m.sizes_of(x)?;
    let n = *sizes_x.get(axis).ok_or("has an axis out of range")?;
    let (this, other) = (axis as i64, axis as i64 + 1);
    // A second copy of the axis after it: element i against element j.
    let with = |first: Size, second: Size| {
        let mut sizes = sizes_x.clone();
        sizes[axis] = first;
        sizes.insert(axis + 1, second);
        sizes
    };
    let dims = |at: i64| {
        (0..sizes_x.len() as i64)
            .map(|d| if d == this { at } else { d + i64::from(d > this) })
            .collect::<Vec<_>>()
    };
    let pairs = with(n, n);
    let (mine, theirs) =
        (m.broadcast(x, &dims(this), &pairs)?, m.broadcast(x, &dims(other), &pairs)?);
    let less = |a: Value, b: Value| -> Result<Value> {
        let less = m.compare(CompareKind::Lt, a, b)?;
        if !reduction_type(dtype).is_float() {
            return Ok(less);
        }
        // NaN sorts above everything.
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
    // Each output position selects the element of that rank.
    let indices_x = with(kept, n);
    let found = m.compare(
        CompareKind::Eq,
        m.broadcast(rank, &dims(other), &indices_x)?,
        m.iota(&indices_x, axis)?,
    )?;
    let select_rank = |v: Value, dtype: DType| -> Result<Value> {
        let nothing = m.b.add(&Splat {
            value: identity(m.b.ctx, ReduceKind::Max, dtype),
            sizes: indices_x.clone(),
        })?;
        m.b.add(&Reduce {
            kind: ReduceKind::Max,
            input: m.select(found, v, nothing)?,
            dims: vec![other],
            maybe_empty: true,
        })
    };
    let values = select_rank(m.broadcast(x, &dims(other), &indices_x)?, reduction_type(dtype))?;
    Ok([m.convert(values, dtype)?, select_rank(m.iota(&indices_x, axis + 1)?, DType::I64)?])
}
