//! What becomes of a call of a library that may refuse it.

/// What became of a call.
pub enum Outcome {
    /// It is on the stream.
    Done,
    /// The host must compute it, with the reason.
    Host(String),
}
