//! Fourier transforms of the GPU by cuFFT (option `cufft`), against those of the host in f64: every
//! kind and direction, lengths with small and large factors. Without the library the host computes
//! them, and the suite says nothing of cuFFT.
use super::{
    solver::{compiled_text, computed_by, noise, run_on},
    *,
};
use kiln::{
    Executable,
    dialects::value::{DType, Tensor},
    model::OwnedTensor,
    runtime::cuda::libraries::CUFFT,
    tolerance,
};

pub static SUITE: Suite = Suite {
    name: "transforms",
    count: || if device().starts_with("cuda") { 2 * CASES.len() as u64 } else { 0 },
    label: |item| {
        let (case, dtype) = at(item);
        format!("{case:?}, {dtype}")
    },
    check: |item| Outcome::of(differences(item).err().into_iter().collect()),
    whole: true,
    emulated: 3,
};

/// Kind, whether it is inverse, length, and dimensions around rows.
const CASES: &[(&str, bool, usize, &[usize])] = &[
    ("c2c", false, 1, &[3]),
    ("c2c", false, 8, &[]),
    ("c2c", true, 1000, &[2, 3]),
    ("c2c", false, 4099, &[2]),
    ("c2c", true, 65536, &[3]),
    ("r2c", false, 1, &[2]),
    ("r2c", false, 2, &[5]),
    ("r2c", true, 15, &[4, 2]),
    ("r2c", false, 4096, &[7]),
    ("r2c", true, 9699, &[2]),
    ("c2r", true, 1, &[2]),
    ("c2r", true, 2, &[5]),
    ("c2r", false, 15, &[4, 2]),
    ("c2r", true, 4096, &[7]),
    ("c2r", false, 9699, &[2]),
    ("c2r", true, 12, &[0]),
];

type Case = (&'static str, bool, usize, &'static [usize]);

fn at(item: u64) -> (Case, DType) {
    let dtype = if item.is_multiple_of(2) { DType::F32 } else { DType::F64 };
    (CASES[item as usize / 2], dtype)
}

/// The shape of each operand, and how many there are.
fn operands((kind, _, n, outer): Case) -> (Vec<usize>, usize) {
    let (takes, count) = match kind {
        "c2c" => (n, 2),
        "r2c" => (n, 1),
        _ => (n / 2 + 1, 2),
    };
    ([outer, &[takes]].concat(), count)
}

fn text(case: Case, dtype: DType) -> String {
    let (kind, inverse, n, outer) = case;
    let (takes, count) = operands(case);
    let gives = [outer, &[if kind == "r2c" { n / 2 + 1 } else { n }]].concat();
    let ty = |shape: &[usize]| {
        let sizes: String = shape.iter().map(|n| format!("{n}x")).collect();
        format!("tensor<{sizes}{dtype}>")
    };
    let list = |items: Vec<String>| items.join(", ");
    let args = list((0..count).map(|i| format!("%a{i}: {}", ty(&takes))).collect());
    let given = list((0..count).map(|i| format!("%a{i}")).collect());
    let types = list(vec![ty(&takes); count]);
    let sign = if inverse { " inverse" } else { "" };
    let (results, values, parts) = match kind {
        "c2r" => ("%r", "%r".to_string(), 1),
        _ => ("%r:2", "%r#0, %r#1".to_string(), 2),
    };
    let made = list(vec![ty(&gives); parts]);
    format!(
        "func.func @main({args}) -> ({made}) {{\n  {results} = kiln.fft {kind} {given} length = {n}{sign} : {types}\n  return {values} : {made}\n}}\n"
    )
}

fn compiled(case: Case, dtype: DType, options: &Options) -> Result<Executable, String> {
    compiled_text(&text(case, dtype), options)
}

fn differences(item: u64) -> Result<(), String> {
    let (case, dtype) = at(item);
    let (shape, count) = operands(case);
    let elements = shape.iter().product();
    // Of the same numbers: those that f32 has.
    let of = |dtype: DType| -> Result<Vec<OwnedTensor>, String> {
        let operand = |i: usize| {
            let numbers =
                noise(elements, i as u64 + 1).into_iter().map(|x| f64::from(x as f32)).collect();
            let t = Tensor::floats(dtype, shape.clone(), numbers).map_err(|e| e.to_string())?;
            Ok(OwnedTensor::from_tensor(&t))
        };
        (0..count).map(operand).collect()
    };
    let host = Options { device: DeviceId::Host, target: None, ..options() };
    let (inputs, exact_inputs) = (of(dtype)?, of(DType::F64)?);
    let exe = compiled(case, dtype, &Options { cufft: true, ..options() })?;
    let found = run_on(&exe, &inputs)?;
    let rounded = run_on(&compiled(case, dtype, &host)?, &inputs)?;
    let exact = run_on(&compiled(case, DType::F64, &host)?, &exact_inputs)?;
    for (i, ((found, rounded), exact)) in found.iter().zip(&rounded).zip(&exact).enumerate() {
        let numbers = exact.as_f().map_err(|e| e.to_string())?.to_vec();
        let exact = Tensor::floats(dtype, exact.shape().to_vec(), numbers);
        tolerance::check_error_bound(found, rounded, &exact.map_err(|e| e.to_string())?)
            .map_err(|e| format!("result {i} {e}"))?;
    }
    computed_by(CUFFT, &exe)
}
