//! Derivatives of elementwise functions, softmax, losses and indexing, as AOTAutograd emits them.
use super::{Args, Cx, Outcome, Row, class_losses::chosen, formula::value, formula::*, tools::*};
use kiln_dialects::{ir::*, ops::*, value::DType};
use kiln_passes::differentiate::activation;

type Slope = for<'f> fn(&Args<'_>, Term<'f>, Term<'f>) -> Result<Term<'f>>;

/// A row of `grad_output` and one more tensor, of which it is a function.
macro_rules! slope {
    ($name:literal, $x:literal, $arguments:literal, $formula:expr) => {
        Row {
            name: $name,
            arguments: $arguments,
            build: |cx, a| {
                let formula: Slope = $formula;
                slope(cx, a, ["grad_output", $x], formula)
            },
        }
    };
}

/// Rows of this family.
pub(super) const ROWS: &[Row] = &[
    slope!("aten.threshold_backward.default", "self", "grad_output, self, threshold", |a, g, x| {
        Ok(x.le(a.float("threshold", None)?).select(0.0, g))
    }),
    slope!("aten.sigmoid_backward.default", "output", "grad_output, output", |_, g, y| {
        Ok(activation::sigmoid(g, y))
    }),
    slope!("aten.tanh_backward.default", "output", "grad_output, output", |_, g, y| {
        Ok(g * (1.0 - y * y))
    }),
    slope!("aten.silu_backward.default", "self", "grad_output, self", |_, g, x| {
        Ok(activation::silu(g, x))
    }),
    slope!("aten.mish_backward.default", "self", "grad_output, self", |_, g, x| {
        let s = 1.0 / ((-x).exp() + 1.0);
        let t = (x.max(0.0) + (-x.abs()).exp().ln_1p()).tanh();
        Ok(g * (t + x * s * (1.0 - t * t)))
    }),
    slope!(
        "aten.gelu_backward.default",
        "self",
        "grad_output, self, approximate='none'",
        |a, g, x| Ok(activation::gelu(g, x, a.text("approximate", "none")? == "tanh"))
    ),
    slope!("aten.hardswish_backward.default", "self", "grad_output, self", |_, g, x| {
        Ok(activation::hardswish(g, x))
    }),
    slope!("aten.hardsigmoid_backward.default", "self", "grad_output, self", |_, g, x| {
        Ok(activation::hardsigmoid(g, x))
    }),
    slope!(
        "aten.hardtanh_backward.default",
        "self",
        "grad_output, self, min_val, max_val",
        |a, g, x| {
            let (low, high) = (a.float("min_val", None)?, a.float("max_val", None)?);
            Ok((x.le(low) | x.ge(high)).select(0.0, g))
        }
    ),
    slope!(
        "aten.leaky_relu_backward.default",
        "self",
        "grad_output, self, negative_slope, self_is_result",
        |a, g, x| Ok(x.gt(0.0).select(g, g * a.float("negative_slope", None)?))
    ),
    slope!(
        "aten.elu_backward.default",
        "self_or_result",
        "grad_output, alpha, scale, input_scale, is_result, self_or_result",
        |a, g, x| {
            let scale = a.float("scale", None)?;
            let (below, by) = (a.float("alpha", None)? * scale, a.float("input_scale", None)?);
            let tail = if a.flag("is_result", false)? {
                g * by * (x + below)
            } else {
                g * (by * below) * (x * by).exp()
            };
            Ok(x.le(0.0).select(tail, g * scale))
        }
    ),
    slope!(
        "aten.softplus_backward.default",
        "self",
        "grad_output, self, beta, threshold",
        |a, g, x| {
            let (beta, threshold) = (a.float("beta", None)?, a.float("threshold", None)?);
            Ok(activation::softplus(g, x, beta, threshold))
        }
    ),
    slope!("aten.softshrink_backward.default", "self", "grad_output, self, lambd", |a, g, x| {
        let by = a.float("lambd", None)?;
        Ok((x.ge(-by) & x.le(by)).select(0.0, g))
    }),
    Row {
        name: "aten.hardshrink_backward.default",
        arguments: "grad_out, self, lambd",
        build: |cx, a| {
            slope(cx, a, ["grad_out", "self"], |a, g, x| {
                let by = a.float("lambd", None)?;
                Ok((x.ge(-by) & x.le(by)).select(0.0, g))
            })
        },
    },
    slope!("aten.log_sigmoid_backward.default", "self", "grad_output, self, buffer", |_, g, x| Ok(
        g / (x.exp() + 1.0)
    )),
    slope!(
        "aten._softmax_backward_data.default",
        "output",
        "grad_output, output, dim, input_dtype",
        |a, g, y| {
            let dim = axis(a, y)?;
            Ok(activation::softmax(g, y, dim))
        }
    ),
    slope!(
        "aten._log_softmax_backward_data.default",
        "output",
        "grad_output, output, dim, input_dtype",
        |a, g, y| {
            let dim = axis(a, y)?;
            Ok(activation::log_softmax(g, y, dim))
        }
    ),
    Row {
        name: "aten.native_dropout_backward.default",
        arguments: "grad_output, mask, scale",
        build: |cx, a| {
            let (g, mask) = cx.promoted(a, "grad_output", "mask")?;
            let kept = cx.binary(BinaryKind::Mul, g, mask)?;
            let d = super::arithmetic::default_float(dtype_of(kept)?);
            let scale = a.float("scale", None)?;
            formula(cx, |f| f.of(kept).to(d) * scale)
        },
    },
    Row {
        name: "aten.mse_loss_backward.default",
        arguments: "grad_output, self, target, reduction",
        build: |cx, a| loss(cx, a, |_, d| Ok(d * 2.0)),
    },
    Row {
        name: "aten.smooth_l1_loss_backward.default",
        arguments: "grad_output, self, target, reduction, beta",
        build: |cx, a| {
            loss(cx, a, |a, d| {
                let beta = a.float("beta", None)?;
                let inside = if beta == 0.0 { d } else { d / beta };
                let above = d.ge(beta).select(1.0, inside);
                Ok(d.le(-beta).select(-1.0, above))
            })
        },
    },
    Row {
        name: "aten.huber_loss_backward.default",
        arguments: "grad_output, self, target, reduction, delta",
        build: |cx, a| {
            loss(cx, a, |a, d| {
                let delta = a.float("delta", None)?;
                Ok(d.max(-delta).min(delta))
            })
        },
    },
    Row {
        name: "aten.binary_cross_entropy_backward.default",
        arguments: "grad_output, self, target, weight=None, reduction=1",
        build: |cx, a| {
            let (x, t, narrow) = pair(cx, a, ["self", "target"])?;
            let g = gradient(cx, a, x)?;
            let weight = match cx.optional(a, "weight")? {
                Some(w) => Some(cx.convert(w, dtype_of(x)?)?),
                None => None,
            };
            let v = value(cx, |f| {
                let (x, t) = (f.of(x), f.of(t));
                let v = f.of(g) * (x - t) / ((1.0 - x) * x).max(1e-12);
                weight.map_or(v, |w| v * f.of(w))
            })?;
            let v = cx.convert(v, narrow)?;
            cx.one(v)
        },
    },
    Row {
        name: "aten.nll_loss_backward.default",
        arguments: "grad_output, self, target, weight, reduction, ignore_index, total_weight",
        build: nll_backward,
    },
    Row {
        name: "aten.nll_loss2d_backward.default",
        arguments: "grad_output, self, target, weight, reduction, ignore_index, total_weight",
        build: nll_backward,
    },
    Row {
        name: "aten.embedding_dense_backward.default",
        arguments: "grad_output, indices, num_weights, padding_idx, scale_grad_by_freq",
        build: embedding_backward,
    },
    Row {
        name: "aten.slice_backward.default",
        arguments: "grad_output, input_sizes, dim, start, end, step",
        build: |cx, a| {
            let rank = a.sizes("input_sizes")?.len();
            let d = wrap(a.int("dim", None)?, rank)?;
            let g = cx.tensor(a, "grad_output")?;
            spread_back(cx, a, g, d, "start", a.int("step", Some(1))?)
        },
    },
    Row {
        name: "aten.select_backward.default",
        arguments: "grad_output, input_sizes, dim, index",
        build: |cx, a| {
            let rank = a.sizes("input_sizes")?.len();
            let d = wrap(a.int("dim", None)?, rank)?;
            let g = cx.tensor(a, "grad_output")?;
            let mut sizes = cx.b.sizes_of(g)?;
            sizes.insert(d.min(sizes.len()), Size::Static(1));
            let g = cx.reshape(g, sizes)?;
            spread_back(cx, a, g, d, "index", 1)
        },
    },
    Row {
        name: "aten.glu_backward.default",
        arguments: "grad_output, self, dim",
        build: glu_backward,
    },
];

