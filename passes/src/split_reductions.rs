//! `kiln-split-reductions`: splits a reduction with few results in two: partial reductions, then a
//! reduction of the partial results.
//!
//! Why: a GPU computes a result in one CTA, so that a full sum would keep one SM busy and the
//! others idle. Two launches in a fixed order are deterministic, atomic additions are not.
//! Elementwise producers fuse into the first. Before, a reduction of transposed tensors becomes one
//! of what is transposed: its reduced dimensions are side by side then, and merge. Where they
//! cannot, because an operand is not contiguous in them, the outermost ones are parts and the
//! next one is split. If the size has no divisor near the wanted split factor, the remainder is
//! reduced separately and added at the end. For argmax and argmin each part yields an index and a
//! value, and the second step selects the part.
//!
//! Numerics: reassociates. Partial sums and products of 16-bit floats are f32.
//!
//! ```text
//! before:  %0 = kiln.reduce sum %x dims = [0] : tensor<1048576xf32>
//! after:   %p = kiln.reshape %x sizes = [64, 16384]   %1 = kiln.reduce sum %p dims = [1]   %0 = kiln.reduce sum %1 dims = [0] : tensor<64xf32>
//! ```
mod args;
mod merged;
mod parts;
mod transposes;

use crate::{
    pass::{Numerics, Pass},
    readers::erase_dead,
};
use kiln_dialects::{
    ir::*,
    ops::*,
    rules::{GRAPH_LEVELS, Level},
    sym::{Dim, known_product},
    value::DType,
};
use merged::Reshapes;
use parts::{PartialSplit, fused_producers};
use std::collections::HashMap;

crate::pass_options! {
    /// The pass.
    pub struct SplitReductions {
        /// Least input elements of a reduction that is split
        pub min_elements: i64 = 262144,
        /// CTAs that fill the GPU several times over
        pub ctas: i64 = 1024,
        /// A normalisation (its result is broadcast back along the rows) is split only below this
        /// number of rows
        pub norm_rows: i64 = 64,
        /// Least length of such a row
        pub norm_length: i64 = 262144,
        /// Least elements per part, when the reduced dimension is contiguous
        pub min_contiguous: i64 = 8192,
        /// Least elements per part, when the reduced dimension is strided
        pub min_strided: i64 = 128,
        /// Adjacent results per CTA, when the reduced dimension is strided
        pub columns_per_cta: i64 = 256,
    }
}

impl Pass for SplitReductions {
    const FLAG: &'static str = "kiln-split-reductions";
    const SUMMARY: &'static str =
        "Splits reductions with few results into partial reductions and their reduction";
    const LEVELS: &'static [Level] = GRAPH_LEVELS;
    const NUMERICS: Numerics = Numerics::Reassociates;

    fn run(&self, root: Op) -> Result<()> {
        let reshapes = Reshapes::default();
        for mut op in walk(root) {
            while self.is_large(op)
                && let Some(made) = transposes::unmoved(op)
            {
                let (made, result) = made.at(op)?;
                let input = op.operand(0);
                op.result(0).replace_uses(result);
                op.erase();
                erase_dead(vec![input], |kind| kind.is_arithmetic() || kind == OpKind::Splat);
                op = made;
            }
            let (reduce, arg) = (Reduce::of(op), args::of(op));
            let Some((input, dims)) = reduce
                .as_ref()
                .map(|o| (o.input, o.dims.clone()))
                .or(arg.map(|(x, axis, _)| (x, vec![axis])))
            else {
                continue;
            };
            let Some(parts) = self.choose_split(op, input, &dims) else { continue };
            let b = Builder::before(op).ok_or_at(op, "is in no block")?;
            let result = match (reduce, arg) {
                (Some(reduce), _) => split(b, op, &reduce, (&parts, &reshapes)),
                (None, Some(arg)) => args::split(b, op, arg, (&parts, &reshapes)),
                (None, None) => continue,
            };
            op.result(0).replace_uses(result.at(op)?);
            op.erase();
            erase_dead(vec![input], |kind| kind.is_arithmetic() || kind == OpKind::Splat);
        }
        Ok(())
    }
}

