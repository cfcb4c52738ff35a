//! Matmuls: the strategy per chip.
use super::*;
use kiln::passes::Pass;

/// A matmul, its arguments, and whether the tensor cores of sm_90a compute it.
const MATMULS: &[(&str, &str, &str, bool)] = &[
    (
        "kiln.linear %x, %w : tensor<2048x4096xbf16>, tensor<4096x4096xbf16>",
        "2048x4096xbf16 4096x4096xbf16",
        "2048x4096xbf16",
        true,
    ),
    // Tiles of 256 rows, whose four steps would be unrolled.
    (
        "kiln.linear %x, %w : tensor<100352x256xbf16>, tensor<128x256xbf16>",
        "100352x256xbf16 128x256xbf16",
        "100352x128xbf16",
        true,
    ),
    // 50 row tiles: six bands of 8 (rasterisation), and one of 2.
    (
        "kiln.linear %x, %w : tensor<6304x768xbf16>, tensor<768x768xbf16>",
        "6304x768xbf16 768x768xbf16",
        "6304x768xbf16",
        true,
    ),
    (
        "kiln.matmul %x, %w : tensor<129x136xf16>, tensor<136x264xf16>",
        "129x136xf16 136x264xf16",
        "129x264xf16",
        true,
    ),
    (
        "kiln.matmul %x, %w : tensor<5x200x72xbf16>, tensor<5x72x129xbf16>",
        "5x200x72xbf16 5x72x129xbf16",
        "5x200x129xbf16",
        false,
    ),
    (
        "kiln.linear %x, %w : tensor<200x72xbf16>, tensor<129x72xbf16>",
        "200x72xbf16 129x72xbf16",
        "200x129xbf16",
        true,
    ),
    (
        "kiln.matmul %x, %w : tensor<5x200x72xbf16>, tensor<5x72x512xbf16>",
        "5x200x72xbf16 5x72x512xbf16",
        "5x200x512xbf16",
        true,
    ),
    (
        "kiln.dot_general %x, %w batch = [] x [] contract = [0] x [0] : tensor<1024x1032xbf16>, tensor<1024x1536xbf16>",
        "1024x1032xbf16 1024x1536xbf16",
        "1032x1536xbf16",
        true,
    ),
    (
        "kiln.linear %x, %w : tensor<64x65xbf16>, tensor<64x65xbf16>",
        "64x65xbf16 64x65xbf16",
        "64x64xbf16",
        false,
    ),
    (
        "kiln.linear %x, %w : tensor<64x64xf32>, tensor<64x64xf32>",
        "64x64xf32 64x64xf32",
        "64x64xf32",
        false,
    ),
];

/// A matmul of `%x` and `%w`, of types with a space between, and its gelu.
fn with_gelu(product: &str, args: &str, result: &str) -> String {
    let (x, w) = args.split_once(' ').unwrap();
    format!(
        "func.func @main(%x: tensor<{x}>, %w: tensor<{w}>) -> tensor<{result}> {{\n%0 = {product}\n\
         %1 = kiln.gelu %0 {{approximate = \"none\"}} : tensor<{result}>\nreturn %1 : tensor<{result}>\n}}"
    )
}

