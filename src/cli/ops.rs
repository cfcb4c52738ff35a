//! `kiln ops`: the table of supported ATen overloads.
use super::CliError;
use crate::{Exit, docs};

#[derive(clap::Args)]
pub struct Ops {
    /// Lists every supported overload; this is the default
    #[arg(long)]
    coverage: bool,
}

impl Ops {
    pub fn run(&self) -> Result<Exit, CliError> {
        // There is only one table; the flag names it explicitly.
        let Ops { coverage: _ } = self;
        print!("{}", docs::aten());
        Ok(Exit::Success)
    }
}
