//! A worker of `benches/host/training.py`: training steps as one program each. Prints the time to
//! the first result and the numbers that check it, then answers each line of standard input
//! (seconds) with the median time of a step. `cargo bench --bench training -- mlp|block`.
#![allow(missing_docs)]
use kiln::{
    Tensor,
    optim::{AdamW, Optimizer, State},
    tensor::{Attention, CrossEntropy, TraceError},
};
use std::{
    io::BufRead,
    time::{Duration, Instant},
};

/// Items of a batch of the MLP, its inputs, width and classes.
const MLP: [usize; 4] = [128, 784, 1024, 10];
/// Batch, tokens and width of the transformer block.
const BLOCK: [usize; 3] = [4, 128, 768];
const HEADS: usize = 12;
/// Steps whose numbers are checked.
const CHECKED: usize = 3;

/// Numbers between -scale and scale that every worker can make: a Weyl sequence.
fn numbers(shape: &[usize], seed: u64, scale: f64) -> Result<Tensor, TraceError> {
    let one = |i: u64| {
        (((i + seed * 7919) * 2_654_435_761) & 0xffff_ffff) as f64 / f64::from(1u32 << 31) - 1.0
    };
    let count = shape.iter().product::<usize>() as u64;
    let values: Vec<f32> = (1..=count).map(|i| (one(i) * scale) as f32).collect();
    Tensor::from_slice(shape, &values)
}

/// Weights of linear layers [out, in] and their biases.
fn linears(layers: &[[usize; 2]]) -> Result<Vec<Tensor>, TraceError> {
    let mut weights = vec![];
    for (k, [outputs, inputs]) in layers.iter().enumerate() {
        let scale = (*inputs as f64).powf(-0.5);
        weights.push(numbers(&[*outputs, *inputs], 2 * k as u64, scale)?);
        weights.push(numbers(&[*outputs], 2 * k as u64 + 1, scale)?);
    }
    Ok(weights)
}

/// Steps of AdamW on an MLP with ReLU and cross entropy; the numbers are the losses.
fn mlp() -> Result<(), kiln::Error> {
    let [batch, inputs, width, classes] = MLP;
    let layers = [[width, inputs], [width, width], [width, width], [classes, width]];
    let weights = linears(&layers)?;
    let targets: Vec<i64> = (0..batch).map(|i| (i * 7 % classes) as i64).collect();
    let (x, t) = (numbers(&[batch, inputs], 99, 2.0)?, Tensor::from_slice(&[batch], &targets)?);
    let adamw = AdamW::default();
    let loss = |w: Vec<Tensor>, x: Tensor, t: Tensor| {
        let layer = |x: Tensor, w: &[Tensor]| x.linear(&w[0], Some(w[1].clone()));
        let hidden = w[..6].chunks(2).fold(x, |x, w| layer(x, w).relu());
        layer(hidden, &w[6..]).cross_entropy(t, CrossEntropy::default())
    };
    let step = |w: Vec<Tensor>, x: Tensor, t: Tensor, state: State| -> Result<_, TraceError> {
        let (loss, by) = kiln::value_and_grad(loss).call((w.clone(), x, t))?;
        let (new, state) = adamw.apply(w, by, state)?;
        Ok((loss, new, state))
    };
    let step = kiln::compile(step).fullgraph(true);
    let mut kept = Some((adamw.init(&weights)?, weights));
    serve(|| {
        // By value: the new weights and state take the memory of the old ones.
        let (state, weights) = kept.take().ok_or(TraceError::User("a step failed".into()))?;
        let (loss, new, next) = step.call((weights, x.clone(), t.clone(), state))?;
        kept = Some((next, new));
        Ok(loss)
    })
}

/// Forward and backward pass of a pre-norm transformer block, `Block` of `workloads.py`; the numbers
/// are norms of the gradient by x.
fn block() -> Result<(), kiln::Error> {
    let [batch, length, width] = BLOCK;
    let layers = [[3 * width, width], [width, width], [4 * width, width], [width, 4 * width]];
    let mut weights = linears(&layers)?;
    for k in 0..2 {
        weights.push(numbers(&[width], 20 + k, 0.1)? + 1.0);
        weights.push(numbers(&[width], 30 + k, 0.1)?);
    }
    let (x, c) = (numbers(&BLOCK, 99, 2.0)?, numbers(&BLOCK, 98, 1.0)?);
    let forward = move |(x, w): (Tensor, Vec<Tensor>), c: Tensor| {
        let linear = |x: &Tensor, k: usize| x.linear(&w[2 * k], Some(w[2 * k + 1].clone()));
        let norm = |x: &Tensor, k: usize| {
            x.layer_norm(&[width as i64], Some(w[k].clone()), Some(w[k + 1].clone()), 1e-5)
        };
        let heads = |t: Tensor| t.reshape([batch, length, HEADS, width / HEADS]).transpose(1, 2);
        let [q, k, v] = linear(&norm(&x, 8), 0).chunk(-1).map(heads);
        let y = q.scaled_dot_product_attention(k, v, Attention::default()).transpose(1, 2);
        let x = &x + linear(&y.reshape([batch, length, width]), 1);
        let y = &x + linear(&linear(&norm(&x, 10), 2).gelu(), 3);
        (y * c).sum(.., false)
    };
    let step = kiln::compile(kiln::value_and_grad(forward)).fullgraph(true);
    serve(|| {
        let (_, (by_x, _)) = step.call(((x.clone(), weights.clone()), c.clone()))?;
        Ok(by_x)
    })
}

/// Prints the norms of the first results, then the median time of a step for each line of standard
/// input.
fn serve(mut step: impl FnMut() -> Result<Tensor, kiln::Error>) -> Result<(), kiln::Error> {
    let norm = |t: Tensor| -> Result<f64, kiln::Error> {
        Ok(t.to_vec::<f32>()?.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>().sqrt())
    };
    let start = Instant::now();
    let mut checked = vec![norm(step()?)?];
    let first = start.elapsed().as_secs_f64();
    for _ in 1..CHECKED {
        checked.push(norm(step()?)?);
    }
    println!("{{\"first_s\": {first}, \"numbers\": {checked:?}}}");
    for line in std::io::stdin().lock().lines() {
        let seconds = line.ok().and_then(|l| l.trim().parse().ok()).unwrap_or(0.0);
        let (start, mut times) = (Instant::now(), vec![]);
        while times.len() < 3 || start.elapsed().as_secs_f64() < seconds {
            let one = Instant::now();
            step()?;
            times.push(one.elapsed());
        }
        times.sort();
        let us = |t: Duration| t.as_secs_f64() * 1e6;
        let (median, least) = (us(times[times.len() / 2]), us(times[0]));
        println!("{{\"median_us\": {median}, \"least_us\": {least}, \"calls\": {}}}", times.len());
    }
    Ok(())
}

fn main() -> Result<(), kiln::Error> {
    match std::env::args().nth(1).as_deref() {
        Some("mlp") => mlp(),
        Some("block") => block(),
        _ => {
            println!("training mlp|block");
            Ok(())
        }
    }
}
