//! Resizing and pooling as prims.
use super::tools::*;
use kiln_dialects::{ir::*, ops::*, value::DType};

pub(super) fn expand(kind: OpKind, op: Op, b: &Builder) -> Result<Value> {
    let m = Math { b };
    match kind {
        OpKind::Interpolate => interpolate(&m, &Interpolate::of(op).ok_or_malformed(op)?),
        OpKind::MaxPool => {
            let o = MaxPool::of(op).ok_or_malformed(op)?;
            let w = Windows {
                window: &o.window,
                strides: &o.strides,
                padding: &o.padding,
                dilation: &o.dilation,
                ceil: o.ceil_mode,
            };
            let sizes = m.sizes_of(o.input)?;
            w.reduce(&m, CumulativeKind::Max, o.input, &sizes[2..], true)
        }
        OpKind::AvgPool => avg_pool(&m, &AvgPool::of(op).ok_or_malformed(op)?),
        OpKind::AdaptiveAvgPool => {
            adaptive_avg_pool(&m, &AdaptiveAvgPool::of(op).ok_or_malformed(op)?)
        }
        other => Err(format!("({}) is not a pooling op", other.name()).into()),
    }
}

/// Gathers `x` with index tensors `at` of one shape along `dims` from `first` on; other dimensions
/// keep their position.
fn gather_in_place(m: &Math<'_>, x: Value, at: Vec<Value>, first: usize) -> Result<Value> {
    let (n, indices) = (rank(x) as i64, rank(at[0]) as i64);
    let dims: Vec<i64> = (first as i64..first as i64 + at.len() as i64).collect();
    let behind = n - dims.len() as i64 - first as i64;
    let r = m.b.add(&Gather { input: x, indices: at, dims })?;
    // Gather puts the index dimensions first; transpose them after the `first` leading ones.
    let lead = (indices..indices + first as i64).collect::<Vec<_>>();
    let rest = (indices + first as i64..indices + first as i64 + behind).collect();
    m.transpose(r, &[lead, (0..indices).collect(), rest].concat())
}

/// x[n, c, min(floor(i * size(x) / size(r)), size(x) - 1)]
fn interpolate(m: &Math<'_>, o: &Interpolate) -> Result<Value> {
    let position = |(k, to): (usize, &Size)| {
        let i = m.iota(&[*to], 0)?;
        let from = m.number_like(m.size_of(o.input, k + 2)?, i)?;
        let scaled = m.div(m.mul(i, from)?, m.number_like(*to, i)?)?;
        let last = m.sub(from, m.full_like(i, 1.0)?)?;
        m.broadcast(m.binary(BinaryKind::Min, scaled, last)?, &[k as i64], &o.sizes)
    };
    let at = o.sizes.iter().enumerate().map(position).collect::<Result<Vec<_>>>()?;
    gather_in_place(m, o.input, at, 2)
}

/// Sliding windows over the trailing, spatial dimensions.
struct Windows<'a> {
    window: &'a [i64],
    strides: &'a [i64],
    padding: &'a [i64],
    dilation: &'a [i64],
    ceil: bool,
}

impl Windows<'_> {
    fn reach(&self, i: usize) -> i64 {
        self.dilation[i] * (self.window[i] - 1) + 1
    }
    /// The number of windows along spatial dimension `i` of `size` elements.
    fn count(&self, m: &Math<'_>, i: usize, size: Size) -> Result<Size> {
        let (stride, padding) = (Size::Static(self.strides[i]), self.padding[i]);
        let plus = |n: i64| m.size(SymKind::Add, size, Size::Static(n));
        let up = if self.ceil { self.strides[i] - 1 } else { 0 };
        let steps = m.size(SymKind::Floordiv, plus(2 * padding - self.reach(i) + up)?, stride)?;
        let all = m.size(SymKind::Add, steps, Size::Static(1))?;
        if !self.ceil {
            return Ok(all);
        }
        // With ceil_mode, the last window starts inside the input or its left padding.
        let starts = m.size(SymKind::Floordiv, plus(padding + up)?, stride)?;
        m.size(SymKind::Min, all, starts)
    }
    /// Reduces the windows of `x`, whose input has these spatial `sizes`. `pad`: `x` is not yet
    /// padded.
    fn reduce(
        &self,
        m: &Math<'_>,
        kind: CumulativeKind,
        x: Value,
        sizes: &[Size],
        pad: bool,
    ) -> Result<Value> {
        let lead = rank(x) - sizes.len();
        let list = |first: i64, of: &dyn Fn(usize) -> i64| {
            (0..lead).map(|_| first).chain((0..sizes.len()).map(of)).collect::<Vec<_>>()
        };
        let counts = sizes
            .iter()
            .enumerate()
            .map(|(i, s)| self.count(m, i, *s))
            .collect::<Result<Vec<_>, _>>()?;
        let own = |i: usize| if pad { self.padding[i] } else { 0 };
        // Extra right padding of ceil_mode: what the last window needs or, for dynamic sizes, an
        // upper bound.
        let extra = |i: usize| match (self.ceil, counts[i].known(), sizes[i].known()) {
            (false, ..) => 0,
            (_, Some(n), Some(size)) => {
                ((n - 1) * self.strides[i] + self.reach(i) - size - 2 * self.padding[i]).max(0)
            }
            _ => self.strides[i] - 1,
        };
        let r = m.b.add(&ReduceWindow {
            kind,
            input: x,
            window: list(1, &|i| self.window[i]),
            strides: list(1, &|i| self.strides[i]),
            pad_low: list(0, &own),
            pad_high: list(0, &|i| own(i) + extra(i)),
            dilation: list(1, &|i| self.dilation[i]),
        })?;
        if !self.ceil || counts.iter().all(|n| n.known().is_some()) {
            return Ok(r);
        }
        let all = (0..lead)
            .map(|i| m.size_of(r, i))
            .chain(counts.into_iter().map(Ok))
            .collect::<Result<Vec<_>, _>>()?;
        let n = all.len();
        m.b.add(&Slice {
            input: r,
            offsets: Size::all(&vec![0; n]),
            sizes: all,
            strides: vec![1; n],
        })
    }
}

