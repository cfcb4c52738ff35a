//! Width of index arithmetic: 32-bit divisions where sizes fit.
use super::*;

/// Arguments, a body that defines `%r`, the result type, and the index arithmetic: 32- or 64-bit
/// multiplications instead of divisions, or a division.
const KERNELS: &[(&str, &str, &str, &str)] = &[
    (
        "%x: tensor<60x100x300xf32>",
        "%r = kiln.transpose %x permutation = [1, 0, 2] : tensor<60x100x300xf32>",
        "100x60x300xf32",
        "mul.hi.u32",
    ),
    (
        "%x: tensor<1000x77xf32>, %i: tensor<300x5xi64>",
        "%r = kiln.gather %x[%i] dims = [0] : tensor<1000x77xf32>[tensor<300x5xi64>]",
        "300x5x77xf32",
        "mul.hi.u32",
    ),
    // More than 2^32 elements.
    (
        "%x: tensor<1000x77xf32>, %i: tensor<300000x500xi64>",
        "%r = kiln.gather %x[%i] dims = [0] : tensor<1000x77xf32>[tensor<300000x500xi64>]",
        "300000x500x77xf32",
        "mul.hi.u64",
    ),
    (
        "%x: tensor<?x100x30xf32>",
        "%n = kiln.sym @n
         kiln.bind_shape %x, [%n, 100, 30] : tensor<?x100x30xf32>
         %r = kiln.transpose %x permutation = [1, 0, 2] : tensor<?x100x30xf32>",
        "100x?x30xf32",
        "div.u64",
    ),
];

#[test]
fn divisions_are_32_bit_where_sizes_fit() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.mlir");
    for (arguments, body, result, wanted) in KERNELS {
        crate::watchdog::arm();
        let text = format!(
            "func.func @main({arguments}) -> tensor<{result}> {{\n{body}\nreturn %r : tensor<{result}>\n}}"
        );
        std::fs::write(&path, text).unwrap();
        let package = build(&path, "sm_90a").unwrap_or_else(|e| panic!("{body}: {e}"));
        let ptx: String =
            package.objects.values().map(|p| String::from_utf8_lossy(p).into_owned()).collect();
        let wide = ["mul.hi.u64", "mul.hi.s64", "div.u64", "div.s64", "rem.u64", "rem.s64"]
            .iter()
            .any(|w| ptx.contains(w));
        assert_eq!((ptx.contains(wanted), wide), (true, wanted.ends_with("64")), "{body}:\n{ptx}");
    }
}
