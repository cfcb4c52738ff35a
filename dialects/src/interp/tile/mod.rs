//! Kernels that are tile programs (`kiln.tile`), on the processor.
//!
//! A launch runs one cluster of its grid after another. In a CTA the producer and the consumers run
//! in turn, each until it waits for a stage. The consumers of all warpgroups run as one, since a
//! fragment has the rows of all of them. Each op rounds its result to its dtype, but for products
//! and sums along rows, which round their sum.
//!
//! What a GPU would answer with wrong numbers or never is an error at an op: a stage that is read
//! without a wait, released twice or while a product reads it, a product that is read before a wait
//! for it or whose operand is not alive until then, roles that wait for each other, a box stored
//! beyond its bounds. What nothing has written is NaN.
//!
//! Shared memory has no addresses here, so that neither its size nor the layout of registers
//! matters; `kiln-lower-tiles` checks these.
mod cluster;
mod elements;
mod elementwise;
mod epilogue;
mod expressions;
mod floats;
mod fragments;
mod integers;
mod maps;
mod memory;
mod products;
mod ring;
mod role;
mod state;
mod tensor_map;
mod tiles;
mod upstream;

use self::{
    cluster::Cta,
    elements::Elements,
    memory::{Memory, View},
    ring::Ring,
    state::{Activation, Global, Owner, Role, Shared, Unit, Val, block},
    tensor_map::TensorMap,
};
use crate::{
    error::{Error, OptionExt, Result, ResultExt},
    ir::{Attr, Node as _, Op, Value, blocks, func, walk},
    ops::{OpKind, TileWarpSpecialize},
    value::Tensor,
};
use std::{collections::HashMap, rc::Rc};

/// Multiprocessors of the machine that a launch is for. A grid of persistent CTAs has as many as
/// they hold, so that each CTA takes several tiles.
const MULTIPROCESSORS: i64 = 2;

/// Whether a kernel is a tile program: its module, or its function.
pub(super) fn is_tile_program(kernel: Op) -> bool {
    walk(kernel).into_iter().any(|op| op.kind() == Some(OpKind::TileWarpSpecialize))
}

/// Whether a module has kernels, and all are tile programs.
pub fn has_tile_programs_only(module: Op) -> bool {
    let all = blocks(module).into_iter().flat_map(|b| b.ops());
    let kernels: Vec<Op> = all.filter(|o| o.attr("kiln.kernel").is_some()).collect();
    !kernels.is_empty() && kernels.into_iter().all(is_tile_program)
}

/// Runs a kernel on its inputs and sizes; returns the memory of its results, which are its memrefs
/// behind the inputs.
///
/// # Errors
/// An op is not supported, or the program is wrong, with the op's location.
pub(super) fn launch(func: Op, inputs: &[Rc<Tensor>], sizes: &[i64]) -> Result<Vec<Tensor>> {
    let (mut memory, body) = (Memory::default(), block(func, 0)?);
    let stated = func.attr("arg_attrs").and_then(Attr::as_array).unwrap_or_default();
    let (mut tensors, mut values): (Vec<View>, _) = (vec![], HashMap::new());
    let (mut numbers, mut maps) = (sizes.iter(), 0);
    for (i, v) in body.args().into_iter().enumerate() {
        let value = if v.ty().is_memref() {
            let view = match inputs.get(tensors.len()) {
                Some(t) => memory.tensor(t),
                None => {
                    let all = stated.get(i).and_then(|a| a.entry("kiln.sizes")?.as_i64s());
                    result(&mut memory, v, &all.ok_or_malformed(func)?, sizes).at(func)?
                }
            };
            tensors.push(view.clone());
            Val::Memory(view)
        } else if v.ty().is_index() {
            let n = numbers.next().ok_or_at(func, "is launched with too few sizes")?;
            Val::Elements(Elements::index(*n))
        } else {
            maps += 1;
            Val::Map(maps - 1)
        };
        values.insert(v, value);
    }
    let results = tensors.get(inputs.len()..).unwrap_or_default().to_vec();
    let stated = func.attr("kiln.tensor_maps").and_then(Attr::as_array).unwrap_or_default();
    if stated.len() != maps {
        let text = format!("takes {maps} tensor maps, but states {}", stated.len());
        return Err(Error::at(func, text));
    }
    let maps = stated.into_iter().map(|a| TensorMap::of(a, sizes, &tensors));
    let maps = maps.collect::<Result<_>>().at(func)?;
    let number = |name: &str| func.attr(name).and_then(Attr::as_i64);
    let cluster = number("kiln.cluster").unwrap_or(1).max(1);
    let mut grid = grid(func, sizes).at(func)?;
    if let Some(each) = number("kiln.persistent").filter(|n| *n > 0) {
        grid = grid.min(each.saturating_mul(MULTIPROCESSORS).max(cluster) / cluster * cluster);
    }
    if grid % cluster != 0 {
        return Err(Error::at(func, format!("has {grid} CTAs in clusters of {cluster}")));
    }
    let mut global = Global { memory, maps, grid, cluster };
    for first in (0..grid).step_by(cluster as usize) {
        let blocks = first..first + cluster;
        let ctas = blocks.map(|block| cta(&mut global, func, block, values.clone()));
        let mut ctas: Vec<Cta> = ctas.collect::<Result<_>>()?;
        cluster::run(&mut global, &mut ctas)?;
        for cta in &ctas {
            let left = cta.shared.rings.iter().find_map(Ring::left_over);
            if let Some(stage) = left {
                let text = format!("ends while stage {stage} is filled and not released");
                return Err(Error::at(func, text));
            }
        }
    }
    results.iter().map(|view| global.memory.value(view)).collect()
}

