//! Row kernels, reductions, and ops without GPU instructions.
use super::*;

/// A kernel from `%x` of this type to `%r` of that one, and its strategies in order.
const ROWS: &[(&str, &str, &str, &[&str])] = &[
    (
        "%r = kiln.softmax %x axis = 1 : tensor<512x1024xf32>",
        "512x1024xf32",
        "512x1024xf32",
        &["register_rows"],
    ),
    (
        "%r = kiln.softmax %x axis = 1 : tensor<512x32768xf32>",
        "512x32768xf32",
        "512x32768xf32",
        &["register_rows"],
    ),
    (
        "%r = kiln.softmax %x axis = 1 : tensor<512x1001xbf16>",
        "512x1001xbf16",
        "512x1001xbf16",
        &["register_rows"],
    ),
    (
        "%r = kiln.softmax %x axis = 1 : tensor<512x4097xbf16>",
        "512x4097xbf16",
        "512x4097xbf16",
        &["register_rows"],
    ),
    (
        "%r = kiln.layer_norm %x {rank = 1 : i64, epsilon = 1.0e-05 : f64} : tensor<512x8192xbf16>",
        "512x8192xbf16",
        "512x8192xbf16",
        &["register_rows"],
    ),
    (
        "%r = kiln.softmax %x axis = 1 : tensor<8x128256xbf16>",
        "8x128256xbf16",
        "8x128256xbf16",
        &["register_rows"],
    ),
    (
        "%r = kiln.softmax %x axis = 1 : tensor<512x524288xbf16>",
        "512x524288xbf16",
        "512x524288xbf16",
        &["rows"],
    ),
    (
        "%r = kiln.reduce sum %x dims = [1] : tensor<8192x4096xbf16>",
        "8192x4096xbf16",
        "8192xbf16",
        &["row_reduction"],
    ),
    (
        "%r = kiln.reduce sum %x dims = [0] : tensor<8192x4096xbf16>",
        "8192x4096xbf16",
        "4096xbf16",
        &["column_reduction", "column_reduction"],
    ),
    (
        "%r = kiln.reduce sum %x dims = [0, 1] : tensor<8192x4096xbf16>",
        "8192x4096xbf16",
        "bf16",
        &["row_reduction", "row_reduction"],
    ),
    (
        "%r = kiln.reduce max %x dims = [0] : tensor<8000009xf32>",
        "8000009xf32",
        "f32",
        &["row_reduction", "row_reduction", "row_reduction"],
    ),
    (
        "%r = kiln.arg_max %x axis = 1 : tensor<8192x4096xbf16>",
        "8192x4096xbf16",
        "8192xi64",
        &["row_reduction"],
    ),
    (
        "%r = kiln.arg_min %x axis = 0 : tensor<8192x4096xbf16>",
        "8192x4096xbf16",
        "4096xi64",
        &["column_reduction", "elementwise", "column_reduction", "elementwise"],
    ),
    (
        "%r = kiln.arg_max %x axis = 0 : tensor<16777216xbf16>",
        "16777216xbf16",
        "i64",
        &["row_reduction", "elementwise", "row_reduction", "elementwise"],
    ),
    (
        "%r = kiln.reduce any %x dims = [1] : tensor<512x8192xi1>",
        "512x8192xi1",
        "512xi1",
        &["row_reduction"],
    ),
    // One pass over memory: no stage waits for another one that has read the row.
    (
        "%r = kiln.var %x dims = [1] {correction = 0.0 : f64} : tensor<512x65536xf32>",
        "512x65536xf32",
        "512xf32",
        &["row_reduction"],
    ),
    (CROSS_ENTROPY, "8192x128256xbf16", "8192xf32", &["row_reduction"]),
];

/// The log-sum-exp of logits, in f32.
const CROSS_ENTROPY: &str = "%0 = kiln.convert %x : tensor<8192x128256xbf16> to f32
%m = kiln.reduce max %0 dims = [1] : tensor<8192x128256xf32>
%b = kiln.broadcast_in_dim %m dims = [0] sizes = [8192, 128256] : tensor<8192xf32>
%d = kiln.sub %0, %b : tensor<8192x128256xf32>
%e = kiln.exp %d : tensor<8192x128256xf32>
%s = kiln.reduce sum %e dims = [1] : tensor<8192x128256xf32>
%l = kiln.log %s : tensor<8192xf32>
%r = kiln.add %l, %m : tensor<8192xf32>";

