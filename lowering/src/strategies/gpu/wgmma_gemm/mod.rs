//! Products and convolutions on Hopper's tensor cores: a producer warp issues TMA loads into a
//! multi-stage shared-memory pipeline, consumer warpgroups issue wgmma, and the epilogue reads the
//! accumulators from registers.
mod consumer;
pub(crate) mod emit;
mod epilogue;
pub(crate) mod im2col;
mod im2col_load;
mod k_range;
mod operand;
mod pixel_depth;
mod producer;
mod promotion;
mod register_operand;
pub(crate) mod split_k;
pub(crate) mod staged_results;
pub(crate) mod tensor_maps;
mod tile;
pub(crate) mod tiles;

pub use operand::{DEPTH, MatrixOperand, ROW};
pub use pixel_depth::PixelDepth;

use crate::{
    analysis::{Access, Kernel, Nest, NestPlan, Poly, Role, Stage},
    strategies::{
        Device, Emission, Launch, Match, Nesting, Parameters, Request, Strategy,
        gpu::{
            common::{
                assumed,
                grid::{grid, shared_bytes},
                roles::{Roles, contractions_by, factors, factors_of_8_bits, roles_of},
            },
            prologue::Prologue,
        },
    },
};
use im2col::Window;
use kiln_dialects::{ir::*, value::DType};
use kiln_runtime::library_call::{CUBLASLT, CUDNN};

/// Products of bf16, f16, 8-bit floats and int8, and of f32 rounded to tf32, by wgmma.
pub struct WgmmaGemm;

/// The CTA tile and its pipeline.
#[derive(Clone, Debug, Parameters)]
pub struct Params {
    /// K of a pipeline stage: 128 bytes of an operand's row
    #[parameter(OneOf(&[32, 64, 128]))]
    pub block_k: usize,
    /// Rows of the CTA tile
    #[parameter(OneOf(&[64, 128, 256]))]
    pub block_m: usize,
    /// Columns of the CTA tile, of all right operands together
    #[parameter(MultipleOf(64, 64, 256))]
    pub block_n: usize,
    /// Resident CTAs of an SM of a persistent kernel; 0 launches a CTA per tile
    #[parameter(Between(0, 2))]
    pub ctas_per_sm: usize,
    /// CTAs of a cluster that share a tile's K and reduce through distributed shared memory
    #[parameter(OneOf(&[1, 2, 4, 8]))]
    pub split_k: usize,
    /// Stages of the shared-memory pipeline
    #[parameter(Between(2, 16))]
    pub stages: usize,
}

/// Tiles that autotuning tries beyond those of the cost model: rows, columns, stages, CTAs per SM.
/// They are narrow tiles with deep pipelines, of which a product has more, and pairs of CTAs per SM
/// of which one multiplies while the other waits.
const MORE_TILES: &[(usize, usize, usize, usize)] = &[
    (64, 64, 8, 1),
    (64, 64, 3, 2),
    (64, 128, 6, 1),
    (64, 192, 6, 1),
    (64, 256, 5, 1),
    (128, 64, 4, 1),
    (128, 64, 3, 2),
    (128, 128, 4, 1),
];

