//! Attention as `kiln.structured.attention`, so that the score matrix never goes through memory.
use crate::{
    analysis::index_expr::IndexExpr,
    kernels::op_facts::folded_transposes,
    linalg::{
        expr::{Body, dtype},
        kernel::{Kernel, Nest, region},
        limits::Limits,
        positions::Position,
        scalar::{storage, wide},
    },
};
use kiln_dialects::{ir::*, ops::*, value::DType};
use std::cell::RefCell;

/// The outer loops: batch and heads. Heads are two loops in grouped-query attention
/// (key heads, query heads per key head).
pub(super) struct Heads {
    pub(super) outer: Vec<Size>,
    per_group: i64,
}

impl Heads {
    pub(super) fn of(k: &Kernel, query: Value, key: Value) -> Result<Heads> {
        let (q, g) = (k.sizes_of(query)?, k.sizes_of(key)?);
        Ok(match (q[1].known(), g[1].known()) {
            (Some(h), Some(g)) if h != g && g > 0 => {
                Heads { outer: vec![q[0], Size::Static(g), Size::Static(h / g)], per_group: h / g }
            }
            _ => Heads { outer: vec![q[0], q[1]], per_group: 1 },
        })
    }
    /// Indices of batch, query head and key head.
    pub(super) fn at(&self) -> [IndexExpr; 3] {
        let group = IndexExpr::dim(1);
        let head = if self.outer.len() == 3 {
            group.clone().times(IndexExpr::number(self.per_group)).plus(IndexExpr::dim(2))
        } else {
            group.clone()
        };
        [IndexExpr::dim(0), head, group]
    }
    pub(super) fn sizes(&self, inner: &[Size]) -> Vec<Size> {
        [&self.outer, inner].concat()
    }
}

