//! A launch with resolved sizes, which lacks only addresses.
use super::{CudaError, libraries::PreparedCall, stream::Stream, tensor_map::TensorMapDesc};
use crate::{Program, program::Window};
use cudarc::driver::{DriverError, sys};
use std::{ffi::c_void, ptr, sync::Arc};

/// Device addresses of a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Addresses {
    /// Of the arena.
    pub arena: u64,
    /// Of inputs.
    pub inputs: Vec<u64>,
    /// Of outputs.
    pub outputs: Vec<u64>,
}

impl Addresses {
    /// Kernels that update a state find it in the output's memory, where the call copies it unless
    /// it is there.
    pub fn begin_states(&mut self, p: &Program) {
        for state in p.states.iter().filter(|s| s.in_place) {
            if let (Some(input), Some(output)) =
                (self.inputs.get_mut(state.input), self.outputs.get(state.output))
            {
                *input = *output;
            }
        }
    }
}

/// A launch with resolved sizes.
pub struct ResolvedLaunch {
    /// Whether it may be scheduled while the launch before it runs, for which it waits itself.
    pub dependent: bool,
    /// The kernel.
    pub function: sys::CUfunction,
    /// Grid size, in CTAs (thread blocks).
    pub grid: u32,
    /// Threads of a CTA.
    pub threads: u32,
    /// Bytes of dynamic shared memory.
    pub shared: u32,
    /// Where each 64-bit parameter comes from.
    pub(super) sources: Vec<ParameterSource>,
    /// A library call that replaces the kernel, and its workspace's offset in the arena.
    pub library: Option<(Arc<PreparedCall>, u64)>,
    /// The workspace's device address.
    pub scratch: u64,
    /// The 64-bit parameters, which precede the tensor maps.
    pub words: Vec<u64>,
    maps: Vec<sys::CUtensorMap>,
    unbound: Vec<UnboundTensorMap>,
    /// Pointers to all parameters, for `cuLaunchKernel`; their targets never move.
    pub(super) params: Vec<*mut c_void>,
}
// SAFETY: the pointers are into vectors of the same value, which are not resized.
unsafe impl Send for ResolvedLaunch {}

/// Where a 64-bit parameter comes from.
pub(super) enum ParameterSource {
    Arena(u64),
    /// An input or an output, and an offset in bytes.
    Input(usize, u64),
    Output(usize, u64),
    Fixed,
}

/// A tensor map whose address is not known yet.
pub(super) struct UnboundTensorMap {
    pub(super) arg: usize,
    pub(super) dtype: String,
    pub(super) offset: u64,
    pub(super) sizes: Vec<i64>,
    pub(super) strides: Vec<i64>,
    pub(super) extent: Vec<u32>,
    pub(super) window: Option<Window>,
}

impl ResolvedLaunch {
    pub(super) fn new(
        function: sys::CUfunction,
        (grid, threads, shared): (u32, u32, u32),
        sources: Vec<ParameterSource>,
        words: Vec<u64>,
        unbound: Vec<UnboundTensorMap>,
    ) -> ResolvedLaunch {
        let maps = vec![sys::CUtensorMap { opaque: [0; 16] }; unbound.len()];
        let mut resolved = ResolvedLaunch {
            dependent: false,
            function,
            grid,
            threads,
            shared,
            sources,
            library: None,
            scratch: 0,
            words,
            maps,
            unbound,
            params: vec![],
        };
        let words = resolved.words.iter_mut().map(|w| (w as *mut u64).cast());
        let maps = resolved.maps.iter_mut().map(|m| (m as *mut sys::CUtensorMap).cast::<c_void>());
        resolved.params = words.chain(maps).collect();
        resolved
    }

    /// Returns whether any parameter changed.
    pub(super) fn bind(&mut self, to: &Addresses, kernel: &str) -> Result<bool, CudaError> {
        let mut changed = false;
        if let Some((_, begin)) = &self.library {
            changed |= self.scratch != to.arena + begin;
            self.scratch = to.arena + begin;
        }
        for (source, word) in self.sources.iter().zip(&mut self.words) {
            let now = match source {
                ParameterSource::Arena(offset) => to.arena + offset,
                ParameterSource::Input(i, offset) => to.inputs[*i] + offset,
                ParameterSource::Output(i, offset) => to.outputs[*i] + offset,
                ParameterSource::Fixed => continue,
            };
            changed |= *word != now;
            *word = now;
        }
        // An all-zero map was never encoded: its memory may be a weight, whose address does not
        // change.
        let moved = changed;
        for (map, m) in self
            .maps
            .iter_mut()
            .zip(&self.unbound)
            .filter(|(map, _)| moved || map.opaque == [0; 16])
        {
            let address = self.words[m.arg] + m.offset;
            let d = TensorMapDesc {
                kernel,
                dtype: &m.dtype,
                address,
                sizes: &m.sizes,
                strides: &m.strides,
                extent: &m.extent,
                window: m.window,
            };
            *map = d.encode()?;
            changed = true;
        }
        Ok(changed)
    }

    /// Enqueues the kernel. A dependent one may be scheduled while the kernel before it runs
    /// (`CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION`).
    ///
    /// # Safety
    /// The parameters are those that the kernel takes, and their addresses are of live buffers.
    pub unsafe fn enqueue(&self, stream: Stream) -> Result<(), DriverError> {
        let mut attribute = sys::CUlaunchAttribute {
            id: sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
            pad: [0; 4],
            value: sys::CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 },
        };
        let config = sys::CUlaunchConfig {
            gridDimX: self.grid,
            gridDimY: 1,
            gridDimZ: 1,
            blockDimX: self.threads,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: self.shared,
            hStream: stream.0,
            attrs: &mut attribute,
            numAttrs: u32::from(self.dependent),
        };
        // SAFETY: the caller's promise.
        unsafe { sys::cuLaunchKernelEx(&config, self.function, self.params(), ptr::null_mut()) }
            .result()
    }

    /// Pointers to the parameters, as `cuLaunchKernel` takes them.
    pub fn params(&self) -> *mut *mut c_void {
        self.params.as_ptr().cast_mut()
    }
}
