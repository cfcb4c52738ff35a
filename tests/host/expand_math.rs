//! `kiln-expand-math`: every expansion against the C library's f64 functions, over all exponents.
#[path = "expand_math_f64.rs"]
mod f64_functions;

use super::*;
use kiln_lowering::{
    cpu::{kernel_abi::KernelAbi, llvm::CodeGenError},
    math::expand_math::ACCURACY,
};
use kiln_passes::Pass;

type Unary = unsafe extern "C" fn(*const f32, *mut f32, i64, i64, i64);
type Binary = unsafe extern "C" fn(*const f32, *const f32, *mut f32, i64, i64, i64);

const NAMES: &[&str] = &[
    "acos", "asin", "atan", "cos", "cosh", "erf", "exp", "exp2", "expm1", "log", "log10", "log1p",
    "log2", "sin", "sinh", "tan", "tanh",
];

pub(crate) fn exact(name: &str, x: f64) -> f64 {
    match name {
        "acos" => x.acos(),
        "asin" => x.asin(),
        "atan" => x.atan(),
        "cos" => x.cos(),
        "cosh" => x.cosh(),
        "erf" => libm::erf(x),
        "exp" => x.exp(),
        "exp2" => x.exp2(),
        "expm1" => x.exp_m1(),
        "log" => x.ln(),
        "log10" => x.log10(),
        "log1p" => x.ln_1p(),
        "log2" => x.log2(),
        "sin" => x.sin(),
        "sinh" => x.sinh(),
        "tan" => x.tan(),
        "tanh" => x.tanh(),
        _ => panic!("there is no {name}"),
    }
}

/// A kernel with ops of two names, one on vectors and one on scalars.
fn text(names: &[&str], operands: usize, element: &str) -> String {
    let params: String = (0..=operands)
        .map(|i| {
            format!("%m{i}: memref<?x{element}> {{kiln.sizes = array<i64: -1>, kiln.noalias}}, ")
        })
        .collect();
    let op =
        |name: &str| if name == "remf" { "arith.remf".to_string() } else { format!("math.{name}") };
    let vector = |ty: &str| if ty == element { String::new() } else { format!(", {ty}") };
    let body = |name: &str, ty: &str, load: &str, store: &str| {
        let loads: String = (0..operands)
            .map(|i| format!("%x{i} = {load} %m{i}[%i] : memref<?x{element}>{}\n", vector(ty)))
            .collect();
        let args: Vec<String> = (0..operands).map(|i| format!("%x{i}")).collect();
        format!(
            "{loads}%y = {} {} : {ty}\n{store} %y, %m{operands}[%i] : memref<?x{element}>{}\n",
            op(name),
            args.join(", "),
            vector(ty)
        )
    };
    // As many as AVX-512 has registers.
    let lanes = if element == "f64" { 8 } else { 16 };
    let function = |name: &&str| {
        let wide = body(name, &format!("vector<{lanes}x{element}>"), "vector.load", "vector.store");
        let one = body(name, element, "memref.load", "memref.store");
        format!(
            "func.func @{name}({params}%n: index, %tid: index, %nth: index) {{\n%c0 = arith.constant 0 : index\n%c1 = arith.constant 1 : index\n\
            %step = arith.constant {lanes} : index\n%left = arith.remui %n, %step : index\n%even = arith.subi %n, %left : index\n\
            scf.for %i = %c0 to %even step %step {{\n{wide}}}\nscf.for %i = %even to %n step %c1 {{\n{one}}}\nreturn\n}}\n"
        )
    };
    names.iter().map(function).collect()
}

/// For this machine.
fn expanded(text: &str) -> Vec<u8> {
    let target = Target::host().expect("this machine");
    let options = kiln_lowering::driver::pass_options::pass_options(&kiln_lowering::Target::Host(
        target.clone(),
    ));
    let own = options
        .iter()
        .find(|(flag, _)| *flag == "kiln-expand-math")
        .map_or("", |(_, options)| options);
    expanded_with(text, own, &target)
}

fn expanded_with(text: &str, options: &str, target: &Target) -> Vec<u8> {
    generated(text, options, target, CodeGen::object)
}

