//! Gradients of depthwise convolutions by their weights, channels last: sums over the pixels of
//! images, of products with a pixel at each position of the window. No tensor core computes them,
//! since no two channels meet.
pub(crate) mod emit;
mod pattern;
mod tiles;

use crate::{
    analysis::{Kernel, NestPlan},
    strategies::{
        Device, Emission, Launch, Match, Nesting, Parameters, Request, Strategy,
        doubled_and_halved,
        gpu::{
            common::{check_threads, floor_power_of_two, grid::grid, vector_width::narrow_width},
            wgmma_gemm::tiles::PROCESSORS,
        },
    },
    target::launch::{SHARED, WARP},
};
use kiln_dialects::Result;
use pattern::GradientWindow;

/// Gradients of depthwise convolutions by their weights.
pub struct DepthwiseGradient;

/// Tile of a gradient. A CTA has `columns` channel vectors, each row of the window, and `parts`.
#[derive(Clone, Debug, Parameters)]
pub struct Params {
    /// Channel vectors of a CTA
    #[parameter(Between(1, 64))]
    pub columns: usize,
    /// Threads that share the image rows of a sum
    #[parameter(PowerOfTwo(1, 64))]
    pub parts: usize,
    /// Neighbouring pixels of the result whose gradient a thread holds in registers
    #[parameter(Between(1, 16))]
    pub pixels: usize,
    /// Channels of a vector access
    #[parameter(PowerOfTwo(1, 8))]
    pub vector: usize,
}

/// Most channels of a vector: each holds a sum for each column of the window.
const VECTOR: i64 = 4;
/// Most pixels of a tile.
const PIXELS: i64 = 8;
/// Most threads of a CTA, where one an SM has all the work and where several have.
const THREADS: [i64; 2] = [512, 256];
/// CTAs that keep all SMs busy.
const FULL_GPU_CTAS: i64 = 2 * PROCESSORS as i64;
/// Least channel vectors of a CTA: two sectors of L2.
const LEAST_COLUMNS: i64 = 8;

impl Strategy for DepthwiseGradient {
    type Params = Params;
    const NAME: &'static str = "depthwise_gradient";
    const DEVICE: Device = Device::Gpu;
    const SUMMARY: &'static str = "Gradients of depthwise convolutions by their weights: a thread per channel vector and \
         row of the window";
    const NESTING: Nesting = Nesting::GPU;
    const MISMATCH: &'static str = "is no gradient of a depthwise convolution by its weight";

    fn matches(r: &Request<'_>) -> Match<Params> {
        let window = GradientWindow::of(r.kernel, r.plan);
        Match::first(window.and_then(|w| params(r.kernel, r.plan, &w)))
    }
    fn launch(r: &Request<'_>, p: &Params) -> Result<Launch> {
        let w = GradientWindow::of(r.kernel, r.plan).ok_or(Self::MISMATCH)?;
        let threads = threads(&w, p)?;
        let grid = grid(r.kernel, |_| Some(format!("{}", w.splits * blocks(&w, p))))?;
        Ok(Launch { grid: Some(grid), threads, ..Launch::default() })
    }
    fn candidates(p: &Params) -> Vec<Params> {
        doubled_and_halved(p, &["columns", "parts", "pixels"])
    }
    fn emit(e: &Emission<'_, '_>, p: &Params) -> Result<()> {
        let w = GradientWindow::of(e.scope.kernel, e.plan).ok_or(Self::MISMATCH)?;
        emit::emit(e.c, e.scope, e.plan, &w, p, threads(&w, p)?)
    }
}

/// CTAs of the channels.
fn blocks(w: &GradientWindow, p: &Params) -> i64 {
    (w.channels / p.vector as i64 + p.columns as i64 - 1) / p.columns as i64
}

/// Threads of a CTA, a multiple of a warp.
///
/// # Errors
/// They are more than a CTA has, or their sums more than its shared memory.
fn threads(w: &GradientWindow, p: &Params) -> Result<usize> {
    let window = &w.spatial;
    if w.channels % p.vector as i64 != 0 {
        let (vector, channels) = (p.vector, w.channels);
        return Err(format!("has vectors of {vector}, which do not divide {channels}").into());
    }
    let threads = p.columns * p.parts * window[0].size as usize;
    let warps = threads.div_ceil(WARP) * WARP;
    let bytes = shared_elements(w, p) * size_of::<f32>();
    check_threads(warps)?;
    match bytes <= SHARED as usize {
        true => Ok(warps),
        false => Err(format!("has sums of {bytes} bytes of shared memory").into()),
    }
}

/// Elements of shared memory: the sums of half of the parts.
fn shared_elements(w: &GradientWindow, p: &Params) -> usize {
    let [high, wide] = [0, 1].map(|i| w.spatial[i].size as usize);
    p.parts / 2 * p.columns * high * wide * p.vector
}

/// As many parts as a CTA has room for. Fewer channels a CTA, where the grid would leave SMs idle.
fn params(k: &Kernel, plan: &NestPlan, w: &GradientWindow) -> Option<Params> {
    let nest = plan.main()?;
    let [high, wide] = &w.spatial;
    let mut vector = (narrow_width(k, plan, nest, w.channel, Some(w.image)) as i64).min(VECTOR);
    while vector > 1 && w.channels % vector != 0 {
        vector /= 2;
    }
    let vectors = w.channels / vector;
    let most = (THREADS[0] / high.size).clamp(1, WARP as i64);
    // What divides the vectors leaves no thread idle.
    let even = (most / 2..=most).rev().find(|n| *n > 0 && vectors % n == 0);
    let mut columns = even.unwrap_or(most).min(vectors);
    let ctas = |columns: i64| w.splits * ((vectors + columns - 1) / columns);
    while ctas(columns) < FULL_GPU_CTAS && columns % 2 == 0 && columns >= 2 * LEAST_COLUMNS {
        columns /= 2;
    }
    let most = THREADS[usize::from(ctas(columns) >= FULL_GPU_CTAS)];
    let sums = columns * high.size * wide.size * vector * size_of::<f32>() as i64;
    let parts = floor_power_of_two(most / (columns * high.size))
        .min(floor_power_of_two(w.images * high.out))
        .min(floor_power_of_two(2 * SHARED / sums))
        .min(64);
    let tiles = (wide.out + PIXELS - 1) / PIXELS;
    let p = Params {
        columns: columns as usize,
        parts: parts as usize,
        pixels: ((wide.out + tiles - 1) / tiles) as usize,
        vector: vector as usize,
    };
    threads(w, &p).ok().map(|_| p)
}
