//! `kiln bisect`, `kiln reduce`, `kiln ablate`: miscompilation bisection, test-case reduction and
//! pass ablation.
use super::{CliError, Common, File, data};
use crate::{
    Exit, debug,
    dialects::ir::{Context, PrintOptions},
    load,
    model::OwnedTensor,
};
use std::{
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

fn inputs(file: &Option<File>) -> Result<Option<Vec<OwnedTensor>>, CliError> {
    file.as_deref().map(data::read).transpose()
}

#[derive(clap::Args)]
pub struct Bisect {
    /// A .pt2 archive, or IR (.mlir) on level graph or prims
    model: File,
    /// Inputs `input_0`, `input_1`, …; random if not given
    #[arg(long, value_name = "F.safetensors")]
    inputs: Option<File>,
    #[command(flatten)]
    common: Common,
}

impl Bisect {
    pub fn run(&self) -> Result<Exit, CliError> {
        let found = debug::bisect(
            &load(&self.model)?,
            &self.common.options_for_comparison()?,
            inputs(&self.inputs)?.as_deref(),
        )?;
        print!("{found}");
        Ok(if found.mismatch.is_some() { Exit::CheckFailed } else { Exit::Success })
    }
}

#[derive(clap::Args)]
pub struct Reduce {
    /// A .pt2 archive, or IR (.mlir) on level graph or prims
    model: File,
    /// The reduced IR to write
    #[arg(short, long, value_name = "F.mlir")]
    output: File,
    /// Interestingness test: a command, run by sh with the file's name appended, that exits with 0
    /// while the IR still fails. Default: the compiled results are wrong
    #[arg(long, value_name = "COMMAND", conflicts_with = "crash")]
    command: Option<String>,
    /// The failure is a compiler error or crash
    #[arg(long)]
    crash: bool,
    #[command(flatten)]
    common: Common,
}

impl Reduce {
    pub fn run(&self) -> Result<Exit, CliError> {
        let options = self.common.options_for_comparison()?;
        let context = Context::new();
        let (module, _) = load(&self.model)?.module(&context)?;
        let text = module.print(PrintOptions { names_from_locations: true, ..Default::default() });
        let mut asked = 0;
        let mut fails = |text: &str| {
            asked += 1;
            match (&self.command, self.crash) {
                (None, false) => debug::mismatch(text, &options),
                // Candidates are written to the output path.
                (command, _) if std::fs::write(&self.output, text).is_ok() => match command {
                    Some(command) => of_command(command, &self.output),
                    None => self.crashes(),
                },
                _ => false,
            }
        };
        let small = debug::reduce(&text, &options.function, &mut fails)
            .map_err(|e| CliError { exit: Exit::CheckFailed, message: e.to_string() })?;
        std::fs::write(&self.output, &small)
            .map_err(|e| CliError::usage(format!("{}: {e}", self.output.display())))?;
        println!(
            "{}: {} lines of {}, {asked} attempts",
            self.output.display(),
            small.lines().count(),
            text.lines().count()
        );
        Ok(Exit::Success)
    }

    /// Compiles in a child process, which may crash.
    fn crashes(&self) -> bool {
        let (Ok(kiln), package) = (std::env::current_exe(), self.output.with_extension("kpkg"))
        else {
            return false;
        };
        let mut command = Command::new(kiln);
        command
            .arg("compile")
            .arg(&self.output)
            .args(self.common.arguments())
            .arg("--no-cache")
            .arg("-o")
            .arg(&package);
        let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
        let _ = std::fs::remove_file(package);
        // Rejected input is not a crash.
        status.is_ok_and(|s| s.code().is_none_or(|c| c == i32::from(Exit::Failed.code()) || c > 5))
    }
}

fn of_command(command: &str, file: &Path) -> bool {
    let mut sh = Command::new("sh");
    sh.arg("-c")
        .arg(format!("{command} \"$1\""))
        .arg("sh")
        .arg(file)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    sh.status().is_ok_and(|s| s.success())
}

#[derive(clap::Args)]
pub struct Ablate {
    /// A .pt2 archive, or IR (.mlir)
    model: File,
    /// Inputs `input_0`, `input_1`, …; random if not given
    #[arg(long, value_name = "F.safetensors")]
    inputs: Option<File>,
    /// Seconds to measure each program
    #[arg(long, default_value_t = 0.2, value_name = "S")]
    seconds: f64,
    #[command(flatten)]
    common: Common,
}

impl Ablate {
    pub fn run(&self) -> Result<Exit, CliError> {
        let time = Duration::try_from_secs_f64(self.seconds)
            .map_err(|e| CliError::usage(e.to_string()))?;
        let found = debug::ablate(
            &load(&self.model)?,
            &self.common.options_for_comparison()?,
            inputs(&self.inputs)?.as_deref(),
            time,
        )?;
        print!("{found}");
        Ok(Exit::Success)
    }
}
