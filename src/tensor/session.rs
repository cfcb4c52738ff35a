//! What a trace knows of the call that a function is compiled for: the sizes of this call, and what
//! was decided by them.
use super::OpError;
use crate::{capture::storage::Alias, nn::parameter::Stored};
use kiln_dialects::{
    ir::Op,
    ops::CompareKind,
    sym::{self, Atom},
};
use std::{collections::HashMap, sync::Arc};

/// A comparison of sizes that holds for this call, and that others have to meet.
#[derive(Clone, Debug)]
pub(crate) struct Assumed {
    pub kind: CompareKind,
    pub lhs: sym::Dim,
    pub rhs: sym::Dim,
    /// Where it comes from.
    pub text: String,
    /// Whether the function itself compares, so that another answer is another way through it; else
    /// an op takes the sizes to be so.
    pub asked: bool,
}

/// Why a graph ends before its function does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// A value is read.
    Read,
    /// A function is called that [`disable`](crate::disable) keeps out.
    Disabled,
}

impl Why {
    /// What stands for an op in the error.
    pub fn op(self) -> &'static str {
        match self {
            Why::Read => "read",
            Why::Disabled => "disable",
        }
    }
    /// Of the error of a graph that has ended.
    pub fn of(e: &OpError) -> Why {
        if e.op == Why::Disabled.op() { Why::Disabled } else { Why::Read }
    }
    /// What people are told.
    pub fn text(self) -> &'static str {
        match self {
            Why::Read => "a value is read",
            Why::Disabled => "a function is called that kiln::disable keeps out of graphs",
        }
    }
}

/// What an input behind the arguments is.
#[derive(Clone)]
pub(crate) enum Lifted {
    Weight(Arc<Stored>),
    /// A number among the arguments, by its leaf, as a tensor without dimensions.
    Number(usize),
    /// The same as a size: a tensor of bytes without elements, of this number of columns, since
    /// programs read sizes off tensors.
    Size(usize),
}

/// A number among the arguments.
#[derive(Clone, Default)]
pub(crate) struct NumberArgument {
    /// The name of the leaf.
    pub name: String,
    /// The symbol that it is as a size, if it may be one.
    pub symbol: Option<String>,
    /// The input that it is, if it was used.
    pub input: Option<Alias>,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Session {
    /// Values of symbols in this call.
    pub hints: HashMap<String, i64>,
    pub assumed: Vec<Assumed>,
    /// Weights in order of first use. With a version they are part of the program, and are not to
    /// be changed; without they are inputs, behind the arguments.
    pub weights: Vec<(Arc<Stored>, Option<u64>, Alias)>,
    /// Inputs behind the arguments, in order.
    pub lifted: Vec<Lifted>,
    /// Numbers among the arguments that are not part of the program, by their leaves.
    pub numbers: HashMap<usize, NumberArgument>,
    /// Such numbers that are part of it after all, with reasons.
    pub taken: Vec<(usize, String)>,
    /// Whether all weights are part of the program.
    pub freeze: bool,
    /// The first read of a value.
    pub read: Option<OpError>,
}

impl Session {
    pub(super) fn value(&self, d: &sym::Dim) -> Option<i64> {
        d.evaluate(&|a| if let Atom::Sym(name) = a { self.hints.get(name).copied() } else { None })
    }
    fn keep(
        &mut self,
        kind: CompareKind,
        lhs: &sym::Dim,
        rhs: &sym::Dim,
        text: String,
        asked: bool,
    ) {
        if !self.assumed.iter().any(|a| (a.kind, &a.lhs, &a.rhs) == (kind, lhs, rhs)) {
            self.assumed.push(Assumed { kind, lhs: lhs.clone(), rhs: rhs.clone(), text, asked });
        }
    }
    /// What a comparison gives for this call; it is a guard then. None: a size is not known before
    /// the call.
    pub(super) fn decide(
        &mut self,
        kind: CompareKind,
        lhs: &sym::Dim,
        rhs: &sym::Dim,
    ) -> Option<bool> {
        let holds = sym::holds(kind, self.value(lhs)?, self.value(rhs)?);
        let kept = if holds { kind } else { sym::opposite(kind) };
        self.keep(kept, lhs, rhs, "a comparison of sizes in the function".into(), true);
        Some(holds)
    }
    /// The number that a size is in this call; that it is so is a guard then.
    pub(super) fn specialise(&mut self, d: &sym::Dim) -> Option<i64> {
        let n = self.value(d)?;
        self.keep(
            CompareKind::Eq,
            d,
            &sym::Dim::Known(n),
            "a size that the function takes as a number".into(),
            true,
        );
        Some(n)
    }
    /// Sizes that an op takes to be equal. Err: they are not in this call.
    pub(super) fn assume(
        &mut self,
        pairs: Vec<(sym::Dim, sym::Dim)>,
        op: Op,
    ) -> Result<(), String> {
        for (a, b) in pairs {
            // A size that depends on data is not known before the call.
            let (Some(x), Some(y)) = (self.value(&a), self.value(&b)) else { continue };
            if x != y {
                return Err(format!(
                    "'{}' op has sizes {a} and {b}, which are {x} and {y}",
                    op.name()
                ));
            }
            let place = op
                .loc()
                .place()
                .map_or(String::new(), |(file, line, _)| format!(" at {file}:{line}"));
            self.keep(CompareKind::Eq, &a, &b, format!("{}{place}", op.name()), false);
        }
        Ok(())
    }
}
