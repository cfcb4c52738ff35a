//! cuDNN convolutions: the call's description, evaluated by plain loops, against the interpreter.
use super::{gemm::table, *};
use crate::{
    compiled::graphs::against,
    support::{functions, inputs},
};
use kiln::{
    dialects::{
        ir::{Context, Module},
        value::{DType, Tensor},
    },
    runtime::{
        convolution::{Convolution, Volume},
        gemm::Activation,
        library_call::LibraryCall,
        program::{Arg, Dim},
    },
};

/// The expected support for a case.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Support {
    /// Described, and supported by engines on every chip.
    Always,
    /// Described, but an engine may be missing.
    Described,
    /// Not expressible.
    Unsupported,
}

/// A channels-last convolution. Sizes: images, height, width, channels; filters, height, width,
/// channels per group.
pub struct Case {
    pub name: &'static str,
    image: [usize; 4],
    weight: [usize; 4],
    how: &'static str,
    dtype: &'static str,
    /// The epilogue: `bias`, `residual`, `shared` (a residual broadcast over images), `relu`,
    /// `gelu`, `tanh`.
    then: &'static [&'static str],
    schedule: &'static str,
    pub support: Support,
}

const PLAIN: &str = "strides = [1, 1] pad = [0, 0] x [0, 0] dilation = [1, 1]";
const SAME: &str = "strides = [1, 1] pad = [1, 1] x [1, 1] dilation = [1, 1]";
const WGMMA: &str = "#kiln.schedule<\"wgmma_gemm\", {block_k = 64 : i64, block_m = 64 : i64, block_n = 64 : i64, ctas_per_sm = 0 : i64, library = \"cudnn\", split_k = 1 : i64, stages = 4 : i64}>";
const CONTRACT: &str = "#kiln.schedule<\"naive_contraction\", {block_k = 16 : i64, block_m = 64 : i64, block_n = 64 : i64, library = \"cudnn\", thread_m = 4 : i64, thread_n = 4 : i64}>";
const DEPTHWISE: &str = "#kiln.schedule<\"depthwise\", {library = \"cudnn\", pixels = 1 : i64, threads = 128 : i64, vector = 8 : i64}>";

const fn case(
    name: &'static str,
    [image, weight]: [[usize; 4]; 2],
    how: &'static str,
    dtype: &'static str,
    then: &'static [&'static str],
    schedule: &'static str,
    support: Support,
) -> Case {
    Case { name, image, weight, how, dtype, then, schedule, support }
}

