//! Grid-stride loops: each item is a vector of contiguous elements along the fast dimension. A
//! thread takes an item, then the one a grid stride further on.
use crate::{
    analysis::{Nest, NestPlan, Poly, Role},
    emit::{
        body::{ForwardedElements, Scope},
        code::Code,
        lanes::{LaneValue, Lanes},
        loops::{FixedDims, Loops, decode},
    },
    strategies::gpu::common::{
        threads,
        vector_width::{fast_dim, width},
    },
};
use kiln_dialects::ir::*;
use std::ops::Range;

/// Grid-stride loop over the items of a nest, shared among all threads of the grid. `threads`: CTA
/// size. `most`: elements per item, of which `unroll` have their loads in flight at once. `ctas`: of
/// one of many nests the CTAs that share it; all loads of an item then come before its stores, which
/// may overwrite what other loads read.
pub fn grid(
    c: Code,
    scope: &Scope<'_>,
    plan: &NestPlan,
    nest: &Nest,
    threads: usize,
    (most, unroll): (usize, usize),
    ctas: Option<Range<usize>>,
) -> Result<()> {
    let loads_first = ctas.is_some();
    let [first, step] = match ctas {
        None => threads::grid_stride(c, c.index(threads as i64)?)?,
        Some(ctas) => threads::grid_stride_of(c, threads, ctas)?,
    };
    let none: FixedDims = vec![None; nest.extents.len()];
    items(
        c,
        scope,
        plan,
        nest,
        &none,
        &ThreadItems { first, step, active: None, max_vector: most, unroll, loads_first },
    )
}

/// The same over all nests but the first `done`, which a strategy has computed: borders of padding,
/// other slices of a concatenation.
pub fn other_nests(
    c: Code,
    scope: &Scope<'_>,
    plan: &NestPlan,
    done: usize,
    threads: usize,
) -> Result<()> {
    plan.nests.iter().skip(done).try_for_each(|n| grid(c, scope, plan, n, threads, (4, 1), None))
}

/// Which items a thread takes.
pub struct ThreadItems {
    /// First item.
    pub first: Value,
    /// Stride to the next item.
    pub step: Value,
    /// Predicate: the thread takes no items unless it holds.
    pub active: Option<Value>,
    /// Most elements per item.
    pub max_vector: usize,
    /// Items whose loads are in flight at once.
    pub unroll: usize,
    /// Whether all loads of an item come before its stores.
    pub loads_first: bool,
}

