//! The cost models of the GEMM strategies, for passes on graphs.
use super::{
    mma_gemm,
    prologue::{EXPANDED_COST, RATE, READ_COST},
    skinny_gemm,
    wgmma_gemm::{DEPTH, tiles},
};
use crate::target::{
    Chip,
    costs::{Costs, Gemm, Left, SKINNY_ROWS},
};

fn steps(g: Gemm) -> [i64; 4] {
    [g.batch, g.rows, g.columns, (g.k + DEPTH as i64 - 1) / DEPTH as i64]
}

impl Costs for Chip {
    fn processors(&self) -> i64 {
        tiles::PROCESSORS as i64
    }
    fn block_k(&self) -> i64 {
        DEPTH as i64
    }
    fn tiled_gemm(&self, g: Gemm, left: Left) -> f64 {
        match self {
            Chip::Sm90a => tiles::time(steps(g), left),
            _ => mma_gemm::time(steps(g), left.clocks),
        }
    }
    fn unsplit_gemm(&self, g: Gemm) -> f64 {
        match self {
            Chip::Sm90a => tiles::time_alone(steps(g)),
            _ => mma_gemm::time(steps(g), 0.0),
        }
    }
    fn skinny_gemm(&self, g: Gemm) -> Option<f64> {
        let (many, few) = (g.rows.max(g.columns), g.rows.min(g.columns));
        (few <= SKINNY_ROWS).then(|| skinny_gemm::fastest([g.batch, many, few, g.k], 1, 16).1)
    }
    fn prologue(&self, ops: usize, heavy: usize) -> f64 {
        (READ_COST + (ops - heavy) as f64 + heavy as f64 * EXPANDED_COST) / RATE
    }
}
