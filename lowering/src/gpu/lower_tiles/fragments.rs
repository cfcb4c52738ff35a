//! Tiles in the registers of a thread. Of 8 columns it has 2 adjacent ones, in a row and in the
//! eighth row below.
use crate::{
    emit::code::Code,
    gpu::lower_tiles::{
        rings::{Shared, Stage},
        role::Role,
    },
    strategies::gpu::common::{ptx::Ptx, score::scalar_op, threads},
};
use kiln_dialects::{ir::*, ops::*};

/// What a value of a tile program became.
#[derive(Clone)]
pub(super) enum Lowered {
    Scalar(Value),
    Stage(Stage),
    Shared(Shared),
    /// The result of a product that may be under way, as a structure.
    Pending(Value),
    /// Elements of an accumulator: of each 8 columns both of the first row, then of the second.
    Elements(Vec<Value>),
    /// The same, as pairs of 16-bit floats.
    Pairs(Vec<Value>),
    /// A left operand: of each 16 columns, both rows of the first 8, then of the second.
    Operand(Vec<Value>),
    Rows([Value; 2]),
    /// A tile whose columns are all these rows.
    Broadcast([Value; 2]),
    /// A fragment of equal elements.
    Splat(Value),
    /// An op on fragments that is computed where its only user is, element by element.
    Deferred(Op),
    /// The first column, and the last one if the tile may go beyond.
    Columns(Value, Option<Value>),
}

impl Lowered {
    /// Its registers, where a loop carries it.
    pub(super) fn flat(&self) -> Vec<Value> {
        match self {
            Lowered::Scalar(v) | Lowered::Pending(v) => vec![*v],
            Lowered::Stage(s) => vec![s.index, s.parity],
            Lowered::Shared(s) => vec![s.address],
            Lowered::Elements(all) | Lowered::Pairs(all) | Lowered::Operand(all) => all.clone(),
            Lowered::Rows(both) | Lowered::Broadcast(both) => both.to_vec(),
            Lowered::Splat(v) => vec![*v],
            Lowered::Deferred(_) => vec![],
            Lowered::Columns(first, last) => [*first].into_iter().chain(*last).collect(),
        }
    }
    /// Values like these, with other registers.
    pub(super) fn like(these: &[Lowered], flat: &[Value]) -> Result<Vec<Lowered>> {
        let mut rest = flat;
        these
            .iter()
            .map(|old| {
                let (own, more) =
                    rest.split_at_checked(old.flat().len()).ok_or("carries too few values")?;
                rest = more;
                Ok(match old {
                    Lowered::Scalar(_) => Lowered::Scalar(own[0]),
                    Lowered::Pending(_) => Lowered::Pending(own[0]),
                    Lowered::Stage(_) => Lowered::Stage(Stage { index: own[0], parity: own[1] }),
                    Lowered::Shared(s) => Lowered::Shared(Shared { address: own[0], ..*s }),
                    Lowered::Elements(_) => Lowered::Elements(own.to_vec()),
                    Lowered::Pairs(_) => Lowered::Pairs(own.to_vec()),
                    Lowered::Operand(_) => Lowered::Operand(own.to_vec()),
                    Lowered::Rows(_) => Lowered::Rows([own[0], own[1]]),
                    Lowered::Broadcast(_) => Lowered::Broadcast([own[0], own[1]]),
                    Lowered::Splat(_) => Lowered::Splat(own[0]),
                    Lowered::Deferred(op) => Lowered::Deferred(*op),
                    Lowered::Columns(..) => Lowered::Columns(own[0], own.get(1).copied()),
                })
            })
            .collect()
    }
}

/// Row and column, from the thread's first ones, of element `i` of an accumulator.
pub(super) fn place(i: usize) -> (usize, usize) {
    (i / 2 % 2, i / 4 * 8 + i % 2)
}

/// The registers of an accumulator's type.
pub(super) fn registers(ty: Type) -> Result<usize> {
    let columns = ty.dims().last().and_then(|d| d.known()).ok_or("is no tile in registers")?;
    Ok(columns as usize / 2)
}

/// Whether an op is one of arith or math on fragments.
pub(super) fn is_elementwise(op: Op) -> bool {
    let fragment = op.result_count() == 1 && op.result(0).ty().fragment_layout().is_some();
    fragment && op.kind().is_none()
}

/// Whether an op's only user is one on fragments of the same layout, with no other op between that
/// may have to stay in front of it.
fn is_deferred(op: Op) -> bool {
    let layout = op.result(0).ty().fragment_layout();
    let uses = op.result(0).uses();
    let [(user, _)] = uses.as_slice() else { return false };
    let moves = |o: &Op| is_elementwise(*o) || o.kind() == Some(OpKind::TileBroadcast);
    let mut between = std::iter::successors(op.next(), |o| o.next()).take_while(|o| o != user);
    is_elementwise(*user)
        && user.result(0).ty().fragment_layout() == layout
        && user.block() == op.block()
        && between.all(|o| moves(&o))
}

