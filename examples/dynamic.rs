//! Sizes that change: the first call has a program for its sizes, the second one makes a program
//! for all.
//!
//!   cargo run --example dynamic
use kiln::Tensor;

fn main() -> Result<(), kiln::Error> {
    run().map(|text| print!("{text}"))
}

/// What is printed: guards of both programs, and why there are two.
pub fn run() -> Result<String, kiln::Error> {
    let mean = kiln::compile(|x: Tensor| x.softmax(-1).mean(0, false)).name("mean");
    let rows = |n: usize| Tensor::of(&[n, 4], &vec![0.5f32; 4 * n]);
    for n in [8, 16, 100, 7] {
        mean.call(&rows(n)?)?;
    }
    // Known beforehand, a size needs one program only.
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
