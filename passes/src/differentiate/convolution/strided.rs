//! The gradient of a strided convolution by its input, as a convolution of stride 1.
//!
//! A pixel of the input is read by windows at the taps of its phase, its position modulo the stride.
//! One convolution computes all phases of a pixel, each as channels of its own, and what follows
//! puts them beside each other: a sub-pixel convolution (Shi et al., 2016, "Real-Time Single Image
//! and Video Super-Resolution"; also "Is the deconvolution layer the same as a convolutional
//! layer?"). It stores no zeros between pixels, which a transposed convolution reads.
use super::ConvolutionGradient;
use crate::decompose::tools::*;
use kiln_dialects::{ir::*, ops::*};

/// The phases along one dimension.
struct Phases {
    stride: i64,
    /// How many have a tap: all, or the first one.
    count: i64,
    /// Taps of the window that serves all of them.
    taps: i64,
    /// Zeros before and after the weight's taps.
    zeros: [i64; 2],
    /// Padding of the gradient.
    pads: [i64; 2],
    /// Pixels of a phase.
    pixels: i64,
}

impl Phases {
    /// Of a window of `size` taps over `pixels`, of which the gradient has `outs`. With `h = q s + r`
    /// a pixel of phase `r`, window `p` reads it at tap `k = h + pad - p s`: `p` is from
    /// `low` to `high` relative to `q`. `None`: a phase has no tap, or padding would be negative.
    fn of(stride: i64, size: i64, pad: i64, pixels: i64, outs: i64) -> Option<Phases> {
        let count = match stride > 1 && size == 1 && pad == 0 {
            true => 1,
            false => stride,
        };
        if size < count || pixels <= 0 || outs <= 0 {
            return None;
        }
        let phases = || (0..count).map(|r| ((r + pad) % stride, (r + pad) / stride));
        let high = phases().map(|(_, end)| end).max()?;
        let low = phases().map(|(tap, end)| end - (size - 1 - tap) / stride).min()?;
        let (taps, pixels) = (high - low + 1, (pixels + stride - 1) / stride);
        let before = stride * high - pad;
        let pads = [-low, pixels - outs + taps - 1 + low];
        let zeros = [before, (taps * count - size - before).max(0)];
        (pads.iter().all(|n| *n >= 0) && before >= 0).then_some(Phases {
            stride,
            count,
            taps,
            zeros,
            pads,
            pixels,
        })
    }
}

/// A permutation that takes dimensions `from` of each pair, and then the others.
fn pairs(n: i64, first: i64, from: [i64; 2]) -> Vec<i64> {
    (0..n).flat_map(|i| from.map(|d| first + d + i)).collect()
}

impl ConvolutionGradient {
    /// The gradient by the input, of these sizes. `None`: it is depthwise, or has dilation, strides of
    /// 1, or symbolic sizes.
    pub(super) fn by_input_in_phases(
        &self,
        b: &Builder,
        g: Value,
        weight: Value,
        sizes: &[Size],
    ) -> Result<Option<Value>> {
        let known = |all: &[Size]| all.iter().map(|n| n.known()).collect::<Option<Vec<i64>>>();
        let (Some(window), Some(outs), Some(pixels)) = (
            known(&b.sizes_of(weight)?),
            known(&b.sizes_of(g)?[2..]),
            known(sizes.get(2..).unwrap_or_default()),
        ) else {
            return Ok(None);
        };
        // Depthwise ones have kernels for one filter a channel.
        let depthwise = self.groups > 1 && window[..2] == [self.groups, 1];
        let plain = !depthwise && self.dilation.iter().all(|d| *d == 1);
        let n = self.strides.len();
        let phase = |i: usize| {
            Phases::of(self.strides[i], window[i + 2], self.pad_low[i], pixels[i], outs[i])
        };
        let Some(phases) = (0..n).map(phase).collect::<Option<Vec<_>>>() else { return Ok(None) };
        if !plain || self.strides.iter().all(|s| *s == 1) {
            return Ok(None);
        }
        let each = [window[0] / self.groups, window[1]];
        let node = Convolution {
            input: g,
            weight: weight_of(b, weight, &phases, (self.groups, each))?,
            strides: vec![1; n],
            pad_low: phases.iter().map(|p| p.pads[0]).collect(),
            pad_high: phases.iter().map(|p| p.pads[1]).collect(),
            dilation: vec![1; n],
            groups: self.groups,
            transposed: false,
            output_padding: None,
        };
        beside(b, b.add(&node)?, &phases, (self.groups, window[1]), sizes).map(Some)
    }
}

