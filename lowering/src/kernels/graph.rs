//! Read: the ops of a function as plain data: what each computes over, and which stored values it
//! reads where.
use crate::{
    analysis::{
        index_expr::{Ix, reshape_groups, through},
        sizes::makes_sizes,
    },
    kernels::{
        frozen::{STORED, is_movement},
        prologues::in_prologue,
        rows::in_rows,
        transpose_folding::Ahead,
    },
};
use kiln_dialects::error::OptionExt;
use kiln_dialects::error::ResultExt;
use kiln_dialects::{Error, Result};
use kiln_dialects::{
    ir::{Node as _, *},
    ops::*,
    rules::tensor_type,
    sym::{Atom, Dim as SymDim},
};
use kiln_passes::{expand_scans::LOOPS, refine_shapes::Facts};
use std::collections::{HashMap, HashSet};

/// What an op is to fusion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// One result element from elements at the same or at computed positions.
    Pointwise,
    /// A reduction along some dimensions.
    Reduce,
    /// A contraction: reads its operands many times.
    Contract,
    /// Two contractions with a softmax between them.
    Attention,
    /// What comes before each element of an axis, and the element, combined.
    Scan,
    /// Anything else: a kernel of its own.
    Single,
}

/// A stored value that a node reads, and where.
pub struct Leaf {
    /// The value.
    pub value: Value,
    /// The position, over the node's loops.
    pub at: Vec<Ix>,
}

/// An op whose result is computed in one place.
pub struct Node {
    /// The op; for a value that is only copied, the value's own.
    pub value: Value,
    /// What it is.
    pub class: Class,
    /// The loops: the result's sizes, for a reduction the operand's.
    pub dims: Vec<SymDim>,
    /// The loops that are reduced.
    pub reduced: Vec<usize>,
    /// What it reads.
    pub leaves: Vec<Leaf>,
}

impl Node {
    /// The loops of more than one step.
    pub fn loops(&self) -> Vec<usize> {
        (0..self.dims.len()).filter(|d| self.dims[*d].known() != Some(1)).collect()
    }
}

/// A function as nodes.
pub struct Graph<'a> {
    /// Sizes.
    pub facts: &'a Facts,
    /// In the order of the text.
    pub nodes: Vec<Node>,
    /// The node of a value.
    pub node_of: HashMap<Value, usize>,
    /// What the function returns.
    pub returns: Vec<Value>,
    /// Reshapes that are another view of a stored value.
    pub views: HashSet<Op>,
    /// What nodes compute behind a transpose that stands in front of it.
    ahead: Ahead,
}

/// How an op takes part.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Host,
    Stored,
    Generator,
    Move,
    /// Computed where its only reader is stored.
    Inner,
    View,
    Compute(Class),
    Library,
}

/// Ops whose operands and results are whole buffers, if no loops compute them.
pub fn is_library(kind: OpKind) -> bool {
    use OpKind::*;
    matches!(
        kind,
        Scatter
            | Sort
            | TopK
            | Cumulative
            | DynamicUpdateSlice
            | RandomBits
            | RandomUniform
            | RandomNormal
            | PtxCall
    )
}

/// What people call an op: its mnemonic, or the name that PTX was given.
pub fn title(op: Op) -> Option<String> {
    PtxCall::of(op).map(|o| o.callee).or_else(|| Some(op.kind()?.mnemonic().to_string()))
}

/// Whether an op is dearer than a load and a store. A power that is a product or two is not.
pub fn heavy(op: Op) -> bool {
    use OpKind::*;
    let Some(kind) = op.kind() else { return false };
    matches!(
        kind,
        Exp | Exp2
            | Expm1
            | Log
            | Log1p
            | Log2
            | Sin
            | Cos
            | Tan
            | Asin
            | Acos
            | Atan
            | Sinh
            | Cosh
            | Tanh
            | Erf
            | Pow
            | Atan2
            | Rem
            | FloorDiv
    ) && !(kind == Pow && small_power(op.operand(1)))
}

/// Whether an exponent is one of the numbers for which `kiln-to-linalg` writes products.
fn small_power(mut v: Value) -> bool {
    while let Some(op) = v.def().filter(|o| {
        matches!(o.kind(), Some(OpKind::BroadcastInDim | OpKind::Reshape | OpKind::Convert))
    }) {
        v = op.operand(0);
    }
    let value = v
        .def()
        .filter(|o| matches!(o.kind(), Some(OpKind::Splat | OpKind::Constant)))
        .and_then(|o| o.attr("value"));
    let number = value
        .map(|a| a.splat_value().unwrap_or(a))
        .and_then(|a| a.as_f64().or_else(|| a.as_i64().map(|n| n as f64)));
    number.is_some_and(|n| [2.0, 3.0, 4.0].contains(&n))
}

