//! Convolution of any number of spatial dimensions.

use crate::{
    error::Result,
    reference::{
        element::{Element, both_data},
        shape::{dot, for_each_index, same_dtype, same_rank, steps, strides},
    },
    value::{DType, Tensor, count},
};

/// Parameters of kiln.convolution, one entry per spatial dimension.
#[derive(Clone, Debug)]
pub struct ConvParams {
    /// The op's `strides`.
    pub strides: Vec<i64>,
    /// The op's `pad_low`.
    pub pad_low: Vec<i64>,
    /// The op's `pad_high`.
    pub pad_high: Vec<i64>,
    /// The op's `dilation`.
    pub dilation: Vec<i64>,
    /// The op's `groups`.
    pub groups: i64,
    /// The op's `transposed`.
    pub transposed: bool,
    /// The op's `output_padding`.
    pub output_padding: Option<Vec<i64>>,
}

/// Cross-correlation of input \[N, C, ...\] with weight [O, C/groups, ...]: r\[n, o, i\] = sum over
/// c, k of x[n, c, i * strides + k * dilation - pad_low] * w\[o, c, k\].
///
/// Transposed, with weight [C, O/groups, ...]: x\[n, c, i\] * w\[c, o, k\] is added to r[n, o, i *
/// strides + k * dilation - pad_low]. Sizes: Reduce.td, torch's conv2d and conv_transpose2d.
///
/// Err: inconsistent ranks, dtypes, channels or groups, a window larger than the padded input, a
/// negative result size, output_padding when not transposed.
pub fn convolution(x: &Tensor, weight: &Tensor, p: &ConvParams) -> Result<Tensor> {
    same_dtype(x, weight)?;
    same_rank("weight dimensions", weight.rank(), x.rank())?;
    let spatial = x
        .rank()
        .checked_sub(2)
        .ok_or_else(|| format!("input {:?} is not [N, C, ...]", x.shape()))?;
    let out_spatial = output_sizes(&x.shape()[2..], &weight.shape()[2..], p)?;
    let groups = usize::try_from(p.groups).ok().filter(|&g| g > 0);
    let groups = groups.ok_or_else(|| format!("{} groups", p.groups))?;
    let (channels, w0, w1) = (x.shape()[1], weight.shape()[0], weight.shape()[1]);
    let (outs, ins) = if p.transposed {
        (w1.saturating_mul(groups), w0)
    } else {
        (w0, w1.saturating_mul(groups))
    };
    if ins != channels || channels % groups != 0 || outs % groups != 0 {
        return Err(format!(
            "weight {:?} does not fit {channels} channels in {groups} groups",
            weight.shape()
        )
        .into());
    }
    let mut shape = vec![x.shape()[0], outs];
    shape.extend(&out_spatial);
    let layout = Layout {
        batch: x.shape()[0],
        groups,
        ins: ins / groups,
        outs: outs / groups,
        in_size: count(&x.shape()[2..])?,
        out_size: count(&out_spatial)?,
        kernel_size: count(&weight.shape()[2..])?,
        transposed: p.transposed,
    };
    let taps = taps(&x.shape()[2..], &weight.shape()[2..], &out_spatial, p, spatial)?;
    let size = count(&shape)?;
    let data = both_data!(x, weight, v, w => layout.run(v, w, &taps, size, x.dtype()));
    Tensor::new(x.dtype(), shape, data)
}

/// Spatial sizes of the result.
pub(super) fn output_sizes(
    input: &[usize],
    kernel: &[usize],
    p: &ConvParams,
) -> Result<Vec<usize>> {
    let rank = input.len();
    steps("strides", &p.strides, rank)?;
    steps("dilation", &p.dilation, rank)?;
    same_rank("low paddings", p.pad_low.len(), rank)?;
    same_rank("high paddings", p.pad_high.len(), rank)?;
    let extra = p.output_padding.clone().unwrap_or_else(|| vec![0; rank]);
    same_rank("output paddings", extra.len(), rank)?;
    if let Some(bad) = extra.iter().find(|&&e| e < 0 || (e > 0 && !p.transposed)) {
        return Err(format!(
            "output_padding {bad} on a convolution with transposed = {}",
            p.transposed
        )
        .into());
    }
    let size = |k: usize| {
        let [n, low, high] = [input[k] as i128, p.pad_low[k] as i128, p.pad_high[k] as i128];
        let (stride, reach) =
            (p.strides[k] as i128, p.dilation[k] as i128 * (kernel[k] as i128 - 1));
        let size = if p.transposed {
            (n - 1) * stride - low - high + reach + extra[k] as i128 + 1
        } else {
            // Truncating division would accept a window that is slightly too large.
            let room = n + low + high - reach - 1;
            if room < 0 { -1 } else { room / stride + 1 }
        };
        usize::try_from(size).map_err(|_| {
            format!("a kernel of size {} does not fit spatial dimension {k} of size {n}, padded by {low} and {high}", kernel[k]).into()
        })
    };
    (0..rank).map(size).collect()
}

/// Linear offsets of a product in the input, the weight and the result.
type Tap = (usize, usize, usize);

/// All filter taps within input and result.
fn taps(
    input: &[usize],
    kernel: &[usize],
    output: &[usize],
    p: &ConvParams,
    rank: usize,
) -> Result<Vec<Tap>> {
    // Iterates over `walked` and computes the index in `target`.
    let (walked, target) = if p.transposed { (input, output) } else { (output, input) };
    let target_strides = strides(target);
    let kernel_strides = strides(kernel);
    let mut taps = vec![];
    let mut from = 0;
    for_each_index(walked, |i| {
        for_each_index(kernel, |k| {
            let mut to = 0;
            for d in 0..rank {
                let at = i[d] as i128 * p.strides[d] as i128 + k[d] as i128 * p.dilation[d] as i128
                    - p.pad_low[d] as i128;
                match usize::try_from(at) {
                    Ok(at) if at < target[d] => to += at * target_strides[d],
                    _ => return Ok(()),
                }
            }
            let k = dot(k, &kernel_strides);
            taps.push(if p.transposed { (from, k, to) } else { (to, k, from) });
            Ok(())
        })?;
        from += 1;
        Ok(())
    })?;
    Ok(taps)
}

/// Sizes of the operands; `ins` and `outs` are channels per group.
struct Layout {
    batch: usize,
    groups: usize,
    ins: usize,
    outs: usize,
    in_size: usize,
    out_size: usize,
    kernel_size: usize,
    transposed: bool,
}

impl Layout {
    fn run<E: Element>(&self, x: &[E], w: &[E], taps: &[Tap], size: usize, dtype: DType) -> Vec<E> {
        let mut out = vec![E::ZERO; size];
        for n in 0..self.batch {
            for g in 0..self.groups {
                for o in 0..self.outs {
                    let r = ((n * self.groups + g) * self.outs + o) * self.out_size;
                    for c in 0..self.ins {
                        let from = ((n * self.groups + g) * self.ins + c) * self.in_size;
                        let pair = if self.transposed {
                            (g * self.ins + c) * self.outs + o
                        } else {
                            (g * self.outs + o) * self.ins + c
                        };
                        for &(i, k, j) in taps {
                            let product = x[from + i].mul(w[pair * self.kernel_size + k], dtype);
                            out[r + j] = out[r + j].add(product, dtype);
                        }
                    }
                }
            }
        }
        out
    }
}
