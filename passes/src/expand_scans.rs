//! `kiln-expand-scans`: cumulative sums, products and extremes are computed by loops, in blocks
//! where there are few rows.
//!
//! Why: a GPU has no library of functions. A kernel goes through an axis once, with what comes
//! before in registers; such an op stays as it is and is marked, so that fusion takes it for loops.
//! Where a few rows are long, a group of threads for each of them would leave most of the card
//! idle: there a row is cut into blocks, each of which is a row of its own, and what all blocks
//! before give is combined with it. Blocks are so few that this is a reduction of all before each.
//!
//! Numerics: reassociates.
//!
//! ```text
//! before:  %0 = kiln.cumulative sum %x axis = 1 : tensor<8x4096xf32>
//! after:   %0 = kiln.cumulative sum %x axis = 1 {kiln.loops} : tensor<8x4096xf32>
//! ```
use crate::{
    decompose::tools::{Math, replace_ops, wide},
    pass::{Numerics, Pass},
};
use kiln_dialects::{
    ir::*,
    ops::*,
    rules::{GRAPH_LEVELS, Level, tensor_type},
    value::DType,
};

/// The unit attribute of a `kiln.cumulative` that loops of a kernel compute, and no function of the
/// runtime.
pub const LOOPS: &str = "kiln.loops";

crate::pass_options! {
    /// The pass.
    pub struct ExpandScans {
        /// The longest axis that is no more than one block
        pub whole: i64 = 16384,
        /// Groups of threads that fill the card, which go through rows, or through columns of
        /// several rows
        pub groups: i64 = 256,
        /// Neighbouring columns that one group goes through, where others lie between the elements
        /// of an axis
        pub beside: i64 = 16,
    }
}

/// Elements that a block has a multiple of, if that can be.
const ALIGNED: i64 = 16;

impl Pass for ExpandScans {
    const FLAG: &'static str = "kiln-expand-scans";
    const SUMMARY: &'static str =
        "Leaves cumulative sums, products and extremes to loops, in blocks where few rows are long";
    const LEVELS: &'static [Level] = GRAPH_LEVELS;
    const NUMERICS: Numerics = Numerics::Reassociates;

    fn run(&self, root: Op) -> Result<()> {
        if self.whole < 2 || self.groups < 4 || self.beside < 1 {
            return Err("whole is at least 2, groups at least 4 and beside at least 1".into());
        }
        let made = |m: &Math, scan: Cumulative| {
            let dtype = tensor_type(scan.input.ty())?.dtype;
            let x = m.convert(scan.input, summed(dtype))?;
            let all =
                Scan { m, kind: scan.kind, axis: scan.axis as usize, how: self }.running(x)?;
            Ok(vec![m.convert(all, dtype)?])
        };
        replace_ops(root, |m, op| {
            Cumulative::of(op).filter(|_| op.attr(LOOPS).is_none()).map(|scan| made(m, scan))
        })
    }
}

