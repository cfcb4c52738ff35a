//! Loading a model of `torch.export.save`, compiling it and calling it with ndarray arrays.
//!
//!   cargo run --example load_pt2 [MODEL.pt2]
//!
//! In a crate of your own, add `ndarray = "0.17"` beside kiln.
use kiln::{Error, Options, View, ViewMut};
use ndarray::{Array2, ArrayD, IxDyn};

fn main() -> Result<(), Error> {
    let model = std::env::args().nth(1).unwrap_or_else(|| "tests/models/mlp.pt2".into());
    run(&model).map(|text| println!("{text}"))
}

/// The text to print: the program's arguments and results, and one call on 8 rows of ones.
pub fn run(model: &str) -> Result<String, Error> {
    // Options::default() has no compile cache; from_env() reads KILN_CACHE_DIR and other variables.
    let exe = kiln::load(model)?.compile(&Options::from_env()?)?;
    let p = exe.program();
    let mut text = String::new();
    for (what, tensors) in [("argument", &p.inputs), ("result", &p.outputs)] {
        for t in tensors {
            let sizes: Vec<String> = t.dims.iter().map(|d| p.size_text(*d)).collect();
            text += &format!("{what} {}: {}[{}]\n", t.name, t.dtype, sizes.join(", "));
        }
    }
    let x = Array2::<f32>::ones((8, 64));
    // Result shapes follow from the input shapes.
    let shapes = exe.output_shapes(&[x.shape()])?;
    let mut y = ArrayD::<f32>::zeros(IxDyn(&shapes[0]));
    exe.call(&[View::from_array(&x)], &mut [ViewMut::from_array(&mut y)?])?;
    Ok(format!("{text}{:?}, the first element {:.4}", y.shape(), y[[0, 0]]))
}
