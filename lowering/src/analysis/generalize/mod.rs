//! `kiln-generalize`: writes structured ops as `linalg.generic`.
//!
//! Why: a kernel's structure stays in its ops until a strategy emits it. Tools that know upstream's
//! ops alone need the loops, such as the reference execution of the tests. A strategy reads a
//! private copy in this form, in which each loop nest knows the op that it is from
//! (`analysis::read`). Upstream's `linalg-generalize-named-ops` does the same for `linalg.contract`,
//! which is a loop nest already and stays.
//!
//! Numerics: exact; the same loops.
//!
//! ```text
//! before:  kiln.structured.contract ins(%x, %w) outs(%e) maps = […] { … kiln.yield %a, %b }
//! after:   linalg.generic {indexing_maps = […]} ins(%x, %w) outs(%e) { … arith.mulf %a, %b … arith.addf … }
//! ```
mod attention;
mod attention_gradient;
mod contract;
mod fourier;
mod scan;

pub use crate::analysis::generalize::{
    attention::AttentionNests, attention_gradient::AttentionGradientNests,
};
use crate::analysis::{kernels_of, structure::Structure};
use kiln_dialects::{
    ir::*,
    ops::{OpKind, StructuredIndex},
    rules::Level,
};
use kiln_passes::{Numerics, Pass};
use std::collections::HashMap;

kiln_passes::pass_options! {
    /// The pass.
    pub struct Generalize {}
}

impl Pass for Generalize {
    const FLAG: &'static str = "kiln-generalize";
    const SUMMARY: &'static str = "Rewrites structured ops as linalg.generic";
    const LEVELS: &'static [Level] = &[Level::Linalg, Level::Scheduled];
    const NUMERICS: Numerics = Numerics::Exact;
    const DIALECTS: &'static [&'static str] = &["arith", "linalg", "math", "tensor"];

    fn run(&self, root: Op) -> Result<()> {
        kernels_of(root).into_iter().try_for_each(|func| generalize(func).map(drop))
    }
}

/// What the loop nests of a function are from.
#[derive(Default)]
pub struct Origins {
    /// The structure of each `linalg.generic` that was a structured op.
    pub structures: HashMap<Op, Structure>,
    /// The loop nests of its attention.
    pub attention: Option<AttentionNests>,
    /// The loop nests of attention's derivatives.
    pub attention_gradient: Option<AttentionGradientNests>,
}

/// Whether a function has structured ops that are no loop nests yet.
pub fn is_structured(func: Op) -> bool {
    let block = func.regions().first().and_then(|r| r.first());
    let structured = |o: &Op| o.kind().is_some_and(|k| k.is_structured());
    block.is_some_and(|b| b.ops().iter().any(structured))
}

/// Replaces all structured ops of a kernel's function.
pub fn generalize(func: Op) -> Result<Origins> {
    let mut all = Origins::default();
    let block = func.regions().first().and_then(|r| r.first()).ok_or_at(func, "has no body")?;
    for op in block.ops() {
        let made: Vec<Value> = match op.kind() {
            Some(OpKind::StructuredContract) => {
                let (made, structure) = contract::contract(op).at(op)?;
                all.structures.insert(made, structure);
                made.results()
            }
            Some(OpKind::StructuredFft) => {
                let (made, structure) = fourier::fft(op).at(op)?;
                all.structures.insert(made, structure);
                made.results()
            }
            Some(OpKind::StructuredScan) => {
                let (made, structure) = scan::scan(op).at(op)?;
                all.structures.insert(made, structure);
                made.results()
            }
            Some(OpKind::StructuredAttention) => {
                let (nests, structures) = attention::attention(op).at(op)?;
                all.structures.extend(structures);
                let made = nests.ops[6..].iter().map(|o| o.result(0)).collect();
                all.attention = Some(nests);
                made
            }
            Some(OpKind::StructuredAttentionGradient) => {
                let (nests, structures) = attention_gradient::attention_gradient(op).at(op)?;
                all.structures.extend(structures);
                // Of each result the sum, then the value.
                let made = nests.ops[4..].iter().skip(1).step_by(2).map(|o| o.result(0)).collect();
                all.attention_gradient = Some(nests);
                made
            }
            _ => continue,
        };
        op.results().iter().zip(made).for_each(|(old, new)| old.replace_uses(new));
        op.erase();
    }
    Ok(all)
}

