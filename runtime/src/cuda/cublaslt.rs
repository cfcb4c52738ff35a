//! Matrix products by cuBLASLt, loaded on first use. cudarc would panic if the library is missing,
//! so it is looked for first.
//!
//! cuBLASLt is column-major, so it is asked for the transposed product: rightᵀ leftᵀ.
use super::CudaError;
use crate::gemm::{Activation, Gemm, Matrix};
use cudarc::{
    cublaslt::{result, sys},
    driver::sys as driver,
};
use std::{
    ffi::c_void,
    sync::{Arc, OnceLock},
};
use sys::{
    cublasLtMatmulDescAttributes_t as Attribute,
    cublasLtMatmulPreferenceAttributes_t as Preference, cublasLtMatrixLayoutAttribute_t as Layout,
};

/// Workspace limit in bytes, as PyTorch's on Hopper.
const MAX_WORKSPACE: usize = 32 << 20;
/// Least alignment of device pointers, in bytes.
const ALIGNMENT: u32 = 16;

/// Whether the library can be loaded.
pub fn present() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    // SAFETY: opens and closes a library.
    *FOUND.get_or_init(|| unsafe { sys::is_culib_present() })
}

/// The library names that were tried, for messages.
pub fn searched() -> String {
    super::searched("libcublasLt.so.12", cudarc::get_lib_name_candidates("cublasLt"))
}

fn error(what: &'static str) -> impl Fn(result::CublasError) -> CudaError {
    move |e| CudaError::Driver { what, reason: format!("cuBLASLt says {:?}", e.0) }
}

/// A cuBLASLt handle.
pub struct Handle(sys::cublasLtHandle_t);
// SAFETY: the handle may be used from any thread, by several at once.
unsafe impl Send for Handle {}
unsafe impl Sync for Handle {}

impl Handle {
    /// Creates a handle in the current context. Err: the library is missing or does not initialise.
    pub fn new() -> Result<Handle, CudaError> {
        if !present() {
            return Err(CudaError::Driver {
                what: "looking for cuBLASLt",
                reason: format!("looked for {}", searched()),
            });
        }
        result::create_handle().map(Handle).map_err(error("starting cuBLASLt"))
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: created by `new`; every matmul that uses it is gone.
        let _ = unsafe { result::destroy_handle(self.0) };
    }
}

/// A matrix layout, destroyed on drop.
struct MatrixLayout(sys::cublasLtMatrixLayout_t);

impl MatrixLayout {
    fn new(m: &Matrix, batch: u32) -> Result<MatrixLayout, CudaError> {
        let fail = error("describing a matrix to cuBLASLt");
        let [lines, each] = m.lines;
        let layout = MatrixLayout(
            result::create_matrix_layout(element(&m.dtype)?, each, lines, m.stride as i64)
                .map_err(&fail)?,
        );
        if batch > 1 {
            let (count, apart) = (batch as i32, m.apart as i64);
            // SAFETY: attributes of these types.
            unsafe {
                let set = |which, at: *const c_void, bytes| {
                    result::set_matrix_layout_attribute(layout.0, which, at, bytes).map_err(&fail)
                };
                set(Layout::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, (&raw const count).cast(), 4)?;
                set(
                    Layout::CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                    (&raw const apart).cast(),
                    8,
                )?;
            }
        }
        Ok(layout)
    }
}

impl Drop for MatrixLayout {
    fn drop(&mut self) {
        // SAFETY: created by `new`, destroyed once.
        let _ = unsafe { result::destroy_matrix_layout(self.0) };
    }
}

fn element(dtype: &str) -> Result<sys::cudaDataType, CudaError> {
    match dtype {
        "bf16" => Ok(sys::cudaDataType::CUDA_R_16BF),
        "f16" => Ok(sys::cudaDataType::CUDA_R_16F),
        "f32" => Ok(sys::cudaDataType::CUDA_R_32F),
        other => Err(CudaError::Driver {
            what: "describing a matrix to cuBLASLt",
            reason: format!("the library does not support the element type {other}"),
        }),
    }
}

