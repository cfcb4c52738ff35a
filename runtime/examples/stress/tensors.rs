//! Reproducible tensors of calls, in device and host memory.
use super::Outcome;
use cudarc::driver::{CudaSlice, CudaStream};
use kiln_runtime::{
    CallError, View, ViewMut,
    cuda::{Loaded, Stream},
};
use std::sync::Arc;

/// A tensor in device memory.
pub struct Tensor {
    /// Its memory.
    pub memory: CudaSlice<u8>,
    /// Its device pointer.
    pub at: u64,
    /// Its element type in MLIR's spelling.
    pub dtype: String,
    /// Its shape.
    pub shape: Vec<usize>,
}

/// Inputs and outputs in device memory.
pub struct Tensors {
    /// In order.
    pub inputs: Vec<Tensor>,
    /// In order.
    pub outputs: Vec<Tensor>,
}

impl Tensors {
    /// Enqueues a call on a stream.
    pub fn launch(&self, loaded: &Loaded, stream: &Arc<CudaStream>) -> Result<(), CallError> {
        // SAFETY: memory of GPU 0 that lives until the stream is synchronised, and that only this
        // stream uses.
        unsafe {
            let read: Vec<View> = self
                .inputs
                .iter()
                .map(|t| View::on_cuda(0, &t.dtype, &t.shape, None, t.at))
                .collect();
            let mut written: Vec<ViewMut> = self
                .outputs
                .iter()
                .map(|t| ViewMut::on_cuda(0, &t.dtype, &t.shape, None, t.at))
                .collect();
            loaded.launch(&read, &mut written, raw(stream))
        }
    }
    /// The bytes of the outputs, once the stream has reached this point.
    pub fn results(&self, stream: &Arc<CudaStream>) -> Outcome<Vec<Vec<u8>>> {
        Ok(self.outputs.iter().map(|t| stream.clone_dtoh(&t.memory)).collect::<Result<_, _>>()?)
    }
}

/// A cudarc stream as kiln's; it outlives its uses here.
pub fn raw(stream: &Arc<CudaStream>) -> Stream {
    // SAFETY: every caller keeps the stream until it is synchronised.
    unsafe { Stream::from_raw(stream.cu_stream().cast()) }
}

/// Pseudo-random numbers in [-1, 1), reproducible by seed.
pub fn numbers(seed: u64, count: usize) -> Vec<f32> {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (x >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

/// [`numbers`] as the bytes of a dtype: f32 or a narrower float.
pub fn elements(dtype: &str, seed: u64, count: usize) -> Outcome<Vec<u8>> {
    let all = numbers(seed, count);
    Ok(match dtype {
        "f32" => all.iter().flat_map(|x| x.to_le_bytes()).collect(),
        "bf16" => all.iter().flat_map(|x| half::bf16::from_f32(*x).to_le_bytes()).collect(),
        "f16" => all.iter().flat_map(|x| half::f16::from_f32(*x).to_le_bytes()).collect(),
        other => return Err(format!("there are no numbers of {other} here").into()),
    })
}

/// Host tensors: dtype, shape, bytes.
pub struct HostTensors {
    /// In order.
    pub inputs: Vec<(String, Vec<usize>, Vec<u8>)>,
    /// In order.
    pub outputs: Vec<(String, Vec<usize>, Vec<u8>)>,
}

impl HostTensors {
    /// Views for a call.
    pub fn views(&mut self) -> Outcome<(Vec<View<'_>>, Vec<ViewMut<'_>>)> {
        let read =
            self.inputs.iter().map(|(t, s, b)| View::new(t, s, b)).collect::<Result<_, _>>()?;
        let written = self
            .outputs
            .iter_mut()
            .map(|(t, s, b)| ViewMut::new(t, s, b))
            .collect::<Result<_, _>>()?;
        Ok((read, written))
    }
}
