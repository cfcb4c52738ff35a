//! Layers for [`trace`](crate::trace): modules that hold their weights by name, with the names of
//! PyTorch's `state_dict`, so that weights that `safetensors.torch.save_file(model.state_dict(),
//! …)` wrote load as they are.
//!
//! ```
//! use kiln::{Tensor, nn::{Linear, Module, Scope, Sequential}};
//! let scope = Scope::root();
//! let net = Sequential::new(&scope)
//!     .layer(|s| Linear::new(s, 4, 8))
//!     .apply(|x| x.relu())
//!     .layer(|s| Linear::new(s, 8, 2));
//! assert_eq!(net.parameters()[0].name(), "0.weight");
//! let y = (&net).compile().call(Tensor::of(&[1, 4], &[1.0f32; 4])?)?;
//! assert_eq!(y.to_vec::<f32>()?.len(), 2);
//! # Ok::<(), kiln::Error>(())
//! ```
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

/// A module that is only borrowed: `(&net).compile()` leaves `net` usable.
impl<M: Module> Module for &M {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        M::forward(self, x)
    }
    fn parameters(&self) -> Vec<&Parameter> {
        M::parameters(self)
    }
}

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
    /// The module as a compiled function of one tensor. It takes the module over:
    /// `(&net).compile()` borrows it instead, and an `Arc` of it (`net.clone().compile()`) shares
    /// it. Weights that are set or loaded through such another handle count from the next call on.
    fn compile(self) -> Compiled<impl Fn(Tensor) -> Tensor, (Tensor,)>
    where
        Self: Sized,
    {
        crate::compile(move |x: Tensor| self.forward(&x))
            .name(std::any::type_name::<Self>().rsplit("::").next().unwrap_or("module"))
    }
    /// Takes the weights of a safetensors file; they are mapped, not read. Err: all tensors that
    /// are missing, unexpected or of another type; nothing is changed then.
    fn load(&self, path: impl AsRef<Path>) -> Result<(), WeightsError>
    where
        Self: Sized,
    {
        load(&self.parameters(), path)
    }
    /// Writes the weights to a safetensors file. Err: the file cannot be written, or two weights
    /// have one name.
    fn save(&self, path: impl AsRef<Path>) -> Result<(), WeightsError>
    where
        Self: Sized,
    {
        save(&self.parameters(), path)
    }
}
