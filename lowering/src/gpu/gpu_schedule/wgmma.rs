//! Products on Hopper's tensor cores: which kernels are one, what its operands are to the hardware's copy engine, which tile it takes.
use super::{Roles, contraction};
use crate::{
    host::schedule::Schedule,
    kernel::{Access, Body, Init, Kernel, Nest, Plan, Poly, Role},
};
use kiln_dialects::{ir::*, value::DType};

/// Depth of a tile: a row of it is 128 bytes, the widest swizzle of shared memory.
pub const DEPTH: usize = 64;
/// Bytes of shared memory that a block of sm_90 may ask for.
const SHARED: usize = 227 << 10;
/// Most rows or columns of a box of the copy engine.
const BOX: usize = 256;
/// Multiprocessors of an H100 or H200 with SXM.
const PROCESSORS: i64 = 132;
/// What a size is taken for if it depends on the call.
const USUAL: i64 = 2048;
/// Rows, columns, stages, and how much slower than the first an element of the tile is.
const TILES: &[(i64, i64, i64, f64)] = &[(128, 256, 4, 1.0), (128, 128, 6, 1.15), (64, 128, 5, 1.7), (64, 64, 6, 2.2)];

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
    /// The dimensions of the nest, the one side by side first, then the other of the matrix, then the batch.
    pub dims: Vec<usize>,
    /// Distances of neighbours in all of these but the first, in elements.
    pub strides: Vec<Poly>,
}

/// A sum of products of bf16 or of f16 in f32.
#[derive(Clone, Debug)]
pub struct Product {
    /// The nest's dimensions.
    pub roles: Roles,
    /// The operands' element.
    pub element: DType,
    /// Rows by depth.
    pub left: Operand,
    /// Depth by columns.
    pub right: Operand,
}

/// Blocks that consist of one or two groups of warps that multiply, and of one that copies.
pub fn groups(s: &Schedule) -> usize {
    (s.get("m") / 64).min(2)
}

/// Bytes of shared memory of a block: the ring of tiles, its barriers, and what aligning takes.
pub fn shared(s: &Schedule) -> usize {
    (s.get("m") + s.get("n")) * 2 * DEPTH * s.get("stages") + 16 * s.get("stages") + 1024
}

/// Threads of a block, if the schedule is one that can be computed.
pub fn threads(s: &Schedule) -> Result<usize, String> {
    let (m, n, k, stages) = (s.get("m"), s.get("n"), s.get("k"), s.get("stages"));
    let sizes = [64, 128, 256].contains(&m) && n % 64 == 0 && (64..=BOX).contains(&n) && m * n <= 128 * 256;
    if !sizes || k != DEPTH || !(2..=16).contains(&stages) || shared(s) > SHARED {
        let text =
            "m of 64, 128 or 256, n a multiple of 64 up to 256, at most 32768 elements, k = 64, 2 to 16 stages in 227 KiB are possible";
        return Err(format!("has a schedule of m = {m}, n = {n}, k = {k}, stages = {stages}; {text}"));
    }
    Ok(128 * (1 + groups(s)))
}

/// The product that a kernel is, if the copy engine can read both operands: what it wants are 16 bytes at a time, so that the base and all distances
/// but the innermost are multiples of 8 elements. The depth is known and not 0.
pub fn product(k: &Kernel, plan: &Plan) -> Option<Product> {
    let roles = contraction(k, plan)?;
    let ([nest], stage) = (plan.nests.as_slice(), k.stages.get(roles.stage)?) else { return None };
    if roles.rows.len() != 1 || roles.columns.len() != 1 || roles.depth.len() != 1 || roles.batch.len() > 3 {
        return None;
    }
    let ([out], [a, b], Body::Block(block)) = (stage.outputs.as_slice(), stage.inputs.as_slice(), stage.body) else { return None };
    let combine = out.combine.as_ref()?;
    let f32 = |v: Value| v.ty().dtype() == Ok(DType::F32);
    let product = combine.other.def().filter(|p| p.is("arith.mulf") && f32(p.result(0)))?;
    // Each factor is an argument of the body, made wider.
    let args = block.args();
    let factor = |i: usize| product.operand(i).def().filter(|e| e.is("arith.extf")).map(|e| e.operand(0));
    let (x, y) = (factor(0)?, factor(1)?);
    let pair = [*args.first()?, *args.get(1)?];
    if pair != [x, y] && pair != [y, x] {
        return None;
    }
    let element = x.ty().dtype().ok().filter(|d| [DType::BF16, DType::F16].contains(d))?;
    if y.ty().dtype() != Ok(element) || !matches!(out.init, Init::Fill(_) | Init::Load(_)) {
        return None;
    }
    let left = operand(k, nest, a, roles.rows[0], &roles)?;
    let right = operand(k, nest, b, roles.columns[0], &roles)?;
    Some(Product { roles, element, left, right })
}

