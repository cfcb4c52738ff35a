//! The structured ops of a kernel: what strategies rely on.
use super::types::{ensure, tensor_type};
use crate::{
    error::{OptionExt, Result},
    ir::{Affine, Attr, Block, Node as _, Op, Type, Value},
    ops::{
        FftKind, OpKind, StructuredAttention, StructuredAttentionGradient, StructuredContract,
        StructuredFft, StructuredIndex, StructuredScan,
    },
    value::DType,
};
use std::collections::BTreeSet;

/// The maps of an op: for each, its results over the op's loops.
struct Maps {
    loops: usize,
    all: Vec<Vec<Affine>>,
}

impl Maps {
    /// Maps of these tensors, in order, all over the same number of loops.
    fn of(maps: &[Attr], tensors: &[Value]) -> Result<Maps> {
        ensure(maps.len() == tensors.len(), || {
            format!("has {} indexing maps for {} operands", maps.len(), tensors.len())
        })?;
        let mut found = Maps { loops: 0, all: vec![] };
        for (i, (map, tensor)) in maps.iter().zip(tensors).enumerate() {
            let (dims, results) =
                map.as_affine_map().ok_or_else(|| format!("has no affine map for operand {i}"))?;
            ensure(i == 0 || dims == found.loops, || {
                format!("has a map of {dims} loops for operand {i} beside {}", found.loops)
            })?;
            let rank = tensor_type(tensor.ty())?.dims.len();
            ensure(results.len() == rank, || {
                format!("has a map of {} indices for operand {i} of rank {rank}", results.len())
            })?;
            found.loops = dims;
            found.all.push(results);
        }
        Ok(found)
    }
    /// The loops of map `i`, if it is a projected permutation.
    fn projected(&self, i: usize) -> Result<BTreeSet<usize>> {
        let results = self.all.get(i).ok_or("has too few indexing maps")?;
        let loops: BTreeSet<usize> = results.iter().filter_map(Affine::as_dim).collect();
        ensure(loops.len() == results.len(), || {
            "has a result whose map is no projected permutation".into()
        })?;
        Ok(loops)
    }
    /// Some operand has each loop as an index, which gives its size.
    fn sized(&self) -> Result<()> {
        let stated = |d: usize| self.all.iter().flatten().any(|e| *e == Affine::dim(d));
        ensure((0..self.loops).all(stated), || "has a loop whose size no operand states".into())
    }
}

fn maps(attr: Attr) -> Result<Vec<Attr>> {
    Ok(attr.as_array().ok_or("has no indexing maps")?)
}

/// The block of region `i` and what it yields; its arguments are elements of these tensors.
fn body(op: Op, i: usize, first: &[Type], tensors: &[Value]) -> Result<(Block, Vec<Value>)> {
    let block = op.regions().get(i).and_then(|r| r.first()).ok_or("has an empty region")?;
    let end = block.terminator().filter(|t| t.kind() == Some(OpKind::Yield));
    let end = end.ok_or("has a region that does not end in kiln.yield")?;
    let elements = tensors.iter().filter_map(|t| t.ty().element());
    let need: Vec<Type> = first.iter().copied().chain(elements).collect();
    let have: Vec<Type> = block.args().iter().map(|v| v.ty()).collect();
    ensure(have == need, || {
        let list = |all: &[Type]| all.iter().map(Type::to_string).collect::<Vec<_>>().join(", ");
        format!("has region arguments ({}) where ({}) is needed", list(&have), list(&need))
    })?;
    Ok((block, end.operands()))
}

/// Checks the factors of a sum of elements of `accumulator`: two of one type, no wider than it.
fn factors(yields: &[Value], accumulator: Type) -> Result<()> {
    let [a, b] = yields else {
        return Err(format!("yields {} values, not two factors", yields.len()).into());
    };
    ensure(a.ty() == b.ty(), || format!("yields factors of {} and {}", a.ty(), b.ty()))?;
    let (own, sum) = (a.ty().dtype()?, accumulator.dtype()?);
    let fits = own == sum || (own.is_float() && sum.is_float() && own.bits() < sum.bits());
    ensure(fits && own != DType::I1, || format!("adds products of {own} to {sum}"))
}

fn element(v: Value) -> Result<Type> {
    Ok(v.ty().element().ok_or("has an operand that is no tensor")?)
}

