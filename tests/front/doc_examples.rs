//! The rustdoc examples. Each doctest would be a binary that links MLIR, so the pages show the
//! bodies of these functions, which run here.

#[rustfmt::skip]
fn compile() -> Result<(), kiln::Error> {
    use kiln::Tensor;
    let scaled = kiln::compile(|x: Tensor, y: Tensor| (&x * 2 + y).relu()).name("scaled");
    let (x, y) = (Tensor::from_slice(&[3], &[1.0f32, -2.0, 3.0])?, Tensor::scalar(1.0f32)?);
    assert_eq!(scaled.call((&x, &y))?.to_vec::<f32>()?, [3.0, 0.0, 7.0]);
    Ok::<(), kiln::Error>(())
}

#[rustfmt::skip]
fn disable() -> Result<(), kiln::Error> {
    use kiln::{Tensor, tensor::TraceError};
    let odd = kiln::disable(|x: Tensor| -> Result<Tensor, TraceError> {
        if x.sum(.., false).item::<f64>()? > 0.0 { Ok(x) } else { Ok(-x) }
    });
    let f = kiln::compile(move |x: Tensor| -> Result<Tensor, TraceError> {
        Ok(odd.call(x * 2)?.exp())
    });
    assert_eq!(f.call(Tensor::from_slice(&[2], &[0.0f32, 0.0])?)?.to_vec::<f32>()?, [1.0, 1.0]);
    Ok::<(), kiln::Error>(())
}

#[rustfmt::skip]
fn custom_op() -> Result<(), kiln::Error> {
    use kiln::Tensor;
    let twice = kiln::custom_op("doc::twice")
        .shape(|x| Ok(vec![x[0].clone()]))
        .host(|x, y| {
            let (x, y) = (x[0].elements::<f32>()?, y[0].elements_mut::<f32>()?);
            y.iter_mut().zip(x).for_each(|(y, x)| *y = 2.0 * x);
            Ok(())
        })
        .register()?;
    let f = kiln::compile(move |x: Tensor| twice.one(&[x + 1]));
    assert_eq!(f.call(Tensor::from_slice(&[2], &[0.0f32, 1.0])?)?.to_vec::<f32>()?, [2.0, 4.0]);
    Ok::<(), kiln::Error>(())
}

#[rustfmt::skip]
#[allow(unused_variables)]
fn trace() -> Result<(), kiln::tensor::TraceError> {
    use kiln::dialects::value::DType;
    let traced = kiln::trace(|g| {
        let batch = g.dim("batch", 1..=512);
        let x = g.input("x", DType::F32, (batch, 64));
        Ok((x * 2 + 1).relu().named("y"))
    })?;
    Ok::<(), kiln::tensor::TraceError>(())
}

#[rustfmt::skip]
fn front_function() -> Result<(), kiln::Error> {
    use kiln::Tensor;
    let f = kiln::compile(|x: Tensor, y: Tensor| (&x * 2 + y).softmax(-1));
    let x = Tensor::from_slice(&[2], &[1.0f32, 2.0])?;
    let y = Tensor::from_slice(&[2], &[0.0f32, -2.0])?;
    assert_eq!(f.call((&x, &y))?.to_vec::<f32>()?, [0.5, 0.5]);
    println!("{}", f.explain());
    Ok::<(), kiln::Error>(())
}

#[rustfmt::skip]
fn front_file() -> Result<(), kiln::Error> {
    let exe = kiln::load("tests/models/mlp.pt2")?.compile(&kiln::Options::default())?;
    let x = vec![1.0f32; 8 * 64];
    let shape = exe.output_shapes(&[&[8, 64]])?.remove(0);
    let mut y = vec![0.0f32; shape.iter().product()];
    let input = kiln::View::from_slice(&[8, 64], &x)?;
    exe.call(&[input], &mut [kiln::ViewMut::from_slice(&shape, &mut y)?])?;
    assert_eq!(shape, [8, 10]);
    Ok::<(), kiln::Error>(())
}

#[rustfmt::skip]
fn layers() -> Result<(), kiln::Error> {
    use kiln::{Tensor, nn::{Linear, Module, Scope, Sequential}};
    let scope = Scope::root();
    let net = Sequential::new(&scope)
        .layer(|s| Linear::new(s, 4, 8))
        .apply(|x| x.relu())
        .layer(|s| Linear::new(s, 8, 2));
    assert_eq!(net.parameters()[0].name(), "0.weight");
    let y = (&net).compile().call(Tensor::from_slice(&[1, 4], &[1.0f32; 4])?)?;
    assert_eq!(y.to_vec::<f32>()?.len(), 2);
    Ok::<(), kiln::Error>(())
}

#[rustfmt::skip]
fn grad() -> Result<(), kiln::Error> {
    use kiln::Tensor;
    let cube = |x: Tensor| &x * &x * &x;
    let x = Tensor::scalar(2.0f64)?;
    assert_eq!(kiln::grad(cube).call(&x)?.item::<f64>()?, 12.0);
    let second = kiln::compile(kiln::grad(kiln::grad(cube)));
    assert_eq!(second.call(&x)?.item::<f64>()?, 12.0);
    Ok::<(), kiln::Error>(())
}

#[rustfmt::skip]
fn value_and_grad() -> Result<(), kiln::Error> {
    use kiln::Tensor;
    let step = kiln::compile(kiln::value_and_grad(|w: Tensor, x: Tensor| (x * w).sum(.., false)));
    let tensor = |values: &[f32]| Tensor::from_slice(&[values.len()], values);
    let (w, x) = (tensor(&[1.0, 2.0])?, tensor(&[3.0, 4.0])?);
    let (loss, by_w) = step.call((&w, &x))?;
    assert_eq!((loss.item::<f64>()?, by_w.to_vec::<f32>()?), (11.0, vec![3.0, 4.0]));
    Ok::<(), kiln::Error>(())
}