impl Strategy for WgmmaGemm {
    type Params = Params;
    const NAME: &'static str = "wgmma_gemm";
    const DEVICE: Device = Device::Gpu;
    const SUMMARY: &'static str = "Products and convolutions by wgmma, operands by TMA, persistent";
    const NESTING: Nesting = Nesting::GPU;
    const MISMATCH: &'static str = "is no product that wgmma and TMA take";
    const LIBRARIES: &'static [&'static str] = &[CUBLASLT, CUDNN];
    const COMPETES: bool = true;

    fn matches(r: &Request<'_>) -> Match<Params> {
        let found = || {
            let gpu = r.gpu().ok().filter(|g| g.hopper() && g.tensor_cores)?;
            let nest = r.plan.nests.first().filter(|_| !r.plan.dependent)?;
            let p = product(r.kernel, r.plan).filter(|p| gpu.tf32 || p.element != DType::F32)?;
            Some(tiles::choose(nest, &p))
        };
        Match::costed(found())
    }
    fn launch(r: &Request<'_>, p: &Params) -> Result<Launch> {
        let hopper = r.gpu()?.hopper();
        let found = product(r.kernel, r.plan).filter(|_| hopper);
        let (nest, product) = r.plan.nests.first().zip(found).ok_or(Self::MISMATCH)?;
        if p.block_m * p.block_n > 128 * 256 {
            return Err(format!(
                "has a CTA tile of {} by {}; registers hold accumulators of 32768 elements",
                p.block_m, p.block_n
            )
            .into());
        }
        split_k::check_tile(p)?;
        fits(p, nest, &product)?;
        let tiles = |e: &crate::strategies::gpu::common::grid::Extents| {
            e.tiles_of(nest, &product.roles, p.block_m, p.block_n, p.split_k)
        };
        Ok(Launch {
            grid: Some(grid(r.kernel, tiles)?),
            threads: 128 * (1 + groups(p)),
            cluster: p.split_k,
            shared_bytes: Some(shared(p, product.slices())),
            tensor_maps: Some(tensor_maps::maps(r.kernel, nest, &product, p)?),
            ctas_per_sm: (p.ctas_per_sm > 0).then_some(p.ctas_per_sm),
            persistent: p.ctas_per_sm,
        })
    }
    fn arguments(func: Op) -> Result<Vec<Type>> {
        emit::parameters(func)
    }
    fn candidates(p: &Params) -> Vec<Params> {
        let tile = |m: usize, n: usize, stages: usize, ctas_per_sm: usize, split_k: usize| Params {
            block_k: p.block_k,
            block_m: m,
            block_n: n,
            ctas_per_sm,
            split_k,
            stages,
        };
        let mut all = vec![];
        for (m, n, stages, resident) in tiles::TILES {
            // Persistent CTAs, and one CTA per tile.
            all.extend([*resident, 0].map(|ctas| tile(*m, *n, *stages, ctas, 1)));
        }
        all.extend(MORE_TILES.iter().map(|(m, n, stages, ctas)| tile(*m, *n, *stages, *ctas, 1)));
        all.extend(
            tiles::shared().map(|((m, n, stages, _), parts)| tile(*m, *n, *stages, 0, parts)),
        );
        all
    }
    fn emit(e: &Emission<'_, '_>, p: &Params) -> Result<()> {
        emit::emit(e.c, e.scope, e.plan, p, e.arguments)
    }
}

/// The alignment in bytes that TMA needs.
pub const TMA_BYTES: usize = 16;
/// Bytes of shared memory that a CTA can request on sm_90.
pub const SHARED: usize = 227 << 10;
/// Rows of a result that a warp stages and stores at once.
pub const STORED: usize = 16;

/// A matrix product with f32 accumulators: of bf16, of f16, of 8-bit floats, or of f32 rounded to
/// tf32; or of int8 with int32 accumulators.
#[derive(Clone, Debug)]
pub struct TensorCoreProduct {
    /// The roles of the nest's dimensions.
    pub roles: Roles,
    /// The operands' element type; for a left operand with a prologue, the type it is rounded to.
    pub element: DType,
    /// The prologue of the left operand, computed on its elements before the product.
    pub prologue: Option<Prologue>,
    /// The left operand, M × K.
    pub left: MatrixOperand,
    /// The left operand's element type in memory.
    pub raw: DType,
    /// The right operands, K × N: one, or two that share the left operand.
    pub rights: Vec<MatrixOperand>,
    /// The reduction stages, one for each right operand.
    pub stages: Vec<usize>,
    /// The window of an im2col convolution; the left operand's rows are then the output pixels of
    /// all images.
    pub window: Option<Window>,
    /// Of a gradient whose K are pixels, where its columns are in the image.
    pub depth: Option<PixelDepth>,
}

