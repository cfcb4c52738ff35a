//! Learning rates that change from step to step.
use crate::tensor::Tensor;

/// A learning rate as a function of how many updates were made before: the first update has the
/// rate at 0. A number is a constant rate.
#[derive(Clone, Debug, PartialEq)]
pub enum Schedule {
    /// The same rate throughout.
    Constant(f64),
    /// From `start` to `end` in `steps` updates, then `end`. As `torch.optim.lr_scheduler.LinearLR`.
    Linear {
        /// The first rate.
        start: f64,
        /// The last rate.
        end: f64,
        /// After how many updates it is reached.
        steps: u32,
    },
    /// From `start` to `peak` in `warmup` updates, then along half a cosine to `end`, which is
    /// reached after `steps` updates. As `optax.warmup_cosine_decay_schedule`; in PyTorch `LinearLR`
    /// and then `CosineAnnealingLR` in a `SequentialLR`.
    WarmupCosine {
        /// The first rate.
        start: f64,
        /// The greatest rate.
        peak: f64,
        /// The last rate.
        end: f64,
        /// Updates until the greatest rate.
        warmup: u32,
        /// Updates until the last rate, with those until the greatest.
        steps: u32,
    },
}

impl From<f64> for Schedule {
    fn from(rate: f64) -> Schedule {
        Schedule::Constant(rate)
    }
}

impl Schedule {
    /// The rate of the update after `count` others: 0-d, in the dtype of `count`, which is a 0-d
    /// float.
    pub fn at(&self, count: &Tensor) -> Tensor {
        // `n` of `steps`, from 0 to 1.
        let share = |n: Tensor, steps: u32| (n / f64::from(steps.max(1))).clamp(0.0, 1.0);
        match *self {
            Schedule::Constant(rate) => count.full_like(rate),
            Schedule::Linear { start, end, steps } => {
                share(count.clone(), steps) * (end - start) + start
            }
            Schedule::WarmupCosine { start, peak, end, warmup, steps } => {
                let up = share(count.clone(), warmup) * (peak - start) + start;
                let past = share(count - f64::from(warmup), steps.saturating_sub(warmup));
                let down = ((past * std::f64::consts::PI).cos() + 1.0) * ((peak - end) / 2.0) + end;
                count.lt(f64::from(warmup)).where_(up, down)
            }
        }
    }
}