pub const CONVOLUTIONS: &[Case] = &[
    case("plain", [[2, 9, 7, 16], [24, 3, 3, 16]], SAME, "bf16", &[], WGMMA, Support::Always),
    case(
        "bias and relu",
        [[2, 9, 7, 16], [24, 3, 3, 16]],
        SAME,
        "bf16",
        &["bias", "relu"],
        WGMMA,
        Support::Always,
    ),
    case(
        "bias and relu in f16",
        [[2, 9, 7, 16], [24, 3, 3, 16]],
        SAME,
        "f16",
        &["bias", "relu"],
        WGMMA,
        Support::Always,
    ),
    case(
        "residual",
        [[2, 8, 8, 32], [32, 3, 3, 32]],
        SAME,
        "bf16",
        &["bias", "residual", "relu"],
        WGMMA,
        Support::Described,
    ),
    case(
        "bias and gelu",
        [[2, 8, 8, 32], [32, 3, 3, 32]],
        SAME,
        "bf16",
        &["bias", "gelu"],
        WGMMA,
        Support::Described,
    ),
    case(
        "stride, dilation and a window that is no square",
        [[3, 15, 12, 16], [40, 5, 2, 16]],
        "strides = [2, 3] pad = [2, 1] x [2, 1] dilation = [2, 1]",
        "bf16",
        &["bias"],
        WGMMA,
        Support::Described,
    ),
    // No window covers the last row, so the trailing zeros do not matter.
    case(
        "other zeros behind than in front",
        [[1, 10, 9, 16], [16, 3, 3, 16]],
        "strides = [2, 2] pad = [0, 1] x [1, 1] dilation = [1, 1]",
        "bf16",
        &[],
        WGMMA,
        Support::Described,
    ),
    case(
        "one pixel",
        [[2, 9, 9, 64], [32, 1, 1, 64]],
        "strides = [2, 2] pad = [0, 0] x [0, 0] dilation = [1, 1]",
        "bf16",
        &["bias", "relu"],
        WGMMA,
        Support::Always,
    ),
    case("f32", [[2, 9, 7, 12], [20, 3, 3, 12]], PLAIN, "f32", &[], CONTRACT, Support::Described),
    case(
        "bias and relu in f32",
        [[2, 9, 7, 12], [20, 3, 3, 12]],
        PLAIN,
        "f32",
        &["bias", "relu"],
        CONTRACT,
        Support::Described,
    ),
    case(
        "groups",
        [[2, 8, 7, 32], [48, 3, 3, 8]],
        "strides = [1, 1] pad = [0, 0] x [0, 0] dilation = [1, 1] {groups = 4}",
        "bf16",
        &[],
        CONTRACT,
        Support::Described,
    ),
    case(
        "each channel by itself",
        [[2, 9, 10, 24], [24, 3, 3, 1]],
        "strides = [1, 1] pad = [1, 1] x [1, 1] dilation = [1, 1] {groups = 24}",
        "bf16",
        &["bias", "relu"],
        DEPTHWISE,
        Support::Described,
    ),
    // Not supported: another activation, an op after it, a broadcast residual.
    case(
        "tanh",
        [[2, 9, 7, 16], [24, 3, 3, 16]],
        SAME,
        "bf16",
        &["bias", "tanh"],
        WGMMA,
        Support::Unsupported,
    ),
    case(
        "relu before the residual",
        [[2, 8, 8, 32], [32, 3, 3, 32]],
        SAME,
        "bf16",
        &["bias", "relu", "residual"],
        WGMMA,
        Support::Unsupported,
    ),
    case(
        "a residual for all images",
        [[2, 8, 8, 32], [32, 3, 3, 32]],
        SAME,
        "bf16",
        &["bias", "shared"],
        WGMMA,
        Support::Unsupported,
    ),
];

/// The integers after a key of an attribute.
fn numbers(how: &str, word: &str) -> Vec<usize> {
    let list = how.split(word).nth(1).unwrap_or_default().split('[').skip(1).take(2);
    list.flat_map(|l| {
        l.split(']').next().unwrap_or_default().split(", ").map(|n| n.parse().unwrap())
    })
    .collect()
}

/// The result sizes, channels last.
fn result(c: &Case) -> [usize; 4] {
    let (strides, pads, dilation) =
        (numbers(c.how, "strides"), numbers(c.how, "pad"), numbers(c.how, "dilation"));
    let along = |i: usize| {
        (c.image[1 + i] + pads[i] + pads[2 + i] - dilation[i] * (c.weight[1 + i] - 1) - 1)
            / strides[i]
            + 1
    };
    [c.image[0], along(0), along(1), c.weight[0]]
}

