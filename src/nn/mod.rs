//! Layers with the parameter names of PyTorch's `state_dict`, so weights written by
//! `safetensors.torch.save_file(model.state_dict(), …)` load unchanged.
//!
//! ```
//! use kiln::{Tensor, nn::{Linear, Module, Scope, Sequential}};
//! let scope = Scope::root();
//! let net = Sequential::new(&scope)
//!     .layer(|s| Linear::new(s, 4, 8))
//!     .apply(|x| x.relu())
//!     .layer(|s| Linear::new(s, 8, 2));
//! assert_eq!(net.parameters()[0].name(), "0.weight");
//! let y = (&net).compile().call(Tensor::from_slice(&[1, 4], &[1.0f32; 4])?)?;
//! assert_eq!(y.to_vec::<f32>()?.len(), 2);
//! # Ok::<(), kiln::Error>(())
//! ```
//!
//! Modules are in evaluation mode but within [`train`].
//!
//! A [`Scope`] gives a module's weights their names: `Linear::new(&scope.child("fc"), 64, 10)` has
//! `fc.weight` and `fc.bias`. Weights loaded from a file are frozen in the program; weights
//! initialised here or set by the caller stay inputs.
mod attention;
mod conv;
mod dropout;
mod embedding;
mod error;
pub(crate) mod file;
mod gradient;
mod init;
mod linear;
pub(crate) mod mode;
mod norm;
mod parameter;
mod recurrent;
mod sequential;
pub(crate) mod stored;

pub use attention::Attention;
pub use conv::Conv2d;
pub use dropout::Dropout;
pub use embedding::Embedding;
pub use error::WeightsError;
pub use file::{load, save};
pub use gradient::{ValueAndGrad, assign, value_and_grad, values};
pub use init::{Init, Seeded};
pub use linear::Linear;
pub use mode::train;
pub use norm::{BatchNorm, LayerNorm, RmsNorm};
pub use parameter::{Parameter, Scope};
pub use recurrent::Recurrent;
pub use sequential::Sequential;

use crate::{compile::Compiled, runtime::DataError, tensor::Tensor};
use std::{path::Path, sync::Arc};

/// A borrowed module: `(&net).compile()` leaves `net` usable.
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

/// A layer, or a model of layers. `forward` runs eagerly on concrete tensors, and is recorded on
/// traced ones.
pub trait Module {
    /// Applies the layer to `x`. Errors poison the result: see [`tensor`](crate::tensor).
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor;
    /// The weights, in the order of PyTorch's `state_dict`, and with its names.
    fn parameters(&self) -> Vec<&Parameter>;
    /// The weights that gradients train: PyTorch's `parameters()`.
    fn trainable(&self) -> Vec<&Parameter> {
        self.parameters().into_iter().filter(|p| !p.is_buffer()).collect()
    }
    /// The weights that the layer itself updates in [training mode](train): PyTorch's `buffers()`.
    fn buffers(&self) -> Vec<&Parameter> {
        self.parameters().into_iter().filter(|p| p.is_buffer()).collect()
    }
    /// Compiles the module as a function of one tensor, and consumes the module. `(&net).compile()`
    /// borrows it instead, and `net.clone().compile()` on an `Arc` shares it. Weights set or loaded
    /// through another handle take effect from the next call.
    fn compile(self) -> Compiled<impl Fn(Tensor) -> Tensor, (Tensor,)>
    where
        Self: Sized,
    {
        crate::compile(move |x: Tensor| self.forward(&x))
            .name(std::any::type_name::<Self>().rsplit("::").next().unwrap_or("module"))
    }
    /// Moves the weights to a device (`cpu`, `cuda` or `cuda:<ordinal>`), where calls then read them
    /// in place. Err: no such device, or out of its memory; some weights may have moved.
    fn to_device(&self, device: &str) -> Result<(), DataError> {
        self.parameters().into_iter().try_for_each(|p| p.to_device(device))
    }
    /// Loads the weights from a safetensors file, which is memory-mapped. Err: every tensor that is
    /// missing, unexpected or of another type; no weight is changed then.
    fn load(&self, path: impl AsRef<Path>) -> Result<(), WeightsError>
    where
        Self: Sized,
    {
        load(&self.parameters(), path)
    }
    /// Saves the weights to a safetensors file. Err: the file cannot be written, or two weights
    /// share a name.
    fn save(&self, path: impl AsRef<Path>) -> Result<(), WeightsError>
    where
        Self: Sized,
    {
        save(&self.parameters(), path)
    }
}
