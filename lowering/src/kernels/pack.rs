//! `kiln-pack`: stores weights of contractions in the order in which a register tile reads them.
//!
//! Why: a tile multiplies one element of the input with vectors of the weight. Packed as `[N/32, K,
//! 32]`, these vectors are contiguous along the whole K loop for any N: no stride, no page per row,
//! no panel copies in each call. `kiln-freeze` packs once; the reader's index
//! `(n floordiv 32, k, n mod 32)` comes from the movement ops that undo the packing. Upstream's
//! `linalg.pack` works on operands, which are packed in each call, and needs the whole computation
//! in the packed shape.
//!
//! With `mutable`, mutable weights of convolutions are packed as well, in each call: of an NHWC image
//! a register tile reads no other order, and `kiln-layout` has counted the cost. Reshapes that undo
//! the packing are marked `kiln.index`, so that fusion makes no copy of them. Weights of matmuls are
//! not packed, since their kernels pack what they read.
//!
//! Instructions that multiply pairs of bf16 need two rows interleaved: with `pairs`, such a matrix
//! of even K is stored as `[N/32, K/2, 32, 2]`.
//!
//! A GPU's threads and TMA read K-major operands. With `channels-last`, weights of NHWC
//! convolutions are stored as `[O, H, W, C]`, or for a depthwise convolution as `[H, W, 1, C]`, and
//! no other weight is packed. Mutable weights are transposed in each call.
//!
//! The weights of a batched matmul are stored as `[B, N/32, K, 32]`.
//!
//! The weight of a grouped convolution is stored as `[groups, window.., channels, filters]`.
//!
//! A weight of few columns or rows is not packed, nor one that would grow by more than `growth`
//! percent; `kiln.pack` on the contraction records the reason.
//!
//! Numerics: exact. Padding columns are never read.
//!
//! ```text
//! before:  %0 = kiln.dot_general %x, %w …  (%w : [K, N])
//! after:   %p = kiln.transpose (kiln.reshape (kiln.pad %w)) {kiln.stored}  : [N/32, K, 32]
//!          %v = kiln.slice (kiln.reshape (kiln.transpose %p)) : [K, N]     %0 = kiln.dot_general %x, %v …
//! ```
use crate::kernels::{
    frozen::{Frozen, INDEX, STORED, is_movement},
    marks::AS_IT_IS,
    op_facts::{folded_transpose, is_dense, is_depthwise},
};
use kiln_dialects::{
    ir::*,
    ops::*,
    rules::{Level, tensor_type},
    value::DType,
};
use kiln_passes::{
    Numerics, Pass,
    permutation::{channels_last, inverse},
};

kiln_passes::pass_options! {
    /// The pass.
    pub struct Pack {
        /// Columns of a packed block
        pub block: i64 = 32,
        /// Least rows (K) of a weight that is packed
        pub depth: i64 = 16,
        /// Most percent by which packing may grow a weight
        pub growth: i64 = 50,
        /// Interleaves pairs of rows of bf16 matrices, for instructions that multiply pairs
        pub pairs: bool = false,
        /// Packs mutable weights of convolutions too, in each call
        pub mutable: bool = false,
        /// Stores weights of NHWC convolutions in that order, and packs no others
        pub channels_last: bool = false,
    }
}

impl Pass for Pack {
    const FLAG: &'static str = "kiln-pack";
    const SUMMARY: &'static str =
        "Packs weights of contractions in the order in which register tiles read them";
    const LEVELS: &'static [Level] = &[Level::Prims];
    const NUMERICS: Numerics = Numerics::Exact;

