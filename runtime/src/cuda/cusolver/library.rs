//! The functions of cuSOLVER and cuBLAS, loaded at run time. cudarc has bindings too, but panics
//! where a library is missing, and does not know the names of CUDA 13.
use crate::cuda::shared_library::{Library, function, open};
use std::ffi::{c_int, c_void};

/// The names that are tried, the newest first: those of CUDA 13, and of CUDA 12 and 11.
pub const SOLVER: [&str; 3] = ["libcusolver.so.12", "libcusolver.so.11", "libcusolver.so"];
/// cuBLAS of CUDA 13 and 12.
pub const BLAS: [&str; 3] = ["libcublas.so.13", "libcublas.so.12", "libcublas.so"];

/// A handle of cuSOLVER, of cuBLAS, or parameters.
pub type Handle = *mut c_void;
/// 0 is success.
pub type Status = c_int;
type Int = c_int;

/// The functions for one element type, with the C API's arguments.
pub struct Functions<T> {
    pub potrf_size: unsafe extern "C" fn(Handle, Int, Int, *mut T, Int, *mut Int) -> Status,
    pub potrf: unsafe extern "C" fn(Handle, Int, Int, *mut T, Int, *mut T, Int, *mut Int) -> Status,
    pub potrf_batched:
        unsafe extern "C" fn(Handle, Int, Int, *mut *mut T, Int, *mut Int, Int) -> Status,
    pub getrf_size: unsafe extern "C" fn(Handle, Int, Int, *mut T, Int, *mut Int) -> Status,
    pub getrf:
        unsafe extern "C" fn(Handle, Int, Int, *mut T, Int, *mut T, *mut Int, *mut Int) -> Status,
    pub getrs: unsafe extern "C" fn(
        Handle,
        Int,
        Int,
        Int,
        *const T,
        Int,
        *const Int,
        *mut T,
        Int,
        *mut Int,
    ) -> Status,
    pub geqrf_size: unsafe extern "C" fn(Handle, Int, Int, *mut T, Int, *mut Int) -> Status,
    pub geqrf: unsafe extern "C" fn(
        Handle,
        Int,
        Int,
        *mut T,
        Int,
        *mut T,
        *mut T,
        Int,
        *mut Int,
    ) -> Status,
    pub orgqr_size:
        unsafe extern "C" fn(Handle, Int, Int, Int, *const T, Int, *const T, *mut Int) -> Status,
    pub orgqr: unsafe extern "C" fn(
        Handle,
        Int,
        Int,
        Int,
        *mut T,
        Int,
        *const T,
        *mut T,
        Int,
        *mut Int,
    ) -> Status,
    pub syevd_size:
        unsafe extern "C" fn(Handle, Int, Int, Int, *const T, Int, *const T, *mut Int) -> Status,
    pub syevd: unsafe extern "C" fn(
        Handle,
        Int,
        Int,
        Int,
        *mut T,
        Int,
        *mut T,
        *mut T,
        Int,
        *mut Int,
    ) -> Status,
    pub gesvdj_size: unsafe extern "C" fn(
        Handle,
        Int,
        Int,
        Int,
        Int,
        *const T,
        Int,
        *const T,
        *const T,
        Int,
        *const T,
        Int,
        *mut Int,
        Handle,
    ) -> Status,
    pub gesvdj: unsafe extern "C" fn(
        Handle,
        Int,
        Int,
        Int,
        Int,
        *mut T,
        Int,
        *mut T,
        *mut T,
        Int,
        *mut T,
        Int,
        *mut T,
        Int,
        *mut Int,
        Handle,
    ) -> Status,
    pub trsm: unsafe extern "C" fn(
        Handle,
        Int,
        Int,
        Int,
        Int,
        Int,
        Int,
        *const T,
        *const T,
        Int,
        *mut T,
        Int,
    ) -> Status,
    pub trsm_batched: unsafe extern "C" fn(
        Handle,
        Int,
        Int,
        Int,
        Int,
        Int,
        Int,
        *const T,
        *const *const T,
        Int,
        *const *mut T,
        Int,
        Int,
    ) -> Status,
    pub getrs_batched: unsafe extern "C" fn(
        Handle,
        Int,
        Int,
        Int,
        *const *const T,
        Int,
        *const Int,
        *const *mut T,
        Int,
        *mut Int,
        Int,
    ) -> Status,
    pub getrf_batched:
        unsafe extern "C" fn(Handle, Int, *const *mut T, Int, *mut Int, *mut Int, Int) -> Status,
}

