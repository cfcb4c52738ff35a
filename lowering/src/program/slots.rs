//! The slots of a host function's argument array, and the size expressions of its program.
use crate::analysis::sizes::SizeBuilder;
use kiln_dialects::{
    ir::*,
    ops::{self, BindShape, GetGlobal, SymKind},
    sym::{Atom, Dim as SymDim},
};
use kiln_runtime::{program as p, program::Dim};
use std::collections::HashMap;

/// Layout of a host function's argument array: 64-bit words, pointers first.
pub struct Slots {
    inputs: usize,
    outputs: usize,
    /// Names of the globals, in order of first use.
    pub globals: Vec<String>,
    /// Symbols: name, and the argument and dimension it is read from.
    pub symbols: Vec<(String, usize, usize)>,
}

impl Slots {
    /// Derives the layout from a host function.
    pub fn of(func: Op) -> Result<Slots> {
        let block = func.regions().first().and_then(|r| r.first()).ok_or_at(func, "has no body")?;
        let end = block.terminator().ok_or_at(func, "has no return")?;
        let args = block.args();
        let mut s = Slots {
            inputs: args.len(),
            outputs: end.operand_count(),
            globals: vec![],
            symbols: vec![],
        };
        let place = |v: Value| args.iter().position(|a| *a == v);
        for op in block.ops() {
            if let Some(g) = GetGlobal::of(op).filter(|g| !s.globals.contains(&g.global)) {
                s.globals.push(g.global);
            } else if let Some(b) = BindShape::of(op) {
                let Some(input) = place(b.value) else { continue };
                for (dim, size) in b.sizes.iter().enumerate() {
                    let Size::Dynamic(v) = size else { continue };
                    if let Some(sym) = v
                        .def()
                        .and_then(ops::Sym::of)
                        .filter(|sym| s.symbols.iter().all(|(n, ..)| *n != sym.name))
                    {
                        s.symbols.push((sym.name, input, dim));
                    }
                }
            } else if let Some(d) = ops::Dim::of(op) {
                let input =
                    place(d.input).ok_or_at(op, "takes the size of a value that is no argument")?;
                let name = dim_name(input, d.axis as usize);
                if s.symbols.iter().all(|(n, ..)| *n != name) {
                    s.symbols.push((name, input, d.axis as usize));
                }
            }
        }
        Ok(s)
    }
    /// The slot of the arena pointer.
    pub const ARENA: usize = 0;
    /// The slot of the pointer to the call's [`kiln_runtime::profile::Profile`]; null without a
    /// profile.
    pub const PROFILE: usize = 1;
    const FIRST: usize = 2;
    /// The slot of argument `i`.
    pub fn input(&self, i: usize) -> usize {
        Self::FIRST + i
    }
    /// The slot of result `i`.
    pub fn output(&self, i: usize) -> usize {
        self.input(self.inputs) + i
    }
    /// The slot of a global, if it has one.
    pub fn global(&self, name: &str) -> Option<usize> {
        self.globals.iter().position(|g| g == name).map(|i| self.output(self.outputs) + i)
    }
    /// The slot of a symbol, if it has one.
    pub fn symbol(&self, name: &str) -> Option<usize> {
        self.symbols
            .iter()
            .position(|(n, ..)| n == name)
            .map(|i| self.output(self.outputs) + self.globals.len() + i)
    }
}

/// The generated name of a dynamic dimension without a symbol.
pub fn dim_name(input: usize, axis: usize) -> String {
    format!("input_{input}.{axis}")
}

/// Size expressions of a [`Program`](kiln_runtime::program::Program).
pub struct Sizes<'a> {
    /// The slots of the host function.
    pub slots: &'a Slots,
    /// Names of the sizes that are read between programs.
    pub unbacked: Vec<String>,
    /// The expressions so far.
    pub exprs: Vec<p::Expr>,
    /// Sizes that have a form already.
    pub known: HashMap<SymDim, Dim>,
}

impl SizeBuilder for Sizes<'_> {
    type Output = Dim;
    fn number(&mut self, n: i64) -> Result<Dim> {
        Ok(Dim::Known(n))
    }
    fn leaf(&mut self, a: &Atom, _: &SymDim) -> Result<Dim> {
        let Atom::Sym(name) = a else { return Err("has a size that no argument states".into()) };
        let found = self.slots.symbols.iter().position(|(n, ..)| n == name);
        let unbacked = || self.unbacked.iter().position(|n| n == name);
        found
            .or_else(|| unbacked().map(|i| self.slots.symbols.len() + i))
            .map(Dim::Symbol)
            .ok_or_else(|| format!("has symbol @{name}, which no argument binds").into())
    }
    fn apply(&mut self, kind: SymKind, lhs: Dim, rhs: Dim) -> Result<Dim> {
        self.exprs.push(p::Expr { kind: expr_kind(kind), lhs, rhs });
        Ok(Dim::Expr(self.exprs.len() - 1))
    }
    fn cached(&self, d: &SymDim) -> Option<Dim> {
        self.known.get(d).copied()
    }
    fn cache(&mut self, d: &SymDim, made: Dim) {
        self.known.insert(d.clone(), made);
    }
}

/// The kind of a size expression as plain data.
pub fn expr_kind(kind: SymKind) -> p::ExprKind {
    match kind {
        SymKind::Add => p::ExprKind::Add,
        SymKind::Mul => p::ExprKind::Mul,
        SymKind::Floordiv => p::ExprKind::FloorDiv,
        SymKind::Mod => p::ExprKind::Mod,
        SymKind::Min => p::ExprKind::Min,
        SymKind::Max => p::ExprKind::Max,
        SymKind::Pow => p::ExprKind::Pow,
    }
}

/// A comparison of sizes as plain data.
pub fn relation(kind: ops::CompareKind) -> p::Relation {
    match kind {
        ops::CompareKind::Eq => p::Relation::Eq,
        ops::CompareKind::Ne => p::Relation::Ne,
        ops::CompareKind::Lt => p::Relation::Lt,
        ops::CompareKind::Le => p::Relation::Le,
        ops::CompareKind::Gt => p::Relation::Gt,
        ops::CompareKind::Ge => p::Relation::Ge,
    }
}