/// What a code generator makes of the text, after the LLVM passes for kernels.
fn generated<T>(
    text: &str,
    options: &str,
    target: &Target,
    generate: impl Fn(&CodeGen, Op, &str) -> Result<T, CodeGenError>,
) -> T {
    let c = Context::new();
    let m = parse(&c, text);
    let pipeline = format!(
        "builtin.module(kiln-expand-math{{{options}}},{},{KERNEL_TO_LLVM})",
        KernelAbi::FLAG
    );
    run_pipeline(&m, &pipeline, &RunOptions::default(), &|_, _, _| ())
        .unwrap_or_else(|e| panic!("{e}"));
    CodeGen::new(target)
        .and_then(|g| generate(&g, m.op(), UNROLLING_KERNEL_PASSES))
        .unwrap_or_else(|e| panic!("{e}"))
}

/// Links only the pool's functions: a call of the C library fails to link.
fn linked(object: &[u8]) -> LinkedCode {
    let symbols: Vec<_> =
        library_symbols().into_iter().filter(|(n, _)| n.starts_with("mem")).collect();
    LinkedCode::link([("math", object)], &symbols).unwrap_or_else(|e| panic!("{e}"))
}

/// All exponents of both signs with some mantissas each, and special values.
pub(crate) fn inputs(mantissas: u32) -> Vec<f32> {
    let mut seed = 1u64;
    let mut random = || {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) as u32
    };
    let mut all: Vec<f32> = (0..512u32)
        .flat_map(|e| (0..mantissas).map(move |m| (e, m)))
        .map(|(e, m)| {
            f32::from_bits(
                e << 23
                    | if m == 0 {
                        0
                    } else if m == 1 {
                        0x7fffff
                    } else {
                        random() & 0x7fffff
                    },
            )
        })
        .collect();
    // Common values, and the zeros of logarithms.
    all.extend((0..mantissas * 256).map(|_| random() as f32 / 2f32.powi(31) * 40.0 - 20.0));
    all.extend((0..mantissas * 64).flat_map(|_| {
        [
            random() as f32 / 2f32.powi(31) * 2.0 - 1.0,
            1.0 + (random() as f32 / 2f32.powi(31) - 0.5) * 0.01,
        ]
    }));
    all.extend([
        0.0,
        -0.0,
        1.0,
        -1.0,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
        f32::MAX,
        f32::MIN,
        f32::from_bits(1),
        0.5,
        -0.5,
    ]);
    all.extend([
        88.72283, 88.72284, 89.41598, 89.416, -103.97207, -103.97208, -87.33655, 128.0, 127.99999,
        -149.0, -150.0, -149.5,
    ]);
    all
}

/// The error in ulp; `None` if only one is NaN or infinite, or the sign of a zero differs.
fn ulps(got: f32, exact: f64) -> Option<f64> {
    let nearest = exact as f32;
    if nearest.is_nan() || got.is_nan() {
        return (nearest.is_nan() && got.is_nan()).then_some(0.0);
    }
    if nearest.is_infinite() || got.is_infinite() {
        // Near overflow one of both may be the greatest number.
        let edge = |v: f32| if v.is_infinite() { f32::MAX.copysign(v) } else { v };
        return (edge(got) == edge(nearest) || (got - nearest).abs() < 1e32).then_some(0.0);
    }
    if got == 0.0 && nearest == 0.0 && got.is_sign_negative() != nearest.is_sign_negative() {
        return None;
    }
    let unit = (nearest.abs().to_bits() >> 23).max(1) as i32 - 150;
    Some((got as f64 - exact).abs() / 2f64.powi(unit))
}

pub(crate) fn worst(points: impl Iterator<Item = (String, f32, f64)>) -> (f64, String) {
    let mut worst = (0.0, String::new());
    for (what, got, exact) in points {
        let error = ulps(got, exact).unwrap_or(f64::INFINITY);
        if error > worst.0 {
            worst = (error, format!("{what} is {got:e} and not {exact:e}"));
        }
    }
    worst
}

