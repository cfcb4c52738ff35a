//! The pass table: one row a pass, those within a level and those between levels. Registration,
//! help and docs/passes.md come from it.
use crate::{gpu, host, to_kernels, to_linalg};
use kiln_passes::PassRow;
use std::sync::OnceLock;

/// The lowering passes, sorted by flag.
const LOWERINGS: &[PassRow] = &[
    PassRow::of::<host::expand_math::ExpandMath>(),
    PassRow::of::<to_kernels::expose_padding::ExposePadding>(),
    PassRow::of::<to_kernels::fold_scales::FoldScales>(),
    PassRow::of::<to_kernels::freeze::Freeze>(),
    PassRow::of::<to_kernels::fuse::Fuse>(),
    PassRow::of::<gpu::gpu_abi::GpuAbi>(),
    PassRow::of::<gpu::gpu_math::GpuMath>(),
    PassRow::of::<gpu::gpu_module::GpuModule>(),
    PassRow::of::<gpu::gpu_schedule::GpuSchedule>(),
    PassRow::of::<gpu::gpu_tile::GpuTile>(),
    PassRow::of::<gpu::online_reductions::OnlineReductions>(),
    PassRow::of::<host::host_abi::HostAbi>(),
    PassRow::of::<host::in_place::InPlace>(),
    PassRow::of::<host::kernel_abi::KernelAbi>(),
    PassRow::of::<to_kernels::layout::Layout>(),
    PassRow::of::<to_kernels::outline_control::OutlineControl>(),
    PassRow::of::<to_kernels::pack::Pack>(),
    PassRow::of::<to_kernels::pad_products::PadProducts>(),
    PassRow::of::<host::plan::Plan>(),
    PassRow::of::<to_kernels::prologues::Prologues>(),
    PassRow::of::<to_kernels::require_bounds::RequireBounds>(),
    PassRow::of::<host::schedule::SchedulePass>(),
    PassRow::of::<to_kernels::space_to_depth::SpaceToDepth>(),
    PassRow::of::<to_kernels::split_concats::SplitConcats>(),
    PassRow::of::<to_kernels::split_products::SplitProducts>(),
    PassRow::of::<host::tile::Tile>(),
    PassRow::of::<to_linalg::ToLinalg>(),
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

/// The row of a flag.
pub fn find(flag: &str) -> Option<&'static PassRow> {
    passes().iter().copied().find(|p| p.flag == flag)
}

/// Registers all of them, once per process.
pub fn register_all() -> Result<(), String> {
    static DONE: OnceLock<Result<(), String>> = OnceLock::new();
    DONE.get_or_init(|| passes().iter().try_for_each(|p| (p.register)())).clone()
}
