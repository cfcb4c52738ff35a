//! Devices and the driver.
use super::{CudaError, driver, driver_message, fault::Faults, stream::Stream};
use cudarc::driver::{DriverError, result, sys};
use std::sync::{Mutex, PoisonError};

/// CUDA 12.0, the first with tensor maps and `cuGraphExecKernelNodeSetParams_v2`.
const MIN_DRIVER: i32 = 12000;
/// CUDA 12.3, the first with programmatic dependencies between the nodes of a graph.
const DEPENDENT_DRIVER: i32 = 12030;

/// Devices whose primary context stays retained until the process ends, as in other libraries: the
/// driver takes 0.4 s to create one, serialised over all processes.
static RETAINED: Mutex<Vec<sys::CUdevice>> = Mutex::new(vec![]);

/// Retains a device's primary context for good.
fn retain_context(number: sys::CUdevice) {
    let mut kept = RETAINED.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: a device that the driver has named; never released.
    if !kept.contains(&number) && unsafe { result::primary_ctx::retain(number) }.is_ok() {
        kept.push(number);
    }
}

/// What the driver reports of a GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Its ordinal.
    pub index: usize,
    /// Its product name.
    pub name: String,
    /// Compute capability: major and minor.
    pub capability: (i32, i32),
    /// Bytes of device memory.
    pub memory: usize,
    /// Streaming multiprocessors (SMs).
    pub processors: u32,
    /// Threads that an SM can hold.
    pub threads_per_processor: u32,
}

/// A GPU that programs run on. It uses the primary context, as the CUDA runtime and PyTorch do, so
/// that their memory and streams can be passed to calls.
pub struct Device {
    info: DeviceInfo,
    driver: i32,
    /// The driver's handle.
    number: sys::CUdevice,
    context: sys::CUcontext,
    /// For loading and other one-time work; calls have streams of their own.
    stream: Stream,
    /// Whether the device supports stream-ordered allocation (`cuMemAllocAsync`).
    pub(super) stream_ordered: bool,
    pub(super) faults: Faults,
}

// SAFETY: the driver's handles are tied to no thread.
unsafe impl Send for Device {}
unsafe impl Sync for Device {}

/// Initialises the driver; cudarc would panic if `libcuda` is missing.
fn start() -> Result<usize, CudaError> {
    // SAFETY: opens and closes a library.
    if !unsafe { sys::is_culib_present() } {
        let names = ["cuda", "nvcuda"].into_iter().flat_map(cudarc::get_lib_name_candidates);
        return Err(CudaError::NoDriver { searched: super::searched("libcuda.so.1", names) });
    }
    result::init().map_err(driver("starting the driver"))?;
    let count = result::device::get_count().map_err(driver("counting GPUs"))?;
    Ok(usize::try_from(count).unwrap_or(0))
}

fn device_info(index: usize) -> Result<DeviceInfo, CudaError> {
    use sys::CUdevice_attribute::{
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR as MAJOR,
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR as MINOR,
        CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR as THREADS,
        CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT as PROCESSORS,
    };
    let of = driver("asking a GPU what it is");
    let device = result::device::get(i32::try_from(index).unwrap_or(i32::MAX)).map_err(&of)?;
    let name = result::device::get_name(device).map_err(&of)?;
    // SAFETY: a device that the driver has just named.
    let (memory, major, minor, processors, threads) = unsafe {
        let attribute = |a| result::device::get_attribute(device, a).map_err(&of);
        (
            result::device::total_mem(device).map_err(&of)?,
            attribute(MAJOR)?,
            attribute(MINOR)?,
            attribute(PROCESSORS)?,
            attribute(THREADS)?,
        )
    };
    Ok(DeviceInfo {
        index,
        name,
        capability: (major, minor),
        memory,
        processors: u32::try_from(processors).unwrap_or(1),
        threads_per_processor: u32::try_from(threads).unwrap_or(1024),
    })
}

/// All GPUs.
pub fn devices() -> Result<Vec<DeviceInfo>, CudaError> {
    (0..start()?).map(device_info).collect()
}

/// The newest CUDA version that the driver supports, as 1000 major + 10 minor.
pub fn driver_version() -> Result<i32, CudaError> {
    start()?;
    let mut version = 0;
    // SAFETY: writes one integer.
    unsafe { sys::cuDriverGetVersion(&mut version) }
        .result()
        .map_err(driver("asking for the driver's version"))?;
    Ok(version)
}

/// Restores the calling thread's context on drop.
pub struct Guard(Option<sys::CUcontext>);

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(before) = self.0 {
            // SAFETY: the context that the thread had, or none.
            let _ = unsafe { result::ctx::set_current(before) };
        }
    }
}

