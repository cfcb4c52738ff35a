//! The error of everything that reads or makes IR.
use crate::ir::{Loc, Op};

/// Whose fault an [`Error`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The IR is not what the function takes.
    Invalid,
    /// The IR is valid, but has no form for the target.
    Unsupported,
    /// A bug, or MLIR refused.
    Internal,
}

/// What is wrong with IR, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// Whose fault it is.
    pub kind: Kind,
    /// What is wrong, without the op's name in front.
    pub message: String,
    /// The op's location; none until [`Error::or_at`] gives it one.
    pub loc: Option<Loc>,
    /// The op's full name.
    pub op: Option<String>,
}

/// A result whose error is [`Error`] unless stated.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Invalid IR at `op`.
    pub fn at(op: Op, message: impl Into<String>) -> Error {
        Error::new(Kind::Invalid, message).or_at(op)
    }
    /// `op` is valid, but has no form for the target.
    pub fn unsupported(op: Op, message: impl Into<String>) -> Error {
        Error::new(Kind::Unsupported, message).or_at(op)
    }
    /// A bug, or MLIR refused.
    pub fn internal(message: impl Into<String>) -> Error {
        Error::new(Kind::Internal, message)
    }
    /// Without a location yet.
    pub fn new(kind: Kind, message: impl Into<String>) -> Error {
        Error { kind, message: message.into(), loc: None, op: None }
    }
    /// Adds the location of `op` where there is none. The innermost location stays.
    pub fn or_at(mut self, op: Op) -> Error {
        if self.loc.is_none() {
            self.loc = Some(op.loc());
            self.op = Some(op.name());
        }
        self
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(loc) = self.loc {
            write!(f, "{loc}: ")?;
        }
        if let Some(op) = &self.op {
            write!(f, "'{op}' op ")?;
        }
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

impl From<String> for Error {
    fn from(message: String) -> Error {
        Error::new(Kind::Invalid, message)
    }
}
impl From<&str> for Error {
    fn from(message: &str) -> Error {
        Error::new(Kind::Invalid, message)
    }
}
/// For callers that keep errors as text.
impl From<Error> for String {
    fn from(e: Error) -> String {
        e.to_string()
    }
}

/// Locations for results.
pub trait ResultExt<T> {
    /// Adds the location of `op` to an error that has none.
    fn at(self, op: Op) -> Result<T>;
}

impl<T, E: Into<Error>> ResultExt<T> for std::result::Result<T, E> {
    fn at(self, op: Op) -> Result<T> {
        self.map_err(|e| e.into().or_at(op))
    }
}

/// Errors with locations for what is missing.
pub trait OptionExt<T> {
    /// The value, or [`Error::at`].
    fn ok_or_at(self, op: Op, message: &str) -> Result<T>;
    /// The value, or that `op` is malformed.
    fn ok_or_malformed(self, op: Op) -> Result<T>;
}

impl<T> OptionExt<T> for Option<T> {
    fn ok_or_at(self, op: Op, message: &str) -> Result<T> {
        self.ok_or_else(|| Error::at(op, message))
    }
    fn ok_or_malformed(self, op: Op) -> Result<T> {
        self.ok_or_at(op, "is malformed")
    }
}
