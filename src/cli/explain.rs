//! `kiln explain`: inputs and guards, kernels, missed fusions, memory, copies, CUDA-graph blockers
//! and compile times, in the format of `Compiled::explain`.
use super::{CliError, Common, File, progress, terminal::wrapped};
use crate::{
    Error, Exit, Options,
    compile::GraphInfo,
    dump::{launch_times, svg},
    load,
};
use std::{collections::BTreeSet, path::Path};

#[derive(clap::Args)]
pub struct Explain {
    /// A .pt2 archive, IR (.mlir) or a compiled package (.kpkg)
    model: File,
    /// Writes the launch graph as SVG, with measured times if this machine can run it
    #[arg(long, value_name = "F.svg")]
    svg: Option<File>,
    #[command(flatten)]
    common: Common,
}

impl Explain {
    pub fn run(&self) -> Result<Exit, CliError> {
        let options = self.common.options()?;
        let (package, times) = load(&self.model)?.build(&options, &progress())?;
        let p = &package.program;
        let kernels: Vec<_> = p.parts().into_iter().flat_map(|p| &p.kernels).collect();
        let different: BTreeSet<&str> = kernels.iter().map(|k| k.symbol.as_str()).collect();
        let mut info = GraphInfo::of(p, Some(&times));
        if options.blocking {
            info.cudagraphs.push("each launch is waited for (cuda_blocking)".into());
        }
        let plural =
            |n: usize, one: &str, many: &str| format!("{n} {}", if n == 1 { one } else { many });
        let launches = plural(kernels.len(), "launch", "launches");
        let different = plural(different.len(), "kernel", "kernels");
        print!("{}", wrapped(&format!("{}: {launches} of {different}\n{info}", p.name)));
        if let Some(path) = &self.svg {
            let times = measured(&self.model, &options).unwrap_or_default();
            std::fs::write(path, svg(p, &times))
                .map_err(|e| CliError::usage(format!("{}: {e}", path.display())))?;
            println!("graph of launches: {}", path.display());
        }
        Ok(Exit::Success)
    }
}

/// Measured launch times. Err: the target is another machine, or the weights are not found.
fn measured(model: &Path, options: &Options) -> Result<Vec<std::time::Duration>, Error> {
    // The compilation to explain has already logged and dumped.
    let options = Options { dump: None, max_autotune: false, ..options.clone() };
    Ok(launch_times(&load(model)?.compile(&options)?))
}
