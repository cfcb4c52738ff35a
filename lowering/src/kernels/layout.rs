//! `kiln-layout`: chooses the NHWC layout (channels last, NLC or NDHWC of other ranks) for
//! convolutions and the ops between them.
//!
//! Why: in NHWC, all that a register tile of a convolution reads and writes is contiguous: a vector
//! holds output channels, and the reduction runs over input channels. Framework graphs are NCHW.
//! Inputs are transposed once, before the first convolution, and results at the end. Between them,
//! every op that has an NHWC form takes it: elementwise ops, pads, pools, concats, slices,
//! broadcasts and reductions. `kiln.convolution` keeps its definition: it reads and writes through
//! transposes, which `kiln-fuse` folds into its kernel. Upstream has patterns for single
//! convolutions, which transpose the operands back and forth around each.
//!
//! The layout is chosen for the whole function; `kiln.memory_format` records the choice and its
//! reason. Convolutions whose weight is mutable count with `mutable` only, since their weights are
//! transposed in each call. On a GPU that costs a pass over the weights, and TMA reads no others. On a
//! processor `kiln-pack` stores them again: `weight-byte` operations for each byte are added to those
//! that the function needs, so that few pixels with large weights stay as given. A function whose
//! arguments are channels last in memory, as in a backward pass, has it as well.
//!
//! Numerics: reassociates; the reduction of a convolution runs over the window first.
//!
//! ```text
//! before:  %0 = kiln.convolution %x, %w …   %1 = kiln.relu %0
//! after:   %t = kiln.transpose %x [0, 2, 3, 1]   %0 = kiln.convolution (kiln.transpose %t), %w …
//!          %1 = kiln.relu (kiln.transpose %0 [0, 2, 3, 1])   kiln.transpose %1 [0, 3, 1, 2]
//! ```
use crate::kernels::{
    frozen::Frozen,
    op_facts::{contracts, element_bytes, is_dense, is_depthwise},
};
use kiln_dialects::{
    ir::*,
    ops::*,
    rules::{Level, tensor_type},
    sym::{Dim as SymDim, known_product},
};
use kiln_passes::{
    Numerics, Pass,
    permutation::{channels_first, channels_last},
};
use pixel_shuffle::PixelShuffle;
use std::collections::{HashMap, HashSet};

mod pixel_shuffle;

kiln_passes::pass_options! {
    /// The pass.
    pub struct Layout {
        /// Least floating-point operations of a function's convolutions to change the layout
        pub flops: i64 = 1000000,
        /// Counts convolutions with mutable weights too
        pub mutable: bool = false,
        /// Floating-point operations for each byte of a mutable weight that channels last must repay
        pub weight_byte: i64 = 0,
        /// Takes grouped convolutions too, other than depthwise ones and those that tensor cores read
        pub groups: bool = true,
    }
}

impl Pass for Layout {
    const FLAG: &'static str = "kiln-layout";
    const SUMMARY: &'static str = "Rewrites convolutions and the ops between them to channels last, where the whole function profits";
    const LEVELS: &'static [Level] = &[Level::Prims];
    const NUMERICS: Numerics = Numerics::Reassociates;

    fn run(&self, root: Op) -> Result<()> {
        let stated = |f: &Op| f.isa::<func::Func>() && f.attr("kiln.memory_format").is_none();
        for func in
            blocks(root).into_iter().flat_map(|b| b.ops()).filter(stated).collect::<Vec<_>>()
        {
            let Some(block) = func.regions().first().and_then(|r| r.first()) else { continue };
            let ops = block.ops();
            let frozen = Frozen::of(&ops);
            let all: Vec<Convolution> =
                ops.iter().filter(|o| contracts(**o)).filter_map(|o| Convolution::of(*o)).collect();
            let given = block.args().into_iter().any(is_read_channels_last);
            if all.is_empty() && !given {
                continue;
            }
            let (mut all_flops, mut least) = (0i64, self.flops);
            for o in &all {
                let is_frozen = frozen.contains(o.weight);
                if is_frozen || self.mutable {
                    all_flops = all_flops.saturating_add(flops(o));
                }
                if !is_frozen && self.mutable {
                    let bytes = known_bytes(o.weight).saturating_mul(self.weight_byte);
                    least = least.saturating_add(bytes);
                }
            }
            let enough = all_flops >= least;
            let said = if enough || given {
                let mut rewrite = ChannelsLast { groups: self.groups, ..ChannelsLast::default() };
                for op in &ops {
                    rewrite.op(*op).at(*op)?;
                }
                rewrite.finish(&ops).at(func)?;
                let reason = if enough { "" } else { ", as arguments are" };
                format!("channels last{reason}")
            } else {
                let which = if self.mutable { "" } else { " with frozen weights" };
                format!(
                    "as given: convolutions{which} have {all_flops} flops, which are fewer than \
                     {least}"
                )
            };
            func.set_attr("kiln.memory_format", Attr::string(root.ctx(), &said));
        }
        Ok(())
    }
}

