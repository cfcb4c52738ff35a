//! `kiln-fold-scales`: folds the per-channel scale and bias that follow a contraction into its
//! frozen weight and one bias vector.
//!
//! Why: a batch norm with frozen statistics is four operations per element, and four vectors that
//! every register tile reads. Folded into the weight it costs nothing: `kiln-freeze` computes the
//! new weight once. Upstream has neither frozen weights nor batch norms.
//!
//! The pass folds a chain of additions, subtractions and multiplications whose other operands are
//! frozen and vary by channel only. The intermediate values and the weight must have no other
//! reader, and the chain must have a multiplication: a pure bias stays in the epilogue. Divisions
//! fold only by constants whose reciprocals are far from overflow. Weights of less than 32 bits
//! stay, since they would lose precision by rounding: there, what follows on the f32 result becomes
//! one multiplication and one addition.
//!
//! Numerics: reassociates. Each weight is rounded once more, and sums of scaled products replace
//! scaled sums.
//!
//! ```text
//! before:  %0 = kiln.convolution %x, %w …   %1 = kiln.mul %0, (kiln.broadcast_in_dim %s dims = [1])   %2 = kiln.add %1, (… %t …)
//! after:   %v = kiln.mul %w, (kiln.broadcast_in_dim %s dims = [0])   %0 = kiln.convolution %x, %v …   %2 = kiln.add %0, (… %t …)
//! ```
use crate::kernels::frozen::Frozen;
use kiln_dialects::{
    ir::*,
    ops::*,
    rules::{Level, tensor_type},
    sym::Dim,
    value::DType,
};
use kiln_passes::{Numerics, Pass};

kiln_passes::pass_options! {
    /// The pass.
    pub struct FoldScales {}
}

impl Pass for FoldScales {
    const FLAG: &'static str = "kiln-fold-scales";
    const SUMMARY: &'static str =
        "Folds scales of output channels into the frozen weights of contractions";
    const LEVELS: &'static [Level] = &[Level::Prims];
    const NUMERICS: Numerics = Numerics::Reassociates;

    fn run(&self, root: Op) -> Result<()> {
        for func in functions_in(root) {
            let Some(block) = func.regions().first().and_then(|r| r.first()) else { continue };
            let ops = block.ops();
            let frozen = Frozen::of(&ops);
            let mut dead = vec![];
            for op in ops {
                let Some(chain) = Chain::of(op, &frozen) else { continue };
                chain.fold().at(op)?;
                dead.extend(chain.steps.iter().rev().map(|s| s.op));
                dead.extend(chain.weight.map(|_| op));
            }
            // Erased at the end, since `frozen` is keyed by op addresses.
            dead.into_iter().for_each(|op| op.erase());
        }
        Ok(())
    }
}

/// The per-channel operation of one step of a chain.
#[derive(Clone, Copy)]
enum Act {
    Add,
    Sub,
    Mul,
    Div,
}

/// An operand that varies by channel only.
enum Channels {
    /// A vector of one element per channel.
    Vector(Value),
    /// Such a vector with further unit dimensions.
    Reshaped(Value),
    /// A tensor of one element.
    Scalar(Value),
    /// A constant.
    Number(Attr),
}

struct Step {
    op: Op,
    act: Act,
    channels: Channels,
    /// Sizes of the broadcast result, as the operand states them.
    sizes: Vec<Size>,
}

/// A contraction with a frozen weight, and the per-channel chain that follows it.
struct Chain {
    op: Op,
    /// The weight that absorbs the scale; without one, the scale stays a multiplication.
    weight: Option<Value>,
    /// The result that is scaled, after its widening conversion if it has one.
    from: Value,
    /// The weight's output-channel dimension.
    filters: usize,
    /// The result's channel dimension.
    axis: usize,
    count: i64,
    steps: Vec<Step>,
}

impl Chain {
    fn of(op: Op, frozen: &Frozen) -> Option<Chain> {
        let (weight, filters, axis) = if let Some(o) = Convolution::of(op) {
            (o.weight, 0, 1)
        } else {
            let o = DotGeneral::of(op)?;
            let matrix =
                o.rhs_batch.is_empty() && o.rhs_contract.len() == 1 && o.rhs.ty().dims().len() == 2;
            let last = op.result(0).ty().dims().len().checked_sub(1)?;
            (o.rhs, 1 - matrix.then(|| o.rhs_contract[0] as usize)?, last)
        };
        let wide = |v: Value| {
            tensor_type(v.ty()).is_ok_and(|t| matches!(t.dtype, DType::F32 | DType::F64))
        };
        let transposed = Convolution::of(op).is_some_and(|o| o.transposed);
        if transposed || frozen.contains(op.result(0)) {
            return None;
        }
        let count = weight.ty().dims().get(filters)?.known()?;
        let (weight, from) = if wide(weight) {
            let own = Some(weight).filter(|w| frozen.contains(*w) && w.uses().len() == 1)?;
            (Some(own), op.result(0))
        } else {
            let [(reader, _)] = op.result(0).uses()[..] else { return None };
            (
                None,
                Some(reader)
                    .filter(|r| r.kind() == Some(OpKind::Convert) && wide(r.result(0)))?
                    .result(0),
            )
        };
        let mut chain = Chain { op, weight, from, filters, axis, count, steps: vec![] };
        let mut y = from;
        while let Some(step) = chain.step(y, frozen) {
            y = step.op.result(0);
            chain.steps.push(step);
        }
        let scales = |s: &Step| matches!(s.act, Act::Mul | Act::Div);
        let least = 1 + usize::from(!chain.steps.iter().all(scales));
        (chain.steps.iter().any(scales) && (weight.is_some() || chain.steps.len() > least))
            .then_some(chain)
    }

