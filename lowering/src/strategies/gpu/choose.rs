//! The strategy of a kernel and its sizes.
use crate::{
    analysis::{Kernel, Nest, Plan, Poly, Role, Stage},
    strategies::{
        cpu::choose::Schedule,
        gpu::{
            common::{
                roles::{Roles, contraction},
                vector_width::{fast_dim, narrow_width, width},
            },
            depthwise, mma_gemm, simt_gemm, skinny_gemm, transpose, wgmma_gemm,
        },
    },
    target::launch::{SHARED, WARP},
};
use kiln_dialects::{ir::walk, value::DType};

/// Accesses that a thread has under way at once, if there are as many.
const EACH: i64 = 4;
/// Most threads of a block that reduces, so that a multiprocessor has several.
const REDUCE: i64 = 512;
/// Most threads of a block that sums columns.
const ACROSS: i64 = 256;
/// From so many threads on a card is full without sharing results.
const MANY: i64 = 1 << 16;
/// Threads of a block of small groups.
const BLOCK: i64 = 128;
/// From here on a matmul's tiles are 128 by 128, if there are so many.
const LARGE: i64 = 1024;
/// So many tiles keep most of the card busy.
const FULL: i64 = 3 * wgmma_gemm::tiles::PROCESSORS as i64 / 4;

pub fn make(strategy: &str, parameters: &[(&str, i64)]) -> Schedule {
    Schedule {
        strategy: strategy.into(),
        parameters: parameters.iter().map(|(n, v)| (n.to_string(), *v)).collect(),
    }
}

fn size(nest: &Nest, dims: &[usize]) -> Option<i64> {
    Poly::product(dims.iter().filter_map(|d| nest.extents.get(*d))).known()
}

fn dims(nest: &Nest, from: usize, reduction: bool) -> Vec<usize> {
    (from..nest.extents.len()).filter(|d| nest.reduction[*d] == reduction).collect()
}

/// The schedule of a product on tensor cores, if a kernel is one. `wgmma`: whether the chip has the
/// instructions of Hopper; `tf32`: whether factors of f32 may be rounded.
pub fn product(k: &Kernel, plan: &Plan, nest: &Nest, wgmma: bool, tf32: bool) -> Option<Schedule> {
    let whole = match wgmma_gemm::product(k, plan).filter(|p| tf32 || p.element != DType::F32) {
        Some(p) if wgmma => Some(wgmma_gemm::tiles::choose(nest, &p)),
        _ => None,
    };
    let few = skinny_gemm::product(k, plan).map(|p| skinny_gemm::choose(nest, &p));
    match (whole, few) {
        (Some((whole, time)), Some((few, other))) => Some(if other < time { few } else { whole }),
        (Some((one, _)), None) | (None, Some((one, _))) => Some(one),
        (None, None) => mma_gemm::product(k, plan).map(|p| mma_gemm::choose(nest, &p)),
    }
}