fn check(mantissas: u32, bound: impl Fn(&str, f64, &str)) {
    let jit = linked(&expanded(&text(NAMES, 1, "f32")));
    let x = inputs(mantissas);
    for name in NAMES {
        // SAFETY: the signature of the kernels in the text.
        let f: Unary = unsafe { std::mem::transmute(address(&jit, name)) };
        let mut y = vec![0.0; x.len()];
        // SAFETY: both have that many elements.
        unsafe { f(x.as_ptr(), y.as_mut_ptr(), x.len() as i64, 0, 1) };
        let points =
            x.iter().zip(&y).map(|(x, y)| (format!("{name}({x:e})"), *y, exact(name, *x as f64)));
        let (error, at) = worst(points);
        bound(name, error, &at);
    }
    let jit = linked(&expanded(&text(&["powf", "atan2"], 2, "f32")));
    // Every value with many others, at a varying stride.
    let mut z: Vec<f32> = (0..x.len()).map(|i| x[(i * 7919 + 13) % x.len()]).collect();
    let special = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        2.0,
        -2.0,
        3.0,
        -3.0,
        0.5,
        -0.5,
        16777216.0,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
        1e-45,
        1e38,
    ];
    let mut x = x;
    for a in special {
        for b in special {
            x.push(a);
            z.push(b);
        }
    }
    // Powers with a finite result.
    for i in 0..mantissas as usize * 256 {
        let base = x[i * 31 % x.len()].abs();
        let exponent = (x[i * 17 % x.len()] as f64).clamp(-126.0, 126.0) / (base as f64).log2();
        if base.is_normal() && base != 1.0 && exponent.is_finite() {
            x.push(base);
            z.push(exponent as f32);
        }
    }
    for name in ["powf", "atan2"] {
        // SAFETY: as above.
        let f: Binary = unsafe { std::mem::transmute(address(&jit, name)) };
        let mut y = vec![0.0; x.len()];
        // SAFETY: all have that many elements.
        unsafe { f(x.as_ptr(), z.as_ptr(), y.as_mut_ptr(), x.len() as i64, 0, 1) };
        let exact = |a: f32, b: f32| {
            if name == "powf" { (a as f64).powf(b as f64) } else { (a as f64).atan2(b as f64) }
        };
        let (error, at) = worst(
            x.iter()
                .zip(&z)
                .zip(&y)
                .map(|((a, b), y)| (format!("{name}({a:e}, {b:e})"), *y, exact(*a, *b))),
        );
        bound(name, error, &at);
    }
}

fn within(name: &str, error: f64, at: &str) {
    let limit = ACCURACY
        .iter()
        .find(|(n, ..)| n.strip_prefix("math.") == Some(name))
        .map_or(0.0, |(_, l, _)| *l);
    assert!(error <= limit, "{name}: {error} ulp, the table says {limit}: {at}");
}

#[test]
fn accuracy() {
    check(32, within);
}

/// Functions that restore all registers must not clear their upper halves afterwards.
#[test]
fn rare_functions_keep_whole_registers() {
    for cpu in ["haswell", "skylake-avx512"] {
        let target = Target::parse(&format!("x86_64:{cpu}")).expect("a target");
        for element in ["f32", "f64"] {
            let text = text(&["cos"], 1, element);
            let assembly = generated(&text, "rare-functions=true", &target, CodeGen::assembly);
            let (kernel, rare) = assembly.split_once("\nkiln_reduce_far").expect("functions");
            assert!(kernel.contains("vzeroupper"), "{cpu}, {element}");
            assert!(!rare.contains("vzeroupper"), "{cpu}, {element}: {rare}");
        }
    }
}

