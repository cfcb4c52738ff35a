//! Depthwise convolutions and pools in NHWC (channels last): each channel has its own window, and
//! neighbouring threads take neighbouring channels.
pub(crate) mod emit;

use crate::{
    analysis::{Body, Kernel, LinearExpr, NestPlan, Poly, Role, StridedView},
    strategies::{
        Device, Emission, Launch, Match, Nesting, Parameters, Request, Strategy,
        doubled_and_halved,
        gpu::{
            common::{
                assumed,
                grid::{grid, largest},
                vector_width::narrow_width,
            },
            wgmma_gemm::{im2col::pixel, tiles::PROCESSORS},
        },
    },
};
use kiln_dialects::Result;
use kiln_runtime::library_call::CUDNN;

/// Depthwise convolutions.
pub struct Depthwise;

/// Tile of a depthwise convolution.
#[derive(Clone, Debug, Parameters)]
pub struct Params {
    /// Neighbouring output pixels in width that a thread computes
    #[parameter(Between(1, 16))]
    pub pixels: usize,
    /// Threads of a CTA
    #[parameter(PowerOfTwo(32, 1024))]
    pub threads: usize,
    /// Channels of a vector access
    #[parameter(PowerOfTwo(1, 16))]
    pub vector: usize,
}

impl Strategy for Depthwise {
    type Params = Params;
    const NAME: &'static str = "depthwise";
    const DEVICE: Device = Device::Gpu;
    const SUMMARY: &'static str =
        "Depthwise convolutions and pools, channels last: a thread per channel vector";
    const NESTING: Nesting = Nesting::GPU;
    const MISMATCH: &'static str = "is no depthwise convolution with channels last";
    const LIBRARIES: &'static [&'static str] = &[CUDNN];

    fn matches(r: &Request<'_>) -> Match<Params> {
        let window = depthwise(r.kernel, r.plan);
        Match::first(window.and_then(|d| params(r.kernel, r.plan, &d)))
    }
    fn launch(r: &Request<'_>, p: &Params) -> Result<Launch> {
        let grid = grid(r.kernel, |e| {
            let (each, outer) = work_items(&depthwise(r.kernel, r.plan)?, p);
            let outer = e.product(largest(r.plan)?, &outer)?;
            Some(format!("(({outer}) * {each}) ceildiv {}", p.threads))
        })?;
        Ok(Launch { grid: Some(grid), threads: p.threads, ..Launch::default() })
    }
    fn candidates(p: &Params) -> Vec<Params> {
        doubled_and_halved(p, &["pixels", "threads"])
    }
    fn emit(e: &Emission<'_, '_>, p: &Params) -> Result<()> {
        emit::emit(e.c, e.scope, e.plan, p, p.threads)
    }
}

/// A spatial dimension of the window: height or width.
#[derive(Clone, Debug)]
pub struct SpatialDim {
    /// The reduction loop over the window; `None` if its size is 1.
    pub dim: Option<usize>,
    /// Window size.
    pub size: i64,
    /// Stride.
    pub stride: i64,
    /// Dilation.
    pub dilation: i64,
    /// Padding before the image.
    pub low: i64,
    /// Image size.
    pub image: i64,
    /// Output size.
    pub out: i64,
    /// Whether there is padding before or after the image.
    pub padded: bool,
}

/// A depthwise convolution.
#[derive(Clone, Debug)]
pub struct DepthwiseWindow {
    /// The stage that reduces.
    pub stage: usize,
    /// The image's buffer.
    pub image: usize,
    /// Whether the image is the product's first factor.
    pub first: bool,
    /// Loops over the result's batch, height, width, channels; `None` for an extent of 1.
    pub dims: [Option<usize>; 4],
    /// Channels.
    pub channels: i64,
    /// Height and width.
    pub spatial: [SpatialDim; 2],
}

impl DepthwiseWindow {
    /// The loop over channels.
    pub fn fast(&self) -> Option<usize> {
        self.dims[3]
    }
}

/// Whether a view is a whole image in memory, \[N, H, W, C\], padded at most in height and width.
pub fn is_image(k: &Kernel, view: &StridedView) -> bool {
    let Some(buffer) = k.buffers.get(view.buffer) else { return false };
    let pads = k.pads.get(&view.buffer);
    matches!(buffer.role, Role::Input(_) | Role::Padded(_))
        && view.offset.is_zero()
        && buffer.sizes == view.sizes
        && pads.is_none_or(|p| p[0].0 == 0 && p[3].0 == 0)
}

/// The padding before an image's height or width, its size, and whether there is padding.
pub fn unpadded(k: &Kernel, view: &StridedView, i: usize) -> Option<(i64, i64, bool)> {
    let whole = view.sizes.get(1 + i)?.known()?;
    let (low, size) = match k.pads.get(&view.buffer) {
        Some(pads) => (pads[1 + i].0, pads[1 + i].1.known()?),
        None => (0, whole),
    };
    Some((low, size, whole != size))
}

