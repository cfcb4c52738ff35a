//! `kiln compile`: ahead-of-time compilation to a package.
use super::{CliError, Common, File, ModeOptions, autotune_progress, progress};
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
    mode_options: ModeOptions,
    #[command(flatten)]
    common: Common,
}

impl Compile {
    pub fn run(&self) -> Result<Exit, CliError> {
        let model = load(&self.model)?.autotune_progress(autotune_progress());
        let options = self.mode_options.options(&self.common)?;
        let (mut package, times) = model.build(&options, &progress())?;
        times.tuning.iter().for_each(|t| println!("remark: {t}"));
        if self.with_weights {
            model.embed_weights(&mut package, &options)?;
        }
        package.save(&self.output).map_err(Error::from)?;
        println!(
            "{}: {} kernels, {} objects",
            self.output.display(),
            package.program.parts().iter().map(|p| p.kernels.len()).sum::<usize>(),
            package.objects.len()
        );
        Ok(Exit::Success)
    }
}
