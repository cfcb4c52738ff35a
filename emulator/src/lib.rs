//! A CUDA device emulator for tests: interprets PTX on the host behind the `libcuda` functions that
//! kiln calls. The whole GPU path then runs, with its results checked, on machines without a GPU.
//! It is slow, and checks every access against the allocations.
//!
//! A program that loads `libcuda.so.1` finds the emulator through a link of that name to
//! `libkiln_emulator.so` in a folder on `LD_LIBRARY_PATH`.
//!
//! - `ptx`: parses and decodes PTX.
//! - `machine`: executes threads, CTAs and clusters.
//! - `allocations`: memory.
//! - `tensor_map`: TMA descriptors.
//! - `driver`: the driver API.
mod allocations;
mod driver;
mod machine;
mod ptx;
mod tensor_map;
