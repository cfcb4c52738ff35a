//! Gradients of convolutions by their weights: products whose K are the pixels of images. Of
//! channels-last tensors both operands are MN-major. TMA loads the image in im2col mode, 64
//! consecutive pixels at a window position, and 64 of its channels.
use crate::{
    analysis::{Kernel, LinearExpr, Nest, NestPlan, Poly, Role, Stage},
    emit::code::Code,
    strategies::gpu::{
        common::{
            ptx::Ptx,
            roles::{Roles, contractions},
            tile::{Tile, TmaLoad},
        },
        wgmma_gemm::{
            DEPTH, MatrixOperand, TensorCoreProduct,
            im2col::{Image, Window, argument, fits_descriptor},
            tile::{TileCoord, WgmmaTile},
        },
    },
};
use kiln_dialects::ir::*;

/// Where the columns of a gradient are in the image.
#[derive(Clone, Debug)]
pub struct PixelDepth {
    /// The window of the convolution whose weight's gradient it is.
    pub window: Window,
    /// Images whose pixels are summed: those of a split.
    pub images: i64,
    /// The batch dimension of the splits, if there are several.
    pub split: Option<usize>,
    /// The batch dimension of the groups of channels and filters, if there are several.
    pub group: Option<usize>,
    /// The window's dimensions that are batch dimensions of the product, height and width. If none
    /// are, its columns are those of all positions, a multiple of 64 each.
    pub positions: Option<[Option<usize>; 2]>,
}

/// The gradient of a kernel, if TMA can read both operands.
pub(super) fn product(k: &Kernel, plan: &NestPlan) -> Option<TensorCoreProduct> {
    let nest = plan.main()?;
    let (stages, roles, element) = contractions(k, nest, 1)?;
    let stage = k.stages.get(*stages.first()?).filter(|_| element.byte_size() == 2)?;
    let gradient = Gradient::of(k, stage)?;
    let (depth, roles) = gradient.with_roles(nest, roles)?;
    Some(TensorCoreProduct {
        left: gradient.left(&roles, &depth),
        rights: vec![gradient.right(&depth)],
        roles,
        element,
        prologue: None,
        raw: element,
        stages,
        window: None,
        depth: Some(depth),
    })
}

/// The contraction of a `kiln.convolution_weight_gradient`, of static sizes.
struct Gradient {
    image: Image,
    window: Window,
    /// Images, those of a split, filters, and sizes of the gradient of the result.
    all: i64,
    images: i64,
    /// Filters of a group, and the number of groups, if there are several.
    filters: i64,
    groups: Option<i64>,
    outs: [i64; 2],
    /// The buffer and the argument of that gradient.
    buffer: usize,
    argument: usize,
}

