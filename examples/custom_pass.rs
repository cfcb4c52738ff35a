//! A custom pass in the pipeline of a compiled function. It rewrites division by a constant to
//! multiplication, which is faster and rounds differently.
//!
//!   cargo run --example custom_pass
//!
//! In a crate of its own this file is `main.rs`. `Cargo.toml` needs `[dependencies] kiln = { path =
//! "…" }`, and building needs MLIR (`MLIR_SYS_220_PREFIX`). docs/write-a-pass.md explains each
//! part, and how to upstream a pass into kiln.
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

/// The text to print: the ops of the one kernel without the pass, with the pass as soon as the
/// graph is at level `prims`, and with the pass after each run of another pass. Then the pass
/// statistics.
pub fn run() -> Result<String, Error> {
    pass::register::<Reciprocal>()?;
    let mut lines = vec![];
    for passes in ["", "prims: mine-reciprocal{least=2}", "kiln-simplify: mine-reciprocal{least=2}"]
    {
        // A cache hit would run no passes.
        let f = kiln::compile(|x: Tensor| x.exp() / 3)
            .options([("passes", passes), ("cache_dir", "off")]);
        let y = f.call(Tensor::from_slice(&[2], &[0.0f32, 1.0])?)?;
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
