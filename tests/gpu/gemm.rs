//! cuBLASLt matmuls: the call's description, evaluated by plain loops, against the interpreter.
use super::*;
use crate::{
    compiled::graphs::against,
    support::{functions, inputs},
};
use kiln::{
    autotune::Kernels,
    dialects::{
        ir::{Context, Module},
        value::{DType, Tensor},
    },
    lowering::{Schedules, Target},
    model::Model,
    runtime::{
        gemm::{Activation, Gemm, Matrix},
        library_call::LibraryCall,
        program::Arg,
    },
};

/// A name, argument and result types, the body that defines `%r`, and whether cuBLASLt supports it.
type GemmCase = (&'static str, &'static str, &'static str, &'static str, bool);

/// Matmuls with epilogues. Rows are multiples of 16 bytes, as the library description requires.
pub const GEMMS: &[GemmCase] = &[
    (
        "nt",
        "%x: tensor<48x64xbf16>, %w: tensor<40x64xbf16>",
        "48x40xbf16",
        "%r = kiln.linear %x, %w : tensor<48x64xbf16>, tensor<40x64xbf16>",
        true,
    ),
    (
        "nn",
        "%x: tensor<48x64xf16>, %w: tensor<64x40xf16>",
        "48x40xf16",
        "%r = kiln.dot_general %x, %w batch = [] x [] contract = [1] x [0] : tensor<48x64xf16>, tensor<64x40xf16>",
        true,
    ),
    (
        "tn",
        "%x: tensor<64x48xbf16>, %w: tensor<64x40xbf16>",
        "48x40xbf16",
        "%r = kiln.dot_general %x, %w batch = [] x [] contract = [0] x [0] : tensor<64x48xbf16>, tensor<64x40xbf16>",
        true,
    ),
    (
        "tt",
        "%x: tensor<64x48xbf16>, %w: tensor<40x64xbf16>",
        "48x40xbf16",
        "%r = kiln.dot_general %x, %w batch = [] x [] contract = [0] x [1] : tensor<64x48xbf16>, tensor<40x64xbf16>",
        true,
    ),
    (
        "batch",
        "%x: tensor<3x48x64xbf16>, %w: tensor<3x64x40xbf16>",
        "3x48x40xbf16",
        "%r = kiln.dot_general %x, %w batch = [0] x [0] contract = [2] x [1] : tensor<3x48x64xbf16>, tensor<3x64x40xbf16>",
        true,
    ),
    (
        "bias",
        "%x: tensor<48x64xbf16>, %w: tensor<40x64xbf16>, %b: tensor<40xbf16>",
        "48x40xbf16",
        "%r = kiln.linear %x, %w bias %b : tensor<40xbf16> : tensor<48x64xbf16>, tensor<40x64xbf16>",
        true,
    ),
    (
        "relu",
        "%x: tensor<48x64xbf16>, %w: tensor<40x64xbf16>",
        "48x40xbf16",
        "%0 = kiln.linear %x, %w : tensor<48x64xbf16>, tensor<40x64xbf16>\n%z = kiln.splat [48, 40], 0.0 : bf16\n%r = kiln.max %0, %z : tensor<48x40xbf16>",
        true,
    ),
    (
        "bias and relu",
        "%x: tensor<48x64xf16>, %w: tensor<40x64xf16>, %b: tensor<40xf16>",
        "48x40xf16",
        "%0 = kiln.linear %x, %w bias %b : tensor<40xf16> : tensor<48x64xf16>, tensor<40x64xf16>\n%z = kiln.splat [48, 40], 0.0 : f16\n%r = kiln.max %0, %z : tensor<48x40xf16>",
        true,
    ),
    (
        "f32",
        "%x: tensor<48x64xf32>, %w: tensor<40x64xf32>",
        "48x40xf32",
        "%r = kiln.linear %x, %w : tensor<48x64xf32>, tensor<40x64xf32>",
        true,
    ),
    (
        "bias and gelu",
        "%x: tensor<48x64xbf16>, %w: tensor<40x64xbf16>, %b: tensor<40xbf16>",
        "48x40xbf16",
        "%0 = kiln.linear %x, %w bias %b : tensor<40xbf16> : tensor<48x64xbf16>, tensor<40x64xbf16>\n%r = kiln.gelu tanh %0 : tensor<48x40xbf16>",
        true,
    ),
    (
        "gelu in f32",
        "%x: tensor<48x64xf32>, %w: tensor<40x64xf32>",
        "48x40xf32",
        "%0 = kiln.linear %x, %w : tensor<48x64xf32>, tensor<40x64xf32>\n%r = kiln.gelu tanh %0 : tensor<48x40xf32>",
        true,
    ),
    // Not supported: another activation, a bias per row, a second result.
    (
        "gelu",
        "%x: tensor<48x64xbf16>, %w: tensor<40x64xbf16>",
        "48x40xbf16",
        "%0 = kiln.linear %x, %w : tensor<48x64xbf16>, tensor<40x64xbf16>\n%r = kiln.gelu %0 : tensor<48x40xbf16>",
        false,
    ),
    (
        "residual",
        "%x: tensor<48x64xbf16>, %w: tensor<40x64xbf16>, %b: tensor<48x40xbf16>",
        "48x40xbf16",
        "%0 = kiln.linear %x, %w : tensor<48x64xbf16>, tensor<40x64xbf16>\n%r = kiln.add %0, %b : tensor<48x40xbf16>",
        false,
    ),
];

/// The module of a case.
pub fn text((_, args, result, body, _): &GemmCase) -> String {
    format!(
        "func.func @main({args}) -> tensor<{result}> {{\n{body}\nreturn %r : tensor<{result}>\n}}"
    )
}

