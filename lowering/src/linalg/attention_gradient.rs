//! Derivatives of attention as `kiln.structured.attention_gradient`, so that neither weights nor
//! their gradients go through memory.
use crate::{
    analysis::index_expr::IndexExpr,
    linalg::{
        attention::{Heads, joined, layout},
        expr::dtype,
        kernel::{Kernel, Nest},
        scalar::storage,
    },
};
use kiln_dialects::{ir::*, ops::*};

/// Lowers the derivatives of an attention. Returns pairs of the prim value and its tensor, where
/// the prim value is a result or the transpose folded into its store.
pub fn attention_gradient(k: &Kernel, op: Op) -> Result<Vec<(Value, Value)>> {
    let o = AttentionGradient::of(op).ok_or_malformed(op)?;
    let heads = Heads::of(k, o.query, o.key)?;
    let (q, ks, v) = (k.sizes_of(o.query)?, k.sizes_of(o.key)?, k.sizes_of(o.value)?);
    let outer = heads.outer.len();
    let [b, head, group] = heads.at();
    let (stored, loops) = (storage(dtype(o.query)?), outer + 2);
    let (mut inits, mut of_results, mut stores) = (vec![], vec![], vec![]);
    for r in 0..op.result_count() {
        // Heads of the derivatives by keys are one loop, those of keys.
        let (heads_of, rows, columns) = match (o.by_keys, r) {
            (false, _) => (outer, q[2], q[3]),
            (true, 0) => (2, ks[2], q[3]),
            (true, _) => (2, ks[2], v[3]),
        };
        let (value, order) = layout(op, r, heads_of)?;
        let sizes = [&heads.outer[..heads_of], &[rows, columns]].concat();
        let sizes: Vec<Size> = order.iter().map(|i| sizes[*i]).collect();
        inits.push(k.empty(stored, &sizes)?);
        // Loops of the op: all outer ones, then rows and columns.
        let place = |i: &usize| if *i < heads_of { *i } else { outer + i - heads_of };
        let over: Vec<usize> = order.iter().map(place).collect();
        of_results.push(Attr::projection(k.b.ctx, loops, &over)?);
        stores.push((value, order, heads_of));
    }
    let dim = IndexExpr::dim;
    // The tensor and the map of an operand.
    let operand = |v: Value, inner: &[Size], at: Vec<IndexExpr>| -> Result<(Value, Attr)> {
        let loops = outer + inner.len();
        let all = k.operands(&Nest {
            reduction: vec![false; loops],
            sizes: heads.sizes(inner),
            outs: vec![(inits[0], (0..loops).collect())],
            reads: vec![(v, at)],
            body: &mut |_, _| Ok(vec![]),
        })?;
        let maps = all.maps.as_array().unwrap_or_default();
        match (&all.values[..], &maps[..]) {
            ([tensor, ..], [map, ..]) if !all.inputs.computed => Ok((*tensor, *map)),
            _ => Err("reads a value that is not in memory".into()),
        }
    };
    let (depth, column) = ([q[2], ks[2], q[3]], [q[2], ks[2], v[3]]);
    let of_query = |n: usize| vec![b.clone(), head.clone(), dim(outer), dim(n)];
    let of_key = |n: usize| vec![b.clone(), group.clone(), dim(outer + 1), dim(n)];
    let last = outer + 2;
    let row = || vec![b.clone(), head.clone(), dim(outer)];
    let reads = [
        operand(o.query, &depth, of_query(last))?,
        operand(o.key, &depth, of_key(last))?,
        operand(o.value, &column, of_key(last))?,
        operand(o.cotangent, &column, of_query(last))?,
        operand(o.lse, &[q[2]], row())?,
        operand(o.delta, &[q[2]], row())?,
    ];
    let maps: Vec<Attr> = reads.iter().map(|(_, map)| *map).chain(of_results).collect();
    let types: Vec<Type> = inits.iter().map(|v| v.ty()).collect();
    let scale = match (o.scale, q[3].known()) {
        (Some(scale), _) => scale,
        (None, Some(n)) => 1.0 / (n as f64).sqrt(),
        (None, None) => return Err("has a head size that is not known".into()),
    };
    let [query, key, value, cotangent, lse, delta] = reads.map(|(v, _)| v);
    let node = StructuredAttentionGradient {
        query,
        key,
        value,
        cotangent,
        lse,
        delta,
        inits,
        sizes: heads.sizes(&[q[2], ks[2], q[3], v[3]]),
        scale,
        causal: o.causal,
        indexing_maps: Attr::array(k.b.ctx, &maps),
    };
    let made = k.b.create_with(&node, &types, &mut [])?.results();
    let stored = stores.into_iter().zip(made);
    stored.map(|((value, order, outer), t)| Ok((value, joined(k, t, &order, outer)?))).collect()
}