/// The module of a case.
pub fn text(c: &Case) -> String {
    let ty = |sizes: &[usize]| {
        format!(
            "tensor<{}x{}>",
            sizes.iter().map(|n| n.to_string()).collect::<Vec<_>>().join("x"),
            c.dtype
        )
    };
    let first = |[n, h, w, ch]: [usize; 4]| [n, ch, h, w];
    let out = result(c);
    // Grouped convolutions return channels first.
    if c.how.contains("groups") && c.weight[3] > 1 {
        let (image, weight, to) = (ty(&c.image), ty(&c.weight), ty(&first(out)));
        return format!(
            "func.func @main(%x: {image}, %w: {weight}) -> {to} {{\n%wt = kiln.transpose %w permutation = [0, 3, 1, 2] : {weight}\n\
             %xt = kiln.transpose %x permutation = [0, 3, 1, 2] : {image}\n%r = kiln.convolution %xt, %wt {} : {}, {}\nreturn %r : {to}\n}}",
            c.how,
            ty(&first(c.image)),
            ty(&first(c.weight))
        );
    }
    let (image, weight, to, list) = (ty(&c.image), ty(&c.weight), ty(&out), format!("{out:?}"));
    let mut arguments = format!("%x: {image}, %w: {weight}");
    let mut body = format!(
        "%wt = kiln.transpose %w permutation = [0, 3, 1, 2] : {weight}\n%xt = kiln.transpose %x permutation = [0, 3, 1, 2] : {image}\n\
         %c = kiln.convolution %xt, %wt {} : {}, {}\n%v0 = kiln.transpose %c permutation = [0, 2, 3, 1] : {}\n",
        c.how,
        ty(&first(c.image)),
        ty(&first(c.weight)),
        ty(&first(out))
    );
    for (i, what) in c.then.iter().enumerate() {
        let (x, y) = (format!("%v{i}"), format!("%v{}", i + 1));
        body += &match *what {
            "bias" | "shared" => {
                let (own, dims) = if *what == "bias" {
                    (vec![out[3]], "[3]")
                } else {
                    (out[1..].to_vec(), "[1, 2, 3]")
                };
                arguments += &format!(", %a{i}: {}", ty(&own));
                format!(
                    "%b{i} = kiln.broadcast_in_dim %a{i} dims = {dims} sizes = {list} : {}\n{y} = kiln.add {x}, %b{i} : {to}\n",
                    ty(&own)
                )
            }
            "residual" => {
                arguments += &format!(", %a{i}: {to}");
                format!("{y} = kiln.add {x}, %a{i} : {to}\n")
            }
            "relu" => format!(
                "%z = kiln.splat {list}, 0.0 : {}\n{y} = kiln.max {x}, %z : {to}\n",
                c.dtype
            ),
            "gelu" => format!("{y} = kiln.gelu tanh {x} : {to}\n"),
            "tanh" => format!("{y} = kiln.tanh {x} : {to}\n"),
            other => panic!("{other}"),
        };
    }
    format!("func.func @main({arguments}) -> {to} {{\n{body}return %v{} : {to}\n}}", c.then.len())
}

/// A schedule that names the library.
pub fn schedule(c: &Case) -> &'static str {
    c.schedule
}

/// The program with the library call, or why there is none.
fn library_program(c: &Case) -> Result<Package, Error> {
    let folder = tempfile::tempdir().unwrap();
    let (path, file) = (folder.path().join("m.mlir"), folder.path().join("table"));
    std::fs::write(&path, text(c)).unwrap();
    let options = options("sm_90a");
    let model = load(&path).unwrap();
    std::fs::write(&file, table(&model, &options, "sm_90a", schedule(c)).to_string()).unwrap();
    model
        .build(&Options { schedules: Some(file), ..options }, &|_, _| ())
        .map(|(package, _)| package)
}

