//! The strategy of a kernel and its sizes.
use super::{Roles, contraction, fast_dim, wgmma, width};
use crate::{
    gpu::{SHARED, WARP},
    host::schedule::Schedule,
    kernel::{Kernel, Nest, Plan, Poly, Role},
};
use kiln_dialects::ir::walk;

/// Elements that a thread of a group has at least, if there are as many.
const EACH: i64 = 4;
/// Threads of a block of small groups.
const BLOCK: i64 = 128;
/// From here on a matmul's tiles are 128 by 128.
const LARGE: i64 = 1024;

pub fn make(strategy: &str, parameters: &[(&str, i64)]) -> Schedule {
    Schedule { strategy: strategy.into(), parameters: parameters.iter().map(|(n, v)| (n.to_string(), *v)).collect() }
}

fn size(nest: &Nest, dims: &[usize]) -> Option<i64> {
    Poly::product(dims.iter().filter_map(|d| nest.extents.get(*d))).known()
}

fn dims(nest: &Nest, from: usize, reduction: bool) -> Vec<usize> {
    (from..nest.extents.len()).filter(|d| nest.reduction[*d] == reduction).collect()
}

/// The schedule of a kernel.
/// `wgmma`: whether the chip has those instructions.
pub fn choose(k: &Kernel, plan: &Plan, threads: i64, wgmma: bool) -> Schedule {
    if plan.dependent {
        let work = |n: &Nest| Poly::product(n.extents.iter().skip(plan.rows)).known();
        let work = plan.nests.iter().map(work).try_fold(1, |most, n| Some(most.max(n?)));
        return groups(k, plan, "rows", work.unwrap_or(1024));
    }
    if let Some(schedule) = contraction(k, plan).and_then(|r| contract(k, plan, &r)) {
        let product = if wgmma { wgmma::product(k, plan) } else { None };
        return product.and_then(|p| Some(wgmma::choose(plan.nests.first()?, &p))).unwrap_or(schedule);
    }
    if let Some(work) = plan.nests.iter().map(|n| together(k, plan, n)).try_fold(0, |most: i64, n| Some(most.max(n?))) {
        return groups(k, plan, "reduce", work);
    }
    let vector = |n: &Nest| {
        let d = fast_dim(k, plan, n, &dims(n, 0, false))?;
        // Few elements are spread over many threads.
        let few = size(n, &dims(n, 0, false)).is_some_and(|s| s < 1 << 16);
        Some(if few || n.reduction.contains(&true) { 1 } else { width(k, plan, n, d) })
    };
    let vector = plan.nests.iter().filter_map(vector).max().unwrap_or(1);
    make("loops", &[("threads", threads), ("vector", vector as i64)])
}

/// Groups of threads that share so much work.
fn groups(k: &Kernel, plan: &Plan, strategy: &str, work: i64) -> Schedule {
    let group = (work / EACH).clamp(WARP as i64, 1024) as u64;
    let group = if group.is_power_of_two() { group } else { group.next_power_of_two() / 2 } as i64;
    let scratch: i64 = (0..k.buffers.len())
        .filter(|b| k.buffers[*b].role == Role::Temporary && !plan.passed[*b])
        .map(|b| (k.span(b, plan.rows).unwrap_or(0) + 15) / 16 * 16 * k.buffers[b].element.dtype().map_or(8, |d| d.byte_size() as i64))
        .sum();
    let mut groups = (BLOCK / group).max(1);
    while groups > 1 && groups * scratch > SHARED {
        groups /= 2;
    }
    let vector = |n: &Nest| {
        let free: Vec<usize> = (plan.rows..n.extents.len()).collect();
        fast_dim(k, plan, n, &free).map(|d| width(k, plan, n, d))
    };
    let vector = plan.nests.iter().filter_map(vector).max().unwrap_or(1);
    make(strategy, &[("group", group), ("groups", groups), ("vector", vector as i64)])
}

/// What each result of a nest takes, if it is worth a group of threads: partial results combine, and what is summed is contiguous or long.
fn together(k: &Kernel, plan: &Plan, nest: &Nest) -> Option<i64> {
    let (free, depth) = (dims(nest, 0, false), dims(nest, 0, true));
    let parts = nest.stages.iter().filter_map(|s| k.stages.get(*s)).flat_map(|s| &s.outputs).filter(|o| o.reduces).all(|o| {
        let identity = o.combine.as_ref().and_then(|c| c.identity(c.op.result(0).ty().dtype().ok()?));
        identity.is_some()
    });
    let work = size(nest, &depth).unwrap_or(1024);
    let all: Vec<usize> = (0..nest.extents.len()).collect();
    let along = fast_dim(k, plan, nest, &all).is_some_and(|d| nest.reduction[d]);
    let few = size(nest, &free).is_some_and(|n| n < 2048 && work >= 256);
    (!depth.is_empty() && parts && work >= 32 && (along || few) && nest.split.is_none()).then_some(work)
}

/// Tiles of a contraction; none if there are too few rows or columns for one.
fn contract(k: &Kernel, plan: &Plan, r: &Roles) -> Option<Schedule> {
    let nest = plan.nests.first()?;
    let (m, n) = (size(nest, &r.rows), size(nest, &r.columns));
    if m.is_some_and(|m| m < 8) || n.is_some_and(|n| n < 8) {
        return None;
    }
    let wide = k.stages.get(r.stage)?.outputs.first()?.combine.as_ref()?.op.result(0).ty().dtype().ok()?.byte_size() > 4;
    let after: usize = nest.after.iter().filter_map(|s| k.stages.get(*s)).map(|s| walk(s.op).len()).sum();
    let large = m.is_some_and(|m| m >= LARGE) && n.is_some_and(|n| n >= LARGE) && !wide && after < 24;
    let (tile, each) = if large { (128, 8) } else { (64, 4) };
    Some(make("contract", &[("depth", if wide { 8 } else { 16 }), ("m", tile), ("m_each", each), ("n", tile), ("n_each", each)]))
}
