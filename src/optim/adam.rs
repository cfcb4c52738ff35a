//! Adam and AdamW.
use super::{Mask, Optimizer, Schedule, Update, bias, decayed, lerp, penalised, slot};
use crate::tensor::{Tensor, TraceError};

/// Adam: `g' = g + weight_decay w`, `m = b1 m + (1 - b1) g'`, `v = b2 v + (1 - b2) g'^2`,
/// `w -= rate m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + epsilon)`. As `torch.optim.Adam` (Kingma and
/// Ba, 2015).
#[derive(Clone, Debug)]
pub struct Adam {
    /// Learning rate; 1e-3 by default.
    pub rate: Schedule,
    /// Decay of the two moments; 0.9 and 0.999 by default.
    pub betas: [f64; 2],
    /// Added to the denominator; 1e-8 by default.
    pub epsilon: f64,
    /// L2 penalty; 0 by default.
    pub weight_decay: f64,
    /// The weights that it concerns.
    pub mask: Mask,
}

impl Default for Adam {
    fn default() -> Adam {
        Adam {
            rate: 1e-3.into(),
            betas: [0.9, 0.999],
            epsilon: 1e-8,
            weight_decay: 0.0,
            mask: Mask::All,
        }
    }
}

/// Adam with decoupled weight decay: `w *= 1 - rate weight_decay`, then [`Adam`] without a penalty.
/// As `torch.optim.AdamW` (Loshchilov and Hutter, 2019).
#[derive(Clone, Debug)]
pub struct AdamW {
    /// Learning rate; 1e-3 by default.
    pub rate: Schedule,
    /// Decay of the two moments; 0.9 and 0.999 by default.
    pub betas: [f64; 2],
    /// Added to the denominator; 1e-8 by default.
    pub epsilon: f64,
    /// Weight decay; 0.01 by default.
    pub weight_decay: f64,
    /// The weights that it changes.
    pub mask: Mask,
}

impl Default for AdamW {
    fn default() -> AdamW {
        let Adam { rate, betas, epsilon, mask, .. } = Adam::default();
        AdamW { rate, betas, epsilon, weight_decay: 1e-2, mask }
    }
}

fn moments(weight: &Tensor) -> Vec<(&'static str, Tensor)> {
    vec![("exp_avg", weight.zeros_like()), ("exp_avg_sq", weight.zeros_like())]
}

/// Adam's update of `weight` by `gradient`.
fn step(
    u: &Update<'_>,
    weight: Tensor,
    gradient: &Tensor,
    betas: [f64; 2],
    epsilon: f64,
) -> Result<(Tensor, Vec<Tensor>), TraceError> {
    let mean = lerp(&slot(u, 0)?, gradient, 1.0 - betas[0]);
    let square = lerp(&slot(u, 1)?, &gradient.square(), 1.0 - betas[1]);
    let scale = square.sqrt() / bias(betas[1], u.count).sqrt() + epsilon;
    let rate = u.rate / bias(betas[0], u.count);
    Ok((weight - rate * (&mean / scale), vec![mean, square]))
}

impl Optimizer for Adam {
    fn rate(&self) -> &Schedule {
        &self.rate
    }
    fn mask(&self) -> &Mask {
        &self.mask
    }
    fn slots(&self, weight: &Tensor) -> Result<Vec<(&'static str, Tensor)>, TraceError> {
        Ok(moments(weight))
    }
    fn update(&self, u: Update<'_>) -> Result<(Tensor, Vec<Tensor>), TraceError> {
        let g = penalised(&u, self.weight_decay);
        step(&u, u.weight.clone(), &g, self.betas, self.epsilon)
    }
}

impl Optimizer for AdamW {
    fn rate(&self) -> &Schedule {
        &self.rate
    }
    fn mask(&self) -> &Mask {
        &self.mask
    }
    fn slots(&self, weight: &Tensor) -> Result<Vec<(&'static str, Tensor)>, TraceError> {
        Ok(moments(weight))
    }
    fn update(&self, u: Update<'_>) -> Result<(Tensor, Vec<Tensor>), TraceError> {
        step(&u, decayed(&u, self.weight_decay), &u.gradient, self.betas, self.epsilon)
    }
}