    /// The only user of `y`, if it applies a per-channel operation.
    fn step(&self, y: Value, frozen: &Frozen) -> Option<Step> {
        let [(op, at)] = y.uses()[..] else { return None };
        let act = match op.kind()? {
            OpKind::Add => Act::Add,
            OpKind::Mul => Act::Mul,
            OpKind::Sub if at == 0 => Act::Sub,
            OpKind::Div if at == 0 => Act::Div,
            _ => return None,
        };
        if op.result(0).ty() != y.ty() {
            return None;
        }
        let other = op.operand(1 - at).def()?;
        if let Some(o) = Splat::of(other) {
            let moderate = o.value.as_f64().is_some_and(|c| (1e-30..1e30).contains(&c.abs()));
            if matches!(act, Act::Div) && !moderate {
                return None;
            }
            return Some(Step { op, act, channels: Channels::Number(o.value), sizes: o.sizes });
        }
        let o = BroadcastInDim::of(other)
            .filter(|o| frozen.contains(o.input) && !matches!(act, Act::Div))?;
        let wide: Vec<usize> =
            (0..o.dims.len()).filter(|d| o.input.ty().dims()[*d] != Dim::Known(1)).collect();
        let channels = match (o.dims.len(), wide.as_slice()) {
            (0, []) => Channels::Scalar(o.input),
            (1, [d]) if o.dims[*d] as usize == self.axis => Channels::Vector(o.input),
            (_, [d]) if o.dims[*d] as usize == self.axis => Channels::Reshaped(o.input),
            _ => return None,
        };
        Some(Step { op, act, channels, sizes: o.sizes })
    }

    /// Emits the contraction with its new weight and the remaining bias addition after the chain.
    fn fold(&self) -> Result<()> {
        let Some(last) = self.steps.last() else { return Ok(()) };
        let b = Builder::before(last.op).ok_or("is in no block")?;
        let count = [Size::Static(self.count)];
        let (mut scale, mut shift): (Option<Value>, Option<Value>) = (None, None);
        for s in &self.steps {
            let b = b.at(s.op.loc());
            let v = match &s.channels {
                Channels::Vector(v) => *v,
                Channels::Reshaped(v) => b.add(&Reshape { input: *v, sizes: count.to_vec() })?,
                Channels::Scalar(v) => {
                    b.add(&BroadcastInDim { input: *v, dims: vec![], sizes: count.to_vec() })?
                }
                Channels::Number(value) => {
                    b.add(&Splat { value: *value, sizes: count.to_vec() })?
                }
            };
            let one = || b.splat(tensor_type(v.ty())?.dtype, &count, 1.0);
            match (s.act, shift) {
                (Act::Add, None) => shift = Some(v),
                (Act::Add, Some(t)) => shift = Some(b.add(&Add { lhs: t, rhs: v })?),
                (Act::Sub, None) => shift = Some(b.add(&Neg { input: v })?),
                (Act::Sub, Some(t)) => shift = Some(b.add(&Sub { lhs: t, rhs: v })?),
                (Act::Mul, t) => {
                    shift = t.map(|lhs| b.add(&Mul { lhs, rhs: v })).transpose()?;
                    scale = Some(scale.map_or(Ok(v), |lhs| b.add(&Mul { lhs, rhs: v }))?);
                }
                (Act::Div, t) => {
                    shift = t.map(|lhs| b.add(&Div { lhs, rhs: v })).transpose()?;
                    let lhs = scale.map_or_else(one, Ok)?;
                    scale = Some(b.add(&Div { lhs, rhs: v })?);
                }
            }
        }
        let scale = scale.ok_or("is scaled by nothing")?;
        let at = b.at(self.op.loc());
        let mut y = if let Some(lhs) = self.weight {
            let sizes = at.sizes_of(lhs)?;
            let rhs =
                at.add(&BroadcastInDim { input: scale, dims: vec![self.filters as i64], sizes })?;
            let weight = at.add(&Mul { lhs, rhs })?;
            at.clone_op(self.op, &|v| if v == lhs { weight } else { v })?.result(0)
        } else {
            let rhs = b.add(&BroadcastInDim {
                input: scale,
                dims: vec![self.axis as i64],
                sizes: last.sizes.clone(),
            })?;
            b.add(&Mul { lhs: self.from, rhs })?
        };
        if let Some(input) = shift {
            let rhs = b.add(&BroadcastInDim {
                input,
                dims: vec![self.axis as i64],
                sizes: last.sizes.clone(),
            })?;
            y = b.add(&Add { lhs: y, rhs })?;
        }
        last.op.result(0).replace_uses(y);
        Ok(())
    }
}
