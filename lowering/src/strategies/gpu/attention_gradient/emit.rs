//! The kernel's tile program: `kiln-lower-tiles` writes it as the code of one thread.
use crate::{
    analysis::Poly,
    emit::{body::Scope, code::Code},
    strategies::gpu::{
        attention::ROWS,
        attention_gradient::{GradientPattern, Params},
        common::{
            ptx::Ptx,
            tile::{Fragments, Tile},
        },
    },
};
use kiln_dialects::ir::*;

/// Registers of a producer and of a consumer thread (setmaxnreg), by consumer warpgroups.
const REGISTERS: [Option<(usize, usize)>; 3] = [None, Some((24, 240)), Some((32, 160))];

/// What all parts of the emission share.
pub(super) struct Gradient<'a> {
    pub(super) scope: &'a Scope<'a>,
    pub(super) pattern: &'a GradientPattern,
    /// Tensor maps of the two operands that stay, and of the two that are streamed.
    pub(super) maps: [[Value; 2]; 2],
    /// The tiles that stay, two a stage.
    pub(super) rows_ring: [Value; 2],
    /// The pipeline of the streamed tiles, two a stage.
    pub(super) columns_ring: [Value; 2],
    /// Rows, and columns, of a tile of scores.
    pub(super) rows: usize,
    pub(super) block: usize,
    /// Whether the tiles that stay are in registers.
    pub(super) in_registers: bool,
    /// Whether the products of a tile's weights overlap the next tile.
    pub(super) overlaps: bool,
    /// Sizes of the outer loops that a tile of rows has, and of those that it sums over.
    pub(super) kept_sizes: Vec<Value>,
    pub(super) summed_sizes: Vec<Value>,
    /// The outer loops that it sums over.
    pub(super) summed: Vec<usize>,
    /// The numbers of rows and of columns, as 32-bit integers.
    pub(super) row_count: Value,
    pub(super) column_count: Value,
    /// Row tiles of an outer position, and in total.
    pub(super) tiles_per_outer: Value,
    pub(super) tiles: Value,
    /// Whether rows, and columns, may end within a tile.
    pub(super) partial_tiles: [bool; 2],
}

impl Gradient<'_> {
    /// Types of fragments of a tile's rows.
    pub(super) fn fragments(&self) -> Fragments {
        Fragments { rows: self.rows }
    }
    pub(super) fn by_keys(&self) -> bool {
        self.pattern.at.by_keys()
    }
}

/// Emits the kernel's tile program. `maps`: the tensor maps of what stays and of what is streamed.
pub(super) fn emit(c: Code, scope: &Scope<'_>, params: &Params, maps: &[Value]) -> Result<()> {
    let missing = "is no derivative of attention that wgmma and TMA take";
    let pattern = GradientPattern::of(scope.kernel).ok_or(missing)?;
    let [a, b, x, y] =
        <[Value; 4]>::try_from(maps).map_err(|_| "has no parameters for four tensor maps")?;
    let (kept, rows, columns) = pattern.sizes(scope.kernel).ok_or("has no loops")?;
    let (outer, ..) = pattern.at.sizes(scope.kernel).ok_or("has no loops")?;
    let (high, block) = (params.warpgroups * ROWS, params.block);
    let even = |p: &Poly, by: usize| !p.is_zero() && p.multiple_of(by as i64);
    let summed: Vec<usize> =
        (0..pattern.at.outer).filter(|d| !pattern.at.kept.contains(d)).collect();
    let sizes = |all: &mut dyn Iterator<Item = &Poly>| -> Result<Vec<Value>> {
        all.map(|n| scope.poly(c, n)).collect()
    };
    let kept_sizes = sizes(&mut kept.iter())?;
    let summed_sizes = sizes(&mut summed.iter().map(|d| &outer[*d]))?;
    let p = Ptx(c);
    // Known sizes are constants, which fold.
    let narrow = |size: &Poly| match size.known() {
        Some(n) => p.constant(n),
        None => p.index_to_i32(scope.poly(c, size)?),
    };
    let down = c.ceil_div(scope.poly(c, &rows)?, c.index(high as i64)?)?;
    let total = kept_sizes.iter().try_fold(down, |a, b| c.mul(a, *b))?;
    let element = Type::scalar(c.ctx(), pattern.element);
    let ring = |stages: usize, rows: usize| {
        let tiles = pattern.widths().map(|columns| (element, [rows, columns]));
        Tile(c).pipeline_of_two(stages, tiles, true)
    };
    let g = Gradient {
        scope,
        pattern: &pattern,
        maps: [[a, b], [x, y]],
        rows_ring: ring(1, high)?,
        columns_ring: ring(params.stages, block)?,
        rows: high,
        block,
        in_registers: params.registers == 1,
        overlaps: params.overlap == 1,
        kept_sizes,
        summed_sizes,
        summed,
        row_count: narrow(&rows)?,
        column_count: narrow(&columns)?,
        tiles_per_outer: down,
        tiles: total,
        partial_tiles: [!even(&rows, high), !even(&columns, block)],
    };
    let registers = *REGISTERS.get(params.warpgroups - 1).ok_or(missing)?;
    let (produce, consume) = (&mut |c| g.produce(c), &mut |c| g.consume(c));
    Tile(c).warp_specialize(params.warpgroups, registers, maps, produce, consume)
}