fn width(dtype: &str) -> u64 {
    crate::view::byte_size(dtype).unwrap_or(1) as u64
}

/// A matmul with the algorithm that the heuristic chose.
pub struct Matmul {
    handle: Arc<Handle>,
    gemm: Gemm,
    /// The fused epilogue, without the bias pointer.
    epilogue: sys::cublasLtEpilogue_t,
    left: MatrixLayout,
    right: MatrixLayout,
    result: MatrixLayout,
    algorithm: sys::cublasLtMatmulAlgo_t,
    /// Workspace in bytes.
    pub workspace: usize,
}
// SAFETY: descriptors are only read once they are created.
unsafe impl Send for Matmul {}
unsafe impl Sync for Matmul {}

/// A matmul descriptor, destroyed on drop.
struct MatmulDesc(sys::cublasLtMatmulDesc_t);

impl MatmulDesc {
    fn new(
        g: &Gemm,
        epilogue: sys::cublasLtEpilogue_t,
        bias: Option<u64>,
    ) -> Result<MatmulDesc, CudaError> {
        let fail = error("describing a product to cuBLASLt");
        let compute = if g.tf32 {
            sys::cublasComputeType_t::CUBLAS_COMPUTE_32F_FAST_TF32
        } else {
            sys::cublasComputeType_t::CUBLAS_COMPUTE_32F
        };
        let descriptor = MatmulDesc(
            result::create_matmul_desc(compute, sys::cudaDataType::CUDA_R_32F).map_err(&fail)?,
        );
        // The K dimension must be the rows of the first operand and the columns of the second.
        let first = if g.right.transposed { 1i32 } else { 0 };
        let second = if g.left.transposed { 1i32 } else { 0 };
        // SAFETY: attributes of these types; a device address is a pointer.
        unsafe {
            let set = |which, at: *const c_void, bytes| {
                result::set_matmul_desc_attribute(descriptor.0, which, at, bytes).map_err(&fail)
            };
            set(Attribute::CUBLASLT_MATMUL_DESC_TRANSA, (&raw const first).cast(), 4)?;
            set(Attribute::CUBLASLT_MATMUL_DESC_TRANSB, (&raw const second).cast(), 4)?;
            set(Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE, (&raw const epilogue).cast(), 4)?;
            if let Some(address) = bias {
                set(Attribute::CUBLASLT_MATMUL_DESC_BIAS_POINTER, (&raw const address).cast(), 8)?;
            }
        }
        Ok(descriptor)
    }
}

impl Drop for MatmulDesc {
    fn drop(&mut self) {
        // SAFETY: created by `new`, destroyed once.
        let _ = unsafe { result::destroy_matmul_desc(self.0) };
    }
}

