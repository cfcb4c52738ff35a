//! `kiln ops`: the ATen table.
use super::Stop;
use crate::{Exit, docs};

#[derive(clap::Args)]
pub struct Ops {
    /// Prints every overload that capture knows
    #[arg(long)]
    coverage: bool,
}

impl Ops {
    pub fn run(&self) -> Result<Exit, Stop> {
        if !self.coverage {
            return Err(Stop::usage("kiln ops prints the table of ATen overloads with --coverage"));
        }
        print!("{}", docs::aten());
        Ok(Exit::Done)
    }
}
