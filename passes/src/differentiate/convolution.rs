//! Gradients of convolutions, as convolutions.
mod strided;

use super::rule::Rule;
use crate::decompose::tools::*;
use kiln_dialects::{ir::*, ops::*};

/// The parameters of a convolution, one of each for each spatial dimension.
pub struct ConvolutionGradient {
    /// Steps of the window.
    pub strides: Vec<i64>,
    /// Padding before.
    pub pad_low: Vec<i64>,
    /// Padding after.
    pub pad_high: Vec<i64>,
    /// Steps in the window.
    pub dilation: Vec<i64>,
    /// Groups of channels.
    pub groups: i64,
}

impl ConvolutionGradient {
    /// Elements that the window `weight` reaches over, along an axis.
    fn reach(&self, weight: Value, i: usize) -> Result<i64> {
        let k = weight.ty().dims().get(i + 2).and_then(|d| d.known());
        Ok(self.dilation[i] * (k.ok_or("has a window of symbolic size")? - 1) + 1)
    }
    /// The gradient by the input `[N, C, …]`, of these sizes, from that of the result `[N, O, …]`.
    pub fn by_input(&self, b: &Builder, g: Value, weight: Value, sizes: &[Size]) -> Result<Value> {
        let (m, n) = (Math { b }, self.strides.len());
        if let Some(v) = self.by_input_of_stride_1(b, g, weight, sizes)? {
            return Ok(v);
        }
        if let Some(v) = self.by_input_in_phases(b, g, weight, sizes)? {
            return Ok(v);
        }
        let node = Convolution {
            input: g,
            weight,
            strides: self.strides.clone(),
            pad_low: self.pad_low.clone(),
            pad_high: vec![0; n],
            dilation: self.dilation.clone(),
            groups: self.groups,
            transposed: true,
            output_padding: Some(vec![0; n]),
        };
        let v = b.add(&node)?;
        // What follows the last window has no gradient; what it reads of the padding goes.
        let mut high = vec![Size::Static(0); 2];
        for i in 0..n {
            let have = m.size(SymKind::Mul, b.size_of(v, i + 2)?, Size::Static(-1))?;
            let size = *sizes.get(i + 2).ok_or("has no size")?;
            high.push(m.size(SymKind::Add, size, have)?);
        }
        if high.iter().all(|s| s.known() == Some(0)) {
            return Ok(v);
        }
        let value = b.splat(dtype(v)?, &[], 0.0)?;
        b.add(&Pad { input: v, value, low: vec![Size::Static(0); n + 2], high })
    }
    /// The same where the window moves by one pixel: a convolution by the reversed weight, padded by
    /// what the window reaches beyond the padding.
    fn by_input_of_stride_1(
        &self,
        b: &Builder,
        g: Value,
        weight: Value,
        sizes: &[Size],
    ) -> Result<Option<Value>> {
        let n = self.strides.len();
        let known = g.ty().dims().iter().skip(2).all(|d| d.known().is_some())
            && sizes.iter().skip(2).all(|d| d.known().is_some());
        // `transposed_weight` swaps filters and channels of groups of a known number.
        let grouped = weight.ty().dims().iter().take(2).all(|d| d.known().is_some());
        if !known || self.groups != 1 && !grouped || self.strides.iter().any(|s| *s != 1) {
            return Ok(None);
        }
        let reaches = (0..n).map(|i| Ok(self.reach(weight, i)? - 1)).collect::<Result<Vec<_>>>()?;
        let beyond = |pads: &[i64]| reaches.iter().zip(pads).map(|(r, p)| r - p).collect();
        let (pad_low, pad_high): (Vec<i64>, Vec<i64>) =
            (beyond(&self.pad_low), beyond(&self.pad_high));
        if pad_low.iter().chain(&pad_high).any(|p| *p < 0) {
            return Ok(None);
        }
        let node = Convolution {
            input: g,
            weight: transposed_weight(b, weight, self.groups)?,
            strides: self.strides.clone(),
            pad_low,
            pad_high,
            dilation: self.dilation.clone(),
            groups: self.groups,
            transposed: false,
            output_padding: None,
        };
        b.add(&node).map(Some)
    }
    /// The gradient by the weight, in its shape: the input, its batch as channels, convolved with
    /// the gradient, its batch as channels too.
    pub fn by_weight(&self, b: &Builder, x: Value, g: Value, weight: Value) -> Result<Value> {
        let (m, n) = (Math { b }, self.strides.len());
        let (xs, gs) = (b.sizes_of(x)?, b.sizes_of(g)?);
        let ([batch, channels, pixels @ ..], [_, _, outs @ ..]) = (xs.as_slice(), gs.as_slice())
        else {
            return Err("has tensors of rank below 2".into());
        };
        let swapped = [vec![1, 0], (2..n as i64 + 2).collect()].concat();
        let input = match self.groups {
            1 => m.transpose(x, &swapped)?,
            _ => {
                let groups = Size::Static(self.groups);
                let each = m.size(SymKind::Floordiv, *channels, groups)?;
                let rest = (3..n as i64 + 3).collect::<Vec<_>>();
                let split = m.reshape(x, &[&[*batch, groups, each], pixels].concat())?;
                let input = m.transpose(split, &[vec![2, 1, 0], rest].concat())?;
                let merged = m.size(SymKind::Mul, groups, *batch)?;
                m.reshape(input, &[&[each, merged], pixels].concat())?
            }
        };
        let weights = m.transpose(g, &swapped)?;
        let mut pad_high = vec![];
        for i in 0..n {
            let known = |all: &[Size]| all.get(i).and_then(|s| s.known());
            pad_high.push(match (known(pixels), known(outs)) {
                (Some(pixels), Some(out)) => {
                    let end = self.reach(weight, i)? + self.strides[i] * (out - 1);
                    (end - pixels - self.pad_low[i]).max(0)
                }
                // Enough for any size; what is more is cut off.
                _ => self.pad_high[i].max(0),
            });
        }
        let node = Convolution {
            input,
            weight: weights,
            strides: self.dilation.clone(),
            pad_low: self.pad_low.clone(),
            pad_high,
            dilation: self.strides.clone(),
            groups: self.groups,
            transposed: false,
            output_padding: None,
        };
        let mut sizes = b.sizes_of(weight)?;
        sizes.swap(0, 1);
        m.transpose(first(b, b.add(&node)?, sizes)?, &swapped)
    }
    /// As [`ConvolutionGradient::by_input`], of a transposed convolution: a convolution.
    pub fn by_transposed_input(
        &self,
        b: &Builder,
        g: Value,
        weight: Value,
        sizes: &[Size],
        output_padding: &[i64],
    ) -> Result<Value> {
        let node = Convolution {
            input: g,
            weight,
            strides: self.strides.clone(),
            pad_low: self.pad_low.clone(),
            pad_high: self.pad_high.clone(),
            dilation: self.dilation.clone(),
            groups: self.groups,
            transposed: false,
            output_padding: None,
        };
        let v = b.add(&node)?;
        // An output padding of a whole stride leaves room for windows after the last.
        match output_padding.iter().zip(&self.strides).any(|(extra, stride)| extra >= stride) {
            true => first(b, v, sizes.to_vec()),
            false => Ok(v),
        }
    }
}