/// Most elementwise ops between a reduction and the broadcast of its result.
const MAX_DEPTH: usize = 16;

/// Whether a value has these sizes, in this or another order of the dimensions.
fn permuted(v: &Value, sizes: &[Dim]) -> bool {
    let dims = v.ty().dims();
    let count = |all: &[Dim], d: &Dim| all.iter().filter(|x| *x == d).count();
    dims.len() == sizes.len() && sizes.iter().all(|d| count(&dims, d) == count(sizes, d))
}

/// Whether elementwise users broadcast a value back to these sizes.
fn is_broadcast_back(v: Value, sizes: &[Dim], max_depth: usize) -> bool {
    let next = |op: Op| {
        max_depth > 0
            && (op.kind().is_some_and(OpKind::is_arithmetic) || op.kind() == Some(OpKind::Reshape))
            && is_broadcast_back(op.result(0), sizes, max_depth - 1)
    };
    v.uses().into_iter().any(|(op, _)| {
        let back = op.kind() == Some(OpKind::BroadcastInDim) && permuted(&op.result(0), sizes);
        back || next(op)
    })
}

/// Whether a value derives from a reduction of the same rows, as a softmax sum does from the
/// maximum.
fn derives_from_reduction(v: Value, sizes: &[Dim], dims: &[i64]) -> bool {
    let (mut next, mut seen) = (vec![v], vec![]);
    while let Some(v) = next.pop() {
        let Some(op) = v.def().filter(|op| seen.len() < MAX_DEPTH && !seen.contains(op)) else {
            continue;
        };
        if Reduce::of(op).is_some_and(|o| o.dims == dims && o.input.ty().dims() == sizes) {
            return true;
        }
        if op.kind().is_some_and(|k| {
            let moves = [OpKind::Reshape, OpKind::BroadcastInDim, OpKind::Transpose];
            k.is_arithmetic() || moves.contains(&k)
        }) {
            seen.push(op);
            next.extend(op.operands());
        }
    }
    false
}

impl SplitReductions {
    /// Whether an op is a reduction of many elements whose kernel has no other loops.
    fn is_large(&self, op: Op) -> bool {
        let Some(o) = Reduce::of(op) else { return false };
        let sizes = o.input.ty().dims();
        known_product(&sizes).is_some_and(|n| n >= self.min_elements)
            && !is_broadcast_back(op.result(0), &sizes, MAX_DEPTH)
            && !derives_from_reduction(o.input, &sizes, &o.dims)
    }

