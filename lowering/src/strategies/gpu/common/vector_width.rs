//! Fast dimension (coalescing) and vector width of a nest's accesses.
use crate::{
    analysis::{Access, Body, Kernel, LinearExpr, Nest, NestPlan, Poly, Stage},
    emit::body::backward_slice,
};
use kiln_dialects::ir::*;

/// All memory accesses of a nest.
fn accesses<'a>(
    k: &'a Kernel,
    plan: &'a NestPlan,
    nest: &'a Nest,
) -> impl Iterator<Item = (&'a Access, bool)> {
    let real = |a: &&Access| !plan.forwarded.get(a.buffer).copied().unwrap_or(false);
    let stages = || nest.all().filter_map(|s| k.stages.get(s));
    let reads = stages().flat_map(|s| s.reads()).filter(real).map(|a| (a, false));
    reads
        .chain(stages().flat_map(|s| &s.outputs).map(|o| &o.access).filter(real).map(|a| (a, true)))
}

/// The dimension of `of` along which most accesses are contiguous; the last one on a tie.
pub fn fast_dim(k: &Kernel, plan: &NestPlan, nest: &Nest, of: &[usize]) -> Option<usize> {
    let cost = |d: usize| -> i64 {
        let step = |a: &Access| match a.at.coefficient(d).known() {
            _ if a.at.in_division(d) => 6,
            Some(0) => 1,
            Some(1) => 0,
            _ => 8,
        };
        let short = match nest.extents.get(d).and_then(Poly::known) {
            Some(n) if n < 2 => 100,
            Some(n) if n < 32 => 4,
            _ => 0,
        };
        short
            + accesses(k, plan, nest)
                .map(|(a, write)| step(a) * if write { 2 } else { 1 })
                .sum::<i64>()
    };
    of.iter().rev().copied().min_by_key(|d| cost(*d))
}

/// Vector width along a dimension, at most 16 bytes. It is a power of two, so that every access
/// that is contiguous there is aligned to its size.
pub fn width(k: &Kernel, plan: &NestPlan, nest: &Nest, d: usize) -> usize {
    of_bytes(k, plan, nest, d, None, |all| all.max())
}

/// The vector width for the narrowest element type: wider elements take several accesses. `but`: a
/// buffer to ignore.
pub fn narrow_width(
    k: &Kernel,
    plan: &NestPlan,
    nest: &Nest,
    d: usize,
    but: Option<usize>,
) -> usize {
    of_bytes(k, plan, nest, d, but, |all| all.min())
}

fn of_bytes(
    k: &Kernel,
    plan: &NestPlan,
    nest: &Nest,
    d: usize,
    but: Option<usize>,
    choose: impl Fn(&mut dyn Iterator<Item = usize>) -> Option<usize>,
) -> usize {
    let stages = || nest.all().filter_map(|s| k.stages.get(s));
    let Some(extracted) = stages().map(|s| extracts(k, s, d)).collect::<Option<Vec<_>>>() else {
        return 1;
    };
    let direct = accesses(k, plan, nest).map(|(a, _)| a).filter(|a| Some(a.buffer) != but);
    let all: Vec<&Access> = direct.chain(extracted.iter().flatten()).collect();
    let padded = all.iter().any(|a| k.pads.contains_key(&a.buffer));
    let mut sizes = all.iter().filter(|a| contiguous(a, d)).map(|a| bytes(k, a));
    match choose(&mut sizes).filter(|_| nest.split.is_none() && !padded) {
        Some(size) => max_width(d, &all, size),
        None => 1,
    }
}

/// What a stage's body loads by `tensor.extract`, with a loop that there is not in place of each
/// index that is computed. `None`: a computed index depends on loop `d`, or the elements along it
/// are not contiguous.
fn extracts(k: &Kernel, s: &Stage, d: usize) -> Option<Vec<Access>> {
    let Body::Block(block) = s.body else { return s.captured.is_empty().then(Vec::new) };
    let loop_of = |op: Op| s.dims.get(op.dyn_cast::<linalg::Index>()?.dim()? as usize);
    let depends = |v: Value| {
        backward_slice(block, v).into_iter().any(|v| match (v.block_arg(), v.def()) {
            (Some((_, i)), _) => s.inputs.get(i).is_none_or(|a| a.at.uses(d)),
            (_, Some(op)) if op.isa::<linalg::Index>() => loop_of(op).is_none_or(|e| e.uses(d)),
            _ => false,
        })
    };
    let extract = |op: TypedOp<tensor::Extract>| {
        let view = k.views.get(&op.tensor())?;
        let mut at = LinearExpr::fixed(view.offset.clone());
        for (i, (index, stride)) in op.indices().into_iter().zip(&view.strides).enumerate() {
            at = at.plus(&match index.def().and_then(loop_of) {
                Some(own) => own.times(stride),
                None if depends(index) => return None,
                None => LinearExpr::dim(usize::MAX - i).times(stride),
            });
        }
        let access = Access { buffer: view.buffer, at };
        (!access.at.uses(d) || contiguous(&access, d)).then_some(access)
    };
    block.ops().into_iter().filter_map(|op| op.dyn_cast::<tensor::Extract>()).map(extract).collect()
}

/// Bytes of an element.
pub fn bytes(k: &Kernel, a: &Access) -> usize {
    k.buffers.get(a.buffer).and_then(|b| b.element.dtype().ok()).map_or(16, |t| t.byte_size())
}

fn contiguous(a: &Access, d: usize) -> bool {
    a.at.coefficient(d).known() == Some(1) && !a.at.in_division(d)
}

/// Vector width of these accesses along a dimension, at most 16 bytes of any, `others` included,
/// which are accessed in another place (shared memory).
pub fn aligned_width(k: &Kernel, d: usize, all: &[&Access], others: &[&Access]) -> usize {
    let beside = all.iter().filter(|a| contiguous(a, d)).chain(others);
    max_width(d, all, beside.map(|a| bytes(k, a)).max().unwrap_or(16))
}

/// Elements of `size` bytes in 16 bytes, or fewer where contiguous accesses are not aligned to
/// that.
fn max_width(d: usize, all: &[&Access], size: usize) -> usize {
    let multiple = |p: &Poly, w: usize| p.multiple_of(w as i64);
    let aligned = |a: &&Access, w: usize| {
        let dims = a.at.dims.iter().all(|(e, p)| *e == d || multiple(p, w));
        dims && multiple(&a.at.constant, w) && a.at.divisions.iter().all(|(_, p)| multiple(p, w))
    };
    let mut w = (16 / size.max(1)).max(1);
    while w > 1 && !all.iter().filter(|a| contiguous(a, d)).all(|a| aligned(a, w)) {
        w /= 2;
    }
    w
}