/// Whether a kernel loads 16 bytes at once; a dependent one has no loads from the read-only cache.
fn loads_vectors(ptx: &str) -> bool {
    ptx.contains("ld.global.nc.v4")
        || ptx.contains("griddepcontrol.wait") && ptx.contains("ld.global.v4")
}

#[test]
fn rows_and_reductions_have_the_expected_strategies() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.mlir");
    for (op, x, r, strategies) in ROWS {
        crate::watchdog::arm();
        std::fs::write(&path, format!("func.func @main(%x: tensor<{x}>) -> tensor<{r}> {{\n{op}\nreturn %r : tensor<{r}>\n}}")).unwrap();
        let text = std::fs::read_to_string(scheduled(&path, "sm_90a")).unwrap();
        let found: Vec<&str> =
            text.split("#kiln.schedule<\"").skip(1).filter_map(|t| t.split('"').next()).collect();
        assert_eq!(found, *strategies, "{op}");
        for chip in CHIPS {
            let package = build(&path, chip).unwrap_or_else(|e| panic!("{op}: {e}"));
            let wrong = assembled(&package, chip);
            assert!(wrong.is_empty(), "{op} for {chip}:\n{}", wrong.join("\n"));
            // 16-byte loads where rows are aligned.
            let wide =
                package.objects.values().any(|p| std::str::from_utf8(p).is_ok_and(loads_vectors));
            assert!(
                wide || x.contains("1001") || x.contains("4097") || x.contains("8000009"),
                "{op}"
            );
        }
    }
}

/// Dtypes and ops without GPU instructions.
#[test]
fn floats_of_8_bits_and_remainders_assemble() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.mlir");
    let mut functions = vec![];
    for float in ["f8E4M3FN", "f8E5M2"] {
        let (x, w, r) = (
            format!("tensor<37x64x{float}>"),
            format!("tensor<64x41x{float}>"),
            format!("tensor<37x41x{float}>"),
        );
        functions.push(format!(
            "(%x: {x}, %w: {w}) -> ({r}, {x}) {{\n%0 = kiln.matmul %x, %w : {x}, {w}\n%1 = kiln.softmax %x axis = 1 : {x}\nreturn %0, %1 : {r}, {x}"
        ));
    }
    for float in ["f32", "f64", "bf16"] {
        let t = format!("tensor<999x{float}>");
        functions.push(format!(
            "(%x: {t}, %y: {t}) -> {t} {{\n%0 = kiln.rem %x, %y : {t}\nreturn %0 : {t}"
        ));
    }
    for text in functions {
        std::fs::write(&path, format!("func.func @main{text}\n}}")).unwrap();
        for chip in CHIPS {
            crate::watchdog::arm();
            let package = build(&path, chip).unwrap_or_else(|e| panic!("{text}: {e}"));
            let wrong = assembled(&package, chip);
            assert!(wrong.is_empty(), "{text} for {chip}:\n{}", wrong.join("\n"));
        }
    }
}

/// Of an input whose first row alone is read, `explain` counts that row.
#[test]
fn bytes_of_a_part_of_an_input() {
    const FIRST: &str = "\
func.func @main(%x: tensor<4096x1024xf32>, %y: tensor<1024xf32>) -> tensor<1024xf32> {
  %0 = kiln.slice %x offsets = [0, 0] sizes = [1, 1024] strides = [1, 1] : tensor<4096x1024xf32>
  %1 = kiln.reshape %0 sizes = [1024] : tensor<1x1024xf32>
  %2 = kiln.add %1, %y : tensor<1024xf32>
  return %2 : tensor<1024xf32>
}";
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.mlir");
    std::fs::write(&path, FIRST).unwrap();
    crate::watchdog::arm();
    let package = build(&path, "sm_90a").unwrap();
    let bytes: Vec<_> = package.program.kernels.iter().map(|k| k.bytes).collect();
    assert_eq!(bytes, [Some(kiln::runtime::program::Dim::Known(3 * 4096))]);
}
