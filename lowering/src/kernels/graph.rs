//! The fusion graph: a function's ops as plain data. Each node has its loops, and the stored values
//! it reads with their indices.
use crate::{
    analysis::{
        index_expr::{IndexExpr, IndexLeaf, reshape_groups, through},
        sizes::makes_sizes,
    },
    kernels::{
        class::{Class, Role},
        frozen::{INDEX, STORED, VIEW, is_movement},
        marks::in_prologue,
        op_facts::{
            captured, contracts, folded_transpose, folded_transposes, folding_op, heavy,
            is_attention, is_library, moved_element, reads,
        },
        rows::in_rows,
        transpose_folding::FoldedOps,
    },
};
use kiln_dialects::{
    Error, Result,
    error::{OptionExt, ResultExt},
    ir::{Node as _, *},
    ops::*,
    rules::tensor_type,
    sym::{Atom, Dim as SymDim},
};
use kiln_passes::{expand_scans::LOOPS, readers::widens, refine_shapes::Facts};
use std::collections::{HashMap, HashSet};

/// A stored value that a node reads, with its index.
#[derive(Clone)]
pub struct Leaf {
    /// The value.
    pub value: Value,
    /// The index, over the node's loops.
    pub at: Vec<IndexExpr>,
}

/// An op whose result is computed by one kernel.
pub struct Node {
    /// The value it computes; for a copy, the copied value itself.
    pub value: Value,
    /// Its class.
    pub class: Class,
    /// Sizes of its loops: those of the result, for a reduction those of the operand.
    pub dims: Vec<SymDim>,
    /// Indices into `dims` of its reduction loops.
    pub reduced: Vec<usize>,
    /// The stored values it reads.
    pub leaves: Vec<Leaf>,
}

impl Node {
    /// Indices of the loops whose trip count may exceed 1.
    pub fn loops(&self) -> Vec<usize> {
        (0..self.dims.len()).filter(|d| self.dims[*d].known() != Some(1)).collect()
    }
}

/// A function as a graph of nodes.
pub struct Graph<'a> {
    /// Size analysis of the function.
    pub facts: &'a Facts,
    /// Nodes in program order.
    pub nodes: Vec<Node>,
    /// The node that computes a value.
    pub node_of: HashMap<Value, usize>,
    /// The function's results.
    pub returns: Vec<Value>,
    /// Reshapes that are views of stored values.
    pub views: HashSet<Op>,
    /// Transpose folding: pointwise ops that the reader of a transpose computes.
    folded: FoldedOps,
}

/// Most ops of an expression that each of its readers rematerialises.
const REMAT_OPS: usize = 16;
/// Positions and masks of at most this many elements are rematerialised rather than stored.
const TINY: i64 = 256;
/// An expression is rematerialised if its result is this many times larger than its inputs.
const SPREAD: i64 = 8;