#[test]
fn matmuls_use_tensor_cores_where_possible() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.mlir");
    for (product, args, result, wgmma) in MATMULS {
        crate::watchdog::arm();
        std::fs::write(&path, with_gelu(product, args, result)).unwrap();
        for chip in CHIPS {
            let package =
                build(&scheduled(&path, chip), chip).unwrap_or_else(|e| panic!("{product}: {e}"));
            // Older chips use `cp.async`, where 16-byte copies are possible.
            let by_warps = package.objects.values().any(|p| {
                let ptx = std::str::from_utf8(p).expect("PTX is text");
                ptx.contains("mma.sync")
                    && ptx.contains("ldmatrix")
                    && ptx.contains("cp.async.cg")
                    && !ptx.contains("wgmma")
            });
            assert_eq!(by_warps, *wgmma && chip != "sm_90a", "{product} for {chip}");
            let launches: Vec<_> = package
                .program
                .kernels
                .iter()
                .filter_map(|k| Some((k, k.launch.as_ref()?)))
                .collect();
            let found = launches.iter().find(|(_, l)| !l.maps.is_empty());
            assert_eq!(found.is_some(), *wgmma && chip == "sm_90a", "{product} for {chip}");
            if let Some((k, l)) = found {
                let ptx = std::str::from_utf8(&package.objects[&k.symbol]).expect("PTX is text");
                assert!(
                    ptx.contains("wgmma.mma_async")
                        && ptx.contains("setmaxnreg") == (l.threads == 384),
                    "{product}"
                );
                // TMA stores results whose rows are 16-byte aligned; warps store others.
                let columns: usize =
                    result.rsplit('x').nth(1).and_then(|n| n.parse().ok()).expect("a static shape");
                assert_eq!(
                    l.maps.len(),
                    if columns.is_multiple_of(8) { 3 } else { 2 },
                    "{product}"
                );
                assert!(ptx.contains("stmatrix"), "{product}");
                // Such a quotient would be a call that the driver links, and would serialise wgmma.
                assert!(
                    !["div.u16", "rem.u16", "div.u64", "rem.u64"].iter().any(|d| ptx.contains(d)),
                    "{product}"
                );
                assert!(
                    l.shared > 48 << 10
                        && l.resident > 0
                        && l.maps.iter().all(|m| m.sizes.len() == m.extent.len()),
                    "{l:?}"
                );
            }
            let wrong = assembled(&package, chip);
            assert!(wrong.is_empty(), "{product} for {chip}:\n{}", wrong.join("\n"));
        }
    }
}

#[test]
fn tiled_kernels_resume_with_their_shared_memory() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.mlir");
    let tiled = folder.path().join("tiled.mlir");
    for (product, args, result, _) in MATMULS.iter().take(2) {
        crate::watchdog::arm();
        std::fs::write(&path, with_gelu(product, args, result)).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_kiln-opt"));
        let done = command
            .args(["--from=graph", "--to=tiled", "--target=cuda:sm_90a", "-o"])
            .arg(&tiled)
            .arg(&path)
            .output()
            .expect("it runs");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        assert!(
            std::fs::read_to_string(&tiled).unwrap().contains("kiln.tile.pipeline"),
            "{product}"
        );
        // Identical code except for the kernel's name, which includes the level it resumes from.
        let ptx = |path: &Path| {
            let package = build(path, "sm_90a").unwrap_or_else(|e| panic!("{product}: {e}"));
            let [(name, ptx)] = package.objects.iter().collect::<Vec<_>>()[..] else {
                panic!("{product} is no single kernel")
            };
            String::from_utf8_lossy(ptx).replace(name.as_str(), "kernel")
        };
        assert_eq!(ptx(&tiled), ptx(&path), "{product}");
    }
}

/// Skinny GEMMs: left operand, right operand, result.
const SKINNY: &[(&str, &str, &str)] = &[
    ("1x2048xbf16", "8192x2048xbf16", "1x8192xbf16"),
    ("16x4096xbf16", "4096x4096xbf16", "16x4096xbf16"),
    ("32x2048xbf16", "512x2048xbf16", "32x512xbf16"),
    ("5x1000xf16", "129x1000xf16", "5x129xf16"),
    ("4096x4096xbf16", "9x4096xbf16", "4096x9xbf16"),
];

