//! `kiln-weight-gradients`: computes gradients of convolutions by their weights as sums over pixels: on
//! Hopper's tensor cores, and those of depthwise ones by threads.
//!
//! Why: `kiln-differentiate` writes such a gradient as a convolution of the input by the gradient of
//! the result, each with its batch as channels. Its window is a whole image and its result a few
//! pixels, so that no kernel for convolutions fits: channels last, the contraction runs over the
//! outermost dimension of both operands. As `kiln.convolution_weight_gradient` it is a product of
//! filters by window positions and channels, whose K are the pixels of all images, and TMA's im2col
//! mode loads the pixels. A window of one pixel is a `kiln.dot_general`; so are windows that do not
//! overlap, of an image whose channels TMA cannot read.
//!
//! Of several groups several become one, as wide as a tile (`groups.rs`).
//!
//! Of a depthwise convolution each channel has a sum of its own for each window position, which no
//! tensor core computes: a kernel of threads does, on any GPU.
//!
//! A gradient has few tiles and a large K: images are split among CTAs as far as the cost model of
//! `kiln-split-products` says, and a second kernel sums the parts in a fixed order.
//!
//! Numerics: reassociates. Partial sums stay f32 and are rounded once.
//!
//! ```text
//! before:  %0 = kiln.convolution (kiln.transpose %x [1, 0, 2, 3]), (kiln.transpose %g [1, 0, 2, 3]) …
//! after:   %p = kiln.convolution_weight_gradient (kiln.transpose %x [0, 2, 3, 1]), (kiln.transpose %g [0, 2, 3, 1]) … {splits = 8}
//!          %s = kiln.reduce sum %p dims = [0]   %c = kiln.convert %s : … to bf16   %0 = kiln.transpose %c [3, 0, 1, 2]
//! ```
mod depthwise;
mod groups;

use crate::{
    kernels::{op_facts::fits_im2col, split_products::SplitProducts},
    target::{
        Chip,
        costs::{Costs as _, Gemm, Left},
    },
};
use kiln_dialects::{
    ir::*,
    ops::*,
    rules::{Level, tensor_type},
    value::DType,
};
use kiln_passes::{Numerics, Pass, readers::only_reader};

kiln_passes::pass_options! {
    /// The pass.
    pub struct WeightGradients {
        /// Target GPU: only for sm_90a the pass uses tensor cores; without one it does nothing
        pub chip: String = String::new(),
    }
}

/// 16-bit channels per 16-byte TMA unit.
const UNIT: i64 = 8;
/// Columns of a slice of a tile.
const TILE: i64 = 64;

impl Pass for WeightGradients {
    const FLAG: &'static str = "kiln-weight-gradients";
    const SUMMARY: &'static str =
        "Computes gradients of convolutions by their weights as sums over the pixels of all images";
    const LEVELS: &'static [Level] = &[Level::Prims];
    const NUMERICS: Numerics = Numerics::Reassociates;

    fn run(&self, root: Op) -> Result<()> {
        if self.chip.is_empty() {
            return Ok(());
        }
        let tensor_cores = self.chip == Chip::Sm90a.name();
        let is_convolution = |op: &Op| op.kind() == Some(OpKind::Convolution);
        for op in walk(root).into_iter().filter(is_convolution).collect::<Vec<_>>() {
            let b = Builder::before(op).ok_or_at(op, "is in no block")?;
            if let Some(form) = depthwise::Form::of(op) {
                form.rewrite(&b).at(op)?;
            } else if let Some(form) = Form::of(op).filter(|f| tensor_cores && f.is_gradient()) {
                form.rewrite(&b).at(op)?;
            }
        }
        Ok(())
    }
}

