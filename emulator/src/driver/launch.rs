//! Kernel launches.
use super::{
    CudaResult, context, current,
    function::{self, Function},
    stream::find,
    valid,
    work::Work,
};
use crate::machine::{self, FaultKind, Launch};
use cudarc::driver::sys::{CUfunction, CUlaunchAttributeID, CUlaunchConfig, CUresult, CUstream};
use std::{
    ffi::{c_uint, c_void},
    sync::Arc,
};

const SERIALIZATION: CUlaunchAttributeID =
    CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
const MAX_THREADS: u64 = 1024;
/// Largest CTA and largest grid per dimension.
const MAX_DIMS: ([u32; 3], [u32; 3]) = ([1024, 1024, 64], [i32::MAX as u32, 65535, 65535]);
/// Largest portable cluster size.
const MAX_CLUSTER: u32 = 8;

/// Launch dimensions.
#[derive(Clone, Copy)]
pub struct Dims {
    /// The grid in CTAs.
    pub grid: [u32; 3],
    /// The CTA in threads.
    pub block: [u32; 3],
    /// Dynamic shared memory in bytes.
    pub shared: u32,
}

/// A launch with a copy of its parameters.
#[derive(Clone)]
pub struct PreparedLaunch {
    function: Arc<Function>,
    dims: Dims,
    params: Arc<[u8]>,
}

impl Dims {
    fn check(&self, function: &Function) -> CudaResult {
        let kernel = &function.kernel;
        let fits = |n: &[u32; 3], most: &[u32; 3]| {
            n.iter().zip(most).all(|(n, most)| (1..=*most).contains(n))
        };
        valid(fits(&self.block, &MAX_DIMS.0) && fits(&self.grid, &MAX_DIMS.1))?;
        let threads: u64 = self.block.iter().map(|n| u64::from(*n)).product();
        valid(threads <= kernel.threads.map_or(MAX_THREADS, |n| MAX_THREADS.min(n.into())))?;
        valid(self.shared <= function.most_shared())?;
        let cluster = kernel.cluster.max(1);
        if cluster > MAX_CLUSTER || !self.grid[0].is_multiple_of(cluster) {
            return Err(CUresult::CUDA_ERROR_INVALID_CLUSTER_SIZE);
        }
        Ok(())
    }
}

impl PreparedLaunch {
    /// A launch of a function handle. Err: invalid on any device.
    ///
    /// # Safety
    /// `params` is null, or has an address of as many bytes as it takes for each of the function's
    /// parameters.
    pub unsafe fn new(
        function: CUfunction,
        dims: Dims,
        params: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) -> CudaResult<PreparedLaunch> {
        let function = function::find(function)?;
        dims.check(&function)?;
        if !extra.is_null() {
            return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
        }
        let kernel = &function.kernel;
        let mut bytes = vec![0u8; kernel.param_bytes];
        valid(kernel.params.is_empty() || !params.is_null())?;
        for (i, p) in kernel.params.iter().enumerate() {
            let buffer =
                bytes.get_mut(p.offset..p.offset + p.size).ok_or(CUresult::CUDA_ERROR_UNKNOWN)?;
            // SAFETY: the caller's promise.
            unsafe {
                let from = *params.add(i);
                valid(!from.is_null())?;
                from.cast::<u8>().copy_to_nonoverlapping(buffer.as_mut_ptr(), p.size);
            }
        }
        Ok(PreparedLaunch { dims, params: bytes.into(), function })
    }
    /// Runs the kernel; a fault becomes the context's sticky error.
    pub fn run(&self) {
        let Dims { grid, block, shared } = self.dims;
        let Err(fault) = machine::run(&Launch {
            kernel: &self.function.kernel,
            grid,
            block,
            shared,
            params: &self.params,
        }) else {
            return;
        };
        let error = match fault.what {
            FaultKind::Address(..) => CUresult::CUDA_ERROR_ILLEGAL_ADDRESS,
            FaultKind::Alignment(..) => CUresult::CUDA_ERROR_MISALIGNED_ADDRESS,
            FaultKind::Instruction(_) => CUresult::CUDA_ERROR_ILLEGAL_INSTRUCTION,
            FaultKind::Stuck => CUresult::CUDA_ERROR_LAUNCH_TIMEOUT,
            FaultKind::Trap => CUresult::CUDA_ERROR_LAUNCH_FAILED,
        };
        context::fault(error, &fault);
    }
}

/// Launches a kernel on a stream, with attributes. Launches run one after another, so that the only
/// attribute that is known, programmatic stream serialization, changes nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLaunchKernelEx(
    config: *const CUlaunchConfig,
    function: CUfunction,
    params: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> CUresult {
    current(|| {
        // SAFETY: as the driver's functions are called: a configuration with its attributes, and as
        // many parameters as the function has.
        unsafe {
            let c = config.as_ref().ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
            valid(c.numAttrs == 0 || !c.attrs.is_null())?;
            let known = (0..c.numAttrs as usize).all(|i| (*c.attrs.add(i)).id == SERIALIZATION);
            if !known {
                return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
            }
            let dims = Dims {
                grid: [c.gridDimX, c.gridDimY, c.gridDimZ],
                block: [c.blockDimX, c.blockDimY, c.blockDimZ],
                shared: c.sharedMemBytes,
            };
            let kernel = PreparedLaunch::new(function, dims, params, extra)?;
            find(c.hStream)?.give(Work::Kernel(kernel))
        }
    })
}

/// Launches a kernel on a stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLaunchKernel(
    function: CUfunction,
    grid_x: c_uint,
    grid_y: c_uint,
    grid_z: c_uint,
    block_x: c_uint,
    block_y: c_uint,
    block_z: c_uint,
    shared: c_uint,
    stream: CUstream,
    params: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> CUresult {
    current(|| {
        let dims =
            Dims { grid: [grid_x, grid_y, grid_z], block: [block_x, block_y, block_z], shared };
        // SAFETY: as many parameters as the function has.
        let kernel = unsafe { PreparedLaunch::new(function, dims, params, extra) }?;
        find(stream)?.give(Work::Kernel(kernel))
    })
}
