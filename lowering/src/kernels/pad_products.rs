//! `kiln-pad-products`: operands of a product whose rows are no multiple of 16 bytes get zeros up
//! to one, so that a GPU's tensor cores can read them.
//!
//! Why: the copy engine of sm_90a, and the copies of 16 bytes of threads on older chips, read rows
//! that begin at multiples of 16 bytes. A depth of 1001 numbers of 16 bits would be multiplied
//! without tensor cores, at a tenth of their rate. The zeros add nothing to a sum. Weights that are
//! the same in every call are padded once (`kiln-freeze`); others are written again, which pays
//! from some size on: the models of the tensor cores' kernels say what a product takes with them,
//! `bandwidth` and `launch` what the copies do, and `rate` what the product takes without.
//!
//! Numerics: reassociates; zeros are added, and the order of a sum changes.
//!
//! ```text
//! before:  %0 = kiln.dot_general %x, %w batch = [] x [] contract = [1] x [1] : tensor<512x1001xbf16>, tensor<512x1001xbf16>
//! after:   %a = kiln.pad %x, %zero low = [0, 0] high = [0, 7]   %b = kiln.pad %w, %zero low = [0, 0] high = [0, 7]
//!          %0 = kiln.dot_general %a, %b batch = [] x [] contract = [1] x [1] : tensor<512x1008xbf16>, tensor<512x1008xbf16>
//! ```
use crate::kernels::frozen::Frozen;
use crate::target::{
    Chip,
    costs::{Costs as _, Gemm, Left, PRODUCT_EXTENT},
};
use kiln_dialects::{
    ir::*,
    ops::*,
    rules::{Level, tensor_type},
    value::DType,
};
use kiln_passes::{Numerics, Pass, refine_shapes::Facts};

/// The calibrated model; what padding gains on older chips is as much, relatively.
const MODEL: Chip = Chip::Sm90a;

kiln_passes::pass_options! {
    /// The pass.
    pub struct PadProducts {
        /// The GPU that it is for: sm_80, sm_86, sm_89 or sm_90a; none for processors, for which
        /// nothing is to be done
        pub chip: String = String::new(),
        /// Clocks that another launch takes
        pub launch: i64 = 4000,
        /// Bytes that a multiprocessor reads or writes in a clock where all do
        pub bandwidth: i64 = 18,
        /// Products and sums that a multiprocessor does in a clock without tensor cores
        pub rate: i64 = 80,
        /// Rounds of size propagation
        pub rounds: usize = 8,
    }
}

/// Elements of 16 bytes.
const UNIT: i64 = 8;

impl Pass for PadProducts {
    const FLAG: &'static str = "kiln-pad-products";
    const SUMMARY: &'static str =
        "Pads the depth of products whose rows a GPU's tensor cores cannot read";
    const LEVELS: &'static [Level] = &[Level::Prims];
    const NUMERICS: Numerics = Numerics::Reassociates;

    fn run(&self, root: Op) -> Result<()> {
        if self.chip.is_empty() {
            return Ok(());
        }
        for func in blocks(root)
            .into_iter()
            .flat_map(|b| b.ops())
            .filter(|o| o.is("func.func"))
            .collect::<Vec<_>>()
        {
            let Some(block) = func.regions().first().and_then(|r| r.first()) else { continue };
            let ops = block.ops();
            let odd: Vec<(Op, DotGeneral, i64)> = ops.iter().filter_map(|op| odd(*op)).collect();
            if odd.is_empty() {
                continue;
            }
            let known = Known { frozen: Frozen::of(&ops), facts: Facts::of(func, self.rounds)? };
            for (op, dot, depth) in odd {
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

/// A product of 16-bit floats over one dimension whose size is no multiple of 16 bytes.
fn odd(op: Op) -> Option<(Op, DotGeneral, i64)> {
    let o = DotGeneral::of(op)?;
    let element = |v: Value| {
        tensor_type(v.ty()).ok().map(|t| t.dtype).filter(|d| [DType::BF16, DType::F16].contains(d))
    };
    let ([a], [_]) = (o.lhs_contract.as_slice(), o.rhs_contract.as_slice()) else { return None };
    let depth = o.lhs.ty().dims().get(*a as usize)?.known().filter(|n| *n > 0 && n % UNIT != 0)?;
    (element(o.lhs)? == element(o.rhs)?).then_some((op, o, depth))
}

/// What is known of a function's values.
struct Known {
    frozen: Frozen,
    facts: Facts,
}

/// An operand: how many rows each of the batch has, the bytes of all of it, and whether it is the
/// same in every call.
struct Side {
    rows: i64,
    bytes: i64,
    frozen: bool,
}

/// None: the tensor cores could not read it with another depth either.
fn side(v: Value, batch: &[i64], contract: i64, known: &Known) -> Option<Side> {
    let dims = v.ty().dims();
    let size = |d: usize| dims[d].known().unwrap_or(PRODUCT_EXTENT);
    let last = dims.len().checked_sub(1)?;
    // Where the depth is not innermost, what is has to be readable already.
    let readable =
        || known.facts.dims(v).get(last).is_some_and(|d| known.facts.divisor(d) % UNIT == 0);
    if contract != last as i64 && !readable() {
        return None;
    }
    let free = (0..dims.len()).filter(|d| *d as i64 != contract && !batch.contains(&(*d as i64)));
    let rows = free.map(size).fold(1i64, i64::saturating_mul);
    let bytes = (0..dims.len()).map(size).fold(2i64, i64::saturating_mul);
    Some(Side { rows, bytes, frozen: known.frozen.contains(v) })
}

impl PadProducts {
    /// By how much the depth of a product is to grow, if that pays.
    fn padding(&self, o: &DotGeneral, depth: i64, known: &Known) -> Option<i64> {
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
        // Read and written, each by a kernel.
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
        // The model is no better than that.
        (tensor_cores + copies < 0.9 * without).then_some(more)
    }
}

/// Both operands with so many zeros behind what is summed.
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
