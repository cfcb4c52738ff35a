//! Applies the fusion plan: one module per kernel, and a launch of it in the host function.
use crate::{
    analysis::sizes::{SizeValues, makes_sizes},
    kernels::{
        fuse::{
            group::{FusionPlan, Kind},
            kernel_table::Kernels,
            signature::{Outline, Signature},
        },
        graph::{Graph, results_of},
        marks::in_prologue,
        op_facts::title,
    },
    target::kernel_attrs::SLICES,
};
use kiln_dialects::{
    ir::*,
    ops::{InsertSlice, Launch, OpKind, Reshape},
};
use std::collections::{HashMap, HashSet};

/// Attributes of a launch.
struct LaunchAttrs<'a> {
    /// `kiln.kernel` of its kernel.
    attrs: Attr,
    /// Source locations of its ops, the last op first.
    sources: &'a [Loc],
    /// Floating-point operations per element of its first result.
    flops: i64,
    /// Whether it reduces leading dimensions.
    reduces: bool,
}

/// Rewrites a function's ops to launches, according to the plan.
pub(super) fn apply(
    func: Op,
    graph: &Graph,
    plan: &FusionPlan,
    constants: bool,
    kernels: &mut Kernels,
) -> Result<()> {
    let block = func.regions().first().and_then(|r| r.first()).ok_or_at(func, "has no body")?;
    let end = block.terminator().ok_or_at(func, "has no return")?;
    let old: Vec<Op> = block.ops().into_iter().filter(|o| *o != end).collect();
    let builder = Builder::before(end).ok_or_at(end, "is in no block")?;
    let sizes = SizeValues::of_host(block, graph.facts, builder, end);
    let crossing = crossing(graph, plan);
    let staged = plan.groups.iter().flat_map(|g| g.staged.iter().copied()).collect();
    let (host, rounded) = (HashMap::new(), HashSet::new());
    let mut o = Outline { graph, sizes, builder, constants, host, crossing, staged, rounded };
    o.rounded = o.shared(plan);
    for op in
        old.iter().filter(|op| op.kind() == Some(OpKind::Constant) && graph.is_leaf(op.result(0)))
    {
        let v = kernels.constant(*op).at(*op)?;
        o.host.insert(op.result(0), v);
    }
    for (g, group) in plan.groups.iter().enumerate() {
        let last = graph.nodes[group.nodes[group.nodes.len() - 1]].value;
        let fail = |e: Error| match last.def() {
            Some(op) => e.or_at(op),
            None => e,
        };
        let results = o.results(plan, g);
        let ops: Vec<Op> = group.nodes.iter().flat_map(|n| graph.ops(&graph.nodes[*n])).collect();
        let sources: Vec<Loc> = ops.iter().rev().map(|op| op.loc()).collect();
        let computed = ops.iter().flat_map(|op| o.prologue(*op)).collect::<Vec<_>>();
        let ops: Vec<String> = computed.iter().chain(&ops).filter_map(|op| title(*op)).collect();
        let ops: Vec<&str> = ops.iter().map(String::as_str).collect();
        let inside = |v: Value| plan.computes(graph, g, v);
        let attrs = describe(builder.ctx, group.kind.name(), &ops, &group.reasons);
        let flops: i64 =
            group.nodes.iter().map(|n| graph.flops(&graph.nodes[*n])).fold(0, i64::saturating_add);
        let elements = results.first().map_or(1, |v| graph.count(graph.facts.dims(*v))).max(1);
        let (flops, reduces) = (flops / elements, group.kind == Kind::Reduce);
        let about = LaunchAttrs { attrs, sources: &sources, flops, reduces };
        o.launch(kernels, &stem(&ops), about, results, &inside).map_err(fail)?;
    }
    let mut taken = HashSet::new();
    for (i, v) in graph.returns.iter().enumerate() {
        let computed = graph.node_of.contains_key(&graph.base(*v));
        let given = if computed && taken.insert(graph.base(*v)) {
            o.value(*v).at(end)?
        } else {
            // The caller owns its results: an argument, a weight or a value returned twice is
            // copied.
            let attrs = describe(builder.ctx, "pointwise", &["copy"], &[]);
            o.copy(kernels, attrs, *v).at(end)?
        };
        end.set_operand(i, given);
    }
    for op in old.into_iter().rev() {
        // A size bound to a computed value is dropped with it; the launch states the sizes. So is
        // a guard on an argument that a kernel has transposed.
        let stated = matches!(op.kind(), Some(OpKind::BindShape | OpKind::RequireIndex))
            && op.operand(0).def().is_some_and(|o| o.kind() != Some(OpKind::GetGlobal));
        let kept = makes_sizes(op) && !stated || op.kind() == Some(OpKind::GetGlobal);
        if !kept {
            op.erase();
        }
    }
    Ok(())
}

