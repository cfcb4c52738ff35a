//! Reductions over sliding windows.
use super::{
    indexed::scatter_add,
    movement::{dilated, padded},
    pool,
    rule::Rule,
};
use crate::decompose::tools::*;
use kiln_dialects::{ir::*, ops::*};

pub(super) fn reduce_window(r: &mut Rule<'_>) -> Result<()> {
    let (o, g) = (r.node::<ReduceWindow>()?, r.cotangent()?);
    if !r.wants(o.input) {
        return Ok(());
    }
    if o.kind == CumulativeKind::Sum {
        let v = sum(r, &o, g)?;
        return r.give(o.input, v);
    }
    let windows = Windows::of(&o);
    if windows.dims.is_empty() {
        return r.give(o.input, g);
    }
    if matches!(o.kind, CumulativeKind::Max | CumulativeKind::Min)
        && let Some(v) = pool::extremum(r, &o, &windows.dims, g)?
    {
        return r.give(o.input, v);
    }
    let (elements, at) = windows.gather(r, &o)?;
    // [windows…, places in a window…, others…]
    let n = windows.dims.len();
    let places: Vec<i64> = (n as i64..2 * n as i64).collect();
    let others = complement(rank(g), &windows.dims);
    let g = r.m.transpose(g, &[windows.dims.clone(), others].concat())?;
    if o.kind == CumulativeKind::Prod {
        let product = r.m.reduce(ReduceKind::Prod, elements, &places)?;
        return r.through(&[(product, g)]);
    }
    // The first of equal elements has the gradient, as in PyTorch's pools.
    let m = &r.m;
    let sizes = m.sizes_of(elements)?;
    let rest = &sizes[2 * n..];
    let count: i64 = windows.sizes(&o.window).iter().product();
    let merged = [&sizes[..n], &[Size::Static(count)], rest].concat();
    let flat = m.reshape(elements, &merged)?;
    let axis = n as i64;
    let best = match o.kind {
        CumulativeKind::Max => m.b.add(&ArgMax { input: flat, axis })?,
        _ => m.b.add(&ArgMin { input: flat, axis })?,
    };
    let kept = complement(merged.len(), &[axis]);
    let place = m.iota(&merged, n)?;
    let chosen = m.compare(CompareKind::Eq, place, m.broadcast(best, &kept, &merged)?)?;
    let spread = m.broadcast(g, &kept, &merged)?;
    let updates = m.select(chosen, spread, m.full_like(spread, 0.0)?)?;
    let updates = m.reshape(updates, &sizes)?;
    let v = scatter_add(m, o.input, updates, at, windows.dims)?;
    r.give(o.input, v)
}

/// Each window gives its gradient to its elements: window sums over the gradients, apart by the
/// strides.
fn sum(r: &Rule<'_>, o: &ReduceWindow, g: Value) -> Result<Value> {
    let spread = dilated(r, g, &o.strides)?;
    let (sizes, have) = (r.m.sizes_of(o.input)?, r.m.sizes_of(spread)?);
    let (mut low, mut high) = (vec![], vec![]);
    for axis in 0..sizes.len() {
        low.push(Size::Static(o.dilation[axis] * (o.window[axis] - 1) - o.pad_low[axis]));
        let start = r.m.size(SymKind::Add, sizes[axis], Size::Static(o.pad_low[axis]))?;
        high.push(r.m.size(SymKind::Add, start, r.negative(have[axis])?)?);
    }
    let none = vec![0; sizes.len()];
    r.m.b.add(&ReduceWindow {
        kind: CumulativeKind::Sum,
        input: padded(r, spread, low, high)?,
        window: o.window.clone(),
        strides: vec![1; sizes.len()],
        pad_low: none.clone(),
        pad_high: none,
        dilation: o.dilation.clone(),
    })
}

/// The dimensions along which windows slide.
struct Windows {
    dims: Vec<i64>,
}

impl Windows {
    fn of(o: &ReduceWindow) -> Windows {
        let slides = |d: &usize| {
            (o.window[*d], o.strides[*d], o.pad_low[*d], o.pad_high[*d]) != (1, 1, 0, 0)
        };
        Windows { dims: (0..o.window.len()).filter(slides).map(|d| d as i64).collect() }
    }
    fn sizes(&self, all: &[i64]) -> Vec<i64> {
        self.dims.iter().map(|d| all[*d as usize]).collect()
    }
    /// The elements of all windows, `[windows…, places in a window…, others…]`, with the identity
    /// of the reduction for padding; and their positions along `dims`, within bounds.
    fn gather(&self, r: &Rule<'_>, o: &ReduceWindow) -> Result<(Value, Vec<Value>)> {
        let (m, n) = (&r.m, self.dims.len());
        let counts = self.dims.iter().map(|d| m.size_of(r.op.result(0), *d as usize));
        let mut shape = counts.collect::<Result<Vec<_>>>()?;
        shape.extend(Size::all(&self.sizes(&o.window)));
        let (mut at, mut inside): (Vec<Value>, Option<Value>) = (vec![], None);
        for (i, axis) in self.dims.iter().enumerate() {
            let axis = *axis as usize;
            let (window, place) = (m.iota(&shape, i)?, m.iota(&shape, n + i)?);
            let size = m.number_like(m.size_of(o.input, axis)?, window)?;
            let (stride, dilation) = (o.strides[axis] as f64, o.dilation[axis] as f64);
            let low = o.pad_low[axis] as f64;
            let position = r.formula([window, place], |[w, k]| w * stride + k * dilation - low)?;
            let own = r.formula([position, size], |[p, n]| p.ge(0.0) & p.lt(n))?;
            inside = Some(match inside {
                None => own,
                Some(all) => m.binary(BinaryKind::And, all, own)?,
            });
            at.push(r.formula([position, size], |[p, n]| p.max(0.0).min(n - 1.0))?);
        }
        let inside = inside.ok_or("has no windows")?;
        let input =
            m.b.add(&Gather { input: o.input, indices: at.clone(), dims: self.dims.clone() })?;
        let identity = match o.kind {
            CumulativeKind::Sum => 0.0,
            CumulativeKind::Prod => 1.0,
            CumulativeKind::Max => f64::NEG_INFINITY,
            CumulativeKind::Min => f64::INFINITY,
        };
        let lead: Vec<i64> = (0..2 * n as i64).collect();
        let mask = m.broadcast_to(inside, &lead, input)?;
        Ok((m.select(mask, input, m.full_like(input, identity)?)?, at))
    }
}
