//! Sizes that depend on data, of a control-flow program: their bounds, and the memory of results.
use crate::{analysis::sizes::SizeBuilder, program::slots::Sizes};
use kiln_dialects::{
    ir::*,
    ops::{Sym, UnbackedSize},
    rules::{SIZE_RESULTS, UNBOUNDED},
};
use kiln_passes::refine_shapes::Facts;
use kiln_runtime::program::{self as p, Dim, ExprKind, Program};
use std::collections::HashMap;

/// The unbacked sizes of a function, in order.
pub fn unbacked(
    func: Op,
    symbols: &HashMap<String, Sym>,
    sizes: &mut Sizes<'_>,
    facts: &Facts,
) -> Result<Vec<p::Unbacked>> {
    let block = func.regions().first().and_then(|r| r.first()).ok_or_at(func, "has no body")?;
    let end = block.terminator().ok_or_at(func, "has no return")?;
    let told = func.attr(SIZE_RESULTS).and_then(Attr::as_array).unwrap_or_default();
    let told: Vec<String> = told.iter().filter_map(|n| n.as_string()).collect();
    let first = end.operand_count().checked_sub(told.len()).ok_or_else(|| {
        Error::at(func, format!("has fewer results than names in {SIZE_RESULTS}"))
    })?;
    let mut all = vec![];
    for op in block.ops() {
        let Some(u) = UnbackedSize::of(op) else { continue };
        let max = match u.max.first() {
            Some(Size::Dynamic(v)) => sizes.build(&facts.size_value(*v)).at(op)?,
            Some(Size::Static(n)) => Dim::Known(*n),
            None => return Err(Error::at(op, "has no greatest value")),
        };
        all.push(p::Unbacked {
            min: symbols.get(&u.name).map_or(0, |s| s.min),
            max,
            output: told.iter().position(|n| *n == u.name).map(|i| first + i),
            name: u.name,
        });
    }
    Ok(all)
}

/// Err: a result may be larger for smaller values of its unbacked sizes, or no output has them. A
/// caller allocates results by the sizes' bounds, and learns the sizes from outputs.
pub fn check_results(func: Op, program: &Program) -> Result<()> {
    for t in &program.outputs {
        for d in &t.dims {
            let mut read = vec![];
            let grows = grows(program, *d, &mut read);
            let text = program.size_text(*d);
            let unbounded = |i: &usize| program.unbacked[*i].max == Dim::Known(UNBOUNDED);
            if !grows || read.iter().any(unbounded) {
                return Err(Error::unsupported(
                    func,
                    format!(
                        "returns a tensor of size {text}, which has no upper bound before the call; \
                         torch._check, or the output_size of a repeat, gives one"
                    ),
                ));
            }
            let hidden = |i: &&usize| program.unbacked[**i].output.is_none();
            if let Some(i) = read.iter().find(hidden) {
                let name = &program.unbacked[*i].name;
                return Err(Error::at(
                    func,
                    format!("returns a tensor of size {text}, and not the value of @{name}"),
                ));
            }
        }
    }
    Ok(())
}

/// Whether a size, of sizes that are not negative, never decreases when an unbacked one increases.
/// Collects the unbacked ones.
fn grows(program: &Program, d: Dim, read: &mut Vec<usize>) -> bool {
    let e = match d {
        Dim::Known(_) => return true,
        Dim::Symbol(i) => {
            read.extend(i.checked_sub(program.symbols.len()));
            return true;
        }
        Dim::Expr(i) => program.exprs[i],
    };
    let before = read.len();
    let left = grows(program, e.lhs, read);
    let middle = read.len();
    let right = grows(program, e.rhs, read);
    let fixed = |from: usize, to: usize| from == to;
    match e.kind {
        _ if fixed(before, read.len()) => true,
        ExprKind::Add | ExprKind::Min | ExprKind::Max => left && right,
        // A factor that is no number is a size.
        ExprKind::Mul => {
            let negative = |d| matches!(d, Dim::Known(n) if n < 0);
            left && right && !negative(e.lhs) && !negative(e.rhs)
        }
        ExprKind::FloorDiv => left && fixed(middle, read.len()),
        ExprKind::Mod | ExprKind::Pow => false,
    }
}
