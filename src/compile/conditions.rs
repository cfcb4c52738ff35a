//! Conditions that a trace assumed, as guards.
use crate::{
    dialects::{
        Result,
        ops::{CompareKind, SymKind},
        sym::{Atom, Dim as SymDim},
    },
    lowering::{
        analysis::sizes::SizeBuilder,
        program::slots::{expr_kind, relation},
    },
    runtime::{
        Guards,
        program::{Dim, Expr},
    },
    tensor::Session,
};
use std::collections::HashMap;

/// Adds the conditions assumed during the trace to the guards.
pub(super) fn add_assumptions(guards: &mut Guards, session: &Session) -> Result<()> {
    let names: Vec<String> = guards.symbols.iter().map(|s| s.name.clone()).collect();
    let mut sizes = Sizes { names, exprs: vec![], known: HashMap::new() };
    for a in &session.assumptions {
        let (lhs, rhs) = (sizes.build(&a.lhs)?, sizes.build(&a.rhs)?);
        let sign = match a.kind {
            CompareKind::Eq => "==",
            CompareKind::Ne => "!=",
            CompareKind::Lt => "<",
            CompareKind::Le => "<=",
            CompareKind::Gt => ">",
            CompareKind::Ge => ">=",
        };
        guards.condition(
            relation(a.kind),
            lhs,
            rhs,
            format!("{} {sign} {} ({})", a.lhs, a.rhs, a.text),
        );
    }
    guards.exprs = sizes.exprs;
    Ok(())
}

/// Size expressions as plain data.
struct Sizes {
    names: Vec<String>,
    exprs: Vec<Expr>,
    known: HashMap<SymDim, Dim>,
}

impl SizeBuilder for Sizes {
    type Output = Dim;
    fn number(&mut self, n: i64) -> Result<Dim> {
        Ok(Dim::Known(n))
    }
    fn leaf(&mut self, a: &Atom, whole: &SymDim) -> Result<Dim> {
        let Atom::Sym(name) = a else { return Err(format!("depends on data ({whole})").into()) };
        self.names
            .iter()
            .position(|n| n == name)
            .map(Dim::Symbol)
            .ok_or_else(|| format!("has the symbol {name}, which no argument has").into())
    }
    fn apply(&mut self, kind: SymKind, lhs: Dim, rhs: Dim) -> Result<Dim> {
        self.exprs.push(Expr { kind: expr_kind(kind), lhs, rhs });
        Ok(Dim::Expr(self.exprs.len() - 1))
    }
    fn cached(&self, d: &SymDim) -> Option<Dim> {
        self.known.get(d).copied()
    }
    fn cache(&mut self, d: &SymDim, made: Dim) {
        self.known.insert(d.clone(), made);
    }
}
