//! Epilogue of a matrix product: what happens to its accumulators in registers.
use crate::{
    analysis::{Init, Nest, Output},
    emit::{
        body::{Passed, Scope},
        code::Code,
        lanes::{Lanes, Val},
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
    dims: &[Val],
    sums: &[(&Output, Val)],
) -> Result<Passed> {
    let mut passed = Passed::new();
    for (out, sum) in sums {
        let mut sum = *sum;
        if !starts_at_zero(&out.init) {
            let start =
                scope.start(c, &out.init, dims, lanes, &Passed::new())?.ok_or("has no start")?;
            let (a, b) = (lanes.many(c, sum)?, lanes.many(c, start)?);
            let both = arith::addf(c, a, b)?;
            sum = if lanes.count > 1 { Val::Many(both) } else { Val::One(both) };
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
    v.def_as::<arith::Constant>().and_then(|d| d.attr("value")).and_then(Attr::as_f64) == Some(0.0)
}