/// The destination tensor, written by an earlier kernel, that a result's slices are inserted into;
/// none if this kernel allocates it.
fn forwarded_destination(v: Value, inside: &dyn Fn(Value) -> bool) -> Option<Value> {
    let mut at = Some(v).filter(|v| inside(*v))?;
    while inside(at) {
        at = InsertSlice::of(at.def()?)?.dest?;
    }
    Some(at)
}

/// The values that are read outside the kernels that compute them.
fn crossing(graph: &Graph, plan: &FusionPlan) -> HashSet<Value> {
    let mut read: HashSet<Value> = graph.returns.iter().map(|v| graph.base(*v)).collect();
    for (n, node) in graph.nodes.iter().enumerate() {
        for leaf in &node.leaves {
            let base = graph.base(leaf.value);
            // A view read within the same kernel needs its base in memory as well.
            let view = leaf.value.def().is_some_and(|o| graph.views.contains(&o));
            if view
                || graph.node_of.get(&base).is_none_or(|m| plan.group_of[*m] != plan.group_of[n])
            {
                read.insert(base);
            }
        }
    }
    read
}

fn stem(ops: &[&str]) -> String {
    let mut words: Vec<&str> = ops.iter().take(3).copied().collect();
    if ops.len() > 3 {
        words.push(ops[ops.len() - 1]);
    }
    words.join("_").chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
}

/// `kiln.kernel`: the kernel's kind, ops and fusion reasons, for readers and the kernel table.
fn describe(c: Ctx, kind: &str, ops: &[&str], reasons: &[String]) -> Attr {
    let list = |all: &[String]| {
        Attr::array(c, &all.iter().map(|s| Attr::string(c, s)).collect::<Vec<_>>())
    };
    let ops: Vec<String> = ops.iter().map(|s| s.to_string()).collect();
    let mut entries = vec![("kind", Attr::string(c, kind)), ("ops", list(&ops))];
    if !reasons.is_empty() {
        entries.push(("not_fused", list(reasons)));
    }
    Attr::dictionary(c, &entries)
}

