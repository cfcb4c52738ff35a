//! Trains a small GPT on the characters of seventeen sonnets and lets it write: loss, gradients,
//! clipping and AdamW in one compiled program a step. On a GPU, weights, state and batches stay
//! there, and the loss is read when it is shown.
//!
//!   cargo run --release --example gpt [cuda] [--curve loss.svg]
use indicatif::{ProgressBar, ProgressStyle};
use kiln::{
    Tensor,
    data::{Dataset, Loader},
    nn::{self, Attention, Embedding, LayerNorm, Linear, Module, Parameter, Scope},
    optim::{self, AdamW, Mask, Optimizer, Schedule, State},
    tensor::{CrossEntropy, TraceError},
};
use plotters::prelude::*;
use std::{path::Path, time::Instant};

const TEXT: &str = include_str!("gpt/sonnets.txt");
/// Characters that the network sees.
const LENGTH: usize = 48;
const BATCH: usize = 16;
const WIDTH: usize = 64;
const HEADS: usize = 4;
const LAYERS: usize = 2;

/// How many steps pass between two losses that are shown.
const SHOWN: usize = 50;

fn main() -> Result<(), kiln::Error> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let curve = arguments.iter().position(|a| a == "--curve");
    let file = curve.and_then(|i| arguments.get(i + 1));
    let device = arguments.first().filter(|a| !a.starts_with("--")).map_or("cpu", String::as_str);
    let start = Instant::now();
    let (text, losses) = run(device, 400, 400)?;
    println!(
        "{text}\n\n{} steps in {:.1} s on {device}",
        losses.len(),
        start.elapsed().as_secs_f64()
    );
    if let Some(file) = file {
        draw(&losses, Path::new(file)).map_err(|e| TraceError::User(e.to_string().into()))?;
        println!("the losses are in {file}");
    }
    Ok(())
}

/// Draws the loss of each step as an SVG.
fn draw(losses: &[f64], file: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let most = losses.iter().copied().fold(0.0, f64::max);
    let area = SVGBackend::new(file, (640, 360)).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .margin(8)
        .x_label_area_size(32)
        .y_label_area_size(40)
        .build_cartesian_2d(1..losses.len().max(2), 0.0..most)?;
    chart.configure_mesh().x_desc("step").y_desc("loss").draw()?;
    let line = losses.iter().enumerate().map(|(i, loss)| (i + 1, *loss));
    chart.draw_series(LineSeries::new(line, &BLUE))?;
    Ok(area.present()?)
}

/// Pieces of a text: example i is its characters i to i + LENGTH.
struct Pieces(Vec<i64>);

impl Dataset for Pieces {
    type Batch = Tensor;
    fn len(&self) -> usize {
        self.0.len().saturating_sub(LENGTH)
    }
    fn batch(&self, examples: &[usize]) -> Result<Tensor, TraceError> {
        let all: Vec<i64> =
            examples.iter().flat_map(|i| &self.0[*i..=i + LENGTH]).copied().collect();
        Tensor::from_slice(&[examples.len(), LENGTH + 1], &all)
    }
}

/// A pre-norm layer, as GPT-2's.
struct Layer {
    norms: [LayerNorm; 2],
    attention: Attention,
    up: Linear,
    down: Linear,
}

impl Layer {
    fn new(s: &Scope) -> Layer {
        Layer {
            norms: ["ln_1", "ln_2"].map(|n| LayerNorm::new(&s.child(n), &[WIDTH])),
            attention: Attention::new(&s.child("attn"), WIDTH, HEADS).causal(),
            up: Linear::new(&s.child("mlp.c_fc"), WIDTH, 4 * WIDTH),
            down: Linear::new(&s.child("mlp.c_proj"), 4 * WIDTH, WIDTH),
        }
    }
}

impl Module for Layer {
    fn forward(&self, x: &Tensor) -> Tensor {
        let x = x + self.attention.forward(&self.norms[0].forward(x));
        let hidden = self.up.forward(&self.norms[1].forward(&x)).gelu();
        x + self.down.forward(&hidden)
    }
    fn parameters(&self) -> Vec<&Parameter> {
        let [first, second] = &self.norms;
        let parts: [&dyn Module; 5] = [first, &self.attention, second, &self.up, &self.down];
        parts.into_iter().flat_map(|m| m.parameters()).collect()
    }
}

/// Scores [B, T, characters] of the characters after those of [B, T].
struct Gpt {
    characters: Embedding,
    positions: Embedding,
    layers: Vec<Layer>,
    norm: LayerNorm,
    head: Linear,
}

impl Gpt {
    fn new(s: &Scope, count: usize) -> Gpt {
        Gpt {
            characters: Embedding::new(&s.child("wte"), count, WIDTH),
            positions: Embedding::new(&s.child("wpe"), LENGTH, WIDTH),
            layers: (0..LAYERS).map(|i| Layer::new(&s.child(format!("h.{i}")))).collect(),
            norm: LayerNorm::new(&s.child("ln_f"), &[WIDTH]),
            head: Linear::without_bias(&s.child("lm_head"), WIDTH, count),
        }
    }
}

