//! `kiln-raise-attention`: recognises a softmax between two matrix products as `kiln.attention`.
//!
//! Why: models and users write attention out, with masks, soft caps and biases around the softmax.
//! Unfused, the scores go through memory several times. The ops between the first product and the
//! softmax become the region `score`; what else they read is captured by gathers. Upstream has no
//! such pass.
//!
//! It applies where the target has a kernel. Elsewhere the ops stay, and the second product says
//! why.
//!
//! Numerics: reassociates. Scores and weights are not rounded to 16 bits on their way, and the sum
//! is divided out last. Fully masked rows are NaN as before (`unsafe_softmax`).
//!
//! ```text
//! before:  %s = kiln.matmul %q, %kt   %c = kiln.tanh %s   %p = kiln.softmax %c axis = 2   %0 = kiln.matmul %p, %v
//! after:   %0 = kiln.attention %q, %k, %v unsafe_softmax score { … kiln.tanh … }
//! ```
mod masks;
mod matching;
mod place;
mod product;
mod region;
mod score;
mod search;
mod softmax;

use crate::{
    decompose::{NOT_FUSED, tools::Math},
    pass::{Numerics, Pass},
    refine_shapes::Facts,
};
use kiln_dialects::{
    ir::*,
    ops::*,
    rules::{GRAPH_LEVELS, Level},
    sym::Dim,
    value::DType,
};
use matching::{Candidate, Plan, ResultSize};
use product::Replaced;
use std::collections::HashSet;

crate::pass_options! {
    /// The pass.
    pub struct RaiseAttention {
        /// The GPU that is asked for a kernel, such as sm_90a; none: the host CPU
        pub chip: String = "none".into(),
        /// Most ops of a score function
        pub max_ops: usize = 96,
    }
}

impl Pass for RaiseAttention {
    const FLAG: &'static str = "kiln-raise-attention";
    const SUMMARY: &'static str =
        "Recognises a softmax between two matrix products as kiln.attention";
    const LEVELS: &'static [Level] = GRAPH_LEVELS;
    const NUMERICS: Numerics = Numerics::Reassociates;

    fn run(&self, root: Op) -> Result<()> {
        // Collected first: a lazy filter would visit erased ops.
        for func in functions_in(root) {
            let ops = walk(func);
            let found: Vec<_> = ops.iter().filter_map(|op| softmax::Softmax::of(*op)).collect();
            if found.is_empty() {
                continue;
            }
            let facts = Facts::of(func, 8)?;
            let mut plans = vec![];
            for c in found.into_iter().filter_map(|s| Candidate::of(&facts, s)) {
                let end = c.values.op;
                match c.plan(&facts, &self.chip, self.max_ops) {
                    Ok(plan) => plans.push(plan),
                    Err(why) => {
                        let why = format!("attention not fused: {why}");
                        end.set_attr(NOT_FUSED, Attr::string(end.ctx(), &why));
                    }
                }
            }
            let mut replaced = Replaced::default();
            for plan in &plans {
                let new = build(plan, &facts, &replaced).at(plan.values.op)?;
                let old = plan.values.op.result(0);
                old.replace_uses(new);
                replaced.0.insert(old, new);
            }
            // Dead ops would count as readers.
            let dead: HashSet<Op> = plans.iter().flat_map(|p| p.ops.iter().copied()).collect();
            for op in ops.into_iter().rev().filter(|op| dead.contains(op)) {
                if op.results().iter().all(|v| v.uses().is_empty()) {
                    op.erase();
                }
            }
        }
        Ok(())
    }
}

/// Builds the attention before the second product; returns what replaces the product's result.
fn build(plan: &Plan, facts: &Facts, replaced: &Replaced) -> Result<Value> {
    let end = plan.values.op;
    let b = Builder::before(end).ok_or("is in no block")?;
    let m = Math { b: &b };
    let sizes = |axes: &[usize]| -> Result<(Dim, Size)> {
        let dims = facts.dims(plan.shape.of);
        let all = axes.iter().map(|i| m.size_of(replaced.get(plan.shape.of), *i));
        let all = all.collect::<Result<Vec<_>>>()?;
        Ok((axes.iter().fold(Dim::Known(1), |n, i| n.mul(&dims[*i])), m.product(&all)?))
    };
    let batch = sizes(&plan.shape.batch)?;
    let (heads, groups) = (sizes(&plan.shape.heads)?, sizes(&plan.shape.groups)?);
    let operand = |o: &product::Operand, heads: &(Dim, Size)| {
        o.build(&m, facts, replaced, [(&batch.0, batch.1), (&heads.0, heads.1)])
    };
    let node = Attention {
        query: operand(&plan.query, &heads)?,
        key: operand(&plan.key, &groups)?,
        value: operand(&plan.value, &groups)?,
        bias: None,
        query_lengths: None,
        key_lengths: None,
        dropout_key: None,
        scale: Some(plan.scale),
        causal: false,
        dropout_p: 0.0,
        with_lse: false,
        unsafe_softmax: !plan.safe,
    };
    let terms = &plan.terms;
    let captured = region::captured(&m, terms, replaced)?;
    let mut args = vec![Type::tensor(b.ctx, plan.dtype, &[])];
    args.extend([Type::tensor(b.ctx, DType::I64, &[]); 4]);
    let known = [batch.0.known(), heads.0.known()];
    let mut score = |b: Builder, args: Vec<Value>| {
        let (score, at) = args.split_first().ok_or("has no score")?;
        let position = place::Position { args: at, sizes: known };
        region::fill(&Math { b: &b }, terms, &captured, *score, &position)
    };
    let region: RegionBody<'_> = (&args, &mut score);
    let plain = matches!(terms.last(), Some((score::Term::Score, _)));
    let mut regions = [if plain { None } else { Some(region) }, None];
    let made = b.create_node_with(&node, &mut regions)?.result(0);
    let same = plan.values.lead(facts) == plan.shape.lead(facts);
    let v = if same && plan.result.len() == 4 {
        made
    } else {
        let size = |(n, of): &ResultSize| match (n, of) {
            (Some(n), _) => Ok(Size::Static(*n)),
            (_, Some((v, axis))) => m.size_of(replaced.get(*v), *axis),
            _ => Err("has a result of unknown size".into()),
        };
        m.reshape(made, &plan.result.iter().map(size).collect::<Result<Vec<_>>>()?)?
    };
    m.retype(v, end.result(0).ty())
}
