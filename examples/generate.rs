//! Generates text with a decoder that was exported from PyTorch with a static cache of keys and
//! values: one call a token, whose program writes one row a layer into the cache.
//!
//!   cargo run --release --example generate -- --prompt "Shall I compare thee" --temperature 0.8
//!
//! `generate/export.py` makes the files, also of a model of Hugging Face. The program takes a token
//! [1, 1] and its position [1], and returns the scores of the next one.
use clap::Parser;
use kiln::{
    Options, Session, Tensor, runtime::DeviceId, runtime::program::Dim, tensor::TraceError,
};
use std::{
    io::Write,
    path::PathBuf,
    time::{Duration, Instant},
};
use tokenizers::Tokenizer;

/// Generates text with an exported decoder.
#[derive(Parser)]
pub struct Arguments {
    /// The decoder: an archive of torch.export.save.
    #[arg(long, default_value = "examples/generate/model.pt2")]
    pub model: PathBuf,
    /// Its tokenizer, in the format of Hugging Face.
    #[arg(long, default_value = "examples/generate/tokenizer.json")]
    pub tokenizer: PathBuf,
    /// What the text begins with.
    #[arg(long, default_value = "Shall I compare thee to a summer's day?\n")]
    pub prompt: String,
    /// How many tokens to generate at most.
    #[arg(long, default_value_t = 128)]
    pub tokens: usize,
    /// Divides scores before a token is drawn; 0 takes the likeliest one.
    #[arg(long, default_value_t = 0.0)]
    pub temperature: f32,
    /// Of how many tokens one is drawn, the likeliest ones; 0 for all.
    #[arg(long, default_value_t = 0)]
    pub top_k: usize,
    /// The seed of the draws.
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// A token that ends the text, such as `</s>`.
    #[arg(long)]
    pub stop: Option<String>,
    /// cpu, cuda or cuda:<ordinal>.
    #[arg(long, default_value = "cpu")]
    pub device: String,
}

/// How long tokens took.
pub struct Report {
    /// Of each token of the prompt.
    pub prompt: Vec<Duration>,
    /// Of each generated token.
    pub generated: Vec<Duration>,
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut sorted = self.generated.clone();
        sorted.sort_unstable();
        let median = sorted.get(sorted.len() / 2).map_or(0.0, |d| d.as_secs_f64() * 1e3);
        let total = self.generated.iter().sum::<Duration>().as_secs_f64();
        write!(
            f,
            "{} prompt tokens in {:.1} ms; {} generated tokens, {:.0} tokens/s, median {median:.3} ms a token",
            self.prompt.len(),
            self.prompt.iter().sum::<Duration>().as_secs_f64() * 1e3,
            self.generated.len(),
            self.generated.len() as f64 / total.max(1e-9),
        )
    }
}

fn main() -> Result<(), kiln::Error> {
    let report = run(&Arguments::parse(), &mut std::io::stdout())?;
    println!("\n\n{report}");
    Ok(())
}

fn user(e: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> TraceError {
    TraceError::User(e.into())
}

/// One step: the scores of the token after `token`, which is at a position.
fn scores(decoder: &mut Session, token: u32, at: usize) -> Result<Vec<f32>, kiln::Error> {
    let token = Tensor::from_slice(&[1, 1], &[i64::from(token)])?;
    let at = Tensor::from_slice(&[1], &[at as i64])?;
    let results = decoder.call(&[&token, &at])?;
    let scores = results.first().ok_or_else(|| user("the model returns nothing"))?;
    Ok(scores.to_vec()?)
}

/// The likeliest token, or one of the likeliest, drawn by their scores.
fn choose(scores: &[f32], a: &Arguments, random: &mut fastrand::Rng) -> u32 {
    let mut order: Vec<u32> = (0..scores.len() as u32).collect();
    let better =
        |i: &u32, j: &u32| scores[*j as usize].total_cmp(&scores[*i as usize]).then(i.cmp(j));
    let best = order.iter().copied().min_by(better).unwrap_or_default();
    if a.temperature <= 0.0 {
        return best;
    }
    order.sort_unstable_by(better);
    order.truncate(if a.top_k == 0 { order.len() } else { a.top_k });
    let share = |i: u32| ((scores[i as usize] - scores[best as usize]) / a.temperature).exp();
    let mut left = random.f32() * order.iter().map(|i| share(*i)).sum::<f32>();
    let chosen = order.iter().find(|i| {
        left -= share(**i);
        left < 0.0
    });
    chosen.copied().unwrap_or(best)
}

/// Writes the prompt and what follows it.
pub fn run(a: &Arguments, out: &mut impl Write) -> Result<Report, kiln::Error> {
    let tokenizer = Tokenizer::from_file(&a.tokenizer).map_err(user)?;
    let device = DeviceId::parse(&a.device).map_err(user)?;
    let options = Options { device, ..Options::from_env()? };
    let mut decoder = kiln::load(&a.model)?.session(&options)?;
    // The cache of a layer is [1, heads, length, size of a head].
    let program = decoder.executable().program();
    let caches = program.states.iter().map(|s| &program.inputs[s.input].dims);
    let lengths = caches.filter(|dims| dims.len() == 4).filter_map(|dims| match dims[2] {
        Dim::Known(n) => usize::try_from(n).ok(),
        _ => None,
    });
    let length = lengths.min().ok_or_else(|| user("the model has no cache"))?;

    let prompt = tokenizer.encode(a.prompt.as_str(), true).map_err(user)?;
    let stop = a.stop.as_deref().map(|t| {
        tokenizer.token_to_id(t).ok_or_else(|| user(format!("the tokenizer has no token '{t}'")))
    });
    let stop = stop.transpose()?;
    let mut report = Report { prompt: vec![], generated: vec![] };
    let (mut random, mut text) = (fastrand::Rng::with_seed(a.seed), tokenizer.decode_stream(true));
    let mut write = |token: u32| -> Result<(), kiln::Error> {
        if let Some(piece) = text.step(token).map_err(user)? {
            out.write_all(piece.as_bytes()).and_then(|()| out.flush()).map_err(user)?;
        }
        Ok(())
    };
    let (mut at, mut last) = (0, vec![]);
    for token in prompt.get_ids() {
        let start = Instant::now();
        last = scores(&mut decoder, *token, at)?;
        report.prompt.push(start.elapsed());
        write(*token)?;
        at += 1;
    }
    while at < length && report.generated.len() < a.tokens && !last.is_empty() {
        let start = Instant::now();
        let token = choose(&last, a, &mut random);
        if stop == Some(token) {
            break;
        }
        last = scores(&mut decoder, token, at)?;
        report.generated.push(start.elapsed());
        write(token)?;
        at += 1;
    }
    Ok(report)
}
