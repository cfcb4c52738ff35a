//! Type rules of convolutions, windows and pooling.
use super::types::{Sizes, TensorType, ensure, ensure_len, unify};
use crate::{ir::*, ops::*, sym::Dim, value::DType};

fn spatial(x: &TensorType) -> Result<usize> {
    ensure(x.dims.len() >= 3, || {
        format!("needs [N, C, ...] with spatial dimensions, has rank {}", x.dims.len())
    })?;
    Ok(x.dims.len() - 2)
}

fn all(list: &[i64], least: i64, name: &str) -> Result<()> {
    match list.iter().find(|x| **x < least) {
        Some(x) => Err(format!("has {x} in '{name}', which is below {least}").into()),
        None => Ok(()),
    }
}

/// (size + low + high - dilation * (window - 1) - 1) / stride + 1, at least 0.
fn windows(
    size: &Dim,
    low: i64,
    high: i64,
    window: &Dim,
    stride: i64,
    dilation: i64,
) -> Result<Dim> {
    let reach = window.sub(&Dim::Known(1)).mul(&Dim::Known(dilation)).add(&Dim::Known(1));
    let room = size.add(&Dim::Known(low)).add(&Dim::Known(high)).sub(&reach);
    // A dimension without a window of its own, such as the batch, may be empty.
    if reach == Dim::Known(1) && room == Dim::Known(-1) && stride == 1 {
        return Ok(Dim::Known(0));
    }
    ensure(room.known().is_none_or(|n| n >= 0), || {
        format!("has a window of {reach} over a padded size of {}", room.add(&reach))
    })?;
    Ok(room.floordiv(&Dim::Known(stride)).add(&Dim::Known(1)))
}

/// Pooling sizes as in torch: under `ceil_mode` the last window may exceed the input, but must
/// start in it or its left padding.
fn pooled(
    size: &Dim,
    padding: i64,
    window: i64,
    stride: i64,
    dilation: i64,
    ceil_mode: bool,
) -> Result<Dim> {
    let floor = windows(size, padding, padding, &Dim::Known(window), stride, dilation)?;
    if !ceil_mode {
        return Ok(floor);
    }
    let ceil = windows(
        &size.add(&Dim::Known(stride - 1)),
        padding,
        padding,
        &Dim::Known(window),
        stride,
        dilation,
    )?;
    // The number of windows that start there.
    let starts =
        size.add(&Dim::Known(padding)).add(&Dim::Known(stride - 1)).floordiv(&Dim::Known(stride));
    Ok(Dim::apply(SymKind::Min, &ceil, &starts))
}

fn numeric(x: &TensorType) -> Result<()> {
    ensure(x.dtype != DType::I1, || "is not defined on i1".into())
}

/// Checks tile and dtype of a Winograd transform.
fn winograd(x: &TensorType, tile: i64, rank: usize) -> Result<()> {
    ensure(matches!(tile, 2 | 4), || format!("has tile {tile}; tiles are of 2 or 4 results"))?;
    ensure(x.dtype.is_float(), || format!("is not defined on {}", x.dtype.name()))?;
    ensure(x.dims.len() == rank, || format!("takes rank {rank}, has rank {}", x.dims.len()))
}

fn winograd_input(x: &TensorType, tile: i64) -> Result<Vec<TensorType>> {
    winograd(x, tile, 4)?;
    let tiles = |size: &Dim| -> Result<Dim> {
        let whole = size.known().is_none_or(|n| n >= 2 && (n - 2) % tile == 0);
        ensure(whole, || format!("has {size} pixels, which are not 2 more than tiles of {tile}"))?;
        Ok(size.sub(&Dim::Known(2)).floordiv(&Dim::Known(tile)))
    };
    let [images, height, width, channels] = &x.dims[..] else {
        return Err("has another rank".into());
    };
    let square = Dim::Known((tile + 2) * (tile + 2));
    let dims = vec![square, images.clone(), tiles(height)?, tiles(width)?, channels.clone()];
    Ok(vec![TensorType { dtype: x.dtype, dims }])
}

fn winograd_output(x: &TensorType, tile: i64) -> Result<Vec<TensorType>> {
    winograd(x, tile, 5)?;
    let [square, images, rows, columns, filters] = &x.dims[..] else {
        return Err("has another rank".into());
    };
    let n = (tile + 2) * (tile + 2);
    ensure(square.known().is_none_or(|k| k == n), || format!("has {square} elements, not {n}"))?;
    let (tile, rows, columns) = (Dim::Known(tile), rows.clone(), columns.clone());
    let dims = vec![images.clone(), rows, tile.clone(), columns, tile, filters.clone()];
    Ok(vec![TensorType { dtype: x.dtype, dims }])
}