/// What the op's attributes and operands must fulfil; [`verify_region`] checks the bodies.
pub(super) fn verify(op: Op) -> Result<()> {
    match op.kind() {
        Some(OpKind::StructuredContract) => {
            let o = StructuredContract::of(op).ok_or_malformed(op)?;
            let all = Maps::of(&maps(o.indexing_maps)?, &op.operands())?;
            let result = all.projected(o.inputs.len())?;
            ensure(result.len() < all.loops, || "sums over no loop".into())?;
            same_type(op, o.init)?;
            all.sized()
        }
        Some(OpKind::StructuredScan) => {
            let o = StructuredScan::of(op).ok_or_malformed(op)?;
            let all = Maps::of(&maps(o.indexing_maps)?, &op.operands())?;
            let last = all.all.last().into_iter().flatten().cloned().collect::<Vec<_>>();
            let identity: Vec<Affine> = (0..all.loops).map(Affine::dim).collect();
            ensure(last == identity, || "has a result whose map is no identity".into())?;
            same_type(op, o.init)?;
            let axis = usize::try_from(o.axis).ok().filter(|a| *a < all.loops);
            ensure(axis.is_some(), || format!("scans along {} of {}", o.axis, all.loops))?;
            ensure(!o.is_unsigned || !element(o.init)?.dtype()?.is_float(), || {
                "scans unsigned floats".into()
            })
        }
        Some(OpKind::StructuredFft) => fft(op),
        Some(OpKind::StructuredAttention) => attention(op),
        Some(OpKind::StructuredAttentionGradient) => attention_gradient(op),
        Some(OpKind::StructuredIndex) => index(op),
        _ => Ok(()),
    }
}

fn fft(op: Op) -> Result<()> {
    let o = StructuredFft::of(op).ok_or_malformed(op)?;
    let outs: Vec<Value> = [Some(o.init), o.im_init].into_iter().flatten().collect();
    let parts = if o.kind == FftKind::C2r { 1 } else { 2 };
    let have: Vec<Type> = op.results().iter().map(|v| v.ty()).collect();
    let need: Vec<Type> = outs.iter().map(|v| v.ty()).collect();
    ensure(need.len() == parts && have == need, || {
        format!("has {} results and {} inits, not {parts} of each", have.len(), need.len())
    })?;
    let maps = maps(o.indexing_maps)?;
    let all = Maps::of(&maps, &op.operands())?;
    let outer = all.loops.checked_sub(2).ok_or("has fewer than two loops")?;
    let own: Vec<Affine> = (0..=outer).map(Affine::dim).collect();
    ensure(all.all[o.inputs.len()..].iter().all(|m| *m == own), || {
        "has a result whose map is not that of the outer loops and the first of the last two".into()
    })?;
    let dtype = element(o.init)?.dtype()?;
    ensure(matches!(dtype, DType::F32 | DType::F64), || format!("has dtype {dtype}"))?;
    let (half, n) = (super::half_spectrum(o.length), o.length);
    let gives = if o.kind == FftKind::R2c { half } else { n };
    let last = o.init.ty().dims().pop().ok_or("has a result without dimensions")?;
    ensure(n >= 1 && last.known() == Some(gives), || {
        format!("of length {n} has a last dimension of {last} in its result, not {gives}")
    })?;
    all.sized()
}

fn same_type(op: Op, init: Value) -> Result<()> {
    let (have, need) = (op.result(0).ty(), init.ty());
    ensure(have == need, || format!("has result type {have} where its init has {need}"))
}

fn index(op: Op) -> Result<()> {
    let dim = StructuredIndex::of(op).ok_or_malformed(op)?.dim;
    let around = op.parent().filter(|p| p.kind().is_some_and(OpKind::has_loops));
    let around = around.ok_or("is in no structured op")?;
    let region =
        op.block().and_then(|b| around.regions().iter().position(|r| r.first() == Some(b)));
    let loops = loops(around, region.unwrap_or(0)).ok_or("is in an op without loops")?;
    ensure(usize::try_from(dim).is_ok_and(|d| d < loops), || {
        format!("asks for loop {dim} of {loops}")
    })
}

/// The number of loops around a region of a structured op.
fn loops(op: Op, region: usize) -> Option<usize> {
    if let Some(o) = StructuredAttention::of(op) {
        // The score of a query and a key has no depth; neither has the factor of a weight.
        return o.sizes.len().checked_sub(if region == 0 {
            1
        } else {
            2 - usize::from(region == 2)
        });
    }
    op.attr("indexing_maps")?.as_array()?.first()?.as_affine_map().map(|(dims, _)| dims)
}

fn attention(op: Op) -> Result<()> {
    let o = StructuredAttention::of(op).ok_or_malformed(op)?;
    let all = maps(o.indexing_maps)?;
    let outer = o.sizes.len().checked_sub(4).ok_or("has fewer than four loops")?;
    ensure(o.lengths.iter().all(|axis| (0..2).contains(axis)), || {
        format!("has lengths of axes {:?}, not 0 and 1", o.lengths)
    })?;
    ensure(o.lengths.windows(2).all(|w| w[0] < w[1]), || "has two lengths of an axis".into())?;
    ensure(o.lse_init.is_some() == (op.result_count() == 2), || {
        "has a log-sum-exp without a result, or a result without it".into()
    })?;
    let groups: [(&[Value], usize); 3] =
        [(&o.inputs, outer + 3), (&o.modifiers, outer + 2), (&o.values, outer + 3)];
    let (mut rest, results) = all
        .split_at_checked(groups.iter().map(|g| g.0.len()).sum())
        .ok_or("has too few indexing maps")?;
    for (tensors, loops) in groups {
        let (own, more) = rest.split_at(tensors.len());
        let own = Maps::of(own, tensors)?;
        ensure(tensors.is_empty() || own.loops == loops, || {
            format!("has a map of {} loops where {loops} are needed", own.loops)
        })?;
        rest = more;
    }
    let outs: Vec<Value> = [Some(o.init), o.lse_init].into_iter().flatten().collect();
    ensure(results.len() == outs.len(), || format!("has {} maps of results", results.len()))?;
    for (i, out) in outs.iter().enumerate() {
        let own = Maps::of(&results[i..=i], &[*out])?;
        let loops = if i == 0 { outer + 2 } else { outer + 1 };
        ensure(own.loops == loops && own.projected(0)?.len() == loops, || {
            "has a result whose map is no permutation".into()
        })?;
        ensure(op.result(i).ty() == out.ty(), || {
            "has a result of another type than its init".into()
        })?;
    }
    Ok(())
}

