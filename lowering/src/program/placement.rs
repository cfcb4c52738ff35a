//! Where values between kernels are: offsets in the arena, and in the caller's memory while that is
//! dead.
use kiln_dialects::{
    ir::Value,
    sym::{Atom, Dim as SymDim},
};

/// Memory that is live from one launch to another.
pub struct Interval {
    /// Its size.
    pub bytes: SymDim,
    /// The first launch that writes it.
    pub first: i64,
    /// The last launch that reads it.
    pub last: i64,
    /// The argument of the same size that the first launch may overwrite while it reads it.
    pub overwrites: Option<Value>,
}

/// The caller's memory that a call may use in a range of launches.
pub struct Region {
    /// Its size.
    pub bytes: i64,
    /// The first and the last launch of the range.
    pub free: (i64, i64),
    /// Whose memory it is.
    pub memory: Memory,
    /// The interval that the launch behind the range may overwrite while it reads it.
    pub overwritten: Option<usize>,
}

/// Whose memory a [`Region`] is.
#[derive(Clone, Copy, PartialEq)]
pub enum Memory {
    /// A donated argument's.
    Argument(Value),
    /// A result's, as the planner numbers them.
    Result(usize),
}

/// Where an interval is.
#[derive(Clone)]
pub enum Placement {
    /// At an offset in the arena.
    Arena(SymDim),
    /// In a region, at an offset.
    Region(usize, i64),
}

/// Where each interval is, and the arena's size. Static ones of at least `reuse_from` bytes go into
/// regions, if they fit.
pub fn assign(
    intervals: &[Interval],
    regions: &[Region],
    reuse_from: i64,
) -> (Vec<Placement>, SymDim) {
    let known: Option<Vec<i64>> = intervals.iter().map(|p| p.bytes.known()).collect();
    let Some(sizes) = known else {
        let (offsets, total) = assign_symbolic(intervals);
        return (offsets.into_iter().map(Placement::Arena).collect(), total);
    };
    let mut places: Vec<Option<Placement>> = vec![None; intervals.len()];
    let mut order: Vec<usize> =
        (0..intervals.len()).filter(|i| reuse_from > 0 && sizes[*i] >= reuse_from).collect();
    order.sort_by_key(|i| (std::cmp::Reverse(sizes[*i]), intervals[*i].first));
    for i in order {
        let mut fits: Vec<usize> =
            (0..regions.len()).filter(|r| fits(intervals, i, sizes[i], &regions[*r])).collect();
        // The smallest region leaves the greater ones to others.
        fits.sort_by_key(|r| regions[*r].bytes);
        places[i] = fits.into_iter().find_map(|r| {
            let there = |j: usize| match &places[j] {
                Some(Placement::Region(k, offset)) if *k == r => Some(*offset),
                _ => None,
            };
            let offset = lowest(intervals, &sizes, i, &there);
            (offset + sizes[i] <= regions[r].bytes).then_some(Placement::Region(r, offset))
        });
    }
    let rest: Vec<usize> = (0..intervals.len()).filter(|i| places[*i].is_none()).collect();
    let total = assign_static(intervals, &sizes, rest, &mut places);
    (places.into_iter().flatten().collect(), SymDim::Known(total))
}

/// Whether a region is free as long as an interval is live. One whose last reader overwrites it is
/// free from that launch on; what its first writer overwrites may be in it until then.
fn fits(intervals: &[Interval], i: usize, bytes: i64, region: &Region) -> bool {
    let interval = &intervals[i];
    let overwritten = match (interval.overwrites, region.memory) {
        (Some(v), Memory::Argument(own)) => {
            v == own && bytes == region.bytes && interval.first == region.free.0 - 1
        }
        _ => false,
    };
    let written = region.overwritten == Some(i)
        && bytes == region.bytes
        && interval.last == region.free.1 + 1;
    (region.free.0 <= interval.first || overwritten) && (interval.last <= region.free.1 || written)
}

/// The lowest offset that is free during an interval. `offset`: that of another interval in the same
/// memory, if it is placed there.
fn lowest(
    intervals: &[Interval],
    sizes: &[i64],
    i: usize,
    offset: &dyn Fn(usize) -> Option<i64>,
) -> i64 {
    let meets = |j: &usize| {
        intervals[*j].first <= intervals[i].last && intervals[i].first <= intervals[*j].last
    };
    let mut taken: Vec<(i64, i64)> = (0..intervals.len())
        .filter(meets)
        .filter_map(|j| offset(j).map(|at| (at, at + sizes[j])))
        .collect();
    taken.sort_unstable();
    let mut at = 0;
    for (from, to) in taken {
        if at + sizes[i] <= from {
            break;
        }
        at = at.max(to);
    }
    at
}

/// Places intervals in the arena, the largest first; returns its size.
fn assign_static(
    intervals: &[Interval],
    sizes: &[i64],
    mut order: Vec<usize>,
    places: &mut [Option<Placement>],
) -> i64 {
    order.sort_by_key(|i| (std::cmp::Reverse(sizes[*i]), intervals[*i].first));
    let mut total = 0;
    for i in order {
        let there = |j: usize| match &places[j] {
            Some(Placement::Arena(offset)) => offset.known(),
            _ => None,
        };
        let at = lowest(intervals, sizes, i, &there);
        places[i] = Some(Placement::Arena(SymDim::Known(at)));
        total = total.max(at + sizes[i]);
    }
    total
}

fn assign_symbolic(slots: &[Interval]) -> (Vec<SymDim>, SymDim) {
    // Allocated memory: size, and the launch after which it is free.
    let mut intervals: Vec<(SymDim, i64)> = vec![];
    let mut interval_of = vec![];
    for slot in slots {
        let size = &slot.bytes;
        let free = |p: &(SymDim, i64)| p.1 < slot.first;
        let found = intervals.iter().position(|p| free(p) && p.0 == *size);
        let found = found.or_else(|| {
            intervals.iter().position(|p| free(p) && (at_most(size, &p.0) || at_most(&p.0, size)))
        });
        let i = found.unwrap_or_else(|| {
            intervals.push((size.clone(), -1));
            intervals.len() - 1
        });
        if at_most(&intervals[i].0, size) {
            intervals[i].0 = size.clone();
        }
        intervals[i].1 = slot.last;
        interval_of.push(i);
    }
    let mut starts = vec![SymDim::Known(0)];
    for (size, _) in &intervals {
        starts.push(starts[starts.len() - 1].add(size));
    }
    let total = starts[intervals.len()].clone();
    (interval_of.into_iter().map(|i| starts[i].clone()).collect(), total)
}

/// Whether `a <= b` for all non-negative values of the symbols.
fn at_most(a: &SymDim, b: &SymDim) -> bool {
    match b.sub(a) {
        SymDim::Known(n) => n >= 0,
        SymDim::Unknown => false,
        difference => difference.bounds(&|_| (Some(0), None)).0.is_some_and(|low| low >= 0),
    }
}

/// A size rounded up to an alignment.
pub fn aligned(d: &SymDim, to: i64) -> SymDim {
    let to = SymDim::Known(to);
    let exact = d.floordiv(&to);
    let whole = exact
        .atoms()
        .iter()
        .all(|a| !matches!(a, Atom::Op(kiln_dialects::ops::SymKind::Floordiv, _)));
    match d.known() {
        None if whole && exact != SymDim::Unknown => d.clone(),
        _ => d.add(&to).add(&SymDim::Known(-1)).floordiv(&to).mul(&to),
    }
}
