//! Matches convolutions of images that cuDNN has: with or without groups, a bias per filter, a
//! residual, and a relu or a tanh gelu.
use crate::{
    analysis::{Kernel, LinearExpr, NestPlan, Poly, Role, Stage, StridedView, row_major},
    strategies::gpu::{
        common::roles::contractions,
        library::{activation, activation_entry, element, epilogue::ReductionStage, numbers, role},
        wgmma_gemm::{
            self,
            im2col::{LoopStride, pixel},
        },
    },
};
use kiln_dialects::{ir::*, value::DType};
use kiln_runtime::convolution::{Convolution, Volume};

/// The layout of a tensor: offset of the first element, sizes as NCHW, and strides where they
/// matter.
type TensorLayout = (i64, [i64; 4], [Option<i64>; 4]);

/// The loops of a convolution's op.
struct ConvolutionLoops {
    images: usize,
    /// Over the output's height and width, and over the window's, if it is more than one pixel.
    along: [(LoopStride, Option<LoopStride>); 2],
    /// The reduction over a group's channels; `None` if there is one.
    channel: Option<usize>,
    /// Over groups, if there are several.
    group: Option<usize>,
    /// Over the filters of a group; `None` if there is one.
    filter: Option<usize>,
    /// The image's dimensions of channels, height and width.
    image_dims: [usize; 3],
}

/// A convolution, matched by its operands' access maps.
struct ConvolutionMatch<'a> {
    stage: &'a Stage,
    /// Trip counts of the op's loops, some of which are merged into one loop of the nest.
    steps: Vec<Option<i64>>,
    loops: ConvolutionLoops,
    image: &'a StridedView,
    /// The weight's buffer, and its access over the op's loops.
    weight: (usize, LinearExpr),
}

