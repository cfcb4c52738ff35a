//! Gradients of random graphs against central differences.
use super::differentiated;
use crate::{
    random_graph::{Material, one_graph},
    support::*,
};
use kiln::dialects::{
    interp::Mode,
    ir::*,
    value::{DType, Tensor},
};
use std::cell::Cell;

/// Steps on floats, and integers as indices. Loops and slices in place have no derivative.
const DIFFERENTIABLE: Material = Material {
    steps: "unary unary binary binary select clamp broadcast reshape transpose slice pad concat reverse \
        gather scatter dynamic_slice dynamic_update_slice reduce cumulative sort dot window convolution pieces",
    dtypes: &[DType::F64, DType::F64, DType::F64, DType::I64],
    sizes: &[4, 3, 5],
    continuous: true,
};

/// Greatest results that are compared: those of towers of exponentials are not.
const LIMIT: f64 = 1e4;

/// Compares gradients with differences where these are not on a kink, and counts them.
fn compared(module: &Module, seed: u64) -> Result<usize, String> {
    let func = functions(module)[0];
    let inputs = inputs(func, seed);
    let run = |module: &Module, inputs: &[Tensor]| {
        run(module, functions(module)[0], Mode::Exact, inputs).map_err(|e| e.to_string())
    };
    let values = run(module, &inputs)?;
    let fits = |t: &Tensor| {
        t.dtype() == DType::F64
            && t.as_f().is_ok_and(|v| v.iter().all(|x| x.abs() < LIMIT) && !v.is_empty())
    };
    let results: Vec<usize> = (0..values.len()).filter(|i| fits(&values[*i])).collect();
    if results.is_empty() {
        return Ok(0);
    }
    let after = differentiated(module, &results)?;
    let mut random = Random(seed);
    let cotangents: Vec<Tensor> =
        results.iter().map(|i| random.tensor(DType::F64, values[*i].shape())).collect();
    let found = run(&after, &[inputs.as_slice(), &cotangents].concat())?;
    let total = |inputs: &[Tensor]| -> Result<f64, String> {
        let all = run(module, inputs)?;
        let dot = |(i, c): (&usize, &Tensor)| -> f64 {
            let (y, c) = (all[*i].as_f().unwrap(), c.as_f().unwrap());
            y.iter().zip(c).map(|(y, c)| y * c).sum()
        };
        Ok(results.iter().zip(&cotangents).map(dot).sum())
    };
    let mut count = 0;
    let floats = (0..inputs.len()).filter(|i| inputs[*i].dtype().is_float());
    for (i, gradient) in floats.zip(&found[values.len()..]) {
        let x = inputs[i].as_f().unwrap();
        for (e, own) in gradient.as_f().unwrap().iter().enumerate().step_by(3) {
            let slope = |h: f64| -> Result<f64, String> {
                let at = |by: f64| {
                    let mut moved = x.to_vec();
                    moved[e] += by;
                    let mut inputs = inputs.clone();
                    inputs[i] =
                        Tensor::floats(DType::F64, inputs[i].shape().to_vec(), moved).unwrap();
                    total(&inputs)
                };
                Ok((at(h)? - at(-h)?) / (2.0 * h))
            };
            let (near, far) = (slope(1e-5)?, slope(3e-5)?);
            let allowed = 1e-4 * (1.0 + near.abs());
            // A kink between the points, or values that the function does not have around.
            if !near.is_finite() || (near - far).abs() > allowed || !own.is_finite() {
                continue;
            }
            count += 1;
            if (near - own).abs() > allowed {
                return Err(format!(
                    "the gradient by element {e} of argument {i} is {own}, by differences {near}\n{}",
                    after.op()
                ));
            }
        }
    }
    Ok(count)
}

#[test]
fn random_graphs_have_the_gradients_of_differences() {
    let graphs = if all() { 5000 } else { 400 };
    let count = Cell::new(0);
    for number in 0..graphs {
        one_graph(&DIFFERENTIABLE, number, 300, |m, _| {
            count.set(count.get() + compared(m, number)?);
            Ok(())
        })
        .unwrap_or_else(|e| panic!("{e}"));
    }
    assert!(count.get() > 5 * graphs as usize, "{} elements were compared", count.get());
}