/// The dimension of a softmax.
fn axis(a: &Args<'_>, y: Term<'_>) -> Result<i64> {
    wrap(a.int("dim", None)?, y.rank()).map(|d| d as i64)
}

/// Two tensors in the dtype in which derivatives are computed, and the result's: the second's, if
/// that is a float.
fn pair(cx: &mut Cx, a: &Args<'_>, names: [&str; 2]) -> Result<(Value, Value, DType)> {
    let (g, x) = (cx.tensor(a, names[0])?, cx.tensor(a, names[1])?);
    let d = dtype_of(x)?;
    let narrow = if d.is_float() { d } else { dtype_of(g)? };
    let compute = statistics_dtype(narrow);
    Ok((cx.convert(g, compute)?, cx.convert(x, compute)?, narrow))
}

fn slope(cx: &mut Cx, a: &Args<'_>, names: [&str; 2], formula: Slope) -> Result<Outcome> {
    let (g, x, mut narrow) = pair(cx, a, names)?;
    if let Some(d) = a.dtype("input_dtype")? {
        narrow = d;
    }
    let f = Formula::new(&cx.b);
    let term = formula(a, f.of(g), f.of(x))?;
    let v = f.end(term)?;
    let v = cx.convert(v, narrow)?;
    cx.one(v)
}

