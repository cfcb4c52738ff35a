//! `kiln-space-to-depth`: folds blocks of pixels into the channels of a convolution that has few
//! channels.
//!
//! Why: Hopper's TMA (im2col mode) reads a multiple of 8 16-bit channels, with a traversal stride
//! of at most 8 pixels, and the K step of its tensor-core kernels is 64. A network's first
//! convolution has 3 channels. With stride `s`, a block of `s` by `s` pixels becomes one pixel of
//! `s * s` times as many channels, over which a window of `ceil(k / s)` blocks moves with stride 1.
//! The rearranged image is written once, with its padding; the weight is rearranged when it is
//! frozen, else in each call. If the window is as large as the stride, as in patch embeddings, it
//! is a single block: a plain GEMM.
//!
//! Alternatives, for 32 images of 224 by 224, 7x7 /2 to 64: explicit im2col with K padded from 147
//! to 192 moves 154 MB twice (73 us at a copy's rate). Padding to 4 channels and reading rows of 7
//! pixels makes K 7 times 64, half of it zeros. Blocks move 14 MB twice and make K 4 times 64.
//! MLPerf's ResNet-50 uses this form on TPUs.
//!
//! Numerics: reassociates; zeros are added, and the summation order changes.
//!
//! ```text
//! before:  %0 = kiln.convolution %x, %w strides = [2, 2] …                (%x : [N, 3, 224, 224], %w : [64, 3, 7, 7])
//! after:   %b = kiln.pad (kiln.transpose (kiln.reshape %x)) …            : [N, 115, 115, 4, 2, 2], seen as %c : [N, 115, 115, 16]
//!          %0 = kiln.convolution (kiln.transpose %c), %v strides = [1, 1] …  (%v : [64, 16, 4, 4])
//! ```
use crate::kernels::{
    frozen::{Frozen, STORED},
    layout::flops,
    op_facts::zero_padding,
};
use kiln_dialects::{
    ir::*,
    ops::*,
    rules::{Level, tensor_type},
    value::DType,
};
use kiln_passes::{Numerics, Pass};

kiln_passes::pass_options! {
    /// The pass.
    pub struct SpaceToDepth {
        /// Target GPU: sm_80, sm_86, sm_89 or sm_90a; empty for CPUs, where the pass does nothing
        pub chip: String = String::new(),
        /// Least floating-point operations of a convolution that is rewritten
        pub flops: i64 = 1000000,
        /// Most times that K may grow, with the zeros up to the tensor cores' K step
        pub growth: i64 = 16,
    }
}

/// 16-bit channels per 16-byte TMA unit.
const UNIT: i64 = 8;
/// K step of the tensor-core kernels.
const STEP: i64 = 64;
/// Largest TMA traversal stride, in pixels.
const MAX_STRIDE: i64 = 8;
/// Largest window of a mutable weight that is rearranged; the output's gradient, in the place of a
/// weight, has larger ones.
const MUTABLE_WINDOW: i64 = 32;

impl Pass for SpaceToDepth {
    const FLAG: &'static str = "kiln-space-to-depth";
    const SUMMARY: &'static str =
        "Rewrites convolutions of few channels by space-to-depth: pixel blocks become channels";
    const LEVELS: &'static [Level] = &[Level::Prims];
    const NUMERICS: Numerics = Numerics::Reassociates;

    fn run(&self, root: Op) -> Result<()> {
        if self.chip.is_empty() {
            return Ok(());
        }
        for func in functions_in(root) {
            let Some(block) = func.regions().first().and_then(|r| r.first()) else { continue };
            let ops = block.ops();
            let frozen = Frozen::of(&ops);
            let of = |op: Op| {
                Blocks::of(op, &frozen)
                    .filter(|b| flops(&b.op) >= self.flops && b.grows() <= self.growth)
            };
            let all: Vec<(Op, Blocks)> =
                ops.into_iter().filter_map(|op| Some((op, of(op)?))).collect();
            for (op, blocks) in all {
                let b = Builder::before(op).ok_or_at(op, "is in no block")?;
                let new = blocks.convolution(&b).at(op)?;
                op.result(0).replace_uses(new);
                let padding = blocks.padding;
                op.erase();
                padding.filter(|p| p.result(0).uses().is_empty()).into_iter().for_each(Op::erase);
            }
        }
        Ok(())
    }
}

