//! Programs for NVIDIA GPUs, as far as a machine without one can tell: PTX of every model and of every small kernel, assembled where `ptxas` is, and what
//! is said where a driver or a form is missing. Results are compared on a GPU by `benches/gpu/check.sh`.
use kiln::{
    Error, Exit, Options, load,
    model::CachePolicy,
    runtime::{
        Package,
        program::{Arg, Dim},
    },
};
use std::{
    path::{Path, PathBuf},
    process::Command,
};

fn options(chip: &str) -> Options {
    Options { target: Some(format!("cuda:{chip}")), cache: CachePolicy::Off, ..Options::default() }
}

fn models() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/models")
}

fn build(path: &Path, chip: &str) -> Result<Package, Error> {
    load(path)?.build(&options(chip), &|_, _| ()).map(|(package, _)| package)
}

/// `ptxas`, from `KILN_PTXAS` or the PATH.
fn ptxas() -> Option<PathBuf> {
    let named = std::env::var_os("KILN_PTXAS").map(PathBuf::from);
    let found = named.into_iter().chain(std::env::split_paths(&std::env::var_os("PATH")?).map(|p| p.join("ptxas"))).find(|p| p.is_file());
    if found.is_none() {
        eprintln!("skipped: assembling, since there is neither KILN_PTXAS nor a ptxas on the PATH");
    }
    found
}

/// Assembles all of a package; what is wrong, or spills, or makes products wait for each other (warnings C75xx).
fn assembled(package: &Package, chip: &str) -> Vec<String> {
    let Some(ptxas) = ptxas() else { return vec![] };
    let folder = tempfile::tempdir().unwrap();
    let mut wrong = vec![];
    for (name, ptx) in &package.objects {
        let file = folder.path().join("k.ptx");
        std::fs::write(&file, ptx).unwrap();
        let out = Command::new(&ptxas).arg(format!("-arch={chip}")).args(["-v", "-o", "/dev/null"]).arg(&file).output().expect("it runs");
        let said = String::from_utf8_lossy(&out.stderr).into_owned() + &String::from_utf8_lossy(&out.stdout);
        let spilled = said.split(" bytes spill stores").next().and_then(|s| s.rsplit(' ').next()).and_then(|n| n.parse::<usize>().ok());
        // Where stages follow on 128 sums in registers, two registers more may lie in memory, in front of the loop and behind it.
        let most = if String::from_utf8_lossy(ptx).contains("wgmma.mma_async") { 8 } else { 0 };
        if !out.status.success() || spilled.is_none_or(|n| n > most) || said.contains("C75") {
            let of = package.program.kernels.iter().find(|k| k.symbol == *name).map_or("prepare", |k| k.name.as_str());
            wrong.push(format!("{of} ({name}): {said}"));
        }
    }
    wrong
}

#[test]
fn every_model_becomes_ptx() {
    for entry in std::fs::read_dir(models()).unwrap().flatten().map(|e| e.path()).filter(|p| p.extension().is_some_and(|e| e == "pt2")) {
        crate::watchdog::arm();
        let package = build(&entry, "sm_90a").unwrap_or_else(|e| panic!("{}: {e}", entry.display()));
        assert_eq!((package.program.target.arch.as_str(), package.program.target.cpu.as_str()), ("cuda", "sm_90a"));
        for k in &package.program.kernels {
            let launch = k.launch.as_ref().unwrap_or_else(|| panic!("{} has no launch", k.name));
            let text = std::str::from_utf8(&package.objects[&k.symbol]).expect("PTX is text");
            let params = text.matches(&format!("{}_param_", k.symbol)).filter(|_| true).count();
            assert!(
                text.contains(".target sm_90a") && text.contains(&format!(".reqntid {}", launch.threads)) && params >= launch.args.len()
            );
        }
        let wrong = assembled(&package, "sm_90a");
        assert!(wrong.is_empty(), "{}:\n{}", entry.display(), wrong.join("\n"));
    }
}

#[test]
fn code_for_older_chips_assembles() {
    for chip in ["sm_80", "sm_86", "sm_89"] {
        crate::watchdog::arm();
        let package = build(&models().join("bert_tiny.pt2"), chip).unwrap();
        let wrong = assembled(&package, chip);
        assert!(wrong.is_empty(), "{chip}:\n{}", wrong.join("\n"));
    }
}

