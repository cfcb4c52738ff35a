//! Muon.
use super::{Mask, Optimizer, Schedule, Update, decayed, error, lerp, slot};
use crate::tensor::{Tensor, TraceError};

/// How the learning rate of a matrix [A, B] follows from its shape.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Scaling {
    /// Times `sqrt(max(1, A / B))` (Jordan's).
    #[default]
    Original,
    /// Times `0.2 sqrt(max(A, B))`, so that AdamW's learning rates fit (Moonshot's).
    MatchRmsAdamw,
}

/// Muon, for the hidden matrices of a network: `m = momentum m + (1 - momentum) g`, `u` the
/// orthogonalised `(1 - momentum) g + momentum m` (or `m` without `nesterov`),
/// `w *= 1 - rate weight_decay`, `w -= rate scaling u`. As `torch.optim.Muon` (Jordan et al., 2024),
/// which computes the Newton-Schulz iteration in bf16; here it is in the weight's dtype. Weights
/// that are no matrices are refused: embeddings, biases and heads are for AdamW.
#[derive(Clone, Debug)]
pub struct Muon {
    /// Learning rate; 1e-3 by default.
    pub rate: Schedule,
    /// Momentum; 0.95 by default.
    pub momentum: f64,
    /// Nesterov's momentum; on by default.
    pub nesterov: bool,
    /// Coefficients of the quintic iteration; (3.4445, -4.775, 2.0315) by default.
    pub coefficients: [f64; 3],
    /// How many iterations; 5 by default.
    pub iterations: usize,
    /// Least norm of a gradient; 1e-7 by default.
    pub epsilon: f64,
    /// How the rate follows from the shape.
    pub scaling: Scaling,
    /// Weight decay; 0.1 by default.
    pub weight_decay: f64,
    /// The weights that it changes.
    pub mask: Mask,
}

impl Default for Muon {
    fn default() -> Muon {
        Muon {
            rate: 1e-3.into(),
            momentum: 0.95,
            nesterov: true,
            coefficients: [3.4445, -4.775, 2.0315],
            iterations: 5,
            epsilon: 1e-7,
            scaling: Scaling::Original,
            weight_decay: 0.1,
            mask: Mask::All,
        }
    }
}

/// The numbers of rows and columns. Err: no matrix of known sizes.
fn sizes(weight: &Tensor) -> Result<(i64, i64), TraceError> {
    match weight.dims()?.as_slice() {
        [a, b] => a.known().zip(b.known()),
        _ => None,
    }
    .ok_or_else(|| error(format!("Muon updates matrices, not {}", weight.type_name())))
}

impl Muon {
    /// Newton-Schulz iteration towards the orthogonal factor of the polar decomposition: with
    /// `A = X X^T`, `X = a X + (b A + c A^2) X`.
    fn orthogonalised(&self, x: &Tensor, tall: bool) -> Tensor {
        let [a, b, c] = self.coefficients;
        let x = if tall { x.t() } else { x.clone() };
        let norm = x.square().sum(.., false).sqrt().clamp_min(self.epsilon);
        let mut x = x / norm;
        for _ in 0..self.iterations {
            let gram = x.matmul(x.t());
            x = &x * a + (&gram * b + gram.matmul(&gram) * c).matmul(&x);
        }
        if tall { x.t() } else { x }
    }
}

impl Optimizer for Muon {
    fn rate(&self) -> &Schedule {
        &self.rate
    }
    fn mask(&self) -> &Mask {
        &self.mask
    }
    fn slots(&self, weight: &Tensor) -> Result<Vec<(&'static str, Tensor)>, TraceError> {
        sizes(weight)?;
        Ok(vec![("momentum_buffer", weight.zeros_like())])
    }
    fn update(&self, u: Update<'_>) -> Result<(Tensor, Vec<Tensor>), TraceError> {
        let (rows, columns) = sizes(&u.weight)?;
        let mean = lerp(&slot(&u, 0)?, &u.gradient, 1.0 - self.momentum);
        let along = match self.nesterov {
            true => lerp(&u.gradient, &mean, self.momentum),
            false => mean.clone(),
        };
        let (a, b) = (rows as f64, columns as f64);
        let scale = match self.scaling {
            Scaling::Original => (a / b).max(1.0).sqrt(),
            Scaling::MatchRmsAdamw => 0.2 * a.max(b).sqrt(),
        };
        let along = self.orthogonalised(&along, rows > columns);
        Ok((decayed(&u, self.weight_decay) - along * (u.rate * scale), vec![mean]))
    }
}
