//! `kiln options`: the option table.
use super::{CliError, OptionFlags};
use crate::{Exit, OptionInfo, list_mode_options, list_options};

#[derive(clap::Args)]
pub struct List {
    /// The table as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    option_flags: OptionFlags,
}

impl List {
    pub fn run(&self) -> Result<Exit, CliError> {
        // Reports errors in the environment too.
        self.option_flags.settings()?;
        let all = list_options();
        if self.json {
            let row = |o: &OptionInfo| {
                serde_json::json!({
                    "name": o.name, "torch": o.torch, "variable": o.variable, "takes": o.kind, "default": o.default, "files": o.files, "summary": o.summary,
                })
            };
            println!(
                "{}",
                serde_json::to_string_pretty(&all.iter().map(row).collect::<Vec<_>>())
                    .unwrap_or_default()
            );
            return Ok(Exit::Success);
        }
        println!(
            "Each is set by its variable, by --option NAME=VALUE, and by Compiled::options in Rust; what comes later here wins."
        );
        for (files, title) in
            [(true, "For files and compiled functions"), (false, "For compiled functions alone")]
        {
            println!("\n{title}:");
            for o in all.iter().filter(|o| o.files == files) {
                let torch = o.torch.map_or(String::new(), |t| format!(" (torch: {t})"));
                println!(
                    "  {}{torch}, {}: {} [default: {}]\n      {}",
                    o.name, o.variable, o.kind, o.default, o.summary
                );
            }
        }
        println!("\nModes, and the options that each sets:");
        for (mode, sets) in list_mode_options() {
            let sets: Vec<String> =
                sets.iter().map(|(name, value)| format!("{name}={value}")).collect();
            println!("  {mode}: {}", if sets.is_empty() { "none".into() } else { sets.join(" ") });
        }
        Ok(Exit::Success)
    }
}