    fn choose_split(&self, op: Op, input: Value, dims: &[i64]) -> Option<PartialSplit> {
        let sizes: Vec<i64> = input.ty().dims().iter().map(|d| d.known()).collect::<Option<_>>()?;
        let reduced = |d: usize| dims.contains(&(d as i64));
        let product = |of: bool| {
            (0..sizes.len())
                .filter(|d| reduced(*d) == of)
                .try_fold(1i64, |n, d| n.checked_mul(sizes[d]))
        };
        let (reduction_size, results) = (product(true)?, product(false)?);
        let last = (0..sizes.len()).rev().find(|d| sizes[*d] != 1)?;
        // Softmax and norms are one kernel that reads its rows once; only few, very long rows are
        // split.
        let whole = input.ty().dims();
        if reduced(last)
            && (results >= self.norm_rows || reduction_size < self.norm_length)
            && (is_broadcast_back(op.result(0), &whole, MAX_DEPTH)
                || derives_from_reduction(input, &whole, dims))
        {
            return None;
        }
        let (ctas, min_part) = if reduced(last) {
            (results, self.min_contiguous)
        } else {
            (results / self.columns_per_cta.max(1) + 1, self.min_strided)
        };
        let wanted = (self.ctas / ctas.max(1)).min(reduction_size / min_part.max(1));
        // The outermost dimension that is long enough, so that a part is contiguous; else the
        // longest.
        let long_enough = (0..sizes.len()).find(|d| reduced(*d) && sizes[*d] >= wanted);
        let dim = long_enough
            .or_else(|| (0..sizes.len()).filter(|d| reduced(*d)).max_by_key(|d| sizes[*d]))?;
        let (all, wanted) = (wanted, wanted.min(sizes[dim]));
        if wanted < 2 || reduction_size.checked_mul(results)? < self.min_elements {
            return None;
        }
        let near = |wanted: i64, length: i64| {
            let around = (wanted / 2 + 1..=wanted * 2).filter(|n| length % n == 0);
            around.min_by_key(|n| (n - wanted).abs())
        };
        let run = dims.iter().map(|d| *d as usize).min()?;
        let adjacent = (run..run + dims.len()).all(reduced);
        if long_enough.is_none() && adjacent {
            if merged::can_merge(input, op, run, dims.len())
                && let Some(count) = near(all, reduction_size)
            {
                let (merged, size) = (dims.len(), reduction_size / count);
                return Some(PartialSplit {
                    outer: 0,
                    dim: run,
                    merged,
                    count,
                    size,
                    remainder: 0,
                });
            }
            // No dimension has as many parts: the outermost ones, and divisors of the next.
            let (mut outer, mut parts) = (0, 1);
            while outer + 1 < dims.len() && parts * sizes[run + outer] <= all {
                parts *= sizes[run + outer];
                outer += 1;
            }
            let inner = near((all + parts - 1) / parts, sizes[run + outer]);
            if let Some(count) = inner.filter(|_| outer > 0 && parts < all) {
                let (dim, size) = (run + outer, sizes[run + outer] / count);
                return Some(PartialSplit { outer, dim, merged: 1, count, size, remainder: 0 });
            }
        }
        let near = near(wanted, sizes[dim]);
        let count = near.unwrap_or(wanted);
        let size = sizes[dim] / count;
        let remainder = sizes[dim] - count * size;
        Some(PartialSplit { outer: 0, dim, merged: 1, count, size, remainder })
    }
}

fn split(
    b: Builder,
    op: Op,
    o: &Reduce,
    (parts, reshapes): (&PartialSplit, &Reshapes),
) -> Result<Value> {
    let dtype = element(o.input)?;
    let sums = matches!(o.kind, ReduceKind::Sum | ReduceKind::Prod);
    let wide = if sums && dtype.is_float() && dtype.bits() <= 16 { DType::F32 } else { dtype };
    let widened = |v: Value| {
        if wide == dtype {
            Ok(v)
        } else {
            b.add(&Convert { input: v, dtype: Type::scalar(b.ctx, wide) })
        }
    };
    let inner: Vec<Value> = fused_producers(o.input, op);
    let whole = parts.remainder == 0;
    let dim = parts.dim as i64;
    let outer = dim - parts.outer as i64..dim;
    let inner_dims: Vec<i64> = o.dims.iter().copied().filter(|d| !outer.contains(d)).collect();
    let others: Vec<i64> = inner_dims.iter().copied().filter(|d| *d != dim).collect();
    // A part is one index of the dimension: it is reduced second, and nothing is reshaped.
    let (main, dims) = if whole && parts.size == 1 && !others.is_empty() {
        (o.input, others)
    } else {
        let main = Rebuild {
            b,
            inner: &inner,
            parts,
            reshapes,
            end: if whole { None } else { Some((0, parts.count * parts.size)) },
            split: true,
        };
        // The split dimension becomes [part, element]; the element dimension is reduced.
        let dims = match parts.merged {
            1 => inner_dims.iter().map(|d| if *d >= dim { d + 1 } else { *d }).collect(),
            // All reduced dimensions are merged.
            _ => vec![dim + 1],
        };
        (main.of(o.input, &mut HashMap::new())?, dims)
    };
    let main = widened(main)?;
    let first = b.add(&Reduce { input: main, dims, ..o.clone() })?;
    let kept = (0..dim).filter(|d| !o.dims.contains(d)).count() as i64;
    let dims = (kept..=kept + parts.outer as i64).collect();
    let mut result = b.add(&Reduce { input: first, dims, ..o.clone() })?;
    if !whole {
        let remainder = Rebuild {
            b,
            inner: &inner,
            parts,
            reshapes,
            end: Some((parts.count * parts.size, parts.remainder)),
            split: false,
        };
        let remainder = widened(remainder.of(o.input, &mut HashMap::new())?)?;
        let remainder = b.add(&Reduce { input: remainder, ..o.clone() })?;
        result = b
            .generic(o.kind.step().op().name(), &[result, remainder], &[result.ty()], &[], &mut [])?
            .result(0);
    }
    if wide == dtype {
        Ok(result)
    } else {
        b.add(&Convert { input: result, dtype: Type::scalar(b.ctx, dtype) })
    }
}

