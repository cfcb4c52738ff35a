//! `--execute`: tensors from files, results on stdout and in files, comparison.
use super::*;
use crate::support::emulated;
use safetensors::{Dtype, SafeTensors, tensor::TensorView};

type Given<'a> = (&'a str, Dtype, &'a [usize], Vec<u8>);

fn write(path: &str, tensors: &[Given<'_>]) {
    let views = tensors.iter().map(|(name, dtype, shape, bytes)| {
        (*name, TensorView::new(*dtype, shape.to_vec(), bytes).unwrap())
    });
    safetensors::serialize_to_file(views, None, path.as_ref()).unwrap();
}

fn f32s(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

/// A folder with the program, its weights and two rows of inputs; `expected` holds the four
/// results.
fn linear(expected: &[f32]) -> (tempfile::TempDir, String, String) {
    let folder = temporary();
    let (program, inputs) = (path(&folder, "execute.mlir"), path(&folder, "inputs.safetensors"));
    std::fs::copy(input("execute.mlir"), &program).unwrap();
    let weights: [Given; 2] = [
        ("w", Dtype::F32, &[2, 3], f32s(&[1., 0., 0., 0., 1., 1.])),
        ("bias", Dtype::F32, &[2], f32s(&[0.5, -1.])),
    ];
    write(&path(&folder, "weights.safetensors"), &weights);
    let x = f32s(&[1., 2., 3., 4., 5., 6.]);
    let count = 7i64.to_le_bytes().to_vec();
    let results: [Given; 2] = [
        ("output_0", Dtype::F32, &[2, 2], f32s(expected)),
        ("output_1", Dtype::I64, &[], count.clone()),
    ];
    write(
        &inputs,
        &[
            &[("input_0", Dtype::F32, &[2, 3][..], x), ("input_1", Dtype::I64, &[], count)],
            &results[..],
        ]
        .concat(),
    );
    (folder, program, inputs)
}

const RIGHT: [f32; 4] = [1.5, 4.0, 4.5, 10.0];

#[test]
fn results_are_printed_written_and_checked() {
    let (folder, program, inputs) = linear(&RIGHT);
    let out = path(&folder, "out.safetensors");
    let text = ok(&[&program, "--execute", "--inputs", &inputs, "--outputs", &out, "--check"]);
    snapshot("execute", &text);
    let bytes = std::fs::read(&out).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    assert_eq!(file.tensor("output_0").unwrap().data(), f32s(&RIGHT));
    assert_eq!(file.tensor("output_1").unwrap().data(), 7i64.to_le_bytes());
    assert_eq!(
        ok(&[
            &program,
            "--canonicalize",
            "--cse",
            "--execute",
            "--inputs",
            &inputs,
            "--check",
            "--mode=exact"
        ]),
        text
    );
}

/// A tile program runs without a GPU, and says where it is wrong.
#[test]
fn tile_programs_run_on_the_processor() {
    let folder = temporary();
    let inputs = path(&folder, "inputs.safetensors");
    let diagonal =
        |x: f32| -> Vec<f32> { (0..64 * 64).map(|i| if i % 65 == 0 { x } else { 0.0 }).collect() };
    // The upper half of an f32 is a bf16.
    let bf16s = |all: &[f32]| -> Vec<u8> {
        all.iter().flat_map(|x| ((x.to_bits() >> 16) as u16).to_le_bytes()).collect()
    };
    let (x, wanted) = (bf16s(&diagonal(1.5)), f32s(&diagonal(2.25)));
    write(
        &inputs,
        &[("input_0", Dtype::BF16, &[64, 64], x), ("output_0", Dtype::F32, &[64, 64], wanted)],
    );
    let program = input("tiles.mlir");
    ok(&[&program, "--execute", "--inputs", &inputs, "--check"]);
    let text = std::fs::read_to_string(&program).unwrap();
    let without = text.lines().filter(|l| !l.contains("kiln.tile.wait")).collect::<Vec<_>>();
    let wrong = path(&folder, "wrong.mlir");
    std::fs::write(&wrong, without.join("\n")).unwrap();
    let part = "wrong.mlir:21:14: 'kiln.tile.mma' reads stage 0 without a kiln.tile.wait";
    fails(2, part, &[&wrong, "--execute", "--inputs", &inputs]);
}

/// The next level computes the same.
#[test]
fn levels_agree() {
    let folder = temporary();
    let (inputs, outputs) =
        (path(&folder, "inputs.safetensors"), path(&folder, "outputs.safetensors"));
    write(&inputs, &[("x", Dtype::F32, &[2, 3], f32s(&[-3., -1., 0., 0.5, 2., 8.]))]);
    ok(&[&input("simple.mlir"), "--execute", "--inputs", &inputs, "--outputs", &outputs]);
    let bytes = std::fs::read(&outputs).unwrap();
    let output =
        SafeTensors::deserialize(&bytes).unwrap().tensor("output_0").unwrap().data().to_vec();
    write(
        &inputs,
        &[
            ("input_0", Dtype::F32, &[2, 3], f32s(&[-3., -1., 0., 0.5, 2., 8.])),
            ("output_0", Dtype::F32, &[2, 3], output),
        ],
    );
    let text =
        ok(&[&input("simple.mlir"), "--to=prims", "--execute", "--inputs", &inputs, "--check"]);
    assert!(text.contains("check output_0: ok"), "{text}");
}

#[test]
fn a_mismatch_fails() {
    let (_folder, program, inputs) = linear(&[1.5, 4.0, 4.5, 10.01]);
    let done = run(&[&program, "--execute", "--inputs", &inputs, "--check"]);
    assert_eq!(done.code(), 1);
    assert!(
        done.text().contains("check output_0: MISMATCH")
            && done.text().contains("check output_1: ok"),
        "{}",
        done.text()
    );
}

#[test]
fn weights_from_elsewhere_and_inputs_by_name() {
    let (folder, program, _) = linear(&RIGHT);
    let (weights, inputs) =
        (path(&folder, "other.safetensors"), path(&folder, "named.safetensors"));
    write(
        &weights,
        &[("w", Dtype::F32, &[2, 3], f32s(&[0.; 6])), ("bias", Dtype::F32, &[2], f32s(&[3., 4.]))],
    );
    write(
        &inputs,
        &[
            ("arg10", Dtype::I64, &[], 9i64.to_le_bytes().to_vec()),
            ("arg9", Dtype::F32, &[1, 3], f32s(&[1., 1., 1.])),
        ],
    );
    let text = ok(&[&program, "--execute", "--inputs", &inputs, "--weights", &weights]);
    assert_eq!(text, "output_0: f32 [1, 2] = 3, 4\noutput_1: i64 [] = 9\n");
    fails(
        2,
        "--check needs tensors output_0",
        &[&program, "--execute", "--inputs", &inputs, "--check"],
    );
}

/// Every dtype round-trips bitwise.
#[test]
fn dtypes_keep_their_bits() {
    use Dtype::*;
    let (folder, program, _) = linear(&RIGHT);
    let (inputs, outputs) = (path(&folder, "all.safetensors"), path(&folder, "back.safetensors"));
    let all = [
        (F64, 8),
        (F16, 2),
        (BF16, 2),
        (F8_E4M3, 1),
        (F8_E5M2, 1),
        (I32, 4),
        (I16, 2),
        (I8, 1),
        (U8, 1),
        (BOOL, 1),
    ];
    let bytes = |d: Dtype, size: usize| {
        if d == BOOL {
            vec![0, 1]
        } else {
            (0..2 * size as u8).map(|i| 0x31 + i).collect::<Vec<u8>>()
        }
    };
    let names: Vec<String> = (0..all.len()).map(|i| format!("input_{i}")).collect();
    let given: Vec<Given> = all
        .iter()
        .zip(&names)
        .map(|((d, size), n)| (n.as_str(), *d, &[2usize][..], bytes(*d, *size)))
        .collect();
    write(&inputs, &given);
    ok(&[&program, "--execute", "--function=all", "--inputs", &inputs, "--outputs", &outputs]);
    let file = std::fs::read(&outputs).unwrap();
    let back = SafeTensors::deserialize(&file).unwrap();
    for (i, (d, size)) in all.iter().enumerate() {
        let t = back.tensor(&format!("output_{i}")).unwrap();
        assert_eq!((t.dtype(), t.data()), (*d, &bytes(*d, *size)[..]));
    }
}

#[test]
fn refusals() {
    let (folder, program, inputs) = linear(&RIGHT);
    fails(2, "takes 2 inputs, but 0 are given", &[&program, "--execute"]);
    fails(
        2,
        "did you mean 'main'? (functions: main, all, unsupported",
        &[&program, "--execute", "--function=mian"],
    );
    fails(2, "is no safetensors file", &[&program, "--execute", "--inputs", &program]);
    fails(2, "No such file", &[&program, "--execute", "--inputs", &path(&folder, "none")]);
    let odd = path(&folder, "odd.safetensors");
    write(&odd, &[("input_0", Dtype::U32, &[1], vec![0; 4])]);
    fails(2, "dtype U32, which kiln does not know", &[&program, "--execute", "--inputs", &odd]);
    write(&odd, &[("input_0", Dtype::F32, &[4], f32s(&[0.; 4]))]);
    fails(
        3,
        "'nobody.knows', which is not registered",
        &[&program, "--execute", "--function=unsupported", "--inputs", &odd],
    );
    fails(
        2,
        "@all takes 10 inputs, but 1 is given",
        &[&program, "--execute", "--function=all", "--inputs", &odd],
    );
    std::fs::remove_file(path(&folder, "weights.safetensors")).unwrap();
    fails(
        2,
        "'weights.safetensors', which is not in ",
        &[&program, "--execute", "--inputs", &inputs],
    );
    write(&path(&folder, "weights.safetensors"), &[("ww", Dtype::F32, &[2, 3], f32s(&[0.; 6]))]);
    fails(
        2,
        "has no tensor 'w'; did you mean 'ww'?",
        &[&program, "--execute", "--inputs", &inputs],
    );
}

/// What the levels below `program` print runs again, edited constants included.
#[test]
fn lower_levels_run_from_text() {
    let folder = temporary();
    let (inputs, file) = (path(&folder, "inputs.safetensors"), path(&folder, "lowered.mlir"));
    let x: Vec<f32> = (0..24).map(|i| i as f32).collect();
    write(&inputs, &[("input_0", Dtype::F32, &[3, 8], f32s(&x))]);
    let program = "func.func @main(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
      %n = kiln.sym @n {min = 1 : i64}
      kiln.bind_shape %x, [%n, 8] : tensor<?x8xf32>
      %three = kiln.splat [%n, 8], 3.0 : f32
      %y = kiln.mul %x, %three : tensor<?x8xf32>
      return %y : tensor<?x8xf32>
    }";
    let execute = |text: &str| {
        std::fs::write(&file, text).unwrap();
        ok(&[&file, "--execute", "--inputs", &inputs])
    };
    let want = execute(program);
    assert!(want.starts_with("output_0: f32 [3, 8] = 0, 3, 6, "), "{want}");
    for level in ["program", "target", "llvm"] {
        std::fs::write(&file, program).unwrap();
        let lowered = ok(&[&file, &format!("--to={level}")]);
        assert!(lowered.contains(&format!("kiln.level = \"{level}\"")), "{lowered}");
        assert_eq!(execute(&lowered), want, "{level}");
        let edited = lowered.replace("3.000000e+00", "5.000000e+00");
        assert_ne!(edited, lowered);
        let found = execute(&edited);
        assert!(found.starts_with("output_0: f32 [3, 8] = 0, 5, 10, "), "{level}: {found}");
    }
}

/// Constants and control flow are described as well.
#[test]
fn descriptions_hold_constants_and_control_flow() {
    let folder = temporary();
    let (inputs, file) = (path(&folder, "inputs.safetensors"), path(&folder, "lowered.mlir"));
    write(&inputs, &[("input_0", Dtype::F32, &[4], f32s(&[1., 2., 3., 4.]))]);
    let program = "func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
      %w = kiln.constant dense<[1.0, 2.0, 3.0, 4.0]> : tensor<4xf32>
      %limit = kiln.constant dense<100.0> : tensor<f32>
      %r = kiln.while(%x) : (tensor<4xf32>) -> (tensor<4xf32>) {
      ^bb0(%a: tensor<4xf32>):
        %sum = kiln.reduce sum %a dims = [0] : tensor<4xf32>
        %more = kiln.compare lt %sum, %limit : tensor<f32>
        kiln.yield %more : tensor<i1>
      } do {
      ^bb0(%a: tensor<4xf32>):
        %b = kiln.mul %a, %w : tensor<4xf32>
        kiln.yield %b : tensor<4xf32>
      }
      return %r : tensor<4xf32>
    }";
    std::fs::write(&file, program).unwrap();
    let want = ok(&[&file, "--execute", "--inputs", &inputs]);
    for level in ["target", "llvm"] {
        std::fs::write(&file, program).unwrap();
        let lowered = ok(&[&file, &format!("--to={level}")]);
        std::fs::write(&file, lowered).unwrap();
        assert_eq!(ok(&[&file, "--execute", "--inputs", &inputs]), want, "{level}");
    }
}

