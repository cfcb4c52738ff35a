//! What libraries compute in place of kernels, however each of them is called.
use super::{CudaError, Device, cublaslt, cudnn, stream::Stream, words};
use crate::library_call::{CUBLASLT, CUDNN, LibraryCall};
use cudarc::driver::sys;
use std::{ptr, sync::Arc};

/// A call that its library has found a way for.
pub(super) enum Called {
    /// A product.
    Product(Box<cublaslt::Product>),
    /// A convolution.
    Convolution(Box<cudnn::Planned>),
}

/// The libraries of a program, each opened when it is first asked for.
#[derive(Default)]
pub(super) struct Libraries {
    cublaslt: Option<Result<Arc<cublaslt::Handle>, CudaError>>,
    cudnn: Option<Result<Arc<cudnn::Handle>, CudaError>>,
}

impl Libraries {
    /// Asks a call's library for a way. Err: the library is not found, or has none.
    pub fn call(&mut self, device: &Device, wanted: &LibraryCall) -> Result<Called, CudaError> {
        match wanted {
            LibraryCall::Gemm(gemm) => {
                let handle = self
                    .cublaslt
                    .get_or_insert_with(|| cublaslt::Handle::new().map(Arc::new))
                    .clone()?;
                cublaslt::Product::new(&handle, gemm).map(|p| Called::Product(Box::new(p)))
            }
            LibraryCall::Convolution(c) => {
                let handle = self.cudnn.get_or_insert_with(|| cudnn::Handle::of(device)).clone()?;
                cudnn::Planned::new(&handle, c).map(|p| Called::Convolution(Box::new(p)))
            }
        }
    }
    /// Whether a library was found and started, where it has been asked for.
    pub fn found(&self, library: &str) -> bool {
        match library {
            CUBLASLT => !matches!(self.cublaslt, Some(Err(_))),
            _ => !matches!(self.cudnn, Some(Err(_))),
        }
    }
}

/// Whether a library is found. It is asked before it is called: cudarc would panic where there is
/// none.
pub fn present(library: &str) -> bool {
    match library {
        CUBLASLT => cublaslt::present(),
        CUDNN => cudnn::present(),
        _ => false,
    }
}

/// What has been looked for of a library, in words.
pub fn searched(library: &str) -> String {
    match library {
        CUBLASLT => cublaslt::searched(),
        CUDNN => cudnn::searched(),
        _ => String::new(),
    }
}

impl Called {
    /// Bytes of memory that it needs beside.
    pub fn workspace(&self) -> usize {
        match self {
            Called::Product(p) => p.workspace,
            Called::Convolution(c) => c.workspace,
        }
    }

    /// Gives it to a stream. `parameters`: the launch's, of which some are addresses; `scratch`:
    /// the address of [`Called::workspace`] bytes.
    pub fn launch(
        &self,
        parameters: &[u64],
        scratch: u64,
        stream: sys::CUstream,
    ) -> Result<(), CudaError> {
        match self {
            Called::Product(p) => p.launch(parameters, scratch, stream),
            Called::Convolution(c) => c.launch(parameters, scratch, stream),
        }
    }

    /// As a graph of what it launches. The caller destroys it.
    pub fn captured(
        &self,
        device: &Device,
        parameters: &[u64],
        scratch: u64,
    ) -> Result<sys::CUgraph, CudaError> {
        let what = "capturing a library's call";
        let stream: Stream = device.new_stream()?;
        // A library loads a kernel when it is first launched, which the other modes take for a
        // mistake.
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: a stream of its own.
        let begun = unsafe { sys::cuStreamBeginCapture_v2(stream.0, mode) }.result();
        let begun = begun.map_err(|e| CudaError::Driver { what, reason: words(e) });
        let outcome = begun.and_then(|()| {
            let launched = self.launch(parameters, scratch, stream.0);
            let mut graph = ptr::null_mut();
            // SAFETY: the capture that has begun; it ends whatever became of the launch.
            let ended = unsafe { sys::cuStreamEndCapture(stream.0, &mut graph) }.result();
            launched?;
            ended.map_err(|e| CudaError::Driver { what, reason: words(e) })?;
            Ok(graph)
        });
        stream.destroy();
        outcome
    }
}