fn element(v: Value) -> Result<DType> {
    v.ty().element().ok_or("is not a tensor")?.dtype()
}

/// Rebuilds values for a slice of the split dimension, or for its parts.
struct Rebuild<'a> {
    b: Builder,
    /// Producers that are recomputed instead of sliced.
    inner: &'a [Value],
    parts: &'a PartialSplit,
    reshapes: &'a Reshapes,
    /// Offset and size of the slice; none for the whole dimension.
    end: Option<(i64, i64)>,
    split: bool,
}

impl Rebuild<'_> {
    fn of(&self, v: Value, done: &mut HashMap<Value, Value>) -> Result<Value> {
        if let Some(rebuilt) = done.get(&v) {
            return Ok(*rebuilt);
        }
        let rebuilt = self.rebuild(v, done)?;
        done.insert(v, rebuilt);
        Ok(rebuilt)
    }

    fn rebuild(&self, v: Value, done: &mut HashMap<Value, Value>) -> Result<Value> {
        let (b, mut sizes) = (self.b, self.b.sizes_of(v)?);
        if let Some((_, size)) = self.end {
            sizes[self.parts.dim] = Size::Static(size);
        }
        let short = sizes.clone();
        if self.split {
            sizes.splice(
                self.parts.dim..self.parts.dim + self.parts.merged,
                [Size::Static(self.parts.count), Size::Static(self.parts.size)],
            );
        }
        if let Some(splat) = v.def().and_then(Splat::of) {
            return b.add(&Splat { value: splat.value, sizes });
        }
        if self.parts.merged > 1
            && let Some(moved) = merged::rebuilt(b, v, (self.parts, self.reshapes), &sizes)
        {
            return moved;
        }
        if let Some(op) = v.def().filter(|_| self.inner.contains(&v)) {
            let operands = op
                .operands()
                .into_iter()
                .map(|o| self.of(o, done))
                .collect::<Result<Vec<_>, _>>()?;
            let copy = b.at(op.loc()).clone_op(op, &|o| {
                op.operands().iter().position(|x| *x == o).map_or(o, |i| operands[i])
            })?;
            let dims: Vec<_> =
                sizes.iter().map(|s| s.known().map_or(Dim::Unknown, Dim::Known)).collect();
            copy.result(0).set_ty(Type::tensor(b.ctx, element(v)?, &dims));
            return Ok(copy.result(0));
        }
        let mut v = v;
        if let Some((offset, _)) = self.end {
            let mut offsets = Size::all(&vec![0; short.len()]);
            offsets[self.parts.dim] = Size::Static(offset);
            v = b.add(&Slice { input: v, offsets, strides: vec![1; short.len()], sizes: short })?;
        }
        if self.split { self.reshapes.of(b, v, sizes) } else { Ok(v) }
    }
}
