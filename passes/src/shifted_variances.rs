//! `kiln-shifted-variances`: computes mean and variance over leading dimensions by two sums that do
//! not depend on each other.
//!
//! Why: a variance is a sum of squared deviations from the mean, so that a batch norm reads its
//! input once for the mean and once more for the variance. Shifted by its first element the sums of
//! both need one read, and `kiln-fuse` computes them in one kernel. Rows that are reduced along the
//! last dimension stay: their kernels keep them in registers.
//!
//! Numerics: reassociates. With the shift c the sum of squared deviations is Q - S²/n, of S = sum
//! (x - c) and Q = sum (x - c)². Its relative error is that of f32 times 1 + (c - mean)² / variance
//! (Chan, Golub, LeVeque, Algorithms for computing the sample variance, 1983), so small because c is
//! one of the values; without the shift it grows with mean² / variance.
//!
//! ```text
//! before:  %s = kiln.reduce sum %x   %m = kiln.div %s, %n   %d = kiln.sub %x, %m   %v = kiln.reduce sum (%d * %d)
//! after:   %d = kiln.sub %x, %c   %s = kiln.reduce sum %d   %q = kiln.reduce sum (%d * %d)   %t = kiln.div %s, %n
//!          %m = kiln.add %c, %t   %v = kiln.max (%q - %s * %t), 0
//! ```
use crate::{
    decompose::tools::{Math, dtype},
    pass::{Numerics, Pass},
    readers::erase_dead,
    simplify::splats::is_number,
};
use kiln_dialects::{
    ir::*,
    ops::*,
    rules::{Level, tensor_type},
    sym::known_product,
    value::DType,
};

crate::pass_options! {
    /// The pass.
    pub struct ShiftedVariances {
        /// Least elements that are reduced
        pub min_elements: i64 = 65536,
    }
}

impl Pass for ShiftedVariances {
    const FLAG: &'static str = "kiln-shifted-variances";
    const SUMMARY: &'static str =
        "Computes mean and variance over leading dimensions by independent sums";
    const LEVELS: &'static [Level] = &[Level::Prims];
    const NUMERICS: Numerics = Numerics::Reassociates;

    fn run(&self, root: Op) -> Result<()> {
        for op in walk(root).into_iter().filter(|o| o.kind() == Some(OpKind::Reduce)) {
            if let Some(found) = self.find(op) {
                found.rewrite(op).at(op)?;
            }
        }
        Ok(())
    }
}

/// A sum of squared deviations.
struct Squares {
    /// What deviates, in f32.
    x: Value,
    /// The reduced dimensions.
    dims: Vec<i64>,
    /// The op that divides the sum of `x` by the number of elements.
    mean: Op,
}

impl ShiftedVariances {
    fn find(&self, op: Op) -> Option<Squares> {
        let o = Reduce::of(op).filter(|o| o.kind == ReduceKind::Sum)?;
        let square = Mul::of(o.input.def()?).filter(|m| m.lhs == m.rhs)?;
        let deviation = Sub::of(square.lhs.def()?)?;
        let (x, spread) = (deviation.lhs, BroadcastInDim::of(deviation.rhs.def()?)?);
        let (rank, leading) = (x.ty().dims().len() as i64, |d: &i64| !o.dims.contains(d));
        let stay: Vec<i64> = (0..rank).filter(leading).collect();
        let mean = spread.input.def()?;
        let (sum, count) = Div::of(mean).map(|d| (d.lhs, d.rhs))?;
        let sum = Reduce::of(sum.def()?).filter(|s| s.kind == ReduceKind::Sum && s.input == x)?;
        let all = x.ty().dims();
        let n = known_product(o.dims.iter().map(|d| &all[*d as usize]))?;
        let elements = known_product(&all)?;
        let fits = spread.dims == stay
            && sum.dims == o.dims
            && stay.last() == Some(&(rank - 1))
            && !o.dims.is_empty()
            && n > 1
            && is_number(count, n as f64)
            && elements >= self.min_elements
            && tensor_type(x.ty()).is_ok_and(|t| t.dtype == DType::F32)
            && is_stored(narrow(x));
        fits.then_some(Squares { x, dims: o.dims, mean })
    }
}

/// What an element is widened from.
fn narrow(x: Value) -> Value {
    x.def().and_then(Convert::of).map_or(x, |o| o.input)
}

/// Whether a value is in memory anyway, so that its first elements cost nothing: none of ops that its
/// readers compute, unless they are the epilogue of a contraction.
fn is_stored(v: Value) -> bool {
    let contracted = |v: Value| {
        let moved = v.def().and_then(Transpose::of).map_or(v, |o| o.input);
        let kind = moved.def().and_then(Op::kind);
        matches!(kind, Some(OpKind::Convolution | OpKind::DotGeneral))
    };
    v.def().is_none_or(|op| {
        let computed = op.kind().is_some_and(OpKind::is_elementwise);
        !computed || op.operands().into_iter().any(contracted)
    })
}

impl Squares {
    /// Replaces the mean and the sum of squares.
    fn rewrite(&self, squares: Op) -> Result<()> {
        // Readers of the mean may come before the squares.
        let b = Builder::before(self.mean).ok_or("is in no block")?.at(squares.loc());
        let m = Math { b: &b };
        let first = self.first(&m)?;
        // Widened twice: by the kernel that reads all of x, and by the one that finds the mean.
        let (wide, shift) = (dtype(self.x)?, m.convert(first, dtype(self.x)?)?);
        let spread = m.convert(m.broadcast_back(first, &self.dims, self.x)?, wide)?;
        let deviation = m.sub(self.x, spread)?;
        let sum = m.reduce(ReduceKind::Sum, deviation, &self.dims)?;
        let square = m.mul(deviation, deviation)?;
        let sum_of_squares = m.reduce(ReduceKind::Sum, square, &self.dims)?;
        let off = m.div(sum, self.mean.operand(1))?;
        let mean = m.add(shift, off)?;
        let rest = m.sub(sum_of_squares, m.mul(sum, off)?)?;
        let rest = m.binary(BinaryKind::Max, rest, m.full_like(rest, 0.0)?)?;
        let read = [self.mean.operand(0), squares.operand(0)];
        self.mean.result(0).replace_uses(mean);
        squares.result(0).replace_uses(rest);
        squares.erase();
        self.mean.erase();
        let fused = |kind: OpKind| {
            kind.is_elementwise() || matches!(kind, OpKind::Reduce | OpKind::BroadcastInDim)
        };
        erase_dead(read.to_vec(), fused);
        Ok(())
    }

    /// The first element along the reduced dimensions, of what is in memory.
    fn first(&self, m: &Math) -> Result<Value> {
        let stored = narrow(self.x);
        let all = m.sizes_of(stored)?;
        let gone = |i: usize| self.dims.contains(&(i as i64));
        let sizes: Vec<Size> =
            (0..all.len()).map(|i| if gone(i) { Size::Static(1) } else { all[i] }).collect();
        let kept: Vec<Size> = (0..all.len()).filter(|i| !gone(*i)).map(|i| all[i]).collect();
        let (zeros, ones) = (Size::all(&vec![0; all.len()]), vec![1; all.len()]);
        let input = m.b.add(&Slice { input: stored, offsets: zeros, sizes, strides: ones })?;
        m.reshape(input, &kept)
    }
}
