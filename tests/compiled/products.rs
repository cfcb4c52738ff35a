//! Blocked matmuls with every multiply instruction of this CPU, against the interpreter.
use super::*;
use crate::support::{functions, inputs, relative_error, run};
use kiln::{
    dialects::{interp::Mode, ir::Context},
    lowering::target::cpu::Target as Processor,
    tolerance,
};
use std::fmt::Write;

/// A matmul with an epilogue that rounds once; either operand may be transposed. A size of 0 is
/// dynamic, and 7 at run time.
fn matmul(t: &str, [m, k, n]: [usize; 3], [left, right]: [bool; 2]) -> String {
    let size = |s: usize| if s == 0 { "?".to_string() } else { s.to_string() };
    let (m, k, n) = (size(m), size(k), size(n));
    let (right, contract) = if right { (format!("{n}x{k}"), 1) } else { (format!("{k}x{n}"), 0) };
    let (left, row) = if left { (format!("{k}x{m}"), 1) } else { (format!("{m}x{k}"), 0) };
    let mut text = format!(
        "func.func @main(%x: tensor<{left}x{t}>, %w: tensor<{right}x{t}>) -> tensor<{m}x{n}x{t}> {{\n"
    );
    for (open, value, shape, at) in
        [(&m, "%x", left.clone(), row), (&n, "%w", right.clone(), 1 - contract)]
    {
        if open == "?" {
            let fixed = shape.split('x').nth(1 - at).unwrap_or_default();
            let sizes = if at == 0 { format!("%s, {fixed}") } else { format!("{fixed}, %s") };
            let _ = write!(
                text,
                "  %s = kiln.sym @s\n  kiln.bind_shape {value}, [{sizes}] : tensor<{shape}x{t}>\n"
            );
        }
    }
    let _ = write!(
        text,
        "  %0 = kiln.dot_general %x, %w batch = [] x [] contract = [{}] x [{contract}] : tensor<{left}x{t}>, tensor<{right}x{t}>\n  \
         %1 = kiln.sigmoid %0 : tensor<{m}x{n}x{t}>\n  return %1 : tensor<{m}x{n}x{t}>\n}}\n",
        1 - row
    );
    text
}

/// Sets a schedule with blocks so small that every loop iterates, on a module's only kernel at
/// level scheduled.
fn small_blocks(module: &Module, strategy: &str, bits: i64, pack: i64) {
    let kernel = kiln::lowering::analysis::kernels_of(module.op())[0];
    let m = if strategy == "amx_gemm" { 16 } else { 6 };
    let sizes = [
        ("bits", bits),
        ("k_block", 32),
        ("m", m),
        ("m_block", 6 * m),
        ("n", 2),
        ("n_block", bits / 8),
        ("pack", pack),
    ];
    let parameters = sizes.map(|(n, v)| (n, Attr::i64(kernel.ctx(), v)));
    kernel.set_attr("kiln.schedule", Attr::schedule(kernel.ctx(), strategy, &parameters));
}

fn check(text: &str, target: &Target, strategy: &str, packs: &[i64]) -> Result<(), String> {
    let c = Context::new();
    let (module, _) =
        Module::parse(c.ctx(), text.as_bytes(), "product.mlir").map_err(|e| e.to_string())?;
    let func = functions(&module)[0];
    let given = inputs(func, 1);
    let exact = &run(&module, func, Mode::Exact, &given).map_err(|e| e.to_string())?[0];
    let rounded = &run(&module, func, Mode::Rounded, &given).map_err(|e| e.to_string())?[0];
    let options = kiln::lowering::driver::pass_options::pass_options(target);
    let lower = |from, to| {
        let text = kiln::lowering::pipeline_text_for(from, to, target)?;
        kiln::lowering::run_pipeline(&module, &text, &Default::default(), &|_, _, _| ())
            .map(drop)
            .map_err(|e| e.to_string())
    };
    use kiln::dialects::rules::Level;
    lower(Level::Graph, Level::Scheduled)?;
    let chosen =
        module.print(PrintOptions::default()).contains(&format!("#kiln.schedule<\"{strategy}\""));
    if strategy != "blocked_gemm" && !chosen {
        return Err(format!("is not computed as '{strategy}'"));
    }
    let bits = if options[0].1.contains("=512") { 512 } else { 256 };
    for small in std::iter::once(None).chain(packs.iter().copied().map(Some)) {
        let module = module.duplicate();
        if let Some(pack) = small {
            small_blocks(&module, strategy, bits, pack);
        }
        let program =
            native_for(&module, "main", &|g| Err(format!("@{g} has no value")), target.clone())?;
        for threads in [1, 2] {
            let have = &call(&program, &given, threads)?[0];
            let allowed =
                (2.0 * relative_error(rounded, exact)).max(tolerance::for_dtype(exact.dtype()));
            let error = relative_error(have, exact);
            if error > allowed || error.is_nan() {
                return Err(format!(
                    "small blocks, packed {small:?}, {threads} threads: off by {error:e}, {allowed:e} is allowed"
                ));
            }
        }
    }
    Ok(())
}

