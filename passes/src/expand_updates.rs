//! `kiln-expand-updates`: a tensor with a box replaced at a position that is data becomes a choice
//! between two tensors at each element.
//!
//! Why: a GPU has no library of functions; as a choice it fuses with what makes either tensor.
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
    const SUMMARY: &'static str = "Writes an update of a box as a choice at each element";
    const LEVELS: &'static [Level] = GRAPH_LEVELS;
    const NUMERICS: Numerics = Numerics::Exact;

    fn run(&self, root: Op) -> Result<()> {
        replace_ops(root, |m, op| DynamicUpdateSlice::of(op).map(|o| Ok(vec![expanded(m, &o)?])))
    }
}

fn expanded(m: &Math, o: &DynamicUpdateSlice) -> Result<Value> {
    let (all, own) = (m.sizes_of(o.input)?, m.sizes_of(o.update)?);
    if own.iter().any(|n| n.known() == Some(0)) {
        return Ok(o.input);
    }
    // Where both have one size, the box is in the only place that it has.
    let moving: Vec<usize> = (0..all.len())
        .filter(|d| all[*d].known().is_none() || all[*d].known() != own[*d].known())
        .collect();
    if moving.is_empty() {
        return Ok(o.update);
    }
    for d in moving.iter().filter(|d| all[**d].known().is_none() || own[**d].known().is_none()) {
        let (lhs, rhs) = (m.index(own[*d])?, m.index(all[*d])?);
        let message =
            format!("kiln.dynamic_update_slice takes a part of dimension {d} that has to fit");
        m.b.create_with(&Require { kind: CompareKind::Le, lhs, rhs, message }, &[], &mut [])?;
    }
    let zero = || m.number(Size::Static(0), DType::I64);
    // Positions in the box along each moving dimension, in the shape of these dimensions, and which
    // of them are in it.
    let shape: Vec<Size> = moving.iter().map(|d| all[*d]).collect();
    let (mut inside, mut indices) = (None, vec![]);
    for (k, d) in moving.iter().enumerate() {
        let (size, length) = (m.number(all[*d], DType::I64)?, m.number(own[*d], DType::I64)?);
        let start = m.binary(
            BinaryKind::Max,
            m.convert(*o.starts.get(*d).ok_or("has too few starts")?, DType::I64)?,
            zero()?,
        )?;
        let start = m.binary(BinaryKind::Min, start, m.sub(size, length)?)?;
        let at = m.iota(&shape, k)?;
        let everywhere = |v: Value| m.broadcast(v, &[], &shape);
        let place = m.sub(at, everywhere(start)?)?;
        let there = m.compare(CompareKind::Ge, place, everywhere(zero()?)?)?;
        let there = m.binary(
            BinaryKind::And,
            there,
            m.compare(CompareKind::Lt, place, everywhere(length)?)?,
        )?;
        inside = Some(inside.map_or(Ok(there), |i| m.binary(BinaryKind::And, i, there))?);
        // Elsewhere any element will do.
        indices.push(m.select(there, place, everywhere(zero()?)?)?);
    }
    let inside = inside.ok_or("has nothing that moves")?;
    let mut update = o.update;
    if own.iter().any(|n| n.known().is_none()) {
        // There is always an element to read.
        let fill = m.b.splat(tensor_type(update.ty())?.dtype, &[], 0.0)?;
        let (low, high) = (
            vec![Size::Static(0); own.len()],
            own.iter().map(|n| Size::Static(i64::from(n.known().is_none()))).collect(),
        );
        update = m.b.add(&Pad { input: update, value: fill, low, high })?;
    }
    let dims: Vec<i64> = moving.iter().map(|d| *d as i64).collect();
    let rest: Vec<usize> = (0..all.len()).filter(|d| !moving.contains(d)).collect();
    let found = m.b.add(&Gather { input: update, indices, dims: dims.clone() })?;
    // The moving dimensions come first there.
    let order: Vec<i64> = (0..all.len())
        .map(|d| match moving.iter().position(|x| *x == d) {
            Some(k) => k as i64,
            None => (moving.len() + rest.iter().position(|x| *x == d).unwrap_or(0)) as i64,
        })
        .collect();
    let found = m.retype_like(m.transpose(found, &order)?, o.input)?;
    m.select(m.broadcast_to(inside, &dims, o.input)?, found, o.input)
}
