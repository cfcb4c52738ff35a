//! Dynamic shapes: the first call specialises on its sizes, the second one recompiles with symbolic
//! shapes.
//!
//!   cargo run --example dynamic
use kiln::Tensor;

fn main() -> Result<(), kiln::Error> {
    run().map(|text| print!("{text}"))
}

/// The text to print: the guards of both programs, and the reason for the recompilation.
pub fn run() -> Result<String, kiln::Error> {
    let mean = kiln::compile(|x: Tensor| x.softmax(-1).mean(0, false)).name("mean");
    let rows = |n: usize| Tensor::from_slice(&[n, 4], &vec![0.5f32; 4 * n]);
    for n in [8, 16, 100, 7] {
        mean.call(&rows(n)?)?;
    }
    // Marking a dimension dynamic up front avoids the recompilation.
    let marked = kiln::compile(|x: Tensor| x.softmax(-1).mean(0, false)).name("marked");
    let first = rows(8)?;
    kiln::mark_dynamic(&first, 0, 2..=1024)?;
    marked.call(&first)?;
    marked.call(&rows(300)?)?;
    let mut text = String::new();
    for (i, guards) in mean.guards().iter().enumerate() {
        text += &format!("program {i}\n{guards}");
    }
    mean.remarks().iter().for_each(|r| text += &format!("{r}\n"));
    Ok(text + &format!("marked: {} program\n{}", marked.programs(), marked.guards()[0]))
}