/// The `kiln.library` entries of a kernel that is a convolution.
pub fn describe(k: &Kernel, plan: &NestPlan, tf32: bool) -> Option<Vec<(&'static str, Attr)>> {
    let [nest] = plan.nests.as_slice() else { return None };
    let (stages, _, element) = contractions(k, nest, 2)?;
    let [number] = stages.as_slice() else { return None };
    let stage = k.stages.get(*number)?;
    let f = [(0, 1), (1, 0)]
        .into_iter()
        .find_map(|(image, weight)| match_convolution(k, stage, image, weight))?;
    let (l, c) = (&f.loops, k.func.ctx());
    let outputs: Vec<_> = k
        .stages
        .iter()
        .flat_map(|s| &s.outputs)
        .filter(|o| role(k, o.access.buffer) == Some(None))
        .collect();
    let [out] = outputs.as_slice() else { return None };
    let [n, p, q] = [l.images, l.along[0].0.0, l.along[1].0.0];
    // Merged loops of the result do not determine its strides.
    let result = [Some(n), Some(p), Some(q), l.group, l.filter];
    result.iter().flatten().map(|d| f.nest_loop(*d)).collect::<Option<Vec<_>>>()?;
    let (groups, filters) = (f.size(l.group)?, f.size(l.filter)?);
    let own = |all: &[Option<usize>]| {
        all.iter().flatten().filter_map(|d| f.nest_loop(*d)?).collect::<Vec<usize>>()
    };
    let elements = own(&result);
    let across: Vec<(usize, i64)> = own(&[l.group])
        .into_iter()
        .map(|d| (d, filters))
        .chain(own(&[l.filter]).into_iter().map(|d| (d, 1)))
        .collect();
    let made = ReductionStage { k, nest, stage: *number, bias_loops: &across, elements: &elements }
        .terms(out.access.buffer)?;

    let sizes = [f.size(Some(n))?, groups * filters, f.size(Some(p))?, f.size(Some(q))?];
    // An access over the nest's loops, as a tensor layout like the result's.
    let like = |at: &LinearExpr| {
        let of = |d: usize| f.nest_loop(d).flatten().map(|d| at.coefficient(d));
        let known = |d: Option<usize>| d.and_then(of).map_or(Some(None), |p| p.known().map(Some));
        let strides = [
            known(Some(n))?,
            f.merged_stride(known(l.group)?, known(l.filter)?)?,
            known(Some(p))?,
            known(Some(q))?,
        ];
        let plain = at.divisions.is_empty() && at.dims.keys().all(|d| elements.contains(d));
        Some((at.constant.known().filter(|_| plain)?, sizes, strides))
    };
    let volume = |argument: usize, (offset, sizes, strides): TensorLayout, element: Type| {
        let place =
            [&[argument as i64, offset][..], &sizes, &with_unit_strides(sizes, strides)?].concat();
        let fits = offset >= 0
            && sizes.iter().all(|n| *n > 0)
            && element.dtype().is_ok_and(|d| [DType::BF16, DType::F16, DType::F32].contains(&d));
        fits.then(|| {
            Attr::dictionary(c, &[("element", Attr::ty(element)), ("place", Attr::i64s(c, &place))])
        })
    };
    let tensors = wgmma_gemm::im2col::tensors(k)?;
    let (result, factor) = (k.buffers.get(out.access.buffer)?.element, Type::scalar(c, element));
    let argument = |buffer: usize| match k.buffers.get(buffer)?.role {
        Role::Input(i) | Role::Padded(i) => wgmma_gemm::im2col::argument(k, i),
        _ => None,
    };
    let added = |buffer: usize| Some((argument(buffer)?, k.buffers.get(buffer)?.element));

    let (image, window) = f.image(k, [sizes[2], sizes[3]])?;
    let mut entries = vec![
        ("image", volume(argument(f.image.buffer)?, image, factor)?),
        ("result", volume(tensors, like(&out.access.at)?, result)?),
        ("weight", volume(argument(f.weight.0)?, f.weight()?, factor)?),
        ("window", Attr::i64s(c, &window)),
    ];
    if let Some((buffer, offset)) = made.bias {
        let ((argument, element), sizes) = (added(buffer)?, [1, sizes[1], 1, 1]);
        entries.push((
            "bias",
            volume(argument, (offset, sizes, [None, Some(1), None, None]), element)?,
        ));
    }
    if let Some((buffer, at)) = &made.residual {
        let (argument, element) = added(*buffer)?;
        entries.push(("residual", volume(argument, like(at)?, element)?));
    }
    entries.extend(activation_entry(c, made.activation));
    if tf32 && element == DType::F32 {
        entries.push(("tf32", Attr::i64(c, 1)));
    }
    Some(entries)
}

/// Fills in strides that do not matter, of dimensions of size 1, as if the tensor were contiguous,
/// channels-last if its other strides are. `None` if elements alias.
fn with_unit_strides(sizes: [i64; 4], strides: [Option<i64>; 4]) -> Option<[i64; 4]> {
    let last = strides[1].is_none_or(|s| s == 1);
    let (mut all, mut next) = ([0; 4], 1);
    for d in if last { [1, 3, 2, 0] } else { [3, 2, 1, 0] } {
        all[d] = strides[d].unwrap_or(next);
        next = next.max(all[d] * sizes[d]);
        if all[d] < 1 {
            return None;
        }
    }
    Some(all)
}