impl<T> Functions<T> {
    /// `letter`: S for f32, D for f64. Err: a function that a library lacks.
    fn new(solver: &Library, blas: &Library, letter: char) -> Result<Functions<T>, String> {
        let (dn, cublas) = (
            |name: &str| format!("cusolverDn{letter}{name}"),
            |name: &str| format!("cublas{letter}{name}"),
        );
        // SAFETY: the functions of these names have these types since CUDA 11.
        unsafe {
            Ok(Functions {
                potrf_size: function(solver, &dn("potrf_bufferSize"))?,
                potrf: function(solver, &dn("potrf"))?,
                potrf_batched: function(solver, &dn("potrfBatched"))?,
                getrf_size: function(solver, &dn("getrf_bufferSize"))?,
                getrf: function(solver, &dn("getrf"))?,
                getrs: function(solver, &dn("getrs"))?,
                geqrf_size: function(solver, &dn("geqrf_bufferSize"))?,
                geqrf: function(solver, &dn("geqrf"))?,
                orgqr_size: function(solver, &dn("orgqr_bufferSize"))?,
                orgqr: function(solver, &dn("orgqr"))?,
                syevd_size: function(solver, &dn("syevd_bufferSize"))?,
                syevd: function(solver, &dn("syevd"))?,
                gesvdj_size: function(solver, &dn("gesvdj_bufferSize"))?,
                gesvdj: function(solver, &dn("gesvdj"))?,
                trsm: function(blas, &cublas("trsm_v2"))?,
                trsm_batched: function(blas, &cublas("trsmBatched"))?,
                getrs_batched: function(blas, &cublas("getrsBatched"))?,
                getrf_batched: function(blas, &cublas("getrfBatched"))?,
            })
        }
    }
}

/// Both libraries.
pub struct Libraries {
    pub f32: Functions<f32>,
    pub f64: Functions<f64>,
    pub create: unsafe extern "C" fn(*mut Handle) -> Status,
    pub set_stream: unsafe extern "C" fn(Handle, Handle) -> Status,
    pub create_gesvdj: unsafe extern "C" fn(*mut Handle) -> Status,
    pub blas_create: unsafe extern "C" fn(*mut Handle) -> Status,
    pub blas_set_stream: unsafe extern "C" fn(Handle, Handle) -> Status,
    /// What the functions are of.
    _libraries: [Library; 2],
}

impl Libraries {
    /// Err: a library that is not found, or that lacks a function.
    pub fn load() -> Result<Libraries, String> {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
        let (blas, solver) = (open(&BLAS, &maps)?, open(&SOLVER, &maps)?);
        // SAFETY: the functions of these names have these types.
        unsafe {
            Ok(Libraries {
                f32: Functions::new(&solver, &blas, 'S')?,
                f64: Functions::new(&solver, &blas, 'D')?,
                create: function(&solver, "cusolverDnCreate")?,
                set_stream: function(&solver, "cusolverDnSetStream")?,
                create_gesvdj: function(&solver, "cusolverDnCreateGesvdjInfo")?,
                blas_create: function(&blas, "cublasCreate_v2")?,
                blas_set_stream: function(&blas, "cublasSetStream_v2")?,
                _libraries: [solver, blas],
            })
        }
    }
}
