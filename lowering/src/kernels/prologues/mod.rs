//! `kiln-prologues`: chooses the elementwise ops that a GEMM on a GPU computes as a prologue on its
//! left operand, in registers.
//!
//! Why: ops on an operand (a conversion, a scale, an activation, the last step of a norm) would
//! otherwise be a kernel of their own, or another result of one, which writes the whole operand to
//! memory for the GEMM to read. As a prologue they are recomputed for every tile of columns, by the
//! threads that wait for the tensor cores, which is profitable for few such tiles only. The cost
//! model that selects tiles gives the GEMM's time with the prologue; `bandwidth` and `launch` give
//! that of the kernel it saves. Marked ops are not materialised: `kiln-fuse` has their readers
//! compute them. Besides the operand's own tensor they may read vectors over rows, columns and the
//! batch. A GEMM without a prologue records why.
//!
//! What dequantises weights of 8 and of 4 bits is marked as well, where a skinny GEMM reads them:
//! it reads the weights once, and half or a quarter of the bytes.
//!
//! Numerics: exact; the prologue's result is rounded as if it were stored.
//!
//! ```text
//! before:  %0 = kiln.mul %x, %r : tensor<4096x512xbf16>   %1 = kiln.dot_general %0, %w …
//! after:   %0 = kiln.mul %x, %r {kiln.prologue} : tensor<4096x512xbf16>   %1 = kiln.dot_general %0, %w …
//! ```
pub(crate) mod operands;
pub(crate) mod weights;

use crate::{
    kernels::{
        class::Class,
        frozen::is_movement,
        graph::Graph,
        marks::{EACH_OP, PROLOGUE},
        op_facts::heavy,
        prologues::{
            operands::{OperandLoops, StridedOperand, UNIT, dtype, left, right},
            weights::QuantizedWeights,
        },
    },
    target::{
        Chip,
        costs::{Costs as _, Gemm, Left, PRODUCT_EXTENT},
    },
};
use kiln_dialects::{
    ir::*,
    ops::*,
    rules::{Level, non_drivers},
    value::DType,
};
use kiln_passes::{Numerics, Pass, refine_shapes::Facts};
use std::collections::HashSet;

/// Most ops in a prologue.
const MAX_OPS: usize = 24;

kiln_passes::pass_options! {
    /// The pass.
    pub struct Prologues {
        /// Target GPU: sm_80, sm_86, sm_89 or sm_90a; empty for CPUs, which have no
        /// prologues
        pub chip: String = String::new(),
        /// Rounds of size propagation
        pub rounds: usize = 8,
        /// Clocks that a launch takes
        pub launch: i64 = 4000,
        /// Bytes per clock that an SM reads or writes when all SMs do
        pub bandwidth: i64 = 18,
    }
}

impl Pass for Prologues {
    const FLAG: &'static str = "kiln-prologues";
    const SUMMARY: &'static str = "Fuses computations of left operands into GPU GEMMs as prologues";
    const LEVELS: &'static [Level] = &[Level::Prims];
    const NUMERICS: Numerics = Numerics::Exact;

    fn run(&self, root: Op) -> Result<()> {
        if self.chip.is_empty() || root.attr(EACH_OP).is_some() {
            return Ok(());
        }
        for func in non_drivers(root) {
            let Some(block) = func.regions().first().and_then(|r| r.first()) else { continue };
            let ops = block.ops();
            let quantized = self.weights(func, &ops)?;
            let others = ops.into_iter().filter(|op| !quantized.contains(op));
            let found: Vec<Candidate> = others.filter_map(Candidate::of).collect();
            if found.is_empty() {
                continue;
            }
            let c = func.ctx();
            mark(found.iter().flat_map(|f| &f.ops));
            let facts = Facts::of(func, self.rounds)?;
            let graph = Graph::read(func, &facts, true)?;
            let refused: Vec<Option<Error>> =
                found.iter().map(|f| self.pays(&graph, f).err()).collect();
            for (f, why) in found.iter().zip(refused) {
                let Some(why) = why else { continue };
                f.ops.iter().for_each(|op| op.remove_attr(PROLOGUE));
                f.product.set_attr(
                    PROLOGUE,
                    Attr::string(
                        c,
                        &format!("it does not compute its left operand: {}", why.message),
                    ),
                );
            }
        }
        Ok(())
    }
}

fn mark<'a>(ops: impl Iterator<Item = &'a Op>) {
    ops.for_each(|op| op.set_attr(PROLOGUE, Attr::unit(op.ctx())));
}

