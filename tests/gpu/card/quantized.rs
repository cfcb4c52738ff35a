//! Weights of 8 bits that products convert in registers: every code, and small models of torchao
//! against PyTorch.
use super::*;
use crate::run::agreement;
use kiln::{
    Model,
    dialects::{
        ir::{Context, Module},
        value::{DType, Tensor},
    },
    load,
    opt::tensors,
};
use std::path::Path;

pub static SUITE: Suite = Suite {
    name: "quantized",
    count: || (CODES.len() + MODELS.len()) as u64,
    label: |item| match CODES.get(item as usize) {
        Some((stored, element)) => format!("every {} as {}", stored.name(), element.name()),
        None => MODELS[item as usize - CODES.len()].into(),
    },
    check: |item| match CODES.get(item as usize) {
        Some((stored, element)) => codes(*stored, *element),
        None => model(MODELS[item as usize - CODES.len()]),
    },
    whole: true,
    emulated: 1,
};

const CODES: [(DType, DType); 4] = [
    (DType::F8E4M3FN, DType::BF16),
    (DType::F8E4M3FN, DType::F16),
    (DType::I8, DType::BF16),
    (DType::I8, DType::F16),
];

/// Archives of `tests/compiled/quantized` whose weights are too large to be frozen in 16 bits.
const MODELS: [&str; 3] = [
    "float8_weights_gated_bf16",
    "int8_rows_gated_bf16.core",
    "int8_rows_with_zero_points_gated_bf16",
];

/// K of the products: a step, in which each thread converts 16 bytes.
const DEPTH: usize = 64;
/// Rows of a product.
const ROWS: usize = 32;

/// What a code of f8E4M3FN means, by the definition of the type.
fn float(code: u8) -> f64 {
    let (exponent, mantissa) = (i32::from(code >> 3 & 15), f64::from(code & 7) / 8.0);
    let magnitude = match (exponent, code & 0x7f) {
        (_, 0x7f) => f64::NAN,
        (0, _) => mantissa * f64::powi(2.0, -6),
        _ => (1.0 + mantissa) * f64::powi(2.0, exponent - 7),
    };
    if code & 0x80 == 0 { magnitude } else { -magnitude }
}

/// The codes of the weights: another one for each element of a row, but NaN, which times 0 is NaN,
/// has rows of its own.
fn code(row: usize, k: usize) -> u8 {
    let (own, shifted) = (row as u8, (row + k) as u8);
    let is_nan = |code: u8| code & 0x7f == 0x7f;
    if is_nan(own) || is_nan(shifted) { own } else { shifted }
}

/// Products where each row of the left operand picks an element of each row of weights.
fn codes(stored: DType, element: DType) -> Outcome {
    let (e, s) = (element.name(), stored.name());
    let text = format!(
        "func.func @main(%x: tensor<{ROWS}x{DEPTH}x{e}>, %w: tensor<256x{DEPTH}x{s}>) -> tensor<{ROWS}x256x{e}> {{\n\
         %0 = kiln.convert %w : tensor<256x{DEPTH}x{s}> to {e}\n\
         %1 = kiln.linear %x, %0 : tensor<{ROWS}x{DEPTH}x{e}>, tensor<256x{DEPTH}x{e}>\n\
         return %1 : tensor<{ROWS}x256x{e}>\n}}"
    );
    let c = Context::new();
    let (module, _) =
        Module::parse(c.ctx(), text.as_bytes(), "codes").unwrap_or_else(|e| panic!("{e}"));
    let exe = match Model::from_module(&module, Path::new("")).compile(&options()) {
        Ok(exe) => exe,
        Err(e) => return failed(&e),
    };
    let all = (0..256 * DEPTH).map(|n| code(n / DEPTH, n % DEPTH));
    let shape = vec![256, DEPTH];
    let w = match stored.is_float() {
        true => Tensor::floats(stored, shape, all.map(float).collect()),
        false => Tensor::ints(stored, shape, all.map(|c| i64::from(c as i8)).collect()),
    };
    let w = w.expect("weights");
    let value = |c: u8| if stored.is_float() { float(c) } else { f64::from(c as i8) };
    let mut wrong = vec![];
    for first in (0..DEPTH).step_by(ROWS) {
        let picks = |n: usize| f64::from(n % DEPTH == first + n / DEPTH);
        let x = (0..ROWS * DEPTH).map(picks).collect();
        let x = Tensor::floats(element, vec![ROWS, DEPTH], x).expect("a row per element");
        let have = match exe.call_values(&[&x, &w]) {
            Ok(have) => have,
            Err(e) => return failed(&e),
        };
        for (n, y) in have[0].as_f().expect("floats").iter().enumerate() {
            let k = first + n / 256;
            let code = code(n % 256, k);
            let want = value(code);
            if *y != want && !(y.is_nan() && want.is_nan()) {
                wrong.push(format!("code {code:#04x} at {k}: {y}, not {want}"));
            }
        }
    }
    Outcome::of(wrong)
}

fn model(name: &str) -> Outcome {
    let path = crate::support::repository().join("tests/compiled/quantized").join(name);
    let named = |end: &str| Path::new(&format!("{}.{end}", path.display())).to_path_buf();
    let made = load(named("pt2")).and_then(|m| m.compile(&options()));
    match (made, tensors::read(&named("safetensors"), |_| true)) {
        (Ok(exe), Ok(data)) => Outcome::of(agreement(&exe, &data)),
        (Err(e), _) => failed(&e),
        (_, Err(e)) => Outcome::Wrong(e.message),
    }
}
