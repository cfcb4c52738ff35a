//! Buffer assignment of intermediates: none, scratch of one row, the result buffer that later
//! replaces them, or rematerialisation.
use crate::analysis::*;

/// Most bytes of scratch on a thread's stack.
pub const SCRATCH: i64 = 64 << 10;

impl Kernel {
    /// The number of elements of a buffer that one row spans.
    pub fn span(&self, buffer: usize, rows: usize) -> Option<i64> {
        let mut most = 1;
        for s in &self.stages {
            for o in s.outputs.iter().filter(|o| o.access.buffer == buffer) {
                let mut span = o.access.at.constant.plus(&Poly::number(1));
                for (d, p) in o.access.at.dims.range(rows..) {
                    span = span.plus(&p.times(&s.extents[*d].plus(&Poly::number(-1))));
                }
                most = most.max(span.known()?);
            }
        }
        Some(most)
    }
    fn bytes(&self, buffer: usize, rows: usize) -> Option<i64> {
        let size = self.buffers.get(buffer)?.element.dtype().ok()?.byte_size() as i64;
        self.span(buffer, rows)?.checked_mul(size)
    }
}

/// What the stages of a nest write.
pub(super) fn writers<'a>(k: &'a Kernel, nest: &'a Nest) -> impl Iterator<Item = &'a Output> {
    nest.all().flat_map(|s| &k.stages[s].outputs)
}

/// Whether only stages of the nest that writes a buffer read it.
pub(super) fn is_forwarded(k: &Kernel, nests: &[Nest], b: usize) -> bool {
    nests.iter().all(|n| {
        let reads = n.all().any(|s| k.stages[s].reads_buffer(b));
        !reads || writers(k, n).any(|o| o.access.buffer == b)
    })
}

/// What is tried first for an intermediate that does not stay in scratch.
#[derive(Clone, Copy)]
pub enum FirstChoice {
    /// The buffer of a result: nothing is computed again.
    Share,
    /// Rematerialisation: no result's buffer is taken from what an intermediate is computed of.
    Rematerialise,
}

/// The intermediates that need memory.
fn kept(k: &Kernel, plan: &NestPlan) -> Vec<usize> {
    let temporary = |b: &usize| k.buffers[*b].role == Role::Temporary;
    (0..k.buffers.len()).filter(|b| temporary(b) && !plan.forwarded[*b]).collect()
}

/// Whether the intermediates that need memory are of known size, and fit `most` bytes in total.
pub fn fits_scratch(k: &Kernel, plan: &NestPlan, most: i64) -> bool {
    let total =
        kept(k, plan).into_iter().try_fold(0i64, |sum, b| sum.checked_add(k.bytes(b, plan.rows)?));
    total.is_some_and(|t| t <= most)
}

/// Moves intermediates out of scratch until the rest fits `most` bytes in total. Returns whether it
/// does.
pub fn fit_scratch(k: &mut Kernel, plan: &mut NestPlan, most: i64, choice: FirstChoice) -> bool {
    let mut taken = vec![false; k.buffers.len()];
    // Each round removes one intermediate from memory, but may add its sources.
    for _ in 0..4 * k.stages.len() {
        if fits_scratch(k, plan, most) {
            return true;
        }
        let mut order: Vec<(i64, usize)> = kept(k, plan)
            .into_iter()
            .map(|b| (k.bytes(b, plan.rows).unwrap_or(i64::MAX), b))
            .collect();
        order.sort_by_key(|(size, b)| (-*size, *b));
        let moved = order.into_iter().any(|(_, b)| match choice {
            FirstChoice::Share => {
                share_result_buffer(k, plan, b, &mut taken) || rematerialise(k, plan, b)
            }
            FirstChoice::Rematerialise => {
                rematerialise(k, plan, b) || share_result_buffer(k, plan, b, &mut taken)
            }
        });
        if !moved {
            return false;
        }
        for b in 0..k.buffers.len() {
            let role = k.buffers[b].role;
            plan.forwarded[b] = role == Role::Temporary && is_forwarded(k, &plan.nests, b);
        }
    }
    fits_scratch(k, plan, most)
}

/// The nests that read a buffer, each with the position of the last stage that does.
fn readers(k: &Kernel, plan: &NestPlan, b: usize) -> Vec<(usize, usize)> {
    let reads = |s: usize| k.stages[s].reads_buffer(b);
    let last = |n: &Nest| n.all().enumerate().filter(|(_, s)| reads(*s)).map(|(i, _)| i).last();
    plan.nests.iter().enumerate().filter_map(|(i, n)| Some((i, last(n)?))).collect()
}