/// The incoming gradient of a loss, divided by the number of elements under a mean.
fn gradient(cx: &mut Cx, a: &Args<'_>, x: Value) -> Result<Value> {
    let g = cx.tensor(a, "grad_output")?;
    let d = dtype_of(x)?;
    let g = cx.convert(g, d)?;
    if a.int("reduction", Some(1))? != 1 {
        return Ok(g);
    }
    let sizes = cx.b.sizes_of(x)?;
    let n = sizes.iter().try_fold(Size::Static(1), |n, s| cx.size_mul(n, *s))?;
    let n = cx.b.size_as_tensor(n, d)?;
    cx.binary(BinaryKind::Div, g, n)
}

/// The gradient of a loss of `self - target`, from its derivative.
fn loss(
    cx: &mut Cx,
    a: &Args<'_>,
    derivative: for<'f> fn(&Args<'_>, Term<'f>) -> Result<Term<'f>>,
) -> Result<Outcome> {
    let (x, t, narrow) = pair(cx, a, ["self", "target"])?;
    let (x, t) = cx.broadcast(x, t)?;
    let g = gradient(cx, a, x)?;
    let f = Formula::new(&cx.b);
    let term = derivative(a, f.of(x) - f.of(t))? * f.of(g);
    let v = f.end(term)?;
    let v = cx.convert(v, narrow)?;
    cx.one(v)
}

/// `-weight[t] * grad` at the target's class, 0 elsewhere.
fn nll_backward(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let (x, target) = (cx.tensor(a, "self")?, cx.tensor(a, "target")?);
    let narrow = dtype_of(x)?;
    let d = statistics_dtype(narrow);
    let weight = cx.optional(a, "weight")?;
    let axis = usize::from(rank_of(x) > 1);
    let (safe, weights) = chosen(cx, target, weight, a.int("ignore_index", Some(-100))?, d)?;
    let (g, total) = (cx.tensor(a, "grad_output")?, cx.tensor(a, "total_weight")?);
    let (g, total) = (cx.convert(g, d)?, cx.convert(total, d)?);
    let mean = a.int("reduction", Some(1))? == 1;
    let own = value(cx, |f| {
        let v = -(f.of(weights) * f.of(g));
        let v = if mean { v / f.of(total) } else { v };
        f.of(weights).eq(0.0).select(0.0, v)
    })?;
    let sizes = cx.b.sizes_of(x)?;
    let dims: Vec<i64> = (0..rank_of(x) as i64).filter(|d| *d != axis as i64).collect();
    let (own, safe) = (along(cx, own, dims.clone(), &sizes)?, along(cx, safe, dims, &sizes)?);
    let class = cx.iota(DType::I64, sizes, axis)?;
    let v = value(cx, |f| f.of(class).eq(f.of(safe)).select(f.of(own), 0.0))?;
    let v = cx.convert(v, narrow)?;
    cx.one(v)
}

