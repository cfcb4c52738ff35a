//! Functions that programs call by name and that a library computes on the GPU where it is found.
use super::{
    CudaError, Device,
    cufft::Transforms,
    cusolver::{self, Solver},
    outcome::Outcome,
    staging::Staging,
    stream::Stream,
};
use crate::{View, ViewMut};
use kiln_linalg::{Factorization, Fourier, Type};
use std::sync::Arc;

/// The libraries that a program's functions take, as far as they are found.
#[derive(Default)]
pub struct DeviceFunctions {
    solver: Option<Arc<Solver>>,
    transforms: Option<Arc<Transforms>>,
}

impl DeviceFunctions {
    /// Looks for the library of a function, in the current context. Err: why the host computes it.
    pub fn look_for(&mut self, callee: &str, device: &Device) -> Result<(), String> {
        if Factorization::find(callee).is_some_and(cusolver::computes) {
            self.solver = Some(Solver::for_device(device).map_err(|e| e.to_string())?);
            Ok(())
        } else if Fourier::find(callee).is_some() {
            self.transforms = Some(Transforms::for_device(device).map_err(|e| e.to_string())?);
            Ok(())
        } else {
            Err("no library of the GPU has it".into())
        }
    }

    /// Bytes of device memory that a call on the GPU takes; `None` if the host computes it.
    pub fn scratch(&self, callee: &str, inputs: &[View], outputs: &[ViewMut]) -> Option<usize> {
        match (Factorization::find(callee), Fourier::find(callee)) {
            (Some(f), _) => {
                let types: Vec<Type> = inputs.iter().map(cusolver::ty).collect::<Option<_>>()?;
                self.solver.as_ref()?.scratch(f, &types)
            }
            (None, Some(f)) => self.transforms.as_ref()?.scratch(f, inputs, outputs),
            (None, None) => None,
        }
    }

    /// Why the host computes a function whose library is found; `None` where that is known already.
    pub fn refused(&self, callee: &str) -> Option<&'static str> {
        let solves = Factorization::find(callee).is_some_and(cusolver::computes);
        if solves && self.solver.is_some() {
            return Some("cuSOLVER is not used for such sizes");
        }
        let transforms = self.transforms.is_some() && Fourier::find(callee).is_some();
        transforms.then_some("cuFFT makes no plan for such sizes")
    }

    /// Enqueues a call. `scratch` is the device address of [`DeviceFunctions::scratch`] bytes.
    pub fn call(
        &self,
        callee: &str,
        tensors: (&[View], &[ViewMut]),
        scratch: u64,
        (device, staging, stream): (&Device, &mut Staging, Stream),
    ) -> Result<Outcome, CudaError> {
        match (Factorization::find(callee), Fourier::find(callee)) {
            (Some(f), _) if let Some(solver) = &self.solver => {
                solver.call(f, tensors, scratch, (device, staging, stream))
            }
            (_, Some(f)) if let Some(transforms) = &self.transforms => {
                transforms.call(f, tensors, scratch, (device, stream))
            }
            _ => Ok(Outcome::Host("no library of the GPU has it".into())),
        }
    }
}