/// Lowers an attention. Returns pairs of the prim value and its tensor, where the prim value is the
/// result or the transpose folded into its store; a second pair is the log-sum-exp, if it is read.
pub fn attention(k: &Kernel, op: Op) -> Result<Vec<(Value, Value)>> {
    let o = Attention::of(op).ok_or_malformed(op)?;
    let heads = Heads::of(k, o.query, o.key)?;
    let (q, ks, v) = (k.sizes_of(o.query)?, k.sizes_of(o.key)?, k.sizes_of(o.value)?);
    let (d, outer) = (wide(dtype(o.query)?), heads.outer.len());
    let (loops, n) = (outer + 2, outer + 3);
    let ty = Type::scalar(k.b.ctx, d);
    let sizes = heads.sizes(&[q[2], v[3]]);
    let (value, order) = layout(op, 0, outer)?;
    let out_sizes: Vec<Size> = order.iter().map(|i| sizes[*i]).collect();
    let out = k.empty(storage(dtype(o.query)?), &out_sizes)?;

    // The factors of a score.
    let [b, head, group] = heads.at();
    let lhs = vec![b.clone(), head, IndexExpr::dim(outer), IndexExpr::dim(n - 1)];
    let rhs = vec![b, group.clone(), IndexExpr::dim(outer + 1), IndexExpr::dim(n - 1)];
    let mut of_scores = k.operands(&Nest {
        reduction: last(n),
        sizes: heads.sizes(&[q[2], ks[2], q[3]]),
        outs: vec![(out, (0..loops).collect())],
        reads: vec![(o.query, lhs.clone()), (o.key, rhs.clone())],
        body: &mut |_, _| Ok(vec![]),
    })?;
    if of_scores.inputs.list.len() == 1 {
        // Query and key are one element's row; strategies read the key as the second operand.
        of_scores.repeat_first(k.b.ctx)?;
    }
    let own = dtype(o.query)?;
    let mut factors = |body: &mut Body, _: &[Value]| {
        let (x, y) = (body.element(o.query, &lhs)?, body.element(o.key, &rhs)?);
        Ok(vec![body.rounded(x, own)?, body.rounded(y, own)?])
    };

    // The masked score.
    let [b, head, _] = heads.at();
    let place = [b, head, IndexExpr::dim(outer), IndexExpr::dim(outer + 1)];
    let bias = o.bias.map(|v| (v, broadcast(v, &place, &[q[0], q[1], q[2], ks[2]])));
    let regions = Regions::of(k, op);
    regions.place(k, &place, &[q[0], q[1], q[2], ks[2]]);
    let lengths =
        [(o.query_lengths, outer), (o.key_lengths, outer + 1)].map(|(v, at)| v.map(|v| (v, at)));
    let lengths: Vec<(Value, usize)> = lengths.into_iter().flatten().collect();
    let first = [place[0].clone()];
    let factor = o
        .scale
        .unwrap_or(1.0 / (q[3].known().ok_or("has a head size that is not known")? as f64).sqrt());
    let of_mask = k.operands(&Nest {
        reduction: vec![false; loops],
        sizes: heads.sizes(&[q[2], ks[2]]),
        outs: vec![(out, (0..loops).collect())],
        reads: bias
            .clone()
            .into_iter()
            .chain(regions.reads())
            .chain(lengths.iter().map(|(v, _)| (*v, first.to_vec())))
            .collect(),
        body: &mut |_, _| Ok(vec![]),
    })?;
    let limits = RefCell::new(None);
    let mut masked = |body: &mut Body, given: &[Value]| {
        let score = *given.first().ok_or("has no score")?;
        let mut s = body.s.binary(BinaryKind::Mul, score, body.s.float(factor, score)?, d)?;
        if let Some((bias, at)) = &bias {
            let x = body.element(*bias, at)?;
            let x = body.s.convert(x, dtype(*bias)?, d)?;
            s = body.s.binary(BinaryKind::Add, s, x, d)?;
        }
        s = regions.score(body, s, &place)?.unwrap_or(s);
        if let Some(mask) = regions.mask(body, &place)? {
            s = body.s.select(mask, s, body.s.float(f64::NEG_INFINITY, s)?)?;
        }
        for (v, at) in &lengths {
            let n = body.element(*v, &first)?;
            let n = body.s.convert(n, dtype(*v)?, DType::I64)?;
            let at = body.dim(*at)?;
            let at = arith::index_cast(body.s, at, n.ty())?;
            let counts = body.s.cmpi(CmpIPredicate::Slt, at, n)?;
            s = body.s.select(counts, s, body.s.float(f64::NEG_INFINITY, s)?)?;
        }
        if o.causal {
            let (q, key) = (body.dim(outer)?, body.dim(outer + 1)?);
            let before = body.s.cmpi(CmpIPredicate::Sle, key, q)?;
            s = body.s.select(before, s, body.s.float(f64::NEG_INFINITY, s)?)?;
        }
        let found = Limits::of(s, body, outer);
        let yielded = [s, found.root].into_iter().chain(found.lengths.into_iter().flatten());
        let yielded: Vec<Value> = yielded.collect();
        limits.replace(Some(found));
        Ok(yielded)
    };
    let mut score_types = vec![ty];
    score_types.extend(&of_mask.types[..of_mask.ins]);

    // The factor of a weight.
    let [b, _, group] = heads.at();
    let value_at = vec![b, group, IndexExpr::dim(n - 1), IndexExpr::dim(outer + 1)];
    let mut weight: Vec<usize> = (0..=outer).collect();
    weight.push(n - 1);
    let of_values = k.operands(&Nest {
        reduction: last(n),
        sizes: heads.sizes(&[q[2], v[3], ks[2]]),
        // The loops that weights and the result have.
        outs: vec![(out, (0..loops).collect()), (out, weight)],
        reads: vec![(o.value, value_at.clone())],
        body: &mut |_, _| Ok(vec![]),
    })?;
    let mut weighted = |body: &mut Body, _: &[Value]| Ok(vec![body.element(o.value, &value_at)?]);

    let read_lse = op.results().get(1).copied().filter(|v| !v.uses().is_empty());
    let rows = heads.sizes(&[q[2]]);
    let lse_init = read_lse.map(|_| k.empty(d, &rows)).transpose()?;
    let mut maps = vec![];
    for (operands, ins) in [&of_scores, &of_mask, &of_values].map(|o| (o, o.ins)) {
        maps.extend(operands.maps.as_array().unwrap_or_default().into_iter().take(ins));
    }
    maps.push(k.map_of(loops, &order)?);
    if lse_init.is_some() {
        maps.push(k.map_of(outer + 1, &(0..=outer).collect::<Vec<_>>())?);
    }
    let node = StructuredAttention {
        inputs: of_scores.values[..of_scores.ins].to_vec(),
        modifiers: of_mask.values[..of_mask.ins].to_vec(),
        values: of_values.values[..of_values.ins].to_vec(),
        init: out,
        lse_init,
        sizes: heads.sizes(&[q[2], ks[2], q[3], v[3]]),
        causal: false,
        lengths: vec![],
        clears: o.query_lengths.is_some() && !o.unsafe_softmax,
        unsafe_softmax: o.unsafe_softmax,
        indexing_maps: Attr::array(k.b.ctx, &maps),
    };
    let types: Vec<Type> = [Some(out), lse_init].into_iter().flatten().map(|v| v.ty()).collect();
    let mut factors = region(k, &of_scores, 0, &mut factors);
    let mut masked = region(k, &of_mask, 1, &mut masked);
    let mut weighted = region(k, &of_values, 0, &mut weighted);
    let made = k.b.create_with(
        &node,
        &types,
        &mut [
            (&of_scores.types[..of_scores.ins], &mut factors),
            (&score_types, &mut masked),
            (&of_values.types[..of_values.ins], &mut weighted),
        ],
    )?;
    // The limits are known once the score is built.
    let limits = limits.borrow_mut().take().ok_or("has no score")?;
    let axes: Vec<i64> = (0..2).filter(|i| limits.lengths[*i as usize].is_some()).collect();
    made.set_attr("lengths", Attr::i64s(k.b.ctx, &axes));
    if limits.causal {
        made.set_attr("causal", Attr::unit(k.b.ctx));
    }
    let made = made.results();
    let mut all = vec![(value, joined(k, made[0], &order, outer)?)];
    if let (Some(value), Some(lse)) = (read_lse, made.get(1)) {
        let row: Vec<usize> = (0..=outer).collect();
        all.push((value, joined(k, *lse, &row, outer)?));
    }
    Ok(all)
}

