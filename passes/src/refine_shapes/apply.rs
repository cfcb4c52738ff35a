//! Rewrite: size operands first, then types, in program order.
use super::analysis::Facts;
use kiln_dialects::{
    ir::*,
    ops::{self, OpKind},
    rules::infer_types,
    sym::Dim,
};
use std::collections::HashMap;

struct Apply<'a> {
    facts: &'a Facts,
    /// The original types, which region ops and calls keep.
    old: HashMap<Value, Type>,
    /// The original value of each new one, whose facts apply.
    origin: HashMap<Value, Value>,
    symbols: Vec<(Dim, Value)>,
    /// Replaced ops, erased at the end: facts are keyed by address, which a new op could reuse.
    dead: Vec<Op>,
}

/// Rewrites one function. `open`: it has no callers, so its signature may change.
pub(super) fn apply(func: Op, facts: &Facts, open: bool) -> Result<()> {
    let ops = walk(func);
    let mut a =
        Apply { facts, old: HashMap::new(), origin: HashMap::new(), symbols: vec![], dead: vec![] };
    for op in &ops {
        let values = blocks(*op).into_iter().flat_map(|b| b.args()).chain(op.results());
        a.old.extend(values.map(|v| (v, v.ty())));
    }
    let entry = func.regions().first().and_then(|r| r.first());
    let Some(entry) = entry else { return Ok(()) };
    if open {
        entry
            .args()
            .into_iter()
            .filter(|v| v.ty().is_tensor())
            .for_each(|v| v.set_ty(a.refined(v)));
    }
    let outcome = ops.into_iter().skip(1).try_for_each(|op| a.visit(op, open).at(op));
    std::mem::take(&mut a.dead).into_iter().rev().for_each(Op::erase);
    outcome?;
    if open {
        let types = |values: Vec<Value>| values.into_iter().map(|v| v.ty()).collect::<Vec<_>>();
        let results = entry.terminator().map_or(vec![], |t| types(t.operands()));
        func.set_attr(
            "function_type",
            Attr::ty(Type::function(func.ctx(), &types(entry.args()), &results)),
        );
    }
    Ok(())
}

