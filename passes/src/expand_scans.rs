//! `kiln-expand-scans`: marks cumulative ops for loop code generation, and makes scans of few long
//! rows blocked scans.
//!
//! Why: GPU kernels cannot call the runtime. A scan kernel reads the axis once and holds the
//! running value in registers; the op stays and is marked, so that fusion outlines it as a loop.
//! With a few long rows, one CTA per row would leave most SMs idle: the row is cut into blocks that
//! are scanned as rows, and each block adds the reduction of all blocks before it (there are few).
//!
//! Numerics: reassociates.
//!
//! ```text
//! before:  %0 = kiln.cumulative sum %x axis = 1 : tensor<8x4096xf32>
//! after:   %0 = kiln.cumulative sum %x axis = 1 {kiln.loops} : tensor<8x4096xf32>
//! ```
use crate::{
    decompose::tools::{Math, accumulator_type, replace_ops},
    pass::{Numerics, Pass},
};
use kiln_dialects::{
    ir::*,
    ops::*,
    rules::{GRAPH_LEVELS, Level, tensor_type},
    value::DType,
};

/// Unit attribute of a `kiln.cumulative` that a kernel's loops compute, not a runtime function.
pub const LOOPS: &str = "kiln.loops";

crate::pass_options! {
    /// The pass.
    pub struct ExpandScans {
        /// The longest axis that is scanned as one block
        pub max_block: i64 = 16384,
        /// CTAs that fill the GPU; one CTA scans a row, or several columns
        pub ctas: i64 = 256,
        /// Adjacent columns per CTA, when the scanned axis is not the innermost
        pub columns_per_cta: i64 = 16,
    }
}

/// Block sizes are multiples of this where possible, so that loads stay vectorised.
const ALIGNED: i64 = 16;

impl Pass for ExpandScans {
    const FLAG: &'static str = "kiln-expand-scans";
    const SUMMARY: &'static str =
        "Marks cumulative ops for loops, and expands scans of few long rows into blocked scans";
    const LEVELS: &'static [Level] = GRAPH_LEVELS;
    const NUMERICS: Numerics = Numerics::Reassociates;

    fn run(&self, root: Op) -> Result<()> {
        if self.max_block < 2 || self.ctas < 4 || self.columns_per_cta < 1 {
            return Err(
                "max-block is at least 2, ctas at least 4, columns-per-cta at least 1".into()
            );
        }
        let expanded = |m: &Math, scan: Cumulative| {
            let dtype = tensor_type(scan.input.ty())?.dtype;
            let x = m.convert(scan.input, reduction_type(dtype))?;
            let all =
                Scan { m, kind: scan.kind, axis: scan.axis as usize, options: self }.scan(x)?;
            Ok(vec![m.convert(all, dtype)?])
        };
        replace_ops(root, |m, op| {
            Cumulative::of(op).filter(|_| op.attr(LOOPS).is_none()).map(|scan| expanded(m, scan))
        })
    }
}

/// The accumulator type: f32 for floats of at most 16 bits; i64 for i1, where a sum means "any".
pub(crate) fn reduction_type(dtype: DType) -> DType {
    if dtype == DType::I1 { DType::I64 } else { accumulator_type(dtype) }
}

