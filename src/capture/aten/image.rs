//! Convolution, pooling and resizing.
use super::{Args, Cx, Outcome, Row, Val, formula::value, resize::weighted, tools::*};
use kiln_dialects::{ir::*, ops::*, sym::Dim, value::DType};

/// Rows of this family.
pub(super) const ROWS: &[Row] = &[
    Row {
        name: "aten.conv1d.default",
        arguments: "input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1",
        build: |cx, a| convolution(cx, a, false),
    },
    Row {
        name: "aten.conv2d.default",
        arguments: "input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1",
        build: |cx, a| convolution(cx, a, false),
    },
    Row {
        name: "aten.conv3d.default",
        arguments: "input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1",
        build: |cx, a| convolution(cx, a, false),
    },
    Row {
        name: "aten.conv2d.padding",
        arguments: "input, weight, bias=None, stride=1, padding='valid', dilation=1, groups=1",
        build: |cx, a| convolution(cx, a, false),
    },
    Row {
        name: "aten.conv1d.padding",
        arguments: "input, weight, bias=None, stride=1, padding='valid', dilation=1, groups=1",
        build: |cx, a| convolution(cx, a, false),
    },
    Row {
        name: "aten.conv3d.padding",
        arguments: "input, weight, bias=None, stride=1, padding='valid', dilation=1, groups=1",
        build: |cx, a| convolution(cx, a, false),
    },
    Row {
        name: "aten.conv_transpose3d.input",
        arguments: "input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1",
        build: |cx, a| convolution(cx, a, true),
    },
    Row {
        name: "aten._convolution.default",
        arguments: "input, weight, bias, stride, padding, dilation, transposed, output_padding, groups, benchmark, deterministic, cudnn_enabled, allow_tf32",
        build: |cx, a| {
            let t = a.flag("transposed", false)?;
            convolution(cx, a, t)
        },
    },
    Row {
        name: "aten.conv_transpose1d.default",
        arguments: "input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1",
        build: |cx, a| convolution(cx, a, true),
    },
    Row {
        name: "aten.conv_transpose2d.input",
        arguments: "input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1",
        build: |cx, a| convolution(cx, a, true),
    },
    Row {
        name: "aten.convolution.default",
        arguments: "input, weight, bias, stride, padding, dilation, transposed, output_padding, groups",
        build: |cx, a| {
            let t = a.flag("transposed", false)?;
            convolution(cx, a, t)
        },
    },
    Row {
        name: "aten.max_pool1d.default",
        arguments: "self, kernel_size, stride=[], padding=0, dilation=1, ceil_mode=False",
        build: |cx, a| {
            let v = max_pool(cx, a, 1)?;
            cx.one(v)
        },
    },
    Row {
        name: "aten.max_pool2d.default",
        arguments: "self, kernel_size, stride=[], padding=0, dilation=1, ceil_mode=False",
        build: |cx, a| {
            let v = max_pool(cx, a, 2)?;
            cx.one(v)
        },
    },
    Row {
        name: "aten.max_pool3d.default",
        arguments: "self, kernel_size, stride=[], padding=0, dilation=1, ceil_mode=False",
        build: |cx, a| {
            let v = max_pool(cx, a, 3)?;
            cx.one(v)
        },
    },
    Row {
        name: "aten.avg_pool1d.default",
        arguments: "self, kernel_size, stride=[], padding=0, ceil_mode=False, count_include_pad=True",
        build: |cx, a| avg_pool(cx, a, 1),
    },
    Row {
        name: "aten.avg_pool2d.default",
        arguments: "self, kernel_size, stride=[], padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None",
        build: |cx, a| avg_pool(cx, a, 2),
    },
    Row {
        name: "aten.avg_pool3d.default",
        arguments: "self, kernel_size, stride=[], padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None",
        build: |cx, a| avg_pool(cx, a, 3),
    },
    Row {
        name: "aten.adaptive_avg_pool1d.default",
        arguments: "self, output_size",
        build: adaptive,
    },
    Row {
        name: "aten.adaptive_avg_pool2d.default",
        arguments: "self, output_size",
        build: adaptive,
    },
    Row {
        name: "aten.adaptive_avg_pool3d.default",
        arguments: "self, output_size",
        build: adaptive,
    },
    Row {
        name: "aten._adaptive_avg_pool3d.default",
        arguments: "self, output_size",
        build: adaptive,
    },
    Row {
        name: "aten._adaptive_avg_pool2d.default",
        arguments: "self, output_size",
        build: adaptive,
    },
];

/// One entry per spatial dimension; a single entry is repeated.
pub(super) fn spread(list: Option<Vec<i64>>, n: usize, default: i64) -> Result<Vec<i64>> {
    match list {
        None => Ok(vec![default; n]),
        Some(l) if l.is_empty() => Ok(vec![default; n]),
        Some(l) if l.len() == 1 => Ok(l.repeat(n)),
        Some(l) if l.len() == n => Ok(l),
        Some(l) => Err(format!("has {} numbers for {n} spatial dimensions", l.len()).into()),
    }
}