impl Apply<'_> {
    /// The value's type with every dimension that is known to be static.
    fn refined(&self, v: Value) -> Type {
        let dims = self.facts.dims(*self.origin.get(&v).unwrap_or(&v));
        let Some(Ok(dtype)) = v.ty().element().map(Type::dtype) else { return v.ty() };
        let merged: Vec<Dim> = v
            .ty()
            .dims()
            .iter()
            .zip(dims)
            .map(|(t, d)| if d.known().is_some() { d.clone() } else { t.clone() })
            .collect();
        if merged.len() == v.ty().dims().len() {
            Type::tensor(v.ctx(), dtype, &merged)
        } else {
            v.ty()
        }
    }

    fn visit(&mut self, op: Op, open: bool) -> Result<()> {
        match op.kind() {
            Some(OpKind::Sym) => {
                self.remember_symbol(op);
                Ok(())
            }
            Some(OpKind::Dim) => self.fold_size(op).map(|_| ()),
            Some(OpKind::SymExpr) => {
                if !self.fold_size(op)? {
                    self.remember_symbol(op);
                }
                Ok(())
            }
            Some(kind) if kind.is_inferred() => {
                let op = self.static_sizes(op)?;
                self.unify_types(op)?;
                let view = View::of(op).ok_or_malformed(op)?;
                for (v, t) in op.results().into_iter().zip(infer_types(&view)?) {
                    v.set_ty(t);
                    self.cast_result(op, v)?;
                }
                Ok(())
            }
            Some(OpKind::BindShape | OpKind::UnbackedSize) => self.static_sizes(op).map(|_| ()),
            // Raw pointers carry no type; results have the types that the region yields.
            Some(OpKind::PtxCall) => {
                let op = self.static_sizes(op)?;
                op.results()
                    .into_iter()
                    .filter(|_| op.regions().is_empty())
                    .for_each(|v| v.set_ty(self.refined(v)));
                Ok(())
            }
            // Operands and results carry their sizes when it runs.
            Some(OpKind::CustomCall) => {
                op.results().into_iter().for_each(|v| v.set_ty(self.refined(v)));
                Ok(())
            }
            Some(OpKind::Constant | OpKind::Global | OpKind::GetGlobal) => Ok(()),
            None if op.isa::<func::Return>() && open => Ok(()),
            _ => self.keep_operand_types(op),
        }
    }

    /// The size of one dimension: static, a symbol, or a `kiln.dim`.
    fn size_of(&self, b: &Builder, v: Value, axis: usize) -> Result<Size> {
        let size = self.facts.dims(*self.origin.get(&v).unwrap_or(&v)).get(axis);
        let symbol = self.symbols.iter().find(|(d, _)| Some(d) == size).map(|(_, s)| *s);
        match (v.ty().dims().get(axis).and_then(Dim::known), symbol) {
            (None, Some(symbol)) => Ok(Size::Dynamic(symbol)),
            _ => b.size_of(v, axis),
        }
    }

    /// Sizes of the function's entry block dominate all later ops.
    fn remember_symbol(&mut self, op: Op) {
        let size = self.facts.size_value(op.result(0));
        if op.parent().is_some_and(|p| p.isa::<func::Func>()) && size != Dim::Unknown {
            self.symbols.push((size, op.result(0)));
        }
    }

    /// Replaces a size by its constant or by an earlier equal size. False if neither exists.
    fn fold_size(&mut self, op: Op) -> Result<bool> {
        let size = self.facts.size_value(op.result(0));
        let value = match size.known() {
            Some(n) => Builder::before(op).ok_or("is in no block")?.index(n)?,
            None => match self.symbols.iter().find(|(d, _)| *d == size) {
                Some((_, earlier)) => *earlier,
                None => return Ok(false),
            },
        };
        op.result(0).replace_uses(value);
        self.dead.push(op);
        Ok(true)
    }

    /// Rebuilds the op with static sizes for its constant size operands.
    fn static_sizes(&mut self, op: Op) -> Result<Op> {
        let fix = |sizes: &mut Vec<Size>| {
            let mut changed = false;
            for s in sizes {
                let Size::Dynamic(v) = *s else { continue };
                if let Some(n) = self.facts.size_value(v).known().or_else(|| constant(v)) {
                    *s = Size::Static(n);
                    changed = true;
                }
            }
            changed
        };
        macro_rules! rebuild {
            ($node:ident, $($field:ident),+) => {{
                let mut o = ops::$node::of(op).ok_or_malformed(op)?;
                if !($(fix(&mut o.$field))|+) {
                    return Ok(op);
                }
                let b = Builder::before(op).ok_or("is in no block")?;
                if op.kind().is_some_and(OpKind::is_inferred) {
                    b.create_node(&o)?
                } else {
                    b.create_with(&o, &op.results().iter().map(|v| v.ty()).collect::<Vec<_>>(), &mut [])?
                }
            }};
        }
        let new = match op.kind() {
            Some(OpKind::Splat) => rebuild!(Splat, sizes),
            Some(OpKind::Iota) => rebuild!(Iota, sizes),
            Some(OpKind::BroadcastInDim) => rebuild!(BroadcastInDim, sizes),
            Some(OpKind::Reshape) => rebuild!(Reshape, sizes),
            Some(OpKind::Slice) => rebuild!(Slice, offsets, sizes),
            Some(OpKind::Pad) => rebuild!(Pad, low, high),
            Some(OpKind::InsertSlice) => rebuild!(InsertSlice, offsets, sizes),
            Some(OpKind::DynamicSlice) => rebuild!(DynamicSlice, sizes),
            Some(OpKind::RandomBits) => rebuild!(RandomBits, sizes),
            Some(OpKind::RandomUniform) => rebuild!(RandomUniform, sizes),
            Some(OpKind::RandomNormal) => rebuild!(RandomNormal, sizes),
            Some(OpKind::Interpolate) => rebuild!(Interpolate, sizes),
            Some(OpKind::BindShape) => rebuild!(BindShape, sizes),
            Some(OpKind::UnbackedSize) => rebuild!(UnbackedSize, max),
            Some(OpKind::PtxCall) if op.regions().is_empty() => rebuild!(PtxCall, blocks, sizes),
            _ => return Ok(op),
        };
        for (old, rebuilt) in op.results().into_iter().zip(new.results()) {
            old.replace_uses(rebuilt);
            self.origin.insert(rebuilt, old);
            if let Some(t) = self.old.get(&old).copied() {
                self.old.insert(rebuilt, t);
            }
        }
        self.dead.push(op);
        Ok(new)
    }

    /// Casts operands of an elementwise op to one type, with all static dimensions that any of them
    /// has.
    fn unify_types(&mut self, op: Op) -> Result<()> {
        let elementwise = op.kind().is_some_and(|k| k.is_elementwise());
        if !elementwise || op.operand_count() < 2 {
            return Ok(());
        }
        let rank = op.operand(0).ty().dims().len();
        let known = |i: usize| op.operands().iter().find_map(|v| v.ty().dims()[i].known());
        let dims: Vec<Option<i64>> = (0..rank).map(known).collect();
        for (i, v) in op.operands().into_iter().enumerate() {
            if v.ty().dims().iter().zip(&dims).any(|(have, all)| have.known() != *all) {
                let b = Builder::before(op).ok_or("is in no block")?;
                let size = |(axis, d): (usize, &Option<i64>)| {
                    d.map_or_else(|| self.size_of(&b, v, axis), |n| Ok(Size::Static(n)))
                };
                let sizes = dims.iter().enumerate().map(size).collect::<Result<_, _>>()?;
                op.set_operand(i, b.add(&ops::Reshape { input: v, sizes })?);
            }
        }
        Ok(())
    }

    /// Casts a result to dimensions that the op's own shape rule cannot infer.
    fn cast_result(&mut self, op: Op, v: Value) -> Result<()> {
        let want = self.refined(v);
        if want == v.ty() || v.uses().is_empty() {
            return Ok(());
        }
        let b = Builder::after(op).ok_or("is in no block")?;
        let size = |(axis, d): (usize, Dim)| {
            d.known().map_or_else(|| self.size_of(&b, v, axis), |n| Ok(Size::Static(n)))
        };
        let sizes: Vec<Size> =
            want.dims().into_iter().enumerate().map(size).collect::<Result<_, _>>()?;
        let dims: Vec<Op> = sizes
            .iter()
            .filter_map(|s| if let Size::Dynamic(d) = s { d.def() } else { None })
            .filter(|d| d.kind() == Some(OpKind::Dim))
            .collect();
        let cast = b.create_node(&ops::Reshape { input: v, sizes })?;
        v.replace_uses_except(cast.result(0), &[&[cast], dims.as_slice()].concat());
        if let Some(t) = self.old.get(&v).copied() {
            self.old.insert(cast.result(0), t);
        }
        Ok(())
    }

    /// Casts operands of region ops, calls and terminators back to their original types.
    fn keep_operand_types(&self, op: Op) -> Result<()> {
        for (i, v) in op.operands().into_iter().enumerate() {
            let Some(old) = self.old.get(&v).copied().filter(|t| t.is_tensor() && *t != v.ty())
            else {
                continue;
            };
            let b = Builder::before(op).ok_or("is in no block")?;
            let mut sizes = vec![];
            for (axis, d) in old.dims().into_iter().enumerate() {
                sizes.push(match (d.known(), self.size_of(&b, v, axis)?) {
                    (Some(n), _) => Size::Static(n),
                    (None, Size::Static(n)) => Size::Dynamic(b.index(n)?),
                    (None, dynamic) => dynamic,
                });
            }
            op.set_operand(i, b.add(&ops::Reshape { input: v, sizes })?);
        }
        Ok(())
    }
}

/// The value of an `arith.constant`.
fn constant(v: Value) -> Option<i64> {
    v.def_as::<arith::Constant>()?.attr("value")?.as_i64()
}
