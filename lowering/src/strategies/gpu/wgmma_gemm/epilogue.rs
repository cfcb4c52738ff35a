//! The epilogue: later stages on the accumulators, and the stores, through shared memory or
//! straight from registers.
use crate::{
    emit::{
        body::Scope,
        code::Code,
        lanes::{LaneValue, Lanes},
    },
    strategies::gpu::{
        common::{fragments::ProductResults, ptx::Ptx, tile::Tile},
        wgmma_gemm::{
            staged_results::StagedResult,
            tile::{TileCoord, WgmmaTile},
        },
    },
};
use kiln_dialects::{ir::*, ops::TileEpilogue};

/// A scope in which the stages keep results of these buffers in registers.
fn without_stores<'a>(scope: &Scope<'a>, buffers: impl Iterator<Item = usize>) -> Scope<'a> {
    let mut memory = scope.memory.clone();
    for b in buffers {
        if let Some(m) = memory.get_mut(b) {
            *m = None;
        }
    }
    Scope { memory, ..scope.clone() }
}

impl WgmmaTile<'_> {
    /// Later stages on the accumulators, and the stores.
    pub(super) fn epilogue(&self, c: Code, coord: &TileCoord, sums: Value) -> Result<()> {
        let ProductResults { scope, nest, .. } = self.results;
        let count = self.product().rights.len();
        let types = vec![self.accumulators(c, self.operand_columns()); count];
        let values = Tile(c).split(sums, &types)?;
        let staged = self.staged_results.iter().map(|(s, _)| s.access.buffer);
        let direct = without_stores(scope, staged);
        let stages = nest.all().filter_map(|s| scope.kernel.stages.get(s));
        let outputs: Vec<usize> =
            stages.flat_map(|s| &s.outputs).map(|o| o.access.buffer).collect();
        let left = outputs.iter().any(|b| direct.memory.get(*b).copied().flatten().is_some());
        if !self.staged_results.is_empty() {
            let none = without_stores(&direct, outputs.into_iter());
            self.stage_results(c, &none, coord, &values)?;
        }
        if left { self.store_fragments(c, &direct, coord, &values) } else { Ok(()) }
    }

    /// An epilogue at a tile, without destinations.
    fn node(&self, c: Code, coord: &TileCoord, values: &[Value]) -> Result<TileEpilogue> {
        let [whole_rows, whole_columns] = self.results.is_full();
        let (rows, columns) = (self.results.rows(c)?, self.results.columns(c)?);
        Ok(TileEpilogue {
            values: values.to_vec(),
            row: coord.row,
            column: coord.column,
            rows: (!whole_rows).then_some(rows),
            columns: (!whole_columns).then_some(columns),
            destinations: vec![],
            outer: vec![],
            vector: self.results.lanes().count as i64,
            aligned: self.results.run(),
        })
    }

    /// Through shared memory.
    fn stage_results(
        &self,
        c: Code,
        scope: &Scope<'_>,
        coord: &TileCoord,
        values: &[Value],
    ) -> Result<()> {
        let (t, lanes, p) = (&self.results, self.results.lanes(), Ptx(c));
        let memory = |s: &StagedResult| t.scope.buffer(s.access.buffer);
        let destinations =
            self.staged_results.iter().map(|(s, map)| map.map_or_else(|| memory(s), Ok));
        let node = TileEpilogue {
            destinations: destinations.collect::<Result<_>>()?,
            outer: coord.batch.iter().map(|b| p.index_to_i32(*b)).collect::<Result<_>>()?,
            ..self.node(c, coord, values)?
        };
        let mut body = |c: Code, x: &[Value]| {
            let passed = t.element(c, scope, lanes, &coord.batch, [x[0], x[1]], &x[2..])?;
            let all = self.staged_results.iter().map(|(s, _)| {
                let found = passed.get(&s.access).ok_or("has a result that no stage computes")?;
                lanes.vector(c, *found)
            });
            all.collect()
        };
        let rows: Vec<&StagedResult> =
            self.staged_results.iter().filter(|(_, map)| map.is_none()).map(|(s, _)| s).collect();
        let mut lines = |c: Code, x: &[Value]| {
            let dims = t.dims(c, &coord.batch, x[0], LaneValue::Uniform(x[1]))?;
            let one = Lanes { count: 1, mask: None };
            let begin =
                |s: &&StagedResult| one.vector(c, t.scope.address(c, &s.access.at, &dims, one)?);
            rows.iter().map(begin).collect()
        };
        match rows.is_empty() {
            true => Tile(c).epilogue(node, &mut body, None),
            false => Tile(c).epilogue(node, &mut body, Some(&mut lines)),
        }
    }

    /// Without shared memory: each thread stores its fragments.
    fn store_fragments(
        &self,
        c: Code,
        scope: &Scope<'_>,
        coord: &TileCoord,
        values: &[Value],
    ) -> Result<()> {
        let node = self.node(c, coord, values)?;
        let (t, lanes) = (&self.results, self.results.lanes());
        let mut body = |c: Code, x: &[Value]| {
            t.element(c, scope, lanes, &coord.batch, [x[0], x[1]], &x[2..])?;
            Ok(vec![])
        };
        Tile(c).epilogue(node, &mut body, None)
    }
}
