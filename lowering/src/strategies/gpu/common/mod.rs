//! What several GPU strategies share.
pub(crate) mod accumulators;
pub(crate) mod cooperative;
pub(crate) mod fragments;
pub(crate) mod grid;
pub(crate) mod grid_stride;
pub(crate) mod ptx;
pub(crate) mod roles;
pub(crate) mod score;
pub(crate) mod threads;
pub(crate) mod tma_store;
pub(crate) mod vector_width;
pub(crate) mod warp_mma;
pub(crate) mod warp_specialisation;
