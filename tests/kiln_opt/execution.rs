//! `--execute`: tensors from files, results on stdout and in files, comparison.
use super::*;
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