    fn run(&self, root: Op) -> Result<()> {
        if self.block < 1 {
            return Err(format!("block is at least 1, not {}", self.block).into());
        }
        for func in functions_in(root) {
            let Some(block) = func.regions().first().and_then(|r| r.first()) else { continue };
            let ops = block.ops();
            let frozen = Frozen::of(&ops);
            for op in ops {
                let Some((operand, columns)) = weight(op).filter(|(i, _)| {
                    let w = op.operand(*i);
                    let mutable = self.channels_last
                        || self.mutable && Convolution::of(op).is_some() && is_static_float(w);
                    (mutable || frozen.contains(w)) && op.attr("kiln.pack").is_none()
                }) else {
                    continue;
                };
                if frozen.contains(op.result(0)) {
                    continue;
                }
                let w = op.operand(operand);
                if self.channels_last {
                    // The depthwise kernel reads a mutable weight in any order that it was given in,
                    // but not reversed.
                    let given = !frozen.contains(w)
                        && w.def().and_then(Op::kind).is_some_and(is_movement)
                        && !is_reversed(w)
                        && Convolution::of(op).is_some_and(|o| is_depthwise(&o));
                    if let Some((order, said)) =
                        windowed(op, w).filter(|(order, _)| !given && !is_stored_in(w, order))
                    {
                        let b = Builder::before(op).ok_or_at(op, "is in no block")?.at(w.loc());
                        op.set_operand(operand, stored(&b, w, order).at(op)?);
                        op.set_attr("kiln.pack", Attr::string(op.ctx(), said));
                    }
                    continue;
                }
                if let Some(filters) = filters_of_a_group(op) {
                    op.set_operand(operand, by_group(op, w, filters).at(op)?);
                    op.set_attr("kiln.pack", Attr::string(op.ctx(), "by group, filters last"));
                    continue;
                }
                let said = match self.pays(op, w, columns) {
                    Ok(()) => {
                        op.set_operand(operand, self.packed(op, w, columns).at(op)?);
                        let pairs =
                            if self.in_pairs(op, w, columns) { ", rows in pairs" } else { "" };
                        format!("in blocks of {} columns{pairs}", self.block)
                    }
                    Err(why) if last_pays(op, columns) => {
                        op.set_operand(operand, last(op, w, columns).at(op)?);
                        format!("with columns last: {why}")
                    }
                    Err(why) => format!("{AS_IT_IS}: {why}"),
                };
                op.set_attr("kiln.pack", Attr::string(op.ctx(), &said));
            }
        }
        Ok(())
    }
}

/// The weight operand of a contraction, and its dimension that is vectorised.
fn weight(op: Op) -> Option<(usize, usize)> {
    if op.kind() == Some(OpKind::Convolution) {
        return folded_transpose(op).map(|_| (1, 0));
    }
    let o = DotGeneral::of(op)?;
    let rank = o.rhs.ty().dims().len();
    let columns = match (&o.rhs_batch[..], &o.rhs_contract[..]) {
        ([], [k]) if rank == 2 => 1 - *k as usize,
        ([0], [k]) if rank == 3 => 3 - *k as usize,
        _ => return None,
    };
    tensor_type(o.rhs.ty()).is_ok_and(|t| t.dtype.is_float()).then_some((1, columns))
}

/// Whether a value is reversed, and maybe moved then.
fn is_reversed(v: Value) -> bool {
    let moved = |op: &Op| op.kind().is_some_and(is_movement);
    let up = |op: &Op| op.operand(0).def().filter(moved);
    std::iter::successors(v.def().filter(moved), up).any(|op| op.kind() == Some(OpKind::Reverse))
}

/// Whether a value is of floating-point elements, and all its sizes are known.
fn is_static_float(v: Value) -> bool {
    tensor_type(v.ty())
        .is_ok_and(|t| t.dtype.is_float() && t.dims.iter().all(|d| d.known().is_some()))
}

/// The batch dimensions of a weight, which are its first.
fn batch_of(op: Op) -> usize {
    DotGeneral::of(op).map_or(0, |o| o.rhs_batch.len())
}