/// The weight with which a plain convolution computes a transposed one of stride 1: reversed along its
/// spatial dimensions, with its first two swapped in each group.
///
/// # Errors
/// Its channels have no known number, but are in groups.
pub fn transposed_weight(b: &Builder, weight: Value, groups: i64) -> Result<Value> {
    let sizes = b.sizes_of(weight)?;
    let rest = sizes.len() as i64;
    let one = sizes.iter().skip(2).all(|n| n.known() == Some(1));
    let weight = match one {
        true => weight,
        false => b.add(&Reverse { input: weight, dims: (2..rest).collect() })?,
    };
    if groups == 1 {
        return b.add(&Transpose {
            input: weight,
            permutation: [1, 0].into_iter().chain(2..rest).collect(),
        });
    }
    let channels = sizes[0].known().ok_or("has a weight of unknown size")? / groups;
    let filters = sizes[1].known().ok_or("has a weight of unknown size")?;
    let shape = |front: &[i64]| [&Size::all(front)[..], &sizes[2..]].concat();
    let split = b.add(&Reshape { input: weight, sizes: shape(&[groups, channels, filters]) })?;
    let transposed = b.add(&Transpose {
        input: split,
        permutation: [0, 2, 1].into_iter().chain(3..=rest).collect(),
    })?;
    b.add(&Reshape { input: transposed, sizes: shape(&[groups * filters, channels]) })
}

/// The first elements along each dimension.
fn first(b: &Builder, input: Value, sizes: Vec<Size>) -> Result<Value> {
    let n = sizes.len();
    b.add(&Slice { input, offsets: Size::all(&vec![0; n]), sizes, strides: vec![1; n] })
}

pub(super) fn convolution(r: &mut Rule<'_>) -> Result<()> {
    let (o, g) = (r.node::<Convolution>()?, r.cotangent()?);
    let extra = o.output_padding.unwrap_or_default();
    let c = ConvolutionGradient {
        strides: o.strides,
        pad_low: o.pad_low,
        pad_high: o.pad_high,
        dilation: o.dilation,
        groups: o.groups,
    };
    if r.wants(o.input) {
        let sizes = r.m.sizes_of(o.input)?;
        let v = match o.transposed {
            true => c.by_transposed_input(r.m.b, g, o.weight, &sizes, &extra)?,
            false => c.by_input(r.m.b, g, o.weight, &sizes)?,
        };
        r.give(o.input, v)?;
    }
    if r.wants(o.weight) {
        // Of a transposed convolution, input and result swap their roles.
        let (x, g) = if o.transposed { (g, o.input) } else { (o.input, g) };
        let v = c.by_weight(r.m.b, x, g, o.weight)?;
        r.give(o.weight, v)?;
    }
    Ok(())
}