/// A GEMM, and the ops of its possible prologue.
struct Candidate {
    product: Op,
    dot: DotGeneral,
    ops: Vec<Op>,
}

/// Whether all transitive uses of a value, outside `ops`, end in reductions.
fn only_reduced(v: Value, ops: &[Op], depth: usize) -> bool {
    v.uses().iter().all(|(user, _)| {
        let Some(kind) = user.kind() else { return false };
        let passes = kind.is_elementwise() || is_movement(kind);
        ops.contains(user)
            || kind == OpKind::Reduce
            || depth > 0 && passes && only_reduced(user.result(0), ops, depth - 1)
    })
}

impl Candidate {
    /// The candidate of a product whose left operand is computed by ops that no other op needs.
    fn of(product: Op) -> Option<Candidate> {
        let dot = DotGeneral::of(product)?;
        let narrow = |v: Value| dtype(v).is_some_and(|d| [DType::BF16, DType::F16].contains(&d));
        let mut last = dot.lhs;
        // A reshape that splits the K dimension only changes indices.
        while let Some(reshape) =
            last.def().filter(|o| o.kind() == Some(OpKind::Reshape) && last.uses().len() == 1)
        {
            last = reshape.operand(0);
        }
        let (first, once) = (last.def()?, last.uses().len() == 1);
        let rank = last.ty().dims().len();
        if !once || !narrow(dot.lhs) || dtype(dot.lhs) != dtype(dot.rhs) || !computed(first) {
            return None;
        }
        let mut ops = vec![first];
        // To a fixed point: an operand's other users may join later.
        loop {
            let before = ops.len();
            let operands: Vec<Op> =
                ops.iter().flat_map(|op| op.operands()).filter_map(Value::def).collect();
            for op in operands {
                let whole = op.result_count() == 1
                    && op.result(0).ty().dims().len() == rank
                    && op.result(0).ty().dims() == last.ty().dims();
                if whole && computed(op) && !ops.contains(&op) {
                    let (v, mut with) = (op.result(0), ops.clone());
                    with.push(op);
                    let own = v.uses().iter().all(|(user, _)| ops.contains(user));
                    if own || !heavy(op) && only_reduced(v, &with, 6) {
                        ops.push(op);
                    }
                }
            }
            if ops.len() == before || ops.len() > MAX_OPS {
                break;
            }
        }
        Some(Candidate { product, dot, ops })
    }
}

/// Whether a prologue can compute an elementwise op: in f32, on stored values.
fn computed(op: Op) -> bool {
    let wide = |v: Value| dtype(v).is_none_or(|d| d == DType::F64);
    op.kind().is_some_and(OpKind::is_arithmetic)
        && !op.operands().into_iter().chain(op.results()).any(wide)
}

impl Prologues {
    /// Marks the ops that dequantise weights; returns the products that compute them.
    fn weights(&self, func: Op, ops: &[Op]) -> Result<HashSet<Op>> {
        let found: Vec<(Op, QuantizedWeights)> =
            ops.iter().filter_map(|op| Some((*op, QuantizedWeights::of(*op)?))).collect();
        if found.is_empty() {
            return Ok(HashSet::new());
        }
        mark(found.iter().flat_map(|(_, weights)| &weights.ops));
        let facts = Facts::of(func, self.rounds)?;
        let graph = Graph::read(func, &facts, true)?;
        let (read, refused): (Vec<_>, Vec<_>) =
            found.into_iter().partition(|(_, weights)| weights.are_read(&graph));
        let ops = refused.iter().flat_map(|(_, weights)| &weights.ops);
        ops.for_each(|op| op.remove_attr(PROLOGUE));
        Ok(read.into_iter().map(|(product, _)| product).collect())
    }
    fn hopper(&self) -> bool {
        self.chip == Chip::Sm90a.name()
    }
    /// Fails with the reason why a product should not have this prologue.
    fn pays(&self, graph: &Graph, f: &Candidate) -> Result<()> {
        let (dot, dims) = (&f.dot, graph.facts.dims(f.dot.lhs));
        if f.ops.len() > MAX_OPS {
            return Err(format!("the group would have more than {MAX_OPS} ops").into());
        }
        let sums = "it sums over several dimensions";
        let loops = OperandLoops::of(dims, &dot.lhs_batch, &dot.lhs_contract).ok_or(sums)?;
        let raw = left(graph, dot.lhs, &loops)?;
        if !self.hopper() && dtype(raw.value) == Some(DType::F32) {
            return Err("the prologue's kernel loads 16-bit elements only".into());
        }
        right(graph, dot)?;
        let known = |n: i64| n > 0 && n % UNIT == 0;
        let depth = &dims[loops.k];
        if !known(graph.facts.divisor(depth)) || graph.facts.bounds(depth).0.is_none_or(|n| n < 1) {
            return Err("its K dimension is no static multiple of 8".into());
        }
        if loops.free.is_empty()
            || loops.batch.len() > 3
            || f.product.result(0).ty().element().is_none_or(|e| e.dtype() == Ok(DType::F64))
        {
            return Err("it is no GEMM for tensor cores".into());
        }
        self.faster(graph, f, &loops, &raw)
    }

