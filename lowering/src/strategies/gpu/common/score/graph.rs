//! What the values of a body depend on (row, column, element), and which are affine in the position.
use crate::strategies::gpu::common::score::{COLUMN, FACTOR, ROW, integer, small};
use kiln_dialects::{ir::*, value::DType};
use std::collections::{HashMap, HashSet};

/// A value that a body takes.
#[derive(Clone, Copy)]
pub struct Leaf {
    /// Bits of what it depends on.
    pub depends: u8,
    /// Whether it is a position: an integer below 2^22, affine in the column.
    pub position: bool,
}

/// The analysed values of a body.
#[derive(Clone, Default)]
pub struct Graph {
    pub(super) depends: HashMap<Value, u8>,
    pub(super) affine_ints: HashSet<Value>,
    pub(super) affine_floats: HashSet<Value>,
}

impl Graph {
    /// Analyses a block, given which of its arguments and results are leaves.
    pub fn of(block: Block, leaf: &dyn Fn(Value) -> Option<Leaf>) -> Graph {
        let mut g = Graph::default();
        let ops = block.ops().into_iter().filter(|o| o.result_count() == 1);
        for v in block.args().into_iter().chain(ops.map(|o| o.result(0))) {
            let found = leaf(v);
            let op = v.def().filter(|_| found.is_none());
            let bits = match (found, op) {
                (Some(leaf), _) => leaf.depends,
                (None, Some(op)) => op.operands().iter().fold(0, |all, v| all | g.depends(*v)),
                (None, None) => 0,
            };
            g.depends.insert(v, bits);
            if found.is_some_and(|l| l.position) || op.is_some_and(|op| g.is_affine_int(op)) {
                g.affine_ints.insert(v);
            }
            if op.is_some_and(|op| g.is_affine_float(op)) {
                g.affine_floats.insert(v);
            }
        }
        g
    }

    /// Bits of what a value depends on.
    pub fn depends(&self, v: Value) -> u8 {
        self.depends.get(&v).copied().unwrap_or(0)
    }
    /// Whether the body computes or takes a value.
    pub fn has(&self, v: Value) -> bool {
        self.depends.contains_key(&v)
    }
    /// Whether a value is affine in the position.
    pub fn is_affine(&self, v: Value) -> bool {
        self.affine_ints.contains(&v) || self.affine_floats.contains(&v)
    }

    /// Whether an op's result is affine in the positions.
    fn is_affine_int(&self, op: Op) -> bool {
        let linear =
            |i: usize| self.affine_ints.contains(&op.operand(i)) || small(op.operand(i)).is_some();
        let factor = |i: usize| integer(op.operand(i)).is_some_and(|n| n.abs() <= FACTOR);
        match op.name().as_str() {
            arith::Constant::NAME => small(op.result(0)).is_some(),
            arith::AddI::NAME | arith::SubI::NAME => linear(0) && linear(1),
            arith::MinSI::NAME => {
                linear(0) && linear(1) && self.depends(op.result(0)) & COLUMN == 0
            }
            arith::MulI::NAME => (linear(0) && factor(1)) || (linear(1) && factor(0)),
            arith::IndexCast::NAME | arith::ExtSI::NAME => linear(0),
            arith::TruncI::NAME => linear(0) && op.result(0).ty().dtype() == Ok(DType::I32),
            _ => false,
        }
    }

    /// Whether an op's result is a float that grows by the same step per column: positions, their
    /// products with column-invariant values (assumed finite), and sums of these.
    fn is_affine_float(&self, op: Op) -> bool {
        let grows = |i: usize| self.affine_floats.contains(&op.operand(i));
        let fixed = |i: usize| self.depends(op.operand(i)) & !ROW == 0;
        let either = || (grows(0) && (fixed(1) || grows(1))) || (fixed(0) && grows(1));
        op.result(0).ty().dtype() == Ok(DType::F32)
            && match op.name().as_str() {
                arith::SIToFP::NAME => self.affine_ints.contains(&op.operand(0)),
                arith::AddF::NAME | arith::SubF::NAME => either(),
                arith::MulF::NAME => either() && !(grows(0) && grows(1)),
                _ => false,
            }
    }
}
