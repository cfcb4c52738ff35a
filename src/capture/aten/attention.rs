//! Attention, bilinear maps and bags of embeddings.
use super::{Args, Cx, Outcome, Row, Val, formula::value, tools::*};
use kiln_dialects::{ir::*, ops::*, value::DType};

/// Rows of this family.
pub(super) const ROWS: &[Row] = &[
    Row {
        name: "aten.scaled_dot_product_attention.default",
        arguments: "query, key, value, attn_mask=None, dropout_p=0, is_causal=False, scale=None, enable_gqa=False",
        build: |cx, a| {
            let (v, _) = attention(cx, a, "attn_mask", false)?;
            cx.one(v)
        },
    },
    Row {
        name: "aten._scaled_dot_product_flash_attention_for_cpu.default",
        arguments: "query, key, value, dropout_p=0, is_causal=False, attn_mask=None, scale=None",
        build: |cx, a| {
            let (v, sums) = attention(cx, a, "attn_mask", true)?;
            cx.many(&[v, sums.ok_or("has no log-sum-exp")?])
        },
    },
    Row {
        name: "aten._scaled_dot_product_efficient_attention.default",
        arguments: "query, key, value, attn_bias, compute_log_sumexp, dropout_p=0, is_causal=False, scale=None",
        build: |cx, a| {
            let (v, _) = attention(cx, a, "attn_bias", false)?;
            first_of(cx, v, 4)
        },
    },
    Row {
        name: "aten._scaled_dot_product_flash_attention.default",
        arguments: "query, key, value, dropout_p=0, is_causal=False, return_debug_mask=False, scale=None",
        build: |cx, a| {
            let (v, sums) = attention(cx, a, "attn_mask", true)?;
            let sums = sums.ok_or("has no log-sum-exp")?;
            let mut all = vec![Val::None; 9];
            for (slot, v) in all.iter_mut().zip([v, sums]) {
                *slot = Val::Tensor(cx.store.fresh(v));
            }
            Ok(Outcome::Many(all))
        },
    },
    Row {
        name: "aten._scaled_dot_product_cudnn_attention.default",
        arguments: "query, key, value, attn_bias, compute_log_sumexp, dropout_p=0, is_causal=False, return_debug_mask=False, scale=None",
        build: |cx, a| {
            let (v, _) = attention(cx, a, "attn_bias", false)?;
            first_of(cx, v, 9)
        },
    },
    Row {
        name: "kiln.attention_with_lse.default",
        arguments: "query, key, value, is_causal=False, scale=None",
        build: |cx, a| {
            let (v, sums) = attention(cx, a, "attn_mask", true)?;
            cx.many(&[v, sums.ok_or("has no log-sum-exp")?])
        },
    },
    Row {
        name: "aten._scaled_dot_product_attention_math.default",
        arguments: "query, key, value, attn_mask=None, dropout_p=0, is_causal=False, dropout_mask=None, scale=None, enable_gqa=False",
        build: |cx, a| {
            let (v, _) = attention(cx, a, "attn_mask", false)?;
            first_of(cx, v, 2)
        },
    },
    Row {
        name: "aten.bilinear.default",
        arguments: "input1, input2, weight, bias=None",
        build: bilinear,
    },
    Row {
        name: "aten._trilinear.default",
        arguments: "i1, i2, i3, expand1, expand2, expand3, sumdim, unroll_dim=1",
        build: trilinear,
    },
    Row {
        name: "aten.embedding_bag.default",
        arguments: "weight, indices, offsets, scale_grad_by_freq=False, mode=0, sparse=False, per_sample_weights=None, include_last_offset=False",
        build: |cx, a| embedding_bag(cx, a, false),
    },
    Row {
        name: "aten.embedding_bag.padding_idx",
        arguments: "weight, indices, offsets, scale_grad_by_freq, mode, sparse, per_sample_weights, include_last_offset, padding_idx",
        build: |cx, a| embedding_bag(cx, a, true),
    },
    Row {
        name: "aten._embedding_bag.default",
        arguments: "weight, indices, offsets, scale_grad_by_freq=False, mode=0, sparse=False, per_sample_weights=None, include_last_offset=False, padding_idx=-1",
        build: |cx, a| embedding_bag(cx, a, false),
    },
    Row {
        name: "aten._embedding_bag_forward_only.default",
        arguments: "weight, indices, offsets, scale_grad_by_freq=False, mode=0, sparse=False, per_sample_weights=None, include_last_offset=False, padding_idx=-1",
        build: |cx, a| embedding_bag(cx, a, false),
    },
];

/// A result whose companions serve the backward pass and debugging.
fn first_of(cx: &mut Cx, v: Value, count: usize) -> Result<Outcome> {
    let mut all = vec![Val::None; count];
    if let Some(first) = all.first_mut() {
        *first = Val::Tensor(cx.store.fresh(v));
    }
    Ok(Outcome::Many(all))
}

