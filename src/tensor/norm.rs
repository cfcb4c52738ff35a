//! Normalisations, softmax, losses. Statistics of 16-bit floats are kept in f32.
use super::{Tensor, arg::Arg};
use std::panic::Location;

/// How a loss is reduced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reduction {
    /// One loss an element.
    None,
    /// Their (weighted) mean.
    #[default]
    Mean,
    /// Their sum.
    Sum,
}

/// What [`Tensor::cross_entropy`] may be given.
#[derive(Clone, Debug)]
pub struct CrossEntropy {
    /// A weight for each class.
    pub weight: Option<Tensor>,
    /// How losses are reduced.
    pub reduction: Reduction,
    /// A target that does not count.
    pub ignore_index: i64,
    /// How much of the target is spread over all classes.
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
    /// Exponentials along a dimension, scaled to sum to 1.
    #[track_caller]
    pub fn softmax(&self, dim: i64) -> Tensor {
        self.call("softmax", "aten.softmax.int", [("dim", dim.into())])
    }
    /// The logarithm of [`Tensor::softmax`].
    #[track_caller]
    pub fn log_softmax(&self, dim: i64) -> Tensor {
        self.call("log_softmax", "aten.log_softmax.int", [("dim", dim.into())])
    }
    /// (x - mean) / sqrt(var + epsilon) * weight + bias over the last dimensions, which have the
    /// sizes `shape`; so have weight and bias.
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
    /// x / sqrt(mean x^2 + epsilon) * weight over the last dimensions. Without an epsilon it is
    /// that of the dtype, as in PyTorch.
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
    /// (x - mean) / sqrt(variance + epsilon) * weight + bias with given statistics, along dimension
    /// 1.
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
    /// As [`Tensor::layer_norm`] over each of `groups` equal parts of dimension 1 with all that
    /// follows; weight and bias are `[C]`.
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
    /// The cross entropy of logits [N, C, ...] and class numbers [N, ...]; formula and source:
    /// `kiln.cross_entropy`.
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
    /// The squared differences, reduced.
    #[track_caller]
    pub fn mse_loss(&self, target: impl Into<Tensor>, reduction: Reduction) -> Tensor {
        self.call(
            "mse_loss",
            "aten.mse_loss.default",
            [("target", Arg::tensor(target)), ("reduction", (reduction as i64).into())],
        )
    }

    /// A row whose tensor is called `input`.
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
    /// Why the last sizes are not `shape`.
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
