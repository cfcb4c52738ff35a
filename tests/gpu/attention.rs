//! Attention on GPUs: which forms have a fused kernel.
use super::*;

type Attention<'a> = (&'a str, &'a str, &'a str, &'a str, &'a str, &'a str, Option<&'a str>);

/// Sizes of queries, keys and values, further arguments, ops before, options and regions, and why
/// sm_90a has no fused kernel.
const ATTENTIONS: &[Attention<'static>] = &[
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
    (
        "1x4x256x128xbf16",
        "1x4x256x128xbf16",
        "1x4x256x128xbf16",
        "",
        "",
        "causal score SOFTCAP",
        None,
    ),
    (
        "1x4x256x64xf16",
        "1x4x256x64xf16",
        "1x4x256x64xf16",
        ", %t: tensor<4xf32>",
        "",
        "causal score ALIBI",
        None,
    ),
    (
        "1x4x300x128xbf16",
        "1x4x300x128xbf16",
        "1x4x300x128xbf16",
        "",
        "",
        "causal mask WINDOW",
        None,
    ),
    // Sequence lengths of queries and keys.
    (
        "3x4x300x64xbf16",
        "3x2x400x64xbf16",
        "3x2x400x64xbf16",
        ", %l: tensor<3xi64>, %n: tensor<3xi64>",
        "",
        "lengths %l : tensor<3xi64> key_lengths %n : tensor<3xi64>",
        None,
    ),
    (
        "3x4x256x128xf16",
        "3x4x256x128xf16",
        "3x4x256x128xf16",
        ", %n: tensor<3xi32>",
        "%l = kiln.mul %n, %n : tensor<3xi32>",
        "lengths %l : tensor<3xi32> key_lengths %l : tensor<3xi32> causal mask WINDOW",
        None,
    ),
    (
        "3x4x300x256xbf16",
        "3x4x300x256xbf16",
        "3x4x300x256xbf16",
        ", %n: tensor<3xi32>",
        "",
        "key_lengths %n : tensor<3xi32> causal score SOFTCAP",
        None,
    ),
    (
        "1x2x40x64xf32",
        "1x2x40x64xf32",
        "1x2x40x64xf32",
        "",
        "",
        "",
        Some("its element type is neither bf16 nor f16"),
    ),
    (
        "1x2x40x20xbf16",
        "1x2x40x20xbf16",
        "1x2x40x20xbf16",
        "",
        "",
        "",
        Some("not multiples of 8 up to 256"),
    ),
];

/// The module of a case.
fn attention((q, k, v, more, before, options, _): Attention<'_>) -> String {
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
    // Regions come after the types.
    let (options, region) =
        match options.split_once(" score ").or_else(|| options.split_once(" mask ")) {
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
fn attention_uses_tensor_cores_where_possible() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.mlir");
    for case in ATTENTIONS {
        std::fs::write(&path, attention(*case)).unwrap();
        for chip in CHIPS {
            crate::watchdog::arm();
            let package = build(&path, chip).unwrap_or_else(|e| panic!("{case:?} for {chip}: {e}"));
            let kernels = &package.program.kernels;
            let why = case.6;
            let said = kernels.iter().flat_map(|k| &k.not_fused).any(|r| {
                why.is_some_and(|w| r.starts_with("attention not fused") && r.contains(w))
            });
            assert_eq!(said, why.is_some(), "{case:?} for {chip}: {kernels:?}");
            let maps =
                |k: &&kiln::runtime::program::Kernel| k.launch.as_ref().map_or(0, |l| l.maps.len());
            let found = kernels.iter().find(|k| k.name.starts_with("attention") && maps(k) >= 3);
            assert_eq!(found.is_some(), why.is_none() && chip == "sm_90a", "{case:?} for {chip}");
            let found =
                found.or(kernels.iter().find(|k| k.name.starts_with("attention") && why.is_none()));
            if let Some(k) = found {
                let ptx = std::str::from_utf8(&package.objects[&k.symbol]).expect("PTX is text");
                let wanted: &[&str] = if chip == "sm_90a" {
                    &["wgmma.mma_async", "setmaxnreg"]
                } else {
                    &["mma.sync", "prmt.b32"]
                };
                assert!(
                    wanted.iter().all(|w| ptx.contains(w)) && !ptx.contains("call.uni"),
                    "{case:?} for {chip}"
                );
                let wrong = assembled(&package, chip);
                assert!(wrong.is_empty(), "{case:?} for {chip}:\n{}", wrong.join("\n"));
            }
        }
    }
}

/// Sizes of queries, of keys, of a bias and its dtype; the tensor maps that attention has on sm_90a.
const BIASES: &[(&str, &str, &str, usize)] = &[
    ("2x4x300x64xbf16", "2x4x304x64xbf16", "4x300x304xbf16", 4),
    ("2x4x300x128xbf16", "2x2x304x128xbf16", "2x1x300x304xbf16", 4),
    ("1x2x300x256xf16", "1x2x304x256xf16", "300x304xf16", 4),
    // One row for all queries, and rows of the keys' number unaligned, few enough to stay so.
    ("2x4x300x64xbf16", "2x4x304x64xbf16", "2x1x1x304xbf16", 3),
    ("1x1x20x64xbf16", "1x1x30x64xbf16", "20x30xbf16", 3),
    // Padded in memory.
    ("16x4x197x64xbf16", "16x4x197x64xbf16", "4x197x197xbf16", 4),
];

#[test]
fn biases_by_query_and_key_are_tiles() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.mlir");
    for case @ (q, k, bias, wanted) in BIASES {
        crate::watchdog::arm();
        let (more, options) =
            (format!(", %b: tensor<{bias}>"), format!("bias %b : tensor<{bias}>"));
        std::fs::write(&path, attention((q, k, k, &more, "", &options, None))).unwrap();
        let package = build(&path, "sm_90a").unwrap_or_else(|e| panic!("{case:?}: {e}"));
        let kernels = package.program.kernels.iter().filter(|k| k.name.starts_with("attention"));
        let maps: Vec<usize> =
            kernels.filter_map(|k| k.launch.as_ref()).map(|l| l.maps.len()).collect();
        assert_eq!(maps, [*wanted], "{case:?}");
        let wrong = assembled(&package, "sm_90a");
        assert!(wrong.is_empty(), "{case:?}:\n{}", wrong.join("\n"));
    }
}

