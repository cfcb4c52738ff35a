//! Why linking fails.

/// Why linking failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// The object is damaged or uses an unsupported feature.
    #[error("object '{object}' {reason}")]
    Object {
        /// Its name.
        object: String,
        /// What is wrong with it.
        reason: String,
    },
    /// An undefined symbol.
    #[error("symbol '{symbol}', which object '{object}' needs, is defined nowhere")]
    Missing {
        /// The symbol.
        symbol: String,
        /// The object that refers to it.
        object: String,
    },
    /// No object defines the entry that the program names.
    #[error("no object defines '{0}'")]
    NoEntry(String),
    /// No executable memory.
    #[error("no memory for {bytes} bytes of code: {reason}")]
    Memory {
        /// Bytes asked for.
        bytes: usize,
        /// The system's error.
        reason: String,
    },
}
