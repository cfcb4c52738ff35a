//! The table of this crate's passes. `kiln-lowering` adds its own. Registration, `--list-passes`,
//! `--help` and docs/passes.md come from both.
use crate::{
    argument_order::ArgumentOrder, decompose::Decompose, differentiate::Differentiate,
    drop_barriers::DropBarriers, expand_random::ExpandRandom, expand_scans::ExpandScans,
    expand_scatters::ExpandScatters, expand_sorts::ExpandSorts, expand_updates::ExpandUpdates,
    fold_indices::FoldIndices, hoist_gathers::HoistGathers, hoist_reshapes::HoistReshapes,
    partition::Partition, pass::PassRow, powers::Powers, ptx_calls::PtxCalls,
    raise_attention::RaiseAttention, reciprocals::Reciprocals, refine_shapes::RefineShapes,
    simplify::Simplify, sink_concats::SinkConcats, split_reductions::SplitReductions,
    verify_level::VerifyLevel, vmap::Vmap,
};

/// Every pass within a level, sorted by flag.
pub const PASSES: &[PassRow] = &[
    PassRow::of::<ArgumentOrder>(),
    PassRow::of::<Decompose>(),
    PassRow::of::<Differentiate>(),
    PassRow::of::<DropBarriers>(),
    PassRow::of::<ExpandRandom>(),
    PassRow::of::<ExpandScans>(),
    PassRow::of::<ExpandScatters>(),
    PassRow::of::<ExpandSorts>(),
    PassRow::of::<ExpandUpdates>(),
    PassRow::of::<FoldIndices>(),
    PassRow::of::<HoistGathers>(),
    PassRow::of::<HoistReshapes>(),
    PassRow::of::<Partition>(),
    PassRow::of::<Powers>(),
    PassRow::of::<PtxCalls>(),
    PassRow::of::<RaiseAttention>(),
    PassRow::of::<Reciprocals>(),
    PassRow::of::<RefineShapes>(),
    PassRow::of::<Simplify>(),
    PassRow::of::<SinkConcats>(),
    PassRow::of::<SplitReductions>(),
    PassRow::of::<VerifyLevel>(),
    PassRow::of::<Vmap>(),
];