/// The thread's items over the parallel dimensions that are not fixed. Reductions are loops inside
/// each item.
pub fn items(
    c: Code,
    scope: &Scope<'_>,
    plan: &NestPlan,
    nest: &Nest,
    fixed: &FixedDims,
    share: &ThreadItems,
) -> Result<()> {
    let free: Vec<usize> =
        (0..nest.extents.len()).filter(|d| !nest.reduction[*d] && fixed[*d].is_none()).collect();
    let fast = fast_dim(scope.kernel, plan, nest, &free);
    let lanes = fast.map_or(1, |d| width(scope.kernel, plan, nest, d)).min(share.max_vector.max(1));
    let outer: Vec<usize> = free.into_iter().filter(|d| Some(*d) != fast).collect();
    let mut sizes: Vec<Value> =
        outer.iter().map(|d| scope.poly(c, &nest.extents[*d])).collect::<Result<_>>()?;
    let wide = c.index(lanes as i64)?;
    let length = fast.map(|d| scope.poly(c, &nest.extents[d])).transpose()?;
    if let Some(n) = length {
        sizes.push(c.ceil_div(n, wide)?);
    }
    let mut total = sizes.iter().try_fold(c.index(1)?, |a, b| c.mul(a, *b))?;
    if let Some(active) = share.active {
        total = c.select(active, total, c.index(0)?)?;
    }
    let of = |lanes| Loops { scope, nest, vector: fast, lanes, unroll: 1 };
    let of_lanes = |n: &Poly| (lanes > 1 || n.known().is_some()) && n.multiple_of(lanes as i64);
    let even = fast.is_some_and(|d| of_lanes(&nest.extents[d]));
    let in_flight = share.unroll > 1 || share.loads_first;
    if in_flight && even && nest.split.is_none() && !nest.reduction.contains(&true) {
        let loops = of(lanes);
        return c.for_unrolled_indices(
            share.first,
            total,
            share.step,
            share.unroll,
            &mut |c, all| {
                let mut places = vec![];
                for i in all {
                    let at = decode(c, *i, &sizes)?;
                    let mut fixed = fixed.clone();
                    outer.iter().zip(&at).for_each(|(d, i)| fixed[*d] = Some(*i));
                    let start = c.mul(*at.last().ok_or("has no loops")?, wide)?;
                    places.push(loops.dims(c, &fixed, Some(loops.lane(c, start, 0)?))?);
                }
                unrolled_items(c, scope, nest, &places, lanes)
            },
        );
    }
    c.for_dynamic_step(share.first, total, share.step, &[], &mut |c, i, _| {
        let at = decode(c, i, &sizes)?;
        let mut fixed = fixed.clone();
        outer.iter().zip(&at).for_each(|(d, i)| fixed[*d] = Some(*i));
        let (Some(n), Some(last)) = (length, at.last().filter(|_| fast.is_some())) else {
            of(1).parallel(c, &fixed, None, 1, None, None)?;
            return Ok(vec![]);
        };
        let start = c.mul(*last, wide)?;
        // The last inner part of a split dimension may be shorter and bounds the item.
        let inside = match (&nest.split, fast) {
            (Some((outer, inner, both)), Some(d)) => {
                let index = |e: usize| if e == d { Some(start) } else { fixed[e] };
                let (o, i) = (
                    index(*outer).ok_or("has no outer index")?,
                    index(*inner).ok_or("has no inner index")?,
                );
                let place = c.add(c.mul(o, scope.poly(c, &nest.extents[*inner])?)?, i)?;
                Some(c.less_than(place, scope.poly(c, both)?)?)
            }
            _ => None,
        };
        let whole = lanes == 1 || even;
        let mut wide_item = |c: Code| of(lanes).parallel(c, &fixed, Some(start), 1, None, None);
        if let Some(inside) = inside {
            c.if_else(inside, &mut wide_item, None)?;
        } else if whole {
            wide_item(c)?;
        } else {
            let end = c.add(start, wide)?;
            let mut rest = |c: Code| {
                c.for_dynamic_step(start, n, c.index(1)?, &[], &mut |c, i, _| {
                    of(1).parallel(c, &fixed, Some(i), 1, None, None).map(|()| vec![])
                })
                .map(drop)
            };
            c.if_else(c.compare(CmpIPredicate::Ule, end, n)?, &mut wide_item, Some(&mut rest))?;
        }
        Ok(vec![])
    })?;
    Ok(())
}

/// Items of a nest without reductions, each with as many elements at each position. All loads of
/// the kernel's arguments are issued first.
fn unrolled_items(
    c: Code,
    scope: &Scope<'_>,
    nest: &Nest,
    places: &[Vec<LaneValue>],
    lanes: usize,
) -> Result<()> {
    let each = Lanes { count: lanes, mask: None };
    let input =
        |b: usize| matches!(scope.kernel.buffers.get(b).map(|b| b.role), Some(Role::Input(_)));
    let stages = || nest.stages.iter().filter_map(|s| scope.kernel.stages.get(*s));
    let mut known = vec![ForwardedElements::new(); places.len()];
    for a in stages().flat_map(|s| s.reads()).filter(|a| input(a.buffer)) {
        for (dims, known) in
            places.iter().zip(&mut known).filter(|(_, known)| !known.contains_key(a))
        {
            known.insert(a.clone(), scope.read(c, a, dims, each, &ForwardedElements::new())?);
        }
    }
    places
        .iter()
        .zip(&mut known)
        .try_for_each(|(dims, known)| scope.iteration(c, &nest.stages, dims, each, &mut [], known))
}
