//! Resizing by interpolation: source coordinates as PyTorch computes them, in the dtype in which it
//! computes them, since rounding decides which element is the nearest.
use super::{Args, Cx, Outcome, Row, Val, formula::value, formula::*, tools::*};
use kiln_dialects::{ir::*, ops::*, value::DType};

/// A row of an overload with `output_size` or `scale_factors`.
macro_rules! listed {
    ($name:literal, $mode:ident, $n:literal, nearest) => {
        Row {
            name: $name,
            arguments: "input, output_size, scale_factors",
            build: |cx, a| resize(cx, a, Mode::$mode, $n),
        }
    };
    ($name:literal, $mode:ident, $n:literal) => {
        Row {
            name: $name,
            arguments: "input, output_size, align_corners, scale_factors",
            build: |cx, a| resize(cx, a, Mode::$mode, $n),
        }
    };
}
/// A row of an overload with one scale an axis.
macro_rules! each {
    ($name:literal, $mode:ident, $n:literal, $arguments:literal) => {
        Row { name: $name, arguments: $arguments, build: |cx, a| resize(cx, a, Mode::$mode, $n) }
    };
}

/// Rows of this family.
pub(super) const ROWS: &[Row] = &[
    listed!("aten.upsample_nearest1d.vec", Nearest, 1, nearest),
    listed!("aten.upsample_nearest2d.vec", Nearest, 2, nearest),
    listed!("aten.upsample_nearest3d.vec", Nearest, 3, nearest),
    listed!("aten._upsample_nearest_exact1d.vec", NearestExact, 1, nearest),
    listed!("aten._upsample_nearest_exact2d.vec", NearestExact, 2, nearest),
    listed!("aten._upsample_nearest_exact3d.vec", NearestExact, 3, nearest),
    listed!("aten.upsample_linear1d.vec", Linear, 1),
    listed!("aten.upsample_bilinear2d.vec", Linear, 2),
    listed!("aten.upsample_trilinear3d.vec", Linear, 3),
    listed!("aten.upsample_bicubic2d.vec", Cubic, 2),
    listed!("aten._upsample_bilinear2d_aa.vec", LinearAa, 2),
    listed!("aten._upsample_bicubic2d_aa.vec", CubicAa, 2),
    each!("aten.upsample_nearest1d.default", Nearest, 1, "self, output_size, scales=None"),
    each!(
        "aten.upsample_nearest2d.default",
        Nearest,
        2,
        "self, output_size, scales_h=None, scales_w=None"
    ),
    each!(
        "aten.upsample_nearest3d.default",
        Nearest,
        3,
        "self, output_size, scales_d=None, scales_h=None, scales_w=None"
    ),
    each!(
        "aten._upsample_nearest_exact1d.default",
        NearestExact,
        1,
        "self, output_size, scales=None"
    ),
    each!(
        "aten._upsample_nearest_exact2d.default",
        NearestExact,
        2,
        "self, output_size, scales_h=None, scales_w=None"
    ),
    each!(
        "aten._upsample_nearest_exact3d.default",
        NearestExact,
        3,
        "self, output_size, scales_d=None, scales_h=None, scales_w=None"
    ),
    each!(
        "aten.upsample_linear1d.default",
        Linear,
        1,
        "self, output_size, align_corners, scales=None"
    ),
    each!(
        "aten.upsample_bilinear2d.default",
        Linear,
        2,
        "self, output_size, align_corners, scales_h=None, scales_w=None"
    ),
    each!(
        "aten.upsample_trilinear3d.default",
        Linear,
        3,
        "self, output_size, align_corners, scales_d=None, scales_h=None, scales_w=None"
    ),
    each!(
        "aten.upsample_bicubic2d.default",
        Cubic,
        2,
        "self, output_size, align_corners, scales_h=None, scales_w=None"
    ),
    each!(
        "aten._upsample_bilinear2d_aa.default",
        LinearAa,
        2,
        "self, output_size, align_corners, scales_h=None, scales_w=None"
    ),
    each!(
        "aten._upsample_bicubic2d_aa.default",
        CubicAa,
        2,
        "self, output_size, align_corners, scales_h=None, scales_w=None"
    ),
];

/// What is read around a source coordinate.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Mode {
    /// The element whose cell starts before it.
    Nearest,
    /// The element whose centre is nearest.
    NearestExact,
    /// Two neighbours an axis.
    Linear,
    /// Four neighbours an axis.
    Cubic,
    /// A triangle as wide as the reduction.
    LinearAa,
    /// A cubic as wide as the reduction.
    CubicAa,
}

