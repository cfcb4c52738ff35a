//! `kiln-require-indices`: states that the elements of an argument that a gather or a scatter takes
//! as indices are in range.
//!
//! Why: PyTorch refuses an index out of range, and a compiled gather reads the nearest element
//! instead: kernels have no checks. The host reads the indices of an argument before the call.
//! Those that the program computes are not checked.
//!
//! An index is followed to an argument through ops that move each element or widen it, and through
//! the select by which an index below 0 counts from the end. Ops inside of regions are skipped,
//! since they may not run.
//!
//! Numerics: exact.
//!
//! ```text
//! before:  %1 = kiln.gather %x[%i] dims = [0] : tensor<5x4xf32>[tensor<2xi64>]
//! after:   %1 = …   kiln.require_index %i below %c5 "kiln.gather: dimension 0" : tensor<2xi64>
//! ```
use crate::analysis::sizes::{SizeBuilder, SizeValues};
use kiln_dialects::{
    ir::*,
    ops::{Compare, CompareKind, Gather, OpKind, RequireIndex, Scatter, Slice},
    rules::{Level, Sizes, non_drivers, tensor_type},
    sym::Dim,
};
use kiln_passes::{Numerics, Pass, refine_shapes::Facts};

kiln_passes::pass_options! {
    /// The pass.
    pub struct RequireIndices {
        /// Rounds of size propagation
        pub rounds: usize = 8,
    }
}

impl Pass for RequireIndices {
    const FLAG: &'static str = "kiln-require-indices";
    const SUMMARY: &'static str =
        "Emits guards on arguments under which no gather or scatter reads an index out of range";
    const LEVELS: &'static [Level] = &[Level::Prims];
    const NUMERICS: Numerics = Numerics::Exact;

    fn run(&self, root: Op) -> Result<()> {
        for func in non_drivers(root) {
            let Some(block) = func.regions().first().and_then(|r| r.first()) else { continue };
            let facts = Facts::of(func, self.rounds)?;
            let mut found: Vec<Guard> = vec![];
            for guard in block.ops().into_iter().flat_map(|op| guards(&facts, op)) {
                if !found.iter().any(|g| g.is(&guard)) {
                    found.push(guard);
                }
            }
            emit(block, &facts, found)?;
        }
        Ok(())
    }
}

/// That the elements of an argument index a dimension.
struct Guard {
    op: Op,
    argument: Value,
    size: Dim,
    wraps: bool,
    dim: i64,
}

impl Guard {
    /// Whether two guards state the same.
    fn is(&self, other: &Guard) -> bool {
        (self.argument, &self.size, self.wraps) == (other.argument, &other.size, other.wraps)
    }
}

/// The guards of a gather or a scatter.
fn guards(facts: &Facts, op: Op) -> Vec<Guard> {
    let (input, indices, dims) = if let Some(o) = Gather::of(op) {
        (o.input, o.indices, o.dims)
    } else if let Some(o) = Scatter::of(op) {
        (o.input, o.indices, o.dims)
    } else {
        return vec![];
    };
    let one = |(index, dim): (Value, i64)| {
        let size = facts.dims(input).get(usize::try_from(dim).ok()?)?.clone();
        let (argument, wraps) = argument(facts, index, &size)?;
        Some(Guard { op, argument, size, wraps, dim })
    };
    indices.into_iter().zip(dims).filter_map(one).collect()
}

/// The argument whose elements are a value's elements, and whether negative ones count from the end
/// of a dimension of this size.
fn argument(facts: &Facts, mut v: Value, size: &Dim) -> Option<(Value, bool)> {
    let mut wraps = false;
    loop {
        let Some(op) = v.def() else { return Some((v, wraps)) };
        v = match op.kind()? {
            OpKind::Reshape | OpKind::Transpose => op.operand(0),
            // What is broadcast along an empty dimension is not read.
            OpKind::BroadcastInDim if !may_add_empty(facts, op) => op.operand(0),
            OpKind::Convert if widens(op) => op.operand(0),
            OpKind::Select if !wraps && counts_from_end(facts, op, size) => {
                wraps = true;
                op.operand(2)
            }
            _ => return None,
        };
    }
}

/// Whether a broadcast has a dimension, beyond its operand's, that may be empty.
fn may_add_empty(facts: &Facts, op: Op) -> bool {
    let given = facts.dims(op.operand(0));
    facts.dims(op.result(0)).iter().any(|d| !given.contains(d) && facts.bounds(d).0 < Some(1))
}

/// Whether a conversion keeps every integer.
fn widens(op: Op) -> bool {
    let dtype = |v: Value| tensor_type(v.ty()).ok().map(|t| t.dtype).filter(|t| t.is_int());
    let (from, to) = (dtype(op.operand(0)), dtype(op.result(0)));
    from.zip(to).is_some_and(|(from, to)| from.byte_size() <= to.byte_size())
}

/// Whether `select(i < 0, i + n, i)` for a dimension of size n.
fn counts_from_end(facts: &Facts, select: Op, size: &Dim) -> bool {
    let (test, moved, index) = (select.operand(0), select.operand(1), select.operand(2));
    let negative = test.def().is_some_and(|o| {
        let kind = Compare::of(o).map(|o| o.kind);
        kind == Some(CompareKind::Lt)
            && o.operand(0) == index
            && number(facts, o.operand(1)) == Some(Dim::Known(0))
    });
    let adds = moved.def().filter(|o| o.kind() == Some(OpKind::Add)).is_some_and(|o| {
        o.operand(0) == index && number(facts, o.operand(1)).as_ref() == Some(size)
    });
    negative && adds
}

/// The integer that all elements of a value are: a literal, or a size as a tensor.
fn number(facts: &Facts, mut v: Value) -> Option<Dim> {
    loop {
        let op = v.def()?;
        v = match op.kind()? {
            OpKind::Reshape | OpKind::BroadcastInDim => op.operand(0),
            OpKind::Convert if widens(op) => op.operand(0),
            OpKind::Splat => return Some(Dim::Known(op.attr("value")?.as_i64()?)),
            OpKind::Constant => {
                return Some(Dim::Known(op.attr("value")?.splat_value()?.as_i64()?));
            }
            // `Builder::size_as_tensor`.
            OpKind::Slice => {
                let slice = Slice::of(op)?;
                let iota = slice.input.def().is_some_and(|o| o.kind() == Some(OpKind::Iota));
                let one = slice.sizes == Size::all(&[1]) && slice.offsets.len() == 1;
                return (iota && one).then(|| facts.size(&slice.offsets[0]));
            }
            _ => return None,
        };
    }
}

fn emit(block: Block, facts: &Facts, found: Vec<Guard>) -> Result<()> {
    let Some(end) = block.terminator().filter(|_| !found.is_empty()) else { return Ok(()) };
    let builder = Builder::before(end).ok_or_at(end, "is in no block")?;
    let mut sizes = SizeValues::of_arguments(block, facts, builder, end)?;
    for g in found {
        let size = sizes.build(&g.size).at(g.op)?;
        let places = g.op.loc().sources();
        let place =
            if places.is_empty() { String::new() } else { format!(" of {}", places.join(", ")) };
        let message = format!("{}{place}: dimension {}", g.op.name(), g.dim);
        let guard = RequireIndex { index: g.argument, size, wraps: g.wraps, message };
        builder.at(g.op.loc()).create_with(&guard, &[], &mut []).at(g.op)?;
    }
    Ok(())
}
