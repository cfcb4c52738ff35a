//! Inputs of which a kernel reads a part alone, such as the first row of an image that a batch norm
//! shifts its sums by. What `explain` counts as bytes is that part.
use crate::analysis::structure::loops_of;
use kiln_dialects::{ir::*, rules::tensor_type, sym::known_product};

/// Pairs of an input and the number of elements that the ops of a kernel's function read of it,
/// where these are fewer than all: along dimensions whose index is a constant it is one.
pub fn partial_reads(func: Op) -> Vec<i64> {
    let Some(block) = func.regions().first().and_then(|r| r.first()) else { return vec![] };
    let part = |(i, v): (usize, Value)| {
        let dims = tensor_type(v.ty()).ok()?.dims;
        let whole = known_product(&dims)?;
        let mut read = 0i64;
        for (user, operand) in v.uses() {
            let (maps, _) = loops_of(user).ok()?;
            let varying = maps.get(operand)?.iter().zip(&dims).filter(|(i, _)| i.known().is_none());
            read = read.saturating_add(known_product(varying.map(|(_, d)| d))?);
        }
        (read < whole).then_some([i as i64, read])
    };
    block.args().into_iter().enumerate().filter_map(part).flatten().collect()
}
