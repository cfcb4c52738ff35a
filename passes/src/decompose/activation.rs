//! Activations as prims.
use super::tools::*;
use kiln_dialects::{ir::*, ops::*};

pub(super) fn expand(kind: OpKind, op: Op, b: &Builder) -> Result<Value> {
    let m = Math { b };
    let input = op.operand(0);
    let narrow = dtype(input)?;
    let x = m.convert(input, accumulator_type(narrow))?;
    let y = match kind {
        OpKind::Sigmoid => sigmoid(&m, x)?,
        OpKind::Silu => m.mul(x, sigmoid(&m, x)?)?,
        OpKind::Relu => m.b.add(&Max { lhs: x, rhs: m.full_like(x, 0.0)? })?,
        OpKind::Hardtanh => {
            let o = Hardtanh::of(op).ok_or_malformed(op)?;
            let (low, high) = (m.full_like(x, o.low)?, m.full_like(x, o.high)?);
            m.b.add(&Clamp { input: x, low, high })?
        }
        OpKind::Hardsigmoid => hard(&m, x)?,
        OpKind::Hardswish => m.mul(x, hard(&m, x)?)?,
        OpKind::Gelu => gelu(&m, x, Gelu::of(op).ok_or_malformed(op)?.tanh)?,
        OpKind::Softplus => softplus(&m, x, &Softplus::of(op).ok_or_malformed(op)?)?,
        other => return Err(format!("({}) is not an activation", other.name()).into()),
    };
    m.convert(y, narrow)
}

/// 1 / (1 + e^-x)
fn sigmoid(m: &Math<'_>, x: Value) -> Result<Value> {
    let e = m.unary(UnaryKind::Exp, m.unary(UnaryKind::Neg, x)?)?;
    let one = m.full_like(x, 1.0)?;
    m.div(one, m.add(e, one)?)
}

/// min(max(x + 3, 0), 6) / 6
fn hard(m: &Math<'_>, x: Value) -> Result<Value> {
    let shifted = m.add(x, m.full_like(x, 3.0)?)?;
    let (low, high) = (m.full_like(x, 0.0)?, m.full_like(x, 6.0)?);
    let clamped = m.b.add(&Clamp { input: shifted, low, high })?;
    m.div(clamped, high)
}

/// x * (1 + erf(x / sqrt 2)) / 2, or the tanh approximation
fn gelu(m: &Math<'_>, x: Value, tanh: bool) -> Result<Value> {
    let inner = if tanh {
        let cube = m.mul(m.mul(x, x)?, x)?;
        let sum = m.add(x, m.mul(cube, m.full_like(x, 0.044715)?)?)?;
        let scaled = m.mul(sum, m.full_like(x, (2.0 / std::f64::consts::PI).sqrt())?)?;
        m.unary(UnaryKind::Tanh, scaled)?
    } else {
        m.unary(UnaryKind::Erf, m.mul(x, m.full_like(x, std::f64::consts::FRAC_1_SQRT_2)?)?)?
    };
    let half = m.mul(x, m.full_like(x, 0.5)?)?;
    m.mul(half, m.add(inner, m.full_like(x, 1.0)?)?)
}

/// ln(1 + e^(beta x)) / beta, and x where beta x > threshold
fn softplus(m: &Math<'_>, x: Value, o: &Softplus) -> Result<Value> {
    let beta = m.full_like(x, o.beta)?;
    let scaled = m.mul(x, beta)?;
    let soft = m.div(m.unary(UnaryKind::Log1p, m.unary(UnaryKind::Exp, scaled)?)?, beta)?;
    let condition = m.b.add(&Compare {
        kind: CompareKind::Gt,
        lhs: scaled,
        rhs: m.full_like(x, o.threshold)?,
    })?;
    m.b.add(&Select { condition, on_true: x, on_false: soft })
}
