//! Trains a convolutional network on 8 × 8 images of digits: the loss, its gradients and Adam in one
//! compiled program a step.
//!
//!   cargo run --release --example digits
use kiln::{
    Tensor,
    nn::{self, Conv2d, Linear, Module, Scope, Sequential},
    optim::{Adam, Optimizer, Schedule, State},
    tensor::{Convolution, CrossEntropy, Pool, TraceError},
};
use std::{io::Read, path::Path, process::ExitCode};

const PIXELS: usize = 64;
/// Images that the network learns from, chosen at random; the others test it.
const TRAINED: usize = 1437;
const BATCH: usize = 64;
/// Share of the test images, in percent, that the whole training has to get right.
const WANTED: f64 = 97.0;

fn main() -> Result<ExitCode, kiln::Error> {
    let (text, share) = run(20)?;
    println!("{text}");
    Ok(if share < WANTED { ExitCode::FAILURE } else { ExitCode::SUCCESS })
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
fn network() -> Sequential {
    let same = Convolution { padding: [1, 1], ..Convolution::default() };
    Sequential::new(&Scope::root())
        .layer(|s| Conv2d::new(s, 1, 16, [3, 3], same))
        .apply(|x| x.relu())
        .layer(|s| Conv2d::new(s, 16, 32, [3, 3], same))
        .apply(|x| x.relu().max_pool2d(Pool::new([2, 2])).flatten(1, -1))
        .layer(|s| Linear::new(s, 512, 10))
}

/// The order of images (xorshift64*).
struct Random(u64);

impl Random {
    fn bits(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545f4914f6cdd1d)
    }
    fn shuffle(&mut self, order: &mut [i64]) {
        for i in (1..order.len()).rev() {
            order.swap(i, (self.bits() % (i as u64 + 1)) as usize);
        }
    }
}

/// Trains for some passes over the images. The text to print: the loss of each, and how many of the
/// other images have the right digit; and their share in percent.
pub fn run(epochs: usize) -> Result<(String, f64), kiln::Error> {
    let (images, digits) = data()?;
    let net = network();
    let parameters = net.parameters();
    let steps = TRAINED / BATCH;
    let adam = Adam {
        rate: Schedule::Linear { start: 0.003, end: 0.0, steps: (epochs * steps) as u32 },
        ..Adam::default()
    };
    let mut state = adam.init(&nn::values(&parameters))?;
    let loss = |x: Tensor, t: Tensor| net.forward(&x).cross_entropy(t, CrossEntropy::default());
    let step = |state: State, batch: Tensor| -> Result<_, TraceError> {
        let (x, t) = (images.index_select(0, &batch), digits.index_select(0, &batch));
        let (loss, gradients) = nn::value_and_grad(parameters.clone(), loss).call((x, t))?;
        let (weights, state) = adam.apply(nn::values(&parameters), gradients, state)?;
        Ok((loss, weights, state))
    };
    let step = kiln::compile(step).fullgraph(true).donate_weights(&parameters);
    let mut random = Random(1);
    let mut order: Vec<i64> = (0..digits.dims()?[0].known().unwrap_or(0)).collect();
    random.shuffle(&mut order);
    let tested = order.split_off(TRAINED);
    let mut text = String::new();
    for epoch in 1..=epochs {
        random.shuffle(&mut order);
        let mut total = 0.0;
        for batch in order.chunks_exact(BATCH) {
            let batch = Tensor::from_slice(&[BATCH], batch)?;
            let (loss, weights);
            (loss, weights, state) = step.call((state, batch))?;
            nn::assign(&parameters, &weights)?;
            total += loss.item::<f64>()?;
        }
        text += &format!("epoch {epoch}: loss {:.4}\n", total / steps as f64);
    }
    let others = Tensor::from_slice(&[tested.len()], &tested)?;
    let (x, t) = (images.index_select(0, &others), digits.index_select(0, &others));
    let found = (&net).compile().call(x)?.argmax(Some(1), false).to_vec::<i64>()?;
    let right = found.iter().zip(t.to_vec::<i64>()?).filter(|(a, b)| **a == *b).count();
    let (n, share) = (tested.len(), right as f64 * 100.0 / tested.len() as f64);
    text += &format!("{right} of {n} are right: {share:.1} %");
    Ok((text, share))
}