/// Attention, and the log-sum-exp of its scores if wanted. Other ranks are reshaped to rank 4 and
/// back: fewer dimensions get leading ones, of more the leading ones become one batch.
fn attention(
    cx: &mut Cx,
    a: &Args<'_>,
    mask: &str,
    with_lse: bool,
) -> Result<(Value, Option<Value>)> {
    let dropout_p = a.float("dropout_p", Some(0.0))?;
    let given = [cx.tensor(a, "query")?, cx.tensor(a, "key")?, cx.tensor(a, "value")?];
    let [q, k, v] = same_batches(cx, given)?;
    let rank = rank_of(q);
    if rank < 2 {
        return Err(format!("of rank {rank} is not supported").into());
    }
    if q.ty().dims()[..rank - 2].iter().any(|d| d.known() == Some(0)) {
        return without_heads(cx, q, v, with_lse);
    }
    let lead = cx.b.sizes_of(q)?.get(..rank.saturating_sub(3)).unwrap_or(&[]).to_vec();
    let batch = lead.iter().try_fold(Size::Static(1), |n, s| cx.size_mul(n, *s))?;
    let widen = |cx: &mut Cx, t: Value| -> Result<Value> {
        let sizes = cx.b.sizes_of(t)?;
        match sizes.len() {
            4 => Ok(t),
            n @ 0..4 => cx.reshape(t, [vec![Size::Static(1); 4 - n], sizes].concat()),
            n => cx.reshape(t, [&[batch], sizes.get(n - 3..).unwrap_or(&[])].concat()),
        }
    };
    let (query, key, value) = (widen(cx, q)?, widen(cx, k)?, widen(cx, v)?);
    let mut bias = cx.optional(a, mask)?;
    if let Some(mask) = bias {
        let mut scores = bias_of(cx, mask, dtype_of(query)?)?;
        if rank > 4 && rank_of(scores) > 3 {
            let own = cx.b.sizes_of(scores)?;
            let inner = own.get(own.len() - 3..).unwrap_or(&[]);
            scores = cx.broadcast_to(scores, &[&lead[..], inner].concat())?;
            scores = cx.reshape(scores, [&[batch], inner].concat())?;
        }
        bias = Some(scores);
    }
    let dropout_key = if dropout_p > 0.0 { Some(cx.random_key()?) } else { None };
    let node = Attention {
        query,
        key,
        value,
        bias,
        query_lengths: None,
        key_lengths: None,
        dropout_key,
        scale: if a.has("scale") { Some(a.float("scale", None)?) } else { None },
        causal: a.flag("is_causal", false)?,
        dropout_p,
        with_lse,
        unsafe_softmax: false,
    };
    let op = cx.b.create_node(&node)?;
    let restore = |cx: &mut Cx, r: Value, inner: usize| -> Result<Value> {
        if rank == 4 {
            return Ok(r);
        }
        let sizes = cx.b.sizes_of(r)?;
        let own = sizes.get(sizes.len() - inner.min(sizes.len())..).unwrap_or(&[]);
        cx.reshape(r, [&lead[..], own].concat())
    };
    let inner = rank.min(3);
    let r = restore(cx, op.result(0), inner)?;
    let sums = match with_lse {
        true => Some(restore(cx, op.result(1), inner - 1)?),
        false => None,
    };
    Ok((r, sums))
}

/// What a mask adds to scores of dtype `d`: a boolean one 0 or -inf, another itself.
pub(super) fn bias_of(cx: &Cx, mask: Value, d: DType) -> Result<Value> {
    if dtype_of(mask)? != DType::I1 {
        return cx.convert(mask, d);
    }
    cx.select(mask, cx.number(d, 0.0)?, cx.number(d, f64::NEG_INFINITY)?)
}

/// Queries, keys and values with the dimensions before the last two broadcast to one another, but
/// for one head of keys and values, which all heads of queries share.
fn same_batches(cx: &Cx, all: [Value; 3]) -> Result<[Value; 3]> {
    let rank = all.iter().map(|t| rank_of(*t)).max().unwrap_or(0);
    let mut sizes = vec![];
    for t in all {
        let own = cx.b.sizes_of(t)?;
        sizes.push([vec![Size::Static(1); rank - own.len()], own].concat());
    }
    let one = |n: Size| n.known() == Some(1);
    let mut wanted = sizes.clone();
    for d in 0..rank.saturating_sub(2) {
        let at = |i: usize| sizes[i][d];
        let shared = d + 3 == rank && !one(at(0)) && at(1) == at(2);
        let Some(n) = (0..3).map(at).find(|n| !one(*n)).filter(|_| !shared) else { continue };
        for w in &mut wanted {
            w[d] = if one(w[d]) { n } else { w[d] };
        }
    }
    let mut out = all;
    for ((t, own), wanted) in out.iter_mut().zip(&sizes).zip(&wanted) {
        if own != wanted {
            *t = cx.broadcast_to(*t, wanted)?;
        }
    }
    Ok(out)
}

