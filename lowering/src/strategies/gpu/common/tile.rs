//! Builds the ops of tile programs (`kiln.tile`), which `kiln-lower-tiles` writes as the code of one
//! thread.
use crate::{emit::code::Code, target::launch::SHARED_SPACE};
use kiln_dialects::{
    ir::*,
    ops::{
        FragmentLayout, ReduceKind, TileAcquire, TileBroadcast, TileConvert, TileFirstStage,
        TileIota, TileLocalLoad, TileMma, TileMmaWait, TileNextStage, TilePipeline, TileReduce,
        TileRelease, TileSplit, TileTmaLoad, TileView, TileWait, TileWarpSpecialize, TileZeroRows,
    },
    sym::Dim,
};

/// Emits ops at the insertion point of a [`Code`].
#[derive(Clone, Copy)]
pub struct Tile(pub Code);

/// A region without arguments.
pub type RoleBody<'a> = dyn FnMut(Code) -> Result<()> + 'a;

impl Tile {
    fn effect<N: Node>(self, node: &N) -> Result<()> {
        self.0.0.create_with(node, &[], &mut []).map(drop)
    }
    fn value<N: Node>(self, node: &N, ty: Type) -> Result<Value> {
        Ok(self.0.0.create_with(node, &[ty], &mut [])?.result(0))
    }
    fn shared(element: Type, sizes: &[usize]) -> Type {
        let sizes: Vec<Dim> = sizes.iter().map(|n| Dim::Known(*n as i64)).collect();
        Type::memref_in(element, &sizes, SHARED_SPACE)
    }

    /// A ring of `stages` tiles in shared memory.
    pub fn pipeline(self, element: Type, stages: usize, tile: [usize; 2]) -> Result<Value> {
        let node = TilePipeline { warpgroups: false };
        self.value(&node, Tile::shared(element, &[stages, tile[0], tile[1]]))
    }
    /// A ring of stages of two tiles each. `warpgroups`: one warp of each consumer warpgroup
    /// arrives when it has read a stage, else all do.
    pub fn pipeline_of_two(
        self,
        stages: usize,
        tiles: [(Type, [usize; 2]); 2],
        warpgroups: bool,
    ) -> Result<[Value; 2]> {
        let types = tiles.map(|(element, tile)| Tile::shared(element, &[stages, tile[0], tile[1]]));
        let op = self.0.0.create_with(&TilePipeline { warpgroups }, &types, &mut [])?;
        Ok([op.result(0), op.result(1)])
    }
    /// Runs a producer beside consumer warpgroups. `registers`: those of a producer and of a
    /// consumer thread, if they differ. `prefetch`: tensor maps to fetch first.
    pub fn warp_specialize(
        self,
        consumers: usize,
        registers: Option<(usize, usize)>,
        prefetch: &[Value],
        producer: &mut RoleBody<'_>,
        consumer: &mut RoleBody<'_>,
    ) -> Result<()> {
        let registers = registers.map(|(a, b)| vec![a as i64, b as i64]);
        let (consumers, prefetch) = (consumers as i64, prefetch.to_vec());
        let node = TileWarpSpecialize { consumers, registers, prefetch };
        let role = |body: &mut RoleBody<'_>, b: Builder| {
            body(Code(b))?;
            Tile(Code(b)).end(&[])
        };
        let mut produce = |b: Builder, _: Vec<Value>| role(producer, b);
        let mut consume = |b: Builder, _: Vec<Value>| role(consumer, b);
        let regions: &mut [RegionBody<'_>] = &mut [(&[], &mut produce), (&[], &mut consume)];
        self.0.0.create_with(&node, &[], regions).map(drop)
    }
    pub(super) fn end(self, values: &[Value]) -> Result<()> {
        self.effect(&kiln_dialects::ops::Yield { values: values.to_vec() })
    }

    /// The first stage of a ring.
    pub fn first_stage(self) -> Result<Value> {
        self.value(&TileFirstStage {}, Type::stage(self.0.ctx()))
    }
    /// The stage behind another one.
    pub fn next_stage(self, pipeline: Value, stage: Value) -> Result<Value> {
        self.value(&TileNextStage { pipeline, stage }, stage.ty())
    }
    /// Waits until a stage is empty.
    pub fn acquire(self, pipeline: Value, stage: Value) -> Result<()> {
        self.effect(&TileAcquire { pipeline, stage })
    }
    /// Waits until a stage is full.
    pub fn wait(self, pipeline: Value, stage: Value) -> Result<()> {
        self.effect(&TileWait { pipeline, stage })
    }
    /// States that a consumer has read a stage.
    pub fn release(self, pipeline: Value, stage: Value) -> Result<()> {
        self.effect(&TileRelease { pipeline, stage })
    }
    /// Starts the TMA loads of a tile into a stage, slice by slice.
    pub fn tma_load(
        self,
        map: Value,
        coordinates: Vec<Value>,
        pipeline: Value,
        stage: Value,
    ) -> Result<()> {
        self.tma_load_as(map, coordinates, pipeline, stage, &TmaLoad::default())
    }
    /// The same in another way.
    pub fn tma_load_as(
        self,
        map: Value,
        coordinates: Vec<Value>,
        pipeline: Value,
        stage: Value,
        how: &TmaLoad,
    ) -> Result<()> {
        let part = how.part.map(|(i, n)| vec![i as i64, n as i64]);
        let window = how.window.to_vec();
        let whole = how.whole;
        self.effect(&TileTmaLoad { map, coordinates, window, pipeline, stage, whole, part })
    }
    /// The tile in a stage.
    pub fn view(self, pipeline: Value, stage: Value) -> Result<Value> {
        let element = pipeline.ty().element().ok_or("is no pipeline")?;
        let sizes: Vec<usize> =
            pipeline.ty().dims().iter().filter_map(|d| Some(d.known()? as usize)).collect();
        let tile = sizes.get(1..).ok_or("is no pipeline")?;
        self.value(&TileView { pipeline, stage }, Tile::shared(element, tile))
    }
    /// Writes zeros over the rows of a tile from one on.
    pub fn zero_rows(self, tile: Value, from: Value) -> Result<()> {
        self.effect(&TileZeroRows { tile, from })
    }