/// One resized axis.
#[derive(Clone, Copy)]
pub(super) struct Axis {
    pub input: Size,
    pub output: Size,
    /// The scale that the caller gave; coordinates follow from it instead of the sizes.
    pub scale: Option<f64>,
    pub align_corners: bool,
}

/// The tensor to resize and its axes, from the arguments of an overload.
pub(super) fn axes(cx: &mut Cx, a: &Args<'_>, sizes: &[Size], n: usize) -> Result<Vec<Axis>> {
    if sizes.len() != n + 2 {
        return Err(format!(
            "It is expected input_size equals to {}, but got size {}",
            n + 2,
            sizes.len()
        )
        .into());
    }
    let names = ["scales_d", "scales_h", "scales_w"].get(3 - n..).ok_or("has too many axes")?;
    let scales: Vec<Option<f64>> = match a.values.get("scale_factors") {
        Some(Val::List(all)) if all.len() == n => {
            let one = |v: &Val| match v {
                Val::Float(x) => Ok(Some(*x)),
                Val::Int(Size::Static(n)) => Ok(Some(*n as f64)),
                _ => Err("argument scale_factors should be a list of numbers"),
            };
            all.iter().map(one).collect::<Result<_, _>>()?
        }
        Some(Val::List(all)) => {
            return Err(
                format!("has {} scale factors for {n} spatial dimensions", all.len()).into()
            );
        }
        _ => names
            .iter()
            .map(|name| if n == 1 { "scales" } else { name })
            .map(|name| if a.has(name) { a.float(name, None).map(Some) } else { Ok(None) })
            .collect::<Result<_, _>>()?,
    };
    let given = if a.has("output_size") { Some(a.sizes("output_size")?) } else { None };
    let align_corners = a.flag("align_corners", false)?;
    let mut all = Vec::with_capacity(n);
    for (k, (input, scale)) in sizes.iter().skip(2).zip(&scales).enumerate() {
        let output = match (&given, scale) {
            (Some(given), _) => *given.get(k).ok_or_else(|| {
                format!("It is expected output_size equals to {n}, but got size {}", given.len())
            })?,
            (None, Some(scale)) => scaled(cx, *input, *scale)?,
            (None, None) => return Err("has neither a size nor a scale".into()),
        };
        if output.known().is_some_and(|n| n < 1) || input.known().is_some_and(|n| n < 1) {
            return Err("Input and output sizes should be greater than 0".into());
        }
        let scale = scale.filter(|s| *s > 0.0);
        all.push(Axis { input: *input, output, scale, align_corners });
    }
    Ok(all)
}

/// `floor(size * scale)`; of a symbolic size for scales that are a small binary fraction.
fn scaled(cx: &mut Cx, size: Size, scale: f64) -> Result<Size> {
    if let Some(n) = size.known() {
        return Ok(Size::Static((n as f64 * scale) as i64));
    }
    let divisor = (0..16).map(|k| 1i64 << k).find(|d| (scale * *d as f64).fract() == 0.0);
    let Some(divisor) = divisor.filter(|_| scale > 0.0 && scale < 65536.0) else {
        return Err(format!(
            "scales a symbolic size by {scale}, which is no binary fraction; give output_size"
        )
        .into());
    };
    let scaled = cx.size_mul(size, Size::Static((scale * divisor as f64) as i64))?;
    if divisor == 1 { Ok(scaled) } else { cx.size_div(scaled, Size::Static(divisor)) }
}

/// The dtype in which PyTorch computes coordinates.
pub(super) fn work(d: DType) -> DType {
    if d == DType::F64 { d } else { DType::F32 }
}

