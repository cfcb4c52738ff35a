//! From `prims` to `kernels`: which ops are one kernel, and the host function of launches.
pub mod expose_padding;
pub mod fold_scales;
pub mod freeze;
pub(crate) mod frozen;
pub mod fuse;
pub(crate) mod graph;
mod group;
pub mod layout;
mod outline;
pub mod outline_control;
pub(crate) use outline::PIECES;
pub mod pack;
pub mod pad_products;
pub mod require_bounds;
mod rows;
pub mod space_to_depth;
pub mod split_concats;
pub mod split_products;
