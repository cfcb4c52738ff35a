//! Generated code computes what its kernels say.
use super::*;
use kiln_lowering::cpu::llvm::{CodeGenError, KERNEL_PASSES};
use kiln_runtime::Pool;

type ScaleRows = unsafe extern "C" fn(*const f32, *mut f32, i64, i64, i64, i64);
type Matmul = unsafe extern "C" fn(*const f32, *const f32, *mut f32, i64, i64, i64);
type Main = unsafe extern "C" fn(*const u64, i32);
#[rustfmt::skip]
type SmallTypes = unsafe extern "C" fn(*mut u16, *mut u16, *const i8, *mut i64, *const f32, *mut f32, i64, f32, i64, i64);

fn host() -> Target {
    Target::host().expect("this machine")
}

/// Every CPU target that this machine can run.
fn targets() -> Vec<Target> {
    let avx2 =
        std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma");
    let more = avx2.then(|| Target::parse("x86_64:haswell").expect("a processor"));
    [host()].into_iter().chain(more).collect()
}

fn rows(m: usize, n: usize) -> Vec<f32> {
    (0..m * n).map(|i| ((i * 7) % 13) as f32 - 4.0).collect()
}

fn scaled(x: &[f32], n: usize) -> Vec<f32> {
    x.chunks(n).flat_map(|r| r.iter().map(|v| v * r.iter().sum::<f32>())).collect()
}

#[test]
fn masked_rows() {
    for target in targets() {
        let jit = link(&[&kernel(include_str!("scale_rows.mlir"), &target)]);
        // SAFETY: the signature of the kernel in the text.
        let f: ScaleRows = unsafe { std::mem::transmute(address(&jit, "scale_rows")) };
        for (m, n) in [(0, 5), (1, 1), (3, 15), (4, 16), (5, 17), (7, 100)] {
            for nth in [1, 2, 3] {
                let x = rows(m, n);
                let mut y = vec![-1.0; m * n + 1];
                // SAFETY: x and y have m rows of n elements.
                (0..nth).for_each(|tid| unsafe {
                    f(x.as_ptr(), y.as_mut_ptr(), m as i64, n as i64, tid, nth)
                });
                assert_eq!(y.pop(), Some(-1.0), "nothing behind the end is written");
                assert_eq!(y, scaled(&x, n), "{target} {m} x {n}, {nth} threads");
            }
        }
    }
}

#[test]
fn tiles_of_a_matrix_product() {
    for target in targets() {
        let jit = link(&[&kernel(include_str!("matmul.mlir"), &target)]);
        // SAFETY: the signature of the kernel in the text.
        let f: Matmul = unsafe { std::mem::transmute(address(&jit, "matmul")) };
        let b = rows(24, 32);
        for m in [1, 4, 6, 17] {
            let a = rows(m, 24);
            let mut c = vec![-1.0; m * 32];
            // SAFETY: sizes as in the text.
            (0..2).for_each(|tid| unsafe {
                f(a.as_ptr(), b.as_ptr(), c.as_mut_ptr(), m as i64, tid, 2)
            });
            let dot =
                |i: usize, j: usize| (0..24).map(|k| a[i * 24 + k] * b[k * 32 + j]).sum::<f32>();
            let expected: Vec<f32> = (0..m * 32).map(|at| dot(at / 32, at % 32)).collect();
            assert_eq!(c, expected, "{target} {m} rows");
        }
    }
}

#[test]
fn small_types() {
    // 1.5, -0.0, a subnormal, the greatest, infinity, and numbers whose double is exact.
    let bf16 = |i: usize| [0x3fc0, 0x8000, 0x0001, 0x7f7f, 0x7f80, 0x4000 + i as u16][i.min(5)];
    let f16 = |i: usize| [0x3e00, 0x8000, 0x0001, 0x7bff, 0x7c00, 0x4000 + i as u16][i.min(5)];
    let doubled = |i: usize, ones: u16, inf: u16| {
        [0, 0x8000, 2, inf, inf, 0][i.min(5)] + if i == 0 || i > 4 { ones } else { 0 }
    };
    for target in targets() {
        let jit = link(&[&kernel(include_str!("small_types.mlir"), &target)]);
        // SAFETY: the signature of the kernel in the text.
        let f: SmallTypes = unsafe { std::mem::transmute(address(&jit, "small_types")) };
        let mut h: Vec<u16> = (0..16).map(bf16).chain([0; 16]).collect();
        let mut g: Vec<u16> = (0..16).map(f16).chain([0; 16]).collect();
        let q: Vec<i8> = (0..16).map(|i| (i * 17 - 128) as i8).collect();
        let (mut l, mut y, s) = (vec![0; 16], vec![-1.0; 48], 2.5);
        // SAFETY: sizes as in the text; y has n = 3 rows.
        unsafe {
            f(
                h.as_mut_ptr(),
                g.as_mut_ptr(),
                q.as_ptr(),
                l.as_mut_ptr(),
                &s,
                y.as_mut_ptr(),
                3,
                4.0,
                0,
                1,
            )
        };
        for i in 0..16 {
            assert_eq!(
                h[16 + i],
                doubled(i, bf16(i) + 0x80, 0x7f80),
                "{target} bf16 {i}: {:#x}",
                h[16 + i]
            );
            assert_eq!(
                g[16 + i],
                doubled(i, f16(i) + 0x400, 0x7c00),
                "{target} f16 {i}: {:#x}",
                g[16 + i]
            );
            assert_eq!(l[i], q[i] as i64 / 2);
        }
        assert_eq!(y[..32], [-1.0; 32]);
        // bf16 1.5 is not above f16 1.5; the greatest bf16 is above the greatest f16.
        assert_eq!((y[32], y[35]), (1.5, 10.0));
    }
}

