//! A function that branches on a tensor's value, which causes a graph break: what kiln reports, and
//! how to rewrite the function as one graph.
//!
//!   cargo run --example graph_break
use kiln::{Tensor, tensor::TraceError};

fn main() -> Result<(), kiln::Error> {
    run().map(|text| print!("{text}"))
}

/// Branches on the value of the sum, in Rust.
fn by_value(x: Tensor) -> Result<Tensor, TraceError> {
    if x.sum(.., false).item::<f64>()? > 0.0 { Ok(x * 2) } else { Ok(x - 1) }
}

/// The same branch as an op of the graph.
fn in_the_graph(x: Tensor) -> Tensor {
    x.sum(.., false).gt(0).where_(&x * 2, &x - 1)
}

/// The text to print.
pub fn run() -> Result<String, kiln::Error> {
    let (up, down) =
        (Tensor::from_slice(&[2], &[1.0f32, 2.0])?, Tensor::from_slice(&[2], &[-1.0f32, -2.0])?);
    let broken = kiln::compile(by_value).name("by_value");
    let whole = kiln::compile(in_the_graph).name("in_the_graph").fullgraph(true);
    let mut text = format!("{} {}\n", broken.call(&up)?, broken.call(&down)?);
    text += &format!("{} {}\n", whole.call(&up)?, whole.call(&down)?);
    text += &broken.explain().to_string();
    if let Err(e) = kiln::compile(by_value).fullgraph(true).call(&up) {
        text += &format!("fullgraph: {e}\n");
    }
    Ok(text)
}
