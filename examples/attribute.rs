//! Compiling a function with an attribute. Its data-dependent loop stays in one graph.
//!
//!   cargo run --example attribute
use kiln::{Error, Tensor, tensor::TraceError};

fn main() -> Result<(), Error> {
    run().map(|text| println!("{text}"))
}

/// Square root by Newton's method, until no element changes by more than `precision`.
#[kiln::compile(fullgraph, dynamic = true)]
fn root(x: Tensor, precision: f64) -> Result<Tensor, TraceError> {
    let wrong = |y: &Tensor| (y * y - &x).abs().amax(.., false).gt(precision);
    kiln::while_loop(|y: Tensor| wrong(&y), |y: Tensor| (&y + &x / &y) / 2, x.ones_like())
}

/// The text to print.
pub fn run() -> Result<String, Error> {
    let all = [
        root(Tensor::from_slice(&[3], &[1.0f32, 4.0, 9.0])?, 1e-5)?,
        root(Tensor::from_slice(&[2], &[16.0f32, 100.0])?, 1e-5)?,
    ];
    Ok(all
        .iter()
        .map(|t| (t * 100).to(kiln::dialects::value::DType::I32).to_string())
        .collect::<Vec<_>>()
        .join("\n"))
}