/// Which loops are reductions: the last of `n`.
fn last(n: usize) -> Vec<bool> {
    (0..n).map(|d| d + 1 == n).collect()
}

/// The score modification and mask regions of an attention. Both take the indices of batch, head,
/// query and key.
struct Regions {
    score: Option<(Block, Value)>,
    mask: Option<(Block, Value)>,
}

impl Regions {
    fn of(k: &Kernel, op: Op) -> Regions {
        let all = op.regions();
        let one = |i: usize| {
            let block = all.get(i)?.first()?;
            k.bound.borrow_mut().extend(block.args());
            Some((block, block.terminator()?.operands().first().copied()?))
        };
        Regions { score: one(0), mask: one(1) }
    }
    /// States which arguments are positions, so that gathers at them are indexing maps.
    fn place(&self, k: &Kernel, place: &[IndexExpr; 4], sizes: &[Size; 4]) {
        for (first, region) in [(1, self.score), (0, self.mask)] {
            let Some((block, _)) = region else { continue };
            let own = block.args().into_iter().skip(first).zip(place.iter().zip(sizes));
            let all = own.map(|(arg, (at, size))| (arg, Position { at: at.clone(), below: *size }));
            k.positions.borrow_mut().0.extend(all);
        }
    }
    /// The 0-d values that the regions yield.
    fn reads(&self) -> impl Iterator<Item = (Value, Vec<IndexExpr>)> {
        [self.score, self.mask].into_iter().flatten().map(|(_, v)| (v, vec![]))
    }
    fn score(&self, body: &mut Body, s: Value, place: &[IndexExpr; 4]) -> Result<Option<Value>> {
        let Some((block, v)) = self.score else { return Ok(None) };
        body.bind(*block.args().first().ok_or("has a score without arguments")?, s);
        bind_positions(body, block, 1, place)?;
        body.element(v, &[]).map(Some)
    }
    fn mask(&self, body: &mut Body, place: &[IndexExpr; 4]) -> Result<Option<Value>> {
        let Some((block, v)) = self.mask else { return Ok(None) };
        bind_positions(body, block, 0, place)?;
        body.element(v, &[]).map(Some)
    }
}

