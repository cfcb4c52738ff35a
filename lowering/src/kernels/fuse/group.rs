//! Decides which nodes form one kernel.
//!
//! Nodes are visited in program order. A node joins the kernel that computes its operand if it has
//! the same loops, reads the operand at the same index, and the kernel graph stays acyclic. The
//! gain of a join is the bytes that need not go through memory, so a node that could join several
//! kernels joins the one it reads most from.

use crate::{
    analysis::index_expr::IndexExpr,
    kernels::{
        graph::{Class, Graph, Leaf},
        op_facts::{folding_op, title},
        prologues::PROLOGUE,
    },
};
use kiln_dialects::{
    Result,
    ir::{Attr, Op, Value},
    sym::Dim as SymDim,
};
use kiln_passes::decompose::NOT_FUSED;
use std::collections::BTreeSet;

/// The kind of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One loop nest of pointwise ops.
    Pointwise,
    /// Row-wise reductions over the trailing dimensions, with their prologue and epilogue.
    Rows,
    /// A reduction over other dimensions.
    Reduce,
    /// A contraction with its epilogue.
    Contract,
    /// Attention.
    Attention,
    /// A scan with its elementwise prologue and epilogue.
    Scan,
    /// One op.
    Single,
}

impl Kind {
    /// The kind's name in tables and attributes.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Pointwise => "pointwise",
            Kind::Rows => "rows",
            Kind::Reduce => "reduce",
            Kind::Contract => "contract",
            Kind::Attention => "attention",
            Kind::Scan => "scan",
            Kind::Single => "single",
        }
    }
}

/// Whether a value of a kernel with reductions spans all loops, or only the parallel ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoopSpan {
    Full,
    Reduced,
}

/// A kernel under construction.
pub struct KernelGroup {
    /// Its kind.
    pub kind: Kind,
    /// Its loops, without those of trip count 1.
    pub(crate) dims: Vec<SymDim>,
    /// Indices into `dims` of its reduction loops.
    pub(crate) reduced: Vec<usize>,
    /// Its nodes in program order.
    pub nodes: Vec<usize>,
    /// Kernels it depends on.
    dependencies: BTreeSet<usize>,
    /// Why it was not fused further.
    pub reasons: Vec<String>,
    pub(crate) merged: bool,
}

/// Most nodes in a kernel: beyond that, registers spill and compile time grows.
const MOST_NODES: usize = 64;
/// Most nodes that move from another kernel into a contraction's epilogue.
const MOST_MOVED: usize = 8;

/// The fusion plan: kernels, and the kernel of each node.
pub struct FusionPlan {
    /// Kernels in topological order.
    pub groups: Vec<KernelGroup>,
    /// The kernel of each node.
    pub group_of: Vec<usize>,
}

/// The fusion mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FusionMode {
    /// As few kernels as possible. `pairs`: whether two GEMMs may be one kernel.
    Fused { pairs: bool },
    /// One kernel per op.
    EachOp,
}

pub(crate) struct Grouping<'a> {
    pub(crate) graph: &'a Graph<'a>,
    pub(crate) groups: Vec<KernelGroup>,
    group_of: Vec<usize>,
    pub(crate) forms: Vec<LoopSpan>,
    pub(crate) mode: FusionMode,
}

/// Groups all nodes into kernels.
pub fn plan(graph: &Graph, how: FusionMode) -> FusionPlan {
    let mut d = Grouping { graph, groups: vec![], group_of: vec![], forms: vec![], mode: how };
    for n in 0..graph.nodes.len() {
        d.assign(n);
    }
    d.ordered()
}

pub(crate) fn without_unit_dims(dims: &[SymDim]) -> Vec<SymDim> {
    dims.iter().filter(|d| d.known() != Some(1)).cloned().collect()
}