/// The results of attention without batches or heads.
fn without_heads(cx: &Cx, q: Value, v: Value, with_lse: bool) -> Result<(Value, Option<Value>)> {
    let mut sizes = cx.b.sizes_of(q)?;
    sizes.pop();
    let sums = match with_lse {
        true => Some(cx.b.splat(DType::F32, &sizes, 0.0)?),
        false => None,
    };
    sizes.push(cx.b.size_of(v, rank_of(v) - 1)?);
    Ok((cx.b.splat(dtype_of(q)?, &sizes, 0.0)?, sums))
}

/// `y[.., o] = sum_ij x[.., i] w[o, i, j] z[.., j] + bias[o]`
fn bilinear(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let (x, z, weight) =
        (cx.tensor(a, "input1")?, cx.tensor(a, "input2")?, cx.tensor(a, "weight")?);
    let axis = rank_of(x).checked_sub(1).ok_or("bilinear(): inputs must be at least 1-d")? as i64;
    let left = cx.b.add(&DotGeneral {
        lhs: x,
        rhs: weight,
        lhs_batch: vec![],
        rhs_batch: vec![],
        lhs_contract: vec![axis],
        rhs_contract: vec![1],
        element_type: None,
    })?;
    // [.., o, j]
    let sizes = cx.b.sizes_of(left)?;
    let dims = (0..axis).chain([axis + 1]).collect();
    let right = along(cx, z, dims, &sizes)?;
    let bias = cx.optional(a, "bias")?;
    let v = value(cx, |f| {
        let sum = (f.of(left) * f.of(right)).reduce(ReduceKind::Sum, &[axis + 1], false);
        bias.map_or(sum, |bias| sum + f.of(bias))
    })?;
    cx.one(v)
}

/// The product of three tensors with dimensions of size 1 inserted, summed over dimensions.
fn trilinear(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let list = |name: &str| Ok::<_, Error>(a.ints(name)?.unwrap_or_default());
    let (mut all, mut rank) = (vec![], 0);
    for (name, expand) in [("i1", "expand1"), ("i2", "expand2"), ("i3", "expand3")] {
        let (x, places) = (cx.tensor(a, name)?, list(expand)?);
        rank = rank_of(x) + places.len();
        let places = if places.is_empty() { places } else { wrap_all(Some(places), rank)? };
        let made = places.iter().try_fold(x, |x, at| cx.unsqueezed(x, *at as usize))?;
        all.push(cx.convert(made, statistics_dtype(dtype_of(x)?))?);
    }
    let sums = list("sumdim")?;
    let sums = if sums.is_empty() { sums } else { wrap_all(Some(sums), rank)? };
    let d = dtype_of(cx.tensor(a, "i1")?)?;
    let v = value(cx, |f| {
        let product = f.of(all[0]) * f.of(all[1]) * f.of(all[2]);
        if sums.is_empty() { product } else { product.reduce(ReduceKind::Sum, &sums, false) }.to(d)
    })?;
    cx.one(v)
}

