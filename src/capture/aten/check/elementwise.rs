//! Checks of elementwise overloads, selection and fills.
use super::{Call, Checks, Ty, Val, scalar_name, wants};
use kiln_dialects::{
    ir::{Result, Size},
    value::DType,
};

pub(super) const CHECKS: Checks = &[
    (&["div.Tensor_mode", "div.Scalar_mode"], rounding),
    (&["div.Scalar_mode", "remainder.Scalar", "fmod.Scalar", "floor_divide.default"], divisor),
    (&["pow.Tensor_Scalar", "pow.Scalar"], pow),
    (&["gelu.default"], gelu),
    (&["hardtanh.default"], hardtanh),
    (&["lerp.Scalar"], lerp),
    (&["where.self", "where.ScalarOther", "where.ScalarSelf", "where.Scalar"], condition),
    (&["masked_fill.Scalar", "masked_fill.Tensor"], mask),
    (&["fill.Tensor"], fill),
    (&["arange.default", "arange.start", "arange.start_step"], arange),
    (&["_assert_tensor_metadata.default"], metadata),
];

fn rounding(c: &mut Call) -> Result<()> {
    let mode = c.a.text("rounding_mode", "trunc")?;
    wants(["trunc", "floor"].contains(&mode.as_str()), || {
        format!(
            "div expected rounding_mode to be one of None, 'trunc', or 'floor' but found '{mode}'"
        )
    })
}

/// Integer division by 0 is rejected, but of no elements; float division gives infinity or NaN.
fn divisor(c: &mut Call) -> Result<()> {
    let zero =
        matches!(c.a.values.get("other"), Some(Val::Int(Size::Static(0)) | Val::Bool(false)));
    let rounds = c.packet() != "div" || c.a.has("rounding_mode");
    let divides = |t: &Ty| !t.dtype.is_float() && !t.dims.contains(&Some(0));
    let rejected = zero && rounds && c.optional("self")?.is_some_and(|t| divides(&t));
    wants(!rejected, || "ZeroDivisionError".into())
}

fn pow(c: &mut Call) -> Result<()> {
    let negative = matches!(c.a.values.get("exponent"), Some(Val::Int(Size::Static(n))) if *n < 0);
    let float = c.optional("self")?.is_none_or(|t| t.dtype.is_float());
    wants(float || !negative, || "Integers to negative integer powers are not allowed.".into())
}

fn gelu(c: &mut Call) -> Result<()> {
    let name = c.a.text("approximate", "none")?;
    wants(["none", "tanh"].contains(&name.as_str()), || {
        "approximate argument must be either none or tanh.".into()
    })
}

fn hardtanh(c: &mut Call) -> Result<()> {
    let d = c.ty("self")?.dtype;
    wants(d != DType::I1, || "Bool inputs not supported for hardtanh".into())?;
    let low = c.a.float("min_val", Some(-1.0))?.min(c.a.float("max_val", Some(1.0))?);
    wants(d != DType::UI8 || low > -1.0, || {
        "cannot do hardtanh on an unsigned type with negative limits".into()
    })
}

fn lerp(c: &mut Call) -> Result<()> {
    let (x, end) = (c.ty("self")?.dtype, c.ty("end")?.dtype);
    wants(x == end, || {
        format!("expected dtype {} for `end` but got dtype {}", scalar_name(x), scalar_name(end))
    })
}

/// As in PyTorch, a byte mask is still accepted.
fn condition(c: &mut Call) -> Result<()> {
    let d = c.ty("condition")?.dtype;
    wants([DType::I1, DType::UI8].contains(&d), || {
        let name = scalar_name(d);
        format!(
            "where expected condition to be a boolean tensor, but got a tensor with dtype {name}"
        )
    })
}

fn mask(c: &mut Call) -> Result<()> {
    let d = c.ty("mask")?.dtype;
    wants(d == DType::I1, || {
        let name = scalar_name(d);
        format!("masked_fill_ only supports boolean masks, but got mask with dtype {name}")
    })?;
    let rank = c.optional("value")?.map_or(0, |v| v.rank());
    wants(rank == 0, || {
        format!(
            "masked_fill_ only supports a 0-dimensional value tensor, but got tensor with {rank} dimension(s)."
        )
    })
}

fn fill(c: &mut Call) -> Result<()> {
    let rank = c.optional("value")?.map_or(0, |v| v.rank());
    wants(rank == 0, || {
        format!(
            "fill_ only supports 0-dimension value tensor but got tensor with {rank} dimensions."
        )
    })
}

fn arange(c: &mut Call) -> Result<()> {
    let number = |name, default| match c.a.values.get(name) {
        // A symbol has no value yet.
        Some(Val::Int(Size::Dynamic(_)) | Val::Number(..)) => Ok(None),
        _ => c.a.float(name, default).map(Some),
    };
    let step = number("step", Some(1.0))?;
    wants(step != Some(0.0), || "step must be nonzero".into())?;
    let (start, end) = (number("start", Some(0.0))?, number("end", None)?);
    let (Some(start), Some(end), Some(step)) = (start, end, step) else { return Ok(()) };
    wants(start.is_finite() && end.is_finite(), || format!("unsupported range: {start} -> {end}"))?;
    wants(if step > 0.0 { end >= start } else { end <= start }, || {
        "upper bound and lower bound inconsistent with step sign".into()
    })
}

/// Checks a tensor against the metadata of the export.
fn metadata(c: &mut Call) -> Result<()> {
    let have = c.ty("a")?;
    if let Some(d) = c.a.dtype("dtype")? {
        wants(d == have.dtype, || {
            let (want, have) = (scalar_name(d), scalar_name(have.dtype));
            format!("Tensor dtype mismatch! Expected: {want}, Got: {have}")
        })?;
    }
    if c.a.has("size") {
        let want = c.sizes("size")?;
        wants(!super::shapes_differ(&want, &have.dims), || {
            format!(
                "Tensor sizes mismatch! Expected: {}, Got: {}",
                super::list(&want),
                have.sizes()
            )
        })?;
    }
    Ok(())
}
