//! Stochastic gradient descent.
use super::{Mask, Optimizer, Schedule, Update, penalised, slot};
use crate::tensor::{Tensor, TraceError};

/// Stochastic gradient descent: `g' = g + weight_decay w`, `m = momentum m + (1 - dampening) g'`
/// (`m = g'` in the first update), `w -= rate m`, or `w -= rate (g' + momentum m)` with `nesterov`.
/// As `torch.optim.SGD`.
#[derive(Clone, Debug)]
pub struct Sgd {
    /// Learning rate; 1e-3 by default.
    pub rate: Schedule,
    /// Momentum; 0 by default, which keeps nothing.
    pub momentum: f64,
    /// Damping of the momentum; 0 by default.
    pub dampening: f64,
    /// Nesterov's momentum; off by default.
    pub nesterov: bool,
    /// L2 penalty; 0 by default.
    pub weight_decay: f64,
    /// The weights that it concerns.
    pub mask: Mask,
}

impl Default for Sgd {
    fn default() -> Sgd {
        Sgd {
            rate: 1e-3.into(),
            momentum: 0.0,
            dampening: 0.0,
            nesterov: false,
            weight_decay: 0.0,
            mask: Mask::All,
        }
    }
}

impl Optimizer for Sgd {
    fn rate(&self) -> &Schedule {
        &self.rate
    }
    fn mask(&self) -> &Mask {
        &self.mask
    }
    fn slots(&self, weight: &Tensor) -> Result<Vec<(&'static str, Tensor)>, TraceError> {
        Ok(match self.momentum {
            0.0 => vec![],
            _ => vec![("momentum_buffer", weight.zeros_like())],
        })
    }
    fn update(&self, u: Update<'_>) -> Result<(Tensor, Vec<Tensor>), TraceError> {
        let g = penalised(&u, self.weight_decay);
        if self.momentum == 0.0 {
            return Ok((&u.weight - u.rate * g, vec![]));
        }
        let share = match self.dampening {
            0.0 => u.count.full_like(1.0),
            d => u.count.eq(1.0).where_(u.count.full_like(1.0), u.count.full_like(1.0 - d)),
        };
        let m = slot(&u, 0)? * self.momentum + &g * share;
        let along = if self.nesterov { g + &m * self.momentum } else { m.clone() };
        Ok((&u.weight - u.rate * along, vec![m]))
    }
}