fn attention_gradient(op: Op) -> Result<()> {
    let o = StructuredAttentionGradient::of(op).ok_or_malformed(op)?;
    let all = maps(o.indexing_maps)?;
    let outer = o.sizes.len().checked_sub(4).ok_or("has fewer than four loops")?;
    ensure(matches!(o.inits.len(), 1 | 2) && op.result_count() == o.inits.len(), || {
        format!("has {} results and {} inits, not one or two", op.result_count(), o.inits.len())
    })?;
    let operands = [o.query, o.key, o.value, o.cotangent, o.lse, o.delta];
    let loops = [3, 3, 3, 3, 1, 1].into_iter().chain(o.inits.iter().map(|_| 2));
    let tensors = operands.into_iter().chain(o.inits.iter().copied());
    ensure(all.len() == operands.len() + o.inits.len(), || {
        format!("has {} indexing maps for {} operands", all.len(), operands.len() + o.inits.len())
    })?;
    for (i, (tensor, loops)) in tensors.zip(loops).enumerate() {
        let own = Maps::of(&all[i..=i], &[tensor])?;
        ensure(own.loops == outer + loops, || {
            format!("has a map of {} loops where {} are needed", own.loops, outer + loops)
        })?;
        let Some(r) = i.checked_sub(operands.len()) else { continue };
        let inner = own.projected(0)?;
        ensure((outer..own.loops).all(|d| inner.contains(&d)), || {
            "has a result whose map is no projection of the inner loops".into()
        })?;
        ensure(op.result(r).ty() == tensor.ty(), || {
            "has a result of another type than its init".into()
        })?;
    }
    Ok(())
}

/// Verifies the bodies, after the nested ops.
pub(super) fn verify_region(op: Op) -> Result<()> {
    if let Some(o) = StructuredContract::of(op) {
        let (_, yields) = body(op, 0, &[], &o.inputs)?;
        return factors(&yields, element(o.init)?);
    }
    if let Some(o) = StructuredScan::of(op) {
        let (_, yields) = body(op, 0, &[], &o.inputs)?;
        let need = element(o.init)?;
        return ensure(yields.len() == 1 && yields[0].ty() == need, || {
            format!("yields something else than an element of {need}")
        });
    }
    if let Some(o) = StructuredFft::of(op) {
        let (_, yields) = body(op, 0, &[], &o.inputs)?;
        let (need, parts) = (element(o.init)?, if o.kind == FftKind::R2c { 1 } else { 2 });
        return ensure(yields.len() == parts && yields.iter().all(|v| v.ty() == need), || {
            format!("yields something else than {parts} values of {need}")
        });
    }
    let o = StructuredAttention::of(op).ok_or_malformed(op)?;
    let (_, yields) = body(op, 0, &[], &o.inputs)?;
    let score = yields.first().ok_or("yields no factors")?.ty();
    ensure(matches!(score.dtype(), Ok(DType::F32 | DType::F64)), || {
        format!("has scores of {score}, not f32 or f64")
    })?;
    factors(&yields, score)?;
    let (_, yields) = body(op, 1, &[score], &o.modifiers)?;
    let (own, lengths) =
        yields.split_at_checked(2).ok_or("yields no masked score and score without limits")?;
    ensure(own.iter().all(|v| v.ty() == score), || format!("yields scores that are no {score}"))?;
    let whole = |v: &Value| v.ty().is_index() || v.ty().dtype().is_ok_and(|d| !d.is_float());
    ensure(lengths.len() == o.lengths.len() && lengths.iter().all(whole), || {
        format!("yields {} lengths, or no integers, for axes {:?}", lengths.len(), o.lengths)
    })?;
    let (_, yields) = body(op, 2, &[], &o.values)?;
    ensure(yields.len() == 1 && yields[0].ty() == score, || {
        format!("yields something else than a factor of {score}")
    })
}

impl OpKind {
    /// Whether it is a structured op: loops around a body.
    pub fn has_loops(self) -> bool {
        use OpKind::*;
        matches!(self, StructuredContract | StructuredScan | StructuredFft | StructuredAttention)
    }
    /// Whether it belongs to a kernel at the levels `linalg` and `scheduled`.
    pub fn is_structured(self) -> bool {
        let whole = [OpKind::StructuredIndex, OpKind::StructuredAttentionGradient];
        self.has_loops() || whole.contains(&self)
    }
}