/// The order in which a convolution with a window of several elements reads its weight: input
/// channels innermost, or for a depthwise convolution the channels themselves.
fn windowed(op: Op, w: Value) -> Option<(Vec<i64>, &'static str)> {
    let sizes: Vec<i64> = w.ty().dims().iter().filter_map(|d| d.known()).collect();
    let o = Convolution::of(op)?;
    let (one, depthwise) = (is_dense(op), is_depthwise(&o));
    match sizes[..] {
        [_, c, h, w] if one && c > 1 && h * w > 1 => {
            Some((channels_last(4), "with input channels last"))
        }
        [_, 1, h, w] if depthwise && h * w > 1 => Some((vec![2, 3, 1, 0], "with channels last")),
        _ => None,
    }
}

impl Pack {
    fn pays(&self, op: Op, w: Value, columns: usize) -> Result<()> {
        let sizes: Vec<i64> = w.ty().dims().iter().filter_map(|d| d.known()).collect();
        let n = sizes[columns];
        let rows = sizes.iter().enumerate().skip(batch_of(op)).filter(|(i, _)| *i != columns);
        let depth: i64 = rows.map(|(_, n)| n).product();
        let whole = (n + self.block - 1) / self.block * self.block;
        let depthwise = Convolution::of(op).is_some_and(|o| is_depthwise(&o));
        match () {
            () if depthwise => Err("each channel has a window of its own".into()),
            () if depth < self.depth => {
                Err(format!("{depth} rows are fewer than {}", self.depth).into())
            }
            () if n < self.block => {
                Err(format!("{n} columns are fewer than {}", self.block).into())
            }
            () if (whole - n) * 100 > n * self.growth => {
                Err(format!("{n} columns would become {whole}").into())
            }
            () => Ok(()),
        }
    }

    /// Whether pairs of rows are interleaved.
    fn in_pairs(&self, op: Op, w: Value, columns: usize) -> bool {
        let even = w
            .ty()
            .dims()
            .get(1 - columns.min(1))
            .and_then(|d| d.known())
            .is_some_and(|k| k % 2 == 0);
        let matrix = DotGeneral::of(op).is_some() && w.ty().dims().len() == 2;
        self.pairs && matrix && even && tensor_type(w.ty()).is_ok_and(|t| t.dtype == DType::BF16)
    }

    /// The packed weight seen in its original shape: dimension `columns` split into blocks, with
    /// the block index outermost and the column within a block innermost.
    fn packed(&self, op: Op, w: Value, columns: usize) -> Result<Value> {
        let b = Builder::before(op).ok_or("is in no block")?.at(w.loc());
        let t = tensor_type(w.ty())?;
        let sizes: Vec<i64> = t
            .dims
            .iter()
            .map(|d| d.known())
            .collect::<Option<_>>()
            .ok_or("has a weight of unknown size")?;
        let n = sizes[columns];
        let count = (n + self.block - 1) / self.block;
        let mut whole = w;
        if n % self.block != 0 {
            let mut high = vec![0; sizes.len()];
            high[columns] = count * self.block - n;
            let value = b.splat(t.dtype, &[], 0.0)?;
            whole = b.add(&Pad {
                input: w,
                value,
                low: Size::all(&vec![0; sizes.len()]),
                high: Size::all(&high),
            })?;
        }
        let mut split = sizes.clone();
        split.splice(columns..=columns, [count, self.block]);
        // Blocks outermost, columns within a block innermost, all other dimensions between them in
        // the order of the reduction loops.
        let batch = batch_of(op);
        let between = order(sizes.len(), columns, batch)
            .into_iter()
            .map(|d| if d > columns as i64 { d + 1 } else { d })
            .collect();
        let front = (0..batch as i64).chain([columns as i64]).collect();
        let mut permutation: Vec<i64> = [front, between, vec![columns as i64 + 1]].concat();
        if self.in_pairs(op, w, columns) {
            // [blocks, row pairs, columns, rows of a pair].
            let row = if columns == 0 { 2 } else { 0 };
            split.splice(row..=row, [split[row] / 2, 2]);
            permutation = if columns == 0 { vec![0, 2, 1, 3] } else { vec![2, 0, 3, 1] };
        }
        let split = b.add(&Reshape { input: whole, sizes: Size::all(&split) })?;
        let apart = stored(&b, split, permutation)?;
        let mut joined = sizes.clone();
        joined[columns] = count * self.block;
        let joined = index(&b, apart, &joined)?;
        if n % self.block == 0 {
            return Ok(joined);
        }
        let zero = Size::all(&vec![0; sizes.len()]);
        b.add(&Slice {
            input: joined,
            offsets: zero,
            sizes: Size::all(&sizes),
            strides: vec![1; sizes.len()],
        })
    }
}

