//! Transposes: vector width of loads and stores, fusion, and direct reads.
use super::*;
use crate::support::{functions, inputs};
use kiln::{dialects::ir::Context, runtime::DeviceId};

/// Global memory accesses: all, and 16-byte ones.
fn accesses(ptx: &str, what: &str) -> (usize, usize) {
    let all = ptx.lines().filter(|l| l.contains(what));
    let wide = |l: &&str| {
        [".v4.b32", ".v4.u32", ".v4.f32", ".v2.b64", ".v2.u64", ".v2.f64"]
            .iter()
            .any(|w| l.contains(w))
    };
    (all.clone().count(), all.filter(wide).count())
}

/// Arguments, ops up to `%r`, and its type.
const TRANSPOSES: &[(&str, &str, &str)] = &[
    (
        "%x: tensor<4096x8192xbf16>",
        "%r = kiln.transpose %x permutation = [1, 0] : tensor<4096x8192xbf16>",
        "8192x4096xbf16",
    ),
    (
        "%x: tensor<4096x8192xf32>",
        "%r = kiln.transpose %x permutation = [1, 0] : tensor<4096x8192xf32>",
        "8192x4096xf32",
    ),
    (
        "%x: tensor<4096x8192xf64>",
        "%r = kiln.transpose %x permutation = [1, 0] : tensor<4096x8192xf64>",
        "8192x4096xf64",
    ),
    (
        "%x: tensor<4096x8192xi8>",
        "%r = kiln.transpose %x permutation = [1, 0] : tensor<4096x8192xi8>",
        "8192x4096xi8",
    ),
    // Images, to channels-last and back; 100 is not a multiple of a tile.
    (
        "%x: tensor<4x256x56x56xbf16>",
        "%r = kiln.transpose %x permutation = [0, 2, 3, 1] : tensor<4x256x56x56xbf16>",
        "4x56x56x256xbf16",
    ),
    (
        "%x: tensor<4x8x20x104xbf16>",
        "%r = kiln.transpose %x permutation = [0, 3, 1, 2] : tensor<4x8x20x104xbf16>",
        "4x104x8x20xbf16",
    ),
    // Prologue and epilogue fuse.
    (
        "%x: tensor<4096x8192xbf16>, %b: tensor<8192xbf16>, %y: tensor<8192x4096xbf16>",
        "%0 = kiln.gelu %x : tensor<4096x8192xbf16>\n%1 = kiln.broadcast_in_dim %b dims = [1] sizes = [4096, 8192] : tensor<8192xbf16>\n\
         %2 = kiln.add %0, %1 : tensor<4096x8192xbf16>\n%3 = kiln.transpose %2 permutation = [1, 0] : tensor<4096x8192xbf16>\n\
         %r = kiln.mul %3, %y : tensor<8192x4096xbf16>",
        "8192x4096xbf16",
    ),
];

#[test]
fn transposes_use_16_byte_accesses() {
    for (arguments, ops, result) in TRANSPOSES {
        let text = format!(
            "func.func @main({arguments}) -> tensor<{result}> {{\n{ops}\nreturn %r : tensor<{result}>\n}}"
        );
        for chip in CHIPS {
            let all = assembled_ptx(&text, chip);
            let [kernel] = &all[..] else { panic!("{} kernels of {text}", all.len()) };
            // Loads of a tile and stores of it: CTAs loop over tiles.
            assert!(
                kernel.matches("bar.sync").count() == 2 && kernel.contains("ld.shared.v"),
                "{text}\n{kernel}"
            );
            let (loads, wide) = accesses(kernel, "ld.global");
            // A bias is uniform across a vector.
            let narrow =
                if arguments.contains("%b") { accesses(kernel, "ld.global.nc.b16").0 } else { 0 };
            assert!(wide > 0 && loads == wide + narrow, "{text}: {wide} of {loads}\n{kernel}");
            let (stores, wide) = accesses(kernel, "st.global");
            assert!(wide > 0 && stores == wide, "{text}: {wide} of {stores}\n{kernel}");
        }
    }
}

/// No shared memory needed: rows stay rows, or are so short that a warp reads all.
#[test]
fn contiguous_rows_bypass_shared_memory() {
    for (x, permutation, result) in [
        ("4x128x16x64xbf16", "0, 2, 1, 3", "4x16x128x64xbf16"),
        ("8x3x224x224xf32", "0, 2, 3, 1", "8x224x224x3xf32"),
        ("1x4096xf32", "1, 0", "4096x1xf32"),
    ] {
        let text = format!(
            "func.func @main(%x: tensor<{x}>) -> tensor<{result}> {{\n%r = kiln.transpose %x permutation = [{permutation}] : tensor<{x}>\n\
             return %r : tensor<{result}>\n}}"
        );
        assert!(
            assembled_ptx(&text, "sm_90a").iter().all(|kernel| !kernel.contains("bar.sync")),
            "{text}"
        );
    }
}

/// 35 tiles, transposed for a stage that reads another tensor too.
const TILES: &str =
    "func.func @main(%x: tensor<200x136xf32>, %y: tensor<136x200xf32>) -> tensor<136x200xf32> {
%0 = kiln.abs %x : tensor<200x136xf32>
%1 = kiln.transpose %0 permutation = [1, 0] : tensor<200x136xf32>
%r = kiln.add %1, %y : tensor<136x200xf32>
return %r : tensor<136x200xf32>
}";

/// On the emulator: fewer CTAs than tiles, with schedules of several tiles each.
#[test]
#[ignore = "a part of the next"]
fn child() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.mlir");
    std::fs::write(&path, TILES).unwrap();
    let text = std::fs::read_to_string(scheduled(&path, "sm_90a")).unwrap();
    let (grid, tile) = (
        "affine_map<() -> (35)>",
        "threads = 256 : i64, tile_columns = 32 : i64, tile_rows = 32 : i64, vector = 4 : i64",
    );
    assert!(text.contains(grid) && text.contains(tile), "{text}");
    let c = Context::new();
    let (module, _) =
        Module::parse(c.ctx(), TILES.as_bytes(), "tiles").unwrap_or_else(|e| panic!("{e}"));
    let inputs = inputs(functions(&module)[0], 0);
    for (blocks, down, over, threads, vector) in
        [(3, 32, 32, 256, 4), (2, 64, 16, 1024, 2), (4, 16, 128, 32, 1), (1, 128, 64, 512, 4)]
    {
        let other = format!(
            "threads = {threads} : i64, tile_columns = {over} : i64, tile_rows = {down} : i64, vector = {vector} : i64"
        );
        let count = text
            .replace(grid, &format!("affine_map<() -> ({blocks})>"))
            .replace("kiln.threads = 256", &format!("kiln.threads = {threads}"));
        std::fs::write(&path, count.replace(tile, &other)).unwrap();
        let on =
            Options { device: DeviceId::Cuda(0), cache: CachePolicy::Off, ..Options::default() };
        let exe = load(&path).unwrap().compile(&on).unwrap_or_else(|e| panic!("{other}: {e}"));
        as_interpreted(&module, &inputs, &exe).unwrap_or_else(|e| panic!("{other}: {e}"));
    }
}

#[test]
fn ctas_loop_over_tiles_of_any_size() {
    emulated::run_in_several_orders("gpu::transposes::child");
}
