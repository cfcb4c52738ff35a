//! Batching rules: the batch becomes dimension 0, and the op's own dimensions move by one.
use super::Batch;
use crate::decompose::tools::{dtype, rank};
use kiln_dialects::{ir::*, ops::*, value::DType};

/// What a rule emits; `None`: nothing, for operands of this kind.
type Made = Result<Option<Vec<Value>>>;

fn read<N: Node>(op: Op) -> Result<N> {
    N::of(op).ok_or_malformed(op)
}

/// Dimensions shifted by the batch dimension.
fn shifted(dims: &[i64]) -> Vec<i64> {
    dims.iter().map(|d| d + 1).collect()
}

/// The batch dimension, then dimensions shifted by it.
fn with_batch(dims: &[i64]) -> Vec<i64> {
    [vec![0], shifted(dims)].concat()
}

/// A list with the batch's entry prepended.
fn prepend<T: Clone>(first: T, rest: &[T]) -> Vec<T> {
    [std::slice::from_ref(&first), rest].concat()
}

/// Operands have one shape, but for scalars, which some ops take.
pub(super) fn elementwise(v: &Batch, op: Op) -> Made {
    let shape = rank(op.result(0));
    if op.operands().iter().any(|x| rank(*x) != shape) {
        return Ok(None);
    }
    v.same(op).map(Some)
}

/// `kiln.dim` of a batched value.
pub(super) fn size(v: &Batch, op: Op) -> Result<Value> {
    let o = read::<Dim>(op)?;
    let size = v.m().size_of(v.whole(o.input)?, usize::try_from(o.axis + 1).unwrap_or(0))?;
    v.m().index(size)
}

/// `kiln.bind_shape` of a batched value.
pub(super) fn fact(v: &Batch, op: Op) -> Result<()> {
    let o = read::<BindShape>(op)?;
    let sizes = prepend(v.size, &own(v, &o.sizes));
    let node = BindShape { value: v.whole(o.value)?, sizes };
    v.b.create_with(&node, &[], &mut []).map(|_| ())
}

pub(super) fn broadcast_in_dim(v: &Batch, op: Op) -> Made {
    let o = read::<BroadcastInDim>(op)?;
    let sizes = prepend(v.size, &own(v, &o.sizes));
    Ok(Some(vec![v.m().broadcast(v.whole(o.input)?, &with_batch(&o.dims), &sizes)?]))
}

/// Sizes of the body, which are the same for all examples.
fn own(v: &Batch, sizes: &[Size]) -> Vec<Size> {
    let one = |s: &Size| match s {
        Size::Dynamic(x) => Size::Dynamic(v.one(*x)),
        known => *known,
    };
    sizes.iter().map(one).collect()
}

pub(super) fn reshape(v: &Batch, op: Op) -> Made {
    let o = read::<Reshape>(op)?;
    Ok(Some(vec![v.m().reshape(v.whole(o.input)?, &prepend(v.size, &own(v, &o.sizes)))?]))
}

pub(super) fn transpose(v: &Batch, op: Op) -> Made {
    let o = read::<Transpose>(op)?;
    Ok(Some(vec![v.m().transpose(v.whole(o.input)?, &with_batch(&o.permutation))?]))
}

pub(super) fn slice(v: &Batch, op: Op) -> Made {
    let o = read::<Slice>(op)?;
    let node = Slice {
        input: v.whole(o.input)?,
        offsets: prepend(Size::Static(0), &own(v, &o.offsets)),
        sizes: prepend(v.size, &own(v, &o.sizes)),
        strides: prepend(1, &o.strides),
    };
    Ok(Some(vec![v.b.add(&node)?]))
}

pub(super) fn pad(v: &Batch, op: Op) -> Made {
    let o = read::<Pad>(op)?;
    if v.batched.contains_key(&o.value) {
        return Ok(None);
    }
    let node = Pad {
        input: v.whole(o.input)?,
        value: v.one(o.value),
        low: prepend(Size::Static(0), &own(v, &o.low)),
        high: prepend(Size::Static(0), &own(v, &o.high)),
    };
    Ok(Some(vec![v.b.add(&node)?]))
}

pub(super) fn concat(v: &Batch, op: Op) -> Made {
    let o = read::<Concat>(op)?;
    let inputs = o.inputs.iter().map(|x| v.whole(*x)).collect::<Result<_>>()?;
    Ok(Some(vec![v.b.add(&Concat { inputs, axis: o.axis + 1 })?]))
}

