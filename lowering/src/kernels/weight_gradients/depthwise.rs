//! Gradients of depthwise convolutions by their weights.
//!
//! ```text
//! before:  %0 = kiln.convolution (kiln.reshape %x …), (kiln.transpose %g [1, 0, 2, 3]) … {groups = C}
//! after:   %p = kiln.convolution_weight_gradient depthwise (kiln.transpose %x [0, 2, 3, 1]), (kiln.transpose %g [0, 2, 3, 1]) … {splits = 8}
//!          %s = kiln.reduce sum %p dims = [0]   %c = kiln.convert %s : … to bf16   %0 = kiln.reshape (kiln.transpose %c [2, 0, 1])
//! ```
use super::{Along, gradient_last, groups, known, read_part, replace, sum_of_parts};
use kiln_dialects::{ir::*, ops::*, rules::tensor_type, value::DType};

/// Channels that a CTA has at least, and CTAs that keep a GPU busy.
const CHANNELS: i64 = 128;
const CTAS: i64 = 264;

/// A convolution of images as groups, \[1, C N, H, W\], by windows \[C, N, P, Q\], as the gradient
/// that it is.
pub(super) struct Form {
    /// Its result, or the part of it that is read: \[1, C, KH, KW\].
    result: Value,
    /// \[N, C, H, W\], in any shape, and these sizes.
    image: Value,
    sizes: [i64; 4],
    /// \[C, N, P, Q\]
    gradient: Value,
    dtype: DType,
    images: i64,
    channels: i64,
    convolution: Convolution,
    window: [i64; 2],
}

impl Form {
    pub(super) fn of(op: Op) -> Option<Form> {
        let o = Convolution::of(op).filter(|o| o.groups > 1 && !o.transposed)?;
        let (image, of_images) = groups::images(&o)?;
        let [images, channels, height, width] = of_images;
        let [filters, each, rows, columns] = known(o.weight)?;
        if [filters, each] != [channels, images] {
            return None;
        }
        let result = read_part(op.result(0));
        let [1, read, kh, kw] = known(result)? else { return None };
        let dtype = tensor_type(image.ty()).ok()?.dtype;
        let floats = dtype.is_float() && dtype != DType::F64 && dtype.byte_size() >= 2;
        let sizes = [(height, kh, rows), (width, kw, columns)];
        let windows = sizes.iter().enumerate().all(|(i, (size, window, outs))| {
            let pads = [o.pad_low[i], o.pad_high[i]];
            // What strides the images by and dilates the windows by is the other way round here.
            Along { size: *size, window: *window, outs: *outs }.has_windows(
                o.dilation[i],
                o.strides[i],
                pads,
            ) && pads.iter().all(|p| *p >= 0)
        });
        let whole = o.groups == channels && read == channels && kh * kw > 1;
        (whole && floats && windows && images > 0).then_some(Form {
            result,
            image,
            sizes: of_images,
            gradient: o.weight,
            dtype,
            images,
            channels,
            window: [kh, kw],
            convolution: o,
        })
    }

    pub(super) fn rewrite(self, b: &Builder) -> Result<()> {
        let input = groups::in_sizes(b, self.image, self.sizes)?;
        let o = self.convolution;
        let gradient = ConvolutionWeightGradient {
            input: b.add(&Transpose { input, permutation: vec![0, 2, 3, 1] })?,
            gradient: gradient_last(b, self.gradient)?,
            window: self.window.to_vec(),
            strides: o.dilation,
            pad_low: o.pad_low,
            pad_high: o.pad_high,
            dilation: o.strides,
            groups: 1,
            splits: splits(self.images, self.channels),
            depthwise: true,
        };
        let input = sum_of_parts(b, &gradient, self.dtype)?;
        let input = b.add(&Transpose { input, permutation: vec![2, 0, 1] })?;
        let [kh, kw] = self.window;
        let sizes = Size::all(&[1, self.channels, kh, kw]);
        replace(self.result, b.add(&Reshape { input, sizes })?);
        Ok(())
    }
}

/// Into how many parts the images are split: as many as keep a GPU busy, if there are.
fn splits(images: i64, channels: i64) -> i64 {
    let blocks = (channels + CHANNELS - 1) / CHANNELS;
    (1..=images).find(|n| images % n == 0 && n * blocks >= CTAS).unwrap_or(images)
}