/// The block of a structured op's region.
fn region_of(op: Op, i: usize) -> Result<Block> {
    Ok(op.regions().get(i).and_then(|r| r.first()).ok_or("has an empty region")?)
}

/// A `linalg.generic` to build.
struct Generic<'g> {
    b: Builder,
    ins: &'g [Value],
    outs: &'g [Value],
    /// The indexing maps of inputs, then outputs.
    maps: Vec<Attr>,
    reduction: &'g [bool],
}

/// The body of a `linalg.generic` under construction.
struct Body {
    b: Builder,
    args: Vec<Value>,
    ins: usize,
    loops: HashMap<usize, Value>,
}

impl Generic<'_> {
    /// Creates the op; `fill` computes what its body yields.
    fn build(self, fill: &mut dyn FnMut(&mut Body) -> Result<Vec<Value>>) -> Result<Op> {
        let (b, c) = (self.b, self.b.ctx);
        let kinds = self.reduction.iter().map(|r| if *r { "reduction" } else { "parallel" });
        let kinds: Vec<Attr> = kinds
            .map(|kind| Attr::parse(c, &format!("#linalg.iterator_type<{kind}>")))
            .collect::<Option<_>>()
            .ok_or("has no iterator types")?;
        let segments = Attr::i32s(c, &[self.ins.len() as i32, self.outs.len() as i32]);
        let attrs = [
            ("indexing_maps", Attr::array(c, &self.maps)),
            ("iterator_types", Attr::array(c, &kinds)),
            ("operandSegmentSizes", segments),
        ];
        let operands = [self.ins, self.outs].concat();
        let element = |t: &Value| t.ty().element().ok_or("has an operand that is no tensor");
        let types = operands.iter().map(element).collect::<Result<Vec<_>, _>>()?;
        let results: Vec<Type> = self.outs.iter().map(|t| t.ty()).collect();
        let ins = self.ins.len();
        let mut body = |b: Builder, args: Vec<Value>| {
            let values = fill(&mut Body { b, args, ins, loops: HashMap::new() })?;
            b.generic(linalg::Yield::NAME, &values, &[], &[], &mut []).map(drop)
        };
        b.generic(linalg::Generic::NAME, &operands, &results, &attrs, &mut [(&types, &mut body)])
    }
}

impl Body {
    /// An op with one result.
    fn op(&self, name: &str, operands: &[Value], ty: Type) -> Result<Value> {
        Ok(self.b.generic(name, operands, &[ty], &[], &mut [])?.result(0))
    }
    /// The inputs' elements.
    fn ins(&self) -> &[Value] {
        &self.args[..self.ins]
    }
    /// The outputs' elements.
    fn outs(&self) -> &[Value] {
        &self.args[self.ins..]
    }
    /// The index of a loop.
    fn index(&mut self, dim: usize) -> Result<Value> {
        if let Some(v) = self.loops.get(&dim) {
            return Ok(*v);
        }
        let attrs = [("dim", Attr::i64(self.b.ctx, dim as i64))];
        let ty = Type::index(self.b.ctx);
        let made = self.b.generic(linalg::Index::NAME, &[], &[ty], &attrs, &mut [])?.result(0);
        self.loops.insert(dim, made);
        Ok(made)
    }
    /// Copies a structured op's region with these arguments, over these loops of the generic.
    /// Returns what it yields.
    fn inline(
        &mut self,
        region: Block,
        given: &[Value],
        loops: &dyn Fn(usize) -> usize,
    ) -> Result<Vec<Value>> {
        let given = given.iter().copied();
        let mut known: HashMap<Value, Value> = region.args().into_iter().zip(given).collect();
        for op in region.ops() {
            if let Some(index) = StructuredIndex::of(op) {
                known.insert(op.result(0), self.index(loops(index.dim as usize))?);
                continue;
            }
            let of = |v: Value| known.get(&v).copied().unwrap_or(v);
            if op.kind() == Some(OpKind::Yield) {
                return Ok(op.operands().into_iter().map(of).collect());
            }
            let copy = self.b.clone_op(op, &of)?;
            known.extend(op.results().into_iter().zip(copy.results()));
        }
        Err("has a region that yields nothing".into())
    }
}
