//! Implicit GEMM: for channels-last (NHWC) convolutions, TMA's im2col mode loads a pixel's channels
//! at each window position, so that a matrix product remains.
use crate::{
    analysis::{Kernel, LinearExpr, Poly, Role, Stage, StridedView},
    strategies::gpu::wgmma_gemm::operand::{DEPTH, MatrixOperand},
};

/// The window of a convolution. Pairs are (height, width).
#[derive(Clone, Debug)]
pub struct Window {
    /// Sizes of the output.
    pub out: [Poly; 2],
    /// Sizes of the window, in elements of the filter.
    pub sizes: [i64; 2],
    /// Strides of the convolution.
    pub strides: [i64; 2],
    /// Dilation of the window.
    pub dilation: [i64; 2],
    /// Zero padding before the image.
    pub low: [i64; 2],
    /// Zero padding after the image.
    pub high: [i64; 2],
    /// Channels of a group: the K dimension of one window position.
    pub channels: i64,
    /// Filters of each group, if there are several groups; they are the batch dimension.
    pub filters: Option<i64>,
}

impl Window {
    /// K steps of the convolution.
    pub fn steps(&self) -> i64 {
        self.sizes[0] * self.sizes[1] * self.blocks()
    }
    /// K steps of one window position.
    pub fn blocks(&self) -> i64 {
        (self.channels + DEPTH as i64 - 1) / DEPTH as i64
    }
    /// Merges a window row into the channel dimension if that takes fewer K steps. The pixels of a
    /// window row are contiguous, so this is possible where no padding occurs along the width.
    fn with_merged_rows(self) -> Window {
        let row = self.sizes[1];
        let one =
            Window { sizes: [self.sizes[0], 1], channels: self.channels * row, ..self.clone() };
        if self.filters.is_some()
            || self.dilation[1] != 1
            || self.low[1] != 0
            || self.high[1] != 0
            || one.steps() >= self.steps()
        {
            return self;
        }
        one
    }
    /// The extent of the dilated window less one: the distance from its first to its last position.
    pub fn reach(&self, i: usize) -> i64 {
        self.dilation[i] * (self.sizes[i] - 1)
    }
}

/// The loop of an index with a single term, and its coefficient.
fn single(l: &LinearExpr) -> Option<(usize, i64)> {
    let mut dims = l.dims.iter();
    let (d, p) = dims.next()?;
    (dims.next().is_none() && l.constant.is_zero() && l.divisions.is_empty())
        .then_some((*d, p.known()?))
}

/// A loop and its step in the image.
pub type LoopStride = (usize, i64);

/// The terms of a pixel index: the output loop with its stride, and the window loop with its
/// dilation, if the window has more than one position.
pub fn pixel(l: &LinearExpr, reduction: &[bool]) -> Option<(LoopStride, Option<LoopStride>)> {
    let [window, own] = l.loop_terms(reduction)?;
    Some((own?, window))
}

/// The index of an image's channel: the loop over the channels of a group and, of several groups,
/// `filter floordiv filters * channels + channel`.
struct ChannelIndex {
    channel: usize,
    group: Option<GroupIndex>,
}

struct GroupIndex {
    /// The loop over the filters of all groups.
    filter: usize,
    /// Filters and channels of each group.
    filters: i64,
    channels: i64,
}

impl ChannelIndex {
    fn of(l: &LinearExpr) -> Option<ChannelIndex> {
        if let Some(channel) = l.as_dim() {
            return Some(ChannelIndex { channel, group: None });
        }
        let terms: Vec<(&usize, &Poly)> = l.dims.iter().collect();
        let ([(group, channels)], [(channel, one)]) = (l.divisions.as_slice(), &terms[..]) else {
            return None;
        };
        let group = GroupIndex {
            filter: group.dividend.as_dim().filter(|_| !group.modulo)?,
            filters: group.divisor,
            channels: channels.known()?,
        };
        (l.constant.is_zero() && one.known() == Some(1))
            .then_some(ChannelIndex { channel: **channel, group: Some(group) })
    }
}

