//! Roots of unity at run time.
use crate::math::{
    double::{self, pair::Pair},
    emit::Emit,
    trig::{self, quadrant_sin},
};
use kiln_dialects::{ir::*, value::DType};
use std::f64::consts::FRAC_PI_2;

/// e^(-2 pi i m / n), or with a positive exponent if `inverse`, for an i32 m from 0 to n - 1. The
/// quarter is found in integers, so that the angle of the rest has one rounding.
pub fn root(e: &Emit, m: Value, n: usize, inverse: bool) -> Result<(Value, Value)> {
    let n = n as i64;
    let m = if e.is_f64() { arith::extui(e, m, e.ty(DType::I64))? } else { m };
    // The nearest multiple of a quarter turn.
    let quarter = arith::divui(e, e.iadd(e.shl(m, 3)?, e.i(n)?)?, e.i(2 * n)?)?;
    let rest = e.isub(e.shl(m, 2)?, arith::muli(e, quarter, e.i(n)?)?)?;
    let r = e.mul(e.to_float(rest)?, e.c(FRAC_PI_2 / n as f64)?)?;
    let (s, c) = match e.is_f64() {
        true => double::trig::reduced(e, Pair { hi: r, lo: e.c(0.0)? })?,
        false => trig::reduced(e, r)?,
    };
    let turn = |by| quadrant_sin(e, e, (s, c, quarter), by);
    // sin(-x) = sin(x + pi) of the same quarter.
    Ok((turn(1)?, turn(if inverse { 0 } else { 2 })?))
}
