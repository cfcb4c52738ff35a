//! Values that outlined functions rematerialise instead of taking as arguments: sizes, from
//! symbols, and weights. Also finds the arguments that define these symbols.
use crate::analysis::sizes::{SizeBuilder, makes_sizes};
use kiln_dialects::{
    ir::*,
    ops::{BindShape, OpKind, Sym, SymExpr, SymKind},
    sym::{Atom, Dim},
};
use std::collections::HashMap;

/// SSA values of sizes at one insertion point.
pub(crate) struct Sizes<'a> {
    symbols: &'a HashMap<String, Sym>,
    known: HashMap<Dim, Value>,
    b: Builder,
}

impl SizeBuilder for Sizes<'_> {
    type Output = Value;
    fn number(&mut self, n: i64) -> Result<Value> {
        self.b.index(n)
    }
    fn leaf(&mut self, a: &Atom, whole: &Dim) -> Result<Value> {
        let symbol = if let Atom::Sym(name) = a { self.symbols.get(name) } else { None };
        let symbol = symbol.ok_or_else(|| {
            format!("has a size that nothing names ({whole}); kiln.bind_shape on an argument would")
        })?;
        let made = self.b.create_with(symbol, &[Type::index(self.b.ctx)], &mut [])?.result(0);
        self.known.insert(Dim::atom(a.clone()), made);
        Ok(made)
    }
    fn apply(&mut self, kind: SymKind, lhs: Value, rhs: Value) -> Result<Value> {
        Ok(self
            .b
            .create_with(&SymExpr { kind, lhs, rhs }, &[Type::index(self.b.ctx)], &mut [])?
            .result(0))
    }
    fn cached(&self, d: &Dim) -> Option<Value> {
        self.known.get(d).copied()
    }
    fn cache(&mut self, d: &Dim, made: Value) {
        self.known.insert(d.clone(), made);
    }
}

impl<'a> Sizes<'a> {
    pub fn new(symbols: &'a HashMap<String, Sym>, b: Builder) -> Sizes<'a> {
        Sizes { symbols, known: HashMap::new(), b }
    }
    pub fn size(&mut self, d: &Dim) -> Result<Size> {
        d.known().map_or_else(|| self.build(d).map(Size::Dynamic), |n| Ok(Size::Static(n)))
    }
    /// Binds the sizes of a value to its symbols.
    pub fn bind(&mut self, value: Value, dims: &[Dim], at: Builder) -> Result<()> {
        let open = value.ty().dims().iter().any(|d| d.known().is_none());
        if open {
            let sizes = dims.iter().map(|d| self.size(d)).collect::<Result<_, _>>()?;
            at.create_with(&BindShape { value, sizes }, &[], &mut [])?;
        }
        Ok(())
    }
}

/// Adds arguments of the whole program that define symbols which no input has as a size.
pub(crate) fn carry_symbols(
    needed: &[Dim],
    args: &[Value],
    dims: &dyn Fn(Value) -> Vec<Dim>,
    inputs: &mut Vec<Value>,
) {
    let mut symbols: Vec<&String> = vec![];
    needed.iter().for_each(|d| symbols_of(d, &mut symbols));
    for name in symbols {
        let has = |v: &Value| dims(*v).contains(&Dim::sym(name));
        if !inputs.iter().any(has)
            && let Some(arg) = args.iter().copied().find(has)
        {
            inputs.push(arg);
        }
    }
}

fn symbols_of<'a>(d: &'a Dim, all: &mut Vec<&'a String>) {
    for a in d.atoms() {
        match a {
            Atom::Sym(name) if !all.contains(&name) => all.push(name),
            Atom::Op(_, args) => [&args.0, &args.1].into_iter().for_each(|d| symbols_of(d, all)),
            _ => {}
        }
    }
}

/// Erases sizes and weights that only outlined functions used.
pub(crate) fn clean(func: Op, mark: Op) {
    for op in walk(func).into_iter().rev() {
        let made = makes_sizes(op) || is_memory(op) || op == mark;
        if made && op.result_count() > 0 && op.results().iter().all(|v| v.uses().is_empty()) {
            op.erase();
        }
    }
}

/// Whether an op can be rematerialised in every function: a weight or a literal.
pub(crate) fn is_memory(op: Op) -> bool {
    matches!(op.kind(), Some(OpKind::Constant | OpKind::GetGlobal))
        || op.isa::<arith::Constant>() && !op.result(0).ty().is_index()
}