/// The weight `[groups phases C, O, …]`, of C channels and O filters of a group: taps `k = r + s u` of
/// the padded one, with `u` reversed; the only tap where one phase has one.
fn weight_of(
    b: &Builder,
    weight: Value,
    phases: &[Phases],
    (groups, [filters, channels]): (i64, [i64; 2]),
) -> Result<Value> {
    let (m, n) = (Math { b }, phases.len() as i64);
    let zeros = |side: usize| {
        let all = phases.iter().map(|p| p.zeros[side]);
        Size::all(&[0, 0].into_iter().chain(all).collect::<Vec<_>>())
    };
    let value = b.splat(dtype(weight)?, &[], 0.0)?;
    let mut w = weight;
    if phases.iter().any(|p| p.zeros != [0, 0]) {
        w = b.add(&Pad { input: w, value, low: zeros(0), high: zeros(1) })?;
    }
    let split = phases.iter().flat_map(|p| [p.taps, p.count]);
    let apart = several(groups);
    let split: Vec<i64> = apart.iter().copied().chain([filters, channels]).chain(split).collect();
    w = m.reshape(w, &Size::all(&split))?;
    let front = apart.len() as i64;
    let taps: Vec<i64> = (0..n).map(|i| front + 2 + 2 * i).collect();
    w = b.add(&Reverse { input: w, dims: taps.clone() })?;
    let steps: Vec<i64> = taps.iter().map(|d| d + 1).collect();
    let order = [(0..front).collect(), steps, vec![front + 1, front], taps].concat();
    w = m.transpose(w, &order)?;
    let all = groups * phases.iter().map(|p| p.count).product::<i64>() * channels;
    let sizes: Vec<i64> = [all, filters].into_iter().chain(phases.iter().map(|p| p.taps)).collect();
    m.reshape(w, &Size::all(&sizes))
}

/// The dimension of groups, if there are several.
fn several(groups: i64) -> Vec<i64> {
    if groups > 1 { vec![groups] } else { vec![] }
}

/// Puts the pixels of all phases beside each other: `[N, groups phases C, …]`, of C channels of a
/// group, to the input's sizes.
fn beside(
    b: &Builder,
    v: Value,
    phases: &[Phases],
    (groups, channels): (i64, i64),
    sizes: &[Size],
) -> Result<Value> {
    let (m, n) = (Math { b }, phases.len() as i64);
    let batch = b.size_of(v, 0)?;
    let numbers = |all: Vec<i64>| [vec![batch], Size::all(&all)].concat();
    let of = |f: fn(&Phases) -> i64| phases.iter().map(f).collect::<Vec<_>>();
    let apart = several(groups);
    let front = apart.len() as i64;
    let split = [apart, of(|p| p.count), vec![channels], of(|p| p.pixels)].concat();
    let v = m.reshape(v, &numbers(split))?;
    let order =
        [(0..=front).collect(), vec![front + n + 1], pairs(n, front + 1, [n + 1, 0])].concat();
    let mut v = m.transpose(v, &order)?;
    if phases.iter().any(|p| p.count != p.stride) {
        let value = b.splat(dtype(v)?, &[], 0.0)?;
        let high = phases.iter().flat_map(|p| [0, p.stride - p.count]);
        let high: Vec<i64> = vec![0; 2 + front as usize].into_iter().chain(high).collect();
        let low = Size::all(&vec![0; high.len()]);
        v = b.add(&Pad { input: v, value, low, high: Size::all(&high) })?;
    }
    let whole = [vec![groups * channels], of(|p| p.pixels * p.stride)].concat();
    let v = m.reshape(v, &numbers(whole))?;
    super::first(b, v, sizes.to_vec())
}
