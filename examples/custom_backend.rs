//! A custom backend. It counts ops and accepts only graphs that are a single `relu`-like maximum.
//!
//! A real backend hands `GraphModule::module()` to its own compiler. Test it with
//! `kiln::backend::conformance`.
//!
//!   cargo run --example custom_backend
use kiln::{
    Backend, Error, Options, Runnable, Tensor,
    backend::{self, GraphModule},
    runtime::View,
    tensor::Array,
};
use std::sync::Arc;

fn main() -> Result<(), Error> {
    run().map(|text| println!("{text}"))
}

/// A backend for graphs of the form `max(x, 0)`.
struct Relu;

/// A compiled graph of that form.
struct Rectifier;

impl Backend for Relu {
    fn name(&self) -> &str {
        "relu"
    }
    fn summary(&self) -> &str {
        "graphs that are one relu of f32, on one thread"
    }
    fn compile(&self, graph: &GraphModule, _: &Options) -> Result<Arc<dyn Runnable>, Error> {
        let text = graph.text();
        let op =
            |line: &str| line.split_once(" = ")?.1.split_whitespace().next().map(str::to_string);
        let ops: Vec<String> =
            text.lines().filter_map(op).filter(|op| op.starts_with("kiln.")).collect();
        match ops.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
            ["kiln.relu"] => Ok(Arc::new(Rectifier)),
            other => Err(Error::Backend(format!("this backend does a relu only, not {other:?}"))),
        }
    }
}

impl Runnable for Rectifier {
    fn run(&self, inputs: &[View]) -> Result<Vec<Array>, Error> {
        let one = |view: &View| {
            let bytes = view.copied()?;
            let numbers = bytes
                .bytes()
                .chunks_exact(4)
                .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]).max(0.0));
            Ok(Array::from_slice(view.shape(), &numbers.collect::<Vec<f32>>())?)
        };
        inputs.iter().map(one).collect()
    }
}

/// The text to print.
pub fn run() -> Result<String, Error> {
    backend::register(Arc::new(Relu))?;
    let x = Tensor::from_slice(&[3], &[-1.0f32, 0.5, 2.0])?;
    let relu = kiln::compile(|x: Tensor| x.relu()).backend("relu");
    let refused = kiln::compile(|x: Tensor| x.exp()).backend("relu").call(&x);
    let refused = refused.err().map_or(String::new(), |e| e.to_string());
    Ok(format!("{}\n{refused}", relu.call(&x)?))
}
