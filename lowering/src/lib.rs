//! What takes IR from level to level. One table makes the pipelines of the library, of `kiln-opt`, of the dumper and of the tests.
pub mod host;
pub mod manager;
pub mod pipeline;
pub mod report;
pub mod reproducer;
pub mod table;

pub use manager::{PassError, PassRun, Report, RunOptions, run_pipeline};
pub use pipeline::{Step, pipeline_text, steps};
pub use table::passes;
