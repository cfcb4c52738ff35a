//! Positions, ops of arith and math, reductions and conversions of fragments.
use crate::{
    emit::{code::Code, partials::tree_reduce},
    gpu::lower_tiles::{
        fragments::{Lowered, is_elementwise, place},
        role::Role,
    },
    strategies::gpu::common::{ptx::Ptx, score::scalar_op, threads},
};
use kiln_dialects::{ir::*, ops::*};

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
    /// The thread's rows, or its first column.
    pub(super) fn iota(&self, p: Ptx, op: Op) -> Result<Lowered> {
        let o = TileIota::of(op).ok_or_malformed(op)?;
        let (thread, first) = (self.thread()?, self.scalar(o.first));
        let last = o.last.map(|v| self.scalar(v));
        if op.result(0).ty().fragment_layout() == Some(FragmentLayout::Columns) {
            return Ok(Lowered::Columns(p.add(first, thread.column)?, last));
        }
        self.registers(op.result(0).ty())?;
        let own = p.add(self.group_row(p, op.result(0).ty())?, thread.row)?;
        let row = p.add(first, own)?;
        let there = |row: Value| last.map_or(Ok(row), |last| p.min(row, last));
        Ok(Lowered::Rows([there(row)?, there(p.add_const(row, 8)?)?]))
    }

    pub(super) fn split(&self, op: Op) -> Result<Vec<Lowered>> {
        let parts = op.result_count();
        let (all, blocks) = (self.elements(op.operand(0))?, self.blocks(op.operand(0).ty())?);
        let blocks: Vec<&[Value]> = all.chunks(all.len() / blocks).collect();
        let part = |i: usize| {
            let of = |b: &&[Value]| b[i * b.len() / parts..(i + 1) * b.len() / parts].to_vec();
            Lowered::Elements(blocks.iter().flat_map(of).collect())
        };
        Ok((0..parts).map(part).collect())
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
        let all =
            (0..self.registers(ty)?).map(|i| self.computed(c, op, i)).collect::<Result<_>>()?;
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
        let across = op.result(0).ty().fragment_layout() == Some(FragmentLayout::Rows);
        let mut made = vec![];
        for row in 0..2 {
            let own = match self.lowered(o.input) {
                Lowered::Rows(both) => both[row],
                _ => {
                    let all = self.elements(o.input)?;
                    let own = (0..all.len()).filter(|i| place(*i).0 == row);
                    let own = own.map(|i| vec![all[i]]).collect();
                    tree_reduce(own, &|a, b| Ok(vec![two(a[0], b[0])?]))?[0]
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
