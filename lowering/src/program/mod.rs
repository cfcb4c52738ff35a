//! From kernels and launches to a program: memory plan, calling convention, plain data.
pub mod alias_results;
pub mod argument_array;
pub mod control;
pub mod description;
pub mod external_ptx;
pub mod in_place;
pub mod interface;
mod launch;
pub mod library_call;
pub mod order_launches;
mod placement;
pub mod plan;
mod sink_launches;
pub mod slots;
mod unbacked;