/// Rows of a table by index, combined in bags of consecutive indices: 0 their sum, 1 their mean, 2
/// their maximum. An empty bag is 0.
fn embedding_bag(cx: &mut Cx, a: &Args<'_>, from_end: bool) -> Result<Outcome> {
    let weight = cx.tensor(a, "weight")?;
    let (indices, offsets) = (cx.tensor(a, "indices")?, cx.tensor(a, "offsets")?);
    if rank_of(indices) != 1 || rank_of(offsets) != 1 {
        return Err("wants indices and offsets of rank 1".into());
    }
    let (mode, d) = (a.int("mode", Some(0))?, dtype_of(weight)?);
    if mode != 0 && a.has("per_sample_weights") {
        return Err("embedding_bag: per_sample_weights only supported with mode='sum'".into());
    }
    let (indices, offsets) = (cx.convert(indices, DType::I64)?, cx.convert(offsets, DType::I64)?);
    let n = cx.b.size_of(indices, 0)?;
    let mut bags = cx.b.size_of(offsets, 0)?;
    let mut starts = offsets;
    if a.flag("include_last_offset", false)? {
        bags = cx.size_add(bags, Size::Static(-1))?;
        starts = cx.b.add(&Slice {
            input: offsets,
            offsets: vec![Size::Static(0)],
            sizes: vec![bags],
            strides: vec![1],
        })?;
    }
    // The bag of an index is the last that starts at or before it.
    let square = [n, bags];
    let position = cx.iota(DType::I64, square.to_vec(), 0)?;
    let starts = along(cx, starts, vec![1], &square)?;
    let bag = value(cx, |f| {
        let begun = f.of(starts).le(f.of(position)).to(DType::I64);
        begun.reduce(ReduceKind::Sum, &[1], false) - 1.0
    })?;
    let padding = match a.int("padding_idx", Some(-1))? {
        p if p >= 0 => Some(p),
        // Where -1 is not the default, it counts from the end.
        p if from_end && a.has("padding_idx") => Some(
            cx.b.size_of(weight, 0)?
                .known()
                .map(|n| n + p)
                .ok_or("counts a padding index from a symbolic end")?,
        ),
        _ => None,
    };
    let counts = match padding {
        Some(p) => cx.compare(CompareKind::Ne, indices, cx.integer(DType::I64, p)?)?,
        None => cx.b.splat(DType::I1, &[n], 1.0)?,
    };
    let wide = statistics_dtype(d);
    let rows = cx.b.add(&Embedding { weight, indices })?;
    let rows = cx.convert(rows, wide)?;
    let shape = cx.b.sizes_of(rows)?;
    let width = cx.b.size_of(weight, 1)?;
    let result = [bags, width];
    let used = along(cx, counts, vec![0], &shape)?;
    let ones = cx.convert(counts, DType::I64)?;
    let zeros = cx.b.splat(DType::I64, &[bags], 0.0)?;
    let scatter = |cx: &Cx, kind, input: Value, updates: Value| -> Result<Value> {
        let (indices, dims) = (vec![bag], vec![0]);
        cx.b.add(&Scatter { kind, input, updates, indices, dims })
    };
    let lengths = scatter(cx, ScatterKind::Add, zeros, ones)?;
    let mut first = None;
    let v = if mode == 2 {
        let rows = cx.select(used, rows, min_value(cx, wide)?)?;
        let start = cx.b.splat(wide, &result, f64::NEG_INFINITY)?;
        let most = scatter(cx, ScatterKind::Max, start, rows)?;
        let lengths = along(cx, lengths, vec![0], &result)?;
        first = Some(maxima_of_bags(cx, [rows, most, used, bag, indices, lengths], &shape)?);
        value(cx, |f| f.of(lengths).eq(0.0).select(0.0, f.of(most)))?
    } else {
        let rows = match cx.optional(a, "per_sample_weights")? {
            Some(w) => {
                let w = along(cx, cx.convert(w, wide)?, vec![0], &shape)?;
                cx.binary(BinaryKind::Mul, rows, w)?
            }
            None => rows,
        };
        let rows = cx.select(used, rows, cx.number(wide, 0.0)?)?;
        let start = cx.b.splat(wide, &result, 0.0)?;
        let sum = scatter(cx, ScatterKind::Add, start, rows)?;
        let lengths = along(cx, lengths, vec![0], &result)?;
        match mode {
            1 => value(cx, |f| f.of(sum) / f.of(lengths).max(1.0).to(wide))?,
            _ => sum,
        }
    };
    let v = cx.convert(v, d)?;
    let mut all = vec![];
    for v in [v, bag, lengths] {
        all.push(Val::Tensor(cx.store.fresh(v)));
    }
    // Of sums and means nothing reads it.
    all.push(first.map_or(Val::None, |v| Val::Tensor(cx.store.fresh(v))));
    Ok(Outcome::Many(all))
}

/// The index that gave each maximum of a bag, the first of several; 0 of an empty bag.
fn maxima_of_bags(
    cx: &Cx,
    [rows, most, used, bag, indices, lengths]: [Value; 6],
    shape: &[Size],
) -> Result<Value> {
    let n = shape[0];
    if n.known() == Some(0) {
        return cx.full_like(lengths, 0.0);
    }
    let most = cx.b.add(&Gather { input: most, indices: vec![bag], dims: vec![0] })?;
    let place = cx.iota(DType::I64, shape.to_vec(), 0)?;
    let last = cx.b.size_as_tensor(n, DType::I64)?;
    let place = value(cx, |f| {
        let hit = f.of(used) & f.of(rows).eq(f.of(most));
        hit.select(f.of(place), f.of(last) - 1.0)
    })?;
    let input = value(cx, |f| 0.0 * f.of(lengths) + (f.of(last) - 1.0))?;
    let (kind, updates, dims) = (ScatterKind::Min, place, vec![0]);
    let place =
        cx.b.add(&Scatter { kind, input, updates, indices: vec![bag], dims: dims.clone() })?;
    let index = cx.b.add(&Gather { input: indices, indices: vec![place], dims })?;
    value(cx, |f| f.of(lengths).eq(0.0).select(0.0, f.of(index)))
}
