//! Losses: of two tensors of one shape, and of classes.
use super::{Tensor, arg::Arg};
use kiln_dialects::value::DType;

/// How a loss is reduced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reduction {
    /// No reduction: one loss per element.
    None,
    /// The mean, weighted if there are class weights.
    #[default]
    Mean,
    /// The sum.
    Sum,
}

impl Tensor {
    #[track_caller]
    fn loss<const N: usize>(
        &self,
        op: &'static str,
        row: &'static str,
        target: impl Into<Tensor>,
        reduction: Reduction,
        more: [(&'static str, Arg); N],
    ) -> Tensor {
        let mut args = vec![
            ("self", Arg::tensor(self)),
            ("target", Arg::tensor(target)),
            ("reduction", (reduction as i64).into()),
        ];
        args.extend(more);
        let [r] = super::emit::exactly(std::panic::Location::caller(), op, row, args);
        r
    }
    /// Squared error (x - t)^2, reduced. As `torch.nn.functional.mse_loss`.
    #[track_caller]
    pub fn mse_loss(&self, target: impl Into<Tensor>, reduction: Reduction) -> Tensor {
        self.loss("mse_loss", "aten.mse_loss.default", target, reduction, [])
    }
    /// Absolute error |x - t|, reduced. As `torch.nn.functional.l1_loss`.
    #[track_caller]
    pub fn l1_loss(&self, target: impl Into<Tensor>, reduction: Reduction) -> Tensor {
        self.loss("l1_loss", "aten.l1_loss.default", target, reduction, [])
    }
    /// With d = |x - t|: d^2 / (2 beta) where d < beta, else d - beta / 2. As
    /// `torch.nn.functional.smooth_l1_loss`, whose beta is 1 by default. Error: a negative beta.
    #[track_caller]
    pub fn smooth_l1_loss(
        &self,
        target: impl Into<Tensor>,
        beta: f64,
        reduction: Reduction,
    ) -> Tensor {
        let row = "aten.smooth_l1_loss.default";
        self.loss("smooth_l1_loss", row, target, reduction, [("beta", beta.into())])
    }
    /// With d = |x - t|: d^2 / 2 where d <= delta, else delta (d - delta / 2) (Huber, 1964). As
    /// `torch.nn.functional.huber_loss`, whose delta is 1 by default. Error: delta is not positive.
    #[track_caller]
    pub fn huber_loss(
        &self,
        target: impl Into<Tensor>,
        delta: f64,
        reduction: Reduction,
    ) -> Tensor {
        let row = "aten.huber_loss.default";
        self.loss("huber_loss", row, target, reduction, [("delta", delta.into())])
    }
    /// Kullback-Leibler divergence of log-probabilities from a target: t (ln t - x), 0 where t = 0;
    /// e^t (t - x) if `log_target`. The mean is over all elements. As
    /// `torch.nn.functional.kl_div`.
    #[track_caller]
    pub fn kl_div(
        &self,
        target: impl Into<Tensor>,
        log_target: bool,
        reduction: Reduction,
    ) -> Tensor {
        let more = [("log_target", log_target.into())];
        self.loss("kl_div", "aten.kl_div.default", target, reduction, more)
    }
    /// Cross entropy of probabilities and truths in 0 to 1: -(t ln x + (1 - t) ln(1 - x)), each
    /// logarithm at least -100, and the gradient (x - t) / max(x (1 - x), 1e-12). As
    /// `torch.nn.functional.binary_cross_entropy`.
    #[track_caller]
    pub fn binary_cross_entropy(&self, target: impl Into<Tensor>, reduction: Reduction) -> Tensor {
        let (narrow, target) = (self.dtype(), target.into());
        // 1e12 has no value in f16.
        let (x, t) = match narrow {
            Ok(DType::F16) => (self.to(DType::F32), target.to(DType::F32)),
            _ => (self.clone(), target),
        };
        let (op, row) = ("binary_cross_entropy", "aten.binary_cross_entropy.default");
        let certain = (&x * (1.0 - &x)).le(1e-12);
        let uncertain = certain.where_(0.5, &x).loss(op, row, &t, Reduction::None, []);
        let value = x.detach().loss(op, row, &t, Reduction::None, []);
        // 0 with a gradient of its own: the logarithms' would be infinite.
        let slope = (&x * 0.5 - t.detach()) * &x * 1e12;
        let each = certain.where_(value + (&slope - slope.detach()), uncertain);
        let v = match reduction {
            Reduction::None => each,
            Reduction::Mean => each.mean(.., false),
            Reduction::Sum => each.sum(.., false),
        };
        match narrow {
            Ok(narrow @ DType::F16) => v.to(narrow),
            _ => v,
        }
    }
    /// As [`Tensor::binary_cross_entropy`] of the sigmoid, stable for large inputs;
    /// `positive` weighs the terms of t. As
    /// `torch.nn.functional.binary_cross_entropy_with_logits`.
    #[track_caller]
    pub fn binary_cross_entropy_with_logits(
        &self,
        target: impl Into<Tensor>,
        positive: Option<Tensor>,
        reduction: Reduction,
    ) -> Tensor {
        let row = "aten.binary_cross_entropy_with_logits.default";
        let more = [("pos_weight", positive.into())];
        self.loss("binary_cross_entropy_with_logits", row, target, reduction, more)
    }
    /// Negative log-likelihood of log-probabilities [N, C, ...] and class indices [N, ...]:
    /// `-w[t] x[t]`, 0 where t is `ignore_index`; the mean is divided by the sum of `w[t]`. As
    /// `torch.nn.functional.nll_loss`, whose ignored index is -100 by default.
    #[track_caller]
    pub fn nll_loss(
        &self,
        target: impl Into<Tensor>,
        weight: Option<Tensor>,
        ignore_index: i64,
        reduction: Reduction,
    ) -> Tensor {
        let more = [("weight", weight.into()), ("ignore_index", ignore_index.into())];
        self.loss("nll_loss", "aten.nll_loss_nd.default", target, reduction, more)
    }
}
