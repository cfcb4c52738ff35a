//! Finds the two products around a softmax, and decides whether they are an attention.
use crate::{
    decompose::attention::Form,
    raise_attention::{
        place::places,
        product::{Operand, Product},
        score::{Score, Term},
        search::{MAX_SPINE, Search, keeps_rows},
        softmax::Softmax,
    },
    refine_shapes::Facts,
    simplify::splats::{is_number, scalar_of},
};
use kiln_dialects::{ir::*, ops::*, rules::tensor_type, sym::Dim, value::DType};
use std::collections::HashSet;

/// A softmax whose input is computed from a product, and whose result another product reads.
pub(super) struct Candidate {
    softmax: Softmax,
    scores: Product,
    /// Values from the scores to the softmax, in order of discovery.
    spine: HashSet<Value>,
    /// Ops from the softmax to the second product.
    after: Vec<Op>,
    pub(super) values: Product,
    /// Why it is no attention, as far as that is known.
    why: Option<&'static str>,
}

/// Which dimensions of a tensor are batch and heads, and heads of keys.
pub(super) struct Shape {
    pub(super) of: Value,
    pub(super) batch: Vec<usize>,
    pub(super) heads: Vec<usize>,
    pub(super) groups: Vec<usize>,
}

impl Shape {
    /// Batch and heads.
    pub(super) fn lead(&self, facts: &Facts) -> [Dim; 2] {
        [self.product(facts, &self.batch), self.product(facts, &self.heads)]
    }
    /// Heads of keys and values.
    fn key_heads(&self, facts: &Facts) -> Dim {
        self.product(facts, &self.groups)
    }
    fn product(&self, facts: &Facts, axes: &[usize]) -> Dim {
        let dims = facts.dims(self.of);
        axes.iter().fold(Dim::Known(1), |n, i| n.mul(&dims[*i]))
    }
}

/// A size of the result: a number, or that of a tensor's dimension.
pub(super) type ResultSize = (Option<i64>, Option<(Value, usize)>);

/// An attention to build.
pub(super) struct Plan {
    pub(super) query: Operand,
    pub(super) key: Operand,
    pub(super) value: Operand,
    pub(super) shape: Shape,
    pub(super) scale: f64,
    /// Whether fully masked rows are 0.
    pub(super) safe: bool,
    pub(super) terms: Vec<(Term, DType)>,
    /// The dtype of scores.
    pub(super) dtype: DType,
    pub(super) values: Product,
    /// Sizes of the second product.
    pub(super) result: Vec<ResultSize>,
    /// The ops that the attention replaces.
    pub(super) ops: HashSet<Op>,
}

impl Candidate {
    pub(super) fn of(facts: &Facts, softmax: Softmax) -> Option<Candidate> {
        let (scores, spine) = Search::from(facts, softmax.input)?;
        let (mut after, mut why, mut v) = (vec![], None, softmax.result);
        let values = loop {
            let uses = v.uses();
            let next = uses.iter().find_map(|(op, i)| match op.kind()? {
                OpKind::Matmul | OpKind::DotGeneral => (*i == 0).then_some(*op),
                OpKind::Convert | OpKind::Reshape | OpKind::Dropout => Some(*op),
                _ => None,
            })?;
            if uses.len() > 1 {
                why = Some("its weights have another reader");
            }
            if let Some(p) = Product::of(next) {
                break p;
            }
            if next.kind() == Some(OpKind::Dropout) {
                why = why.or(Some("its weights have dropout"));
            } else if next.kind() == Some(OpKind::Reshape) && !keeps_rows(facts, next) {
                why = why.or(Some("its weights are moved before the second product"));
            }
            after.push(next);
            v = next.result(0);
            if after.len() > MAX_SPINE {
                return None;
            }
        };
        Some(Candidate { softmax, scores, spine, after, values, why })
    }

