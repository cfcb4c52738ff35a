//! Adafactor.
use super::{Mask, Optimizer, Schedule, Update, decayed, slot};
use crate::tensor::{Dim, Tensor, TraceError};
use kiln_dialects::value::DType;

/// Adafactor, whose second moment of a matrix is a row and a column, as `torch.optim.Adafactor`
/// (Shazeer and Stern, 2018). With `s = t^beta2_decay` and `a = max(epsilon[1], rms(w)) min(rate, t^-1/2)`:
/// `w *= 1 - rate weight_decay`; `r` and `c` are lerped by `s` to the means of `g^2` along the last
/// and the last but one dimension; `v = r c / max(mean r, epsilon[0])`, or `v` lerped to `g^2` for
/// weights of fewer than two dimensions; `u = g / sqrt(max(v, epsilon[0]^2))`;
/// `w -= a u / max(1, rms(u) / clip)`.
#[derive(Clone, Debug)]
pub struct Adafactor {
    /// Greatest learning rate; 1e-2 by default.
    pub rate: Schedule,
    /// Exponent of the second moment's decay; -0.8 by default.
    pub beta2_decay: f64,
    /// Least second moment (the dtype's machine epsilon if `None`, which is the default), and
    /// least size of a weight, 1e-3 by default.
    pub epsilon: (Option<f64>, f64),
    /// Greatest root mean square of an update; 1 by default. PyTorch calls it `d`.
    pub clip: f64,
    /// Weight decay; 0 by default.
    pub weight_decay: f64,
    /// The weights that it changes.
    pub mask: Mask,
}

impl Default for Adafactor {
    fn default() -> Adafactor {
        Adafactor {
            rate: 1e-2.into(),
            beta2_decay: -0.8,
            epsilon: (None, 1e-3),
            clip: 1.0,
            weight_decay: 0.0,
            mask: Mask::All,
        }
    }
}

/// Root mean square of all elements: 0-d.
fn rms(x: &Tensor) -> Tensor {
    x.square().mean(.., false).sqrt()
}

/// `a + (b - a) * share`.
fn towards(a: Tensor, b: Tensor, share: &Tensor) -> Tensor {
    &a + (b - &a) * share
}

/// Zeros in a tensor's shape with one dimension of 1.
fn line(weight: &Tensor, dim: i64) -> Tensor {
    weight.narrow(dim, 0, Dim::from(1)).zeros_like()
}

impl Optimizer for Adafactor {
    fn rate(&self) -> &Schedule {
        &self.rate
    }
    fn mask(&self) -> &Mask {
        &self.mask
    }
    fn slots(&self, weight: &Tensor) -> Result<Vec<(&'static str, Tensor)>, TraceError> {
        Ok(match weight.rank()? {
            0 | 1 => vec![("variance", weight.zeros_like())],
            _ => vec![("row_var", line(weight, -1)), ("col_var", line(weight, -2))],
        })
    }
    fn update(&self, u: Update<'_>) -> Result<(Tensor, Vec<Tensor>), TraceError> {
        let wide = u.weight.dtype()? == DType::F64;
        let machine = if wide { f64::EPSILON } else { f64::from(f32::EPSILON) };
        let least = self.epsilon.0.unwrap_or(machine);
        let share = u.count.pow(self.beta2_decay);
        let square = u.gradient.square();
        let (variance, kept) = if u.weight.rank()? > 1 {
            let row = towards(slot(&u, 0)?, square.mean([-1], true), &share);
            let column = towards(slot(&u, 1)?, square.mean([-2], true), &share);
            (&row * &column / row.mean([-2], true).clamp_min(least), vec![row, column])
        } else {
            let v = towards(slot(&u, 0)?, square, &share);
            (v.clone(), vec![v])
        };
        let along = variance.clamp_min(least * least).rsqrt() * &u.gradient;
        let rate = u.rate.minimum(u.count.rsqrt()) * rms(&u.weight).clamp_min(self.epsilon.1);
        let scale = rate / (rms(&along) / self.clip).clamp_min(1.0);
        Ok((decayed(&u, self.weight_decay) - along * scale, kept))
    }
}
