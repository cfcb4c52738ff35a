//! `kiln explain`: what the program takes, what became one kernel and why the rest did not, memory,
//! copies, what hinders a CUDA graph, and where compile time went; as `Compiled::explain` says it.
use super::{Common, File, Stop, progress};
use crate::{Exit, compile::GraphInfo, dump::svg, load};

#[derive(clap::Args)]
pub struct Explain {
    /// A .pt2 archive, IR (.mlir) or a compiled package (.kpkg)
    model: File,
    /// Writes the graph of launches as SVG
    #[arg(long, value_name = "F.svg")]
    svg: Option<File>,
    #[command(flatten)]
    common: Common,
}

impl Explain {
    pub fn run(&self) -> Result<Exit, Stop> {
        let options = self.common.options()?;
        let (package, times) = load(&self.model)?.build(&options, &progress())?;
        let p = &package.program;
        let count: usize = p.parts().iter().map(|p| p.kernels.len()).sum();
        let mut info = GraphInfo::of(p, Some(&times));
        if options.blocking {
            info.cudagraphs.push("each launch is waited for (cuda_blocking)".into());
        }
        print!("{}: {count} kernel{}\n{info}", p.name, if count == 1 { "" } else { "s" });
        if let Some(path) = &self.svg {
            std::fs::write(path, svg(p))
                .map_err(|e| Stop::usage(format!("{}: {e}", path.display())))?;
        }
        Ok(Exit::Done)
    }
}