fn operand(k: &Kernel, nest: &Nest, a: &Access, across: usize, roles: &Roles) -> Option<Operand> {
    let Role::Input(number) = k.buffers.get(a.buffer)?.role else { return None };
    let block = k.func.regions().first().and_then(|r| r.first())?;
    let argument = block.args().iter().take(number).filter(|v| v.ty().is_tensor()).count();
    let eights = |p: &Poly| !p.is_zero() && p.terms().all(|(_, n)| n % 8 == 0);
    let depth = *roles.depth.first()?;
    let deep = a.at.coefficient(depth).known() == Some(1);
    // The first step of the depth is taken without asking whether there is one.
    nest.extents.get(depth)?.known().filter(|n| *n > 0)?;
    let (near, far) = if deep { (depth, across) } else { (across, depth) };
    if a.at.coefficient(near).known() != Some(1) || !a.at.rest.is_empty() || !(a.at.constant.is_zero() || eights(&a.at.constant)) {
        return None;
    }
    let dims: Vec<usize> = [near, far].into_iter().chain(roles.batch.iter().copied()).collect();
    let strides: Vec<Poly> = dims.iter().skip(1).map(|d| a.at.coefficient(*d)).collect();
    // All dimensions of the access are these.
    let complete = a.at.dims.keys().all(|d| dims.contains(d)) && dims.iter().all(|d| nest.extents.len() > *d);
    (complete && strides.iter().all(eights)).then(|| Operand {
        buffer: a.buffer,
        argument,
        offset: a.at.constant.clone(),
        deep,
        dims,
        strides,
    })
}

/// The schedule: of the tiles, the one that is done first when each multiprocessor computes one at a time.
pub fn choose(nest: &Nest, p: &Product) -> Schedule {
    let size = |dims: &[usize]| Poly::product(dims.iter().map(|d| &nest.extents[*d])).known().unwrap_or(USUAL);
    let batch = if p.roles.batch.is_empty() { 1 } else { size(&p.roles.batch) };
    let (rows, columns) = (size(&p.roles.rows), size(&p.roles.columns));
    let up = |a: i64, b: i64| a.max(1) / b + i64::from(a.max(1) % b != 0);
    let time = |(m, n, _, slow): &(i64, i64, i64, f64)| {
        let tiles = batch.max(1).saturating_mul(up(rows, *m)).saturating_mul(up(columns, *n));
        up(tiles, PROCESSORS) as f64 * (m * n) as f64 * slow
    };
    let (m, n, stages, _) = TILES.iter().copied().min_by(|a, b| time(a).total_cmp(&time(b))).unwrap_or(TILES[0]);
    super::choose::make("wgmma", &[("k", DEPTH as i64), ("m", m), ("n", n), ("stages", stages)])
}

/// What the runtime tells the copy engine about both operands: `kiln.tensor_maps`. Each `map` gives the first element, the sizes and the strides.
pub fn maps(k: &Kernel, nest: &Nest, p: &Product, s: &Schedule) -> Result<Attr, String> {
    let c = k.func.ctx();
    let block = k.func.regions().first().and_then(|r| r.first()).ok_or("has no body")?;
    let sizes: Vec<Value> = block.args().into_iter().filter(|a| a.ty().is_index()).collect();
    let one = |o: &Operand, across: usize| -> Result<Attr, String> {
        let all = std::iter::once(&o.offset).chain(o.dims.iter().map(|d| &nest.extents[*d])).chain(&o.strides);
        let map = super::grid::map(
            c,
            &all.map(|p| super::grid::poly(p, &sizes)).collect::<Option<Vec<_>>>().ok_or("has a size that is no map")?,
            sizes.len(),
        )?;
        let mut extent = vec![DEPTH as i64, if o.deep { across as i64 } else { DEPTH as i64 }];
        extent.resize(o.dims.len(), 1);
        let entries = [
            ("argument", Attr::i64(c, o.argument as i64)),
            ("box", Attr::i64s(c, &extent)),
            ("element", Attr::ty(Type::scalar(c, p.element))),
            ("map", map),
        ];
        Ok(Attr::dictionary(c, &entries))
    };
    Ok(Attr::array(c, &[one(&p.left, s.get("m"))?, one(&p.right, s.get("n"))?]))
}