/// Most ops of an expression that is computed again by each of its readers.
const CHEAP_OPS: usize = 16;
/// Positions and masks of at most so many elements are computed again rather than stored.
const TINY: i64 = 256;
/// An expression is computed again if what it reads is this much smaller than what it gives.
const SPREAD: i64 = 8;

impl Graph<'_> {
    /// Reads a function of one block. `ahead`: whether ops in front of a transpose are computed
    /// behind it.
    pub fn read(func: Op, facts: &Facts, ahead: bool) -> Result<Graph<'_>> {
        let block = func.regions().first().and_then(|r| r.first()).ok_or_at(func, "has no body")?;
        let end = block.terminator().ok_or_at(func, "has no return")?;
        let mut g = Graph {
            facts,
            nodes: vec![],
            node_of: HashMap::new(),
            returns: end.operands(),
            views: HashSet::new(),
            ahead: Ahead::default(),
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
        g.ahead = if ahead { Ahead::of(&ops, &roles, &must) } else { Ahead::default() };
        must.extend(g.ahead.ops.keys());
        let mut cheap: HashMap<Value, usize> = HashMap::new();
        for op in ops {
            let role = roles[&op];
            let class = match role {
                Role::Compute(class) => class,
                Role::Library => Class::Single,
                Role::Move | Role::Generator if must.contains(&op.result(0)) => Class::Pointwise,
                _ => continue,
            };
            if g.ahead.has(op.result(0)) {
                continue;
            }
            let node = g.node(op, class).at(op)?;
            let free = class == Class::Pointwise && !must.contains(&op.result(0));
            // Of its left operand a product computes what is said.
            if let Some(cost) = free
                .then(|| if in_prologue(op) { Some(1) } else { g.cheap(op, &node, &cheap) })
                .flatten()
            {
                cheap.insert(op.result(0), cost);
                continue;
            }
            op.results().into_iter().for_each(|v| {
                g.node_of.insert(v, g.nodes.len());
            });
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
        if turned(op).is_some() {
            return Ok(Role::Inner);
        }
        if op.attr(STORED).is_some() && is_movement(kind) {
            return Ok(Role::Compute(Class::Pointwise));
        }
        Ok(match kind {
            Transpose if turns(op).is_some_and(|o| o.kind() == Some(Attention)) => {
                Role::Compute(Class::Attention)
            }
            Transpose if turns(op).is_some() => Role::Compute(Class::Contract),
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
            Reshape if self.is_move(op) => Role::Move,
            Reshape => Role::View,
            Gather | DynamicSlice => Role::Compute(Class::Pointwise),
            Reduce => Role::Compute(Class::Reduce),
            DotGeneral => Role::Compute(Class::Contract),
            Attention => Role::Compute(Class::Attention),
            Convolution => {
                Role::Compute(if contracts(op) { Class::Contract } else { Class::Single })
            }
            Pad | Concat | InsertSlice | ArgMax | ArgMin | ReduceWindow => {
                Role::Compute(Class::Single)
            }
            Cumulative if op.attr(LOOPS).is_some() => Role::Compute(Class::Scan),
            _ if is_library(kind) => Role::Library,
            _ if kind.is_elementwise() => Role::Compute(Class::Pointwise),
            _ => return Err(Error::unsupported(op, "has no compiled form yet")),
        })
    }

    /// Whether a reshape is for its readers to look through: it only splits dimensions and adds or
    /// drops those of size 1, so that an index stays linear, or it reads a weight in another order.
    fn is_move(&self, op: Op) -> bool {
        let (from, to) = (self.facts.dims(op.operand(0)), self.facts.dims(op.result(0)));
        let wide = |dims: &[SymDim]| dims.iter().filter(|d| d.known() != Some(1)).count();
        let fixed = from.iter().chain(to).all(|d| d.known().is_some());
        if fixed
            && op
                .operand(0)
                .def()
                .is_some_and(|o| o.kind() == Some(OpKind::Transpose) && is_weight(o.operand(0)))
        {
            // A packed weight: its readers divide by block sizes, which is less than to write it
            // anew in every call.
            return true;
        }
        reshape_groups(from, to).into_iter().all(|(a, b)| {
            let inner = &to[b.clone()];
            let first = inner.iter().position(|d| d.known() != Some(1)).unwrap_or(0);
            wide(&from[a]) <= 1 && inner.iter().skip(first + 1).all(|d| d.known().is_some())
        })
    }

    /// The values that have to be in memory, beside those that fusion puts there.
    fn stored(&self, ops: &[Op], roles: &HashMap<Op, Role>) -> HashSet<Value> {
        let mut must: HashSet<Value> = self.returns.iter().copied().collect();
        // Through movement ops, whose index the reader takes over.
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
                // A bias is read once per score, as an element-wise operand is; of the others whole
                // rows.
                Role::Compute(Class::Attention) => {
                    let (op, moves) =
                        (turns(*op).unwrap_or(*op), |op: Op| roles.get(&op) == Some(&Role::Move));
                    must.extend(
                        op.operands()
                            .into_iter()
                            .take(3)
                            .map(|v| if in_rows(v, &moves) { base(v) } else { v }),
                    );
                    let gathers = walk(op)
                        .into_iter()
                        .filter(|o| o.kind() == Some(OpKind::Gather))
                        .map(|o| o.operand(0));
                    must.extend(gathers.filter(|v| captured(op).contains(v)).map(base));
                }
                Role::Compute(Class::Contract) => {
                    let operands = turns(*op).unwrap_or(*op).operands().into_iter().map(base);
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

    /// A stored value through its views.
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
        let id = |n: usize| (0..n).map(|d| Ix::dim(d, n)).collect::<Vec<_>>();
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
            // Contractions and the rest are never computed inside of another's loops; only what
            // they read matters.
            Class::Contract | Class::Attention | Class::Single => {
                for v in reads(turns(op).unwrap_or(op)) {
                    node.leaves.extend(self.leaves(v));
                }
            }
        }
        Ok(node)
    }

    /// What a value is read from, over loops of its own.
    pub fn leaves(&self, v: Value) -> Vec<Leaf> {
        let (n, mut all) = (self.facts.dims(v).len(), vec![]);
        self.visit(v, &(0..n).map(|d| Ix::dim(d, n)).collect::<Vec<_>>(), n, &mut all);
        all
    }

    fn visit(&self, v: Value, at: &[Ix], loops: usize, out: &mut Vec<Leaf>) {
        if self.is_leaf(v) {
            out.push(Leaf { value: v, at: at.to_vec() });
        } else if let Some(op) = v.def() {
            self.expression(op, at, loops, out);
        }
    }

    fn expression(&self, op: Op, at: &[Ix], loops: usize, out: &mut Vec<Leaf>) {
        // An open size needs no value here: that it is no linear index is all that counts.
        let open = |v: Value, _: usize| Some(v);
        match through(op, at, loops, &open) {
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

    /// The ops of a node in order.
    pub fn ops(&self, node: &Node) -> impl Iterator<Item = Op> {
        let ahead = self.ahead.ops.get(&node.value).into_iter().flatten().rev().copied();
        ahead.chain(node.value.def().map(|op| turns(op).unwrap_or(op)))
    }

    /// The number of ops, if a pointwise op is better computed again by each reader than stored.
    fn cheap(&self, op: Op, node: &Node, cheap: &HashMap<Value, usize>) -> Option<usize> {
        let mut cost = 1;
        let mut stack = op.operands();
        while let Some(v) = stack.pop() {
            if let Some(n) = cheap.get(&v) {
                cost += n;
            } else if let Some(o) = v.def().filter(|_| !self.is_leaf(v)) {
                stack.extend(o.operands());
            }
        }
        let numel = self.count(&node.dims);
        let spread =
            |l: &Leaf| self.count(self.facts.dims(l.value)).saturating_mul(SPREAD) <= numel;
        let whole = tensor_type(node.value.ty()).is_ok_and(|t| !t.dtype.is_float());
        let small = (whole && numel <= TINY) || node.leaves.iter().all(spread) || self.widens(op);
        (small && cost <= CHEAP_OPS && !heavy(op)).then_some(cost)
    }

    /// Whether an op widens what is stored, such as a residual in front of a norm, or the weights
    /// of one: narrow it is less to write and to read.
    fn widens(&self, op: Op) -> bool {
        let bytes = |v: Value| {
            tensor_type(v.ty())
                .map_or(0, |t| if t.dtype.is_float() { t.dtype.byte_size() } else { 0 })
        };
        let wider = op.kind() == Some(OpKind::Convert)
            && 0 < bytes(op.operand(0))
            && bytes(op.operand(0)) < bytes(op.result(0));
        wider && self.is_leaf(op.operand(0))
    }

    /// Floating-point operations of a node, with 128 for an open size.
    pub fn flops(&self, node: &Node) -> i64 {
        let ahead = self.ahead.ops.get(&node.value).map_or(0, Vec::len) as i64;
        let elements = self.count(&node.dims).saturating_mul(1 + ahead);
        let Some(op) = node.value.def().map(|op| turns(op).unwrap_or(op)) else { return elements };
        let size = |v: Value, axis: usize| self.count(&self.facts.dims(v)[axis..=axis]);
        let depth = if let Some(o) = DotGeneral::of(op) {
            o.lhs_contract.iter().map(|d| size(o.lhs, *d as usize)).product()
        } else if let Some(o) = Attention::of(op) {
            2 * size(o.key, 2)
        } else if let Some(o) = Convolution::of(op) {
            self.count(&self.facts.dims(o.weight)[1..])
        } else if let Some(o) = ReduceWindow::of(op) {
            return elements.saturating_mul(o.window.iter().product());
        } else if op.kind() == Some(OpKind::PtxCall) {
            return 0;
        } else {
            return elements;
        };
        elements.saturating_mul(2).saturating_mul(depth)
    }

    /// How many elements, with 128 for an open size.
    pub fn count(&self, dims: &[SymDim]) -> i64 {
        let symbol = |a: &Atom| match a {
            Atom::Op(..) => None,
            _ => Some(128),
        };
        dims.iter().fold(1i64, |n, d| n.saturating_mul(d.evaluate(&symbol).unwrap_or(128)))
    }
}

/// The tensors that an op takes, and those that its regions take from outside.
pub fn reads(op: Op) -> Vec<Value> {
    let own = op.operands().into_iter().filter(|v| v.ty().is_tensor());
    own.chain(captured(op)).collect()
}

/// The tensors that regions of an op take from outside.
fn captured(op: Op) -> Vec<Value> {
    let inside: Vec<Op> = walk(op).into_iter().filter(|o| *o != op).collect();
    let within = |v: &Value| match v.block_arg() {
        Some((block, _)) => block.parent() == Some(op),
        None => v.def().is_some_and(|d| inside.contains(&d)),
    };
    let mut all: Vec<Value> = vec![];
    for v in inside.iter().flat_map(|o| o.operands()).filter(|v| v.ty().is_tensor() && !within(v)) {
        if !all.contains(&v) {
            all.push(v);
        }
    }
    all
}

fn is_weight(v: Value) -> bool {
    v.def().is_some_and(|o| o.kind() == Some(OpKind::GetGlobal))
}

/// The tensor that a data-dependent index reads, and where.
fn data(ix: &Ix) -> Option<(Value, &[Ix])> {
    match ix {
        Ix::Data { tensor, at, .. } => Some((*tensor, at)),
        Ix::Add(a, b) | Ix::Mul(a, b) | Ix::FloorDiv(a, b) | Ix::Mod(a, b) => {
            data(a).or_else(|| data(b))
        }
        Ix::Lin(_) | Ix::Size(_) => None,
    }
}

/// The transpose that a contraction, or an attention, writes its result through: its only reader,
/// if whole vectors stay together or channels come last.
pub fn turned(op: Op) -> Option<Op> {
    let contracts = match op.kind()? {
        OpKind::DotGeneral | OpKind::Attention => true,
        OpKind::Convolution => contracts(op),
        _ => false,
    };
    let [(reader, _)] = op.result(0).uses()[..] else { return None };
    let permutation = Transpose::of(reader).filter(|_| contracts)?.permutation;
    let last = permutation.last().is_some_and(|p| *p as usize == permutation.len() - 1);
    let fits =
        if op.kind() == Some(OpKind::Convolution) { permutation == CHANNELS_LAST } else { last };
    fits.then_some(reader)
}

/// From batch, channels, height, width to batch, height, width, channels.
pub const CHANNELS_LAST: [i64; 4] = [0, 2, 3, 1];

/// The contraction whose result a transpose puts in another order as it is written.
pub fn turns(op: Op) -> Option<Op> {
    let from = Transpose::of(op)?.input.def()?;
    (turned(from)? == op).then_some(from)
}

/// Whether a convolution is a plain contraction: not transposed, and all channels or each by
/// itself.
pub fn contracts(op: Op) -> bool {
    let Some(o) = Convolution::of(op) else { return false };
    let channels = o.input.ty().dims().get(1).and_then(SymDim::known);
    let filters = o.weight.ty().dims().first().and_then(SymDim::known);
    !o.transposed && (o.groups == 1 || (channels == Some(o.groups) && filters == channels))
}
