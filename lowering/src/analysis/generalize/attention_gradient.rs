//! `kiln.structured.attention_gradient` as generics over the same outer loops: scores, weights,
//! products of cotangents and values, gradients of scores, and of each result a sum of products and
//! its scaled, rounded value.
use crate::analysis::{
    generalize::{Body, Generic, attention::AttentionLoops, contract::accumulate},
    structure::{Contraction, Structure},
};
use kiln_dialects::{ir::*, ops::StructuredAttentionGradient, value::DType};
use std::collections::HashMap;

/// The loop nests of attention's derivatives, and what their op says about them.
#[derive(Clone, Debug)]
pub struct AttentionGradientNests {
    /// In this order: scores, weights, products of cotangents and values, gradients of scores; then
    /// of each result the sum and the value.
    pub ops: Vec<Op>,
    /// The number of outer loops.
    pub outer: usize,
    /// Of these, the ones that results have.
    pub kept: Vec<usize>,
    /// Whether keys beyond the query have no weight.
    pub causal: bool,
    /// The factor of a score.
    pub scale: f64,
}

/// A map whose loops are renamed: `to[d]` stands for loop d. Without a place a loop is not used.
fn renamed(c: Ctx, map: Attr, loops: usize, to: &dyn Fn(usize) -> Option<usize>) -> Result<Attr> {
    let (_, results) = map.as_affine_map().ok_or("has no affine map")?;
    let place = |l: &MapInput| match l {
        MapInput::Dim(d) => to(*d).map(Affine::dim),
        MapInput::Symbol(_) => None,
    };
    let made: Option<Vec<Affine>> = results.iter().map(|e| e.substitute(&place)).collect();
    Attr::affine_map(c, loops, &made.ok_or("has a map of other loops")?)
}

/// The outer loops that a result has.
fn kept_loops(map: Attr, outer: usize) -> Result<Vec<usize>> {
    let (_, used) = map.as_affine_map().ok_or("has no affine map")?;
    Ok((0..outer).filter(|d| used.contains(&Affine::dim(*d))).collect())
}

/// What the generics are made of.
struct Nests<'a> {
    b: Builder,
    o: &'a StructuredAttentionGradient,
    l: AttentionLoops,
    maps: Vec<Attr>,
    outer: usize,
    structures: HashMap<Op, Structure>,
}

