//! A multi-layer perceptron trained by `value_and_grad`, compiled and not.
use kiln::{
    Error, Tensor,
    tensor::{CrossEntropy, TraceError},
};

/// Weights and biases of two layers.
type Parameters = [Tensor; 4];

const INPUTS: usize = 2;
const HIDDEN: usize = 16;
const CLASSES: usize = 2;
const POINTS: usize = 64;

/// Numbers in [-1, 1) without a pattern.
fn numbers(shape: &[usize], seed: u64, scale: f64) -> Result<Tensor, TraceError> {
    let mut random = crate::support::Random(seed);
    let n: usize = shape.iter().product();
    let all: Vec<f32> = (0..n).map(|_| ((random.unit() * 2.0 - 1.0) * scale) as f32).collect();
    Tensor::from_slice(shape, &all)
}

/// Points of a square; whether both coordinates have the same sign is no linear function.
fn data() -> Result<(Tensor, Tensor), TraceError> {
    let x = numbers(&[POINTS, INPUTS], 5, 1.0)?;
    let classes: Vec<i64> =
        x.to_vec::<f32>()?.chunks(INPUTS).map(|p| i64::from(p[0] * p[1] > 0.0)).collect();
    Ok((x, Tensor::from_slice(&[POINTS], &classes)?))
}

fn loss(p: Parameters, x: Tensor, t: Tensor) -> (Tensor, Tensor) {
    let [w, b, v, c] = p;
    let logits = x.linear(w, Some(b)).relu().linear(v, Some(c));
    (logits.cross_entropy(t, CrossEntropy::default()), logits)
}

/// One step of gradient descent: the loss before it, and the new parameters.
fn step(p: Parameters, x: Tensor, t: Tensor) -> Result<(Tensor, Parameters), TraceError> {
    let ((loss, _), gradients) = kiln::value_and_grad(loss).call((p.clone(), x, t))?;
    let mut new = p;
    for (p, g) in new.iter_mut().zip(gradients) {
        *p = &*p - g * 0.5;
    }
    Ok((loss, new))
}

#[test]
fn a_compiled_training_step_learns_as_the_eager_one() -> Result<(), Error> {
    let (x, t) = data()?;
    let first = [
        numbers(&[HIDDEN, INPUTS], 1, 1.0)?,
        numbers(&[HIDDEN], 2, 0.1)?,
        numbers(&[CLASSES, HIDDEN], 3, 0.5)?,
        numbers(&[CLASSES], 4, 0.1)?,
    ];
    let compiled = kiln::compile(step).fullgraph(true);
    let (mut p, mut q, mut losses) = (first.clone(), first, vec![]);
    for i in 0..150 {
        let (loss, next) = compiled.call((p, x.clone(), t.clone()))?;
        losses.push(loss.item::<f64>()?);
        p = next;
        // The eager run is compared as long as rounding has not grown.
        if i < 20 {
            let (eager, next) = step(q, x.clone(), t.clone())?;
            q = next;
            let off = (eager.item::<f64>()? - losses[i]).abs();
            assert!(off < 1e-5, "step {i}: loss {}, eager {}", losses[i], eager.item::<f64>()?);
            for (a, b) in p.iter().zip(&q) {
                let (a, b) = (a.to_vec::<f32>()?, b.to_vec::<f32>()?);
                let near = a.iter().zip(&b).all(|(a, b)| (a - b).abs() < 1e-4);
                assert!(near, "step {i}: {a:?}, eager {b:?}");
            }
        }
    }
    assert!(losses[0] > 0.6 && losses[149] < 0.2, "{losses:?}");
    let falls = losses.windows(10).filter(|w| w[9] < w[0]).count();
    assert!(falls > 130, "the loss falls in {falls} of 141 runs of ten steps");
    assert_eq!(compiled.programs(), 1);
    let (_, logits) = loss(p, x, t.clone());
    let found = logits.argmax(Some(1), false).to_vec::<i64>()?;
    let right = found.iter().zip(t.to_vec::<i64>()?).filter(|(a, b)| **a == *b).count();
    assert!(right > POINTS * 9 / 10, "{right} of {POINTS}");
    Ok(())
}

/// The same network's gradients written out by hand with eager ops.
#[test]
fn gradients_are_those_by_hand() -> Result<(), Error> {
    let (x, t) = data()?;
    let [w, b] = [numbers(&[HIDDEN, INPUTS], 1, 1.0)?, numbers(&[HIDDEN], 2, 0.1)?];
    let [v, c] = [numbers(&[CLASSES, HIDDEN], 3, 0.5)?, numbers(&[CLASSES], 4, 0.1)?];
    let p = [w.clone(), b.clone(), v.clone(), c.clone()];
    let (_, found) = kiln::value_and_grad(loss).call((p, x.clone(), t.clone()))?;
    let before = x.linear(&w, Some(b));
    let hidden = before.relu();
    let classes = Tensor::from_slice(&[1, 2], &[0i64, 1])?;
    let hot = t.unsqueeze(1).eq(&classes).to(kiln::dialects::value::DType::F32);
    let by_logits = (hidden.linear(&v, Some(c)).softmax(-1) - hot) / (POINTS as f64);
    let by_hidden = by_logits.matmul(&v).masked_fill(before.le(0.0), 0.0);
    let wanted = [
        by_hidden.t().matmul(&x),
        by_hidden.sum(0, false),
        by_logits.t().matmul(&hidden),
        by_logits.sum(0, false),
    ];
    for (found, wanted) in found.iter().zip(&wanted) {
        let (a, b) = (found.to_vec::<f32>()?, wanted.to_vec::<f32>()?);
        assert!(a.iter().zip(&b).all(|(a, b)| (a - b).abs() < 1e-6), "{a:?}, by hand {b:?}");
    }
    Ok(())
}
