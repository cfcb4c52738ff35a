//! `kiln-online-reductions`: fuses a reduction with an earlier one of the same row that it depends
//! on, in one pass over memory (online softmax, online variance).
//!
//! Why here: each generic of a kernel reads its row separately; a row too long for registers is
//! read from memory each time. The sum of exp(x - c) is fused with the maximum of x, and the sum of
//! (x - c)^2 with the sum of x, as partial results that merge associatively: `linalg.generic` with
//! `kiln.merges`. Producers of x and consumers are fused too. Upstream has no such rewrite.
//!
//! Numerics: reassociates. With m the running maximum and s the sum of exp(x - m): (m, s) and (n,
//! t), m >= n, merge to (m, s + t exp(n - m)) (Milakov and Gimelshein, 2018); the final sum is s
//! exp(m - c).
//! With n elements of sum s and squared deviations q: (s, q, n) and (t, r, m) merge to (s + t, q +
//! r + (t/m - s/n)^2 nm / (n + m), n + m) (Chan, Golub and LeVeque, 1979); the final sum is q + n
//! (s/n - c)^2.
//!
//! ```text
//! before:  %m = generic { maximumf x }   %s = generic { addf exp(x - %m) }   …
//! after:   %x, %one = generic { x, 1 }   %most, %sum = generic {kiln.merges} { … }   %m = generic { %most }   %s = generic { %sum exp(%most - %m) }   …
//! ```
pub(crate) mod matches;
pub(crate) mod merge;

use crate::{
    analysis::{Kernel, Poly, kernels_of},
    gpu::online_reductions::matches::{Leaf, Pair, copied, elementwise},
    linalg::generic::Generic,
    strategies::{Analysis, gpu::register_rows},
    target::Chip,
};
use kiln_dialects::{ir::*, rules::Level, sym::Dim};
use kiln_passes::{Numerics, Pass};
use std::collections::HashMap;

kiln_passes::pass_options! {
    /// The pass.
    pub struct OnlineReductions {
        /// The chip: sm_80, sm_86, sm_89 or sm_90a
        pub chip: String = "sm_90a".into(),
    }
}

impl Pass for OnlineReductions {
    const FLAG: &'static str = "kiln-online-reductions";
    const SUMMARY: &'static str = "Computes a row's maximum and sum of exponentials, or sum and squared deviations, in one pass";
    const LEVELS: &'static [Level] = &[Level::Linalg];
    const NUMERICS: Numerics = Numerics::Reassociates;
    const DIALECTS: &'static [&'static str] = &["arith", "linalg", "math", "tensor"];

    fn run(&self, root: Op) -> Result<()> {
        let clusters = self.chip == Chip::Sm90a.name();
        for func in kernels_of(root) {
            let kind =
                func.parent().and_then(|m| m.attr("kiln.kernel")?.entry("kind")?.as_string());
            // Attention has its own kernel, and an existing schedule applies to the stages as they
            // are.
            if kind.as_deref() == Some("attention") || func.attr("kiln.schedule").is_some() {
                continue;
            }
            let Some(mut pair) = matches::find(func) else { continue };
            let mut analysis = Analysis::of(func)?;
            if fits_registers(&analysis, clusters) {
                continue;
            }
            loop {
                apply(analysis.kernel(), &pair).map_err(|e| Error::at(pair.second, e))?;
                let Some(next) = matches::find(func) else { break };
                // The function has changed.
                (pair, analysis) = (next, Analysis::of(func)?);
            }
        }
        Ok(())
    }
}

/// Whether registers hold the kernel's rows from the first stage to the last, so that each is read
/// once anyway.
fn fits_registers(analysis: &Analysis, clusters: bool) -> bool {
    let nested = analysis.nests(register_rows::NESTING);
    nested.is_some_and(|v| register_rows::params(&v.0, &v.1, clusters).is_some())
}

/// The sizes of a tensor, as its type and the operands of a `tensor.empty`.
struct Sizes<'k> {
    kernel: &'k Kernel,
    all: Vec<Poly>,
}

impl Sizes<'_> {
    fn empty(&self, b: Builder, element: Type) -> Result<Value> {
        let mut dynamic = vec![];
        let mut dim = |p: &Poly| match p.known() {
            Some(n) => Ok(Dim::Known(n)),
            None => {
                let size = p.as_symbol().ok_or("has a size that is no value")?;
                dynamic.push(self.kernel.original_value(size));
                Ok::<_, String>(Dim::Unknown)
            }
        };
        let dims = self.all.iter().map(&mut dim).collect::<Result<Vec<_>, _>>()?;
        let ty = Type::tensor(b.ctx, element.dtype()?, &dims);
        tensor::empty(b, &dynamic, ty)
    }
}