pub(super) fn infer(view: &View, v: &dyn Sizes) -> Result<Vec<TensorType>> {
    match view.kind {
        OpKind::Convolution => convolution(&Convolution::read(view)?, v),
        OpKind::ConvolutionWeightGradient => {
            weight_gradient(&ConvolutionWeightGradient::read(view)?, v)
        }
        OpKind::ReduceWindow => {
            let o = ReduceWindow::read(view)?;
            let x = v.tensor(o.input)?;
            numeric(&x)?;
            let n = x.dims.len();
            window_lists(n, [&o.window, &o.strides, &o.pad_low, &o.pad_high, &o.dilation])?;
            let size = |i: usize| {
                windows(
                    &x.dims[i],
                    o.pad_low[i],
                    o.pad_high[i],
                    &Dim::Known(o.window[i]),
                    o.strides[i],
                    o.dilation[i],
                )
            };
            Ok(vec![TensorType {
                dtype: x.dtype,
                dims: (0..n).map(size).collect::<Result<_, _>>()?,
            }])
        }
        OpKind::WinogradInput => {
            let o = WinogradInput::read(view)?;
            winograd_input(&v.tensor(o.input)?, o.tile)
        }
        OpKind::WinogradOutput => {
            let o = WinogradOutput::read(view)?;
            winograd_output(&v.tensor(o.input)?, o.tile)
        }
        OpKind::MaxPool => {
            let o = MaxPool::read(view)?;
            let x = v.tensor(o.input)?;
            numeric(&x)?;
            pool(&x, [&o.window, &o.strides, &o.padding, &o.dilation], o.ceil_mode)
        }
        OpKind::AvgPool => {
            let o = AvgPool::read(view)?;
            let x = v.tensor(o.input)?;
            ensure(x.dtype.is_float(), || format!("is not defined on {}", x.dtype.name()))?;
            ensure(o.divisor_override != Some(0), || "has divisor_override 0".into())?;
            pool(&x, [&o.window, &o.strides, &o.padding, &vec![1; o.window.len()]], o.ceil_mode)
        }
        OpKind::AdaptiveAvgPool => {
            let o = AdaptiveAvgPool::read(view)?;
            let x = v.tensor(o.input)?;
            ensure(x.dtype.is_float(), || format!("is not defined on {}", x.dtype.name()))?;
            ensure_len(&o.sizes, spatial(&x)?, "sizes")?;
            all(&o.sizes, 1, "sizes")?;
            let sizes = o.sizes.iter().map(|n| Dim::Known(*n));
            Ok(vec![TensorType {
                dtype: x.dtype,
                dims: x.dims[..2].iter().cloned().chain(sizes).collect(),
            }])
        }
        OpKind::Interpolate => {
            let o = Interpolate::read(view)?;
            let x = v.tensor(o.input)?;
            let n = spatial(&x)?;
            ensure(o.sizes.len() == n, || {
                format!("has {} entries in 'sizes' where {n} are needed", o.sizes.len())
            })?;
            all(&o.sizes.iter().filter_map(|s| s.known()).collect::<Vec<_>>(), 1, "sizes")?;
            Ok(vec![TensorType {
                dtype: x.dtype,
                dims: [x.dims[..2].to_vec(), v.sizes(&o.sizes)].concat(),
            }])
        }
        other => Err(format!("({}) is not a windowed op", other.name()).into()),
    }
}

/// Checks the attributes of windows over `rank` dimensions.
fn window_lists(
    rank: usize,
    [window, strides, pad_low, pad_high, dilation]: [&Vec<i64>; 5],
) -> Result<()> {
    for (list, name, least) in [
        (window, "window", 1),
        (strides, "strides", 1),
        (pad_low, "pad_low", 0),
        (pad_high, "pad_high", 0),
        (dilation, "dilation", 1),
    ] {
        ensure_len(list, rank, name)?;
        all(list, least, name)?;
    }
    Ok(())
}

fn pool(
    x: &TensorType,
    [window, strides, padding, dilation]: [&Vec<i64>; 4],
    ceil_mode: bool,
) -> Result<Vec<TensorType>> {
    let n = spatial(x)?;
    for (list, name, least) in [
        (window, "window", 1),
        (strides, "strides", 1),
        (padding, "padding", 0),
        (dilation, "dilation", 1),
    ] {
        ensure_len(list, n, name)?;
        all(list, least, name)?;
    }
    if let Some(i) = (0..n).find(|i| padding[*i] > window[*i] / 2) {
        return Err(format!(
            "has padding {} of more than half of its window {}",
            padding[i], window[i]
        )
        .into());
    }
    let size = |i: usize| {
        pooled(&x.dims[i + 2], padding[i], window[i], strides[i], dilation[i], ceil_mode)
    };
    let sizes: Vec<_> = (0..n).map(size).collect::<Result<_, _>>()?;
    Ok(vec![TensorType { dtype: x.dtype, dims: [x.dims[..2].to_vec(), sizes].concat() }])
}