/// A product, its arguments, and whether the tensor cores of sm_90a compute it.
const PRODUCTS: &[(&str, &str, &str, bool)] = &[
    ("kiln.linear %x, %w : tensor<2048x4096xbf16>, tensor<4096x4096xbf16>", "2048x4096xbf16 4096x4096xbf16", "2048x4096xbf16", true),
    ("kiln.matmul %x, %w : tensor<129x136xf16>, tensor<136x264xf16>", "129x136xf16 136x264xf16", "129x264xf16", true),
    ("kiln.matmul %x, %w : tensor<5x200x72xbf16>, tensor<5x72x129xbf16>", "5x200x72xbf16 5x72x129xbf16", "5x200x129xbf16", false),
    ("kiln.linear %x, %w : tensor<200x72xbf16>, tensor<129x72xbf16>", "200x72xbf16 129x72xbf16", "200x129xbf16", true),
    ("kiln.matmul %x, %w : tensor<5x200x72xbf16>, tensor<5x72x512xbf16>", "5x200x72xbf16 5x72x512xbf16", "5x200x512xbf16", true),
    (
        "kiln.dot_general %x, %w batch = [] x [] contract = [0] x [0] : tensor<1024x1032xbf16>, tensor<1024x1536xbf16>",
        "1024x1032xbf16 1024x1536xbf16",
        "1032x1536xbf16",
        true,
    ),
    ("kiln.linear %x, %w : tensor<64x65xbf16>, tensor<64x65xbf16>", "64x65xbf16 64x65xbf16", "64x64xbf16", false),
    ("kiln.linear %x, %w : tensor<64x64xf32>, tensor<64x64xf32>", "64x64xf32 64x64xf32", "64x64xf32", false),
];

/// The module with its kernels scheduled, products for the tensor cores if there are any.
fn scheduled(path: &Path, chip: &str) -> PathBuf {
    let out = path.with_extension("scheduled.mlir");
    let run = |args: &[&str], from: &Path| {
        let done = Command::new(env!("CARGO_BIN_EXE_kiln-opt")).args(args).arg(from).arg("-o").arg(&out).output().expect("it runs");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    };
    run(&["--from=graph", "--to=linalg", &format!("--target=cuda:{chip}")], path);
    run(&[&format!("--pass-pipeline=builtin.module(kiln-gpu-schedule{{chip={chip} tensor-cores=true}})")], &out);
    out
}

#[test]
fn products_are_for_the_tensor_cores_where_these_can_read_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.mlir");
    for (product, args, result, wgmma) in PRODUCTS {
        crate::watchdog::arm();
        let (x, w) = args.split_once(' ').unwrap();
        let text = format!(
            "func.func @main(%x: tensor<{x}>, %w: tensor<{w}>) -> tensor<{result}> {{\n%0 = {product}\n\
             %1 = kiln.gelu %0 {{approximate = \"none\"}} : tensor<{result}>\nreturn %1 : tensor<{result}>\n}}"
        );
        std::fs::write(&path, text).unwrap();
        for chip in ["sm_90a", "sm_80", "sm_86", "sm_89"] {
            let package = build(&scheduled(&path, chip), chip).unwrap_or_else(|e| panic!("{product}: {e}"));
            // Older chips multiply what their threads copy, where those can copy 16 bytes at a time.
            let by_warps = package.objects.values().any(|p| {
                let ptx = std::str::from_utf8(p).expect("PTX is text");
                ptx.contains("mma.sync") && ptx.contains("ldmatrix") && ptx.contains("cp.async.cg") && !ptx.contains("wgmma")
            });
            assert_eq!(by_warps, *wgmma && chip != "sm_90a", "{product} for {chip}");
            let launches: Vec<_> = package.program.kernels.iter().filter_map(|k| Some((k, k.launch.as_ref()?))).collect();
            let found = launches.iter().find(|(_, l)| !l.maps.is_empty());
            assert_eq!(found.is_some(), *wgmma && chip == "sm_90a", "{product} for {chip}");
            if let Some((k, l)) = found {
                let ptx = std::str::from_utf8(&package.objects[&k.symbol]).expect("PTX is text");
                assert!(ptx.contains("wgmma.mma_async") && ptx.contains("setmaxnreg") == (l.threads == 384), "{product}");
                // The copy engine writes results whose rows begin at multiples of 16 bytes, warps others.
                let columns: usize = result.rsplit('x').nth(1).and_then(|n| n.parse().ok()).expect("a static shape");
                assert_eq!(l.maps.len(), if columns.is_multiple_of(8) { 3 } else { 2 }, "{product}");
                assert!(ptx.contains("stmatrix"), "{product}");
                assert!(l.shared > 48 << 10 && l.resident > 0 && l.maps.iter().all(|m| m.sizes.len() == m.extent.len()), "{l:?}");
            }
            let wrong = assembled(&package, chip);
            assert!(wrong.is_empty(), "{product} for {chip}:\n{}", wrong.join("\n"));
        }
    }
}

/// Products of few rows: the left operand, the right one, the result.
const FEW: &[(&str, &str, &str)] = &[
    ("1x2048xbf16", "8192x2048xbf16", "1x8192xbf16"),
    ("16x4096xbf16", "4096x4096xbf16", "16x4096xbf16"),
    ("32x4096xbf16", "4096x4096xbf16", "32x4096xbf16"),
    ("5x1000xf16", "129x1000xf16", "5x129xf16"),
    ("4096x4096xbf16", "9x4096xbf16", "4096x9xbf16"),
];

