//! Factorizations on the GPU by cuSOLVER and cuBLAS, against those of the host: every function,
//! f32 and f64, single matrices and batches that libraries compute at once or one by one. Without
//! the libraries the host computes them, and the suite says nothing of cuSOLVER.
use super::*;
use kiln::{
    Executable, Model,
    dialects::{
        ir::{Context, Module},
        value::{DType, Tensor},
    },
    model::OwnedTensor,
    runtime::cuda::libraries::{CUSOLVER, present},
    tolerance,
};
use kiln_linalg::{Element, Factorization, Type};
use std::path::Path;

pub static SUITE: Suite = Suite {
    name: "solver",
    count: || if device().starts_with("cuda") { 2 * CASES.len() as u64 } else { 0 },
    label: |item| {
        let (case, dtype) = at(item);
        format!("{} of {:?}, {dtype}", case.0, case.1)
    },
    check,
    whole: true,
    emulated: 3,
};

/// A function, and the sizes of its first operand; columns of right-hand sides or reflections.
const CASES: &[(&str, &[usize], usize)] = &[
    ("cholesky", &[70, 70], 0),
    ("cholesky", &[3, 33, 33], 0),
    ("lu", &[70, 90], 0),
    ("lu", &[90, 70], 0),
    ("lu", &[2, 5, 40, 40], 0),
    ("lu", &[2, 150, 150], 0),
    ("qr", &[60, 100], 0),
    ("qr", &[2, 100, 60], 0),
    ("householder_product", &[60, 100], 60),
    ("householder_product", &[2, 60, 100], 40),
    ("svd", &[50, 80], 0),
    ("svd", &[2, 80, 50], 0),
    ("svd_full", &[30, 44], 0),
    ("svd_full", &[44, 30], 0),
    ("svdvals", &[2, 50, 80], 0),
    ("eigh", &[2, 60, 60], 0),
    ("eigvalsh", &[60, 60], 0),
    ("lu_solve", &[70, 70], 3),
    ("lu_solve", &[9, 20, 20], 5),
    ("lu_solve_adjoint", &[2, 70, 70], 1),
    ("lu_solve_adjoint", &[3, 20, 20], 2),
    ("solve_lower", &[70, 70], 3),
    ("solve_upper", &[9, 20, 20], 5),
    ("solve_unit_lower", &[2, 70, 70], 1),
    ("solve_unit_upper", &[20, 20], 20),
];

fn at(item: u64) -> (&'static (&'static str, &'static [usize], usize), DType) {
    let dtype = if item.is_multiple_of(2) { DType::F32 } else { DType::F64 };
    (&CASES[item as usize / 2], dtype)
}

/// Numbers between -1 and 1 without a pattern.
pub fn noise(n: usize, mut state: u64) -> Vec<f64> {
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    };
    (0..n).map(|_| next()).collect()
}

/// Matrices far from singular: of noise, and larger on the diagonal. Symmetric where only a
/// triangle is read.
fn matrices(shape: &[usize]) -> Vec<f64> {
    let (m, n) = (shape[shape.len() - 2], shape[shape.len() - 1]);
    let mut all = noise(shape.iter().product(), 1);
    for (k, x) in all.iter_mut().enumerate() {
        if k % (m * n) / n == k % n {
            *x += 4.0 * (n as f64).sqrt();
        }
    }
    all
}

/// Sizes and elements; pivots are integers.
struct Operand {
    shape: Vec<usize>,
    numbers: Vec<f64>,
    integers: bool,
}

