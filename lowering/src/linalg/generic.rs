//! Builds a `linalg.generic` over existing tensors.
use crate::{analysis::MERGES, linalg::scalar::Scalars};
use kiln_dialects::ir::*;

/// Operands of a generic, each tensor with the loops that index it.
pub struct Generic<'g> {
    /// The insertion point.
    pub b: Builder,
    /// Input tensors.
    pub ins: &'g [(Value, Vec<usize>)],
    /// Output tensors (destinations).
    pub outs: &'g [(Value, Vec<usize>)],
    /// For each loop, whether its iterator type is reduction.
    pub reduction: &'g [bool],
    /// Whether its body merges two partial results: see [`MERGES`].
    pub merges: bool,
}

/// Fills the body: from the block arguments to the yielded values.
pub type Fill<'f> = dyn FnMut(Scalars, &[Value]) -> Result<Vec<Value>> + 'f;

impl Generic<'_> {
    /// Creates the op; returns its results, one tensor per output.
    pub fn make(&self, fill: &mut Fill<'_>) -> Result<Vec<Value>> {
        let (b, c) = (self.b, self.b.ctx);
        let all: Vec<&(Value, Vec<usize>)> = self.ins.iter().chain(self.outs).collect();
        let parse = |s: &str| Attr::parse(c, s).ok_or_else(|| format!("made a bad attribute {s}"));
        let dims = |over: &mut dyn Iterator<Item = usize>| {
            over.map(|d| format!("d{d}")).collect::<Vec<_>>().join(", ")
        };
        let loops = dims(&mut (0..self.reduction.len()));
        let map = |(_, over): &&(Value, Vec<usize>)| {
            parse(&format!("affine_map<({loops}) -> ({})>", dims(&mut over.iter().copied())))
        };
        let maps = all.iter().map(map).collect::<Result<Vec<_>, _>>()?;
        let iterator = |r: &bool| {
            parse(if *r {
                "#linalg.iterator_type<reduction>"
            } else {
                "#linalg.iterator_type<parallel>"
            })
        };
        let mut attrs = vec![
            ("indexing_maps", Attr::array(c, &maps)),
            (
                "iterator_types",
                Attr::array(
                    c,
                    &self.reduction.iter().map(iterator).collect::<Result<Vec<_>, _>>()?,
                ),
            ),
            (
                "operandSegmentSizes",
                Attr::i32s(c, &[self.ins.len() as i32, self.outs.len() as i32]),
            ),
        ];
        if self.merges {
            attrs.push((MERGES, Attr::unit(c)));
        }
        let operands: Vec<Value> = all.iter().map(|(v, _)| *v).collect();
        let types = operands
            .iter()
            .map(|t| t.ty().element().ok_or("has an operand that is no tensor"))
            .collect::<Result<Vec<_>, _>>()?;
        let results: Vec<Type> = self.outs.iter().map(|(t, _)| t.ty()).collect();
        let mut body = |b: Builder, args: Vec<Value>| {
            let values = fill(Scalars { b }, &args)?;
            b.generic("linalg.yield", &values, &[], &[], &mut []).map(|_| ())
        };
        Ok(b.generic("linalg.generic", &operands, &results, &attrs, &mut [(&types, &mut body)])?
            .results())
    }
}