impl Device {
    /// The GPU of ordinal `index`.
    pub fn cuda(index: usize) -> Result<Device, CudaError> {
        let count = start()?;
        if index >= count {
            return Err(CudaError::NoDevice { index, count });
        }
        let have = driver_version()?;
        if have < MIN_DRIVER {
            return Err(CudaError::OldDriver { have });
        }
        let (info, of) = (device_info(index)?, driver("opening a GPU"));
        let number = result::device::get(i32::try_from(index).unwrap_or(i32::MAX)).map_err(&of)?;
        // SAFETY: a device that the driver has just named; the context is released on drop.
        let (stream_ordered, context) = unsafe {
            let pools = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED;
            (
                result::device::get_attribute(number, pools).map_err(&of)? > 0,
                result::primary_ctx::retain(number).map_err(&of)?,
            )
        };
        retain_context(number);
        let faults = Faults::default();
        let mut device = Device {
            info,
            driver: have,
            number,
            context,
            stream: Stream::DEFAULT,
            stream_ordered,
            faults,
        };
        device.stream = device.new_stream()?;
        Ok(device)
    }
    /// What the driver reports of it.
    pub fn info(&self) -> &DeviceInfo {
        &self.info
    }
    /// Whether a kernel can be scheduled while the one before it runs, also in graphs.
    pub fn dependent_launches(&self) -> bool {
        self.driver >= DEPENDENT_DRIVER && self.info.capability >= (9, 0)
    }
    /// The newest CUDA version that the driver supports, as 1000 major + 10 minor.
    pub fn driver(&self) -> i32 {
        self.driver
    }
    /// Free and total device memory, in bytes.
    pub fn memory(&self) -> Result<(usize, usize), CudaError> {
        let _current = self.enter()?;
        result::mem_get_info().map_err(self.error("asking for free memory"))
    }
    /// Makes the device's context current on this thread until the guard is dropped. Err: a kernel
    /// has faulted.
    pub(super) fn enter(&self) -> Result<Guard, CudaError> {
        if let Some(fault) = self.faults.recorded() {
            return Err(fault);
        }
        let (of, own) = (self.error("taking a GPU"), self.context);
        let before = result::ctx::get_current().map_err(&of)?.unwrap_or(std::ptr::null_mut());
        if before == own {
            return Ok(Guard(None));
        }
        // SAFETY: the context lives as long as this.
        unsafe { result::ctx::set_current(own) }.map_err(&of)?;
        Ok(Guard(Some(before)))
    }
    /// The stream for one-time work.
    pub(super) fn stream(&self) -> Stream {
        self.stream
    }
    /// The pool of stream-ordered allocations; `None` if the device has none.
    pub(super) fn default_pool(&self) -> Result<Option<sys::CUmemoryPool>, CudaError> {
        if !self.stream_ordered {
            return Ok(None);
        }
        let mut pool = std::ptr::null_mut();
        // SAFETY: a device that the driver has named; writes a handle.
        unsafe { sys::cuDeviceGetDefaultMemPool(&mut pool, self.number) }
            .result()
            .map_err(self.error("asking for a memory pool"))?;
        Ok(Some(pool))
    }
    /// Creates a non-blocking stream. The caller destroys it.
    pub(super) fn new_stream(&self) -> Result<Stream, CudaError> {
        let _current = self.enter()?;
        result::stream::create(result::stream::StreamKind::NonBlocking)
            .map(Stream)
            .map_err(self.error("making a stream"))
    }
    /// Whether a stream belongs to this device's context; default streams belong to any.
    pub(super) fn owns(&self, stream: Stream) -> Result<bool, CudaError> {
        let mut context = std::ptr::null_mut();
        // SAFETY: a live stream, as its creator promised.
        unsafe { sys::cuStreamGetCtx(stream.0, &mut context) }
            .result()
            .map_err(self.error("asking for a stream's GPU"))?;
        Ok(context == self.context)
    }
    /// Maps a driver error, with what was attempted. Kernel faults are recorded, with the launches
    /// that may have caused them.
    pub(super) fn error(&self, what: &'static str) -> impl Fn(DriverError) -> CudaError + '_ {
        move |e| {
            self.faults
                .fault(self.info.index, e)
                .unwrap_or_else(|| CudaError::Driver { what, reason: driver_message(e) })
        }
    }
    /// Whether it runs code for this chip: `sm_90a` needs capability 9.0, other code runs on newer
    /// GPUs too.
    pub(super) fn runs(&self, chip: &str) -> bool {
        let (major, minor) = self.info.capability;
        let number = chip.trim_start_matches("sm_");
        match number.strip_suffix('a') {
            Some(n) => n.parse() == Ok(10 * major + minor),
            None => number.parse().is_ok_and(|n: i32| n <= 10 * major + minor),
        }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        if let Ok(_current) = self.enter()
            && self.stream != Stream::DEFAULT
        {
            self.stream.destroy();
        }
        // SAFETY: retained once by this.
        let _ = unsafe { result::primary_ctx::release(self.number) };
    }
}
