//! Gradients of small max and min pools, without a scatter: each element adds what the windows that
//! chose it give.
use super::rule::Rule;
use crate::decompose::tools::*;
use kiln_dialects::{ir::*, ops::*, value::DType};

/// Most elements of a window whose comparisons are written out.
const MOST_ELEMENTS: i64 = 16;

/// One axis along which windows slide.
#[derive(Clone, Copy)]
struct Axis {
    dim: usize,
    /// Elements, and windows.
    size: i64,
    count: i64,
    window: i64,
    stride: i64,
    dilation: i64,
    low: i64,
}

impl Axis {
    /// How many windows read an element at most.
    fn covering(&self) -> i64 {
        ((self.window - 1) * self.dilation + self.stride) / self.stride
    }

    /// Whether each element is in exactly one window.
    fn is_tiled(&self) -> bool {
        let plain = self.low == 0 && self.dilation == 1 && self.window == self.stride;
        plain && self.size == self.count * self.window
    }
}

/// The gradient of a max or min by its input. Windows slide along `dims`. `None`: sizes along the windows are dynamic, or the
/// windows are large. The first of equal elements has it, but the last NaN, as in PyTorch's pools.
pub(super) fn extremum(
    r: &Rule<'_>,
    o: &ReduceWindow,
    dims: &[i64],
    g: Value,
) -> Result<Option<Value>> {
    let Some(axes) = axes(r, o, dims) else { return Ok(None) };
    if axes.iter().map(|a| a.window).product::<i64>() > MOST_ELEMENTS {
        return Ok(None);
    }
    let m = &r.m;
    let place = chosen(r, o, &axes)?;
    if axes.iter().all(Axis::is_tiled) {
        return tiled(r, o, &axes, place, g).map(Some);
    }
    let (n, rank) = (axes.len(), rank(o.input));
    // [elements along the axes…, windows that read one, along the axes that have several…]
    let several = || axes.iter().map(Axis::covering).filter(|n| *n > 1);
    let shape: Vec<i64> = axes.iter().map(|a| a.size).chain(several()).collect();
    let shape = Size::all(&shape);
    let mut windows = n..shape.len();
    let (mut at, mut own, mut inside): (Vec<Value>, Option<Value>, Option<Value>) =
        (vec![], None, None);
    for (i, a) in axes.iter().enumerate() {
        let element = m.iota(&shape, i)?;
        let (stride, dilation) = (a.stride as f64, a.dilation as f64);
        let mut window = r.formula([element], |[p]| (p + a.low as f64).floor_div(stride))?;
        if a.covering() > 1 {
            let back = m.iota(&shape, windows.next().ok_or("has too few windows")?)?;
            window = m.sub(window, back)?;
        }
        let apart = r.formula([element, window], |[p, w]| p + a.low as f64 - w * stride)?;
        let reads = r.formula([window, apart], |[w, d]| {
            let last = ((a.window - 1) * a.dilation) as f64;
            let within = w.ge(0.0) & w.lt(a.count as f64) & d.le(last);
            within & d.remainder(dilation).eq(0.0)
        })?;
        let step = r.formula([apart], |[d]| d.floor_div(dilation))?;
        own = Some(match own {
            None => step,
            Some(all) => r.formula([all, step], |[all, k]| all * a.window as f64 + k)?,
        });
        inside = Some(match inside {
            None => reads,
            Some(all) => m.binary(BinaryKind::And, all, reads)?,
        });
        at.push(r.formula([window], |[w]| w.max(0.0).min((a.count - 1) as f64))?);
    }
    let own = m.convert(own.ok_or("has no windows")?, DType::I8)?;
    let inside = inside.ok_or("has no windows")?;
    let dims: Vec<i64> = axes.iter().map(|a| a.dim as i64).collect();
    let taken = |input: Value| m.b.add(&Gather { input, indices: at.clone(), dims: dims.clone() });
    let narrow = dtype(g)?;
    // Widened behind the gather, which reads it from memory.
    let (theirs, g) = (taken(place)?, m.convert(taken(g)?, accumulator_type(narrow))?);
    let lead: Vec<i64> = (0..shape.len() as i64).collect();
    let (own, inside) = (m.broadcast_to(own, &lead, theirs)?, m.broadcast_to(inside, &lead, g)?);
    let same = m.compare(CompareKind::Eq, theirs, own)?;
    let shares = m.select(m.binary(BinaryKind::And, same, inside)?, g, m.full_like(g, 0.0)?)?;
    let sums = if lead.len() > n { m.reduce(ReduceKind::Sum, shares, &lead[n..])? } else { shares };
    // [elements along the axes…, others…] in the input's order.
    let order = [dims.clone(), complement(rank, &dims)].concat();
    let mut back = vec![0; rank];
    order.iter().enumerate().for_each(|(i, d)| back[*d as usize] = i as i64);
    m.convert(m.transpose(sums, &back)?, narrow).map(Some)
}