/// A schedule table in which a model's only kernel uses the library, with another schedule for
/// `chip`.
pub fn table(model: &Model, options: &Options, chip: &str, schedule: &str) -> Schedules {
    let target = Target::parse(&format!("cuda:{chip}")).unwrap();
    let kernels = Kernels::of(model, options, &target, &Schedules::default()).unwrap();
    let keys: Vec<(&str, bool)> = kernels.keys().collect();
    assert!(keys.len() == 1 && keys[0].1, "{keys:?}");
    let mut table = Schedules::default();
    table.insert(keys[0].0, &target.to_string(), 1.0, schedule);
    table
}

/// A schedule that names the library, of the strategy that supports any dtype.
pub fn schedule(result: &str) -> &'static str {
    if result.ends_with("f32") {
        "#kiln.schedule<\"naive_contraction\", {block_k = 16 : i64, block_m = 64 : i64, block_n = 64 : i64, library = \"cublaslt\", thread_m = 4 : i64, thread_n = 4 : i64}>"
    } else {
        "#kiln.schedule<\"wgmma_gemm\", {block_k = 64 : i64, block_m = 64 : i64, block_n = 64 : i64, ctas_per_sm = 0 : i64, library = \"cublaslt\", split_k = 1 : i64, stages = 4 : i64}>"
    }
}

/// The program with the library call, or why there is none.
fn library_program(p: &GemmCase) -> Result<Package, Error> {
    let folder = tempfile::tempdir().unwrap();
    let (path, file) = (folder.path().join("m.mlir"), folder.path().join("table"));
    std::fs::write(&path, text(p)).unwrap();
    let options = options("sm_90a");
    let model = load(&path).unwrap();
    std::fs::write(&file, table(&model, &options, "sm_90a", schedule(p.2)).to_string()).unwrap();
    model
        .build(&Options { schedules: Some(file), ..options }, &|_, _| ())
        .map(|(package, _)| package)
}

/// Evaluates the described call on a program's arguments by loops.
fn evaluate_call(g: &Gemm, args: &[Arg], inputs: &[Tensor]) -> Tensor {
    let elements = |arg: usize| match args[arg] {
        Arg::Input(i) => inputs[i].as_f().unwrap(),
        other => panic!("{other:?} is no argument"),
    };
    let at = |m: &Matrix, b: u64, row: u64, column: u64| {
        let (line, place) = if m.transposed { (column, row) } else { (row, column) };
        assert!(line < m.lines[0] && place < m.lines[1], "{row}, {column} is outside of {m:?}");
        (m.offset + b * m.apart + line * m.stride + place) as usize
    };
    let (left, right) = (elements(g.left.arg), elements(g.right.arg));
    let [rows, columns] = g.result.lines;
    let depth = if g.left.transposed { g.left.lines[0] } else { g.left.lines[1] };
    assert!(!g.result.transposed && matches!(args[g.result.arg], Arg::Output(0)));
    let mut out = vec![f64::NAN; (u64::from(g.batch) * rows * columns) as usize];
    for b in 0..u64::from(g.batch) {
        for (i, j) in (0..rows).flat_map(|i| (0..columns).map(move |j| (i, j))) {
            let sum: f64 =
                (0..depth).map(|k| left[at(&g.left, b, i, k)] * right[at(&g.right, b, k, j)]).sum();
            let sum = sum + g.bias.map_or(0.0, |v| elements(v.arg)[(v.offset + j) as usize]);
            out[at(&g.result, b, i, j)] = match g.activation {
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
    let dtype = DType::from_name(&g.result.dtype).unwrap();
    let shape = if g.batch > 1 {
        vec![g.batch as usize, rows as usize, columns as usize]
    } else {
        vec![rows as usize, columns as usize]
    };
    Tensor::floats(dtype, shape, out.into_iter().map(|x| dtype.round(x)).collect()).unwrap()
}

#[test]
fn cublaslt_call_equals_the_kernel() {
    for p in GEMMS {
        crate::watchdog::arm();
        let (name, has) = (p.0, p.4);
        let package = match library_program(p) {
            Ok(package) if has => package,
            Err(e) if !has => {
                assert!(e.to_string().contains("no product that it has"), "{name}: {e}");
                continue;
            }
            Ok(_) => panic!("{name}: the library has no such product"),
            Err(e) => panic!("{name}: {e}"),
        };
        let [kernel] = package.program.kernels.as_slice() else {
            panic!("{name}: {} kernels", package.program.kernels.len())
        };
        let launch = kernel.launch.as_ref().unwrap();
        let Some(LibraryCall::Gemm(gemm)) = &launch.library else {
            panic!("{name}: {:?}", launch.library)
        };
        assert!(!gemm.tf32, "{gemm:?}");
        // The generated kernel stays as a fallback.
        assert!(package.objects.contains_key(&kernel.symbol), "{name}");
        let context = Context::new();
        let (module, _) = Module::parse(context.ctx(), text(p).as_bytes(), name)
            .unwrap_or_else(|e| panic!("{name}: {e}"));
        let call = |inputs: &[Tensor]| Ok(vec![vec![evaluate_call(gemm, &launch.args, inputs)]]);
        against(&module, &inputs(functions(&module)[0], 7), |_| Ok(call))
            .unwrap_or_else(|e| panic!("{name}: {e}"));
        // A package keeps it.
        let bytes = package.to_bytes().unwrap();
        let again =
            Package::read(std::io::Cursor::new(bytes), kiln::runtime::package::MAX_BYTES).unwrap();
        assert_eq!(again.program, package.program, "{name}");
    }
}
