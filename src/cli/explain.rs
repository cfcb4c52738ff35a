//! `kiln explain`: what became one kernel and why the rest did not, memory, copies, and where compile time went; as `Compiled::explain` says it.
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
        let (package, times) = load(&self.model)?.build(&self.common.options()?, &progress())?;
        let p = &package.program;
        let count: usize = p.parts().iter().map(|p| p.kernels.len()).sum();
        print!("{}: {count} kernel{}\n{}", p.name, if count == 1 { "" } else { "s" }, GraphInfo::of(p, Some(&times)));
        if let Some(path) = &self.svg {
            std::fs::write(path, svg(p)).map_err(|e| Stop::usage(format!("{}: {e}", path.display())))?;
        }
        Ok(Exit::Done)
    }
}
