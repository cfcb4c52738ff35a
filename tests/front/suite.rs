//! About 150 small functions against the interpreter: eager, compiled with static sizes, with
//! symbols at two sizes, with a value read midway, with a disabled region, and with a graph break
//! after each op.
use super::*;
use crate::support::Random;
use kiln::{
    dialects::value::DType::{self, *},
    tensor::{
        Attention, Convolution, CrossEntropy, END, Graph, Pool, Reduction, TraceError, with_backend,
    },
    tolerance,
};

/// A dtype and sizes; -1 is the dynamic one.
type Spec = (DType, &'static [i64]);
type Body = fn(&[Tensor]) -> Tensor;
pub type Case = (&'static str, &'static [Spec], Body);

const X: Spec = (F32, &[-1, 4]);
const V: Spec = (F32, &[4]);
const I: Spec = (I64, &[-1, 4]);
const B: Spec = (I1, &[-1, 4]);
const P: Spec = (F32, &[-1, 2, 6]);
const IMAGE: Spec = (F32, &[-1, 4, 6, 5]);

fn g() -> Graph {
    Graph::current()
}

/// Makes any argument positive, so that its logarithm exists.
fn positive(x: &Tensor) -> Tensor {
    x.abs() + 0.5
}

const ELEMENTWISE: &[Case] = &[
    ("exp", &[X], |x| x[0].exp()),
    ("exp2", &[X], |x| x[0].exp2()),
    ("expm1", &[X], |x| x[0].expm1()),
    ("log", &[X], |x| positive(&x[0]).log()),
    ("log1p", &[X], |x| x[0].abs().log1p()),
    ("log2", &[X], |x| positive(&x[0]).log2()),
    ("log10", &[X], |x| positive(&x[0]).log10()),
    ("sqrt", &[X], |x| x[0].abs().sqrt()),
    ("rsqrt", &[X], |x| positive(&x[0]).rsqrt()),
    ("reciprocal", &[X], |x| positive(&x[0]).reciprocal()),
    ("sin and cos", &[X], |x| x[0].sin() * x[0].cos()),
    ("tan", &[X], |x| (&x[0] / 2).tan()),
    ("asin", &[X], |x| (&x[0] / 4).asin()),
    ("acos", &[X], |x| (&x[0] / 4).acos()),
    ("atan", &[X], |x| x[0].atan()),
    ("sinh and cosh", &[X], |x| x[0].sinh() + x[0].cosh()),
    ("tanh", &[X], |x| x[0].tanh()),
    ("erf", &[X], |x| x[0].erf()),
    ("tests of finite", &[X], |x| x[0].isfinite() & !x[0].isnan() & !x[0].isinf()),
    ("abs and sign", &[X], |x| x[0].abs() * x[0].sign()),
    ("rounding", &[X], |x| g().stack(&[x[0].ceil(), x[0].floor(), x[0].trunc()], 0)),
    ("square", &[X], |x| x[0].square()),
    ("logical", &[B, B], |x| {
        x[0].logical_and(&x[1]).logical_or(x[0].logical_xor(&x[1])).logical_not()
    }),
    ("relu", &[X], |x| x[0].relu()),
    ("relu6", &[X], |x| (&x[0] * 5).relu6()),
    ("sigmoid", &[X], |x| x[0].sigmoid()),
    ("silu", &[X], |x| x[0].silu()),
    ("hard activations", &[X], |x| x[0].hardsigmoid() + x[0].hardswish()),
    ("mish", &[X], |x| x[0].mish()),
    ("softplus", &[X], |x| x[0].softplus()),
    ("gelu", &[X], |x| x[0].gelu()),
    ("gelu by tanh", &[X], |x| x[0].gelu_tanh()),
    ("leaky relu", &[X], |x| x[0].leaky_relu(0.1)),
    ("elu", &[X], |x| x[0].elu(1.5)),
    ("add", &[X, X], |x| &x[0] + &x[1]),
    ("sub", &[X, V], |x| &x[0] - &x[1]),
    ("mul", &[V, X], |x| &x[0] * &x[1]),
    ("div", &[X, X], |x| &x[0] / positive(&x[1])),
    ("division of integers", &[I], |x| &x[0] / 3),
    ("floor division", &[I, I], |x| x[0].floor_divide(&x[1])),
    ("remainder", &[I], |x| (&x[0] * 5) % 3),
    ("remainder of floats", &[X], |x| (&x[0] * 4) % 1.5),
    ("fmod", &[I], |x| (&x[0] * -7).fmod(4)),
    ("pow", &[X], |x| x[0].pow(2) + positive(&x[0]).pow(1.5)),
    ("atan2", &[X, X], |x| x[0].atan2(positive(&x[1]))),
    ("maximum and minimum", &[X, X], |x| x[0].maximum(&x[1]) - x[0].minimum(&x[1])),
    ("equal", &[I, I], |x| x[0].eq(&x[1])),
    ("not equal", &[I], |x| x[0].ne(1)),
    ("order", &[I, I], |x| {
        g().stack(&[x[0].lt(&x[1]), x[0].le(&x[1]), x[0].gt(&x[1]), x[0].ge(&x[1])], 0)
    }),
    ("bits", &[I, I], |x| (&x[0] & &x[1]) | (&x[0] ^ 5)),
    ("clamp", &[X], |x| x[0].clamp(-0.5, 0.75)),
    ("clamp on one side", &[X], |x| x[0].clamp_min(-0.5) + x[0].clamp_max(0.5)),
    ("where", &[B, X], |x| x[0].where_(&x[1], 0.0)),
    ("where of tensors", &[B, X, X], |x| x[0].where_(&x[1], &x[2])),
    ("masked fill", &[X, B], |x| x[0].masked_fill(&x[1], -3)),
    ("to integers and back", &[X], |x| (&x[0] * 8).to(I32).to(F32)),
    ("to truth values", &[I], |x| (&x[0] - 1).to(I1)),
    ("to f64", &[X], |x| x[0].to(F64) * 3),
    ("to f16 and bf16", &[X], |x| x[0].to(F16).to(F32) + x[0].to(BF16).to(F32)),
    ("integers and floats", &[I, X], |x| &x[0] + &x[1]),
    ("truth values and integers", &[B], |x| &x[0] + 1),
    ("negation", &[X], |x| -&x[0]),
    ("numbers on the left", &[X], |x| 1 - 2.0 / positive(&x[0])),
    ("dropout", &[X], |x| x[0].dropout(0.5)),
    ("a long chain", &[X, V], |x| (((&x[0] * 2 + &x[1]).tanh() * 3 - 1).exp() + 1).log()),
];

const SHAPES: &[Case] = &[
    ("reshape", &[X], |x| x[0].reshape((-1, 2)) + 0),
    ("view", &[X], |x| x[0].view((-1, 2, 2)) * 2),
    ("flatten", &[P], |x| x[0].flatten(0, 1) + 1),
    ("unflatten", &[P], |x| x[0].unflatten(-1, (2, 3)) + 1),
    ("transpose", &[P], |x| x[0].transpose(0, 2) + 0),
    ("permute", &[P], |x| x[0].permute([1, 2, 0]) * 1),
    ("t", &[X], |x| x[0].t() + 1),
    ("squeeze and unsqueeze", &[X], |x| {
        x[0].unsqueeze(1).squeeze(1) + x[0].unsqueeze(0).squeeze(..)
    }),
    ("expand", &[V], |x| x[0].expand((3, 4)) + 0),
    ("broadcast to", &[X], |x| x[0].unsqueeze(1).broadcast_to((-1, 3, 4)) + 0),
    ("narrow", &[P], |x| x[0].narrow(2, 1, 3) + 0),
    ("slice of the batch", &[X], |x| x[0].slice(0, 1, END) * 2),
    ("slice from the end", &[X], |x| x[0].slice(0, -2, END) * 2),
    ("slice with a step", &[P], |x| x[0].slice_step(2, 0, END, 2) * 2),
    ("select", &[P], |x| x[0].select(1, -1) + 0),
    ("select of the batch", &[X], |x| x[0].select(0, 0) + 0),
    ("split", &[P], |x| {
        let all = x[0].split(2, 2);
        &all[0] - &all[2]
    }),
    ("split of the batch", &[X], |x| {
        x[0].split(2, 0).pop().map_or_else(|| x[0].clone(), |t| t + 1)
    }),
    ("split with sizes", &[P], |x| {
        let [a, b] = x[0].split_with_sizes([1, 5], 2);
        a * b
    }),
    ("chunk", &[P], |x| {
        let [a, b, c] = x[0].chunk(-1);
        a + b * c
    }),
    ("unbind", &[P], |x| {
        let all = x[0].unbind(1);
        &all[0] + &all[1]
    }),
    ("flip", &[P], |x| x[0].flip([0, 2]) + 0),
    ("roll", &[P], |x| x[0].roll(&[1, -2], &[0, 2]) + 0),
    ("repeat", &[X], |x| x[0].repeat((2, 3)) + 0),
    ("pad", &[X], |x| x[0].pad((1, 2), 7)),
    ("pad of the batch", &[X], |x| x[0].pad((0, 0, 1, 1), -1)),
    ("cat", &[X, X], |x| g().cat(x, 1)),
    ("cat of the batch", &[X, V], |x| g().cat(&[x[0].clone(), x[1].unsqueeze(0)], 0)),
    ("stack", &[X, X], |x| g().stack(x, 1)),
    ("zeros and ones", &[X], |x| x[0].zeros_like() + x[0].ones_like() * x[0].full_like(2.5)),
    ("full of the batch", &[X], |x| g().full((x[0].size(0), 3), 2, I64)),
    ("zeros of two batches", &[X], |x| g().zeros((x[0].size(0) * 2, 2), F32)),
    ("arange", &[X], |x| g().arange(0, x[0].size(0), 1).unsqueeze(1) + x[0].to(I64)),
    ("linspace", &[X], |x| x[0].to(F32) + g().linspace(0.0, 1.0, 4)),
    ("eye", &[X], |x| x[0].matmul(g().eye(4, 4, F32))),
    ("triangles", &[P], |x| x[0].tril(0) - x[0].triu(1)),
    ("embedding", &[(F32, &[5, 3]), I], |x| x[0].embedding(&x[1])),
    ("index select", &[P, (I64, &[3])], |x| x[0].index_select(2, &x[1])),
    ("gather", &[X, I], |x| x[0].gather(1, &x[1])),
    ("identity", &[X], |x| x[0].clone()),
    ("one result of two ops", &[X], |x| {
        let y = &x[0] + 1;
        &y * &y
    }),
    ("sizes in arithmetic", &[X], |x| x[0].sum(0, false) / x[0].size(0)),
    ("the lesser size", &[X], |x| x[0].slice(0, 0, x[0].size(0).min(4))),
];

const REDUCTIONS: &[Case] = &[
    ("sum of all", &[P], |x| x[0].sum(.., false)),
    ("sum of rows", &[P], |x| x[0].sum(-1, false)),
    ("sum of the batch", &[P], |x| x[0].sum(0, true)),
    ("sum of two", &[P], |x| x[0].sum([0, 2], false)),
    ("sum of integers", &[I], |x| x[0].sum(1, false)),
    ("mean", &[P], |x| x[0].mean([1, 2], true)),
    ("mean of all", &[X], |x| x[0].mean(.., false)),
    ("prod", &[X], |x| x[0].prod(1, false)),
    ("amax", &[P], |x| x[0].amax(2, false)),
    ("amin of all", &[P], |x| x[0].amin(.., false)),
    ("any and all", &[B], |x| x[0].any(1, false) & x[0].all(1, false)),
    ("logsumexp", &[X], |x| x[0].logsumexp(1, true)),
    ("variance", &[X], |x| x[0].var(1, 1.0, false)),
    ("standard deviation", &[P], |x| x[0].std([1, 2], 0.0, true)),
    ("argmax", &[I], |x| x[0].argmax(Some(1), false)),
    ("argmin of all", &[X], |x| x[0].argmin(None, false)),
    ("max along", &[X], |x| x[0].max_dim(1, true).0),
    ("position of min", &[X], |x| x[0].min_dim(0, false).1),
    ("cumsum", &[X], |x| x[0].cumsum(1)),
    ("cumsum of the batch", &[X], |x| x[0].cumsum(0)),
    ("cumprod", &[X], |x| x[0].cumprod(1)),
    ("topk", &[X], |x| x[0].topk(2, 1, true).0),
    ("sort", &[X], |x| x[0].sort(1, true).0),
    ("softmax", &[X], |x| x[0].softmax(-1)),
    ("softmax of the batch", &[X], |x| x[0].softmax(0)),
    ("log softmax", &[X], |x| x[0].log_softmax(1)),
    ("mse", &[X, X], |x| x[0].mse_loss(&x[1], Reduction::Mean)),
    ("mse of each", &[X, X], |x| x[0].mse_loss(&x[1], Reduction::None)),
    ("cross entropy", &[X, (I64, &[-1])], |x| x[0].cross_entropy(&x[1], CrossEntropy::default())),
    ("cross entropy, weighted", &[X, (I64, &[-1]), V], |x| {
        let weight = Some(positive(&x[2]));
        x[0].cross_entropy(
            &x[1],
            CrossEntropy {
                weight,
                reduction: Reduction::Sum,
                label_smoothing: 0.1,
                ..Default::default()
            },
        )
    }),
    ("normalised by hand", &[X], |x| {
        (&x[0] - x[0].mean(1, true)) * (x[0].var(1, 0.0, true) + 1e-5).rsqrt()
    }),
];

const PRODUCTS: &[Case] = &[
    ("matmul", &[X, (F32, &[4, 3])], |x| x[0].matmul(&x[1])),
    ("matmul with a vector", &[X, V], |x| x[0].matmul(&x[1])),
    ("matmul of batches", &[P, (F32, &[6, 3])], |x| x[0].matmul(&x[1])),
    ("bmm", &[P, (F32, &[-1, 6, 2])], |x| x[0].bmm(&x[1])),
    ("with itself", &[X], |x| x[0].matmul(x[0].t())),
    ("linear", &[X, (F32, &[3, 4]), (F32, &[3])], |x| x[0].linear(&x[1], Some(x[2].clone()))),
    ("linear without bias", &[P, (F32, &[3, 6])], |x| x[0].linear(&x[1], None).gelu()),
    ("einsum", &[P, P], |x| g().einsum("bij,bkj->bik", x)),
    ("einsum of one", &[P], |x| g().einsum("bij->jb", x)),
    ("attention", &[(F32, &[-1, 2, 3, 4]), (F32, &[-1, 2, 3, 4])], |x| {
        x[0].scaled_dot_product_attention(&x[1], &x[0], Default::default())
    }),
    ("causal attention", &[(F32, &[2, 2, -1, 4])], |x| {
        x[0].scaled_dot_product_attention(
            &x[0],
            &x[0],
            Attention { causal: true, ..Default::default() },
        )
    }),
    ("layer norm", &[X, V, V], |x| {
        x[0].layer_norm(&[4], Some(x[1].clone()), Some(x[2].clone()), 1e-5)
    }),
    ("rms norm", &[X, V], |x| x[0].rms_norm(&[4], Some(x[1].clone()), Some(1e-6))),
    ("group norm", &[IMAGE, V, V], |x| {
        x[0].group_norm(2, Some(x[1].clone()), Some(x[2].clone()), 1e-5)
    }),
    ("batch norm", &[IMAGE, V, V], |x| x[0].batch_norm(&x[1], positive(&x[2]), None, None, 1e-5)),
    ("conv1d", &[(F32, &[-1, 3, 7]), (F32, &[2, 3, 3])], |x| {
        x[0].conv1d(&x[1], None, Convolution { padding: [1], ..Default::default() })
    }),
    ("conv2d", &[IMAGE, (F32, &[2, 4, 3, 3]), (F32, &[2])], |x| {
        x[0].conv2d(&x[1], Some(x[2].clone()), Default::default()).relu()
    }),
    ("grouped conv2d", &[IMAGE, (F32, &[4, 1, 3, 3])], |x| {
        x[0].conv2d(
            &x[1],
            None,
            Convolution { groups: 4, stride: [2, 1], padding: [1, 1], ..Default::default() },
        )
    }),
    ("max pool", &[IMAGE], |x| x[0].max_pool2d(Pool::new([2, 2]))),
    ("average pool", &[IMAGE], |x| {
        x[0].avg_pool2d(Pool { stride: [1, 2], padding: [1, 0], ..Pool::new([3, 2]) }, false)
    }),
    ("adaptive pool", &[IMAGE], |x| x[0].adaptive_avg_pool2d([2, 2])),
    ("upsampling", &[IMAGE], |x| x[0].interpolate_nearest((9, 7))),
    ("a small network", &[X, (F32, &[8, 4]), (F32, &[3, 8])], |x| {
        x[0].linear(&x[1], None).relu().linear(&x[2], None).log_softmax(-1)
    }),
];

/// Arguments at one value of the dynamic size.
fn arguments(specs: &[Spec], n: usize) -> Vec<Tensor> {
    let mut random = Random(n as u64 + 1);
    let shape =
        |sizes: &[i64]| sizes.iter().map(|s| usize::try_from(*s).unwrap_or(n)).collect::<Vec<_>>();
    specs.iter().map(|(dtype, sizes)| Tensor::from(&random.tensor(*dtype, &shape(sizes)))).collect()
}

fn wrong(how: &str, have: Result<Tensor, Error>, want: &Tensor) -> Option<String> {
    let compared = || -> Result<_, Box<dyn std::error::Error>> {
        Ok(tolerance::compare(&have?.value()?, &want.value()?)?)
    };
    match compared() {
        Ok(c) if c.ok => None,
        Ok(c) => Some(format!("{how}: {c}")),
        Err(e) => Some(format!("{how}: {e}")),
    }
}

/// All functions.
pub fn all() -> impl Iterator<Item = &'static Case> {
    [ELEMENTWISE, SHAPES, REDUCTIONS, PRODUCTS].into_iter().flatten()
}