impl Graph<'_> {
    /// Builds the graph of a function of one block. `ahead`: whether to fold pointwise ops before a
    /// transpose into the transpose's reader.
    pub fn read(func: Op, facts: &Facts, fold_transposes: bool) -> Result<Graph<'_>> {
        let block = func.regions().first().and_then(|r| r.first()).ok_or_at(func, "has no body")?;
        let end = block.terminator().ok_or_at(func, "has no return")?;
        let mut g = Graph {
            facts,
            nodes: vec![],
            node_of: HashMap::new(),
            returns: end.operands(),
            views: HashSet::new(),
            folded: FoldedOps::default(),
        };
        let ops: Vec<Op> = block.ops().into_iter().filter(|o| *o != end).collect();
        let mut roles = HashMap::new();
        for op in &ops {
            let role = g.role(*op).at(*op)?;
            if role == Role::View {
                g.views.insert(*op);
            }
            roles.insert(*op, role);
        }
        let mut must = g.stored(&ops, &roles);
        g.folded = if fold_transposes {
            FoldedOps::reader_of(&ops, &roles, &must)
        } else {
            FoldedOps::default()
        };
        must.extend(g.folded.ops.keys());
        let mut remat: HashMap<Value, usize> = HashMap::new();
        for op in ops {
            let role = roles[&op];
            let class = match role {
                Role::Compute(class) => class,
                Role::Library => Class::Single,
                Role::Move | Role::Generator if must.contains(&op.result(0)) => Class::Pointwise,
                _ => continue,
            };
            // Of several folded transposes the first one is the node.
            if g.folded.has(op.result(0)) || g.node_of.contains_key(&op.result(0)) {
                continue;
            }
            let node = g.node(op, class).at(op)?;
            let free = class == Class::Pointwise && !must.contains(&op.result(0));
            // A product computes the ops of its left operand that are marked as its prologue.
            if let Some(cost) = free
                .then(|| if in_prologue(op) { Some(1) } else { g.remat_cost(op, &node, &remat) })
                .flatten()
            {
                remat.insert(op.result(0), cost);
                continue;
            }
            let n = g.nodes.len();
            g.node_of.extend(results_of(op).into_iter().map(|v| (v, n)));
            g.nodes.push(node);
        }
        Ok(g)
    }

    fn role(&self, op: Op) -> Result<Role> {
        use OpKind::*;
        if makes_sizes(op) {
            return Ok(Role::Host);
        }
        let Some(kind) = op.kind() else {
            return Err("is not supported in a compiled function".into());
        };
        if folded_transpose(op).is_some() {
            return Ok(Role::Inner);
        }
        if op.attr(STORED).is_some() && is_movement(kind) {
            return Ok(Role::Compute(Class::Pointwise));
        }
        Ok(match kind {
            Transpose if folding_op(op).is_some_and(is_attention) => {
                Role::Compute(Class::Attention)
            }
            Transpose if folding_op(op).is_some() => Role::Compute(Class::Contract),
            GetGlobal => Role::Stored,
            Constant => {
                if op.attr("value").and_then(Attr::splat_value).is_some() {
                    Role::Generator
                } else {
                    Role::Stored
                }
            }
            Splat | Iota => Role::Generator,
            BroadcastInDim | Transpose | Slice | Reverse => Role::Move,
            Reshape if op.attr(VIEW).is_none() && self.is_move(op) => Role::Move,
            Reshape => Role::View,
            Gather | DynamicSlice => Role::Compute(Class::Pointwise),
            Reduce => Role::Compute(Class::Reduce),
            DotGeneral | ConvolutionWeightGradient => Role::Compute(Class::Contract),
            Attention | AttentionGradient => Role::Compute(Class::Attention),
            Convolution => {
                Role::Compute(if contracts(op) { Class::Contract } else { Class::Single })
            }
            Pad | Concat | InsertSlice | ArgMax | ArgMin | ReduceWindow | WinogradInput
            | WinogradOutput => Role::Compute(Class::Single),
            Cumulative if op.attr(LOOPS).is_some() => Role::Compute(Class::Scan),
            Fft if op.attr(LOOPS).is_some() => Role::Compute(Class::Single),
            _ if is_library(kind) => Role::Library,
            _ if kind.is_elementwise() => Role::Compute(Class::Pointwise),
            _ => return Err(Error::unsupported(op, "has no compiled form yet")),
        })
    }

    /// Whether a reshape is folded into its readers' indices: it only splits dimensions and adds or
    /// drops unit dimensions, so that an index stays linear, or it reads a weight in another order.
    fn is_move(&self, op: Op) -> bool {
        if op.attr(INDEX).is_some() {
            return true;
        }
        let (from, to) = (self.facts.dims(op.operand(0)), self.facts.dims(op.result(0)));
        let wide = |dims: &[SymDim]| dims.iter().filter(|d| d.known() != Some(1)).count();
        let fixed = from.iter().chain(to).all(|d| d.known().is_some());
        if fixed
            && op
                .operand(0)
                .def()
                .is_some_and(|o| o.kind() == Some(OpKind::Transpose) && is_weight(o.operand(0)))
        {
            // A floordiv in each reader costs less than a copy in every call.
            return true;
        }
        reshape_groups(from, to).into_iter().all(|(a, b)| {
            let inner = &to[b.clone()];
            let first = inner.iter().position(|d| d.known() != Some(1)).unwrap_or(0);
            wide(&from[a]) <= 1 && inner.iter().skip(first + 1).all(|d| d.known().is_some())
        })
    }

    /// The values that must be in memory whatever fusion decides.
    fn stored(&self, ops: &[Op], roles: &HashMap<Op, Role>) -> HashSet<Value> {
        let mut must: HashSet<Value> = self.returns.iter().copied().collect();
        // Looks through movement ops, which fold into the reader's index.
        let base = |mut v: Value| {
            while let Some(op) = v.def().filter(|o| roles.get(o) == Some(&Role::Move)) {
                v = op.operand(0);
            }
            v
        };
        for op in ops {
            match roles[op] {
                Role::View => {
                    must.insert(op.operand(0));
                }
                Role::Library => must.extend(op.operands()),
                // A bias is read once per score, like an elementwise operand; of Q, K and V, whole
                // rows are read.
                Role::Compute(Class::Attention) => {
                    let (op, moves) = (folding_op(*op).unwrap_or(*op), |op: Op| {
                        roles.get(&op) == Some(&Role::Move)
                    });
                    // Queries, keys and values, and of derivatives cotangents.
                    let gradient = op.kind() == Some(OpKind::AttentionGradient);
                    let (rows, operands) = (3 + usize::from(gradient), op.operands());
                    must.extend(
                        operands
                            .iter()
                            .take(rows)
                            .map(|v| if in_rows(*v, &moves) { base(*v) } else { *v }),
                    );
                    if gradient {
                        must.extend(&operands[rows..]);
                    }
                    let gathers = walk(op)
                        .into_iter()
                        .filter(|o| o.kind() == Some(OpKind::Gather))
                        .map(|o| o.operand(0));
                    must.extend(gathers.filter(|v| captured(op).contains(v)).map(base));
                }
                Role::Compute(Class::Single) if op.kind() == Some(OpKind::InsertSlice) => {
                    let start = InsertSlice::of(*op).and_then(|o| o.start);
                    must.extend(std::iter::successors(start, |v| moved_element(*v)).last());
                }
                // TMA reads pixels through no movement.
                Role::Compute(Class::Contract)
                    if op.kind() == Some(OpKind::ConvolutionWeightGradient) =>
                {
                    must.extend(op.operands());
                }
                Role::Compute(Class::Contract) => {
                    let operands = folding_op(*op).unwrap_or(*op).operands().into_iter().map(base);
                    must.extend(operands.filter(|v| !v.def().is_some_and(in_prologue)));
                }
                Role::Compute(Class::Pointwise)
                    if matches!(op.kind(), Some(OpKind::Gather | OpKind::DynamicSlice)) =>
                {
                    must.insert(base(op.operand(0)));
                }
                _ => {}
            }
        }
        must
    }

    /// The stored value underneath its views.
    pub fn base(&self, mut v: Value) -> Value {
        while let Some(op) = v.def().filter(|o| self.views.contains(o)) {
            v = op.operand(0);
        }
        v
    }

    /// Whether a value is in memory when a kernel runs.
    pub fn is_leaf(&self, v: Value) -> bool {
        let Some(op) = v.def() else { return true };
        self.node_of.contains_key(&v)
            || self.views.contains(&op)
            || op.kind() == Some(OpKind::GetGlobal)
            || (op.kind() == Some(OpKind::Constant)
                && op.attr("value").and_then(Attr::splat_value).is_none())
    }

    fn node(&self, op: Op, class: Class) -> Result<Node> {
        let own = self.facts.dims(op.result(0)).to_vec();
        let mut node =
            Node { value: op.result(0), class, dims: own, reduced: vec![], leaves: vec![] };
        let id = |n: usize| (0..n).map(IndexExpr::dim).collect::<Vec<_>>();
        match class {
            Class::Reduce => {
                let o = Reduce::of(op).ok_or_malformed(op)?;
                node.dims = self.facts.dims(o.input).to_vec();
                node.reduced = o.dims.iter().map(|d| *d as usize).collect();
                node.reduced.sort_unstable();
                let at = id(node.dims.len());
                self.visit(o.input, &at, at.len(), &mut node.leaves);
            }
            Class::Pointwise | Class::Scan => {
                let at = id(node.dims.len());
                self.expression(op, &at, at.len(), &mut node.leaves);
            }
            // Contractions and other non-pointwise ops are never computed inside another op's
            // loops; only their reads matter.
            Class::Contract | Class::Attention | Class::Single => {
                for v in reads(folding_op(op).unwrap_or(op)) {
                    node.leaves.extend(self.leaves(v));
                }
            }
        }
        Ok(node)
    }

    /// The stored values that `v` is computed from, indexed over loops of its own.
    pub fn leaves(&self, v: Value) -> Vec<Leaf> {
        let (n, mut all) = (self.facts.dims(v).len(), vec![]);
        self.visit(v, &(0..n).map(IndexExpr::dim).collect::<Vec<_>>(), n, &mut all);
        all
    }

    fn visit(&self, v: Value, at: &[IndexExpr], loops: usize, out: &mut Vec<Leaf>) {
        if self.is_leaf(v) {
            out.push(Leaf { value: v, at: at.to_vec() });
        } else if let Some(op) = v.def() {
            self.expression(op, at, loops, out);
        }
    }

    fn expression(&self, op: Op, at: &[IndexExpr], loops: usize, out: &mut Vec<Leaf>) {
        // A dynamic size needs no value here: it only makes the index non-linear.
        let open = |v: Value, _: usize| Some(v);
        match through(op, at, &open) {
            Some((from, ix)) => {
                for i in &ix {
                    if let Some((tensor, at)) = data(i) {
                        self.visit(tensor, at, loops, out);
                    }
                }
                self.visit(from, &ix, loops, out);
            }
            None => op
                .operands()
                .into_iter()
                .filter(|v| v.ty().is_tensor())
                .for_each(|v| self.visit(v, at, loops, out)),
        }
    }

    /// The ops of a node in program order.
    pub fn ops(&self, node: &Node) -> impl Iterator<Item = Op> {
        let folded = self.folded.ops.get(&node.value).into_iter().flatten().rev().copied();
        folded.chain(node.value.def().map(|op| folding_op(op).unwrap_or(op)))
    }

    /// The op count of a pointwise op, if each reader should rematerialise it.
    fn remat_cost(&self, op: Op, node: &Node, remat: &HashMap<Value, usize>) -> Option<usize> {
        let mut cost = 1;
        let mut stack = op.operands();
        while let Some(v) = stack.pop() {
            if let Some(n) = remat.get(&v) {
                cost += n;
            } else if let Some(o) = v.def().filter(|_| !self.is_leaf(v)) {
                stack.extend(o.operands());
            }
        }
        let numel = self.count(&node.dims);
        let spread =
            |l: &Leaf| self.count(self.facts.dims(l.value)).saturating_mul(SPREAD) <= numel;
        let whole = tensor_type(node.value.ty()).is_ok_and(|t| !t.dtype.is_float());
        let small =
            (whole && numel <= TINY) || node.leaves.iter().all(spread) || self.widens_stored(op);
        (small && cost <= REMAT_OPS && !heavy(op)).then_some(cost)
    }

    /// Whether an op widens a stored value, such as a residual before a norm, or the weights of one.
    fn widens_stored(&self, op: Op) -> bool {
        widens(op) && self.is_leaf(op.operand(0))
    }

    /// Floating-point operations of a node, with 128 for a dynamic size.
    pub fn flops(&self, node: &Node) -> i64 {
        let folded = self.folded.ops.get(&node.value).map_or(0, Vec::len) as i64;
        let elements = self.count(&node.dims).saturating_mul(1 + folded);
        let Some(op) = node.value.def().map(|op| folding_op(op).unwrap_or(op)) else {
            return elements;
        };
        let size = |v: Value, axis: usize| self.count(&self.facts.dims(v)[axis..=axis]);
        let depth = if let Some(o) = DotGeneral::of(op) {
            o.lhs_contract.iter().map(|d| size(o.lhs, *d as usize)).product()
        } else if let Some(o) = Attention::of(op) {
            2 * size(o.key, 2)
        } else if let Some(o) = AttentionGradient::of(op) {
            // Two products for scores, and one or two for the gradients.
            3 * size(if o.by_keys { o.query } else { o.key }, 2)
        } else if let Some(o) = Convolution::of(op) {
            self.count(&self.facts.dims(o.weight)[1..])
        } else if let Some(o) = ConvolutionWeightGradient::of(op) {
            self.count(&self.facts.dims(o.gradient)[..3]) / o.splits
        } else if let Some(o) = ReduceWindow::of(op) {
            return elements.saturating_mul(o.window.iter().product());
        } else if let Some(o) = Fft::of(op) {
            // A butterfly has 5 operations on complex numbers for each level.
            return elements.saturating_mul(5 * i64::from(o.length.max(2).ilog2()));
        } else if matches!(op.kind(), Some(OpKind::WinogradInput | OpKind::WinogradOutput)) {
            // Each element of a square takes part in two transforms of about two operations.
            return elements.saturating_mul(4);
        } else if op.kind() == Some(OpKind::PtxCall) {
            return 0;
        } else {
            return elements;
        };
        elements.saturating_mul(2).saturating_mul(depth)
    }

    /// Number of elements, with 128 for a dynamic size.
    pub fn count(&self, dims: &[SymDim]) -> i64 {
        let symbol = |a: &Atom| match a {
            Atom::Op(..) => None,
            _ => Some(128),
        };
        dims.iter().fold(1i64, |n, d| n.saturating_mul(d.evaluate(&symbol).unwrap_or(128)))
    }
}

/// The values that the kernel of an op computes: its results; with folded transposes, these in place
/// of the results that they read.
pub fn results_of(op: Op) -> Vec<Value> {
    let Some(from) = folding_op(op) else { return op.results() };
    let folded = folded_transposes(from);
    let stored = |(i, v)| folded.get(i).map_or(v, |t: &Op| t.result(0));
    from.results().into_iter().enumerate().map(stored).collect()
}

fn is_weight(v: Value) -> bool {
    v.def().is_some_and(|o| o.kind() == Some(OpKind::GetGlobal))
}

/// The tensor that a data-dependent index reads, and its index.
fn data(ix: &IndexExpr) -> Option<(Value, &[IndexExpr])> {
    ix.leaves().into_iter().find_map(|p| match p {
        IndexLeaf::Data { tensor, at, .. } => Some((*tensor, at.as_slice())),
        IndexLeaf::LinearExpr(_) | IndexLeaf::Size(_) => None,
    })
}
