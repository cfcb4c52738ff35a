//! Compiling a function in ten lines.
//!
//!   cargo run --example quickstart
use kiln::Tensor;

fn main() -> Result<(), kiln::Error> {
    run().map(|y| println!("{y}"))
}

/// The result to print.
pub fn run() -> Result<Tensor, kiln::Error> {
    let normalised =
        kiln::compile(|x: Tensor| (&x - x.mean(-1, true)) / (x.var(-1, 0.0, true) + 1e-5).sqrt());
    let x = Tensor::from_slice(&[2, 3], &[1.0f32, 2.0, 3.0, 10.0, 20.0, 60.0])?;
    normalised.call(&x)
}
