//! `kiln-pad-products`: zero-pads GEMM operands whose rows are not a multiple of 16 bytes, so that
//! a GPU's tensor cores can read them.
//!
//! Why: TMA on sm_90a, and 16-byte `cp.async` on older chips, read rows that start at multiples of
//! 16 bytes. A K of 1001 16-bit elements would run without tensor cores, at a tenth of their rate.
//! The zeros add nothing to the sum. An operand that is not K-major has rows of another dimension,
//! as in the gradient of a vocabulary of 50,257; the results of its zeros are sliced off. Where
//! only one operand is K-major, its rows are padded in memory, and the product reads them without
//! the zeros: the other operand stays as it is. Weights that are the same in every call are padded
//! once (`kiln-freeze`). Other operands are copied, which is profitable above some size. The cost
//! model of the tensor-core kernels gives the padded GEMM's time, `bandwidth` and `launch` that of
//! the copies, and `rate` that of the unpadded GEMM.
//!
//! Numerics: reassociates; zeros are added, and the summation order changes.
//!
//! ```text
//! before:  %0 = kiln.dot_general %x, %w batch = [] x [] contract = [1] x [1] : tensor<512x1001xbf16>, tensor<512x1001xbf16>
//! after:   %a = kiln.pad %x, %zero low = [0, 0] high = [0, 7]   %b = kiln.pad %w, %zero low = [0, 0] high = [0, 7]
//!          %0 = kiln.dot_general %a, %b batch = [] x [] contract = [1] x [1] : tensor<512x1008xbf16>, tensor<512x1008xbf16>
//! ```
pub(super) mod operand;
pub(super) mod zeros;

use crate::{
    kernels::frozen::Frozen,
    target::{
        Chip,
        costs::{Costs as _, Gemm, Left, PRODUCT_EXTENT},
    },
};
use kiln_dialects::{
    ir::*,
    ops::*,
    rules::{Level, tensor_type},
    value::DType,
};
use kiln_passes::{Numerics, Pass, refine_shapes::Facts};
use operand::{Analyses, Stored, UNIT, side};
use zeros::{Padding, Pads, padded};

/// The calibrated cost model; the relative gain on older chips is about the same.
const MODEL: Chip = Chip::Sm90a;

kiln_passes::pass_options! {
    /// The pass.
    pub struct PadProducts {
        /// Target GPU: sm_80, sm_86, sm_89 or sm_90a; empty for CPUs, where the pass does nothing
        pub chip: String = String::new(),
        /// Clocks that an additional launch takes
        pub launch: i64 = 4000,
        /// Bytes per clock that an SM reads or writes when all SMs do
        pub bandwidth: i64 = 18,
        /// Multiply-adds per clock of an SM without tensor cores
        pub rate: i64 = 80,
        /// Rounds of size propagation
        pub rounds: usize = 8,
    }
}

impl Pass for PadProducts {
    const FLAG: &'static str = "kiln-pad-products";
    const SUMMARY: &'static str =
        "Pads the operands of GEMMs whose rows tensor-core kernels cannot load";
    const LEVELS: &'static [Level] = &[Level::Prims];
    const NUMERICS: Numerics = Numerics::Reassociates;

    fn run(&self, root: Op) -> Result<()> {
        if self.chip.is_empty() {
            return Ok(());
        }
        for func in functions_in(root) {
            let Some(block) = func.regions().first().and_then(|r| r.first()) else { continue };
            let ops = block.ops();
            if !ops.iter().any(|op| unaligned_gemm(*op).is_some()) {
                continue;
            }
            let known = Analyses { frozen: Frozen::of(&ops), facts: Facts::of(func, self.rounds)? };
            let (mut pads, mut replaced) = (Pads::default(), vec![]);
            for op in ops {
                // Anew: its operands may be results of the products before.
                let Some((dot, depth)) = unaligned_gemm(op) else { continue };
                let result = tensor_type(op.result(0).ty()).at(op)?.dtype.byte_size();
                let Some(more) = self.padding(&dot, (depth, result), &known) else { continue };
                let b = Builder::before(op).ok_or_at(op, "is in no block")?.at(op.loc());
                let whole = padded(&b, &dot, &more, &mut pads).at(op)?;
                op.result(0).replace_uses(whole);
                replaced.push(op);
            }
            // Not before: the analyses know values by their address.
            replaced.into_iter().rev().for_each(Op::erase);
        }
        Ok(())
    }
}

