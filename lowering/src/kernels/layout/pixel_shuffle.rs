//! Reshape, transpose, reshape: what puts channels beside each other as pixels, as the gradient of a
//! strided convolution by its input does with the phases of pixels (`differentiate/convolution`).
use kiln_dialects::{ir::*, ops::*, sym::Dim as SymDim};
use kiln_passes::permutation::channels_last;

/// Its form in channels last, where the innermost channels stay innermost: a copy of whole rows of
/// them.
pub(super) struct PixelShuffle {
    /// What is NCHW.
    pub(super) input: Value,
    /// Sizes of its channels-last form, in which pixels and channels are split.
    view: Vec<Size>,
    /// From there to the result's channels-last form, whose dimensions are split likewise.
    permutation: Vec<i64>,
    /// Sizes of that form.
    sizes: Vec<Size>,
}

impl PixelShuffle {
    /// Of the second reshape.
    pub(super) fn of(op: Op) -> Option<PixelShuffle> {
        let joined = Reshape::of(op)?;
        let moved = joined.input.def().and_then(Transpose::of)?;
        let split = moved.input.def().and_then(Reshape::of)?;
        let (from, to) = (split.input.ty().dims(), op.result(0).ty().dims());
        let apart = moved.input.ty().dims();
        let beside: Vec<SymDim> =
            moved.permutation.iter().map(|d| apart[*d as usize].clone()).collect();
        let batch = moved.permutation.first() == Some(&0) && from[..1] == apart[..1];
        if !batch || from.len() < 4 || to.len() < 4 || to[0] != from[0] {
            return None;
        }
        let (before, after) = (parts(&from, &apart)?, parts(&to, &beside)?);
        let innermost = |parts: &[Vec<usize>]| parts[0].last().copied();
        if innermost(&after).map(|d| moved.permutation[d] as usize) != innermost(&before) {
            return None;
        }
        let order = in_order(before);
        let position = |d: i64| order.iter().position(|at| *at as i64 == d).map(|at| at as i64);
        let after = in_order(after).into_iter();
        let sizes = channels_last(to.len()).into_iter();
        Some(PixelShuffle {
            input: split.input,
            view: order.iter().map(|d| split.sizes[*d]).collect(),
            permutation: after.map(|d| position(moved.permutation[d])).collect::<Option<_>>()?,
            sizes: sizes.map(|d| joined.sizes[d as usize]).collect(),
        })
    }

    /// The result in channels last, from the input in channels last.
    pub(super) fn channels_last(&self, b: &Builder, input: Value) -> Result<Value> {
        let view = b.add(&Reshape { input, sizes: self.view.clone() })?;
        let input = b.add(&Transpose { input: view, permutation: self.permutation.clone() })?;
        b.add(&Reshape { input, sizes: self.sizes.clone() })
    }
}

/// Batch, the parts of the pixels and those of the channels.
fn in_order(parts: Vec<Vec<usize>>) -> Vec<usize> {
    let (channels, pixels) = (&parts[0], &parts[1..]);
    [0].iter().chain(pixels.iter().flatten()).chain(channels).copied().collect()
}

/// For each dimension of `whole` behind the first one the dimensions of `split` whose sizes multiply
/// to its size. `None`: there are none, or a size is not known.
fn parts(whole: &[SymDim], split: &[SymDim]) -> Option<Vec<Vec<usize>>> {
    let (mut next, mut found) = (1, vec![]);
    for size in &whole[1..] {
        let (size, mut product, begin) = (size.known()?, 1, next);
        while product < size {
            product = product.checked_mul(split.get(next)?.known()?)?;
            next += 1;
        }
        (product == size).then(|| found.push((begin..next).collect::<Vec<_>>()))?;
    }
    let rest = next..split.len();
    split[rest.clone()].iter().all(|d| d.known() == Some(1)).then_some(())?;
    found.last_mut()?.extend(rest);
    Some(found)
}
