//! Scans: vector width, fusion, blocked scans of few long rows, and loop blocks of any size and
//! order.
use super::*;
use crate::support::{functions, inputs_of_sizes};
use kiln::{dialects::ir::Context, runtime::DeviceId};
use std::collections::HashMap;

fn function(arguments: &str, ops: &str, result: &str) -> String {
    format!(
        "func.func @main({arguments}) -> tensor<{result}> {{\n{ops}\nreturn %r : tensor<{result}>\n}}"
    )
}

/// Arguments, ops up to `%r`, and its type: vectorised scans with prologues and epilogues.
const WIDE: &[(&str, &str, &str)] = &[
    (
        "%x: tensor<32768x4096xf32>",
        "%r = kiln.cumulative sum %x axis = 1 : tensor<32768x4096xf32>",
        "32768x4096xf32",
    ),
    (
        "%x: tensor<32768x4096xf32>",
        "%r = kiln.cumulative sum %x axis = 0 : tensor<32768x4096xf32>",
        "32768x4096xf32",
    ),
    (
        "%x: tensor<100x4096xbf16>",
        "%r = kiln.cumulative sum %x axis = 1 : tensor<100x4096xbf16>",
        "100x4096xbf16",
    ),
    (
        "%x: tensor<8x4096x64xbf16>",
        "%r = kiln.cumulative max %x axis = 1 : tensor<8x4096x64xbf16>",
        "8x4096x64xbf16",
    ),
    (
        "%x: tensor<4096x1024xf64>",
        "%r = kiln.cumulative prod %x axis = 0 : tensor<4096x1024xf64>",
        "4096x1024xf64",
    ),
    (
        "%x: tensor<2048x2048xi64>",
        "%r = kiln.cumulative min %x axis = 1 : tensor<2048x2048xi64>",
        "2048x2048xi64",
    ),
    (
        "%x: tensor<512x8192xf32>, %y: tensor<512x8192xf32>",
        "%0 = kiln.mul %x, %y : tensor<512x8192xf32>\n%1 = kiln.gelu %0 : tensor<512x8192xf32>\n\
         %2 = kiln.cumulative sum %1 axis = 1 : tensor<512x8192xf32>\n%3 = kiln.sub %2, %1 : tensor<512x8192xf32>\n\
         %r = kiln.div %3, %y : tensor<512x8192xf32>",
        "512x8192xf32",
    ),
    (
        "%x: tensor<2048x8192xbf16>, %y: tensor<2048x8192xf32>",
        "%0 = kiln.convert %x : tensor<2048x8192xbf16> to f32\n%1 = kiln.mul %0, %y : tensor<2048x8192xf32>\n\
         %2 = kiln.tanh %1 : tensor<2048x8192xf32>\n%3 = kiln.cumulative sum %2 axis = 0 : tensor<2048x8192xf32>\n\
         %r = kiln.mul %3, %y : tensor<2048x8192xf32>",
        "2048x8192xf32",
    ),
];

#[test]
fn a_scan_reads_and_writes_once() {
    for (arguments, ops, result) in WIDE {
        let text = function(arguments, ops, result);
        for chip in CHIPS {
            let all = assembled_ptx(&text, chip);
            let [kernel] = &all[..] else { panic!("{} kernels of {text}", all.len()) };
            // All accesses are 16 bytes, or 8 of what is converted.
            let accesses = |what: &str| {
                kernel.lines().filter(|l| l.contains(what)).map(str::to_string).collect::<Vec<_>>()
            };
            for what in ["ld.global", "st.global"] {
                let all = accesses(what);
                let narrow: Vec<&String> =
                    all.iter().filter(|l| !l.contains(".v4.") && !l.contains(".v2.")).collect();
                assert!(!all.is_empty() && narrow.is_empty(), "{text} for {chip}: {narrow:?}");
            }
        }
    }
}

