//! `torch.nn.Linear`.
use super::{Init, Module, Parameter, Scope};
use crate::tensor::Tensor;
use std::panic::Location;

/// x @ weight^T + bias over the last dimension: [..., inputs] to [..., outputs].
#[derive(Debug)]
pub struct Linear {
    weight: Parameter,
    bias: Option<Parameter>,
}

impl Linear {
    /// `inputs` to `outputs` features, with a bias. Initialised as in PyTorch: uniform in ±1 /
    /// sqrt(inputs).
    pub fn new(scope: &Scope, inputs: usize, outputs: usize) -> Linear {
        let bias = scope.parameter("bias", &[outputs], bound(inputs));
        Linear { bias: Some(bias), ..Linear::without_bias(scope, inputs, outputs) }
    }
    /// Same, without a bias.
    pub fn without_bias(scope: &Scope, inputs: usize, outputs: usize) -> Linear {
        Linear { weight: scope.parameter("weight", &[outputs, inputs], bound(inputs)), bias: None }
    }
}

/// Initialisation of weights with a fan-in of `n`.
pub(super) fn bound(n: usize) -> Init {
    Init::Uniform(1.0 / (n.max(1) as f64).sqrt())
}

impl Module for Linear {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        let _frame = x.graph().frame(Location::caller());
        x.linear(self.weight.on(&x.graph()), self.bias.as_ref().map(|b| b.on(&x.graph())))
    }
    fn parameters(&self) -> Vec<&Parameter> {
        [Some(&self.weight), self.bias.as_ref()].into_iter().flatten().collect()
    }
}