#[test]
fn products_of_few_rows_are_read_by_registers() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.mlir");
    for (x, w, r) in FEW {
        crate::watchdog::arm();
        let text = format!(
            "func.func @main(%x: tensor<{x}>, %w: tensor<{w}>) -> tensor<{r}> {{\n%0 = kiln.linear %x, %w : tensor<{x}>, tensor<{w}>\n\
             %1 = kiln.tanh %0 : tensor<{r}>\nreturn %1 : tensor<{r}>\n}}"
        );
        std::fs::write(&path, text).unwrap();
        for chip in ["sm_90a", "sm_80", "sm_86", "sm_89"] {
            let package = build(&path, chip).unwrap_or_else(|e| panic!("{x}, {w}: {e}"));
            let [ptx] = package.objects.values().map(|p| std::str::from_utf8(p).expect("PTX is text")).collect::<Vec<_>>()[..] else {
                panic!("{x}, {w} for {chip} is no single kernel")
            };
            assert!(
                ptx.contains("mma.sync.aligned.m16n8k16") && ptx.contains("ld.global.nc.v4") && !ptx.contains("ldmatrix"),
                "{x}, {w} for {chip}"
            );
            let wrong = assembled(&package, chip);
            assert!(wrong.is_empty(), "{x}, {w} for {chip}:\n{}", wrong.join("\n"));
        }
    }
}

/// Gated layers: rows, columns, depth, and whether one kernel computes both products.
const GATED: &[(&str, &str, &str, bool)] = &[
    ("4096", "14336", "4096", true),
    ("129", "136", "136", true),
    ("2x300", "1024", "512", true),
    // These are read by registers.
    ("1", "8192", "2048", true),
    ("16", "1024", "512", true),
    // No multiple of 16 bytes.
    ("200", "129", "65", false),
];

#[test]
fn gated_products_are_one_kernel() {
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
            let launches: Vec<_> = package.program.kernels.iter().filter_map(|k| k.launch.as_ref()).collect();
            let together = *one && chip == "sm_90a";
            assert_eq!(launches.len(), if together { 1 } else { 2 }, "{m} x {n} x {k} for {chip}");
            // The left operand, both right ones, the result; or none, where registers read them.
            assert!(!together || [0, 4].contains(&launches[0].maps.len()), "{m} x {n} x {k}: {:?}", launches[0].maps);
            assert!(m.len() > 2 || launches.iter().all(|l| l.maps.is_empty()), "{m} x {n} x {k} for {chip}");
            let wrong = assembled(&package, chip);
            assert!(wrong.is_empty(), "{m} x {n} x {k} for {chip}:\n{}", wrong.join("\n"));
        }
    }
}

#[test]
fn long_sums_of_few_tiles_are_split() {
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
        assert_eq!(package.objects.values().any(|p| String::from_utf8_lossy(p).contains("wgmma")), chip == "sm_90a", "{chip}");
        let wrong = assembled(&package, chip);
        assert!(wrong.is_empty(), "{chip}:\n{}", wrong.join("\n"));
    }
}

