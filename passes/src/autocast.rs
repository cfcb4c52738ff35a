//! `kiln-autocast`: products of f32 become products of 16-bit floats, as `torch.autocast` casts.
//!
//! Why: tensor cores multiply 16-bit floats many times as fast as f32, and a graph that was exported
//! in f32 has no cast. On a graph with gradients the products of these are cast too, while
//! arguments, such as weights, and results stay f32. Upstream has no such pass.
//!
//! Each op has a policy, by the lists of PyTorch's CUDA autocast (`torch.amp`, op-specific
//! behaviour): products take 16-bit operands, exponentials, losses, norms and sums take f32, others
//! take the widest type among their operands, to which numbers do not count. Bodies of control flow
//! are cast, their arguments and results are not. Other ops, and those that have an f64 operand, stay
//! as they are. Each cast is a remark.
//!
//! Numerics: approximates; an operand of a product has a relative error of at most 2^-8 (bf16).
//!
//! ```text
//! before:  %0 = kiln.linear %x, %w : tensor<4x8xf32>, tensor<8x8xf32>  %1 = kiln.relu %0  %2 = kiln.exp %1
//! after:   %3 = kiln.convert %x … to bf16  %4 = kiln.convert %w … to bf16  %0 = kiln.linear %3, %4 : tensor<4x8xbf16>, …
//!          %1 = kiln.relu %0 : tensor<4x8xbf16>  %5 = kiln.convert %1 … to f32  %2 = kiln.exp %5
//! ```
mod policy;

use crate::{
    options::named_values,
    pass::{Numerics, Pass},
    remarks::remark,
};
use kiln_dialects::{
    ir::*,
    ops::*,
    rules::{GRAPH_LEVELS, Level, non_drivers, tensor_type},
    value::DType,
};
use policy::{Policy, policy};
use std::collections::{HashMap, HashSet};

/// The type of products.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lower {
    /// Nothing is cast.
    Off,
    /// 16 bits, of which 8 are the exponent's.
    Bf16,
    /// 16 bits, of which 5 are the exponent's.
    F16,
}

named_values!(Lower, "off, bf16 or f16": "off" => Off, "bf16" => Bf16, "f16" => F16);

crate::pass_options! {
    /// The pass.
    pub struct Autocast {
        /// Type of the operands of products: off, bf16 or f16
        pub dtype: Lower = Lower::Off,
    }
}

impl Pass for Autocast {
    const FLAG: &'static str = "kiln-autocast";
    const SUMMARY: &'static str =
        "Casts the operands of products to 16-bit floats, as torch.autocast does";
    const LEVELS: &'static [Level] = GRAPH_LEVELS;
    const NUMERICS: Numerics = Numerics::Approximates;

    fn run(&self, root: Op) -> Result<()> {
        let lower = match self.dtype {
            Lower::Off => return Ok(()),
            Lower::Bf16 => DType::BF16,
            Lower::F16 => DType::F16,
        };
        for func in non_drivers(root) {
            let mut casts = Casts { lower, narrowed: HashSet::new(), made: HashMap::new() };
            for block in blocks(func) {
                casts.block(block)?;
            }
        }
        Ok(())
    }
}

struct Casts {
    lower: DType,
    /// Values that were f32.
    narrowed: HashSet<Value>,
    /// Casts of values, by the block that they are in.
    made: HashMap<(Value, DType, Block), Value>,
}

fn float(v: Value) -> Option<DType> {
    tensor_type(v.ty()).ok().map(|t| t.dtype).filter(|d| d.is_float())
}

/// Whether a value is a number, whose type does not widen others.
fn is_number(v: Value) -> bool {
    v.def().is_some_and(|op| match op.kind() {
        Some(OpKind::Splat) => true,
        Some(OpKind::BroadcastInDim | OpKind::Reshape) => is_number(op.operand(0)),
        _ => false,
    })
}

/// Ops whose bodies are cast as blocks of their own.
const BODIES: [OpKind; 4] = [OpKind::Checkpoint, OpKind::If, OpKind::Scan, OpKind::While];

impl Casts {
    fn block(&mut self, block: Block) -> Result<()> {
        for op in block.ops() {
            self.op(op).at(op)?;
            if op.kind().is_some_and(|k| BODIES.contains(&k)) {
                for inner in blocks(op) {
                    self.block(inner)?;
                }
            }
        }
        Ok(())
    }

