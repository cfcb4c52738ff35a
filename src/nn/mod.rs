//! Layers for [`trace`](crate::trace): modules that hold their weights by name, with the names of
//! PyTorch's `state_dict`, so that weights that `safetensors.torch.save_file(model.state_dict(),
//! …)` wrote load as they are.
//!
//! A module is made under a [`Scope`], which gives its weights their names:
//! `Linear::new(&scope.child("fc"), 64, 10)` has `fc.weight` and `fc.bias`. Weights of a file are
//! frozen in the program; those that were made here or set by the caller are not.
mod attention;
mod conv;
mod embedding;
mod file;
mod linear;
mod norm;
pub(crate) mod parameter;
mod sequential;

pub use attention::Attention;
pub use conv::Conv2d;
pub use embedding::Embedding;
pub use file::{WeightsError, load, save};
pub use linear::Linear;
pub use norm::{BatchNorm, LayerNorm, RmsNorm};
pub use parameter::{Init, Parameter, Scope};
pub use sequential::Sequential;

use crate::{compile::Compiled, tensor::Tensor};
use std::{path::Path, sync::Arc};

impl<M: Module> Module for Arc<M> {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        M::forward(self, x)
    }
    fn parameters(&self) -> Vec<&Parameter> {
        M::parameters(self)
    }
}

/// A layer, or a model of layers. Its `forward` runs at once on tensors with elements, and adds to
/// a graph that is traced.
pub trait Module {
    /// Adds the layer to the graph of `x`. Errors are the tensor's: see [`tensor`](crate::tensor).
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor;
    /// The weights, in the order of PyTorch's `state_dict`.
    fn parameters(&self) -> Vec<&Parameter>;
    /// The module as a compiled function of one tensor. Weights that are set or loaded through
    /// another handle of it (an `Arc`) count from the next call on.
    fn compile(self) -> Compiled<impl Fn(Tensor) -> Tensor, (Tensor,)>
    where
        Self: Sized,
    {
        crate::compile(move |x: Tensor| self.forward(&x))
            .name(std::any::type_name::<Self>().rsplit("::").next().unwrap_or("module"))
    }
    /// Takes the weights of a safetensors file; they are mapped, not read. Err: all tensors that
    /// are missing, unexpected or of another type; nothing is changed then.
    fn load(&self, path: &Path) -> Result<(), WeightsError> {
        load(&self.parameters(), path)
    }
    /// Writes the weights to a safetensors file. Err: the file cannot be written, or two weights
    /// have one name.
    fn save(&self, path: &Path) -> Result<(), WeightsError> {
        save(&self.parameters(), path)
    }
}