/// A convolution of images \[C, N, H, W\] by windows \[O, N, P, Q\], as the gradient that it is.
struct Form {
    /// Its result, or the part of it that is read: \[C / groups, O, KH, KW\].
    result: Value,
    /// The images, in any shape, their sizes, and the permutation that puts channels last.
    input: Value,
    sizes: [i64; 4],
    last: [i64; 4],
    gradient: Value,
    dtype: DType,
    groups: i64,
    channels: i64,
    images: i64,
    size: [i64; 2],
    filters: i64,
    outs: [i64; 2],
    window: [i64; 2],
    /// Of the convolution whose weight's gradient it is.
    strides: Vec<i64>,
    dilation: Vec<i64>,
    pad_low: Vec<i64>,
    pad_high: Vec<i64>,
}

fn known(v: Value) -> Option<[i64; 4]> {
    let all: Option<Vec<i64>> = v.ty().dims().iter().map(|d| d.known()).collect();
    all?.try_into().ok()
}

/// What is read of a convolution's result. A stride leaves pixels over, and windows that are cut off.
fn read_part(whole: Value) -> Value {
    let first = only_reader(whole).and_then(|r| {
        let s = Slice::of(r).filter(|s| s.strides.iter().all(|n| *n == 1))?;
        s.offsets.iter().all(|n| n.known() == Some(0)).then(|| r.result(0))
    });
    first.unwrap_or(whole)
}

/// The gradient of the result, \[O, N, P, Q\], with channels last.
fn gradient_last(b: &Builder, input: Value) -> Result<Value> {
    b.add(&Transpose { input, permutation: vec![1, 2, 3, 0] })
}

/// Gives the readers of a gradient another value, and erases what computed it.
fn replace(gradient: Value, new: Value) {
    use OpKind::{Convolution, Reshape, Slice, Transpose};
    gradient.replace_uses(new);
    let erases = |k| matches!(k, Slice | Convolution | Transpose | Reshape);
    kiln_passes::readers::erase_dead(vec![gradient], erases);
}

/// The sum of a gradient's parts, rounded to a dtype.
fn sum_of_parts(b: &Builder, o: &ConvolutionWeightGradient, dtype: DType) -> Result<Value> {
    let (kind, input) = (ReduceKind::Sum, b.add(o)?);
    let input = b.add(&Reduce { kind, input, dims: vec![0], maybe_empty: false })?;
    b.add(&Convert { input, dtype: Type::scalar(b.ctx, dtype) })
}

/// Whether windows of `window` elements from the padding on are `outs` along a dimension of `size`.
struct Along {
    size: i64,
    window: i64,
    outs: i64,
}

impl Along {
    fn has_windows(&self, stride: i64, dilation: i64, pads: [i64; 2]) -> bool {
        let reach = dilation * (self.window - 1);
        let room = self.size + pads[0] + pads[1] - reach - 1;
        room >= 0 && room / stride + 1 == self.outs
    }
}

impl Form {
    fn of(op: Op) -> Option<Form> {
        let o = Convolution::of(op).filter(|o| !o.transposed)?;
        let (input, of_images, last) = match o.groups {
            1 => (o.input, known(o.input)?, [1, 2, 3, 0]),
            _ => groups::images(&o).map(|(input, sizes)| (input, sizes, [0, 2, 3, 1]))?,
        };
        let [images, height, width, channels] = last.map(|d| of_images[d as usize]);
        let [filters, _, rows, columns] = known(o.weight)?;
        let dtype = tensor_type(o.input.ty()).ok()?.dtype;
        let narrow = matches!(dtype, DType::BF16 | DType::F16);
        let result = read_part(op.result(0));
        let [read, by, kh, kw] = known(result)?;
        let complete = [read * o.groups, by] == [channels, filters];
        let sizes = [channels, images, height, width, filters, rows, columns, kh, kw];
        (narrow && complete && sizes.iter().all(|n| *n > 0)).then_some(Form {
            result,
            input,
            sizes: of_images,
            last,
            gradient: o.weight,
            dtype,
            groups: o.groups,
            channels,
            images,
            size: [height, width],
            filters,
            outs: [rows, columns],
            window: [kh, kw],
            strides: o.dilation,
            dilation: o.strides,
            pad_low: o.pad_low,
            pad_high: o.pad_high,
        })
    }