#[rustfmt::skip]
fn vjp() -> Result<(), kiln::Error> {
    use kiln::Tensor;
    let tensor = |values: &[f32]| Tensor::from_slice(&[values.len()], values);
    let (x, y) = (tensor(&[1.0, 2.0])?, tensor(&[3.0, 4.0])?);
    let (z, pullback) = kiln::vjp(|x: Tensor, y: Tensor| x * y, (&x, &y))?;
    assert_eq!(z.to_vec::<f32>()?, [3.0, 8.0]);
    let (by_x, by_y) = pullback.call(tensor(&[1.0, 10.0])?)?;
    assert_eq!(by_x.to_vec::<f32>()?, [3.0, 40.0]);
    assert_eq!(by_y.to_vec::<f32>()?, [1.0, 20.0]);
    Ok::<(), kiln::Error>(())
}

#[rustfmt::skip]
fn jvp() -> Result<(), kiln::Error> {
    use kiln::Tensor;
    let (x, v) = (Tensor::scalar(3.0f64)?, Tensor::scalar(0.5f64)?);
    let (y, along) = kiln::jvp(|x: Tensor| &x * &x, &x, &v)?;
    assert_eq!((y.item::<f64>()?, along.item::<f64>()?), (9.0, 3.0));
    Ok::<(), kiln::Error>(())
}

#[rustfmt::skip]
fn weights() -> Result<(), kiln::Error> {
    use kiln::{Tensor, nn::{self, Linear, Module, Scope}};
    let net = Linear::without_bias(&Scope::root(), 2, 1);
    let loss = |x: Tensor| net.forward(&x).sum(.., false);
    let step = kiln::compile(nn::value_and_grad(net.parameters(), loss));
    let x = Tensor::from_slice(&[1, 2], &[3.0f32, 4.0])?;
    let (_, gradients) = step.call(&x)?;
    assert_eq!(gradients[0].to_vec::<f32>()?, [3.0, 4.0]);
    Ok::<(), kiln::Error>(())
}

/// The code blocks of a module's own documentation.
fn blocks(source: &str) -> Vec<Vec<String>> {
    let docs = source.lines().filter_map(|l| l.strip_prefix("//!")).map(str::trim);
    let text: Vec<&str> = docs.collect();
    let parts = text.split(|l| l.starts_with("```")).skip(1).step_by(2);
    let line = |l: &&str| l.strip_prefix("# ").unwrap_or(l).to_string();
    parts.map(|block| block.iter().map(line).collect()).collect()
}

/// The example above a function in a source file.
fn shown(source: &str, function: &str) -> Vec<String> {
    let lines: Vec<&str> = source.lines().collect();
    let at = lines
        .iter()
        .position(|l| l.starts_with(&format!("pub fn {function}")))
        .expect("the function");
    let doc = lines[..at]
        .iter()
        .rposition(|l| !l.starts_with("///") && !l.starts_with("#["))
        .map_or(0, |n| n + 1);
    let text = lines[doc..at].iter().filter_map(|l| l.strip_prefix("///")).map(str::trim);
    let code = text.skip_while(|l| *l != "```").skip(1).take_while(|l| *l != "```");
    code.map(|l| l.strip_prefix("# ").unwrap_or(l).to_string()).collect()
}

/// The body of a function of this file.
fn here(function: &str) -> Vec<String> {
    let lines = include_str!("doc_examples.rs").lines();
    let body = lines
        .skip_while(|l| !l.starts_with(&format!("fn {function}() ")))
        .skip(1)
        .take_while(|l| *l != "}");
    body.map(|l| l.trim().to_string()).collect()
}

#[test]
fn the_examples_of_rustdoc_run_and_are_those_that_it_shows() {
    crate::watchdog::arm();
    compile().expect("no error");
    disable().expect("no error");
    custom_op().expect("no error");
    trace().expect("no error");
    front_function().expect("no error");
    front_file().expect("no error");
    layers().expect("no error");
    grad().expect("no error");
    value_and_grad().expect("no error");
    vjp().expect("no error");
    jvp().expect("no error");
    weights().expect("no error");
    let shown_by_nn = shown(include_str!("../../src/nn/gradient.rs"), "value_and_grad");
    assert_eq!(shown_by_nn, here("weights"));
    assert_eq!(
        blocks(include_str!("../../src/lib.rs")),
        [here("front_function"), here("front_file")]
    );
    assert_eq!(blocks(include_str!("../../src/nn/mod.rs")), [here("layers")]);
    for (source, function) in [
        (include_str!("../../src/compile/compiled.rs"), "compile"),
        (include_str!("../../src/compile/disable.rs"), "disable"),
        (include_str!("../../src/tensor/custom.rs"), "custom_op"),
        (include_str!("../../src/tensor/trace.rs"), "trace"),
        (include_str!("../../src/tensor/gradient.rs"), "grad"),
        (include_str!("../../src/tensor/gradient.rs"), "value_and_grad"),
        (include_str!("../../src/tensor/gradient.rs"), "vjp"),
        (include_str!("../../src/tensor/gradient.rs"), "jvp"),
    ] {
        let shown = shown(source, function);
        assert!(shown.len() > 3, "{function} shows no example");
        assert_eq!(shown, here(function), "{function}");
    }
}
