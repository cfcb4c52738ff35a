//! Windows that do not overlap, over all elements: each element is in one window, so that a
//! broadcast takes the place of a gather, and fuses with what reads it.
use super::{Args, Cx, formula::value, image::spread, tools::*};
use kiln_dialects::{ir::*, ops::*, value::DType};

/// Windows along one axis.
pub(super) struct Sliding {
    pub length: i64,
    pub stride: i64,
    pub padding: i64,
    pub dilation: i64,
}

impl Sliding {
    pub(super) fn all(a: &Args<'_>, n: usize) -> Result<Vec<Sliding>> {
        let lengths = spread(a.ints("kernel_size")?, n, 1)?;
        let strides = a.ints("stride")?.filter(|s| !s.is_empty());
        let strides = if strides.is_some() { spread(strides, n, 1)? } else { lengths.clone() };
        let padding = spread(a.ints("padding")?, n, 0)?;
        let dilation = match a.has("dilation") {
            true => spread(a.ints("dilation")?, n, 1)?,
            false => vec![1; n],
        };
        let one = |i: usize| Sliding {
            length: lengths[i],
            stride: strides[i],
            padding: padding[i],
            dilation: dilation[i],
        };
        Ok((0..n).map(one).collect())
    }
    /// Most windows that cover an element, or with a dilation the kernel's offsets: only some of
    /// these are a window's.
    pub(super) fn most(&self) -> i64 {
        if self.dilation == 1 { (self.length + self.stride - 1) / self.stride } else { self.length }
    }
}

/// The elements as windows by offsets: `[N, C, window, offset, window, offset, ..]`.
pub(super) struct WindowsApart {
    /// Sizes of the planes.
    sizes: Vec<i64>,
    /// Windows along each axis that have elements, from the first one in the padding on.
    counts: Vec<i64>,
    /// Of these, those that are no windows of the pool.
    missing: Vec<i64>,
    strides: Vec<i64>,
    padding: Vec<i64>,
}

impl WindowsApart {
    /// Of planes and their windows' numbers. None for windows that overlap, and for dynamic sizes.
    pub(super) fn of(sizes: &[Size], outs: &[Size], windows: &[Sliding]) -> Option<WindowsApart> {
        let known = |all: &[Size]| all.iter().map(|s| s.known()).collect::<Option<Vec<i64>>>();
        let (sizes, outs) = (known(sizes)?, known(outs)?);
        let count = |(size, w): (&i64, &Sliding)| (size + w.padding + w.stride - 1) / w.stride;
        let apart = |w: &Sliding| w.dilation == 1 && w.length <= w.stride;
        let counts: Vec<i64> = sizes.iter().zip(windows).map(count).collect();
        (windows.iter().all(apart) && !sizes.contains(&0)).then(|| WindowsApart {
            missing: counts.iter().zip(&outs).map(|(n, out)| (n - out).max(0)).collect(),
            counts,
            strides: windows.iter().map(|w| w.stride).collect(),
            padding: windows.iter().map(|w| w.padding).collect(),
            sizes,
        })
    }

    /// `[window, offset, ..]`.
    fn shape(&self) -> Vec<Size> {
        let pairs = self.counts.iter().zip(&self.strides);
        pairs.flat_map(|(n, s)| [Size::Static(*n), Size::Static(*s)]).collect()
    }

    /// The value of each element's window, of values `[N, C, outs..]`; `nothing` where there is no
    /// such window. Elements between windows have the value of the window before them.
    pub(super) fn spread(&self, cx: &mut Cx, v: Value, nothing: f64) -> Result<Value> {
        let (all, d) = (cx.b.sizes_of(v)?, dtype_of(v)?);
        let planes = &all[..2];
        let mut v = v;
        if self.missing.iter().any(|n| *n > 0) {
            let value = cx.number(d, nothing)?;
            let (low, high) = (vec![0; all.len()], [&[0, 0], self.missing.as_slice()].concat());
            v = cx.b.add(&Pad { input: v, value, low: Size::all(&low), high: Size::all(&high) })?;
        }
        v = cut(cx, v, &vec![0; self.counts.len()], &self.counts)?;
        let dims = [0, 1].into_iter().chain((0..self.counts.len() as i64).map(|i| 2 + 2 * i));
        let sizes = [planes, &self.shape()].concat();
        cx.b.add(&BroadcastInDim { input: v, dims: dims.collect(), sizes })
    }

    /// The position of each element in its plane.
    pub(super) fn position(&self, cx: &mut Cx) -> Result<Value> {
        let mut place: Option<Value> = None;
        for (i, size) in self.sizes.iter().enumerate() {
            let window = cx.iota(DType::I64, self.shape(), 2 * i)?;
            let offset = cx.iota(DType::I64, self.shape(), 2 * i + 1)?;
            let (stride, padding) = (self.strides[i] as f64, self.padding[i] as f64);
            let own = value(cx, |f| f.of(window) * stride + f.of(offset) - padding)?;
            place = Some(match place {
                Some(all) => value(cx, |f| f.of(all) * *size as f64 + f.of(own))?,
                None => own,
            });
        }
        place.ok_or_else(|| "has no axes".into())
    }

    /// Values of the elements as `[N, C, sizes..]` of a dtype.
    pub(super) fn flatten(&self, cx: &mut Cx, v: Value, d: DType) -> Result<Value> {
        let v = cx.convert(v, d)?;
        let mut flat = cx.b.sizes_of(v)?[..2].to_vec();
        flat.extend(self.counts.iter().zip(&self.strides).map(|(n, s)| Size::Static(n * s)));
        let v = cx.b.add(&Reshape { input: v, sizes: flat })?;
        cut(cx, v, &self.padding, &self.sizes)
    }
}

/// The part of all planes from `offsets` on, if it is not the whole.
fn cut(cx: &mut Cx, v: Value, offsets: &[i64], sizes: &[i64]) -> Result<Value> {
    let all = cx.b.sizes_of(v)?;
    let sizes = [&all[..2], &Size::all(sizes)].concat();
    if all[2..] == sizes[2..] {
        return Ok(v);
    }
    let (offsets, strides) = ([&[0, 0], offsets].concat(), vec![1; sizes.len()]);
    cx.b.add(&Slice { input: v, offsets: Size::all(&offsets), strides, sizes })
}