/// Matches the convolution whose image is operand `image` of a stage's op.
fn match_convolution<'a>(
    k: &'a Kernel,
    stage: &'a Stage,
    image: usize,
    weight: usize,
) -> Option<ConvolutionMatch<'a>> {
    let op = stage.op;
    let (maps, reduction) = stage.indices().filter(|(maps, _)| maps.len() == 3)?;
    let (read, kernels) = (maps[image].as_ref()?, maps[weight].as_ref()?);
    let in_weight = |d: usize| kernels.iter().any(|l| l.uses(d));
    // All loops of the channel dimension index the weight; the other dimensions have a loop that
    // indexes only the result.
    let of_weight = |l: &LinearExpr| l.dims.keys().all(|d| in_weight(*d)) && !l.dims.is_empty();
    let [first, others @ ..] = read.as_slice() else { return None };
    let channels = 1 + others.iter().position(of_weight)?;
    let [height, width] =
        if channels == 1 { [2, 3] } else { [1, if channels == 2 { 3 } else { 2 }] };
    let images = first.as_dim().filter(|d| {
        read.len() == 4 && !reduction.get(*d).copied().unwrap_or(true) && !in_weight(*d)
    })?;
    let along = [pixel(&read[height], &reduction)?, pixel(&read[width], &reduction)?];
    let one = |all: Vec<usize>| match all.as_slice() {
        [] => Some(None),
        [d] => Some(Some(*d)),
        _ => None,
    };
    let of_channels = |reduces: bool| {
        one(read[channels]
            .dims
            .keys()
            .copied()
            .filter(|d| reduction.get(*d) == Some(&reduces))
            .collect())
    };
    let (channel, group) = (of_channels(true)?, of_channels(false)?);
    let taken: Vec<usize> = [Some(images), channel, group]
        .into_iter()
        .flatten()
        .chain(along.iter().flat_map(|(p, w)| [Some(p.0), w.map(|w| w.0)]).flatten())
        .collect();
    let filter = one((0..reduction.len()).filter(|d| !taken.contains(d)).collect())?;
    // Each loop has one role, and the weight depends on none of the output's pixel loops.
    let distinct = taken.iter().enumerate().all(|(i, d)| !taken[..i].contains(d));
    let right = filter.is_none_or(|d| !reduction[d] && in_weight(d))
        && !along.iter().any(|(p, _)| in_weight(p.0));
    let place = k.views.get(&op.operand(weight))?;
    let (written, to) = (maps[2].as_ref()?, k.views.get(&op.result(0))?);
    let sized = |d: usize| {
        let own = |l: &LinearExpr| l.as_dim() == Some(d);
        let of = |lins: &[LinearExpr], place: &StridedView| {
            lins.iter().position(own).and_then(|i| place.sizes.get(i)?.known())
        };
        of(written, to).or_else(|| of(kernels, place))
    };
    let f = ConvolutionMatch {
        stage,
        steps: (0..reduction.len()).map(sized).collect(),
        loops: ConvolutionLoops {
            images,
            along,
            channel,
            group,
            filter,
            image_dims: [channels, height, width],
        },
        image: k.views.get(&op.operand(image))?,
        weight: (place.buffer, place.at(kernels)),
    };
    let (l, at) = (&f.loops, &read[channels]);
    // The channels of consecutive groups are contiguous.
    let each = f.size(l.channel)?;
    let behind = l.channel.is_none_or(|d| at.coefficient(d).known() == Some(1))
        && l.group.is_none_or(|d| at.coefficient(d).known() == Some(each));
    (distinct && right && behind && at.constant.is_zero() && at.divisions.is_empty()).then_some(f)
}

