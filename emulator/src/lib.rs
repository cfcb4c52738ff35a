//! A card that is not there: PTX is read and run on the host, and the functions of `libcuda` that
//! kiln calls stand in front of it, so that the whole path to a GPU runs, and is held to results,
//! on machines without one. It is for tests: nothing is fast, and every access is checked against
//! what is allocated.
//!
//! A program that looks for `libcuda.so.1` finds this where a folder with a link of that name to
//! `libkiln_emulator.so` is on `LD_LIBRARY_PATH`.
//!
//! - `ptx`: text to instructions.
//! - `machine`: instructions over threads, blocks and clusters.
//! - `allocations`: what memory there is.
//! - `tensor_map`: tensors as the copy engine has them described.
//! - `driver`: the functions of the driver.
mod allocations;
mod driver;
mod machine;
mod ptx;
mod tensor_map;