#[test]
fn skinny_gemms() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.mlir");
    for (x, w, r) in SKINNY {
        crate::watchdog::arm();
        let text = format!(
            "func.func @main(%x: tensor<{x}>, %w: tensor<{w}>) -> tensor<{r}> {{\n%0 = kiln.linear %x, %w : tensor<{x}>, tensor<{w}>\n\
             %1 = kiln.tanh %0 : tensor<{r}>\nreturn %1 : tensor<{r}>\n}}"
        );
        std::fs::write(&path, text).unwrap();
        for chip in CHIPS {
            let package = build(&path, chip).unwrap_or_else(|e| panic!("{x}, {w}: {e}"));
            let [ptx] = package
                .objects
                .values()
                .map(|p| std::str::from_utf8(p).expect("PTX is text"))
                .collect::<Vec<_>>()[..]
            else {
                panic!("{x}, {w} for {chip} is no single kernel")
            };
            assert!(
                ptx.contains("mma.sync.aligned.m16n8k16")
                    && ptx.contains(if chip == "sm_90a" {
                        "ld.global.v4"
                    } else {
                        "ld.global.nc.v4"
                    })
                    && !ptx.contains("ldmatrix"),
                "{x}, {w} for {chip}"
            );
            let wrong = assembled(&package, chip);
            assert!(wrong.is_empty(), "{x}, {w} for {chip}:\n{}", wrong.join("\n"));
        }
    }
}

#[test]
fn unaligned_k_is_padded() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.mlir");
    let (x, w, r) = ("1000x1001xbf16", "512x1001xbf16", "1000x512xbf16");
    let text = format!(
        "func.func @main(%x: tensor<{x}>, %w: tensor<{w}>) -> tensor<{r}> {{\n%0 = kiln.linear %x, %w : tensor<{x}>, tensor<{w}>\n\
         %1 = kiln.tanh %0 : tensor<{r}>\nreturn %1 : tensor<{r}>\n}}"
    );
    std::fs::write(&path, text).unwrap();
    for chip in CHIPS {
        crate::watchdog::arm();
        for pads in [true, false] {
            let mut options = options(chip);
            let left_out = kiln::lowering::kernels::pad_products::PadProducts::FLAG;
            options.disable.extend((!pads).then(|| left_out.to_string()));
            let (package, _) = load(&path)
                .and_then(|m| m.build(&options, &|_, _| ()))
                .unwrap_or_else(|e| panic!("{e}"));
            let tensor_cores =
                package.objects.values().any(|p| String::from_utf8_lossy(p).contains("mma"));
            // A separate kernel pads one operand with zeros.
            let copies =
                package.program.kernels.iter().filter(|k| k.name.starts_with("pad")).count();
            assert_eq!((tensor_cores, copies > 0), (pads, pads), "{chip}");
            let wrong = assembled(&package, chip);
            assert!(wrong.is_empty(), "{chip}:\n{}", wrong.join("\n"));
        }
    }
}

/// Gated layers: M, N, K, and whether one kernel computes both matmuls.
const GATED: &[(&str, &str, &str, bool)] = &[
    ("4096", "14336", "4096", true),
    ("129", "136", "136", true),
    ("2x300", "1024", "512", true),
    // These use the skinny GEMM.
    ("1", "8192", "2048", true),
    ("16", "1024", "512", true),
    // Not a multiple of 16 bytes.
    ("200", "129", "65", false),
];

#[test]
fn gated_matmuls_are_one_kernel() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.mlir");
    for (m, n, k, one) in GATED {
        crate::watchdog::arm();
        let (x, w, r) = (format!("{m}x{k}xbf16"), format!("{n}x{k}xbf16"), format!("{m}x{n}xbf16"));
        let text = format!(
            "func.func @main(%x: tensor<{x}>, %v: tensor<{w}>, %w: tensor<{w}>) -> tensor<{r}> {{\n\
             %0 = kiln.linear %x, %v : tensor<{x}>, tensor<{w}>\n%1 = kiln.silu %0 : tensor<{r}>\n\
             %2 = kiln.linear %x, %w : tensor<{x}>, tensor<{w}>\n%3 = kiln.mul %1, %2 : tensor<{r}>\nreturn %3 : tensor<{r}>\n}}"
        );
        std::fs::write(&path, text).unwrap();
        for chip in ["sm_90a", "sm_80"] {
            let package = build(&path, chip).unwrap_or_else(|e| panic!("{m} x {n} x {k}: {e}"));
            let launches: Vec<_> =
                package.program.kernels.iter().filter_map(|k| k.launch.as_ref()).collect();
            let together = *one && chip == "sm_90a";
            assert_eq!(launches.len(), if together { 1 } else { 2 }, "{m} x {n} x {k} for {chip}");
            // The left operand and both right ones; or none with the skinny GEMM.
            assert!(
                !together || [0, 4].contains(&launches[0].maps.len()),
                "{m} x {n} x {k}: {:?}",
                launches[0].maps
            );
            assert!(
                m.len() > 2 || launches.iter().all(|l| l.maps.is_empty()),
                "{m} x {n} x {k} for {chip}"
            );
            let wrong = assembled(&package, chip);
            assert!(wrong.is_empty(), "{m} x {n} x {k} for {chip}:\n{}", wrong.join("\n"));
        }
    }
}