/// Bytes of a tensor, with 1 for a dynamic size.
fn known_bytes(v: Value) -> i64 {
    v.ty().dims().iter().map(known).fold(element_bytes(v) as i64, i64::saturating_mul)
}

fn known(d: &SymDim) -> i64 {
    d.known().unwrap_or(1)
}

/// Floating-point operations of a convolution, with 1 for a dynamic size.
pub(crate) fn flops(o: &Convolution) -> i64 {
    let (x, w) = (o.input.ty().dims(), o.weight.ty().dims());
    let out = |i: usize| {
        ((known(&x[2 + i]) + o.pad_low[i] + o.pad_high[i]
            - o.dilation[i] * (known(&w[2 + i]) - 1)
            - 1)
            / o.strides[i]
            + 1)
        .max(1)
    };
    [known(&x[0]), 2]
        .into_iter()
        .chain((0..o.strides.len()).map(out))
        .chain(w.iter().map(known))
        .fold(1, i64::saturating_mul)
}

/// Whether an argument is read through a transpose to channels first, maybe behind elementwise ops.
fn is_read_channels_last(argument: Value) -> bool {
    let mut waiting = vec![argument];
    while let Some(v) = waiting.pop() {
        for (user, _) in v.uses() {
            match Transpose::of(user) {
                Some(_) if v.ty().dims().len() < 4 => {}
                Some(t) if t.permutation == channels_first(t.permutation.len()) => return true,
                _ if user.kind().is_some_and(OpKind::is_elementwise)
                    && user.operands().len() == 1 =>
                {
                    waiting.push(user.result(0));
                }
                _ => {}
            }
        }
    }
    false
}

/// Whether a convolution can be channels last.
fn takes(op: Op, groups: bool) -> bool {
    let plain = |o: Convolution| groups || is_dense(op) || is_depthwise(&o);
    contracts(op) && Convolution::of(op).is_some_and(plain)
}

/// Maps NCHW values to their NHWC counterparts.
#[derive(Default)]
struct ChannelsLast {
    /// Whether grouped convolutions are taken.
    groups: bool,
    nhwc: HashMap<Value, Value>,
    /// Ops that have been replaced.
    dead: HashSet<Op>,
    /// The keys of `nhwc` that are op results, in order.
    transposed: Vec<Value>,
    /// Views that may stay without readers.
    views: Vec<Value>,
}

fn picked<T: Clone>(all: &[T]) -> Vec<T> {
    channels_last(all.len()).iter().map(|d| all[*d as usize].clone()).collect()
}

/// Elements behind batch and channels, if they are known.
fn pixels(dims: &[SymDim]) -> Option<i64> {
    known_product(dims.iter().skip(2))
}

/// Whether a reshape keeps batch and channels, and images of another rank have as many pixels.
fn regroups_pixels(from: &[SymDim], to: &[SymDim]) -> bool {
    let images = from.len() >= 4 && to.len() >= 4;
    images && from[..2] == to[..2] && from[1].known().is_some() && {
        let count = pixels(from);
        count.is_some() && count == pixels(to)
    }
}

/// What `[N, H W, C]` a reshape to NCHW splits the pixels of, behind a transpose.
fn split_pixels(o: &Reshape, to: &[SymDim]) -> Option<Value> {
    let t = o.input.def().and_then(Transpose::of).filter(|t| t.permutation == [0, 2, 1])?;
    let from = o.input.ty().dims();
    let count = from[2].known().is_some() && from[2].known() == pixels(to);
    let images = from[0].known().is_some() && from[0] == to[0];
    // Of three sizes that a reshape keeps in all, two are known to be kept.
    let kept = to.len() >= 4 && from[1].known().is_some() && from[1] == to[1] && (count || images);
    kept.then_some(t.input)
}

