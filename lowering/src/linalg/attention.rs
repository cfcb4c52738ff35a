//! Attention as seven generics over the same loops: scores, masked scores, row maximum,
//! exponentials (unnormalised weights), their row sum, the weighted sum of values, and the quotient
//! of the two sums. The log-sum-exp is an eighth. `kernel::Attention` matches them by their order,
//! so that the score matrix never goes through memory.
use crate::{
    analysis::{CAUSAL, index_expr::Ix},
    kernels::graph::turned,
    linalg::{
        expr::{Body, dtype},
        kernel::{Kernel, Nest},
        scalar::{storage, wide},
        stage::{Contraction, contract},
    },
};
use kiln_dialects::{ir::*, ops::*, value::DType};

/// The loops that all stages share: batch and heads. Heads are two loops in grouped-query attention
/// (key heads, query heads per key head).
struct Heads {
    outer: Vec<Size>,
    per_group: i64,
}

impl Heads {
    fn of(k: &Kernel, o: &Attention) -> Result<Heads> {
        let (q, g) = (k.sizes_of(o.query)?, k.sizes_of(o.key)?);
        Ok(match (q[1].known(), g[1].known()) {
            (Some(h), Some(g)) if h != g && g > 0 => {
                Heads { outer: vec![q[0], Size::Static(g), Size::Static(h / g)], per_group: h / g }
            }
            _ => Heads { outer: vec![q[0], q[1]], per_group: 1 },
        })
    }
    /// Indices of batch, query head and key head, over `n` loops.
    fn at(&self, n: usize) -> [Ix; 3] {
        let group = Ix::dim(1, n);
        let head = if self.outer.len() == 3 {
            group.clone().times(Ix::number(self.per_group, n)).plus(Ix::dim(2, n))
        } else {
            group.clone()
        };
        [Ix::dim(0, n), head, group]
    }
    fn sizes(&self, inner: &[Size]) -> Vec<Size> {
        [&self.outer, inner].concat()
    }
}

