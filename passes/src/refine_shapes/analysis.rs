//! Analysis: the symbolic dimensions of every value of a function. Does not change the IR.
use kiln_dialects::{
    ir::*,
    ops::{self, OpKind, SymKind},
    rules::{Sizes, TensorType, infer, tensor_type},
    sym::{Atom, Bounds, Dim, assumptions},
};
use std::collections::HashMap;

/// Dimensions of tensors, and symbolic values of sizes.
#[derive(Default)]
pub struct Facts {
    tensors: HashMap<Value, Vec<Dim>>,
    sizes: HashMap<Value, Dim>,
    /// Value range of a symbol, by name.
    ranges: HashMap<String, (i64, Option<i64>)>,
    /// A divisor of a symbol, by name.
    divisors: HashMap<String, i64>,
    changed: bool,
}

impl Facts {
    /// Propagates through a function to a fixed point, in at most `rounds` rounds.
    pub fn of(func: Op, rounds: usize) -> Result<Facts> {
        let mut facts = Facts::default();
        for op in walk(func) {
            let args = blocks(op).into_iter().flat_map(|b| b.args());
            args.chain(op.results()).for_each(|v| facts.start(v));
        }
        for _ in 0..rounds {
            facts.changed = false;
            for op in walk(func) {
                facts.visit(op).at(op)?;
            }
            if !facts.changed {
                break;
            }
        }
        Ok(facts)
    }

    /// Adds the facts of one more op, for IR under construction, where facts only flow forwards.
    /// Err: how the op contradicts the facts.
    pub fn extend(&mut self, op: Op) -> Result<()> {
        op.results().into_iter().for_each(|v| self.start(v));
        self.visit(op)
    }
    /// Pairs of sizes that an op requires to be equal without a proof of it.
    pub fn assumed(&self, op: Op) -> Vec<(Dim, Dim)> {
        let Some(view) = op.kind().filter(|k| k.is_inferred()).and_then(|_| View::of(op)) else {
            return vec![];
        };
        assumptions(|| infer(&view, self)).1
    }
    /// Adds a block argument.
    pub fn argument(&mut self, v: Value) {
        self.start(v);
    }
    /// The dimensions of a tensor; empty for other values.
    pub fn dims(&self, v: Value) -> &[Dim] {
        self.tensors.get(&v).map_or(&[], Vec::as_slice)
    }
    /// The symbolic value of a size.
    pub fn size_value(&self, v: Value) -> Dim {
        self.sizes.get(&v).cloned().unwrap_or(Dim::Unknown)
    }

    /// Initial fact: each dynamic dimension is a fresh unknown.
    fn start(&mut self, v: Value) {
        let id = self.tensors.len() + self.sizes.len();
        let initial = |(axis, d): (usize, Dim)| {
            if d == Dim::Unknown { Dim::atom(Atom::Opaque(id, axis)) } else { d }
        };
        if v.ty().is_tensor() {
            self.tensors.insert(v, v.ty().dims().into_iter().enumerate().map(initial).collect());
        } else if v.ty().is_index() {
            // A size argument is a symbol; dimensions are rather expressed by it than by fresh
            // unknowns.
            let symbol = v.block_arg().map(|(_, i)| Dim::sym(&format!("%{i}")));
            self.sizes.insert(v, symbol.unwrap_or_else(|| Dim::atom(Atom::Opaque(id, 0))));
        }
    }

    /// Records the dimensions of a tensor.
    fn record(&mut self, v: Value, dims: &[Dim]) -> Result<()> {
        let Some(old) = self.tensors.get_mut(&v) else { return Ok(()) };
        for (i, (have, new)) in old.iter_mut().zip(dims).enumerate() {
            if have.differs(new) {
                return Err(
                    format!("has contradicting sizes {have} and {new} in dimension {i}").into()
                );
            }
            if rank(new) > rank(have) {
                *have = new.clone();
                self.changed = true;
            }
        }
        Ok(())
    }

    /// As [`Facts::record`], but keeps computed sizes: that they are equal is an assumption, which
    /// [`Facts::assumed`] has to find.
    fn record_back(&mut self, v: Value, dims: &[Dim]) -> Result<()> {
        let computed = |have: &Dim| rank(have) == COMPUTED;
        let kept = |(have, new): (&Dim, &Dim)| if computed(have) { have } else { new }.clone();
        let dims: Vec<Dim> = self.dims(v).iter().zip(dims).map(kept).collect();
        self.record(v, &dims)
    }

    /// A min or max that the ranges of its symbols decide.
    fn fold_min_max(&self, kind: SymKind, x: &Dim, y: &Dim) -> Option<Dim> {
        let (small, great) = match kind {
            SymKind::Min => (true, false),
            SymKind::Max => (false, true),
            _ => return None,
        };
        let at_most = |a: &Dim, b: &Dim| matches!((self.bounds(a).1, self.bounds(b).0), (Some(high), Some(low)) if high <= low);
        if at_most(x, y) {
            return Some(if small { x.clone() } else { y.clone() });
        }
        at_most(y, x).then(|| if great { x.clone() } else { y.clone() })
    }

