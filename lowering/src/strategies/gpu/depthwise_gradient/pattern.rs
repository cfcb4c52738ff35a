//! Which kernels are gradients of depthwise convolutions by their weights.
use crate::{
    analysis::{Body, Kernel, LinearExpr, NestPlan, Poly, StridedView},
    strategies::gpu::depthwise::{SpatialDim, is_image, unpadded},
};

/// A gradient of static sizes: `[splits, KH, KW, C]`, of an image `[N, H, W, C]` and the gradient
/// of the result `[N, P, Q, C]`.
pub struct GradientWindow {
    /// The stage that reduces.
    pub stage: usize,
    /// The image's buffer.
    pub image: usize,
    /// The loop over channels, and their number.
    pub channel: usize,
    pub channels: i64,
    /// The loop over parts of the images, if there are several, and their number.
    pub split: Option<usize>,
    pub splits: i64,
    /// The loop over a part's images; `None` for an extent of 1.
    pub within: Option<usize>,
    /// The images of a part.
    pub images: i64,
    /// The loops over the result's pixels, which reduce; `None` for an extent of 1.
    pub pixels: [Option<usize>; 2],
    /// Height and width: the window's loops are parallel.
    pub spatial: [SpatialDim; 2],
}

impl GradientWindow {
    /// Matches a kernel whose main nest is such a gradient, with or without stages on or beside its
    /// result.
    pub fn of(k: &Kernel, plan: &NestPlan) -> Option<GradientWindow> {
        let nest = plan.main()?;
        let [stage] = nest.stages.as_slice() else { return None };
        let s = k.stages.get(*stage)?;
        let ([out], Body::Block(_)) = (s.outputs.as_slice(), s.body) else { return None };
        s.factors()?;
        if !out.reduces || !s.captured.is_empty() || !s.indexed.is_empty() || nest.split.is_some() {
            return None;
        }
        let (maps, sums) = s.indices()?;
        let [Some(gradient), Some(image), .., Some(result)] = maps.as_slice() else { return None };
        let ([n, p, q, c], [m, h, w, d], [part, i, j, e]) =
            (gradient.as_slice(), image.as_slice(), result.as_slice())
        else {
            return None;
        };
        let channel = c.as_dim().filter(|c| sums.get(*c) == Some(&false))?;
        let [within, of_split] = n.loop_terms(&sums)?;
        let alike = m == n && [d, e].iter().all(|l| l.as_dim() == Some(channel));
        let split = part.as_dim()?;
        if !alike || of_split.is_some_and(|(d, _)| d != split) {
            return None;
        }
        let known = |all: &[Poly]| all.iter().map(Poly::known).collect::<Option<Vec<_>>>();
        let view = |at: usize| -> Option<&StridedView> { k.views.get(&s.op.operand(at)) };
        let [all, rows, columns, channels] = known(&view(0)?.sizes)?[..] else { return None };
        let place = view(1)?;
        if !is_image(k, place) {
            return None;
        }
        let [splits, kh, kw, _] = known(&k.views.get(&s.op.result(0))?.sizes)?[..] else {
            return None;
        };
        let images = all / splits.max(1);
        // Images of a part follow each other.
        let follow = within.is_none_or(|(_, step)| step == 1)
            && (within.is_some() || images == 1)
            && (splits == 1 || of_split.is_some_and(|(_, step)| step == images));
        if !follow || splits < 1 || all % splits != 0 {
            return None;
        }
        // A loop of the op as a loop of the nest; none, if its extent is 1.
        let loops = |d: usize| -> Option<Option<usize>> {
            let at = s.dims.get(d)?;
            match at.as_dim() {
                Some(d) => Some(Some(d)),
                None => (*at == LinearExpr::default()).then_some(None),
            }
        };
        let along = |at: usize, image: &LinearExpr, out: &LinearExpr, window: &LinearExpr, size| {
            let ([by, of_window], [of_out, None]) =
                (image.loop_terms(&sums)?, out.loop_terms(&sums)?)
            else {
                return None;
            };
            let stride = match (by, of_out) {
                (Some((d, stride)), Some((e, 1))) if d == e => stride,
                (None, None) => 1,
                _ => return None,
            };
            let own = window.as_dim()?;
            let dilation = match of_window {
                Some((d, dilation)) if d == own => dilation,
                None if size == 1 => 1,
                _ => return None,
            };
            let (low, image, padded) = unpadded(k, place, at)?;
            let pixels = of_out.map_or(Some(None), |(d, _)| loops(d))?;
            let of_result = [rows, columns][at];
            let some = [image, of_result, size, stride, dilation].iter().all(|n| *n > 0);
            let dim = SpatialDim {
                dim: loops(own)?,
                size,
                stride,
                dilation,
                low,
                image,
                out: of_result,
                padded,
            };
            (some && low >= 0).then_some((dim, pixels))
        };
        let ((high, down), (wide, across)) = (along(0, h, p, i, kh)?, along(1, w, q, j, kw)?);
        let found = GradientWindow {
            stage: *stage,
            image: place.buffer,
            channel: loops(channel)??,
            channels,
            split: loops(split)?,
            splits,
            within: within.map_or(Some(None), |(d, _)| loops(d))?,
            images,
            pixels: [down, across],
            spatial: [high, wide],
        };
        found.is_whole(nest.extents.as_slice()).then_some(found)
    }

    /// Whether the loops of the nest are those of the gradient: none is collapsed with another.
    fn is_whole(&self, extents: &[Poly]) -> bool {
        let [high, wide] = &self.spatial;
        let all = [
            (Some(self.channel), self.channels),
            (self.split, self.splits),
            (self.within, self.images),
            (self.pixels[0], high.out),
            (self.pixels[1], wide.out),
            (high.dim, high.size),
            (wide.dim, wide.size),
        ];
        let used = all.iter().filter(|(d, _)| d.is_some()).count();
        used == extents.len()
            && all.iter().all(|(d, n)| {
                d.map_or(Some(1), |d| extents.get(d).and_then(Poly::known)) == Some(*n)
            })
    }
}
