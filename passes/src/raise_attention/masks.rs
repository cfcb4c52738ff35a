//! Elementwise terms in the forms in which kernels look for masks: -inf on the right of a select,
//! the key on the left of a comparison with the query.
use crate::raise_attention::{
    place::Place,
    score::{Planned, Score, Term},
};
use kiln_dialects::{ir::*, ops::*, value::DType};

impl Score<'_> {
    /// An elementwise op on terms.
    pub(super) fn apply(&mut self, op: Op, all: &[usize], d: DType) -> Planned {
        if let Some(o) = Compare::of(op) {
            return self.compare(o.kind, all[0], all[1]);
        }
        match (op.kind().ok_or("is no op")?, all) {
            (OpKind::Select, [c, x, y]) => self.select([*c, *x, *y], d),
            // x + (c ? 0 : -inf)
            (OpKind::Add, [x, y]) => match (self.additive_mask(*x), self.additive_mask(*y)) {
                (_, Some([c, low])) => self.select([c, *x, low], d),
                (Some([c, low]), _) => self.select([c, *y, low], d),
                _ => self.push(Term::Apply(op, all.to_vec()), d),
            },
            (kind @ (OpKind::And | OpKind::Or), all) if d == DType::I1 => {
                self.push(Term::Logic(kind, all.to_vec()), d)
            }
            (OpKind::Not, [x]) if d == DType::I1 => self.not(*x),
            _ => self.push(Term::Apply(op, all.to_vec()), d),
        }
    }

    fn is_number(&self, n: usize, number: f64) -> bool {
        matches!(self.terms[n].0, Term::Float(x) if x == number)
    }

    /// The condition and -inf, if the term is 0 where the condition holds and -inf elsewhere.
    fn additive_mask(&self, n: usize) -> Option<[usize; 2]> {
        let Term::Select([c, x, y]) = self.terms[n].0 else { return None };
        (self.is_number(x, 0.0) && self.is_number(y, f64::NEG_INFINITY)).then_some([c, y])
    }

    /// With -inf on the right, where kernels look for masks.
    fn select(&mut self, [c, x, y]: [usize; 3], d: DType) -> Planned {
        if self.is_number(x, f64::NEG_INFINITY) && !self.is_number(y, f64::NEG_INFINITY) {
            let c = self.not(c)?;
            return self.push(Term::Select([c, y, x]), d);
        }
        let is = |n: usize, bit: i64| matches!(self.terms[n].0, Term::Int(i) if i == bit);
        match d {
            DType::I1 if is(x, 1) && is(y, 0) => Ok(c),
            DType::I1 if is(x, 0) && is(y, 1) => self.not(c),
            _ => self.push(Term::Select([c, x, y]), d),
        }
    }

    fn not(&mut self, n: usize) -> Planned {
        match self.terms[n].0.clone() {
            Term::Compare(kind, x, y) if !self.terms[x].1.is_float() => {
                self.compare(inverse(kind), x, y)
            }
            Term::Logic(OpKind::Not, all) => Ok(all[0]),
            Term::Logic(kind @ (OpKind::And | OpKind::Or), all) => {
                let all = all.iter().map(|x| self.not(*x)).collect::<Result<Vec<_>, _>>()?;
                let dual = if kind == OpKind::And { OpKind::Or } else { OpKind::And };
                self.push(Term::Logic(dual, all), DType::I1)
            }
            _ => self.push(Term::Logic(OpKind::Not, vec![n]), DType::I1),
        }
    }

    /// With the key on the left of a comparison with the query.
    fn compare(&mut self, kind: CompareKind, x: usize, y: usize) -> Planned {
        let is = |n: usize, place: Place| matches!(&self.terms[n].0, Term::Index(p) if *p == place);
        if is(x, Place::Query) && is(y, Place::Key) {
            return self.push(Term::Compare(swapped(kind), y, x), DType::I1);
        }
        self.push(Term::Compare(kind, x, y), DType::I1)
    }
}

fn inverse(kind: CompareKind) -> CompareKind {
    use CompareKind::*;
    match kind {
        Eq => Ne,
        Ne => Eq,
        Lt => Ge,
        Le => Gt,
        Gt => Le,
        Ge => Lt,
    }
}

fn swapped(kind: CompareKind) -> CompareKind {
    use CompareKind::*;
    match kind {
        Lt => Gt,
        Le => Ge,
        Gt => Lt,
        Ge => Le,
        same => same,
    }
}