type Attention = (&'static str, &'static str, &'static str, &'static str, &'static str, &'static str, Option<&'static str>);

/// Attentions: sizes of queries, of keys and of values, what else the function takes, ops before, options and regions, and why one is not whole on sm_90a.
const ATTENTIONS: &[Attention] = &[
    ("2x3x256x64xbf16", "2x3x384x64xbf16", "2x3x384x64xbf16", "", "", "", None),
    ("1x8x200x64xf16", "1x2x300x64xf16", "1x2x300x64xf16", "", "", "causal", None),
    ("4x16x2048x128xbf16", "4x16x2048x128xbf16", "4x16x2048x128xbf16", "", "", "causal", None),
    ("16x32x2048x128xf16", "16x32x2048x128xf16", "16x32x2048x128xf16", "", "", "", None),
    ("1x2x129x96xbf16", "1x2x70x96xbf16", "1x2x70x32xbf16", "", "", "", None),
    ("1x2x300x256xbf16", "1x2x300x256xbf16", "1x2x300x256xbf16", "", "", "causal", None),
    (
        "2x3x256x128xbf16",
        "2x3x200x128xbf16",
        "2x3x200x128xbf16",
        ", %b: tensor<2x1x1x200xbf16>",
        "",
        "bias %b : tensor<2x1x1x200xbf16>",
        None,
    ),
    (
        "2x3x130x64xbf16",
        "2x3x200x64xbf16",
        "2x3x200x64xbf16",
        ", %m: tensor<2x1x130x200xi1>",
        "%z = kiln.splat [2, 1, 130, 200], 0.0 : bf16
         %l = kiln.splat [2, 1, 130, 200], 0xFF80 : bf16
         %b = kiln.select %m, %z, %l : tensor<2x1x130x200xi1>, tensor<2x1x130x200xbf16>",
        "bias %b : tensor<2x1x130x200xbf16>",
        None,
    ),
    ("1x4x256x128xbf16", "1x4x256x128xbf16", "1x4x256x128xbf16", "", "", "causal score SOFTCAP", None),
    ("1x4x256x64xf16", "1x4x256x64xf16", "1x4x256x64xf16", ", %t: tensor<4xf32>", "", "causal score ALIBI", None),
    ("1x4x300x128xbf16", "1x4x300x128xbf16", "1x4x300x128xbf16", "", "", "causal mask WINDOW", None),
    ("1x2x40x64xf32", "1x2x40x64xf32", "1x2x40x64xf32", "", "", "", Some("its elements are neither bf16 nor f16")),
    ("1x2x40x20xbf16", "1x2x40x20xbf16", "1x2x40x20xbf16", "", "", "", Some("no multiple of 8 up to 256")),
];

/// The module of one of them.
fn attention((q, k, v, more, before, options, _): Attention) -> String {
    let out: Vec<&str> = q.split('x').take(3).chain(v.split('x').skip(3)).collect();
    let place = "%b_: tensor<i64>, %h: tensor<i64>, %i: tensor<i64>, %j: tensor<i64>";
    let softcap = format!(
        "{{ ^bb0(%s: tensor<f32>, {place}):\n %c = kiln.splat [], 30.0 : f32\n %0 = kiln.div %s, %c : tensor<f32>\n\
         %1 = kiln.tanh %0 : tensor<f32>\n %2 = kiln.mul %1, %c : tensor<f32>\n kiln.yield %2 : tensor<f32> }}"
    );
    let alibi = format!(
        "{{ ^bb0(%s: tensor<f32>, {place}):\n %0 = kiln.gather %t[%h] dims = [0] : tensor<4xf32>[tensor<i64>]\n\
         %1 = kiln.sub %j, %i : tensor<i64>\n %2 = kiln.convert %1 : tensor<i64> to f32\n %3 = kiln.mul %0, %2 : tensor<f32>\n\
         %4 = kiln.add %s, %3 : tensor<f32>\n kiln.yield %4 : tensor<f32> }}"
    );
    let window = format!(
        "{{ ^bb0({place}):\n %w = kiln.splat [], 100 : i64\n %0 = kiln.sub %i, %j : tensor<i64>\n\
         %1 = kiln.compare lt %0, %w : tensor<i64>\n kiln.yield %1 : tensor<i1> }}"
    );
    // Regions stand behind the types.
    let (options, region) = match options.split_once(" score ").or_else(|| options.split_once(" mask ")) {
        Some((options, "SOFTCAP")) => (options, format!("score {softcap}")),
        Some((options, "ALIBI")) => (options, format!("score {alibi}")),
        Some((options, _)) => (options, format!("mask {window}")),
        None => (options, String::new()),
    };
    format!(
        "func.func @main(%q: tensor<{q}>, %k: tensor<{k}>, %v: tensor<{v}>{more}) -> tensor<{out}> {{\n{before}\n\
         %r = kiln.attention %q, %k, %v {options} : tensor<{q}>, tensor<{k}>, tensor<{v}> {region}\nreturn %r : tensor<{out}>\n}}",
        out = out.join("x")
    )
}

#[test]
fn attention_is_for_the_tensor_cores_where_these_can_read_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.mlir");
    for case in ATTENTIONS {
        std::fs::write(&path, attention(*case)).unwrap();
        for chip in ["sm_90a", "sm_80"] {
            crate::watchdog::arm();
            let package = build(&path, chip).unwrap_or_else(|e| panic!("{case:?} for {chip}: {e}"));
            let kernels = &package.program.kernels;
            let why = case.6;
            let said = kernels
                .iter()
                .flat_map(|k| &k.not_fused)
                .any(|r| why.is_some_and(|w| r.starts_with("attention not whole") && r.contains(w)));
            assert_eq!(said, why.is_some(), "{case:?} for {chip}: {kernels:?}");
            let found = kernels.iter().find(|k| k.launch.as_ref().is_some_and(|l| l.maps.len() == 3));
            assert_eq!(found.is_some(), why.is_none() && chip == "sm_90a", "{case:?} for {chip}");
            let found = found.or(kernels.iter().find(|k| k.name.starts_with("attention") && why.is_none()));
            if let Some(k) = found {
                let ptx = std::str::from_utf8(&package.objects[&k.symbol]).expect("PTX is text");
                let wanted: &[&str] = if chip == "sm_90a" { &["wgmma.mma_async", "setmaxnreg"] } else { &["mma.sync", "prmt.b32"] };
                assert!(wanted.iter().all(|w| ptx.contains(w)) && !ptx.contains("call.uni"), "{case:?} for {chip}");
                let wrong = assembled(&package, chip);
                assert!(wrong.is_empty(), "{case:?} for {chip}:\n{}", wrong.join("\n"));
            }
        }
    }
}

#[test]
fn attention_gives_its_log_sum_exp() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.mlir");
    for (queries, keys) in [(130, 200), (1, 3000)] {
        crate::watchdog::arm();
        let (q, k, l) = (format!("tensor<2x8x{queries}x64xbf16>"), format!("tensor<2x2x{keys}x64xbf16>"), format!("tensor<2x8x{queries}xf32>"));
        let text = format!(
            "func.func @main(%q: {q}, %k: {k}, %v: {k}) -> ({q}, {l}) {{\n%r, %l = kiln.attention %q, %k, %v with_lse : {q}, {k}, {k}\n\
             return %r, %l : {q}, {l}\n}}"
        );
        std::fs::write(&path, text).unwrap();
        for chip in ["sm_90a", "sm_80"] {
            let package = build(&path, chip).unwrap_or_else(|e| panic!("{queries} queries for {chip}: {e}"));
            assert_eq!(package.program.kernels.len(), 1, "{queries} queries for {chip}");
            let ptx = package.objects.values().map(|p| String::from_utf8_lossy(p).into_owned()).collect::<String>();
            assert!(ptx.contains("mma") && ptx.contains("ex2.approx"), "{queries} queries for {chip}");
            let wrong = assembled(&package, chip);
            assert!(wrong.is_empty(), "{queries} queries for {chip}:\n{}", wrong.join("\n"));
        }
    }
}