pub(super) fn reverse(v: &Batch, op: Op) -> Made {
    let o = read::<Reverse>(op)?;
    Ok(Some(vec![v.b.add(&Reverse { input: v.whole(o.input)?, dims: shifted(&o.dims) })?]))
}

pub(super) fn reduce(v: &Batch, op: Op) -> Made {
    let o = read::<Reduce>(op)?;
    Ok(Some(vec![v.b.add(&Reduce { input: v.whole(o.input)?, dims: shifted(&o.dims), ..o })?]))
}

pub(super) fn arg_max(v: &Batch, op: Op) -> Made {
    let input = v.whole(op.operand(0))?;
    Ok(Some(vec![match ArgMax::of(op) {
        Some(o) => v.b.add(&ArgMax { input, axis: o.axis + 1 })?,
        None => v.b.add(&ArgMin { input, axis: read::<ArgMin>(op)?.axis + 1 })?,
    }]))
}

pub(super) fn cumulative(v: &Batch, op: Op) -> Made {
    let o = read::<Cumulative>(op)?;
    Ok(Some(vec![v.b.add(&Cumulative { input: v.whole(o.input)?, axis: o.axis + 1, ..o })?]))
}

/// The transformed dimension is the last one and stays that.
pub(super) fn fft(v: &Batch, op: Op) -> Made {
    let o = read::<Fft>(op)?;
    let im = o.im.map(|im| v.whole(im)).transpose()?;
    Ok(Some(v.b.create_node(&Fft { re: v.whole(o.re)?, im, ..o })?.results()))
}

pub(super) fn sort(v: &Batch, op: Op) -> Made {
    let input = v.whole(op.operand(0))?;
    let made = match Sort::of(op) {
        Some(o) => v.b.create_node(&Sort { input, axis: o.axis + 1, ..o })?,
        None => {
            let o = read::<TopK>(op)?;
            v.b.create_node(&TopK { input, axis: o.axis + 1, ..o })?
        }
    };
    Ok(Some(made.results()))
}

pub(super) fn reduce_window(v: &Batch, op: Op) -> Made {
    let o = read::<ReduceWindow>(op)?;
    let node = ReduceWindow {
        input: v.whole(o.input)?,
        window: prepend(1, &o.window),
        strides: prepend(1, &o.strides),
        pad_low: prepend(0, &o.pad_low),
        pad_high: prepend(0, &o.pad_high),
        dilation: prepend(1, &o.dilation),
        ..o
    };
    Ok(Some(vec![v.b.add(&node)?]))
}

/// With one weight for all examples these are more images.
pub(super) fn convolution(v: &Batch, op: Op) -> Made {
    let o = read::<Convolution>(op)?;
    if v.batched.contains_key(&o.weight) {
        return Ok(None);
    }
    let (m, whole) = (v.m(), v.whole(o.input)?);
    let sizes = m.sizes_of(whole)?;
    let [batch, images, rest @ ..] = sizes.as_slice() else { return Ok(None) };
    let all = m.size(SymKind::Mul, *batch, *images)?;
    let input = m.reshape(whole, &prepend(all, rest))?;
    let made = v.b.add(&Convolution { input, weight: v.one(o.weight), ..o })?;
    let rest = m.sizes_of(made)?.split_off(1);
    Ok(Some(vec![m.reshape(made, &[vec![*batch, *images], rest].concat())?]))
}

pub(super) fn softmax(v: &Batch, op: Op) -> Made {
    let input = v.whole(op.operand(0))?;
    Ok(Some(vec![match Softmax::of(op) {
        Some(o) => v.b.add(&Softmax { safe: o.safe, input, axis: o.axis + 1 })?,
        None => v.b.add(&LogSoftmax { input, axis: read::<LogSoftmax>(op)?.axis + 1 })?,
    }]))
}

/// Weights that are the same for all examples leave the op as it is.
pub(super) fn weighted(v: &Batch, op: Op) -> Made {
    if op.operands().iter().skip(1).any(|w| v.batched.contains_key(w)) {
        return Ok(None);
    }
    let (input, one) = (v.whole(op.operand(0))?, |w: Option<Value>| w.map(|w| v.one(w)));
    Ok(Some(vec![if let Some(o) = Linear::of(op) {
        v.b.add(&Linear { input, weight: v.one(o.weight), bias: one(o.bias) })?
    } else if let Some(o) = LayerNorm::of(op) {
        v.b.add(&LayerNorm { input, weight: one(o.weight), bias: one(o.bias), ..o })?
    } else {
        let o = read::<RmsNorm>(op)?;
        v.b.add(&RmsNorm { input, weight: one(o.weight), ..o })?
    }]))
}