#[test]
fn large_k_with_few_tiles_is_split() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.mlir");
    let text = "func.func @main(%x: tensor<512x16384xbf16>, %w: tensor<16384x512xbf16>) -> tensor<512x512xbf16> {
        %0 = kiln.matmul %x, %w : tensor<512x16384xbf16>, tensor<16384x512xbf16>
        %1 = kiln.gelu %0 {approximate = \"none\"} : tensor<512x512xbf16>
        return %1 : tensor<512x512xbf16>\n}";
    std::fs::write(&path, text).unwrap();
    for (chip, launches) in [("sm_90a", 2), ("sm_80", 1)] {
        let package = build(&path, chip).unwrap_or_else(|e| panic!("{chip}: {e}"));
        assert_eq!(package.program.kernels.len(), launches, "{chip}");
        assert_eq!(
            package.objects.values().any(|p| String::from_utf8_lossy(p).contains("wgmma")),
            chip == "sm_90a",
            "{chip}"
        );
        let wrong = assembled(&package, chip);
        assert!(wrong.is_empty(), "{chip}:\n{}", wrong.join("\n"));
    }
}

/// An f32 matmul, its arguments, and whether tensor cores compute it if tf32 is allowed.
const ROUNDED: &[(&str, &str, &str, bool)] = &[
    (
        "kiln.linear %x, %w : tensor<512x1024xf32>, tensor<768x1024xf32>",
        "512x1024xf32 768x1024xf32",
        "512x768xf32",
        true,
    ),
    (
        "kiln.linear %x, %w : tensor<129x100xf32>, tensor<132x100xf32>",
        "129x100xf32 132x100xf32",
        "129x132xf32",
        true,
    ),
    // Rows of 264 bytes, which TMA does not support.
    (
        "kiln.linear %x, %w : tensor<128x66xf32>, tensor<128x66xf32>",
        "128x66xf32 128x66xf32",
        "128x128xf32",
        false,
    ),
];

#[test]
fn f32_matmuls_use_tf32_where_allowed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.mlir");
    for (product, args, result, fits) in ROUNDED {
        crate::watchdog::arm();
        std::fs::write(&path, with_gelu(product, args, result)).unwrap();
        for (target, allowed) in [("sm_90a", false), ("sm_90a:+tf32", true), ("sm_80:+tf32", false)]
        {
            let package = build(&path, target).unwrap_or_else(|e| panic!("{product}: {e}"));
            let used = package
                .objects
                .values()
                .any(|p| String::from_utf8_lossy(p).contains(".f32.tf32.tf32"));
            assert_eq!(used, *fits && allowed, "{product} for {target}");
            let maps: Vec<&str> = package
                .program
                .kernels
                .iter()
                .filter_map(|k| k.launch.as_ref())
                .flat_map(|l| &l.maps)
                .map(|m| m.dtype.as_str())
                .collect();
            assert_eq!(
                maps,
                if used { vec!["tf32", "tf32", "f32"] } else { vec![] },
                "{product} for {target}"
            );
            let wrong = assembled(&package, target.split(':').next().unwrap());
            assert!(wrong.is_empty(), "{product} for {target}:\n{}", wrong.join("\n"));
        }
    }
    let option = Options { tf32: true, ..options("sm_90a") };
    std::fs::write(&path, "func.func @main(%x: tensor<128x64xf32>) -> tensor<128x128xf32> {\n%0 = kiln.linear %x, %x : tensor<128x64xf32>, tensor<128x64xf32>\nreturn %0 : tensor<128x128xf32>\n}").unwrap();
    let (package, _) = load(&path).unwrap().build(&option, &|_, _| ()).unwrap();
    assert!(
        package.objects.values().any(|p| String::from_utf8_lossy(p).contains(".f32.tf32.tf32"))
    );
}