/// The memory of a result. A negative size is a parameter's number.
fn result(memory: &mut Memory, v: Value, stated: &[i64], sizes: &[i64]) -> Result<View> {
    let size = |n: &i64| match usize::try_from(-n - 1) {
        Ok(i) => sizes.get(i).copied(),
        Err(_) => Some(*n),
    };
    let all: Option<Vec<i64>> = stated.iter().map(size).collect();
    let dtype = v.ty().element().ok_or("has no element type")?.dtype()?;
    memory.unwritten(dtype, &all.ok_or("has a size that is no parameter")?)
}

/// The CTAs that a kernel asks for.
fn grid(func: Op, sizes: &[i64]) -> Result<i64> {
    let Some((_, exprs)) = func.attr("kiln.grid").and_then(Attr::as_affine_map) else {
        return Ok(1);
    };
    let sizes: Vec<Elements> = sizes.iter().map(|n| Elements::index(*n)).collect();
    let first = exprs.first().ok_or("has an empty grid")?;
    expressions::evaluate(first, &[], &sizes)?.uniform()
}

/// A CTA at the beginning of its roles.
fn cta(global: &mut Global, func: Op, at: i64, values: HashMap<Value, Val>) -> Result<Cta> {
    let mut shared = Shared { block: at, rings: vec![] };
    let mut role = Role::of(false, values);
    let mut program = None;
    for op in block(func, 0)?.ops() {
        if op.kind() == Some(OpKind::TilePipeline) {
            let ring = shared.rings.len();
            shared.rings.push(Ring::of(op).at(op)?);
            let tiles = op.results().into_iter().enumerate();
            role.values.extend(tiles.map(|(tile, v)| (v, Val::Ring(ring, tile))));
        } else if op.kind() == Some(OpKind::TileWarpSpecialize) {
            if program.replace(op).is_some() {
                return Err(Error::at(op, "is a second tile program"));
            }
        } else if !op.isa::<func::Return>() {
            let made = Unit { role: &mut role, shared: &mut shared, global }.upstream(op).at(op)?;
            role.values.extend(op.results().into_iter().zip(made));
        }
    }
    let program = program.ok_or_at(func, "is no tile program")?;
    TileWarpSpecialize::of(program).ok_or_malformed(program)?;
    let begin = |region: usize| -> Result<Role> {
        let mut role = Role::of(region == 0, role.values.clone());
        role.stack.push(Activation::of(block(program, region)?, Owner::Role));
        Ok(role)
    };
    Ok(Cta { roles: [begin(0)?, begin(1)?], shared })
}
