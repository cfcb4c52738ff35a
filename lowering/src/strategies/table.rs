//! The strategy table: one row a strategy, in the order in which they are asked.
use super::{
    Analysis, Device, Emission, Launch, Machine, Match, Nesting, ParameterRow, Parameters, Request,
    SCHEDULE, Strategy, cpu, gpu, read_parameters,
};
use crate::analysis::Kernel;
use kiln_dialects::{
    Error, Result,
    error::{OptionExt, ResultExt},
    ir::{Attr, Op, Type},
};
use kiln_passes::names;
use std::marker::PhantomData;

/// Every strategy. Of one device, the first that matches is taken; neighbours that state a cost
/// compete by it.
pub static STRATEGIES: &[&dyn Row] = &[
    &StrategyRow::<cpu::attention::Attention>::ROW,
    &StrategyRow::<cpu::rows::Rows>::ROW,
    &StrategyRow::<cpu::blocked_gemm::BlockedGemm>::ROW,
    &StrategyRow::<cpu::blocked_gemm::DotGemm>::ROW,
    &StrategyRow::<cpu::blocked_gemm::AmxGemm>::ROW,
    &StrategyRow::<cpu::contraction::Contraction>::ROW,
    &StrategyRow::<cpu::transpose::Transpose>::ROW,
    &StrategyRow::<cpu::elementwise::Reduction>::ROW,
    &StrategyRow::<cpu::elementwise::Elementwise>::ROW,
    &StrategyRow::<cpu::scalar::Scalar>::ROW,
    &StrategyRow::<gpu::split_attention::SplitAttention>::ROW,
    &StrategyRow::<gpu::attention::Attention>::ROW,
    &StrategyRow::<gpu::attention_gradient::AttentionGradient>::ROW,
    &StrategyRow::<gpu::stockham::Stockham>::ROW,
    &StrategyRow::<gpu::scan::Scan>::ROW,
    &StrategyRow::<gpu::scatter_reduction::ScatterReduction>::ROW,
    &StrategyRow::<gpu::register_rows::RegisterRows>::ROW,
    &StrategyRow::<gpu::wgmma_gemm::WgmmaGemm>::ROW,
    &StrategyRow::<gpu::skinny_gemm::SkinnyGemm>::ROW,
    &StrategyRow::<gpu::mma_gemm::MmaGemm>::ROW,
    &StrategyRow::<gpu::rows::Rows>::ROW,
    &StrategyRow::<gpu::depthwise::Depthwise>::ROW,
    &StrategyRow::<gpu::depthwise_gradient::DepthwiseGradient>::ROW,
    &StrategyRow::<gpu::simt_gemm::SimtGemm>::ROW,
    &StrategyRow::<gpu::naive_contraction::NaiveContraction>::ROW,
    &StrategyRow::<gpu::column_reduction::ColumnReduction>::ROW,
    &StrategyRow::<gpu::rows::RowReduction>::ROW,
    &StrategyRow::<gpu::transpose::Transpose>::ROW,
    &StrategyRow::<gpu::elementwise::Elementwise>::ROW,
];