/// Batched on both sides the batch is a batch dimension, else a free one that moves to the front.
pub(super) fn dot_general(v: &Batch, op: Op) -> Made {
    let o = read::<DotGeneral>(op)?;
    let (left, right) = (v.batched.contains_key(&o.lhs), v.batched.contains_key(&o.rhs));
    let both = left && right;
    let side = |x: Value, batched: bool, batch: &[i64], contract: &[i64]| -> Result<_> {
        match (both, batched) {
            (true, _) => Ok((v.whole(x)?, with_batch(batch), shifted(contract))),
            (_, true) => Ok((v.whole(x)?, shifted(batch), shifted(contract))),
            _ => Ok((v.one(x), batch.to_vec(), contract.to_vec())),
        }
    };
    let (lhs, lhs_batch, lhs_contract) = side(o.lhs, left, &o.lhs_batch, &o.lhs_contract)?;
    let (rhs, rhs_batch, rhs_contract) = side(o.rhs, right, &o.rhs_batch, &o.rhs_contract)?;
    // Results have batch dimensions, then the left's free ones, then the right's.
    let at = match (left, right) {
        (true, true) => 0,
        (true, false) => o.lhs_batch.len(),
        _ => rank(o.lhs) - o.lhs_contract.len(),
    } as i64;
    let node = DotGeneral { lhs, rhs, lhs_batch, rhs_batch, lhs_contract, rhs_contract, ..o };
    let product = v.b.add(&node)?;
    if at == 0 {
        return Ok(Some(vec![product]));
    }
    let rest = (0..rank(product) as i64).filter(|d| *d != at);
    Ok(Some(vec![v.m().transpose(product, &[vec![at], rest.collect()].concat())?]))
}

/// A batched operand gets another index: the example. The result has the indices' shape first, so
/// the batch is its dimension 0.
pub(super) fn gather(v: &Batch, op: Op) -> Made {
    let o = read::<Gather>(op)?;
    let m = v.m();
    let mut indices = o.indices.iter().map(|i| v.whole(*i)).collect::<Result<Vec<_>>>()?;
    let node = if v.batched.contains_key(&o.input) {
        let first = indices.first().ok_or("has no indices")?;
        let example = m.iota(&m.sizes_of(*first)?, 0)?;
        indices.insert(0, example);
        Gather { input: v.whole(o.input)?, indices, dims: with_batch(&o.dims) }
    } else {
        Gather { input: v.one(o.input), indices, dims: o.dims }
    };
    Ok(Some(vec![v.b.add(&node)?]))
}

/// Each update gets another index, as in [`gather`].
pub(super) fn scatter(v: &Batch, op: Op) -> Made {
    let o = read::<Scatter>(op)?;
    let mut indices = o.indices.iter().map(|i| v.whole(*i)).collect::<Result<Vec<_>>>()?;
    let first = indices.first().ok_or("has no indices")?;
    let example = v.m().iota(&v.m().sizes_of(*first)?, 0)?;
    indices.insert(0, example);
    let (input, updates) = (v.whole(o.input)?, v.whole(o.updates)?);
    let node = Scatter { input, updates, indices, dims: with_batch(&o.dims), ..o };
    Ok(Some(vec![v.b.add(&node)?]))
}

/// Starts that are the same for all examples stay; others make it a gather.
pub(super) fn dynamic_slice(v: &Batch, op: Op) -> Made {
    let o = read::<DynamicSlice>(op)?;
    let input = v.whole(o.input)?;
    let sizes = prepend(v.size, &own(v, &o.sizes));
    Ok(Some(vec![match shared_starts(v, &o.starts)? {
        Some(starts) => v.b.add(&DynamicSlice { input, starts, sizes })?,
        None => {
            let indices = places(v, input, &o.starts, &sizes)?;
            let dims = (0..indices.len() as i64).collect();
            v.b.add(&Gather { input, indices, dims })?
        }
    }]))
}

