//! Split-K matmuls by clusters: operand and result types, tile remainders. `card/parts.rs` runs the
//! same cases on a GPU.
use super::{gemm::table, *};

/// Name, arguments, result, the ops that define `%r`, and the schedule's tile: M, N, split-K
/// factor, stages.
pub type Case = (&'static str, &'static str, &'static str, &'static str, [usize; 4]);

pub const CASES: &[Case] = &[
    (
        "two parts",
        "%x: tensor<128x256xbf16>, %w: tensor<128x256xbf16>",
        "128x128xbf16",
        "%r = kiln.linear %x, %w : tensor<128x256xbf16>, tensor<128x256xbf16>",
        [128, 128, 2, 6],
    ),
    // Four K steps and a remainder of 8 in K, M and N.
    (
        "rests",
        "%x: tensor<129x200xbf16>, %w: tensor<136x200xbf16>",
        "129x136xbf16",
        "%r = kiln.linear %x, %w : tensor<129x200xbf16>, tensor<136x200xbf16>",
        [128, 64, 2, 8],
    ),
    (
        "four parts of one group",
        "%x: tensor<64x512xf16>, %w: tensor<64x512xf16>",
        "64x64xf16",
        "%r = kiln.linear %x, %w : tensor<64x512xf16>, tensor<64x512xf16>",
        [64, 64, 4, 5],
    ),
    // 17 steps: seven CTAs have two, one has three.
    (
        "eight parts",
        "%x: tensor<200x1032xbf16>, %w: tensor<72x1032xbf16>",
        "200x72xbf16",
        "%r = kiln.linear %x, %w : tensor<200x1032xbf16>, tensor<72x1032xbf16>",
        [128, 64, 8, 8],
    ),
    (
        "several tiles",
        "%x: tensor<100x640xbf16>, %w: tensor<640x264xbf16>",
        "100x264xbf16",
        "%r = kiln.matmul %x, %w : tensor<100x640xbf16>, tensor<640x264xbf16>",
        [128, 128, 4, 6],
    ),
    (
        "a batch",
        "%x: tensor<3x100x256xf16>, %w: tensor<3x256x64xf16>",
        "3x100x64xf16",
        "%r = kiln.matmul %x, %w : tensor<3x100x256xf16>, tensor<3x256x64xf16>",
        [64, 64, 4, 5],
    ),
    (
        "both turned",
        "%x: tensor<320x136xbf16>, %w: tensor<72x320xbf16>",
        "136x72xbf16",
        "%r = kiln.dot_general %x, %w batch = [] x [] contract = [0] x [1] : tensor<320x136xbf16>, tensor<72x320xbf16>",
        [64, 128, 2, 8],
    ),
    // N in whole 64-column TMA boxes.
    (
        "slabs",
        "%x: tensor<256x128xbf16>, %w: tensor<256x192xbf16>",
        "128x192xbf16",
        "%r = kiln.dot_general %x, %w batch = [] x [] contract = [0] x [0] : tensor<256x128xbf16>, tensor<256x192xbf16>",
        [128, 128, 2, 6],
    ),
    (
        "what follows",
        "%x: tensor<130x512xbf16>, %w: tensor<128x512xbf16>, %b: tensor<128xbf16>, %y: tensor<130x128xbf16>",
        "130x128xbf16",
        "%0 = kiln.linear %x, %w bias %b : tensor<128xbf16> : tensor<130x512xbf16>, tensor<128x512xbf16>\n\
         %1 = kiln.gelu %0 : tensor<130x128xbf16>\n%r = kiln.add %1, %y : tensor<130x128xbf16>",
        [128, 128, 4, 6],
    ),
    (
        "a result of f32",
        "%x: tensor<70x256xf16>, %w: tensor<128x256xf16>",
        "70x128xf32",
        "%0 = kiln.linear %x, %w : tensor<70x256xf16>, tensor<128x256xf16>\n%1 = kiln.convert %0 : tensor<70x128xf16> to f32\n\
         %r = kiln.tanh %1 : tensor<70x128xf32>",
        [64, 128, 2, 8],
    ),
    (
        "rows that begin anywhere",
        "%x: tensor<129x256xbf16>, %w: tensor<65x256xbf16>",
        "129x65xbf16",
        "%r = kiln.linear %x, %w : tensor<129x256xbf16>, tensor<65x256xbf16>",
        [128, 128, 4, 6],
    ),
    (
        "gated",
        "%x: tensor<136x256xbf16>, %v: tensor<136x256xbf16>, %w: tensor<136x256xbf16>",
        "136x136xbf16",
        "%0 = kiln.linear %x, %v : tensor<136x256xbf16>, tensor<136x256xbf16>\n%1 = kiln.silu %0 : tensor<136x136xbf16>\n\
         %2 = kiln.linear %x, %w : tensor<136x256xbf16>, tensor<136x256xbf16>\n%r = kiln.mul %1, %2 : tensor<136x136xbf16>",
        [128, 128, 2, 6],
    ),
    (
        "a convolution",
        "%x: tensor<2x9x9x64xbf16>, %w: tensor<72x3x3x64xbf16>, %b: tensor<72xbf16>",
        "2x9x9x72xbf16",
        "%0 = kiln.transpose %x permutation = [0, 3, 1, 2] : tensor<2x9x9x64xbf16>\n%1 = kiln.transpose %w permutation = [0, 3, 1, 2] : tensor<72x3x3x64xbf16>\n\
         %2 = kiln.convolution %0, %1 strides = [1, 1] pad = [1, 1] x [1, 1] dilation = [1, 1] : tensor<2x64x9x9xbf16>, tensor<72x64x3x3xbf16>\n\
         %3 = kiln.transpose %2 permutation = [0, 2, 3, 1] : tensor<2x72x9x9xbf16>\n%4 = kiln.broadcast_in_dim %b dims = [3] sizes = [2, 9, 9, 72] : tensor<72xbf16>\n%r = kiln.add %3, %4 : tensor<2x9x9x72xbf16>",
        [128, 64, 4, 8],
    ),
];

