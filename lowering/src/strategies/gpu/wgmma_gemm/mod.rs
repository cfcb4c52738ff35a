//! Products on Hopper's tensor cores: which kernels are one, what its operands are to the
//! hardware's copy engine, which tile it takes.
pub(crate) mod cluster_reduce;
pub(crate) mod emit;
pub(crate) mod im2col;
pub(crate) mod im2col_load;
pub(crate) mod register_operand;
pub mod split_k;
pub(crate) mod store;
pub(crate) mod stored;
pub(crate) mod tensor_maps;
pub(crate) mod tiles;

use crate::strategies::gpu::wgmma_gemm::im2col::Window;
use crate::{
    analysis::{Access, Kernel, Nest, Plan, Poly, Role, Stage},
    gpu::gpu_schedule::USUAL,
    strategies::{
        cpu::choose::Schedule,
        gpu::{
            common::roles::{Roles, roles_of, sums},
            prologue::Prologue,
        },
    },
};
use kiln_dialects::value::DType;

/// Depth of a tile of 16-bit elements, and columns of a part of any: a row of a tile is 128 bytes,
/// the widest swizzle of shared memory.
pub const DEPTH: usize = 64;
/// Bytes of shared memory that a block of sm_90 may ask for.
pub const SHARED: usize = 227 << 10;
/// Most rows or columns of a box of the copy engine.
const BOX: usize = 256;
/// Bytes of a row of a tile in shared memory.
pub const ROW: usize = 2 * DEPTH;
/// Rows of a result that a warp stores at once.
pub const STORED: usize = 16;

/// An operand: a matrix for each place of the batch, with rows of elements that lie side by side.
#[derive(Clone, Debug)]
pub struct Operand {
    /// The buffer.
    pub buffer: usize,
    /// The kernel's tensor argument, counted without scalars.
    pub argument: usize,
    /// The first element.
    pub offset: Poly,
    /// Whether it is the summed dimension whose elements lie side by side.
    pub deep: bool,
    /// The loops along its dimensions, where each is one.
    pub dims: Vec<usize>,
    /// Its sizes: of what lies side by side, of the other dimension of the matrix, of the batch. Of
    /// images: channels, width, height, images; of the weights of a convolution: channels under all
    /// places of the window, rows; or channels, places, rows where these are no whole steps.
    pub sizes: Vec<Poly>,
    /// Distances of neighbours in all of these but the first, in elements.
    pub strides: Vec<Poly>,
}

impl Operand {
    /// Whether one copy brings all slabs of a tile in which not the depth lies side by side: then
    /// these are a dimension of their own, of which there has to be room among the five that the
    /// copy engine knows, and what lies side by side are whole slabs.
    pub fn at_once(&self, across: usize) -> bool {
        let whole = self.sizes.first().and_then(Poly::known).is_some_and(|n| n % DEPTH as i64 == 0);
        !self.deep && across > DEPTH && whole && self.sizes.len() < 5
    }
    /// The operand with its slabs as a dimension: 64 elements, the depth, slabs, batches.
    fn by_slabs(&self) -> Operand {
        let mut o = self.clone();
        let slabs = o.sizes.first().and_then(Poly::known).unwrap_or_default() / DEPTH as i64;
        o.sizes[0] = Poly::number(DEPTH as i64);
        o.sizes.insert(2, Poly::number(slabs));
        o.strides.insert(1, Poly::number(DEPTH as i64));
        o
    }
}

/// A sum of products of bf16, of f16 or, with factors rounded to tf32, of f32, in f32.
#[derive(Clone, Debug)]
pub struct Product {
    /// The nest's dimensions.
    pub roles: Roles,
    /// The operands' element; of a left one with a prologue, what that is rounded to.
    pub element: DType,
    /// What is computed of the left operand's elements before they are multiplied.
    pub prologue: Option<Prologue>,
    /// Rows by depth.
    pub left: Operand,
    /// Its element in memory.
    pub raw: DType,
    /// Depth by columns: one, or two that are multiplied with the same left one.
    pub rights: Vec<Operand>,
    /// The stages that sum, one for each.
    pub stages: Vec<usize>,
    /// How a convolution reads the left one; its rows are the pixels of all results, one after the
    /// other.
    pub window: Option<Window>,
}

impl Product {
    /// Depth of a tile.
    pub fn depth(&self) -> usize {
        ROW / self.element.byte_size()
    }
    /// How many rows of 128 bytes are one of the left operand's tile.
    pub fn slabs(&self) -> usize {
        self.depth() * self.raw.byte_size() / ROW
    }
    /// Steps of the sum, of one of open size so many as it may have.
    pub fn steps(&self, nest: &Nest) -> i64 {
        let (depth, each) = (
            Poly::product(self.roles.depth.iter().map(|d| &nest.extents[*d])),
            self.depth() as i64,
        );
        let depth = depth.known().unwrap_or(USUAL);
        self.window.as_ref().map_or_else(|| (depth + each - 1) / each, Window::steps)
    }
}