/// The window's sum over the number of elements that count_include_pad counts.
fn avg_pool(m: &Math<'_>, o: &AvgPool) -> Result<Value> {
    let narrow = dtype(o.input)?;
    let x = m.convert(o.input, accumulator_type(narrow))?;
    let ones = vec![1; o.window.len()];
    let w = Windows {
        window: &o.window,
        strides: &o.strides,
        padding: &o.padding,
        dilation: &ones,
        ceil: o.ceil_mode,
    };
    let sizes = m.sizes_of(x)?.split_off(2);
    let sum = w.reduce(m, CumulativeKind::Sum, x, &sizes, true)?;
    let padded = o.padding.iter().any(|p| *p > 0);
    let whole = !o.ceil_mode && (o.count_include_pad || !padded);
    let divisor = match o.divisor_override {
        Some(d) => m.full_like(sum, d as f64)?,
        None if whole => m.full_like(sum, o.window.iter().product::<i64>() as f64)?,
        None => {
            // Count the elements: a tensor of ones summed over the same windows.
            let grow = |(i, s): (usize, &Size)| {
                m.size(
                    SymKind::Add,
                    *s,
                    Size::Static(if o.count_include_pad { 2 * o.padding[i] } else { 0 }),
                )
            };
            let counted = sizes.iter().enumerate().map(grow).collect::<Result<Vec<_>, _>>()?;
            let ones = m.b.splat(dtype(x)?, &counted, 1.0)?;
            let n = w.reduce(m, CumulativeKind::Sum, ones, &sizes, !o.count_include_pad)?;
            let n = m.binary(BinaryKind::Max, n, m.full_like(n, 1.0)?)?;
            m.broadcast_to(n, &(2..rank(x) as i64).collect::<Vec<_>>(), sum)?
        }
    };
    m.convert(m.div(sum, divisor)?, narrow)
}

/// Uniform windows where sizes divide; else per dimension a gather of the longest window with the
/// excess masked.
fn adaptive_avg_pool(m: &Math<'_>, o: &AdaptiveAvgPool) -> Result<Value> {
    let narrow = dtype(o.input)?;
    let mut x = m.convert(o.input, accumulator_type(narrow))?;
    let sizes = m.sizes_of(x)?;
    let step = |i: usize| {
        sizes[i + 2].known().filter(|n| *n > 0 && n % o.sizes[i] == 0).map(|n| n / o.sizes[i])
    };
    let steps: Vec<Option<i64>> = (0..o.sizes.len()).map(step).collect();
    let equal: Vec<i64> = steps.iter().map(|s| s.unwrap_or(1)).collect();
    if equal.iter().any(|s| *s != 1) {
        let (ones, zeros) = (vec![1; equal.len()], vec![0; equal.len()]);
        let w = Windows {
            window: &equal,
            strides: &equal,
            padding: &zeros,
            dilation: &ones,
            ceil: false,
        };
        x = w.reduce(m, CumulativeKind::Sum, x, &sizes[2..], true)?;
        x = m.div(x, m.full_like(x, equal.iter().product::<i64>() as f64)?)?;
    }
    for (i, _) in steps.iter().enumerate().filter(|(_, s)| s.is_none()) {
        x = adaptive_mean(m, x, i + 2, o.sizes[i])?;
    }
    m.convert(x, narrow)
}

/// The mean of x[floor(i * H / h) .. ceil((i + 1) * H / h)] along one axis.
fn adaptive_mean(m: &Math<'_>, x: Value, axis: usize, to: i64) -> Result<Value> {
    let from = m.size_of(x, axis)?;
    let (h, two) = (Size::Static(to), Size::Static(2));
    // An upper bound of the window length.
    let longest = m.size(SymKind::Add, m.size(SymKind::Floordiv, from, h)?, two)?;
    let shape = [h, longest];
    let (i, k) = (m.iota(&shape, 0)?, m.iota(&shape, 1)?);
    let (size, h, one) = (m.number_like(from, i)?, m.number_like(h, i)?, m.full_like(i, 1.0)?);
    let start = m.div(m.mul(i, size)?, h)?;
    let round_up = m.add(m.mul(m.add(i, one)?, size)?, m.sub(h, one)?)?;
    let end = m.div(round_up, h)?;
    let at = m.add(start, k)?;
    let inside = m.compare(CompareKind::Lt, at, end)?;
    let at = m.binary(BinaryKind::Min, at, m.sub(size, one)?)?;
    let taken = gather_in_place(m, x, vec![at], axis)?;
    let sizes = m.sizes_of(taken)?;
    let mask = m.broadcast(inside, &[axis as i64, axis as i64 + 1], &sizes)?;
    let sum = m.reduce(
        ReduceKind::Sum,
        m.select(mask, taken, m.full_like(taken, 0.0)?)?,
        &[axis as i64 + 1],
    )?;
    let length = m.reduce(ReduceKind::Sum, m.convert(inside, DType::I64)?, &[1])?;
    m.div(sum, m.broadcast_to(m.convert(length, dtype(sum)?)?, &[axis as i64], sum)?)
}
