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
    pub fn build(&self, fill: &mut Fill<'_>) -> Result<Vec<Value>> {
        let (b, c) = (self.b, self.b.ctx);
        let all: Vec<&(Value, Vec<usize>)> = self.ins.iter().chain(self.outs).collect();
        let loops = self.reduction.len();
        let maps: Vec<Attr> =
            all.iter().map(|(_, over)| Attr::projection(c, loops, over)).collect::<Result<_>>()?;
        let operands: Vec<Value> = all.iter().map(|(v, _)| *v).collect();
        let types = operands
            .iter()
            .map(|t| t.ty().element().ok_or("has an operand that is no tensor"))
            .collect::<Result<Vec<_>, _>>()?;
        let results: Vec<Type> = self.outs.iter().map(|(t, _)| t.ty()).collect();
        let mut body = |b: Builder, args: Vec<Value>| {
            let values = fill(Scalars { b }, &args)?;
            linalg::yield_(b, &values)
        };
        let (ins, outs) = operands.split_at(self.ins.len());
        let (maps, loops) = (Attr::array(c, &maps), iterators(self.reduction));
        let mut op = linalg::Generic::new(b, ins, outs, maps, &loops, &results);
        if self.merges {
            op = op.with_attr(MERGES, Attr::unit(c));
        }
        Ok(op.region((&types, &mut body)).build()?.results())
    }
}

/// The iterator types of loops, of which these are reductions.
pub fn iterators(reduction: &[bool]) -> Vec<IteratorType> {
    let one = |r: &bool| if *r { IteratorType::Reduction } else { IteratorType::Parallel };
    reduction.iter().map(one).collect()
}