impl Gradient {
    fn of(k: &Kernel, stage: &Stage) -> Option<Gradient> {
        let (maps, sums) = stage.indices()?;
        let [Some(gradient), Some(image), ..] = maps.as_slice() else { return None };
        let ([n, p, q, filter], [m, h, w, c]) = (gradient.as_slice(), image.as_slice()) else {
            return None;
        };
        let view = |v: Value| k.views.get(&v);
        let gradients = view(stage.op.operand(0)).filter(|g| g.offset.is_zero())?;
        let (pixels, result) = (view(stage.op.operand(1))?, view(stage.op.result(0))?);
        let known = |all: &[Poly]| all.iter().map(Poly::known).collect::<Option<Vec<_>>>();
        let [all, rows, columns, filters] = known(&gradients.sizes)?[..] else { return None };
        let image = Image::of(k, pixels)?;
        let [images, _, _, channels] = known(&image.sizes)?[..] else { return None };
        let ([_, _, kh, kw, _] | [_, _, _, kh, kw, _]) = known(&result.sizes)?[..] else {
            return None;
        };
        let dense = [rows * columns * filters, columns * filters, filters, 1];
        let Role::Input(number) = k.buffers.get(gradients.buffer)?.role else { return None };
        // Images of a split follow each other.
        let [within, split] = n.loop_terms(&sums)?;
        let each = split.map_or(all, |(_, each)| each);
        let follow = within.is_none_or(|(_, step)| step == 1) && each > 0 && all % each == 0;
        let groups = match (group_of(filter)?, group_of(c)?) {
            (None, None) => None,
            (Some((d, filters)), Some((e, channels))) if d == e => Some((d, filters, channels)),
            _ => return None,
        };
        let (of_group, by_group) = groups.map_or((channels, filters), |(_, f, c)| (c, f));
        let units = [by_group, of_group].iter().all(|n| n % 8 == 0 && *n > 0);
        if known(&gradients.strides)? != dense || m != n || images != all || !follow || !units {
            return None;
        }
        let groups = groups.map(|_| filters / by_group);
        if groups.unwrap_or(1) * of_group != channels {
            return None;
        }
        // The stride and the dilation along height or width, given the pixels' index, the result's
        // and the window's size.
        let along = |image: &LinearExpr, out: &LinearExpr, size: i64| -> Option<(i64, i64)> {
            let ([by, at], [of, None]) = (image.loop_terms(&sums)?, out.loop_terms(&sums)?) else {
                return None;
            };
            let stride = match (by, of) {
                (Some((d, stride)), Some((e, 1))) if d == e => stride,
                (None, None) => 1,
                _ => return None,
            };
            let dilation = at.map(|(_, dilation)| dilation);
            (size == 1 || dilation.is_some()).then_some((stride, dilation.unwrap_or(1)))
        };
        let ((stride_h, dilation_h), (stride_w, dilation_w)) = (along(h, p, kh)?, along(w, q, kw)?);
        let window = Window {
            out: [rows, columns].map(Poly::number),
            sizes: [kh, kw],
            strides: [stride_h, stride_w],
            dilation: [dilation_h, dilation_w],
            low: image.low,
            high: image.high,
            channels: of_group,
            filters: groups.map(|_| by_group),
        };
        fits_descriptor(&window).then_some(Gradient {
            image,
            window,
            all,
            images: each,
            filters: by_group,
            groups,
            outs: [rows, columns],
            buffer: gradients.buffer,
            argument: argument(k, number)?,
        })
    }

    /// The roles of the nest's dimensions, where positions of the window that are no columns are
    /// batch dimensions.
    fn with_roles(&self, nest: &Nest, mut roles: Roles) -> Option<(PixelDepth, Roles)> {
        let extent = |d: &usize| nest.extents.get(*d)?.known();
        let product = |dims: &[usize]| dims.iter().map(extent).product::<Option<i64>>();
        let (mut window, [kh, kw]) = (self.window.clone(), self.window.sizes);
        let depth = self.images * self.outs[0] * self.outs[1];
        let complete = product(&roles.rows) == Some(self.filters)
            && product(&roles.k) == Some(depth)
            && product(&roles.columns) == Some(kh * kw * window.channels);
        // The loops over splits and groups, in this order.
        let splits = Some(self.all / self.images).filter(|n| *n > 1);
        let batch: Vec<i64> = splits.into_iter().chain(self.groups).collect();
        let loops = roles.batch.iter().map(extent);
        let complete = complete && loops.eq(batch.iter().map(|n| Some(*n)));
        if !complete || depth == 0 || roles.rows.len() != 1 {
            return None;
        }
        let (split, group) = (splits.map(|_| 0), self.groups.map(|_| batch.len() - 1));
        let mut positions = None;
        if window.channels % DEPTH as i64 != 0 {
            let inner = roles.columns.pop()?;
            // The pixels of a window row are contiguous, and one dimension.
            if extent(&inner)? == kw * window.channels && kw > 1 && group.is_none() {
                let plain = window.dilation[1] == 1 && window.low[1] == 0 && window.high[1] == 0;
                window = Window { sizes: [kh, 1], channels: extent(&inner)?, ..window };
                plain.then_some(())?;
            }
            let outer = std::mem::replace(&mut roles.columns, vec![inner]);
            let sizes = window.sizes.into_iter().filter(|n| *n > 1);
            if extent(&inner)? != window.channels || !outer.iter().map(extent).eq(sizes.map(Some)) {
                return None;
            }
            let mut next = roles.batch.len()..;
            positions = Some(window.sizes.map(|n| if n > 1 { next.next() } else { None }));
            roles.batch.extend(outer);
        }
        Some((PixelDepth { window, images: self.images, split, group, positions }, roles))
    }

