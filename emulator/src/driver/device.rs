//! The emulated device and its attributes.
use super::{CudaResult, answer, context, put, valid};
use cudarc::driver::sys::{CUdevice, CUdevice_attribute, CUresult};
use std::{
    env,
    ffi::{c_char, c_int, c_uint},
    sync::OnceLock,
};

const NAME: &str = "kiln emulator";
/// The CUDA version, 1000 major + 10 minor. No real driver has this last digit, so caches of
/// compiled code do not mix.
const DRIVER: c_int = 12089;
const MULTIPROCESSORS: c_int = 4;
/// Static shared memory limit per CTA in bytes.
pub const SHARED: u32 = 48 << 10;

/// The properties that differ between chips.
pub struct Device {
    /// Compute capability.
    pub capability: (c_int, c_int),
    /// Opt-in shared memory limit per CTA in bytes.
    pub shared: u32,
    /// Most resident threads and CTAs per SM.
    resident: (c_int, c_int),
    /// Device memory in bytes.
    pub memory: usize,
}

/// The device that the environment selects. Err: it names no supported chip.
fn selected() -> &'static Result<Device, String> {
    static DEVICE: OnceLock<Result<Device, String>> = OnceLock::new();
    DEVICE.get_or_init(|| {
        let chip = env::var("KILN_EMULATOR_CHIP").unwrap_or_else(|_| "sm_90".into());
        let (capability, shared, resident) = match chip.trim_end_matches('a') {
            "sm_80" => ((8, 0), 163 << 10, (2048, 32)),
            "sm_86" => ((8, 6), 99 << 10, (1536, 16)),
            "sm_89" => ((8, 9), 99 << 10, (1536, 24)),
            "sm_90" => ((9, 0), 227 << 10, (2048, 32)),
            _ => {
                return Err(format!(
                    "KILN_EMULATOR_CHIP is '{chip}'; there are sm_80, sm_86, sm_89 and sm_90"
                ));
            }
        };
        let memory = match env::var("KILN_EMULATOR_MEMORY") {
            Ok(bytes) => bytes.parse().map_err(|_| {
                format!("KILN_EMULATOR_MEMORY is '{bytes}'; it is a number of bytes")
            })?,
            Err(_) => 8 << 30,
        };
        Ok(Device { capability, shared, resident, memory })
    })
}

/// The device.
pub fn device() -> CudaResult<&'static Device> {
    selected().as_ref().map_err(|_| CUresult::CUDA_ERROR_NO_DEVICE)
}

impl Device {
    fn attributes(&self) -> [(CUdevice_attribute, c_int); 55] {
        use CUdevice_attribute::*;
        let shared = self.shared as c_int;
        let hopper = c_int::from(self.capability.0 >= 9);
        [
            (CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024),
            (CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024),
            (CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024),
            (CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64),
            (CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, c_int::MAX),
            (CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535),
            (CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535),
            (CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, SHARED as c_int),
            (CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, shared),
            (CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, 1024),
            (CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, shared + 1024),
            (CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, 65536),
            (CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32),
            (CU_DEVICE_ATTRIBUTE_MAX_PITCH, c_int::MAX),
            (CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 65536),
            (CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 65536),
            (CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, self.resident.0),
            (CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, self.resident.1),
            (CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, MULTIPROCESSORS),
            (CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1_980_000),
            (CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 3_201_000),
            (CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 6144),
            (CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 60 << 20),
            (CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, 512),
            (CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT, 32),
            (CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT, 512),
            (CU_DEVICE_ATTRIBUTE_GPU_OVERLAP, 1),
            (CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 3),
            (CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 1),
            (CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT, 0),
            (CU_DEVICE_ATTRIBUTE_INTEGRATED, 0),
            (CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1),
            (CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, 0),
            (CU_DEVICE_ATTRIBUTE_ECC_ENABLED, 1),
            (CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, 0),
            (CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, 0),
            (CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, 0),
            (CU_DEVICE_ATTRIBUTE_TCC_DRIVER, 0),
            (CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1),
            (CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, self.capability.0),
            (CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, self.capability.1),
            (CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, 0),
            (CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED, 1),
            (CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED, 1),
            (CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 0),
            (CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, 0),
            (CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 0),
            (CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, 0),
            (CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD, 0),
            (CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO, 2),
            (CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE, 0),
            (CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 1),
            (CU_DEVICE_ATTRIBUTE_VIRTUAL_ADDRESS_MANAGEMENT_SUPPORTED, 0),
            (CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH, hopper),
            (CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED, hopper),
        ]
    }
    /// Whether it runs code for a target such as `sm_80`; arch-specific ones (`sm_90a`) must match.
    pub fn runs(&self, target: &str) -> bool {
        let own = 10 * self.capability.0 + self.capability.1;
        let Some(number) = target.strip_prefix("sm_") else { return false };
        match number.strip_suffix('a') {
            Some(n) => n.parse() == Ok(own),
            None => number.parse().is_ok_and(|n: c_int| n <= own),
        }
    }
}

/// The single device of this ordinal.
fn by_ordinal(ordinal: CUdevice) -> CudaResult<&'static Device> {
    if ordinal == 0 { device() } else { Err(CUresult::CUDA_ERROR_INVALID_DEVICE) }
}

/// Initialises the driver.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuInit(flags: c_uint) -> CUresult {
    answer(|| {
        valid(flags == 0)?;
        if let Err(why) = selected() {
            eprintln!("kiln-emulator: {why}");
        }
        device()?;
        context::start();
        Ok(())
    })
}

/// The CUDA version.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDriverGetVersion(version: *mut c_int) -> CUresult {
    // SAFETY: room for a number.
    answer(|| unsafe { put(version, DRIVER) })
}

/// The device of an ordinal.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGet(device: *mut CUdevice, ordinal: c_int) -> CUresult {
    // SAFETY: room for a device.
    answer(|| {
        context::started()
            .and_then(|()| by_ordinal(ordinal))
            .and_then(|_| unsafe { put(device, 0) })
    })
}

/// The number of devices.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetCount(count: *mut c_int) -> CUresult {
    // SAFETY: room for a number.
    answer(|| context::started().and_then(|()| unsafe { put(count, 1) }))
}

/// A device's name, truncated to `len` bytes with its NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetName(
    name: *mut c_char,
    len: c_int,
    device: CUdevice,
) -> CUresult {
    answer(|| {
        context::started()?;
        by_ordinal(device)?;
        valid(!name.is_null() && len > 0)?;
        for (i, byte) in NAME.bytes().take(len as usize - 1).chain([0]).enumerate() {
            // SAFETY: fewer than the `len` bytes of room.
            unsafe { name.add(i).write(byte as c_char) };
        }
        Ok(())
    })
}

/// Device memory in bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceTotalMem_v2(bytes: *mut usize, device: CUdevice) -> CUresult {
    // SAFETY: room for a number.
    answer(|| {
        context::started()
            .and_then(|()| by_ordinal(device))
            .and_then(|c| unsafe { put(bytes, c.memory) })
    })
}

/// A device attribute.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetAttribute(
    value: *mut c_int,
    attribute: c_uint,
    device: CUdevice,
) -> CUresult {
    answer(|| {
        context::started()?;
        let all = by_ordinal(device)?.attributes();
        let selected = all
            .iter()
            .find(|(a, _)| *a as c_uint == attribute)
            .ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        // SAFETY: room for a number.
        unsafe { put(value, selected.1) }
    })
}
