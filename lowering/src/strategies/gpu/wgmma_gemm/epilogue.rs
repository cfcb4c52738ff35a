//! The epilogue: later stages on the accumulators, and the stores, through shared memory or
//! straight from registers.
use crate::{
    emit::{body::Scope, code::Code},
    strategies::gpu::{
        common::{
            fragments::{ProductResults, WarpFragment},
            ptx::Ptx,
        },
        wgmma_gemm::{
            staged_results::StagedResult,
            store::without_stores,
            tile::{Fragments, WgmmaTile},
        },
    },
};
use kiln_dialects::ir::*;

impl WgmmaTile<'_> {
    /// The epilogue: later stages on the accumulators, and the stores.
    pub(super) fn finish(&self, c: Code, f: &Fragments<'_>) -> Result<()> {
        let results: Vec<StagedResult> =
            self.staged_results.iter().map(|(s, _)| s.clone()).collect();
        let ProductResults { scope, nest, .. } = self.results;
        let direct = without_stores(scope, &results);
        let stages = || nest.all().filter_map(|s| scope.kernel.stages.get(s));
        let left = stages()
            .flat_map(|s| &s.outputs)
            .any(|o| direct.memory.get(o.access.buffer).copied().flatten().is_some());
        if !results.is_empty() {
            let outputs: Vec<usize> =
                stages().flat_map(|s| &s.outputs).map(|o| o.access.buffer).collect();
            let mut none = without_stores(scope, &results);
            outputs.into_iter().for_each(|b| none.memory[b] = None);
            self.store(c, &none, f)?;
        }
        if left { self.store_fragments(c, &direct, f) } else { Ok(()) }
    }

    /// The epilogue without shared memory: each thread stores its fragments.
    fn store_fragments(&self, c: Code, scope: &Scope<'_>, f: &Fragments<'_>) -> Result<()> {
        let p = Ptx(c);
        let lane = p.rem_const(f.thread, 32)?;
        let mine = p.add(
            self.warpgroup_row(p, f.warpgroup)?,
            p.add(p.mul_const(p.rem_const(f.warp, 4)?, 16)?, p.div_const(lane, 4)?)?,
        )?;
        let at = [
            p.i32_to_index(p.add(f.coord.row, mine)?)?,
            p.i32_to_index(p.add(f.coord.column, p.mul_const(p.rem_const(lane, 4)?, 2)?)?)?,
        ];
        self.results.store(
            c,
            scope,
            &WarpFragment { batch: &f.coord.batch, at, row_stride: 64, values: &f.values },
        )
    }
}
