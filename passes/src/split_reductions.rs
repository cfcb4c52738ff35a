//! `kiln-split-reductions`: a reduction of much to little becomes two, the first of parts and the
//! second of what the parts gave.
//!
//! Why: a GPU computes a result in one group of threads, so that a sum of everything would keep one
//! multiprocessor busy and the others idle. Two launches in a fixed order give the same bits in
//! every run, which atomic additions do not. What comes before a reduction elementwise is computed
//! in the first. Where a size has no divisor near the wanted number of parts, what is left over is
//! reduced by itself and added at the end. Of positions of extremes each part gives one; where the
//! extreme of the parts' values is, that one counts.
//!
//! Numerics: reassociates. Sums and products of 16-bit floats stay f32 between both.
//!
//! ```text
//! before:  %0 = kiln.reduce sum %x dims = [0] : tensor<1048576xf32>
//! after:   %p = kiln.reshape %x sizes = [64, 16384]   %1 = kiln.reduce sum %p dims = [1]   %0 = kiln.reduce sum %1 dims = [0] : tensor<64xf32>
//! ```
mod args;

use crate::pass::{Numerics, Pass};
use kiln_dialects::{
    ir::*,
    ops::*,
    rules::{GRAPH_LEVELS, Level},
    sym::Dim,
    value::DType,
};
use std::collections::HashMap;

crate::pass_options! {
    /// The pass.
    pub struct SplitReductions {
        /// Least elements of a reduction that is split
        pub least: i64 = 262144,
        /// Groups of threads that fill the card several times
        pub groups: i64 = 1024,
        /// Results whose rows are split even if they are repeated along the rows again are fewer
        /// than that
        pub few: i64 = 64,
        /// The least length of such a row
        pub long: i64 = 262144,
        /// Least elements of a part, where they lie side by side
        pub row: i64 = 8192,
        /// Least rows of a part, where a reduction goes across rows
        pub column: i64 = 128,
        /// Neighbouring results that one group computes, where a reduction goes across rows
        pub beside: i64 = 256,
    }
}

impl Pass for SplitReductions {
    const FLAG: &'static str = "kiln-split-reductions";
    const SUMMARY: &'static str =
        "Splits reductions to few results into one of parts and one of their results";
    const LEVELS: &'static [Level] = GRAPH_LEVELS;
    const NUMERICS: Numerics = Numerics::Reassociates;

    fn run(&self, root: Op) -> Result<()> {
        for op in walk(root) {
            let (reduce, arg) = (Reduce::of(op), args::of(op));
            let Some((input, dims)) = reduce
                .as_ref()
                .map(|o| (o.input, o.dims.clone()))
                .or(arg.map(|(x, axis, _)| (x, vec![axis])))
            else {
                continue;
            };
            let Some(parts) = self.parts(op, input, &dims) else { continue };
            let b = Builder::before(op).ok_or_at(op, "is in no block")?;
            let result = match (reduce, arg) {
                (Some(reduce), _) => split(b, op, &reduce, &parts),
                (None, Some(arg)) => args::split(b, op, arg, &parts),
                (None, None) => continue,
            };
            op.result(0).replace_uses(result.at(op)?);
            op.erase();
            drop_dead(input);
        }
        Ok(())
    }
}

/// Most elementwise ops between a reduction and where its result is repeated.
const REACH: usize = 16;

/// Whether a value is repeated to these sizes, at once or behind elementwise ops.
fn spreads(v: Value, sizes: &[Dim], reach: usize) -> bool {
    let next = |op: Op| {
        reach > 0
            && (op.kind().is_some_and(OpKind::is_arithmetic) || op.kind() == Some(OpKind::Reshape))
            && spreads(op.result(0), sizes, reach - 1)
    };
    v.uses().into_iter().any(|(op, _)| {
        (op.kind() == Some(OpKind::BroadcastInDim) && op.result(0).ty().dims() == sizes) || next(op)
    })
}

/// Whether elementwise ops compute a value from a reduction of the same rows, as the sum of
/// exponentials from the maximum.
fn behind(v: Value, sizes: &[Dim], dims: &[i64]) -> bool {
    let (mut next, mut seen) = (vec![v], vec![]);
    while let Some(v) = next.pop() {
        let Some(op) = v.def().filter(|op| seen.len() < REACH && !seen.contains(op)) else {
            continue;
        };
        if Reduce::of(op).is_some_and(|o| o.dims == dims && o.input.ty().dims() == sizes) {
            return true;
        }
        if op.kind().is_some_and(|k| {
            k.is_arithmetic() || [OpKind::Reshape, OpKind::BroadcastInDim].contains(&k)
        }) {
            seen.push(op);
            next.extend(op.operands());
        }
    }
    false
}

/// How a dimension is split: which, into how many parts of what size, and what is left over.
struct Parts {
    dim: usize,
    count: i64,
    size: i64,
    rest: i64,
}