impl TensorCoreProduct {
    /// K of a pipeline stage, in elements.
    pub fn k_per_stage(&self) -> usize {
        ROW / self.element.byte_size()
    }
    /// The dtype of the accumulators.
    pub fn accumulator(&self) -> DType {
        self.element.accumulator()
    }
    /// Whether the sum of a K step is added to others in f32 registers.
    pub fn is_promoted(&self) -> bool {
        self.element.is_8_bit_float()
    }
    /// Slices of the left operand's tile: rows of 128 bytes for each of its rows.
    pub fn slices(&self) -> usize {
        self.k_per_stage() * self.raw.byte_size() / ROW
    }
    /// K steps; for a dynamic K, those of the assumed extent.
    pub fn steps(&self, nest: &Nest) -> i64 {
        let (depth, each) = (
            Poly::product(self.roles.k.iter().map(|d| &nest.extents[*d])),
            self.k_per_stage() as i64,
        );
        let depth = depth.known().unwrap_or(assumed::PRODUCT);
        self.window.as_ref().map_or_else(|| (depth + each - 1) / each, Window::steps)
    }
}

/// Consumer warpgroups of a CTA, one or two; a producer warpgroup is added to them.
pub fn groups(p: &Params) -> usize {
    (p.block_m / 64).min(2)
}

/// Bytes of the epilogue's staging buffers: two for each consumer warp.
pub fn staging(groups: usize) -> usize {
    groups * 4 * 2 * STORED * ROW
}

/// Bytes of shared memory of a CTA: pipeline stages, staging buffers, mbarriers, and padding for
/// alignment.
fn bytes(m: usize, n: usize, stages: usize, groups: usize) -> usize {
    (m + n) * ROW * stages + staging(groups) + 16 * stages + 1024
}

/// Bytes of shared memory of a CTA. `slices`: slices of the left operand's tile.
pub fn shared(p: &Params, slices: usize) -> usize {
    bytes(slices * p.block_m, p.block_n, p.stages, groups(p))
        + if p.split_k > 1 { split_k::BARRIER } else { 0 }
}

/// Whether registers hold, beside the accumulators of a tile, the computed left fragments of two K
/// steps, the current and the next, or the sums of a K step that are promoted.
fn fits_registers(m: usize, n: usize, resident: usize, promoted: bool) -> bool {
    m <= 128 && (resident < 2 || n <= 64) && !(promoted && n > promotion::MOST_COLUMNS)
}

/// Checks a schedule for a product and its prologue.
///
/// # Errors
/// Registers cannot hold accumulators and fragments, the pipeline exceeds shared memory, or the
/// CTAs of a cluster cannot split K.
pub fn fits(p: &Params, nest: &Nest, product: &TensorCoreProduct) -> Result<()> {
    split_k::fits(p, nest, product)?;
    let (m, n, resident) = (p.block_m, p.block_n, p.ctas_per_sm);
    let more = product.prologue.is_some() || product.is_promoted();
    if more && !fits_registers(m, n, resident, product.is_promoted()) {
        let what = match product.is_promoted() {
            true => "the sums of a K step of at most 128 rows and 192 columns",
            false => "the computed left operand of at most 128 rows",
        };
        return Err(format!(
            "has block_m = {m}, block_n = {n}, ctas_per_sm = {resident}, but registers hold {what}, \
             and next to another CTA accumulators of 64 columns"
        )
        .into());
    }
    shared_bytes(shared(p, product.slices()), SHARED).map(drop)
}

/// The matrix product of a kernel, if TMA can read both operands. TMA needs 16-byte alignment of
/// the base and of all strides but the contiguous one. K is not 0. The caller decides whether f32
/// may be rounded to tf32.
pub fn product(k: &Kernel, plan: &NestPlan) -> Option<TensorCoreProduct> {
    pixel_depth::product(k, plan).or_else(|| aligned_product(k, plan, TMA_BYTES))
}