    /// The gradient of the result, M-major: filters of a group, the pixels of a split, splits, groups.
    fn left(&self, roles: &Roles, depth: &PixelDepth) -> MatrixOperand {
        let pixels = self.images * self.outs[0] * self.outs[1];
        let all = self.filters * self.groups.unwrap_or(1);
        let (mut sizes, mut strides) = (vec![self.filters, pixels], vec![all]);
        if depth.split.is_some() {
            sizes.push(self.all / self.images);
            strides.push(all * pixels);
        }
        if let Some(groups) = self.groups {
            sizes.push(groups);
            strides.push(self.filters);
        }
        let [sizes, strides] =
            [sizes, strides].map(|all| all.into_iter().map(Poly::number).collect());
        MatrixOperand {
            buffer: self.buffer,
            argument: self.argument,
            offset: Poly::default(),
            k_major: false,
            dims: roles.rows.clone(),
            batch: depth.split.into_iter().chain(depth.group).collect(),
            sizes,
            strides,
        }
    }

    /// The image, as TMA's im2col mode addresses it.
    fn right(&self, depth: &PixelDepth) -> MatrixOperand {
        let merged = self.window.sizes[1] - depth.window.sizes[1];
        MatrixOperand { k_major: false, ..self.image.operand(&depth.window, merged) }
    }
}

/// The loop over groups in the index of a channel or a filter, and how many each has; `None` inside:
/// the index is a loop.
fn group_of(l: &LinearExpr) -> Option<Option<(usize, i64)>> {
    if l.as_dim().is_some() {
        return Some(None);
    }
    let terms: Option<Vec<(usize, i64)>> =
        l.dims.iter().map(|(d, n)| Some((*d, n.known()?))).collect();
    let ([group, (_, 1)] | [(_, 1), group]) = terms?[..] else { return None };
    (l.constant.is_zero() && l.divisions.is_empty()).then_some(Some(group))
}

impl WgmmaTile<'_> {
    /// Starts the loads of the image's pixels of a K step: for 64 columns each 64 channels at a window
    /// position.
    pub(super) fn load_pixels(
        &self,
        c: Code,
        (depth, coord, batch): (&PixelDepth, &TileCoord, &[Value]),
        stage: Value,
        step: Value,
    ) -> Result<()> {
        let (p, t, w) = (Ptx(c), Tile(c), &depth.window);
        let first = p.mul_const(p.index_to_i32(step)?, DEPTH)?;
        let [across, down, image] = self.pixel(p, w, first)?;
        let image = match depth.split.and_then(|i| batch.get(i)) {
            Some(split) => p.add(image, p.mul_const(*split, depth.images as usize)?)?,
            None => image,
        };
        let parts = self.n / DEPTH;
        for part in 0..parts {
            let column = p.add_const(coord.column, part * DEPTH)?;
            let (channel, [row, place]) = match depth.positions {
                Some(dims) => {
                    let at = |d: Option<usize>| match d.and_then(|i| batch.get(i)) {
                        Some(position) => Ok(*position),
                        None => p.number(0),
                    };
                    (column, [at(dims[0])?, at(dims[1])?])
                }
                None => {
                    let position = p.div_const(column, w.channels as usize)?;
                    let wide = w.sizes[1] as usize;
                    let channel = p.rem_const(column, w.channels as usize)?;
                    (channel, [p.div_const(position, wide)?, p.rem_const(position, wide)?])
                }
            };
            let channel = match depth.group.and_then(|i| batch.get(i)) {
                Some(group) => p.add(channel, p.mul_const(*group, w.channels as usize)?)?,
                None => channel,
            };
            let offset = |at: Value, i: usize| p.mul_const(at, w.dilation[i] as usize);
            let how = TmaLoad {
                window: vec![offset(place, 1)?, offset(row, 0)?],
                part: (parts > 1).then_some((part, parts)),
                ..TmaLoad::default()
            };
            let at = vec![channel, across, down, image];
            t.tma_load_as(self.right_maps[0], at, self.right, stage, &how)?;
        }
        Ok(())
    }
}
