//! Epilogue of a matrix product: what happens to its accumulators in registers.
use crate::{
    analysis::{Init, Nest, Output},
    emit::{
        body::{ForwardedElements, Scope},
        code::Code,
        lanes::{LaneValue, Lanes},
    },
};
use kiln_dialects::ir::*;

/// Finishes elements of a product: adds the initial value of each output to its accumulators,
/// stores them, and runs the nest's later (epilogue) stages on them. Returns what all stages
/// computed.
pub fn finish(
    c: Code,
    scope: &Scope<'_>,
    nest: &Nest,
    lanes: Lanes,
    dims: &[LaneValue],
    sums: &[(&Output, LaneValue)],
) -> Result<ForwardedElements> {
    let mut passed = ForwardedElements::new();
    for (out, sum) in sums {
        let mut sum = *sum;
        if !starts_at_zero(&out.init) {
            let start = scope
                .initial_value(c, &out.init, dims, lanes, &ForwardedElements::new())?
                .ok_or("has no start")?;
            let (a, b) = (lanes.vector(c, sum)?, lanes.vector(c, start)?);
            let element = a.ty().element().unwrap_or(a.ty()).dtype()?;
            let both =
                if element.is_float() { arith::addf(c, a, b)? } else { arith::addi(c, a, b)? };
            sum = if lanes.count > 1 { LaneValue::Vector(both) } else { LaneValue::Uniform(both) };
        }
        if let Some(memory) = scope.memory.get(out.access.buffer).copied().flatten() {
            lanes.store(c, memory, scope.address(c, &out.access.at, dims, lanes)?, sum, false)?;
        }
        passed.insert(out.access.clone(), sum);
    }
    scope.iteration(c, &nest.after, dims, lanes, &mut [], &mut passed)?;
    Ok(passed)
}

fn starts_at_zero(init: &Init) -> bool {
    let Init::Fill(v) = init else { return false };
    let value = v.def_as::<arith::Constant>().and_then(|d| d.attr("value"));
    value.is_some_and(|a| a.as_f64() == Some(0.0) || a.as_i64() == Some(0))
}