/// One spatial dimension of a convolution: height or width.
struct SpatialDim {
    /// Pixels of the input.
    size: i64,
    /// Pixels of a block (the stride).
    block: i64,
    /// Zeros before the window, so that it starts on a block boundary.
    shift: i64,
    /// Pixels of the window.
    window: i64,
    /// Padding before the image, in pixels.
    low: i64,
    /// Pixels of the output.
    out: i64,
}

impl SpatialDim {
    /// Blocks of the input.
    fn blocks(&self) -> i64 {
        round_up(self.size, self.block)
    }
    /// Blocks of the window.
    fn window_blocks(&self) -> i64 {
        round_up(self.window + self.shift, self.block)
    }
    /// Blocks of padding before the image.
    fn blocks_before(&self) -> i64 {
        (self.low + self.shift) / self.block
    }
    /// Blocks of padding after the image; if negative, input blocks that no window reads.
    fn blocks_after(&self) -> i64 {
        self.out - 1 + self.window_blocks() - self.blocks_before() - self.blocks()
    }
}

/// A convolution, and its form over blocks.
struct Blocks {
    op: Convolution,
    dtype: DType,
    /// The image without its padding, and the op that pads it.
    image: Value,
    padding: Option<Op>,
    along: [SpatialDim; 2],
    /// Channels without and with zero padding.
    channels: [i64; 2],
    filters: i64,
}

fn round_up(a: i64, b: i64) -> i64 {
    (a + b - 1) / b
}

impl Blocks {
    fn of(op: Op, frozen: &Frozen) -> Option<Blocks> {
        let o = Convolution::of(op).filter(|o| {
            o.strides.len() == 2 && o.groups == 1 && !o.transposed && o.dilation == [1, 1]
        })?;
        let dtype = tensor_type(o.input.ty()).ok()?.dtype;
        let known = |v: Value| v.ty().dims().iter().map(|d| d.known()).collect::<Vec<_>>();
        let sizes: Vec<i64> = known(o.weight).into_iter().collect::<Option<_>>()?;
        let [filters, channels, windows @ ..] = sizes.as_slice() else { return None };
        let readable = channels % UNIT == 0 && o.strides.iter().all(|s| *s <= MAX_STRIDE);
        if readable
            || sizes.contains(&0)
            || !matches!(dtype, DType::BF16 | DType::F16)
            || !frozen.contains(o.weight) && windows.iter().any(|k| *k > MUTABLE_WINDOW)
        {
            return None;
        }
        let (image, around, padding) = unpadded(&o);
        let (whole, out) = (known(image), known(op.result(0)));
        let mut along = vec![];
        for i in 0..2 {
            let (step, low) = (o.strides[i], o.pad_low[i] + around[i]);
            let shift = (step - low % step) % step;
            along.push(SpatialDim {
                size: whole[2 + i]?,
                block: step,
                shift,
                window: windows[i],
                low,
                out: out[2 + i].filter(|n| *n > 0)?,
            });
        }
        let along: [SpatialDim; 2] = along.try_into().ok()?;
        let area = along[0].block * along[1].block;
        let unit = (1..=UNIT).find(|n| n * area % UNIT == 0)?;
        Some(Blocks {
            op: o,
            dtype,
            image,
            padding,
            along,
            channels: [*channels, round_up(*channels, unit) * unit],
            filters: *filters,
        })
    }

    /// Elements of a block: its channels times its pixels.
    fn depth(&self) -> i64 {
        self.channels[1] * self.along[0].block * self.along[1].block
    }
    /// How many times K grows, with each row of the window rounded up to the K step.
    fn grows(&self) -> i64 {
        let [high, wide] = &self.along;
        round_up(
            high.window_blocks() * round_up(wide.window_blocks() * self.depth(), STEP) * STEP,
            self.channels[0] * high.window * wide.window,
        )
    }