impl ConvolutionMatch<'_> {
    /// The nest's loop of a loop of the op; `Some(None)` if the op's loop has one step.
    fn nest_loop(&self, d: usize) -> Option<Option<usize>> {
        let at = self.stage.dims.get(d)?;
        if at.as_dim().is_some() {
            Some(at.as_dim())
        } else {
            (*at == LinearExpr::default()).then_some(None)
        }
    }
    /// Trip count of a loop.
    fn size(&self, d: Option<usize>) -> Option<i64> {
        d.map_or(Some(1), |d| *self.steps.get(d)?)
    }
    /// The merged stride of groups and the filters of each, of which either may be absent.
    fn merged_stride(&self, group: Option<i64>, filter: Option<i64>) -> Option<Option<i64>> {
        match (group, filter) {
            (Some(g), Some(f)) => (g == f * self.size(self.loops.filter)?).then_some(Some(f)),
            (one, other) => Some(one.or(other)),
        }
    }
    /// The layout of the weight.
    fn weight(&self) -> Option<TensorLayout> {
        let (l, at) = (&self.loops, &self.weight.1);
        let of = |d: Option<usize>| match d.filter(|d| self.size(Some(*d)) != Some(1)) {
            Some(d) => at.coefficient(d).known().map(Some),
            None => Some(None),
        };
        let [r, s] = [0, 1].map(|i| l.along[i].1.map(|w| w.0));
        let sizes = [
            self.size(l.group)? * self.size(l.filter)?,
            self.size(l.channel)?,
            self.size(r)?,
            self.size(s)?,
        ];
        let strides =
            [self.merged_stride(of(l.group)?, of(l.filter)?)?, of(l.channel)?, of(r)?, of(s)?];
        Some((at.constant.known().filter(|_| at.divisions.is_empty())?, sizes, strides))
    }
    /// The layout of the image, and the window: strides, dilation, padding before and after.
    fn image(&self, k: &Kernel, out: [i64; 2]) -> Option<(TensorLayout, [i64; 8])> {
        let (l, place) = (&self.loops, self.image);
        let whole = place.offset.is_zero()
            && k.buffers.get(place.buffer).is_some_and(|b| b.sizes == place.sizes);
        let pads = k.pads.get(&place.buffer);
        let (sizes, strides) = match pads {
            None => (place.sizes.clone(), place.strides.clone()),
            Some(all) => {
                let sizes: Vec<Poly> = all.iter().map(|(_, n)| n.clone()).collect();
                (sizes.clone(), row_major(&sizes))
            }
        };
        let order = [0, l.image_dims[0], l.image_dims[1], l.image_dims[2]];
        let take = |all: &[Poly]| -> Option<[i64; 4]> {
            let all: Vec<i64> =
                order.iter().map(|d| all.get(*d)?.known()).collect::<Option<_>>()?;
            all.try_into().ok()
        };
        let low = |d: usize| pads.map_or(0, |all| all[order[d]].0);
        let (sizes, strides, padded) = (take(&sizes)?, take(&strides)?, take(&place.sizes)?);
        let channels = self.size(l.group)? * self.size(l.channel)?;
        let fits = (whole || pads.is_none())
            && [0, 1].iter().all(|d| low(*d) == 0 && padded[*d] == sizes[*d]);
        if !fits || sizes[0] != self.size(Some(l.images))? || sizes[1] != channels {
            return None;
        }
        let mut window = [0; 8];
        for (i, ((_, stride), along)) in l.along.iter().enumerate() {
            let (size, dilation) = (self.size(along.map(|w| w.0))?, along.map_or(1, |w| w.1));
            let (low, high) = (low(2 + i), padded[2 + i] - sizes[2 + i] - low(2 + i));
            // The output size that a library computes.
            let counted = |high: i64| {
                (sizes[2 + i] + low + high - dilation * (size - 1) - 1).div_euclid(*stride) + 1
            };
            // Padding after the last window has no effect; libraries prefer symmetric padding.
            let high = [low, high, 0].into_iter().find(|high| counted(*high) == out[i])?;
            if *stride < 1 || dilation < 1 || low < 0 || high < 0 {
                return None;
            }
            for (j, n) in [*stride, dilation, low, high].into_iter().enumerate() {
                window[2 * j + i] = n;
            }
        }
        Some(((place.offset.known()?, sizes, strides.map(Some)), window))
    }
}

/// Decodes the attribute.
pub fn read(a: Attr) -> Option<Convolution> {
    let volume = |v: Attr| {
        let [arg, offset, s0, s1, s2, s3, d0, d1, d2, d3] = numbers(v.entry("place")?)?[..] else {
            return None;
        };
        Some(Volume {
            arg: arg as usize,
            offset,
            dtype: element(v)?,
            sizes: [s0, s1, s2, s3],
            strides: [d0, d1, d2, d3],
        })
    };
    let some = |name: &str| a.entry(name).map_or(Some(None), |v| volume(v).map(Some));
    let [s0, s1, d0, d1, l0, l1, h0, h1] = numbers(a.entry("window")?)?[..] else { return None };
    Some(Convolution {
        image: volume(a.entry("image")?)?,
        weight: volume(a.entry("weight")?)?,
        result: volume(a.entry("result")?)?,
        strides: [s0, s1],
        dilation: [d0, d1],
        low: [l0, l1],
        high: [h0, h1],
        bias: some("bias")?,
        residual: some("residual")?,
        activation: activation(a)?,
        tf32: a.entry("tf32").and_then(Attr::as_i64) == Some(1),
    })
}