impl Matmul {
    /// Takes the heuristic's first algorithm. Err: there is none, or a descriptor is invalid.
    pub fn new(handle: &Arc<Handle>, gemm: &Gemm) -> Result<Matmul, CudaError> {
        use sys::cublasLtEpilogue_t::{
            CUBLASLT_EPILOGUE_BIAS as BIAS, CUBLASLT_EPILOGUE_DEFAULT as PLAIN,
            CUBLASLT_EPILOGUE_GELU as GELU, CUBLASLT_EPILOGUE_GELU_BIAS as GELU_BIAS,
            CUBLASLT_EPILOGUE_RELU as RELU, CUBLASLT_EPILOGUE_RELU_BIAS as RELU_BIAS,
        };
        let epilogue = match (gemm.activation, gemm.bias.is_some()) {
            (Activation::None, false) => PLAIN,
            (Activation::None, true) => BIAS,
            (Activation::Relu, false) => RELU,
            (Activation::Relu, true) => RELU_BIAS,
            (Activation::GeluTanh, false) => GELU,
            (Activation::GeluTanh, true) => GELU_BIAS,
        };
        let one = |m: &Matrix| MatrixLayout::new(m, gemm.batch);
        let (left, right, result) = (one(&gemm.left)?, one(&gemm.right)?, one(&gemm.result)?);
        // The heuristic needs some aligned bias pointer.
        let descriptor = MatmulDesc::new(gemm, epilogue, gemm.bias.map(|_| 256))?;
        let fail = error("asking cuBLASLt for an algorithm");
        let preference = result::create_matmul_pref().map_err(&fail)?;
        let choose = || -> Result<_, CudaError> {
            use Preference::{
                CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES as BYTES,
                CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES as A,
                CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES as B,
                CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES as C,
                CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES as D,
            };
            let (most, aligned) = (MAX_WORKSPACE, ALIGNMENT);
            // SAFETY: attributes of these types, and live descriptors.
            unsafe {
                let set = |which, at: *const c_void, bytes| {
                    result::set_matmul_pref_attribute(preference, which, at, bytes).map_err(&fail)
                };
                set(BYTES, (&raw const most).cast(), 8)?;
                for which in [A, B, C, D] {
                    set(which, (&raw const aligned).cast(), 4)?;
                }
                result::get_matmul_algo_heuristic(
                    handle.0,
                    descriptor.0,
                    right.0,
                    left.0,
                    result.0,
                    result.0,
                    preference,
                )
                .map_err(&fail)
            }
        };
        let chosen = choose();
        // SAFETY: created above, destroyed once.
        let _ = unsafe { result::destroy_matmul_pref(preference) };
        let chosen = chosen?;
        let workspace = chosen.workspaceSize;
        Ok(Matmul {
            handle: handle.clone(),
            gemm: gemm.clone(),
            epilogue,
            left,
            right,
            result,
            algorithm: chosen.algo,
            workspace,
        })
    }

    /// Enqueues it. `parameters` are the launch's, some of them device pointers; `scratch` is the
    /// device address of [`Matmul::workspace`] bytes.
    pub fn launch(
        &self,
        parameters: &[u64],
        scratch: u64,
        stream: driver::CUstream,
    ) -> Result<(), CudaError> {
        let fail = error("a product by cuBLASLt");
        let address = |arg: usize, offset: u64, dtype: &str| {
            let word = parameters.get(arg).ok_or_else(|| CudaError::Driver {
                what: "a product by cuBLASLt",
                reason: format!("there is no parameter {arg}"),
            })?;
            Ok::<u64, CudaError>(word + offset * width(dtype))
        };
        let of = |m: &Matrix| address(m.arg, m.offset, &m.dtype);
        let g = &self.gemm;
        let (left, right, to) = (of(&g.left)?, of(&g.right)?, of(&g.result)?);
        let bias = g.bias.map(|v| address(v.arg, v.offset, &g.result.dtype)).transpose()?;
        // The descriptor holds the bias pointer, and several threads may launch at once.
        let descriptor = MatmulDesc::new(g, self.epilogue, bias)?;
        let (one, zero) = (1f32, 0f32);
        // SAFETY: matrices of these sizes are at these addresses, as the program says; beta is 0,
        // so the result is not read.
        let status = unsafe {
            sys::cublasLtMatmul(
                self.handle.0,
                descriptor.0,
                (&raw const one).cast(),
                right as *const c_void,
                self.right.0,
                left as *const c_void,
                self.left.0,
                (&raw const zero).cast(),
                to as *const c_void,
                self.result.0,
                to as *mut c_void,
                self.result.0,
                &self.algorithm,
                scratch as *mut c_void,
                self.workspace,
                stream.cast(),
            )
        };
        status.result().map_err(fail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_the_library_the_error_says_what_was_searched() {
        if present() {
            return;
        }
        let e = Handle::new().err().expect("there is none").to_string();
        assert!(e.contains("libcublasLt.so.12 and "), "{e}");
    }
}
