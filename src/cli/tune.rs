//! `kiln tune`: autotunes a model's kernels, and merges tables of schedules.
use super::{CliError, Common, File, autotune_progress, data, seconds};
use crate::{
    Error, Exit,
    autotune::{self, autotune},
    load,
    lowering::Schedules,
    runtime::file,
};
use std::path::Path;

#[derive(clap::Args)]
pub struct Tune {
    /// A .pt2 archive, or IR (.mlir)
    #[arg(required_unless_present = "merge")]
    model: Option<File>,
    /// The table to add measured schedules to; created if missing
    #[arg(short, long, value_name = "FILE")]
    output: File,
    /// A table to merge in; for each kernel the faster schedule wins
    #[arg(long, value_name = "FILE")]
    merge: Vec<File>,
    /// Time budget in seconds
    #[arg(long, default_value_t = crate::model::AUTOTUNE_BUDGET.as_secs_f64(), value_name = "S")]
    seconds: f64,
    #[command(flatten)]
    common: Common,
}

fn read(path: &Path) -> Result<Schedules, CliError> {
    let fail = |e: String| CliError::usage(format!("{}: {e}", path.display()));
    let text = file::read_text(path, autotune::MAX_TABLE).map_err(|e| fail(e.to_string()))?;
    Schedules::parse(&text).map_err(fail)
}

impl Tune {
    pub fn run(&self) -> Result<Exit, CliError> {
        let mut table =
            if self.output.exists() { read(&self.output)? } else { Schedules::default() };
        for path in &self.merge {
            table.merge(&read(path)?);
        }
        let made = match &self.model {
            None => Ok(vec![]),
            Some(model) => {
                let inputs = |p: &_| data::random(p).map_err(|e| Error::Target(e.message));
                let budget = seconds("--seconds", self.seconds)?;
                autotune(
                    &load(model)?,
                    &self.common.options_for_comparison()?,
                    budget,
                    &mut table,
                    &inputs,
                    &autotune_progress(),
                )
            }
        };
        // Also keeps what was measured before the device failed.
        let written = std::fs::write(&self.output, table.to_string());
        written.map_err(|e| CliError::usage(format!("{}: {e}", self.output.display())))?;
        for t in made? {
            let library =
                t.library.map_or(String::new(), |(name, us)| format!("; by {name} {us:.2}"));
            println!(
                "{:40} {:10.2} us, was {:.2}{library}; {} tried, {} refused; {}",
                t.kernel, t.after, t.before, t.tried, t.refused, t.schedule
            );
        }
        println!("{}: {} schedules", self.output.display(), table.len());
        Ok(Exit::Success)
    }
}
