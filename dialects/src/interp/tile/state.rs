//! What a run of a tile program holds: the launch, its CTAs, and the roles of a CTA.
use super::{
    elements::Elements,
    memory::{Memory, View},
    ring::{Ring, Stage},
    tensor_map::TensorMap,
};
use crate::{
    error::{OptionExt, Result},
    ir::{Block, Op, Region, Value},
};
use std::{
    collections::{HashMap, VecDeque},
    ops::Range,
    rc::Rc,
};

/// The run-time value of an SSA value.
#[derive(Clone, Debug)]
pub(super) enum Val {
    /// A scalar, a vector or a fragment.
    Elements(Elements),
    /// The result of a product for which no `kiln.tile.mma_wait` has waited, with its number.
    Product(u64, Elements),
    Stage(Stage),
    /// A tile of the stages of a ring.
    Ring(usize, usize),
    /// A tile in a stage.
    Tile(usize, usize, Stage),
    Memory(View),
    /// A tensor map.
    Map(usize),
}

/// The launch.
pub(super) struct Global {
    pub(super) memory: Memory,
    pub(super) maps: Vec<TensorMap>,
    /// CTAs, and those of a cluster.
    pub(super) grid: i64,
    pub(super) cluster: i64,
}

/// What the roles of a CTA share.
pub(super) struct Shared {
    pub(super) block: i64,
    pub(super) rings: Vec<Ring>,
}

/// A product under way.
pub(super) struct OpenProduct {
    pub(super) number: u64,
    /// The rings and stages that it reads.
    pub(super) stages: Vec<(usize, Stage)>,
    /// Its left operand, if that is in registers.
    pub(super) left: Option<Value>,
}

/// Products under way.
#[derive(Default)]
pub(super) struct Products {
    /// The number of the next one.
    pub(super) next: u64,
    pub(super) open: VecDeque<OpenProduct>,
}

impl Products {
    /// Whether one of them reads a stage.
    pub(super) fn read(&self, ring: usize, stage: Stage) -> bool {
        self.open.iter().any(|p| p.stages.contains(&(ring, stage)))
    }
    pub(super) fn is_open(&self, number: u64) -> bool {
        self.open.iter().any(|p| p.number == number)
    }
}

/// What a block belongs to.
#[derive(Clone, Copy)]
pub(super) enum Owner {
    Role,
    /// `scf.for`: the index, the end and the step.
    For(Op, i64, i64, i64),
    If(Op),
    /// The body of a `kiln.tile.cluster_reduce`.
    Sums,
}

/// A block that is under way.
pub(super) struct Activation {
    pub(super) ops: Rc<[Op]>,
    pub(super) next: usize,
    pub(super) owner: Owner,
}

impl Activation {
    pub(super) fn of(block: Block, owner: Owner) -> Activation {
        Activation { ops: block.ops().into(), next: 0, owner }
    }
}

/// A tile that a cluster sums.
pub(super) struct Exchange {
    pub(super) op: Op,
    pub(super) value: Elements,
    pub(super) rank: i64,
}

/// The producer, or the consumers of all warpgroups.
pub(super) struct Role {
    pub(super) producer: bool,
    pub(super) values: HashMap<Value, Val>,
    pub(super) stack: Vec<Activation>,
    pub(super) products: Products,
    /// Rows of the tile that this CTA owns, in the body of a `kiln.tile.cluster_reduce`.
    pub(super) owned: Option<Range<usize>>,
    /// Of a body: which positions run it, if not all do.
    pub(super) active: Option<Rc<[bool]>>,
    /// The op that waits, and for what.
    pub(super) waits: Option<(Op, String)>,
    pub(super) exchange: Option<Exchange>,
}

impl Role {
    pub(super) fn of(producer: bool, values: HashMap<Value, Val>) -> Role {
        Role {
            producer,
            values,
            stack: vec![],
            products: Products::default(),
            owned: None,
            active: None,
            waits: None,
            exchange: None,
        }
    }
}

/// A role with all that it reaches. Each file adds the ops of one kind.
pub(super) struct Unit<'a> {
    pub(super) role: &'a mut Role,
    pub(super) shared: &'a mut Shared,
    pub(super) global: &'a mut Global,
}

impl Unit<'_> {
    pub(super) fn get(&self, v: Value) -> Result<Val> {
        let found = self.role.values.get(&v).cloned();
        found.ok_or_else(|| "uses a value that has not been computed".into())
    }
    pub(super) fn elements(&self, v: Value) -> Result<Elements> {
        match self.get(v)? {
            Val::Elements(e) => Ok(e),
            Val::Product(..) => Err("reads the result of a product that is no result of a \
                                     kiln.tile.mma_wait"
                .into()),
            _ => Err("takes what has no elements".into()),
        }
    }
    pub(super) fn all_elements(&self, all: &[Value]) -> Result<Vec<Elements>> {
        all.iter().map(|v| self.elements(*v)).collect()
    }
    pub(super) fn number(&self, v: Value) -> Result<i64> {
        self.elements(v)?.uniform()
    }
    pub(super) fn numbers(&self, all: &[Value]) -> Result<Vec<i64>> {
        all.iter().map(|v| self.number(*v)).collect()
    }
    pub(super) fn stage(&self, v: Value) -> Result<Stage> {
        match self.get(v)? {
            Val::Stage(s) => Ok(s),
            _ => Err("takes what is no stage".into()),
        }
    }
    pub(super) fn memory(&self, v: Value) -> Result<View> {
        match self.get(v)? {
            Val::Memory(view) => Ok(view),
            _ => Err("takes what is not in global memory".into()),
        }
    }
    /// The number of a ring and of its tile.
    pub(super) fn ring(&self, v: Value) -> Result<(usize, usize)> {
        match self.get(v)? {
            Val::Ring(ring, tile) => Ok((ring, tile)),
            _ => Err("takes what is no pipeline".into()),
        }
    }
    pub(super) fn tile(&self, v: Value) -> Result<(usize, usize, Stage)> {
        match self.get(v)? {
            Val::Tile(ring, tile, stage) => Ok((ring, tile, stage)),
            _ => Err("takes what is no tile in shared memory".into()),
        }
    }
    pub(super) fn ring_mut(&mut self, ring: usize) -> Result<&mut Ring> {
        Ok(self.shared.rings.get_mut(ring).ok_or("takes what is no pipeline")?)
    }
}

/// The block of a region of an op.
pub(super) fn block(op: Op, region: usize) -> Result<Block> {
    op.regions().get(region).copied().and_then(Region::first).ok_or_malformed(op)
}
