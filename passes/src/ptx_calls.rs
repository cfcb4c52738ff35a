//! `kiln-ptx-calls`: a kernel that is given as PTX is launched where the target runs PTX; elsewhere
//! the ops that compute the same take its place.
//!
//! Why: which of both a program needs is known once its target is; behind this pass an op with PTX
//! is one kernel to whoever looks at it, and the ops of its region are ops like others, which fuse.
//!
//! Numerics: as exact as the PTX is the same as the region.
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
    const SUMMARY: &'static str = "Launches PTX where the target runs it, and puts what computes the same in its place elsewhere";
    const LEVELS: &'static [Level] = GRAPH_LEVELS;
    const REQUIRED: bool = true;
    const NUMERICS: Numerics = Numerics::Exact;

    fn run(&self, root: Op) -> Result<()> {
        // One at a time: a region may have calls of its own.
        let next = || {
            walk(root)
                .into_iter()
                .find(|o| PtxCall::of(*o).is_some() && !(self.keep && o.regions().is_empty()))
        };
        while let Some(op) = next() {
            let made = if self.keep { alone(op) } else { inlined(op) }.at(op)?;
            op.results().into_iter().zip(made).for_each(|(old, new)| old.replace_uses(new));
            op.erase();
        }
        Ok(())
    }
}

/// The call without its region.
fn alone(op: Op) -> Result<Vec<Value>> {
    let b = Builder::before(op).ok_or("is in no block")?;
    let types: Vec<Type> = op.results().iter().map(|v| v.ty()).collect();
    Ok(b.create_with(&PtxCall::of(op).ok_or_malformed(op)?, &types, &mut [])?.results())
}

/// The ops of the region in front of the call.
fn inlined(op: Op) -> Result<Vec<Value>> {
    let Some(region) = op.regions().first().copied() else {
        return Err("is PTX alone, which the target does not run: it has neither a function of the host nor a body of ops".into());
    };
    let block = region.first().ok_or("has an empty region")?;
    let end = block.terminator().ok_or("has a region without an end")?;
    let mut map: HashMap<Value, Value> = HashMap::new();
    for inner in block.ops().into_iter().filter(|o| *o != end) {
        let b = Builder::before(op).ok_or("is in no block")?.at(inner.loc());
        let new = b.clone_op(inner, &|v| map.get(&v).copied().unwrap_or(v))?;
        map.extend(inner.results().into_iter().zip(new.results()));
    }
    Ok(end.operands().into_iter().map(|v| map.get(&v).copied().unwrap_or(v)).collect())
}
