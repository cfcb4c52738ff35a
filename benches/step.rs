//! A training step of a GPT under bf16 autocast with AdamW, with tensors on the host that each call
//! copies, and with tensors that stay on the GPU: median and range of the wall time of a step.
//! `cargo bench --bench step [cuda]`; the default is the host alone.
#![allow(missing_docs)]
use kiln::{
    Tensor, autocast,
    dialects::value::DType,
    nn::{self, Attention, Embedding, LayerNorm, Linear, Module, Scope, Sequential},
    optim::{self, AdamW, Optimizer, State},
    runtime::cuda,
    tensor::{CrossEntropy, TraceError},
};
use std::time::{Duration, Instant};

const BATCH: usize = 8;
const LENGTH: usize = 256;
const WIDTH: usize = 512;
const HEADS: usize = 8;
const LAYERS: usize = 4;
const TOKENS: usize = 8192;
const ROUNDS: usize = 5;
const STEPS: usize = 10;

/// A pre-norm layer, as GPT-2's.
fn layer(s: &Scope) -> impl Module + use<> {
    struct Layer([LayerNorm; 2], Attention, Linear, Linear);
    impl Module for Layer {
        fn forward(&self, x: &Tensor) -> Tensor {
            let x = x + self.1.forward(&self.0[0].forward(x));
            let up = self.2.forward(&self.0[1].forward(&x)).gelu();
            x + self.3.forward(&up)
        }
        fn parameters(&self) -> Vec<&nn::Parameter> {
            let parts: [&dyn Module; 5] = [&self.0[0], &self.1, &self.0[1], &self.2, &self.3];
            parts.into_iter().flat_map(|m| m.parameters()).collect()
        }
    }
    Layer(
        ["ln_1", "ln_2"].map(|n| LayerNorm::new(&s.child(n), &[WIDTH])),
        Attention::new(&s.child("attn"), WIDTH, HEADS).causal(),
        Linear::new(&s.child("up"), WIDTH, 4 * WIDTH),
        Linear::new(&s.child("down"), 4 * WIDTH, WIDTH),
    )
}

/// Scores [B, T, TOKENS] of the tokens after [B, T].
fn network() -> Sequential {
    let net = Sequential::new(&Scope::root()).layer(|s| Embedding::new(s, TOKENS, WIDTH));
    let net = (0..LAYERS).fold(net, |net, _| net.layer(layer));
    net.layer(|s| LayerNorm::new(s, &[WIDTH])).layer(|s| Linear::without_bias(s, WIDTH, TOKENS))
}

/// What is measured: a name, where tensors stay, the device of programs, and the mode.
type Case = (&'static str, &'static str, &'static str, &'static str);

/// Times of a step in each round of [`STEPS`], and the last loss.
fn steps(&(_, stay, device, mode): &Case) -> Result<(Vec<Duration>, f64), kiln::Error> {
    let net = network();
    let weights = net.trainable();
    let user = |e: kiln::runtime::DataError| TraceError::User(Box::new(e));
    for w in weights.iter().filter(|w| w.name() == "0.weight") {
        w.fill(nn::Init::Normal(0.02)).map_err(user)?;
    }
    net.to_device(stay).map_err(user)?;
    let adamw = AdamW { rate: 3e-4.into(), ..AdamW::default() };
    let list = if device == "cpu" { "cpu" } else { "cuda" };
    let loss = |x: Tensor, t: Tensor| {
        autocast(list, DType::BF16, || {
            let y = net.forward(&x).flatten(0, 1);
            y.cross_entropy(t.flatten(0, 1), CrossEntropy::default())
        })
    };
    let step = |x: Tensor, t: Tensor, state: State| -> Result<_, TraceError> {
        let (loss, by) = nn::value_and_grad(weights.clone(), loss).call((x, t))?;
        let (by, _) = optim::clip_by_global_norm(by, 1.0)?;
        let (new, state) = adamw.apply(nn::values(&weights), by, state)?;
        Ok((loss, new, state))
    };
    let step = kiln::compile(step).fullgraph(true).device(device).mode(mode);
    let step = step.donate_weights(&weights);
    let mut state = adamw.init(&nn::values(&weights))?;
    let tokens: Vec<i64> = (0..BATCH * LENGTH).map(|i| (i * 7919 % TOKENS) as i64).collect();
    let x = Tensor::from_slice(&[BATCH, LENGTH], &tokens)?.to_device(stay);
    let (mut times, mut last) = (vec![], None);
    for round in 0..=ROUNDS {
        let start = Instant::now();
        for _ in 0..STEPS {
            let (loss, new);
            (loss, new, state) = step.call((x.clone(), x.clone(), state))?;
            nn::assign(&weights, &new)?;
            last = Some(loss);
        }
        if stay != "cpu" {
            cuda::synchronize(0).map_err(kiln::Error::Cuda)?;
        }
        // The first round compiles.
        if round > 0 {
            times.push(start.elapsed() / STEPS as u32);
        }
    }
    let last = last.map_or(Ok(f64::NAN), |loss: Tensor| loss.item())?;
    Ok((times, last))
}

fn main() -> Result<(), kiln::Error> {
    let cases: &[Case] = match std::env::args().any(|a| a == "cuda") {
        false => &[("host", "cpu", "cpu", "default")],
        true => &[
            ("tensors on the host, copied by each call", "cpu", "cuda", "default"),
            ("tensors on the GPU", "cuda", "cuda", "default"),
            ("tensors on the GPU, as a CUDA graph", "cuda", "cuda", "reduce-overhead"),
        ],
    };
    println!(
        "| step of a GPT, {LAYERS} layers of {WIDTH}, {BATCH}x{LENGTH} tokens | ms | range | loss |"
    );
    println!("| --- | --- | --- | --- |");
    for case in cases {
        let (mut times, loss) = steps(case)?;
        times.sort();
        let ms = |i: usize| times[i].as_secs_f64() * 1e3;
        println!(
            "| {} | {:.2} | {:.2} to {:.2} | {loss:.3} |",
            case.0,
            ms(ROUNDS / 2),
            ms(0),
            ms(ROUNDS - 1)
        );
    }
    Ok(())
}
