//! From `prims` to `kernels`: which ops are one kernel, and the host function of launches.
pub mod fuse;
mod graph;
mod group;
mod outline;
mod sizes;
