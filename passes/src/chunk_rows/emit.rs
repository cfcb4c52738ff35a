//! The ops of each chunk.
use super::{
    region::{Region, Step},
    rows::{Rows, others, place, sizes},
    rules::{Need, needs},
};
use crate::{broadcasting::convert, permutation::inverse};
use kiln_dialects::{ir::*, ops::*, rules::tensor_type, value::DType};
use std::collections::HashMap;

/// Replaces a region by its chunks, given as first row and number of rows. Returns what the region
/// has read.
pub(super) fn emit(region: &Region, chunks: &[(i64, i64)], f32_bytes: i64) -> Result<Vec<Value>> {
    let last = region.steps.last().ok_or("has no steps")?.op;
    let end = last.next().ok_or("is at the end of its block")?;
    let b = Builder::before(end).ok_or("is in no block")?;
    let mut emitter = Emitter { b, region, whole: HashMap::new() };
    let mut leaving: Vec<Leaving> = region
        .steps
        .iter()
        .filter(|s| s.leaves)
        .map(|s| Leaving::of(s, f32_bytes))
        .collect::<Result<_>>()?;
    for chunk in chunks {
        let mut made = HashMap::new();
        for s in &region.steps {
            let wide = leaving.iter().find(|l| l.step.op == s.op).and_then(|l| l.sum);
            let v = emitter.step(s, *chunk, &mut made, wide).at(s.op)?;
            made.insert((s.op.result(0), Need::Rows(s.rows.clone().unwrap_or_default())), v);
            let own = leaving.iter_mut().find(|l| l.step.op == s.op);
            own.map_or(Ok(()), |l| l.add(&emitter.b.at(s.op.loc()), v)).at(s.op)?;
        }
    }
    let kept: Vec<Op> = region.ops.iter().copied().collect();
    for l in leaving {
        let old = l.step.op.result(0);
        let new = l.end(&emitter.b.at(old.loc())).at(l.step.op)?;
        old.replace_uses_except(new, &kept);
    }
    // What depends on the results comes after them.
    let mut anchor = None;
    for op in &region.later {
        match anchor {
            Some(before) => op.move_after(before),
            None => op.move_after(last_before(end).ok_or("is alone in its block")?),
        }
        anchor = Some(*op);
    }
    let read = region.steps.iter().flat_map(|s| s.op.operands());
    let read = read.filter(|v| !v.def().is_some_and(|op| region.ops.contains(&op))).collect();
    region.steps.iter().rev().for_each(|s| s.op.erase());
    Ok(read)
}

/// The op before one.
fn last_before(op: Op) -> Option<Op> {
    op.block()?.ops().into_iter().take_while(|o| *o != op).last()
}

/// A value that leaves a region: the parts of its chunks.
struct Leaving<'a> {
    step: &'a Step,
    /// The dtype in which a sum is added up.
    sum: Option<DType>,
    parts: Vec<Value>,
}

impl<'a> Leaving<'a> {
    fn of(step: &'a Step, f32_bytes: i64) -> Result<Leaving<'a>> {
        let v = step.op.result(0);
        let dtype = tensor_type(v.ty())?.dtype;
        let bytes = super::rows::elements(v).unwrap_or(i64::MAX).saturating_mul(4);
        let converted = |op: Op| {
            Convert::of(op).is_some_and(|o| o.dtype.dtype().is_ok_and(|d| d == DType::F32))
        };
        let becomes_f32 = v.uses().iter().all(|(op, _)| converted(*op));
        let wide = adds_narrow(step.op)? && (becomes_f32 || bytes <= f32_bytes);
        let sum = step.rows.is_none().then_some(if wide { DType::F32 } else { dtype });
        Ok(Leaving { step, sum, parts: vec![] })
    }

    /// Adds a chunk's part.
    fn add(&mut self, b: &Builder, part: Value) -> Result<()> {
        let (Some(dtype), Some(sum)) = (self.sum, self.parts.first().copied()) else {
            let first = self.sum.map_or(Ok(part), |d| convert(b, part, d))?;
            self.parts.push(first);
            return Ok(());
        };
        let kind = Reduce::of(self.step.op).map_or(BinaryKind::Add, |o| o.kind.step());
        let wide = tensor_type(part.ty())?.dtype;
        let (x, y) = (part, convert(b, sum, wide)?);
        let all = b.generic(kind.op().name(), &[x, y], &[x.ty()], &[], &mut [])?.result(0);
        self.parts = vec![convert(b, all, dtype)?];
        Ok(())
    }

    /// The value of all chunks, with the type that it had.
    fn end(&self, b: &Builder) -> Result<Value> {
        let old = self.step.op.result(0);
        let (Some(rows), Some(first)) = (&self.step.rows, self.parts.first()) else {
            let sum = *self.parts.first().ok_or("has no chunks")?;
            return convert(b, sum, tensor_type(old.ty())?.dtype);
        };
        let joined = match self.parts.len() {
            1 => *first,
            _ => b.add(&Concat { inputs: self.parts.clone(), axis: 0 })?,
        };
        // Rows that were several dimensions, or not in front.
        let all = sizes(old).ok_or("has an unknown size")?;
        let order: Vec<usize> = rows.iter().copied().chain(others(all.len(), rows)).collect();
        let split: Vec<i64> = order.iter().map(|d| all[*d]).collect();
        let v = reshape(b, joined, &split)?;
        transpose(b, v, &inverse(&order.iter().map(|d| *d as i64).collect::<Vec<_>>()))
    }
}

/// Whether an op that reduces rows adds floats of at most 16 bits.
fn adds_narrow(op: Op) -> Result<bool> {
    let dtype = tensor_type(op.result(0).ty())?.dtype;
    let adds = Reduce::of(op).is_none_or(|o| o.kind == ReduceKind::Sum);
    Ok(dtype.is_float() && dtype.bits() <= 16 && adds)
}

/// Values of a chunk: by what they are part of, and how.
type Made = HashMap<(Value, Need), Value>;

struct Emitter<'a> {
    b: Builder,
    region: &'a Region,
    /// Values from outside with their rows merged to dimension 0.
    whole: HashMap<(Value, Rows), Value>,
}

