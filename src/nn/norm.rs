//! `torch.nn.LayerNorm`, `torch.nn.RMSNorm`, `torch.nn.BatchNorm1d` and `2d`.
use super::{Init, Module, Parameter, Scope, mode};
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

/// Batch normalisation of [N, C, ...]: with running statistics, or in [training mode](super::train)
/// with those of the batch, which then update the running ones: `r += momentum (s - r)`, `s` the
/// mean and the unbiased variance (Ioffe and Szegedy, 2015).
#[derive(Debug)]
pub struct BatchNorm {
    weight: Parameter,
    bias: Parameter,
    mean: Parameter,
    variance: Parameter,
    /// How many batches updated the statistics.
    batches: Parameter,
    /// Added to the variance for stability; 1e-5 by default.
    pub epsilon: f64,
    /// Share of a batch in the running statistics; 0.1 by default.
    pub momentum: f64,
}

impl BatchNorm {
    /// For `channels` channels.
    pub fn new(scope: &Scope, channels: usize) -> BatchNorm {
        let shape = [channels];
        let whole = scope.clone().with_dtype(DType::I64);
        BatchNorm {
            weight: scope.parameter("weight", &shape, Init::Constant(1.0)),
            bias: scope.parameter("bias", &shape, Init::Constant(0.0)),
            mean: scope.buffer("running_mean", &shape, Init::Constant(0.0)),
            variance: scope.buffer("running_var", &shape, Init::Constant(1.0)),
            batches: whole.buffer("num_batches_tracked", &[], Init::Constant(0.0)),
            epsilon: 1e-5,
            momentum: 0.1,
        }
    }
    /// With another share of a batch in the running statistics.
    pub fn with_momentum(self, momentum: f64) -> BatchNorm {
        BatchNorm { momentum, ..self }
    }
}

impl Module for BatchNorm {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        let graph = x.graph();
        let _frame = graph.frame(Location::caller());
        let (weight, bias) = (self.weight.on(&graph), self.bias.on(&graph));
        let training = match mode::is_training("batch_norm", &graph) {
            Ok(training) => training,
            Err(failed) => return failed,
        };
        let now = |p: &Parameter| mode::current(p, &graph);
        let (mean, variance) = (now(&self.mean), now(&self.variance));
        if !training {
            return x.batch_norm(mean, variance, Some(weight), Some(bias), self.epsilon);
        }
        let (y, [mean, variance]) =
            x.batch_norm_training(mean, variance, [weight, bias], self.momentum, self.epsilon);
        mode::update(self.mean.name(), mean);
        mode::update(self.variance.name(), variance);
        mode::update(self.batches.name(), now(&self.batches) + 1);
        y
    }
    fn parameters(&self) -> Vec<&Parameter> {
        vec![&self.weight, &self.bias, &self.mean, &self.variance, &self.batches]
    }
}
