//! `kiln-hoist-gathers`: hoists a gather of single elements above the elementwise ops that compute
//! its input.
//!
//! Why: a gather's input is materialised, so a cross entropy would store the log-probabilities of
//! all classes to read one per row. Gathering the operands instead computes one element per row,
//! and operands that are broadcast along the row need no gather. Upstream has no gathers on
//! tensors.
//!
//! Numerics: exact; the same operations on fewer elements. What is also computed for all elements is
//! marked `kiln.rounded`.
//!
//! ```text
//! before:  %0 = kiln.sub %x, %spread   %1 = kiln.gather %0[%row, %column] dims = [0, 1]
//! after:   %0 = kiln.gather %x[%row, %column] dims = [0, 1]   %1 = kiln.sub %0, %of_row
//! ```
use crate::{
    pass::{Numerics, Pass},
    rounding,
};
use kiln_dialects::{
    ir::*,
    ops::*,
    rules::{GRAPH_LEVELS, Level},
    sym::known_product,
};
use std::collections::HashSet;

crate::pass_options! {
    /// The pass.
    pub struct HoistGathers {
        /// Least number of input elements per gathered element
        pub min_ratio: i64 = 8,
        /// Most elementwise ops that are recomputed
        pub max_ops: usize = 16,
    }
}

impl Pass for HoistGathers {
    const FLAG: &'static str = "kiln-hoist-gathers";
    const SUMMARY: &'static str = "Hoists gathers above the elementwise ops of their input";
    const LEVELS: &'static [Level] = GRAPH_LEVELS;
    const NUMERICS: Numerics = Numerics::Exact;

    fn run(&self, root: Op) -> Result<()> {
        for op in walk(root) {
            let Some(gather) = Gather::of(op).filter(|g| self.is_profitable(g)) else { continue };
            let b = Builder::before(op).ok_or_at(op, "is in no block")?;
            let mut picking = Picking { left: self.max_ops, hoisted: vec![] };
            let indices = (0..gather.dims.len() as i64)
                .filter_map(|d| gather.dims.iter().position(|x| *x == d))
                .map(|k| gather.indices[k]);
            let indices = indices.collect::<Vec<_>>();
            let picked = picking.elements(&b, gather.input, &indices).at(op)?;
            if picked.ty() == op.result(0).ty() {
                op.result(0).replace_uses(picked);
                picking.mark_duplicates(op);
            }
        }
        // Replaced ops are dead now; canonicalize erases them.
        Ok(())
    }
}

impl HoistGathers {
    /// Whether the gather reads single elements, few of those that its input computes.
    fn is_profitable(&self, g: &Gather) -> bool {
        let computed = g.input.def().is_some_and(|o| {
            o.kind().is_some_and(OpKind::is_arithmetic) || o.kind() == Some(OpKind::BroadcastInDim)
        });
        let count = |v: Value| known_product(&v.ty().dims());
        let few = match (count(g.input), g.indices.first().copied().and_then(count)) {
            (Some(all), Some(some)) => some.saturating_mul(self.min_ratio) <= all,
            // Dynamic sizes: a lower rank is taken as much smaller.
            _ => g.indices.first().is_some_and(|i| i.ty().dims().len() < g.input.ty().dims().len()),
        };
        computed && few && g.dims.len() == g.input.ty().dims().len()
    }
}

/// The gathering of what ops compute.
pub(crate) struct Picking {
    /// How many more ops may be recomputed.
    left: usize,
    /// The ops above which the gather is, readers first, each with its copy if it has one.
    hoisted: Vec<(Op, Option<Op>)>,
}

/// The elements of a value at these indices, one index tensor per dimension, of which at most
/// `most` ops are recomputed.
pub(crate) fn gather_elements(
    b: &Builder,
    v: Value,
    indices: &[Value],
    most: usize,
) -> Result<Value> {
    Picking { left: most, hoisted: vec![] }.elements(b, v, indices)
}

impl Picking {
    /// Marks the ops that others than the gather read, and their copies.
    fn mark_duplicates(self, gather: Op) {
        let mut dead = HashSet::from([gather]);
        for (op, copy) in self.hoisted {
            if op.results().iter().flat_map(|v| v.uses()).all(|(user, _)| dead.contains(&user)) {
                dead.insert(op);
            } else if let Some(copy) = copy {
                rounding::mark(op);
                rounding::mark(copy);
            }
        }
    }

    fn elements(&mut self, b: &Builder, v: Value, indices: &[Value]) -> Result<Value> {
        let first = *indices.first().ok_or("gathers from a scalar")?;
        let sizes = b.sizes_of(first)?;
        let leaf = |v: Value| {
            if is_identity(v, indices) {
                Ok(v)
            } else {
                b.add(&Gather {
                    input: v,
                    indices: indices.to_vec(),
                    dims: (0..indices.len() as i64).collect(),
                })
            }
        };
        let Some(op) = v.def() else { return leaf(v) };
        let b = &b.at(op.loc());
        if let Some(splat) = Splat::of(op) {
            return b.add(&Splat { value: splat.value, sizes });
        }
        if let Some(o) = BroadcastInDim::of(op) {
            let (from, to) = (o.input.ty().dims(), v.ty().dims());
            let same = o.dims.iter().zip(&from).all(|(d, n)| {
                n.known() != Some(1) && to.get(*d as usize).is_some_and(|m| m.known() == n.known())
            });
            return match o
                .dims
                .iter()
                .map(|d| indices.get(*d as usize).copied())
                .collect::<Option<Vec<_>>>()
                .filter(|_| same)
            {
                Some(of) if of.is_empty() => {
                    b.add(&BroadcastInDim { input: o.input, dims: vec![], sizes })
                }
                Some(of) => {
                    self.hoisted.push((op, None));
                    self.elements(b, o.input, &of)
                }
                None => leaf(v),
            };
        }
        if !op.kind().is_some_and(OpKind::is_arithmetic) || self.left == 0 {
            return leaf(v);
        }
        self.left -= 1;
        let place = self.hoisted.len();
        self.hoisted.push((op, None));
        let operands = op
            .operands()
            .into_iter()
            .map(|o| self.elements(b, o, indices))
            .collect::<Result<Vec<_>, _>>()?;
        let copy = b.clone_op(op, &|o| {
            op.operands().iter().position(|x| *x == o).map_or(o, |i| operands[i])
        })?;
        self.hoisted[place].1 = Some(copy);
        let element = v.ty().element().ok_or("is not a tensor")?.dtype()?;
        copy.result(0).set_ty(Type::tensor(b.ctx, element, &first.ty().dims()));
        Ok(copy.result(0))
    }
}

/// Whether the gather is the identity: index d of each element is its own index along d.
fn is_identity(v: Value, indices: &[Value]) -> bool {
    let dims = v.ty().dims();
    let counts = |(axis, i): (usize, &Value)| {
        i.ty().dims() == dims && i.def().and_then(Iota::of).is_some_and(|o| o.axis == axis as i64)
    };
    dims.iter().all(|d| d.known().is_some())
        && dims.len() == indices.len()
        && indices.iter().enumerate().all(counts)
}