/// Whether a transpose of more than four dimensions takes its channels from the innermost one.
fn is_innermost(t: &Transpose) -> bool {
    let rank = t.permutation.len();
    rank > 4 && t.permutation[1] == rank as i64 - 1
}

/// The NHWC position of NCHW dimension `d`.
fn nhwc_dim(rank: usize, d: i64) -> i64 {
    channels_first(rank)[d as usize]
}

/// A broadcast to NCHW as one to NHWC; its input, which is small, is transposed in its place.
fn broadcast(b: &Builder, rank: usize, o: &BroadcastInDim) -> Result<Value> {
    let mut order: Vec<i64> = (0..o.dims.len() as i64).collect();
    order.sort_by_key(|i| nhwc_dim(rank, o.dims[*i as usize]));
    let dims = order.iter().map(|i| nhwc_dim(rank, o.dims[*i as usize])).collect();
    let input = if order.is_sorted() {
        o.input
    } else {
        b.add(&Transpose { input: o.input, permutation: order })?
    };
    b.add(&BroadcastInDim { input, dims, sizes: picked(&o.sizes) })
}

impl ChannelsLast {
    /// The NHWC form of a value, available to ops from `b` on.
    fn nhwc(&mut self, b: &Builder, v: Value) -> Result<Value> {
        if let Some(t) = self.nhwc.get(&v) {
            return Ok(*t);
        }
        let rank = v.ty().dims().len();
        let def = v.def();
        let new = match (def.and_then(Splat::of), def.and_then(BroadcastInDim::of)) {
            (Some(o), _) => b.add(&Splat { value: o.value, sizes: picked(&o.sizes) })?,
            (_, Some(o)) => broadcast(b, rank, &o)?,
            _ => b.add(&Transpose { input: v, permutation: channels_last(rank) })?,
        };
        self.nhwc.insert(v, new);
        Ok(new)
    }

    /// Records `new` as the NHWC form of the op's result.
    fn record(&mut self, op: Op, new: Value) {
        self.nhwc.insert(op.result(0), new);
        self.transposed.push(op.result(0));
        self.dead.insert(op);
    }

    /// Replaces the op's result by `new`, in the same layout.
    fn replaced(&mut self, op: Op, new: Value) {
        op.result(0).replace_uses(new);
        self.dead.insert(op);
    }

