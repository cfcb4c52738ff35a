//! The functions of cuFFT, loaded at run time.
use crate::cuda::shared_library::{Library, function, open};
use std::ffi::{c_int, c_longlong, c_void};

/// cuFFT of CUDA 13, and of CUDA 12.
pub const NAMES: [&str; 3] = ["libcufft.so.12", "libcufft.so.11", "libcufft.so"];

/// `cufftHandle`.
pub type Handle = c_int;
/// 0 is success.
pub type Status = c_int;
type Sizes = *mut c_longlong;

/// A transform without a direction: plan, operand, result.
pub type OneWay = unsafe extern "C" fn(Handle, *mut c_void, *mut c_void) -> Status;
/// A transform with a direction.
pub type EitherWay = unsafe extern "C" fn(Handle, *mut c_void, *mut c_void, c_int) -> Status;

/// The functions for one element type.
pub struct Functions {
    pub complex: EitherWay,
    pub real_to_half: OneWay,
    pub half_to_real: OneWay,
}

/// The library.
pub struct Cufft {
    pub f32: Functions,
    pub f64: Functions,
    pub create: unsafe extern "C" fn(*mut Handle) -> Status,
    pub destroy: unsafe extern "C" fn(Handle) -> Status,
    pub set_auto_allocation: unsafe extern "C" fn(Handle, c_int) -> Status,
    pub set_work_area: unsafe extern "C" fn(Handle, *mut c_void) -> Status,
    pub set_stream: unsafe extern "C" fn(Handle, *mut c_void) -> Status,
    /// Plan, rank, sizes, three of the operand's layout, three of the result's, type, batch, and
    /// bytes of workspace.
    pub make_plan: unsafe extern "C" fn(
        Handle,
        c_int,
        Sizes,
        Sizes,
        c_longlong,
        c_longlong,
        Sizes,
        c_longlong,
        c_longlong,
        c_int,
        c_longlong,
        *mut usize,
    ) -> Status,
    /// What the functions are of.
    _library: Library,
}

impl Cufft {
    /// Err: the library is not found, or lacks a function.
    pub fn load() -> Result<Cufft, String> {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
        let library = open(&NAMES, &maps)?;
        // SAFETY: the functions of these names have these types since CUDA 8.
        unsafe {
            Ok(Cufft {
                f32: Functions {
                    complex: function(&library, "cufftExecC2C")?,
                    real_to_half: function(&library, "cufftExecR2C")?,
                    half_to_real: function(&library, "cufftExecC2R")?,
                },
                f64: Functions {
                    complex: function(&library, "cufftExecZ2Z")?,
                    real_to_half: function(&library, "cufftExecD2Z")?,
                    half_to_real: function(&library, "cufftExecZ2D")?,
                },
                create: function(&library, "cufftCreate")?,
                destroy: function(&library, "cufftDestroy")?,
                set_auto_allocation: function(&library, "cufftSetAutoAllocation")?,
                set_work_area: function(&library, "cufftSetWorkArea")?,
                set_stream: function(&library, "cufftSetStream")?,
                make_plan: function(&library, "cufftMakePlanMany64")?,
                _library: library,
            })
        }
    }
}
