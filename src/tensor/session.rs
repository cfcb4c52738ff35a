//! Tracing state of a compiled function's call: size hints, and the assumptions made with them (as
//! the ShapeEnv of PyTorch).
use super::{Array, OpError};
use crate::{capture::storage::Alias, nn::stored::Stored};
use kiln_dialects::{
    Result,
    ir::Op,
    ops::CompareKind,
    sym::{self, Atom},
};
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

/// A comparison of sizes assumed for this call, which becomes a guard.
#[derive(Clone, Debug)]
pub(crate) struct Assumption {
    pub kind: CompareKind,
    pub lhs: sym::Dim,
    pub rhs: sym::Dim,
    /// Its origin.
    pub text: String,
    /// Whether the function's own code compares, so that the other outcome is another path; else an
    /// op requires it.
    pub from_user_code: bool,
}

/// Reason of a graph break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BreakReason {
    /// A value is read.
    Read,
    /// A call of a function excluded by [`disable`](crate::disable).
    Disabled,
}

impl BreakReason {
    /// The op name in the error.
    pub fn op(self) -> &'static str {
        match self {
            BreakReason::Read => "read",
            BreakReason::Disabled => "disable",
        }
    }
    /// The reason of a graph-break error.
    pub(crate) fn from_error(e: &OpError) -> BreakReason {
        if e.op == BreakReason::Disabled.op() { BreakReason::Disabled } else { BreakReason::Read }
    }
    /// The text for the user.
    pub fn text(self) -> &'static str {
        match self {
            BreakReason::Read => "a value is read",
            BreakReason::Disabled => "a function is called that kiln::disable keeps out of graphs",
        }
    }
}

/// An input lifted to after the arguments.
#[derive(Clone)]
pub(crate) enum Lifted {
    Weight(Arc<Stored>),
    /// A concrete tensor that the function reads.
    Array(Arc<Array>),
    /// A number argument, by leaf index, as a 0-d tensor.
    Number(usize),
    /// A number argument as a size: the number of columns of an empty byte tensor, since programs
    /// read sizes from shapes.
    Size(usize),
}

/// A number argument.
#[derive(Clone, Default)]
pub(crate) struct NumberArgument {
    /// Display name of the leaf.
    pub name: String,
    /// Its symbol when used as a size, if it may be symbolic.
    pub symbol: Option<String>,
    /// Its input, if it was used.
    pub input: Option<Alias>,
}

/// See the module documentation.
#[derive(Default)]
pub(crate) struct Session {
    /// Hints: symbol values in this call.
    pub hints: HashMap<String, i64>,
    pub assumptions: Vec<Assumption>,
    /// Weights in order of first use. With a version they are frozen in the program; without, they
    /// are lifted inputs.
    pub weights: Vec<(Arc<Stored>, Option<u64>, Alias)>,
    /// Lifted inputs, in order.
    pub lifted: Vec<Lifted>,
    /// Unspecialised number arguments, by leaf index.
    pub numbers: HashMap<usize, NumberArgument>,
    /// Number arguments specialised after all, with reasons.
    pub specialised_numbers: Vec<(usize, String)>,
    /// Whether to freeze all weights.
    pub freeze: bool,
    /// Whether concrete tensors that the function reads are lifted inputs, not constants.
    pub lift_arrays: bool,
    /// Conversions by [`autocast`](super::autocast): op, from, to; how many tensors.
    pub casts: BTreeMap<(&'static str, &'static str, &'static str), usize>,
    /// The first graph break.
    pub read: Option<OpError>,
}

impl Session {
    pub(super) fn value(&self, d: &sym::Dim) -> Option<i64> {
        d.evaluate(&|a| if let Atom::Sym(name) = a { self.hints.get(name).copied() } else { None })
    }
    fn add_assumption(
        &mut self,
        kind: CompareKind,
        lhs: &sym::Dim,
        rhs: &sym::Dim,
        text: String,
        from_user_code: bool,
    ) {
        if !self.assumptions.iter().any(|a| (a.kind, &a.lhs, &a.rhs) == (kind, lhs, rhs)) {
            self.assumptions.push(Assumption {
                kind,
                lhs: lhs.clone(),
                rhs: rhs.clone(),
                text,
                from_user_code,
            });
        }
    }
    /// Evaluates a comparison for this call, and adds a guard. `None`: a size is data-dependent.
    pub(super) fn decide(
        &mut self,
        kind: CompareKind,
        lhs: &sym::Dim,
        rhs: &sym::Dim,
    ) -> Option<bool> {
        let holds = sym::holds(kind, self.value(lhs)?, self.value(rhs)?);
        let kept = if holds { kind } else { sym::opposite(kind) };
        self.add_assumption(kept, lhs, rhs, "a comparison of sizes in the function".into(), true);
        Some(holds)
    }
    /// Specialises a size on its value in this call, which adds a guard.
    pub(super) fn specialise(&mut self, d: &sym::Dim) -> Option<i64> {
        let n = self.value(d)?;
        self.add_assumption(
            CompareKind::Eq,
            d,
            &sym::Dim::Known(n),
            "a size that the function takes as a number".into(),
            true,
        );
        Some(n)
    }
    /// Sizes that an op requires to be equal. Err: they differ in this call.
    pub(super) fn assume(&mut self, pairs: Vec<(sym::Dim, sym::Dim)>, op: Op) -> Result<()> {
        for (a, b) in pairs {
            // A data-dependent size has no hint.
            let (Some(x), Some(y)) = (self.value(&a), self.value(&b)) else { continue };
            if x != y {
                return Err(format!(
                    "'{}' op has sizes {a} and {b}, which are {x} and {y}",
                    op.name()
                )
                .into());
            }
            let location = op
                .loc()
                .file_line_col()
                .map_or(String::new(), |(file, line, _)| format!(" at {file}:{line}"));
            self.add_assumption(CompareKind::Eq, &a, &b, format!("{}{location}", op.name()), false);
        }
        Ok(())
    }
}
