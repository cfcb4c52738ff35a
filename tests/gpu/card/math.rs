//! Accuracy of f32 functions on a GPU over all exponents, in ulp of the exact result. At most 4
//! ulp.
use super::*;
use crate::host::expand_math::{exact, inputs, worst};
use kiln::{
    dialects::{
        ir::{Context, Module},
        value::DType,
    },
    lowering::{gpu::gpu_math, math::expand_math},
    model::{Model, OwnedTensor},
};
use std::path::Path;

pub static SUITE: Suite = Suite {
    name: "math",
    count: || (UNARY.len() + BINARY.len()) as u64,
    label,
    check,
    whole: true,
    emulated: 1,
};

const UNARY: &[&str] = &[
    "acos", "asin", "atan", "cos", "cosh", "erf", "exp", "exp2", "expm1", "log", "log1p", "log2",
    "rsqrt", "sigmoid", "silu", "sin", "sinh", "softplus", "sqrt", "tan", "tanh",
];
const BINARY: &[&str] = &["atan2", "div", "pow"];
/// The error limit in ulp.
const MOST: f64 = 4.0;
/// Past this e^-x overflows, and sigmoid and silu are 0 as in PyTorch; exactly they are below
/// 2^-120.
const OVERFLOW: f32 = -88.7;

fn label(item: u64) -> String {
    let all = [UNARY, BINARY].concat();
    all[item as usize].to_string()
}

fn unary(name: &str, x: f64) -> f64 {
    let sigmoid =
        |x: f64| if x < 0.0 { x.exp() / (1.0 + x.exp()) } else { 1.0 / (1.0 + (-x).exp()) };
    match name {
        "rsqrt" => 1.0 / x.sqrt(),
        "sigmoid" => sigmoid(x),
        "silu" => x * sigmoid(x),
        "softplus" => x.max(0.0) + (-x.abs()).exp().ln_1p(),
        "sqrt" => x.sqrt(),
        _ => exact(name, x),
    }
}

fn binary(name: &str, x: f64, y: f64) -> f64 {
    match name {
        "atan2" => x.atan2(y),
        "div" => x / y,
        _ => x.powf(y),
    }
}

/// The documented error.
fn limit(name: &str) -> f64 {
    let op = format!("math.{}", if name == "pow" { "powf" } else { name });
    let gpu = gpu_math::ACCURACY.iter().find(|(n, _)| *n == op).map(|(_, l)| *l);
    let general = || expand_math::ACCURACY.iter().find(|(n, ..)| *n == op).map(|(_, l, _)| *l);
    gpu.or_else(general).unwrap_or(MOST)
}

fn check(item: u64) -> Outcome {
    let name = label(item);
    let two = BINARY.contains(&name.as_str());
    let mantissas = if workers::is_emulated() { 8 } else { 1000 };
    let x = inputs(mantissas);
    // Every value with many others.
    let y: Vec<f32> = (0..x.len()).map(|i| x[(i * 7919 + 13) % x.len()]).collect();
    let n = x.len();
    let (parameters, operands) = if two { ("%x: T, %y: T", "%x, %y") } else { ("%x: T", "%x") };
    let text = format!(
        "func.func @main({parameters}) -> T {{\n%r = kiln.{name} {operands} : T\nreturn %r : T\n}}"
    );
    let c = Context::new();
    let text = text.replace("T", &format!("tensor<{n}xf32>"));
    let (module, _) =
        Module::parse(c.ctx(), text.as_bytes(), &name).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let exe = match Model::from_module(&module, Path::new("")).compile(&options()) {
        Ok(exe) => exe,
        Err(e) => return failed(&e),
    };
    let data = |v: &[f32]| OwnedTensor {
        shape: vec![n],
        bytes: v.iter().flat_map(|x| x.to_le_bytes()).collect(),
        dtype: DType::F32,
    };
    let all: Vec<OwnedTensor> =
        [&x, &y][..if two { 2 } else { 1 }].iter().map(|v| data(v)).collect();
    let mut outputs = exe.memory(&all).expect("memory");
    if let Err(e) = exe.call_data(&all, &mut outputs) {
        return Outcome::Wrong(e.to_string());
    }
    let have =
        outputs[0].bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
    let counted = |i: &usize| !(["sigmoid", "silu"].contains(&name.as_str()) && x[*i] < OVERFLOW);
    let points = have.enumerate().filter(|(i, _)| counted(i)).map(|(i, have)| {
        let (x, y) = (x[i], y[i]);
        match two {
            true => (format!("{name}({x:e}, {y:e})"), have, binary(&name, x.into(), y.into())),
            false => (format!("{name}({x:e})"), have, unary(&name, x.into())),
        }
    });
    let ((error, at), limit) = (worst(points), limit(&name).min(MOST));
    eprintln!("{name}: {error:.2} ulp, {limit} stated: {at}");
    Outcome::of(
        (error > limit)
            .then(|| format!("{error} ulp, where {limit} is stated: {at}"))
            .into_iter()
            .collect(),
    )
}