    fn op(&mut self, op: Op) -> Result<()> {
        let Some(b) = Builder::before(op) else { return Ok(()) };
        if takes(op, self.groups) {
            let o = Convolution::of(op).ok_or_malformed(op)?;
            let rank = o.strides.len() + 2;
            let x = self.nhwc(&b, o.input)?;
            let input = b.add(&Transpose { input: x, permutation: channels_first(rank) })?;
            // A copy keeps the marks of other passes.
            let made = b.clone_op(op, &|v| if v == o.input { input } else { v })?;
            let y =
                b.add(&Transpose { input: made.result(0), permutation: channels_last(rank) })?;
            self.record(op, y);
            return Ok(());
        }
        let Some(kind) = op.kind() else { return Ok(()) };
        if let Some(t) = Transpose::of(op)
            .filter(|t| t.permutation == channels_first(t.permutation.len()))
            .filter(|t| t.permutation.len() >= 4 && !self.nhwc.contains_key(&t.input))
        {
            self.nhwc.insert(op.result(0), t.input);
            return Ok(());
        }
        // Rows of pixels that are transposed back.
        if let Some(t) = Transpose::of(op).filter(|t| t.permutation == [0, 2, 1])
            && let Some(back) = t.input.def().and_then(Transpose::of)
            && back.permutation == t.permutation
        {
            self.replaced(op, back.input);
            return Ok(());
        }
        // Channels that are innermost in memory stay so, wherever the other dimensions go.
        if let Some(t) = Transpose::of(op).filter(is_innermost) {
            let last = channels_last(t.permutation.len());
            let permutation = last.iter().map(|d| t.permutation[*d as usize]).collect();
            let new = b.add(&Transpose { input: t.input, permutation })?;
            self.record(op, new);
            return Ok(());
        }
        if let Some(shuffle) = PixelShuffle::of(op)
            && let Some(x) = self.nhwc.get(&shuffle.input)
        {
            let new = shuffle.channels_last(&b, *x)?;
            self.record(op, new);
            return Ok(());
        }
        if let Some(o) = Reshape::of(op)
            && let Some(rows) = split_pixels(&o, &op.result(0).ty().dims())
        {
            let view = b.add(&Reshape { input: rows, sizes: picked(&o.sizes) })?;
            self.views.push(view);
            self.nhwc.insert(op.result(0), view);
            return Ok(());
        }
        if kind == OpKind::Pad
            && op.result(0).uses().iter().all(|(user, _)| takes(*user, self.groups))
        {
            // The first op of a graph: its kernel reads NCHW and writes NHWC.
            self.nhwc(&b, op.operand(0))?;
        }
        if !op.operands().iter().any(|v| self.nhwc.contains_key(v)) {
            return Ok(());
        }
        let x = self.nhwc.get(&op.operand(0)).copied();
        let rank = op.operand(0).ty().dims().len();
        match (kind, x) {
            (OpKind::Transpose, Some(x)) => {
                let o = Transpose::of(op).ok_or_malformed(op)?;
                let permutation: Vec<i64> =
                    o.permutation.iter().map(|d| nhwc_dim(rank, *d)).collect();
                let new = if permutation.is_sorted() {
                    x
                } else {
                    b.add(&Transpose { input: x, permutation })?
                };
                self.replaced(op, new);
            }
            (OpKind::Reshape, Some(x)) => {
                let o = Reshape::of(op).ok_or_malformed(op)?;
                let (from, to) = (o.input.ty().dims(), op.result(0).ty().dims());
                let area = pixels(&from);
                // A length of any size is known to be kept where the batch is.
                let length = from.len() == 4 && from[2].known() == Some(1);
                let kept = match area {
                    Some(_) => area == to.get(2).and_then(SymDim::known),
                    None => length && from[0].known().is_some(),
                };
                // Collapses the spatial dimensions into one after the channels.
                if to.len() == 3
                    && from[0] == to[0]
                    && from[1].known().is_some()
                    && from[1] == to[1]
                    && kept
                {
                    let joined = b.add(&Reshape {
                        input: x,
                        sizes: vec![o.sizes[0], o.sizes[2], o.sizes[1]],
                    })?;
                    let new = b.add(&Transpose { input: joined, permutation: vec![0, 2, 1] })?;
                    self.replaced(op, new);
                } else if regroups_pixels(&from, &to) {
                    let new = b.add(&Reshape { input: x, sizes: picked(&o.sizes) })?;
                    self.record(op, new);
                }
            }
            (OpKind::Reduce, Some(x)) => {
                let o = Reduce::of(op).ok_or_malformed(op)?;
                let mut dims: Vec<i64> = o.dims.iter().map(|d| nhwc_dim(rank, *d)).collect();
                dims.sort_unstable();
                let new = b.add(&Reduce { input: x, dims, ..o.clone() })?;
                // The dimensions that are not reduced, in the present order and in the wanted one.
                let now: Vec<i64> =
                    channels_last(rank).into_iter().filter(|d| !o.dims.contains(d)).collect();
                let wanted = (0..rank as i64).filter(|d| !o.dims.contains(d));
                let permutation: Vec<i64> =
                    wanted.map(|d| now.iter().position(|n| *n == d).unwrap_or(0) as i64).collect();
                if permutation.len() >= 4 && permutation == channels_first(permutation.len()) {
                    self.record(op, new);
                    return Ok(());
                }
                let new = if permutation.is_sorted() {
                    new
                } else {
                    b.add(&Transpose { input: new, permutation })?
                };
                self.replaced(op, new);
            }
            // What is not gathered keeps its order, behind the indices' dimensions.
            (OpKind::Gather, Some(input)) => {
                let o = Gather::of(op).ok_or_malformed(op)?;
                let rest = (0..rank as i64).filter(|d| !o.dims.contains(d));
                if rest.map(|d| nhwc_dim(rank, d)).is_sorted() {
                    let dims = o.dims.iter().map(|d| nhwc_dim(rank, *d)).collect();
                    let new = b.add(&Gather { input, indices: o.indices, dims })?;
                    self.replaced(op, new);
                }
            }
            (OpKind::BroadcastInDim, Some(input)) => {
                let o = BroadcastInDim::of(op).ok_or_malformed(op)?;
                // Batch and channels stay first, and the pixels behind them in order.
                if o.dims.starts_with(&[0, 1]) && o.dims.is_sorted() {
                    let dims =
                        picked(&o.dims).iter().map(|d| nhwc_dim(o.sizes.len(), *d)).collect();
                    let new = b.add(&BroadcastInDim { input, dims, sizes: picked(&o.sizes) })?;
                    self.record(op, new);
                }
            }
            (OpKind::ReduceWindow, Some(input)) => {
                let o = ReduceWindow::of(op).ok_or_malformed(op)?;
                let (window, strides, dilation) =
                    (picked(&o.window), picked(&o.strides), picked(&o.dilation));
                let (pad_low, pad_high) = (picked(&o.pad_low), picked(&o.pad_high));
                let new = b.add(&ReduceWindow {
                    kind: o.kind,
                    input,
                    window,
                    strides,
                    pad_low,
                    pad_high,
                    dilation,
                })?;
                self.record(op, new);
            }
            (OpKind::Pad, Some(input)) => {
                let o = Pad::of(op).ok_or_malformed(op)?;
                let new = b.add(&Pad {
                    input,
                    value: o.value,
                    low: picked(&o.low),
                    high: picked(&o.high),
                })?;
                self.record(op, new);
            }
            (OpKind::Slice, Some(input)) => {
                let o = Slice::of(op).ok_or_malformed(op)?;
                let new = b.add(&Slice {
                    input,
                    offsets: picked(&o.offsets),
                    sizes: picked(&o.sizes),
                    strides: picked(&o.strides),
                })?;
                self.record(op, new);
            }
            (OpKind::Reverse, Some(input)) => {
                let mut dims: Vec<i64> = Reverse::of(op)
                    .ok_or_malformed(op)?
                    .dims
                    .iter()
                    .map(|d| nhwc_dim(rank, *d))
                    .collect();
                dims.sort_unstable();
                let new = b.add(&Reverse { input, dims })?;
                self.record(op, new);
            }
            (OpKind::Concat, _) => {
                let o = Concat::of(op).ok_or_malformed(op)?;
                let inputs =
                    o.inputs.iter().map(|v| self.nhwc(&b, *v)).collect::<Result<_, _>>()?;
                let new = b.add(&Concat { inputs, axis: nhwc_dim(rank, o.axis) })?;
                self.record(op, new);
            }
            _ if kind.is_elementwise() => {
                let operands = op
                    .operands()
                    .into_iter()
                    .map(|v| Ok((v, self.nhwc(&b, v)?)))
                    .collect::<Result<HashMap<_, _>>>()?;
                let t = tensor_type(op.result(0).ty())?;
                let new = b.clone_op(op, &|v| operands.get(&v).copied().unwrap_or(v))?.result(0);
                new.set_ty(Type::tensor(b.ctx, t.dtype, &picked(&t.dims)));
                self.record(op, new);
            }
            _ => {}
        }
        Ok(())
    }

    /// Transposes back to NCHW for the readers that still need it, and erases replaced ops.
    fn finish(self, ops: &[Op]) -> Result<()> {
        for v in &self.transposed {
            if v.uses().iter().any(|(user, _)| !self.dead.contains(user)) {
                let new = self.nhwc[v];
                let b = new.def().and_then(Builder::after).ok_or("is in no block")?;
                let permutation = channels_first(v.ty().dims().len());
                let first = b.add(&Transpose { input: new, permutation })?;
                v.replace_uses(first);
            }
        }
        ops.iter().rev().filter(|op| self.dead.contains(op)).for_each(|op| op.erase());
        let unused = self.views.iter().filter(|v| v.uses().is_empty());
        unused.filter_map(|v| v.def()).for_each(Op::erase);
        Ok(())
    }
}
