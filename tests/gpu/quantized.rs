//! Products of 8-bit floats, of int8 and with quantised weights: the instructions per chip.
use super::*;
use kiln::lowering::UserPasses;

/// The PTX of a compiled case's kernels with products, of which there is one at least.
fn product_kernels(case: &str, path: &Path, options: &Options) -> Vec<String> {
    std::fs::write(path, case.replace("@f(", "@main(")).unwrap();
    let built = load(path).and_then(|m| m.build(options, &|_, _| ()));
    let (package, _) = built.unwrap_or_else(|e| panic!("{:?}: {case}: {e}", options.target));
    let products: Vec<_> = package
        .program
        .kernels
        .iter()
        .filter(|k| k.ops.iter().any(|op| op == "dot_general"))
        .map(|k| String::from_utf8_lossy(&package.objects[&k.symbol]).into_owned())
        .collect();
    assert!(!products.is_empty(), "{:?}: {case}", options.target);
    products
}

/// Products of few rows with quantised weights, among the compiled cases.
#[test]
fn quantised_weights_are_dequantised_for_tensor_cores() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.mlir");
    let named = |case: &&str| {
        let name = case.lines().find(|l| l.starts_with("// CASE: ")).unwrap_or_default();
        ["int4", "int8 weights", "8-bit float weights whose"].iter().any(|s| name.contains(s))
    };
    let cases: Vec<&str> =
        include_str!("../compiled/ops.mlir").split("// -----").filter(named).collect();
    assert!(cases.len() > 4, "{} cases", cases.len());
    for case in cases {
        crate::watchdog::arm();
        for chip in CHIPS {
            let products = product_kernels(case, &path, &options(chip));
            assert!(products.iter().all(|ptx| ptx.contains("mma.sync")), "{chip}: {case}");
        }
    }
}

/// Products of 8-bit floats and of int8, among the compiled cases.
#[test]
fn products_of_8_bits_use_tensor_cores() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.mlir");
    let instructions = [
        ("a gate of 8-bit float products", "sm_90a", "m64n64k32.f32.e4m3.e4m3"),
        ("a product of a few rows of 8-bit floats", "sm_90a", "m64n64k32.f32.e4m3.e4m3"),
        ("int8 products with int32 sums", "sm_90a", "m64n64k32.s32.s8.s8"),
        ("int8 products with int32 sums", "sm_80", "m16n8k32.row.col.s32.s8.s8.s32"),
        ("int8 products with int32 sums", "sm_89", "m16n8k32.row.col.s32.s8.s8.s32"),
    ];
    let cases: Vec<&str> = include_str!("../compiled/ops.mlir").split("// -----").collect();
    for (name, chip, instruction) in instructions {
        crate::watchdog::arm();
        let case = cases.iter().find(|c| c.contains(name)).expect("a case");
        let products = product_kernels(case, &path, &options(chip));
        assert!(products.iter().all(|ptx| ptx.contains(instruction)), "{name} for {chip}");
    }
}

/// A linear layer with its gradients (option `float8`): each product multiplies 8-bit floats.
#[test]
fn a_linear_layer_and_its_gradients_multiply_8_bit_floats() {
    const LAYER: &str = "\
func.func @main(%x: tensor<512x256xbf16>, %w: tensor<384x256xbf16>, %g: tensor<512x384xbf16>) -> (tensor<512x384xbf16>, tensor<512x256xbf16>, tensor<384x256xbf16>) {
  %0 = kiln.linear %x, %w : tensor<512x256xbf16>, tensor<384x256xbf16>
  %1 = kiln.dot_general %g, %w batch = [] x [] contract = [1] x [0] : tensor<512x384xbf16>, tensor<384x256xbf16>
  %2 = kiln.dot_general %g, %x batch = [] x [] contract = [0] x [0] : tensor<512x384xbf16>, tensor<512x256xbf16>
  return %0, %1, %2 : tensor<512x384xbf16>, tensor<512x256xbf16>, tensor<384x256xbf16>
}";
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.mlir");
    for recipe in ["rowwise", "tensorwise"] {
        crate::watchdog::arm();
        let mut options = options("sm_90a");
        let pass = format!(
            "instead of kiln-float8-products: kiln-float8-products{{recipe={recipe} min-size=1}}"
        );
        options.passes = UserPasses::parse(&pass).unwrap();
        let products = product_kernels(LAYER, &path, &options);
        assert_eq!(products.len(), 3, "{recipe}");
        assert!(products.iter().all(|ptx| ptx.contains("f32.e4m3.e4m3")), "{recipe}");
    }
}
