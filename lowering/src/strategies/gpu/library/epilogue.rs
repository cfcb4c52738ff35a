//! Epilogues that libraries support after a sum: a bias, a residual, a relu or a tanh gelu.
use crate::{
    analysis::{Access, Body, Init, Kernel, LinearExpr, Nest, Stage},
    strategies::gpu::library::role,
};
use kiln_dialects::ir::*;
use kiln_runtime::gemm::Activation;

/// A reduction stage, and what its epilogue may add.
pub struct ReductionStage<'a> {
    pub k: &'a Kernel,
    pub nest: &'a Nest,
    /// The stage's index.
    pub stage: usize,
    /// Loops that a bias varies along, and its strides there.
    pub bias_loops: &'a [(usize, i64)],
    /// Loops over the result, where a residual of its size may be added.
    pub elements: &'a [usize],
}

/// What a value is, as a library's epilogue computes it.
#[derive(Clone, Default)]
pub struct EpilogueTerms {
    /// Whether it is the reduction's result, with all below applied.
    pub sum: bool,
    /// The bias of each column or filter: a buffer, and its first element.
    pub bias: Option<(usize, i64)>,
    /// The residual added to each element: a buffer, and its access.
    pub residual: Option<(usize, LinearExpr)>,
    pub activation: Activation,
}

impl ReductionStage<'_> {
    /// How a buffer's elements are computed, if the stages that lead to them are the reduction and
    /// an epilogue that libraries support.
    pub fn terms(&self, buffer: usize) -> Option<EpilogueTerms> {
        self.buffer(buffer, 0).filter(|made| made.sum)
    }

    fn buffer(&self, buffer: usize, depth: usize) -> Option<EpilogueTerms> {
        let (k, nest) = (self.k, self.nest);
        let mut writers = nest.all().filter(|s| {
            k.stages.get(*s).is_some_and(|s| s.outputs.iter().any(|o| o.access.buffer == buffer))
        });
        let (writer, None) = (writers.next()?, writers.next()) else { return None };
        let stage = k.stages.get(writer)?;
        // Chains of stages are short.
        let ([out], true) = (stage.outputs.as_slice(), depth < 8) else { return None };
        if self.stage == writer {
            let zero = matches!(&out.init, Init::Fill(v) if number(*v) == Some(0.0));
            return zero.then(|| EpilogueTerms { sum: true, ..Default::default() });
        }
        let Body::Block(block) = stage.body else { return None };
        let plain = stage.captured.is_empty() && stage.indexed.is_empty() && !out.reduces;
        if !plain {
            None
        } else {
            self.value(stage, block, block.terminator()?.operand(0), depth + 1)
        }
    }

    fn value(&self, stage: &Stage, block: Block, v: Value, depth: usize) -> Option<EpilogueTerms> {
        let Some(op) = v.def() else {
            let a = stage.inputs.get(block.args().iter().position(|x| *x == v)?)?;
            return match role(self.k, a.buffer) {
                Some(Some(_)) => self.added_argument(a),
                _ => self.buffer(a.buffer, depth),
            };
        };
        let of = |i: usize| self.value(stage, block, op.operand(i), depth);
        match op.name().as_str() {
            arith::ExtF::NAME | arith::TruncF::NAME => of(0),
            arith::AddF::NAME => {
                let (a, b) = (of(0)?, of(1)?);
                let (sum, more) = if a.sum { (a, b) } else { (b, a) };
                let free = (more.bias.is_none() || sum.bias.is_none())
                    && (more.residual.is_none() || sum.residual.is_none());
                let fits = sum.sum
                    && !more.sum
                    && free
                    && [&sum, &more].iter().all(|m| m.activation == Activation::None);
                fits.then(|| EpilogueTerms {
                    bias: sum.bias.or(more.bias),
                    residual: sum.residual.or(more.residual),
                    ..sum
                })
            }
            arith::MaximumF::NAME | arith::MaxNumF::NAME => {
                let one = (0..2).find(|i| number(op.operand(*i)) == Some(0.0))?;
                activated(of(1 - one)?, Activation::Relu)
            }
            arith::MulF::NAME => {
                activated(self.value(stage, block, gelu(op)?, depth)?, Activation::GeluTanh)
            }
            _ => None,
        }
    }

    /// An argument that is added: a bias if it can be one, otherwise a residual.
    fn added_argument(&self, a: &Access) -> Option<EpilogueTerms> {
        let over = |loops: &mut dyn Iterator<Item = usize>| {
            let loops: Vec<usize> = loops.collect();
            a.at.divisions.is_empty() && a.at.dims.keys().all(|d| loops.contains(d))
        };
        let bias = over(&mut self.bias_loops.iter().map(|(d, _)| *d))
            && self.bias_loops.iter().all(|(d, step)| a.at.coefficient(*d).known() == Some(*step));
        if bias {
            return Some(EpilogueTerms {
                bias: Some((a.buffer, a.at.constant.known()?)),
                ..Default::default()
            });
        }
        let residual = !self.elements.is_empty() && over(&mut self.elements.iter().copied());
        residual.then(|| EpilogueTerms {
            residual: Some((a.buffer, a.at.clone())),
            ..Default::default()
        })
    }
}

/// Applies an activation, which must be the only one.
fn activated(made: EpilogueTerms, activation: Activation) -> Option<EpilogueTerms> {
    (made.sum && made.activation == Activation::None)
        .then_some(EpilogueTerms { activation, ..made })
}

/// The other operand of a binary op, one of whose operands is this constant up to f32 rounding.
fn operand_beside_constant<T: OpType>(v: Value, constant: f64) -> Option<Value> {
    let op = v.def_as::<T>()?;
    let other = (0..2).find(|i| {
        number(op.operand(*i)).is_some_and(|n| (n - constant).abs() <= 1e-6 * constant.abs())
    })?;
    Some(op.operand(1 - other))
}

/// The other operand of a binary op, one of whose operands is `x`.
fn other_operand<T: OpType>(v: Value, x: Value) -> Option<Value> {
    let op = v.def_as::<T>()?;
    Some(op.operand(1 - (0..2).find(|i| op.operand(*i) == x)?))
}

/// Matches tanh gelu, x / 2 (1 + tanh(sqrt(2/π) (x + 0.044715 x³))); returns x.
fn gelu(product: Op) -> Option<Value> {
    (0..2).find_map(|i| {
        let x = operand_beside_constant::<arith::MulF>(product.operand(i), 0.5)?;
        let tanh = operand_beside_constant::<arith::AddF>(product.operand(1 - i), 1.0)?
            .def_as::<math::Tanh>()?;
        let factor = std::f64::consts::FRAC_2_SQRT_PI * std::f64::consts::FRAC_1_SQRT_2;
        let inner = operand_beside_constant::<arith::MulF>(tanh.operand(0), factor)?;
        let cube = operand_beside_constant::<arith::MulF>(
            other_operand::<arith::AddF>(inner, x)?,
            0.044715,
        )?;
        let square = other_operand::<arith::MulF>(cube, x)?;
        (other_operand::<arith::MulF>(square, x)? == x).then_some(x)
    })
}

/// The value of a constant, possibly extended.
fn number(v: Value) -> Option<f64> {
    let op = v.def()?;
    if op.isa::<arith::ExtF>() {
        number(op.operand(0))
    } else {
        op.attr("value").filter(|_| op.isa::<arith::Constant>())?.as_f64()
    }
}