/// A strategy with its parameters as an attribute.
pub trait Row: Sync {
    /// The name in schedules.
    fn name(&self) -> &'static str;
    /// What it is for.
    fn device(&self) -> Device;
    /// One sentence.
    fn summary(&self) -> &'static str;
    /// The parameters.
    fn parameters(&self) -> &'static [ParameterRow];
    /// The nests that it sees.
    fn nesting(&self) -> Nesting;
    /// Why a kernel whose schedule names this strategy cannot have it.
    fn mismatch(&self) -> &'static str;
    /// Libraries that have the same kernels.
    fn libraries(&self) -> &'static [&'static str];
    /// Whether it states a cost.
    fn competes(&self) -> bool;
    /// [`Strategy::matches`].
    fn matches(&self, request: &Request<'_>) -> Match<Attr>;
    /// [`Strategy::refusal`].
    fn refusal(&self, kernel: &Kernel) -> Option<String>;
    /// [`Strategy::launch`] with the parameters of a schedule.
    fn launch(&self, request: &Request<'_>, schedule: Attr) -> Result<Launch>;
    /// [`Strategy::arguments`].
    fn arguments(&self, func: Op) -> Result<Vec<Type>>;
    /// [`Strategy::scratch_copies`].
    fn scratch_copies(&self, func: Op, schedule: Attr) -> Result<i64>;
    /// [`Strategy::candidates`].
    fn candidates(&self, func: Op, schedule: Attr) -> Result<Vec<Attr>>;
    /// [`Strategy::emit`].
    fn emit(&self, e: &Emission<'_, '_>, schedule: Attr) -> Result<()>;
}

/// A row of a strategy.
struct StrategyRow<S>(PhantomData<fn() -> S>);

impl<S: Strategy> StrategyRow<S> {
    const ROW: StrategyRow<S> = StrategyRow(PhantomData);
}

impl<S: Strategy> Row for StrategyRow<S> {
    fn name(&self) -> &'static str {
        S::NAME
    }
    fn device(&self) -> Device {
        S::DEVICE
    }
    fn summary(&self) -> &'static str {
        S::SUMMARY
    }
    fn parameters(&self) -> &'static [ParameterRow] {
        S::Params::ROWS
    }
    fn nesting(&self) -> Nesting {
        S::NESTING
    }
    fn mismatch(&self) -> &'static str {
        S::MISMATCH
    }
    fn libraries(&self) -> &'static [&'static str] {
        S::LIBRARIES
    }
    fn competes(&self) -> bool {
        S::COMPETES
    }
    fn matches(&self, request: &Request<'_>) -> Match<Attr> {
        let c = request.kernel.func.ctx();
        match S::matches(request) {
            Match::No => Match::No,
            Match::Yes { params, cost } => Match::Yes { params: params.attr(c, S::NAME), cost },
        }
    }
    fn refusal(&self, kernel: &Kernel) -> Option<String> {
        S::refusal(kernel)
    }
    fn launch(&self, request: &Request<'_>, schedule: Attr) -> Result<Launch> {
        let func = request.kernel.func;
        let params = read_parameters(func, S::NAME, schedule)?;
        S::launch(request, &params).at(func)
    }
    fn arguments(&self, func: Op) -> Result<Vec<Type>> {
        S::arguments(func)
    }
    fn scratch_copies(&self, func: Op, schedule: Attr) -> Result<i64> {
        Ok(S::scratch_copies(&read_parameters(func, S::NAME, schedule)?))
    }
    fn candidates(&self, func: Op, schedule: Attr) -> Result<Vec<Attr>> {
        let params = read_parameters(func, S::NAME, schedule)?;
        let mut all: Vec<Attr> =
            S::candidates(&params).iter().map(|p| p.attr(func.ctx(), S::NAME)).collect();
        all.retain(|a| a.to_string() != schedule.to_string());
        Ok(all)
    }
    fn emit(&self, e: &Emission<'_, '_>, schedule: Attr) -> Result<()> {
        let params = read_parameters(e.scope.kernel.func, S::NAME, schedule);
        S::emit(e, &params.map_err(|f| f.message)?)
    }
}

/// The row of a name on a device.
///
/// # Errors
/// An unknown name, with the nearest one.
pub fn find(name: &str, device: Device) -> Result<&'static dyn Row> {
    let all = || STRATEGIES.iter().filter(|r| r.device() == device);
    Ok(all().find(|r| r.name() == name).copied().ok_or_else(|| {
        let hint = names::hint(name, all().map(|r| r.name()));
        let list: Vec<_> = all().map(|r| r.name()).collect();
        format!("has unknown schedule '{name}'{hint} (schedules: {})", list.join(", "))
    })?)
}

/// The strategy of the schedule on a function, and the schedule.
///
/// # Errors
/// There is none, or no strategy has its name.
pub fn scheduled(func: Op, device: Device) -> Result<(&'static dyn Row, Attr)> {
    let attr = func.attr(SCHEDULE).filter(|a| a.as_schedule().is_some());
    let attr = attr.ok_or_at(func, "has no #kiln.schedule")?;
    let name = attr.as_schedule().map(|(name, _)| name).unwrap_or_default();
    Ok((find(&name, device).at(func)?, attr))
}

/// Chooses a strategy and its parameters for a kernel; reasons of strategies that refused, by name.
///
/// # Errors
/// No strategy computes the kernel.
pub fn choose(
    analysis: &Analysis,
    machine: Machine,
    device: Device,
) -> Result<(Attr, Vec<(&'static str, String)>)> {
    let mut best: Option<(Attr, f64)> = None;
    let mut refused = vec![];
    for row in STRATEGIES.iter().filter(|r| r.device() == device) {
        if best.is_some() && !row.competes() {
            break;
        }
        let nested = analysis.nests(row.nesting());
        let found = nested.map_or(Match::No, |nested| {
            row.matches(&Request { kernel: &nested.0, plan: &nested.1, machine })
        });
        match found {
            Match::No => {
                refused.extend(row.refusal(analysis.kernel()).map(|why| (row.name(), why)))
            }
            Match::Yes { params, cost: None } => return Ok((params, refused)),
            Match::Yes { params, cost: Some(cost) } => {
                if best.as_ref().is_none_or(|(_, least)| cost < *least) {
                    best = Some((params, cost));
                }
            }
        }
    }
    let (attr, _) = best.ok_or_else(|| Error::at(analysis.func, "is computed by no strategy"))?;
    Ok((attr, refused))
}
