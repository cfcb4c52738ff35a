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
    filters: i64,
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
        let [_, _, kh, kw, _] = known(&result.sizes)?[..] else { return None };
        let dense = [rows * columns * filters, columns * filters, filters, 1];
        let Role::Input(number) = k.buffers.get(gradients.buffer)?.role else { return None };
        // Images of a split follow each other.
        let [within, split] = n.loop_terms(&sums)?;
        let each = split.map_or(all, |(_, each)| each);
        let follow = within.is_none_or(|(_, step)| step == 1) && each > 0 && all % each == 0;
        let units = [filters, channels].iter().all(|n| n % 8 == 0 && *n > 0);
        if known(&gradients.strides)? != dense || m != n || images != all || !follow || !units {
            return None;
        }
        filter.as_dim().and(c.as_dim())?;
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
            channels,
            filters: None,
        };
        fits_descriptor(&window).then_some(Gradient {
            image,
            window,
            all,
            images: each,
            filters,
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
            && product(&roles.columns) == Some(kh * kw * window.channels)
            && product(&roles.batch) == Some(self.all / self.images);
        if !complete || depth == 0 || roles.rows.len() != 1 || roles.batch.len() > 1 {
            return None;
        }
        let mut positions = None;
        if window.channels % DEPTH as i64 != 0 {
            let inner = roles.columns.pop()?;
            // The pixels of a window row are contiguous, and one dimension.
            if extent(&inner)? == kw * window.channels && kw > 1 {
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
        let split = (self.all != self.images).then_some(0);
        Some((PixelDepth { window, images: self.images, split, positions }, roles))
    }

    /// The gradient of the result, M-major: filters, the pixels of a split, splits.
    fn left(&self, roles: &Roles, depth: &PixelDepth) -> MatrixOperand {
        let pixels = self.images * self.outs[0] * self.outs[1];
        let (mut sizes, mut strides) = (vec![self.filters, pixels], vec![self.filters]);
        if depth.split.is_some() {
            sizes.push(self.all / self.images);
            strides.push(self.filters * pixels);
        }
        let [sizes, strides] =
            [sizes, strides].map(|all| all.into_iter().map(Poly::number).collect());
        MatrixOperand {
            buffer: self.buffer,
            argument: self.argument,
            offset: Poly::default(),
            k_major: false,
            dims: roles.rows.clone(),
            batch: depth.split.into_iter().collect(),
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
