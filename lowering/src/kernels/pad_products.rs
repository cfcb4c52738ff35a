//! `kiln-pad-products`: zero-pads GEMM operands whose rows are not a multiple of 16 bytes, so that
//! a GPU's tensor cores can read them.
//!
//! Why: TMA on sm_90a, and 16-byte `cp.async` on older chips, read rows that start at multiples of
//! 16 bytes. A K of 1001 16-bit elements would run without tensor cores, at a tenth of their rate.
//! The zeros add nothing to the sum. Weights that are the same in every call are padded once
//! (`kiln-freeze`). Other operands are copied, which is profitable above some size. The cost model
//! of the tensor-core kernels gives the padded GEMM's time, `bandwidth` and `launch` that of the
//! copies, and `rate` that of the unpadded GEMM.
//!
//! Numerics: reassociates; zeros are added, and the summation order changes.
//!
//! ```text
//! before:  %0 = kiln.dot_general %x, %w batch = [] x [] contract = [1] x [1] : tensor<512x1001xbf16>, tensor<512x1001xbf16>
//! after:   %a = kiln.pad %x, %zero low = [0, 0] high = [0, 7]   %b = kiln.pad %w, %zero low = [0, 0] high = [0, 7]
//!          %0 = kiln.dot_general %a, %b batch = [] x [] contract = [1] x [1] : tensor<512x1008xbf16>, tensor<512x1008xbf16>
//! ```
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

/// 16-bit elements in 16 bytes.
const UNIT: i64 = 8;

impl Pass for PadProducts {
    const FLAG: &'static str = "kiln-pad-products";
    const SUMMARY: &'static str =
        "Pads the K dimension of GEMMs whose rows tensor-core kernels cannot load";
    const LEVELS: &'static [Level] = &[Level::Prims];
    const NUMERICS: Numerics = Numerics::Reassociates;

    fn run(&self, root: Op) -> Result<()> {
        if self.chip.is_empty() {
            return Ok(());
        }
        for func in blocks(root)
            .into_iter()
            .flat_map(|b| b.ops())
            .filter(|o| o.isa::<func::Func>())
            .collect::<Vec<_>>()
        {
            let Some(block) = func.regions().first().and_then(|r| r.first()) else { continue };
            let ops = block.ops();
            let gemms: Vec<(Op, DotGeneral, i64)> =
                ops.iter().filter_map(|op| unaligned_gemm(*op)).collect();
            if gemms.is_empty() {
                continue;
            }
            let known = Analyses { frozen: Frozen::of(&ops), facts: Facts::of(func, self.rounds)? };
            for (op, dot, depth) in gemms {
                let Some(more) = self.padding(&dot, depth, &known) else { continue };
                let b = Builder::before(op).ok_or_at(op, "is in no block")?.at(op.loc());
                let (lhs, rhs) = padded(&b, &dot, more).at(op)?;
                op.set_operand(0, lhs);
                op.set_operand(1, rhs);
            }
        }
        Ok(())
    }
}

/// A GEMM of 16-bit floats with one K dimension that is not a multiple of 16 bytes.
fn unaligned_gemm(op: Op) -> Option<(Op, DotGeneral, i64)> {
    let o = DotGeneral::of(op)?;
    let element = |v: Value| {
        tensor_type(v.ty()).ok().map(|t| t.dtype).filter(|d| [DType::BF16, DType::F16].contains(d))
    };
    let ([a], [_]) = (o.lhs_contract.as_slice(), o.rhs_contract.as_slice()) else { return None };
    let depth = o.lhs.ty().dims().get(*a as usize)?.known().filter(|n| *n > 0 && n % UNIT != 0)?;
    (element(o.lhs)? == element(o.rhs)?).then_some((op, o, depth))
}

/// Analyses of a function's values.
struct Analyses {
    frozen: Frozen,
    facts: Facts,
}

/// An operand: its rows per batch entry, its total bytes, and whether it is frozen.
struct OperandShape {
    rows: i64,
    bytes: i64,
    frozen: bool,
}

/// The operand's description; none if the tensor cores could not read it with a padded K either.
fn side(v: Value, batch: &[i64], contract: i64, known: &Analyses) -> Option<OperandShape> {
    let dims = v.ty().dims();
    let size = |d: usize| dims[d].known().unwrap_or(PRODUCT_EXTENT);
    let last = dims.len().checked_sub(1)?;
    // If the operand is not K-major, its innermost dimension must already be aligned.
    let readable =
        || known.facts.dims(v).get(last).is_some_and(|d| known.facts.divisor(d) % UNIT == 0);
    if contract != last as i64 && !readable() {
        return None;
    }
    let free = (0..dims.len()).filter(|d| *d as i64 != contract && !batch.contains(&(*d as i64)));
    let rows = free.map(size).fold(1i64, i64::saturating_mul);
    let bytes = (0..dims.len()).map(size).fold(2i64, i64::saturating_mul);
    Some(OperandShape { rows, bytes, frozen: known.frozen.contains(v) })
}

impl PadProducts {
    /// The number of zeros to append in K, if that is profitable.
    fn padding(&self, o: &DotGeneral, depth: i64, known: &Analyses) -> Option<i64> {
        let (a, b) = (o.lhs_contract.first()?, o.rhs_contract.first()?);
        let (lhs, rhs) =
            (side(o.lhs, &o.lhs_batch, *a, known)?, side(o.rhs, &o.rhs_batch, *b, known)?);
        let batch = o
            .lhs_batch
            .iter()
            .map(|d| o.lhs.ty().dims()[*d as usize].known().unwrap_or(PRODUCT_EXTENT))
            .fold(1i64, i64::saturating_mul);
        if [batch, lhs.rows, rhs.rows].contains(&0) {
            return None;
        }
        let more = UNIT - depth % UNIT;
        let clocks = |work: f64, each: i64| work / (MODEL.processors() * each.max(1)) as f64;
        // Each copy is one kernel that reads and writes.
        let copies: f64 = [&lhs, &rhs]
            .iter()
            .filter(|s| !s.frozen)
            .map(|s| clocks(2.0 * s.bytes as f64, self.bandwidth) + self.launch as f64)
            .sum();
        let gemm = Gemm { batch, rows: lhs.rows, columns: rhs.rows, k: depth };
        let padded = Gemm { k: depth + more, ..gemm };
        let tensor_cores =
            MODEL.skinny_gemm(padded).unwrap_or_else(|| MODEL.tiled_gemm(gemm, Left::default()));
        let without =
            clocks(batch as f64 * lhs.rows as f64 * rhs.rows as f64 * depth as f64, self.rate)
                + self.launch as f64;
        // 10% margin: the cost model is no more accurate.
        (tensor_cores + copies < 0.9 * without).then_some(more)
    }
}

/// Both operands with `more` zeros appended in K.
fn padded(b: &Builder, o: &DotGeneral, more: i64) -> Result<(Value, Value)> {
    let zero = b.splat(tensor_type(o.lhs.ty())?.dtype, &[], 0.0)?;
    let pad = |input: Value, contract: &[i64]| {
        let high: Vec<i64> = (0..input.ty().dims().len() as i64)
            .map(|d| if contract.contains(&d) { more } else { 0 })
            .collect();
        b.add(&Pad {
            input,
            value: zero,
            low: Size::all(&vec![0; high.len()]),
            high: Size::all(&high),
        })
    };
    Ok((pad(o.lhs, &o.lhs_contract)?, pad(o.rhs, &o.rhs_contract)?))
}