impl Role<'_> {
    pub(super) fn elements(&self, v: Value) -> Result<Vec<Value>> {
        match self.materialised(v)? {
            Lowered::Elements(all) => Ok(all),
            _ => Err("takes what is no tile of elements".into()),
        }
    }
    /// A fragment with its registers.
    pub(super) fn materialised(&self, v: Value) -> Result<Lowered> {
        let ty = v.ty();
        Ok(match (self.lowered(v), ty.fragment_layout()) {
            (Lowered::Splat(v), Some(FragmentLayout::Accumulator)) => {
                Lowered::Elements(vec![v; registers(ty)?])
            }
            (Lowered::Splat(v), _) => Lowered::Rows([v; 2]),
            (Lowered::Broadcast(both), _) => {
                Lowered::Elements((0..registers(ty)?).map(|i| both[place(i).0]).collect())
            }
            (other, _) => other,
        })
    }
    pub(super) fn rows(&self, v: Value) -> Result<[Value; 2]> {
        match self.materialised(v)? {
            Lowered::Rows(both) => Ok(both),
            _ => Err("takes what has no rows".into()),
        }
    }

    /// The thread's rows, or its first column.
    pub(super) fn iota(&self, p: Ptx, op: Op) -> Result<Lowered> {
        let o = TileIota::of(op).ok_or_malformed(op)?;
        let (thread, first) = (self.thread()?, self.scalar(o.first));
        let last = o.last.map(|v| self.scalar(v));
        if op.result(0).ty().fragment_layout() == Some(FragmentLayout::Columns) {
            return Ok(Lowered::Columns(p.add(first, thread.column)?, last));
        }
        let row = p.add(first, thread.row)?;
        let there = |row: Value| last.map_or(Ok(row), |last| p.min(row, last));
        Ok(Lowered::Rows([there(row)?, there(p.add_const(row, 8)?)?]))
    }

    pub(super) fn broadcast(&self, op: Op) -> Result<Lowered> {
        self.rows(op.operand(0)).map(Lowered::Broadcast)
    }

    /// An op of arith or math on fragments. Chains of them are computed element by element, which
    /// keeps few registers alive.
    pub(super) fn elementwise(&self, c: Code, op: Op) -> Result<Lowered> {
        if is_deferred(op) {
            return Ok(Lowered::Deferred(op));
        }
        let ty = op.result(0).ty();
        if ty.fragment_layout() != Some(FragmentLayout::Accumulator) {
            return Ok(Lowered::Rows([self.computed(c, op, 0)?, self.computed(c, op, 1)?]));
        }
        let all = (0..registers(ty)?).map(|i| self.computed(c, op, i)).collect::<Result<_>>()?;
        Ok(Lowered::Elements(all))
    }
    fn computed(&self, c: Code, op: Op, i: usize) -> Result<Value> {
        let operands: Vec<Value> =
            op.operands().iter().map(|v| self.register(c, *v, i)).collect::<Result<_>>()?;
        scalar_op(Code(c.0.at(op.loc())), op, &operands, false)
    }
    /// Register `i` of a fragment.
    fn register(&self, c: Code, v: Value, i: usize) -> Result<Value> {
        let found = match self.lowered(v) {
            Lowered::Deferred(op) => return self.computed(c, op, i),
            Lowered::Splat(v) => Some(v),
            Lowered::Broadcast(both) => both.get(place(i).0).copied(),
            Lowered::Rows(both) => both.get(i).copied(),
            Lowered::Elements(all) => all.get(i).copied(),
            _ => None,
        };
        found.ok_or_else(|| "takes what has no such element".into())
    }

    /// Reduces a thread's elements of each row pairwise, then over the four lanes of the row.
    pub(super) fn reduce(&self, c: Code, op: Op) -> Result<Lowered> {
        let o = TileReduce::of(op).ok_or_malformed(op)?;
        let two = |a: Value, b: Value| match o.kind {
            ReduceKind::Max => arith::maxnumf(c, a, b),
            _ => arith::addf(c, a, b),
        };
        let tree = |mut all: Vec<Value>| -> Result<Value> {
            while all.len() > 1 {
                let pair = |x: &[Value]| if let [a, b] = x { two(*a, *b) } else { Ok(x[0]) };
                all = all.chunks(2).map(pair).collect::<Result<_>>()?;
            }
            all.first().copied().ok_or_else(|| "has no columns".into())
        };
        let across = op.result(0).ty().fragment_layout() == Some(FragmentLayout::Rows);
        let mut made = vec![];
        for row in 0..2 {
            let own = match self.lowered(o.input) {
                Lowered::Rows(both) => both[row],
                _ => {
                    let all = self.elements(o.input)?;
                    let own = (0..all.len()).filter(|i| place(*i).0 == row);
                    tree(own.map(|i| all[i]).collect())?
                }
            };
            made.push(if across { threads::butterfly(c, own, 4, &two)? } else { own });
        }
        Ok(Lowered::Rows([made[0], made[1]]))
    }

    pub(super) fn convert(&self, p: Ptx, op: Op) -> Result<Lowered> {
        if let Lowered::Rows(both) = self.lowered(op.operand(0)) {
            return Ok(Lowered::Rows(both));
        }
        let (all, ty) = (self.elements(op.operand(0))?, op.result(0).ty());
        let element = ty.element().ok_or("has no element type")?;
        if ty.fragment_layout() == Some(FragmentLayout::Operand) {
            let dtype = element.dtype()?;
            let pairs = all.chunks(2).map(|x| p.pack_pair(dtype, x[0], x[1]));
            return Ok(Lowered::Operand(pairs.collect::<Result<_>>()?));
        }
        let pairs = all.chunks(2).map(|x| {
            let both = vector::from_elements(p, x, Type::vector(p.f32(), 2))?;
            arith::truncf(p, both, Type::vector(element, 2))
        });
        Ok(Lowered::Pairs(pairs.collect::<Result<_>>()?))
    }
}
