//! Sorts along one axis.

use crate::{
    error::Result,
    reference::{
        element::{Element, each_data},
        movement::slice,
        shape::lines,
    },
    value::{DType, Tensor},
};

/// Stable sort along one axis: values and their original indices (i64), both of x's shape. NaN
/// sorts above everything (last, or first if descending); equal elements keep their order either
/// way (torch.sort(stable=True)). Err: axis out of range.
pub fn sort(x: &Tensor, axis: i64, descending: bool) -> Result<(Tensor, Tensor)> {
    let lines = lines(x.shape(), axis)?;
    let mut indices = vec![0; x.len()];
    // Fills `indices` and returns the sorted values.
    let mut order_line = |start: usize, compare: &dyn Fn(usize, usize) -> std::cmp::Ordering| {
        let at = |i: usize| start + i * lines.step;
        let mut order: Vec<usize> = (0..lines.size).collect();
        order.sort_by(
            |&a, &b| if descending { compare(at(b), at(a)) } else { compare(at(a), at(b)) },
        );
        for (to, &from) in order.iter().enumerate() {
            indices[at(to)] = from as i64;
        }
        order.into_iter().enumerate().map(|(to, from)| (at(to), at(from))).collect::<Vec<_>>()
    };
    let data = each_data!(x, v => {
        let mut out = v.clone();
        for &start in &lines.starts {
            for (to, from) in order_line(start, &|a, b| v[a].order(v[b])) {
                out[to] = v[from];
            }
        }
        out
    });
    let values = Tensor::new(x.dtype(), x.shape().to_vec(), data)?;
    Ok((values, Tensor::ints(DType::I64, x.shape().to_vec(), indices)?))
}

/// The k greatest (or smallest) elements along one axis in order, with their indices (i64): a
/// prefix of [`sort`]. Err: axis out of range, k negative or above the axis' size.
pub fn top_k(x: &Tensor, axis: i64, k: i64, smallest: bool) -> Result<(Tensor, Tensor)> {
    let (values, indices) = sort(x, axis, !smallest)?;
    let mut sizes: Vec<i64> = x.shape().iter().map(|&size| size as i64).collect();
    let size = &mut sizes[axis as usize];
    if k < 0 || k > *size {
        return Err(format!("k is {k}, axis {axis} has size {size}").into());
    }
    *size = k;
    let (zeros, ones) = (vec![0; sizes.len()], vec![1; sizes.len()]);
    Ok((slice(&values, &zeros, &sizes, &ones)?, slice(&indices, &zeros, &sizes, &ones)?))
}