impl Emitter<'_> {
    /// What a step makes of a chunk; of a sum its part, in f32 if it is added up so.
    fn step(
        &mut self,
        s: &Step,
        chunk: (i64, i64),
        made: &mut Made,
        sum: Option<DType>,
    ) -> Result<Value> {
        let inputs = self.inputs(s.op, &s.needs, chunk, made)?;
        let b = self.b.at(s.op.loc());
        match &s.rows {
            Some(rows) => row_wise(&b, s.op, rows, &s.needs, &inputs, chunk.1),
            None => part_of_sum(&b, s.op, &s.needs, &inputs, sum),
        }
    }

    fn inputs(
        &mut self,
        op: Op,
        needed: &[Need],
        chunk: (i64, i64),
        made: &mut Made,
    ) -> Result<Vec<Value>> {
        let all = op.operands().into_iter().zip(needed);
        all.map(|(v, n)| self.input(v, n, chunk, made)).collect()
    }

    fn input(
        &mut self,
        v: Value,
        need: &Need,
        chunk: (i64, i64),
        made: &mut Made,
    ) -> Result<Value> {
        let Need::Rows(rows) = need else { return Ok(v) };
        let key = (v, need.clone());
        if let Some(known) = made.get(&key) {
            return Ok(*known);
        }
        let own = match v.def().filter(|op| self.is_recomputed(*op)) {
            Some(op) => needs(op, rows).map(|needed| (op, needed)),
            None => None,
        };
        let value = match own {
            Some((op, needed))
                if Iota::of(op).is_none_or(|o| !rows.contains(&(o.axis as usize))) =>
            {
                let inputs = self.inputs(op, &needed, chunk, made)?;
                row_wise(&self.b.at(op.loc()), op, rows, &needed, &inputs, chunk.1)?
            }
            _ => self.slice(v, rows, chunk)?,
        };
        made.insert(key, value);
        Ok(value)
    }

    /// Whether an op that does not depend on the region's product is computed for each chunk:
    /// movement is free, and as large a tensor as the product is not to be stored.
    fn is_recomputed(&self, op: Op) -> bool {
        let large = self.region.is_large(op.result(0));
        match op.kind() {
            Some(OpKind::Splat | OpKind::Iota | OpKind::BroadcastInDim) => true,
            Some(OpKind::DotGeneral | OpKind::Gather | OpKind::Scatter) => large,
            Some(OpKind::Reshape | OpKind::Transpose) => large,
            // Of a one-hot tensor, say, which is not stored either.
            Some(OpKind::Reduce) => self.region.is_large(op.operand(0)),
            Some(kind) => large && kind.is_elementwise(),
            None => false,
        }
    }

    /// Rows of a value from outside.
    fn slice(&mut self, v: Value, rows: &Rows, (first, count): (i64, i64)) -> Result<Value> {
        let key = (v, rows.clone());
        let whole = match self.whole.get(&key) {
            Some(known) => *known,
            None => {
                let merged = merged(&self.b, v, rows, self.region.count)?;
                self.whole.insert(key, merged);
                merged
            }
        };
        let mut part = sizes(whole).ok_or("has an unknown size")?;
        let mut offsets = vec![0; part.len()];
        (offsets[0], part[0]) = (first, count);
        let (offsets, sizes) = (Size::all(&offsets), Size::all(&part));
        self.b.add(&Slice { input: whole, offsets, sizes, strides: vec![1; part.len()] })
    }
}