    fn op(&mut self, op: Op) -> Result<()> {
        let floats: Vec<DType> = op.operands().into_iter().filter_map(float).collect();
        let castable = floats.iter().all(|d| *d == DType::F32 || *d == self.lower);
        let (all, lower) = (0..op.operand_count(), self.lower);
        match policy(op).filter(|_| castable).unwrap_or(Policy::Keep) {
            Policy::Any => drop_identity(op),
            Policy::Lower(count) => {
                if floats.contains(&DType::F32) || self.reads_narrowed(op) {
                    self.operands(op, lower, 0..count.min(all.end))?;
                    self.operands(op, DType::F32, count.min(all.end)..all.end)?;
                    // A log-sum-exp stays f32.
                    let one = op.kind() == Some(OpKind::Attention);
                    self.results(op, if one { 1 } else { op.results().len() })?;
                }
                Ok(())
            }
            Policy::Single => self.operands(op, DType::F32, all),
            Policy::First => {
                let narrow = self.narrowed.contains(&op.operand(0));
                self.operands(op, DType::F32, 1..all.end)?;
                if narrow { self.results(op, 1) } else { Ok(()) }
            }
            Policy::Widest => {
                let values = op.operands().into_iter().filter(|v| !is_number(*v));
                let narrow = values.filter_map(float).all(|d| d == lower);
                if narrow && self.reads_narrowed(op) {
                    self.operands(op, lower, all)?;
                    return self.results(op, op.results().len());
                }
                self.operands(op, DType::F32, all)
            }
            Policy::Keep => self.restore(op),
        }
    }

    fn reads_narrowed(&self, op: Op) -> bool {
        op.operands().iter().any(|v| self.narrowed.contains(v))
    }

    /// Casts the operands in a range that were f32.
    fn operands(&mut self, op: Op, to: DType, range: std::ops::Range<usize>) -> Result<()> {
        for i in range {
            let v = op.operand(i);
            let was_f32 = float(v) == Some(DType::F32) || self.narrowed.contains(&v);
            if was_f32 && float(v) != Some(to) {
                op.set_operand(i, self.cast(op, v, to)?);
            }
        }
        Ok(())
    }

    /// A value in another type, before an op.
    fn cast(&mut self, op: Op, v: Value, to: DType) -> Result<Value> {
        let b = Builder::before(op).ok_or("is in no block")?;
        if let Some(made) = self.made.get(&(v, to, b.block())) {
            return Ok(*made);
        }
        let from = tensor_type(v.ty())?.dtype;
        let made = b.add(&Convert { input: v, dtype: Type::scalar(op.ctx(), to) })?;
        let what =
            format!("casts an operand of {} from {} to {}", op.name(), from.name(), to.name());
        remark(op, Autocast::FLAG, &what);
        if to == self.lower {
            self.narrowed.insert(made);
        }
        self.made.insert((v, to, b.block()), made);
        Ok(made)
    }

    /// The first results of f32 are of the lower type now.
    fn results(&mut self, op: Op, count: usize) -> Result<()> {
        for v in op.results().into_iter().take(count) {
            let t = tensor_type(v.ty())?;
            if t.dtype == DType::F32 {
                v.set_ty(Type::tensor(op.ctx(), self.lower, &t.dims));
                self.narrowed.insert(v);
            }
        }
        Ok(())
    }

    /// Gives an op, and what is inside of it, the f32 values that it had.
    fn restore(&mut self, op: Op) -> Result<()> {
        self.operands(op, DType::F32, 0..op.operand_count())?;
        if op.kind().is_some_and(|k| BODIES.contains(&k)) {
            return Ok(());
        }
        for inner in walk(op).into_iter().filter(|inner| *inner != op) {
            for (i, v) in inner.operands().into_iter().enumerate() {
                if self.narrowed.contains(&v) {
                    inner.set_operand(i, self.cast(op, v, DType::F32)?);
                }
            }
        }
        Ok(())
    }
}

/// Drops a conversion to the type that its operand has now.
fn drop_identity(op: Op) -> Result<()> {
    if let Some(Convert { input, .. }) = Convert::of(op)
        && input.ty() == op.result(0).ty()
    {
        op.result(0).uses().into_iter().for_each(|(reader, i)| reader.set_operand(i, input));
        op.erase();
    }
    Ok(())
}