/// An epilogue that reduces the scanned row is not fused: it would loop over the axis for each
/// element.
#[test]
fn fusion_never_makes_a_scan_quadratic() {
    for (arguments, ops, result) in [
        (
            "%x: tensor<64x3000xf32>",
            "%0 = kiln.exp %x : tensor<64x3000xf32>\n%1 = kiln.cumulative sum %0 axis = 1 : tensor<64x3000xf32>\n\
             %2 = kiln.reduce sum %1 dims = [1] : tensor<64x3000xf32>\n\
             %3 = kiln.broadcast_in_dim %2 dims = [0] sizes = [64, 3000] : tensor<64xf32>\n%r = kiln.div %1, %3 : tensor<64x3000xf32>",
            "64x3000xf32",
        ),
        (
            "%x: tensor<3000xf32>, %y: tensor<3000x3000xf32>",
            "%0 = kiln.cumulative sum %x axis = 0 : tensor<3000xf32>\n\
             %1 = kiln.broadcast_in_dim %0 dims = [0] sizes = [3000, 3000] : tensor<3000xf32>\n%r = kiln.add %1, %y : tensor<3000x3000xf32>",
            "3000x3000xf32",
        ),
        (
            "%x: tensor<3000x8xf32>, %w: tensor<8x16xf32>",
            "%0 = kiln.dot_general %x, %w batch = [] x [] contract = [1] x [0] : tensor<3000x8xf32>, tensor<8x16xf32>\n\
             %1 = kiln.cumulative max %0 axis = 0 : tensor<3000x16xf32>\n%2 = kiln.transpose %1 permutation = [1, 0] : tensor<3000x16xf32>\n\
             %r = kiln.cumulative sum %2 axis = 1 : tensor<16x3000xf32>",
            "16x3000xf32",
        ),
        // Few rows: the scan of block totals is a scan kernel as well.
        (
            "%x: tensor<2x1000000xf32>",
            "%r = kiln.cumulative sum %x axis = 1 : tensor<2x1000000xf32>",
            "2x1000000xf32",
        ),
        (
            "%x: tensor<1000003xi32>",
            "%r = kiln.cumulative max %x axis = 0 : tensor<1000003xi32>",
            "1000003xi32",
        ),
    ] {
        crate::watchdog::arm();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.mlir");
        std::fs::write(&path, function(arguments, ops, result)).unwrap();
        let text = std::fs::read_to_string(scheduled(&path, "sm_90a")).unwrap();
        assert!(
            text.contains("#kiln.schedule<\"scan\"") && !text.contains("kiln.refused"),
            "{text}"
        );
    }
}

/// Scans in several blocks: sizes, and other schedules than the default: threads per row, prefetch,
/// rows per CTA, elements per thread, vector width.
const PARTS: &[(&str, &[[usize; 5]])] = &[
    (
        "func.func @main(%x: tensor<?x1000xf32>, %y: tensor<1000xf32>) -> tensor<?x1000xf32> {
  %n = kiln.sym @n
  kiln.bind_shape %x, [%n, 1000] : tensor<?x1000xf32>
  %0 = kiln.broadcast_in_dim %y dims = [1] sizes = [%n, 1000] : tensor<1000xf32>
  %1 = kiln.mul %x, %0 : tensor<?x1000xf32>
  %2 = kiln.cumulative sum %1 axis = 1 : tensor<?x1000xf32>
  %3 = kiln.sub %2, %x : tensor<?x1000xf32>
  return %3 : tensor<?x1000xf32>
}",
        &[
            [32, 0, 1, 1, 1],
            [32, 1, 4, 3, 2],
            [64, 0, 2, 1, 4],
            [128, 1, 1, 2, 1],
            [256, 1, 2, 4, 4],
            [4, 1, 8, 2, 4],
            [1, 0, 32, 5, 2],
        ],
    ),
    (
        "func.func @main(%x: tensor<?x36xi32>) -> tensor<?x36xi32> {
  %n = kiln.sym @n
  kiln.bind_shape %x, [%n, 36] : tensor<?x36xi32>
  %0 = kiln.cumulative max %x axis = 0 : tensor<?x36xi32>
  return %0 : tensor<?x36xi32>
}",
        &[[1, 0, 32, 4, 4], [1, 1, 64, 3, 1], [4, 0, 8, 2, 2], [16, 1, 4, 1, 4], [32, 1, 2, 3, 1]],
    ),
];

