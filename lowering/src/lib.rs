//! Lowers IR from level to level. One table defines the pipelines of the library, of `kiln-opt`, of
//! the dumper and of the tests.

pub mod analysis;
pub mod cpu;
pub mod driver;
pub mod emit;
pub mod gpu;
pub mod kernels;
pub mod linalg;
pub mod math;
pub mod program;
pub mod strategies;
pub mod target;

pub use driver::cancellation::{CancellationError, CancellationToken};
pub use driver::manager::{PassError, PassRun, Report, RunOptions, pass_remarks, run_pipeline};
pub use driver::pass_options::PassOptions;
pub use driver::pipeline::{On, PipelineStep, TargetFilter};
pub use driver::pipeline_text::{part_text, pipeline_text, pipeline_text_for, steps};
pub use driver::schedules::Schedules;
pub use driver::table::passes;
pub use driver::user_passes::{At, UserPasses};
pub use target::{Chip, Features, Target};