/// Derivatives: heads of queries and of keys, queries, keys, head sizes, whether there is a causal
/// mask, the element type, and why sm_90a has no kernel.
type Gradient = ([i64; 2], [&'static str; 2], [i64; 2], bool, &'static str, Option<&'static str>);
const GRADIENTS: &[Gradient] = &[
    ([4, 4], ["256", "384"], [64, 64], false, "bf16", None),
    ([8, 2], ["2048", "2048"], [128, 128], true, "f16", None),
    ([2, 1], ["197", "577"], [96, 72], false, "bf16", None),
    ([4, 2], ["300", "300"], [64, 128], true, "bf16", None),
    ([2, 2], ["64", "64"], [256, 256], false, "bf16", Some("multiples of 8 from 16 to 128")),
    ([2, 2], ["64", "64"], [64, 64], false, "f32", Some("neither bf16 nor f16")),
];

/// The module of the derivatives of an attention.
fn gradient(([h, g], [q, k], [d, e], causal, dtype, _): Gradient) -> String {
    let tensor =
        |heads: i64, rows: &str, width: i64| format!("tensor<2x{heads}x{rows}x{width}x{dtype}>");
    let (q, l) = ([tensor(h, q, d), tensor(h, q, e)], format!("tensor<2x{h}x{q}xf32>"));
    let (k, v) = (tensor(g, k, d), tensor(g, k, e));
    let [q, c] = q;
    let (mask, types) =
        (if causal { "causal" } else { "" }, format!("{q}, {k}, {v}, {c}, {l}, {l}"));
    format!(
        "func.func @main(%q: {q}, %k: {k}, %v: {v}, %c: {c}, %l: {l}, %d: {l}) -> ({q}, {k}, {v}) {{\n\
         %0 = kiln.attention_gradient %q, %k, %v, %c, %l, %d {mask} : {types}\n\
         %1, %2 = kiln.attention_gradient by_keys %q, %k, %v, %c, %l, %d {mask} : {types}\n\
         return %0, %1, %2 : {q}, {k}, {v}\n}}"
    )
}

#[test]
fn derivatives_use_tensor_cores_where_possible() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.mlir");
    for case in GRADIENTS {
        std::fs::write(&path, gradient(*case)).unwrap();
        for chip in CHIPS {
            crate::watchdog::arm();
            let package = build(&path, chip).unwrap_or_else(|e| panic!("{case:?} for {chip}: {e}"));
            let kernels = &package.program.kernels;
            let why = if chip == "sm_90a" { case.5 } else { Some("the tensor cores of Hopper") };
            let said = kernels.iter().flat_map(|k| &k.not_fused).any(|r| {
                why.is_some_and(|w| r.starts_with("attention_gradient not fused") && r.contains(w))
            });
            assert_eq!(said, why.is_some(), "{case:?} for {chip}: {kernels:?}");
            if why.is_some() {
                continue;
            }
            assert_eq!(kernels.len(), 2, "{case:?} for {chip}: {kernels:?}");
            for k in kernels {
                let ptx = std::str::from_utf8(&package.objects[&k.symbol]).expect("PTX is text");
                assert!(ptx.contains("wgmma.mma_async") && !ptx.contains("call.uni"), "{case:?}");
            }
            // Two accumulators of 128 columns, and two tiles of scores, leave few registers for
            // masks and heads that share keys.
            let spills = if case.2.iter().any(|n| *n > 64) { 160 } else { 8 };
            let wrong = assembled_with_spills(&package, chip, spills);
            assert!(wrong.is_empty(), "{case:?} for {chip}:\n{}", wrong.join("\n"));
        }
    }
}

/// Decoding cases as in [`ATTENTIONS`], with the number of CTAs that split the keys.
const DECODES: &[(Attention, usize)] = &[
    (("1x32x1x128xbf16", "1x8x4096x128xbf16", "1x8x4096x128xbf16", "", "", "", None), 8),
    (("8x32x1x128xbf16", "8x8x4096x128xbf16", "8x8x4096x128xbf16", "", "", "", None), 4),
    (("64x32x1x64xf16", "64x32x1000x64xf16", "64x32x1000x64xf16", "", "", "", None), 1),
    (("1x16x4x256xbf16", "1x2x3001x256xbf16", "1x2x3001x256xbf16", "", "", "", None), 8),
    (("2x4x16x80xbf16", "2x4x300x80xbf16", "2x4x300x72xbf16", "", "", "causal", None), 1),
    (("1x2x1x32xbf16", "1x2x0x32xbf16", "1x2x0x32xbf16", "", "", "", Some("it has no keys")), 1),
    (
        (
            "2x3x1x128xbf16",
            "2x3x2000x128xbf16",
            "2x3x2000x128xbf16",
            ", %b: tensor<2x1x1x2000xbf16>",
            "",
            "bias %b : tensor<2x1x1x2000xbf16>",
            None,
        ),
        4,
    ),
    (
        (
            "4x32x1x128xbf16",
            "4x8x4096x128xbf16",
            "4x8x4096x128xbf16",
            ", %n: tensor<4xi64>",
            "",
            "key_lengths %n : tensor<4xi64>",
            None,
        ),
        8,
    ),
    (
        (
            "2x4x3x256xbf16",
            "2x4x3000x256xbf16",
            "2x4x3000x256xbf16",
            ", %l: tensor<2xi64>, %n: tensor<2xi64>",
            "",
            "lengths %l : tensor<2xi64> key_lengths %n : tensor<2xi64>",
            None,
        ),
        8,
    ),
    (
        (
            "1x4x3x128xbf16",
            "1x4x3000x128xbf16",
            "1x4x3000x128xbf16",
            "",
            "",
            " score SOFTCAP",
            None,
        ),
        8,
    ),
];

#[test]
fn few_queries_split_their_keys() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.mlir");
    for (case, parts) in DECODES {
        crate::watchdog::arm();
        std::fs::write(&path, attention(*case)).unwrap();
        for chip in CHIPS {
            let package = build(&path, chip).unwrap_or_else(|e| panic!("{case:?} for {chip}: {e}"));
            let Some(k) = package.program.kernels.first().filter(|_| case.6.is_none()) else {
                continue;
            };
            assert_eq!(package.program.kernels.len(), 1, "{case:?} for {chip}");
            let ptx = std::str::from_utf8(&package.objects[&k.symbol]).expect("PTX is text");
            assert!(
                ptx.contains("mma.sync") && !ptx.contains("wgmma") && !ptx.contains("call.uni"),
                "{case:?} for {chip}"
            );
            let parts = if chip == "sm_90a" { *parts } else { 1 };
            assert_eq!(
                ptx.contains(&format!(".reqnctapercluster {parts}, 1, 1")),
                parts > 1,
                "{case:?} for {chip}:\n{ptx}"
            );
            let wrong = assembled(&package, chip);
            assert!(wrong.is_empty(), "{case:?} for {chip}:\n{}", wrong.join("\n"));
        }
    }
}