/// A value with its rows merged to dimension 0.
fn merged(b: &Builder, v: Value, rows: &Rows, count: i64) -> Result<Value> {
    let all = sizes(v).ok_or("has an unknown size")?;
    let other = others(all.len(), rows);
    let order: Vec<i64> = rows.iter().chain(&other).map(|d| *d as i64).collect();
    let v = transpose(b, v, &order)?;
    let to: Vec<i64> = std::iter::once(count).chain(other.iter().map(|d| all[*d])).collect();
    reshape(b, v, &to)
}

/// An op on `count` rows, which are dimension 0 of its operands and of its result.
fn row_wise(
    b: &Builder,
    op: Op,
    rows: &Rows,
    needed: &[Need],
    inputs: &[Value],
    count: i64,
) -> Result<Value> {
    let all = sizes(op.result(0)).ok_or("has an unknown size")?;
    let other = others(all.len(), rows);
    let to: Vec<i64> = std::iter::once(count).chain(other.iter().map(|d| all[*d])).collect();
    let at = |d: i64| place(rows, d as usize) as i64;
    // Where a dimension of an operand is in the chunk's operand.
    let at_input = |i: usize, d: i64| match needed.get(i) {
        Some(Need::Rows(rows)) => place(rows, d as usize) as i64,
        _ => d,
    };
    let first = inputs.first().copied();
    let input = || first.ok_or_else(|| Error::from("reads nothing"));
    let dtype = tensor_type(op.result(0).ty())?.dtype;
    match op.kind().ok_or("is none of kiln's ops")? {
        OpKind::Splat => {
            let o = Splat::of(op).ok_or_malformed(op)?;
            b.add(&Splat { sizes: Size::all(&to), ..o })
        }
        OpKind::Iota => {
            let o = Iota::of(op).ok_or_malformed(op)?;
            b.add(&Iota { sizes: Size::all(&to), axis: at(o.axis), ..o })
        }
        OpKind::BroadcastInDim => {
            let o = BroadcastInDim::of(op).ok_or_malformed(op)?;
            let mut input = input()?;
            let mut dims: Vec<i64> = match needed.first() {
                Some(Need::Rows(own)) => {
                    let rest = (0..o.dims.len()).filter(|k| !own.contains(k));
                    std::iter::once(0).chain(rest.map(|k| at(o.dims[k]))).collect()
                }
                _ => o.dims.iter().map(|d| at(*d)).collect(),
            };
            // Unit dimensions in place of rows go.
            if needed.first() == Some(&Need::All) && dims.contains(&0) {
                let from = sizes(input).ok_or("has an unknown size")?;
                let left = from.iter().zip(&dims).filter(|(_, d)| **d != 0).map(|(n, _)| *n);
                input = reshape(b, input, &left.collect::<Vec<_>>())?;
                dims.retain(|d| *d != 0);
            }
            b.add(&BroadcastInDim { input, dims, sizes: Size::all(&to) })
        }
        OpKind::Reshape => reshape(b, input()?, &to),
        OpKind::Transpose => {
            let o = Transpose::of(op).ok_or_malformed(op)?;
            let rest = other.iter().map(|d| at_input(0, o.permutation[*d]));
            transpose(b, input()?, &std::iter::once(0).chain(rest).collect::<Vec<_>>())
        }
        OpKind::Reduce => {
            let o = Reduce::of(op).ok_or_malformed(op)?;
            let dims = o.dims.iter().map(|d| at_input(0, *d)).collect();
            b.add(&Reduce { input: input()?, dims, ..o })
        }
        OpKind::ArgMax => {
            let o = ArgMax::of(op).ok_or_malformed(op)?;
            b.add(&ArgMax { input: input()?, axis: at_input(0, o.axis) })
        }
        OpKind::ArgMin => {
            let o = ArgMin::of(op).ok_or_malformed(op)?;
            b.add(&ArgMin { input: input()?, axis: at_input(0, o.axis) })
        }
        OpKind::Concat => {
            let o = Concat::of(op).ok_or_malformed(op)?;
            b.add(&Concat { inputs: inputs.to_vec(), axis: at(o.axis) })
        }
        OpKind::Slice => {
            let o = Slice::of(op).ok_or_malformed(op)?;
            let offsets = chunked(&o.offsets, Size::Static(0), rows);
            let strides = chunked(&o.strides, 1, rows);
            b.add(&Slice { input: input()?, offsets, sizes: Size::all(&to), strides })
        }
        OpKind::Pad => {
            let o = Pad::of(op).ok_or_malformed(op)?;
            let zero = Size::Static(0);
            let (low, high) = (chunked(&o.low, zero, rows), chunked(&o.high, zero, rows));
            b.add(&Pad { input: input()?, value: o.value, low, high })
        }
        OpKind::Gather => {
            let o = Gather::of(op).ok_or_malformed(op)?;
            if let Some(v) = picked(b, &o, needed, inputs, &to)? {
                return Ok(v);
            }
            let (indices, dims) =
                indexed(b, &o.indices, &o.dims, (1, needed, inputs), (rows, count))?;
            let dims = dims.into_iter().map(|d| at_input(0, d)).collect();
            b.add(&Gather { input: input()?, indices, dims })
        }
        OpKind::Scatter => {
            let o = Scatter::of(op).ok_or_malformed(op)?;
            let Some(Need::Rows(own)) = needed.get(1) else {
                return Err("has updates without rows".into());
            };
            let (indices, dims) =
                indexed(b, &o.indices, &o.dims, (2, needed, inputs), (own, count))?;
            let dims = dims.into_iter().map(at).collect();
            let updates = *inputs.get(1).ok_or("has no updates")?;
            b.add(&Scatter { kind: o.kind, input: input()?, updates, indices, dims })
        }
        OpKind::DotGeneral => {
            let o = DotGeneral::of(op).ok_or_malformed(op)?;
            let (lhs, rhs) = (input()?, *inputs.get(1).ok_or("has one operand")?);
            let at_all = |i, dims: &[i64]| dims.iter().map(|d| at_input(i, *d)).collect::<Vec<_>>();
            let (of_lhs, of_rhs) = (at_all(0, &o.lhs_contract), at_all(1, &o.rhs_contract));
            let none = vec![];
            let (lhs_batch, rhs_batch) = (none.clone(), none);
            let element_type = o.element_type;
            if matches!(needed.first(), Some(Need::Rows(_))) {
                let (lhs_contract, rhs_contract) = (of_lhs, of_rhs);
                return b.add(&DotGeneral {
                    lhs,
                    rhs,
                    lhs_batch,
                    rhs_batch,
                    lhs_contract,
                    rhs_contract,
                    element_type,
                });
            }
            // Rows come first, and then the other dimensions in the order that they had.
            let before = lhs.ty().dims().len() - of_lhs.len();
            let swapped = DotGeneral {
                lhs: rhs,
                rhs: lhs,
                lhs_batch,
                rhs_batch,
                lhs_contract: of_rhs,
                rhs_contract: of_lhs,
                element_type,
            };
            let v = b.add(&swapped)?;
            let (rank, own) = (to.len() as i64, (to.len() - before) as i64);
            transpose(b, v, &std::iter::once(0).chain(own..rank).chain(1..own).collect::<Vec<_>>())
        }
        _ => {
            let operands = op.operands();
            let of = |v: Value| operands.iter().position(|o| *o == v).map_or(v, |i| inputs[i]);
            let copy = b.clone_op(op, &of)?;
            let dims = input()?.ty().dims();
            copy.result(0).set_ty(Type::tensor(b.ctx, dtype, &dims));
            Ok(copy.result(0))
        }
    }
}

