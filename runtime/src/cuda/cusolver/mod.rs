//! Factorizations on the GPU by cuSOLVER, and triangular systems by cuBLAS, where these libraries
//! are found; elsewhere the host computes them.
//!
//! The libraries store matrices by columns. A tensor is the transposed matrix to them, so that a
//! lower triangle is an upper one, and a system is solved from the right.
mod call;
mod library;
mod solve;

use super::{
    CudaError, Device, memory::copy_on_device, outcome::Outcome, per_device::PerDevice,
    staging::Staging, stream::Stream,
};
use crate::{View, ViewMut};
pub use call::computes;
use call::{Call, Handles};
use kiln_linalg::{Element, Factorization, Type};
use library::{Handle, Libraries};
use std::{
    ptr::null_mut,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

/// The handles of one device. The mutex makes setting the stream and a call one step.
pub struct Solver {
    libraries: &'static Libraries,
    handles: Mutex<Handles>,
}
// SAFETY: the handles are tied to no thread, and behind a mutex.
unsafe impl Send for Solver {}
unsafe impl Sync for Solver {}

fn failed(what: &'static str, reason: impl Into<String>) -> CudaError {
    CudaError::Driver { what, reason: reason.into() }
}

/// The libraries, loaded on first use, or why not.
fn libraries() -> Result<&'static Libraries, CudaError> {
    static LOADED: OnceLock<Result<Libraries, String>> = OnceLock::new();
    let loaded = LOADED.get_or_init(Libraries::load).as_ref();
    loaded.map_err(|e| failed("looking for cuSOLVER", e.as_str()))
}

/// Whether cuSOLVER and cuBLAS can be loaded.
pub fn present() -> bool {
    libraries().is_ok()
}

/// The names that are tried.
pub fn searched() -> String {
    [library::SOLVER, library::BLAS].concat().join(", ")
}

impl Solver {
    /// The handles of a device, created on first use in the current context and kept until the
    /// process ends. Err: a library is missing or does not initialise.
    pub fn for_device(device: &Device) -> Result<Arc<Solver>, CudaError> {
        static SOLVERS: PerDevice<Solver> = PerDevice::new();
        let libraries = libraries()?;
        let make = |create: unsafe extern "C" fn(*mut Handle) -> i32| {
            let mut handle = null_mut();
            // SAFETY: writes one handle.
            match unsafe { create(&mut handle) } {
                0 => Ok(handle),
                status => Err(failed("starting cuSOLVER", format!("status {status}"))),
            }
        };
        SOLVERS.of(device, || {
            let handles = Handles {
                solver: make(libraries.create)?,
                blas: make(libraries.blas_create)?,
                jacobi: make(libraries.create_gesvdj)?,
            };
            Ok(Solver { libraries, handles: Mutex::new(handles) })
        })
    }

    /// Bytes of device memory for a call with operands of these types; `None` if the host computes
    /// it.
    pub fn scratch(&self, f: Factorization, inputs: &[Type]) -> Option<usize> {
        let call = Call::new(f, inputs)?;
        let handles = self.handles.lock().unwrap_or_else(PoisonError::into_inner);
        let work = match inputs.first()?.0 {
            Element::F32 => call.work::<f32>(self.libraries, &handles),
            _ => call.work::<f64>(self.libraries, &handles),
        };
        Some(call.layout(work.ok()?)?.bytes)
    }

    /// Enqueues a factorization. `scratch` is the device address of [`Solver::scratch`] bytes.
    /// Iterations synchronise, since the host computes what has not converged.
    pub fn call(
        &self,
        f: Factorization,
        (inputs, outputs): (&[View], &[ViewMut]),
        scratch: u64,
        (device, staging, stream): (&Device, &mut Staging, Stream),
    ) -> Result<Outcome, CudaError> {
        let types: Option<Vec<Type>> = inputs.iter().map(ty).collect();
        let call = types.as_ref().and_then(|types| Call::new(f, types));
        let (Some(types), Some(call)) = (types, call) else {
            return Ok(Outcome::Host("cuSOLVER has no function for it".into()));
        };
        let addresses = (
            inputs.iter().map(|v| v.data as u64).collect::<Vec<_>>(),
            outputs.iter().map(|v| v.data as u64).collect::<Vec<_>>(),
        );
        let handles = self.handles.lock().unwrap_or_else(PoisonError::into_inner);
        for (set, handle) in [
            (self.libraries.set_stream, handles.solver),
            (self.libraries.blas_set_stream, handles.blas),
        ] {
            // SAFETY: a live handle and a live stream.
            let status = unsafe { set(handle, stream.0.cast()) };
            if status != 0 {
                return Ok(Outcome::Host(format!("no stream was set: status {status}")));
            }
        }
        let copy = |from: u64, to: u64, bytes: usize| match bytes {
            0 => Ok(()),
            _ => copy_on_device(device, to, from, bytes, stream),
        };
        let run = solve::Run {
            libraries: self.libraries,
            handles: &handles,
            inputs: &addresses.0,
            outputs: &addresses.1,
            scratch,
            stream,
            copy: &copy,
        };
        match types[0].0 {
            Element::F32 => run.enqueue::<f32>(&call, staging),
            _ => run.enqueue::<f64>(&call, staging),
        }
    }
}

/// The type of a tensor, if it is one of those that factorizations have.
pub(super) fn ty(v: &View) -> Option<Type> {
    let element = match v.dtype() {
        "f32" => Element::F32,
        "f64" => Element::F64,
        "i32" => Element::I32,
        _ => return None,
    };
    Some((element, v.shape.to_vec()))
}
