//! `kiln bench`: times calls, alone or in alternation with other implementations.
use super::{CliError, Common, File, ModeOptions, autotune_progress, data, progress};
use crate::{Exit, load};
use std::{
    io::{BufRead, Write},
    time::{Duration, Instant},
};

#[derive(clap::Args)]
pub struct Bench {
    /// A .pt2 archive, IR (.mlir) or a compiled package (.kpkg)
    model: File,
    /// Inputs `input_0`, …; random if not given
    #[arg(long, value_name = "F.safetensors")]
    inputs: Option<File>,
    /// Seconds to measure
    #[arg(long, default_value_t = 1.0, value_name = "S")]
    seconds: f64,
    /// Benchmark server: prints the time to the first result (on a GPU also without the copy to the
    /// host), then measures for as many seconds as each line on standard input says, and prints one
    /// line of JSON per measurement. Alternate the lines between implementations to interleave them
    #[arg(long)]
    worker: bool,
    #[command(flatten)]
    mode_options: ModeOptions,
    #[command(flatten)]
    common: Common,
}

/// Rounds on a GPU between the first two copies to the host. Later counts are chosen to fill the
/// time, so that the GPU never idles.
const ROUNDS: usize = 20;
/// Upper bound of that count.
const MAX_ROUNDS: usize = 10_000;
/// Calls per round on a GPU, for short calls: as many as the other implementations in `benches/gpu`
/// put into one CUDA graph.
const CALLS: usize = 20;
/// Maximum duration of a round with several calls, in seconds.
const ROUND: f64 = 4e-4;

/// Statistics of repeated calls.
struct Sample {
    median: Duration,
    least: Duration,
    calls: usize,
}

impl Bench {
    pub fn run(&self) -> Result<Exit, CliError> {
        let start = Instant::now();
        let exe = load(&self.model)?
            .autotune_progress(autotune_progress())
            .compile_with(&self.mode_options.options(&self.common)?, &progress())?;
        let inputs = match &self.inputs {
            Some(path) => data::read(path)?,
            None => data::random(exe.program())?,
        };
        let (ready, mut outputs) = (start.elapsed(), exe.memory(&inputs)?);
        let kernels: Duration = exe.measure(&inputs, &mut outputs, 1, 1)?.iter().sum();
        let first = start.elapsed().as_secs_f64();
        let on_device = exe.device_info().map(|_| (ready + kernels).as_secs_f64());
        let mut sample = |seconds: f64| -> Result<Sample, CliError> {
            let (start, mut times) = (Instant::now(), vec![]);
            let (mut rounds, mut calls) = (1, 1);
            if exe.device_info().is_some() {
                let made = exe.measure(&inputs, &mut outputs, ROUNDS, 1)?;
                let least = made.iter().min().map_or(0.0, |t| t.as_secs_f64()).max(1e-6);
                calls = ((ROUND / least) as usize).clamp(1, CALLS);
                rounds = ((seconds / least) as usize / calls).clamp(ROUNDS, MAX_ROUNDS);
            }
            while times.len() < 3 || start.elapsed().as_secs_f64() < seconds {
                times.extend(exe.measure(&inputs, &mut outputs, rounds, calls)?);
            }
            times.sort_unstable();
            Ok(Sample { median: times[times.len() / 2], least: times[0], calls: times.len() })
        };
        if !self.worker {
            let s = sample(self.seconds)?;
            println!(
                "median {:.1} us, least {:.1} us, {} calls",
                s.median.as_secs_f64() * 1e6,
                s.least.as_secs_f64() * 1e6,
                s.calls
            );
            return Ok(Exit::Success);
        }
        println!("{}", serde_json::json!({ "first_s": first, "on_card_s": on_device }));
        for line in std::io::stdin().lock().lines() {
            let line = line.map_err(|e| CliError::usage(e.to_string()))?;
            let seconds = line
                .trim()
                .parse()
                .map_err(|_| CliError::usage(format!("'{line}' is no number of seconds")))?;
            let s = sample(seconds)?;
            println!(
                "{}",
                serde_json::json!({"median_us": s.median.as_secs_f64() * 1e6, "least_us": s.least.as_secs_f64() * 1e6, "calls": s.calls})
            );
            std::io::stdout().flush().map_err(|e| CliError::usage(e.to_string()))?;
        }
        Ok(Exit::Success)
    }
}
