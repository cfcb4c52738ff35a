//! Epilogue fusion: stages that take the final values of a reduction run where those are in
//! registers.
use crate::analysis::{buffers::writers, *};

/// Whether the parallel stage `i` can run after the nest's reductions. If so, its iteration space
/// is rewritten to the nest's dimensions.
pub fn follows(k: &mut Kernel, nest: &Nest, i: usize) -> bool {
    let s = &k.stages[i];
    if !nest.reduction.contains(&true) || s.reduction.contains(&true) {
        return false;
    }
    let written: Vec<Access> =
        nest.all().flat_map(|n| &k.stages[n].outputs).map(|o| o.access.clone()).collect();
    let finished: Vec<Access> = nest
        .all()
        .flat_map(|n| &k.stages[n].outputs)
        .filter(|o| o.reduces || !uses_reduction(nest, &o.access.at))
        .map(|o| o.access.clone())
        .collect();
    let conflict = s.outputs.iter().any(|o| written.iter().any(|w| w.buffer == o.access.buffer));
    if conflict || s.captured.iter().any(|b| written.iter().any(|w| w.buffer == *b)) {
        return false;
    }
    let read = s.reads().find_map(|r| {
        finished.iter().find(|w| w.buffer == r.buffer).map(|w| (w.clone(), r.clone()))
    });
    let operand = || Some((finished.first()?.clone(), operand_of_epilogue(k, &finished, i)?));
    let Some((w, r)) = read.or_else(operand) else { return false };
    let Some(map) = matched(nest, s, &w.at, &r.at).or_else(|| walked(nest, s)) else {
        return false;
    };
    let mut new = s.clone();
    new.extents = nest.extents.clone();
    new.reduction = vec![false; nest.extents.len()];
    new.substitute(&nest.extents, &|d| map.get(d).cloned().unwrap_or_default());
    let passed =
        new.reads().all(|r| !written.iter().any(|w| w.buffer == r.buffer) || finished.contains(r));
    if passed {
        k.stages[i] = new;
    }
    passed
}

/// The nest before the last one whose values stage `i` reads, if it shares no buffer with those
/// after it that it or they write. In one of those, it would make that nest depend on this one.
pub fn source(k: &Kernel, nests: &[Nest], i: usize) -> Option<usize> {
    let s = &k.stages[i];
    let written = |s: &Stage, b: usize| s.outputs.iter().any(|o| o.access.buffer == b);
    let reads = |n: &Nest| writers(k, n).any(|o| s.reads_buffer(o.access.buffer));
    let apart = |n: &Nest| {
        n.all().map(|m| &k.stages[m]).all(|m| {
            s.outputs.iter().all(|o| {
                let b = o.access.buffer;
                !m.reads_buffer(b) && !written(m, b)
            })
        })
    };
    let from = nests.iter().rposition(reads).filter(|n| n + 1 < nests.len())?;
    nests[from + 1..].iter().all(apart).then_some(from)
}

/// The result of a stage that reads nothing of the nest, but from which stages compute that read
/// final values of the nest, such as an exponential that two gradients of an epilogue share. It may
/// be a result of the kernel, too.
fn operand_of_epilogue(k: &Kernel, finished: &[Access], i: usize) -> Option<Access> {
    let [o] = &k.stages[i].outputs[..] else { return None };
    let (mut computed, mut meets) = (vec![o.access.buffer], false);
    for s in k.stages.iter().skip(i + 1) {
        if !computed.iter().any(|b| s.reads_buffer(*b)) {
            continue;
        }
        if s.reduction.contains(&true) {
            return None;
        }
        meets |= s.reads().any(|r| finished.iter().any(|w| w.buffer == r.buffer));
        computed.extend(s.outputs.iter().map(|o| o.access.buffer));
    }
    let kept = |b: &usize| matches!(k.buffers[*b].role, Role::Temporary | Role::Output(_));
    (meets && computed.iter().all(kept)).then(|| o.access.clone())
}

fn uses_reduction(nest: &Nest, at: &LinearExpr) -> bool {
    (0..nest.extents.len()).any(|d| nest.reduction[d] && at.uses(d))
}

/// Maps dimensions with equal extents and equal strides onto each other, in any order.
fn matched(
    nest: &Nest,
    s: &Stage,
    written: &LinearExpr,
    read: &LinearExpr,
) -> Option<Vec<LinearExpr>> {
    let one = |e: usize| {
        let c = read.coefficient(e);
        let same = |d: &usize| {
            !nest.reduction[*d]
                && !c.is_zero()
                && written.coefficient(*d) == c
                && nest.extents[*d] == s.extents[e]
        };
        (0..nest.extents.len()).find(same).map(LinearExpr::dim)
    };
    let all: Vec<LinearExpr> = (0..s.extents.len()).map(one).collect::<Option<_>>()?;
    (all.len() == nest.reduction.iter().filter(|r| !**r).count()).then_some(all)
}

/// Expands each dimension of the stage into several of the nest, both in row-major order.
fn walked(nest: &Nest, s: &Stage) -> Option<Vec<LinearExpr>> {
    let mut left: Vec<usize> = (0..nest.extents.len()).filter(|d| !nest.reduction[*d]).collect();
    let mut all = vec![LinearExpr::default(); s.extents.len()];
    for e in (0..s.extents.len()).rev() {
        let mut size = Poly::number(1);
        while size != s.extents[e] {
            let d = left.pop()?;
            all[e] = all[e].plus(&LinearExpr::dim(d).times(&size));
            size = size.times(&nest.extents[d]);
        }
    }
    left.is_empty().then_some(all)
}

/// Results from which on a kernel updates many tensors.
const MANY: usize = 9;

/// Whether a kernel updates many tensors, whose loops share nothing.
pub fn updates_many(k: &Kernel) -> bool {
    k.buffers.iter().filter(|b| matches!(b.role, Role::Output(_))).count() >= MANY
}

/// Whether a stage shares no buffer with a nest but numbers that all iterations read, in a kernel of
/// many updates: these would be one loop with too many live values.
pub fn is_apart(k: &Kernel, nest: &Nest, i: usize) -> bool {
    let written = |s: &Stage| -> Vec<usize> { s.outputs.iter().map(|o| o.access.buffer).collect() };
    let (own, own_results) = (&k.stages[i], written(&k.stages[i]));
    let shares = |s: &Stage| {
        let results = written(s);
        let both = |a: &Access| {
            results.contains(&a.buffer)
                || !a.at.dims.is_empty() && s.reads().any(|b| b.buffer == a.buffer)
        };
        own.reads().any(both) || own_results.iter().any(|b| results.contains(b))
    };
    updates_many(k) && !nest.all().any(|n| shares(&k.stages[n]))
}