/// A product of f32, its arguments, and whether the tensor cores may have it where tf32 is allowed.
const ROUNDED: &[(&str, &str, &str, bool)] = &[
    ("kiln.linear %x, %w : tensor<512x1024xf32>, tensor<768x1024xf32>", "512x1024xf32 768x1024xf32", "512x768xf32", true),
    ("kiln.linear %x, %w : tensor<129x100xf32>, tensor<132x100xf32>", "129x100xf32 132x100xf32", "129x132xf32", true),
    // Rows of 264 bytes, which the copy engine does not take.
    ("kiln.linear %x, %w : tensor<128x66xf32>, tensor<128x66xf32>", "128x66xf32 128x66xf32", "128x128xf32", false),
];

#[test]
fn products_of_f32_are_rounded_where_that_is_allowed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.mlir");
    for (product, args, result, fits) in ROUNDED {
        crate::watchdog::arm();
        let (x, w) = args.split_once(' ').unwrap();
        let text = format!(
            "func.func @main(%x: tensor<{x}>, %w: tensor<{w}>) -> tensor<{result}> {{\n%0 = {product}\n\
             %1 = kiln.gelu %0 {{approximate = \"none\"}} : tensor<{result}>\nreturn %1 : tensor<{result}>\n}}"
        );
        std::fs::write(&path, text).unwrap();
        for (target, allowed) in [("sm_90a", false), ("sm_90a:+tf32", true), ("sm_80:+tf32", false)] {
            let package = build(&path, target).unwrap_or_else(|e| panic!("{product}: {e}"));
            let used = package.objects.values().any(|p| String::from_utf8_lossy(p).contains(".f32.tf32.tf32"));
            assert_eq!(used, *fits && allowed, "{product} for {target}");
            let maps: Vec<&str> =
                package.program.kernels.iter().filter_map(|k| k.launch.as_ref()).flat_map(|l| &l.maps).map(|m| m.dtype.as_str()).collect();
            assert_eq!(maps, if used { vec!["tf32", "tf32", "f32"] } else { vec![] }, "{product} for {target}");
            let wrong = assembled(&package, target.split(':').next().unwrap());
            assert!(wrong.is_empty(), "{product} for {target}:\n{}", wrong.join("\n"));
        }
    }
    let option = Options { tf32: true, ..options("sm_90a") };
    std::fs::write(&path, "func.func @main(%x: tensor<128x64xf32>) -> tensor<128x128xf32> {\n%0 = kiln.linear %x, %x : tensor<128x64xf32>, tensor<128x64xf32>\nreturn %0 : tensor<128x128xf32>\n}").unwrap();
    let (package, _) = load(&path).unwrap().build(&option, &|_, _| ()).unwrap();
    assert!(package.objects.values().any(|p| String::from_utf8_lossy(p).contains(".f32.tf32.tf32")));
}

/// Attentions of few queries as in [`ATTENTIONS`], and how many blocks of a cluster share the keys.
const DECODES: &[(Attention, usize)] = &[
    (("1x32x1x128xbf16", "1x8x4096x128xbf16", "1x8x4096x128xbf16", "", "", "", None), 8),
    (("8x32x1x128xbf16", "8x8x4096x128xbf16", "8x8x4096x128xbf16", "", "", "", None), 4),
    (("64x32x1x64xf16", "64x32x1000x64xf16", "64x32x1000x64xf16", "", "", "", None), 1),
    (("1x16x4x256xbf16", "1x2x3001x256xbf16", "1x2x3001x256xbf16", "", "", "", None), 8),
    (("2x4x16x80xbf16", "2x4x300x80xbf16", "2x4x300x72xbf16", "", "", "causal", None), 1),
    (("1x2x1x32xbf16", "1x2x0x32xbf16", "1x2x0x32xbf16", "", "", "", Some("it has no keys")), 1),
    (("2x3x1x128xbf16", "2x3x2000x128xbf16", "2x3x2000x128xbf16", ", %b: tensor<2x1x1x2000xbf16>", "", "bias %b : tensor<2x1x1x2000xbf16>", None), 8),
    (("1x4x3x128xbf16", "1x4x3000x128xbf16", "1x4x3000x128xbf16", "", "", " score SOFTCAP", None), 8),
];

