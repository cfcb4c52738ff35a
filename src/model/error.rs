//! What can go wrong between a file and a result.
use crate::{
    Exit,
    capture::CaptureError,
    dialects::ir::ParseError,
    lowering::{PassError, driver::compile::CompileError},
    runtime::{CallError, OpenError, cuda::CudaError, link::LinkError, package::PackageError},
};

/// An error of the library.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be used.
    #[error("{file}: {reason}")]
    File {
        /// Which.
        file: String,
        /// Why.
        reason: String,
    },
    /// The model was not captured.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// The IR was not read.
    #[error(transparent)]
    Parse(#[from] ParseError),
    /// The package was not read.
    #[error(transparent)]
    Package(#[from] PackageError),
    /// The processor is unknown.
    #[error("{0}")]
    Target(String),
    /// [`crate::Options::orders`] does not fit the function.
    #[error("{0}")]
    Order(String),
    /// A pass or LLVM failed.
    #[error("{0}")]
    Compile(#[from] CompileError),
    /// The code was not linked.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// A weight is missing or not what the program takes.
    #[error("{0}")]
    Weight(String),
    /// The GPU or its driver.
    #[error(transparent)]
    Cuda(#[from] CudaError),
    /// A function was not traced.
    #[error(transparent)]
    Trace(#[from] crate::tensor::TraceError),
    /// There is no such backend, or it failed.
    #[error("{0}")]
    Backend(String),
    /// An option that is not there, or that has no such value.
    #[error("{0}")]
    Setting(String),
    /// The call was refused.
    #[error(transparent)]
    Call(#[from] CallError),
    /// What another thread met that compiled (option `asynchronous`).
    #[error("{0}")]
    Asynchronous(std::sync::Arc<Error>),
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
    /// Of a compilation. What is refused needs no reproducer.
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
    /// How a program that meets it ends.
    pub fn exit(&self) -> Exit {
        match self {
            Error::Capture(CaptureError::Unsupported(_)) => Exit::Unsupported,
            Error::Compile(CompileError::Unsupported(_)) => Exit::Unsupported,
            Error::Compile(e) if e.to_string().contains("has no compiled form yet") => {
                Exit::Unsupported
            }
            Error::Asynchronous(e) => e.exit(),
            Error::Compile(_) | Error::Link(_) => Exit::Failed,
            Error::Call(CallError::Memory(_) | CallError::Cuda(_)) | Error::Cuda(_) => Exit::Device,
            _ => Exit::Usage,
        }
    }
}
