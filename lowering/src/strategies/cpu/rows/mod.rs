//! Row fusion: each row goes through all stages while it is in the cache, such as a softmax or a
//! norm.

use crate::{
    analysis::Poly,
    strategies::{
        Device, Emission, Match, Nesting, Parameters, Request, Strategy,
        cpu::common::{
            MIN_TASK_ELEMENTS,
            tasks::{LoopParams, rows},
            unroll,
        },
    },
};
use kiln_dialects::Result;

/// Dependent stages that share rows.
pub struct Rows;

/// How rows are divided.
#[derive(Clone, Debug, Parameters)]
pub struct Params {
    /// Width of a vector register in bits
    #[parameter(OneOf(&[128, 256, 512]))]
    pub bits: usize,
    /// Rows of a task
    #[parameter(Between(1, 1 << 20))]
    pub block: usize,
    /// Vectors of one step of the innermost loop
    #[parameter(Between(1, 16))]
    pub unroll: usize,
}

impl Strategy for Rows {
    type Params = Params;
    const NAME: &'static str = "rows";
    const DEVICE: Device = Device::Cpu;
    const SUMMARY: &'static str = "Stages that depend on each other, one row after the other";
    const NESTING: Nesting = Nesting::CPU;
    const MISMATCH: &'static str = "has no rows that its stages share";

    fn matches(r: &Request<'_>) -> Match<Params> {
        let params = || {
            let bits = r.cpu().ok().filter(|_| r.plan.dependent)?.bits as usize;
            let row = |n: &crate::analysis::Nest| Poly::product(&n.extents[r.plan.rows..]).known();
            let row: Option<i64> = r.plan.nests.iter().map(row).sum();
            let block = row.map_or(1, |w| (MIN_TASK_ELEMENTS / w.max(1)).clamp(1, 1024)) as usize;
            Some(Params { bits, block, unroll: unroll(r.kernel, r.plan) })
        };
        Match::first(params())
    }
    fn candidates(params: &Params) -> Vec<Params> {
        crate::strategies::doubled_and_halved(params, &["block", "unroll"])
    }
    fn emit(e: &Emission<'_, '_>, params: &Params) -> Result<()> {
        if !e.plan.dependent {
            return Err(Self::MISMATCH.into());
        }
        let Params { bits, block, unroll } = *params;
        let loops = LoopParams { bits, block, unroll, ..LoopParams::default() };
        rows(e.c, e.scope, e.plan, &loops, e.threads()?)
    }
}