/// Evaluates the described call on a program's arguments by loops.
fn evaluate_call(c: &Convolution, args: &[Arg], inputs: &[Tensor], shape: Vec<usize>) -> Tensor {
    let elements = |v: &Volume| match args[v.arg] {
        Arg::Input(i) => inputs[i].as_f().unwrap(),
        other => panic!("{other:?} is no argument"),
    };
    let at = |v: &Volume, index: [u64; 4]| {
        assert!(index.iter().zip(&v.sizes).all(|(i, n)| i < n), "{index:?} is outside of {v:?}");
        (v.offset + index.iter().zip(&v.strides).map(|(i, s)| i * s).sum::<u64>()) as usize
    };
    let (image, weight) = (elements(&c.image), elements(&c.weight));
    let [images, filters, height, width] = c.result.sizes;
    let [kernels, each, ..] = c.weight.sizes;
    let groups = c.image.sizes[1] / each;
    assert!(
        kernels == filters && groups * each == c.image.sizes[1] && filters.is_multiple_of(groups),
        "{c:?}"
    );
    assert!(matches!(args[c.result.arg], Arg::Output(0)) && c.image.sizes[0] == images);
    for i in 0..2 {
        let (image, window, out) =
            (c.image.sizes[2 + i], c.weight.sizes[2 + i], c.result.sizes[2 + i]);
        assert_eq!(
            (image + c.low[i] + c.high[i] - c.dilation[i] * (window - 1) - 1) / c.strides[i] + 1,
            out,
            "{c:?}"
        );
    }
    let mut out = vec![f64::NAN; shape.iter().product()];
    for n in 0..images {
        for (f, (p, q)) in (0..filters)
            .flat_map(|f| (0..height).flat_map(move |p| (0..width).map(move |q| (f, (p, q)))))
        {
            let mut sum = 0.0;
            for (r, s) in
                (0..c.weight.sizes[2]).flat_map(|r| (0..c.weight.sizes[3]).map(move |s| (r, s)))
            {
                let along = |i: usize, p: u64, r: u64| {
                    (p * c.strides[i] + r * c.dilation[i])
                        .checked_sub(c.low[i])
                        .filter(|h| *h < c.image.sizes[2 + i])
                };
                let (Some(h), Some(w)) = (along(0, p, r), along(1, q, s)) else { continue };
                for ch in 0..each {
                    let group = f / (filters / groups);
                    sum += image[at(&c.image, [n, group * each + ch, h, w])]
                        * weight[at(&c.weight, [f, ch, r, s])];
                }
            }
            sum += c.bias.as_ref().map_or(0.0, |v| elements(v)[at(v, [0, f, 0, 0])]);
            sum += c.residual.as_ref().map_or(0.0, |v| elements(v)[at(v, [n, f, p, q])]);
            out[at(&c.result, [n, f, p, q])] = match c.activation {
                Activation::None => sum,
                Activation::Relu => sum.max(0.0),
                // Hendrycks and Gimpel, 2016, equation 2.
                Activation::GeluTanh => {
                    0.5 * sum
                        * (1.0
                            + ((2.0 / std::f64::consts::PI).sqrt()
                                * (sum + 0.044715 * sum.powi(3)))
                            .tanh())
                }
            };
        }
    }
    let dtype = DType::from_name(&c.result.dtype).unwrap();
    Tensor::floats(dtype, shape, out.into_iter().map(|x| dtype.round(x)).collect()).unwrap()
}

#[test]
fn cudnn_call_equals_the_kernel() {
    for c in CONVOLUTIONS {
        crate::watchdog::arm();
        let name = c.name;
        let package = match library_program(c) {
            Ok(package) if c.support != Support::Unsupported => package,
            Err(e) if c.support == Support::Unsupported => {
                assert!(e.to_string().contains("no convolution that it has"), "{name}: {e}");
                continue;
            }
            Ok(_) => panic!("{name}: the library has no such convolution"),
            Err(e) => panic!("{name}: {e}"),
        };
        let [kernel] = package.program.kernels.as_slice() else {
            panic!("{name}: {} kernels", package.program.kernels.len())
        };
        let launch = kernel.launch.as_ref().unwrap();
        let Some(LibraryCall::Convolution(call)) = &launch.library else {
            panic!("{name}: {:?}", launch.library)
        };
        assert!(!call.tf32, "{call:?}");
        // The generated kernel stays as a fallback.
        assert!(package.objects.contains_key(&kernel.symbol), "{name}");
        let shape = package.program.outputs[0].dims.iter().map(|d| match d {
            Dim::Known(n) => *n as usize,
            other => panic!("{other:?}"),
        });
        let shape: Vec<usize> = shape.collect();
        let context = Context::new();
        let (module, _) = Module::parse(context.ctx(), text(c).as_bytes(), name)
            .unwrap_or_else(|e| panic!("{name}: {e}"));
        let call = |inputs: &[Tensor]| {
            Ok(vec![vec![evaluate_call(call, &launch.args, inputs, shape.clone())]])
        };
        against(&module, &inputs(functions(&module)[0], 7), |_| Ok(call))
            .unwrap_or_else(|e| panic!("{name}: {e}"));
        // A package keeps it.
        let bytes = package.to_bytes().unwrap();
        let again =
            Package::read(std::io::Cursor::new(bytes), kiln::runtime::package::MAX_BYTES).unwrap();
        assert_eq!(again.program, package.program, "{name}");
    }
}