/// Matches a kernel that is a depthwise convolution, with or without stages on or beside the
/// result. All sizes but the batch are static.
pub fn depthwise(k: &Kernel, plan: &NestPlan) -> Option<DepthwiseWindow> {
    let nest = plan.main()?;
    let [stage] = nest.stages.as_slice() else { return None };
    let s = k.stages.get(*stage)?;
    let ([out], 2, Body::Block(_)) = (s.outputs.as_slice(), s.inputs.len(), s.body) else {
        return None;
    };
    if !out.reduces || !s.captured.is_empty() || !s.indexed.is_empty() || nest.split.is_some() {
        return None;
    }
    [true, false].into_iter().find_map(|first| {
        let (image, weight) = if first { (0, 1) } else { (1, 0) };
        let (maps, kinds) = s.indices()?;
        let (read, result) = (maps.get(image)?.as_ref()?, maps.get(2)?.as_ref()?);
        let ([n, h, w, c], [rn, rh, rw, rc]) = (read.as_slice(), result.as_slice()) else {
            return None;
        };
        let (steps_h, steps_w) = (pixel(h, &kinds)?, pixel(w, &kinds)?);
        let channel = c.as_dim().filter(|d| kinds.get(*d) == Some(&false))?;
        let own = [rn.as_dim()?, rh.as_dim()?, rw.as_dim()?, rc.as_dim()?];
        if own != [n.as_dim()?, steps_h.0.0, steps_w.0.0, channel] {
            return None;
        }
        // What the op's loops have become after simplification: each is one loop, or of extent 1.
        let loops = |d: usize| -> Option<Option<usize>> {
            let at = s.dims.get(d)?;
            if at.as_dim().is_some() {
                Some(at.as_dim())
            } else {
                (*at == LinearExpr::default()).then_some(None)
            }
        };
        let place: &StridedView = k.views.get(&s.op.operand(image))?;
        if !is_image(k, place) {
            return None;
        }
        let of_result = &k.views.get(&s.op.result(0))?.sizes;
        let direction = |i: usize,
                         (parallel, window): ((usize, i64), Option<(usize, i64)>)|
         -> Option<SpatialDim> {
            let dim = window.map_or(Some(None), |(d, _)| loops(d))?;
            let (low, image, padded) = unpadded(k, place, i)?;
            let size = dim.map_or(Some(1), |d| nest.extents.get(d)?.known())?;
            Some(SpatialDim {
                dim,
                size,
                stride: parallel.1,
                dilation: window.map_or(1, |w| w.1),
                low,
                image,
                out: of_result.get(1 + i)?.known()?,
                padded,
            })
        };
        let along = [direction(0, steps_h)?, direction(1, steps_w)?];
        let dims = [loops(own[0])?, loops(own[1])?, loops(own[2])?, Some(loops(own[3])??)];
        // A collapsed loop is none of the result's own.
        let own_size = |(dim, size): (&Option<usize>, &Poly)| {
            dim.map_or(size.known() == Some(1), |d| nest.extents.get(d) == Some(size))
        };
        if !dims.iter().zip(of_result).all(own_size) {
            return None;
        }
        let used = dims.iter().chain(along.iter().map(|a| &a.dim)).flatten().count();
        // The weight is invariant over pixels.
        let free = dims[..3].iter().flatten().all(|d| !s.inputs[weight].at.uses(*d));
        let some = along
            .iter()
            .all(|a| a.image > 0 && a.out > 0 && a.size > 0 && a.stride > 0 && a.dilation > 0);
        let channels = place.sizes.get(3)?.known().filter(|c| *c > 0)?;
        (used == nest.extents.len() && free && some).then_some(DepthwiseWindow {
            stage: *stage,
            image: place.buffer,
            first,
            dims,
            channels,
            spatial: along,
        })
    })
}

/// Threads per CTA.
const THREADS: i64 = 128;
/// Threads that an SM should have before each takes more pixels.
const THREADS_PER_SM: i64 = 512;

/// Neighbouring output pixels in width per thread, so that it loads each input pixel of a row once:
/// as many as keep the GPU busy.
fn params(k: &Kernel, plan: &NestPlan, d: &DepthwiseWindow) -> Option<Params> {
    let nest = plan.main()?;
    let mut vector = narrow_width(k, plan, nest, d.fast()?, Some(d.image)) as i64;
    while vector > 1 && d.channels % vector != 0 {
        vector /= 2;
    }
    let images = d.dims[0].map_or(1, |n| nest.extents[n].known().unwrap_or(assumed::IMAGES));
    let lines = images * d.spatial[0].out * (d.channels / vector);
    let busy = |across: &i64| {
        lines * ((d.spatial[1].out + across - 1) / across) >= THREADS_PER_SM * PROCESSORS as i64
    };
    let across = [4, 2].into_iter().find(|a| *a <= d.spatial[1].out && busy(a)).unwrap_or(1);
    Some(Params { pixels: across as usize, threads: THREADS as usize, vector: vector as usize })
}

/// Work items per line of the result and its channels, and the loops outside of these.
fn work_items(d: &DepthwiseWindow, p: &Params) -> (i64, Vec<usize>) {
    let across = (p.pixels as i64).clamp(1, d.spatial[1].out);
    let lines = (d.spatial[1].out + across - 1) / across;
    (lines * (d.channels / p.vector as i64), d.dims[..2].iter().flatten().copied().collect())
}
