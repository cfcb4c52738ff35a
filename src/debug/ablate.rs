//! Pass ablation: disables each optional pass in turn, and compares cost and benefit.
use super::optional;
use crate::{
    Error, Executable, Model, Options,
    model::{CachePolicy, OwnedTensor, random_inputs},
};
use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

/// One ablation: a compilation with one pass disabled.
#[derive(Clone, Debug)]
pub struct Row {
    /// The disabled pass; `None` for the baseline.
    pub without: Option<String>,
    /// The measurements. Err: why there are none.
    pub measured: Result<Measured, Arc<Error>>,
}

/// Measurements of one program.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Launches per call.
    pub launches: usize,
    /// Distinct kernels.
    pub kernels: usize,
    /// Bytes read and written by the launches of a call, as far as known.
    pub bytes: i64,
    /// Compile time without a cache (cold).
    pub compile: Duration,
    /// Median call time.
    pub call: Duration,
}

/// One row per ablation. `Display` prints a table.
#[derive(Clone, Debug)]
pub struct Ablation {
    /// The rows; the full pipeline comes first.
    pub rows: Vec<Row>,
}

/// Compiles a model with all passes, then without each optional one, and times calls for about
/// `time` each. Calls of the programs are interleaved, so that noise affects all alike. Missing
/// inputs are random.
pub fn ablate(
    model: &Model,
    options: &Options,
    inputs: Option<&[OwnedTensor]>,
    time: Duration,
) -> Result<Ablation, Error> {
    // Warm-up: the first compilation also registers passes and starts threads.
    model.compile(&Options { cache: CachePolicy::Off, dump: None, ..options.clone() })?;
    let all = std::iter::once(None).chain(optional(options)?.into_iter().map(Some));
    let mut made = vec![];
    for without in all {
        let mut options = Options { cache: CachePolicy::Off, dump: None, ..options.clone() };
        options.disable.extend(without.clone());
        let start = Instant::now();
        let exe = model.compile(&options);
        made.push((without, exe.map_err(Arc::new), start.elapsed()));
    }
    let first = made[0].1.as_ref().map_err(|e| Error::Asynchronous(e.clone()))?;
    let inputs = match inputs {
        Some(inputs) => inputs.to_vec(),
        None => random_inputs(first.program())?,
    };
    let mut outputs = first.memory(&inputs)?;
    let mut calls: Vec<Vec<Duration>> = vec![vec![]; made.len()];
    let whole = time * made.len() as u32;
    let start = Instant::now();
    while calls[0].len() < 3 || start.elapsed() < whole {
        for ((_, exe, _), calls) in made.iter().zip(&mut calls) {
            if let Ok(exe) = exe {
                // A failing call only spoils its own row; the error shows when its median is
                // computed.
                calls.extend(exe.measure(&inputs, &mut outputs, 1, 1)?);
            }
        }
    }
    let mut rows = vec![];
    for ((without, exe, compile), mut calls) in made.into_iter().zip(calls) {
        calls.sort_unstable();
        let measured = exe.map(|exe| {
            measurements(
                &exe,
                &inputs,
                compile,
                calls.get(calls.len() / 2).copied().unwrap_or_default(),
            )
        });
        rows.push(Row { without, measured });
    }
    Ok(Ablation { rows })
}

fn measurements(
    exe: &Executable,
    inputs: &[OwnedTensor],
    compile: Duration,
    call: Duration,
) -> Measured {
    let p = exe.program();
    let size = |s: &crate::runtime::program::Symbol| {
        inputs.get(s.input).and_then(|d| d.shape.get(s.dim)).map_or(0, |n| *n as i64)
    };
    let symbols: Vec<i64> = p.symbols.iter().map(size).collect();
    let exprs = p.expr_values(&symbols).unwrap_or_default();
    let bytes = p.kernels.iter().filter_map(|k| k.bytes?.value(&symbols, &exprs).ok()).sum();
    let mut names: Vec<&str> = p.kernels.iter().map(|k| k.symbol.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    Measured { launches: p.kernels.len(), kernels: names.len(), bytes, compile, call }
}

impl fmt::Display for Ablation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<24} {:>8} {:>8} {:>12} {:>11} {:>11} {:>7}",
            "without", "launches", "kernels", "bytes", "compile ms", "call us", "times"
        )?;
        let whole =
            self.rows.first().and_then(|r| r.measured.as_ref().ok()).map(|m| m.call.as_secs_f64());
        for r in &self.rows {
            let name = r.without.as_deref().unwrap_or("(nothing)");
            match &r.measured {
                Ok(m) => {
                    let (compile, call) = (m.compile.as_secs_f64() * 1e3, m.call.as_secs_f64());
                    let times = call / whole.unwrap_or(call).max(f64::MIN_POSITIVE);
                    writeln!(
                        f,
                        "{name:<24} {:>8} {:>8} {:>12} {compile:>11.1} {:>11.1} {times:>7.2}",
                        m.launches,
                        m.kernels,
                        m.bytes,
                        call * 1e6
                    )?;
                }
                Err(e) => {
                    let e = e.to_string();
                    writeln!(f, "{name:<24} does not compile: {}", e.lines().next().unwrap_or(&e))?
                }
            }
        }
        Ok(())
    }
}
