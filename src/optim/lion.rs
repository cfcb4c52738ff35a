//! Lion.
use super::{Mask, Optimizer, Schedule, Update, decayed, lerp, slot};
use crate::tensor::{Tensor, TraceError};

/// Lion: `w *= 1 - rate weight_decay`, `w -= rate sign(b1 m + (1 - b1) g)`,
/// `m = b2 m + (1 - b2) g` (Chen et al., Symbolic Discovery of Optimization Algorithms, 2023,
/// algorithm 2; defaults of its repository). PyTorch has none.
#[derive(Clone, Debug)]
pub struct Lion {
    /// Learning rate; 1e-4 by default.
    pub rate: Schedule,
    /// Decay in the sign and of the momentum; 0.9 and 0.99 by default.
    pub betas: [f64; 2],
    /// Weight decay; 0 by default.
    pub weight_decay: f64,
    /// The weights that it changes.
    pub mask: Mask,
}

impl Default for Lion {
    fn default() -> Lion {
        Lion { rate: 1e-4.into(), betas: [0.9, 0.99], weight_decay: 0.0, mask: Mask::All }
    }
}

impl Optimizer for Lion {
    fn rate(&self) -> &Schedule {
        &self.rate
    }
    fn mask(&self) -> &Mask {
        &self.mask
    }
    fn slots(&self, weight: &Tensor) -> Result<Vec<(&'static str, Tensor)>, TraceError> {
        Ok(vec![("exp_avg", weight.zeros_like())])
    }
    fn update(&self, u: Update<'_>) -> Result<(Tensor, Vec<Tensor>), TraceError> {
        let (mean, [sign, keep]) = (slot(&u, 0)?, self.betas);
        let along = lerp(&mean, &u.gradient, 1.0 - sign).sign();
        let new = decayed(&u, self.weight_decay) - u.rate * along;
        Ok((new, vec![lerp(&mean, &u.gradient, 1.0 - keep)]))
    }
}
