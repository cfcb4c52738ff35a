//! The code of a producer or of a consumer: op by op, in the order of the program.
use crate::{
    emit::{
        code::{self, Code},
        index::PART,
    },
    gpu::lower_tiles::{
        fragments::{Lowered, is_elementwise},
        rings::{Rings, Stage},
        thread::Thread,
    },
    strategies::gpu::common::ptx::Ptx,
};
use kiln_dialects::{ir::*, ops::*};
use std::collections::HashMap;

/// The code of a producer or of a consumer, as it is written.
pub(super) struct Role<'a> {
    pub(super) rings: &'a Rings,
    /// Consumer warpgroups.
    pub(super) consumers: usize,
    /// The consumer thread; `None` of the producer.
    pub(super) thread: Option<Thread>,
    /// What tiles, fragments, stages and cloned values became.
    pub(super) values: HashMap<Value, Lowered>,
}

impl Role<'_> {
    pub(super) fn thread(&self) -> Result<Thread> {
        Ok(self.thread.ok_or("is an op of consumers")?)
    }
    pub(super) fn lowered(&self, v: Value) -> Lowered {
        self.values.get(&v).cloned().unwrap_or(Lowered::Scalar(v))
    }
    pub(super) fn scalar(&self, v: Value) -> Value {
        if let Some(Lowered::Scalar(v)) = self.values.get(&v) { *v } else { v }
    }
    fn stage(&self, v: Value) -> Result<Stage> {
        match self.lowered(v) {
            Lowered::Stage(s) => Ok(s),
            _ => Err("takes what is no stage".into()),
        }
    }
    fn set(&mut self, op: Op, made: Vec<Lowered>) {
        self.values.extend(op.results().into_iter().zip(made));
    }

    /// Writes the ops of a block; returns what its terminator takes.
    pub(super) fn block(&mut self, c: Code, block: Block) -> Result<Vec<Lowered>> {
        for op in block.ops() {
            let c = Code(c.0.at(op.loc()));
            if op.kind() == Some(OpKind::Yield) || op.isa::<scf::Yield>() {
                return op.operands().into_iter().map(|v| self.materialised(v)).collect();
            }
            self.op(c, op).at(op)?;
        }
        Err("has a block without a terminator".into())
    }

    fn op(&mut self, c: Code, op: Op) -> Result<()> {
        match op.kind() {
            Some(kind) => {
                let made = self.tile_op(c, op, kind)?;
                self.set(op, made);
                Ok(())
            }
            None if op.isa::<scf::For>() => self.for_loop(c, op),
            None if is_elementwise(op) => {
                // Constants are known from the start.
                if !op.isa::<arith::Constant>() {
                    let made = self.elementwise(c, op)?;
                    self.set(op, vec![made]);
                }
                Ok(())
            }
            None if op.isa::<scf::If>() && op.result_count() == 0 => self.branch(c, op),
            None => {
                let tile = |v: &Value| !matches!(self.lowered(*v), Lowered::Scalar(_));
                let inside = |o: Op| o.kind().is_some() || o.operands().iter().any(tile);
                if walk(op).into_iter().any(inside) {
                    return Err("takes tiles, which only loops and branches may".into());
                }
                let new = clone(c, op, &|v| self.scalar(v))?;
                self.set(op, new.results().into_iter().map(Lowered::Scalar).collect());
                Ok(())
            }
        }
    }

    /// Writes a body of scalars, given its arguments; returns what it yields.
    pub(super) fn inlined(&self, c: Code, block: Block, args: &[Value]) -> Result<Vec<Value>> {
        self.inlined_but(c, block, args, &[])
    }
    /// The same where results of some ops are `given`.
    pub(super) fn inlined_but(
        &self,
        c: Code,
        block: Block,
        args: &[Value],
        given: &[(Value, Value)],
    ) -> Result<Vec<Value>> {
        let arguments = block.args().into_iter().zip(args.iter().copied());
        let mut known: HashMap<Value, Value> = arguments.chain(given.iter().copied()).collect();
        let is_given = |op: Op| given.iter().any(|(v, _)| v.def() == Some(op));
        for op in block.ops().into_iter().filter(|op| !is_given(*op)) {
            let of = |v: Value| known.get(&v).copied().unwrap_or_else(|| self.scalar(v));
            if op.kind() == Some(OpKind::Yield) {
                return Ok(op.operands().into_iter().map(of).collect());
            }
            let new = clone(Code(c.0.at(op.loc())), op, &of)?;
            known.extend(op.results().into_iter().zip(new.results()));
        }
        Err("has a block without a terminator".into())
    }

    fn for_loop(&mut self, c: Code, op: Op) -> Result<()> {
        let operands = op.operands();
        let (bounds, inits) = operands.split_at_checked(3).ok_or("has no bounds")?;
        let bounds: Vec<Value> = bounds.iter().map(|v| self.scalar(*v)).collect();
        let inits: Vec<Lowered> =
            inits.iter().map(|v| self.materialised(*v)).collect::<Result<_>>()?;
        let body = op.regions().first().and_then(|r| r.first()).ok_or("has no body")?;
        let args = body.args();
        let flat: Vec<Value> = inits.iter().flat_map(Lowered::flat).collect();
        let done = c.for_dynamic_step(bounds[0], bounds[1], bounds[2], &flat, &mut |c, i, x| {
            self.values.insert(args[0], Lowered::Scalar(i));
            self.values.extend(args[1..].iter().copied().zip(Lowered::like(&inits, x)?));
            let next = self.block(c, body)?;
            Ok(next.iter().flat_map(Lowered::flat).collect())
        })?;
        code::unroll_like(op, &done);
        self.set(op, Lowered::like(&inits, &done)?);
        Ok(())
    }

    fn branch(&mut self, c: Code, op: Op) -> Result<()> {
        let regions = op.regions();
        let [then, other] = [0, 1].map(|i| regions.get(i).and_then(|r| r.first()));
        let then = then.ok_or("has no then region")?;
        let condition = self.scalar(op.operand(0));
        if other.is_some() {
            return Err("has an else region".into());
        }
        c.if_else(condition, &mut |c| self.block(c, then).map(drop), None)
    }

    fn tile_op(&mut self, c: Code, op: Op, kind: OpKind) -> Result<Vec<Lowered>> {
        let p = Ptx(c);
        let ring = || self.rings.get(op.operand(0));
        let stage = || self.stage(op.operand(1));
        Ok(match kind {
            // All stages are empty at first.
            OpKind::TileFirstStage => {
                let parity = usize::from(self.thread.is_none());
                vec![Lowered::Stage(Stage { index: p.number(0)?, parity: p.number(parity)? })]
            }
            OpKind::TileNextStage => {
                let s = stage()?;
                let [index, parity] = p.next_stage(s.index, s.parity, ring()?.stages)?;
                vec![Lowered::Stage(Stage { index, parity })]
            }
            OpKind::TileAcquire => {
                self.rings.acquire(p, ring()?, stage()?)?;
                vec![]
            }
            OpKind::TileWait => {
                let s = stage()?;
                p.mbarrier_wait(self.rings.full(p, ring()?, s.index)?, s.parity)?;
                vec![]
            }
            OpKind::TileRelease => {
                let (at, ring, thread) = (stage()?.index, ring()?, self.thread()?);
                let one = if ring.warpgroups { thread.leader } else { thread.elected };
                let mut arrive = |c| Ptx(c).mbarrier_arrive(self.rings.empty(Ptx(c), ring, at)?);
                c.if_else(one, &mut arrive, None)?;
                vec![]
            }
            OpKind::TileTmaLoad => {
                let o = TileTmaLoad::of(op).ok_or_malformed(op)?;
                let scalars = |all: &[Value]| all.iter().map(|v| self.scalar(*v)).collect();
                let (at, window): (Vec<Value>, Vec<Value>) =
                    (scalars(&o.coordinates), scalars(&o.window));
                let (map, stage) = (self.scalar(o.map), self.stage(o.stage)?);
                self.rings.load(p, &o, map, stage, &at, &window)?;
                vec![]
            }
            OpKind::TileView => {
                vec![Lowered::Shared(self.rings.tile(p, op.operand(0), stage()?.index)?)]
            }
            OpKind::TileZeroRows => {
                let (thread, from) = (self.thread()?, self.scalar(op.operand(1)));
                match self.lowered(op.operand(0)) {
                    Lowered::Shared(tile) => tile.zero_rows(c, from, thread)?,
                    _ => return Err("zeroes what is no tile".into()),
                }
                vec![]
            }
            OpKind::TileMma => vec![self.mma(p, op)?],
            OpKind::TileMmaWait => self.mma_wait(p, op)?,
            OpKind::TileIota => vec![self.iota(p, op)?],
            OpKind::TileBroadcast => vec![self.broadcast(op)?],
            OpKind::TileMap => self.map(c, op)?,
            OpKind::TileReduce => vec![self.reduce(c, op)?],
            OpKind::TileConvert => vec![self.convert(p, op)?],
            OpKind::TileStore => {
                self.store(c, op)?;
                vec![]
            }
            OpKind::TileLocalLoad => vec![self.local_load(p, op)?],
            OpKind::TileLoad => vec![self.load(c, op)?],
            OpKind::TileSplit => self.split(op)?,
            OpKind::TileClusterReduce => {
                self.cluster_reduce(c, op)?;
                vec![]
            }
            OpKind::TileEpilogue => {
                self.epilogue(c, op)?;
                vec![]
            }
            _ => return Err("is in no tile program".into()),
        })
    }
}

/// Clones an op; an address that is part of another one stays without uses.
pub(super) fn clone(c: Code, op: Op, of: &dyn Fn(Value) -> Value) -> Result<Op> {
    let new = c.0.clone_op(op, of)?;
    let affine = op.isa::<affine::AffineApply>() || op.isa::<affine::AffineMin>();
    if affine && op.result(0).uses().is_empty() {
        new.set_attr(PART, Attr::unit(c.ctx()));
    }
    Ok(new)
}