/// The schedule of any other kernel.
pub fn choose(k: &Kernel, plan: &Plan, threads: i64) -> Schedule {
    if plan.dependent {
        let work = |n: &Nest| Poly::product(n.extents.iter().skip(plan.rows)).known();
        let work = plan.nests.iter().map(work).try_fold(1, |most, n| Some(most.max(n?)));
        return groups(k, plan, "rows", work.unwrap_or(1024));
    }
    if let Some(schedule) =
        depthwise::depthwise(k, plan).and_then(|d| depthwise::choose(k, plan, &d))
    {
        return schedule;
    }
    if let (Some(p), Some(nest)) = (simt_gemm::product(k, plan), plan.nests.first()) {
        return simt_gemm::choose(k, nest, &p);
    }
    if let Some(schedule) = contraction(k, plan).and_then(|r| contract(k, plan, &r)) {
        return schedule;
    }
    let work = plan
        .nests
        .iter()
        .map(|n| together(k, plan, n))
        .try_fold(0, |most: i64, n| Some(most.max(n?)));
    if let Some(all) = plan.nests.iter().map(|n| beside(k, plan, n)).collect::<Option<Vec<_>>>()
        && let Some(schedule) = columns(&all)
    {
        return schedule;
    }
    if let Some(work) = work {
        return groups(k, plan, "reduce", work);
    }
    if let Some(schedule) = transpose::choose(k, plan) {
        return schedule;
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

fn below(n: i64) -> i64 {
    let n = n.max(1) as u64;
    (if n.is_power_of_two() { n } else { n.next_power_of_two() / 2 }) as i64
}

/// Groups of threads that share so much work.
fn groups(k: &Kernel, plan: &Plan, strategy: &str, work: i64) -> Schedule {
    let vector = |n: &Nest| {
        let free: Vec<usize> = (plan.rows..n.extents.len()).collect();
        fast_dim(k, plan, n, &free).map(|d| width(k, plan, n, d))
    };
    let vector = plan.nests.iter().filter_map(vector).max().unwrap_or(1) as i64;
    let group = below(work / (EACH * vector)).clamp(WARP as i64, REDUCE);
    let scratch: i64 = (0..k.buffers.len())
        .filter(|b| k.buffers[*b].role == Role::Temporary && !plan.passed[*b])
        .map(|b| {
            (k.span(b, plan.rows).unwrap_or(0) + 15) / 16
                * 16
                * k.buffers[b].element.dtype().map_or(8, |d| d.byte_size() as i64)
        })
        .sum();
    let mut groups = (BLOCK / group).max(1);
    while groups > 1 && groups * scratch > SHARED {
        groups /= 2;
    }
    // Of single elements more, as long as there are so many for each thread.
    let pieces = (EACH * (4 / vector).max(1)).min(work / (group * vector)).max(EACH);
    make(strategy, &[("group", group), ("groups", groups), ("pieces", pieces), ("vector", vector)])
}

/// Results that lie side by side: how many accesses they take, elements of each, how much is
/// summed, bytes of an access of all results.
type Beside = (i64, i64, i64, i64);

fn beside(k: &Kernel, plan: &Plan, nest: &Nest) -> Option<Beside> {
    let (free, depth) = (dims(nest, 0, false), dims(nest, 0, true));
    let fast = fast_dim(k, plan, nest, &free)?;
    if fast_dim(k, plan, nest, &(0..nest.extents.len()).collect::<Vec<_>>()) != Some(fast) {
        return None;
    }
    let mut lanes = narrow_width(k, plan, nest, fast, None) as i64;
    while lanes > 1 && !nest.extents[fast].multiple_of(lanes) {
        lanes /= 2;
    }
    let work = size(nest, &depth).unwrap_or(1024);
    let outputs = nest
        .stages
        .iter()
        .filter_map(|s| k.stages.get(*s))
        .flat_map(|s| &s.outputs)
        .filter(|o| o.reduces);
    let bytes: i64 = outputs
        .map(|o| k.buffers.get(o.access.buffer)?.element.dtype().ok().map(|t| t.byte_size() as i64))
        .sum::<Option<_>>()?;
    (!depth.is_empty() && combine(k, nest) && work >= 64 && nest.split.is_none()).then_some((
        size(nest, &free)? / lanes,
        lanes,
        work,
        lanes * bytes,
    ))
}

/// Threads behind each other, where those beside each other are too few for the card.
fn columns(nests: &[Beside]) -> Option<Schedule> {
    let (items, work) = (nests.iter().map(|n| n.0).max()?, nests.iter().map(|n| n.2).min()?);
    let (lanes, bytes) = (nests.iter().map(|n| n.1).max()?, nests.iter().map(|n| n.3).sum::<i64>());
    let columns = (items.max(1) as u64).next_power_of_two().min(WARP as u64) as i64;
    let parts =
        below(work / EACH).min(below(ACROSS / columns)).min(below(SHARED / (bytes * columns)));
    (items < MANY && columns * parts >= WARP as i64 && parts > 1).then(|| {
        make(
            "columns",
            &[("columns", columns), ("parts", parts), ("pieces", EACH), ("vector", lanes)],
        )
    })
}

/// Whether partial results of all that a nest reduces combine.
pub fn combine(k: &Kernel, nest: &Nest) -> bool {
    nest.stages.iter().filter_map(|s| k.stages.get(*s)).all(Stage::combines)
}

/// What each result of a nest takes, if it is worth a group of threads: partial results combine,
/// and what is summed is contiguous or long.
fn together(k: &Kernel, plan: &Plan, nest: &Nest) -> Option<i64> {
    let (free, depth) = (dims(nest, 0, false), dims(nest, 0, true));
    let work = size(nest, &depth).unwrap_or(1024);
    let all: Vec<usize> = (0..nest.extents.len()).collect();
    let along = fast_dim(k, plan, nest, &all).is_some_and(|d| nest.reduction[d]);
    let few = size(nest, &free).is_some_and(|n| n < 2048 && work >= 256);
    (!depth.is_empty() && combine(k, nest) && work >= 32 && (along || few) && nest.split.is_none())
        .then_some(work)
}

/// Tiles of a contraction; none if there are too few rows or columns for one.
fn contract(k: &Kernel, plan: &Plan, r: &Roles) -> Option<Schedule> {
    let nest = plan.nests.first()?;
    let (m, n) = (size(nest, &r.rows), size(nest, &r.columns));
    if m.is_some_and(|m| m < 8) || n.is_some_and(|n| n < 8) {
        return None;
    }
    let wide = k
        .stages
        .get(r.stage)?
        .outputs
        .first()?
        .combine
        .as_ref()?
        .op
        .result(0)
        .ty()
        .dtype()
        .ok()?
        .byte_size()
        > 4;
    let after: usize =
        nest.after.iter().filter_map(|s| k.stages.get(*s)).map(|s| walk(s.op).len()).sum();
    // Large tiles must be enough for most of the card.
    let up = |n: i64| (n + 127) / 128;
    let tiles = |m: i64, n: i64| {
        up(m).saturating_mul(up(n)).saturating_mul(size(nest, &r.batch).unwrap_or(1).max(1))
    };
    let full = m.zip(n).is_some_and(|(m, n)| m >= LARGE && n >= LARGE && tiles(m, n) >= FULL);
    let large = full && !wide && after < 24;
    let (tile, each) = if large { (128, 8) } else { (64, 4) };
    Some(make(
        "contract",
        &[
            ("depth", if wide { 8 } else { 16 }),
            ("m", tile),
            ("m_each", each),
            ("n", tile),
            ("n_each", each),
        ],
    ))
}