/// One element of each row as a sum over it, in which all others are 0: the kernel that reads the
/// rows anyway computes it, so that they need not be kept for a gather.
fn picked(
    b: &Builder,
    o: &Gather,
    needed: &[Need],
    inputs: &[Value],
    to: &[i64],
) -> Result<Option<Value>> {
    let columns: Vec<usize> =
        (1..inputs.len()).filter(|k| needed.get(*k) != Some(&Need::RowNumber)).collect();
    let (Some(x), [k]) = (inputs.first().copied(), &columns[..]) else { return Ok(None) };
    let dtype = tensor_type(x.ty())?.dtype;
    let (Some([rows, columns]), true) =
        (sizes(x).and_then(|all| <[i64; 2]>::try_from(all).ok()), dtype.is_float())
    else {
        return Ok(None);
    };
    let all =
        matches!(needed.first(), Some(Need::Rows(_))) && o.dims.len() == o.input.ty().dims().len();
    if !all || to.iter().product::<i64>() != rows {
        return Ok(None);
    }
    let index = reshape(b, inputs[*k], &[rows])?;
    let whole = Size::all(&[rows, columns]);
    let number = Type::scalar(b.ctx, tensor_type(index.ty())?.dtype);
    let lhs = b.add(&Iota { sizes: whole.clone(), axis: 1, dtype: number })?;
    let rhs = b.add(&BroadcastInDim { input: index, dims: vec![0], sizes: whole.clone() })?;
    let condition = b.add(&Compare { kind: CompareKind::Eq, lhs, rhs })?;
    let on_false = b.splat(dtype, &whole, 0.0)?;
    let input = b.add(&Select { condition, on_true: x, on_false })?;
    let sum = b.add(&Reduce { kind: ReduceKind::Sum, input, dims: vec![1], maybe_empty: false })?;
    reshape(b, sum, to).map(Some)
}