/// What a dtype is reduced in: f32 for floats of 16 bits and less, whole numbers for truth values,
/// whose sum is their disjunction.
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
    how: &'a ExpandScans,
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
    fn reduce(&self, x: Value, axis: usize) -> Result<Value> {
        self.m.reduce(self.kinds().0, x, &[axis as i64])
    }

    /// How many blocks a row is cut into, and the elements of each; none where it is whole.
    fn blocks(&self, sizes: &[Size]) -> Option<(i64, i64)> {
        let known: Vec<i64> = sizes.iter().map(|s| s.known()).collect::<Option<_>>()?;
        let product = |all: &[i64]| all.iter().try_fold(1i64, |n, k| n.checked_mul(*k));
        let (n, outer, inner) =
            (known[self.axis], product(&known[..self.axis])?, product(&known[self.axis + 1..])?);
        let groups = outer.checked_mul((inner + self.how.beside - 1) / self.how.beside)?;
        if n <= self.how.whole || groups == 0 || groups > self.how.groups / 4 {
            return None;
        }
        let wanted = (self.how.groups / groups).min(n / 2);
        // Blocks of one size where there are such, best of all where each begins at a multiple of
        // what one access takes.
        let even = (wanted / 2 + 1..=wanted).filter(|parts| n % parts == 0);
        let best = even.max_by_key(|parts| {
            ((n / parts).trailing_zeros().min(ALIGNED.trailing_zeros()), *parts)
        });
        let size = best.map_or_else(|| (n + wanted - 1) / wanted, |parts| n / parts);
        let size = if best.is_none() && size > ALIGNED {
            (size + ALIGNED - 1) / ALIGNED * ALIGNED
        } else {
            size
        };
        Some(((n + size - 1) / size, size))
    }

    /// The scan of an axis.
    fn running(&self, x: Value) -> Result<Value> {
        let (m, axis) = (self.m, self.axis);
        let own = m.sizes_of(x)?;
        let n = own.get(axis).and_then(|n| n.known());
        let Some(((parts, size), n)) = self.blocks(&own).zip(n) else {
            return self.looped(x, axis);
        };
        let with = |sizes: &[i64]| {
            [
                &own[..axis],
                &sizes.iter().map(|n| Size::Static(*n)).collect::<Vec<_>>(),
                &own[axis + 1..],
            ]
            .concat()
        };
        let zeros = vec![Size::Static(0); own.len()];
        let mut padded = x;
        if parts * size > n {
            let mut high = zeros.clone();
            high[axis] = Size::Static(parts * size - n);
            let value = m.b.add(&Splat {
                value: neutral(m.b.ctx, self.kinds().0, tensor_type(x.ty())?.dtype),
                sizes: vec![],
            })?;
            padded = m.b.add(&Pad { input: x, value, low: zeros.clone(), high })?;
        }
        let blocks = m.reshape(padded, &with(&[parts, size]))?;
        let inner = self.looped(blocks, axis + 1)?;
        let before = self.before(self.reduce(blocks, axis + 1)?)?;
        let dims: Vec<i64> = (0..own.len()).map(|d| (d + usize::from(d > axis)) as i64).collect();
        let both = m.binary(
            self.kinds().1,
            inner,
            m.retype_like(m.broadcast(before, &dims, &with(&[parts, size]))?, inner)?,
        )?;
        let long = m.reshape(both, &with(&[parts * size]))?;
        if parts * size == n {
            return Ok(long);
        }
        m.b.add(&Slice {
            input: long,
            offsets: zeros,
            sizes: own.clone(),
            strides: vec![1; own.len()],
        })
    }

    /// The op itself, for loops.
    fn looped(&self, input: Value, axis: usize) -> Result<Value> {
        let all = self.m.b.add(&Cumulative { kind: self.kind, input, axis: axis as i64 })?;
        all.def().ok_or("made no op")?.set_attr(LOOPS, Attr::unit(self.m.b.ctx));
        Ok(all)
    }

    /// For each of a few elements all that come before it.
    fn before(&self, x: Value) -> Result<Value> {
        let (m, axis) = (self.m, self.axis);
        let own = m.sizes_of(x)?;
        // In front of the axis a dimension of copies, which is what stays.
        let mut sizes = own.clone();
        sizes.insert(axis, own[axis]);
        let dims: Vec<i64> = (0..own.len()).map(|d| (d + usize::from(d >= axis)) as i64).collect();
        let all = m.broadcast(x, &dims, &sizes)?;
        let counts =
            m.compare(CompareKind::Lt, m.iota(&sizes, axis + 1)?, m.iota(&sizes, axis)?)?;
        let nothing = m.b.add(&Splat {
            value: neutral(m.b.ctx, self.kinds().0, tensor_type(x.ty())?.dtype),
            sizes,
        })?;
        self.reduce(m.select(counts, all, nothing)?, axis + 1)
    }
}