fn embedding_backward(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let (g, indices) = (cx.tensor(a, "grad_output")?, cx.tensor(a, "indices")?);
    let narrow = dtype_of(g)?;
    let d = statistics_dtype(narrow);
    let indices = cx.convert(indices, DType::I64)?;
    let sizes = cx.b.sizes_of(indices)?;
    let n = sizes.iter().try_fold(Size::Static(1), |n, s| cx.size_mul(n, *s))?;
    let width = *cx.b.sizes_of(g)?.last().ok_or("has a gradient of rank 0")?;
    let (g, index) =
        (cx.reshape(cx.convert(g, d)?, vec![n, width])?, cx.reshape(indices, vec![n])?);
    let rows = a.size("num_weights")?;
    let padding = a.int("padding_idx", Some(-1))?;
    let counts = cx.compare(CompareKind::Ne, index, cx.integer(DType::I64, padding)?)?;
    let counts = along(cx, counts, vec![0], &[n, width])?;
    let mut updates = cx.select(counts, g, cx.number(d, 0.0)?)?;
    if a.flag("scale_grad_by_freq", false)? {
        let ones = cx.b.splat(d, &[n], 1.0)?;
        let input = cx.b.splat(d, &[rows], 0.0)?;
        let (kind, indices) = (ScatterKind::Add, vec![index]);
        let uses = cx.b.add(&Scatter { kind, input, updates: ones, indices, dims: vec![0] })?;
        let own = cx.b.add(&Gather { input: uses, indices: vec![index], dims: vec![0] })?;
        updates = cx.binary(BinaryKind::Div, updates, along(cx, own, vec![0], &[n, width])?)?;
    }
    let input = cx.b.splat(d, &[rows, width], 0.0)?;
    let (kind, indices) = (ScatterKind::Add, vec![index]);
    let v = cx.b.add(&Scatter { kind, input, updates, indices, dims: vec![0] })?;
    let v = cx.convert(v, narrow)?;
    cx.one(v)
}

/// Zeros of `input_sizes` with `g` at every `step`-th index of a dimension.
fn spread_back(
    cx: &mut Cx,
    a: &Args<'_>,
    g: Value,
    dim: usize,
    start: &str,
    step: i64,
) -> Result<Outcome> {
    let sizes = a.sizes("input_sizes")?;
    let size = *sizes.get(dim).ok_or("has no such dimension")?;
    let mut from = a.size(start)?;
    if from.known().is_some_and(|n| n < 0) {
        from = cx.size_max(cx.size_add(from, size)?, Size::Static(0))?;
    }
    let count = cx.b.size_of(g, dim)?;
    if count.known() == Some(0) {
        let zeros = cx.b.splat(dtype_of(g)?, &sizes, 0.0)?;
        return cx.one(zeros);
    }
    if step == 1 {
        let after = cx.size_sub(cx.size_sub(size, from)?, count)?;
        let v = cx.zero_padded(g, dim, from, after)?;
        return cx.one(v);
    }
    let count = cx.b.size_as_tensor(count, DType::I64)?;
    let from = cx.b.size_as_tensor(from, DType::I64)?;
    let i = cx.iota(DType::I64, vec![size], 0)?;
    let after = value(cx, |f| f.of(i) - f.of(from))?;
    let inside = value(cx, |f| {
        let (after, by) = (f.of(after), step as f64);
        after.ge(0.0) & after.remainder(by).eq(0.0) & (after / by).lt(f.of(count))
    })?;
    let at = value(cx, |f| (f.of(after) / step as f64).max(0.0).min(f.of(count) - 1.0))?;
    let taken = gather_at(cx, g, vec![at], dim)?;
    let inside = along(cx, inside, vec![dim as i64], &sizes)?;
    let v = cx.select(inside, taken, cx.number(dtype_of(g)?, 0.0)?)?;
    cx.one(v)
}

fn glu_backward(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let (g, x, narrow) = pair(cx, a, ["grad_output", "self"])?;
    let dim = wrap(a.int("dim", Some(-1))?, rank_of(x))?;
    let mut sizes = cx.b.sizes_of(x)?;
    let half = cx.size_div(*sizes.get(dim).ok_or("of a 0-d tensor")?, Size::Static(2))?;
    let n = sizes.len();
    if let Some(size) = sizes.get_mut(dim) {
        *size = half;
    }
    let part = |cx: &Cx, start: Size| {
        let mut offsets = vec![Size::Static(0); n];
        if let Some(offset) = offsets.get_mut(dim) {
            *offset = start;
        }
        cx.b.add(&Slice { input: x, offsets, sizes: sizes.clone(), strides: vec![1; n] })
    };
    let (left, right) = (part(cx, Size::Static(0))?, part(cx, half)?);
    let gate = value(cx, |f| 1.0 / ((-f.of(right)).exp() + 1.0))?;
    let first = value(cx, |f| f.of(g) * f.of(gate))?;
    let second = value(cx, |f| f.of(first) * (1.0 - f.of(gate)) * f.of(left))?;
    let v = cx.b.add(&Concat { inputs: vec![first, second], axis: dim as i64 })?;
    let v = cx.convert(v, narrow)?;
    cx.one(v)
}
