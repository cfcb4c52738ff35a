//! Worksharing: a thread's share of a kernel as a balanced range of consecutive tasks, from thread
//! number and thread count.
use crate::{
    analysis::{Nest, NestPlan, Poly},
    emit::{
        body::Scope,
        code::Code,
        loops::{FixedDims, Loops, decode},
    },
    strategies::cpu::common::{
        cache_lines::{LINE, in_lines},
        vector::{lanes, vector_dim},
    },
};
use kiln_dialects::ir::*;

/// The calling thread's number and the number of threads.
pub type Threads = (Value, Value);

/// The tasks `[begin, end)` of the calling thread.
pub fn share(c: Code, tasks: Value, (tid, nth): Threads) -> Result<(Value, Value)> {
    let begin = c.div(c.mul(tasks, tid)?, nth)?;
    let next = c.add(tid, c.index(1)?)?;
    Ok((begin, c.div(c.mul(tasks, next)?, nth)?))
}

/// How a nest's iterations are divided among threads and vectors.
#[derive(Clone, Copy, Debug, Default)]
pub struct LoopParams {
    /// Width of a vector register in bits; 0 for scalar code.
    pub bits: usize,
    /// Iterations of the parallel loops that are one task.
    pub block: usize,
    /// Whether results that are cache lines are written past the caches.
    pub nontemporal: bool,
    /// Bytes ahead of a read that is prefetched; 0 for none.
    pub prefetch: usize,
    /// Outer parallel loops that are divided into tasks.
    pub tasks: usize,
    /// Elements of the vector dimension that are one task; 0 for all.
    pub tile: usize,
    /// Vectors of one step of the innermost loop.
    pub unroll: usize,
}

impl LoopParams {
    /// Parameters of nests beside a contraction, or of those in a transpose kernel that transpose
    /// nothing.
    pub fn for_side_nests(bits: usize) -> LoopParams {
        LoopParams { bits, block: 16, tasks: 8, unroll: 4, ..LoopParams::default() }
    }
}

/// Versions a nest emitted by `write` with non-temporal stores. A runtime check of the results'
/// alignment to cache lines selects it.
pub fn with_nontemporal(
    c: Code,
    scope: &Scope<'_>,
    plan: &NestPlan,
    nest: &Nest,
    params: &LoopParams,
    write: &dyn Fn(Code, &Scope<'_>) -> Result<()>,
) -> Result<()> {
    let near = Scope { prefetch: params.prefetch, ..scope.clone() };
    if !params.nontemporal || !in_lines(scope.kernel, plan, nest, params.bits) {
        return write(c, &near);
    }
    let outputs = nest.all().filter_map(|s| scope.kernel.stages.get(s)).flat_map(|s| &s.outputs);
    let mut bits = None;
    for memory in outputs.filter_map(|o| scope.memory.get(o.access.buffer).copied().flatten()) {
        let address = memref::extract_aligned_pointer_as_index(c, memory)?;
        bits = Some(bits.map_or(Ok(address), |bits| arith::ori(c, bits, address))?);
    }
    let bits = bits.ok_or("has a nest that writes nothing")?;
    let off = arith::andi(c, bits, c.index(LINE as i64 - 1)?)?;
    let at_lines = c.compare(CmpIPredicate::Eq, off, c.index(0)?)?;
    let past = Scope { nontemporal: true, ..near.clone() };
    c.if_else(at_lines, &mut |c| write(c, &past), Some(&mut |c| write(c, &near)))
}

fn loops<'a>(
    scope: &'a Scope<'a>,
    plan: &NestPlan,
    nest: &'a Nest,
    params: &LoopParams,
    from: usize,
) -> Loops<'a> {
    let scalar = params.bits == 0;
    let vector = if scalar { None } else { vector_dim(scope.kernel, plan, nest, from) };
    let mut count = if scalar { 1 } else { lanes(scope.kernel, nest, params.bits) };
    if let Some(n) = vector.and_then(|v| nest.extents[v].known()) {
        count = count.min((n.max(1) as usize).next_power_of_two());
    }
    let unroll = match vector.and_then(|v| nest.extents[v].known()) {
        Some(n) => params.unroll.clamp(1, (n as usize / count).max(1)),
        None => params.unroll,
    };
    Loops {
        scope,
        nest,
        vector,
        lanes: if vector.is_some() { count } else { 1 },
        unroll: if vector.is_some() { unroll } else { 1 },
    }
}

