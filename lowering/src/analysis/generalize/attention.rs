//! `kiln.structured.attention` as seven generics over the same outer loops: scores, masked scores,
//! row maximum, exponentials (unnormalised weights), their row sum, the weighted sum of values, and
//! the quotient of the two sums. The log-sum-exp is an eighth.
use crate::analysis::{
    generalize::{Body, Generic, contract::accumulate, region_of},
    structure::{Contraction, Structure},
};
use kiln_dialects::{ir::*, ops::StructuredAttention, sym::Dim, value::DType};
use std::collections::HashMap;

/// The loop nests of an attention, and what its op says about them.
#[derive(Clone, Debug)]
pub struct AttentionNests {
    /// In this order: scores, masked scores, maximum, weights, sum, product, result, and the
    /// log-sum-exp, if it is a result.
    pub ops: Vec<Op>,
    /// The number of outer loops.
    pub outer: usize,
    /// Whether the masked scores of keys beyond the query are -inf.
    pub causal: bool,
    /// The score without its limits, a value of the masked scores' body.
    pub unlimited: Value,
    /// The lengths of queries and keys, values of that body.
    pub lengths: [Option<Value>; 2],
}

/// The sizes of an attention's loops.
pub(super) struct AttentionLoops {
    pub(super) b: Builder,
    pub(super) outer: usize,
    pub(super) sizes: Vec<Size>,
    /// The type of a score.
    pub(super) score: Type,
}

impl AttentionLoops {
    /// The loop over queries; the one over keys or columns follows it.
    fn query(&self) -> usize {
        self.outer
    }
    /// The number of loops over outer dimensions, queries and one more dimension.
    fn all(&self) -> usize {
        self.outer + 2
    }
    /// The sizes of outer dimensions and queries, and of these of keys (1), depth (2), columns (3).
    pub(super) fn over(&self, inner: &[usize]) -> Vec<Size> {
        let more = inner.iter().map(|i| self.sizes[self.outer + i]);
        self.sizes[..=self.outer].iter().copied().chain(more).collect()
    }
    /// An empty tensor of these sizes.
    pub(super) fn empty(&self, sizes: &[Size]) -> Result<Value> {
        let dims: Vec<Dim> =
            sizes.iter().map(|s| s.known().map_or(Dim::Unknown, Dim::Known)).collect();
        let dynamic: Vec<Value> = sizes
            .iter()
            .filter_map(|s| if let Size::Dynamic(v) = s { Some(*v) } else { None })
            .collect();
        let ty = Type::tensor(self.b.ctx, self.score.dtype()?, &dims);
        Ok(self.b.generic(tensor::Empty::NAME, &dynamic, &[ty], &[], &mut [])?.result(0))
    }
    /// A tensor of these sizes, filled with a number.
    pub(super) fn filled(&self, sizes: &[Size], number: f64) -> Result<Value> {
        let out = self.empty(sizes)?;
        let value = Attr::scalar(self.b.ctx, self.score.dtype()?, number);
        let attrs = [("value", value)];
        let scalar = self.b.generic(arith::Constant::NAME, &[], &[self.score], &attrs, &mut [])?;
        let mut body = |b: Builder, args: Vec<Value>| {
            b.generic(linalg::Yield::NAME, &[args[0]], &[], &[], &mut []).map(drop)
        };
        let attrs = [("operandSegmentSizes", Attr::i32s(self.b.ctx, &[1, 1]))];
        let types = [self.score; 2];
        let operands = [scalar.result(0), out];

        Ok(self
            .b
            .generic(
                linalg::Fill::NAME,
                &operands,
                &[out.ty()],
                &attrs,
                &mut [(&types, &mut body)],
            )?
            .result(0))
    }
    /// A map from `loops` loops to these of them.
    fn map(&self, loops: usize, over: &[usize]) -> Result<Attr> {
        let list = |dims: &mut dyn Iterator<Item = usize>| {
            dims.map(|d| format!("d{d}")).collect::<Vec<_>>().join(", ")
        };
        let (from, to) = (list(&mut (0..loops)), list(&mut over.iter().copied()));
        let text = format!("affine_map<({from}) -> ({to})>");
        Ok(Attr::parse(self.b.ctx, &text).ok_or_else(|| format!("made a bad map {text}"))?)
    }
    /// A nest over outer dimensions, queries and one more; each tensor has either all of these
    /// loops or those of a row.
    fn nest(
        &self,
        ins: &[(Value, bool)],
        out: (Value, Attr),
        reduces: bool,
        fill: &mut dyn FnMut(&mut Body) -> Result<Value>,
    ) -> Result<Op> {
        let n = self.all();
        let all: Vec<usize> = (0..n).collect();
        let mut maps = vec![];
        for (_, whole) in ins {
            maps.push(self.map(n, &all[..if *whole { n } else { n - 1 }])?);
        }
        maps.push(out.1);
        let reduction: Vec<bool> = all.iter().map(|d| reduces && d + 1 == n).collect();
        let ins: Vec<Value> = ins.iter().map(|(v, _)| *v).collect();
        let generic = Generic { b: self.b, ins: &ins, outs: &[out.0], maps, reduction: &reduction };
        generic.build(&mut |body| Ok(vec![fill(body)?]))
    }
}

