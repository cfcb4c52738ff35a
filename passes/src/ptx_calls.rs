//! `kiln-ptx-calls`: keeps an external PTX kernel on targets that run PTX, and inlines its
//! reference region on others.
//!
//! Why: which of the two applies depends on the target only. After this pass a PTX call is one
//! opaque kernel, or its region's ops are ordinary ops that fuse.
//!
//! Numerics: those of the PTX; the region is expected to compute the same.
//!
//! ```text
//! before:  %0 = kiln.ptx_call "twice"(%x) … entry = "twice" … : … { %1 = kiln.add %x, %x   kiln.yield %1 }
//! after:   %0 = kiln.add %x, %x                           (keep=true: the call without its region)
//! ```
use crate::pass::{Numerics, Pass};
use kiln_dialects::{
    ir::*,
    ops::PtxCall,
    rules::{GRAPH_LEVELS, Level},
};
use std::collections::HashMap;

crate::pass_options! {
    /// The pass.
    pub struct PtxCalls {
        /// Whether the target runs PTX
        pub keep: bool = false,
    }
}

impl Pass for PtxCalls {
    const FLAG: &'static str = "kiln-ptx-calls";
    const SUMMARY: &'static str =
        "Keeps PTX calls on targets that run PTX, and inlines their region on others";
    const LEVELS: &'static [Level] = GRAPH_LEVELS;
    const REQUIRED: bool = true;
    const NUMERICS: Numerics = Numerics::Exact;

    fn run(&self, root: Op) -> Result<()> {
        // Rescan after each: a region may contain further calls.
        let next = || {
            walk(root)
                .into_iter()
                .find(|o| PtxCall::of(*o).is_some() && !(self.keep && o.regions().is_empty()))
        };
        while let Some(op) = next() {
            let values = if self.keep { without_region(op) } else { inlined(op) }.at(op)?;
            op.results().into_iter().zip(values).for_each(|(old, new)| old.replace_uses(new));
            op.erase();
        }
        Ok(())
    }
}

/// The call without its region.
fn without_region(op: Op) -> Result<Vec<Value>> {
    let b = Builder::before(op).ok_or("is in no block")?;
    let types: Vec<Type> = op.results().iter().map(|v| v.ty()).collect();
    Ok(b.create_with(&PtxCall::of(op).ok_or_malformed(op)?, &types, &mut [])?.results())
}

/// Inlines the region before the call.
fn inlined(op: Op) -> Result<Vec<Value>> {
    let Some(region) = op.regions().first().copied() else {
        return Err(
            "has neither a host function nor a region, and the target does not run PTX".into()
        );
    };
    let block = region.first().ok_or("has an empty region")?;
    let end = block.terminator().ok_or("has a region without a terminator")?;
    let mut map: HashMap<Value, Value> = HashMap::new();
    for inner in block.ops().into_iter().filter(|o| *o != end) {
        let b = Builder::before(op).ok_or("is in no block")?.at(inner.loc());
        let new = b.clone_op(inner, &|v| map.get(&v).copied().unwrap_or(v))?;
        map.extend(inner.results().into_iter().zip(new.results()));
    }
    Ok(end.operands().into_iter().map(|v| map.get(&v).copied().unwrap_or(v)).collect())
}