/// The identity element of a reduction.
pub fn identity(c: Ctx, kind: ReduceKind, dtype: DType) -> Attr {
    match (kind, dtype.is_float()) {
        (ReduceKind::Prod | ReduceKind::All, _) => Attr::scalar_int(c, dtype, 1),
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
    options: &'a ExpandScans,
}

impl Scan<'_> {
    /// The reduction, and the op that combines two partial results.
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

    /// The number of blocks of a row and their size; none if the row is scanned as one block.
    fn blocks(&self, sizes: &[Size]) -> Option<(i64, i64)> {
        let known: Vec<i64> = sizes.iter().map(|s| s.known()).collect::<Option<_>>()?;
        let product = |all: &[i64]| all.iter().try_fold(1i64, |n, k| n.checked_mul(*k));
        let (n, outer, inner) =
            (known[self.axis], product(&known[..self.axis])?, product(&known[self.axis + 1..])?);
        let ctas = outer.checked_mul(
            (inner + self.options.columns_per_cta - 1) / self.options.columns_per_cta,
        )?;
        if n <= self.options.max_block || ctas == 0 || ctas > self.options.ctas / 4 {
            return None;
        }
        let wanted = (self.options.ctas / ctas).min(n / 2);
        // Prefer equal blocks that start at a vector-aligned offset.
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

    /// Scans the axis, in blocks if `blocks` says so.
    fn scan(&self, x: Value) -> Result<Value> {
        let (m, axis) = (self.m, self.axis);
        let sizes_x = m.sizes_of(x)?;
        let n = sizes_x.get(axis).and_then(|n| n.known());
        let Some(((parts, size), n)) = self.blocks(&sizes_x).zip(n) else {
            return self.marked(x, axis);
        };
        let with = |sizes: &[i64]| {
            [
                &sizes_x[..axis],
                &sizes.iter().map(|n| Size::Static(*n)).collect::<Vec<_>>(),
                &sizes_x[axis + 1..],
            ]
            .concat()
        };
        let zeros = vec![Size::Static(0); sizes_x.len()];
        let mut padded = x;
        if parts * size > n {
            let mut high = zeros.clone();
            high[axis] = Size::Static(parts * size - n);
            let value = m.b.add(&Splat {
                value: identity(m.b.ctx, self.kinds().0, tensor_type(x.ty())?.dtype),
                sizes: vec![],
            })?;
            padded = m.b.add(&Pad { input: x, value, low: zeros.clone(), high })?;
        }
        let blocks = m.reshape(padded, &with(&[parts, size]))?;
        let inner = self.marked(blocks, axis + 1)?;
        let exclusive = self.exclusive(self.reduce(blocks, axis + 1)?)?;
        let dims: Vec<i64> =
            (0..sizes_x.len()).map(|d| (d + usize::from(d > axis)) as i64).collect();
        let both = m.binary(
            self.kinds().1,
            inner,
            m.retype_like(m.broadcast(exclusive, &dims, &with(&[parts, size]))?, inner)?,
        )?;
        let long = m.reshape(both, &with(&[parts * size]))?;
        if parts * size == n {
            return Ok(long);
        }
        m.b.add(&Slice {
            input: long,
            offsets: zeros,
            sizes: sizes_x.clone(),
            strides: vec![1; sizes_x.len()],
        })
    }

    /// The op itself, marked for loops.
    fn marked(&self, input: Value, axis: usize) -> Result<Value> {
        let all = self.m.b.add(&Cumulative { kind: self.kind, input, axis: axis as i64 })?;
        all.def().ok_or("made no op")?.set_attr(LOOPS, Attr::unit(self.m.b.ctx));
        Ok(all)
    }

    /// The exclusive scan of a few block totals, as a masked reduction.
    fn exclusive(&self, x: Value) -> Result<Value> {
        let (m, axis) = (self.m, self.axis);
        let sizes_x = m.sizes_of(x)?;
        // A leading copy of the axis; it is the one that remains.
        let mut sizes = sizes_x.clone();
        sizes.insert(axis, sizes_x[axis]);
        let dims: Vec<i64> =
            (0..sizes_x.len()).map(|d| (d + usize::from(d >= axis)) as i64).collect();
        let all = m.broadcast(x, &dims, &sizes)?;
        let counts =
            m.compare(CompareKind::Lt, m.iota(&sizes, axis + 1)?, m.iota(&sizes, axis)?)?;
        let nothing = m.b.add(&Splat {
            value: identity(m.b.ctx, self.kinds().0, tensor_type(x.ty())?.dtype),
            sizes,
        })?;
        self.reduce(m.select(counts, all, nothing)?, axis + 1)
    }
}
