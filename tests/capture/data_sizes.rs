//! Sizes that depend on data: compiled, as PyTorch's.
use super::*;

#[test]
fn sizes_that_depend_on_data_as_pytorch() {
    crate::watchdog::arm();
    for archive in ["aten_data_sizes", "aten_selections"] {
        agrees(&root().join(format!("capture/{archive}.pt2")));
    }
}

fn agrees(path: &std::path::Path) {
    let model = kiln::load(path).expect("an archive");
    let exe = model.compile(&kiln::Options { threads: 2, ..Default::default() }).expect("compiles");
    let file = path.with_extension("safetensors");
    let (inputs, want) = (tensors(&file, "input"), tensors(&file, "output"));
    let have = exe.call_values(&inputs.iter().collect::<Vec<_>>()).expect("a call");
    let have: Vec<_> =
        (0..have.len()).filter(|i| !exe.program().is_size(*i)).map(|i| &have[i]).collect();
    assert_eq!(have.len(), want.len());
    for (i, (have, want)) in have.iter().zip(&want).enumerate() {
        let found = tolerance::compare(have, want).map_err(|e| format!("output {i} {e}"));
        let found = found.expect("the same sizes");
        assert!(found.ok, "output {i}: {found}");
    }
}

/// A result that nothing bounds, or that is smaller for larger sizes, is refused where it is returned.
#[test]
fn results_without_an_upper_bound_are_refused() {
    let text = |size: &str, max: &str| {
        format!(
            "func.func @main(%n: tensor<i64>) -> (tensor<?xf32>, tensor<i64>) \
             attributes {{kiln.size_results = [\"u0\"]}} {{
               %0 = kiln.unbacked_size @u0, %n max [{max}] : tensor<i64> -> tensor<?x0xi8>
               %u0 = kiln.sym @u0
               %k = arith.constant -1 : index
               %less = kiln.sym_expr mul %u0, %k
               %nine = arith.constant 9 : index
               %rest = kiln.sym_expr add %nine, %less
               %1 = kiln.splat [%{size}], 1.0 : f32
               return %1, %n : tensor<?xf32>, tensor<i64>
             }}"
        )
    };
    let compiled = |text: String| {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("model.mlir");
        std::fs::write(&path, text).expect("a file");
        kiln::load(&path).expect("a module").compile(&kiln::Options::default())
    };
    for (size, max) in [("u0", "9223372036854775807"), ("rest", "9")] {
        let e = compiled(text(size, max)).err().expect("an error").to_string();
        assert!(e.contains("which has no upper bound before the call"), "{e}");
    }
    let exe = compiled(text("u0", "9")).expect("compiles");
    let call = |n: i64| exe.call_values(&[&Tensor::scalar_i(DType::I64, n).expect("a number")]);
    for n in [0, 4, 9] {
        assert_eq!(call(n).expect("a call")[0].shape(), [n as usize]);
    }
    for n in [-1, 10] {
        let e = call(n).expect_err("an error").to_string();
        assert!(e.contains("not in 0..=9"), "{e}");
    }
}
