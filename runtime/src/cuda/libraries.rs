//! Library calls that replace kernels, behind one interface.
use super::{CudaError, Device, cublaslt, cudnn, cufft, cusolver, driver_message, stream::Stream};
use crate::library_call::{CUBLASLT, CUDNN, LibraryCall};
use cudarc::driver::sys;
use std::{ptr, sync::Arc};

/// A library call with its algorithm or execution plan.
pub(super) enum PreparedCall {
    /// A matrix product.
    Matmul(Box<cublaslt::Matmul>),
    /// A convolution.
    Convolution(Box<cudnn::ConvolutionPlan>),
}

/// A program's library handles, each created on first use.
#[derive(Default)]
pub(super) struct Libraries {
    cublaslt: Option<Result<Arc<cublaslt::Handle>, CudaError>>,
    cudnn: Option<Result<Arc<cudnn::Handle>, CudaError>>,
}

impl Libraries {
    /// Prepares a call. Err: the library is missing, or does not support it.
    pub fn prepare(
        &mut self,
        device: &Device,
        wanted: &LibraryCall,
    ) -> Result<PreparedCall, CudaError> {
        match wanted {
            LibraryCall::Gemm(gemm) => {
                let handle = self
                    .cublaslt
                    .get_or_insert_with(|| cublaslt::Handle::new().map(Arc::new))
                    .clone()?;
                cublaslt::Matmul::new(&handle, gemm).map(|p| PreparedCall::Matmul(Box::new(p)))
            }
            LibraryCall::Convolution(c) => {
                let handle =
                    self.cudnn.get_or_insert_with(|| cudnn::Handle::for_device(device)).clone()?;
                cudnn::ConvolutionPlan::new(&handle, c)
                    .map(|p| PreparedCall::Convolution(Box::new(p)))
            }
        }
    }
    /// Whether a library that was asked for could be loaded and initialised.
    pub fn found(&self, library: &str) -> bool {
        match library {
            CUBLASLT => !matches!(self.cublaslt, Some(Err(_))),
            _ => !matches!(self.cudnn, Some(Err(_))),
        }
    }
}

/// cuSOLVER's name. Its calls are no alternatives of kernels, but of calls of the host.
pub const CUSOLVER: &str = "cusolver";
/// cuFFT's name. Its calls are as cuSOLVER's.
pub const CUFFT: &str = "cufft";

/// Whether a library can be loaded. Checked before each use: cudarc would panic.
pub fn present(library: &str) -> bool {
    match library {
        CUBLASLT => cublaslt::present(),
        CUDNN => cudnn::present(),
        CUSOLVER => cusolver::present(),
        CUFFT => cufft::present(),
        _ => false,
    }
}

/// The library names that were tried, for messages.
pub fn searched(library: &str) -> String {
    match library {
        CUBLASLT => cublaslt::searched(),
        CUDNN => cudnn::searched(),
        CUSOLVER => cusolver::searched(),
        CUFFT => cufft::searched(),
        _ => String::new(),
    }
}

impl PreparedCall {
    /// Workspace in bytes.
    pub fn workspace(&self) -> usize {
        match self {
            PreparedCall::Matmul(p) => p.workspace,
            PreparedCall::Convolution(c) => c.workspace,
        }
    }

    /// Enqueues it. `parameters` are the launch's, some of them device pointers; `scratch` is the
    /// device address of [`PreparedCall::workspace`] bytes.
    pub fn launch(
        &self,
        parameters: &[u64],
        scratch: u64,
        stream: sys::CUstream,
    ) -> Result<(), CudaError> {
        match self {
            PreparedCall::Matmul(p) => p.launch(parameters, scratch, stream),
            PreparedCall::Convolution(c) => c.launch(parameters, scratch, stream),
        }
    }

    /// Captures what it launches as a graph, which the caller destroys.
    pub fn capture(
        &self,
        device: &Device,
        parameters: &[u64],
        scratch: u64,
    ) -> Result<sys::CUgraph, CudaError> {
        let what = "capturing a library's call";
        let stream: Stream = device.new_stream()?;
        // Libraries load kernels lazily at their first launch, which the stricter capture modes
        // forbid.
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: a stream of its own.
        let begun = unsafe { sys::cuStreamBeginCapture_v2(stream.0, mode) }.result();
        let begun = begun.map_err(|e| CudaError::Driver { what, reason: driver_message(e) });
        let outcome = begun.and_then(|()| {
            let launched = self.launch(parameters, scratch, stream.0);
            let mut graph = ptr::null_mut();
            // SAFETY: ends the capture that has begun, also after a failed launch.
            let ended = unsafe { sys::cuStreamEndCapture(stream.0, &mut graph) }.result();
            launched?;
            ended.map_err(|e| CudaError::Driver { what, reason: driver_message(e) })?;
            Ok(graph)
        });
        stream.destroy();
        outcome
    }
}
