//! fp8 conversions as integer arithmetic; no supported CPU has them in hardware.
//!
//! From f32: round to nearest, ties to even. A NaN becomes all ones, with its sign. f8E5M2
//! overflows to infinity, f8E4M3FN to NaN, as PyTorch's `.to` does.
use crate::math::emit::{Emit, Res};
use kiln_dialects::{ir::*, value::DType};

/// Mantissa bits of an fp8 type or a vector of it; `None` for other types.
fn mantissa(ty: Type) -> Option<i64> {
    match ty.element().unwrap_or(ty).dtype() {
        Ok(DType::F8E4M3FN) => Some(3),
        Ok(DType::F8E5M2) => Some(2),
        _ => None,
    }
}

fn bias(mantissa: i64) -> i64 {
    (1 << (6 - mantissa)) - 1
}

/// Whether an op converts from or to fp8.
pub fn is_conversion(op: &Op) -> bool {
    (op.isa::<arith::ExtF>() && mantissa(op.operand(0).ty()).is_some())
        || (op.isa::<arith::TruncF>() && mantissa(op.result(0).ty()).is_some())
}

/// Expands such a conversion; the other type has to be f32.
pub fn expand(b: Builder, op: Op) -> Res {
    let (x, ty) = (op.operand(0), op.result(0).ty());
    let (made, step) = if op.isa::<arith::ExtF>() {
        (Emit::new(b, ty, DType::F32).zip(mantissa(x.ty())).map(|(e, m)| widen(&e, x, m)), "to")
    } else {
        (
            Emit::new(b, x.ty(), DType::F32).zip(mantissa(ty)).map(|(e, m)| narrow(&e, x, m, ty)),
            "from",
        )
    };
    made.unwrap_or_else(|| {
        Err(format!("converts a float of 8 bits {step} another type than f32").into())
    })
}

/// Reinterprets the bits as f16 and scales by the difference of the exponent biases.
fn widen(e: &Emit, x: Value, mantissa: i64) -> Res {
    let bits = arith::bitcast(e, x, e.ty(DType::I8))?;
    let bits = arith::extsi(e, bits, e.ty(DType::I16))?;
    let bits = arith::shli(e, bits, e.whole(10 - mantissa, DType::I16)?)?;
    if bias(mantissa) == 15 {
        return e.extend(arith::bitcast(e, bits, e.ty(DType::F16))?, DType::F32);
    }
    // The sign extension duplicated the sign bit.
    let bits = e.and(bits, e.whole(!0x4000, DType::I16)?)?;
    let y = e.extend(arith::bitcast(e, bits, e.ty(DType::F16))?, DType::F32)?;
    let y = e.mul(y, e.c(f64::powi(2.0, 15 - bias(mantissa) as i32))?)?;
    // The all-ones pattern, which is NaN, reads as 480.
    let nan = e.eq(e.abs(y)?, e.c(480.0)?)?;
    e.select(nan, e.copysign(e.c(f64::NAN)?, y)?, y)
}

fn narrow(e: &Emit, x: Value, mantissa: i64, to: Type) -> Res {
    let (a, dropped) = (e.abs(x)?, 23 - mantissa);
    let bits = e.bits(a)?;
    let even = e.and(e.shift_right(bits, dropped)?, e.i(1)?)?;
    let rounded =
        e.shift_right(e.iadd(e.iadd(bits, even)?, e.i((1 << (dropped - 1)) - 1)?)?, dropped)?;
    let rounded = e.isub(rounded, e.i((127 - bias(mantissa)) << mantissa)?)?;
    // Subnormals: add a number whose ulp is their spacing, so that the addition rounds.
    let shift = e.c(f64::powi(2.0, (24 - bias(mantissa) - mantissa) as i32))?;
    let small = e.isub(e.bits(e.add(a, shift)?)?, e.bits(shift)?)?;
    let least = e.c(f64::powi(2.0, 1 - bias(mantissa) as i32))?;
    let code = e.select(e.lt(a, least)?, small, rounded)?;
    let code = match mantissa {
        3 => arith::minui(e, code, e.i(0x7f)?)?,
        _ => e.select(e.unordered(x, x)?, e.i(0x7f)?, arith::minui(e, code, e.i(0x7c)?)?)?,
    };
    let sign = e.and(e.shift_right(e.bits(x)?, 24)?, e.i(0x80)?)?;
    let byte = arith::trunci(e, e.or(code, sign)?, e.ty(DType::I8))?;
    arith::bitcast(e, byte, to)
}