/// The same where windows are tiles of the input: no element is looked up.
fn tiled(r: &Rule<'_>, o: &ReduceWindow, axes: &[Axis], place: Value, g: Value) -> Result<Value> {
    let m = &r.m;
    let input = m.sizes_of(o.input)?;
    // Each axis is one of windows and one of their elements.
    let (mut sizes, mut windows, mut within) = (vec![], vec![], vec![0; input.len()]);
    for (d, size) in input.iter().enumerate() {
        windows.push(sizes.len() as i64);
        match axes.iter().find(|a| a.dim == d) {
            Some(a) => {
                within[d] = sizes.len() as i64 + 1;
                sizes.extend(Size::all(&[a.count, a.window]));
            }
            None => sizes.push(*size),
        }
    }
    let counts: Vec<i64> = axes.iter().map(|a| a.window).collect();
    let places = m.iota(&Size::all(&[counts.iter().product()]), 0)?;
    let own = m.reshape(m.convert(places, DType::I8)?, &Size::all(&counts))?;
    let within: Vec<i64> = axes.iter().map(|a| within[a.dim]).collect();
    let theirs = m.broadcast(place, &windows, &sizes)?;
    let same = m.compare(CompareKind::Eq, theirs, m.broadcast(own, &within, &sizes)?)?;
    let g = m.broadcast(g, &windows, &sizes)?;
    m.reshape(m.select(same, g, m.full_like(g, 0.0)?)?, &input)
}

fn axes(r: &Rule<'_>, o: &ReduceWindow, dims: &[i64]) -> Option<Vec<Axis>> {
    let (sizes, counts) = (o.input.ty().dims(), r.op.result(0).ty().dims());
    let axis = |d: &i64| {
        let dim = *d as usize;
        let (size, count) = (sizes[dim].known()?, counts[dim].known()?);
        (count > 0).then_some(Axis {
            dim,
            size,
            count,
            window: o.window[dim],
            stride: o.strides[dim],
            dilation: o.dilation[dim],
            low: o.pad_low[dim],
        })
    };
    dims.iter().map(axis).collect()
}

/// The place of each window's extremum, counted through the window: a byte, which a forward
/// function may save.
fn chosen(r: &Rule<'_>, o: &ReduceWindow, axes: &[Axis]) -> Result<Value> {
    let m = &r.m;
    let (max, outs) = (o.kind == CumulativeKind::Max, m.sizes_of(r.op.result(0))?);
    let least = if max { f64::NEG_INFINITY } else { f64::INFINITY };
    let value = m.b.splat(dtype(o.input)?, &[], least)?;
    let (low, high) = (Size::all(&o.pad_low), Size::all(&o.pad_high));
    let padded = m.b.add(&Pad { input: o.input, value, low, high })?;
    let mut best = m.b.splat(dtype(o.input)?, &outs, least)?;
    let mut place = first_element(r, axes, &outs)?;
    let elements: i64 = axes.iter().map(|a| a.window).product();
    for k in 0..elements {
        let (mut offsets, mut rest) = (vec![0; outs.len()], k);
        for a in axes.iter().rev() {
            offsets[a.dim] = rest % a.window * a.dilation;
            rest /= a.window;
        }
        let v = m.b.add(&Slice {
            input: padded,
            offsets: Size::all(&offsets),
            sizes: outs.clone(),
            strides: o.strides.clone(),
        })?;
        let better = r.formula([v, best], |[v, best]| {
            (if max { v.gt(best) } else { v.lt(best) }) | v.is_nan()
        })?;
        best = m.select(better, v, best)?;
        place = m.select(better, m.full_like(place, k as f64)?, place)?;
    }
    Ok(place)
}

/// The place of each window's first element that is no padding, which is chosen where all elements
/// are the least. It is computed for each axis alone: of all windows it would be stored.
fn first_element(r: &Rule<'_>, axes: &[Axis], outs: &[Size]) -> Result<Value> {
    let m = &r.m;
    let mut place = m.b.splat(DType::I8, outs, 0.0)?;
    // Elements of a window that a step along the axis passes.
    let mut within = 1;
    for a in axes.iter().rev() {
        let passed = within;
        within *= a.window;
        if a.low == 0 {
            continue;
        }
        let window = m.iota(&outs[a.dim..=a.dim], 0)?;
        let first = r.formula([window], |[w]| {
            let outside = (-(w * a.stride as f64) + a.low as f64).max(0.0);
            (outside + (a.dilation - 1) as f64).floor_div(a.dilation as f64) * passed as f64
        })?;
        let first = m.convert(first, DType::I8)?;
        place = m.add(place, m.broadcast(first, &[a.dim as i64], outs)?)?;
    }
    Ok(place)
}
