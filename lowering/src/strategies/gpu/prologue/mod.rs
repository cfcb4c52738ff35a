//! The prologue of a product: what the body of its reduction stage computes on the left operand
//! before it multiplies.
pub(crate) mod emit;

use crate::analysis::{Access, Body, Stage};
use kiln_dialects::{ir::*, value::DType};

/// A prologue: `sum += widened(rounded(value)) * right`, where `value` is computed from one element
/// of the left operand and elements of lower-rank tensors.
#[derive(Clone, Debug)]
pub struct Prologue {
    /// The f32 value, before it is rounded to the product's element type.
    pub value: Value,
    /// The type it is rounded to: bf16 or f16.
    pub element: DType,
    /// The stage inputs that it is computed from.
    pub inputs: Vec<usize>,
    /// The right operand's index among the stage's inputs.
    pub right: usize,
    /// The ops that compute it.
    pub ops: Vec<Op>,
}

/// Instructions per clock and SM.
pub const RATE: f64 = 128.0;
/// Instructions per element besides its ops: reading it from shared memory, and rounding it.
pub const READ_COST: f64 = 2.0;
/// Instructions of an op that has no instruction of its own, such as an exponential or a quotient.
pub const EXPANDED_COST: f64 = 12.0;

/// Whether an op expands to several instructions.
fn is_expanded(name: &str) -> bool {
    const SINGLE_INSTRUCTION: &[&str] = &[math::AbsF::NAME, math::Fma::NAME, math::CopySign::NAME];
    name == arith::DivF::NAME || name.starts_with("math.") && !SINGLE_INSTRUCTION.contains(&name)
}

fn is_f32(v: Value) -> bool {
    v.ty().dtype() == Ok(DType::F32)
}

impl Prologue {
    /// Matches a stage that sums products in f32, if its left factor is computed and rounded, and
    /// its right factor is an operand as it is.
    pub fn of(stage: &Stage) -> Option<Prologue> {
        let Body::Block(block) = stage.body else { return None };
        let contraction = stage.accumulates().filter(|c| c.product == DType::F32)?;
        if !stage.captured.is_empty() || !stage.indexed.is_empty() {
            return None;
        }
        [(0, 1), (1, 0)].into_iter().find_map(|(left, right)| {
            let [left, right] = [contraction.factors[left], contraction.factors[right]];
            let (_, number) = right.block_arg()?;
            let rounded =
                left.def().filter(|t| t.isa::<arith::TruncF>() && is_f32(t.operand(0)))?;
            let element =
                right.ty().dtype().ok().filter(|d| [DType::BF16, DType::F16].contains(d))?;
            let fits = number < stage.inputs.len() && rounded.result(0).ty().dtype() == Ok(element);
            let (inputs, ops) = backward_slice(block, rounded.operand(0))?;
            let own = inputs.iter().all(|i| *i < stage.inputs.len() && *i != number);
            (fits && own).then(|| Prologue {
                value: rounded.operand(0),
                element,
                inputs,
                right: number,
                ops,
            })
        })
    }

    /// Clocks in which an SM's threads compute one element.
    pub fn clocks(&self) -> f64 {
        let ops: f64 = self
            .ops
            .iter()
            .map(|op| if is_expanded(&op.name()) { EXPANDED_COST } else { 1.0 })
            .sum();
        (READ_COST + ops) / RATE
    }
    /// The left operand: the only input that has all dimensions of the others, and the reduction
    /// dimension.
    pub fn raw<'s>(&self, stage: &'s Stage) -> Option<&'s Access> {
        let right = stage.inputs.get(self.right)?;
        let k_dim = |a: &Access| {
            (0..stage.extents.len()).all(|d| {
                let summed = stage.reduction.get(d) == Some(&true);
                let others =
                    self.inputs.iter().filter_map(|i| stage.inputs.get(*i)).any(|o| o.at.uses(d));
                a.at.uses(d) || !(summed || others)
            })
        };
        let mut all = self.inputs.iter().filter_map(|i| stage.inputs.get(*i)).filter(|a| k_dim(a));
        let raw = all.next().filter(|a| a.at.divisions.is_empty() && *a != right)?;
        all.next().is_none().then_some(raw)
    }
}

/// The block arguments that a value is computed from, by index, and the ops in order; `None` if it
/// uses anything but scalars from outside the block.
fn backward_slice(block: Block, value: Value) -> Option<(Vec<usize>, Vec<Op>)> {
    let (mut inputs, mut wanted, mut stack) = (vec![], vec![], vec![value]);
    while let Some(v) = stack.pop() {
        match (v.block_arg(), v.def()) {
            (Some((owner, i)), _) if owner == block => inputs.push(i),
            (None, Some(op)) if op.block() == Some(block) && !wanted.contains(&op) => {
                wanted.push(op);
                stack.extend(op.operands());
            }
            // Scalars from outside the block, such as constants, and visited values.
            (None, Some(_)) => {}
            _ => return None,
        }
    }
    inputs.sort_unstable();
    inputs.dedup();
    let ops = block.ops().into_iter().filter(|o| wanted.contains(o)).collect();
    (!inputs.is_empty()).then_some((inputs, ops))
}
