//! The ops of tile programs by kind, and those of rings.
use super::{
    elementwise,
    ring::Stage,
    state::{Unit, Val},
};
use crate::{
    error::{OptionExt, Result},
    ir::{Node as _, Op},
    ops::{OpKind, TileTmaLoad, TileZeroRows},
    value::Data,
};

/// The results of an op, or what it waits for.
pub(super) type Outcome = std::result::Result<Vec<Val>, String>;

impl Unit<'_> {
    pub(super) fn tile_op(&mut self, op: Op, kind: OpKind) -> Result<Outcome> {
        let one = |v: Val| Ok(Ok(vec![v]));
        match kind {
            OpKind::TileFirstStage => one(Val::Stage(Stage { index: 0, round: 0 })),
            OpKind::TileNextStage => {
                let ((ring, _), stage) = (self.ring(op.operand(0))?, self.stage(op.operand(1))?);
                one(Val::Stage(self.ring_mut(ring)?.next(stage)))
            }
            OpKind::TileView => {
                let ((ring, tile), stage) = (self.ring(op.operand(0))?, self.stage(op.operand(1))?);
                one(Val::Tile(ring, tile, stage))
            }
            OpKind::TileAcquire | OpKind::TileTmaLoad if !self.role.producer => {
                Err("is an op of the producer".into())
            }
            OpKind::TileAcquire => {
                let ((ring, _), stage) = (self.ring(op.operand(0))?, self.stage(op.operand(1))?);
                Ok(self.ring_mut(ring)?.acquire(stage)?.map(|()| vec![]))
            }
            OpKind::TileTmaLoad => self.tma_load(op).map(|()| Ok(vec![])),
            _ if self.role.producer => Err("is an op of the consumers".into()),
            OpKind::TileWait => {
                let ((ring, _), stage) = (self.ring(op.operand(0))?, self.stage(op.operand(1))?);
                Ok(self.ring_mut(ring)?.wait(stage)?.map(|()| vec![]))
            }
            OpKind::TileRelease => {
                let ((ring, _), stage) = (self.ring(op.operand(0))?, self.stage(op.operand(1))?);
                self.unread(ring, stage, "releases")?;
                self.ring_mut(ring)?.release(stage).map(|()| Ok(vec![]))
            }
            OpKind::TileZeroRows => {
                let o = TileZeroRows::of(op).ok_or_malformed(op)?;
                let ((ring, tile, stage), from) = (self.tile(o.tile)?, self.number(o.from)?);
                self.unread(ring, stage, "writes")?;
                let from = usize::try_from(from).map_err(|_| "has a negative row")?;
                self.ring_mut(ring)?.zero_rows(stage, tile, from).map(|()| Ok(vec![]))
            }
            OpKind::TileMma => one(self.mma(op)?),
            OpKind::TileMmaWait => self.mma_wait(op).map(Ok),
            OpKind::TileIota => one(self.iota(op)?),
            OpKind::TileBroadcast => one(self.broadcast(op)?),
            OpKind::TileReduce => one(self.reduce(op)?),
            OpKind::TileConvert => one(self.convert(op)?),
            OpKind::TileSplit => self.split(op).map(Ok),
            OpKind::TileLocalLoad => one(self.local_load(op)?),
            OpKind::TileMap => self.map(op).map(Ok),
            OpKind::TileLoad => one(self.load_columns(op)?),
            OpKind::TileStore => self.store(op).map(|()| Ok(vec![])),
            OpKind::TileEpilogue => self.epilogue(op).map(|()| Ok(vec![])),
            OpKind::TileClusterReduce => self.offer(op).map(Err),
            _ => Err(elementwise::unknown()),
        }
    }
    /// Checks that no product under way reads a stage.
    fn unread(&self, ring: usize, stage: Stage, what: &str) -> Result<()> {
        match self.role.products.read(ring, stage) {
            true => {
                Err(format!("{what} stage {}, which a product under way reads", stage.index).into())
            }
            false => Ok(()),
        }
    }

    /// Loads a tile, a slice at a time. TMA may have done it when the op that starts it ends, and
    /// no program can tell.
    fn tma_load(&mut self, op: Op) -> Result<()> {
        let o = TileTmaLoad::of(op).ok_or_malformed(op)?;
        let Val::Map(map) = self.get(o.map)? else { return Err("takes what is no map".into()) };
        let (at, window) = (self.numbers(&o.coordinates)?, self.numbers(&o.window)?);
        let ((ring, tile), stage) = (self.ring(o.pipeline)?, self.stage(o.stage)?);
        let form = *self.ring_mut(ring)?.tiles.get(tile).ok_or("takes what is no tile")?;
        let [part, parts] = match o.part.as_deref() {
            Some([i, n]) => [*i, *n].map(|n| n as usize),
            _ => [0, 1],
        };
        let map = self.global.maps.get(map).ok_or("takes what is no map")?;
        if map.extent[0] != form.slice as i64 || map.dtype != form.dtype {
            return Err(format!(
                "has a map of {} in rows of {}, but the tile's rows are {} {} wide",
                map.dtype, map.extent[0], form.slice, form.dtype
            )
            .into());
        }
        let all = form.columns.div_ceil(form.slice);
        let begin = part * form.rows * form.slice * all / parts;
        for slice in 0..if o.whole { 1 } else { (all / parts).max(1) } {
            let mut corner = at.clone();
            if let Some(first) = corner.first_mut() {
                *first = first.wrapping_add((slice * form.slice) as i64);
            }
            let places = map.places(&corner, &window)?;
            let mut loaded = match self.global.memory.read(&map.view, &places)? {
                Data::F(all) => all,
                // Eight bits.
                Data::I(all) => all.into_iter().map(|i| i as f64).collect(),
            };
            if map.tf32 {
                loaded.iter_mut().for_each(|x| *x = super::tensor_map::tf32(*x));
            }
            let from = begin + slice * form.rows * form.slice;
            let to = self.shared.rings.get_mut(ring).ok_or("takes what is no pipeline")?;
            to.fill(stage, tile, from, &loaded)?;
        }
        Ok(())
    }
}
