//! Inline PTX approximations of f32 functions (`ex2.approx`, `rcp.approx`, …).
use kiln_dialects::{ir::*, value::DType};

/// The inline assembly that approximates an f32 op; `None` unless its fast-math flags have `afn`.
pub(crate) fn approximation(op: Op) -> Option<&'static str> {
    let flags = FastMathFlags::of(op)?;
    let ty = op.results().first()?.ty();
    if !flags.contains(FastMathFlags::AFN) || ty.element().unwrap_or(ty).dtype() != Ok(DType::F32) {
        return None;
    }
    match op.name().as_str() {
        math::Exp2::NAME => Some("ex2.approx.ftz.f32 $0, $1;"),
        math::Log2::NAME => Some("lg2.approx.ftz.f32 $0, $1;"),
        math::Sqrt::NAME => Some("sqrt.approx.ftz.f32 $0, $1;"),
        math::Rsqrt::NAME => Some("rsqrt.approx.ftz.f32 $0, $1;"),
        math::Sin::NAME => Some("sin.approx.ftz.f32 $0, $1;"),
        math::Cos::NAME => Some("cos.approx.ftz.f32 $0, $1;"),
        arith::DivF::NAME if flags.contains(FastMathFlags::ARCP) => {
            Some("rcp.approx.ftz.f32 $0, $1;")
        }
        arith::DivF::NAME => Some("div.full.f32 $0, $1, $2;"),
        _ => None,
    }
}