/// Few long rows: blocked, with a shorter last block.
const LONG: &[&str] = &[
    "func.func @main(%x: tensor<2x40000xf32>) -> tensor<2x40000xf32> {
  %0 = kiln.cumulative sum %x axis = 1 : tensor<2x40000xf32>
  return %0 : tensor<2x40000xf32>
}",
    "func.func @main(%x: tensor<20011xbf16>) -> tensor<20011xbf16> {
  %0 = kiln.cumulative max %x axis = 0 : tensor<20011xbf16>
  return %0 : tensor<20011xbf16>
}",
    "func.func @main(%x: tensor<17000x3xi32>) -> tensor<17000x3xi32> {
  %0 = kiln.cumulative sum %x axis = 0 : tensor<17000x3xi32>
  return %0 : tensor<17000x3xi32>
}",
];

/// The text between two markers, including the first.
fn between<'a>(text: &'a str, from: &str, to: &str) -> &'a str {
    let start = text.find(from).unwrap_or_else(|| panic!("no {from} in {text}"));
    &text[start..start + text[start..].find(to).unwrap_or_else(|| panic!("no {to} behind {from}"))]
}

/// On the emulator: fewer CTAs than rows, so that each loops over rows; no rows too.
#[test]
#[ignore = "a part of the next"]
fn child() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.mlir");
    let c = Context::new();
    let on = Options { device: DeviceId::Cuda(0), cache: CachePolicy::Off, ..Options::default() };
    for source in LONG {
        std::fs::write(&path, source).unwrap();
        let (module, _) =
            Module::parse(c.ctx(), source.as_bytes(), "long").unwrap_or_else(|e| panic!("{e}"));
        let exe = load(&path).unwrap().compile(&on).unwrap_or_else(|e| panic!("{source}: {e}"));
        let inputs = inputs_of_sizes(functions(&module)[0], 1, &HashMap::new());
        as_interpreted(&module, &inputs, &exe).unwrap_or_else(|e| panic!("{source}: {e}"));
    }
    for (source, others) in PARTS {
        std::fs::write(&path, source).unwrap();
        let text = std::fs::read_to_string(scheduled(&path, "sm_90a")).unwrap();
        let (schedule, threads) = (
            between(&text, "#kiln.schedule<\"scan\"", ">"),
            between(&text, "kiln.threads = ", "}"),
        );
        let grid = between(&text, "affine_map<()[s0] -> ", ">\n");
        let (module, _) =
            Module::parse(c.ctx(), source.as_bytes(), "parts").unwrap_or_else(|e| panic!("{e}"));
        for [row_threads, prefetch, rows_per_cta, items, vector] in *others {
            let other = format!(
                "#kiln.schedule<\"scan\", {{items = {items} : i64, prefetch = {prefetch} : i64, row_threads = {row_threads} : i64, rows_per_cta = {rows_per_cta} : i64, \
                 vector = {vector} : i64}}"
            );
            let made = text
                .replace(schedule, &other)
                .replace(threads, &format!("kiln.threads = {} : i64", row_threads * rows_per_cta));
            std::fs::write(&path, made.replace(grid, "affine_map<()[s0] -> (2)")).unwrap();
            let exe = load(&path).unwrap().compile(&on).unwrap_or_else(|e| panic!("{other}: {e}"));
            for n in [0, 1, 7, 130] {
                let inputs = inputs_of_sizes(
                    functions(&module)[0],
                    n as u64,
                    &HashMap::from([("n".to_string(), n)]),
                );
                as_interpreted(&module, &inputs, &exe)
                    .unwrap_or_else(|e| panic!("{other}, {n}: {e}"));
            }
        }
    }
}

#[test]
fn ctas_loop_over_rows_with_blocks_of_any_size() {
    emulated::run_in_several_orders("gpu::scans::child");
}
