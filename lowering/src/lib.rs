//! What takes IR from level to level. One table makes the pipelines of the library, of `kiln-opt`, of the dumper and of the tests.
pub mod host;
pub mod pipeline;

pub use pipeline::{Step, pipeline_text, steps};