/// Blocks that consist of one or two groups of warps that multiply, and of one that copies.
pub fn groups(s: &Schedule) -> usize {
    (s.get("m") / 64).min(2)
}

/// Bytes of shared memory in which the warps of a block put results together: two places for each.
pub fn staging(groups: usize) -> usize {
    groups * 4 * 2 * STORED * ROW
}

/// Bytes of shared memory of a block: the ring of tiles, results, barriers, and what aligning
/// takes.
fn bytes(m: usize, n: usize, stages: usize, groups: usize) -> usize {
    (m + n) * ROW * stages + staging(groups) + 16 * stages + 1024
}

/// Bytes of shared memory of a block. `slabs`: how many rows of 128 bytes are one of the left tile.
pub fn shared(s: &Schedule, slabs: usize) -> usize {
    bytes(slabs * s.get("m"), s.get("n"), s.get("stages"), groups(s))
        + if s.get("parts") > 1 { split_k::BARRIER } else { 0 }
}

/// Whether registers hold both the sums of a tile and left operands that are computed, of this step
/// and of the next.
fn computes(m: usize, n: usize, resident: usize) -> bool {
    m <= 128 && (resident < 2 || n <= 64)
}

/// Whether a schedule is one for a product with its prologue, if it has one: registers hold what
/// they have to, the ring fits shared memory, and blocks can share the depth if they are to.
pub fn fits(s: &Schedule, nest: &Nest, p: &Product) -> Result<(), String> {
    split_k::fits(s, nest, p)?;
    let (m, n, resident) = (s.get("m"), s.get("n"), s.get("resident"));
    if p.prologue.is_some() && !computes(m, n, resident) {
        return Err(format!(
            "has a schedule of m = {m}, n = {n}, resident = {resident}, but registers hold the computed left operand of at most 128 rows, and beside another \
             block sums of 64 columns"
        ));
    }
    match shared(s, p.slabs()) {
        bytes if bytes > SHARED => {
            Err(format!("has a schedule of {bytes} bytes of shared memory; {SHARED} are possible"))
        }
        _ => Ok(()),
    }
}

/// Threads of a block, if the schedule is one that can be computed.
pub fn threads(s: &Schedule) -> Result<usize, String> {
    let (m, n, k, stages, resident) =
        (s.get("m"), s.get("n"), s.get("k"), s.get("stages"), s.get("resident"));
    let sizes =
        [64, 128, 256].contains(&m) && n % 64 == 0 && (64..=BOX).contains(&n) && m * n <= 128 * 256;
    if !sizes
        || ![DEPTH, DEPTH / 2].contains(&k)
        || !(2..=16).contains(&stages)
        || shared(s, 1) > SHARED
    {
        let text = "m of 64, 128 or 256, n a multiple of 64 up to 256, at most 32768 elements, k = 64 or, of f32, 32, 2 to 16 stages in 227 KiB \
             are possible";
        return Err(format!(
            "has a schedule of m = {m}, n = {n}, k = {k}, stages = {stages}; {text}"
        ));
    }
    if resident > 2 {
        return Err(format!(
            "has a schedule with resident = {resident}; 1 or 2 blocks of a multiprocessor, which go on with further tiles, or 0 for a block per tile, are possible"
        ));
    }
    split_k::possible(s)?;
    Ok(128 * (1 + groups(s)))
}

/// The product that a kernel is, if the copy engine can read both operands: what it wants are 16
/// bytes at a time, so that the base and all distances but the innermost are multiples of these.
/// The depth is not 0. Whether factors of f32 may be rounded is the caller's to ask.
pub fn product(k: &Kernel, plan: &Plan) -> Option<Product> {
    let nest = plan.main()?;
    let Some((stages, roles, element)) = sums(k, nest) else { return computed(k, nest) };
    if roles.columns.len() != 1 || roles.rows.is_empty() || roles.batch.len() > 3 {
        return None;
    }
    let sums: Vec<&Stage> = stages.iter().filter_map(|s| k.stages.get(*s)).collect();
    let a = sums.first()?.inputs.first()?;
    if !sums.iter().all(|s| s.inputs.first() == Some(a)) {
        return None;
    }
    if roles.rows.len() == 1 && roles.depth.len() == 1 {
        let left = operand(k, nest, a, roles.rows[0], &roles)?;
        let rights: Vec<Operand> = sums
            .iter()
            .map(|s| operand(k, nest, s.inputs.get(1)?, roles.columns[0], &roles))
            .collect::<Option<_>>()?;
        let deep = rights[0].deep;
        // Of f32 the instruction takes only what has its depth side by side.
        let fits = element != DType::F32 || (deep && left.deep);
        let fits = fits && rights.iter().all(|r| r.deep == deep);
        return fits.then_some(Product {
            roles,
            element,
            prologue: None,
            left,
            raw: element,
            rights,
            stages,
            window: None,
        });
    }
    let (window, left, right) = im2col::window(k, sums[0])
        .filter(|_| roles.batch.is_empty() && sums.len() == 1 && element != DType::F32)?;
    Some(Product {
        roles,
        element,
        prologue: None,
        left,
        raw: element,
        rights: vec![right],
        stages,
        window: Some(window),
    })
}

