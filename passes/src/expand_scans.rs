//! `kiln-expand-scans`: a cumulative sum, product or extreme becomes reductions of what comes before each element.
//!
//! Why: a GPU has no library of functions. A long axis is cut into blocks: an element is what comes before it in its block, combined with all blocks before,
//! whose results are a shorter scan. So the work is the number of elements times the size of a block, and of an open axis beside that the square of the
//! number of blocks. Within one kernel the larger tensor of a block with itself is never in memory.
//!
//! Numerics: reassociates.
//!
//! ```text
//! before:  %0 = kiln.cumulative sum %x axis = 0 : tensor<4xf32>
//! after:   %b = kiln.broadcast_in_dim %x dims = [1] sizes = [4, 4]   %m = kiln.compare le %j, %i   %s = kiln.select %m, %b, %zero
//!          %0 = kiln.reduce sum %s dims = [1]
//! ```
use crate::{
    decompose::tools::{Math, replace_ops, wide},
    pass::{Failure, Numerics, Pass},
};
use kiln_dialects::{
    ir::*,
    ops::*,
    rules::{GRAPH_LEVELS, Level, tensor_type},
    value::DType,
};

crate::pass_options! {
    /// The pass.
    pub struct ExpandScans {
        /// The longest axis that is no more than one block
        pub whole: i64 = 256,
    }
}

/// Elements of a block of an axis of open size, and where no divisor of a known size is near.
const BLOCK: i64 = 64;
/// Elements of a block of a known size.
const BLOCKS: std::ops::RangeInclusive<i64> = 16..=64;

impl Pass for ExpandScans {
    const FLAG: &'static str = "kiln-expand-scans";
    const SUMMARY: &'static str = "Writes cumulative sums, products and extremes as reductions";
    const LEVELS: &'static [Level] = GRAPH_LEVELS;
    const NUMERICS: Numerics = Numerics::Reassociates;

    fn run(&self, root: Op) -> Result<(), Failure> {
        if self.whole < 64 {
            return Err(format!("whole is at least 64, not {}", self.whole).into());
        }
        let made = |m: &Math, scan: Cumulative| {
            let dtype = tensor_type(scan.input.ty())?.dtype;
            let x = m.convert(scan.input, summed(dtype))?;
            let all = Scan { m, kind: scan.kind, axis: scan.axis as usize, whole: self.whole }.running(x, false)?;
            Ok(vec![m.convert(all, dtype)?])
        };
        replace_ops(root, |m, op| Cumulative::of(op).map(|scan| made(m, scan)))
    }
}

/// What a dtype is reduced in: f32 for floats of 16 bits and less, whole numbers for truth values, whose sum is their disjunction.
pub(crate) fn summed(dtype: DType) -> DType {
    if dtype == DType::I1 { DType::I64 } else { wide(dtype) }
}

/// What changes nothing of a reduction.
pub(crate) fn neutral(c: Ctx, kind: ReduceKind, dtype: DType) -> Attr {
    match (kind, dtype.is_float()) {
        (ReduceKind::Prod, _) => Attr::scalar_int(c, dtype, 1),
        (ReduceKind::Max, true) => Attr::scalar(c, dtype, f64::NEG_INFINITY),
        (ReduceKind::Min, true) => Attr::scalar(c, dtype, f64::INFINITY),
        (ReduceKind::Max, false) => Attr::scalar_int(c, dtype, dtype.int_range().0),
        (ReduceKind::Min, false) => Attr::scalar_int(c, dtype, dtype.int_range().1),
        _ => Attr::scalar_int(c, dtype, 0),
    }
}

struct Scan<'a> {
    m: &'a Math<'a>,
    kind: CumulativeKind,
    axis: usize,
    whole: i64,
}

impl Scan<'_> {
    /// What reduces and what combines two results.
    fn kinds(&self) -> (ReduceKind, BinaryKind) {
        match self.kind {
            CumulativeKind::Sum => (ReduceKind::Sum, BinaryKind::Add),
            CumulativeKind::Prod => (ReduceKind::Prod, BinaryKind::Mul),
            CumulativeKind::Max => (ReduceKind::Max, BinaryKind::Max),
            CumulativeKind::Min => (ReduceKind::Min, BinaryKind::Min),
        }
    }
    fn reduce(&self, x: Value, axis: usize) -> Result<Value, String> {
        self.m.reduce(self.kinds().0, x, &[axis as i64])
    }

    /// The scan of an axis; `before`: without the element itself.
    fn running(&self, x: Value, before: bool) -> Result<Value, String> {
        let (m, axis) = (self.m, self.axis);
        let own = m.sizes_of(x)?;
        let n = *own.get(axis).ok_or("has no such axis")?;
        let block = match n.known() {
            Some(n) if n <= self.whole => return self.direct(x, axis, before),
            Some(n) => BLOCKS.rev().find(|b| n % b == 0).unwrap_or(BLOCK),
            None => BLOCK,
        };
        let size = Size::Static(block);
        let parts = m.size(SymKind::Floordiv, m.size(SymKind::Add, n, Size::Static(block - 1))?, size)?;
        let all = m.size(SymKind::Mul, parts, size)?;
        let with = |sizes: &[Size]| [&own[..axis], sizes, &own[axis + 1..]].concat();
        let zeros = vec![Size::Static(0); own.len()];
        let padded = match (n.known(), all.known()) {
            (Some(n), Some(all)) if n == all => x,
            _ => {
                let mut high = zeros.clone();
                high[axis] = m.size(SymKind::Add, all, m.size(SymKind::Mul, n, Size::Static(-1))?)?;
                let dtype = tensor_type(x.ty())?.dtype;
                let value = m.b.add(&Splat { value: neutral(m.b.ctx, self.kinds().0, dtype), sizes: vec![] })?;
                m.b.add(&Pad { input: x, value, low: zeros.clone(), high })?
            }
        };
        let blocks = m.reshape(padded, &with(&[parts, size]))?;
        let inner = self.direct(blocks, axis + 1, before)?;
        let totals = self.reduce(blocks, axis + 1)?;
        let carry = if parts.known().is_some() { self.running(totals, true)? } else { self.direct(totals, axis, true)? };
        let dims: Vec<i64> = (0..own.len()).map(|d| (d + usize::from(d > axis)) as i64).collect();
        let both = m.binary(self.kinds().1, inner, m.retype_like(m.broadcast(carry, &dims, &with(&[parts, size]))?, inner)?)?;
        let long = m.reshape(both, &with(&[all]))?;
        if n.known().is_some() && n.known() == all.known() {
            return Ok(long);
        }
        m.b.add(&Slice { input: long, offsets: zeros, sizes: own.clone(), strides: vec![1; own.len()] })
    }

    /// Each element from all that come before it.
    fn direct(&self, x: Value, axis: usize, before: bool) -> Result<Value, String> {
        let m = self.m;
        let own = m.sizes_of(x)?;
        // In front of the axis a dimension of copies, which is what stays.
        let mut sizes = own.clone();
        sizes.insert(axis, own[axis]);
        let dims: Vec<i64> = (0..own.len()).map(|d| (d + usize::from(d >= axis)) as i64).collect();
        let all = m.broadcast(x, &dims, &sizes)?;
        let kind = if before { CompareKind::Lt } else { CompareKind::Le };
        let counts = m.compare(kind, m.iota(&sizes, axis + 1)?, m.iota(&sizes, axis)?)?;
        let nothing = m.b.add(&Splat { value: neutral(m.b.ctx, self.kinds().0, tensor_type(x.ty())?.dtype), sizes })?;
        self.reduce(m.select(counts, all, nothing)?, axis + 1)
    }
}