impl Grouping<'_> {
    /// The kernels that a node reads from, sorted by bytes read, largest first.
    pub(crate) fn sources(&self, n: usize) -> Vec<usize> {
        let mut all: Vec<(i64, usize)> = vec![];
        for leaf in &self.graph.nodes[n].leaves {
            let Some(g) = self.kernel_of(self.graph.base(leaf.value)) else { continue };
            let size = self.graph.count(self.graph.facts.dims(leaf.value));
            match all.iter_mut().find(|(_, h)| *h == g) {
                Some((sum, _)) => *sum += size,
                None => all.push((size, g)),
            }
        }
        // Ties: the later kernel first, since it depends on the other, not vice versa. A slice
        // belongs to the kernel that computes it.
        let own = self.slice_source(n).and_then(|v| self.kernel_of(self.graph.base(v)));
        all.sort_by_key(|(size, g)| std::cmp::Reverse((own == Some(*g), *size, *g)));
        all.into_iter().map(|(_, g)| g).collect()
    }

    /// The kernel that computes a value.
    pub(crate) fn kernel_of(&self, v: Value) -> Option<usize> {
        self.graph.node_of.get(&v).and_then(|m| self.group_of.get(*m)).copied()
    }

    fn assign(&mut self, n: usize) {
        let sources = self.sources(n);
        let node = &self.graph.nodes[n];
        let (mut reasons, mut copies) = (vec![], false);
        let alone = self.mode == FusionMode::EachOp;
        let mut chosen = self.gated_partner(n).map(|g| (g, Kind::Contract, LoopSpan::Full));
        for g in &sources {
            if alone || chosen.is_some() {
                break;
            }
            match self.fits(n, *g).and_then(|form| self.acyclic(*g, &sources).map(|()| form)) {
                Ok((kind, form)) => chosen = Some((*g, kind, form)),
                Err(why) => reasons.push((
                    *g,
                    format!("{} not with {}: {why}", self.name(node.value), self.first_name(*g)),
                )),
            }
        }
        let (g, form) = match chosen {
            Some((g, kind, form)) => {
                // A node is computed by one kernel only; that it did not join another is no loss,
                // unless it copies a slice.
                copies = self.previous_slice_kernel(n) == Some(g);
                if !copies {
                    reasons.clear();
                }
                if kind != self.groups[g].kind {
                    self.groups[g].reduced = self.reduced(n);
                }
                self.groups[g].kind = kind;
                (g, form)
            }
            None => {
                let kind = match node.class {
                    Class::Pointwise => Kind::Pointwise,
                    Class::Contract => Kind::Contract,
                    Class::Attention => Kind::Attention,
                    Class::Scan => Kind::Scan,
                    Class::Single => Kind::Single,
                    Class::Reduce if self.trailing(n) => Kind::Rows,
                    Class::Reduce => Kind::Reduce,
                };
                let (dims, reduced) = (without_unit_dims(&node.dims), self.reduced(n));
                self.groups.push(KernelGroup {
                    kind,
                    dims,
                    reduced,
                    nodes: vec![],
                    dependencies: BTreeSet::new(),
                    reasons: vec![],
                    merged: false,
                });
                (
                    self.groups.len() - 1,
                    if node.class == Class::Reduce { LoopSpan::Reduced } else { LoopSpan::Full },
                )
            }
        };
        let said = |name: &str| {
            node.value
                .def()
                .and_then(|o| folding_op(o).unwrap_or(o).attr(name))
                .and_then(Attr::as_string)
        };
        let (whole, prologue) = (said(NOT_FUSED), said(PROLOGUE));
        let group = &mut self.groups[g];
        group.nodes.push(n);
        group.dependencies.extend(sources.iter().copied().filter(|s| *s != g));
        self.group_of.push(g);
        self.forms.push(form);
        for other in sources.iter().copied().filter(|s| *s != g && !alone) {
            self.merge(other, g);
        }
        // A slice that its own kernel computes after all is not copied.
        if !copies || sources.first().is_some_and(|s| !self.groups[*s].merged) {
            // Drop the reasons about kernels that have been merged into this one since.
            let open: Vec<String> = reasons
                .into_iter()
                .filter(|(s, _)| !self.groups[*s].merged)
                .map(|(_, why)| why)
                .collect();
            self.groups[g].reasons.extend(open);
        }
        self.groups[g].reasons.extend(whole.into_iter().chain(prologue));
    }

    /// The reduction loops of a node, numbered without loops of trip count 1.
    fn reduced(&self, n: usize) -> Vec<usize> {
        let node = &self.graph.nodes[n];
        let place = |d: usize| node.dims[..d].iter().filter(|x| x.known() != Some(1)).count();
        node.reduced
            .iter()
            .filter(|d| node.dims[**d].known() != Some(1))
            .map(|d| place(*d))
            .collect()
    }

    /// Whether a reduction covers trailing dimensions.
    fn trailing(&self, n: usize) -> bool {
        let rank = without_unit_dims(&self.graph.nodes[n].dims).len();
        let reduced = self.reduced(n);
        reduced.iter().enumerate().all(|(i, d)| *d == rank - reduced.len() + i)
    }

    /// Whether a node can be fused into a kernel; returns the kernel's new kind and the form of the
    /// node's value.
    fn fits(&self, n: usize, g: usize) -> Result<(Kind, LoopSpan)> {
        let (node, group) = (&self.graph.nodes[n], &self.groups[g]);
        let dims = without_unit_dims(&node.dims);
        if group.nodes.len() >= MOST_NODES {
            return Err(format!("it has {MOST_NODES} ops already").into());
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
        let stay: Vec<SymDim> = (0..group.dims.len())
            .filter(|d| !group.reduced.contains(d))
            .map(|d| group.dims[d].clone())
            .collect();
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
                    loops
                        .into_iter()
                        .enumerate()
                        .filter(|(i, _)| !reduced.contains(i))
                        .map(|(_, d)| d)
                        .collect()
                }
            };
            if !self.reads_in_place(leaf, &over) {
                return Err(format!("it reads {} at other indices", self.name(leaf.value)).into());
            }
        }
        Ok(result)
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
        let size =
            |v: Value| v.ty().element().and_then(|e| e.dtype().ok()).map_or(0, |d| d.byte_size());
        let of_it = node
            .leaves
            .iter()
            .map(|l| self.graph.base(l.value))
            .filter(|v| self.kernel_of(*v) == Some(g));
        let bytes: usize =
            of_it.collect::<std::collections::HashSet<_>>().into_iter().map(size).sum();
        node.class == Class::Pointwise
            && !users.is_empty()
            && users.iter().all(|(user, _)| reduces(*user))
            && bytes <= size(node.value)
    }

    /// Whether node `n` is the only reader of a kernel's values.
    pub(crate) fn only(&self, g: usize, n: usize) -> bool {
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
    pub(crate) fn reads_in_place(&self, leaf: &Leaf, over: &[usize]) -> bool {
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

    /// Whether a node that reads from `sources` can join kernel `g` without a cycle: no other
    /// source may depend on `g`.
    fn acyclic(&self, g: usize, sources: &[usize]) -> Result<()> {
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
    pub(crate) fn depends_on(&self, a: usize, b: usize) -> bool {
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

    /// Merges a pointwise kernel into a reader over the same loops, or into one that only inserts
    /// its values into a larger tensor.
    fn merge(&mut self, from: usize, into: usize) {
        let (a, b) = (&self.groups[from], &self.groups[into]);
        let kinds = a.kind == Kind::Pointwise
            && matches!(b.kind, Kind::Pointwise | Kind::Rows | Kind::Contract | Kind::Scan);
        let most = if b.kind == Kind::Contract { MOST_MOVED } else { MOST_NODES };
        let small = a.nodes.len() <= most && a.nodes.len() + b.nodes.len() <= MOST_NODES;
        let placed =
            a.kind == Kind::Pointwise && b.nodes.iter().any(|n| self.inserts_result_of(*n, from));
        if !small || a.merged || !(placed || kinds && a.dims == b.dims) {
            return;
        }
        // Any other path between the two would make the merged kernel depend on itself.
        if b.dependencies.iter().any(|g| *g != from && self.depends_on(*g, from)) {
            return;
        }
        let in_place = placed
            || b.nodes.iter().all(|m| {
                let node = &self.graph.nodes[*m];
                node.leaves
                    .iter()
                    .filter(|l| self.kernel_of(self.graph.base(l.value)) == Some(from))
                    .all(|l| {
                        // A contraction rereads its operands, whatever its loops.
                        let full = match node.class {
                            Class::Contract | Class::Attention | Class::Single => false,
                            Class::Reduce | Class::Scan => true,
                            Class::Pointwise => self.forms[*m] == LoopSpan::Full,
                        };
                        full && self.graph.node_of.contains_key(&l.value)
                            && self.reads_in_place(l, &node.loops())
                    })
            });
        if !in_place {
            return;
        }
        let moved = std::mem::take(&mut self.groups[from].nodes);
        let before = std::mem::take(&mut self.groups[from].dependencies);
        self.groups[from].merged = true;
        moved.iter().for_each(|m| self.group_of[*m] = into);
        let group = &mut self.groups[into];
        group.nodes.extend(moved);
        group.nodes.sort_unstable();
        group.dependencies.extend(before);
        group.dependencies.remove(&from);
        group.dependencies.remove(&into);
        for g in &mut self.groups {
            if g.dependencies.remove(&from) {
                g.dependencies.insert(into);
            }
        }
        self.groups[into].dependencies.remove(&into);
    }

    pub(crate) fn name(&self, v: Value) -> String {
        v.def()
            .map(|o| folding_op(o).unwrap_or(o))
            .and_then(title)
            .unwrap_or_else(|| "an argument".into())
    }
    fn first_name(&self, g: usize) -> String {
        self.groups[g]
            .nodes
            .first()
            .map_or("a kernel".into(), |n| self.name(self.graph.nodes[*n].value))
    }

    /// Sorts the kernels topologically.
    fn ordered(mut self) -> FusionPlan {
        let (mut place, mut order) = (vec![None; self.groups.len()], vec![]);
        for start in 0..self.groups.len() {
            let mut stack = vec![(start, false)];
            while let Some((g, ready)) = stack.pop() {
                if place[g].is_some() || self.groups[g].merged {
                    continue;
                }
                if ready {
                    place[g] = Some(order.len());
                    order.push(g);
                } else {
                    stack.push((g, true));
                    stack.extend(self.groups[g].dependencies.iter().rev().map(|b| (*b, false)));
                }
            }
        }
        let group_of = self.group_of.iter().map(|g| place[*g].unwrap_or(0)).collect();
        let mut taken: Vec<Option<KernelGroup>> = self.groups.drain(..).map(Some).collect();
        let groups = order.into_iter().filter_map(|g| taken[g].take()).collect();
        FusionPlan { groups, group_of }
    }
}