impl Axis {
    /// Whether every result element is the input's.
    fn same(&self) -> bool {
        self.input == self.output
    }
    /// The distance in the input between neighbours of the result, where it is known.
    fn known_step(&self, d: DType) -> Option<f64> {
        let round = |x: f64| if d == DType::F64 { x } else { f64::from(x as f32) };
        let ratio = |x: i64, y: i64| {
            if d == DType::F64 { x as f64 / y as f64 } else { f64::from(x as f32 / y as f32) }
        };
        match (self.align_corners, self.scale, self.input.known(), self.output.known()) {
            (true, _, Some(n), Some(m)) => Some(if m > 1 { ratio(n - 1, m - 1) } else { 0.0 }),
            (true, ..) => None,
            (false, Some(s), ..) => Some(round(1.0 / s)),
            (false, None, Some(n), Some(m)) => Some(ratio(n, m)),
            (false, ..) => None,
        }
    }
    /// That distance as a 0-d tensor.
    fn step(&self, cx: &Cx, d: DType) -> Result<Value> {
        if let Some(step) = self.known_step(d) {
            return cx.number(d, step);
        }
        let (n, m) = (cx.b.size_as_tensor(self.input, d)?, cx.b.size_as_tensor(self.output, d)?);
        value(cx, |f| {
            let (n, m) = (f.of(n), f.of(m));
            if self.align_corners { (n - 1.0) / (m - 1.0).max(1.0) } else { n / m }
        })
    }
    /// Source coordinates [output]; below 0 only if `cubic`.
    fn source(&self, cx: &Cx, d: DType, cubic: bool) -> Result<Value> {
        let i = cx.iota(d, vec![self.output], 0)?;
        let step = self.step(cx, d)?;
        value(cx, |f| {
            let (i, step) = (f.of(i), f.of(step));
            if self.align_corners {
                return i * step;
            }
            let at = step * (i + 0.5) - 0.5;
            if cubic { at } else { at.max(0.0) }
        })
    }
    /// Indices of an axis that stays.
    fn identity(&self, cx: &Cx) -> Result<Value> {
        cx.iota(DType::I64, vec![self.output], 0)
    }
    /// The last index, as a 0-d tensor.
    fn last(&self, cx: &Cx) -> Result<Value> {
        let n = cx.b.size_as_tensor(self.input, DType::I64)?;
        cx.binary(BinaryKind::Sub, n, cx.integer(DType::I64, 1)?)
    }
    /// Indices [output] of the nearest elements.
    pub fn nearest(&self, cx: &Cx, d: DType, exact: bool) -> Result<Value> {
        if self.same() && self.scale.is_none_or(|s| s == 1.0) {
            return self.identity(cx);
        }
        let (i, step) = (cx.iota(d, vec![self.output], 0)?, self.step(cx, d)?);
        let last = self.last(cx)?;
        value(cx, |f| {
            let (i, step) = (f.of(i), f.of(step));
            let at = if exact { (step * (i + 0.5) - 0.5).max(0.0) + 0.5 } else { i * step };
            at.to(DType::F32).floor().to(DType::I64).min(f.of(last))
        })
    }
    /// Whether exact integer arithmetic gives the nearest elements as PyTorch's floats do.
    fn exact(&self) -> bool {
        let step = match self.known_step(DType::F32) {
            Some(step) => step as f32,
            None => return false,
        };
        let index = |i: i64| (i as f32 * step).floor() as i64;
        match (self.input.known(), self.output.known(), self.scale) {
            (Some(n), Some(m), _) => (0..m).all(|i| index(i).min(n - 1) == (i * n / m).min(n - 1)),
            (_, _, Some(s)) if s.fract() == 0.0 && s >= 1.0 => {
                (0..65536).all(|i| index(i) == i / s as i64)
            }
            _ => false,
        }
    }
    /// Taps of linear and cubic interpolation: indices and weights, both [output].
    pub fn taps(&self, cx: &Cx, d: DType, cubic: bool) -> Result<Vec<Tap>> {
        if self.same() && self.scale.is_none_or(|s| s == 1.0) {
            return Ok(vec![(self.identity(cx)?, None)]);
        }
        let (at, last) = (self.source(cx, d, cubic)?, self.last(cx)?);
        let first = value(cx, |f| f.of(at).floor().to(DType::I64).min(f.of(last)))?;
        let part = value(cx, |f| (f.of(at) - f.of(first).to(d)).max(0.0).min(1.0))?;
        let shifted = |by: f64| value(cx, |f| (f.of(first) + by).max(0.0).min(f.of(last)));
        if !cubic {
            let rest = value(cx, |f| 1.0 - f.of(part))?;
            return Ok(vec![(first, Some(rest)), (shifted(1.0)?, Some(part))]);
        }
        let weights = cubic_weights(cx, part)?;
        weights
            .into_iter()
            .zip([-1.0, 0.0, 1.0, 2.0])
            .map(|(w, by)| Ok((shifted(by)?, Some(w))))
            .collect()
    }
    /// Antialiased taps: indices and weights, both [output, taps].
    pub fn wide_taps(&self, cx: &mut Cx, d: DType, cubic: bool) -> Result<(Value, Value)> {
        let reach = if cubic { 2.0 } else { 1.0 };
        let known = self.known_step(d).map(|s| (s.max(1.0) * reach).ceil() as i64 * 2 + 1);
        let count = match known {
            Some(n) => Size::Static(n),
            None => {
                let up = cx.size_add(self.input, cx.size_add(self.output, Size::Static(-1))?)?;
                let ratio = cx.size_max(cx.size_div(up, self.output)?, Size::Static(1))?;
                let half = cx.size_mul(ratio, Size::Static(2 * reach as i64))?;
                cx.size_add(half, Size::Static(1))?
            }
        };
        let shape = vec![self.output, count];
        let (i, k) = (cx.iota(d, shape.clone(), 0)?, cx.iota(d, shape, 1)?);
        let step = self.step(cx, d)?;
        let size = cx.b.size_as_tensor(self.input, d)?;
        let center = value(cx, |f| f.of(step) * (f.of(i) + 0.5))?;
        let support = value(cx, |f| f.of(step).max(1.0) * reach)?;
        let first = value(cx, |f| (f.of(center) - f.of(support) + 0.5).max(0.0).floor())?;
        let end = value(cx, |f| (f.of(center) + f.of(support) + 0.5).floor().min(f.of(size)))?;
        let at = value(cx, |f| f.of(first) + f.of(k))?;
        let weights = value(cx, |f| {
            let at = f.of(at);
            let x = ((at - f.of(center) + 0.5) / f.of(step).max(1.0)).abs();
            let w = if cubic { wide_cubic(x) } else { (1.0 - x).max(0.0) };
            let w = at.lt(f.of(end)).select(w, 0.0);
            w / w.reduce(ReduceKind::Sum, &[1], true)
        })?;
        let at = value(cx, |f| f.of(at).min(f.of(size) - 1.0).to(DType::I64))?;
        Ok((at, weights))
    }
}