impl Nests<'_> {
    fn query(&self) -> usize {
        self.outer
    }
    fn key(&self) -> usize {
        self.outer + 1
    }
    fn map(&self, loops: usize, over: &[usize]) -> Result<Attr> {
        Attr::projection(self.b.ctx, loops, over)
    }
    /// A sum of products of elements of two operands over the loop `summed`, and over the others
    /// that do not index it. Outer loops are those of scores, which state their sizes.
    fn product(
        &mut self,
        operands: [(Value, Attr); 2],
        loops: usize,
        over: &[usize],
        sizes: &[Size],
        (summed, size): (usize, Size),
    ) -> Result<Op> {
        let out = self.l.filled(sizes, 0.0)?;
        let reduction: Vec<bool> = (0..loops).map(|d| !over.contains(&d)).collect();
        let (mut ins, mut maps) =
            (operands.map(|(v, _)| v).to_vec(), operands.map(|(_, m)| m).to_vec());
        let states =
            |m: &Attr| m.as_affine_map().is_some_and(|(_, r)| r.contains(&Affine::dim(summed)));
        if !maps.iter().any(states) {
            // An otherwise unused operand gives the trip count of a loop that no operand determines.
            ins.push(self.l.empty(&[size])?);
            maps.push(self.map(loops, &[summed])?);
        }
        maps.push(self.map(loops, over)?);
        let generic = Generic { b: self.b, ins: &ins, outs: &[out], maps, reduction: &reduction };
        let ty = self.l.score;
        let mut found = None;
        let made = generic.build(&mut |body| {
            let own = [body.ins()[0], body.ins()[1]];
            let wide = |v: Value| match v.ty() == ty {
                true => Ok(v),
                false => body.op(arith::ExtF::NAME, &[v], ty),
            };
            let factors = [wide(own[0])?, wide(own[1])?];
            found = Some(factors);
            Ok(vec![accumulate(body, factors, ty)?])
        })?;
        let contraction = Contraction::new(found.ok_or("has no factors")?, ty)?;
        self.structures.insert(made, Structure::Contraction(contraction));
        Ok(made)
    }
    /// A nest over outer dimensions, queries and keys.
    fn scores(
        &self,
        ins: &[(Value, Attr)],
        body: &mut dyn FnMut(&mut Body) -> Result<Value>,
    ) -> Result<Op> {
        let loops = self.outer + 2;
        let out = self.l.empty(&self.l.over(&[1]))?;
        let all: Vec<usize> = (0..loops).collect();
        let maps = ins.iter().map(|(_, m)| Ok(*m)).chain([self.map(loops, &all)]);
        let maps = maps.collect::<Result<Vec<_>>>()?;
        let ins: Vec<Value> = ins.iter().map(|(v, _)| *v).collect();
        let reduction = vec![false; loops];
        let generic = Generic { b: self.b, ins: &ins, outs: &[out], maps, reduction: &reduction };
        generic.build(&mut |b| Ok(vec![body(b)?]))
    }
    /// The `r`th result: the sum of products of weights, or gradients of scores, and another
    /// operand; then its value times `factor`.
    fn result(
        &mut self,
        r: usize,
        weights: Value,
        (other, map): (Value, Attr),
        inner: [usize; 3],
        factor: f64,
    ) -> Result<[Op; 2]> {
        let (outer, c) = (self.outer, self.b.ctx);
        let [row, across, last] = inner;
        let own = self.maps[6 + r];
        let kept = kept_loops(own, outer)?;
        // Loops: outer ones, rows of the result, its columns, what is summed.
        let (loops, at) = (outer + 3, [outer, outer + 1, outer + 2]);
        let place = |d: usize| match d {
            d if d < outer => Some(d),
            d if d == row => Some(at[0]),
            d if d == last => Some(at[1]),
            d if d == across => Some(at[2]),
            _ => None,
        };
        let scores: Vec<usize> =
            (0..outer).chain([self.query(), self.key()]).filter_map(place).collect();
        let weight = self.map(loops, &scores)?;
        // The last dimension of both operands of a product is its depth.
        let depth = outer + 2;
        let other_map =
            renamed(c, map, loops, &|d| if d == depth { Some(at[1]) } else { place(d) })?;
        let over: Vec<usize> = kept.iter().copied().chain([at[0], at[1]]).collect();
        let size = |d: usize| self.l.sizes[d];
        let column = if last == depth { outer + 2 } else { outer + 3 };
        let sizes: Vec<Size> =
            kept.iter().map(|d| size(*d)).chain([size(row), size(column)]).collect();
        let summed = (at[2], size(across));
        let operands = [(weights, weight), (other, other_map)];
        let sum = self.product(operands, loops, &over, &sizes, summed)?;

        let n = kept.len() + 2;
        let to = |d: usize| match d.checked_sub(outer) {
            Some(inner) => Some(kept.len() + inner),
            None => kept.iter().position(|k| *k == d),
        };
        let (init, ty) = (self.o.inits[r], self.l.score);
        let maps = vec![self.map(n, &(0..n).collect::<Vec<_>>())?, renamed(c, own, n, &to)?];
        let (ins, outs, reduction) = ([sum.result(0)], [init], vec![false; n]);
        let generic = Generic { b: self.b, ins: &ins, outs: &outs, maps, reduction: &reduction };
        let stored = init.ty().element().ok_or("is no tensor")?;
        let value = generic.build(&mut |body| {
            let mut x = body.ins()[0];
            if factor != 1.0 {
                let factor = body.float(factor, ty)?;
                x = body.same(arith::MulF::NAME, &[x, factor])?;
            }
            Ok(vec![if stored == ty { x } else { body.op(arith::TruncF::NAME, &[x], stored)? }])
        })?;
        Ok([sum, value])
    }
}

