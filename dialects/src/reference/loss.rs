//! Losses.

use crate::{
    error::Result,
    ops::LossReduction,
    reference::{norm::log_softmax, shape::has_shape},
    value::{Tensor, count},
};

/// Parameters of kiln.cross_entropy.
#[derive(Clone, Copy, Debug)]
pub struct CrossEntropyParams<'a> {
    /// The op's `reduction`.
    pub reduction: LossReduction,
    /// One weight per class, \[C\].
    pub weight: Option<&'a Tensor>,
    /// The op's `ignore_index`.
    pub ignore_index: i64,
    /// The op's `label_smoothing`.
    pub label_smoothing: f64,
}

/// Cross entropy of logits \[N, C, ...\] against integer class indices \[N, ...\].
///
/// With p = log_softmax(x), l = -(1 - s) w\[t\] p\[t\] - s/C sum over c of w\[c\] p\[c\], or 0 where
/// t is ignore_index; mean divides sum l by sum w\[t\] over the others
/// (torch.nn.functional.cross_entropy). The result has the logits' dtype, and is 0-d unless
/// reduction is none. Err: a class out of [0, C) that is not ignored, invalid shapes or dtypes.
pub fn cross_entropy(
    logits: &Tensor,
    target: &Tensor,
    p: &CrossEntropyParams<'_>,
) -> Result<Tensor> {
    let &[n, classes, ref rest @ ..] = logits.shape() else {
        return Err(format!("logits {:?} are not [N, C, ...]", logits.shape()).into());
    };
    has_shape("target", target, &[&[n], rest].concat())?;
    if !target.dtype().is_int() {
        return Err(format!("targets are of dtype {}, not integers", target.dtype()).into());
    }
    let weight = match p.weight {
        Some(weight) => {
            has_shape("weight", weight, &[classes]).and_then(|()| weight.as_f())?.to_vec()
        }
        None => vec![1.0; classes],
    };
    let log = log_softmax(logits, 1)?;
    let (log, inner, smoothing) = (log.as_f()?, count(rest)?, p.label_smoothing);
    let (mut losses, mut total_weight) = (vec![], 0.0);
    for (i, &class) in target.as_i()?.iter().enumerate() {
        if class == p.ignore_index {
            losses.push(0.0);
            continue;
        }
        let inside = usize::try_from(class).ok().filter(|&class| class < classes);
        let t = inside
            .ok_or_else(|| format!("target {class} is out of range for {classes} classes"))?;
        let at = |c: usize| log[(i / inner * classes + c) * inner + i % inner];
        let mut loss = weight[t] * (-(1.0 - smoothing) * at(t));
        // Without smoothing, a class of probability 0 must not add 0 * inf = NaN.
        if smoothing != 0.0 {
            loss -=
                smoothing / classes as f64 * (0..classes).map(|c| weight[c] * at(c)).sum::<f64>();
        }
        losses.push(loss);
        total_weight += weight[t];
    }
    let sum: f64 = losses.iter().sum();
    match p.reduction {
        LossReduction::None => Tensor::floats(logits.dtype(), target.shape().to_vec(), losses),
        LossReduction::Sum => Tensor::scalar_f(logits.dtype(), sum),
        LossReduction::Mean => Tensor::scalar_f(logits.dtype(), sum / total_weight),
    }
}