fn check(case: &Case) -> Vec<String> {
    check_on(case, "cpu")
}

/// Errors of a function whose programs run on this device; eager ops run on the host.
pub fn check_on((name, specs, f): &Case, device: &str) -> Vec<String> {
    crate::watchdog::arm();
    let f = *f;
    let mut found = vec![];
    let fixed = kiln::compile(move |x: Vec<Tensor>| f(&x)).dynamic(false).device(device);
    let open = kiln::compile(move |x: Vec<Tensor>| f(&x)).dynamic(true).device(device);
    let each = kiln::compile(move |x: Vec<Tensor>| f(&x))
        .options([("break_each_op", "true"), ("cache_size_limit", "1000")]);
    let broken = kiln::compile(move |x: Vec<Tensor>| -> Result<Tensor, TraceError> {
        x[0].array()?;
        let y = f(&x);
        y.array()?;
        Ok(y)
    })
    .device(device);
    let kept_out = kiln::disable(move |x: Vec<Tensor>| f(&x));
    let around = kiln::compile(move |x: Vec<Tensor>| -> Result<Tensor, TraceError> {
        Ok(kept_out.call(x)?.unsqueeze(0))
    })
    .device(device);
    for n in [5, 3] {
        let x = arguments(specs, n);
        let want = with_backend("interpreter", || f(&x)).expect("a backend");
        if device == "cpu" {
            found.extend(wrong(&format!("op by op at {n}"), Ok(f(&x)), &want));
        }
        found.extend(wrong(&format!("symbolic at {n}"), open.call(x.clone()), &want));
        if n == 3 {
            found.extend(wrong("static", fixed.call(x.clone()), &want));
            found.extend(wrong("with breaks", broken.call(x.clone()), &want));
            let outside = around.call(x.clone()).and_then(|t| {
                let a = t.array()?;
                Ok(Tensor::from_bytes(a.dtype(), &a.shape()[1..], a.bytes()?.bytes())?)
            });
            found.extend(wrong("kept out of a graph", outside, &want));
            if device == "cpu" {
                found.extend(wrong("with a break behind each op", each.call(x.clone()), &want));
            }
        }
    }
    found.into_iter().map(|e| format!("{name}: {e}")).collect()
}

fn run(cases: &[Case]) {
    let all: Vec<String> = cases.iter().flat_map(check).collect();
    assert!(all.is_empty(), "{} of {} functions\n{}", all.len(), cases.len(), all.join("\n"));
}

#[test]
fn elementwise_functions_agree() {
    run(ELEMENTWISE);
}

#[test]
fn functions_of_shapes_agree() {
    run(SHAPES);
}

#[test]
fn reductions_agree() {
    run(REDUCTIONS);
}

#[test]
fn products_and_norms_agree() {
    run(PRODUCTS);
}

#[test]
fn the_suite_is_large() {
    let n = all().count();
    assert!(n >= 150, "{n}");
}
