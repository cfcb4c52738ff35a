//! As `expand_math`, in f64: against values computed with 100 more bits, and a sweep against the C
//! library, which is accurate to two ulp.
use super::*;

type Unary64 = unsafe extern "C" fn(*const f64, *mut f64, i64, i64, i64);
type Binary64 = unsafe extern "C" fn(*const f64, *const f64, *mut f64, i64, i64, i64);

/// All functions, compiled once.
struct Kernels {
    unary: LinkedCode,
    binary: LinkedCode,
}

impl Kernels {
    fn new() -> Kernels {
        let make =
            |names: &[&str], operands: usize| linked(&expanded(&text(names, operands, "f64")));
        Kernels { unary: make(NAMES, 1), binary: make(&["powf", "atan2"], 2) }
    }
    fn apply(&self, name: &str, x: &[f64], z: &[f64]) -> Vec<f64> {
        let mut y = vec![0.0; x.len()];
        if NAMES.contains(&name) {
            // SAFETY: the signature of the kernels in the text; both have that many elements.
            unsafe {
                std::mem::transmute::<*const std::ffi::c_void, Unary64>(address(&self.unary, name))(
                    x.as_ptr(),
                    y.as_mut_ptr(),
                    x.len() as i64,
                    0,
                    1,
                )
            };
        } else {
            assert_eq!(x.len(), z.len());
            let f = address(&self.binary, name);
            // SAFETY: as above, for three.
            unsafe {
                std::mem::transmute::<*const std::ffi::c_void, Binary64>(f)(
                    x.as_ptr(),
                    z.as_ptr(),
                    y.as_mut_ptr(),
                    x.len() as i64,
                    0,
                    1,
                )
            };
        }
        y
    }
}

fn limit(name: &str) -> f64 {
    ACCURACY
        .iter()
        .find(|(n, ..)| n.strip_prefix("math.") == Some(name))
        .map_or(0.0, |(_, _, l)| *l)
}

/// The unit in the last place of a number.
fn unit(y: f64) -> f64 {
    let exponent = (y.abs().to_bits() >> 52).max(1);
    // From 2^-1022 on it is a normal number itself.
    f64::from_bits(if exponent > 52 { (exponent - 52) << 52 } else { 1 << (exponent - 1) })
}

/// The largest error per function over a file of `gen_f64_math.py`.
fn against_numbers(text: &str) -> Vec<(String, f64, String)> {
    let kernels = Kernels::new();
    let mut worst = vec![];
    for name in NAMES.iter().chain(&["powf", "atan2"]) {
        let bits = |t: &str| f64::from_bits(u64::from_str_radix(t, 16).expect("bits"));
        let (mut x, mut z, mut want) = (vec![], vec![], vec![]);
        for line in text.lines() {
            let mut words: Vec<&str> = line.split(' ').collect();
            if words.remove(0) == *name {
                let rest: f64 = words.pop().expect("a rest").parse().expect("a number");
                want.push((bits(words.pop().expect("a result")), rest));
                x.push(bits(words[0]));
                z.push(bits(words.last().expect("an argument")));
            }
        }
        assert!(x.len() > 60, "{name}: {} numbers", x.len());
        let got = kernels.apply(name, &x, &z);
        let mut most = (0.0, String::new());
        for (i, (near, rest)) in want.into_iter().enumerate() {
            let error = ((got[i] - near) / unit(near) - rest).abs();
            if error.is_nan() || error > most.0 {
                most = (
                    error,
                    format!("{name}({:e}, {:e}) is {:e} and not {near:e}", x[i], z[i], got[i]),
                );
            }
        }
        worst.push((name.to_string(), most.0, most.1));
    }
    worst
}

#[test]
fn f64_as_computed_in_more_bits() {
    for (name, error, at) in against_numbers(include_str!("f64_math.txt")) {
        assert!(
            error <= limit(&name),
            "{name}: {error} ulp, the table says {}: {at}",
            limit(&name)
        );
    }
}