/// Binds a region's index arguments, which are i64.
fn bind_positions(
    body: &mut Body,
    block: Block,
    first: usize,
    place: &[IndexExpr; 4],
) -> Result<()> {
    for (arg, at) in
        block.args().into_iter().skip(first).zip(place).filter(|(a, _)| !a.uses().is_empty())
    {
        let index = body.index(at)?;
        let wide = arith::index_cast(body.s, index, Type::scalar(body.s.b.ctx, DType::I64))?;
        body.bind(arg, wide);
    }
    Ok(())
}

/// The index at which a bias of up to four dimensions is read, by right-aligned broadcasting.
fn broadcast(bias: Value, place: &[IndexExpr; 4], to: &[Size; 4]) -> Vec<IndexExpr> {
    let dims = bias.ty().dims();
    let first = 4 - dims.len();
    let one = |i: usize| dims[i].known() == Some(1) && to[first + i].known() != Some(1);
    (0..dims.len())
        .map(|i| if one(i) { IndexExpr::number(0) } else { place[first + i].clone() })
        .collect()
}

/// The value to store of a result, and the loops that index it in memory order.
pub(super) fn layout(op: Op, result: usize, outer: usize) -> Result<(Value, Vec<usize>)> {
    let moved = folded_transposes(op)
        .get(result)
        .and_then(|t| Some((t.result(0), Transpose::of(*t)?.permutation)));
    let (value, permutation) = moved.unwrap_or((op.result(result), vec![0, 1, 2, 3]));
    // Heads are one loop, or two in grouped-query attention.
    let loops = [vec![0], (1..outer).collect(), vec![outer], vec![outer + 1]];
    let order = permutation
        .iter()
        .map(|p| loops.get(*p as usize).cloned().ok_or("has a transposition of other rank"));
    Ok((value, order.collect::<Result<Vec<_>, _>>()?.concat()))
}

/// Collapses the two head loops into one dimension.
pub(super) fn joined(k: &Kernel, t: Value, order: &[usize], outer: usize) -> Result<Value> {
    if outer == 2 {
        return Ok(t);
    }
    let heads = order.iter().position(|i| *i == 1).ok_or("has no heads")?;
    let dims = t.ty().dims();
    let groups: Vec<Vec<i64>> = (0..order.len() - 1)
        .map(|i| match i {
            i if i < heads => vec![i as i64],
            i if i == heads => vec![i as i64, i as i64 + 1],
            i => vec![i as i64 + 1],
        })
        .collect();
    let sizes: Vec<_> = groups
        .iter()
        .map(|g| g.iter().fold(kiln_dialects::sym::Dim::Known(1), |n, i| n.mul(&dims[*i as usize])))
        .collect();
    let c = k.b.ctx;
    let list =
        |g: &Vec<i64>| Attr::array(c, &g.iter().map(|i| Attr::i64(c, *i)).collect::<Vec<_>>());
    let groups = Attr::array(c, &groups.iter().map(list).collect::<Vec<_>>());
    let ty = Type::tensor(c, t.ty().element().ok_or("is no tensor")?.dtype()?, &sizes);
    tensor::collapse_shape(k.b, t, groups, ty)
}
