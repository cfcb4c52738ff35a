//! `kiln explain`: what became one kernel, and why the rest did not.
use super::{Common, File, Stop, progress};
use crate::{Exit, load, runtime::Program};
use std::fmt::Write;

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
        let (package, _) = load(&self.model)?.build(&self.common.options()?, &progress())?;
        let p = &package.program;
        for (i, k) in p.kernels.iter().enumerate() {
            println!("{i:>4}  {:<40} {:<10} {}", k.name, k.kind, k.ops.join(" "));
            k.not_fused.iter().for_each(|why| println!("      not fused: {why}"));
        }
        if let Some(path) = &self.svg {
            std::fs::write(path, svg(p)).map_err(|e| Stop::usage(format!("{}: {e}", path.display())))?;
        }
        Ok(Exit::Done)
    }
}

const WIDTH: usize = 900;
const ROW: usize = 46;

/// Launches from top to bottom, each with what it does, and an arc to each launch that reads its result.
fn svg(p: &Program) -> String {
    let height = ROW * p.kernels.len() + 20;
    let mut s = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" font-family=\"sans-serif\" font-size=\"12\">\n"
    );
    let colour = |kind: &str| match kind {
        "contract" => "#cfe3ff",
        "rows" => "#d9f2d9",
        "reduce" => "#e8f7c8",
        "pointwise" => "#fff2cc",
        _ => "#eeeeee",
    };
    let middle = |i: usize| 10 + i * ROW + (ROW - 10) / 2;
    for (i, k) in p.kernels.iter().enumerate() {
        let y = 10 + i * ROW;
        let _ = writeln!(
            s,
            "<rect x=\"200\" y=\"{y}\" width=\"{}\" height=\"{}\" rx=\"5\" fill=\"{}\" stroke=\"#888\"/>",
            WIDTH - 220,
            ROW - 10,
            colour(&k.kind)
        );
        let _ = writeln!(s, "<text x=\"210\" y=\"{}\" font-weight=\"bold\">{}</text>", y + 15, escaped(&k.name));
        let ops = k.ops.join(" ");
        let shown: String = ops.chars().take(100).collect();
        let _ = writeln!(s, "<text x=\"210\" y=\"{}\" fill=\"#444\">{}</text>", y + 30, escaped(&shown));
        for from in &k.reads {
            let (a, b) = (middle(*from), middle(i));
            let bow = 200usize.saturating_sub(20 + 12 * i.abs_diff(*from).min(14));
            let _ = writeln!(s, "<path d=\"M200 {a} C{bow} {a} {bow} {b} 200 {b}\" fill=\"none\" stroke=\"#668\"/>");
        }
    }
    s + "</svg>\n"
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
