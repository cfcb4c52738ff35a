//! `kiln-simplify`: algebraic identities, constant folding, and movement ops that cancel or sink.
//!
//! Why: captured graphs and expansions are full of them, and fusion decides better without them.
//! Upstream's canonicalize has no patterns for kiln's ops, and folding needs the reference
//! semantics, which are in Rust.
//!
//! Numerics: exact. Every pattern is bitwise exact for NaN, infinities and signed zeros: `x + -0.0`
//! is `x`, `x + 0.0` is not. Folding rounds as the op would. NaN payloads are not preserved.
//!
//! Rules for patterns: never more ops, never more bytes moved; match only the op and the
//! definitions of its operands, or a tree of ops that have one user; rewrite in one direction, so
//! that the set terminates; sink a movement op only if it has one user.
//!
//! ```text
//! before:  %0 = kiln.transpose %x permutation = [1, 0] …  %1 = kiln.exp %0 …  %2 = kiln.transpose %1 permutation = [1, 0]
//! after:   %2 = kiln.exp %x
//! ```
mod heads;
mod identities;
mod masks;
mod moves;
mod pads;
mod sink;
pub(crate) mod splats;

use crate::pass::{Numerics, Pass};
use kiln_dialects::{
    interp,
    ir::*,
    ops::{Constant, OpKind},
    rules::{CONSTANT_LIMIT, GRAPH_LEVELS, Level, tensor_type},
    value::Tensor,
};
use std::rc::Rc;

crate::pass_options! {
    /// The pass.
    pub struct Simplify {
        /// Most elements of a folded constant; 0 disables folding
        pub fold_limit: usize = 1024,
        /// Most rounds over the IR
        pub rounds: usize = 16,
    }
}

impl Pass for Simplify {
    const FLAG: &'static str = "kiln-simplify";
    const SUMMARY: &'static str =
        "Applies algebraic identities, folds constants, and cancels or sinks movement ops";
    const LEVELS: &'static [Level] = GRAPH_LEVELS;
    const NUMERICS: Numerics = Numerics::Exact;

    fn run(&self, root: Op) -> Result<()> {
        let patterns = [
            heads::PATTERNS,
            identities::PATTERNS,
            moves::PATTERNS,
            pads::PATTERNS,
            sink::PATTERNS,
        ]
        .concat();
        // Masks first: folding would turn a small mask into data.
        apply_patterns(root, masks::PATTERNS, self.rounds)?;
        for _ in 0..self.rounds {
            let folded = self.fold(root)?;
            let rewritten = apply_patterns(root, &patterns, self.rounds)?;
            if folded + rewritten == 0 {
                break;
            }
        }
        Ok(())
    }
}

impl Simplify {
    /// Folds ops with constant operands in program order, so that chains fold in one round.
    fn fold(&self, root: Op) -> Result<usize> {
        let mut count = 0;
        for op in walk(root) {
            let Some(value) = self.folded(op) else { continue };
            let builder = Builder::before(op).ok_or_at(op, "is in no block")?;
            let node = Constant { value };
            let constant = builder.create_with(&node, &[op.result(0).ty()], &mut []).at(op)?;
            op.result(0).replace_uses(constant.result(0));
            op.erase();
            count += 1;
        }
        Ok(count)
    }

    fn folded(&self, op: Op) -> Option<Attr> {
        let kind = op.kind()?;
        // Splats and constants are folded already, and random ops must stay ops.
        let skip = matches!(
            kind,
            OpKind::Splat
                | OpKind::Constant
                | OpKind::RandomBits
                | OpKind::RandomUniform
                | OpKind::RandomNormal
        );
        if skip || !kind.is_inferred() || op.result_count() != 1 || !op.regions().is_empty() {
            return None;
        }
        let fits = |v: Value| -> Option<bool> {
            let t = tensor_type(v.ty()).ok()?;
            let count = t
                .dims
                .iter()
                .try_fold(1usize, |n, d| n.checked_mul(usize::try_from(d.known()?).ok()?))?;
            Some(count <= self.fold_limit && count * t.dtype.byte_size() <= CONSTANT_LIMIT)
        };
        if !fits(op.result(0))? {
            return None;
        }
        let mut operands = vec![];
        for v in op.operands() {
            if !fits(v)? {
                return None;
            }
            operands.push(Some(Rc::new(constant_value(v)?)));
        }
        // An op that fails on these values stays: the error belongs to run time.
        let mut results = interp::evaluate(op, &operands).ok()?;
        Attr::dense(op.ctx(), &results.pop()?).ok()
    }
}

/// The value of a constant or of a static splat.
fn constant_value(v: Value) -> Option<Tensor> {
    let op = v.def()?;
    match op.kind()? {
        OpKind::Constant => op.attr("value")?.as_tensor().ok(),
        OpKind::Splat => interp::evaluate(op, &[]).ok()?.pop(),
        _ => None,
    }
}