/// The operands of a convolution, if TMA's im2col mode can read it: NHWC images and channels-last
/// weights, with a multiple of 8 channels. Of several groups, a load may reach into the channels of
/// the next group, for which the weight's are zeros.
pub fn window(k: &Kernel, stage: &Stage) -> Option<(Window, MatrixOperand, MatrixOperand)> {
    let op = stage.op;
    let (maps, reduction) = stage.indices()?;
    let [Some(image), Some(weight), Some(result)] = maps.as_slice() else { return None };
    let ([n, h, w, c], [rn, rh, rw, rk]) = (image.as_slice(), result.as_slice()) else {
        return None;
    };
    let (batch, ChannelIndex { channel, group }) = (n.as_dim()?, ChannelIndex::of(c)?);
    let [result_n, p, q, filter] = [rn.as_dim()?, rh.as_dim()?, rw.as_dim()?, rk.as_dim()?];
    let ((ph, stride_h), along_h) = pixel(h, &reduction)?;
    let ((pw, stride_w), along_w) = pixel(w, &reduction)?;
    if batch != result_n || ph != p || pw != q || !*reduction.get(channel)? {
        return None;
    }
    let (input, filters) = (k.views.get(&op.operand(0))?, k.views.get(&op.operand(1))?);
    let out = k.views.get(&op.result(0))?;
    // Strides in the weight, by loop.
    let mut far: Vec<(usize, Poly, Poly)> = vec![];
    for ((l, stride), size) in weight.iter().zip(&filters.strides).zip(&filters.sizes) {
        match (l.dims.is_empty(), single(l)) {
            (true, _) if l.constant.is_zero() => {}
            (_, Some((d, 1))) => far.push((d, stride.clone(), size.clone())),
            _ => return None,
        }
    }
    let of = |d: usize| {
        far.iter().find(|(e, ..)| *e == d).map(|(_, stride, size)| (stride.clone(), size.clone()))
    };
    let ((near, channels), (rows, kernels)) = (of(channel)?, of(filter)?);
    let channels = channels.known().filter(|c| *c > 0 && c % 8 == 0)?;
    let all = match &group {
        None => channels,
        Some(g) if g.filter == filter && g.channels == channels => {
            kernels.known().filter(|n| n % g.filters == 0)? / g.filters * channels
        }
        Some(_) => return None,
    };
    let along = |d: Option<(usize, i64)>| match d {
        Some((d, step)) => {
            of(d).and_then(|(stride, size)| Some((stride.known()?, size.known()?, step)))
        }
        None => Some((0, 1, 1)),
    };
    let ((far_h, size_h, dilation_h), (far_w, size_w, dilation_w)) =
        (along(along_h)?, along(along_w)?);
    // Window positions are contiguous in the weight.
    let follow = (size_w == 1 || far_w == channels) && (size_h == 1 || far_h == channels * size_w);
    let used = 2 + usize::from(along_h.is_some()) + usize::from(along_w.is_some());
    if near.known() != Some(1)
        || !follow
        || far.len() != used
        || !rows.multiple_of(8)
        || rows.is_zero()
    {
        return None;
    }
    let image = Image::of(k, input)?;
    let Role::Input(of_weight) = k.buffers.get(filters.buffer)?.role else { return None };
    if !filters.offset.is_zero() || image.sizes[3].known() != Some(all) {
        return None;
    }
    let found = Window {
        out: [out.sizes.get(1)?.clone(), out.sizes.get(2)?.clone()],
        sizes: [size_h, size_w],
        strides: [stride_h, stride_w],
        dilation: [dilation_h, dilation_w],
        low: image.low,
        high: image.high,
        channels,
        filters: group.map(|g| g.filters),
    };
    if !fits_descriptor(&found) {
        return None;
    }
    let wide = found.sizes[1];
    let found = found.with_merged_rows();
    let [size_h, size_w] = found.sizes;
    let c = Poly::number(found.channels);
    let image = image.operand(&found, wide - size_w);
    let places = Poly::number(size_h * size_w);
    // If channels are a multiple of the stage's K, window positions and channels merge into one
    // contiguous dimension, whose boxes load faster.
    let (sizes, strides) = match found.channels % DEPTH as i64 {
        0 => (vec![c.times(&places), kernels], vec![rows]),
        _ => (vec![c.clone(), places, kernels], vec![c, rows]),
    };
    let argument = self::argument(k, of_weight)?;
    let weight = MatrixOperand {
        buffer: filters.buffer,
        argument,
        offset: Poly::default(),
        k_major: true,
        dims: vec![],
        batch: vec![],
        sizes,
        strides,
    };
    Some((found, image, weight))
}

