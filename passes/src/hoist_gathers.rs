//! `kiln-hoist-gathers`: single elements that are picked from a computed tensor are computed from
//! picked elements.
//!
//! Why: what a gather reads is in memory, so that a cross entropy would write the logarithms of all
//! probabilities, of which it reads one per row. Of its operands the same elements are read
//! instead, and what is the same along a row is not read by position at all. Upstream has no
//! gathers on tensors.
//!
//! Numerics: exact; the same operations on fewer elements.
//!
//! ```text
//! before:  %0 = kiln.sub %x, %spread   %1 = kiln.gather %0[%row, %column] dims = [0, 1]
//! after:   %0 = kiln.gather %x[%row, %column] dims = [0, 1]   %1 = kiln.sub %0, %of_row
//! ```
use crate::pass::{Numerics, Pass};
use kiln_dialects::{
    ir::*,
    ops::*,
    rules::{GRAPH_LEVELS, Level},
    sym::Dim,
};

crate::pass_options! {
    /// The pass.
    pub struct HoistGathers {
        /// Least elements of the tensor for each that is picked
        pub least: i64 = 8,
        /// Most elementwise ops that are computed again
        pub most: usize = 16,
    }
}

impl Pass for HoistGathers {
    const FLAG: &'static str = "kiln-hoist-gathers";
    const SUMMARY: &'static str =
        "Computes elements that a gather picks from elements that it picks from the operands";
    const LEVELS: &'static [Level] = GRAPH_LEVELS;
    const NUMERICS: Numerics = Numerics::Exact;

    fn run(&self, root: Op) -> Result<()> {
        for op in walk(root) {
            let Some(gather) = Gather::of(op).filter(|g| self.pays(g)) else { continue };
            let b = Builder::before(op).ok_or_at(op, "is in no block")?;
            let mut left = self.most;
            let indices = (0..gather.dims.len() as i64)
                .filter_map(|d| gather.dims.iter().position(|x| *x == d))
                .map(|k| gather.indices[k]);
            let picked = pick(&b, gather.input, &indices.collect::<Vec<_>>(), &mut left).at(op)?;
            if picked.ty() == op.result(0).ty() {
                op.result(0).replace_uses(picked);
            }
        }
        // What was replaced has no readers any more; canonicalize drops it.
        Ok(())
    }
}

impl HoistGathers {
    /// Whether single elements are picked, few of a computed value.
    fn pays(&self, g: &Gather) -> bool {
        let computed = g.input.def().is_some_and(|o| {
            o.kind().is_some_and(OpKind::is_arithmetic) || o.kind() == Some(OpKind::BroadcastInDim)
        });
        let count = |v: Value| {
            v.ty().dims().iter().map(Dim::known).try_fold(1i64, |n, d| n.checked_mul(d?))
        };
        let few = match (count(g.input), g.indices.first().copied().and_then(count)) {
            (Some(all), Some(some)) => some.saturating_mul(self.least) <= all,
            // One less dimension is as a rule much less.
            _ => g.indices.first().is_some_and(|i| i.ty().dims().len() < g.input.ty().dims().len()),
        };
        computed && few && g.dims.len() == g.input.ty().dims().len()
    }
}

/// The elements of a value at these positions, one tensor of them for each dimension.
pub(crate) fn pick(b: &Builder, v: Value, indices: &[Value], left: &mut usize) -> Result<Value> {
    let first = *indices.first().ok_or("picks from a scalar")?;
    let sizes = b.sizes_of(first)?;
    let leaf = |v: Value| {
        if in_order(v, indices) {
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
            Some(of) => pick(b, o.input, &of, left),
            None => leaf(v),
        };
    }
    if !op.kind().is_some_and(OpKind::is_arithmetic) || *left == 0 {
        return leaf(v);
    }
    *left -= 1;
    let operands = op
        .operands()
        .into_iter()
        .map(|o| pick(b, o, indices, left))
        .collect::<Result<Vec<_>, _>>()?;
    let copy =
        b.clone_op(op, &|o| op.operands().iter().position(|x| *x == o).map_or(o, |i| operands[i]))?;
    let element = v.ty().element().ok_or("is no tensor")?.dtype()?;
    copy.result(0).set_ty(Type::tensor(b.ctx, element, &first.ty().dims()));
    Ok(copy.result(0))
}

/// Whether each element is picked where it is.
fn in_order(v: Value, indices: &[Value]) -> bool {
    let dims = v.ty().dims();
    let counts = |(axis, i): (usize, &Value)| {
        i.ty().dims() == dims && i.def().and_then(Iota::of).is_some_and(|o| o.axis == axis as i64)
    };
    dims.iter().all(|d| d.known().is_some())
        && dims.len() == indices.len()
        && indices.iter().enumerate().all(counts)
}