/// Bitwise exact for any quotient.
#[test]
fn remainders_are_exact() {
    let jit = ["f32", "f64"].map(|element| linked(&expanded(&text(&["remf"], 2, element))));
    let narrow = inputs(16);
    let walked = |i: usize, n: usize| (i * 7919 + 13) % n;
    let y: Vec<f32> = (0..narrow.len()).map(|i| narrow[walked(i, narrow.len())]).collect();
    // SAFETY: the signature of the kernels in the text; all have that many elements.
    let made = unsafe {
        let f: Binary = std::mem::transmute(address(&jit[0], "remf"));
        let mut made = vec![0.0; y.len()];
        f(narrow.as_ptr(), y.as_ptr(), made.as_mut_ptr(), y.len() as i64, 0, 1);
        made
    };
    for ((x, y), r) in narrow.iter().zip(&y).zip(&made) {
        let want = x % y;
        assert!(
            r.to_bits() == want.to_bits() || (r.is_nan() && want.is_nan()),
            "{x:e} % {y:e} is {r:e} and not {want:e}"
        );
    }
    // The same exponents and mantissas, spread over the f64 range.
    let wide: Vec<f64> = narrow
        .iter()
        .enumerate()
        .map(|(i, x)| {
            f64::from_bits(
                ((x.to_bits() as u64) << 32)
                    | (x.to_bits() as u64).wrapping_mul(2654435761 + i as u64),
            )
        })
        .chain([
            f64::MAX,
            f64::from_bits(1),
            1.0,
            0.0,
            -0.0,
            f64::INFINITY,
            f64::NEG_INFINITY,
            f64::NAN,
            3.0,
            -7.5,
        ])
        .collect();
    let y: Vec<f64> =
        (0..wide.len()).map(|i| wide[walked(i, wide.len())]).chain([f64::from_bits(3)]).collect();
    let wide = [wide, vec![f64::MAX]].concat();
    // SAFETY: as above.
    let made = unsafe {
        let f: unsafe extern "C" fn(*const f64, *const f64, *mut f64, i64, i64, i64) =
            std::mem::transmute(address(&jit[1], "remf"));
        let mut made = vec![0.0; y.len()];
        f(wide.as_ptr(), y.as_ptr(), made.as_mut_ptr(), y.len() as i64, 0, 1);
        made
    };
    for ((x, y), r) in wide.iter().zip(&y).zip(&made) {
        let want = x % y;
        assert!(
            r.to_bits() == want.to_bits() || (r.is_nan() && want.is_nan()),
            "{x:e} % {y:e} is {r:e} and not {want:e}"
        );
    }
}

/// One scalef instruction gives the bits of two multiplications.
#[test]
fn scaled_in_one_step_or_two() {
    if !std::arch::is_x86_feature_detected!("avx512f") {
        return;
    }
    let target = Target::host().expect("this machine");
    let names = ["exp", "exp2", "sinh", "cosh", "tanh", "expm1"];
    let made = |scalef: bool| {
        linked(&expanded_with(&text(&names, 1, "f32"), &format!("scalef={scalef}"), &target))
    };
    let (one, two) = (made(true), made(false));
    let x = inputs(32);
    for name in names {
        let [a, b] = [&one, &two].map(|jit| {
            // SAFETY: the signature of the kernels in the text.
            let f: Unary = unsafe { std::mem::transmute(address(jit, name)) };
            let mut y = vec![0.0; x.len()];
            // SAFETY: both have that many elements.
            unsafe { f(x.as_ptr(), y.as_mut_ptr(), x.len() as i64, 0, 1) };
            y
        });
        for ((x, a), b) in x.iter().zip(a).zip(b) {
            assert!(
                a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan()),
                "{name}({x:e}) is {a:e} in one step and {b:e} in two"
            );
        }
    }
}