/// Lowers an attention. Returns pairs of the prim value and its tensor, where the prim value is the
/// result or the transpose folded into its store; a second pair is the log-sum-exp, if it is read.
pub fn attention(k: &Kernel, op: Op) -> Result<Vec<(Value, Value)>> {
    let o = Attention::of(op).ok_or_malformed(op)?;
    let heads = Heads::of(k, &o)?;
    let (q, ks, v) = (k.sizes_of(o.query)?, k.sizes_of(o.key)?, k.sizes_of(o.value)?);
    let (d, outer) = (wide(dtype(o.query)?), heads.outer.len());
    let loops = outer + 2;
    let id: Vec<Ix> = (0..loops).map(|i| Ix::dim(i, loops)).collect();
    let row: Vec<usize> = (0..=outer).collect();
    // A tensor of the new function maps to itself, so that stages can read it.
    let named = |t: Vec<Value>| -> Result<Value> {
        let t = *t.first().ok_or("makes no tensor")?;
        k.keep(t, t);
        Ok(t)
    };
    let generic = |nest: Nest| k.generic(nest).and_then(named);
    let spread = heads.sizes(&[q[2], ks[2]]);
    let reduction: Vec<bool> = (0..loops).map(|i| i + 1 == loops).collect();

    let n = loops + 1;
    let [b, head, group] = heads.at(n);
    let (query, key) = (
        vec![b.clone(), head, Ix::dim(outer, n), Ix::dim(n - 1, n)],
        vec![b, group, Ix::dim(outer + 1, n), Ix::dim(n - 1, n)],
    );
    let product = Contraction {
        sizes: heads.sizes(&[q[2], ks[2], q[3]]),
        parallel: loops,
        order: (0..loops).collect(),
        lhs: query,
        rhs: key,
    };
    let scores = contract(k, o.query, o.key, d, &product).and_then(named)?;

    let [b, head, _] = heads.at(loops);
    let place = [b, head, Ix::dim(outer, loops), Ix::dim(outer + 1, loops)];
    let bias = o.bias.map(|v| (v, broadcast(v, &place, &[q[0], q[1], q[2], ks[2]], loops)));
    let regions = Regions::of(k, op);
    let lengths =
        [(o.query_lengths, outer), (o.key_lengths, outer + 1)].map(|(v, at)| v.map(|v| (v, at)));
    let lengths: Vec<(Value, usize)> = lengths.into_iter().flatten().collect();
    let first = [place[0].clone()];
    let factor = o
        .scale
        .unwrap_or(1.0 / (q[3].known().ok_or("has a head size that is not known")? as f64).sqrt());
    let seen = generic(Nest {
        reduction: vec![false; loops],
        sizes: spread.clone(),
        outs: vec![(k.empty(d, &spread)?, (0..loops).collect())],
        reads: [Some((scores, id.clone())), bias.clone()]
            .into_iter()
            .flatten()
            .chain(regions.reads())
            .chain(lengths.iter().map(|(v, _)| (*v, first.to_vec())))
            .collect(),
        body: &mut |body, _| {
            let s = body.element(scores, &id)?;
            let mut s = body.s.binary(BinaryKind::Mul, s, body.s.float(factor, s)?, d)?;
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
                let at = body.s.op("arith.index_cast", &[at], n.ty())?;
                let counts = body.s.cmpi(2, at, n)?;
                s = body.s.select(counts, s, body.s.float(f64::NEG_INFINITY, s)?)?;
            }
            if o.causal {
                let (q, key) = (body.dim(outer)?, body.dim(outer + 1)?);
                let before = body.s.cmpi(3, key, q)?;
                s = body.s.select(before, s, body.s.float(f64::NEG_INFINITY, s)?)?;
            }
            Ok(vec![s])
        },
    })?;
    if let Some(op) = seen.def().filter(|_| o.causal) {
        op.set_attr(CAUSAL, Attr::unit(k.b.ctx));
    }

    let rows = heads.sizes(&[q[2]]);
    let max = generic(Nest {
        reduction: reduction.clone(),
        sizes: spread.clone(),
        outs: vec![(k.filled(d, &rows, f64::NEG_INFINITY)?, row.clone())],
        reads: vec![(seen, id.clone())],
        body: &mut |body, acc| {
            let x = body.element(seen, &id)?;
            Ok(vec![body.s.combine(ReduceKind::Max, acc[0], x, d)?])
        },
    })?;
    let weights = generic(Nest {
        reduction: vec![false; loops],
        sizes: spread.clone(),
        outs: vec![(k.empty(d, &spread)?, (0..loops).collect())],
        reads: vec![(seen, id.clone()), (max, id[..=outer].to_vec())],
        body: &mut |body, _| {
            let (x, m) = (body.element(seen, &id)?, body.element(max, &id[..=outer])?);
            // A fully masked row has all weights 0.
            let m = or_if_none(body, m, m, 0.0, d)?;
            let x = body.s.binary(BinaryKind::Sub, x, m, d)?;
            Ok(vec![body.s.unary(UnaryKind::Exp, x, d)?])
        },
    })?;
    let sum = generic(Nest {
        reduction,
        sizes: spread,
        outs: vec![(k.filled(d, &rows, 0.0)?, row.clone())],
        reads: vec![(weights, id.clone())],
        body: &mut |body, acc| {
            let x = body.element(weights, &id)?;
            Ok(vec![body.s.combine(ReduceKind::Sum, acc[0], x, d)?])
        },
    })?;

    let [b, _, group] = heads.at(n);
    let mut weight: Vec<Ix> = (0..=outer).map(|i| Ix::dim(i, n)).collect();
    weight.push(Ix::dim(n - 1, n));
    let value = vec![b, group, Ix::dim(n - 1, n), Ix::dim(outer + 1, n)];
    let product = Contraction {
        sizes: heads.sizes(&[q[2], v[3], ks[2]]),
        parallel: loops,
        order: (0..loops).collect(),
        lhs: weight,
        rhs: value,
    };
    let total = contract(k, weights, o.value, d, &product).and_then(named)?;

    let sizes = heads.sizes(&[q[2], v[3]]);
    let (value, order) = layout(op, outer)?;
    let out =
        k.empty(storage(dtype(o.query)?), &order.iter().map(|i| sizes[*i]).collect::<Vec<_>>())?;
    let result = generic(Nest {
        reduction: vec![false; loops],
        sizes,
        outs: vec![(out, order.clone())],
        reads: vec![
            (total, id.clone()),
            (sum, id[..=outer].to_vec()),
            (max, id[..=outer].to_vec()),
        ],
        body: &mut |body, _| {
            let (x, m) = (body.element(total, &id)?, body.element(max, &id[..=outer])?);
            let sum = body.element(sum, &id[..=outer])?;
            let sum = or_if_none(body, m, sum, 1.0, d)?;
            // One division per row.
            let one = body.s.float(1.0, sum)?;
            let share = body.s.binary(BinaryKind::Div, one, sum, d)?;
            let x = body.s.binary(BinaryKind::Mul, x, share, d)?;
            // A query beyond its length gives 0 whatever its keys have, infinities as well.
            Ok(vec![if o.query_lengths.is_some() { or_if_none(body, m, x, 0.0, d)? } else { x }])
        },
    })?;
    let mut made = vec![(value, joined(k, result, &order, outer)?)];
    if let Some(value) = op.results().get(1).copied().filter(|v| !v.uses().is_empty()) {
        let id: Vec<Ix> = row.iter().map(|i| Ix::dim(*i, row.len())).collect();
        let lse = generic(Nest {
            reduction: vec![false; row.len()],
            sizes: rows.clone(),
            outs: vec![(k.empty(d, &rows)?, row.clone())],
            reads: vec![(sum, id.clone()), (max, id.clone())],
            body: &mut |body, _| {
                let (sum, m) = (body.element(sum, &id)?, body.element(max, &id)?);
                // For a fully masked row, both terms are -inf.
                let log = body.s.unary(UnaryKind::Log, sum, d)?;
                Ok(vec![body.s.binary(BinaryKind::Add, m, log, d)?])
            },
        })?;
        made.push((value, joined(k, lse, &row, outer)?));
    }
    Ok(made)
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
            k.given.borrow_mut().extend(block.args());
            Some((block, block.terminator()?.operands().first().copied()?))
        };
        Regions { score: one(0), mask: one(1) }
    }
    /// The 0-d values that the regions yield.
    fn reads(&self) -> impl Iterator<Item = (Value, Vec<Ix>)> {
        [self.score, self.mask].into_iter().flatten().map(|(_, v)| (v, vec![]))
    }
    fn score(&self, body: &mut Body, s: Value, place: &[Ix; 4]) -> Result<Option<Value>> {
        let Some((block, v)) = self.score else { return Ok(None) };
        body.give(*block.args().first().ok_or("has a score without arguments")?, s);
        give_positions(body, block, 1, place)?;
        body.element(v, &[]).map(Some)
    }
    fn mask(&self, body: &mut Body, place: &[Ix; 4]) -> Result<Option<Value>> {
        let Some((block, v)) = self.mask else { return Ok(None) };
        give_positions(body, block, 0, place)?;
        body.element(v, &[]).map(Some)
    }
}

