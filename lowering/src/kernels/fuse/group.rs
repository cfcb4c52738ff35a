//! Decides which nodes form one kernel.
//!
//! Nodes are visited in program order. A node joins the kernel that computes its operand if it has
//! the same loops, reads the operand at the same index, and the kernel graph stays acyclic. The
//! gain of a join is the bytes that need not go through memory, so a node that could join several
//! kernels joins the one it reads most from.

use crate::kernels::{
    class::Class,
    graph::Graph,
    marks::PROLOGUE,
    op_facts::{folding_op, title},
};
use kiln_dialects::{
    ir::{Attr, Value},
    rules::tensor_type,
    sym::Dim as SymDim,
    value::DType,
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
    /// Its nodes, operands first; those of merged kernels one after the other.
    pub nodes: Vec<usize>,
    /// Kernels it depends on.
    pub(super) dependencies: BTreeSet<usize>,
    /// Why it was not fused further.
    pub reasons: Vec<String>,
    pub(crate) merged: bool,
    /// What its own ops alone read, and it stages in shared memory.
    pub(super) staged: Vec<Value>,
}

impl KernelGroup {
    /// Its loops without those that reduce.
    pub(super) fn row_dims(&self) -> Vec<SymDim> {
        row_loops((0..self.dims.len()).collect(), &self.reduced)
            .into_iter()
            .map(|d| self.dims[d].clone())
            .collect()
    }
}

/// Most nodes in a kernel, integer arithmetic aside: beyond that, registers spill and compile time
/// grows.
pub(super) const MOST_NODES: usize = 64;

/// Most nodes of integer arithmetic, each an instruction whose result is soon dead: a random number
/// takes 130.
const MOST_INTEGER_NODES: usize = 512;

/// The fusion plan: kernels, and the kernel of each node.
pub struct FusionPlan {
    /// Kernels in topological order.
    pub groups: Vec<KernelGroup>,
    /// The kernel of each node.
    pub group_of: Vec<usize>,
}

impl FusionPlan {
    /// Whether a kernel computes a value as one of its nodes.
    pub(super) fn computes(&self, graph: &Graph, g: usize, v: Value) -> bool {
        graph.node_of.get(&v).is_some_and(|n| self.group_of[*n] == g)
    }
}

/// The fusion mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FusionMode {
    /// As few kernels as possible. `pairs`: whether two GEMMs may be one kernel. `split_rows`:
    /// whether a matmul whose weight is not packed may pad what splits its rows. `launch`:
    /// clocks that a launch takes; 0 where kernels of few elements are not joined for its sake.
    Fused { pairs: bool, split_rows: bool, launch: i64 },
    /// One kernel per op.
    EachOp,
}

pub(crate) struct Grouping<'a> {
    pub(crate) graph: &'a Graph<'a>,
    pub(crate) groups: Vec<KernelGroup>,
    pub(super) group_of: Vec<usize>,
    pub(crate) forms: Vec<LoopSpan>,
    pub(crate) mode: FusionMode,
}

/// Groups all nodes into kernels.
pub fn plan(graph: &Graph, how: FusionMode) -> FusionPlan {
    let mut d = Grouping { graph, groups: vec![], group_of: vec![], forms: vec![], mode: how };
    for n in 0..graph.nodes.len() {
        d.assign(n);
    }
    if let FusionMode::Fused { launch, .. } = how {
        d.sink_into_readers();
        d.merge_siblings();
        d.merge_sibling_products();
        if launch > 0 {
            d.merge_small_siblings();
            d.merge_single_elements();
            d.merge_updates();
            d.merge_operand_prologues(launch);
        }
    }
    d.ordered()
}

pub(crate) fn without_unit_dims(dims: &[SymDim]) -> Vec<SymDim> {
    dims.iter().filter(|d| d.known() != Some(1)).cloned().collect()
}

/// The loops over rows, of those of which some reduce.
pub(super) fn row_loops(loops: Vec<usize>, reduced: &[usize]) -> Vec<usize> {
    loops.into_iter().enumerate().filter(|(i, _)| !reduced.contains(i)).map(|(_, d)| d).collect()
}

impl Grouping<'_> {
    /// Whether a node is elementwise arithmetic on integers.
    fn is_integer_arithmetic(&self, n: usize) -> bool {
        let node = &self.graph.nodes[n];
        let dtype = tensor_type(node.value.ty()).map(|t| t.dtype);
        node.class == Class::Pointwise && matches!(dtype, Ok(DType::I32 | DType::I64))
    }
    /// Whether at most so many of the nodes count towards [`MOST_NODES`], and not too many others.
    pub(super) fn within(&self, nodes: &[&[usize]], most: usize) -> bool {
        let all: usize = nodes.iter().map(|list| list.len()).sum();
        // Nearly always: the types are not looked at.
        if all <= most {
            return true;
        }
        let integers =
            nodes.iter().copied().flatten().filter(|n| self.is_integer_arithmetic(**n)).count();
        integers < MOST_INTEGER_NODES && all - integers <= most
    }
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
            let fits = self.spares_epilogue(n, *g, &sources).and_then(|()| self.fits(n, *g));
            match fits.and_then(|form| self.acyclic(*g, &sources).map(|()| form)) {
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
                    staged: vec![],
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

    pub(crate) fn name(&self, v: Value) -> String {
        v.def()
            .map(|o| folding_op(o).unwrap_or(o))
            .and_then(title)
            .unwrap_or_else(|| "an argument".into())
    }
    pub(super) fn first_name(&self, g: usize) -> String {
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