/// 2-D vectors, and a CPU without AVX-512.
#[test]
fn other_shapes_and_processors() {
    if !std::arch::is_x86_feature_detected!("avx2") {
        return;
    }
    let body = |name: &str| {
        format!(
            "func.func @{name}(%x: memref<2x8xf32>, %y: memref<2x8xf32>) {{\n%c0 = arith.constant 0 : index\n%pad = arith.constant 0.0 : f32\n\
        %v = vector.transfer_read %x[%c0, %c0], %pad {{in_bounds = [true, true]}} : memref<2x8xf32>, vector<2x8xf32>\n%w = math.{name} %v : vector<2x8xf32>\n\
        vector.transfer_write %w, %y[%c0, %c0] {{in_bounds = [true, true]}} : vector<2x8xf32>, memref<2x8xf32>\nreturn\n}}\n"
        )
    };
    let text: String = NAMES.iter().map(|n| body(n)).collect();
    let target = Target::parse("x86_64:haswell").expect("a processor");
    let c = Context::new();
    let m = parse(&c, &text);
    let pipeline = format!("builtin.module(kiln-expand-math,kiln-kernel-abi,{KERNEL_TO_LLVM})");
    run_pipeline(&m, &pipeline, &RunOptions::default(), &|_, _, _| ())
        .unwrap_or_else(|e| panic!("{e}"));
    let object = CodeGen::new(&target)
        .and_then(|g| g.object(m.op(), UNROLLING_KERNEL_PASSES))
        .unwrap_or_else(|e| panic!("{e}"));
    let jit = linked(&object);
    let x: Vec<f32> = (0..16).map(|i| i as f32 * 0.06 + 0.01).collect();
    for name in NAMES {
        // SAFETY: two pointers to 16 floats, as in the text.
        let f: unsafe extern "C" fn(*const f32, *mut f32) =
            unsafe { std::mem::transmute(address(&jit, name)) };
        let mut y = [0.0; 16];
        // SAFETY: as above.
        unsafe { f(x.as_ptr(), y.as_mut_ptr()) };
        let (error, at) = worst(
            x.iter().zip(y).map(|(x, y)| (format!("{name}({x:e})"), y, exact(name, *x as f64))),
        );
        within(name, error, &at);
    }
}

/// Millions of points per function; prints the table in the source.
#[test]
#[ignore = "twenty seconds"]
fn accuracy_of_millions() {
    check(4000, |name, error, at| {
        println!("{name:8} {error:.2} ulp: {at}");
        within(name, error, at);
    });
}

/// Prints the cost per vector element; 4096 of them stay in the cache.
#[test]
#[ignore = "measures"]
fn time_of_an_element() {
    let jit = linked(&expanded(&text(NAMES, 1, "f32")));
    let x: Vec<f32> = (0..4096).map(|i| (i + 1) as f32 / 4100.0).collect();
    let mut y = vec![0.0; 4096];
    for name in NAMES {
        // SAFETY: the signature of the kernels in the text.
        let f: Unary = unsafe { std::mem::transmute(address(&jit, name)) };
        let mut once = || {
            let start = std::time::Instant::now();
            // SAFETY: both have 4096 elements.
            (0..200).for_each(|_| unsafe { f(x.as_ptr(), y.as_mut_ptr(), 4096, 0, 1) });
            start.elapsed().as_secs_f64() * 1e9 / (200.0 * 4096.0)
        };
        let best = std::iter::repeat_with(&mut once).take(9).fold(f64::MAX, f64::min);
        println!("{name:6} {best:.3} ns");
    }
}

#[test]
fn narrow_types_go_by_way_of_f32() {
    let c = Context::new();
    let m = parse(
        &c,
        "func.func @f(%x: vector<4x8xbf16>, %y: f16, %z: f64) -> (vector<4x8xbf16>, f16, f64) {\n  %0 = math.exp %x : vector<4x8xbf16>\n\
        %1 = math.tanh %y : f16\n  %2 = math.exp %z : f64\n  return %0, %1, %2 : vector<4x8xbf16>, f16, f64\n}",
    );
    run_pipeline(&m, "builtin.module(kiln-expand-math)", &RunOptions::default(), &|_, _, _| ())
        .unwrap_or_else(|e| panic!("{e}"));
    let text = m.print(PrintOptions::default());
    assert!(
        text.contains("arith.extf %arg0 : vector<4x8xbf16> to vector<4x8xf32>")
            && text.contains("to f16"),
        "{text}"
    );
    assert!(!text.contains("math.exp") && !text.contains("math.tanh"), "{text}");
    let m =
        parse(&c, "func.func @f(%x: f32) -> f32 {\n  %0 = math.exp %x : f32\n  return %0 : f32\n}");
    run_pipeline(
        &m,
        "builtin.module(kiln-expand-math{keep=math.exp})",
        &RunOptions::default(),
        &|_, _, _| (),
    )
    .unwrap_or_else(|e| panic!("{e}"));
    assert!(m.print(PrintOptions::default()).contains("math.exp"));
}
