//! Donated arguments and weights: results of a call are written to their memory.
//!
//! Nothing can tell that an array was overwritten whose only handle the call got by value. So a call
//! takes the memory of each such argument that the program pairs with a result. Weights of modules
//! have a handle in their module, which `Compiled::donate_weights` lets a call take away.
use super::{Arguments, Leaf, Settings, specialisation};
use crate::{
    Error,
    nn::stored::Stored,
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