    /// The range of a size, from the ranges of its symbols.
    pub fn bounds(&self, d: &Dim) -> Bounds {
        d.bounds(&|a| match a {
            Atom::Sym(name) => {
                self.ranges.get(name).map_or((Some(0), None), |(min, max)| (Some(*min), *max))
            }
            _ => (None, None),
        })
    }

    /// The greatest known divisor of a size.
    pub fn divisor(&self, d: &Dim) -> i64 {
        d.divisor(&|a| {
            if let Atom::Sym(name) = a { self.divisors.get(name).copied().unwrap_or(1) } else { 1 }
        })
    }

    fn visit(&mut self, op: Op) -> Result<()> {
        let Some(kind) = op.kind() else {
            if op.isa::<tensor::Empty>() {
                let mut dynamic = op.operands().into_iter();
                let size = |d: Dim| {
                    if d == Dim::Unknown {
                        dynamic.next().map_or(Dim::Unknown, |v| self.size_value(v))
                    } else {
                        d
                    }
                };
                let dims: Vec<Dim> = op.result(0).ty().dims().into_iter().map(size).collect();
                self.record(op.result(0), &dims)?;
            }
            if op.isa::<arith::Constant>() && op.result(0).ty().is_index() {
                let value =
                    op.attr("value").and_then(Attr::as_i64).map_or(Dim::Unknown, Dim::Known);
                self.sizes.insert(op.result(0), value);
            }
            return Ok(());
        };
        match kind {
            OpKind::Sym => {
                let o = ops::Sym::of(op).ok_or_malformed(op)?;
                self.sizes.insert(
                    op.result(0),
                    if o.max == Some(o.min) { Dim::Known(o.min) } else { Dim::sym(&o.name) },
                );
                self.divisors.insert(o.name.clone(), o.divisor);
                self.ranges.insert(o.name, (o.min, o.max));
            }
            OpKind::SymExpr => {
                let o = ops::SymExpr::of(op).ok_or_malformed(op)?;
                let (x, y) = (self.size_value(o.lhs), self.size_value(o.rhs));
                let value = match self.fold_min_max(o.kind, &x, &y) {
                    Some(value) => value,
                    None => Dim::apply(o.kind, &x, &y),
                };
                if value != Dim::Unknown {
                    self.sizes.insert(op.result(0), value);
                }
            }
            OpKind::Dim => {
                let o = ops::Dim::of(op).ok_or_malformed(op)?;
                if let Some(d) = self.dims(o.input).get(o.axis as usize).cloned() {
                    self.sizes.insert(op.result(0), d);
                }
            }
            OpKind::BindShape => {
                let o = ops::BindShape::of(op).ok_or_malformed(op)?;
                self.record(o.value, &self.sizes(&o.sizes))?;
            }
            OpKind::UnbackedSize => {
                let o = ops::UnbackedSize::of(op).ok_or_malformed(op)?;
                self.record(op.result(0), &[Dim::sym(&o.name), Dim::Known(0)])?;
            }
            OpKind::Launch => {
                let o = ops::Launch::of(op).ok_or_malformed(op)?;
                for (out, result) in o.outs.iter().zip(op.results()) {
                    let dims = self.dims(*out).to_vec();
                    self.record(result, &dims)?;
                }
            }
            _ if kind.is_inferred() => {
                let view = View::of(op).ok_or_malformed(op)?;
                let types = infer(&view, self)?;
                for (v, t) in op.results().into_iter().zip(&types) {
                    self.record(v, &t.dims)?;
                }
                if kind.is_elementwise() {
                    // Operands have the result's shape, so facts flow backwards.
                    let dims = self.dims(op.result(0)).to_vec();
                    op.operands().into_iter().try_for_each(|v| self.record_back(v, &dims))?;
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// The precision of an expression over symbols.
const COMPUTED: u8 = 2;

/// Precision of a dimension: unknown, fresh unknown, expression over symbols, symbol, constant.
fn rank(d: &Dim) -> u8 {
    fn named(d: &Dim) -> bool {
        d.atoms().iter().all(|a| match a {
            Atom::Sym(_) => true,
            Atom::Opaque(..) => false,
            Atom::Op(_, args) => named(&args.0) && named(&args.1),
        })
    }
    match d {
        Dim::Unknown => 0,
        Dim::Known(_) => 4,
        // A fresh unknown on its own is what others are compared with.
        Dim::Expr(_)
            if d.atoms()
                .into_iter()
                .any(|a| matches!(a, Atom::Sym(_)) && *d == Dim::atom(Atom::clone(a))) =>
        {
            3
        }
        Dim::Expr(_) if named(d) => COMPUTED,
        Dim::Expr(_) => 1,
    }
}

impl Sizes for Facts {
    fn tensor(&self, v: Value) -> Result<TensorType> {
        let t = tensor_type(v.ty())?;
        Ok(TensorType { dims: self.tensors.get(&v).cloned().unwrap_or(t.dims), ..t })
    }
    fn size(&self, s: &Size) -> Dim {
        match s {
            Size::Static(n) => Dim::Known(*n),
            Size::Dynamic(v) => self.size_value(*v),
        }
    }
}