    /// Starts a product; `transposed`: whether the right tile is (columns, depth).
    pub fn mma(
        self,
        lhs: Value,
        rhs: Value,
        init: Option<Value>,
        transposed: bool,
        ty: Type,
    ) -> Result<Value> {
        self.mma_transposed(lhs, rhs, init, [false, transposed], ty)
    }
    /// The same where the left tile may be (depth, rows) too.
    pub fn mma_transposed(
        self,
        lhs: Value,
        rhs: Value,
        init: Option<Value>,
        [transposed_lhs, transposed]: [bool; 2],
        ty: Type,
    ) -> Result<Value> {
        self.value(&TileMma { lhs, rhs, init, transposed_lhs, transposed }, ty)
    }
    /// Waits until at most `pending` products are under way; `alive` stays in registers until then.
    pub fn mma_wait(self, pending: usize, values: &[Value], alive: &[Value]) -> Result<Vec<Value>> {
        let types: Vec<Type> = values.iter().map(|v| v.ty()).collect();
        let node =
            TileMmaWait { pending: pending as i64, values: values.to_vec(), alive: alive.to_vec() };
        Ok(self.0.0.create_with(&node, &types, &mut [])?.results())
    }

    /// Reads a tile from shared memory.
    pub fn local_load(self, tile: Value, ty: Type) -> Result<Value> {
        self.value(&TileLocalLoad { tile }, ty)
    }
    /// A tile as adjacent tiles of equally many columns.
    pub fn split(self, input: Value, types: &[Type]) -> Result<Vec<Value>> {
        match types {
            [_] => Ok(vec![input]),
            _ => Ok(self.0.0.create_with(&TileSplit { input }, types, &mut [])?.results()),
        }
    }
    /// Positions from `first` on, none beyond `last`.
    pub fn iota(self, first: Value, last: Option<Value>, ty: Type) -> Result<Value> {
        self.value(&TileIota { first, last }, ty)
    }
    /// A tile whose columns are all these rows.
    pub fn broadcast(self, input: Value, ty: Type) -> Result<Value> {
        self.value(&TileBroadcast { input }, ty)
    }
    /// Reduces along rows.
    pub fn reduce(self, kind: ReduceKind, input: Value, ty: Type) -> Result<Value> {
        self.value(&TileReduce { kind, input }, ty)
    }
    /// 2 to a power, within 2 ulp: of a fragment, or of an element in a body.
    pub fn exp2(self, x: Value) -> Result<Value> {
        math::Exp2::new(self.0, x).fastmath(FastMathFlags::AFN).result()
    }
    /// Another element type or layout.
    pub fn convert(self, input: Value, ty: Type) -> Result<Value> {
        self.value(&TileConvert { input }, ty)
    }
}

/// How TMA loads a tile.
#[derive(Default)]
pub struct TmaLoad {
    /// Offsets in width and height of im2col mode, or none.
    pub window: Vec<Value>,
    /// Whether one load brings all slices.
    pub whole: bool,
    /// Which of so many equal parts of the tile is loaded.
    pub part: Option<(usize, usize)>,
}

/// The types of fragments of `rows` rows.
#[derive(Clone, Copy)]
pub struct Fragments {
    /// Rows of all consumers.
    pub rows: usize,
}

impl Fragments {
    /// As wgmma's result.
    pub fn accumulator(self, element: Type, columns: usize) -> Type {
        Type::fragment(element, &[self.rows, columns], FragmentLayout::Accumulator)
    }
    /// As wgmma's left operand.
    pub fn operand(self, element: Type, columns: usize) -> Type {
        Type::fragment(element, &[self.rows, columns], FragmentLayout::Operand)
    }
    /// An element a row.
    pub fn row(self, element: Type) -> Type {
        Type::fragment(element, &[self.rows], FragmentLayout::Rows)
    }
    /// A part of an element a row, in each lane of the row.
    pub fn partial_row(self, element: Type) -> Type {
        Type::fragment(element, &[self.rows], FragmentLayout::PartialRows)
    }
    /// An element a column, such as its position.
    pub fn columns(self, element: Type, columns: usize) -> Type {
        Type::fragment(element, &[columns], FragmentLayout::Columns)
    }
}
