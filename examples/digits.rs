//! Trains a convolutional network on 8 × 8 images of digits: the loss, its gradient and Adam in one
//! compiled program a step.
//!
//!   cargo run --release --example digits
use kiln::{
    Tensor,
    tensor::{Convolution, CrossEntropy, Pool, TraceError},
};
use std::{io::Read, path::Path};

/// Two convolutions and a linear layer: weight and bias of each.
type Weights = [Tensor; 6];

const PIXELS: usize = 64;
/// Images that the network learns from, chosen at random; the others test it.
const TRAINED: usize = 1437;
const BATCH: usize = 64;

fn main() -> Result<(), kiln::Error> {
    println!("{}", run(20)?);
    Ok(())
}

/// Images [N, 1, 8, 8] with pixels from 0 to 1, and digits [N].
fn data() -> Result<(Tensor, Tensor), TraceError> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/digits/digits.csv.gz");
    let (bytes, mut text) = (std::fs::read(file).map_err(user)?, String::new());
    flate2::read::GzDecoder::new(&bytes[..]).read_to_string(&mut text).map_err(user)?;
    let (mut pixels, mut digits) = (vec![], vec![]);
    for line in text.lines() {
        let row: Vec<f32> = line.split(',').filter_map(|n| n.parse().ok()).collect();
        let Some((digit, image)) = row.split_last().filter(|(_, image)| image.len() == PIXELS)
        else {
            return Err(user("digits.csv.gz has a line of another length"));
        };
        pixels.extend(image.iter().map(|p| p / 16.0));
        digits.push(*digit as i64);
    }
    let n = digits.len();
    Ok((Tensor::from_slice(&[n, 1, 8, 8], &pixels)?, Tensor::from_slice(&[n], &digits)?))
}

fn user(e: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> TraceError {
    TraceError::User(e.into())
}

/// Scores [N, 10] of images [N, 1, 8, 8].
fn scores([w, b, v, c, u, d]: Weights, x: Tensor) -> Tensor {
    let same = Convolution { padding: [1, 1], ..Convolution::default() };
    let x = x.conv2d(w, Some(b), same).relu();
    let x = x.conv2d(v, Some(c), same).relu().max_pool2d(Pool::new([2, 2]));
    x.flatten(1, -1).linear(u, Some(d))
}

fn loss(p: Weights, x: Tensor, t: Tensor) -> Tensor {
    scores(p, x).cross_entropy(t, CrossEntropy::default())
}

/// A step of Adam (Kingma and Ba, 2015) on some of the images: the loss, the new weights, and the
/// means of the gradients and of their squares. `schedule` is the learning rate, and the bias of
/// both means, 1 - beta^t.
fn step(
    p: Weights,
    [mut means, mut squares]: [Weights; 2],
    images: (Tensor, Tensor),
    batch: Tensor,
    schedule: Tensor,
) -> Result<(Tensor, Weights, [Weights; 2]), TraceError> {
    let (x, t) = (images.0.index_select(0, &batch), images.1.index_select(0, &batch));
    let (loss, gradients) = kiln::value_and_grad(loss).call((p.clone(), x, t))?;
    let mut new = p;
    for (i, g) in gradients.into_iter().enumerate() {
        means[i] = &means[i] * 0.9 + &g * 0.1;
        squares[i] = &squares[i] * 0.999 + &g * &g * 0.001;
        let scale = (&squares[i] / schedule.select(0, 2)).sqrt() + 1e-8;
        new[i] = &new[i] - &means[i] / schedule.select(0, 1) / scale * schedule.select(0, 0);
    }
    Ok((loss, new, [means, squares]))
}

/// A generator of numbers (xorshift64*).
struct Random(u64);

impl Random {
    fn bits(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545f4914f6cdd1d)
    }
    fn uniform(&mut self, shape: &[usize], bound: f64) -> Result<Tensor, TraceError> {
        let n: usize = shape.iter().product();
        let mut one = || (self.bits() >> 11) as f64 / (1u64 << 52) as f64 - 1.0;
        let all: Vec<f32> = (0..n).map(|_| (one() * bound) as f32).collect();
        Tensor::from_slice(shape, &all)
    }
    fn shuffle(&mut self, order: &mut [i64]) {
        for i in (1..order.len()).rev() {
            order.swap(i, (self.bits() % (i as u64 + 1)) as usize);
        }
    }
}

/// Trains for some passes over the images. The text to print: the loss of each, and how many of the
/// other images have the right digit.
pub fn run(epochs: usize) -> Result<String, kiln::Error> {
    let (images, digits) = data()?;
    let mut random = Random(1);
    let mut p = [
        random.uniform(&[16, 1, 3, 3], 0.33)?,
        random.uniform(&[16], 0.33)?,
        random.uniform(&[32, 16, 3, 3], 0.083)?,
        random.uniform(&[32], 0.083)?,
        random.uniform(&[10, 512], 0.044)?,
        random.uniform(&[10], 0.044)?,
    ];
    let zeros = || p.each_ref().map(|w| w.zeros_like());
    let mut state = [zeros(), zeros()];
    let (step, scores) = (kiln::compile(step).fullgraph(true), kiln::compile(scores));
    let mut order: Vec<i64> = (0..digits.dims()?[0].known().unwrap_or(0)).collect();
    random.shuffle(&mut order);
    let tested = order.split_off(TRAINED);
    let (mut text, mut count) = (String::new(), 0);
    for epoch in 1..=epochs {
        random.shuffle(&mut order);
        let (mut total, steps) = (0.0, TRAINED / BATCH);
        for batch in order.chunks_exact(BATCH) {
            count += 1;
            // The learning rate falls to 0.
            let rate = 0.003 * (1.0 - count as f32 / (epochs * steps) as f32);
            let schedule = [rate, 1.0 - 0.9f32.powi(count), 1.0 - 0.999f32.powi(count)];
            let batch = Tensor::from_slice(&[BATCH], batch)?;
            let schedule = Tensor::from_slice(&[3], &schedule)?;
            let all = (images.clone(), digits.clone());
            let loss;
            (loss, p, state) = step.call((p, state, all, batch, schedule))?;
            total += loss.item::<f64>()?;
        }
        text += &format!("epoch {epoch}: loss {:.4}\n", total / steps as f64);
    }
    let others = Tensor::from_slice(&[tested.len()], &tested)?;
    let (images, digits) = (images.index_select(0, &others), digits.index_select(0, &others));
    let found = scores.call((p, images))?.argmax(Some(1), false).to_vec::<i64>()?;
    let right = found.iter().zip(digits.to_vec::<i64>()?).filter(|(a, b)| **a == *b).count();
    let (n, share) = (tested.len(), right as f64 * 100.0 / tested.len() as f64);
    text += &format!("{right} of {n} are right: {share:.1} %");
    Ok(text)
}