#[test]
fn attention_returns_its_log_sum_exp() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.mlir");
    for (queries, keys) in [(130, 200), (1, 3000)] {
        crate::watchdog::arm();
        let (q, k, l) = (
            format!("tensor<2x8x{queries}x64xbf16>"),
            format!("tensor<2x2x{keys}x64xbf16>"),
            format!("tensor<2x8x{queries}xf32>"),
        );
        let text = format!(
            "func.func @main(%q: {q}, %k: {k}, %v: {k}) -> ({q}, {l}) {{\n%r, %l = kiln.attention %q, %k, %v with_lse : {q}, {k}, {k}\n\
             return %r, %l : {q}, {l}\n}}"
        );
        std::fs::write(&path, text).unwrap();
        for chip in CHIPS {
            let package =
                build(&path, chip).unwrap_or_else(|e| panic!("{queries} queries for {chip}: {e}"));
            assert_eq!(package.program.kernels.len(), 1, "{queries} queries for {chip}");
            let ptx = package
                .objects
                .values()
                .map(|p| String::from_utf8_lossy(p).into_owned())
                .collect::<String>();
            assert!(
                ptx.contains("mma") && ptx.contains("ex2.approx"),
                "{queries} queries for {chip}"
            );
            let wrong = assembled(&package, chip);
            assert!(wrong.is_empty(), "{queries} queries for {chip}:\n{}", wrong.join("\n"));
        }
    }
}
