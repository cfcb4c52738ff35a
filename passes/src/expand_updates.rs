//! `kiln-expand-updates`: expands an update of a slice at dynamic starts into an elementwise
//! select.
//!
//! Why: GPU kernels cannot call the runtime; a select also fuses with the producers of both
//! tensors.
//!
//! Numerics: exact.
//!
//! ```text
//! before:  %0 = kiln.dynamic_update_slice %x[%s], %u : tensor<8xf32>, tensor<2xf32>
//! after:   %j = kiln.sub %i, %start   %c = kiln.and (0 <= %j), (%j < 2)   %g = kiln.gather %u[clamped %j] dims = [0]   %0 = kiln.select %c, %g, %x
//! ```
use crate::{
    decompose::tools::{Math, replace_ops},
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
    pub struct ExpandUpdates {}
}

impl Pass for ExpandUpdates {
    const FLAG: &'static str = "kiln-expand-updates";
    const SUMMARY: &'static str = "Expands dynamic slice updates into elementwise selects";
    const LEVELS: &'static [Level] = GRAPH_LEVELS;
    const NUMERICS: Numerics = Numerics::Exact;

    fn run(&self, root: Op) -> Result<()> {
        replace_ops(root, |m, op| DynamicUpdateSlice::of(op).map(|o| Ok(vec![expanded(m, &o)?])))
    }
}

fn expanded(m: &Math, o: &DynamicUpdateSlice) -> Result<Value> {
    let (input_sizes, update_sizes) = (m.sizes_of(o.input)?, m.sizes_of(o.update)?);
    if update_sizes.iter().any(|n| n.known() == Some(0)) {
        return Ok(o.input);
    }
    // Dimensions that the update covers entirely have only one valid start.
    let sliced: Vec<usize> = (0..input_sizes.len())
        .filter(|d| {
            input_sizes[*d].known().is_none() || input_sizes[*d].known() != update_sizes[*d].known()
        })
        .collect();
    if sliced.is_empty() {
        return Ok(o.update);
    }
    for d in sliced
        .iter()
        .filter(|d| input_sizes[**d].known().is_none() || update_sizes[**d].known().is_none())
    {
        let (lhs, rhs) = (m.index(update_sizes[*d])?, m.index(input_sizes[*d])?);
        let message =
            format!("kiln.dynamic_update_slice needs an update that fits in dimension {d}");
        m.b.create_with(&Require { kind: CompareKind::Le, lhs, rhs, message }, &[], &mut [])?;
    }
    let zero = || m.number(Size::Static(0), DType::I64);
    // Indices into the update along each sliced dimension, and the mask of those in range.
    let shape: Vec<Size> = sliced.iter().map(|d| input_sizes[*d]).collect();
    let (mut inside, mut indices) = (None, vec![]);
    for (k, d) in sliced.iter().enumerate() {
        let (size, length) =
            (m.number(input_sizes[*d], DType::I64)?, m.number(update_sizes[*d], DType::I64)?);
        let start = m.binary(
            BinaryKind::Max,
            m.convert(*o.starts.get(*d).ok_or("has too few starts")?, DType::I64)?,
            zero()?,
        )?;
        let start = m.binary(BinaryKind::Min, start, m.sub(size, length)?)?;
        let at = m.iota(&shape, k)?;
        let broadcasted = |v: Value| m.broadcast(v, &[], &shape);
        let index = m.sub(at, broadcasted(start)?)?;
        let in_range = m.compare(CompareKind::Ge, index, broadcasted(zero()?)?)?;
        let in_range = m.binary(
            BinaryKind::And,
            in_range,
            m.compare(CompareKind::Lt, index, broadcasted(length)?)?,
        )?;
        inside = Some(inside.map_or(Ok(in_range), |i| m.binary(BinaryKind::And, i, in_range))?);
        // Outside the slice any valid index will do.
        indices.push(m.select(in_range, index, broadcasted(zero()?)?)?);
    }
    let inside = inside.ok_or("updates no sliced dimension")?;
    let mut update = o.update;
    if update_sizes.iter().any(|n| n.known().is_none()) {
        // Pad, so that the gather has an element to read when the update is empty.
        let fill = m.b.splat(tensor_type(update.ty())?.dtype, &[], 0.0)?;
        let (low, high) = (
            vec![Size::Static(0); update_sizes.len()],
            update_sizes.iter().map(|n| Size::Static(i64::from(n.known().is_none()))).collect(),
        );
        update = m.b.add(&Pad { input: update, value: fill, low, high })?;
    }
    let dims: Vec<i64> = sliced.iter().map(|d| *d as i64).collect();
    let rest: Vec<usize> = (0..input_sizes.len()).filter(|d| !sliced.contains(d)).collect();
    let found = m.b.add(&Gather { input: update, indices, dims: dims.clone() })?;
    // Gather puts the sliced dimensions first; transpose back.
    let order: Vec<i64> = (0..input_sizes.len())
        .map(|d| match sliced.iter().position(|x| *x == d) {
            Some(k) => k as i64,
            None => (sliced.len() + rest.iter().position(|x| *x == d).unwrap_or(0)) as i64,
        })
        .collect();
    let found = m.retype_like(m.transpose(found, &order)?, o.input)?;
    m.select(m.broadcast_to(inside, &dims, o.input)?, found, o.input)
}
