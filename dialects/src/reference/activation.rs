//! Activations: elementwise functions of float tensors.

use crate::{error::Result, reference::element::Element, value::Tensor};

fn map(x: &Tensor, f: impl Fn(f64) -> f64) -> Result<Tensor> {
    Tensor::floats(x.dtype(), x.shape().to_vec(), x.as_f()?.iter().map(|&x| f(x)).collect())
}

/// r = 1 / (1 + e^-x) (torch.sigmoid). Err: not a float dtype.
pub fn sigmoid(x: &Tensor) -> Result<Tensor> {
    map(x, |x| 1.0 / (1.0 + libm::exp(-x)))
}

/// r = x / (1 + e^-x) (Elfwing et al., 2018). Err: not a float dtype.
pub fn silu(x: &Tensor) -> Result<Tensor> {
    map(x, |x| x / (1.0 + libm::exp(-x)))
}

/// r = max(x, 0) (Nair and Hinton, 2010); propagates NaN. Err: not a float dtype.
pub fn relu(x: &Tensor) -> Result<Tensor> {
    map(x, |x| Element::maximum(x, 0.0))
}

/// r = min(max(x, low), high) (torch.nn.functional.hardtanh); propagates NaN. Err: not a float
/// dtype.
pub fn hardtanh(x: &Tensor, low: f64, high: f64) -> Result<Tensor> {
    map(x, |x| Element::minimum(Element::maximum(x, low), high))
}

/// min(max(x + 3, 0), 6); propagates NaN.
fn relu6_of_x_plus_3(x: f64) -> f64 {
    Element::minimum(Element::maximum(x + 3.0, 0.0), 6.0)
}

/// r = min(max(x + 3, 0), 6) / 6 (Howard et al., 2019). Err: not a float dtype.
pub fn hardsigmoid(x: &Tensor) -> Result<Tensor> {
    map(x, |x| relu6_of_x_plus_3(x) / 6.0)
}

/// r = x * min(max(x + 3, 0), 6) / 6 (Howard et al., 2019). Err: not a float dtype.
pub fn hardswish(x: &Tensor) -> Result<Tensor> {
    map(x, |x| x * relu6_of_x_plus_3(x) / 6.0)
}

/// r = x * (1 + erf(x / sqrt 2)) / 2, or with `tanh` x * (1 + tanh(sqrt(2/pi) * (x + 0.044715
/// x^3))) / 2 (Hendrycks and Gimpel, 2016). Err: not a float dtype.
pub fn gelu(x: &Tensor, tanh: bool) -> Result<Tensor> {
    if tanh {
        let scale = (2.0 / std::f64::consts::PI).sqrt();
        map(x, |x| x * (1.0 + libm::tanh(scale * (x + 0.044715 * x * x * x))) / 2.0)
    } else {
        // erfc(-z) is 1 + erf(z) without cancellation below 0.
        map(x, |x| x * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2) / 2.0)
    }
}

/// r = ln(1 + e^(beta x)) / beta, and x where beta x > threshold (torch.nn.functional.softplus).
/// Err: not a float dtype.
pub fn softplus(x: &Tensor, beta: f64, threshold: f64) -> Result<Tensor> {
    map(x, |x| if beta * x > threshold { x } else { libm::log1p(libm::exp(beta * x)) / beta })
}
