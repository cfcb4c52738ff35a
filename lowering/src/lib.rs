//! What takes IR from level to level. One table makes the pipelines of the library, of `kiln-opt`,
//! of the dumper and of the tests.
pub mod alone;
pub mod compile;
pub mod emit;
pub mod gpu;
pub mod host;
mod index;
pub mod kernel;
pub mod manager;
pub mod own;
pub mod pipeline;
pub mod report;
pub mod reproducer;
pub mod schedules;
pub mod sizes;
pub mod stop;
pub mod table;
pub mod target;
pub mod to_kernels;
pub mod to_linalg;

pub use manager::{PassError, PassRun, Report, RunOptions, run_pipeline};
pub use own::Own;
pub use pipeline::{
    For, On, PassOptions, Step, part_text, pipeline_text, pipeline_text_for, steps,
};
pub use schedules::Schedules;
pub use stop::{Stop, Stopped};
pub use table::passes;
pub use target::{Chip, Relaxed, Target};
