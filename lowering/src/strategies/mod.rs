//! Kernel strategies: how a kernel is computed, for processors and GPUs.
//!
//! A strategy is a folder: it says which kernels it computes ([`Strategy::matches`]), with which
//! parameters and at which cost, what a launch needs ([`Strategy::launch`]), which other parameters
//! autotuning tries ([`Strategy::candidates`]), and it emits the kernel ([`Strategy::emit`]).
//! [`table::STRATEGIES`] has a row for each. `docs/write-a-strategy.md` shows one.
pub mod cpu;
pub mod gpu;
mod launch;
mod parameters;
mod request;
pub mod table;

use kiln_dialects::{
    Result,
    ir::{Op, Type, Value},
};
pub use kiln_macros::Parameters;
pub use launch::Launch;
pub use parameters::{
    Domain, ParameterRow, ParameterValue, Parameters, SCHEDULE, read as read_parameters,
};
pub use request::{
    Analysed, Analysis, Bf16, CTA_SCRATCH, Cpu, Gpu, Machine, Match, Nesting, Request,
};

use crate::{
    analysis::{Kernel, NestPlan},
    emit::{body::Scope, code::Code},
};

/// The kind of machine that a strategy is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// Processors.
    Cpu,
    /// NVIDIA GPUs.
    Gpu,
}

/// What a strategy emits into: the body of the kernel's new function.
pub struct Emission<'a, 'k> {
    /// Where to write.
    pub c: Code,
    /// The kernel's buffers, sizes and scalars as SSA values.
    pub scope: &'a Scope<'k>,
    /// The kernel's loop nests.
    pub plan: &'a NestPlan,
    /// Arguments behind the kernel's own: on a processor the thread's number and the number of
    /// threads, on a GPU the TMA descriptors.
    pub arguments: &'a [Value],
}

/// How a kind of kernel is computed on a kind of machine.
pub trait Strategy: 'static {
    /// The parameters in `#kiln.schedule<"NAME", {…}>`.
    type Params: Parameters;
    /// The name in schedules; one a device.
    const NAME: &'static str;
    /// What it is for.
    const DEVICE: Device;
    /// One sentence on what it computes, for tables.
    const SUMMARY: &'static str;
    /// The nests that it sees.
    const NESTING: Nesting;
    /// Why a kernel whose schedule names this strategy cannot have it.
    const MISMATCH: &'static str = "computes nothing of this kind";
    /// Whether matches state a cost, by which neighbouring rows of the table compete.
    const COMPETES: bool = false;
    /// Libraries that have the same kernels, such as cuBLASLt.
    const LIBRARIES: &'static [&'static str] = &[];

    /// Whether it computes the kernel, and with which parameters. Reads, decides, changes nothing.
    fn matches(request: &Request<'_>) -> Match<Self::Params>;
    /// Why it does not compute a kernel that looks made for it, for a remark.
    fn refusal(_kernel: &Kernel) -> Option<String> {
        None
    }
    /// What a launch needs, if the kernel can be computed with these parameters.
    ///
    /// # Errors
    /// Parameters that are each in their domain and do not fit the kernel or each other.
    fn launch(_request: &Request<'_>, _params: &Self::Params) -> Result<Launch> {
        Ok(Launch::default())
    }
    /// Types of the arguments that [`Emission::arguments`] has on a GPU.
    fn arguments(_func: Op) -> Result<Vec<Type>> {
        Ok(vec![])
    }
    /// Copies of the scratch of a row that a CTA has.
    fn scratch_copies(_params: &Self::Params) -> i64 {
        1
    }
    /// Parameters near these that autotuning tries. Some may not fit the kernel.
    fn candidates(_params: &Self::Params) -> Vec<Self::Params> {
        vec![]
    }
    /// Emits the kernel.
    fn emit(e: &Emission<'_, '_>, params: &Self::Params) -> Result<()>;
}

/// These parameters with single ones doubled and halved, where that is in their domain.
pub fn doubled_and_halved<P: Parameters>(params: &P, names: &[&str]) -> Vec<P> {
    let mut all = vec![];
    for name in names {
        let Some(v) =
            P::ROWS.iter().zip(params.values()).find(|(r, _)| r.name == *name).map(|(_, v)| v)
        else {
            continue;
        };
        if v > 0 {
            all.extend(params.with(&[(name, 2 * v)]));
            if v % 2 == 0 {
                all.extend(params.with(&[(name, v / 2)]));
            }
        }
    }
    all
}
