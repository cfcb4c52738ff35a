//! Biases and masks by query and key, which TMA loads tile by tile beside the keys: a thread's own
//! loads would touch eight rows each, for four bytes of a row a lane.
use crate::{
    analysis::{Access, Attention as Stages, Kernel},
    strategies::gpu::wgmma_gemm::{self, MatrixOperand, TMA_BYTES},
};
use kiln_dialects::value::DType;

/// A tensor of which each score takes an element.
#[derive(Clone, Debug)]
pub(crate) struct Bias {
    /// Which input of the masked scores' stage it is.
    pub(super) input: usize,
    /// Its dimensions are those of the stage, keys first, then queries.
    pub(super) operand: MatrixOperand,
    /// Its element type in memory.
    pub(super) element: DType,
}

impl Bias {
    /// Bytes of a tile of so many queries and keys.
    pub(super) fn bytes(&self, queries: usize, keys: usize) -> usize {
        let columns = wgmma_gemm::ROW / self.element.byte_size();
        keys.div_ceil(columns) * wgmma_gemm::ROW * queries
    }
}

/// The biases of an attention whose rows TMA can load.
pub(super) fn of(k: &Kernel, at: &Stages) -> Vec<Bias> {
    let (row, column) = (at.outer, at.outer + 1);
    let Some(stage) = k.stages.get(at.seen) else { return vec![] };
    let scores = k.stages.get(at.scores).and_then(|s| s.outputs.first()).map(|o| &o.access);
    let one = |(input, a): (usize, &Access)| {
        let element = k.buffers.get(a.buffer)?.element.dtype().ok()?;
        let own = Some(a) != scores && a.at.uses(row) && a.at.uses(column);
        let taken = [DType::BF16, DType::F16, DType::F32, DType::I8].contains(&element);
        let around = (0..at.outer).filter(|d| !a.at.coefficient(*d).is_zero());
        let dims: Vec<usize> = [column, row].into_iter().chain(around).collect();
        let operand = wgmma_gemm::rows(k, &stage.extents, a, (&dims, true), TMA_BYTES)
            .filter(|o| own && taken && o.dims.len() <= 5)?;
        Some(Bias { input, operand, element })
    };
    stage.inputs.iter().enumerate().filter_map(one).collect()
}
