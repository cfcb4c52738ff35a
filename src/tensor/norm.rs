//! Normalisation, softmax and cross entropy. Statistics of 16-bit floats are computed in f32.
use super::{Reduction, Tensor, arg::Arg};
use std::panic::Location;

/// Options of [`Tensor::cross_entropy`].
#[derive(Clone, Debug)]
pub struct CrossEntropy {
    /// Class weights.
    pub weight: Option<Tensor>,
    /// Reduction over elements.
    pub reduction: Reduction,
    /// Target class to ignore.
    pub ignore_index: i64,
    /// Label smoothing: the share of the target spread over all classes.
    pub label_smoothing: f64,
}

impl Default for CrossEntropy {
    fn default() -> Self {
        CrossEntropy {
            weight: None,
            reduction: Reduction::Mean,
            ignore_index: -100,
            label_smoothing: 0.0,
        }
    }
}

impl Tensor {
    /// Softmax along a dimension.
    #[track_caller]
    pub fn softmax(&self, dim: i64) -> Tensor {
        self.call("softmax", "aten.softmax.int", [("dim", dim.into())])
    }
    /// Logarithm of [`Tensor::softmax`].
    #[track_caller]
    pub fn log_softmax(&self, dim: i64) -> Tensor {
        self.call("log_softmax", "aten.log_softmax.int", [("dim", dim.into())])
    }
    /// Layer norm: (x - mean) / sqrt(var + epsilon) * weight + bias over the trailing dimensions,
    /// which have the sizes `shape`, as have weight and bias.
    #[track_caller]
    pub fn layer_norm(
        &self,
        shape: &[i64],
        weight: Option<Tensor>,
        bias: Option<Tensor>,
        epsilon: f64,
    ) -> Tensor {
        match self.differs_at_end(shape) {
            Some(reason) => self.refuse("layer_norm", reason),
            None => {
                let args = vec![
                    ("normalized_shape", shape.into()),
                    ("weight", weight.into()),
                    ("bias", bias.into()),
                    ("eps", epsilon.into()),
                ];
                self.input_row("layer_norm", "aten.layer_norm.default", args)
            }
        }
    }
    /// RMS norm: x / sqrt(mean x^2 + epsilon) * weight over the trailing dimensions. The default
    /// epsilon is the dtype's machine epsilon, as in PyTorch.
    #[track_caller]
    pub fn rms_norm(&self, shape: &[i64], weight: Option<Tensor>, epsilon: Option<f64>) -> Tensor {
        match self.differs_at_end(shape) {
            Some(reason) => self.refuse("rms_norm", reason),
            None => {
                let args = vec![
                    ("normalized_shape", shape.into()),
                    ("weight", weight.into()),
                    ("eps", Arg::optional(epsilon)),
                ];
                self.input_row("rms_norm", "aten.rms_norm.default", args)
            }
        }
    }
    /// Batch norm in eval mode: (x - mean) / sqrt(variance + epsilon) * weight + bias with running
    /// statistics, along dimension 1.
    #[track_caller]
    pub fn batch_norm(
        &self,
        mean: impl Into<Tensor>,
        variance: impl Into<Tensor>,
        weight: Option<Tensor>,
        bias: Option<Tensor>,
        epsilon: f64,
    ) -> Tensor {
        let args = vec![
            ("weight", weight.into()),
            ("bias", bias.into()),
            ("running_mean", Arg::tensor(mean)),
            ("running_var", Arg::tensor(variance)),
            ("eps", epsilon.into()),
        ];
        self.input_row("batch_norm", "aten.batch_norm.default", args)
    }
    /// Batch norm in training mode: normalises with the mean and the biased variance of the batch,
    /// along dimension 1. Also returns the new running statistics, `r + momentum (s - r)` with the
    /// mean and the unbiased variance of the batch. All but the input are `[C]`.
    #[track_caller]
    pub fn batch_norm_training(
        &self,
        mean: impl Into<Tensor>,
        variance: impl Into<Tensor>,
        [weight, bias]: [Tensor; 2],
        momentum: f64,
        epsilon: f64,
    ) -> (Tensor, [Tensor; 2]) {
        let args = vec![
            ("input", Arg::tensor(self)),
            ("weight", Arg::tensor(weight)),
            ("bias", Arg::tensor(bias)),
            ("running_mean", Arg::tensor(mean)),
            ("running_var", Arg::tensor(variance)),
            ("training", true.into()),
            ("momentum", momentum.into()),
            ("eps", epsilon.into()),
        ];
        let target = "aten._native_batch_norm_legit_functional.default";
        let [y, _, _, mean, variance] =
            super::emit::exactly(Location::caller(), "batch_norm", target, args);
        (y, [mean, variance])
    }
    /// Group norm: normalises each of `groups` groups of channels (dimension 1) with all trailing
    /// dimensions; weight and bias are `[C]`.
    #[track_caller]
    pub fn group_norm(
        &self,
        groups: i64,
        weight: Option<Tensor>,
        bias: Option<Tensor>,
        epsilon: f64,
    ) -> Tensor {
        let args = vec![
            ("num_groups", groups.into()),
            ("weight", weight.into()),
            ("bias", bias.into()),
            ("eps", epsilon.into()),
        ];
        self.input_row("group_norm", "aten.group_norm.default", args)
    }
    /// Cross entropy of logits [N, C, ...] and class indices [N, ...]; for the formula and its
    /// source see `kiln.cross_entropy`.
    #[track_caller]
    pub fn cross_entropy(&self, target: impl Into<Tensor>, options: CrossEntropy) -> Tensor {
        let args = [
            ("target", Arg::tensor(target)),
            ("weight", options.weight.into()),
            ("reduction", (options.reduction as i64).into()),
            ("ignore_index", options.ignore_index.into()),
            ("label_smoothing", options.label_smoothing.into()),
        ];
        self.call("cross_entropy", "aten.cross_entropy_loss.default", args)
    }
    /// A row whose tensor argument is called `input`.
    #[track_caller]
    pub(super) fn input_row(
        &self,
        op: &'static str,
        target: &'static str,
        mut args: Vec<(&'static str, Arg)>,
    ) -> Tensor {
        args.push(("input", Arg::tensor(self)));
        let [r] = super::emit::exactly(Location::caller(), op, target, args);
        r
    }
    /// Why the trailing sizes are not `shape`.
    fn differs_at_end(&self, shape: &[i64]) -> Option<String> {
        let dims = self.dims().ok()?;
        let Some(lead) = dims.len().checked_sub(shape.len()) else {
            return Some(format!("normalises over {} dimensions of {}", shape.len(), dims.len()));
        };
        let differ =
            dims.iter().skip(lead).zip(shape).any(|(d, n)| d.known().is_some_and(|d| d != *n));
        differ.then(|| format!("normalises over sizes {shape:?}, which are not the last ones"))
    }
}
