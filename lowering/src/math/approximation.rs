//! Inline PTX approximations of f32 functions (`ex2.approx`, `rcp.approx`, …).
use kiln_dialects::{ir::*, value::DType};

/// The inline assembly that approximates an f32 op; `None` unless its fast-math flags have `afn`.
pub(crate) fn approximation(op: Op) -> Option<&'static str> {
    let flags = op.attr("fastmath")?.to_string();
    let ty = op.results().first()?.ty();
    if !flags.contains("afn") || ty.element().unwrap_or(ty).dtype() != Ok(DType::F32) {
        return None;
    }
    match op.name().as_str() {
        "math.exp2" => Some("ex2.approx.ftz.f32 $0, $1;"),
        "math.log2" => Some("lg2.approx.ftz.f32 $0, $1;"),
        "math.sqrt" => Some("sqrt.approx.ftz.f32 $0, $1;"),
        "math.rsqrt" => Some("rsqrt.approx.ftz.f32 $0, $1;"),
        "math.sin" => Some("sin.approx.ftz.f32 $0, $1;"),
        "math.cos" => Some("cos.approx.ftz.f32 $0, $1;"),
        "arith.divf" if flags.contains("arcp") => Some("rcp.approx.ftz.f32 $0, $1;"),
        "arith.divf" => Some("div.full.f32 $0, $1, $2;"),
        _ => None,
    }
}