/// Binds a region's index arguments, which are i64.
fn give_positions(body: &mut Body, block: Block, first: usize, place: &[Ix; 4]) -> Result<()> {
    for (arg, at) in
        block.args().into_iter().skip(first).zip(place).filter(|(a, _)| !a.uses().is_empty())
    {
        let index = body.index(at)?;
        let wide =
            body.s.op("arith.index_cast", &[index], Type::scalar(body.s.b.ctx, DType::I64))?;
        body.give(arg, wide);
    }
    Ok(())
}

/// `x`, or `number` if the row's maximum is -inf (a fully masked row).
fn or_if_none(body: &mut Body, max: Value, x: Value, number: f64, d: DType) -> Result<Value> {
    let low = body.s.float(f64::NEG_INFINITY, max)?;
    let none = body.s.compare(CompareKind::Eq, max, low, d)?;
    let number = body.s.float(number, x)?;
    body.s.select(none, number, x)
}

/// The index at which a bias of up to four dimensions is read, by right-aligned broadcasting.
fn broadcast(bias: Value, place: &[Ix; 4], to: &[Size; 4], loops: usize) -> Vec<Ix> {
    let dims = bias.ty().dims();
    let first = 4 - dims.len();
    let one = |i: usize| dims[i].known() == Some(1) && to[first + i].known() != Some(1);
    (0..dims.len())
        .map(|i| if one(i) { Ix::number(0, loops) } else { place[first + i].clone() })
        .collect()
}

/// The value to store, and the loops that index it in memory order.
fn layout(op: Op, outer: usize) -> Result<(Value, Vec<usize>)> {
    let moved = turned(op).and_then(|t| Some((t.result(0), Transpose::of(t)?.permutation)));
    let (value, permutation) = moved.unwrap_or((op.result(0), vec![0, 1, 2, 3]));
    // Heads are one loop, or two in grouped-query attention.
    let loops = [vec![0], (1..outer).collect(), vec![outer], vec![outer + 1]];
    let order = permutation
        .iter()
        .map(|p| loops.get(*p as usize).cloned().ok_or("has a transposition of other rank"));
    Ok((value, order.collect::<Result<Vec<_>, _>>()?.concat()))
}

/// Collapses the two head loops into one dimension.
fn joined(k: &Kernel, t: Value, order: &[usize], outer: usize) -> Result<Value> {
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
    let attrs = [("reassociation", Attr::array(c, &groups.iter().map(list).collect::<Vec<_>>()))];
    let ty = Type::tensor(c, t.ty().element().ok_or("is no tensor")?.dtype()?, &sizes);
    Ok(k.b.generic("tensor.collapse_shape", &[t], &[ty], &attrs, &mut [])?.result(0))
}