impl Outline<'_> {
    /// The stored value in the new host function; views are recreated after their base.
    fn value(&mut self, v: Value) -> Result<Value> {
        if let Some(h) = self.host.get(&v) {
            return Ok(*h);
        }
        let Some(op) = v.def().filter(|o| self.graph.views.contains(o)) else { return Ok(v) };
        let input = self.value(op.operand(0))?;
        let sizes =
            (0..v.ty().dims().len()).map(|i| self.sizes.size(v, i)).collect::<Result<_, _>>()?;
        let view = self.builder.at(op.loc()).add(&Reshape { input, sizes })?;
        self.host.insert(v, view);
        Ok(view)
    }

    /// The results of a kernel: its values that are read outside of it.
    pub(super) fn results(&self, plan: &FusionPlan, g: usize) -> Vec<Value> {
        let all = plan.groups[g]
            .nodes
            .iter()
            .filter_map(|n| self.graph.nodes[*n].value.def())
            .flat_map(results_of);
        // External PTX takes the address of each of its results.
        let written = |v: &Value| v.def().is_some_and(|o| o.kind() == Some(OpKind::PtxCall));
        let mut all: Vec<Value> = all.filter(|v| self.crossing.contains(v) || written(v)).collect();
        // A pad's border is outside the loops that compute the rest, so pads come after everything
        // in these loops.
        all.sort_by_key(|v| v.def().is_some_and(|o| o.kind() == Some(OpKind::Pad)));
        all
    }

    /// The prologue of a contraction: the ops that compute its left operand, in order.
    fn prologue(&self, op: Op) -> Vec<Op> {
        let (mut found, mut stack) = (vec![], vec![]);
        if op.kind() == Some(OpKind::DotGeneral) {
            stack.push(op.operand(0));
        }
        while let Some(v) = stack.pop() {
            let Some(op) = v.def().filter(|o| !self.graph.is_leaf(v) && !found.contains(o)) else {
                continue;
            };
            found.push(op);
            stack.extend(op.operands());
        }
        found.retain(|op| in_prologue(*op));
        found.reverse();
        found
    }

    fn launch(
        &mut self,
        kernels: &mut Kernels,
        stem: &str,
        about: LaunchAttrs,
        results: Vec<Value>,
        inside: &dyn Fn(Value) -> bool,
    ) -> Result<()> {
        let mut s = Signature { leaves: vec![], sizes: vec![], results, reduces: about.reduces };
        let mut seen = HashSet::new();
        for v in s.results.clone() {
            self.collect(v, inside, &mut s, &mut seen)?;
        }
        for v in s.leaves.iter().chain(&s.results).copied().collect::<Vec<_>>() {
            for axis in 0..v.ty().dims().len() {
                match self.sizes.size(v, axis)? {
                    Size::Dynamic(size) if !s.sizes.contains(&size) => s.sizes.push(size),
                    _ => {}
                }
            }
        }
        let loc = s.results.last().map_or(self.builder.loc, |v| v.loc());
        let attrs = self.with_slices(about.attrs, &s)?;
        let mut make = |b: Builder, name: &str| self.kernel(b, name, attrs, &s);
        let kernel = kernels.intern(stem, loc, &mut make)?;
        let b = self.builder.at(loc);
        let mut outs = vec![];
        for v in &s.results {
            // Destination-passing style: a tensor that is inserted into is passed as an output.
            if let Some(whole) = forwarded_destination(*v, inside) {
                outs.push(self.value(whole)?);
                continue;
            }
            let mut dynamic = vec![];
            for axis in 0..v.ty().dims().len() {
                if let Size::Dynamic(size) = self.sizes.size(*v, axis)? {
                    dynamic.push(size);
                }
            }
            outs.push(tensor::empty(b, &dynamic, v.ty())?);
        }
        let inputs = s.leaves.iter().map(|v| self.value(*v)).collect::<Result<Vec<_>, _>>()?;
        let types: Vec<Type> = s.results.iter().map(|v| v.ty()).collect();
        // The launch carries the locations of all its ops; the kernel, which other launches may
        // share, does not.
        let all = Loc::fused(b.ctx, about.sources);
        let b = b.at(loc.name().map_or(all, |name| all.named(&name)));
        let op = b.create_with(
            &Launch { kernel, inputs, sizes: s.sizes, outs, flops_per_element: Some(about.flops) },
            &types,
            &mut [],
        )?;
        self.host.extend(s.results.iter().copied().zip(op.results()));
        Ok(())
    }

    /// `kiln.kernel` with the slices that it writes of its results: for each the result's index,
    /// then sizes as in `kiln.sizes`.
    fn with_slices(&mut self, attrs: Attr, s: &Signature) -> Result<Attr> {
        let (c, mut pieces) = (self.builder.ctx, vec![]);
        for (r, v) in s.results.iter().enumerate() {
            let mut at = v.def().and_then(InsertSlice::of);
            while let Some(place) = at {
                let mut all = vec![r as i64];
                for axis in 0..place.source.ty().dims().len() {
                    all.push(match self.sizes.size(place.source, axis)? {
                        Size::Static(n) => n,
                        Size::Dynamic(size) => s
                            .sizes
                            .iter()
                            .position(|v| *v == size)
                            .map_or(i64::MIN, |k| -1 - k as i64),
                    });
                }
                pieces.push(Attr::i64s(c, &all));
                at = place
                    .dest
                    .filter(|w| !s.leaves.contains(w))
                    .and_then(Value::def)
                    .and_then(InsertSlice::of);
            }
        }
        if pieces.is_empty() {
            return Ok(attrs);
        }
        let about = attrs.entries().unwrap_or_default();
        let mut entries: Vec<(&str, Attr)> = about.iter().map(|(n, a)| (n.as_str(), *a)).collect();
        entries.push((SLICES, Attr::array(c, &pieces)));
        Ok(Attr::dictionary(c, &entries))
    }

    fn copy(&mut self, kernels: &mut Kernels, attrs: Attr, v: Value) -> Result<Value> {
        let before = self.host.clone();
        // Map the value to its leaf, and to the launch's result for this return only.
        let source = self.value(v)?;
        self.host.insert(v, source);
        self.launch(
            kernels,
            "copy",
            LaunchAttrs { attrs, sources: &[v.loc()], flops: 0, reduces: false },
            vec![v],
            &|_| false,
        )?;
        let copied = self.host[&v];
        self.host = before;
        self.host.insert(v, source);
        Ok(copied)
    }
}
