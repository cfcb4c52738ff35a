//! Stores of tiles and of rows from registers.
use crate::{
    emit::{
        code::Code,
        lanes::{LaneValue, Lanes},
    },
    gpu::lower_tiles::{fragments::Lowered, map::Operands, role::Role},
    strategies::gpu::common::{
        ptx::Ptx,
        score::{Elements, Known},
        threads,
    },
};
use kiln_dialects::{ir::*, ops::*};

/// Values to store, the column of the first one from the thread's first column, and the vector
/// width.
type Vectors = Vec<(Value, Column, usize)>;

/// Where a vector starts.
#[derive(Clone, Copy)]
enum Column {
    /// So many columns behind the thread's first one.
    Own(usize),
    /// Where the lane's vector of 32 columns starts.
    Exchanged(usize),
}

impl Role<'_> {
    pub(super) fn store(&self, c: Code, op: Op) -> Result<()> {
        let o = TileStore::of(op).ok_or_malformed(op)?;
        let (p, thread) = (Ptx(c), self.thread()?);
        let rows = self.rows(*o.positions.first().ok_or("has no rows")?)?;
        let quad = p.rem_const(thread.lane, 4)?;
        let bound = o.bound.map(|v| self.scalar(v));
        for (row, number) in rows.into_iter().enumerate() {
            let there = bound.map(|n| c.compare(CmpIPredicate::Slt, number, n)).transpose()?;
            if let Lowered::Rows(both) = self.materialised(o.value)? {
                // One of the four lanes that share a row stores.
                let all: Vec<Value> = [p.eq_const(quad, 0)?].into_iter().chain(there).collect();
                let mut one = |c: Code| {
                    let at = self.address(c, op, &o, (row, 0), None)?;
                    memref::store(c, both[row], self.scalar(o.memory), &[at])
                };
                c.if_else(c.all_of(&all)?.ok_or("has no condition")?, &mut one, None)?;
                // Reconverge: wgmma needs whole warps.
                p.warp_barrier()?;
                continue;
            }
            let all = self.vectors(p, &o, row, quad)?;
            let mut store = |c: Code| -> Result<()> {
                for (v, column, count) in &all {
                    let at = match column {
                        Column::Own(own) => self.address(c, op, &o, (row, *own), None)?,
                        Column::Exchanged(first) => {
                            let p = Ptx(c);
                            let first = p.add_const(p.mul_const(quad, 8)?, *first)?;
                            self.address(c, op, &o, (row, 0), Some(first))?
                        }
                    };
                    let lanes = Lanes { count: *count, mask: None };
                    let (at, v) = (LaneValue::Strided(at, 1), LaneValue::Vector(*v));
                    lanes.store(c, self.scalar(o.memory), at, v, false)?;
                }
                Ok(())
            };
            match there {
                Some(there) => {
                    c.if_else(there, &mut store, None)?;
                    p.warp_barrier()?;
                }
                None => store(c)?,
            }
        }
        Ok(())
    }

    /// The element of memory at a row and column, or at another first column.
    fn address(
        &self,
        c: Code,
        op: Op,
        o: &TileStore,
        (row, column): (usize, usize),
        first: Option<Value>,
    ) -> Result<Value> {
        let operands = Operands::of(self, op, &o.positions)?.starting_at(first);
        let graph = operands.graph();
        let all = Elements { graph: &graph, leaves: &operands, clamped: false, fast: false };
        let at = *operands.yields()?.first().ok_or("has no address")?;
        all.element(c, &mut Known::new(), at, row, column)
    }

    /// A thread's elements of a row as vectors. Four lanes with adjacent columns of a row exchange
    /// them where each may store 16 bytes.
    fn vectors(&self, p: Ptx, o: &TileStore, row: usize, quad: Value) -> Result<Vectors> {
        let element = o.value.ty().element().ok_or("has no element type")?;
        let pairs: Vec<Value> = match self.lowered(o.value) {
            Lowered::Pairs(all) => all.chunks(2).map(|x| x[row]).collect(),
            _ => {
                let all = self.elements(o.value)?;
                let own = all.chunks(4).map(|x| {
                    vector::from_elements(p, &x[2 * row..][..2], Type::vector(element, 2))
                });
                own.collect::<Result<_>>()?
            }
        };
        let mut all: Vectors = vec![];
        for (four, own) in pairs.chunks(4).enumerate() {
            if own.len() < 4 || o.vector < 8 {
                let place = |i: usize| Column::Own(32 * four + 8 * i);
                all.extend(own.iter().enumerate().map(|(i, v)| (*v, place(i), 2)));
                continue;
            }
            let words = own.iter().map(|v| p.bitcast_i32(*v)).collect::<Result<Vec<_>>>()?;
            let words = threads::transpose_lanes(p.0, words, quad)?;
            all.push((p.bitcast_vector(&words, element)?, Column::Exchanged(32 * four), 8));
        }
        Ok(all)
    }
}
