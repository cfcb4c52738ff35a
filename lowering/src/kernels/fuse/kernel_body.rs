//! The module of a kernel: facts on its arguments, then clones of its ops.
use crate::{
    analysis::sizes::SizeBuilder,
    kernels::{
        class::Class,
        fuse::signature::{Outline, Signature},
        marks::{PROLOGUE, STAGED},
        op_facts::reads,
    },
};
use kiln_dialects::{
    ir::*,
    ops::{BindShape, OpKind},
    sym::Dim as SymDim,
};
use kiln_passes::rounding::ROUNDED;
use std::collections::{BTreeSet, HashMap, HashSet};

impl Outline<'_> {
    /// Builds the module of a kernel: facts on its arguments, then clones of its ops.
    pub(super) fn kernel(
        &mut self,
        b: Builder,
        name: &str,
        attrs: Attr,
        s: &Signature,
    ) -> Result<Op> {
        let index = Type::index(b.ctx);
        let inputs: Vec<Type> =
            s.leaves.iter().map(|v| v.ty()).chain(s.sizes.iter().map(|_| index)).collect();
        let results: Vec<Type> = s.results.iter().map(|v| v.ty()).collect();
        let mut bound = vec![];
        for v in &s.leaves {
            bound.push(
                (0..v.ty().dims().len())
                    .map(|axis| self.sizes.size(*v, axis))
                    .collect::<Result<Vec<_>, _>>()?,
            );
        }
        let mut fill = |b: Builder, args: Vec<Value>| -> Result<()> {
            let mut map: HashMap<Value, Value> =
                s.leaves.iter().chain(&s.sizes).copied().zip(args).collect();
            for (v, sizes) in s
                .leaves
                .iter()
                .zip(&bound)
                .filter(|(v, _)| v.ty().dims().contains(&SymDim::Unknown))
            {
                let own = |size: &Size| match size {
                    Size::Dynamic(d) => map.get(d).map_or(*size, |d| Size::Dynamic(*d)),
                    known => *known,
                };
                let sizes = sizes.iter().map(own).collect();
                b.create_with(&BindShape { value: map[v], sizes }, &[], &mut [])?;
            }
            // A contraction comes before what only its epilogue reads, which would be a nest of its own.
            let of = |v: &Value| (self.nodes_of(*v, Class::Contract, &map), *v);
            let mut results: Vec<(Vec<Value>, Value)> = s.results.iter().map(of).collect();
            results.sort_by_key(|(contractions, _)| contractions.is_empty());
            // Reductions over leading dimensions share their loops if nothing is between them.
            if s.reduces {
                let all = s.results.iter().flat_map(|v| self.nodes_of(*v, Class::Reduce, &map));
                for v in all.collect::<Vec<_>>() {
                    self.clone(&b, v, &mut map)?;
                }
            }
            for (contractions, result) in results {
                for v in contractions.into_iter().chain([result]) {
                    self.clone(&b, v, &mut map)?;
                }
            }
            let values: Option<Vec<Value>> =
                s.results.iter().map(|v| map.get(v).copied()).collect();
            b.ret(&values.ok_or("has lost a result")?).map(|_| ())
        };
        let module_attrs = [("sym_name", Attr::string(b.ctx, name)), ("kiln.kernel", attrs)];
        let known = self.known(s);
        let mut body = |b: Builder, _: Vec<Value>| {
            let func = b.function(name, &inputs, &results, &mut fill)?;
            if let Some(about) = known {
                func.set_attr("arg_attrs", about);
            }
            Ok(())
        };
        b.generic("builtin.module", &[], &[], &module_attrs, &mut [(&[], &mut body)])
    }

    /// The nodes of a class that a result of a kernel is computed from, in order.
    fn nodes_of(&self, result: Value, class: Class, leaves: &HashMap<Value, Value>) -> Vec<Value> {
        let (mut stack, mut seen) = (vec![result], HashSet::new());
        let mut found: BTreeSet<usize> = BTreeSet::new();
        while let Some(v) = stack.pop() {
            if leaves.contains_key(&v) || !seen.insert(v) {
                continue;
            }
            let node = self.graph.node_of.get(&v);
            found.extend(node.filter(|n| self.graph.nodes[**n].class == class).copied());
            stack.extend(v.def().into_iter().flat_map(reads));
        }
        found.into_iter().map(|n| self.graph.nodes[n].value).collect()
    }

    /// Clones a value's ops into a kernel, operands first.
    fn clone(&self, b: &Builder, v: Value, map: &mut HashMap<Value, Value>) -> Result<Value> {
        if let Some(m) = map.get(&v) {
            return Ok(*m);
        }
        let op = v.def().ok_or("is no op's result")?;
        for o in reads(op) {
            if !map.contains_key(&o) {
                self.clone(b, o, map)?;
            }
        }
        let inside = |o: Value| {
            map.get(&if o.ty().is_index() { self.same_size(o) } else { o }).copied().unwrap_or(o)
        };
        let new = b.at(op.loc()).clone_op(op, &inside)?;
        // The reason for having no prologue is not part of the kernel, which other products may
        // share.
        if new.attr(PROLOGUE).and_then(Attr::as_string).is_some() {
            new.remove_attr(PROLOGUE);
        }
        if self.staged.contains(&v) {
            new.set_attr(STAGED, Attr::unit(b.ctx));
        }
        if self.rounded.contains(&v) {
            new.set_attr(ROUNDED, Attr::unit(b.ctx));
        }
        map.extend(op.results().into_iter().zip(new.results()));
        let made = map.get(&v).copied().ok_or("was not cloned")?;
        if let Some(sizes) = self.stated_sizes(op, map) {
            b.create_with(&BindShape { value: made, sizes }, &[], &mut [])?;
        }
        Ok(made)
    }

    /// The result sizes of an op that derives them from its operands (`n - 1` of a window), as the
    /// kernel's own arguments: two of these may be `n` and `n - 1`, a relation that nothing in the
    /// kernel states.
    fn stated_sizes(&self, op: Op, map: &HashMap<Value, Value>) -> Option<Vec<Size>> {
        use OpKind::{Concat, Convolution, Pad, ReduceWindow};
        let v = op.result(0);
        if !matches!(op.kind()?, Concat | Convolution | Pad | ReduceWindow)
            || !v.ty().dims().contains(&SymDim::Unknown)
        {
            return None;
        }
        let size = |d: &SymDim| match d.known() {
            Some(n) => Some(Size::Static(n)),
            None => map.get(&self.sizes.cached(d)?).map(|s| Size::Dynamic(*s)),
        };
        self.graph.facts.dims(v).iter().map(size).collect()
    }
}
