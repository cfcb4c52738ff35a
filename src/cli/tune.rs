//! `kiln tune`: measures schedules of a model's kernels.
use super::{Common, File, Stop, data};
use crate::{Error, Exit, autotune::autotune, load, lowering::Schedules};
use std::time::Duration;

#[derive(clap::Args)]
pub struct Tune {
    /// A .pt2 archive, or IR (.mlir)
    model: File,
    /// The table that measured schedules are added to; it is made if it is not there
    #[arg(short, long, value_name = "FILE")]
    output: File,
    /// Seconds that measuring may take
    #[arg(long, default_value_t = 60.0, value_name = "S")]
    seconds: f64,
    #[command(flatten)]
    common: Common,
}

impl Tune {
    pub fn run(&self) -> Result<Exit, Stop> {
        let fail = |e: String| Stop::usage(format!("{}: {e}", self.output.display()));
        let mut table = match std::fs::read_to_string(&self.output) {
            Ok(text) => Schedules::parse(&text).map_err(fail)?,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Schedules::default(),
            Err(e) => return Err(fail(e.to_string())),
        };
        let budget = Duration::try_from_secs_f64(self.seconds).map_err(|e| Stop::usage(format!("--seconds {}: {e}", self.seconds)))?;
        let bar = indicatif::ProgressBar::new(0);
        if let Ok(style) = indicatif::ProgressStyle::with_template("{bar:40} {pos}/{len} {msg}") {
            bar.set_style(style);
        }
        let progress = |done: usize, total: usize, name: &str| {
            bar.set_length(total as u64);
            bar.set_position(done as u64);
            bar.set_message(name.to_string());
        };
        let inputs = |p: &_| data::random(p).map_err(|e| Error::Target(e.message));
        let made = autotune(&load(&self.model)?, &self.common.options()?, budget, &mut table, &inputs, &progress);
        bar.finish_and_clear();
        // Also what was measured before the device failed.
        std::fs::write(&self.output, table.to_string()).map_err(|e| fail(e.to_string()))?;
        for t in made? {
            println!("{:40} {:10.2} us, was {:.2}; {} tried, {} refused; {}", t.kernel, t.after, t.before, t.tried, t.refused, t.schedule);
        }
        println!("{}: {} schedules", self.output.display(), table.len());
        Ok(Exit::Done)
    }
}
