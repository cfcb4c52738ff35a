//! `kiln compile`: ahead-of-time compilation to a package.
use super::{Calling, Common, File, Stop, measuring, progress};
use crate::{Error, Exit, load};

#[derive(clap::Args)]
pub struct Compile {
    /// A .pt2 archive, or IR (.mlir)
    model: File,
    /// The package to write
    #[arg(short, long, value_name = "F.kpkg")]
    output: File,
    /// Embeds the weights in the package, so that it needs no other file
    #[arg(long)]
    with_weights: bool,
    #[command(flatten)]
    calling: Calling,
    #[command(flatten)]
    common: Common,
}

impl Compile {
    pub fn run(&self) -> Result<Exit, Stop> {
        let model = load(&self.model)?.measuring(measuring());
        let options = self.calling.options(&self.common)?;
        let (mut package, times) = model.build(&options, &progress())?;
        times.tuning.iter().for_each(|t| println!("remark: {t}"));
        if self.with_weights {
            model.hold_weights(&mut package, &options)?;
        }
        package.save(&self.output).map_err(Error::from)?;
        println!(
            "{}: {} kernels, {} objects",
            self.output.display(),
            package.program.parts().iter().map(|p| p.kernels.len()).sum::<usize>(),
            package.objects.len()
        );
        Ok(Exit::Done)
    }
}
