//! Steps of convolutions.
use super::{
    steps::Made,
    values::{Graph, dtype},
};
use kiln::dialects::{ir::*, ops::*, value::DType};

impl Graph {
    /// A step of kind winograd, convolution, weight_gradient, or pieces.
    pub fn convolutions(&mut self, kind: &str) -> Made {
        let b = self.b;
        let none = Ok(vec![]);
        let one = |v: Result<Value, kiln_dialects::Error>| v.map(|v| vec![v]);
        match kind {
            "winograd" => {
                let (tile, key) = (self.pick(&[2, 4]), b.splat(DType::I64, &Size::all(&[2]), 5.0)?);
                let to = self.pick(&[DType::F64, DType::F32, DType::F16, DType::BF16]);
                let (sizes, dtype) =
                    (Size::all(&[1, tile + 2, 2 * tile + 2, 3]), Type::scalar(b.ctx, to));
                let input = b.add(&RandomUniform { key, sizes, dtype, low: -1.0, high: 1.0 })?;
                let input = b.add(&WinogradInput { input, tile })?;
                Ok(vec![input, b.add(&WinogradOutput { input, tile })?])
            }
            "convolution" => {
                let Some(x) = self.value(|d, t| {
                    t != DType::I1 && d.len() == 2 && d.iter().all(|d| d.known() != Some(0))
                }) else {
                    return none;
                };
                // One channel, and a weight with one tap less than a window of two.
                let sizes = b.sizes_of(x)?;
                let input =
                    b.add(&Reshape { input: x, sizes: vec![sizes[0], Size::Static(1), sizes[1]] })?;
                let weight = b.splat(dtype(x), &Size::all(&[2, 1, 2]), 2.0)?;
                let (strides, pad_low, pad_high, dilation) = (vec![1], vec![1], vec![0], vec![1]);
                let groups = 1;
                let (transposed, output_padding) = (false, None);
                one(b.add(&Convolution {
                    input,
                    weight,
                    strides,
                    pad_low,
                    pad_high,
                    dilation,
                    groups,
                    transposed,
                    output_padding,
                }))
            }
            "weight_gradient" => {
                let floats = [DType::F32, DType::F16, DType::BF16];
                let Some(x) = self.value(|d, t| {
                    floats.contains(&t) && d.len() == 2 && d.iter().all(|d| d.known() != Some(0))
                }) else {
                    return none;
                };
                // A column of pixels, as many windows of two, and one gradient of each.
                let sizes = b.sizes_of(x)?;
                let column = vec![sizes[0], sizes[1], Size::Static(1), Size::Static(1)];
                let gradient = b.splat(dtype(x), &column, 0.5)?;
                let input = b.add(&Reshape { input: x, sizes: column })?;
                one(b.add(&ConvolutionWeightGradient {
                    input,
                    gradient,
                    window: vec![2, 1],
                    strides: vec![1, 1],
                    pad_low: vec![1, 0],
                    pad_high: vec![0, 0],
                    dilation: vec![1, 1],
                    groups: 1,
                    splits: 1,
                    depthwise: false,
                }))
            }
            _ => {
                let Some(x) = self.value(|d, t| {
                    t != DType::I1 && d.len() == 2 && d.iter().all(|d| d.known() != Some(0))
                }) else {
                    return none;
                };
                // Two convolutions, the second of the first's result or of the input, and the input
                // itself, concatenated along channels.
                let sizes = b.sizes_of(x)?;
                let input =
                    b.add(&Reshape { input: x, sizes: vec![sizes[0], Size::Static(1), sizes[1]] })?;
                let one_of = |input: Value, filters: i64, channels: i64, window: i64| {
                    let weight =
                        b.splat(dtype(x), &Size::all(&[filters, channels, window]), 2.0)?;
                    let (strides, pad_low, pad_high, dilation) =
                        (vec![1], vec![window - 1], vec![0], vec![1]);
                    let (groups, transposed, output_padding) = (1, false, None);
                    b.add(&Convolution {
                        input,
                        weight,
                        strides,
                        pad_low,
                        pad_high,
                        dilation,
                        groups,
                        transposed,
                        output_padding,
                    })
                };
                let first = one_of(input, 2, 1, 1)?;
                let second = if self.random.below(2) == 0 {
                    one_of(first, 3, 2, 2)?
                } else {
                    one_of(input, 3, 1, 2)?
                };
                let mut inputs = vec![first, second, input];
                inputs.rotate_left(self.random.below(3));
                let joined = b.add(&Concat { inputs, axis: 1 })?;
                Ok(if self.random.below(2) == 0 { vec![joined, first] } else { vec![joined] })
            }
        }
    }
}
