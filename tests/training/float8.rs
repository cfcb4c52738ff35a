//! Option `float8`: a network trains with products of 8-bit floats.
use kiln::{Error, Tensor, autocast, compile, dialects::value::DType, tensor::TraceError};

const ROWS: usize = 256;
const STEPS: usize = 20;
const RATE: f64 = 0.05;

fn numbers(shape: &[usize], seed: f32, scale: f32) -> Result<Tensor, TraceError> {
    let n: usize = shape.iter().product();
    let all: Vec<f32> = (0..n).map(|i| scale * (i as f32 * 0.37 + seed).sin()).collect();
    Tensor::from_slice(shape, &all)
}

/// The squared error of two layers in bf16.
fn loss((w1, w2): (Tensor, Tensor), (x, t): (Tensor, Tensor)) -> Result<Tensor, TraceError> {
    let y = autocast("cpu", DType::BF16, || x.linear(&w1, None).gelu().linear(&w2, None))?;
    Ok((y.to(DType::F32) - t).square().mean(.., false))
}

/// The losses of steps by gradient descent, with this pass in the place of the pipeline's.
fn losses(pass: &str) -> Result<Vec<f64>, Error> {
    let step = |w: (Tensor, Tensor), data: (Tensor, Tensor)| -> Result<_, TraceError> {
        let (loss, by) = kiln::value_and_grad(loss).call((w.clone(), data))?;
        Ok((loss, (w.0 - by.0 * RATE, w.1 - by.1 * RATE)))
    };
    let passes = format!("instead of kiln-float8-products: {pass}");
    let step = compile(step).fullgraph(true).options([("passes", passes.as_str())]);
    let x = numbers(&[ROWS, 32], 0.0, 1.0)?;
    let t = x.linear(&numbers(&[16, 32], 0.5, 0.2)?, None);
    let mut w = (numbers(&[64, 32], 1.0, 0.2)?, numbers(&[16, 64], 2.0, 0.2)?);
    let mut losses = vec![];
    for _ in 0..STEPS {
        let (loss, next) = step.call((w, (x.clone(), t.clone())))?;
        losses.push(loss.item::<f64>()?);
        w = next;
    }
    Ok(losses)
}

#[test]
fn a_network_learns_by_8_bit_floats() -> Result<(), Error> {
    let plain = losses("kiln-float8-products{recipe=off}")?;
    for recipe in ["rowwise", "tensorwise"] {
        let found = losses(&format!("kiln-float8-products{{recipe={recipe} min-size=1}}"))?;
        assert_ne!(found, plain, "{recipe}: nothing is quantised");
        // The first loss is that of the same weights, and the last one limited by rounding.
        let (first, last) = (found[0], found[STEPS - 1]);
        assert!((first - plain[0]).abs() <= 0.02 * plain[0], "{recipe}: {first}, not {}", plain[0]);
        assert!(last < 0.01 * first, "{recipe}: {found:?}, not {plain:?}");
    }
    Ok(())
}
