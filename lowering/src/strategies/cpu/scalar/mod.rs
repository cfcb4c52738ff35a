//! Scalar code without vectorisation: the baseline for comparisons.

use crate::strategies::{
    Device, Emission, Match, Nesting, Parameters, Request, Strategy,
    cpu::common::tasks::{LoopParams, independent, rows},
};
use kiln_dialects::Result;

/// Any kernel, scalar. No cost model chooses it.
pub struct Scalar;

/// How iterations are divided.
#[derive(Clone, Debug, Parameters)]
pub struct Params {
    /// Iterations of a task
    #[parameter(Between(1, 1 << 30))]
    pub block: usize,
}

impl Strategy for Scalar {
    type Params = Params;
    const NAME: &'static str = "scalar";
    const DEVICE: Device = Device::Cpu;
    const SUMMARY: &'static str = "Any kernel without vectors; only where a schedule asks for it";
    const NESTING: Nesting = Nesting::CPU;

    fn matches(_: &Request<'_>) -> Match<Params> {
        Match::No
    }
    fn emit(e: &Emission<'_, '_>, params: &Params) -> Result<()> {
        let loops =
            LoopParams { block: params.block, tasks: 1, unroll: 1, ..LoopParams::default() };
        let threads = e.threads()?;
        match e.plan.dependent {
            true => rows(e.c, e.scope, e.plan, &loops, threads),
            false => e
                .plan
                .nests
                .iter()
                .try_for_each(|n| independent(e.c, e.scope, e.plan, n, &loops, threads)),
        }
    }
}