impl Body {
    pub(super) fn float(&self, number: f64, ty: Type) -> Result<Value> {
        let attrs = [("value", Attr::scalar(self.b.ctx, ty.dtype()?, number))];
        Ok(self.b.generic(arith::Constant::NAME, &[], &[ty], &attrs, &mut [])?.result(0))
    }
    pub(super) fn same(&self, name: &str, operands: &[Value]) -> Result<Value> {
        self.op(name, operands, operands[0].ty())
    }
    /// `x`, or `number` if the row's maximum is -inf (a fully masked row).
    pub(super) fn or_if_none(&self, max: Value, x: Value, number: f64) -> Result<Value> {
        let low = self.float(f64::NEG_INFINITY, max.ty())?;
        // oeq
        let attrs = [("predicate", Attr::i64(self.b.ctx, 1))];
        let i1 = Type::scalar(self.b.ctx, DType::I1);
        let none =
            self.b.generic(arith::CmpF::NAME, &[max, low], &[i1], &attrs, &mut [])?.result(0);
        let number = self.float(number, x.ty())?;
        self.op(arith::Select::NAME, &[none, number, x], x.ty())
    }
}

/// Writes the generics before the op; returns them with what they are.
pub fn attention(op: Op) -> Result<(AttentionNests, HashMap<Op, Structure>)> {
    let o = StructuredAttention::of(op).ok_or_malformed(op)?;
    let b = Builder::before(op).ok_or("is in no block")?;
    let outer = o.sizes.len().checked_sub(4).ok_or("has fewer than four loops")?;
    let [factors, score, weighted] = [region_of(op, 0)?, region_of(op, 1)?, region_of(op, 2)?];
    let ty = score.args().first().ok_or("has a score without arguments")?.ty();
    let l = AttentionLoops { b, outer, sizes: o.sizes.clone(), score: ty };
    let mut maps = o.indexing_maps.as_array().ok_or("has no indexing maps")?.into_iter();
    let mut take = |n: usize| maps.by_ref().take(n).collect::<Vec<Attr>>();
    let (of_inputs, of_modifiers, of_values) =
        (take(o.inputs.len()), take(o.modifiers.len()), take(o.values.len()));
    let of_results = take(2);
    let (loops, n) = (l.all(), l.all() + 1);
    let id: Vec<usize> = (0..loops).collect();
    let whole = || l.map(loops, &id);
    let row = || l.map(loops, &id[..=l.query()]);
    let last: Vec<bool> = (0..n).map(|d| d + 1 == n).collect();
    let spread = l.over(&[1]);
    let rows = l.over(&[]);
    let mut structures = HashMap::new();

    let out = l.filled(&spread, 0.0)?;
    let maps = [of_inputs, vec![l.map(n, &id)?]].concat();
    let generic = Generic { b, ins: &o.inputs, outs: &[out], maps, reduction: &last };
    let mut found = None;
    let scores = generic.build(&mut |body| {
        let given = body.ins().to_vec();
        let own = body.inline(factors, &given, &|d| d)?;
        let [x, y] = own[..] else { return Err("yields no two factors".into()) };
        found = Some([x, y]);
        Ok(vec![accumulate(body, [x, y], ty)?])
    })?;
    let contraction = Contraction::new(found.ok_or("yields no factors")?, ty)?;
    structures.insert(scores, Structure::Contraction(contraction));

    let out = l.empty(&spread)?;
    let ins = [vec![scores.result(0)], o.modifiers.clone()].concat();
    let maps = [vec![whole()?], of_modifiers, vec![whole()?]].concat();
    let generic = Generic { b, ins: &ins, outs: &[out], maps, reduction: &vec![false; loops] };
    let mut stated = vec![];
    let seen = generic.build(&mut |body| {
        let given = body.ins().to_vec();
        stated = body.inline(score, &given, &|d| d)?;
        Ok(vec![*stated.first().ok_or("yields no score")?])
    })?;
    let [_, unlimited, given @ ..] = &stated[..] else {
        return Err("yields no score without limits".into());
    };
    let mut lengths = [None; 2];
    for (axis, v) in o.lengths.iter().zip(given) {
        *lengths.get_mut(*axis as usize).ok_or("has a length of no axis")? = Some(*v);
    }
    let of_seen = (seen.result(0), true);

    let out = (l.filled(&rows, f64::NEG_INFINITY)?, row()?);
    let max = l.nest(&[of_seen], out, true, &mut |body| {
        body.same(arith::MaximumF::NAME, &[body.outs()[0], body.ins()[0]])
    })?;
    let of_max = (max.result(0), false);
    let out = (l.empty(&spread)?, whole()?);
    let weights = l.nest(&[of_seen, of_max], out, false, &mut |body| {
        let [x, m] = [body.ins()[0], body.ins()[1]];
        // A fully masked row has all weights 0.
        let m = body.or_if_none(m, m, 0.0)?;
        let x = body.same(arith::SubF::NAME, &[x, m])?;
        body.same(math::Exp::NAME, &[x])
    })?;
    let out = (l.filled(&rows, 0.0)?, row()?);
    let sum = l.nest(&[(weights.result(0), true)], out, true, &mut |body| {
        body.same(arith::AddF::NAME, &[body.outs()[0], body.ins()[0]])
    })?;

    let columns = l.over(&[3]);
    let out = l.filled(&columns, 0.0)?;
    let ins = [vec![weights.result(0)], o.values.clone()].concat();
    let weight: Vec<usize> = (0..=l.query()).chain([n - 1]).collect();
    let maps = [vec![l.map(n, &weight)?], of_values, vec![l.map(n, &id)?]].concat();
    let generic = Generic { b, ins: &ins, outs: &[out], maps, reduction: &last };
    let mut found = None;
    let product = generic.build(&mut |body| {
        let (weight, given) = (body.ins()[0], body.ins()[1..].to_vec());
        let own = body.inline(weighted, &given, &|d| d)?;
        let value = *own.first().ok_or("yields no factor")?;
        found = Some([weight, value]);
        Ok(vec![accumulate(body, [weight, value], ty)?])
    })?;
    let contraction = Contraction::new(found.ok_or("yields no factors")?, ty)?;
    structures.insert(product, Structure::Contraction(contraction));

    let [to, ..] = of_results[..] else { return Err("has no map of its result".into()) };
    let ins = [(product.result(0), true), (sum.result(0), false), of_max];
    let stored = o.init.ty().element().ok_or("is no tensor")?;
    let result = l.nest(&ins, (o.init, to), false, &mut |body| {
        let [x, sum, m] = [body.ins()[0], body.ins()[1], body.ins()[2]];
        // 0 / 0 is NaN.
        let sum = if o.unsafe_softmax { sum } else { body.or_if_none(m, sum, 1.0)? };
        // One division per row.
        let one = body.float(1.0, ty)?;
        let share = body.same(arith::DivF::NAME, &[one, sum])?;
        let mut x = body.same(arith::MulF::NAME, &[x, share])?;
        if o.clears {
            x = body.or_if_none(m, x, 0.0)?;
        }
        if stored == ty { Ok(x) } else { body.op(arith::TruncF::NAME, &[x], stored) }
    })?;
    let mut ops = vec![scores, seen, max, weights, sum, product, result];
    if let Some(init) = o.lse_init {
        let maps = vec![l.map(loops - 1, &id[..=l.query()])?; 3];
        let ins = [sum.result(0), max.result(0)];
        let reduction = vec![false; loops - 1];
        let generic = Generic { b, ins: &ins, outs: &[init], maps, reduction: &reduction };
        ops.push(generic.build(&mut |body| {
            let [sum, m] = [body.ins()[0], body.ins()[1]];
            // For a fully masked row, both terms are -inf.
            let log = body.same(math::Log::NAME, &[sum])?;
            Ok(vec![body.same(arith::AddF::NAME, &[m, log])?])
        })?);
    }
    let nests = AttentionNests { ops, outer, causal: o.causal, unlimited: *unlimited, lengths };
    Ok((nests, structures))
}