/// A window along one axis.
#[derive(Clone, Copy)]
pub(super) struct WindowAxis {
    pub(super) kernel: i64,
    pub(super) stride: i64,
    pub(super) padding: i64,
    pub(super) dilation: i64,
}

/// Adds the batch dimension that PyTorch allows images to omit.
pub(super) fn batched(cx: &mut Cx, x: Value, n: usize) -> Result<(Value, bool)> {
    if rank_of(x) == n + 2 {
        return Ok((x, false));
    }
    let sizes = [vec![Size::Static(1)], cx.b.sizes_of(x)?].concat();
    Ok((cx.reshape(x, sizes)?, true))
}

pub(super) fn unbatched(cx: &mut Cx, v: Value, added: bool) -> Result<Value> {
    if !added {
        return Ok(v);
    }
    let sizes = cx.b.sizes_of(v)?;
    cx.reshape(v, sizes.into_iter().skip(1).collect())
}

pub(super) fn convolution(cx: &mut Cx, a: &Args<'_>, transposed: bool) -> Result<Outcome> {
    let (x, weight) = (cx.tensor(a, "input")?, cx.tensor(a, "weight")?);
    let n =
        rank_of(weight).checked_sub(2).filter(|n| *n > 0).ok_or("has a weight of rank below 3")?;
    let (input, added) = batched(cx, x, n)?;
    let strides = spread(a.ints("stride")?, n, 1)?;
    let dilation = spread(a.ints("dilation")?, n, 1)?;
    let (pad_low, pad_high) = match a.values.get("padding") {
        Some(Val::Str(mode)) if mode == "same" => {
            let reach = |(k, by): (&Dim, &i64)| {
                k.known().and_then(|k| by.checked_mul(k - 1)).ok_or("has a window of symbolic size")
            };
            let total = weight
                .ty()
                .dims()
                .iter()
                .skip(2)
                .zip(&dilation)
                .map(reach)
                .collect::<Result<Vec<_>, _>>()?;
            (total.iter().map(|t| t / 2).collect(), total.iter().map(|t| t - t / 2).collect())
        }
        Some(Val::Str(_)) => (vec![0; n], vec![0; n]),
        _ => {
            let p = spread(a.ints("padding")?, n, 0)?;
            (p.clone(), p)
        }
    };
    let output_padding =
        if transposed { Some(spread(a.ints("output_padding")?, n, 0)?) } else { None };
    let node = Convolution {
        input,
        weight,
        strides,
        pad_low,
        pad_high,
        dilation,
        groups: a.int("groups", Some(1))?,
        transposed,
        output_padding,
    };
    let mut v = cx.b.add(&node)?;
    if let Some(bias) = cx.optional(a, "bias")? {
        let sizes = cx.b.sizes_of(v)?;
        let bias = cx.b.add(&BroadcastInDim { input: bias, dims: vec![1], sizes })?;
        v = cx.binary(BinaryKind::Add, v, bias)?;
    }
    let v = unbatched(cx, v, added)?;
    cx.one(v)
}

pub(super) fn max_pool(cx: &mut Cx, a: &Args<'_>, n: usize) -> Result<Value> {
    let x = cx.tensor(a, "self")?;
    let (input, added) = batched(cx, x, n)?;
    let window = spread(a.ints("kernel_size")?, n, 1)?;
    let strides = a.ints("stride")?.filter(|s| !s.is_empty());
    let strides = if strides.is_some() { spread(strides, n, 1)? } else { window.clone() };
    let (padding, dilation) =
        (spread(a.ints("padding")?, n, 0)?, spread(a.ints("dilation")?, n, 1)?);
    let ceil_mode = a.flag("ceil_mode", false)?;
    let plain = ceil_mode && dilation.iter().all(|d| *d == 1);
    let window = if plain { fitted(input, &window, &strides, &padding) } else { window };
    let v = cx.b.add(&MaxPool { input, window, strides, padding, dilation, ceil_mode })?;
    unbatched(cx, v, added)
}

pub(super) fn avg_pool(cx: &mut Cx, a: &Args<'_>, n: usize) -> Result<Outcome> {
    let x = cx.tensor(a, "self")?;
    let (input, added) = batched(cx, x, n)?;
    let window = spread(a.ints("kernel_size")?, n, 1)?;
    let strides = a.ints("stride")?.filter(|s| !s.is_empty());
    let strides = if strides.is_some() { spread(strides, n, 1)? } else { window.clone() };
    let (padding, ceil_mode) = (spread(a.ints("padding")?, n, 0)?, a.flag("ceil_mode", false)?);
    let window = if ceil_mode { fitted(input, &window, &strides, &padding) } else { window };
    let node = AvgPool {
        input,
        window,
        strides,
        padding,
        ceil_mode,
        count_include_pad: a.flag("count_include_pad", true)?,
        divisor_override: if a.has("divisor_override") {
            Some(a.int("divisor_override", None)?)
        } else {
            None
        },
    };
    let v = match dtype_of(x)? {
        d if d.is_float() => cx.b.add(&node)?,
        DType::I64 => whole_average(cx, node)?,
        _ => return Err("\"avg_pool\" not implemented for integers but Long".into()),
    };
    let empty = v.ty().dims().iter().any(|n| n.known() == Some(0));
    let v = if empty { cx.full_like(v, 0.0)? } else { v };
    let v = unbatched(cx, v, added)?;
    cx.one(v)
}