/// Worksharing over blocks of rows; each row goes through all nests.
pub fn rows(
    c: Code,
    scope: &Scope<'_>,
    plan: &NestPlan,
    params: &LoopParams,
    threads: Threads,
) -> Result<()> {
    let first = plan.nests.first().ok_or("does nothing")?;
    let sizes: Vec<Value> =
        first.extents[..plan.rows].iter().map(|p| scope.poly(c, p)).collect::<Result<_>>()?;
    let total = scope.poly(c, &Poly::product(&first.extents[..plan.rows]))?;
    blocks(c, total, params.block, threads, &mut |c, i| {
        let row = decode(c, i, &sizes)?;
        for n in &plan.nests {
            let fixed: FixedDims = (0..n.extents.len()).map(|d| row.get(d).copied()).collect();
            loops(scope, plan, n, params, plan.rows).emit(c, &fixed, None)?;
        }
        Ok(())
    })
}

/// The thread's share of `total` iterations, in whole blocks.
pub fn blocks(
    c: Code,
    total: Value,
    block: usize,
    threads: Threads,
    f: &mut dyn FnMut(Code, Value) -> Result<()>,
) -> Result<()> {
    let block = c.index(block as i64)?;
    let (begin, end) = share(c, c.ceil_div(total, block)?, threads)?;
    let (lo, hi) = (c.mul(begin, block)?, c.min(c.mul(end, block)?, total)?);
    c.for_loop(lo, hi, 1, &[], &mut |c, i, _| f(c, i).map(|()| vec![])).map(drop)
}

/// Worksharing over the iterations of an independent nest.
pub fn independent(
    c: Code,
    scope: &Scope<'_>,
    plan: &NestPlan,
    nest: &Nest,
    params: &LoopParams,
    threads: Threads,
) -> Result<()> {
    let loops = loops(scope, plan, nest, params, 0);
    // How many iterations a cut dimension has depends on the one outside of it.
    let parallel = |d: &usize| !nest.reduction[*d] && Some(*d) != loops.vector && !loops.is_cut(*d);
    let count = if params.bits == 0 { 1 } else { params.tasks };
    let outer: Vec<usize> = (0..nest.extents.len()).filter(parallel).take(count).collect();
    let tiled = loops.vector.filter(|v| !nest.reduction[*v] && params.tile > 0);
    let block = params.block;
    let mut sizes: Vec<Value> =
        outer.iter().map(|d| scope.poly(c, &nest.extents[*d])).collect::<Result<_>>()?;
    let product =
        |c: Code, sizes: &[Value]| sizes.iter().try_fold(c.index(1)?, |a, b| c.mul(a, *b));
    let none: FixedDims = vec![None; nest.extents.len()];
    let Some(v) = tiled else {
        return blocks(c, product(c, &sizes)?, block, threads, &mut |c, i| {
            let mut fixed = none.clone();
            outer.iter().zip(decode(c, i, &sizes)?).for_each(|(d, i)| fixed[*d] = Some(i));
            loops.emit(c, &fixed, None)
        });
    };
    let (tile, length) = (c.index(params.tile as i64)?, scope.poly(c, &nest.extents[v])?);
    let tiles = c.ceil_div(length, tile)?;
    if outer.is_empty() {
        // Consecutive tiles are one range.
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
        loops.emit(c, &fixed, Some((lo, c.block_end(lo, tile, length)?)))
    })
}