/// As [`dynamic_slice`], but a scatter.
pub(super) fn dynamic_update_slice(v: &Batch, op: Op) -> Made {
    let o = read::<DynamicUpdateSlice>(op)?;
    let (input, update) = (v.whole(o.input)?, v.whole(o.update)?);
    Ok(Some(vec![match shared_starts(v, &o.starts)? {
        Some(starts) => v.b.add(&DynamicUpdateSlice { input, starts, update })?,
        None => {
            let indices = places(v, input, &o.starts, &v.m().sizes_of(update)?)?;
            let dims = (0..indices.len() as i64).collect();
            v.b.add(&Scatter { kind: ScatterKind::Assign, input, updates: update, indices, dims })?
        }
    }]))
}

/// Starts that are the same for all examples, behind the batch's; `None` if any is not.
fn shared_starts(v: &Batch, starts: &[Value]) -> Result<Option<Vec<Value>>> {
    if starts.iter().any(|s| v.batched.contains_key(s)) {
        return Ok(None);
    }
    let first = match starts.first() {
        Some(start) => v.m().number(Size::Static(0), dtype(*start)?)?,
        None => return Ok(Some(vec![])),
    };
    let all: Vec<Value> = starts.iter().map(|s| v.one(*s)).collect();
    Ok(Some(prepend(first, &all)))
}

/// For each element of a slice of `input` its index in each dimension, the batch's first; starts are
/// clamped so that the slice is in bounds.
fn places(v: &Batch, input: Value, starts: &[Value], sizes: &[Size]) -> Result<Vec<Value>> {
    let m = v.m();
    let mut all = vec![m.iota(sizes, 0)?];
    for (i, start) in starts.iter().enumerate() {
        let start = m.convert(v.whole(*start)?, DType::I64)?;
        let low = m.number_like(Size::Static(0), start)?;
        let (whole, part) = (m.size_of(input, i + 1)?, sizes[i + 1]);
        let high = m.sub(m.number_like(whole, start)?, m.number_like(part, start)?)?;
        let start = v.b.add(&Clamp { input: start, low, high })?;
        all.push(m.add(m.broadcast(start, &[0], sizes)?, m.iota(sizes, i + 1)?)?);
    }
    Ok(all)
}

/// Examples are more batches. Regions that are told the batch, and random numbers, stay in a scan.
pub(super) fn attention(v: &Batch, op: Op) -> Made {
    let o = read::<Attention>(op)?;
    if o.dropout_key.is_some() || op.regions().iter().any(|r| !r.is_empty()) {
        return Ok(None);
    }
    let m = v.m();
    let query = v.whole(o.query)?;
    let sizes = m.sizes_of(query)?;
    let [examples, batch, ..] = sizes[..] else {
        return Err("has a query of another rank".into());
    };
    let all = m.size(SymKind::Mul, examples, batch)?;
    let folded = |x: Value| -> Result<Value> {
        let rest = m.sizes_of(x)?.split_off(2);
        m.reshape(x, &prepend(all, &rest))
    };
    let merged = |x: Value| folded(v.whole(x)?);
    let same = |bias: &Value| !v.batched.contains_key(bias) && one_batch(*bias);
    let bias = match o.bias {
        Some(bias) if same(&bias) => Some(v.one(bias)),
        Some(bias) => {
            let bias = v.whole(bias)?;
            let own = m.sizes_of(bias)?.split_off(1);
            // Of four dimensions, the first of which is that of the batch.
            let mut full = vec![examples, batch];
            full.extend(vec![Size::Static(1); 3usize.saturating_sub(own.len())]);
            full.extend(own.iter().skip(own.len().saturating_sub(3)));
            let dims: Vec<i64> = (5 - own.len() as i64..5).collect();
            Some(folded(m.broadcast(bias, &prepend(0, &dims), &full)?)?)
        }
        None => None,
    };
    let node = Attention {
        query: folded(query)?,
        key: merged(o.key)?,
        value: merged(o.value)?,
        bias,
        query_lengths: o.query_lengths.map(merged).transpose()?,
        key_lengths: o.key_lengths.map(merged).transpose()?,
        ..o
    };
    let made = v.b.create_node(&node)?;
    let apart = |x: Value| -> Result<Value> {
        let rest = m.sizes_of(x)?.split_off(1);
        m.reshape(x, &[vec![examples, batch], rest].concat())
    };
    Ok(Some(made.results().into_iter().map(apart).collect::<Result<_>>()?))
}

/// Whether a bias is the same for all batches.
fn one_batch(bias: Value) -> bool {
    let dims = bias.ty().dims();
    dims.len() < 4 || dims[0].known() == Some(1)
}
