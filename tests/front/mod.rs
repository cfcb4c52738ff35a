//! The front end: `compile()`, guards, dynamic sizes, eager ops, backends, options.
mod asynchronous;
mod backends;
mod breaks;
mod call;
mod cancellation;
pub mod control;
mod custom_ops;
mod disable;
mod doc_examples;
pub mod donation;
mod donation_memory;
mod dynamic;
mod examples;
mod logs;
mod options;
pub mod ptx;
mod scalars;
pub mod session;
pub mod suite;
mod table;
mod threads;

use kiln::{Error, Tensor};

/// The elements of a float tensor.
fn numbers(t: &Tensor) -> Vec<f64> {
    let value = t.value().unwrap_or_else(|e| panic!("{e}"));
    value.as_f().map_or_else(
        |_| value.as_i().expect("integers").iter().map(|n| *n as f64).collect(),
        <[f64]>::to_vec,
    )
}

/// 0, 1, 2, … as f32.
fn counting(shape: &[usize]) -> Tensor {
    let all: Vec<f32> = (0..shape.iter().product()).map(|i: usize| i as f32).collect();
    Tensor::from_slice(shape, &all).expect("a tensor")
}

/// The message of an error.
fn message<T>(r: Result<T, Error>) -> String {
    match r {
        Ok(_) => panic!("it went well"),
        Err(e) => e.to_string(),
    }
}
