//! TODO
use crate::pass::{Failure, Numerics, Pass};
use kiln_dialects::{
    ir::Op,
    rules::{LEVELS, Level},
};
crate::pass_options! {
    /// The pass.
    pub struct Simplify {
        /// Most elements of a folded constant
        pub fold_limit: usize = 1024,
    }
}
impl Pass for Simplify {
    const FLAG: &'static str = "kiln-simplify";
    const SUMMARY: &'static str = "pending";
    const LEVELS: &'static [Level] = LEVELS;
    const NUMERICS: Numerics = Numerics::Exact;
    fn run(&self, _: Op) -> Result<(), Failure> {
        Ok(())
    }
}