#[test]
fn many_ops_compile_and_link() {
    for target in targets() {
        let jit = link(&[&kernel(include_str!("many_ops.mlir"), &target)]);
        address(&jit, "many_ops");
    }
}

/// Prints the compile time of each stage for a small kernel.
#[test]
#[ignore = "measures"]
fn time_of_a_kernel() {
    let since = |t: std::time::Instant| t.elapsed().as_secs_f64() * 1e3;
    for (name, text) in
        [("matmul", include_str!("matmul.mlir")), ("scale_rows", include_str!("scale_rows.mlir"))]
    {
        for _ in 0..3 {
            let start = std::time::Instant::now();
            let c = Context::new();
            let m = parse(&c, text);
            let parsed = since(start);
            let pipeline = format!("builtin.module(kiln-kernel-abi,{KERNEL_TO_LLVM})");
            run_pipeline(
                &m,
                &pipeline,
                &RunOptions { skip_verifier: true, ..Default::default() },
                &|_, _, _| (),
            )
            .unwrap_or_else(|e| panic!("{e}"));
            let lowered = since(start);
            let g = CodeGen::new(&host()).expect("a code generator");
            let object =
                g.object(m.op(), UNROLLING_KERNEL_PASSES).unwrap_or_else(|e| panic!("{e}"));
            let generated = since(start);
            let jit = link(&[&object]);
            address(&jit, name);
            let linked = since(start);
            println!(
                "{name}: parse {parsed:.2} ms, to llvm {:.2}, code {:.2}, link {:.2}; {} bytes",
                lowered - parsed,
                generated - lowered,
                linked - generated,
                object.len()
            );
        }
    }
}

#[test]
fn a_program_on_one_and_two_threads() {
    let (object, main) =
        (kernel(include_str!("scale_rows.mlir"), &host()), program(include_str!("program.mlir")));
    let jit = link(&[&object, &main]);
    // SAFETY: the signature of the function in the text.
    let f: Main = unsafe { std::mem::transmute(address(&jit, "main")) };
    let (m, n) = (37, 50);
    let start = rows(m, n);
    // Sums of small integers: exact in any order.
    let expected = scaled(&scaled(&start, n), m * n);
    for threads in [1, 2, 1, 3] {
        Pool::configure(threads);
        for _ in 0..50 {
            let (mut x, mut y) = (start.clone(), vec![0.0f32; m * n]);
            let args = [
                x.as_mut_ptr().expose_provenance() as u64,
                y.as_mut_ptr().expose_provenance() as u64,
                m as u64,
                n as u64,
            ];
            // SAFETY: the arguments that the text names.
            unsafe { f(args.as_ptr(), threads as i32) };
            assert_eq!(x, expected, "{threads} threads");
        }
    }
}

#[test]
fn link_errors() {
    let main = program(include_str!("program.mlir"));
    let error = try_link(&[&main]).expect_err("scale_rows is missing").to_string();
    assert!(error.contains("scale_rows"), "{error}");
    let code = link(&[]);
    assert!(code.address("main").is_err());
    assert!(code.address("getpid").is_err(), "nothing of the process is offered");
    assert!(try_link(&[b"not an object"]).is_err());
    let kernel = kernel(include_str!("scale_rows.mlir"), &host());
    assert!(try_link(&[&main, &kernel]).is_ok());
    assert!(try_link(&[&main, &kernel, &main]).is_err(), "the same symbols twice");
}

#[test]
fn codegen_errors() {
    let c = Context::new();
    let g = CodeGen::new(&host()).expect("a code generator");
    let m = parse(&c, "func.func @f(%x: index) -> index {\n  return %x : index\n}");
    let error = g.object(m.op(), KERNEL_PASSES).expect_err("func is not translated");
    assert!(matches!(&error, CodeGenError::Translation(d) if !d.is_empty()), "{error}");
    let m = parse(&c, "llvm.func @f() {\n  llvm.return\n}");
    assert!(
        g.object(m.op(), "function(no-such-pass)")
            .expect_err("an unknown pass")
            .to_string()
            .contains("no-such-pass")
    );
    let bad_asm = "llvm.func @f() {\n  llvm.inline_asm has_side_effects \"nosuchinstruction\", \"\" : () -> ()\n  llvm.return\n}";
    let error =
        g.object(parse(&c, bad_asm).op(), "").expect_err("an error of the assembler").to_string();
    assert!(error.contains("invalid instruction mnemonic"), "{error}");
    assert!(g.llvm_ir(m.op(), "").expect("text").contains("define void @f()"));
    assert!(g.assembly(m.op(), KERNEL_PASSES).expect("text").contains("retq"));
}

#[test]
fn targets_have_names() {
    let t = Target::parse("x86_64:haswell").expect("a processor");
    assert_eq!(
        (t.to_string().as_str(), Target::parse(&t.to_string())),
        ("x86_64:haswell", Ok(t.clone()))
    );
    assert_eq!(
        Target::parse("x86_64:haswell:-fma,+avx512f").expect("with features").features,
        "-fma,+avx512f"
    );
    assert_eq!(Target::parse("native"), Target::host());
    assert_eq!(Target::parse(&host().to_string()), Ok(host()));
    assert!(
        Target::parse("x86_64:haswel")
            .expect_err("a typing error")
            .contains("did you mean 'haswell'")
    );
    assert!(
        Target::parse("sparc:x").is_err()
            && Target::parse("x86_64:haswell:fma").is_err()
            && Target::parse("").is_err()
    );
}
