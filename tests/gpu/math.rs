//! `fast_math`: the instructions of f32 functions, and the option's syntax.
use super::*;
use kiln::lowering::{Chip, Features, Target};

/// Instructions that only `fast_math` allows for f32.
const FAST: [&str; 7] = [
    "cos.approx.ftz.f32",
    "div.full.f32",
    "lg2.approx.ftz.f32",
    "rsqrt.approx.ftz.f32",
    "sin.approx.ftz.f32",
    "sqrt.approx.ftz.f32",
    "rcp.approx.ftz.f32",
];

#[test]
fn fast_math_uses_instructions() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("functions.mlir");
    let lines: String = ["cos", "log", "rsqrt", "sin", "sqrt", "tanh"]
        .iter()
        .enumerate()
        .map(|(i, f)| format!("%f{i} = kiln.{f} %x : T\n%r{} = kiln.add %r{i}, %f{i} : T\n", i + 1))
        .collect();
    let text = format!(
        "func.func @main(%x: T, %r0: T) -> T {{\n{lines}%r = kiln.div %r6, %x : T\nreturn %r : T\n}}"
    );
    std::fs::write(&path, text.replace('T', "tensor<1000xf32>")).unwrap();
    for chip in CHIPS {
        for (target, allowed) in [(chip.to_string(), false), (format!("{chip}:+fast-math"), true)] {
            let package = build(&path, &target).unwrap_or_else(|e| panic!("{e}"));
            let text: String =
                package.objects.values().map(|p| String::from_utf8_lossy(p).into_owned()).collect();
            for instruction in FAST {
                // tanh has a reciprocal, 1 / (1 + e^2x), in either form.
                let expected = allowed || instruction.starts_with("rcp");
                assert_eq!(
                    text.contains(instruction),
                    expected,
                    "{instruction} for {target}:\n{text}"
                );
            }
            let wrong = assembled(&package, chip);
            assert!(wrong.is_empty(), "{target}:\n{}", wrong.join("\n"));
        }
    }
    let option = Options { fast_math: true, ..options("sm_90a") };
    let (package, _) = load(&path).unwrap().build(&option, &|_, _| ()).unwrap();
    assert!(package.objects.values().any(|p| String::from_utf8_lossy(p).contains(FAST[0])));
}

#[test]
fn features_are_part_of_the_chip_name() {
    let all = Features { tf32: true, fast_math: true, cufft: false };
    let cufft = Features { cufft: true, ..Features::default() };
    for (text, features, printed) in [
        ("cuda:sm_90a", Features::default(), "cuda:sm_90a"),
        ("cuda:sm_90a:-tf32", Features::default(), "cuda:sm_90a"),
        ("cuda:sm_90a:+fast-math,+tf32", all, "cuda:sm_90a:+tf32,+fast-math"),
        ("cuda:sm_90a:+cufft", cufft, "cuda:sm_90a:+cufft"),
        (
            "cuda:sm_90a:+fast-math,+tf32,-tf32",
            Features { fast_math: true, ..Features::default() },
            "cuda:sm_90a:+fast-math",
        ),
    ] {
        let target = Target::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
        assert_eq!(target, Target::Cuda { chip: Chip::Sm90a, features });
        assert_eq!(target.to_string(), printed);
    }
    for wrong in
        ["cuda:sm_90a:fast-math", "cuda:sm_90a:+fastmath", "cuda:sm_90a:+", "cuda:sm_90a:\u{e9}"]
    {
        let e = Target::parse(wrong).expect_err(wrong);
        assert!(e.contains("there is no feature") && e.contains("tf32, fast-math"), "{e}");
    }
}