/// A GEMM of 16-bit floats with one K dimension, and its K, if the rows of an operand are no
/// multiple of 16 bytes.
fn unaligned_gemm(op: Op) -> Option<(DotGeneral, i64)> {
    let o = DotGeneral::of(op)?;
    let element = |v: Value| {
        tensor_type(v.ty()).ok().map(|t| t.dtype).filter(|d| [DType::BF16, DType::F16].contains(d))
    };
    let ([a], [_]) = (o.lhs_contract.as_slice(), o.rhs_contract.as_slice()) else { return None };
    let depth = o.lhs.ty().dims().get(*a as usize)?.known().filter(|n| *n > 0)?;
    let odd = |v: Value| Stored::of(v).base.ty().dims().last()?.known().map(|n| n % UNIT != 0);
    let unaligned = [o.lhs, o.rhs].into_iter().any(|v| odd(v) == Some(true));
    (unaligned && element(o.lhs)? == element(o.rhs)?).then_some((o, depth))
}

impl PadProducts {
    /// The zeros to append to the operands of a GEMM whose results take so many bytes each, if that
    /// is profitable.
    fn padding(
        &self,
        o: &DotGeneral,
        (depth, result): (i64, usize),
        known: &Analyses,
    ) -> Option<Padding> {
        let (a, b) = (o.lhs_contract.first()?, o.rhs_contract.first()?);
        let lhs = side(o.lhs, &o.lhs_batch, *a, known)?;
        let rhs = side(o.rhs, &o.rhs_batch, *b, known)?;
        let batch = o
            .lhs_batch
            .iter()
            .map(|d| o.lhs.ty().dims()[*d as usize].known().unwrap_or(PRODUCT_EXTENT))
            .fold(1i64, i64::saturating_mul);
        if [batch, lhs.rows, rhs.rows].contains(&0) {
            return None;
        }
        let more = (UNIT - depth % UNIT) % UNIT;
        let depths = match [lhs.k_major, rhs.k_major] {
            [false, false] => [0, 0],
            [true, false] if lhs.k_inner => [more, 0],
            [false, true] if rhs.k_inner => [0, more],
            _ => [more, more],
        };
        let clocks = |work: f64, each: i64| work / (MODEL.processors() * each.max(1)) as f64;
        // Each copy is one kernel that reads and writes.
        let copy = |bytes: i64| clocks(2.0 * bytes as f64, self.bandwidth) + self.launch as f64;
        let sides = [&lhs, &rhs].into_iter().zip(depths);
        let copied = sides.filter(|(s, depth)| !s.frozen && (*depth > 0 || s.more > 0));
        let mut copies: f64 = copied.map(|(s, _)| copy(s.bytes)).sum();
        if lhs.more > 0 || rhs.more > 0 {
            copies += copy(result as i64 * batch.saturating_mul(lhs.rows).saturating_mul(rhs.rows));
        }
        let gemm = Gemm { batch, rows: lhs.rows, columns: rhs.rows, k: depth };
        let padded = Gemm { k: depth + depths[0].max(depths[1]), ..gemm };
        let tensor_cores =
            MODEL.skinny_gemm(padded).unwrap_or_else(|| MODEL.tiled_gemm(gemm, Left::default()));
        let without =
            clocks(batch as f64 * lhs.rows as f64 * rhs.rows as f64 * depth as f64, self.rate)
                + self.launch as f64;
        // 10% margin: the cost model is no more accurate.
        let padding = Padding { depth: depths, rows: [lhs.more, rhs.more] };
        if depths == [0, 0] && padding.rows == [0, 0] {
            return None;
        }
        (tensor_cores + copies < 0.9 * without).then_some(padding)
    }
}
