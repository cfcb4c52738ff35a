//! `kiln run`: compile, call, compare, report.
use super::{
    CliError, Common, File, ModeOptions, autotune_progress, data, profile::chrome, progress, report,
};
use crate::{
    Exit, load,
    model::{Executable, OwnedTensor},
    opt::tensors,
    tolerance,
};
use std::time::{Duration, Instant};

#[derive(clap::Args)]
pub struct Run {
    /// A .pt2 archive, IR (.mlir) at any level from graph to scheduled, or a compiled package
    /// (.kpkg)
    model: File,
    /// Inputs `input_0`, `input_1`, …; random if not given
    #[arg(long, value_name = "F.safetensors")]
    inputs: Option<File>,
    /// Expected `output_0`, …; exit code 1 on a mismatch
    #[arg(long, value_name = "F.safetensors")]
    expect: Option<File>,
    /// Writes `output_0`, `output_1`, …
    #[arg(long, value_name = "F.safetensors")]
    outputs: Option<File>,
    /// Number of timed calls; the median is reported
    #[arg(long, default_value_t = 20, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
    /// The report as JSON
    #[arg(long)]
    json: bool,
    /// Writes a profile of a call's launches for chrome://tracing or Perfetto, with ops and source
    /// lines
    #[arg(long, value_name = "F.json")]
    profile: Option<File>,
    #[command(flatten)]
    mode_options: ModeOptions,
    #[command(flatten)]
    common: Common,
}

impl Run {
    pub fn run(&self) -> Result<Exit, CliError> {
        let start = Instant::now();
        let options = self.mode_options.options(&self.common)?;
        let model = load(&self.model)?.autotune_progress(autotune_progress());
        let exe = model.compile_with(&options, &progress())?;
        let inputs = match &self.inputs {
            Some(path) => data::read(path)?,
            None => data::random(exe.program())?,
        };
        let mut outputs = exe.memory(&inputs)?;
        exe.call_data(&inputs, &mut outputs)?;
        let first = start.elapsed();
        let mut times = exe.measure(&inputs, &mut outputs, self.repeat as usize, 1)?;
        times.sort_unstable();
        let (launches, runs) = profile(&exe, &inputs, &mut outputs)?;
        if let Some(path) = &self.profile {
            let text = serde_json::to_string(&chrome(&exe, &inputs, &launches, &runs))
                .map_err(|e| CliError::usage(e.to_string()))?;
            std::fs::write(path, text)
                .map_err(|e| CliError::usage(format!("{}: {e}", path.display())))?;
        }
        let wanted = self.expect.is_some() || self.outputs.is_some();
        // Result types are valid by construction, so only allocation can fail.
        exe.trim(&inputs, &mut outputs)?;
        let results = outputs
            .iter()
            .enumerate()
            .filter(|(i, _)| wanted && !exe.program().is_size(*i))
            .map(|(_, d)| d.tensor())
            .collect::<Result<Vec<_>, _>>()
            .map_err(|e| CliError { exit: Exit::Device, message: e.to_string() })?;
        let mut checks = vec![];
        if let Some(path) = &self.expect {
            let all = tensors::read(path, |_| true)
                .map_err(|e| CliError { exit: e.exit, message: e.message })?;
            let wanted = tensors::numbered(&all, "output_");
            if wanted.len() != results.len() {
                return Err(CliError::usage(format!(
                    "{} has {} outputs, the model {}",
                    path.display(),
                    wanted.len(),
                    results.len()
                )));
            }
            checks = wanted
                .iter()
                .map(|(i, want)| (*i, tolerance::compare(&results[*i], want)))
                .collect();
        }
        if let Some(path) = &self.outputs {
            tensors::write(path, &results)
                .map_err(|e| CliError { exit: e.exit, message: e.message })?;
        }
        let run = report::RunReport {
            exe: &exe,
            options: &options,
            first,
            times: &times,
            launches: &launches,
            runs: &runs,
            checks: &checks,
            inputs: &inputs,
            random_inputs: self.inputs.is_none(),
            profile: self.profile.as_deref(),
        };
        print!("{}", if self.json { run.json() } else { run.text() });
        let agrees = checks.iter().all(|(_, c)| c.as_ref().is_ok_and(|c| c.ok));
        Ok(if agrees { Exit::Success } else { Exit::CheckFailed })
    }
}

/// Median time of each launch over a few calls, and its runs per call, which control flow can make
/// data-dependent.
fn profile(
    exe: &Executable,
    inputs: &[OwnedTensor],
    outputs: &mut [OwnedTensor],
) -> Result<(Vec<Duration>, Vec<usize>), CliError> {
    const CALLS: usize = 5;
    let (mut samples, mut runs) = (vec![], vec![]);
    for _ in 0..CALLS {
        let profile = exe.profile(inputs, outputs)?;
        samples.resize(profile.times().len(), vec![]);
        samples.iter_mut().zip(profile.times()).for_each(|(s, t)| s.push(*t));
        runs = profile.runs().to_vec();
    }
    let median = |mut s: Vec<Duration>| {
        s.sort_unstable();
        s[s.len() / 2]
    };
    Ok((samples.into_iter().map(median).collect(), runs))
}
