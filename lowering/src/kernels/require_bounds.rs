//! `kiln-require-bounds`: states the conditions on sizes under which no op accesses its operand out
//! of bounds.
//!
//! Why: a compiled gather clamps an index into its dimension, which must not be empty; a dynamic
//! slice must fit; a window must fit into the padded dimension; elementwise operands need equal sizes.
//! Kernels have no checks, since sizes are known before a call: a condition that no fact proves
//! here is checked at the program's entry. The pass runs after dead code elimination, and before
//! outlining splits sizes across kernels.
//!
//! Numerics: exact.
//!
//! ```text
//! before:  %1 = kiln.gather %x[%i] dims = [0] : tensor<?x4xf32>[tensor<2xi64>]
//! after:   %1 = …   %n = kiln.sym @n   kiln.require le %c1, %n "kiln.gather: dimension 0 must not be empty"
//! ```
use crate::analysis::sizes::{SizeBuilder, SizeValues};
use kiln_dialects::{
    ir::*,
    ops::{self, CompareKind, DynamicSlice, DynamicUpdateSlice, Gather, OpKind, Require, SymKind},
    rules::{Level, Sizes, non_drivers},
    sym::Dim,
};
use kiln_passes::{Numerics, Pass, refine_shapes::Facts};

kiln_passes::pass_options! {
    /// The pass.
    pub struct RequireBounds {
        /// Rounds of size propagation
        pub rounds: usize = 8,
    }
}

impl Pass for RequireBounds {
    const FLAG: &'static str = "kiln-require-bounds";
    const SUMMARY: &'static str =
        "Emits guards on sizes under which no op accesses its operand out of bounds";
    const LEVELS: &'static [Level] = &[Level::Prims];
    const NUMERICS: Numerics = Numerics::Exact;

    fn run(&self, root: Op) -> Result<()> {
        for func in non_drivers(root) {
            let Some(block) = func.regions().first().and_then(|r| r.first()) else { continue };
            let facts = Facts::of(func, self.rounds)?;
            let mut found: Vec<(Op, Condition)> = vec![];
            for op in block.ops() {
                for c in conditions(&facts, op).into_iter().chain(equal(&facts, op)) {
                    let new = !decided(&facts, &c) && found.iter().all(|(_, f)| !f.implies(&c));
                    if new {
                        found.push((op, c));
                    }
                }
            }
            emit_requires(block, &facts, found)?;
        }
        Ok(())
    }
}

/// `less <= more`, or `less == more`, and its message.
struct Condition {
    lhs: Dim,
    rhs: Dim,
    equal: bool,
    message: String,
}

impl Condition {
    /// Whether this condition implies the other one.
    fn implies(&self, other: &Condition) -> bool {
        let (same, swapped) = (
            (&self.lhs, &self.rhs) == (&other.lhs, &other.rhs),
            (&self.lhs, &self.rhs) == (&other.rhs, &other.lhs),
        );
        if self.equal { same || swapped } else { same && !other.equal }
    }
}

/// The pairs of sizes of which an op requires that the first is at most the second, or, where the
/// flag is true, that they are equal.
pub(super) fn compared(facts: &Facts, op: Op) -> Vec<(Dim, Dim, bool)> {
    let all = conditions(facts, op).into_iter().chain(equal(facts, op));
    all.map(|c| (c.lhs, c.rhs, c.equal)).collect()
}

