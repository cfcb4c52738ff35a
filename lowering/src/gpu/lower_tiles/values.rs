//! The registers of a consumer thread: how many it has of a tile, and what they hold.
use crate::{
    gpu::lower_tiles::{
        fragments::{Lowered, place, registers},
        role::Role,
        thread::ROWS,
    },
    strategies::gpu::common::ptx::Ptx,
};
use kiln_dialects::{ir::*, ops::FragmentLayout};

impl Role<'_> {
    /// Blocks of 64 rows of a warpgroup in a tile.
    pub(super) fn blocks(&self, ty: Type) -> Result<usize> {
        let rows = ty.dims().first().and_then(|d| d.known()).unwrap_or(0) as usize;
        match rows.checked_div(ROWS * self.consumers) {
            Some(n) if n * ROWS * self.consumers == rows && n > 0 => Ok(n),
            _ => Err(format!("has {rows} rows for {} warpgroups", self.consumers).into()),
        }
    }
    /// The registers of a tile of which a warpgroup has 64 rows.
    pub(super) fn registers(&self, ty: Type) -> Result<usize> {
        match self.blocks(ty)? {
            1 => registers(ty),
            _ => Err("has more than 64 rows of a warpgroup".into()),
        }
    }
    /// The warpgroup's first row of a tile.
    pub(super) fn group_row(&self, p: Ptx, ty: Type) -> Result<Value> {
        p.mul_const(self.thread()?.group, ROWS * self.blocks(ty)?)
    }
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
                Lowered::Elements(vec![v; self.registers(ty)?])
            }
            (Lowered::Splat(v), _) => Lowered::Rows([v; 2]),
            (Lowered::Broadcast(both), _) => {
                Lowered::Elements((0..self.registers(ty)?).map(|i| both[place(i).0]).collect())
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
}