/// Prints the errors over the file of KILN_NUMBERS, written by `gen_f64_math.py numbers FILE N`.
#[test]
#[ignore = "wants a file of numbers"]
fn f64_as_in_a_file() {
    let file = std::env::var("KILN_NUMBERS").expect("KILN_NUMBERS");
    for (name, error, at) in against_numbers(&std::fs::read_to_string(file).expect("numbers")) {
        println!("{name:6} {error:.3} ulp: {at}");
        assert!(error <= limit(&name), "{name}: {error} ulp, the table says {}", limit(&name));
    }
}

/// All exponents of both signs with some mantissas each, common and special values.
fn inputs(mantissas: u64) -> Vec<f64> {
    let mut seed = 1u64;
    let mut random = || {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed ^ (seed >> 29)) & ((1 << 52) - 1)
    };
    let mut all: Vec<f64> = (0..4096u64)
        .flat_map(|e| (0..mantissas).map(move |m| (e, m)))
        .map(|(e, m)| f64::from_bits(e << 52 | if m == 0 { 0 } else { random() }))
        .collect();
    for _ in 0..mantissas * 4096 {
        let r = random() as f64 / 2f64.powi(52);
        all.extend([r * 40.0 - 20.0, r * 2.0 - 1.0, 1.0 + (r - 0.5) * 0.01, r * 1500.0 - 750.0]);
    }
    all.extend([
        0.0,
        -0.0,
        1.0,
        -1.0,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
        f64::MAX,
        f64::MIN,
        f64::from_bits(1),
        0.5,
        -0.5,
        2.0,
        -2.0,
        3.0,
        -3.0,
    ]);
    all.extend([
        709.782712893384,
        709.7827128933841,
        710.4758600739439,
        710.475860073944,
        -745.1332191019411,
        -745.1332191019412,
        1024.0,
        -1074.0,
        -1075.0,
        4.5e15,
        9007199254740993.0,
    ]);
    all
}

/// The error in ulp against the C library; infinite if only one is NaN or infinite, or the sign of
/// a zero differs.
fn beside(got: f64, want: f64) -> f64 {
    if got.to_bits() == want.to_bits() || (got.is_nan() && want.is_nan()) {
        return 0.0;
    }
    if got.is_infinite() || want.is_infinite() || (got == 0.0 && want == 0.0) {
        // Near overflow one of both may be the greatest number.
        let edge = |v: f64| v.abs() >= f64::MAX;
        return if got != want && edge(got) && edge(want) && (got > 0.0) == (want > 0.0) {
            1.0
        } else {
            f64::INFINITY
        };
    }
    let error = (got - want).abs() / unit(want);
    if error.is_nan() { f64::INFINITY } else { error }
}

#[test]
fn f64_beside_the_c_library() {
    let kernels = Kernels::new();
    let x = inputs(4);
    let check = |name: &str, x: &[f64], z: &[f64], exact: &dyn Fn(f64, f64) -> f64| {
        let y = kernels.apply(name, x, z);
        for i in 0..x.len() {
            let want = exact(x[i], z[i]);
            let error = beside(y[i], want);
            assert!(
                error <= limit(name) + 2.0,
                "{name}({:e}, {:e}) is {:e} and not {want:e}: {error} ulp",
                x[i],
                z[i],
                y[i]
            );
        }
    };
    for name in NAMES {
        check(name, &x, &x, &|x, _| exact(name, x));
    }
    // Every value with another, special ones with each other, and powers with a finite result.
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
        9007199254740992.0,
        9007199254740991.0,
        -9007199254740991.0,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
        5e-324,
        1e308,
    ];
    let mut pairs: Vec<(f64, f64)> =
        x.iter().enumerate().map(|(i, a)| (*a, x[(i * 7919 + 13) % x.len()])).collect();
    pairs.extend(special.into_iter().flat_map(|a| special.into_iter().map(move |b| (a, b))));
    pairs.extend(
        x.iter()
            .zip(x.iter().rev())
            .filter(|(a, _)| a.is_normal() && **a != 1.0)
            .map(|(a, b)| (a.abs(), b.clamp(-1075.0, 1024.0) / a.abs().log2())),
    );
    let (a, b): (Vec<f64>, Vec<f64>) = pairs.into_iter().unzip();
    check("powf", &a, &b, &|x, y| x.powf(y));
    check("atan2", &a, &b, &|y, x| y.atan2(x));
}