impl SplitReductions {
    fn parts(&self, op: Op, input: Value, dims: &[i64]) -> Option<Parts> {
        let sizes: Vec<i64> = input.ty().dims().iter().map(|d| d.known()).collect::<Option<_>>()?;
        let gone = |d: usize| dims.contains(&(d as i64));
        let product = |of: bool| {
            (0..sizes.len())
                .filter(|d| gone(*d) == of)
                .try_fold(1i64, |n, d| n.checked_mul(sizes[d]))
        };
        let (depth, results) = (product(true)?, product(false)?);
        let last = (0..sizes.len()).rev().find(|d| sizes[*d] != 1)?;
        // The rows of a softmax or a norm are one kernel's, which reads them once; only a few very
        // long ones are better split.
        let whole = input.ty().dims();
        if gone(last)
            && (results >= self.few || depth < self.long)
            && (spreads(op.result(0), &whole, REACH) || behind(input, &whole, dims))
        {
            return None;
        }
        let (groups, least) = if gone(last) {
            (results, self.row)
        } else {
            (results / self.beside.max(1) + 1, self.column)
        };
        let wanted = (self.groups / groups.max(1)).min(depth / least.max(1));
        // The outermost dimension that has so many steps, so that what a part reads lies together;
        // else the longest.
        let long = (0..sizes.len()).find(|d| gone(*d) && sizes[*d] >= wanted);
        let dim =
            long.or_else(|| (0..sizes.len()).filter(|d| gone(*d)).max_by_key(|d| sizes[*d]))?;
        let wanted = wanted.min(sizes[dim]);
        if wanted < 2 || depth.checked_mul(results)? < self.least {
            return None;
        }
        let near = (wanted / 2 + 1..=wanted * 2)
            .filter(|n| sizes[dim] % n == 0)
            .min_by_key(|n| (n - wanted).abs());
        let count = near.unwrap_or(wanted);
        let size = sizes[dim] / count;
        Some(Parts { dim, count, size, rest: sizes[dim] - count * size })
    }
}

fn split(b: Builder, op: Op, o: &Reduce, parts: &Parts) -> Result<Value> {
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
    let inner: Vec<Value> = chain(o.input, op);
    let whole = parts.rest == 0;
    let main = Moved {
        b,
        inner: &inner,
        parts,
        end: if whole { None } else { Some((0, parts.count * parts.size)) },
        split: true,
    };
    let main = widened(main.of(o.input, &mut HashMap::new())?)?;
    // The number of the part stays; behind it stands what it has.
    let dim = parts.dim as i64;
    let dims = o.dims.iter().map(|d| if *d >= dim { d + 1 } else { *d }).collect();
    let first = b.add(&Reduce { input: main, dims, ..o.clone() })?;
    let place = (0..dim).filter(|d| !o.dims.contains(d)).count() as i64;
    let mut result = b.add(&Reduce { input: first, dims: vec![place], ..o.clone() })?;
    if !whole {
        let rest = Moved {
            b,
            inner: &inner,
            parts,
            end: Some((parts.count * parts.size, parts.rest)),
            split: false,
        };
        let rest = widened(rest.of(o.input, &mut HashMap::new())?)?;
        let rest = b.add(&Reduce { input: rest, ..o.clone() })?;
        result = b
            .generic(o.kind.step().op().name(), &[result, rest], &[result.ty()], &[], &mut [])?
            .result(0);
    }
    if wide == dtype {
        Ok(result)
    } else {
        b.add(&Convert { input: result, dtype: Type::scalar(b.ctx, dtype) })
    }
}

fn element(v: Value) -> Result<DType> {
    v.ty().element().ok_or("is no tensor")?.dtype()
}

/// The elementwise values that only the reduction needs, each behind those that read it.
fn chain(input: Value, reduction: Op) -> Vec<Value> {
    let mut all: Vec<Value> = vec![];
    let mut next = vec![input];
    while let Some(v) = next.pop() {
        let Some(op) =
            v.def().filter(|o| o.kind().is_some_and(OpKind::is_arithmetic) && !all.contains(&v))
        else {
            continue;
        };
        let only = v
            .uses()
            .iter()
            .all(|(user, _)| *user == reduction || all.iter().any(|a| a.def() == Some(*user)));
        if only {
            all.push(v);
            next.extend(op.operands());
        }
    }
    all
}

/// Values of the input's sizes, at another place: a part of one dimension, and that split.
struct Moved<'a> {
    b: Builder,
    /// What is computed again rather than moved.
    inner: &'a [Value],
    parts: &'a Parts,
    /// Offset and size, if not all of the dimension is meant.
    end: Option<(i64, i64)>,
    split: bool,
}

impl Moved<'_> {
    fn of(&self, v: Value, done: &mut HashMap<Value, Value>) -> Result<Value> {
        if let Some(made) = done.get(&v) {
            return Ok(*made);
        }
        let made = self.make(v, done)?;
        done.insert(v, made);
        Ok(made)
    }

    fn make(&self, v: Value, done: &mut HashMap<Value, Value>) -> Result<Value> {
        let (b, mut sizes) = (self.b, self.b.sizes_of(v)?);
        if let Some((_, size)) = self.end {
            sizes[self.parts.dim] = Size::Static(size);
        }
        let short = sizes.clone();
        if self.split {
            sizes.splice(
                self.parts.dim..=self.parts.dim,
                [Size::Static(self.parts.count), Size::Static(self.parts.size)],
            );
        }
        if let Some(splat) = v.def().and_then(Splat::of) {
            return b.add(&Splat { value: splat.value, sizes });
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
        if self.split { b.add(&Reshape { input: v, sizes }) } else { Ok(v) }
    }
}

/// Erases a value's op and what only it needed.
fn drop_dead(v: Value) {
    let mut next = vec![v];
    while let Some(v) = next.pop() {
        let dead = v.uses().is_empty();
        let Some(op) = v.def().filter(|o| {
            dead && (o.kind().is_some_and(OpKind::is_arithmetic) || o.kind() == Some(OpKind::Splat))
        }) else {
            continue;
        };
        // An operand may be there twice, and must not be looked at when it is gone.
        for o in op.operands() {
            if !next.contains(&o) {
                next.push(o);
            }
        }
        op.erase();
    }
}
