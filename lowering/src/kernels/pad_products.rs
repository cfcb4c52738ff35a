//! `kiln-pad-products`: zero-pads GEMM operands whose rows are not a multiple of 16 bytes, so that
//! a GPU's tensor cores can read them.
//!
//! Why: TMA on sm_90a, and 16-byte `cp.async` on older chips, read rows that start at multiples of
//! 16 bytes. A K of 1001 16-bit elements would run without tensor cores, at a tenth of their rate.
//! The zeros add nothing to the sum. An operand that is not K-major has rows of another dimension,
//! as in the gradient of a vocabulary of 50,257; the results of its zeros are sliced off. Weights
//! that are the same in every call are padded once (`kiln-freeze`). Other operands are copied, which
//! is profitable above some size. The cost model of the tensor-core kernels gives the padded GEMM's
//! time, `bandwidth` and `launch` that of the copies, and `rate` that of the unpadded GEMM.
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
use std::collections::HashMap;

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
        "Pads the operands of GEMMs whose rows tensor-core kernels cannot load";
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
            let mut pads = Pads::default();
            for (op, dot, depth) in gemms {
                let result = tensor_type(op.result(0).ty()).at(op)?.dtype.byte_size();
                let Some(more) = self.padding(&dot, (depth, result), &known) else { continue };
                let b = Builder::before(op).ok_or_at(op, "is in no block")?.at(op.loc());
                let whole = padded(&b, &dot, &more, &mut pads).at(op)?;
                op.result(0).replace_uses(whole);
                op.erase();
            }
        }
        Ok(())
    }
}

/// A GEMM of 16-bit floats with one K dimension, and its K, if the rows of an operand are no
/// multiple of 16 bytes.
fn unaligned_gemm(op: Op) -> Option<(Op, DotGeneral, i64)> {
    let o = DotGeneral::of(op)?;
    let element = |v: Value| {
        tensor_type(v.ty()).ok().map(|t| t.dtype).filter(|d| [DType::BF16, DType::F16].contains(d))
    };
    let ([a], [_]) = (o.lhs_contract.as_slice(), o.rhs_contract.as_slice()) else { return None };
    let depth = o.lhs.ty().dims().get(*a as usize)?.known().filter(|n| *n > 0)?;
    let odd = |v: Value| Stored::of(v).base.ty().dims().last()?.known().map(|n| n % UNIT != 0);
    let unaligned = [o.lhs, o.rhs].into_iter().any(|v| odd(v) == Some(true));
    (unaligned && element(o.lhs)? == element(o.rhs)?).then_some((op, o, depth))
}

/// An operand with its transposes folded, as the product reads it.
struct Stored {
    /// What is transposed.
    base: Value,
    /// For each dimension of the operand that of the base.
    order: Vec<i64>,
}

impl Stored {
    fn of(v: Value) -> Stored {
        let mut stored = Stored { base: v, order: (0..v.ty().dims().len() as i64).collect() };
        while let Some(t) = stored.base.def().and_then(Transpose::of) {
            let inner = |d: &i64| t.permutation.get(*d as usize).copied();
            let Some(order) = stored.order.iter().map(inner).collect() else { break };
            stored = Stored { base: t.input, order };
        }
        stored
    }
    /// The operand's dimension that is innermost in memory.
    fn innermost(&self) -> Option<usize> {
        self.order.iter().position(|d| *d + 1 == self.order.len() as i64)
    }
}

/// Analyses of a function's values.
struct Analyses {
    frozen: Frozen,
    facts: Facts,
}

/// An operand of a GEMM.
struct OperandShape {
    /// Rows per batch entry.
    rows: i64,
    /// All its bytes.
    bytes: i64,
    frozen: bool,
    /// Whether its rows have to be rows of K.
    k_major: bool,
    /// Elements to append to its innermost dimension, if that is not K.
    more: i64,
}

/// The operand's description; none if the tensor cores could not read it with padding either.
fn side(v: Value, batch: &[i64], contract: i64, known: &Analyses) -> Option<OperandShape> {
    let dims = v.ty().dims();
    let size = |d: usize| dims[d].known().unwrap_or(PRODUCT_EXTENT);
    let last = Stored::of(v).innermost()?;
    let (frozen, k_inner) = (known.frozen.contains(v), contract == last as i64);
    let aligned =
        || known.facts.dims(v).get(last).is_some_and(|d| known.facts.divisor(d) % UNIT == 0);
    // Frozen operands are stored as the product wants them.
    let (k_major, more) = match k_inner || aligned() {
        true => (k_inner, 0),
        false if frozen => (true, 0),
        false if batch.contains(&(last as i64)) => return None,
        false => (false, UNIT - dims[last].known()? % UNIT),
    };
    let free = (0..dims.len()).filter(|d| *d as i64 != contract && !batch.contains(&(*d as i64)));
    let rows = free.map(size).fold(1i64, i64::saturating_mul);
    let bytes = (0..dims.len()).map(size).fold(2i64, i64::saturating_mul);
    Some(OperandShape { rows, bytes, frozen, k_major, more })
}

