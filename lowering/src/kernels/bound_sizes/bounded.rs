//! Which sizes become their bounds.
use kiln_dialects::{
    ir::*,
    ops::{Sym, SymKind, UnbackedSize},
    rules::{Sizes as _, UNBOUNDED},
    sym::{Atom, Dim},
};
use kiln_passes::refine_shapes::Facts;
use std::collections::{HashMap, HashSet};

/// The sizes of a function that become their bounds.
pub(super) struct Bounded<'a> {
    pub(super) facts: &'a Facts,
    /// All unbacked sizes.
    unbacked: HashSet<String>,
    pub(super) chosen: HashMap<String, Unbacked>,
    /// Most rows or terms of a product.
    pub(super) rows: i64,
}

/// An unbacked size and its upper bound.
pub(super) struct Unbacked {
    pub(super) op: Op,
    /// Its value, a 0-d i64.
    pub(super) value: Value,
    bound: Dim,
}

impl<'a> Bounded<'a> {
    /// Begins with all unbacked sizes of a block that have a bound and no least value, which only
    /// a call that reads them checks.
    pub(super) fn of(func: Op, block: Block, facts: &'a Facts, rows: i64) -> Bounded<'a> {
        let symbols: Vec<(Op, Sym)> =
            walk(func).into_iter().filter_map(|o| Some((o, Sym::of(o)?))).collect();
        let (mut unbacked, mut chosen) = (HashSet::new(), HashMap::new());
        let mut earlier = HashSet::new();
        for op in block.ops() {
            earlier.insert(op);
            let Some(o) = UnbackedSize::of(op) else { continue };
            unbacked.insert(o.name.clone());
            let bound = o.max.first().map_or(Dim::Unknown, |max| facts.size(max));
            let free = symbols.iter().filter(|(_, s)| s.name == o.name).all(|(at, s)| {
                s.min <= 0 && s.divisor == 1 && at.block() == Some(block) && !earlier.contains(at)
            });
            let bounded = !matches!(bound, Dim::Unknown | Dim::Known(UNBOUNDED));
            if free && bounded && op.result(0).uses().is_empty() {
                chosen.insert(o.name, Unbacked { op, value: o.value, bound });
            }
        }
        Bounded { facts, unbacked, chosen, rows }
    }

    /// Leaves out sizes until every op has a rule for what is left.
    pub(super) fn choose(&mut self, block: Block) {
        loop {
            let mut refused = HashSet::new();
            for op in block.ops().into_iter().filter(|op| !self.supports(*op)) {
                self.dims(op).iter().for_each(|d| self.names(d, &mut refused));
            }
            // The bound of a size must be known before the call.
            let late = |n: &String| self.unbacked.contains(n) && !self.chosen.contains_key(n);
            let depends = |u: &Unbacked| symbols(&u.bound).iter().any(late);
            refused.extend(self.chosen.iter().filter(|(_, u)| depends(u)).map(|(n, _)| n.clone()));
            if refused.is_empty() {
                break;
            }
            self.chosen.retain(|name, _| !refused.contains(name));
        }
    }

    /// The sizes that an op and those inside of it read or state.
    pub(super) fn dims(&self, op: Op) -> Vec<Dim> {
        let values = walk(op).into_iter().flat_map(|o| [o.operands(), o.results()].concat());
        values.flat_map(|v| self.of_value(v)).collect()
    }

    /// The dimensions of a tensor, or the value of a size.
    pub(super) fn of_value(&self, v: Value) -> Vec<Dim> {
        match v.ty().is_index() {
            true => vec![self.facts.size_value(v)],
            false => self.facts.dims(v).to_vec(),
        }
    }

    /// Adds the chosen sizes that a size depends on.
    fn names(&self, d: &Dim, to: &mut HashSet<String>) {
        to.extend(symbols(d).into_iter().filter(|n| self.chosen.contains_key(n)));
    }

    /// Whether a size depends on a chosen one.
    pub(super) fn reads(&self, d: &Dim) -> bool {
        symbols(d).iter().any(|n| self.chosen.contains_key(n))
    }

    /// The dimensions of a value that depend on chosen sizes.
    pub(super) fn padded(&self, v: Value) -> Vec<usize> {
        let dims = self.facts.dims(v).iter().enumerate();
        dims.filter(|(_, d)| self.reads(d)).map(|(axis, _)| axis).collect()
    }

    /// A size at the bounds of the chosen ones; `None` if it may be less than at smaller ones.
    pub(super) fn at_bound(&self, d: &Dim) -> Option<Dim> {
        if !self.reads(d) {
            return Some(d.clone());
        }
        let mut sum = Dim::Known(0);
        for (factors, n) in d.terms() {
            let mut term = Dim::Known(n);
            for a in factors {
                let whole = Dim::atom(a.clone());
                if self.reads(&whole) && n < 0 {
                    return None;
                }
                term = term.mul(&self.factor_at_bound(&a)?);
            }
            sum = sum.add(&term);
        }
        (sum != Dim::Unknown).then_some(sum)
    }

    fn factor_at_bound(&self, a: &Atom) -> Option<Dim> {
        match a {
            Atom::Sym(name) => match self.chosen.get(name) {
                Some(u) => self.at_bound(&u.bound),
                None => Some(Dim::atom(a.clone())),
            },
            Atom::Opaque(..) => Some(Dim::atom(a.clone())),
            Atom::Op(kind, args) => {
                let grows = match kind {
                    SymKind::Add | SymKind::Mul | SymKind::Min | SymKind::Max => true,
                    SymKind::Floordiv => !self.reads(&args.1),
                    SymKind::Mod | SymKind::Pow => {
                        [&args.0, &args.1].iter().all(|d| !self.reads(d))
                    }
                };
                let (lhs, rhs) = (self.at_bound(&args.0)?, self.at_bound(&args.1)?);
                grows.then(|| Dim::apply(*kind, &lhs, &rhs))
            }
        }
    }
}

/// The symbols in a size.
fn symbols(d: &Dim) -> Vec<String> {
    let of = |a: &Atom| match a {
        Atom::Sym(name) => vec![name.clone()],
        Atom::Opaque(..) => vec![],
        Atom::Op(_, args) => [symbols(&args.0), symbols(&args.1)].concat(),
    };
    d.atoms().into_iter().flat_map(of).collect()
}
