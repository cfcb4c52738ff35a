//! Which part of a kernel a thread computes: balanced blocks of consecutive tasks, from its number
//! and how many there are.
use crate::{
    analysis::{Nest, Plan, Poly},
    emit::{
        body::Scope,
        code::{Code, Made},
        loops::{Fixed, Loops, decode},
    },
    strategies::cpu::{
        attention::emit as attention_emit,
        blocked_gemm::emit as blocked_gemm_emit,
        choose::{Schedule, lanes, vector_dim},
        common::cache_lines::{LINE, in_lines},
        contraction::{emit as contraction_emit, transposition},
    },
};
use kiln_dialects::ir::*;

/// The calling thread's number and the number of threads.
pub type Threads = (Value, Value);

/// The tasks `[begin, end)` of the calling thread.
pub fn share(c: Code, tasks: Value, (tid, nth): Threads) -> Made<(Value, Value)> {
    let begin = c.div(c.mul(tasks, tid)?, nth)?;
    let next = c.add(tid, c.index(1)?)?;
    Ok((begin, c.div(c.mul(tasks, next)?, nth)?))
}

/// Everything that the thread does.
pub fn emit(
    c: Code,
    scope: &Scope<'_>,
    plan: &Plan,
    schedule: &Schedule,
    threads: Threads,
) -> Made<()> {
    match schedule.strategy.as_str() {
        "attention" => attention_emit::emit(c, scope, schedule, threads),
        _ if plan.dependent => rows(c, scope, plan, schedule, threads),
        "blocked" | "dot" | "amx" => plan
            .nests
            .iter()
            .try_for_each(|n| blocked_gemm_emit::emit(c, scope, plan, n, schedule, threads)),
        "contract" => {
            let (first, beside) = plan.nests.split_first().ok_or("does nothing")?;
            contraction_emit::emit(c, scope, plan, first, schedule, threads)?;
            beside
                .iter()
                .try_for_each(|n| independent(c, scope, plan, n, &borders(schedule), threads))
        }
        "transpose" => plan.nests.iter().try_for_each(|n| {
            match transposition(scope.kernel, plan, n, schedule.get("bits")) {
                Some(_) => past_caches(c, scope, plan, n, schedule, &|c, scope| {
                    contraction_emit::emit(c, scope, plan, n, schedule, threads)
                }),
                // The border of what is padded.
                None => independent(c, scope, plan, n, &borders(schedule), threads),
            }
        }),
        _ => plan.nests.iter().try_for_each(|n| {
            past_caches(c, scope, plan, n, schedule, &|c, scope| {
                independent(c, scope, plan, n, schedule, threads)
            })
        }),
    }
}

/// A nest, as `write` does it, that writes past the caches, if it should and its results are at
/// cache lines, as only a call can tell.
fn past_caches(
    c: Code,
    scope: &Scope<'_>,
    plan: &Plan,
    nest: &Nest,
    schedule: &Schedule,
    write: &dyn Fn(Code, &Scope<'_>) -> Made<()>,
) -> Made<()> {
    let near = Scope { prefetch: schedule.get("prefetch"), ..scope.clone() };
    if schedule.get("nontemporal") != 1 || !in_lines(scope.kernel, plan, nest, schedule.get("bits"))
    {
        return write(c, &near);
    }
    let outputs = nest.all().filter_map(|s| scope.kernel.stages.get(s)).flat_map(|s| &s.outputs);
    let mut bits = c.index(0)?;
    for memory in outputs.filter_map(|o| scope.memory.get(o.access.buffer).copied().flatten()) {
        let address = c.op("memref.extract_aligned_pointer_as_index", &[memory], bits.ty(), &[])?;
        bits = c.op("arith.ori", &[bits, address], bits.ty(), &[])?;
    }
    let off = c.op("arith.andi", &[bits, c.index(LINE as i64 - 1)?], bits.ty(), &[])?;
    let at_lines = c.compare(0, off, c.index(0)?)?;
    let past = Scope { nontemporal: true, ..near.clone() };
    c.when(at_lines, &mut |c| write(c, &past), Some(&mut |c| write(c, &near)))
}

/// How nests are written beside a contraction, or that turn nothing around beside some that do.
fn borders(schedule: &Schedule) -> Schedule {
    let bits = ("bits", schedule.get("bits") as i64);
    let parameters = [
        bits,
        ("block", 16),
        ("nontemporal", 0),
        ("prefetch", 0),
        ("tasks", 8),
        ("tile", 0),
        ("unroll", 4),
    ];
    Schedule {
        strategy: "loops".into(),
        parameters: parameters.map(|(n, v)| (n.to_string(), v)).to_vec(),
    }
}

fn loops<'a>(
    scope: &'a Scope<'a>,
    plan: &Plan,
    nest: &'a Nest,
    schedule: &Schedule,
    from: usize,
) -> Loops<'a> {
    let scalar = schedule.strategy == "scalar";
    let vector = if scalar { None } else { vector_dim(scope.kernel, plan, nest, from) };
    let mut count = if scalar { 1 } else { lanes(scope.kernel, nest, schedule.get("bits")) };
    if let Some(n) = vector.and_then(|v| nest.extents[v].known()) {
        count = count.min((n.max(1) as usize).next_power_of_two());
    }
    let unroll = match vector.and_then(|v| nest.extents[v].known()) {
        Some(n) => schedule.get("unroll").clamp(1, (n as usize / count).max(1)),
        None => schedule.get("unroll").max(1),
    };
    Loops {
        scope,
        nest,
        vector,
        lanes: if vector.is_some() { count } else { 1 },
        unroll: if vector.is_some() { unroll } else { 1 },
    }
}

