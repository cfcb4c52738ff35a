//! Reductions over sliding windows.

use crate::{
    error::Result,
    ops::CumulativeKind,
    reference::{
        element::{Element, each_data},
        shape::{for_each_index, same_rank, steps, strides},
    },
    value::{DType, Tensor, count},
};

/// Parameters of kiln.reduce_window, one entry per dimension.
#[derive(Clone, Debug)]
pub struct WindowParams {
    /// The op's `window`.
    pub window: Vec<i64>,
    /// The op's `strides`.
    pub strides: Vec<i64>,
    /// The op's `pad_low`.
    pub pad_low: Vec<i64>,
    /// The op's `pad_high`.
    pub pad_high: Vec<i64>,
    /// The op's `dilation`.
    pub dilation: Vec<i64>,
}

/// r\[i\] = kind over k of x[i * strides + k * dilation - pad_low], of x's dtype; padding is the
/// kind's identity (StableHLO reduce_window); sizes as in kiln.convolution. Integers wrap around.
/// Err: lists not of the rank, a window, stride or dilation below 1, a window larger than the
/// padded input.
pub fn reduce_window(kind: CumulativeKind, x: &Tensor, p: &WindowParams) -> Result<Tensor> {
    steps("windows", &p.window, x.rank())?;
    steps("strides", &p.strides, x.rank())?;
    steps("dilation", &p.dilation, x.rank())?;
    same_rank("low paddings", p.pad_low.len(), x.rank())?;
    same_rank("high paddings", p.pad_high.len(), x.rank())?;
    let size = |(k, &n): (usize, &usize)| {
        let reach = p.dilation[k] as i128 * (p.window[k] as i128 - 1);
        let room = n as i128 + p.pad_low[k] as i128 + p.pad_high[k] as i128 - reach - 1;
        // A dimension without a window of its own, such as the batch, may be empty.
        if p.window[k] == 1 && p.strides[k] == 1 && room == -1 {
            return Ok(0);
        }
        let size = if room < 0 { -1 } else { room / p.strides[k] as i128 + 1 };
        usize::try_from(size).map_err(|_| {
            format!("a window of size {} does not fit dimension {k} of size {n}", p.window[k])
        })
    };
    let shape: Vec<usize> = x.shape().iter().enumerate().map(size).collect::<Result<_, _>>()?;
    let data = each_data!(x, v => run(kind, v, x, &shape, p)?);
    Tensor::new(x.dtype(), shape, data)
}

fn run<E: Element>(
    kind: CumulativeKind,
    v: &[E],
    x: &Tensor,
    shape: &[usize],
    p: &WindowParams,
) -> Result<Vec<E>> {
    let dtype: DType = x.dtype();
    let all = strides(x.shape());
    let window: Vec<usize> = p.window.iter().map(|&w| w as usize).collect();
    let mut out = Vec::with_capacity(count(shape)?);
    for_each_index(shape, |i| {
        let mut sum = E::identity(kind, dtype);
        for_each_index(&window, |k| {
            let mut position = 0;
            for d in 0..all.len() {
                let at = i[d] as i128 * p.strides[d] as i128 + k[d] as i128 * p.dilation[d] as i128
                    - p.pad_low[d] as i128;
                match usize::try_from(at) {
                    Ok(at) if at < x.shape()[d] => position += at * all[d],
                    _ => return Ok(()),
                }
            }
            sum = sum.combine(kind, v[position], dtype);
            Ok(())
        })?;
        out.push(sum);
        Ok(())
    })?;
    Ok(out)
}