impl Module for Gpt {
    fn forward(&self, x: &Tensor) -> Tensor {
        let at = x.graph().arange(0, LENGTH as i64, 1);
        let x = self.characters.forward(x) + self.positions.forward(&at);
        let x = self.layers.iter().fold(x, |x, layer| layer.forward(&x));
        self.head.forward(&self.norm.forward(&x))
    }
    fn parameters(&self) -> Vec<&Parameter> {
        let ends: [&dyn Module; 2] = [&self.norm, &self.head];
        let starts = [self.characters.parameters(), self.positions.parameters()];
        let layers = self.layers.iter().map(Module::parameters);
        starts.into_iter().chain(layers).chain(ends.map(|m| m.parameters())).flatten().collect()
    }
}

fn user(e: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> TraceError {
    TraceError::User(e.into())
}

/// Trains for some steps on a device, then writes some characters. The text to print, and the loss
/// of each step.
pub fn run(device: &str, steps: usize, letters: usize) -> Result<(String, Vec<f64>), kiln::Error> {
    let mut alphabet: Vec<char> = TEXT.chars().collect();
    alphabet.sort_unstable();
    alphabet.dedup();
    let codes: Vec<i64> =
        TEXT.chars().filter_map(|c| alphabet.binary_search(&c).ok()).map(|i| i as i64).collect();
    let net = Gpt::new(&Scope::root(), alphabet.len());
    let weights = net.trainable();
    // The usual scale of embeddings; the default is 1.
    for w in weights.iter().filter(|w| w.name().starts_with("wte") || w.name().starts_with("wpe")) {
        w.fill(nn::Init::Normal(0.1)).map_err(user)?;
    }
    net.to_device(device).map_err(user)?;
    let (warmup, all) = (steps as u32 / 20, steps as u32);
    let adamw = AdamW {
        rate: Schedule::WarmupCosine { start: 1e-4, peak: 4e-3, end: 4e-4, warmup, steps: all },
        weight_decay: 0.1,
        mask: Mask::Matrices,
        ..AdamW::default()
    };
    let loss = |x: Tensor, t: Tensor| {
        net.forward(&x).flatten(0, 1).cross_entropy(t.flatten(0, 1), CrossEntropy::default())
    };
    let step = |pieces: Tensor, state: State| -> Result<_, TraceError> {
        let (x, t) = (pieces.narrow(1, 0, LENGTH), pieces.narrow(1, 1, LENGTH));
        let (loss, by) = nn::value_and_grad(weights.clone(), loss).call((x, t))?;
        let (by, _) = optim::clip_by_global_norm(by, 1.0)?;
        let (new, state) = adamw.apply(nn::values(&weights), by, state)?;
        Ok((loss, new, state))
    };
    let step = kiln::compile(step).fullgraph(true).donate_weights(&weights);
    let mut state = adamw.init(&nn::values(&weights))?;
    let (mut text, mut losses) = (String::new(), vec![]);
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} {msg} {eta}").map_err(user)?;
    let bar = ProgressBar::new(steps as u64).with_style(style);
    let loader = Loader::new(Pieces(codes.clone()), BATCH).shuffle(1).drop_last(true);
    let loader = loader.device(device);
    let mut epoch = 0;
    while losses.len() < steps && !loader.is_empty() {
        for pieces in loader.epoch(epoch)?.take(steps - losses.len()) {
            let (loss, new);
            (loss, new, state) = step.call((pieces?, state))?;
            nn::assign(&weights, &new)?;
            losses.push(loss);
            let i = losses.len();
            bar.inc(1);
            if i % SHOWN == 0 || i == steps {
                let loss: f64 = losses[i - 1].item()?;
                bar.set_message(format!("loss {loss:.3}"));
                text += &format!("step {i}: loss {loss:.3}\n");
            }
        }
        epoch += 1;
    }
    bar.finish_and_clear();
    let losses = losses.iter().map(|l| l.item::<f64>()).collect::<Result<Vec<_>, _>>()?;
    // What comes after the last of the characters so far.
    let mut random = fastrand::Rng::with_seed(1);
    let next = kiln::compile(|x: Tensor| net.forward(&x).select(1, -1).softmax(-1).squeeze(0));
    let mut written = codes[..LENGTH].to_vec();
    for _ in 0..letters {
        let seen = Tensor::from_slice(&[1, LENGTH], &written[written.len() - LENGTH..])?;
        let shares = next.call(seen.to_device(device))?.to_vec::<f32>()?;
        let mut left = random.f64();
        let chosen = shares.iter().position(|p| {
            left -= f64::from(*p);
            left < 0.0
        });
        written.push(chosen.unwrap_or(0) as i64);
    }
    let letter = |i: &i64| usize::try_from(*i).ok().and_then(|i| alphabet.get(i)).copied();
    text.extend(written.iter().filter_map(letter));
    Ok((text, losses))
}