    fn convolution(&self, b: &Builder) -> Result<Value> {
        let [high, wide] = &self.along;
        let zero = b.splat(self.dtype, &[], 0.0)?;
        let pad = |b: &Builder, input: Value, low: &[i64], high: &[i64]| -> Result<Value> {
            if low.iter().chain(high).all(|n| *n == 0) {
                return Ok(input);
            }
            b.add(&Pad { input, value: zero, low: Size::all(low), high: Size::all(high) })
        };
        // [N, H, W, C, block H, block W], the last two only where a block has several pixels.
        let rest = |a: &SpatialDim| a.blocks() * a.block - a.size;
        let whole = pad(b, self.image, &[0; 4], &[0, 0, rest(high), rest(wide)])?;
        let images = b.sizes_of(whole)?[0];
        let apart = self.split_blocks(
            b,
            whole,
            images,
            self.channels[0],
            [high.blocks(), wide.blocks()],
            &[0, 2, 4, 1, 3, 5],
        )?;
        let more = self.channels[1] - self.channels[0];
        let within = vec![0; apart.ty().dims().len() - 4];
        let low = [&[0, high.blocks_before(), wide.blocks_before(), 0], within.as_slice()].concat();
        let around = pad(
            b,
            apart,
            &low,
            &[&[0, high.blocks_after(), wide.blocks_after(), more], within.as_slice()].concat(),
        )?;
        if let Some(op) = around.def().filter(|_| around == apart) {
            op.set_attr(STORED, Attr::unit(b.ctx));
        }
        let sizes = [
            high.out - 1 + high.window_blocks(),
            wide.out - 1 + wide.window_blocks(),
            self.depth(),
        ]
        .map(Size::Static);
        let image = reshaped(b, around, &[&[images], &sizes[..]].concat())?;
        let input = b.add(&Transpose { input: image, permutation: vec![0, 3, 1, 2] })?;

        // The same for the weight's channels and window.
        let at = b.at(self.op.weight.loc());
        let end = |a: &SpatialDim| a.window_blocks() * a.block - a.window - a.shift;
        let whole = pad(
            &at,
            self.op.weight,
            &[0, 0, high.shift, wide.shift],
            &[0, more, end(high), end(wide)],
        )?;
        let places = [high.window_blocks(), wide.window_blocks()];
        let apart = self.split_blocks(
            &at,
            whole,
            Size::Static(self.filters),
            self.channels[1],
            places,
            &[0, 1, 3, 5, 2, 4],
        )?;
        let weight =
            reshaped(&at, apart, &Size::all(&[self.filters, self.depth(), places[0], places[1]]))?;
        b.add(&Convolution {
            input,
            weight,
            strides: vec![1; 2],
            pad_low: vec![0; 2],
            pad_high: vec![0; 2],
            ..self.op.clone()
        })
    }

    /// Splits height and width of `[front, channels, height, width]` into blocks, which makes them
    /// dimensions 3 and 5, and permutes the result; a block of one pixel adds no dimension.
    fn split_blocks(
        &self,
        b: &Builder,
        input: Value,
        front: Size,
        channels: i64,
        blocks: [i64; 2],
        order: &[usize; 6],
    ) -> Result<Value> {
        let (steps, of) = (self.along.each_ref().map(|a| a.block), Size::Static);
        let all = [front, of(channels), of(blocks[0]), of(steps[0]), of(blocks[1]), of(steps[1])];
        let kept: Vec<usize> =
            (0..6).filter(|d| !matches!(d, 3 | 5) || steps[(d - 3) / 2] > 1).collect();
        let split = reshaped(b, input, &kept.iter().map(|d| all[*d]).collect::<Vec<_>>())?;
        let place = |d: &usize| kept.iter().position(|k| k == d).map(|i| i as i64);
        b.add(&Transpose { input: split, permutation: order.iter().filter_map(place).collect() })
    }
}

fn reshaped(b: &Builder, input: Value, sizes: &[Size]) -> Result<Value> {
    if input.ty().dims().len() == sizes.len() {
        return Ok(input);
    }
    b.add(&Reshape { input, sizes: sizes.to_vec() })
}

/// The image before an explicit zero padding op, the padding before it in height and width, and
/// that op.
fn unpadded(o: &Convolution) -> (Value, [i64; 2], Option<Op>) {
    let around = || {
        let (op, p) = (o.input.def()?, zero_padding(o.input)?);
        let counts = |all: &[Size]| {
            all.iter().map(|s| s.known().filter(|n| *n >= 0)).collect::<Option<Vec<i64>>>()
        };
        match (counts(&p.low)?.as_slice(), counts(&p.high)?.as_slice()) {
            ([0, 0, h, w], [0, 0, ..]) => Some((p.input, [*h, *w], Some(op))),
            _ => None,
        }
    };
    around().unwrap_or((o.input, [0, 0], None))
}