/// The operands of a case, as f64.
fn operands((name, shape, k): &(&str, &[usize], usize)) -> Vec<Operand> {
    let floats = |shape: Vec<usize>, numbers| Operand { shape, numbers, integers: false };
    let a = floats(shape.to_vec(), matrices(shape));
    let (batch, last) = (&shape[..shape.len() - 2], shape[shape.len() - 1]);
    let other = |sizes: &[usize]| {
        let shape = [batch, sizes].concat();
        let count = shape.iter().product();
        floats(shape, noise(count, 7))
    };
    match *name {
        // Reflections need no factorization to be defined; small ones keep the product bounded.
        "householder_product" => {
            let numbers = a.numbers.iter().map(|x| x / 40.0).collect();
            vec![floats(a.shape, numbers), other(&[*k])]
        }
        "lu_solve" | "lu_solve_adjoint" => {
            let shape = [batch, &[last]].concat();
            let count: usize = shape.iter().product();
            // Each row is swapped with itself or one behind it.
            let row = |i: usize| (i % last + (i * 7) % (last - i % last) + 1) as f64;
            let numbers = (0..count).map(row).collect();
            vec![a, Operand { shape, numbers, integers: true }, other(&[*k, last])]
        }
        name if name.starts_with("solve") => vec![a, other(&[last, *k])],
        _ => vec![a],
    }
}

fn text(f: Factorization, types: &[Type]) -> Result<String, String> {
    let shown = |(element, shape): &Type| {
        let sizes: String = shape.iter().map(|n| format!("{n}x")).collect();
        let element = match element {
            Element::F32 => "f32",
            Element::F64 => "f64",
            Element::I32 => "i32",
        };
        format!("tensor<{sizes}{element}>")
    };
    let results = f.results(types).map_err(|e| e.to_string())?;
    let all = |types: &[Type]| types.iter().map(shown).collect::<Vec<_>>().join(", ");
    let names = |n: usize, name: &str| (0..n).map(|i| format!("%{name}{i}")).collect::<Vec<_>>();
    let args = names(types.len(), "a");
    let given = args.iter().zip(types).map(|(a, t)| format!("{a}: {}", shown(t)));
    let values = match results.len() {
        1 => vec!["%r".to_string()],
        n => (0..n).map(|i| format!("%r#{i}")).collect(),
    };
    let (count, name) = (results.len(), f.name());
    let many = if count == 1 { String::new() } else { format!(":{count}") };
    Ok(format!(
        "func.func @main({}) -> ({r}) {{\n  %r{many} = kiln.custom_call \"{name}\"({}) : ({}) -> ({r})\n  return {} : {r}\n}}\n",
        given.collect::<Vec<_>>().join(", "),
        args.join(", "),
        all(types),
        values.join(", "),
        r = all(&results),
    ))
}

fn compiled(f: Factorization, types: &[Type], options: &Options) -> Result<Executable, String> {
    compiled_text(&text(f, types)?, options)
}

/// A program from its text.
pub fn compiled_text(text: &str, options: &Options) -> Result<Executable, String> {
    let c = Context::new();
    let (module, _) =
        Module::parse(c.ctx(), text.as_bytes(), "card.mlir").map_err(|e| format!("{e}\n{text}"))?;
    Model::from_module(&module, Path::new("")).compile(options).map_err(|e| e.to_string())
}

/// What is determined of the results: no signs of vectors, no unspecified triangle.
fn observed(name: &str, results: Vec<Tensor>) -> Vec<Tensor> {
    let floats = |t: &Tensor| match t.data() {
        kiln::dialects::value::Data::F(all) => all.clone(),
        kiln::dialects::value::Data::I(_) => vec![],
    };
    let made = |like: &Tensor, shape: &[usize], all: Vec<f64>| {
        Tensor::floats(like.dtype(), shape.to_vec(), all).unwrap_or_else(|e| panic!("{e}"))
    };
    // The sum of s[i] u[i] v[i]' over vectors that are rows, for each matrix.
    let sum = |u: &Tensor, s: &Tensor, v: &Tensor| {
        let rank = u.shape().len();
        let (p, m, q, n) =
            (u.shape()[rank - 2], u.shape()[rank - 1], v.shape()[rank - 2], v.shape()[rank - 1]);
        let k = s.shape()[rank - 2];
        let (x, s, y) = (floats(u), floats(s), floats(v));
        let mut all = vec![];
        for b in 0..s.len() / k {
            for (i, j) in (0..m * n).map(|e| (e / n, e % n)) {
                let term =
                    |l: usize| s[b * k + l] * x[(b * p + l) * m + i] * y[(b * q + l) * n + j];
                all.push((0..k).map(term).sum());
            }
        }
        made(u, &[&u.shape()[..rank - 2], &[m, n]].concat(), all)
    };
    match (name, results.as_slice()) {
        ("svd" | "svd_full", [u, s, v]) => vec![s.clone(), sum(u, s, v)],
        ("eigh", [w, v]) => vec![w.clone(), sum(v, w, v)],
        ("cholesky", [l, info]) => {
            let n = l.shape()[l.shape().len() - 1];
            let lower = |(k, x): (usize, f64)| if k % n <= k / n % n { x } else { 0.0 };
            let all = floats(l).into_iter().enumerate().map(lower).collect();
            vec![made(l, l.shape(), all), info.clone()]
        }
        _ => results,
    }
}