const SIZES: &[[usize; 3]] = &[
    [16, 32, 32],
    [19, 33, 17],
    [17, 64, 33],
    [40, 101, 65],
    [30, 67, 100],
    [0, 67, 40],
    [18, 0, 48],
    [33, 70, 0],
    [17, 1024, 20],
    [75, 410, 52],
];
/// Few rows (skinny); f32 has another strategy for them.
const SKINNY: &[[usize; 3]] = &[[1, 64, 48], [8, 35, 17], [15, 32, 16]];

fn all(strategy: &str, t: &str, target: &Target, few: &[[usize; 3]]) {
    let mut wrong = vec![];
    for sizes in SIZES.iter().chain(few) {
        for transposed in [[false, false], [false, true], [true, false], [true, true]] {
            let text = matmul(t, *sizes, transposed);
            let packs: &[i64] = if transposed[1] || t == "bf16" { &[1] } else { &[0, 1] };
            wrong.extend(
                check(&text, target, strategy, packs)
                    .err()
                    .map(|e| format!("{sizes:?} transposed {transposed:?}: {e}")),
            );
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn blocked_as_interpreted() {
    all("blocked_gemm", "f32", &Target::host().expect("this machine"), &[]);
}

#[test]
fn blocked_with_narrow_vectors_as_interpreted() {
    if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma") {
        all("blocked_gemm", "f32", &Target::parse("x86_64:haswell").expect("a processor"), &[]);
    }
}

#[test]
fn bf16_is_widened_without_bf16_instructions() {
    let c = Context::new();
    let (module, _) = Module::parse(
        c.ctx(),
        matmul("bf16", [17, 31, 33], [false, false]).as_bytes(),
        "product.mlir",
    )
    .expect("IR");
    let given = inputs(functions(&module)[0], 1);
    let want = run(&module, functions(&module)[0], Mode::Exact, &given).expect("runs");
    if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma") {
        let target = Target::parse("x86_64:haswell").expect("a processor");
        let program = native_for(&module, "main", &|g| Err(format!("@{g} has no value")), target)
            .expect("compiles");
        let have = call(&program, &given, 1).expect("runs");
        assert!(relative_error(&have[0], &want[0]) <= tolerance::for_dtype(want[0].dtype()));
    }
}

#[test]
fn bf16_dot_as_interpreted() {
    let mut target = Processor::host().expect("this machine");
    target.features.push_str(",-amx-bf16");
    if target.bf16() == "dot" {
        all("dot_gemm", "bf16", &Target::Host(target), SKINNY);
    }
}

#[test]
fn amx_as_interpreted() {
    let target = Processor::host().expect("this machine");
    if target.bf16() == "amx" {
        // A single row leaves tiles empty.
        all("amx_gemm", "bf16", &Target::Host(target), &SKINNY[1..]);
    }
}

/// Instructions that no test machine may have are at least compiled.
#[test]
fn bf16_tiles_use_amx() {
    let c = Context::new();
    let (module, _) = Module::parse(
        c.ctx(),
        matmul("bf16", [40, 101, 65], [false, false]).as_bytes(),
        "product.mlir",
    )
    .expect("IR");
    let target = Target::parse("x86_64:sapphirerapids").expect("a processor");
    let options = CompileOptions {
        target,
        workers: 1,
        cache: None,
        verify: true,
        salt: "test",
        schedules: &Default::default(),
        progress: &|_, _| (),
        on_kernel: &|_, _| (),
        cancellation: Default::default(),
        debug: Default::default(),
    };
    let made = compile(&module, "main", &options).expect("code");
    // tdpbf16ps is VEX.128.F3.0F38.W0 5C.
    let multiplies = |code: &[u8]| {
        code.windows(5).any(|w| {
            w[0] == 0xc4 && w[1] & 0x1f == 2 && w[2] & 0x87 == 2 && w[3] == 0x5c && w[4] >= 0xc0
        })
    };
    assert!(made.program.amx && made.objects.iter().any(|(_, o)| multiplies(o)));
}
