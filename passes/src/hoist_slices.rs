//! `kiln-hoist-slices`: slices the operands of an elementwise op of which only slices are read.
//!
//! Why: slices end fusion: the op would store its whole result for them, which they then read. The
//! gradient of a rotary embedding, `g cos + concat((g sin)[n/2:], -(g sin)[:n/2])`, becomes one
//! kernel instead of two, since `kiln-sink-concats` splits its other operands alike. It applies
//! only to disjoint slices, so that nothing is computed twice, and to operands that are
//! materialised: a matmul or reduction would lose its epilogue. Upstream has no such pass.
//!
//! Numerics: exact.
//!
//! ```text
//! before:  %0 = kiln.mul %g, %s : tensor<64xf32>   %1 = kiln.slice %0 offsets = [32] sizes = [32] …
//! after:   %a = kiln.slice %g offsets = [32] …   %b = kiln.slice %s offsets = [32] …   %1 = kiln.mul %a, %b
//! ```
use crate::{
    pass::{Numerics, Pass},
    readers::erase_dead,
    slices::{SliceSpec, is_materialised, is_view},
};
use kiln_dialects::{
    ir::*,
    ops::*,
    rules::{GRAPH_LEVELS, Level},
};

crate::pass_options! {
    /// The pass.
    pub struct HoistSlices {
        /// Most slices of a tensor
        pub max_slices: usize = 4,
        /// Least contiguous elements per slice
        pub min_contiguous: i64 = 8,
        /// Most elementwise and movement ops in a chain
        pub depth: usize = 16,
    }
}

impl Pass for HoistSlices {
    const FLAG: &'static str = "kiln-hoist-slices";
    const SUMMARY: &'static str =
        "Slices the operands of an elementwise op of which only slices are read";
    const LEVELS: &'static [Level] = GRAPH_LEVELS;
    const NUMERICS: Numerics = Numerics::Exact;

    fn run(&self, root: Op) -> Result<()> {
        // Last ops first, so that slices rise above several.
        let ops: Vec<Op> = walk(root).into_iter().filter(|op| arithmetic(*op)).collect();
        for op in ops.into_iter().rev() {
            for (slice, o) in self.slices(op).unwrap_or_default() {
                let b = Builder::before(slice).ok_or_at(slice, "is in no block")?.at(op.loc());
                let own = SliceSpec::from(o).of_elementwise(&b, op, &|_| None).at(op)?;
                slice.result(0).replace_uses(own);
                slice.erase();
            }
            if op.result(0).uses().is_empty() {
                let read = op.operands();
                op.erase();
                erase_dead(read, is_view);
            }
        }
        Ok(())
    }
}

fn arithmetic(op: Op) -> bool {
    op.kind().is_some_and(OpKind::is_arithmetic) && !op.result(0).uses().is_empty()
}

impl HoistSlices {
    /// The slices that read the op, if nothing else does, they are disjoint, and its operands can
    /// be sliced.
    fn slices(&self, op: Op) -> Option<Vec<(Op, Slice)>> {
        let readers = op.result(0).uses().into_iter().map(|u| u.0);
        let slices: Vec<(Op, Slice)> =
            readers.map(|o| Some((o, Slice::of(o)?))).collect::<Option<_>>()?;
        let disjoint = (0..op.result(0).ty().dims().len()).any(|axis| self.disjoint(&slices, axis));
        let operands = || op.operands().into_iter().all(|v| is_materialised(v, self.depth));
        (disjoint && slices.len() <= self.max_slices && operands()).then_some(slices)
    }

    /// Whether slices of one tensor do not meet along an axis, and have enough contiguous elements.
    fn disjoint(&self, slices: &[(Op, Slice)], axis: usize) -> bool {
        let range = |(_, o): &(Op, Slice)| {
            let (at, n) = (o.offsets[axis].known()?, o.sizes[axis].known()?);
            (o.strides.iter().all(|s| *s == 1) && self.contiguous(o)).then_some((at, at + n))
        };
        let Some(mut ranges) = slices.iter().map(range).collect::<Option<Vec<_>>>() else {
            return false;
        };
        ranges.sort_unstable();
        ranges.windows(2).all(|w| w[0].1 <= w[1].0)
    }

    /// Whether a slice has enough contiguous elements, or is contiguous as far as sizes are known.
    fn contiguous(&self, o: &Slice) -> bool {
        let mut run = 1i64;
        for (size, whole) in o.sizes.iter().zip(o.input.ty().dims()).rev() {
            let (Some(n), Some(whole)) = (size.known(), whole.known()) else { return true };
            run = run.saturating_mul(n);
            if n != whole {
                return run >= self.min_contiguous;
            }
        }
        true
    }
}
