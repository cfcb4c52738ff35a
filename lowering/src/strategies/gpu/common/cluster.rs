//! The CTAs of a cluster that share a row, and the reduction of their results through distributed
//! shared memory.
use crate::{
    emit::{code::Code, partials::CombineFn},
    strategies::gpu::common::ptx::Ptx,
};
use kiln_dialects::ir::*;

/// Bytes of a slot: the widest value that is reduced.
const SLOT: usize = 8;

/// CTAs that share a row.
#[derive(Clone, Copy)]
pub struct RowCluster {
    /// Their number.
    pub count: usize,
    /// The CTA's rank, i32.
    pub rank: Value,
    /// The address of the slots: for each value one for each CTA.
    pub slots: Value,
}

impl RowCluster {
    /// Bytes of the slots of this many values.
    pub fn bytes(count: usize, values: usize) -> usize {
        count * values * SLOT
    }
    /// The cluster with the slots behind those of this many values.
    pub fn after(self, p: Ptx, values: usize) -> Result<RowCluster> {
        let slots = p.add_const(self.slots, RowCluster::bytes(self.count, values))?;
        Ok(RowCluster { slots, ..self })
    }
    /// All-reduce over the cluster's CTAs, in the order of their ranks. `thread`: the index in the
    /// CTA, whose threads all have the CTA's values. Thread i writes them to the slots of CTA i.
    pub fn all_reduce(
        &self,
        c: Code,
        thread: Value,
        values: &[Value],
        combine: &CombineFn<'_>,
    ) -> Result<Vec<Value>> {
        let p = Ptx(c);
        let gives = c.less_than(thread, c.index(self.count as i64)?)?;
        let mut give = |c: Code| -> Result<()> {
            let p = Ptx(c);
            let (to, own) = (p.index_to_i32(thread)?, p.mul_const(self.rank, SLOT)?);
            for (i, v) in values.iter().enumerate() {
                let at = p.add_const(p.add(self.slots, own)?, RowCluster::bytes(self.count, i))?;
                llvm::Store::new(p, *v, p.mapa(at, to)?).build()?;
            }
            Ok(())
        };
        c.if_else(gives, &mut give, None)?;
        p.cluster_barrier()?;
        let of = |rank: usize| -> Result<Vec<Value>> {
            let load = |(i, v): (usize, &Value)| {
                let before = RowCluster::bytes(self.count, i) + rank * SLOT;
                let at = p.pointer(p.add_const(self.slots, before)?)?;
                llvm::Load::new(p, at, v.ty()).result()
            };
            values.iter().enumerate().map(load).collect()
        };
        (1..self.count).try_fold(of(0)?, |all, rank| combine(&all, &of(rank)?))
    }
}
