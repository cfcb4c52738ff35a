//! Whether a node can join a kernel, and if not, why: the reasons that `kiln explain` prints.
use crate::{
    analysis::index_expr::IndexExpr,
    kernels::{
        class::Class,
        fuse::{
            group::{Grouping, Kind, LoopSpan, MOST_NODES, row_loops, without_unit_dims},
            merge::MOST_MOVED,
        },
        graph::Leaf,
        op_facts::element_bytes,
    },
};
use kiln_dialects::{Result, ir::Op, sym::Dim as SymDim};

impl Grouping<'_> {
    /// Whether a node can be fused into a kernel; returns the kernel's new kind and the form of the
    /// node's value.
    pub(super) fn fits(&self, n: usize, g: usize) -> Result<(Kind, LoopSpan)> {
        let (node, group) = (&self.graph.nodes[n], &self.groups[g]);
        let dims = without_unit_dims(&node.dims);
        if !self.within(&[&group.nodes], MOST_NODES - 1) {
            return Err(format!("it has {} ops already", group.nodes.len()).into());
        }
        if self.previous_slice_kernel(n) == Some(g) {
            return self.copies_slice(n, g);
        }
        if self.only_inserts(n) && group.kind != Kind::Pointwise {
            return self.writes_into_destination(n, g);
        }
        if group.kind == Kind::Contract
            && node.class != Class::Single
            && group.nodes.iter().any(|m| self.only_inserts(*m))
        {
            return Err("its result is written into a larger tensor already".into());
        }
        if group.kind == Kind::Contract && self.only_for_reductions(n, g) {
            return Err("only reductions that cannot join read it, so that both it and its operands would be stored".into());
        }
        if group.kind == Kind::Contract && self.widens_for_reductions(n, g) {
            return Err(
                "a reduction that cannot join reads it, and what it reads is narrower".into()
            );
        }
        let stay = group.row_dims();
        let result = match (node.class, group.kind) {
            (Class::Contract | Class::Attention | Class::Single, _) => {
                return Err("a contraction or a whole-tensor op starts a kernel".into());
            }
            (_, Kind::Attention) => {
                return Err("its result's rows are written slice by slice".into());
            }
            (_, Kind::Single) => return Err("it is a whole-tensor op".into()),
            (Class::Scan, Kind::Scan) => {
                return Err("its kernel has a scan already".into());
            }
            // Any other reduction would reread a row for each result of the scan: the work times
            // the axis length.
            (Class::Reduce, Kind::Scan) => {
                return Err("the reduction would reread a row for each result of the scan".into());
            }
            (Class::Scan, Kind::Contract) => {
                return Err("a row of the product spans several tiles".into());
            }
            (Class::Scan, Kind::Rows | Kind::Reduce) => {
                return Err("a scan is a loop over its rows of its own".into());
            }
            (Class::Scan, Kind::Pointwise) if dims == group.dims => (Kind::Scan, LoopSpan::Full),
            (Class::Scan, _) => return Err("its iteration space differs".into()),
            (Class::Pointwise, Kind::Rows | Kind::Reduce) if dims == stay && stay != group.dims => {
                (group.kind, LoopSpan::Reduced)
            }
            (Class::Pointwise, Kind::Pointwise | Kind::Contract | Kind::Rows | Kind::Scan)
                if dims == group.dims =>
            {
                (group.kind, LoopSpan::Full)
            }
            (Class::Pointwise, _) => return Err("its iteration space differs".into()),
            (Class::Reduce, Kind::Contract) => {
                return Err("a row of the product spans several tiles".into());
            }
            (Class::Reduce, Kind::Reduce) => {
                return Err("both reduce leading dimensions".into());
            }
            (Class::Reduce, _) if dims != group.dims => {
                return Err("its iteration space differs".into());
            }
            (Class::Reduce, Kind::Rows) if self.reduced(n) == group.reduced => {
                (Kind::Rows, LoopSpan::Reduced)
            }
            (Class::Reduce, Kind::Rows) => return Err("it reduces other dimensions".into()),
            (Class::Reduce, _) if self.trailing(n) => (Kind::Rows, LoopSpan::Reduced),
            (Class::Reduce, Kind::Pointwise) if self.only(g, n) => {
                (Kind::Reduce, LoopSpan::Reduced)
            }
            (Class::Reduce, _) => return Err(
                "it reduces leading dimensions, so the operand would be computed more than once"
                    .into(),
            ),
        };
        for leaf in &node.leaves {
            if self.kernel_of(self.graph.base(leaf.value)) != Some(g) {
                continue;
            }
            let Some(m) = self.graph.node_of.get(&leaf.value) else {
                return Err(format!(
                    "it reads {} under other sizes",
                    self.name(self.graph.base(leaf.value))
                )
                .into());
            };
            let loops = node.loops();
            let over = match (self.forms[*m], node.class, result.1) {
                (LoopSpan::Full, _, LoopSpan::Full) | (LoopSpan::Full, Class::Reduce, _) => loops,
                (LoopSpan::Full, ..) => return Err("it reads a whole row".into()),
                (LoopSpan::Reduced, Class::Pointwise, LoopSpan::Reduced) => loops,
                (LoopSpan::Reduced, ..) => {
                    let reduced = if group.kind == result.0 {
                        group.reduced.clone()
                    } else {
                        self.reduced(n)
                    };
                    row_loops(loops, &reduced)
                }
            };
            if !self.reads_in_place(leaf, &over) {
                return Err(format!("it reads {} at other indices", self.name(leaf.value)).into());
            }
        }
        Ok(result)
    }

    /// Fails if the node is to join another source than kernel `g`: a large pointwise kernel, which
    /// then reads the product, rather than the epilogue of contraction `g`, for which that kernel would
    /// store its values; or the epilogue of a contraction, which takes the small pointwise kernel `g`
    /// as well, rather than `g`, for which the contraction would store its values.
    pub(super) fn spares_epilogue(&self, n: usize, g: usize, sources: &[usize]) -> Result<()> {
        let group = &self.groups[g];
        let other = |kind: Kind, suits: &dyn Fn(usize) -> bool| {
            sources.iter().copied().find(|s| {
                let other = &self.groups[*s];
                other.kind == kind
                    && !other.merged
                    && other.dims == group.dims
                    && suits(*s)
                    && self.fits(n, *s).is_ok()
                    && self.acyclic(*s, sources).is_ok()
            })
        };
        let (better, [before, after]) = match group.kind {
            Kind::Contract => {
                let large = |s: usize| self.groups[s].nodes.len() > MOST_MOVED;
                let why = ["it also reads from ", ", which has too many ops for an epilogue"];
                (other(Kind::Pointwise, &large), why)
            }
            Kind::Pointwise if group.nodes.len() <= MOST_MOVED => {
                let takes = |s: usize| {
                    !self.depends_on(g, s)
                        && self.within(&[&self.groups[s].nodes, &group.nodes], MOST_NODES - 1)
                };
                (other(Kind::Contract, &takes), ["it joins the epilogue of ", ""])
            }
            _ => return Ok(()),
        };
        match better {
            Some(s) if self.fits(n, g).is_ok() => {
                Err(format!("{before}{}{after}", self.first_name(s)).into())
            }
            _ => Ok(()),
        }
    }

    /// Whether a pointwise node is read by reductions only, and is no smaller than what it reads
    /// from a kernel.
    fn only_for_reductions(&self, n: usize, g: usize) -> bool {
        let node = &self.graph.nodes[n];
        let reduces = |user: Op| {
            user.results().iter().any(|v| {
                self.graph
                    .node_of
                    .get(v)
                    .is_some_and(|m| self.graph.nodes[*m].class == Class::Reduce)
            })
        };
        let users = node.value.uses();
        let of_it = node
            .leaves
            .iter()
            .map(|l| self.graph.base(l.value))
            .filter(|v| self.kernel_of(*v) == Some(g));
        let bytes: usize =
            of_it.collect::<std::collections::HashSet<_>>().into_iter().map(element_bytes).sum();
        node.class == Class::Pointwise
            && !users.is_empty()
            && users.iter().all(|(user, _)| reduces(*user))
            && bytes <= element_bytes(node.value)
    }

    /// Whether a reduction reads a pointwise node that is wider than what it reads from a kernel,
    /// and that reads no other tensor of that size.
    fn widens_for_reductions(&self, n: usize, g: usize) -> bool {
        let node = &self.graph.nodes[n];
        let reduces = |user: Op| {
            let mut nodes = user.results().into_iter().filter_map(|v| self.graph.node_of.get(&v));
            nodes.any(|m| self.graph.nodes[*m].class == Class::Reduce)
        };
        let count = |dims: &[SymDim]| self.graph.count(dims);
        node.class == Class::Pointwise
            && node.value.uses().iter().any(|(user, _)| reduces(*user))
            && node.leaves.iter().map(|l| self.graph.base(l.value)).all(|v| {
                match self.kernel_of(v) == Some(g) {
                    true => element_bytes(v) < element_bytes(node.value),
                    false => count(self.graph.facts.dims(v)) < count(&node.dims),
                }
            })
    }

    /// Whether node `n` is the only reader of a kernel's values.
    pub(super) fn only(&self, g: usize, n: usize) -> bool {
        let Some(reader) = self.graph.nodes[n].value.def() else { return false };
        let inside = |op: Op| {
            op == reader
                || op.results().iter().any(|v| {
                    self.graph.node_of.get(v).is_some_and(|m| self.group_of.get(*m) == Some(&g))
                })
        };
        // An op that is no node is computed by its reader.
        self.groups[g].nodes.iter().all(|m| {
            let mut stack = vec![self.graph.nodes[*m].value];
            while let Some(v) = stack.pop() {
                for (user, _) in v.uses() {
                    if user.results().is_empty() {
                        return false;
                    }
                    if !inside(user) {
                        if user.results().iter().any(|r| self.graph.node_of.contains_key(r)) {
                            return false;
                        }
                        stack.extend(user.results());
                    }
                }
            }
            true
        })
    }

    /// Whether a leaf is indexed by exactly the loops `over`, in order.
    pub(super) fn reads_in_place(&self, leaf: &Leaf, over: &[usize]) -> bool {
        let dims = self.graph.facts.dims(leaf.value);
        let at: Vec<_> = leaf
            .at
            .iter()
            .zip(dims)
            .filter(|(_, d)| d.known() != Some(1))
            .map(|(ix, _)| ix)
            .collect();
        at.len() == over.len() && at.iter().zip(over).all(|(ix, d)| **ix == IndexExpr::dim(*d))
    }

    /// The reduction loops of a node, numbered without loops of trip count 1.
    pub(super) fn reduced(&self, n: usize) -> Vec<usize> {
        let node = &self.graph.nodes[n];
        let place = |d: usize| node.dims[..d].iter().filter(|x| x.known() != Some(1)).count();
        node.reduced
            .iter()
            .filter(|d| node.dims[**d].known() != Some(1))
            .map(|d| place(*d))
            .collect()
    }

    /// Whether a reduction covers trailing dimensions.
    pub(super) fn trailing(&self, n: usize) -> bool {
        let rank = without_unit_dims(&self.graph.nodes[n].dims).len();
        let reduced = self.reduced(n);
        reduced.iter().enumerate().all(|(i, d)| *d == rank - reduced.len() + i)
    }

    /// Whether a node that reads from `sources` can join kernel `g` without a cycle: no other
    /// source may depend on `g`.
    pub(super) fn acyclic(&self, g: usize, sources: &[usize]) -> Result<()> {
        match sources.iter().find(|s| **s != g && self.depends_on(**s, g)) {
            Some(s) => Err(format!(
                "it also reads from {}, which waits for that kernel",
                self.first_name(*s)
            )
            .into()),
            None => Ok(()),
        }
    }

    /// Whether kernel `a` depends on kernel `b`, transitively.
    pub(super) fn depends_on(&self, a: usize, b: usize) -> bool {
        let (mut seen, mut stack) = (vec![false; self.groups.len()], vec![a]);
        while let Some(g) = stack.pop() {
            if g == b {
                return true;
            }
            if !std::mem::replace(&mut seen[g], true) {
                stack.extend(self.groups[g].dependencies.iter().copied());
            }
        }
        false
    }
}
