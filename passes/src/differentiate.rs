//! `kiln-differentiate`: extends functions by the gradients of a result (reverse mode).
//!
//! Why: upstream has no differentiation of tensor programs. Here, before decomposition, composites
//! have derivatives that store less than those of their prims (softmax, normalisations), and what
//! follows optimises values and gradients as one graph (a joint graph).
//!
//! A rule per op (`derivative.rs`) emits the cotangents of its operands from those of its results:
//! a vector-Jacobian product, vjp. Rules emit ops of level `graph`, so gradients have gradients.
//! Cotangents have the dtype of their primals; 16-bit floats are computed in f32 within a rule.
//!
//! Numerics: exact for the results that a function had.
//!
//! ```text
//! before:  func @f(%x: tensor<4xf32>) -> tensor<f32> {  %0 = kiln.exp %x …  %1 = kiln.reduce sum %0 dims = [0] …  return %1 }
//! after:   func @f(%x: tensor<4xf32>) -> (tensor<f32>, tensor<4xf32>) {  …  %2 = kiln.broadcast_in_dim %one …  %3 = kiln.mul %2, %0 …  return %1, %3 }
//! ```
pub mod activation;
mod attention;
mod contract;
mod control;
mod convolution;
mod cumulative;
mod derivative;
mod elementwise;
mod fourier;
mod indexed;
mod loss;
mod movement;
mod norm;
mod pool;
mod reduce;
mod reverse;
mod rule;
mod window;

pub use crate::decompose::attention_gradient::{AttentionBackward, attention_gradients, row_sums};
pub use convolution::{ConvolutionGradient, transposed_weight};
pub use derivative::{Derivative, derivative};
pub use norm::normalised;
pub use reverse::vjp;
pub(crate) use rule::inputs_of;

use crate::{
    decompose::tools::{Math, dtype, rank},
    pass::{Numerics, Pass},
    refine_shapes::Facts,
};
use kiln_dialects::{
    ir::*,
    rules::{Level, non_drivers, tensor_type},
    sym::Dim,
};

crate::pass_options! {
    /// The pass.
    pub struct Differentiate {
        /// Arguments to differentiate by, by index; none: all of floating-point type
        pub wrt: Vec<usize> = vec![],
        /// Results to differentiate, by index
        pub results: Vec<usize> = vec![0],
        /// Take a cotangent for each of these results as a further argument (vjp); without, there
        /// is one result, of one element, whose cotangent is 1
        pub cotangents: bool = false,
    }
}

impl Pass for Differentiate {
    const FLAG: &'static str = "kiln-differentiate";
    const SUMMARY: &'static str = "Extends functions by the gradients of a result (reverse mode)";
    const LEVELS: &'static [Level] = &[Level::Graph];
    const NUMERICS: Numerics = Numerics::Exact;

    fn run(&self, root: Op) -> Result<()> {
        for func in non_drivers(root) {
            self.function(func).at(func)?;
        }
        Ok(())
    }
}

impl Differentiate {
    fn function(&self, func: Op) -> Result<()> {
        let Some(block) = func.regions().first().and_then(|r| r.first()) else { return Ok(()) };
        let end = block.terminator().ok_or("has no return")?;
        let b = Builder::before(end).ok_or("is in no block")?;
        let wrt = self.arguments(&block.args())?;
        let mut facts = Facts::of(func, 4)?;
        let outputs = self.outputs(&b, &mut facts, end)?;
        let gradients = vjp(&b, &mut facts, &outputs, &wrt)?;
        let mut results = end.operands();
        let m = Math { b: &b };
        for (x, gradient) in wrt.iter().zip(gradients) {
            // An argument that the results do not depend on has gradient 0.
            results.push(gradient.map_or_else(|| m.full_like(*x, 0.0), Ok)?);
        }
        set_returned(func, &results)
    }

    /// The arguments to differentiate by.
    fn arguments(&self, args: &[Value]) -> Result<Vec<Value>> {
        let is_float = |v: &Value| tensor_type(v.ty()).is_ok_and(|t| t.dtype.is_float());
        if self.wrt.is_empty() {
            return Ok(args.iter().copied().filter(is_float).collect());
        }
        let one = |i: &usize| {
            let arg = args.get(*i).ok_or_else(|| format!("has no argument {i}"))?;
            match is_float(arg) {
                true => Ok(*arg),
                false => Err(format!("has argument {i} of {}, not of floats", arg.ty()).into()),
            }
        };
        self.wrt.iter().map(one).collect()
    }

    /// The results to differentiate, with their cotangents.
    fn outputs(&self, b: &Builder, facts: &mut Facts, end: Op) -> Result<Vec<(Value, Value)>> {
        if !self.cotangents && self.results.len() != 1 {
            return Err(
                "has no single result to differentiate; name one, or take cotangents".into()
            );
        }
        let all = end.operands();
        let mut outputs = vec![];
        for i in &self.results {
            let value = *all.get(*i).ok_or_else(|| format!("has no result {i}"))?;
            let d = dtype(value)?;
            if !d.is_float() {
                return Err(format!("has result {i} of {d}, which has no derivative").into());
            }
            let cotangent = if self.cotangents {
                let arg = b.argument(value.ty(), value.loc().named(&format!("cotangent_{i}")));
                facts.argument(arg);
                arg
            } else {
                if value.ty().dims().iter().any(|d| *d != Dim::Known(1)) {
                    let shape = value.ty();
                    return Err(format!(
                        "has result {i} of {shape}, whose gradient needs a cotangent"
                    )
                    .into());
                }
                b.splat(d, &Size::all(&vec![1; rank(value)]), 1.0)?
            };
            outputs.push((value, cotangent));
        }
        Ok(outputs)
    }
}