/// The same for operands whose base and strides are multiples of `bytes`.
pub fn aligned_product(k: &Kernel, plan: &NestPlan, bytes: usize) -> Option<TensorCoreProduct> {
    let nest = plan.main()?;
    let plain = |s: &Stage| {
        let element = factors(s).or_else(|| factors_of_8_bits(s));
        Some((element.filter(|_| s.indexed.is_empty())?, [0, 1]))
    };
    let Some((stages, roles, element)) = contractions_by(k, nest, 2, &plain) else {
        return with_prologue(k, nest, bytes);
    };
    let sums: Vec<&Stage> = stages.iter().filter_map(|s| k.stages.get(*s)).collect();
    let a = sums.first()?.inputs.first()?;
    if roles.columns.len() != 1 || !sums.iter().all(|s| s.inputs.first() == Some(a)) {
        return None;
    }
    let single = roles.rows.len() == 1 && roles.k.len() == 1;
    let window = if single { None } else { convolution(k, &sums, &roles, element) };
    if let Some((window, left, right)) = window {
        return Some(TensorCoreProduct {
            roles,
            element,
            prologue: None,
            left,
            raw: element,
            rights: vec![right],
            stages,
            window: Some(window),
            depth: None,
        });
    }
    let roles = with_one_row(roles, a)?;
    let left = operand(k, nest, a, (roles.rows[0], bytes), &roles)?;
    let rights: Vec<MatrixOperand> = sums
        .iter()
        .map(|s| operand(k, nest, s.inputs.get(1)?, (roles.columns[0], bytes), &roles))
        .collect::<Option<_>>()?;
    let k_major = rights[0].k_major;
    // wgmma reads MN-major operands of 16 bits only.
    let fits = element.byte_size() == 2 || (k_major && left.k_major);
    let fits = fits && rights.iter().all(|r| r.k_major == k_major);
    fits.then_some(TensorCoreProduct {
        roles,
        element,
        prologue: None,
        left,
        raw: element,
        rights,
        stages,
        window: None,
        depth: None,
    })
}

/// The window and the operands of a convolution that is loaded in im2col mode.
fn convolution(
    k: &Kernel,
    sums: &[&Stage],
    roles: &Roles,
    element: DType,
) -> Option<(Window, MatrixOperand, MatrixOperand)> {
    let [sum] = sums else { return None };
    im2col::window(k, sum)
        .filter(|(w, ..)| roles.batch.len() == usize::from(w.filters.is_some()))
        .filter(|_| !roles.rows.is_empty() && element.byte_size() == 2)
}

/// A product whose K-major left operand is computed from memory by a prologue.
fn with_prologue(k: &Kernel, nest: &Nest, bytes: usize) -> Option<TensorCoreProduct> {
    let [number] = nest.stages.as_slice() else { return None };
    let (stage, roles) = (k.stages.get(*number)?, roles_of(k, nest, *number)?);
    let prologue = Prologue::of(stage)?;
    let raw = prologue.raw(stage)?;
    let ([row], [column], [_]) =
        (roles.rows.as_slice(), roles.columns.as_slice(), roles.k.as_slice())
    else {
        return None;
    };
    let of = |a: &Access| k.buffers.get(a.buffer)?.element.dtype().ok();
    let element = of(raw).filter(|d| [DType::BF16, DType::F16, DType::F32].contains(d))?;
    // Threads read the prologue's other operands from global memory: those of rows once, those of
    // columns in each K step.
    let both = |a: &Access| a.at.uses(*row) && a.at.uses(roles.k[0]);
    let read = |i: &usize| {
        stage.inputs.get(*i).is_some_and(|a| {
            a == raw || !both(a) && a.at.divisions.is_empty() && !k.pads.contains_key(&a.buffer)
        })
    };
    let left = operand(k, nest, raw, (*row, bytes), &roles)
        .filter(|o| o.k_major && prologue.inputs.iter().all(read))?;
    let right = operand(k, nest, stage.inputs.get(prologue.right)?, (*column, bytes), &roles)?;
    let fits = roles.batch.len() <= 3 && nest.extents.get(roles.k[0])?.multiple_of(2);
    let (element, raw, stages) = (prologue.element, element, vec![*number]);
    fits.then_some(TensorCoreProduct {
        roles,
        element,
        prologue: Some(prologue),
        left,
        raw,
        rights: vec![right],
        stages,
        window: None,
        depth: None,
    })
}

