//! The gradient of a convolution by its weight.
use crate::{
    error::Result,
    reference::{
        convolution::{ConvParams, output_sizes},
        shape::for_each_index,
    },
    value::{DType, Tensor, count},
};

/// Sums over the images of each split, of an input \[N, H, W, C\] and the gradient of a result
/// \[N, P, Q, O\]: \[splits, O, KH, KW, C\] in f32, of several groups
/// \[splits, groups, O / groups, KH, KW, C / groups\], if `depthwise`, of each channel by its own,
/// \[splits, KH, KW, C\]. `p` are the parameters of the convolution.
///
/// Err: other ranks, sizes that are not those of the convolution, integers, splits that do not
/// divide the images, groups that do not divide channels and filters.
pub fn convolution_weight_gradient(
    x: &Tensor,
    gradient: &Tensor,
    window: &[i64],
    p: &ConvParams,
    splits: i64,
    depthwise: bool,
) -> Result<Tensor> {
    let (&[images, height, width, c], &[n, rows, columns, filters]) = (x.shape(), gradient.shape())
    else {
        return Err(format!("{:?} and {:?} are not of rank 4", x.shape(), gradient.shape()).into());
    };
    let size = |n: i64| usize::try_from(n).map_err(|_| format!("size {n} is negative"));
    let [kh, kw] = window.iter().map(|n| size(*n)).collect::<Result<Vec<_>, _>>()?[..] else {
        return Err(format!("window {window:?} has not two sizes").into());
    };
    let splits = size(splits)?;
    let windows = output_sizes(&[height, width], &[kh, kw], p)?;
    if images != n || windows != [rows, columns] || splits == 0 || images % splits != 0 {
        return Err(format!("{:?} is no gradient of {splits} splits", gradient.shape()).into());
    }
    let (v, g, each) = (x.as_f()?, gradient.as_f()?, images / splits);
    // The pixel that position `at` of an output pixel's window reads, if it is no padding.
    let pixel = |i: usize, out: usize, at: usize, size: usize| -> Option<usize> {
        let place = out as i64 * p.strides[i] + at as i64 * p.dilation[i] - p.pad_low[i];
        usize::try_from(place).ok().filter(|place| *place < size)
    };
    if depthwise && filters != c {
        return Err(format!("has {c} channels and {filters} filters, and is depthwise").into());
    }
    let groups = size(p.groups)?;
    if groups == 0 || c % groups != 0 || filters % groups != 0 || depthwise && groups > 1 {
        return Err(format!("has {groups} groups of {c} channels and {filters} filters").into());
    }
    let (of, by) = (c / groups, filters / groups);
    let shape = match (depthwise, groups) {
        (true, _) => vec![splits, kh, kw, c],
        (false, 1) => vec![splits, filters, kh, kw, c],
        _ => vec![splits, groups, by, kh, kw, of],
    };
    let mut out = Vec::with_capacity(count(&shape)?);
    for_each_index(&shape, |index| {
        let (s, o, i, j, k) = match *index {
            [s, a, o, i, j, k] => (s, a * by + o, i, j, a * of + k),
            [s, o, i, j, k] => (s, o, i, j, k),
            [s, i, j, k] => (s, k, i, j, k),
            _ => return Err("has another rank".into()),
        };
        let mut sum = 0.0;
        for n in s * each..(s + 1) * each {
            for r in 0..rows {
                let Some(h) = pixel(0, r, i, height) else { continue };
                for q in 0..columns {
                    let Some(w) = pixel(1, q, j, width) else { continue };
                    sum += v[((n * height + h) * width + w) * c + k]
                        * g[((n * rows + r) * columns + q) * filters + o];
                }
            }
        }
        out.push(sum);
        Ok(())
    })?;
    Tensor::floats(DType::F32, shape, out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::{convolution, transpose};

    /// Sines of numbers from one on.
    fn numbers(shape: &[usize], from: usize) -> Result<Tensor> {
        let values = (from..from + shape.iter().product::<usize>()).map(|i| (i as f64).sin());
        Tensor::floats(DType::F32, shape.to_vec(), values.collect())
    }
    fn params(
        strides: [i64; 2],
        pad_low: [i64; 2],
        pad_high: [i64; 2],
        dilation: [i64; 2],
    ) -> ConvParams {
        let [strides, pad_low, pad_high, dilation] =
            [strides, pad_low, pad_high, dilation].map(|all| all.to_vec());
        let (groups, transposed, output_padding) = (1, false, None);
        ConvParams { strides, pad_low, pad_high, dilation, groups, transposed, output_padding }
    }

    #[test]
    fn it_is_a_convolution_of_the_batch_by_the_gradient() -> Result<()> {
        let p = params([2, 1], [1, 0], [0, 1], [1, 2]);
        let (x, g) = (numbers(&[4, 6, 7, 3], 1)?, numbers(&[4, 3, 4, 2], 1)?);
        let split = convolution_weight_gradient(&x, &g, &[3, 3], &p, 2, false)?;
        let swapped = ConvParams { strides: p.dilation.clone(), dilation: p.strides.clone(), ..p };
        let by_batch = |t: &Tensor| transpose(t, &[3, 0, 1, 2]);
        let want = convolution(&by_batch(&x)?, &by_batch(&g)?, &swapped)?;
        let want = transpose(&want, &[1, 2, 3, 0])?;
        let want = want.as_f()?;
        for (k, w) in want.iter().enumerate() {
            let sum: f64 = split.as_f()?.iter().skip(k).step_by(want.len()).sum();
            assert!((sum - w).abs() < 1e-6, "{k}: {sum}, but {w}");
        }
        Ok(())
    }

    #[test]
    fn a_group_has_the_gradient_of_its_channels_and_filters() -> Result<()> {
        let p = params([2, 1], [1, 0], [0, 1], [1, 2]);
        let (x, g) = (numbers(&[2, 6, 7, 6], 1)?, numbers(&[2, 3, 4, 4], 70)?);
        let all = convolution_weight_gradient(&x, &g, &[3, 3], &p, 2, false)?;
        let of = |groups: i64| {
            let p = ConvParams { groups, ..p.clone() };
            convolution_weight_gradient(&x, &g, &[3, 3], &p, 2, false)
        };
        let own = of(2)?;
        assert_eq!((all.shape(), own.shape()), (&[2, 4, 3, 3, 6][..], &[2, 2, 2, 3, 3, 3][..]));
        let (all, mut own) = (all.as_f()?, own.as_f()?.iter());
        for_each_index(&[2, 2, 2, 9, 3], |i| {
            let [s, a, o, position, k] = *i else { return Err("has another rank".into()) };
            let same = ((s * 4 + 2 * a + o) * 9 + position) * 6 + 3 * a + k;
            assert_eq!(own.next(), Some(&all[same]));
            Ok(())
        })?;
        assert!(of(3).is_err() && of(0).is_err());
        Ok(())
    }

    #[test]
    fn a_depthwise_one_is_that_of_each_channel() -> Result<()> {
        let p = params([1, 2], [0, 1], [1, 0], [2, 1]);
        let (x, g) = (numbers(&[2, 5, 6, 3], 1)?, numbers(&[2, 4, 3, 3], 70)?);
        let all = convolution_weight_gradient(&x, &g, &[2, 2], &p, 1, false)?;
        let own = convolution_weight_gradient(&x, &g, &[2, 2], &p, 1, true)?;
        assert_eq!((all.shape(), own.shape()), (&[1, 3, 2, 2, 3][..], &[1, 2, 2, 3][..]));
        for (k, v) in own.as_f()?.iter().enumerate() {
            let (position, channel) = (k / 3, k % 3);
            assert_eq!(*v, all.as_f()?[(channel * 4 + position) * 3 + channel]);
        }
        assert!(
            convolution_weight_gradient(&x, &numbers(&[2, 4, 3, 2], 1)?, &[2, 2], &p, 1, true)
                .is_err()
        );
        Ok(())
    }
}