/// The same of one whose left operand is computed of what lies in memory, whose depth lies side by
/// side.
fn computed(k: &Kernel, nest: &Nest) -> Option<Product> {
    let [number] = nest.stages.as_slice() else { return None };
    let (stage, roles) = (k.stages.get(*number)?, roles_of(k, nest, *number)?);
    let prologue = Prologue::of(stage)?;
    let raw = prologue.raw(stage)?;
    let ([row], [column], [_]) =
        (roles.rows.as_slice(), roles.columns.as_slice(), roles.depth.as_slice())
    else {
        return None;
    };
    let of = |a: &Access| k.buffers.get(a.buffer)?.element.dtype().ok();
    let element = of(raw).filter(|d| [DType::BF16, DType::F16, DType::F32].contains(d))?;
    // The others are read by threads, from memory, those of rows once and those of columns in each
    // step.
    let both = |a: &Access| a.at.uses(*row) && a.at.uses(roles.depth[0]);
    let read = |i: &usize| {
        stage.inputs.get(*i).is_some_and(|a| {
            a == raw || !both(a) && a.at.rest.is_empty() && !k.pads.contains_key(&a.buffer)
        })
    };
    let left = operand(k, nest, raw, *row, &roles)
        .filter(|o| o.deep && prologue.inputs.iter().all(read))?;
    let right = operand(k, nest, stage.inputs.get(prologue.right)?, *column, &roles)?;
    let fits = roles.batch.len() <= 3 && nest.extents.get(roles.depth[0])?.multiple_of(2);
    let (element, raw, stages) = (prologue.element, element, vec![*number]);
    fits.then_some(Product {
        roles,
        element,
        prologue: Some(prologue),
        left,
        raw,
        rights: vec![right],
        stages,
        window: None,
    })
}

fn operand(k: &Kernel, nest: &Nest, a: &Access, across: usize, roles: &Roles) -> Option<Operand> {
    let depth = *roles.depth.first()?;
    let deep = a.at.coefficient(depth).known() == Some(1);
    // The first step of the depth is taken without asking whether there is one.
    nest.extents.get(depth)?.at_least().filter(|n| *n > 0)?;
    let (near, far) = if deep { (depth, across) } else { (across, depth) };
    let dims: Vec<usize> = [near, far].into_iter().chain(roles.batch.iter().copied()).collect();
    rows(k, &nest.extents, a, &dims, deep)
}

/// An operand over loops of these extents whose access has these dimensions and no others, the one
/// side by side first; `None` where the copy engine could not read it.
pub fn rows(
    k: &Kernel,
    extents: &[Poly],
    a: &Access,
    dims: &[usize],
    deep: bool,
) -> Option<Operand> {
    let Role::Input(number) = k.buffers.get(a.buffer)?.role else { return None };
    let strides = tensor(
        extents,
        a,
        dims,
        16 / k.buffers.get(a.buffer)?.element.dtype().ok()?.byte_size() as i64,
    )?;
    let sizes = dims.iter().map(|d| extents.get(*d).cloned()).collect::<Option<_>>()?;
    let (argument, offset) = (im2col::argument(k, number)?, a.at.constant.clone());
    Some(Operand { buffer: a.buffer, argument, offset, deep, dims: dims.to_vec(), sizes, strides })
}

/// The strides of an access over these dimensions but the first, if it is as the copy engine wants
/// it: the first one side by side and all else `unit` elements apart or a multiple.
fn tensor(extents: &[Poly], a: &Access, dims: &[usize], unit: i64) -> Option<Vec<Poly>> {
    let units = |p: &Poly| !p.is_zero() && p.multiple_of(unit);
    let near = a.at.coefficient(*dims.first()?).known() == Some(1);
    if !near || !a.at.rest.is_empty() || !(a.at.constant.is_zero() || units(&a.at.constant)) {
        return None;
    }
    let strides: Vec<Poly> = dims.iter().skip(1).map(|d| a.at.coefficient(*d)).collect();
    // All dimensions of the access are these.
    let complete =
        a.at.dims.keys().all(|d| dims.contains(d)) && dims.iter().all(|d| extents.len() > *d);
    (complete && strides.iter().all(units)).then_some(strides)
}
