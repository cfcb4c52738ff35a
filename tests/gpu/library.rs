//! Ops that the host computes by library functions are ordinary kernels on a GPU.
use super::*;

/// A body that defines `%r` from `%x` and other arguments, and its type.
const OPS: &[(&str, &str, &str)] = &[
    ("%x: tensor<64x200xf32>", "%r, %i = kiln.sort %x axis = 1 : tensor<64x200xf32>", "64x200xf32"),
    ("%x: tensor<8x50257xbf16>", "%r, %i = kiln.top_k %x axis = 1 k = 40 : tensor<8x50257xbf16>", "8x40xbf16"),
    (
        "%x: tensor<?x3xi64>",
        "%n = kiln.sym @n
         kiln.bind_shape %x, [%n, 3] : tensor<?x3xi64>
         %v, %r = kiln.sort %x axis = 0 descending : tensor<?x3xi64>",
        "?x3xi64",
    ),
    ("%x: tensor<4x100000xf32>", "%r = kiln.cumulative sum %x axis = 1 : tensor<4x100000xf32>", "4x100000xf32"),
    (
        "%x: tensor<?x5xf16>",
        "%n = kiln.sym @n
         kiln.bind_shape %x, [%n, 5] : tensor<?x5xf16>
         %r = kiln.cumulative prod %x axis = 0 : tensor<?x5xf16>",
        "?x5xf16",
    ),
    (
        "%x: tensor<1000x64xbf16>, %i: tensor<32xi64>, %u: tensor<32x64xbf16>",
        "%r = kiln.scatter add %x[%i], %u dims = [0] : tensor<1000x64xbf16>[tensor<32xi64>], tensor<32x64xbf16>",
        "1000x64xbf16",
    ),
    (
        "%x: tensor<9x7x5xi8>, %i: tensor<3xi64>, %j: tensor<3xi64>, %u: tensor<3x7xi8>",
        "%r = kiln.scatter assign %x[%i, %j], %u dims = [2, 0] : tensor<9x7x5xi8>[tensor<3xi64>, tensor<3xi64>], tensor<3x7xi8>",
        "9x7x5xi8",
    ),
    (
        "%x: tensor<1x8x128x64xbf16>, %u: tensor<1x8x1x64xbf16>, %s: tensor<i64>",
        "%z = kiln.splat [], 0 : i64
         %r = kiln.dynamic_update_slice %x[%z, %z, %s, %z : tensor<i64>, tensor<i64>, tensor<i64>, tensor<i64>], %u \
           : tensor<1x8x128x64xbf16>, tensor<1x8x1x64xbf16>",
        "1x8x128x64xbf16",
    ),
    ("%k: tensor<2xi64>", "%r = kiln.random_bits %k sizes = [100, 3] : i32", "100x3xi32"),
    ("%k: tensor<2xi64>, %x: tensor<1000xbf16>", "%r = kiln.dropout %x key %k p = 0.1 : tensor<1000xbf16>", "1000xbf16"),
    ("%k: tensor<2xi64>", "%r = kiln.random_normal %k sizes = [77] : f32", "77xf32"),
];

#[test]
fn host_library_ops_assemble() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.mlir");
    for (arguments, body, result) in OPS {
        crate::watchdog::arm();
        let text = format!(
            "func.func @main({arguments}) -> tensor<{result}> {{\n{body}\nreturn %r : tensor<{result}>\n}}"
        );
        std::fs::write(&path, text).unwrap();
        for chip in CHIPS {
            let package = build(&path, chip).unwrap_or_else(|e| panic!("{body}: {e}"));
            let kernels = package.program.kernels.len();
            assert!((1..=12).contains(&kernels), "{body} is {kernels} kernels");
            let wrong = assembled(&package, chip);
            assert!(wrong.is_empty(), "{body} for {chip}:\n{}", wrong.join("\n"));
        }
    }
}
