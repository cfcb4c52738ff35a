//! Groups of a gradient by the weight, joined to the width of a tensor-core tile.
//!
//! Each group has a product of its own, of a few filters by a few channels. As `kiln-merge-groups`
//! does for convolutions, several become one, whose gradient has all of their filters by all of
//! their channels; the blocks on its diagonal remain.
//!
//! ```text
//! before:  %0 = kiln.convolution (kiln.reshape %x …), (kiln.transpose %g [1, 0, 2, 3]) … {groups = 32}
//! after:   %p = kiln.convolution_weight_gradient … {groups = 2, splits = 8}
//!          %d = kiln.select (kiln.compare eq %i, %j), (kiln.reshape %p), 0   %s = kiln.reduce sum %d dims = [0, 6]
//! ```
use super::{Form, TILE};
use crate::{
    kernels::merge_groups::{diagonal, readable},
    target::costs::Gemm,
};
use kiln_dialects::{ir::*, ops::*};

/// The elements of the images \[N, C, H, W\] of a gradient of several groups, in any shape, and these
/// sizes. As `ConvolutionGradient::by_weight` writes it, the images of a group are channels of the
/// group; what splits the channels may be one reshape with what made them.
pub(super) fn images(o: &Convolution) -> Option<(Value, [i64; 4])> {
    let merged = o.input.def().and_then(Reshape::of)?;
    let swapped = merged.input.def().and_then(Transpose::of)?;
    let split = swapped.input.def().and_then(Reshape::of)?;
    let apart =
        swapped.input.ty().dims().iter().map(|d| d.known()).collect::<Option<Vec<i64>>>()?;
    let [images, groups, channels, height, width] = apart[..] else { return None };
    let fits = groups == o.groups && swapped.permutation == [2, 1, 0, 3, 4];
    fits.then_some((split.input, [images, groups * channels, height, width]))
}

/// A value in these sizes.
pub(super) fn in_sizes(b: &Builder, input: Value, sizes: [i64; 4]) -> Result<Value> {
    let same = input.ty().dims().iter().map(|d| d.known()).eq(sizes.map(Some));
    if same { Ok(input) } else { b.add(&Reshape { input, sizes: Size::all(&sizes) }) }
}

impl Form {
    /// How many groups can be joined.
    pub(super) fn choices(&self) -> impl Iterator<Item = i64> {
        readable(self.groups, self.of_group()).filter(|n| self.keeps_rows_apart(self.groups / n))
    }

    /// As many groups as take least time, and into how many parts their images are split. All of
    /// them become one whose padding is stored only if no fewer can.
    fn joined(&self) -> Option<(i64, i64)> {
        let all = self.choices().map(|several| {
            let (splits, clocks) = self.splits(self.product_of(several));
            (self.merges_rows(self.groups / several), clocks, (several, splits))
        });
        let all = all.min_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
        all.map(|(.., joined)| joined)
    }

    /// Channels and filters of a group.
    fn of_group(&self) -> [i64; 2] {
        [self.channels, self.filters].map(|n| n / self.groups)
    }

    /// The product of groups of which `several` are joined. Positions of the window are columns
    /// where the channels of each fill tiles, else a batch.
    fn product_of(&self, several: i64) -> Gemm {
        let [columns, rows] = self.of_group().map(|n| n * several);
        let (batch, positions) = (self.groups / several, self.window[0] * self.window[1]);
        let k = self.pixels();
        match columns % TILE == 0 || batch == 1 {
            true => Gemm { batch, rows, columns: positions * columns, k },
            false => Gemm { batch: batch * positions, rows, columns, k },
        }
    }

    /// The gradient \[O, KH, KW, C / groups\].
    pub(super) fn sums_of_groups(&self, b: &Builder) -> Result<Value> {
        let (several, splits) = self.joined().ok_or("has groups that TMA cannot read")?;
        let groups = self.groups / several;
        let mut input = b.add(&self.of_parts(b, groups, splits)?)?;
        let ([channels, filters], [kh, kw]) = (self.of_group(), self.window);
        let mut dims = vec![0];
        if several > 1 {
            // \[splits, joined groups, group, filter, .., group, channel\]
            let apart = [splits, groups, several, filters, kh, kw, several, channels];
            input = b.add(&Reshape { input, sizes: Size::all(&apart) })?;
            input = diagonal(b, input, [2, 6])?;
            dims.push(6);
        }
        let input = b.add(&Reduce { kind: ReduceKind::Sum, input, dims, maybe_empty: false })?;
        let input = b.add(&Convert { input, dtype: Type::scalar(b.ctx, self.dtype) })?;
        let sizes = Size::all(&[self.filters, kh, kw, channels]);
        b.add(&Reshape { input, sizes })
    }
}
