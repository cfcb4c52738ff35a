//! Writes at data-dependent indices. Each thread owns a row-major range of the output: it copies
//! the input there, unless that is the output, and applies the updates that fall into its range, in
//! order.
use super::{
    abi::{Call, Operand, Out},
    element::{Combine, Element, each_dtype},
};
use std::ops::Range;

fn strides(shape: &[usize]) -> Vec<usize> {
    let mut all = vec![1; shape.len()];
    for i in (1..shape.len()).rev() {
        all[i - 1] = all[i] * shape[i];
    }
    all
}

/// Row-major offsets of the elements of a box, given its sizes and the tensor's strides.
fn offsets(sizes: &[usize], steps: &[usize]) -> Vec<usize> {
    let mut all = vec![0];
    for (n, step) in sizes.iter().zip(steps) {
        all = all.iter().flat_map(|p| (0..*n).map(move |i| p + i * step)).collect();
    }
    all
}

/// Update destinations: an index tuple gives an offset, and each run of elements is relative to it.
struct Destinations<'a> {
    indices: &'a [Operand],
    /// Size and stride of each indexed dimension.
    dims: Vec<(usize, usize)>,
    /// Offsets of runs, ascending.
    starts: Vec<usize>,
    /// Contiguous elements in a run.
    run: usize,
}

impl Destinations<'_> {
    /// The offset of an index tuple; `None` if it is out of range.
    fn origin(&self, i: usize) -> Option<usize> {
        let mut sum = 0;
        for (index, (size, step)) in self.indices.iter().zip(&self.dims) {
            sum += usize::try_from(index.int(i)?).ok().filter(|at| at < size)? * step;
        }
        Some(sum)
    }
    /// Calls `write` with each contiguous slice of an update inside `part`: offset in the result,
    /// offset in the updates, length.
    fn slices(&self, i: usize, part: &Range<usize>, write: &mut dyn FnMut(usize, usize, usize)) {
        let Some(origin) = self.origin(i) else { return };
        let first = self.starts.partition_point(|s| origin + s + self.run <= part.start);
        for (n, start) in self.starts.iter().enumerate().skip(first) {
            let at = origin + start;
            if at >= part.end {
                break;
            }
            let (from, to) = (at.max(part.start), (at + self.run).min(part.end));
            write(from, (i * self.starts.len() + n) * self.run + (from - at), to - from);
        }
    }
}

/// `kiln.scatter`: input, updates, one index tensor for each indexed dimension; result. Attributes:
/// kind, dimensions.
pub fn scatter(call: &Call) -> Option<()> {
    each_dtype!(call.tensors.first()?.code, E => scattered::<E>(call))
}

fn scattered<E: Element>(call: &Call) -> Option<()> {
    let [input, updates, indices @ .., result] = &call.tensors[..] else { return None };
    let (kind, dims) = call.attributes.split_first()?;
    let shape = &input.shape;
    let dims = dims
        .iter()
        .map(|d| usize::try_from(*d).ok().filter(|d| *d < shape.len()))
        .collect::<Option<Vec<_>>>()?;
    let steps = strides(shape);
    let free: Vec<usize> = (0..shape.len()).filter(|d| !dims.contains(d)).collect();
    // Trailing unindexed dimensions are one contiguous run.
    let outer = free
        .iter()
        .zip((0..shape.len()).skip(shape.len() - free.len()))
        .rposition(|(d, at)| *d != at)
        .map_or(0, |i| i + 1);
    let (sizes, tail): (Vec<usize>, usize) = (
        free[..outer].iter().map(|d| shape[*d]).collect(),
        free[outer..].iter().map(|d| shape[*d]).product(),
    );
    let starts = offsets(&sizes, &free[..outer].iter().map(|d| steps[*d]).collect::<Vec<_>>());
    let dims = dims.into_iter().map(|d| (shape[d], steps[d])).collect();
    let targets = Destinations { indices, dims, starts, run: tail };
    let (w, out) = (updates.read::<E>()?, result.write::<E>()?);
    let (part, count) = (call.share(input.len()), indices.first()?.len());
    // In place the elements are there, and no reference may exist to what is written.
    if !input.is(result) {
        out.copy(part.start, input.read::<E>()?.get(part.clone())?);
    }
    let combine = if *kind == 0 { None } else { Some(Combine::of(kind - 1)?) };
    let Some(combine) = combine else {
        (0..count).for_each(|i| {
            targets.slices(i, &part, &mut |to, from, n| {
                out.copy(to, w.get(from..from + n).unwrap_or(&[]))
            })
        });
        return Some(());
    };
    if E::NARROW {
        // Accumulates in the compute type and rounds once.
        let mine = part.clone().map(|i| out.get(i));
        let mut wide: Vec<E::Wide> = mine.map(|v| Some(v?.widen())).collect::<Option<_>>()?;
        (0..count).for_each(|i| {
            targets.slices(i, &part, &mut |to, from, n| {
                wide.iter_mut()
                    .skip(to - part.start)
                    .zip(w.iter().skip(from).take(n))
                    .for_each(|(a, b)| *a = combine.apply(*a, b.widen()));
            })
        });
        wide.into_iter().enumerate().for_each(|(k, v)| out.set(part.start + k, E::narrow(v)));
        return Some(());
    }
    let add = |out: &Out<E>, to: usize, b: &E| {
        if let Some(a) = out.get(to) {
            out.set(to, E::narrow(combine.apply(a.widen(), b.widen())));
        }
    };
    (0..count).for_each(|i| {
        targets.slices(i, &part, &mut |to, from, n| {
            w.iter().skip(from).take(n).enumerate().for_each(|(k, b)| add(&out, to + k, b))
        })
    });
    Some(())
}

/// `kiln.dynamic_update_slice`: input, update, one start index for each dimension; result.
pub fn dynamic_update_slice(call: &Call) -> Option<()> {
    each_dtype!(call.tensors.first()?.code, E => updated::<E>(call))
}

fn updated<E: Element>(call: &Call) -> Option<()> {
    let [input, update, starts @ .., result] = &call.tensors[..] else { return None };
    let (w, out) = (update.read::<E>()?, result.write::<E>()?);
    let steps = strides(&input.shape);
    let mut origin = 0;
    for (((start, n), whole), step) in
        starts.iter().zip(&update.shape).zip(&input.shape).zip(&steps)
    {
        origin += usize::try_from(start.int(0)?).unwrap_or(0).min(whole.checked_sub(*n)?) * step;
    }
    let part = call.share(input.len());
    if !input.is(result) {
        out.copy(part.start, input.read::<E>()?.get(part.clone())?);
    }
    let rank = update.shape.len();
    let (outer, run) = (rank.saturating_sub(1), update.shape.last().copied().unwrap_or(1));
    let starts = offsets(&update.shape[..outer], &steps[..outer]);
    let rows = Destinations {
        indices: &[],
        dims: vec![],
        starts: starts.into_iter().map(|s| s + origin).collect(),
        run,
    };
    rows.slices(0, &part, &mut |to, from, n| out.copy(to, w.get(from..from + n).unwrap_or(&[])));
    Some(())
}
