//! `kiln ops`: the ATen table.
use super::Stop;
use crate::{Exit, docs};

#[derive(clap::Args)]
pub struct Ops {
    /// Prints every overload that capture knows, which is also the default
    #[arg(long)]
    coverage: bool,
}

impl Ops {
    pub fn run(&self) -> Result<Exit, Stop> {
        // There is one table; the flag asks for it by name.
        let Ops { coverage: _ } = self;
        print!("{}", docs::aten());
        Ok(Exit::Done)
    }
}