#[test]
fn few_queries_share_their_keys_out() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.mlir");
    for (case, parts) in DECODES {
        crate::watchdog::arm();
        std::fs::write(&path, attention(*case)).unwrap();
        for chip in ["sm_90a", "sm_86"] {
            let package = build(&path, chip).unwrap_or_else(|e| panic!("{case:?} for {chip}: {e}"));
            let Some(k) = package.program.kernels.first().filter(|_| case.6.is_none()) else { continue };
            assert_eq!(package.program.kernels.len(), 1, "{case:?} for {chip}");
            let ptx = std::str::from_utf8(&package.objects[&k.symbol]).expect("PTX is text");
            assert!(ptx.contains("mma.sync") && !ptx.contains("wgmma") && !ptx.contains("call.uni"), "{case:?} for {chip}");
            let parts = if chip == "sm_90a" { *parts } else { 1 };
            assert_eq!(ptx.contains(&format!(".reqnctapercluster {parts}, 1, 1")), parts > 1, "{case:?} for {chip}:\n{ptx}");
            let wrong = assembled(&package, chip);
            assert!(wrong.is_empty(), "{case:?} for {chip}:\n{}", wrong.join("\n"));
        }
    }
}

/// A kernel on `%x` of this type that gives `%r` of that one, and its strategies in order.
const ROWS: &[(&str, &str, &str, &[&str])] = &[
    ("%r = kiln.softmax %x axis = 1 : tensor<512x1024xf32>", "512x1024xf32", "512x1024xf32", &["registers"]),
    ("%r = kiln.softmax %x axis = 1 : tensor<512x32768xf32>", "512x32768xf32", "512x32768xf32", &["registers"]),
    ("%r = kiln.softmax %x axis = 1 : tensor<512x1001xbf16>", "512x1001xbf16", "512x1001xbf16", &["registers"]),
    ("%r = kiln.softmax %x axis = 1 : tensor<512x4097xbf16>", "512x4097xbf16", "512x4097xbf16", &["registers"]),
    (
        "%r = kiln.layer_norm %x {rank = 1 : i64, epsilon = 1.0e-05 : f64} : tensor<512x8192xbf16>",
        "512x8192xbf16",
        "512x8192xbf16",
        &["registers"],
    ),
    ("%r = kiln.softmax %x axis = 1 : tensor<8x128256xbf16>", "8x128256xbf16", "8x128256xbf16", &["rows"]),
    ("%r = kiln.reduce sum %x dims = [1] : tensor<8192x4096xbf16>", "8192x4096xbf16", "8192xbf16", &["reduce"]),
    ("%r = kiln.reduce sum %x dims = [0] : tensor<8192x4096xbf16>", "8192x4096xbf16", "4096xbf16", &["columns", "columns"]),
    ("%r = kiln.reduce sum %x dims = [0, 1] : tensor<8192x4096xbf16>", "8192x4096xbf16", "bf16", &["reduce", "reduce"]),
    ("%r = kiln.reduce max %x dims = [0] : tensor<8000009xf32>", "8000009xf32", "f32", &["reduce", "reduce", "reduce"]),
];

#[test]
fn rows_and_reductions_have_the_strategies_that_they_should() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.mlir");
    for (op, x, r, strategies) in ROWS {
        crate::watchdog::arm();
        std::fs::write(&path, format!("func.func @main(%x: tensor<{x}>) -> tensor<{r}> {{\n{op}\nreturn %r : tensor<{r}>\n}}")).unwrap();
        let text = std::fs::read_to_string(scheduled(&path, "sm_90a")).unwrap();
        let found: Vec<&str> = text.split("#kiln.schedule<\"").skip(1).filter_map(|t| t.split('"').next()).collect();
        assert_eq!(found, *strategies, "{op}");
        for chip in ["sm_90a", "sm_80"] {
            let package = build(&path, chip).unwrap_or_else(|e| panic!("{op}: {e}"));
            let wrong = assembled(&package, chip);
            assert!(wrong.is_empty(), "{op} for {chip}:\n{}", wrong.join("\n"));
            // Whole accesses where rows begin at a multiple of 16 bytes.
            let wide = package.objects.values().any(|p| std::str::from_utf8(p).is_ok_and(|t| t.contains("ld.global.nc.v4")));
            assert!(wide || x.contains("1001") || x.contains("4097") || x.contains("8000009"), "{op}");
        }
    }
}

/// What a GPU has no instructions for.
#[test]
fn floats_of_8_bits_and_remainders_assemble() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.mlir");
    let mut functions = vec![];
    for float in ["f8E4M3FN", "f8E5M2"] {
        let (x, w, r) = (format!("tensor<37x64x{float}>"), format!("tensor<64x41x{float}>"), format!("tensor<37x41x{float}>"));
        functions.push(format!(
            "(%x: {x}, %w: {w}) -> ({r}, {x}) {{\n%0 = kiln.matmul %x, %w : {x}, {w}\n%1 = kiln.softmax %x axis = 1 : {x}\nreturn %0, %1 : {r}, {x}"
        ));
    }
    for float in ["f32", "f64", "bf16"] {
        let t = format!("tensor<999x{float}>");
        functions.push(format!("(%x: {t}, %y: {t}) -> {t} {{\n%0 = kiln.rem %x, %y : {t}\nreturn %0 : {t}"));
    }
    for text in functions {
        std::fs::write(&path, format!("func.func @main{text}\n}}")).unwrap();
        for chip in ["sm_90a", "sm_80"] {
            crate::watchdog::arm();
            let package = build(&path, chip).unwrap_or_else(|e| panic!("{text}: {e}"));
            let wrong = assembled(&package, chip);
            assert!(wrong.is_empty(), "{text} for {chip}:\n{}", wrong.join("\n"));
        }
    }
}

