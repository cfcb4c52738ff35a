//! Donated arguments and weights: results of a call are written to their memory.
//!
//! Nothing can tell that an array was overwritten whose only handle the call got by value. So a call
//! takes the memory of each such argument that the program pairs with a result. Weights of modules
//! have a handle in their module, which [`Compiled::donate_weights`] lets a call take away.
use super::{Arguments, Compiled, Function, Leaf, Settings, specialisation};
use crate::{
    Error,
    nn::{Parameter, stored::Stored},
    runtime::{CallError, cuda::CudaError},
    tensor::DonatedMemory,
};
use std::sync::Arc;

/// What a function's caller donates beyond arguments that nothing else holds.
#[derive(Clone, Default)]
pub(super) struct Donations {
    /// Arguments.
    pub arguments: Vec<usize>,
    /// Weights.
    pub weights: Vec<Arc<Stored>>,
}

impl<F: Function<A>, A: Arguments> Compiled<F, A> {
    /// Donates arguments, by their indices: results may be written to the memory of their tensors,
    /// as with JAX's `donate_argnums`. That holds without it for arguments that nothing else held in
    /// the call that compiled the program.
    ///
    /// A call takes the memory of tensors that it is given by value and that nothing else holds;
    /// their handles are moved, so no one can read them afterwards. A result whose argument is
    /// shared gets memory of its own.
    ///
    /// ```compile_fail,E0382
    /// use kiln::Tensor;
    /// let step = kiln::compile(|w: Tensor| w * 0.5).donate([0]);
    /// let w = Tensor::scalar(1.0f32)?;
    /// let new = step.call(w)?;
    /// w.item::<f32>()?; // moved: its memory is that of `new`
    /// # Ok::<(), kiln::Error>(())
    /// ```
    pub fn donate(mut self, arguments: impl IntoIterator<Item = usize>) -> Self {
        self.donations.arguments.extend(arguments);
        self
    }

    /// Donates the values of weights of which a call returns the new ones. They have no value from
    /// the call until [`nn::assign`](crate::nn::assign) gives them one; to read one before is an
    /// error. A weight whose value something else holds keeps it.
    ///
    /// ```
    /// use kiln::{Tensor, nn::{self, Linear, Module, Scope}};
    /// let net = Linear::without_bias(&Scope::root(), 2, 1);
    /// let weights = net.parameters();
    /// let decay = |rate: Tensor| nn::values(&weights).iter().map(|w| w * &rate).collect::<Vec<_>>();
    /// let decay = kiln::compile(decay).donate_weights(&weights);
    /// let new = decay.call(Tensor::scalar(0.5f32)?)?;
    /// nn::assign(&weights, &new)?;
    /// # Ok::<(), kiln::Error>(())
    /// ```
    pub fn donate_weights(mut self, weights: &[&Parameter]) -> Self {
        self.donations.weights.extend(weights.iter().map(|p| p.stored().clone()));
        self
    }
}

impl Donations {
    /// The leaves of donated arguments; empty if none is named. Err: there is no such argument.
    pub fn leaves(&self, arguments: &impl Arguments) -> Result<Vec<usize>, Error> {
        if self.arguments.is_empty() {
            return Ok(vec![]);
        }
        let counts = arguments.leaf_counts();
        let mut all = vec![];
        for i in &self.arguments {
            let count = *counts.get(*i).ok_or_else(|| {
                Error::Setting(format!("there is no argument {i} to donate, of {}", counts.len()))
            })?;
            let first: usize = counts[..*i].iter().sum();
            all.extend(first..first + count);
        }
        Ok(all)
    }
    /// Whether a weight is donated.
    pub fn has(&self, weight: &Arc<Stored>) -> bool {
        self.weights.iter().any(|w| Arc::ptr_eq(w, weight))
    }
}

/// A tensor among the arguments, in the call that compiles a program.
#[derive(Clone, Copy)]
pub(super) struct Donor {
    /// Whether the caller names its argument.
    pub named: bool,
    /// Whether nothing else holds it.
    free: bool,
}

impl Donor {
    /// Those of all leaves, in the order of a program's inputs.
    pub fn all(leaves: &[Leaf], named: &[usize]) -> Vec<Donor> {
        let donor = |(leaf, of): (usize, &Leaf)| {
            let free = DonatedMemory::of(specialisation::array(of)?).is_some();
            Some(Donor { named: named.contains(&leaf), free })
        };
        leaves.iter().enumerate().filter_map(donor).collect()
    }
    /// Whether a program is compiled for it as donated: later calls are likely to own it, too.
    pub fn counts(&self, settings: &Settings) -> bool {
        self.named || settings.donate && self.free
    }
}

/// Whether a call that failed may have overwritten what was donated to it.
pub(super) fn may_have_written(e: &Error) -> bool {
    match e {
        Error::Call(CallError::Cuda(e)) => !matches!(e, CudaError::Memory { .. }),
        _ => false,
    }
}
