//! Pooling over the spatial dimensions of [N, C, spatial...].

use crate::{
    error::Result,
    reference::{
        element::{Element, each_data},
        shape::{dot, for_each_index, same_rank, sizes as to_sizes, steps, strides},
    },
    value::{Tensor, count},
};

/// Parameters of kiln.max_pool, one entry per spatial dimension.
#[derive(Clone, Debug)]
pub struct MaxPoolParams {
    /// The op's `window`.
    pub window: Vec<i64>,
    /// The op's `strides`.
    pub strides: Vec<i64>,
    /// The op's `padding`.
    pub padding: Vec<i64>,
    /// The op's `dilation`.
    pub dilation: Vec<i64>,
    /// The op's `ceil_mode`.
    pub ceil_mode: bool,
}

/// Parameters of kiln.avg_pool, one entry per spatial dimension.
#[derive(Clone, Debug)]
pub struct AvgPoolParams {
    /// The op's `window`.
    pub window: Vec<i64>,
    /// The op's `strides`.
    pub strides: Vec<i64>,
    /// The op's `padding`.
    pub padding: Vec<i64>,
    /// The op's `ceil_mode`.
    pub ceil_mode: bool,
    /// The op's `count_include_pad`.
    pub count_include_pad: bool,
    /// The op's `divisor_override`.
    pub divisor_override: Option<i64>,
}

/// N * C and the spatial sizes. Err: x is not \[N, C, ...\].
fn split(x: &Tensor) -> Result<(usize, &[usize])> {
    let split = x.shape().split_at_checked(2);
    let (lead, spatial) =
        split.ok_or_else(|| format!("input {:?} is not [N, C, ...]", x.shape()))?;
    Ok((count(lead)?, spatial))
}

/// The range of a window in one dimension.
#[derive(Clone)]
struct Reach {
    /// Indices within the input.
    inside: Vec<usize>,
    /// The number of indices within the padded input.
    padded: usize,
}

/// All windows along a dimension of size n.
fn reaches(
    n: usize,
    [window, stride, padding, dilation]: [i64; 4],
    ceil_mode: bool,
) -> Result<Vec<Reach>> {
    let (size, pad) = (n as i128, padding as i128);
    let reach = dilation as i128 * (window as i128 - 1);
    let room = size + 2 * pad - reach - 1;
    if padding < 0 || room < 0 {
        return Err(format!(
            "a window of size {window} does not fit size {n}, padded by {padding}"
        )
        .into());
    }
    let stride = stride as i128;
    let mut last = room / stride;
    // ceil_mode adds a window for the remainder, unless it would start in the right padding.
    if ceil_mode && room % stride != 0 && (last + 1) * stride < size + pad {
        last += 1;
    }
    // Bounds the size of the table below.
    let windows = usize::try_from(last + 1).unwrap_or(usize::MAX);
    count(&[windows, usize::try_from(window).unwrap_or(usize::MAX)])?;
    let at = |i: i128| (0..window as i128).map(move |k| i * stride + k * dilation as i128 - pad);
    let one = |i: i128| Reach {
        inside: at(i).filter_map(|p| usize::try_from(p).ok()).filter(|&p| p < n).collect(),
        padded: at(i).filter(|&p| p < size + pad).count(),
    };
    Ok((0..=last).map(one).collect())
}

/// Reduces the elements of every window; `finish` gets the result and the window's range per
/// dimension.
fn pool<E: Element>(
    v: &[E],
    lead: usize,
    spatial: &[usize],
    windows: &[Vec<Reach>],
    start: E,
    fold: impl Fn(E, E) -> E,
    finish: impl Fn(E, &[&Reach]) -> E,
) -> Result<Vec<E>> {
    let sizes: Vec<usize> = windows.iter().map(Vec::len).collect();
    let (all, size) = (strides(spatial), count(spatial)?);
    let mut out = vec![];
    for plane in 0..lead {
        for_each_index(&sizes, |index| {
            let reach: Vec<&Reach> = index.iter().zip(windows).map(|(&i, w)| &w[i]).collect();
            let inside: Vec<usize> = reach.iter().map(|r| r.inside.len()).collect();
            let mut sum = start;
            for_each_index(&inside, |k| {
                let at: Vec<usize> = k.iter().zip(&reach).map(|(&k, r)| r.inside[k]).collect();
                sum = fold(sum, v[plane * size + dot(&at, &all)]);
                Ok(())
            })?;
            out.push(finish(sum, &reach));
            Ok(())
        })?;
    }
    Ok(out)
}

