//! `kiln-expand-conv1d`: gives one-dimensional convolutions, and the ops between them, a unit height.
//!
//! Why: everything that makes two-dimensional convolutions fast (channels last, packed weights, TMA
//! im2col loads, the depthwise kernel) then serves speech and state-space models too. PyTorch calls
//! cuDNN and oneDNN in the same way. Ops between two convolutions take the unit dimension, so that
//! they still fuse.
//!
//! Numerics: exact; only indexing changes.
//!
//! ```text
//! before:  %0 = kiln.convolution %x, %w strides = [2] …             : tensor<2x80x30xf32>, tensor<64x80x3xf32>
//! after:   %t = kiln.reshape %x …  %v = kiln.reshape %w …           : tensor<2x80x1x30xf32>, tensor<64x80x1x3xf32>
//!          %1 = kiln.convolution %t, %v strides = [1, 2] …          %0 = kiln.reshape %1 …
//! ```
use kiln_dialects::{
    ir::*,
    ops::*,
    rules::{Level, tensor_type},
    sym::Dim as SymDim,
};
use kiln_passes::{Numerics, Pass};
use std::collections::{HashMap, HashSet};

kiln_passes::pass_options! {
    /// The pass.
    pub struct ExpandConv1d {}
}

impl Pass for ExpandConv1d {
    const FLAG: &'static str = "kiln-expand-conv1d";
    const SUMMARY: &'static str =
        "Gives one-dimensional convolutions and the ops between them a unit height";
    const LEVELS: &'static [Level] = &[Level::Prims];
    const NUMERICS: Numerics = Numerics::Exact;

    fn run(&self, root: Op) -> Result<()> {
        let all: Vec<Block> = walk(root).into_iter().flat_map(blocks).collect();
        for block in all {
            let ops = block.ops();
            if !ops.iter().any(|op| one_dimensional(*op)) {
                continue;
            }
            let mut rewrite = Rewrite::default();
            for op in &ops {
                rewrite.op(*op).at(*op)?;
            }
            rewrite.finish(&ops)?;
        }
        Ok(())
    }
}

fn one_dimensional(op: Op) -> bool {
    Convolution::of(op).is_some_and(|o| o.strides.len() == 1)
}

/// Where the unit dimension is inserted: the height of `[N, C, H, W]`.
const HEIGHT: usize = 2;

fn inserted<T: Clone>(all: &[T], one: T) -> Vec<T> {
    [&all[..HEIGHT], &[one], &all[HEIGHT..]].concat()
}

/// Maps values of rank 3 to their forms of rank 4.
#[derive(Default)]
struct Rewrite {
    wide: HashMap<Value, Value>,
    /// Ops that have been replaced.
    dead: HashSet<Op>,
    /// The keys of `wide` that are op results, in order.
    made: Vec<Value>,
}

impl Rewrite {
    /// The form of rank 4 of a value, available to ops from `b` on.
    fn wide(&mut self, b: &Builder, v: Value) -> Result<Value> {
        if let Some(w) = self.wide.get(&v) {
            return Ok(*w);
        }
        let one = Size::Static(1);
        let broadcast = v.def().and_then(BroadcastInDim::of);
        let new = match (v.def().and_then(Splat::of), broadcast) {
            (Some(o), _) => b.add(&Splat { value: o.value, sizes: inserted(&o.sizes, one) })?,
            (_, Some(o)) => {
                let moved = |d: &i64| if *d >= HEIGHT as i64 { *d + 1 } else { *d };
                let dims = o.dims.iter().map(moved).collect();
                let sizes = inserted(&o.sizes, one);
                b.add(&BroadcastInDim { input: o.input, dims, sizes })?
            }
            _ => b.add(&Reshape { input: v, sizes: inserted(&b.sizes_of(v)?, one) })?,
        };
        self.wide.insert(v, new);
        Ok(new)
    }

    fn record(&mut self, op: Op, new: Value) {
        self.wide.insert(op.result(0), new);
        self.made.push(op.result(0));
        self.dead.insert(op);
    }

    fn op(&mut self, op: Op) -> Result<()> {
        let Some(b) = Builder::before(op) else { return Ok(()) };
        let zero = Size::Static(0);
        if let Some(o) = Convolution::of(op).filter(|o| o.strides.len() == 1) {
            let around = |all: &[i64], one: i64| [&[one], all].concat();
            let input = self.wide(&b, o.input)?;
            let sizes = inserted(&b.sizes_of(o.weight)?, Size::Static(1));
            let weight = b.add(&Reshape { input: o.weight, sizes })?;
            let new = b.add(&Convolution {
                input,
                weight,
                strides: around(&o.strides, 1),
                pad_low: around(&o.pad_low, 0),
                pad_high: around(&o.pad_high, 0),
                dilation: around(&o.dilation, 1),
                groups: o.groups,
                transposed: o.transposed,
                output_padding: o.output_padding.as_deref().map(|p| around(p, 0)),
            })?;
            self.record(op, new);
            return Ok(());
        }
        let between = op.operands().iter().any(|v| self.made.contains(v));
        let Some(kind) = op.kind().filter(|_| between) else { return Ok(()) };
        if let Some(o) = Pad::of(op) {
            let (low, high) = (inserted(&o.low, zero), inserted(&o.high, zero));
            let new = Pad { input: self.wide(&b, o.input)?, value: o.value, low, high };
            self.record(op, b.add(&new)?);
        } else if let Some(o) = Slice::of(op) {
            let new = Slice {
                input: self.wide(&b, o.input)?,
                offsets: inserted(&o.offsets, zero),
                sizes: inserted(&o.sizes, Size::Static(1)),
                strides: inserted(&o.strides, 1),
            };
            self.record(op, b.add(&new)?);
        } else if kind.is_elementwise() {
            let operands = op.operands().into_iter().map(|v| Ok((v, self.wide(&b, v)?)));
            let operands = operands.collect::<Result<HashMap<_, _>>>()?;
            let t = tensor_type(op.result(0).ty())?;
            let new = b.clone_op(op, &|v| operands.get(&v).copied().unwrap_or(v))?.result(0);
            new.set_ty(Type::tensor(b.ctx, t.dtype, &inserted(&t.dims, SymDim::Known(1))));
            self.record(op, new);
        }
        Ok(())
    }

    /// Reshapes back to rank 3 for the readers that still need it, and erases replaced ops.
    fn finish(self, ops: &[Op]) -> Result<()> {
        for v in &self.made {
            if v.uses().iter().any(|(user, _)| !self.dead.contains(user)) {
                let new = self.wide[v];
                let b = new.def().and_then(Builder::after).ok_or("is in no block")?;
                let mut sizes = b.sizes_of(new)?;
                sizes.remove(HEIGHT);
                v.replace_uses(b.add(&Reshape { input: new, sizes })?);
            }
        }
        ops.iter().rev().filter(|op| self.dead.contains(op)).for_each(|op| op.erase());
        Ok(())
    }
}