fn convolution(o: &Convolution, v: &dyn Sizes) -> Result<Vec<TensorType>> {
    let (x, w) = (v.tensor(o.input)?, v.tensor(o.weight)?);
    numeric(&x)?;
    ensure(x.dtype == w.dtype, || {
        format!("mixes {} and {}; convert first", x.dtype.name(), w.dtype.name())
    })?;
    let n = spatial(&x)?;
    ensure(w.dims.len() == n + 2, || {
        format!("has an input of rank {} and a weight of rank {}", n + 2, w.dims.len())
    })?;
    let none = vec![0; n];
    let extra = o.output_padding.as_ref().unwrap_or(&none);
    for (list, name, least) in [
        (&o.strides, "strides", 1),
        (&o.pad_low, "pad_low", 0),
        (&o.pad_high, "pad_high", 0),
        (&o.dilation, "dilation", 1),
        (extra, "output_padding", 0),
    ] {
        ensure_len(list, n, name)?;
        all(list, least, name)?;
    }
    ensure(o.transposed || extra.iter().all(|p| *p == 0), || {
        "has output_padding without being transposed".into()
    })?;
    let (channels, groups) = (&x.dims[1], Dim::Known(o.groups));
    ensure(o.groups >= 1, || format!("has {} groups", o.groups))?;
    let divides = |d: &Dim| d.known().is_none_or(|c| c % o.groups == 0);
    let out = if o.transposed {
        unify(channels, &w.dims[0], || "of input channels and weight".into())?;
        ensure(divides(channels), || {
            format!("divides {channels} channels into {} groups", o.groups)
        })?;
        w.dims[1].mul(&groups)
    } else {
        unify(channels, &w.dims[1].mul(&groups), || {
            "of input channels and weight times groups".into()
        })?;
        ensure(divides(&w.dims[0]), || {
            format!("divides {} channels into {} groups", w.dims[0], o.groups)
        })?;
        w.dims[0].clone()
    };
    let size = |i: usize| -> Result<Dim> {
        let (d, k) = (&x.dims[i + 2], &w.dims[i + 2]);
        if !o.transposed {
            return windows(d, o.pad_low[i], o.pad_high[i], k, o.strides[i], o.dilation[i]);
        }
        let reach = k.sub(&Dim::Known(1)).mul(&Dim::Known(o.dilation[i]));
        let steps = d.sub(&Dim::Known(1)).mul(&Dim::Known(o.strides[i]));
        let padding = Dim::Known(o.pad_low[i]).add(&Dim::Known(o.pad_high[i]));
        let size = steps.add(&reach).add(&Dim::Known(extra[i])).add(&Dim::Known(1)).sub(&padding);
        ensure(size.known().is_none_or(|n| n >= 1), || {
            format!("gives {size} elements in spatial dimension {i}")
        })?;
        Ok(size)
    };
    let sizes: Vec<_> = (0..n).map(size).collect::<Result<_, _>>()?;
    Ok(vec![TensorType { dtype: x.dtype, dims: [vec![x.dims[0].clone(), out], sizes].concat() }])
}

fn weight_gradient(o: &ConvolutionWeightGradient, v: &dyn Sizes) -> Result<Vec<TensorType>> {
    let (x, g) = (v.tensor(o.input)?, v.tensor(o.gradient)?);
    ensure(x.dtype.is_float() && x.dtype == g.dtype && x.dtype != DType::F64, || {
        let (x, g) = (x.dtype.name(), g.dtype.name());
        format!("takes two tensors of one float dtype of at most 32 bits, has {x} and {g}")
    })?;
    let ([n, height, width, c], [images, p, q, f]) = (&x.dims[..], &g.dims[..]) else {
        return Err(format!("takes rank 4, has rank {} and {}", x.dims.len(), g.dims.len()).into());
    };
    window_lists(2, [&o.window, &o.strides, &o.pad_low, &o.pad_high, &o.dilation])?;
    unify(n, images, || "of input and gradient, their images".into())?;
    for (i, (size, out)) in [(height, p), (width, q)].into_iter().enumerate() {
        let window = Dim::Known(o.window[i]);
        let (low, high) = (o.pad_low[i], o.pad_high[i]);
        let all = windows(size, low, high, &window, o.strides[i], o.dilation[i])?;
        unify(&all, out, || format!("of windows and gradient along dimension {}", i + 1))?;
    }
    let divides = o.splits == 1 || o.splits > 1 && n.known().is_some_and(|n| n % o.splits == 0);
    ensure(divides, || format!("has {n} images, which {} splits do not divide", o.splits))?;
    let [splits, groups, kh, kw] = [o.splits, o.groups, o.window[0], o.window[1]].map(Dim::Known);
    let each = |all: &Dim, what: &str| -> Result<Dim> {
        let divides = o.groups > 0 && all.known().is_some_and(|n| n % o.groups == 0);
        ensure(divides, || format!("has {all} {what}, which {groups} groups do not divide"))?;
        Ok(all.floordiv(&groups))
    };
    let dims = match (o.depthwise, o.groups) {
        (true, 1) => {
            vec![splits, kh, kw, unify(c, f, || "of input and gradient, their channels".into())?]
        }
        (true, n) => return Err(format!("is depthwise and has {n} groups").into()),
        (false, 1) => vec![splits, f.clone(), kh, kw, c.clone()],
        (false, _) => {
            let (filters, channels) = (each(f, "filters")?, each(c, "channels")?);
            vec![splits, groups.clone(), filters, kh, kw, channels]
        }
    };
    Ok(vec![TensorType { dtype: DType::F32, dims }])
}
