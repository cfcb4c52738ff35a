//! Rows that a group of threads can keep in its registers from the first stage of a kernel to the
//! last.
pub(crate) mod emit;

use crate::{
    analysis::{Access, Kernel, Nest, Plan, Role},
    strategies::{
        cpu::choose::Schedule,
        gpu::{
            choose::{combine, make},
            common::vector_width::narrow_width,
        },
    },
    target::launch::WARP,
};
use std::collections::BTreeSet;

/// Most bytes of a row in the registers of a block: half of what there is.
const MOST: usize = 128 << 10;
/// Bytes of a row that a thread keeps, if there are enough threads for that.
const EACH: usize = 128;
/// Threads of a block of small groups.
const BLOCK: usize = 128;
/// Most threads of a group.
const THREADS: usize = 1024;

/// Intermediates are values in registers: none has memory.
pub fn hold(k: &Kernel, plan: &mut Plan) {
    for (passed, buffer) in plan.passed.iter_mut().zip(&k.buffers) {
        *passed |= buffer.role == Role::Temporary;
    }
}

/// The length of a row, if every nest goes through rows of it element by element, or has one
/// iteration per row, and nothing is read that another element of the row writes.
pub fn length(k: &Kernel, plan: &Plan) -> Option<usize> {
    let d = plan.rows;
    if !plan.dependent
        || plan
            .nests
            .iter()
            .any(|n| n.split.is_some() || n.extents.len() < d || n.extents.len() > d + 1)
    {
        return None;
    }
    let mut lengths = plan.nests.iter().filter_map(|n| n.extents.get(d)).map(|e| e.known());
    let length = lengths.next()?.filter(|n| *n > 0)?;
    let same = lengths.all(|n| n == Some(length));
    (same && plan.nests.iter().all(|n| combine(k, n)) && in_place(k)).then_some(length as usize)
}

/// Whether what is read of what the kernel itself writes is the element that the same iteration
/// has.
fn in_place(k: &Kernel) -> bool {
    let written: Vec<&Access> =
        k.stages.iter().flat_map(|s| &s.outputs).map(|o| &o.access).collect();
    k.stages.iter().all(|s| {
        let read = s.reads().all(|r| written.iter().all(|w| w.buffer != r.buffer || *w == r));
        read && s.captured.iter().all(|b| written.iter().all(|w| w.buffer != *b))
    })
}

/// Bytes of an element's registers across the barrier where most are in use: what was read or
/// computed before it and is read after it.
fn live(k: &Kernel, plan: &Plan) -> usize {
    let whole = |a: &&Access| a.at.uses(plan.rows);
    let stages = |nests: &'_ [Nest]| {
        nests.iter().flat_map(Nest::all).filter_map(|s| k.stages.get(s)).collect::<Vec<_>>()
    };
    let at = |cut: usize| -> usize {
        let (before, after) = plan.nests.split_at(cut);
        let (before, after) = (stages(before), stages(after));
        let known: BTreeSet<&Access> = before
            .iter()
            .flat_map(|s| s.reads().chain(s.outputs.iter().map(|o| &o.access)))
            .filter(whole)
            .collect();
        let read: BTreeSet<&Access> = after.iter().flat_map(|s| s.reads()).filter(whole).collect();
        // 16-bit floats are kept as what they are computed with.
        let bytes = |a: &&&Access| {
            k.buffers
                .get(a.buffer)
                .and_then(|b| b.element.dtype().ok())
                .map_or(8, |t| t.byte_size().max(4))
        };
        known.intersection(&read).map(|a| bytes(&a)).sum()
    };
    (1..plan.nests.len()).map(at).max().unwrap_or(4).max(4)
}

/// The most elements that one access of a nest takes, where rows begin at a multiple of that.
pub fn lanes(k: &Kernel, plan: &Plan, length: usize) -> usize {
    let wide = plan
        .nests
        .iter()
        .filter(|n| n.extents.len() > plan.rows)
        .map(|n| narrow_width(k, plan, n, plan.rows, None));
    // Of bytes, such as masks, half an access is enough.
    let mut lanes = wide.min().unwrap_or(1).min(8);
    while !length.is_multiple_of(lanes) {
        lanes /= 2;
    }
    lanes
}

/// How many blocks a multiprocessor should hold: while the warps of some wait for each other, those
/// of others read.
pub fn resident(schedule: &Schedule, threads: usize) -> usize {
    if schedule.get("group") > WARP { (THREADS / threads).max(1) } else { 1 }
}

/// The schedule, if registers can hold the rows.
pub fn choose(k: &Kernel, plan: &Plan) -> Option<Schedule> {
    let (length, live) = (length(k, plan)?, live(k, plan));
    if length.checked_mul(live)? > MOST {
        return None;
    }
    let lanes = lanes(k, plan, length);
    let vectors = length.div_ceil(lanes);
    let most = (EACH / (lanes * live)).max(1);
    // Short rows are a part of a warp each; one warp takes as much as it can, since it needs no
    // barrier.
    let group = if vectors <= WARP * most {
        vectors.next_power_of_two().min(WARP)
    } else {
        vectors.div_ceil(most).next_power_of_two().min(THREADS)
    };
    let (group, pieces) = (group as i64, vectors.div_ceil(group) as i64);
    make(
        "registers",
        &[
            ("group", group),
            ("groups", (BLOCK as i64 / group).max(1)),
            ("pieces", pieces),
            ("vector", lanes as i64),
        ],
    )
    .into()
}