/// Windows of a pool that rounds sizes up: one that exceeds the padded size by less than a stride
/// gives one result, of the whole padded size.
fn fitted(input: Value, window: &[i64], strides: &[i64], padding: &[i64]) -> Vec<i64> {
    let dims = input.ty().dims();
    let sizes = dims.iter().skip(dims.len().saturating_sub(window.len())).map(|d| d.known());
    let own = sizes.zip(window).zip(strides.iter().zip(padding)).map(|((size, w), (stride, p))| {
        let whole = size.map(|n| n.saturating_add(p.saturating_mul(2)));
        let reaches = |n: &i64| *n > 0 && *n < *w && w.saturating_sub(*n) < *stride;
        whole.filter(reaches).unwrap_or(*w)
    });
    own.collect()
}

/// Averages of i64 as PyTorch computes them: sums, divided as integers.
fn whole_average(cx: &Cx, node: AvgPool) -> Result<Value> {
    // f64 holds sums of the upper and of the lower bits.
    const LOW: i64 = 24;
    let x = node.input;
    let bits = cx.integer(DType::I64, LOW)?;
    let high = cx.binary(BinaryKind::Shr, x, bits)?;
    let low = cx.binary(BinaryKind::And, x, cx.integer(DType::I64, (1 << LOW) - 1)?)?;
    let sum = |input: Value| {
        let wide = cx.convert(input, DType::F64)?;
        cx.b.add(&AvgPool { input: wide, divisor_override: Some(1), ..node.clone() })
    };
    let total = value(cx, |f| {
        let (high, low) = (f.emit(sum(high)).to(DType::I64), f.emit(sum(low)).to(DType::I64));
        high * (1u64 << LOW) as f64 + low
    })?;
    // The divisor of each window: its elements' number by the average of ones.
    let ones = cx.b.splat(DType::F64, &cx.b.sizes_of(x)?, 1.0)?;
    let average = cx.b.add(&AvgPool { input: ones, ..node.clone() })?;
    let count = cx.b.add(&AvgPool { input: ones, divisor_override: Some(1), ..node.clone() })?;
    value(cx, |f| f.of(total) / (f.of(count) / f.of(average)).round().to(DType::I64))
}

pub(super) fn adaptive(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let x = cx.tensor(a, "self")?;
    let outs = a.sizes("output_size")?;
    let Some(sizes) = outs.iter().map(|s| s.known()).collect::<Option<Vec<i64>>>() else {
        let (input, added) = batched(cx, x, outs.len())?;
        let v = adaptive_to_symbols(cx, input, &outs)?;
        let v = unbatched(cx, v, added)?;
        return cx.one(v);
    };
    let (input, added) = batched(cx, x, sizes.len())?;
    // Windows need an element to start at.
    if sizes.contains(&0) || input.ty().dims().iter().any(|d| d.known() == Some(0)) {
        let lead = [cx.b.size_of(input, 0)?, cx.b.size_of(input, 1)?];
        let empty = cx.b.splat(dtype_of(x)?, &[&lead[..], &Size::all(&sizes)].concat(), 0.0)?;
        let v = unbatched(cx, empty, added)?;
        return cx.one(v);
    }
    let v = cx.b.add(&AdaptiveAvgPool { input, sizes })?;
    let v = unbatched(cx, v, added)?;
    cx.one(v)
}

/// Means over windows such that the spatial dimensions become symbolic sizes, one axis at a time.
fn adaptive_to_symbols(cx: &mut Cx, x: Value, outs: &[Size]) -> Result<Value> {
    let narrow = dtype_of(x)?;
    let d = statistics_dtype(narrow);
    let mut v = cx.convert(x, d)?;
    for (i, to) in outs.iter().enumerate() {
        let from = cx.b.size_of(v, i + 2)?;
        // Windows share their first and last element with their neighbours.
        let count = cx.size_add(cx.size_div(from, *to)?, Size::Static(2))?;
        let shape = vec![*to, count];
        let (o, k) = (cx.iota(DType::I64, shape.clone(), 0)?, cx.iota(DType::I64, shape, 1)?);
        let (n, m) =
            (cx.b.size_as_tensor(from, DType::I64)?, cx.b.size_as_tensor(*to, DType::I64)?);
        let start = value(cx, |f| f.of(o) * f.of(n) / f.of(m))?;
        let end = value(cx, |f| ((f.of(o) + 1.0) * f.of(n) + f.of(m) - 1.0) / f.of(m))?;
        let at = value(cx, |f| f.of(start) + f.of(k))?;
        let weights = value(cx, |f| {
            let share = 1.0 / (f.of(end) - f.of(start)).to(d);
            f.of(at).lt(f.of(end)).select(share, 0.0)
        })?;
        let at = value(cx, |f| f.of(at).min(f.of(n) - 1.0))?;
        v = weighted(cx, v, i + 2, at, weights)?;
    }
    cx.convert(v, narrow)
}
