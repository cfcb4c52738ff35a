//! Optimizers: functions from weights, gradients and a state to new weights and a new state.
//!
//! They are tensor ops, so a compiled training step holds forward pass, backward pass and update.
//! Formulas and defaults are PyTorch's where PyTorch has the optimizer; each type names its source.
//! Weights of 16-bit floats are updated in f32, and their state is f32.
//!
//! ```
//! use kiln::{Tensor, optim::{Optimizer, Sgd, State}, tensor::TraceError};
//! let sgd = Sgd { rate: 0.1.into(), momentum: 0.5, ..Sgd::default() };
//! let mut w = Tensor::from_slice(&[2], &[1.0f32, -2.0])?;
//! let mut state = sgd.init(&w)?;
//! let step = kiln::compile(move |w: Tensor, s: State| -> Result<_, TraceError> {
//!     let by_w = kiln::grad(|w: Tensor| w.square().sum(.., false)).call(&w)?;
//!     sgd.apply(w, by_w, s)
//! });
//! for _ in 0..2 {
//!     (w, state) = step.call((w, state))?;
//! }
//! assert_eq!(state.count.item::<f64>()?, 2.0);
//! assert!((w.to_vec::<f32>()?[0] - 0.54).abs() < 1e-6);
//! # Ok::<(), kiln::Error>(())
//! ```
//!
//! With modules the weights are those of [`nn::values`](crate::nn::values), the gradients those of
//! [`nn::value_and_grad`](crate::nn::value_and_grad), and [`nn::assign`](crate::nn::assign) stores
//! what a step returns.
mod adafactor;
mod adam;
mod clip;
mod file;
mod lion;
mod muon;
mod scale;
mod schedule;
mod sgd;

pub use adafactor::Adafactor;
pub use adam::{Adam, AdamW};
pub use clip::{clip_by_global_norm, ema, global_norm};
pub use lion::Lion;
pub use muon::{Muon, Scaling};
pub use scale::{LossScale, Scale};
pub use schedule::Schedule;
pub use sgd::Sgd;

use crate::{
    compile::{Leaf, Leaves, Tree, TreeError},
    nn::WeightsError,
    runtime::DeviceId,
    tensor::{Array, FlatTree, Tensor, TraceError},
};
use kiln_dialects::value::DType;
use std::{path::Path, sync::Arc};

/// The weights that weight decay changes.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Mask {
    /// All, as in PyTorch.
    #[default]
    All,
    /// Those of two dimensions or more: neither biases nor scales of norms.
    Matrices,
    /// As listed, one for each weight.
    Each(Vec<bool>),
}

impl Mask {
    fn decays(&self, index: usize, weight: &Tensor) -> Result<bool, TraceError> {
        match self {
            Mask::All => Ok(true),
            Mask::Matrices => Ok(weight.rank()? > 1),
            Mask::Each(list) => list.get(index).copied().ok_or_else(|| {
                error(format!("the decay mask has {} entries, weight {index} none", list.len()))
            }),
        }
    }
}

/// What an optimizer keeps between steps. A structure of tensors, so an argument and a result of
/// compiled functions.
#[derive(Clone, Debug)]
pub struct State {
    /// How many updates were made: f32, 0-d.
    pub count: Tensor,
    /// For each weight, the tensors that [`Optimizer::slots`] names.
    pub slots: Vec<Vec<Tensor>>,
}

impl Tree for State {
    fn leaves(&self, out: &mut Vec<Leaf>) {
        self.count.leaves(out);
        self.slots.leaves(out);
    }
    fn into_leaves(self, out: &mut Vec<Leaf>) {
        self.count.into_leaves(out);
        self.slots.into_leaves(out);
    }
    fn rebuild(leaves: &mut Leaves) -> Result<State, TreeError> {
        Ok(State { count: Tensor::rebuild(leaves)?, slots: Tree::rebuild(leaves)? })
    }
    fn names(&self, path: &str, out: &mut Vec<String>) {
        self.count.names(&format!("{path}.count"), out);
        self.slots.names(&format!("{path}.slots"), out);
    }
}

/// One weight's part of a step. Scalars are 0-d tensors of the weight's dtype, which is f32 or f64.
pub struct Update<'a> {
    /// The learning rate.
    pub rate: &'a Tensor,
    /// How many updates there are with this one, from 1.
    pub count: &'a Tensor,
    /// The weight.
    pub weight: Tensor,
    /// The gradient, in the weight's shape and dtype.
    pub gradient: Tensor,
    /// What the last update returned, else the initial values of [`Optimizer::slots`].
    pub slots: &'a [Tensor],
    /// Whether weight decay changes this weight.
    pub decays: bool,
}