pub fn text((_, args, result, body, _): &Case) -> String {
    format!(
        "func.func @main({args}) -> tensor<{result}> {{\n{body}\nreturn %r : tensor<{result}>\n}}"
    )
}

/// A schedule table for a case's kernel.
pub fn schedules(case: &Case, path: &Path, options: &Options) -> String {
    table(&load(path).unwrap(), options, "sm_90a", &schedule(case.4, 0)).to_string()
}

fn schedule([m, n, parts, stages]: [usize; 4], resident: usize) -> String {
    format!(
        "#kiln.schedule<\"wgmma_gemm\", {{block_k = 64 : i64, block_m = {m} : i64, block_n = {n} : i64, ctas_per_sm = {resident} : i64, split_k = {parts} : i64, stages = {stages} : i64}}>"
    )
}

#[test]
fn clusters_split_k() {
    let folder = tempfile::tempdir().unwrap();
    let (path, file) = (folder.path().join("m.mlir"), folder.path().join("table"));
    for case in CASES {
        crate::watchdog::arm();
        std::fs::write(&path, text(case)).unwrap();
        let options = options("sm_90a");
        std::fs::write(&file, schedules(case, &path, &options)).unwrap();
        let options = Options { schedules: Some(file.clone()), ..options };
        let (package, _) = load(&path)
            .and_then(|m| m.build(&options, &|_, _| ()))
            .unwrap_or_else(|e| panic!("{}: {e}", case.0));
        let [(kernel, ptx)] = package.objects.iter().collect::<Vec<_>>()[..] else {
            panic!("{} is no single kernel", case.0)
        };
        let ptx = String::from_utf8_lossy(ptx);
        let cluster = format!(".reqnctapercluster {}", case.4[2]);
        assert!(
            ptx.contains(&cluster)
                && ptx.contains("shared::cluster.shared::cta")
                && !ptx.contains("cluster.arrive.aligned"),
            "{}: {kernel}\n{ptx}",
            case.0
        );
        let wrong = assembled(&package, "sm_90a");
        assert!(wrong.is_empty(), "{}:\n{}", case.0, wrong.join("\n"));
    }
}

#[test]
fn split_k_is_chosen_for_few_tiles_with_large_k() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.mlir");
    for (m, n, k, shares) in [
        (512, 768, 3072, false),
        (4096, 64, 4096, true),
        (64, 4096, 4096, true),
        (4096, 4096, 4096, false),
        (128, 128, 128, false),
    ] {
        crate::watchdog::arm();
        let text = format!(
            "func.func @main(%x: tensor<{m}x{k}xbf16>, %w: tensor<{n}x{k}xbf16>) -> tensor<{m}x{n}xbf16> {{\n\
             %r = kiln.linear %x, %w : tensor<{m}x{k}xbf16>, tensor<{n}x{k}xbf16>\nreturn %r : tensor<{m}x{n}xbf16>\n}}"
        );
        std::fs::write(&path, text).unwrap();
        let package = build(&path, "sm_90a").unwrap_or_else(|e| panic!("{e}"));
        let [(_, ptx)] = package.objects.iter().collect::<Vec<_>>()[..] else {
            panic!("{m} x {n} x {k} is no single kernel")
        };
        assert_eq!(String::from_utf8_lossy(ptx).contains("mapa"), shares, "{m} x {n} x {k}");
        let wrong = assembled(&package, "sm_90a");
        assert!(wrong.is_empty(), "{m} x {n} x {k}:\n{}", wrong.join("\n"));
    }
}

#[test]
fn impossible_split_factors_are_rejected() {
    crate::watchdog::arm();
    let folder = tempfile::tempdir().unwrap();
    let (path, file) = (folder.path().join("m.mlir"), folder.path().join("table"));
    std::fs::write(&path, text(&CASES[0])).unwrap();
    for (tile, resident, said) in [
        ([128, 128, 2, 6], 1, "with ctas_per_sm = 0"),
        ([128, 128, 3, 6], 0, "one of 1, 2, 4, 8"),
        ([64, 64, 8, 5], 0, "16 for each CTA"),
        ([256, 128, 2, 4], 0, "at most 128 rows"),
        ([128, 192, 2, 4], 0, "128 columns"),
        ([128, 128, 2, 1], 0, "stages"),
        ([128, 128, 8, 6], 0, "8 steps of K"),
    ] {
        let options = options("sm_90a");
        let model = load(&path).unwrap();
        std::fs::write(
            &file,
            table(&model, &options, "sm_90a", &schedule(tile, resident)).to_string(),
        )
        .unwrap();
        let made = model.build(&Options { schedules: Some(file.clone()), ..options }, &|_, _| ());
        let e = made.err().unwrap_or_else(|| panic!("{tile:?} is taken"));
        assert!(e.to_string().contains(said), "{tile:?}: {e}");
    }
}