/// The only stage that writes a buffer, if it runs first: nest, position, access.
fn writer(k: &Kernel, plan: &NestPlan, b: usize) -> Option<(usize, usize, Access)> {
    let writes = |s: &usize| k.stages[*s].outputs.iter().any(|o| o.access.buffer == b);
    let mut all = (0..k.stages.len()).filter(writes);
    let (stage, None) = (all.next()?, all.next()) else { return None };
    let (nest, position) = plan
        .nests
        .iter()
        .enumerate()
        .find_map(|(i, n)| Some((i, n.all().position(|s| s == stage)?)))?;
    let out = k.stages[stage].outputs.iter().find(|o| o.access.buffer == b)?;
    Some((nest, position, out.access.clone()))
}

/// Assigns an intermediate to the buffer of a result of the same shape that is written later, if
/// each element's last read is where it is overwritten.
fn share_result_buffer(k: &mut Kernel, plan: &NestPlan, b: usize, taken: &mut [bool]) -> bool {
    let Some((first, _, mine)) = writer(k, plan, b) else { return false };
    let uses = readers(k, plan, b);
    let place = (0..k.buffers.len()).find(|o| {
        let fits = matches!(k.buffers[*o].role, Role::Output(_))
            && !taken[*o]
            && k.buffers[*o].element == k.buffers[b].element;
        let Some((nest, at, theirs)) = writer(k, plan, *o).filter(|_| fits) else { return false };
        let in_time = uses.iter().all(|(n, i)| *n < nest || (*n == nest && *i <= at));
        let alone = first < nest && readers(k, plan, *o).iter().all(|(n, _)| *n >= nest);
        let same = k
            .stages
            .iter()
            .flat_map(|s| s.reads())
            .filter(|r| r.buffer == b)
            .all(|r| r.at == theirs.at);
        in_time
            && alone
            && same
            && theirs.at == mine.at
            && !k.stages.iter().any(|s| s.captured.contains(&b))
    });
    let Some(place) = place else { return false };
    taken[place] = true;
    for s in &mut k.stages {
        s.all_accesses().filter(|a| a.buffer == b).for_each(|a| a.buffer = place);
    }
    true
}

/// Rematerialises an intermediate in every nest that reads it.
fn rematerialise(k: &Kernel, plan: &mut NestPlan, b: usize) -> bool {
    let Some((first, position, mine)) = writer(k, plan, b) else { return false };
    let Some(stage) = plan.nests[first].stages.get(position).copied() else { return false };
    let s = &k.stages[stage];
    let uses: Vec<usize> = readers(k, plan, b)
        .into_iter()
        .map(|(n, _)| n)
        .filter(|n| !plan.nests[*n].stages.contains(&stage))
        .collect();
    let possible = !s.outputs.iter().any(|o| o.reduces)
        && k.stages.iter().all(|t| !t.captured.contains(&b))
        && uses.iter().all(|n| {
            let nest = &plan.nests[*n];
            let same = nest
                .all()
                .flat_map(|t| k.stages[t].reads())
                .filter(|r| r.buffer == b)
                .all(|r| *r == mine);
            let early = nest.after.iter().all(|t| k.stages[*t].reads().all(|r| r.buffer != b));
            let free = nest
                .all()
                .flat_map(|t| &k.stages[t].outputs)
                // An iteration reads an element before it overwrites it.
                .all(|o| s.reads().all(|r| r.buffer != o.access.buffer || *r == o.access));
            // No stage behind it has overwritten what it reads when the nest runs.
            let between = plan.nests.iter().take(*n).skip(first + 1).flat_map(Nest::all);
            let holds = between
                .filter(|t| *t > stage)
                .flat_map(|t| &k.stages[t].outputs)
                .all(|o| s.reads().all(|r| r.buffer != o.access.buffer));
            nest.extents == s.extents && same && early && free && holds
        });
    if possible {
        // In program order: it may read what another rematerialised stage computes.
        for n in &uses {
            let stages = &mut plan.nests[*n].stages;
            stages.insert(stages.partition_point(|s| *s < stage), stage);
        }
    }
    possible && !uses.is_empty()
}
