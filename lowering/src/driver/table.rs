//! The pass table: one row per pass, within a level or between levels. Registration, help and
//! docs/passes.md are generated from it.
use crate::{analysis, cpu, emit, gpu, kernels, linalg, math, program};
use kiln_dialects::Result;
use kiln_passes::PassRow;
use std::sync::OnceLock;

/// The lowering passes, sorted by flag.
const LOWERINGS: &[PassRow] = &[
    PassRow::of::<program::alias_results::AliasResults>(),
    PassRow::of::<kernels::bound_sizes::BoundSizes>(),
    PassRow::of::<gpu::dependent_launch::DependentLaunch>(),
    PassRow::of::<math::expand_math::ExpandMath>(),
    PassRow::of::<kernels::expand_conv1d::ExpandConv1d>(),
    PassRow::of::<kernels::expose_padding::ExposePadding>(),
    PassRow::of::<kernels::fold_scales::FoldScales>(),
    PassRow::of::<kernels::freeze::Freeze>(),
    PassRow::of::<kernels::fuse::Fuse>(),
    PassRow::of::<analysis::generalize::Generalize>(),
    PassRow::of::<gpu::gpu_abi::GpuAbi>(),
    PassRow::of::<gpu::gpu_math::GpuMath>(),
    PassRow::of::<gpu::gpu_module::GpuModule>(),
    PassRow::of::<gpu::gpu_schedule::GpuSchedule>(),
    PassRow::of::<gpu::gpu_tile::GpuTile>(),
    PassRow::of::<gpu::online_reductions::OnlineReductions>(),
    PassRow::of::<cpu::host_abi::HostAbi>(),
    PassRow::of::<program::in_place::InPlace>(),
    PassRow::of::<cpu::kernel_abi::KernelAbi>(),
    PassRow::of::<kernels::layout::Layout>(),
    PassRow::of::<emit::lower_affine::LowerAffine>(),
    PassRow::of::<gpu::lower_tiles::LowerTiles>(),
    PassRow::of::<kernels::merge_groups::MergeGroups>(),
    PassRow::of::<kernels::narrow_products::NarrowProducts>(),
    PassRow::of::<program::order_launches::OrderLaunches>(),
    PassRow::of::<kernels::outline_control::OutlineControl>(),
    PassRow::of::<kernels::pack::Pack>(),
    PassRow::of::<kernels::pad_biases::PadBiases>(),
    PassRow::of::<kernels::pad_products::PadProducts>(),
    PassRow::of::<program::plan::PlanMemory>(),
    PassRow::of::<kernels::predicate_pads::PredicatePads>(),
    PassRow::of::<kernels::prologues::Prologues>(),
    PassRow::of::<kernels::quantized_weights::QuantizedWeights>(),
    PassRow::of::<kernels::rematerialize::Rematerialize>(),
    PassRow::of::<kernels::require_bounds::RequireBounds>(),
    PassRow::of::<kernels::require_indices::RequireIndices>(),
    PassRow::of::<cpu::schedule::SchedulePass>(),
    PassRow::of::<kernels::sink_scales::SinkScales>(),
    PassRow::of::<kernels::space_to_depth::SpaceToDepth>(),
    PassRow::of::<kernels::split_concats::SplitConcats>(),
    PassRow::of::<kernels::split_products::SplitProducts>(),
    PassRow::of::<cpu::tile::Tile>(),
    PassRow::of::<linalg::ToLinalg>(),
    PassRow::of::<kernels::update_in_place::UpdateInPlace>(),
    PassRow::of::<kernels::weight_gradients::WeightGradients>(),
    PassRow::of::<kernels::winograd::Winograd>(),
];

/// Every pass of kiln, sorted by flag.
pub fn passes() -> &'static [&'static PassRow] {
    static ALL: OnceLock<Vec<&'static PassRow>> = OnceLock::new();
    ALL.get_or_init(|| {
        let mut all: Vec<_> = kiln_passes::PASSES.iter().chain(LOWERINGS).collect();
        all.sort_by_key(|p| p.flag);
        all
    })
}

/// The table row of a flag.
pub fn find(flag: &str) -> Option<&'static PassRow> {
    passes().iter().copied().find(|p| p.flag == flag)
}

/// Registers all passes, once per process.
pub fn register_all() -> Result<()> {
    // An error holds an IR location, which is not shared between threads: only its text is kept.
    static FAILED: OnceLock<Option<String>> = OnceLock::new();
    let first = || passes().iter().find_map(|p| (p.register)().err());
    match FAILED.get_or_init(|| first().map(String::from)) {
        Some(e) => Err(e.clone().into()),
        None => Ok(()),
    }
}