/// A convolution of bf16 with channels last at its ends: images, weight, result, attributes; whether the copy engine reads its pixels, and whether kernels of
/// sm_90a and of sm_80 pad.
type Case = (&'static str, &'static str, &'static str, &'static str, bool, [bool; 2]);
const CONVOLUTIONS: &[Case] = &[
    ("4x28x28x128", "128x128x3x3", "4x28x28x128", "strides = [1, 1] pad = [1, 1] x [1, 1] dilation = [1, 1]", true, [false, true]),
    ("4x15x9x72", "65x72x3x3", "4x8x5x65", "strides = [2, 2] pad = [1, 1] x [1, 1] dilation = [1, 1]", true, [false, true]),
    ("2x14x14x64", "256x64x1x1", "2x7x7x256", "strides = [2, 2] pad = [0, 0] x [0, 0] dilation = [1, 1]", true, [false, false]),
    // A plain product.
    ("2x14x14x64", "256x64x1x1", "2x14x14x256", "strides = [1, 1] pad = [0, 0] x [0, 0] dilation = [1, 1]", false, [false, false]),
    // 6 bytes of channels become 16, or those of blocks of pixels; patches are a plain product.
    ("2x32x32x3", "64x3x3x3", "2x32x32x64", "strides = [1, 1] pad = [1, 1] x [1, 1] dilation = [1, 1]", true, [true, true]),
    ("2x40x33x3", "64x3x7x7", "2x20x17x64", "strides = [2, 2] pad = [3, 3] x [3, 3] dilation = [1, 1]", true, [true, true]),
    ("2x64x32x3", "72x3x16x16", "2x4x2x72", "strides = [16, 16] pad = [0, 0] x [0, 0] dilation = [1, 1]", false, [false, false]),
    // Each channel by itself, and groups of several.
    (
        "2x14x15x24",
        "24x1x3x3",
        "2x14x15x24",
        "strides = [1, 1] pad = [1, 1] x [1, 1] dilation = [1, 1] {groups = 24}",
        false,
        [false, false],
    ),
    ("2x14x15x17", "17x1x5x5", "2x7x8x17", "strides = [2, 2] pad = [2, 2] x [2, 2] dilation = [1, 1] {groups = 17}", false, [false, false]),
    ("2x14x14x64", "64x16x3x3", "2x14x14x64", "strides = [1, 1] pad = [1, 1] x [1, 1] dilation = [1, 1] {groups = 4}", false, [true, true]),
];

#[test]
fn convolutions_read_pixels_through_the_copy_engine() {
    let folder = tempfile::tempdir().unwrap();
    for (images, weight, result, how, window, pads) in CONVOLUTIONS {
        crate::watchdog::arm();
        let turned = |t: &str| {
            let d: Vec<&str> = t.split('x').collect();
            format!("{}x{}x{}x{}", d[0], d[3], d[1], d[2])
        };
        let (nchw, out) = (turned(images), turned(result));
        let filters = weight.split('x').next().unwrap();
        let text = format!(
            "kiln.global @w : tensor<{weight}xbf16> from \"w.safetensors\" {{frozen}}\n\
             func.func @main(%x: tensor<{images}xbf16>, %b: tensor<{filters}xbf16>) -> tensor<{result}xbf16> {{\n\
             %w = kiln.get_global @w : tensor<{weight}xbf16>\n\
             %0 = kiln.transpose %x permutation = [0, 3, 1, 2] : tensor<{images}xbf16>\n\
             %1 = kiln.convolution %0, %w {how} : tensor<{nchw}xbf16>, tensor<{weight}xbf16>\n\
             %2 = kiln.transpose %1 permutation = [0, 2, 3, 1] : tensor<{out}xbf16>\n\
             %3 = kiln.broadcast_in_dim %b dims = [3] sizes = [{}] : tensor<{filters}xbf16>\n\
             %4 = kiln.add %2, %3 : tensor<{result}xbf16>\n\
             %5 = kiln.tanh %4 : tensor<{result}xbf16>\nreturn %5 : tensor<{result}xbf16>\n}}",
            result.replace('x', ", ")
        );
        let count = weight.split('x').map(|n| n.parse::<usize>().unwrap()).product::<usize>();
        let weights = safetensors::tensor::TensorView::new(
            safetensors::Dtype::BF16,
            weight.split('x').map(|n| n.parse().unwrap()).collect(),
            &vec![0; 2 * count],
        )
        .map(|view| safetensors::serialize([("w", view)], None).unwrap())
        .unwrap();
        std::fs::write(folder.path().join("w.safetensors"), weights).unwrap();
        let path = folder.path().join("m.mlir");
        std::fs::write(&path, text).unwrap();
        for (chip, pads) in ["sm_90a", "sm_80"].into_iter().zip(pads) {
            let package = build(&path, chip).unwrap_or_else(|e| panic!("{images}, {weight}: {e}"));
            let kernels = &package.program.kernels;
            let pixels = kernels.iter().filter_map(|k| k.launch.as_ref()).flat_map(|l| &l.maps).any(|m| m.window.is_some());
            assert_eq!(pixels, *window && chip == "sm_90a", "{images}, {weight} for {chip}");
            let padding = kernels.iter().any(|k| k.ops.contains(&"pad".to_string()));
            assert_eq!(padding, *pads, "{images}, {weight} for {chip}");
            let wrong = assembled(&package, chip);
            assert!(wrong.is_empty(), "{images}, {weight} for {chip}:\n{}", wrong.join("\n"));
        }
    }
}