    /// Whether the prologue is profitable by the cost model.
    fn faster(
        &self,
        graph: &Graph,
        f: &Candidate,
        loops: &OperandLoops,
        raw: &StridedOperand,
    ) -> Result<()> {
        let model = if self.hopper() { Chip::Sm90a } else { Chip::Sm80 };
        let (dot, dims) = (&f.dot, graph.facts.dims(f.dot.lhs));
        let size = |d: &usize| dims[*d].known().unwrap_or(PRODUCT_EXTENT);
        let product = |all: &[usize]| all.iter().map(size).fold(1, i64::saturating_mul);
        let (batch, rows, depth) = (product(&loops.batch), product(&loops.free), size(&loops.k));
        let right = graph.facts.dims(dot.rhs);
        let free = (0..right.len() as i64)
            .filter(|d| !dot.rhs_batch.contains(d) && !dot.rhs_contract.contains(d));
        let columns = free
            .map(|d| right[d as usize].known().unwrap_or(PRODUCT_EXTENT))
            .fold(1, i64::saturating_mul);
        let bytes = dtype(raw.value).map_or(4, DType::byte_size) as i64;
        let gemm = Gemm { batch, rows, columns, k: depth };
        let heavy = f.ops.iter().filter(|op| heavy(**op) || is_expensive(**op)).count();
        let clocks = model.prologue(f.ops.len(), heavy);
        let with = model.tiled_gemm(gemm, Left { clocks, slices: (bytes / 2) as usize });
        let few = model.skinny_gemm(gemm);
        let whole = model.tiled_gemm(gemm, Left::default()).min(few.unwrap_or(f64::MAX));
        let clocks =
            |bytes: i64| bytes as f64 / (model.processors() * self.bandwidth.max(1)) as f64;
        let elements = batch.saturating_mul(rows).saturating_mul(depth);
        // A kernel that reads or computes the operand anyway (for a reduction) only writes it in
        // addition.
        let (written, all) = (
            clocks(elements.saturating_mul(2)),
            clocks(elements.saturating_mul(2 + bytes)) + self.launch as f64,
        );
        let other = self.computed_elsewhere(graph, f, raw)?;
        // 10% margin: the cost model is no more accurate.
        if with > 0.9 * (whole + if other { written } else { all }) {
            return Err(
                "to compute it again for each tile of columns takes longer than to store it".into(),
            );
        }
        Ok(())
    }

    /// Whether another kernel could compute the operand as an additional result: the producer of
    /// its tensor, or a kernel that reduces this tensor.
    fn computed_elsewhere(
        &self,
        graph: &Graph,
        f: &Candidate,
        raw: &StridedOperand,
    ) -> Result<bool> {
        let base = graph.base(raw.value);
        if graph.node_of.contains_key(&base) {
            let stored = graph.returns.contains(&base)
                || graph.base(raw.value) != raw.value
                || !only_reduced(base, &f.ops, 6);
            return if stored {
                Ok(true)
            } else {
                Err("its operands would have to be stored instead".into())
            };
        }
        let mut stack: Vec<Value> =
            graph.leaves(f.dot.lhs).iter().map(|l| l.value).filter(|v| *v != raw.value).collect();
        let mut seen = HashSet::new();
        while let Some(v) = stack.pop() {
            let Some(node) = graph
                .node_of
                .get(&graph.base(v))
                .filter(|n| seen.insert(**n))
                .map(|n| &graph.nodes[*n])
            else {
                continue;
            };
            if node.class == Class::Reduce
                && node.leaves.iter().any(|l| graph.base(l.value) == base)
            {
                return Ok(true);
            }
            stack.extend(node.leaves.iter().map(|l| l.value));
        }
        Ok(false)
    }
}

fn is_expensive(op: Op) -> bool {
    matches!(op.kind(), Some(OpKind::Div | OpKind::Sqrt | OpKind::Rsqrt))
}
