//! Trains a small GPT on the characters of seventeen sonnets and lets it write: loss, gradients,
//! clipping and AdamW in one compiled program a step.
//!
//!   cargo run --release --example gpt
use kiln::{
    Tensor,
    nn::{self, Attention, Embedding, LayerNorm, Linear, Module, Parameter, Scope},
    optim::{self, AdamW, Mask, Optimizer, Schedule, State},
    tensor::{CrossEntropy, TraceError},
};

const TEXT: &str = include_str!("gpt/sonnets.txt");
/// Characters that the network sees.
const LENGTH: usize = 48;
const BATCH: usize = 16;
const WIDTH: usize = 64;
const HEADS: usize = 4;
const LAYERS: usize = 2;

fn main() -> Result<(), kiln::Error> {
    println!("{}", run(400, 400)?.0);
    Ok(())
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

/// Numbers without a pattern (xorshift64*).
struct Random(u64);

impl Random {
    fn bits(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545f4914f6cdd1d)
    }
    fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Trains for some steps, then writes some characters. The text to print, and the loss of each step.
pub fn run(steps: usize, letters: usize) -> Result<(String, Vec<f64>), kiln::Error> {
    let mut alphabet: Vec<char> = TEXT.chars().collect();
    alphabet.sort_unstable();
    alphabet.dedup();
    let codes: Vec<i64> =
        TEXT.chars().filter_map(|c| alphabet.binary_search(&c).ok()).map(|i| i as i64).collect();
    let net = Gpt::new(&Scope::root(), alphabet.len());
    let weights = net.trainable();
    // The usual scale of embeddings; the default is 1.
    for w in weights.iter().filter(|w| w.name().starts_with("wte") || w.name().starts_with("wpe")) {
        w.fill(nn::Init::Normal(0.1)).map_err(|e| TraceError::User(Box::new(e)))?;
    }
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
    let step = kiln::compile(step).fullgraph(true);
    let mut state = adamw.init(&nn::values(&weights))?;
    let (mut random, mut text, mut losses) = (Random(1), String::new(), vec![]);
    for i in 1..=steps {
        let mut pieces: Vec<i64> = vec![];
        for _ in 0..BATCH {
            let at = (random.bits() % (codes.len() - LENGTH) as u64) as usize;
            pieces.extend(&codes[at..=at + LENGTH]);
        }
        let pieces = Tensor::from_slice(&[BATCH, LENGTH + 1], &pieces)?;
        let (loss, new);
        (loss, new, state) = step.call((pieces, state))?;
        nn::assign(&weights, &new)?;
        losses.push(loss.item::<f64>()?);
        if i % 50 == 0 || i == steps {
            text += &format!("step {i}: loss {:.3}\n", losses[i - 1]);
        }
    }
    // What comes after the last of the characters so far.
    let next = kiln::compile(|x: Tensor| net.forward(&x).select(1, -1).softmax(-1).squeeze(0));
    let mut written = codes[..LENGTH].to_vec();
    for _ in 0..letters {
        let seen = Tensor::from_slice(&[1, LENGTH], &written[written.len() - LENGTH..])?;
        let shares = next.call(seen)?.to_vec::<f32>()?;
        let mut left = random.unit();
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