#[test]
fn launches_are_plain_data_over_sizes() {
    let package = build(&models().join("mlp.pt2"), "sm_90a").unwrap();
    let p = &package.program;
    let launches: Vec<_> = p.kernels.iter().filter_map(|k| k.launch.as_ref()).collect();
    assert!(launches.iter().any(|l| matches!(l.grid, Dim::Expr(_) | Dim::Symbol(_))), "a size of the call decides how many blocks run");
    assert!(launches.iter().flat_map(|l| &l.args).any(|a| *a == Arg::Input(0)));
    assert!(launches.iter().flat_map(|l| &l.args).any(|a| *a == Arg::Output(0)));
    let symbols = vec![64; p.symbols.len()];
    let exprs = p.expr_values(&symbols).unwrap();
    assert!(launches.iter().all(|l| l.grid.value(&symbols, &exprs).unwrap() >= 1));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mlp.kpkg");
    package.save(&path).unwrap();
    assert_eq!(Package::load(&path).unwrap(), package);
}

#[test]
fn launches_say_where_their_ops_stand() {
    let package = build(&models().join("bert_tiny.pt2"), "sm_90a").unwrap();
    for k in &package.program.kernels {
        assert!(!k.sources.is_empty() && k.sources.iter().all(|s| s.contains(" (") && s.contains(".py:")), "{}: {:?}", k.name, k.sources);
    }
    // One kernel, launched from several places.
    let (first, again) = package
        .program
        .kernels
        .iter()
        .enumerate()
        .find_map(|(i, k)| {
            let again = package.program.kernels[i + 1..].iter().find(|other| other.symbol == k.symbol)?;
            Some((k, again))
        })
        .expect("two layers have kernels in common");
    assert_ne!(first.sources, again.sources);
}

fn kiln(args: &[&str]) -> (Option<i32>, String) {
    let out =
        Command::new(env!("CARGO_BIN_EXE_kiln")).args(args).env("KILN_CACHE_DIR", "off").current_dir(models()).output().expect("it runs");
    (out.status.code(), String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr))
}

#[test]
fn without_a_driver_the_error_says_so() {
    if kiln::runtime::cuda::Device::cuda(0).is_ok() {
        eprintln!("skipped: there is a GPU");
        return;
    }
    for args in [&["run", "mlp.pt2", "--device", "cuda"][..], &["run", "mlp.pt2", "--target", "cuda:sm_90a"]] {
        let (code, text) = kiln(args);
        assert_eq!(code, Some(i32::from(Exit::Device.code())), "{text}");
        assert!(text.contains("libcuda.so.1") || text.contains("GPU"), "{text}");
    }
    let (code, text) = kiln(&["doctor"]);
    assert!(code == Some(0) && text.contains("NVIDIA GPUs: "), "{text}");
}

#[test]
fn bad_devices_and_targets_are_usage_errors() {
    for (args, part) in [
        (["--device", "gpu"], "there are cpu, cuda and cuda:<number>"),
        (["--target", "cuda:sm_91"], "there is no chip 'sm_91'; did you mean"),
        (["--target", "cuda:sm_70"], "sm_80, sm_86, sm_89, sm_90a"),
    ] {
        let (code, text) = kiln(&[&["run", "mlp.pt2"], &args[..]].concat());
        assert!(code == Some(i32::from(Exit::Usage.code())) && text.contains(part), "{args:?}: {text}");
    }
}

#[test]
fn all_that_has_no_form_is_named_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.mlir");
    let text = "func.func @main(%x: tensor<8xf32>, %k: tensor<2xi64>) -> (tensor<8xf32>, tensor<8xi64>, tensor<8xi32>) {
      %v, %i = kiln.sort %x axis = 0 : tensor<8xf32>
      %e = kiln.random_bits %k sizes = [8] : i32
      return %v, %i, %e : tensor<8xf32>, tensor<8xi64>, tensor<8xi32>
    }";
    std::fs::write(&path, text).unwrap();
    let e = build(&path, "sm_90a").expect_err("neither has a form");
    let said = e.to_string();
    assert_eq!(e.exit(), Exit::Unsupported, "{said}");
    assert!(said.contains("'sort' has no compiled form yet for GPUs") && said.contains("'random_bits' has"), "{said}");
    assert!(said.contains("m.mlir:2") && said.contains("m.mlir:3"), "{said}");
}