fn apply(k: &Kernel, pair: &Pair) -> Result<()> {
    let Pair { first, second, kind, .. } = pair;
    let sum = first.result(0);
    let ty = sum.ty().element().ok_or("is no tensor")?;
    let stage =
        k.stages.iter().find(|s| k.original(s.op) == *first).ok_or("is no stage of the kernel")?;
    let (loops, reduction) = (stage.extents.len(), stage.reduction.clone());
    let all: Vec<usize> = (0..loops).collect();
    let row: Vec<usize> = pair.row.clone();
    let whole = Sizes { kernel: k, all: stage.extents.clone() };
    let rows = Sizes { kernel: k, all: row.iter().map(|d| stage.extents[*d].clone()).collect() };
    let b = Builder::after(*first).ok_or("is in no block")?.at(second.loc());

    // Lifts each element to a partial result.
    let parts = merge::count(*kind);
    let elements = (0..parts).map(|_| whole.empty(b, ty)).collect::<Result<Vec<_>, _>>()?;
    let lifted = lift(b, pair, &elements, loops)?;
    let starts = merge::starts(*kind, b, ty)?;
    let outs = starts
        .iter()
        .map(|v| Ok((fill(b, *v, rows.empty(b, ty)?)?, row.clone())))
        .collect::<Result<Vec<_>>>()?;
    let ins: Vec<(Value, Vec<usize>)> = lifted.into_iter().map(|v| (v, all.clone())).collect();
    let merged = Generic { b, ins: &ins, outs: &outs, reduction: &reduction, merges: true }.build(
        &mut |s, args| {
            let (new, running) = args.split_at(parts);
            merge::merge(*kind, &s, running, new)
        },
    )?;

    // Extracts the first reduction's result.
    let own: Vec<usize> = (0..row.len()).collect();
    let parallel = vec![false; row.len()];
    let with_all = |more: &[(Value, Vec<usize>)]| -> Vec<(Value, Vec<usize>)> {
        merged.iter().map(|v| (*v, own.clone())).chain(more.iter().cloned()).collect()
    };
    let outs = [(rows.empty(b, ty)?, own.clone())];
    let made = Generic { b, ins: &with_all(&[]), outs: &outs, reduction: &parallel, merges: false }
        .build(&mut |s, args| Ok(vec![merge::first(*kind, &s, args)?]))?;
    sum.replace_uses(made[0]);

    // Extracts the second reduction's result, from the shift it subtracts.
    let b = Builder::before(*second).ok_or("is in no block")?;
    let leaves = pair.shift_leaves(&row, sum, made[0])?;
    let more: Vec<(Value, Vec<usize>)> =
        leaves.iter().map(|l| (l.tensor, l.dims.clone())).collect();
    let outs = [(rows.empty(b, ty)?, own.clone())];
    let result =
        Generic { b, ins: &with_all(&more), outs: &outs, reduction: &parallel, merges: false }
            .build(&mut |s, args| {
                let (parts, more) = args.split_at(parts);
                let mut known: HashMap<Value, Value> =
                    leaves.iter().map(|l: &Leaf| l.value).zip(more.iter().copied()).collect();
                let c = copied(s.b, pair.shift.0, pair.shift.1, &mut known)?;
                Ok(vec![merge::second(*kind, &s, parts, c)?])
            })?;
    second.result(0).replace_uses(result[0]);
    let read: Vec<Op> = second.operands().into_iter().filter_map(Value::def).collect();
    second.erase();
    first.erase();
    // Elementwise producers of the second reduction sink to their remaining readers.
    read.into_iter().filter(|e| elementwise(*e)).try_for_each(|e| sink(e, loops))
}

/// Creates an elementwise generic over the first reduction's inputs that lifts each element to a
/// partial result.
fn lift(b: Builder, pair: &Pair, elements: &[Value], loops: usize) -> Result<Vec<Value>> {
    let first = pair.first;
    let ins = first.operand_count() - 1;
    let identity = Attr::projection(b.ctx, loops, &(0..loops).collect::<Vec<_>>())?;
    let mut maps = first.attr("indexing_maps").and_then(|a| a.as_array()).ok_or("has no maps")?;
    maps.truncate(ins);
    maps.resize(ins + elements.len(), identity);
    let iterators = vec![IteratorType::Parallel; loops];
    let operands: Vec<Value> =
        first.operands().into_iter().take(ins).chain(elements.iter().copied()).collect();
    let types = operands
        .iter()
        .map(|t| t.ty().element().ok_or("has an operand that is no tensor"))
        .collect::<Result<Vec<_>, _>>()?;
    let results: Vec<Type> = elements.iter().map(|v| v.ty()).collect();
    let old = matches::block(first).ok_or("has no body")?;
    let mut body = |b: Builder, args: Vec<Value>| {
        let mut known: HashMap<Value, Value> =
            old.args().into_iter().zip(args.iter().copied()).take(ins).collect();
        let x = copied(b, first, pair.element, &mut known)?;
        let values = merge::element(pair.kind, b, x)?;
        linalg::yield_(b, &values)
    };
    let ((inputs, outputs), maps) = (operands.split_at(ins), Attr::array(b.ctx, &maps));
    let body: RegionBody<'_> = (&types, &mut body);
    Ok(linalg::generic(b, inputs, outputs, maps, &iterators, &results, body)?.results())
}

fn fill(b: Builder, scalar: Value, out: Value) -> Result<Value> {
    let mut body = |b: Builder, args: Vec<Value>| linalg::yield_(b, &[args[0]]);
    let types = [scalar.ty(), scalar.ty()];
    let filled = linalg::fill(b, &[scalar], &[out], &[out.ty()], (&types, &mut body))?;
    Ok(filled.result(0))
}

/// Sinks an elementwise generic with this many loops to its first reader, so that both form one
/// nest; erases it if it has none.
fn sink(op: Op, loops: usize) -> Result<()> {
    if matches::block(op).is_none() || matches::parallel(op).len() != loops {
        return Ok(());
    }
    let users: Vec<Op> = op.result(0).uses().into_iter().map(|(u, _)| u).collect();
    let Some(all) = op.block().map(Block::ops) else { return Ok(()) };
    let Some(next) = all.into_iter().find(|o| users.contains(o)) else {
        op.erase();
        return Ok(());
    };
    let copy = Builder::before(next).ok_or("is in no block")?.clone_op(op, &|v| v)?;
    op.result(0).replace_uses(copy.result(0));
    op.erase();
    Ok(())
}