/// The conditions under which an op is in bounds.
fn conditions(facts: &Facts, op: Op) -> Vec<Condition> {
    let Some(kind) = op.kind() else { return vec![] };
    let name = kind.name();
    let fit = |part: &[Dim], whole: Value| -> Vec<Condition> {
        let words = |axis| format!("{name}: the slice must lie within dimension {axis}");
        let pairs = part.iter().zip(facts.dims(whole)).enumerate();
        pairs
            .map(|(axis, (less, more))| Condition {
                lhs: less.clone(),
                rhs: more.clone(),
                equal: false,
                message: words(axis),
            })
            .collect()
    };
    let sizes = |all: &[Size]| all.iter().map(|s| facts.size(s)).collect::<Vec<_>>();
    match kind {
        OpKind::Gather => {
            let Some(o) = Gather::of(op) else { return vec![] };
            let count = o.indices.first().map_or(Dim::Known(1), |i| {
                facts.dims(*i).iter().fold(Dim::Known(1), |n, d| n.mul(d))
            });
            let one = |d: &i64| {
                let more = facts.dims(o.input).get(*d as usize)?.clone();
                // The index count is a multiple of the dimension's size: empty means no indices.
                let terms = count.terms();
                if !terms.is_empty()
                    && terms
                        .iter()
                        .all(|(factors, _)| factors.iter().any(|a| more == Dim::atom(a.clone())))
                {
                    return None;
                }
                let words = format!("{name}: dimension {d} must not be empty");
                Some(Condition {
                    lhs: Dim::apply(SymKind::Min, &count, &Dim::Known(1)),
                    rhs: more,
                    equal: false,
                    message: words,
                })
            };
            o.dims.iter().filter_map(one).collect()
        }
        OpKind::DynamicSlice => {
            DynamicSlice::of(op).map_or(vec![], |o| fit(&sizes(&o.sizes), o.input))
        }
        OpKind::DynamicUpdateSlice => {
            DynamicUpdateSlice::of(op).map_or(vec![], |o| fit(facts.dims(o.update), o.input))
        }
        OpKind::Slice => {
            let Some(o) = ops::Slice::of(op) else { return vec![] };
            let end = |i: usize| {
                let steps =
                    facts.size(&o.sizes[i]).sub(&Dim::Known(1)).mul(&Dim::Known(o.strides[i]));
                facts.size(&o.offsets[i]).add(&steps).add(&Dim::Known(1))
            };
            fit(&(0..o.sizes.len()).map(end).collect::<Vec<_>>(), o.input)
        }
        OpKind::ReduceWindow => {
            let Some(o) = ops::ReduceWindow::of(op) else { return vec![] };
            let dims = facts.dims(o.input).iter().enumerate();
            let one = |(i, size): (usize, &Dim)| {
                let window = Dim::Known((o.window[i] - 1) * o.dilation[i] + 1);
                let padded = size.add(&Dim::Known(o.pad_low[i] + o.pad_high[i]));
                // An empty batch has no windows.
                (o.window[i] > 1).then(|| window_fits(name, i, window, padded))
            };
            dims.filter_map(one).collect()
        }
        OpKind::Convolution => {
            let Some(o) = ops::Convolution::of(op) else { return vec![] };
            let (input, weight) = (facts.dims(o.input), facts.dims(o.weight));
            let one = |i: usize| {
                let axis = i + 2;
                if o.transposed {
                    let more = facts.dims(op.result(0))[axis].clone();
                    let words = format!("{name}: the result's dimension {axis} must not be empty");
                    return Condition {
                        lhs: Dim::Known(1),
                        rhs: more,
                        equal: false,
                        message: words,
                    };
                }
                let steps = weight[axis].sub(&Dim::Known(1)).mul(&Dim::Known(o.dilation[i]));
                let padded = input[axis].add(&Dim::Known(o.pad_low[i] + o.pad_high[i]));
                // Dimensions are not numbered: `kiln-expand-conv1d` may have added one.
                let words = format!("{name}: the window must not exceed the padded input");
                let window = steps.add(&Dim::Known(1));
                Condition { lhs: window, rhs: padded, equal: false, message: words }
            };
            (0..o.strides.len()).map(one).collect()
        }
        OpKind::Pad => {
            let dims = facts.dims(op.result(0)).iter().enumerate();
            dims.map(|(axis, more)| Condition {
                lhs: Dim::Known(0),
                rhs: more.clone(),
                equal: false,
                message: format!("{name}: the result's dimension {axis} must not be negative"),
            })
            .collect()
        }
        _ => vec![],
    }
}

/// That a dilated window fits into a padded dimension.
fn window_fits(name: &str, axis: usize, window: Dim, padded: Dim) -> Condition {
    let words = format!("{name}: the window must not exceed the padded dimension {axis}");
    Condition { lhs: window, rhs: padded, equal: false, message: words }
}

/// The sizes that an op requires to be equal.
fn equal(facts: &Facts, op: Op) -> Vec<Condition> {
    let one = |less: &Dim, more: &Dim| Condition {
        lhs: less.clone(),
        rhs: more.clone(),
        equal: true,
        message: format!("{}: operand sizes must be equal", op.name()),
    };
    facts.assumed(op).iter().map(|(a, b)| one(a, b)).collect()
}

/// Whether a condition is proven for all sizes.
fn decided(facts: &Facts, c: &Condition) -> bool {
    c.lhs == c.rhs || !c.equal && facts.bounds(&c.rhs.sub(&c.lhs)).0.is_some_and(|least| least >= 0)
}

fn emit_requires(block: Block, facts: &Facts, found: Vec<(Op, Condition)>) -> Result<()> {
    let Some(end) = block.terminator().filter(|_| !found.is_empty()) else { return Ok(()) };
    let builder = Builder::before(end).ok_or_at(end, "is in no block")?;
    let mut sizes = SizeValues::of_arguments(block, facts, builder, end)?;
    for (op, c) in found {
        let (lhs, rhs) = (sizes.build(&c.lhs).at(op)?, sizes.build(&c.rhs).at(op)?);
        let kind = if c.equal { CompareKind::Eq } else { CompareKind::Le };
        let require = Require { kind, lhs, rhs, message: c.message };
        builder.at(op.loc()).create_with(&require, &[], &mut []).at(op)?;
    }
    Ok(())
}
