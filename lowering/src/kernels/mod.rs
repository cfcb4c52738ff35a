//! From `prims` to `kernels`: fusion into kernels, and the host function that launches them.
pub mod expose_padding;
pub mod fold_scales;
pub mod freeze;
pub(crate) mod frozen;
pub mod fuse;
pub(crate) mod graph;
pub mod layout;
pub mod outline_control;
pub mod pack;
pub mod pad_products;
pub mod prologues;
pub mod require_bounds;
pub(crate) mod rows;
pub mod space_to_depth;
pub mod split_concats;
pub mod split_products;
pub(crate) mod transpose_folding;
