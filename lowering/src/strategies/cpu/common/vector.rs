//! The vectorised dimension, and the number of lanes.
use crate::analysis::{Kernel, LinearExpr, Nest, NestPlan};
use kiln_dialects::{ir::*, value::DType};

/// Lanes of a vector of `bits`: as many as hold the widest compute type.
pub fn lanes(k: &Kernel, nest: &Nest, bits: usize) -> usize {
    let mut widest = 8;
    let mut see = |t: Type| {
        let t = t.element().unwrap_or(t);
        if let Ok(d) = t.dtype() {
            widest = widest.max(d.byte_size() * 8 * usize::from(d != DType::I1));
        }
    };
    for s in nest.all().filter_map(|s| k.stages.get(s)) {
        s.reads()
            .chain(s.outputs.iter().map(|o| &o.access))
            .filter_map(|a| k.buffers.get(a.buffer))
            .for_each(|b| see(b.element));
        let inner = walk(s.op);
        inner.iter().filter(|o| **o != s.op).flat_map(|o| o.results()).for_each(|r| see(r.ty()));
    }
    (bits / widest).max(1)
}

/// The vectorised dimension: the one along which most accesses are contiguous.
pub fn vector_dim(k: &Kernel, plan: &NestPlan, nest: &Nest, from: usize) -> Option<usize> {
    let cost = |d: usize| -> Option<i64> {
        let extent = nest.extents.get(d)?.known();
        let mut sum = match extent {
            Some(n) if n < 2 => return None,
            Some(n) if n < 4 => 40,
            Some(n) if n < 8 => 6,
            _ => 0,
        };
        let step = |at: &LinearExpr| match at.coefficient(d).known() {
            _ if at.in_division(d) => 12,
            Some(0 | 1) => 0,
            _ => 8,
        };
        for s in nest.all().filter_map(|s| k.stages.get(s)) {
            if nest.reduction[d] {
                if !s.combines() {
                    return None;
                }
                sum += 1;
            }
            let real = |b: usize| !plan.forwarded.get(b).copied().unwrap_or(false);
            sum += s.reads().filter(|a| real(a.buffer)).map(|a| step(&a.at)).sum::<i64>();
            sum += s
                .outputs
                .iter()
                .filter(|o| real(o.access.buffer))
                .map(|o| 2 * step(&o.access.at))
                .sum::<i64>();
        }
        Some(sum)
    };
    (from..nest.extents.len())
        .rev()
        .filter_map(|d| Some((cost(d)?, d)))
        .min_by_key(|(c, _)| *c)
        .map(|(_, d)| d)
}
