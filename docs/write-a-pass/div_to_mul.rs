//! `kiln-div-to-mul`: a division by a power of two becomes a multiplication.
//!
//! Why: division costs several times a multiplication, and the reciprocal of a power of two is
//! exact. Numerics: exact.
use kiln_dialects::{ir::*, ops::*, rules::Level};
use kiln_passes::{Numerics, Pass};

kiln_passes::pass_options! {
    /// The pass.
    pub struct DivToMul {
        /// Greatest divisor that is looked at
        pub limit: f64 = 1024.0,
    }
}

impl Pass for DivToMul {
    const FLAG: &'static str = "kiln-div-to-mul";
    const SUMMARY: &'static str = "Writes divisions by powers of two as multiplications";
    const LEVELS: &'static [Level] = &[Level::Graph, Level::Prims];
    const NUMERICS: Numerics = Numerics::Exact;

    fn run(&self, root: Op) -> Result<()> {
        for op in walk(root) {
            // Read and decide: a float division by a splat of a power of two.
            let Some(div) = Div::of(op) else { continue };
            let Some(splat) = div.rhs.def().and_then(Splat::of) else { continue };
            let Some(c) = splat.value.as_f64() else { continue };
            if !(1.0..=self.limit).contains(&c) || c.log2().fract() != 0.0 {
                continue;
            }
            // Apply: the same splat with the reciprocal, a product, and no division.
            let b = Builder::before(op).ok_or_at(op, "is in no block")?;
            let rhs = b.splat(splat.value.type_of().dtype()?, &splat.sizes, 1.0 / c)?;
            let product = b.add(&Mul { lhs: div.lhs, rhs })?;
            op.result(0).replace_uses(product);
            op.erase();
        }
        Ok(())
    }
}