/// A module for GPUs runs on a GPU, here an emulated one; without a driver it is an error.
#[test]
fn gpu_modules_run_on_a_gpu() {
    let folder = temporary();
    let (inputs, file) = (path(&folder, "inputs.safetensors"), path(&folder, "lowered.mlir"));
    write(&inputs, &[("input_0", Dtype::F32, &[2, 3], f32s(&[-3., -1., 0., 0.5, 2., 8.]))]);
    let outputs = path(&folder, "outputs.safetensors");
    ok(&[&input("simple.mlir"), "--execute", "--inputs", &inputs, "--outputs", &outputs]);
    let bytes = std::fs::read(&outputs).unwrap();
    let want =
        SafeTensors::deserialize(&bytes).unwrap().tensor("output_0").unwrap().data().to_vec();
    let given = f32s(&[-3., -1., 0., 0.5, 2., 8.]);
    let all =
        [("input_0", Dtype::F32, &[2, 3][..], given), ("output_0", Dtype::F32, &[2, 3][..], want)];
    write(&inputs, &all);
    for level in ["program", "target", "llvm"] {
        let to = format!("--to={level}");
        let lowered = ok(&[&input("simple.mlir"), "--target=cuda:sm_90a", &to]);
        std::fs::write(&file, &lowered).unwrap();
        let args = [&file, "--execute", "--inputs", &inputs, "--check"];
        let mut command = Command::new(env!("CARGO_BIN_EXE_kiln-opt"));
        let done = watchdog::run(emulated(command.args(args)), b"", LIMIT);
        assert_eq!(done.code(), 0, "{level}: {}", done.stderr);
        assert!(done.text().contains("check output_0: ok"), "{level}: {}", done.text());
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_kiln-opt"));
    command.args([&file, "--execute", "--inputs", &inputs]).env("CUDA_VISIBLE_DEVICES", "");
    let done = watchdog::run(&mut command, b"", LIMIT);
    assert_eq!(done.code(), 5, "{}", done.stderr);
    assert!(done.stderr.contains("GPU") || done.stderr.contains("driver"), "{}", done.stderr);
}