    /// Whether it is the gradient of a convolution that TMA can read.
    fn is_gradient(&self) -> bool {
        // Their batch is the channels of other values.
        let swapped = |v: Value| {
            v.def().and_then(Transpose::of).is_some_and(|t| t.permutation.first() != Some(&0))
        };
        // The images that the windows read, of the convolution and of its gradient.
        let o = Convolution {
            input: self.input,
            weight: self.gradient,
            strides: self.strides.clone(),
            pad_low: self.pad_low.clone(),
            pad_high: self.pad_high.clone(),
            dilation: self.dilation.clone(),
            groups: 1,
            transposed: false,
            output_padding: None,
        };
        let reads = |i: usize| {
            let along = Along { size: self.size[i], window: self.window[i], outs: self.outs[i] };
            along.has_windows(
                self.strides[i],
                self.dilation[i],
                [self.pad_low[i], self.pad_high[i]],
            )
        };
        let readable = self.is_pixel() || self.is_apart() || fits_im2col(&o, &self.window);
        let aligned = match self.groups {
            1 => {
                let apart = self.keeps_rows_apart(1) || self.is_apart();
                apart && self.filters % UNIT == 0 && swapped(self.input)
            }
            _ => self.choices().next().is_some(),
        };
        aligned && swapped(self.gradient) && readable && (0..2).all(reads)
    }

    fn is_plain(&self) -> bool {
        self.pad_low.iter().chain(&self.pad_high).all(|n| *n == 0)
    }
    /// Whether the window is one pixel, and each pixel has one.
    fn is_pixel(&self) -> bool {
        self.groups == 1
            && self.window == [1, 1]
            && self.strides == [1, 1]
            && self.is_plain()
            && self.outs == self.size
    }
    /// Whether windows cover the image and do not overlap, and TMA cannot read the channels.
    fn is_apart(&self) -> bool {
        let covers = |i: usize| {
            self.strides[i] == self.window[i] && self.outs[i] * self.window[i] == self.size[i]
        };
        self.groups == 1
            && self.channels % UNIT != 0
            && self.dilation == [1, 1]
            && self.is_plain()
            && (0..2).all(covers)
    }

    /// Whether the pixels of a window row are one row of channels, since those of a pixel do not fill
    /// tiles. Padding would lie between such pixels: it is stored.
    fn merges_rows(&self, groups: i64) -> bool {
        groups == 1 && self.channels % TILE != 0 && self.dilation[1] == 1 && self.window[1] > 1
    }
    /// Whether rows of windows do not merge with each other too, as those that are rows of the image.
    fn keeps_rows_apart(&self, groups: i64) -> bool {
        let wide = self.size[1] + self.pad_low[1] + self.pad_high[1];
        !self.merges_rows(groups) || wide > self.window[1]
    }

    fn rewrite(&self, b: &Builder) -> Result<()> {
        let sizes = [self.filters, self.window[0], self.window[1], self.channels];
        let sum = if self.is_pixel() || self.is_apart() {
            let made = self.product(b)?;
            b.add(&Reshape { input: made, sizes: Size::all(&sizes) })?
        } else if self.groups > 1 {
            self.sums_of_groups(b)?
        } else {
            self.partial_sums(b, sizes)?
        };
        let new = b.add(&Transpose { input: sum, permutation: vec![3, 0, 1, 2] })?;
        replace(self.result, new);
        Ok(())
    }

    /// The images with channels last.
    fn images_last(&self, b: &Builder) -> Result<Value> {
        let input = groups::in_sizes(b, self.input, self.sizes)?;
        b.add(&Transpose { input, permutation: self.last.to_vec() })
    }