/// An index tensor and its weights, none for weight 1.
pub(super) type Tap = (Value, Option<Value>);

/// The parameter `a` of Keys' cubic convolution.
const CUBIC: f64 = -0.75;

/// Keys' cubic convolution with a = -0.75 at distances 1 + t, t, 1 - t and 2 - t.
pub(super) fn cubic_weights(cx: &Cx, t: Value) -> Result<Vec<Value>> {
    const A: f64 = CUBIC;
    fn near(x: Term<'_>) -> Term<'_> {
        x.polynomial(&[1.0, 0.0, -(A + 3.0), A + 2.0])
    }
    fn far(x: Term<'_>) -> Term<'_> {
        x.polynomial(&[-4.0 * A, 8.0 * A, -5.0 * A, A])
    }
    Ok(vec![
        value(cx, |f| far(f.of(t) + 1.0))?,
        value(cx, |f| near(f.of(t)))?,
        value(cx, |f| near(1.0 - f.of(t)))?,
        value(cx, |f| far(2.0 - f.of(t)))?,
    ])
}

/// The derivatives of [`cubic_weights`] by `t`.
pub(super) fn cubic_slopes(cx: &Cx, t: Value) -> Result<Vec<Value>> {
    const A: f64 = CUBIC;
    fn near(x: Term<'_>) -> Term<'_> {
        x.polynomial(&[0.0, -2.0 * (A + 3.0), 3.0 * (A + 2.0)])
    }
    fn far(x: Term<'_>) -> Term<'_> {
        x.polynomial(&[8.0 * A, -10.0 * A, 3.0 * A])
    }
    Ok(vec![
        value(cx, |f| far(f.of(t) + 1.0))?,
        value(cx, |f| near(f.of(t)))?,
        value(cx, |f| -near(1.0 - f.of(t)))?,
        value(cx, |f| -far(2.0 - f.of(t)))?,
    ])
}

/// Keys' cubic convolution with a = -0.5, as antialiasing uses it; `x` is a distance.
fn wide_cubic(x: Term<'_>) -> Term<'_> {
    const A: f64 = -0.5;
    let near = x.polynomial(&[1.0, 0.0, -(A + 3.0), A + 2.0]);
    let far = x.polynomial(&[-4.0 * A, 8.0 * A, -5.0 * A, A]);
    let far = x.lt(2.0).select(far, 0.0);
    x.lt(1.0).select(near, far)
}

fn resize(cx: &mut Cx, a: &Args<'_>, mode: Mode, n: usize) -> Result<Outcome> {
    let x = cx.tensor(a, if a.has("input") { "input" } else { "self" })?;
    let sizes = cx.b.sizes_of(x)?;
    let axes = axes(cx, a, &sizes, n)?;
    let narrow = dtype_of(x)?;
    let d = work(narrow);
    if let Mode::Nearest | Mode::NearestExact = mode {
        if mode == Mode::Nearest && axes.iter().all(Axis::exact) {
            let sizes = axes.iter().map(|axis| axis.output).collect();
            let v = cx.b.add(&Interpolate { input: x, sizes })?;
            return cx.one(v);
        }
        let exact = mode == Mode::NearestExact;
        let at = axes.iter().map(|axis| axis.nearest(cx, d, exact)).collect::<Result<_, _>>()?;
        let v = gather_grid(cx, x, at, 2)?;
        return cx.one(v);
    }
    if !narrow.is_float() {
        return Err(format!("is not supported on {}; convert to a float", narrow.name()).into());
    }
    let wide = cx.convert(x, d)?;
    let v = match mode {
        Mode::LinearAa | Mode::CubicAa => {
            let mut v = wide;
            for (k, axis) in axes.iter().enumerate().rev() {
                if axis.same() && axis.scale.is_none_or(|s| s == 1.0) {
                    continue;
                }
                let (at, weights) = axis.wide_taps(cx, d, mode == Mode::CubicAa)?;
                v = weighted(cx, v, k + 2, at, weights)?;
            }
            v
        }
        _ => {
            let cubic = mode == Mode::Cubic;
            let taps =
                axes.iter().map(|axis| axis.taps(cx, d, cubic)).collect::<Result<Vec<_>>>()?;
            combine(cx, wide, &taps, &[])?
        }
    };
    let v = cx.convert(v, narrow)?;
    cx.one(v)
}

/// Gathers a grid: one index tensor of rank 1 an axis from `first` on.
fn gather_grid(cx: &Cx, x: Value, at: Vec<Value>, first: usize) -> Result<Value> {
    let sizes = at.iter().map(|v| cx.b.size_of(*v, 0)).collect::<Result<Vec<_>, _>>()?;
    let spread = at
        .into_iter()
        .enumerate()
        .map(|(k, input)| {
            let sizes = sizes.clone();
            cx.b.add(&BroadcastInDim { input, dims: vec![k as i64], sizes })
        })
        .collect::<Result<_>>()?;
    gather_at(cx, x, spread, first)
}

/// The sum of a grid's corners, nested by axis: `sum w0[i] * (sum w1[j] * x[i, j])`.
fn combine(cx: &Cx, x: Value, taps: &[Vec<Tap>], chosen: &[Value]) -> Result<Value> {
    let Some(axis) = taps.get(chosen.len()) else {
        return gather_grid(cx, x, chosen.to_vec(), 2);
    };
    let dim = chosen.len() as i64 + 2;
    let mut sum: Option<Value> = None;
    for (index, weight) in axis {
        let inner = combine(cx, x, taps, &[chosen, &[*index]].concat())?;
        let term = match weight {
            None => inner,
            Some(w) => {
                let sizes = cx.b.sizes_of(inner)?;
                let w = cx.b.add(&BroadcastInDim { input: *w, dims: vec![dim], sizes })?;
                cx.binary(BinaryKind::Mul, inner, w)?
            }
        };
        sum = Some(match sum {
            None => term,
            Some(sum) => cx.binary(BinaryKind::Add, sum, term)?,
        });
    }
    sum.ok_or_else(|| "has no taps".into())
}

/// `sum_k weights[o, k] * x[.., at[o, k], ..]` along one axis.
pub(super) fn weighted(cx: &Cx, x: Value, axis: usize, at: Value, weights: Value) -> Result<Value> {
    let taken = gather_at(cx, x, vec![at], axis)?;
    let sizes = cx.b.sizes_of(taken)?;
    let dims = vec![axis as i64, axis as i64 + 1];
    let weights = cx.b.add(&BroadcastInDim { input: weights, dims, sizes })?;
    let products = cx.binary(BinaryKind::Mul, taken, weights)?;
    let dims = vec![axis as i64 + 1];
    cx.b.add(&Reduce { kind: ReduceKind::Sum, input: products, dims, maybe_empty: true })
}
