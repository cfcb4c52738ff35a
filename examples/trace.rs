//! Tracing a model of `nn` layers to a module at level `graph` with a symbolic batch size, and
//! running it in the interpreter.
//!
//!   cargo run --example trace
use kiln::{
    dialects::{
        interp::{Interpreter, Mode},
        ir::PrintOptions,
        value::{self, DType},
    },
    nn::{LayerNorm, Linear, Module, Scope, Sequential},
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    print!("{}", run()?);
    Ok(())
}

/// The text to print: the module, and the sum of its results.
pub fn run() -> Result<String, Box<dyn std::error::Error>> {
    // Parameter names match PyTorch's state_dict, so `model.load(path)` takes a file saved there.
    let model = Sequential::new(&Scope::root().child("net"))
        .layer(|s| Linear::new(s, 4, 8))
        .apply(|x| x.gelu())
        .layer(|s| LayerNorm::new(s, &[8]))
        .layer(|s| Linear::new(s, 8, 3));

    let traced = kiln::trace(|g| {
        let batch = g.dim("batch", 1..=512);
        let x = g.input("x", DType::F32, (batch, 4));
        let scores = (model.forward(&(x * 0.5 + 1)) / 2).named("scores");
        Ok(scores.softmax(-1).named("probabilities"))
    })?;

    let weights = |name: &str, _: &str| Ok(traced.captured.weight(name)?);
    let interpreter = Interpreter { globals: &weights, ..Interpreter::new(Mode::Rounded) };
    let x = value::Tensor::floats(
        DType::F32,
        vec![2, 4],
        vec![0.0, 1.0, 2.0, 3.0, -1.0, -2.0, -3.0, -4.0],
    )?;
    let result = interpreter.run(traced.module().op(), "main", &[x])?.remove(0);

    let module =
        traced.module().print(PrintOptions { names_from_locations: true, ..Default::default() });
    let sums: Vec<String> = result
        .as_f()?
        .chunks(3)
        .map(|row| format!("sums to {:.4}", row.iter().sum::<f64>()))
        .collect();
    Ok(format!("{module}\n{}\n", sums.join("\n")))
}