/// Elements to append.
struct Padding {
    /// In K, to both operands.
    depth: i64,
    /// To the innermost dimension of the left and of the right operand, where that is not K.
    rows: [i64; 2],
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
        let k_major = lhs.k_major || rhs.k_major;
        let more = if k_major { (UNIT - depth % UNIT) % UNIT } else { 0 };
        let clocks = |work: f64, each: i64| work / (MODEL.processors() * each.max(1)) as f64;
        // Each copy is one kernel that reads and writes.
        let copy = |bytes: i64| clocks(2.0 * bytes as f64, self.bandwidth) + self.launch as f64;
        let copied = [&lhs, &rhs].into_iter().filter(|s| !s.frozen && (more > 0 || s.more > 0));
        let mut copies: f64 = copied.map(|s| copy(s.bytes)).sum();
        if lhs.more > 0 || rhs.more > 0 {
            copies += copy(result as i64 * batch.saturating_mul(lhs.rows).saturating_mul(rhs.rows));
        }
        let gemm = Gemm { batch, rows: lhs.rows, columns: rhs.rows, k: depth };
        let padded = Gemm { k: depth + more, ..gemm };
        let tensor_cores =
            MODEL.skinny_gemm(padded).unwrap_or_else(|| MODEL.tiled_gemm(gemm, Left::default()));
        let without =
            clocks(batch as f64 * lhs.rows as f64 * rhs.rows as f64 * depth as f64, self.rate)
                + self.launch as f64;
        // 10% margin: the cost model is no more accurate.
        let padding = Padding { depth: more, rows: [lhs.more, rhs.more] };
        if more == 0 && padding.rows == [0, 0] {
            return None;
        }
        (tensor_cores + copies < 0.9 * without).then_some(padding)
    }
}

/// The padded values of a block, so that the gradients of both factors share one.
#[derive(Default)]
struct Pads {
    padded: HashMap<(Value, Vec<i64>), Value>,
    zeros: HashMap<DType, Value>,
}

impl Pads {
    /// A value with zeros appended. Where only rows grow, the reshape of a value is one of the padded
    /// value.
    fn of(&mut self, b: &Builder, v: Value, high: Vec<i64>) -> Result<Value> {
        if let Some(known) = self.padded.get(&(v, high.clone())) {
            return Ok(*known);
        }
        let rows = high.split_last().filter(|(_, others)| others.iter().all(|n| *n == 0));
        let inner = v.def().and_then(Reshape::of).map(|o| o.input).filter(|x| {
            let (from, to) = (x.ty().dims(), v.ty().dims());
            from.last().is_some_and(|n| n.known().is_some() && Some(n) == to.last())
        });
        let made = match (rows, inner) {
            (Some((more, _)), Some(inner)) => {
                let mut below = vec![0; inner.ty().dims().len()];
                if let Some(last) = below.last_mut() {
                    *last = *more;
                }
                let mut sizes = b.sizes_of(v)?;
                if let Some(Size::Static(n)) = sizes.last_mut() {
                    *n += more;
                }
                let input = self.of(b, inner, below)?;
                b.add(&Reshape { input, sizes })?
            }
            _ => {
                let dtype = tensor_type(v.ty())?.dtype;
                let value = match self.zeros.get(&dtype) {
                    Some(zero) => *zero,
                    None => b.splat(dtype, &[], 0.0)?,
                };
                self.zeros.insert(dtype, value);
                let low = Size::all(&vec![0; high.len()]);
                b.add(&Pad { input: v, value, low, high: Size::all(&high) })?
            }
        };
        self.padded.insert((v, high), made);
        Ok(made)
    }
}

/// The product of the padded operands, without the results of the padding.
fn padded(b: &Builder, o: &DotGeneral, more: &Padding, pads: &mut Pads) -> Result<Value> {
    let mut pad = |v: Value, contract: &[i64], rows: i64| {
        let Stored { base, order } = Stored::of(v);
        let mut high = vec![0; order.len()];
        for (d, inner) in order.iter().enumerate() {
            let last = *inner + 1 == order.len() as i64;
            high[*inner as usize] = match contract.contains(&(d as i64)) {
                true => more.depth,
                false if last => rows,
                false => 0,
            };
        }
        if high.iter().all(|n| *n == 0) {
            return Ok(v);
        }
        let input = pads.of(b, base, high)?;
        match order.is_sorted() {
            true => Ok(input),
            false => b.add(&Transpose { input, permutation: order }),
        }
    };
    let lhs = pad(o.lhs, &o.lhs_contract, more.rows[0])?;
    let rhs = pad(o.rhs, &o.rhs_contract, more.rows[1])?;
    let whole = b.add(&DotGeneral { lhs, rhs, ..o.clone() })?;
    if more.rows == [0, 0] {
        return Ok(whole);
    }
    // Results have the batch, the free dimensions of the left operand, those of the right one.
    let mut sizes: Vec<Size> = b.sizes_of(whole)?;
    let mut at = o.lhs_batch.len();
    for (v, batch, contract, rows) in [
        (o.lhs, &o.lhs_batch, &o.lhs_contract, more.rows[0]),
        (o.rhs, &o.rhs_batch, &o.rhs_contract, more.rows[1]),
    ] {
        let last = Stored::of(v).innermost();
        let free = |d: &usize| ![batch, contract].iter().any(|all| all.contains(&(*d as i64)));
        for d in (0..v.ty().dims().len()).filter(free) {
            if let Some(Size::Static(n)) = sizes.get_mut(at).filter(|_| last == Some(d)) {
                *n -= rows;
            }
            at += 1;
        }
    }
    let (offsets, strides) = (Size::all(&vec![0; sizes.len()]), vec![1; sizes.len()]);
    b.add(&Slice { input: whole, offsets, sizes, strides })
}