    /// The gradient \[O, KH KW C\] as a product over the pixels of all images.
    fn product(&self, b: &Builder) -> Result<Value> {
        let rows = |input: Value, columns: i64| {
            let [p, q] = self.outs;
            b.add(&Reshape { input, sizes: Size::all(&[self.images * p * q, columns]) })
        };
        let ([p, q], [kh, kw]) = (self.outs, self.window);
        let pixels = match self.is_pixel() {
            true => self.images_last(b)?,
            false => {
                let apart = Size::all(&[self.channels, self.images, p, kh, q, kw]);
                let input = b.add(&Reshape { input: self.input, sizes: apart })?;
                b.add(&Transpose { input, permutation: vec![1, 2, 4, 3, 5, 0] })?
            }
        };
        let lhs = rows(gradient_last(b, self.gradient)?, self.filters)?;
        let rhs = rows(pixels, kh * kw * self.channels)?;
        b.add(&DotGeneral {
            lhs,
            rhs,
            lhs_batch: vec![],
            rhs_batch: vec![],
            lhs_contract: vec![0],
            rhs_contract: vec![0],
            element_type: None,
        })
    }

    /// The gradient of parts of the images, of so many groups. Channels of one group are padded to
    /// the 16 bytes that TMA reads.
    fn of_parts(&self, b: &Builder, groups: i64, splits: i64) -> Result<ConvolutionWeightGradient> {
        let mut input = self.images_last(b)?;
        let missing = self.padded_channels() - self.channels;
        let none = || vec![0; 2];
        let pads = [self.pad_low.clone(), self.pad_high.clone()];
        let (stored, loaded) = match self.merges_rows(groups) {
            true => (pads, [none(), none()]),
            false => ([none(), none()], pads),
        };
        if missing > 0 || stored.iter().flatten().any(|n| *n > 0) {
            let value = b.splat(self.dtype, &[], 0.0)?;
            let around = |pads: &[i64], last: i64| Size::all(&[&[0], pads, &[last]].concat());
            let [low, high] = stored;
            let (low, high) = (around(&low, 0), around(&high, missing));
            input = b.add(&Pad { input, value, low, high })?;
        }
        let [pad_low, pad_high] = loaded;
        Ok(ConvolutionWeightGradient {
            input,
            gradient: gradient_last(b, self.gradient)?,
            window: self.window.to_vec(),
            strides: self.strides.clone(),
            pad_low,
            pad_high,
            dilation: self.dilation.clone(),
            groups,
            splits,
            depthwise: false,
        })
    }
    fn padded_channels(&self) -> i64 {
        (self.channels + UNIT - 1) / UNIT * UNIT
    }

    /// The gradient \[O, KH, KW, C\] as a sum of partial sums.
    fn partial_sums(&self, b: &Builder, sizes: [i64; 4]) -> Result<Value> {
        let columns = self.window[0] * self.window[1] * self.padded_channels();
        let gemm = Gemm { batch: 1, rows: self.filters, columns, k: self.pixels() };
        let gradient = self.of_parts(b, 1, self.splits(gemm).0)?;
        let input = sum_of_parts(b, &gradient, self.dtype)?;
        match self.padded_channels() == self.channels {
            true => Ok(input),
            false => {
                let (offsets, sizes) = (Size::all(&[0; 4]), Size::all(&sizes));
                b.add(&Slice { input, offsets, sizes, strides: vec![1; 4] })
            }
        }
    }

    /// Pixels of all gradients of the result.
    fn pixels(&self) -> i64 {
        self.images * self.outs[0] * self.outs[1]
    }
    /// Into how many parts the images of a product are split, and the clocks that it takes.
    fn splits(&self, gemm: Gemm) -> (i64, f64) {
        let whole = Chip::Sm90a.tiled_gemm(gemm, Left::default());
        let divides = |n: &i64| self.images % n == 0;
        SplitProducts::default().fastest(gemm, whole, divides).unwrap_or((1, whole))
    }
}
