//! x
/// Weights that do not fit.
#[derive(Debug, thiserror::Error)]
#[error("x")]
pub struct WeightsError;