/// Entries of the dimensions of a chunk.
fn chunked<T: Copy>(all: &[T], of_rows: T, rows: &Rows) -> Vec<T> {
    let rest = others(all.len(), rows).into_iter().map(|d| all[d]);
    std::iter::once(of_rows).chain(rest).collect()
}

/// The index tensors of a chunk and the dimensions that they index, of which rows are the first.
fn indexed(
    b: &Builder,
    indices: &[Value],
    dims: &[i64],
    (at, needed, inputs): (usize, &[Need], &[Value]),
    (rows, count): (&Rows, i64),
) -> Result<(Vec<Value>, Vec<i64>)> {
    let own = |k: &usize| needed.get(at + k) == Some(&Need::RowNumber);
    let rest: Vec<usize> = (0..indices.len()).filter(|k| !own(k)).collect();
    let mut values: Vec<Value> = rest.iter().map(|k| inputs[at + k]).collect();
    let mut places: Vec<i64> = rest.iter().map(|k| dims[*k]).collect();
    if let Some(k) = (0..indices.len()).find(own) {
        let all = sizes(indices[k]).ok_or("has an unknown size")?;
        let rest = others(all.len(), rows).into_iter().map(|d| all[d]);
        let to: Vec<i64> = std::iter::once(count).chain(rest).collect();
        let dtype = Type::scalar(b.ctx, tensor_type(indices[k].ty())?.dtype);
        values.insert(0, b.add(&Iota { sizes: Size::all(&to), axis: 0, dtype })?);
        places.insert(0, dims[k]);
    }
    Ok((values, places))
}

/// A chunk's part of a sum over rows, which are dimension 0 of the operands.
fn part_of_sum(
    b: &Builder,
    op: Op,
    needed: &[Need],
    inputs: &[Value],
    sum: Option<DType>,
) -> Result<Value> {
    let at = |i: usize, dims: &[i64]| -> Vec<i64> {
        let Some(Need::Rows(rows)) = needed.get(i) else { return dims.to_vec() };
        let mut found: Vec<i64> = vec![];
        dims.iter().map(|d| place(rows, *d as usize) as i64).for_each(|d| {
            if !found.contains(&d) {
                found.push(d)
            }
        });
        found
    };
    let input = *inputs.first().ok_or("reads nothing")?;
    let narrow = adds_narrow(op)?;
    if let Some(o) = Reduce::of(op) {
        let input = if narrow { convert(b, input, DType::F32)? } else { input };
        return b.add(&Reduce { input, dims: at(0, &o.dims), ..o });
    }
    let o = DotGeneral::of(op).ok_or_malformed(op)?;
    let f32 = Type::scalar(b.ctx, DType::F32);
    let element_type = if narrow && sum.is_some() { Some(f32) } else { o.element_type };
    let rhs = *inputs.get(1).ok_or("has one operand")?;
    let (lhs_contract, rhs_contract) = (at(0, &o.lhs_contract), at(1, &o.rhs_contract));
    b.add(&DotGeneral { lhs: input, rhs, lhs_contract, rhs_contract, element_type, ..o })
}

fn reshape(b: &Builder, input: Value, to: &[i64]) -> Result<Value> {
    if sizes(input).as_deref() == Some(to) {
        return Ok(input);
    }
    b.add(&Reshape { input, sizes: Size::all(to) })
}

fn transpose(b: &Builder, input: Value, permutation: &[i64]) -> Result<Value> {
    if permutation.iter().enumerate().all(|(to, from)| to as i64 == *from) {
        return Ok(input);
    }
    b.add(&Transpose { input, permutation: permutation.to_vec() })
}