/// Writes the generics before the op; returns them with what they are.
pub fn attention_gradient(op: Op) -> Result<(AttentionGradientNests, HashMap<Op, Structure>)> {
    let o = StructuredAttentionGradient::of(op).ok_or_malformed(op)?;
    let b = Builder::before(op).ok_or("is in no block")?;
    let outer = o.sizes.len().checked_sub(4).ok_or("has fewer than four loops")?;
    let ty = o.lse.ty().element().ok_or("has a log-sum-exp that is no tensor")?;
    let maps = o.indexing_maps.as_array().ok_or("has no indexing maps")?;
    let l = AttentionLoops { b, outer, sizes: o.sizes.clone(), score: ty };
    let mut s = Nests { b, o: &o, l, maps, outer, structures: HashMap::new() };
    let [query, key, value, cotangent, lse, delta, ..] = s.maps[..] else {
        return Err("has too few indexing maps".into());
    };
    let (row, all) = (s.query(), outer + 2);
    let spread = s.l.over(&[1]);
    let whole: Vec<usize> = (0..all).collect();
    let summed = |inner: usize| -> Result<(usize, Size)> {
        let size = o.sizes.get(outer + inner).ok_or("has too few sizes")?;
        Ok((outer + 2, *size))
    };
    let operands = [(o.query, query), (o.key, key)];
    let scores = s.product(operands, outer + 3, &whole, &spread, summed(2)?)?;
    let id = s.map(all, &whole)?;
    let by_row = |map: Attr| renamed(b.ctx, map, all, &|d| Some(d));
    let ins = [(scores.result(0), id), (o.lse, by_row(lse)?)];
    let weights = s.scores(&ins, &mut |body| {
        let [x, lse] = [body.ins()[0], body.ins()[1]];
        let scale = body.float(o.scale, ty)?;
        let x = body.same(arith::MulF::NAME, &[x, scale])?;
        let x = body.same(arith::SubF::NAME, &[x, lse])?;
        let x = body.same(math::Exp::NAME, &[x])?;
        // A row that sees no key has no weights.
        let mut x = body.or_if_none(lse, x, 0.0)?;
        if o.causal {
            let (i, j) = (body.index(row)?, body.index(row + 1)?);
            let attrs = [("predicate", Attr::i64(body.b.ctx, CmpIPredicate::Sle as i64))];
            let i1 = Type::scalar(body.b.ctx, DType::I1);
            let seen = body.b.generic(arith::CmpI::NAME, &[j, i], &[i1], &attrs, &mut [])?;
            let zero = body.float(0.0, ty)?;
            x = body.op(arith::Select::NAME, &[seen.result(0), x, zero], ty)?;
        }
        Ok(x)
    })?;
    let operands = [(o.cotangent, cotangent), (o.value, value)];
    let by_weights = s.product(operands, outer + 3, &whole, &spread, summed(3)?)?;
    let ins = [(weights.result(0), id), (by_weights.result(0), id), (o.delta, by_row(delta)?)];
    let by_scores = s.scores(&ins, &mut |body| {
        let [w, x, delta] = [body.ins()[0], body.ins()[1], body.ins()[2]];
        let x = body.same(arith::SubF::NAME, &[x, delta])?;
        body.same(arith::MulF::NAME, &[w, x])
    })?;
    let mut ops = vec![scores, weights, by_weights, by_scores];
    let (w, g) = (weights.result(0), by_scores.result(0));
    let (query_loop, key_loop, depth) = (s.query(), s.key(), outer + 2);
    match o.inits.len() {
        1 => ops.extend(s.result(0, g, (o.key, key), [query_loop, key_loop, depth], o.scale)?),
        _ => {
            let inner = [key_loop, query_loop, depth];
            ops.extend(s.result(0, g, (o.query, query), inner, o.scale)?);
            ops.extend(s.result(
                1,
                w,
                (o.cotangent, cotangent),
                [key_loop, query_loop, depth + 1],
                1.0,
            )?);
        }
    }
    let kept = kept_loops(s.maps[6], outer)?;
    let (causal, scale) = (o.causal, o.scale);
    Ok((AttentionGradientNests { ops, outer, kept, causal, scale }, s.structures))
}