/// An optimizer. [`Optimizer::init`] and [`Optimizer::apply`] are what one calls; the others are
/// what an optimizer of one's own defines.
pub trait Optimizer {
    /// The learning rate.
    fn rate(&self) -> &Schedule;
    /// The weights that weight decay changes.
    fn mask(&self) -> &Mask;
    /// What is kept for a weight of this dtype and shape: names, and values before the first
    /// update. Names are those of PyTorch's `state_dict`. Err: a weight that it cannot update.
    fn slots(&self, weight: &Tensor) -> Result<Vec<(&'static str, Tensor)>, TraceError>;
    /// The new weight, and what is kept.
    fn update(&self, u: Update<'_>) -> Result<(Tensor, Vec<Tensor>), TraceError>;

    /// The state before the first update. Err: a weight of integers, or one of a shape that the
    /// optimizer cannot update.
    fn init<P: Tree>(&self, weights: &P) -> Result<State, TraceError> {
        let all = FlatTree::of(weights).tensors;
        let slots = |w: &Tensor| {
            let slots = self.slots(&wide(w)?)?;
            Ok(slots.into_iter().map(|(_, t)| t).collect())
        };
        let slots = all.iter().map(slots).collect::<Result<_, TraceError>>()?;
        // Where the weights are, so that the state does not move with the first step.
        let on = match all.first() {
            Some(w) => w.device()?,
            None => DeviceId::Host,
        };
        let count = Arc::new(Array::from_slice(&[], &[0.0f32])?).beside(on)?;
        Ok(State { count: count.into(), slots })
    }

    /// One update: the new weights, in their structure, shapes and dtypes, and the new state. Err:
    /// gradients or a state of other weights.
    fn apply<P: Tree>(
        &self,
        weights: P,
        gradients: P,
        state: State,
    ) -> Result<(P, State), TraceError> {
        let (all, by) = (FlatTree::of(&weights), FlatTree::of(&gradients));
        all.same(&by)?;
        if state.slots.len() != all.tensors.len() {
            let (n, m) = (state.slots.len(), all.tensors.len());
            return Err(error(format!("the state of an optimizer is of {n} weights, not {m}")));
        }
        let rate = self.rate().at(&state.count);
        let count = &state.count + 1.0;
        let (mut new, mut slots) = (vec![], vec![]);
        for (i, (w, g)) in all.tensors.iter().zip(&by.tensors).enumerate() {
            let (weight, dtype) = (wide(w)?, w.dtype()?);
            let of = weight.dtype()?;
            let update = Update {
                rate: &rate.to(of),
                count: &count.to(of),
                gradient: g.to(of),
                slots: &state.slots[i],
                decays: self.mask().decays(i, &weight)?,
                weight,
            };
            let (w, kept) = self.update(update)?;
            new.push(w.to(dtype).check()?);
            slots.push(kept);
        }
        Ok((all.rebuild(new)?, State { count, slots }))
    }

    /// Writes a state as safetensors: `count`, and each tensor as `WEIGHT.SLOT`, such as
    /// `0.weight.exp_avg`; `names` has a name for each weight. Err: the file cannot be written, or
    /// two weights share a name.
    fn save<P: Tree>(
        &self,
        weights: &P,
        names: &[&str],
        state: &State,
        path: impl AsRef<Path>,
    ) -> Result<(), WeightsError> {
        file::save(self, &FlatTree::of(weights).tensors, names, state, path.as_ref())
    }
    /// Reads a state that [`Optimizer::save`] wrote. Err: tensors that are missing, unexpected or
    /// of another type.
    fn load<P: Tree>(
        &self,
        weights: &P,
        names: &[&str],
        path: impl AsRef<Path>,
    ) -> Result<State, WeightsError> {
        file::load(self, &FlatTree::of(weights).tensors, names, path.as_ref())
    }
}

fn error(reason: impl Into<String>) -> TraceError {
    TraceError::User(reason.into().into())
}

/// A weight in the dtype in which it is updated. Err: it is no float.
fn wide(w: &Tensor) -> Result<Tensor, TraceError> {
    match w.dtype()? {
        DType::F64 | DType::F32 => Ok(w.clone()),
        d if d.is_float() => w.to(DType::F32).check(),
        d => Err(error(format!("an optimizer updates weights of floats, not of {d}"))),
    }
}

/// `weight * (1 - rate * decay)`: decoupled weight decay.
fn decayed(u: &Update<'_>, decay: f64) -> Tensor {
    if !u.decays || decay == 0.0 {
        return u.weight.clone();
    }
    &u.weight * (1.0 - u.rate * decay)
}

/// `gradient + decay * weight`: the gradient of an L2 penalty beside it.
fn penalised(u: &Update<'_>, decay: f64) -> Tensor {
    if !u.decays || decay == 0.0 {
        return u.gradient.clone();
    }
    &u.gradient + &u.weight * decay
}

/// `a + (b - a) * share`: `torch.lerp`.
fn lerp(a: &Tensor, b: &Tensor, share: f64) -> Tensor {
    a * (1.0 - share) + b * share
}

/// `1 - beta^count`, accurate for small counts in f32 too.
fn bias(beta: f64, count: &Tensor) -> Tensor {
    -(count * beta.ln()).expm1()
}

/// What is kept of a weight. Err: the state is of another optimizer.
fn slot(u: &Update<'_>, index: usize) -> Result<Tensor, TraceError> {
    u.slots.get(index).cloned().ok_or_else(|| error("the state is of another optimizer"))
}