pub fn run_on(exe: &Executable, inputs: &[OwnedTensor]) -> Result<Vec<Tensor>, String> {
    let mut outputs = exe.memory(inputs).map_err(|e| e.to_string())?;
    exe.call_data(inputs, &mut outputs).map_err(|e| e.to_string())?;
    outputs.iter().map(|t| t.tensor().map_err(|e| e.to_string())).collect()
}

fn check(item: u64) -> Outcome {
    Outcome::of(differences(item).err().into_iter().collect())
}

fn differences(item: u64) -> Result<(), String> {
    let (case, dtype) = at(item);
    let f = Factorization::find(&format!("kiln.linalg.{}", case.0)).ok_or("no such function")?;
    let host = Options { device: DeviceId::Host, target: None, ..options() };
    // Of the same numbers: those that the dtype has.
    let of = |dtype: DType| -> Result<(Vec<Type>, Vec<OwnedTensor>), String> {
        let element = if dtype == DType::F32 { Element::F32 } else { Element::F64 };
        let mut all = (vec![], vec![]);
        for Operand { shape, numbers, integers } in operands(case) {
            let t = if integers {
                let rows = numbers.into_iter().map(|x| x as i64).collect();
                Tensor::ints(DType::I32, shape.clone(), rows)
            } else {
                let numbers = numbers.into_iter().map(|x| f64::from(x as f32)).collect();
                Tensor::floats(dtype, shape.clone(), numbers)
            };
            let t = t.map_err(|e| e.to_string())?;
            all.0.push((if integers { Element::I32 } else { element }, shape));
            all.1.push(OwnedTensor::from_tensor(&t));
        }
        Ok(all)
    };
    let ((types, inputs), (exact_types, exact_inputs)) = (of(dtype)?, of(DType::F64)?);
    let exe = compiled(f, &types, &options())?;
    let found = observed(case.0, run_on(&exe, &inputs)?);
    let rounded = observed(case.0, run_on(&compiled(f, &types, &host)?, &inputs)?);
    let exact = run_on(&compiled(f, &exact_types, &host)?, &exact_inputs)?;
    let exact = observed(case.0, exact);
    for (i, ((found, rounded), exact)) in found.iter().zip(&rounded).zip(&exact).enumerate() {
        let exact = match exact.data() {
            kiln::dialects::value::Data::F(all) => {
                Tensor::floats(dtype, exact.shape().to_vec(), all.clone())
                    .map_err(|e| e.to_string())?
            }
            kiln::dialects::value::Data::I(_) => exact.clone(),
        };
        tolerance::check_error_bound(found, rounded, &exact)
            .map_err(|e| format!("result {i} {e}"))?;
    }
    computed_by(CUSOLVER, &exe)
}

/// Whether a library computed the program's functions if it is there, and a remark says so if not.
pub fn computed_by(library: &str, exe: &Executable) -> Result<(), String> {
    let loaded = exe.cuda().ok_or("it is on no GPU")?;
    let on_host = loaded.remarks().into_iter().find(|r| r.contains("runs on the host"));
    match (present(library), on_host) {
        (true, Some(remark)) => Err(format!("{library} is there, but {remark}")),
        (false, None) => Err(format!("no remark says that {library} is missing")),
        _ => Ok(()),
    }
}