/// An NHWC image in memory, of known padding.
pub(super) struct Image {
    buffer: usize,
    argument: usize,
    /// Sizes without padding.
    pub(super) sizes: [Poly; 4],
    /// Zero padding of height and width, before and after.
    pub(super) low: [i64; 2],
    pub(super) high: [i64; 2],
}

impl Image {
    pub(super) fn of(k: &Kernel, view: &StridedView) -> Option<Image> {
        let whole = k.buffers.get(view.buffer).is_some_and(|b| b.sizes == view.sizes);
        let argument = match k.buffers.get(view.buffer)?.role {
            Role::Input(i) | Role::Padded(i) => argument(k, i)?,
            _ => return None,
        };
        let padded = k.pads.get(&view.buffer);
        let sizes: Vec<Poly> = padded
            .map_or_else(|| view.sizes.clone(), |all| all.iter().map(|(_, n)| n.clone()).collect());
        let low = |d: usize| padded.map_or(0, |all| all[d].0);
        let high = |d: usize| Some(view.sizes.get(d)?.known()? - sizes.get(d)?.known()? - low(d));
        let (low, high) = ([0, 1, 2, 3].map(low), [high(1)?, high(2)?]);
        let fits = whole && view.offset.is_zero() && low[0] == 0 && low[3] == 0;
        let image = Image {
            buffer: view.buffer,
            argument,
            sizes: sizes.try_into().ok()?,
            low: [low[1], low[2]],
            high,
        };
        fits.then_some(image)
    }

    /// As TMA addresses it. `merged`: positions of a window row that are channels of its first.
    pub(super) fn operand(&self, w: &Window, merged: i64) -> MatrixOperand {
        let [images, height, width, pixel] = self.sizes.clone();
        let row = width.times(&pixel);
        let starts = width.plus(&Poly::number(-merged));
        let channels = if w.filters.is_some() { pixel.clone() } else { Poly::number(w.channels) };
        MatrixOperand {
            buffer: self.buffer,
            argument: self.argument,
            offset: Poly::default(),
            k_major: true,
            dims: vec![],
            batch: vec![],
            sizes: vec![channels, starts, height.clone(), images],
            strides: vec![pixel, row.clone(), row.times(&height)],
        }
    }
}

/// Whether strides, corners and offsets fit a descriptor in im2col mode: corners and offsets have 8
/// bits.
pub(super) fn fits_descriptor(w: &Window) -> bool {
    (0..2).all(|i| {
        let behind = w.high[i] - w.reach(i);
        (1..=8).contains(&w.strides[i])
            && w.dilation[i] > 0
            && w.reach(i) < 256
            && (0..=128).contains(&w.low[i])
            && (-128..128).contains(&behind)
    })
}

/// The index among tensor arguments of argument `number`; scalars do not count.
pub fn argument(k: &Kernel, number: usize) -> Option<usize> {
    Some(k.block.args().iter().take(number).filter(|v| v.ty().is_tensor()).count())
}

/// The number of tensor arguments; results follow them.
pub fn tensors(k: &Kernel) -> Option<usize> {
    argument(k, usize::MAX)
}