/// Blocks of rows; each row goes through all nests.
fn rows(
    c: Code,
    scope: &Scope<'_>,
    plan: &Plan,
    schedule: &Schedule,
    threads: Threads,
) -> Made<()> {
    let first = plan.nests.first().ok_or("does nothing")?;
    let sizes: Vec<Value> =
        first.extents[..plan.rows].iter().map(|p| scope.poly(c, p)).collect::<Made<_>>()?;
    let total = scope.poly(c, &Poly::product(&first.extents[..plan.rows]))?;
    blocks(c, total, schedule.get("block").max(1), threads, &mut |c, i| {
        let row = decode(c, i, &sizes)?;
        for n in &plan.nests {
            let fixed: Fixed = (0..n.extents.len()).map(|d| row.get(d).copied()).collect();
            loops(scope, plan, n, schedule, plan.rows).emit(c, &fixed, None)?;
        }
        Ok(())
    })
}

/// The thread's part of `total` iterations, in whole blocks.
pub fn blocks(
    c: Code,
    total: Value,
    block: usize,
    threads: Threads,
    f: &mut dyn FnMut(Code, Value) -> Made<()>,
) -> Made<()> {
    let block = c.index(block as i64)?;
    let (begin, end) = share(c, c.ceil_div(total, block)?, threads)?;
    let (lo, hi) = (c.mul(begin, block)?, c.min(c.mul(end, block)?, total)?);
    c.each(lo, hi, 1, &[], &mut |c, i, _| f(c, i).map(|()| vec![])).map(drop)
}

/// A nest whose iterations all threads share.
fn independent(
    c: Code,
    scope: &Scope<'_>,
    plan: &Plan,
    nest: &Nest,
    schedule: &Schedule,
    threads: Threads,
) -> Made<()> {
    let loops = loops(scope, plan, nest, schedule, 0);
    let parallel = |d: &usize| !nest.reduction[*d] && Some(*d) != loops.vector;
    let scalar = schedule.strategy == "scalar";
    let count = if scalar { 1 } else { schedule.get("tasks") };
    let outer: Vec<usize> = (0..nest.extents.len()).filter(parallel).take(count).collect();
    let tiled = loops.vector.filter(|v| !nest.reduction[*v] && schedule.get("tile") > 0);
    let block = schedule.get("block").max(1);
    let mut sizes: Vec<Value> =
        outer.iter().map(|d| scope.poly(c, &nest.extents[*d])).collect::<Made<_>>()?;
    let product =
        |c: Code, sizes: &[Value]| sizes.iter().try_fold(c.index(1)?, |a, b| c.mul(a, *b));
    let none: Fixed = vec![None; nest.extents.len()];
    let Some(v) = tiled else {
        return blocks(c, product(c, &sizes)?, block, threads, &mut |c, i| {
            let mut fixed = none.clone();
            outer.iter().zip(decode(c, i, &sizes)?).for_each(|(d, i)| fixed[*d] = Some(i));
            loops.emit(c, &fixed, None)
        });
    };
    let (tile, length) = (c.index(schedule.get("tile") as i64)?, scope.poly(c, &nest.extents[v])?);
    let tiles = c.ceil_div(length, tile)?;
    if outer.is_empty() {
        // Consecutive tiles are one piece.
        let (begin, end) = share(c, tiles, threads)?;
        let range = (c.mul(begin, tile)?, c.min(c.mul(end, tile)?, length)?);
        return loops.emit(c, &none, Some(range));
    }
    sizes.push(tiles);
    blocks(c, product(c, &sizes)?, block, threads, &mut |c, i| {
        let at = decode(c, i, &sizes)?;
        let mut fixed = none.clone();
        outer.iter().zip(&at).for_each(|(d, i)| fixed[*d] = Some(*i));
        let lo = c.mul(*at.last().ok_or("has no tile")?, tile)?;
        loops.emit(c, &fixed, Some((lo, c.end(lo, tile, length)?)))
    })
}
