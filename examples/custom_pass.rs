//! A pass of one's own in the pipeline of a compiled function: divisions by a number become
//! products, which is faster and rounds differently.
//!
//!   cargo run --example custom_pass
//!
//! This file is all that a crate of its own needs as `main.rs`; its `Cargo.toml` says
//! `[dependencies] kiln = { path = "…" }`, and building wants MLIR where kiln's does
//! (`MLIR_SYS_220_PREFIX`). docs/write-a-pass.md explains the parts, and how a pass becomes one of
//! kiln's.
use kiln::{
    Error, Tensor,
    dialects::{ir::*, ops::*, rules::Level},
    passes::{Numerics, Pass, pass},
};

fn main() -> Result<(), Error> {
    run().map(|text| println!("{text}"))
}

kiln::passes::pass_options! {
    /// The pass.
    pub struct Reciprocal {
        /// The least divisor that is looked at
        pub least: f64 = 0.001,
    }
}

impl Pass for Reciprocal {
    const FLAG: &'static str = "mine-reciprocal";
    const SUMMARY: &'static str = "Writes divisions by numbers as products";
    const LEVELS: &'static [Level] = &[Level::Graph, Level::Prims];
    const NUMERICS: Numerics = Numerics::Reassociates;

    fn run(&self, root: Op) -> Result<()> {
        for op in walk(root) {
            let Some(div) = Div::of(op) else { continue };
            let Some(splat) = div.rhs.def().and_then(Splat::of) else { continue };
            let Some(c) = splat.value.as_f64().filter(|c| c.abs() >= self.least) else { continue };
            let b = Builder::before(op).ok_or_at(op, "is in no block")?;
            let rhs = b.splat(splat.value.type_of().dtype()?, &splat.sizes, 1.0 / c)?;
            let product = b.add(&Mul { lhs: div.lhs, rhs })?;
            op.result(0).replace_uses(product);
            op.erase();
        }
        Ok(())
    }
}

/// What is printed: the ops of the one kernel, without the pass, with it as soon as a graph is on
/// level `prims`, and behind the runs of another pass; and how often it ran, which is known of all
/// passes alike.
pub fn run() -> Result<String, Error> {
    pass::register::<Reciprocal>().map_err(Error::Backend)?;
    let mut lines = vec![];
    for passes in ["", "prims: mine-reciprocal{least=2}", "kiln-simplify: mine-reciprocal{least=2}"]
    {
        // Code from the cache would say nothing of passes.
        let f = kiln::compile(|x: Tensor| x.exp() / 3)
            .options([("passes", passes), ("cache_dir", "off")]);
        let y = f.call(Tensor::of(&[2], &[0.0f32, 1.0])?)?;
        let graphs = f.explain().graphs;
        let ops: Vec<String> =
            graphs.iter().flat_map(|g| &g.kernels).flat_map(|(_, ops)| ops.clone()).collect();
        let runs: usize = graphs
            .iter()
            .flat_map(|g| &g.passes)
            .filter(|p| p.pass == Reciprocal::FLAG)
            .map(|p| p.runs)
            .sum();
        lines.push(format!("{}: {:.4?}, {runs} runs", ops.join(" "), y.to_vec::<f32>()?));
    }
    Ok(lines.join("\n"))
}