/// Matmuls with a prologue on the left operand: M, N, K, the operand's dtype, and whether one
/// kernel computes both.
const COMPUTED: &[(&str, i64, i64, &str, bool)] = &[
    ("4096", 256, 512, "bf16", true),
    ("8192", 128, 1024, "f32", true),
    ("2x300", 136, 136, "bf16", true),
    ("16384", 64, 2048, "f16", true),
    // Each of 32 column tiles would recompute it.
    ("4096", 8192, 4096, "bf16", false),
    // Not a multiple of 16 bytes.
    ("200", 129, 65, "bf16", false),
];

#[test]
fn matmul_prologues_fuse() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.mlir");
    for (m, n, k, element, one) in COMPUTED {
        crate::watchdog::arm();
        let half = if *element == "f16" { "f16" } else { "bf16" };
        let (x, s, w, r) = (
            format!("{m}x{k}x"),
            format!("{m}xf32"),
            format!("{n}x{k}x{half}"),
            format!("{m}x{n}x{half}"),
        );
        let (dims, last) = if m.contains('x') { ("0, 1", 2) } else { ("0", 1) };
        let sizes = format!("{}, {k}", m.replace('x', ", "));
        let wide = if *element == "f32" {
            "%1 = kiln.add %x, %x".into()
        } else {
            format!("%1 = kiln.convert %x : tensor<{x}{element}> to f32")
        };
        let wide = if *element == "f32" { format!("{wide} : tensor<{x}f32>") } else { wide };
        let text = format!(
            "func.func @main(%x: tensor<{x}{element}>, %s: tensor<{s}>, %c: tensor<{k}xf32>, %w: tensor<{w}>) -> tensor<{r}> {{\n{wide}\n\
             %2 = kiln.broadcast_in_dim %s dims = [{dims}] sizes = [{sizes}] : tensor<{s}>\n\
             %3 = kiln.mul %1, %2 : tensor<{x}f32>\n\
             %4 = kiln.broadcast_in_dim %c dims = [{last}] sizes = [{sizes}] : tensor<{k}xf32>\n\
             %5 = kiln.mul %3, %4 : tensor<{x}f32>\n%6 = kiln.convert %5 : tensor<{x}f32> to {half}\n\
             %7 = kiln.linear %6, %w : tensor<{x}{half}>, tensor<{w}>\nreturn %7 : tensor<{r}>\n}}"
        );
        std::fs::write(&path, text).unwrap();
        for (chip, fuses) in [("sm_90a", true), ("sm_90a", false), ("sm_80", true)] {
            let mut options = options(chip);
            let left_out = kiln::lowering::kernels::prologues::Prologues::FLAG;
            options.disable.extend((!fuses).then(|| left_out.to_string()));
            let (package, _) = load(&path)
                .and_then(|m| m.build(&options, &|_, _| ()))
                .unwrap_or_else(|e| panic!("{e}"));
            // Older chips copy 16-bit elements only.
            let together = *one && fuses && (chip == "sm_90a" || *element != "f32");
            let what = format!("{m} x {n} x {k} of {element} for {chip}");
            assert_eq!(package.program.kernels.len(), if together { 1 } else { 2 }, "{what}");
            if together {
                let ptx = package
                    .objects
                    .values()
                    .map(|p| String::from_utf8_lossy(p))
                    .collect::<String>();
                assert!(
                    ptx.contains("wgmma.mma_async") == (chip == "sm_90a")
                        && (*element == "f32") != ptx.contains("ldmatrix"),
                    "{what}"
                );
            }
            let wrong = assembled(&package, chip);
            assert!(wrong.is_empty(), "{what}:\n{}", wrong.join("\n"));
        }
    }
}