    /// What to build. Err: why it is no attention that a kernel computes.
    pub(super) fn plan(
        self,
        facts: &Facts,
        chip: &str,
        max_ops: usize,
    ) -> Result<Plan, &'static str> {
        if let Some(why) = self.why {
            return Err(why);
        }
        let mut ops: HashSet<Op> = self.spine.iter().filter_map(|v| v.def()).collect();
        ops.extend(self.softmax.ops.iter().chain(&self.after).copied());
        let read_by = |op: &Op| op.results().iter().flat_map(|v| v.uses()).collect::<Vec<_>>();
        ops.insert(self.values.op);
        if ops.iter().any(|op| op.block() != self.values.op.block()) {
            return Err("a part of it is in another block");
        }
        let others = |op: &&Op| **op != self.values.op;
        if ops.iter().filter(others).any(|op| read_by(op).iter().any(|(o, _)| !ops.contains(o))) {
            return Err("its scores or weights have another reader");
        }
        let (query, key) = (self.scores.lhs.clone(), self.scores.rhs.clone());
        let value = self.values.rhs.clone().swapped();
        let weights = &self.values.lhs.dims;
        if !weights.iter().copied().eq((0..weights.len()).map(Some)) {
            return Err("its weights are transposed before the second product");
        }
        let (query, key) = (extended(query), extended(key));
        let own = dtype(query.value)?;
        let same = [key.value, value.value, self.values.op.result(0)];
        if same.iter().any(|v| dtype(*v) != Ok(own)) || !own.is_float() {
            return Err("query, key, value and result are of several dtypes");
        }
        let wide = if own == DType::F64 { DType::F64 } else { DType::F32 };
        let shape = self.shape(facts, &query, &key, &value)?;
        let (lead, groups) = (shape.lead(facts), shape.key_heads(facts));
        let lifted = |o: Operand, heads: &Dim| {
            let own = [lead[0].clone(), heads.clone()];
            o.with_heads(facts).filter(|w| w.lead(facts) == own).unwrap_or(o)
        };
        let query = lifted(query, &lead[1]);
        let (key, value) = (lifted(key, &groups), lifted(value, &groups));
        let form = Form {
            dtype: own,
            depth: query.size(facts, query.rank() + 1).known(),
            columns: value.size(facts, value.rank() + 1).known(),
            queries: query.size(facts, query.rank()).known(),
            keys: key.size(facts, key.rank()).known(),
            heads: lead[1].known(),
            grouped: lead[1] != groups,
            groups: groups.known(),
        };
        if let Some(why) = form.unsupported(chip).or_else(|| form.unprofitable(chip)) {
            return Err(why);
        }
        let (scaled, scale) = self.scale(facts);
        let mut score = Score::new(facts, &self.spine, scaled, wide, max_ops);
        let at = places(facts.dims(self.softmax.input))?;
        let last = score.element(self.softmax.input, &at)?;
        let mut terms = score.terms;
        terms.truncate(last + 1);
        if terms[last].1 != wide {
            return Err("its scores are wider than its accumulator");
        }
        let sources = [&query, &key, &value];
        let dims = facts.dims(self.values.op.result(0));
        let result = dims.iter().map(|d| {
            let of = sources.iter().find_map(|o| {
                let axis = facts.dims(o.value).iter().position(|own| own == d)?;
                Some((o.value, axis))
            });
            (d.known().is_some() || of.is_some()).then_some((d.known(), of))
        });
        let result = result.collect::<Option<_>>().ok_or("its sizes are unknown")?;
        let (safe, values) = (self.softmax.safe, self.values);
        Ok(Plan { query, key, value, shape, scale, safe, terms, dtype: wide, values, result, ops })
    }

    /// Batch and heads, as one of the operands has them.
    fn shape(
        &self,
        facts: &Facts,
        query: &Operand,
        key: &Operand,
        value: &Operand,
    ) -> Result<Shape, &'static str> {
        let lead = self.scores.lead(facts);
        let n = lead.len();
        if query.lead(facts) != lead {
            return Err("its queries are broadcast");
        }
        let axes = |o: &Operand, range: std::ops::Range<usize>| {
            o.dims[range].iter().flatten().copied().collect::<Vec<_>>()
        };
        let of = query.value;
        let total = |dims: Vec<Dim>| dims.iter().fold(Dim::Known(1), |n, d| n.mul(d));
        if total(value.lead(facts)) == total(lead.clone()) && key.lead(facts) == lead {
            let options = [query, key, value].into_iter();
            let options = options.flat_map(|o| [o.with_heads(facts), Some(o.clone())]);
            let two =
                options.flatten().find(|o| o.rank() == 2 && o.dims.iter().all(|d| d.is_some()));
            if let Some(o) = two {
                let heads = axes(&o, 1..2);
                return Ok(Shape {
                    of: o.value,
                    batch: axes(&o, 0..1),
                    groups: heads.clone(),
                    heads,
                });
            }
            let (batch, heads) = match n {
                0 | 1 => (axes(query, 0..n), vec![]),
                n => (axes(query, 0..n - 1), axes(query, n - 1..n)),
            };
            return Ok(Shape { of, batch, groups: heads.clone(), heads });
        }
        // Keys and values that heads share.
        let shared = |o: &Operand| {
            let own = o.lead(facts);
            own.len() == n && own[n - 1].known() == Some(1) && own[..n - 1] == lead[..n - 1]
        };
        if n < 2 || self.values.lead(facts) != lead || !shared(key) || !shared(value) {
            return Err("its keys or values are broadcast");
        }
        let outer = if n > 2 { n - 2 } else { 1 };
        let groups = axes(query, outer..n - 1);
        Ok(Shape { of, batch: axes(query, 0..outer), heads: axes(query, outer..n), groups })
    }

    /// The value that is the scaled product, and its scale.
    fn scale(&self, facts: &Facts) -> (Value, f64) {
        let (mut v, mut scale) = (self.scores.op.result(0), 1.0);
        while let [(op, _)] = v.uses()[..] {
            let number = |v: Value| {
                scalar_of(v).and_then(Attr::as_f64).filter(|x| *x > 0.0 && x.is_finite())
            };
            let factor = match op.kind() {
                Some(OpKind::Convert) => Some(1.0),
                Some(OpKind::Reshape) if keeps_rows(facts, op) => Some(1.0),
                Some(OpKind::Mul) => number(op.operand(0)).or_else(|| number(op.operand(1))),
                Some(OpKind::Add) => {
                    op.operands().iter().any(|v| is_number(*v, 0.0)).then_some(1.0)
                }
                Some(OpKind::Div) if op.operand(0) == v => number(op.operand(1)).map(|x| 1.0 / x),
                _ => None,
            };
            let next = op.results().first().copied().filter(|v| self.spine.contains(v));
            let (Some(factor), Some(next)) = (factor, next) else { break };
            (v, scale) = (next, scale * factor);
        }
        (v, scale)
    }
}

/// An operand before it was extended to f32, which changes no product.
fn extended(o: Operand) -> Operand {
    let narrow = |v: Value| matches!(dtype(v), Ok(DType::BF16 | DType::F16));
    let from = o.value.def().and_then(Convert::of).map(|c| c.input);
    match from.filter(|v| narrow(*v) && dtype(o.value) == Ok(DType::F32)) {
        Some(value) => Operand { value, ..o },
        None => o,
    }
}

fn dtype(v: Value) -> Result<DType, &'static str> {
    tensor_type(v.ty()).map(|t| t.dtype).map_err(|_| "is no tensor")
}
