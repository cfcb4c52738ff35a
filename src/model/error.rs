//! Errors between a file and a result.
use crate::{
    Exit,
    capture::CaptureError,
    dialects::ir::ParseError,
    lowering::{PassError, driver::compile::CompileError},
    runtime::{
        CallError, DataError, OpenError, cuda::CudaError, link::LinkError, package::PackageError,
    },
};

/// Any error of the library.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be used.
    #[error("{file}: {reason}")]
    File {
        /// The file.
        file: String,
        /// The reason.
        reason: String,
    },
    /// Capture failed.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// The IR could not be parsed.
    #[error(transparent)]
    Parse(#[from] ParseError),
    /// The package could not be read.
    #[error(transparent)]
    Package(#[from] PackageError),
    /// Unknown target.
    #[error("{0}")]
    Target(String),
    /// [`crate::Options::orders`] does not match the function's arguments.
    #[error("{0}")]
    Order(String),
    /// A pass or LLVM failed.
    #[error("{0}")]
    Compile(#[from] CompileError),
    /// Linking failed.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// A weight is missing, or does not match the program's type.
    #[error("{0}")]
    Weight(String),
    /// Elements are missing, or do not fit their type.
    #[error(transparent)]
    Data(#[from] DataError),
    /// Arguments or results do not have the structure that the function takes or returns.
    #[error(transparent)]
    Tree(#[from] crate::compile::TreeError),
    /// A failing graph could not be reduced.
    #[error("{0}")]
    Reduce(String),
    /// The GPU or its driver failed.
    #[error(transparent)]
    Cuda(#[from] CudaError),
    /// Tracing failed.
    #[error(transparent)]
    Trace(#[from] crate::tensor::TraceError),
    /// No such backend, or the backend failed.
    #[error("{0}")]
    Backend(String),
    /// No such option, or an invalid value.
    #[error("{0}")]
    Setting(String),
    /// The call was rejected: wrong arguments, or a failed check.
    #[error(transparent)]
    Call(#[from] CallError),
    /// A background compilation failed (option `asynchronous`).
    #[error("{0}")]
    Asynchronous(std::sync::Arc<Error>),
}

impl From<crate::dialects::Error> for Error {
    fn from(e: crate::dialects::Error) -> Error {
        Error::Compile(e.into())
    }
}

impl From<OpenError> for Error {
    fn from(e: OpenError) -> Error {
        match e {
            OpenError::Link(e) => Error::Link(e),
            OpenError::Call(e) => Error::Call(e),
            OpenError::Weight { name, reason } => {
                Error::Weight(format!("weight @{name}: {reason}"))
            }
            e @ OpenError::Target { .. } => Error::Target(e.to_string()),
        }
    }
}

impl Error {
    /// An error of a compilation. Rejected input gets no reproducer.
    pub(super) fn of_compilation(e: CompileError) -> Error {
        let mut e = Error::Compile(e);
        let refused = e.exit() == Exit::Unsupported;
        if let Error::Compile(CompileError::Pass(PassError::Failed { reproducer, .. })) = &mut e
            && let Some(path) = reproducer.take_if(|_| refused)
        {
            let _ = std::fs::remove_file(path);
        }
        e
    }
    /// The exit code of a program that stops with this error.
    pub fn exit(&self) -> Exit {
        match self {
            Error::Capture(e) => e.exit(),
            Error::Compile(e) if e.is_unsupported() => Exit::Unsupported,
            Error::Asynchronous(e) => e.exit(),
            Error::Compile(_) | Error::Link(_) => Exit::Failed,
            Error::Call(CallError::Memory(_) | CallError::Cuda(_))
            | Error::Cuda(_)
            | Error::Data(DataError::Memory(_)) => Exit::Device,
            _ => Exit::Usage,
        }
    }
}