/// The dimensions of a weight except its columns and batch, in the order of the reduction loops:
/// window before channels.
fn order(rank: usize, columns: usize, batch: usize) -> Vec<i64> {
    let mut all: Vec<i64> = (batch as i64..rank as i64).filter(|d| *d != columns as i64).collect();
    if rank - batch > 2 {
        all.rotate_left(1);
    }
    all
}

/// Whether a value is read from memory in this order already, through a transpose.
fn is_stored_in(w: Value, order: &[i64]) -> bool {
    w.def().and_then(Transpose::of).is_some_and(|t| t.permutation == inverse(order))
}

/// A value stored in a permuted order and read through the inverse permutation.
fn stored(b: &Builder, input: Value, permutation: Vec<i64>) -> Result<Value> {
    let back = inverse(&permutation);
    let op = b.create_node(&Transpose { input, permutation })?;
    op.set_attr(STORED, Attr::unit(b.ctx));
    b.add(&Transpose { input: op.result(0), permutation: back })
}

/// Filters of each group of a grouped convolution whose weight is stored group by group.
fn filters_of_a_group(op: Op) -> Option<i64> {
    let o = Convolution::of(op).filter(|o| o.groups != 1 && !is_depthwise(o))?;
    o.weight.ty().dims().first()?.known().map(|n| n / o.groups).filter(|n| *n > 1)
}

/// The weight stored as `[groups, window.., channels, filters]`: a vector holds filters of one
/// group.
fn by_group(op: Op, w: Value, filters: i64) -> Result<Value> {
    let b = Builder::before(op).ok_or("is in no block")?.at(w.loc());
    let sizes: Vec<i64> = w.ty().dims().iter().filter_map(|d| d.known()).collect();
    let (Some(all), true) = (sizes.first(), sizes.len() == w.ty().dims().len()) else {
        return Err("has a weight of unknown size".into());
    };
    let split = [&[all / filters, filters], &sizes[1..]].concat();
    let apart = b.add(&Reshape { input: w, sizes: Size::all(&split) })?;
    let window = 3..split.len() as i64;
    let permutation = [0].into_iter().chain(window).chain([2, 1]).collect();
    let apart = stored(&b, apart, permutation)?;
    index(&b, apart, &sizes)
}

/// A reshape that readers fold into their index, since a view would be of a copy.
fn index(b: &Builder, input: Value, sizes: &[i64]) -> Result<Value> {
    let op = b.create_node(&Reshape { input, sizes: Size::all(sizes) })?;
    op.set_attr(INDEX, Attr::unit(b.ctx));
    Ok(op.result(0))
}

/// Whether a weight of few columns is better stored with the columns innermost: for a matrix, if
/// they are not innermost and several rows read it.
fn last_pays(op: Op, columns: usize) -> bool {
    let Some(o) = DotGeneral::of(op) else { return true };
    let rows: i64 =
        op.result(0).ty().dims().iter().rev().skip(1).map(|d| d.known().unwrap_or(128)).product();
    columns + 1 != o.rhs.ty().dims().len() && rows >= 4
}

fn last(op: Op, w: Value, columns: usize) -> Result<Value> {
    let b = Builder::before(op).ok_or("is in no block")?.at(w.loc());
    let batch = batch_of(op);
    let rest = order(w.ty().dims().len(), columns, batch);
    let permutation = (0..batch as i64).chain(rest).chain([columns as i64]).collect();
    stored(&b, w, permutation)
}
