//! `kiln-expand-scatters`: expands a scatter into a masked reduction over the updates for each
//! element.
//!
//! Why: GPU kernels cannot call the runtime, and atomic adds come in any order; here the order is
//! fixed, so results are deterministic. An assigning scatter finds the last update of each element
//! by a maximum, then gathers it. As it stands each element compares all indices; strategy
//! `scatter_reduction` recognises the mask, and compares them once a warp.
//!
//! Numerics: reassociates.
//!
//! ```text
//! before:  %0 = kiln.scatter add %x[%i], %u dims = [0] : tensor<8xf32>[tensor<3xi64>], tensor<3xf32>
//! after:   %m = kiln.compare eq %i, %place   %s = kiln.select %m, %u, %zero   %r = kiln.reduce sum %s dims = [0]   %0 = kiln.add %x, %r : tensor<8xf32>
//! ```
use crate::{
    decompose::tools::{Math, replace_ops},
    expand_scans::{identity, reduction_type},
    pass::{Numerics, Pass},
};
use kiln_dialects::{
    ir::*,
    ops::*,
    rules::{GRAPH_LEVELS, Level, tensor_type},
    value::DType,
};

crate::pass_options! {
    /// The pass.
    pub struct ExpandScatters {}
}

impl Pass for ExpandScatters {
    const FLAG: &'static str = "kiln-expand-scatters";
    const SUMMARY: &'static str = "Expands scatters into masked reductions over their updates";
    const LEVELS: &'static [Level] = GRAPH_LEVELS;
    const NUMERICS: Numerics = Numerics::Reassociates;

    fn run(&self, root: Op) -> Result<()> {
        replace_ops(root, |m, op| Scatter::of(op).map(|o| Ok(vec![expanded(m, &o)?])))
    }
}

/// A scatter with flattened indices.
struct FlatScatter<'a> {
    m: &'a Math<'a>,
    input: Value,
    /// The number of updates.
    count: Size,
    /// The indexed dimensions, ascending.
    dims: Vec<i64>,
    /// An i64 index vector for each of them.
    indices: Vec<Value>,
    /// `[count, unindexed sizes…]`.
    updates: Value,
    /// The dimensions without an index.
    rest: Vec<i64>,
}

fn expanded(m: &Math, o: &Scatter) -> Result<Value> {
    let first = *o.indices.first().ok_or("has no indices")?;
    let sizes = m.sizes_of(first)?;
    let count = m.product(&sizes)?;
    if count.known() == Some(0) {
        return Ok(o.input);
    }
    let mut pairs: Vec<(i64, Value)> =
        o.dims.iter().copied().zip(o.indices.iter().copied()).collect();
    pairs.sort_by_key(|(d, _)| *d);
    let dims: Vec<i64> = pairs.iter().map(|(d, _)| *d).collect();
    let indices = pairs
        .iter()
        .map(|(_, i)| m.reshape(m.convert(*i, DType::I64)?, &[count]))
        .collect::<Result<Vec<_>>>()?;
    let rest: Vec<i64> =
        (0..o.input.ty().dims().len() as i64).filter(|d| !dims.contains(d)).collect();
    let mut rows = vec![count];
    rows.extend(m.sizes_of(o.updates)?.into_iter().skip(sizes.len()));
    let rows = FlatScatter {
        m,
        input: o.input,
        count,
        dims,
        indices,
        updates: m.reshape(o.updates, &rows)?,
        rest,
    };
    let kind = match o.kind {
        ScatterKind::Assign => return rows.assigned(),
        ScatterKind::Add => ReduceKind::Sum,
        ScatterKind::Mul => ReduceKind::Prod,
        ScatterKind::Max => ReduceKind::Max,
        ScatterKind::Min => ReduceKind::Min,
    };
    rows.combined(kind)
}

impl FlatScatter<'_> {
    /// The mask "update i writes element e", of shape `sizes` with the updates first; `dims` are
    /// the dimensions of the indexed ones after that.
    fn matches(&self, sizes: &[Size], dims: &[i64]) -> Result<Value> {
        let mut all = None;
        for (index, d) in self.indices.iter().zip(dims) {
            let broadcasted = self.m.broadcast(*index, &[0], sizes)?;
            let matching = self.m.compare(
                CompareKind::Eq,
                broadcasted,
                self.m.iota(sizes, *d as usize + 1)?,
            )?;
            all = Some(all.map_or(Ok(matching), |a| self.m.binary(BinaryKind::And, a, matching))?);
        }
        all.ok_or("has no indices".into())
    }

    fn combined(&self, kind: ReduceKind) -> Result<Value> {
        let m = self.m;
        let dtype = tensor_type(self.input.ty())?.dtype;
        let mut sizes = m.sizes_of(self.input)?;
        sizes.insert(0, self.count);
        let x = m.convert(self.input, reduction_type(dtype))?;
        let dims: Vec<i64> = std::iter::once(0).chain(self.rest.iter().map(|d| d + 1)).collect();
        let broadcasted =
            m.broadcast(m.convert(self.updates, reduction_type(dtype))?, &dims, &sizes)?;
        let nothing = m.b.add(&Splat {
            value: identity(m.b.ctx, kind, reduction_type(dtype)),
            sizes: sizes.clone(),
        })?;
        let masked = m.select(self.matches(&sizes, &self.dims)?, broadcasted, nothing)?;
        let all = m.reduce(kind, masked, &[0])?;
        let combine = match kind {
            ReduceKind::Prod => BinaryKind::Mul,
            ReduceKind::Max => BinaryKind::Max,
            ReduceKind::Min => BinaryKind::Min,
            _ => BinaryKind::Add,
        };
        m.convert(m.binary(combine, x, m.retype_like(all, x)?)?, dtype)
    }

    /// The last update of each element.
    fn assigned(&self) -> Result<Value> {
        let m = self.m;
        let all = m.sizes_of(self.input)?;
        let mut sizes: Vec<Size> = self.dims.iter().map(|d| all[*d as usize]).collect();
        let which: Vec<i64> = (0..sizes.len() as i64).collect();
        sizes.insert(0, self.count);
        let none = m.b.add(&Splat {
            value: Attr::scalar_int(m.b.ctx, DType::I64, -1),
            sizes: sizes.clone(),
        })?;
        let number = m.select(self.matches(&sizes, &which)?, m.iota(&sizes, 0)?, none)?;
        let last = m.reduce(ReduceKind::Max, number, &[0])?;
        let zero = m.full_like(last, 0.0)?;
        let mut updates = self.updates;
        if self.count.known().is_none() {
            // Pad, so that the gather has an element to read when there are no updates.
            let fill = m.b.splat(tensor_type(updates.ty())?.dtype, &[], 0.0)?;
            let none = vec![Size::Static(0); updates.ty().dims().len()];
            let high = [&[Size::Static(1)], &none[1..]].concat();
            updates = m.b.add(&Pad { input: updates, value: fill, low: none, high })?;
        }
        let found = m.b.add(&Gather {
            input: updates,
            indices: vec![m.binary(BinaryKind::Max, last, zero)?],
            dims: vec![0],
        })?;
        // Gather puts the indexed dimensions first; transpose back.
        let from = [&self.dims[..], &self.rest[..]].concat();
        let order: Vec<i64> = (0..all.len() as i64)
            .filter_map(|d| from.iter().position(|x| *x == d))
            .map(|p| p as i64)
            .collect();
        let found = m.retype_like(m.transpose(found, &order)?, self.input)?;
        let hit = m.compare(CompareKind::Ge, last, zero)?;
        m.select(m.broadcast_to(hit, &self.dims, self.input)?, found, self.input)
    }
}