fn operand(
    k: &Kernel,
    nest: &Nest,
    a: &Access,
    (across, bytes): (usize, usize),
    roles: &Roles,
) -> Option<MatrixOperand> {
    let depth = *roles.k.first()?;
    let k_major = a.at.coefficient(depth).known() == Some(1);
    // The first K step is peeled, without a check that there is one.
    nest.extents.get(depth)?.at_least().filter(|n| *n > 0)?;
    let (near, far) = if k_major { (depth, across) } else { (across, depth) };
    let batch: Vec<usize> = (0..roles.batch.len()).filter(|i| a.at.uses(roles.batch[*i])).collect();
    let dims: Vec<usize> =
        [near, far].into_iter().chain(batch.iter().map(|i| roles.batch[*i])).collect();
    rows(k, &nest.extents, a, (&dims, k_major), bytes).map(|o| MatrixOperand { batch, ..o })
}

/// The roles with one dimension of rows and one of K. Of several dimensions of rows, the contiguous
/// one of the left operand stays, or the last; the others are batch dimensions, which the right
/// operand does not have.
fn with_one_row(mut roles: Roles, left: &Access) -> Option<Roles> {
    let near = roles.rows.iter().position(|d| left.at.coefficient(*d).known() == Some(1));
    let row = roles.rows.remove(near.or(roles.rows.len().checked_sub(1))?);
    roles.batch.append(&mut roles.rows);
    roles.rows.push(row);
    (roles.k.len() == 1 && roles.batch.len() <= 3).then_some(roles)
}

/// An operand whose access has exactly `dims`, loops of these extents, the contiguous one first;
/// `None` where its base or a stride is no multiple of `bytes`.
pub fn rows(
    k: &Kernel,
    extents: &[Poly],
    a: &Access,
    (dims, k_major): (&[usize], bool),
    bytes: usize,
) -> Option<MatrixOperand> {
    let Role::Input(number) = k.buffers.get(a.buffer)?.role else { return None };
    let element = k.buffers.get(a.buffer)?.element.dtype().ok()?.byte_size();
    let strides = tensor(extents, a, dims, bytes.div_ceil(element) as i64)?;
    let sizes = dims.iter().map(|d| extents.get(*d).cloned()).collect::<Option<_>>()?;
    let (argument, offset) = (im2col::argument(k, number)?, a.at.constant.clone());
    Some(MatrixOperand {
        buffer: a.buffer,
        argument,
        offset,
        k_major,
        dims: dims.to_vec(),
        batch: vec![],
        sizes,
        strides,
    })
}

/// The strides of all `dims` but the first, if the operand can be copied: the first is contiguous, the
/// base and all other strides are multiples of `unit` elements.
fn tensor(extents: &[Poly], a: &Access, dims: &[usize], unit: i64) -> Option<Vec<Poly>> {
    let units = |p: &Poly| !p.is_zero() && p.multiple_of(unit);
    let near = a.at.coefficient(*dims.first()?).known() == Some(1);
    if !near || !a.at.divisions.is_empty() || !(a.at.constant.is_zero() || units(&a.at.constant)) {
        return None;
    }
    let strides: Vec<Poly> = dims.iter().skip(1).map(|d| a.at.coefficient(*d)).collect();
    // The access has no other dimensions.
    let complete =
        a.at.dims.keys().all(|d| dims.contains(d)) && dims.iter().all(|d| extents.len() > *d);
    (complete && strides.iter().all(units)).then_some(strides)
}
