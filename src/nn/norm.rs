//! `torch.nn.LayerNorm`, `torch.nn.RMSNorm`, `torch.nn.BatchNorm1d` and `2d`.
use super::{Init, Module, Parameter, Scope};
use crate::tensor::Tensor;
use kiln_dialects::value::DType;
use std::panic::Location;

/// Layer normalisation over the trailing dimensions.
#[derive(Debug)]
pub struct LayerNorm {
    shape: Vec<i64>,
    weight: Parameter,
    bias: Parameter,
    /// Added to the variance for stability; 1e-5 by default.
    pub epsilon: f64,
}

impl LayerNorm {
    /// Normalised shape: the sizes of the trailing dimensions.
    pub fn new(scope: &Scope, shape: &[usize]) -> LayerNorm {
        let weight = scope.parameter("weight", shape, Init::Constant(1.0));
        let bias = scope.parameter("bias", shape, Init::Constant(0.0));
        LayerNorm { shape: sizes(shape), weight, bias, epsilon: 1e-5 }
    }
}

fn sizes(shape: &[usize]) -> Vec<i64> {
    shape.iter().map(|n| i64::try_from(*n).unwrap_or(i64::MAX)).collect()
}

impl Module for LayerNorm {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        let _frame = x.graph().frame(Location::caller());
        x.layer_norm(
            &self.shape,
            Some(self.weight.on(&x.graph())),
            Some(self.bias.on(&x.graph())),
            self.epsilon,
        )
    }
    fn parameters(&self) -> Vec<&Parameter> {
        vec![&self.weight, &self.bias]
    }
}

/// RMS normalisation over the trailing dimensions.
#[derive(Debug)]
pub struct RmsNorm {
    shape: Vec<i64>,
    weight: Parameter,
    /// Added to the mean square; the dtype's machine epsilon if `None`.
    pub epsilon: Option<f64>,
}

impl RmsNorm {
    /// Normalised shape: the sizes of the trailing dimensions.
    pub fn new(scope: &Scope, shape: &[usize]) -> RmsNorm {
        RmsNorm {
            shape: sizes(shape),
            weight: scope.parameter("weight", shape, Init::Constant(1.0)),
            epsilon: None,
        }
    }
}

impl Module for RmsNorm {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        let _frame = x.graph().frame(Location::caller());
        x.rms_norm(&self.shape, Some(self.weight.on(&x.graph())), self.epsilon)
    }
    fn parameters(&self) -> Vec<&Parameter> {
        vec![&self.weight]
    }
}

/// Batch normalisation of [N, C, ...] with running statistics, as in PyTorch's eval mode.
#[derive(Debug)]
pub struct BatchNorm {
    weight: Parameter,
    bias: Parameter,
    mean: Parameter,
    variance: Parameter,
    /// Unused; part of PyTorch's `state_dict`.
    batches: Parameter,
    /// Added to the variance for stability; 1e-5 by default.
    pub epsilon: f64,
}

impl BatchNorm {
    /// For `channels` channels.
    pub fn new(scope: &Scope, channels: usize) -> BatchNorm {
        let each = |name, x| scope.parameter(name, &[channels], Init::Constant(x));
        BatchNorm {
            weight: each("weight", 1.0),
            bias: each("bias", 0.0),
            mean: each("running_mean", 0.0),
            variance: each("running_var", 1.0),
            batches: scope.clone().with_dtype(DType::I64).parameter(
                "num_batches_tracked",
                &[],
                Init::Constant(0.0),
            ),
            epsilon: 1e-5,
        }
    }
}

impl Module for BatchNorm {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        let _frame = x.graph().frame(Location::caller());
        let on = |p: &Parameter| p.on(&x.graph());
        x.batch_norm(
            on(&self.mean),
            on(&self.variance),
            Some(on(&self.weight)),
            Some(on(&self.bias)),
            self.epsilon,
        )
    }
    fn parameters(&self) -> Vec<&Parameter> {
        vec![&self.weight, &self.bias, &self.mean, &self.variance, &self.batches]
    }
}
