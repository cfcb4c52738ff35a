//! The compile driver.
pub mod cancellation;
pub mod compile;
pub mod extract;
pub(crate) mod jobs;
pub mod manager;
pub mod pass_options;
pub mod pipeline;
mod pipeline_step;
pub mod pipeline_text;
pub mod report;
pub mod reproducer;
pub mod schedules;
pub mod table;
pub mod user_passes;
