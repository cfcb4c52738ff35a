//! `kiln-pad-biases`: lengthens the rows of attention's biases in memory to a multiple of 16 bytes,
//! so that TMA can load them.
//!
//! Why: `attention` reads a bias by query and key as tiles in shared memory, by TMA, whose rows
//! begin at multiples of 16 bytes. A bias of 197 16-bit elements a row would be read one element at
//! a time, which takes longer than the products. The kernel that computes the bias stores it padded
//! instead; one that no kernel computes is copied. The reads of all scores are compared with that
//! copy, at `rate` and `bandwidth`. Frameworks that call cuDNN pad such a bias likewise. Other GPUs
//! than Hopper have no such kernel.
//!
//! Numerics: exact; the zeros are not read.
//!
//! ```text
//! before:  %0 = kiln.attention %q, %k, %v bias %b : tensor<12x197x197xbf16>
//! after:   %p = kiln.pad %b, %zero low = [0, 0, 0] high = [0, 0, 3] {kiln.stored}   %s = kiln.slice %p
//!          %0 = kiln.attention %q, %k, %v bias %s : tensor<12x197x197xbf16>
//! ```
use crate::{
    kernels::{frozen::Frozen, pad_products::zeros::Pads},
    target::{
        Chip,
        costs::{Costs as _, PRODUCT_EXTENT},
    },
};
use kiln_dialects::{
    ir::*,
    ops::*,
    rules::{Level, tensor_type},
    value::DType,
};
use kiln_passes::{Numerics, Pass};

/// The calibrated cost model.
const MODEL: Chip = Chip::Sm90a;
/// Bytes of which TMA's rows are a multiple.
const UNIT: usize = 16;

kiln_passes::pass_options! {
    /// The pass.
    pub struct PadBiases {
        /// Target GPU; does nothing for another one than sm_90a
        pub chip: String = String::new(),
        /// Clocks that an additional launch takes
        pub launch: i64 = 4000,
        /// Bytes per clock that an SM reads or writes when all SMs do
        pub bandwidth: i64 = 18,
        /// Elements of a bias that an SM reads in a clock without TMA
        pub rate: i64 = 1,
    }
}

impl Pass for PadBiases {
    const FLAG: &'static str = "kiln-pad-biases";
    const SUMMARY: &'static str =
        "Lengthens the rows of attention's biases so that TMA can load them";
    const LEVELS: &'static [Level] = &[Level::Prims];
    const NUMERICS: Numerics = Numerics::Exact;

    fn run(&self, root: Op) -> Result<()> {
        if self.chip != Chip::Sm90a.name() {
            return Ok(());
        }
        for func in functions_in(root) {
            let Some(block) = func.regions().first().and_then(|r| r.first()) else { continue };
            let (ops, mut pads) = (block.ops(), Pads::default());
            if !ops.iter().any(|op| unaligned_bias(*op).is_some()) {
                continue;
            }
            let frozen = Frozen::of(&ops);
            for op in ops {
                let Some((at, bias, more)) = unaligned_bias(op) else { continue };
                if !self.profitable(op, bias, frozen.contains(bias)) {
                    continue;
                }
                let b = Builder::before(op).ok_or_at(op, "is in no block")?.at(op.loc());
                op.set_operand(at, lengthened(&b, bias, more, &mut pads).at(op)?);
            }
        }
        Ok(())
    }
}

/// The bias of an attention by tensor cores, with its number among the operands, and by how many
/// elements its rows are too short, if these are no multiple of 16 bytes and have an element for
/// each key of each query.
fn unaligned_bias(op: Op) -> Option<(usize, Value, i64)> {
    let o = Attention::of(op)?;
    let (bias, of) = (o.bias?, |v: Value| tensor_type(v.ty()).ok());
    let (query, ty) = (of(o.query)?, of(bias)?);
    if ![DType::BF16, DType::F16].contains(&query.dtype) {
        return None;
    }
    let dims = bias.ty().dims();
    let [.., rows, columns] = dims.as_slice() else { return None };
    let unit = (UNIT / ty.dtype.byte_size().max(1)) as i64;
    let more = (unit - columns.known()? % unit) % unit;
    let each = rows.known() != Some(1) && columns.known()? > 1 && repeats_matrices(bias);
    let at = op.operands().iter().position(|v| *v == bias)?;
    (each && more > 0).then_some((at, bias, more))
}

/// Whether a value is no broadcast of rows or of elements, but at most of whole matrices.
fn repeats_matrices(v: Value) -> bool {
    let Some(o) = v.def().and_then(BroadcastInDim::of) else { return true };
    let (from, to) = (o.input.ty().dims(), v.ty().dims());
    let n = to.len() as i64;
    from.len() > 1
        && o.dims.ends_with(&[n - 2, n - 1])
        && from[from.len() - 2..] == to[to.len() - 2..]
        && repeats_matrices(o.input)
}

/// A bias with longer rows in memory. Of a broadcast the operand is lengthened.
fn lengthened(b: &Builder, v: Value, more: i64, pads: &mut Pads) -> Result<Value> {
    match v.def().and_then(BroadcastInDim::of) {
        Some(o) => {
            let input = lengthened(b, o.input, more, pads)?;
            b.add(&BroadcastInDim { input, ..o })
        }
        None => pads.longer_rows(b, v, more),
    }
}

impl PadBiases {
    /// Whether a copy of the bias takes less time than its elements take without TMA.
    fn profitable(&self, op: Op, bias: Value, frozen: bool) -> bool {
        let extent = |v: Value, d: usize| {
            v.ty().dims().get(d).and_then(|d| d.known()).unwrap_or(PRODUCT_EXTENT) as f64
        };
        let (query, key) = (op.operand(0), op.operand(1));
        let scores = extent(query, 0) * extent(query, 1) * extent(query, 2) * extent(key, 2);
        let Ok(ty) = tensor_type(bias.ty()) else { return false };
        let elements: f64 = (0..bias.ty().dims().len()).map(|d| extent(bias, d)).product();
        let bytes = elements * ty.dtype.byte_size() as f64;
        let clocks = |work: f64, rate: i64| work / (MODEL.processors() * rate.max(1)) as f64;
        let copy = match frozen {
            true => 0.0,
            false => clocks(2.0 * bytes, self.bandwidth) + self.launch as f64,
        };
        copy < clocks(scores, self.rate)
    }
}
