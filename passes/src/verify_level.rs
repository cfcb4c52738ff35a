//! `kiln-verify-level`: verifies that every op is legal at the module's level.
//!
//! Why: an op that a lowering missed is found where it happened, not three levels later.
//!
//! Numerics: exact; nothing changes.
//!
//! ```text
//! before:  module attributes {kiln.level = "prims"} { … kiln.linear … }
//! after:   error: 'kiln.linear' op is not an op of level prims
//! ```
use crate::pass::{Numerics, Pass, check_level, level_of};
use kiln_dialects::{
    Result,
    ir::{Attr, Op},
    rules::{LEVELS, Level},
};

crate::pass_options! {
    /// The pass.
    pub struct VerifyLevel {
        /// The level to verify and to set as kiln.level; empty: the module's kiln.level
        pub level: String = String::new(),
    }
}

impl Pass for VerifyLevel {
    const FLAG: &'static str = "kiln-verify-level";
    const SUMMARY: &'static str = "Verifies that every op is legal at the module's level";
    const LEVELS: &'static [Level] = LEVELS;
    const NUMERICS: Numerics = Numerics::Exact;

    fn run(&self, op: Op) -> Result<()> {
        let level = if self.level.is_empty() {
            level_of(op).ok_or("has no kiln.level, and the option level is empty")?
        } else {
            let names = LEVELS.iter().map(|l| l.name());
            Level::from_name(&self.level).ok_or_else(|| {
                format!(
                    "there is no level '{}'{}",
                    self.level,
                    crate::names::hint(&self.level, names)
                )
            })?
        };
        check_level(op, level)?;
        if !self.level.is_empty() {
            op.set_attr("kiln.level", Attr::string(op.ctx(), level.name()));
        }
        Ok(())
    }
}