/// The windows of every spatial dimension, and the shape of the result.
fn all_windows(
    x: &Tensor,
    lists: [&[i64]; 4],
    ceil_mode: bool,
) -> Result<(Vec<Vec<Reach>>, Vec<usize>)> {
    let (_, spatial) = split(x)?;
    let [window, stride, padding, dilation] = lists;
    steps("windows", window, spatial.len())?;
    steps("strides", stride, spatial.len())?;
    same_rank("paddings", padding.len(), spatial.len())?;
    steps("dilation", dilation, spatial.len())?;
    let one = |(k, &n): (usize, &usize)| reaches(n, lists.map(|list| list[k]), ceil_mode);
    let windows: Vec<Vec<Reach>> = spatial.iter().enumerate().map(one).collect::<Result<_, _>>()?;
    let shape = x.shape()[..2].iter().copied().chain(windows.iter().map(Vec::len)).collect();
    Ok((windows, shape))
}

/// r\[n, c, i\] = max over k of x[n, c, i * strides + k * dilation - padding]; padding is -inf, NaN
/// propagates; ceil_mode rounds the size up, unless the last window would start in the right
/// padding (torch.nn.functional.max_pool2d). Any dtype; a window within the padding gives the least
/// value. Err: invalid lists, a window larger than the padded input.
pub fn max_pool(x: &Tensor, p: &MaxPoolParams) -> Result<Tensor> {
    let (windows, shape) =
        all_windows(x, [&p.window, &p.strides, &p.padding, &p.dilation], p.ceil_mode)?;
    let (lead, spatial) = split(x)?;
    let data = each_data!(x, v => {
        pool(v, lead, spatial, &windows, Element::lowest(x.dtype()), Element::maximum, |max, _| max)?
    });
    Tensor::new(x.dtype(), shape, data)
}

/// r\[n, c, i\] = sum over k of x[n, c, i * strides + k - padding] / divisor
/// (torch.nn.functional.avg_pool2d). The divisor is the number of elements of the window, padding
/// included if count_include_pad (but never what ceil_mode adds), or divisor_override. A window
/// within the padding gives 0. Err: not a float dtype, invalid lists, a window larger than the
/// padded input, divisor_override 0.
pub fn avg_pool(x: &Tensor, p: &AvgPoolParams) -> Result<Tensor> {
    let ones = vec![1; p.window.len()];
    let (windows, shape) = all_windows(x, [&p.window, &p.strides, &p.padding, &ones], p.ceil_mode)?;
    let (lead, spatial) = split(x)?;
    if p.divisor_override == Some(0) {
        return Err("divisor_override is 0".to_string().into());
    }
    let finish = |sum: f64, reach: &[&Reach]| {
        let inside: usize = reach.iter().map(|r| r.inside.len()).product();
        let padded: usize = reach.iter().map(|r| r.padded).product();
        let counted = if p.count_include_pad { padded } else { inside };
        let divisor = p.divisor_override.map_or(counted as f64, |d| d as f64);
        if inside == 0 { 0.0 } else { sum / divisor }
    };
    let values = pool(x.as_f()?, lead, spatial, &windows, 0.0, |sum, x| sum + x, finish)?;
    Tensor::floats(x.dtype(), shape, values)
}

/// r\[n, c, i\] = mean of x[n, c, floor(i * H / h) .. ceil((i + 1) * H / h)], with the spatial
/// dimensions resized to `sizes` (torch.nn.functional.adaptive_avg_pool2d). Err: not a float dtype,
/// not one size per spatial dimension, an empty spatial dimension.
pub fn adaptive_avg_pool(x: &Tensor, sizes: &[i64]) -> Result<Tensor> {
    let (lead, spatial) = split(x)?;
    let sizes = to_sizes(sizes)?;
    same_rank("sizes", sizes.len(), spatial.len())?;
    count(&sizes)?;
    if spatial.contains(&0) {
        return Err(format!("no mean over spatial dimensions {spatial:?}").into());
    }
    let one = |(&n, &size): (&usize, &usize)| {
        let reach = |i: usize| Reach {
            inside: (i * n / size..((i + 1) * n).div_ceil(size)).collect(),
            padded: 0,
        };
        (0..size).map(reach).collect()
    };
    let windows: Vec<Vec<Reach>> = spatial.iter().zip(&sizes).map(one).collect();
    let finish = |sum: f64, reach: &[&Reach]| {
        sum / reach.iter().map(|r| r.inside.len()).product::<usize>() as f64
    };
    let values = pool(x.as_f()?, lead, spatial, &windows, 0.0, |sum, x| sum + x, finish)?;
    Tensor::floats(x.dtype(), [&x.shape()[..2], &sizes].concat(), values)
}
